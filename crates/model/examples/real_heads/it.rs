//! What "it" refers to: where heads look, and what the model says.

use super::heads::{all_heads, by_chance, mean, name, names, on, rounded};
use super::reading::{Pair, Reading, Words};
use anyhow::{Context as _, Result};
use model::opened::{Head, Means, Network};
use nalgebra::DMatrix;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The weights of a head on two nouns, in two sentences with different ends.
type OfPair = [[f64; 2]; 2];

/// For each head its weights in all pairs, from "it", or from the last word before the full stop.
fn on_nouns(
    (network, words): (&Network, &Words),
    pairs: &[Pair],
    pronoun: &str,
    from_it: bool,
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
        let first_most = pairs.iter().flatten().filter(|nouns| nouns[0] > nouns[1]);
        let moved = pairs.iter().filter(|[a, b]| (a[0] > a[1]) != (b[0] > b[1]));
        let weights = pairs.iter().map(|pair| pair.map(|nouns| nouns.map(rounded)));
        json!({
            "head": name(head), "right": right(pairs), "first_noun_most": first_most.count(),
            "pairs_with_two_answers": moved.count(), "weights": weights.collect::<Vec<_>>(),
        })
    };
    let from_it = on_nouns(causal, pairs, "it", true)?;
    let differ = from_it.values().flatten().flat_map(|[a, b]| [a[0] - b[0], a[1] - b[1]]);
    let differ = differ.map(f64::abs).fold(0.0, f64::max);
    let both = on_nouns(both_ways, pairs, "it", true)?;
    let both_of_name = on_nouns(both_ways, pairs, "Bob", true)?;
    let late = on_nouns(causal, pairs, "it", false)?;
    let lean = |nouns: &[f64; 2]| nouns[0] - nouns[1];
    let move_right = late[&(13, 8)].iter().filter(|[a, b]| lean(a) > lean(b)).count();
    // With a name in place of the pronoun: what the nouns have together, and what the name has.
    let with_name = on_nouns(causal, pairs, "Bob", false)?;
    let on_nouns_with_name =
        with_name[&(13, 8)].iter().flatten().map(|nouns| nouns[0] + nouns[1]);
    let names = pairs
        .iter()
        .map(|pair| Pair { nouns: ["Bob", "Bob"].map(str::to_owned), ..pair.clone() });
    let on_name = on_nouns(causal, &names.collect::<Vec<_>>(), "Bob", false)?;
    let on_name = on_name[&(13, 8)].iter().flatten().map(|nouns| nouns[0]);
    let from_pronoun = |head| in_full(both_ways, &pairs[0], head, ["it"; 2]);
    let from_late = pairs[0].late.each_ref().map(String::as_str);
    Ok(json!({
        "sentences": 2 * pairs.len(),
        "first_pair": [from_pronoun((3, 1))?, from_pronoun((5, 11))?, in_full(causal, &pairs[0], (13, 8), from_late)?],
        "causal": { "largest_difference": differ, "head": told(&from_it, (13, 8)) },
        "both_ways": {
            "moved": told(&both, (3, 1)), "unmoved": told(&both, (5, 11)),
            "moved_with_name": told(&both_of_name, (3, 1)), "right_by_chance": by_chance(pairs.len(), |swapped| most_right(&both, swapped)),
        },
        "late_word": {
            "head": told(&late, (13, 8)), "move_right": move_right, "on_nouns_with_name": rounded(mean(on_nouns_with_name)), "on_name": rounded(mean(on_name)), "right_by_chance": by_chance(pairs.len(), |swapped| most_right(&late, swapped)),
        },
    }))
}

/// How the model is asked, and how it is asked as in the chats with which it was trained.
const PLAIN: &str = "{text} In this sentence, \"{pronoun}\" refers to the";
const CHAT: &str = "<|im_start|>user\n{text} In this sentence, what does \"{pronoun}\" refer to?<|im_end|>\n\
    <|im_start|>assistant\nIn this sentence, \"{pronoun}\" refers to the";

/// A sentence, the question what its pronoun refers to, and the two nouns.
struct Question {
    reading: Reading,
    late: String,
    nouns: [usize; 2],
}

impl Question {
    /// About each sentence of each pair; `form` has places for the sentence and the pronoun.
    fn all(
        words: &Words,
        pairs: &[Pair],
        form: &str,
        pronoun: &str,
    ) -> Result<Vec<[Self; 2]>> {
        let ask = |pair: &Pair, end: usize| -> Result<Self> {
            let text = pair.sentence(&pair.late[end], pronoun);
            Ok(Question {
                reading: words
                    .read(&form.replace("{text}", &text).replace("{pronoun}", pronoun))?,
                late: pair.late[end].clone(),
                nouns: [
                    words.first_token(&pair.nouns[0])?,
                    words.first_token(&pair.nouns[1])?,
                ],
            })
        };
        pairs.iter().map(|pair| Ok([ask(pair, 0)?, ask(pair, 1)?])).collect()
    }

