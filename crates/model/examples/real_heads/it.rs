//! What "it" refers to: where heads look, and what the model says.

use super::heads::{
    At, Swap, all_heads, by_chance, log_odds, mean, moved_by_swap, name, on, rounded,
};
use super::reading::{Pair, Words};
use anyhow::Result;
use model::opened::{Head, Network};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The weights of a head on two nouns, in two sentences with different ends.
type OfPair = [[f64; 2]; 2];

/// For each head its weights in all pairs, from the pronoun, or from the last word before the full stop.
fn on_nouns(
    (network, words): (&Network, &Words),
    pairs: &[Pair],
    (pronoun, from_it): (&str, bool),
) -> Result<BTreeMap<Head, Vec<OfPair>>> {
    let mut weights: BTreeMap<Head, Vec<OfPair>> = BTreeMap::new();
    for (number, pair) in pairs.iter().enumerate() {
        for (end, late) in pair.late.iter().enumerate() {
            let reading = words.read(&pair.sentence(late, pronoun))?;
            let seen = network.look(&reading.ids)?;
            // The late words end with the sentence, in front of a full stop.
            let query = if from_it {
                reading.word(pronoun)?.end
            } else {
                reading.word(late)?.end
            };
            for (noun, word) in pair.nouns.iter().enumerate() {
                let keys = reading.word(word)?;
                for head in all_heads(network) {
                    let of_head = weights.entry(head).or_default();
                    of_head.resize(number + 1, OfPair::default());
                    of_head[number][end][noun] = on(&seen, head, query - 1, keys.clone());
                }
            }
        }
    }
    Ok(weights)
}

/// In how many sentences the right noun has more.
fn right(pairs: &[OfPair]) -> usize {
    let right = |[a, b]: &OfPair| usize::from(a[0] > a[1]) + usize::from(b[1] > b[0]);
    pairs.iter().map(right).sum()
}

/// How many the best of all heads has right when the ends of these pairs are swapped.
fn most_right(weights: &BTreeMap<Head, Vec<OfPair>>, swapped: &[bool]) -> Option<usize> {
    let of_head = |pairs: &Vec<OfPair>| {
        let drawn = pairs.iter().zip(swapped);
        let drawn = drawn.map(|(&[a, b], &swap)| if swap { [b, a] } else { [a, b] });
        right(&drawn.collect::<Vec<_>>())
    };
    weights.values().map(of_head).max()
}

/// What a head gives to all tokens of the first pair's sentences, from a word of each.
fn in_full(
    (network, words): (&Network, &Words),
    pair: &Pair,
    (l, h): Head,
    from: [&str; 2],
) -> Result<Value> {
    let mut tokens = Vec::new();
    let mut weights = Vec::new();
    for (late, from) in pair.late.iter().zip(from) {
        let reading = words.read(&pair.sentence(late, "it"))?;
        let weights_of = &network.look(&reading.ids)?.weights[l][h];
        let row = weights_of.row(reading.word(from)?.end - 1);
        weights.push(
            row.iter().map(|&weight| rounded(f64::from(weight))).collect::<Vec<_>>(),
        );
        tokens.push(words.tokens(&reading));
    }
    Ok(json!({ "head": name((l, h)), "tokens": tokens, "weights": weights }))
}

