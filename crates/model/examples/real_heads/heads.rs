//! Numbers for each head.

use anyhow::Result;
use model::opened::{Head, Means, Network, Seen};
use nalgebra::RowDVector;
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

/// What is seen of a text where a head is off at some of the tokens only.
pub fn seen_with_head_off_at(
    network: &Network,
    means: &Means,
    ids: &[usize],
    head: Head,
    tokens: Range<usize>,
) -> Result<Seen> {
    let mean = RowDVector::from_vec(means.of_head(head));
    let (d, parameters) = (mean.len(), &network.blocks[head.0].attention.parameters);
    let w_o = parameters.w_o.rows(head.1 * d, d);
    network.look_edited(ids, |block, found, output| {
        for i in tokens.clone().filter(|_| block == head.0) {
            let change = &mean - found.row(i).columns(head.1 * d, d);
            output.row_mut(i).add_assign(change * w_o);
        }
    })
}

/// What a count would be by chance, in 95 of 100 draws at most: each of `n` comparisons is swapped or not, at random.
pub fn by_chance(n: usize, count: impl Fn(&[bool]) -> Option<usize>) -> usize {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut draw = |_| count(&(0..n).map(|_| rng.random()).collect::<Vec<bool>>());
    let mut draws: Vec<_> = (0..2000).map(&mut draw).collect();
    draws.sort_unstable();
    draws[1900].unwrap_or(0)
}
