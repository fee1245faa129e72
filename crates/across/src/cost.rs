//! What several ranks send and compute, as formulas; and how long that would take.
//!
//! Bytes are counted where they are sent, by one rank, and include the header and the closing of an operation.

use crate::agree::{CLOSING, HEADER};
use crate::blocks::blocks;
use crate::error::Result;
use crate::whole::Whole;
use attention::engine::Rule;

/// Returns the bytes by which a rank agrees with the others before an operation, and closes it.
#[must_use]
pub fn agreement(ranks: usize) -> u64 {
    ((ranks - 1) * (HEADER + CLOSING)) as u64
}

/// Returns the bytes that `rank` sends in [`ring::forward`](crate::ring::forward), with numbers of `size` bytes: all keys and values but
/// those of the next rank, which arrive where they are needed at the last step.
///
/// With n keys on P ranks that is (P − 1) / P · n · n_kv_heads · (d_k + d_v) numbers.
#[must_use]
pub fn ring_forward(whole: &Whole, ranks: usize, rank: usize, size: usize) -> u64 {
    let passed = (0..ranks - 1).map(|step| keys(whole, ranks, rank + ranks - step));
    agreement(ranks) + passed.sum::<u64>() * size as u64
}

/// Returns the bytes that `rank` sends in [`ring::backward`](crate::ring::backward): keys and values as in the forward pass, and the
/// gradients of all of them, which go all around.
#[must_use]
pub fn ring_backward(whole: &Whole, ranks: usize, rank: usize, size: usize) -> u64 {
    if ranks == 1 {
        return 0;
    }
    let gradients = (0..ranks).map(|rank| keys(whole, ranks, rank));
    ring_forward(whole, ranks, rank, size) + gradients.sum::<u64>() * size as u64
}

/// Returns the bytes that `rank` sends in [`by_keys::forward`](crate::by_keys::forward): its keys and values, to each of the others.
#[must_use]
pub fn by_keys_forward(whole: &Whole, ranks: usize, rank: usize, size: usize) -> u64 {
    agreement(ranks) + (ranks as u64 - 1) * keys(whole, ranks, rank) * size as u64
}

/// Returns the bytes that `rank` sends in [`heads::forward`](crate::heads::forward): its rows of queries, keys and values but the part of
/// its own heads, and the output of its heads but its own rows.
#[must_use]
pub fn heads_forward(whole: &Whole, ranks: usize, rank: usize, size: usize) -> u64 {
    agreement(ranks) + there_and_back(whole, ranks, rank, false) * size as u64
}

/// Returns the bytes that `rank` sends in [`heads::backward`](crate::heads::backward): the same matrices the other way round.
#[must_use]
pub fn heads_backward(whole: &Whole, ranks: usize, rank: usize, size: usize) -> u64 {
    agreement(ranks) + there_and_back(whole, ranks, rank, true) * size as u64
}

/// Returns the bytes that each rank sends in [`decode::forward`](crate::decode::forward): its output, log-sum-exp and that one's rounding
/// error, to each of the others. The length of the cache has no part in it.
#[must_use]
pub fn decode_forward(whole: &Whole, ranks: usize, size: usize) -> u64 {
    let numbers = whole.lengths.0 * whole.heads.0 * (whole.widths.1 + 2);
    agreement(ranks) + ((ranks - 1) * numbers * size) as u64
}

/// The numbers in the keys and values of a rank.
fn keys(whole: &Whole, ranks: usize, rank: usize) -> u64 {
    let (_, (rows, k), (_, v)) = whole.local_shapes(ranks, rank % ranks);
    (rows * (k + v)) as u64
}

/// The numbers that leave a rank in two exchanges of rows for heads: queries, keys and values go one way, the output the other.
fn there_and_back(whole: &Whole, ranks: usize, rank: usize, is_backward: bool) -> u64 {
    let [q, k, v, output] = whole.columns();
    let ((n_q, _), (n_k, _), _) = whole.local_shapes(ranks, rank);
    let inputs = (n_q, whole.lengths.0, q);
    let inputs = [inputs, (n_k, whole.lengths.1, k), (n_k, whole.lengths.1, v)];
    let to_heads =
        |(mine, _, columns): (usize, usize, usize)| mine * (columns - columns / ranks);
    let to_rows =
        |(mine, all, columns): (usize, usize, usize)| (all - mine) * columns / ranks;
    let output = (n_q, whole.lengths.0, output);
    let numbers: usize = if is_backward {
        to_heads(output) + inputs.into_iter().map(to_rows).sum::<usize>()
    } else {
        inputs.into_iter().map(to_heads).sum::<usize>() + to_rows(output)
    };
    numbers as u64
}

