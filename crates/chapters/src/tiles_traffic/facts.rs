//! Counts and predictions for programs that move numbers between slow and fast memory.
//!
//! Lengths up to [`N`] are run by the machine that counts. For longer ones there are the formulas of the chapters.

use crate::random::normal;
use anyhow::Result;
use attention::{Mask, attention};
use laboratory::cost::AttentionShape;
use laboratory::traffic::{
    Memory, SlowMatrix, chunked_attention, fused_attention, naive_attention,
    naive_attention_backward, strip_for, tiled_attention, tiled_attention_backward,
    tiles_for, tiles_for_backward,
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rayon::prelude::*;

/// Width of queries, keys and values.
pub const D: usize = 64;
/// Numbers that fast memory holds.
pub const CAPACITY: usize = 32_768;
/// Bytes of an f32.
pub const ELEMENT: usize = 4;
/// The longest sequence that is run.
pub const N: usize = 1024;
/// The length of the tables and of the figures over capacities.
pub const LONG: usize = 4096;
/// The lengths at which claims are tested.
#[cfg(test)]
pub const NAMED: [usize; 3] = [N, LONG, 16_384];
/// The lengths that are run for the figures over lengths.
pub const RUN: [usize; 5] = [64, 128, 256, 512, N];

/// Queries and keys of a tile.
pub type Tiles = (usize, usize);

pub fn shape(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, 1, D, 1)
}

/// Returns the bytes of so many numbers.
pub fn bytes(numbers: f64) -> f64 {
    numbers * ELEMENT as f64
}

pub fn kibibytes(numbers: usize) -> f64 {
    bytes(numbers as f64) / 1024.0
}

/// The lengths of the figures.
pub fn lengths() -> impl Iterator<Item = usize> {
    (6..=14).map(|power| 1 << power)
}

// ---------------------------------------------------------------------------------------------------- programs

/// A program for which nothing but its shape, mask and memory is left to be chosen.
#[derive(Debug, Clone, Copy)]
pub enum Program {
    Naive,
    Fused,
    NaiveBackward,
    Chunked(usize),
    Tiled(Tiles),
    TiledBackward(Tiles),
}

/// Queries, keys, values and the gradient of the output.
pub fn random_inputs(n: usize) -> [DMatrix<f32>; 4] {
    [0, 1, 2, 3]
        .map(|seed| normal(n, D, &mut ChaCha8Rng::seed_from_u64(seed)).map(|x| x as f32))
}

impl Program {
    /// Runs on random inputs: the output, or the gradients of queries, keys and values, and the memory that counted.
    pub fn run(
        self,
        n: usize,
        mask: &Mask,
        capacity: usize,
    ) -> Result<(Vec<DMatrix<f32>>, Memory<f32>)> {
        let [q, k, v, grad_output] = random_inputs(n);
        let (output, cache) = attention(&q, &k, &v, mask)?;
        let lse = DMatrix::from_column_slice(n, 1, cache.log_sum_exp.as_slice());
        let memory = Memory::new(capacity);
        let [q, k, v] =
            [("q", q), ("k", k), ("v", v)].map(|(name, m)| memory.put(name, m));
        let inputs = [&q, &k, &v];
        let results = match self {
            Self::Naive => vec![naive_attention(&memory, inputs, mask)?.0],
            Self::Fused => vec![fused_attention(&memory, inputs, mask)?.0],
            Self::NaiveBackward => {
                let weights = memory.put("scores", cache.weights);
                let g = memory.put("grad_output", grad_output);
                naive_attention_backward(&memory, inputs, &weights, &g)?.into()
            }
            Self::Chunked(strip) => {
                vec![chunked_attention(&memory, inputs, mask, strip)?.0]
            }
            Self::Tiled(tiles) => vec![tiled_attention(&memory, inputs, mask, tiles)?.0],
            Self::TiledBackward(tiles) => {
                let output = memory.put("output", output);
                let lse = memory.put("log_sum_exp", lse);
                let g = memory.put("grad_output", grad_output);
                let kept = [&output, &lse];
                tiled_attention_backward(&memory, inputs, kept, &g, mask, tiles)?.into()
            }
        };
        let results = results.into_iter().map(SlowMatrix::into_matrix).collect();
        Ok((results, memory))
    }
}

