//! Names, blocks, and next words that have a reason.

use super::heads::{
    Map, Output, all_heads, by_chance, drawn_from, map, mean, name, on, outputs_at,
    ranked, rounded, seen_with_outputs,
};
use super::reading::{Reading, Reason, Texts, Words};
use anyhow::Result;
use model::opened::{Head, Means, Network, Seen};
use serde_json::{Value, json};
use std::ops::Range;

/// What the second word of a name gives to the first, and what the same word gives where the two aren't a name.
pub fn of_names(network: &Network, words: &Words, texts: &Texts) -> Result<Value> {
    let n = texts.names.len();
    let mut weights = [vec![], vec![]]; // of names and of others: for each text, a map
    for sentence in &texts.names_in {
        for (i, [first, second]) in texts.names.iter().enumerate() {
            for (firsts, kind) in
                [first, &texts.names[(i + 5) % n][0]].into_iter().zip(0..)
            {
                let reading =
                    words.read(&sentence.replace("{}", &format!("{firsts} {second}")))?;
                let seen = network.look(&reading.ids)?;
                let (query, keys) = (reading.word(second)?.start, reading.word(firsts)?);
                weights[kind]
                    .push(map(network, |head| on(&seen, head, query, keys.clone())));
            }
        }
    }
    let [of_names, of_others] = &weights;
    let mean_of = |maps: &[Map], (l, h): Head| mean(maps.iter().map(|map| map[l][h]));
    let differ = map(network, |head| mean_of(of_names, head) - mean_of(of_others, head));
    let more = |(l, h): Head, swapped: &[bool]| {
        let texts = std::iter::zip(of_names, of_others).zip(swapped);
        texts.filter(|((a, b), swap)| (a[l][h] > b[l][h]) != **swap).count()
    };
    let as_it_is = vec![false; of_names.len()];
    let told = ranked(&differ).into_iter().take(4).map(|head| {
        json!({
            "head": name(head), "names": rounded(mean_of(of_names, head)), "others": rounded(mean_of(of_others, head)),
            "more": more(head, &as_it_is),
        })
    });
    let heads = all_heads(network);
    let best = |swapped: &[bool]| heads.iter().map(|head| more(*head, swapped)).max();
    Ok(json!({
        "texts": of_names.len(), "heads": told.collect::<Vec<_>>(), "more_by_chance": by_chance(of_names.len(), best),
    }))
}

/// Where the weight of each block goes.
pub fn blocks(network: &Network, paragraphs: &[Vec<usize>]) -> Result<Value> {
    let mut columns: [Vec<Vec<f64>>; 2] =
        std::array::from_fn(|_| vec![vec![]; network.blocks.len()]);
    let [near, first] = &mut columns;
    for ids in paragraphs {
        let seen = network.look(ids)?;
        for (block, heads) in seen.weights.iter().enumerate() {
            for weights in heads {
                for i in 2..ids.len() {
                    let sum = |from: usize| {
                        (from..=i).map(|j| f64::from(weights[(i, j)])).sum::<f64>()
                    };
                    // Without the first token, which many heads look at where nothing else fits.
                    let left = sum(1);
                    if left > 1e-4 {
                        near[block].push(sum((i - 2).max(1)) / left);
                    }
                    first[block].push(f64::from(weights[(i, 0)]));
                }
            }
        }
    }
    let [near, first] = columns.map(|blocks| {
        blocks.into_iter().map(|numbers| rounded(mean(numbers))).collect::<Vec<_>>()
    });
    Ok(json!({ "paragraphs": paragraphs.len(), "near": near, "first": first }))
}

/// A text with a reason for its next word: where the reason stands, the next word, and what is seen of it.
struct Case {
    reading: Reading,
    reason: Range<usize>,
    next: usize,
    seen: Seen,
}

/// Heads that look at what seems to be the reason, switched off or swapped where the next word is found.
pub fn reason(
    network: &Network,
    words: &Words,
    means: &Means,
    told: &Reason,
) -> Result<Value> {
    let filled =
        |text: &str, [a, b]: &[String; 2]| text.replace("{a}", a).replace("{b}", b);
    let case = |pair: &[String; 2]| {
        let reading = words.read(&filled(&told.text, pair))?;
        Ok(Case {
            reason: reading.word(&filled(&told.reason, pair))?,
            next: words.first_token(&filled(&told.next, pair))?,
            seen: network.look(&reading.ids)?,
            reading,
        })
    };
    let cases = told.words.iter().map(case).collect::<Result<Vec<_>>>()?;
    // p of a text's next word, and of the next word of the text after it, whose words are others; with some outputs replaced.
    let p = |outputs: &dyn Fn(&Case) -> Vec<Output>| {
        let of = |at: usize| {
            let (this, other) = (&cases[at], &cases[(at + 1) % cases.len()]);
            let (ids, last) = (&this.reading.ids, this.reading.ids.len() - 1);
            let seen = seen_with_outputs(network, &outputs(other), ids, last..last + 1)?;
            let hidden = seen.hidden[network.blocks.len()].rows(last, 1);
            let losses = |next| network.losses_after(hidden, &[next]);
            Ok([losses(this.next)?, losses(other.next)?].map(|losses| (-losses[0]).exp()))
        };
        let of_all = (0..cases.len()).map(of).collect::<Result<Vec<[f64; 2]>>>()?;
        let mean_of = |answer: usize| mean(of_all.iter().map(|p| p[answer]));
        Ok::<_, anyhow::Error>([0, 1].map(|answer| rounded(mean_of(answer))))
    };
    let row = |&head: &Head| {
        let last = |case: &Case| case.reading.ids.len() - 1;
        let weights = cases
            .iter()
            .map(|case| on(&case.seen, head, last(case), case.reason.clone()));
        // The token that gets most in the example, but for the first one, where many heads rest.
        let row = cases[0].seen.weights[head.0][head.1].row(last(&cases[0]));
        let (most, weight) = row.columns(1, row.len() - 1).transpose().argmax();
        let most = &words.tokens(&cases[0].reading)[most + 1];
        let off = p(&|_| vec![(head, means.of_head(head))])?;
        let swapped = p(&|case| outputs_at(network, &case.seen, &[head], last(case)))?;
        Ok(json!({
            "head": name(head), "weight": rounded(mean(weights)), "most": (most, rounded(f64::from(weight))),
            "off": off[0], "swapped": swapped,
        }))
    };
    let others = all_heads(network).into_iter();
    let others: Vec<Head> = others.filter(|head| !told.heads.contains(head)).collect();
    let random = drawn_from(&others, 5, 1);
    let [rows, random] = [&told.heads, &random]
        .map(|heads| heads.iter().map(row).collect::<Result<Vec<_>>>());
    Ok(json!({
        "example": cases[0].reading.text, "cases": cases.len(), "p": p(&|_| vec![])?, "heads": rows?, "random": random?,
    }))
}