/// Returns the pairs of a query and a key that it sees, for each rank and each step of the ring: `pairs[rank][step]`.
///
/// Blocks of a window, of documents or of a pattern are asked pair by pair.
///
/// # Errors
/// The whole is none: a size of 0, or a mask that was made for another.
///
/// ```
/// use across::{Layout, Whole, cost};
/// use attention::Mask;
///
/// let whole = Whole::new((8, 8), (4, 4), Mask::causal());
/// assert_eq!(cost::pairs(&whole, 2)?, [[10, 0], [10, 16]]); // rank 1 works while rank 0 waits
/// let zigzag = whole.with_layouts(Layout::Zigzag, Layout::Zigzag);
/// assert_eq!(cost::pairs(&zigzag, 2)?, [[10, 8], [10, 8]]);
/// # Ok::<(), across::Error>(())
/// ```
pub fn pairs(whole: &Whole, ranks: usize) -> Result<Vec<Vec<u64>>> {
    let of_rank = |of_rank: Vec<Work>| of_rank.iter().map(|work| work.pairs).collect();
    Ok(work(whole, ranks)?.into_iter().map(of_rank).collect())
}

/// The work of a rank at a step of the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Pairs of a query and a key that it sees.
    pub pairs: u64,
    /// Queries of all blocks, each of which begins a row of its own and merges it.
    pub rows: u64,
}

/// Returns the work of each rank at each step of the ring: `work[rank][step]`.
///
/// # Errors
/// As [`pairs`].
pub fn work(whole: &Whole, ranks: usize) -> Result<Vec<Vec<Work>>> {
    let sized = whole.sized()?;
    let of = |rank: usize, step: usize| -> Result<Work> {
        let queries = whole.queries(ranks, rank);
        let keys = whole.keys(ranks, (rank + ranks - step) % ranks);
        let mut work = Work { pairs: 0, rows: 0 };
        for block in blocks(&whole.mask, &sized, &queries, &keys) {
            let (n_q, n_k) = (block.queries.len(), block.keys.len());
            let sized = block.mask.sized(n_q, n_k)?;
            let seen_by = |i: usize| match block.mask.rules() {
                [] => n_k,
                [Rule::Causal] => (i + 1 + n_k).saturating_sub(n_q).min(n_k),
                _ => (0..n_k).filter(|&j| sized.allows(i, j)).count(),
            };
            work.pairs += (0..n_q).map(seen_by).sum::<usize>() as u64;
            work.rows += n_q as u64;
        }
        Ok(work)
    };
    (0..ranks).map(|rank| (0..ranks).map(|step| of(rank, step)).collect()).collect()
}

/// Returns the share of the time in which ranks compute, if all wait for the slowest at each step and sending costs nothing: 1 is even.
#[must_use]
pub fn balance(pairs: &[Vec<u64>]) -> f64 {
    let steps = pairs.first().map_or(0, Vec::len);
    let slowest =
        |step: usize| pairs.iter().map(|of_rank| of_rank[step]).max().unwrap_or(0);
    let all: u64 = pairs.iter().flatten().sum();
    let time: u64 = (0..steps).map(slowest).sum();
    if time == 0 {
        return 1.0; // no rank waits for another
    }
    all as f64 / (time * pairs.len() as u64) as f64
}

/// A machine, as the model of time knows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speeds {
    /// Seconds of a pair of a query and a key, for all heads.
    pub pair: f64,
    /// Seconds of a query in a block, whatever the number of keys.
    pub row: f64,
    /// Seconds from the sending of an empty message to its arrival.
    pub latency: f64,
    /// Bytes a second between two ranks.
    pub bandwidth: f64,
}

impl Speeds {
    /// Returns the seconds of a message of so many bytes.
    #[must_use]
    pub fn message(&self, bytes: f64) -> f64 {
        self.latency + bytes / self.bandwidth
    }

    /// Returns the seconds of [`ring::forward`](crate::ring::forward) with numbers of `size` bytes. At each step but the last the keys go
    /// on while the slowest rank computes, and what takes longer counts: Σ max(compute, exchange).
    ///
    /// # Errors
    /// As [`pairs`].
    pub fn ring_forward(&self, whole: &Whole, ranks: usize, size: usize) -> Result<f64> {
        let work = work(whole, ranks)?;
        let largest = (0..ranks).map(|rank| keys(whole, ranks, rank)).max().unwrap_or(0);
        let exchange = self.message((largest * size as u64) as f64);
        let step = |step: usize| {
            let seconds = |Work { pairs, rows }: Work| {
                self.pair * pairs as f64 + self.row * rows as f64
            };
            let compute =
                work.iter().map(|of_rank| seconds(of_rank[step])).fold(0.0, f64::max);
            if step + 1 < ranks { compute.max(exchange) } else { compute }
        };
        Ok((0..ranks).map(step).sum())
    }
}