/// Returns the traffic of programs that were run at each length of [`RUN`]: points of a figure.
pub fn counted_over_lengths(
    programs: impl Fn(usize) -> Result<Vec<Program>> + Sync,
) -> Result<Vec<(f64, f64)>> {
    let point = |(n, program): (usize, Program)| {
        let (_, memory) = program.run(n, &Mask::none(), CAPACITY)?;
        Ok((n as f64, bytes(memory.report().total().all() as f64)))
    };
    let of_length =
        |&n| Ok(programs(n)?.into_iter().map(|program| (n, program)).collect());
    let all = RUN.iter().map(of_length).collect::<Result<Vec<Vec<_>>>>()?;
    all.concat().into_par_iter().map(point).collect()
}

// ---------------------------------------------------------------------------------------------------- by formula

/// Rows of a strip of the naive program.
pub fn strip(capacity: usize) -> usize {
    (capacity - D) / (D + 1)
}

/// Returns the number of times that softmax reads a row.
pub fn sweeps(n: usize, capacity: usize) -> usize {
    if n <= capacity { 1 } else { 3 }
}

/// The (n, n) matrix so many times, Q and O once, K and V once for every strip.
fn in_strips(crossings: usize, n: usize, capacity: usize) -> f64 {
    let strips = n.div_ceil(strip(capacity));
    (crossings * n * n + 2 * n * D * (1 + strips)) as f64
}

/// The numbers that the naive program moves.
pub fn naive(n: usize, capacity: usize) -> Result<f64> {
    Ok(in_strips(7 + sweeps(n, capacity), n, capacity))
}

/// Returns the numbers that the fused program moves, with scale and mask in the sweep of softmax.
pub fn fused(n: usize, capacity: usize) -> Result<f64> {
    Ok(in_strips(3 + sweeps(n, capacity), n, capacity))
}

/// Four products in strips, and a softmax that reads two rows at a time: once if both fit, and otherwise twice.
pub fn naive_backward(n: usize, capacity: usize) -> Result<f64> {
    let sweeps = if n <= capacity / 2 { 1 } else { 2 };
    let strips = n.div_ceil(strip(capacity));
    Ok(((7 + 2 * sweeps) * n * n + 4 * n * D * (1 + strips)) as f64)
}

/// The half-way step, with the longest strip that fits.
pub fn chunked(n: usize, capacity: usize) -> Result<f64> {
    let strips = n.div_ceil(strip_for(capacity, n, D, D)?);
    Ok(Pass::Forward.moved(n, strips * n))
}

/// Returns the numbers that the tiled program moves, with the tiles that move least.
pub fn tiled(n: usize, capacity: usize) -> Result<f64> {
    Pass::Forward.tiled(n, capacity)
}

pub fn tiled_backward(n: usize, capacity: usize) -> Result<f64> {
    Pass::Backward.tiled(n, capacity)
}

// ---------------------------------------------------------------------------------------------------- both passes

/// A pass in tiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pass {
    Forward,
    Backward,
}

impl Pass {
    fn choose<T>(self, forward: T, backward: T) -> T {
        match self {
            Self::Forward => forward,
            Self::Backward => backward,
        }
    }

    /// The tiles that move least.
    pub fn tiles(self, capacity: usize) -> Result<Tiles> {
        Ok(match self {
            Self::Forward => tiles_for(capacity, D, D)?,
            Self::Backward => tiles_for_backward(capacity, D, D)?,
        })
    }

    /// Those of the fast memory that both chapters have.
    pub fn chosen(self) -> Result<Tiles> {
        self.tiles(CAPACITY)
    }

    /// Returns the numbers that are moved once: forward queries, output and log-sum-exp, backward also D, and the zeros of the queries' gradient,
    /// to which every tile of keys adds its share.
    fn fixed(self, n: usize) -> usize {
        self.choose(2 * n * D + n, n * (2 * D + 1) + n * D + 4 * n * D)
    }

    /// Returns the numbers that come by with a token: forward a key and a value, backward those that belong to a query.
    fn passing(self) -> usize {
        self.choose(2 * D, 4 * D + 2)
    }

    /// The queries or the keys of a tile that stays.
    fn staying(self, (queries, keys): Tiles) -> usize {
        self.choose(queries, keys)
    }

    /// The numbers that are moved if so many tokens come by the tiles that stay.
    pub fn moved(self, n: usize, tokens: usize) -> f64 {
        (self.fixed(n) + tokens * self.passing()) as f64
    }

    /// Returns the numbers that are moved with the tiles that move least, without a mask.
    pub fn tiled(self, n: usize, capacity: usize) -> Result<f64> {
        let stays = n.div_ceil(self.staying(self.tiles(capacity)?));
        Ok(self.moved(n, stays * n))
    }

    /// Queries, keys, values and output once, and the log-sum-exp; backward three gradients more and that of the output.
    pub fn each_once(self, n: usize) -> f64 {
        (self.choose(4, 8) * n * D + n) as f64
    }
}
