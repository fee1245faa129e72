//! Pronouns whose answer stands before them, names, blocks, and next words that have a reason.

use super::heads::{Map, Means, all_heads, map, mean, name, on, ranked, rounded};
use super::reading::{Reading, Reason, Texts, Words};
use anyhow::Result;
use model::opened::{Head, Network};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;

/// "He" or "she" after two names, of which one fits: how much more each head gives to it, in each sentence.
fn fitting(
    network: &Network,
    words: &Words,
    people: &[[String; 2]],
    sentences: &[String],
) -> Result<BTreeMap<Head, Vec<f64>>> {
    let mut margins: BTreeMap<Head, Vec<f64>> = BTreeMap::new();
    for sentence in sentences {
        let pronouns =
            if sentence.contains(". {p}") { ["She", "He"] } else { ["she", "he"] };
        for names in people {
            for [first, second] in [[0, 1], [1, 0]] {
                for fits in [0, 1] {
                    let text = sentence
                        .replace("{a}", &names[first])
                        .replace("{b}", &names[second])
                        .replace("{p}", pronouns[fits]);
                    let reading = words.read(&text)?;
                    let seen = network.look(&reading.ids)?;
                    let query = reading.word(pronouns[fits])?.end - 1;
                    let right = reading.word(&names[fits])?;
                    let wrong = reading.word(&names[1 - fits])?;
                    for head in all_heads(network) {
                        let margin = on(&seen, head, query, right.clone())
                            - on(&seen, head, query, wrong.clone());
                        margins.entry(head).or_default().push(margin);
                    }
                }
            }
        }
    }
    Ok(margins)
}

/// The heads that fit surest on some sentences, tried on others.
pub fn pronouns(network: &Network, words: &Words, texts: &Texts) -> Result<Value> {
    let chosen_on =
        fitting(network, words, &texts.people_to_choose, &texts.people_in[..1])?;
    let tested_on = fitting(network, words, &texts.people, &texts.people_in)?;
    let fits = |margins: &[f64]| margins.iter().filter(|margin| **margin > 0.0).count();
    let sure = map(network, |head| {
        let margins = &chosen_on[&head];
        if fits(margins) == margins.len() { mean(margins.clone()) } else { -1.0 }
    });
    let rows = ranked(&sure).into_iter().take(3).map(|head| {
        let margins = &tested_on[&head];
        json!({ "head": name(head), "right": fits(margins), "margin": rounded(mean(margins.clone())) })
    });
    let rows: Vec<_> = rows.collect();
    let count = |margins: &BTreeMap<Head, Vec<f64>>| margins[&(0, 0)].len();
    Ok(
        json!({ "chosen_on": count(&chosen_on), "sentences": count(&tested_on), "heads": rows }),
    )
}

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
    let told = ranked(&differ).into_iter().take(4).map(|(l, h)| {
        let more = std::iter::zip(of_names, of_others).filter(|(a, b)| a[l][h] > b[l][h]);
        json!({
            "head": name((l, h)), "names": rounded(mean_of(of_names, (l, h))), "others": rounded(mean_of(of_others, (l, h))),
            "more": more.count(),
        })
    });
    Ok(json!({ "texts": of_names.len(), "heads": told.collect::<Vec<_>>() }))
}

/// Where the weight of each block goes, and how long its vectors are.
pub fn blocks(network: &Network, paragraphs: &[Vec<usize>]) -> Result<Value> {
    let mut columns: [Vec<Vec<f64>>; 4] =
        std::array::from_fn(|_| vec![vec![]; network.blocks.len()]);
    let [near, first, norm_first, norm_other] = &mut columns;
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
            let norms = seen.hidden[block].row_iter().map(|row| f64::from(row.norm()));
            let mut norms: Vec<f64> = norms.collect();
            norm_first[block].push(norms[0]);
            norms.sort_by(f64::total_cmp);
            norm_other[block].push(norms[norms.len() / 2]);
        }
    }
    let [near, first, norm_first, norm_other] = columns.map(|blocks| {
        blocks.into_iter().map(|numbers| rounded(mean(numbers))).collect::<Vec<_>>()
    });
    Ok(json!({
        "paragraphs": paragraphs.len(), "near": near, "first": first, "norm_first": norm_first, "norm_other": norm_other,
    }))
}

/// Heads that look at what seems to be the reason, switched off.
pub fn reason(
    network: &mut Network,
    words: &Words,
    means: &Means,
    told: &Reason,
) -> Result<Value> {
    let filled =
        |text: &str, [a, b]: &[String; 2]| text.replace("{a}", a).replace("{b}", b);
    let cases = told.words.iter().map(|pair| {
        let reading = words.read(&filled(&told.text, pair))?;
        let at = reading.word(&filled(&told.reason, pair))?;
        Ok((reading, at, words.first_token(&filled(&told.next, pair))?))
    });
    let cases = cases.collect::<Result<Vec<_>>>()?;
    let probabilities = |network: &Network| {
        let of = |(reading, _, next): &(Reading, Range<usize>, usize)| {
            let hidden = network.forward(&reading.ids)?;
            let last = hidden.rows(hidden.nrows() - 1, 1);
            Ok((-network.losses_after(last, &[*next])?[0]).exp())
        };
        cases.iter().map(of).collect::<Result<Vec<f64>>>()
    };
    let seen = cases.iter().map(|(reading, ..)| network.look(&reading.ids));
    let seen = seen.collect::<Result<Vec<_>>>()?;
    let with_all = probabilities(network)?;
    let row = |&head: &Head| {
        let weights = std::iter::zip(&seen, &cases).map(|(seen, (reading, at, _))| {
            on(seen, head, reading.ids.len() - 1, at.clone())
        });
        let without = means.without(network, &[head], probabilities)?;
        let falls =
            std::iter::zip(&with_all, &without).filter(|(with, without)| without < with);
        Ok(json!({
            "head": name(head), "weight": rounded(mean(weights)), "falls": falls.count(), "without": rounded(mean(without)),
        }))
    };
    let rows = told.heads.iter().map(row).collect::<Result<Vec<_>>>()?;
    Ok(json!({
        "example": cases[0].0.text, "cases": cases.len(), "mean": rounded(mean(with_all)), "heads": rows,
    }))
}