/// What "it" looks at, in the model that reads forward and in the one that reads both ways; and what the late word looks at.
pub fn it(
    causal: (&Network, &Words),
    both_ways: (&Network, &Words),
    pairs: &[Pair],
) -> Result<Value> {
    let told = |weights: &BTreeMap<Head, Vec<OfPair>>, head: Head| {
        let pairs = &weights[&head];
        let moved = pairs.iter().filter(|[a, b]| (a[0] > a[1]) != (b[0] > b[1]));
        let weights = pairs.iter().map(|pair| pair.map(|nouns| nouns.map(rounded)));
        json!({
            "head": name(head), "right": right(pairs),
            "pairs_with_two_answers": moved.count(), "weights": weights.collect::<Vec<_>>(),
        })
    };
    let from_it = on_nouns(causal, pairs, ("it", true))?;
    let differ = from_it.values().flatten().flat_map(|[a, b]| [a[0] - b[0], a[1] - b[1]]);
    let differ = differ.map(f64::abs).fold(0.0, f64::max);
    let both = on_nouns(both_ways, pairs, ("it", true))?;
    let late = on_nouns(causal, pairs, ("it", false))?;
    let with_name = on_nouns(causal, pairs, ("Bob", false))?;
    let both_nouns = with_name[&(13, 8)].iter().flatten().map(|[a, b]| a + b);
    let from_pronoun = |head| in_full(both_ways, &pairs[0], head, ["it"; 2]);
    let from_late = pairs[0].late.each_ref().map(String::as_str);
    Ok(json!({
        "sentences": 2 * pairs.len(),
        "first_pair": [from_pronoun((3, 1))?, from_pronoun((5, 11))?, in_full(causal, &pairs[0], (13, 8), from_late)?],
        "causal": { "largest_difference": differ, "head": told(&from_it, (13, 8)) },
        "both_ways": {
            "moved": told(&both, (3, 1)), "unmoved": told(&both, (5, 11)),
            "right_by_chance": by_chance(pairs.len(), |swapped| most_right(&both, swapped)),
        },
        "late_word": {
            "head": told(&late, (13, 8)), "on_nouns_with_name": rounded(mean(both_nouns)),
        },
    }))
}

/// The question what a pronoun refers to, after both sentences of a pair; heads are swapped at the late word.
fn question(words: &Words, pair: &Pair, pronoun: &str) -> Result<Swap> {
    let text = |late: &String| -> Result<At> {
        let sentence = pair.sentence(late, pronoun);
        let asked = format!("{sentence} In this sentence, \"{pronoun}\" refers to the");
        let reading = words.read(&asked)?;
        let token = reading.word(late)?.end - 1;
        Ok((reading.ids, token))
    };
    let [one, other] = &pair.late;
    let [first, second] = &pair.nouns;
    Ok(Swap {
        texts: [text(one)?, text(other)?],
        answers: [words.first_token(first)?, words.first_token(second)?],
    })
}

/// What the causal model says "it" refers to, after the sentence; and how far the odds of the nouns move when heads are swapped.
pub fn resolved(network: &Network, words: &Words, pairs: &[Pair]) -> Result<Value> {
    let questions = |pronoun: &str| {
        let all = pairs.iter().map(|pair| question(words, pair, pronoun));
        all.collect::<Result<Vec<_>>>()
    };
    let row = |questions: &[Swap]| {
        let odds = questions.iter().map(|Swap { texts: [one, other], answers }| {
            let of = |ids: &[usize]| log_odds(network, &network.forward(ids)?, *answers);
            Ok([of(&one.0)?, of(&other.0)?])
        });
        let odds = odds.collect::<Result<Vec<[f64; 2]>>>()?;
        let right =
            odds.iter().map(|[a, b]| usize::from(*a > 0.0) + usize::from(*b < 0.0));
        Ok::<_, anyhow::Error>(json!({
            "right": right.sum::<usize>(), "first_pair": odds[0].map(rounded),
            "move_right": odds.iter().filter(|[a, b]| a > b).count(),
        }))
    };
    let of_it = questions("it")?;
    let late = on_nouns((network, words), pairs, ("it", false))?;
    let changes = |[a, b]: &OfPair| (a[0] > a[1]) != (b[0] > b[1]);
    let where_map_changes = std::iter::zip(pairs, &late[&(13, 8)])
        .filter(|(_, weights)| changes(weights))
        .map(|(pair, _)| question(words, pair, "it"));
    let where_map_changes = where_map_changes.collect::<Result<Vec<_>>>()?;
    let moved = |head: &str, heads: &[Head]| {
        let [all_pairs, some] = [&of_it, &where_map_changes]
            .map(|questions| moved_by_swap(network, heads, questions).map(rounded));
        Ok::<_, anyhow::Error>(json!({
            "head": head, "all_pairs": all_pairs?, "where_map_changes": some?,
        }))
    };
    Ok(json!({
        "it": row(&of_it)?, "with_name": row(&questions("Bob")?)?,
        "moved": [moved("13.8", &[(13, 8)])?, moved("13.2", &[(13, 2)])?, moved("all", &all_heads(network))?],
    }))
}