    /// log p of the first noun less log p of the second, from what the tokens became.
    fn margin(&self, network: &Network, hidden: &DMatrix<f32>) -> Result<f64> {
        let scores = network.scores(hidden.rows(hidden.nrows() - 1, 1))?;
        let [first, second] = self.nouns.map(|noun| f64::from(scores[noun]));
        Ok(first - second)
    }

    /// The margins of the two sentences of each pair.
    fn margins(network: &Network, questions: &[[Self; 2]]) -> Result<Vec<[f64; 2]>> {
        let margin = |question: &Self| {
            question.margin(network, &network.forward(&question.reading.ids)?)
        };
        questions.iter().map(|[a, b]| Ok([margin(a)?, margin(b)?])).collect()
    }
}

/// How much further the answers lean to the first noun where that is meant.
fn shift_of(margins: &[[f64; 2]]) -> f64 {
    rounded(mean(margins.iter().map(|[a, b]| a - b)))
}

/// What the causal model says "it" refers to, after the sentence.
pub fn resolved(
    network: &mut Network,
    words: &Words,
    pairs: &[Pair],
    means: &Means,
    check: bool,
) -> Result<Value> {
    let of_it = Question::all(words, pairs, PLAIN, "it")?;
    let of_bob = Question::all(words, pairs, PLAIN, "Bob")?;
    let in_a_chat = Question::all(words, pairs, CHAT, "it")?;
    let rows =
        [("it", &of_it, vec![]), ("Bob", &of_bob, vec![]), ("it", &of_it, vec![(13, 8)])];
    let mut row = |(what, questions, heads): (&str, &Vec<[Question; 2]>, Vec<Head>)| {
        let margins = means
            .without(network, &heads, |network| Question::margins(network, questions))?;
        let right =
            margins.iter().map(|[a, b]| usize::from(*a > 0.0) + usize::from(*b < 0.0));
        let both = margins.iter().filter(|[a, b]| *a > 0.0 && *b < 0.0).count();
        Ok(json!({
            "what": what, "heads": names(&heads), "right": right.sum::<usize>(), "both_right": both,
            "move_right": margins.iter().filter(|[a, b]| a > b).count(),
            "shift": shift_of(&margins),
            "first_pair": margins[0].map(rounded),
        }))
    };
    let answers = rows.into_iter().map(&mut row).collect::<Result<Vec<_>>>()?;
    let in_a_chat = row(("it", &in_a_chat, vec![]))?;
    let mut told = json!({ "answers": answers, "in_a_chat": in_a_chat });
    if !check {
        (told["patched_pairs"], told["patched"]) = patched(network, &of_it)?;
    }
    Ok(told)
}

/// Which of the vectors carries the difference: those of the other sentence are put in place of ours, before one block and at one token.
fn patched(network: &Network, questions: &[[Question; 2]]) -> Result<(Value, Value)> {
    let mut shares: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    let mut used = 0;
    for [a, b] in questions {
        let [late, other] = [a, b].map(|question| question.reading.word(&question.late));
        let (late, n) = (late?, a.reading.ids.len());
        // Pairs that differ in one token.
        if other? != late || late.len() != 1 || n != b.reading.ids.len() {
            continue;
        }
        used += 1;
        let seen = network.look(&b.reading.ids)?.hidden;
        let of_a = a.margin(network, &network.forward(&a.reading.ids)?)?;
        let of_b = b.margin(network, seen.last().context("vectors")?)?;
        let at = [
            ("the late word", late.clone()),
            ("between", late.end..n - 1),
            ("the last token", n - 1..n),
        ];
        for (what, rows) in at {
            let of_block = |(block, theirs): (usize, &DMatrix<f32>)| {
                let hidden = network.forward_edited(&a.reading.ids, |number, x| {
                    if number == block {
                        let theirs = theirs.rows_range(rows.clone());
                        x.rows_range_mut(rows.clone()).copy_from(&theirs);
                    }
                })?;
                Ok((a.margin(network, &hidden)? - of_a) / (of_b - of_a))
            };
            let blocks = seen[..network.blocks.len()].iter().enumerate();
            let of_blocks = blocks.map(of_block).collect::<Result<Vec<_>>>()?;
            shares.entry(what).or_default().push(of_blocks);
        }
    }
    let means = shares.into_iter().map(|(what, pairs)| {
        let of_block = |block: usize| rounded(mean(pairs.iter().map(|of| of[block])));
        (what, (0..network.blocks.len()).map(of_block).collect::<Vec<_>>())
    });
    Ok((json!(used), json!(means.collect::<BTreeMap<_, _>>())))
}
