//! Previous-token heads and induction heads, by what is lost without them.

use super::heads::{
    all_heads, drawn_from, map, mean, name, names, ranked, rounded, seen_with_outputs,
};
use anyhow::Result;
use model::opened::{Head, Means, Network, Seen};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Range;

/// How many random tokens are said twice.
const REPEATED: usize = 50;
/// Texts of such tokens, and others from which the mean outputs of heads are taken.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const OTHER_SEEDS: [u64; 4] = [101, 102, 103, 104];

/// Random tokens that are said twice, behind the token that begins a message.
fn said_twice(seed: u64) -> Vec<usize> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let once: Vec<usize> =
        (0..REPEATED).map(|_| rng.random_range(1000..40_000)).collect();
    [vec![1], once.clone(), once].concat()
}

/// The mean losses of two readings of each text, the first of which has so many tokens behind the opening one.
fn two_losses<'t>(
    network: &Network,
    texts: impl IntoIterator<Item = &'t Vec<usize>>,
) -> Result<Vec<[f64; 2]>> {
    let of_text = |ids: &Vec<usize>| {
        let (losses, once) = (network.losses(ids)?, ids.len() / 2);
        // The first token of a reading has nothing before it that says what it is.
        Ok([mean(losses[1..once].to_vec()), mean(losses[once + 1..].to_vec())])
    };
    texts.into_iter().map(of_text).collect()
}

/// The means over texts.
fn mean_losses(losses: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|reading| rounded(mean(losses.iter().map(|losses| losses[reading]))))
}

const KINDS: [&str; 4] = ["previous", "induction", "itself", "first"];

/// A head's score of a kind, from what was seen of random tokens that were said twice.
fn score(seen: &Seen, (l, h): Head, kind: &str) -> f64 {
    let weights = &seen.weights[l][h];
    let at = |queries: Range<usize>, key: &dyn Fn(usize) -> usize| {
        mean(queries.map(|i| f64::from(weights[(i, key(i))])))
    };
    let n = weights.nrows();
    match kind {
        "previous" => at(2..n, &|i| i - 1),
        // The token that followed the earlier copy.
        "induction" => at(REPEATED + 1..n, &|i| i + 1 - REPEATED),
        "itself" => at(1..n, &|i| i),
        _ => at(1..n, &|_| 0),
    }
}

/// Scores, and losses with heads off, on random tokens that are said twice.
pub fn repeated(network: &mut Network, check: bool) -> Result<Value> {
    let texts = SEEDS.map(said_twice);
    let seen: Vec<Seen> =
        texts.iter().map(|ids| network.look(ids)).collect::<Result<_>>()?;
    let of_kind = |kind| {
        let of_head = |head| mean(seen.iter().map(|seen| score(seen, head, kind)));
        (kind, map(network, of_head))
    };
    let scores = BTreeMap::from(KINDS.map(of_kind));
    let losses = two_losses(network, &texts)?;
    let means = Means::of(network, &OTHER_SEEDS.map(said_twice))?;
    let heads = all_heads(network);
    let (mut without, mut replaced) = (BTreeMap::new(), BTreeMap::new());
    for &head in heads.iter().step_by(if check { 45 } else { 1 }) {
        let second =
            |network: &Network| Ok(mean_losses(&two_losses(network, &texts)?)[1]);
        without.insert(name(head), network.without_heads(&[head], second)?);
        replaced.insert(name(head), means.without(network, &[head], second)?);
    }

    // The chain: which heads, when they are off, take the pattern of the induction heads with them.
    let mut previous = ranked(&scores["previous"]);
    let best = previous[0];
    previous.retain(|head| head.0 <= best.0); // those that stand below the induction heads
    let induction = ranked(&scores["induction"])[..4].to_vec();
    let beside = heads.iter().copied().filter(|head| head.0 == best.0 && *head != best);
    let beside_it = format!("the other eight of block {}", best.0);
    let below_it = format!("five at random before block {}", best.0);
    let mut rows: Vec<(&str, Vec<Head>)> = vec![
        ("none", vec![]),
        ("the best previous-token head", vec![best]),
        (&beside_it, beside.collect()),
        ("the next best previous-token head", vec![previous[1]]),
    ];
    let below = heads
        .iter()
        .copied()
        .filter(|&(l, h)| l < best.0 && scores["previous"][l][h] < 0.3);
    let below: Vec<Head> = below.collect();
    rows.extend([1, 2, 3].map(|s| (below_it.as_str(), drawn_from(&below, 5, s))));
    rows.push(("the best induction head", vec![induction[0]]));
    rows.push(("the best four induction heads", induction.clone()));
    let patterns = |seen: &[Seen]| {
        let pattern = |&head: &Head| {
            rounded(mean(seen.iter().map(|seen| score(seen, head, "induction"))))
        };
        induction.iter().map(pattern).collect::<Vec<_>>()
    };
    let row = |(what, off): (&str, Vec<Head>)| {
        means.without(network, &off, |network| {
            let seen = texts.iter().map(|ids| network.look(ids));
            let seen = seen.collect::<Result<Vec<_>>>()?;
            let [first, second] = mean_losses(&two_losses(network, &texts)?);
            Ok(json!({
                "what": what, "heads": names(&off), "first": first, "second": second, "patterns": patterns(&seen),
            }))
        })
    };
    let mut chain = rows.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    // The same head off in one of the readings.
    let readings =
        [("first", 0..REPEATED + 1), ("second", REPEATED + 1..2 * REPEATED + 1)];
    for (place, (reading, tokens)) in readings.into_iter().enumerate() {
        let off = [(best, means.of_head(best))];
        let seen =
            texts.iter().map(|ids| seen_with_outputs(network, &off, ids, tokens.clone()));
        let seen = seen.collect::<Result<Vec<_>>>()?;
        let losses = std::iter::zip(&seen, &texts).map(|(seen, ids)| {
            let hidden = &seen.hidden[network.blocks.len()];
            let losses = network.losses_after(hidden, &ids[1..])?;
            Ok(mean(losses[REPEATED + 1..].to_vec()))
        });
        let losses = losses.collect::<Result<Vec<_>>>()?;
        chain.insert(2 + place, json!({
            "what": format!("the same, in the {reading} reading only"), "heads": names(&[best]),
            "second": rounded(mean(losses)), "patterns": patterns(&seen),
        }));
    }
    let [first, second] = [0, 1].map(|reading| {
        losses.iter().map(|losses| rounded(losses[reading])).collect::<Vec<_>>()
    });
    Ok(json!({
        "tokens": REPEATED, "texts": SEEDS.len(), "first": first, "second": second,
        "even": rounded((network.vocabulary() as f64).ln()), "scores": scores, "without": without, "replaced": replaced,
        "induction_heads": names(&induction), "chain": chain,
    }))
}

/// English, read once and twice, with a head off.
pub fn prose(network: &mut Network, once: &[Vec<usize>], means: &Means) -> Result<Value> {
    let twice = once.iter().map(|ids| [vec![1], ids.clone(), ids.clone()].concat());
    let twice: Vec<_> = twice.collect();
    let rows = [vec![], vec![(16, 0)], vec![(18, 6)], vec![(16, 3)]].map(|off| {
        let losses =
            means.without(network, &off, |network| two_losses(network, &twice))?;
        let [first, second] = mean_losses(&losses);
        Ok(json!({ "heads": names(&off), "first": first, "second": second }))
    });
    let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(json!({ "rows": rows }))
}
