//! Numbers for each head.

use anyhow::Result;
use model::opened::{Head, Network, Seen};
use nalgebra::{DMatrix, RowDVector};
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use std::ops::{AddAssign as _, Range};

/// A number for each head.
pub type Map = Vec<Vec<f64>>;

/// What a head's query gives to some keys.
pub fn on(seen: &Seen, (l, h): Head, query: usize, keys: Range<usize>) -> f64 {
    keys.map(|key| f64::from(seen.weights[l][h][(query, key)])).sum()
}

pub fn mean(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) =
        numbers.into_iter().fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    sum / count
}

pub fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

/// A rounded number for each head.
pub fn map(network: &Network, of: impl Fn(Head) -> f64) -> Map {
    let blocks = network.blocks.iter().enumerate();
    let row = |n_heads, l| (0..n_heads).map(|h| rounded(of((l, h)))).collect();
    blocks.map(|(l, block)| row(block.attention.n_heads(), l)).collect()
}

pub fn all_heads(network: &Network) -> Vec<Head> {
    ranked(&map(network, |_| 0.0))
}

/// The heads in the order of their numbers, the largest first.
pub fn ranked(map: &Map) -> Vec<Head> {
    let rows = map.iter().enumerate();
    let mut heads: Vec<Head> =
        rows.flat_map(|(l, row)| (0..row.len()).map(move |h| (l, h))).collect();
    heads.sort_by(|a, b| map[b.0][b.1].total_cmp(&map[a.0][a.1]));
    heads
}

pub fn name((l, h): Head) -> String {
    format!("{l}.{h}")
}

pub fn names(heads: &[Head]) -> Vec<String> {
    heads.iter().copied().map(name).collect()
}

/// Some of these heads, drawn at random.
pub fn drawn_from(heads: &[Head], count: usize, seed: u64) -> Vec<Head> {
    let mut drawn = heads.to_vec();
    drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    drawn.truncate(count);
    drawn.sort_unstable();
    drawn
}

/// What a head is to find.
pub type Output = (Head, Vec<f32>);

/// What is seen of a text where the outputs of some heads are replaced, at some of the tokens.
pub fn seen_with_outputs(
    network: &Network,
    outputs: &[Output],
    ids: &[usize],
    tokens: Range<usize>,
) -> Result<Seen> {
    network.look_edited(ids, |block, found, all_heads| {
        for ((_, h), output) in outputs.iter().filter(|((l, _), _)| *l == block) {
            let (output, d) = (RowDVector::from_row_slice(output), output.len());
            let w_o = network.blocks[block].attention.parameters.w_o.rows(h * d, d);
            for i in tokens.clone() {
                let change = &output - found.row(i).columns(h * d, d);
                all_heads.row_mut(i).add_assign(change * w_o);
            }
        }
    })
}

/// What some heads found at a token.
pub fn outputs_at(
    network: &Network,
    seen: &Seen,
    heads: &[Head],
    token: usize,
) -> Vec<Output> {
    let of = |&(l, h): &Head| {
        let d = seen.found[l].ncols() / network.blocks[l].attention.n_heads();
        let output = seen.found[l].row(token).columns(h * d, d).transpose();
        ((l, h), output.as_slice().to_vec())
    };
    heads.iter().map(of).collect()
}

/// log p of one next token less log p of another, from what the tokens became.
pub fn log_odds(
    network: &Network,
    hidden: &DMatrix<f32>,
    answers: [usize; 2],
) -> Result<f64> {
    let scores = network.scores(hidden.rows(hidden.nrows() - 1, 1))?;
    let [one, other] = answers.map(|answer| f64::from(scores[answer]));
    Ok(one - other)
}

/// A text, and the token at which heads are swapped.
pub type At = (Vec<usize>, usize);

/// Two texts that differ in one place, each with the token at which heads are swapped; and the two answers that are compared.
pub struct Swap {
    pub texts: [At; 2],
    pub answers: [usize; 2],
}

/// How much of the way the log odds of the first texts move towards those of the second ones, when heads have at one token the outputs that
/// they have in the other text.
pub fn moved_by_swap(network: &Network, heads: &[Head], swaps: &[Swap]) -> Result<f64> {
    let of = |Swap { texts: [ours, theirs], answers }: &Swap| {
        let [of_ours, of_theirs] = [&ours.0, &theirs.0].map(|ids| network.look(ids));
        let (of_ours, of_theirs) = (of_ours?, of_theirs?);
        let outputs = outputs_at(network, &of_theirs, heads, theirs.1);
        let swapped = seen_with_outputs(network, &outputs, &ours.0, ours.1..ours.1 + 1)?;
        let odds =
            |seen: &Seen| log_odds(network, &seen.hidden[network.blocks.len()], *answers);
        Ok([odds(&of_ours)? - odds(&swapped)?, odds(&of_ours)? - odds(&of_theirs)?])
    };
    let moves = swaps.iter().map(of).collect::<Result<Vec<_>>>()?;
    let [moved, all] = [0, 1].map(|i| moves.iter().map(|of| of[i]).sum::<f64>());
    Ok(moved / all)
}

/// What a count would be by chance, in 95 of 100 draws at most: each of `n` comparisons is swapped or not, at random.
pub fn by_chance(n: usize, count: impl Fn(&[bool]) -> Option<usize>) -> usize {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut draw = |_| count(&(0..n).map(|_| rng.random()).collect::<Vec<bool>>());
    let mut draws: Vec<_> = (0..2000).map(&mut draw).collect();
    draws.sort_unstable();
    draws[1900].unwrap_or(0)
}
