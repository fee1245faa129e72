//! What the chapter counts and foretells.

use crate::random::normal;
use anyhow::{Result, bail, ensure};
use attention::{AttentionShape, Mask, attention_weights};
use laboratory::traffic::{
    Counts, Memory, Report, SlowMatrix, fused_attention, fused_traffic, naive_attention,
    naive_attention_backward, naive_traffic,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rayon::prelude::*;

/// Width of queries, keys and values.
pub const D: usize = 64;
/// Numbers that fast memory holds.
pub const CAPACITY: usize = 32_768;
/// Bytes of an f32.
pub const ELEMENT: usize = 4;
/// Tokens in the tables.
pub const N: usize = 1024;
/// Tokens of the figure over capacities.
pub const CAPACITY_N: usize = 4096;

/// The shape of one head.
pub fn shape(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, 1, D, 1)
}

/// Rows of a strip.
pub fn strip(capacity: usize) -> usize {
    (capacity - D) / (D + 1)
}

/// Random queries, keys, values and gradients of the output.
pub fn random(n: usize) -> [DMatrix<f32>; 4] {
    [0, 1, 2, 3].map(|seed| {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        normal(n, D, rng).map(|x| x as f32)
    })
}

/// A forward pass on the machine that counts; it returns the output and the log-sum-exps.
pub type Program =
    for<'m> fn(
        &'m Memory<f32>,
        &SlowMatrix<'m, f32>,
        &SlowMatrix<'m, f32>,
        &SlowMatrix<'m, f32>,
        &Mask,
    ) -> attention::Result<(SlowMatrix<'m, f32>, SlowMatrix<'m, f32>)>;

/// The machine after a program ran on it with `n` random tokens under a causal mask, and its output.
pub fn run(program: Program, n: usize) -> Result<(Memory<f32>, DMatrix<f32>)> {
    let [q, k, v, _] = random(n);
    let memory = Memory::new(CAPACITY);
    let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, m)| memory.put(name, m));
    let (output, _) = program(&memory, &q, &k, &v, &Mask::causal())?;
    let output = output.into_matrix();
    Ok((memory, output))
}

/// Both programs, run on the same tokens.
pub struct Runs {
    pub n: usize,
    pub naive: Report,
    pub fused: Report,
    /// The most numbers that fast memory held.
    pub peak: usize,
}

/// For all lengths that are run, up to [`N`].
pub fn runs() -> Result<Vec<Runs>> {
    let both = |n| {
        let (naive, _) = run(naive_attention, n)?;
        let (fused, _) = run(fused_attention, n)?;
        Ok(Runs { n, naive: naive.report(), fused: fused.report(), peak: fused.peak() })
    };
    [64, 128, 256, 512, N].into_par_iter().map(both).collect()
}

/// The backward pass, run on `n` random tokens under a causal mask.
pub fn run_backward(n: usize) -> Result<Report> {
    let [q, k, v, grad_output] = random(n);
    let (weights, _) = attention_weights(&q, &k, &Mask::causal())?;
    let memory = Memory::new(CAPACITY);
    let [q, k, v] = [("q", q), ("k", k), ("v", v)].map(|(name, m)| memory.put(name, m));
    let weights = memory.put("scores", weights);
    let grad_output = memory.put("grad_output", grad_output);
    naive_attention_backward(&memory, [&q, &k, &v], &weights, &grad_output)?;
    Ok(memory.report())
}

/// Operations of a pass, as the chapter counts them for each of the n² scores.
pub fn operations(pass: &str) -> Result<usize> {
    let for_each_score = match pass {
        "scores" | "values" => 2 * D,
        "scale" => 1,
        "mask" => 0,
        "softmax" => 5,
        other => bail!("no operations are known of the pass {other}"),
    };
    Ok(for_each_score * N * N)
}

/// Operations of these passes together.
pub fn all_operations(passes: &[&str]) -> Result<usize> {
    passes.iter().map(|pass| operations(pass)).sum()
}

/// Operations per byte.
pub fn intensity(operations: usize, counts: Counts) -> f64 {
    operations as f64 / counts.bytes(ELEMENT) as f64
}

/// As many times as the matrix (n, n) has entries.
pub fn crossings(numbers: u128) -> Result<usize> {
    let entries = (N * N) as u128;
    ensure!(numbers.is_multiple_of(entries), "{numbers} is no multiple of n²");
    Ok((numbers / entries) as usize)
}

/// The three passes between the products.
pub const MIDDLE: [&str; 3] = ["scale", "mask", "softmax"];

/// Which share of all numbers the passes in the middle move, and which share of the operations they do.
pub fn middle(naive: &Report) -> Result<(f64, f64)> {
    let moved: u128 = MIDDLE.iter().map(|pass| naive.pass(pass).all()).sum();
    let (part, all) = (all_operations(&MIDDLE)?, all_operations(naive.passes())?);
    Ok((moved as f64 / naive.total().all() as f64, part as f64 / all as f64))
}

/// The share of the traffic that fusing the passes in the middle saves.
pub fn saved_by_fusing(Runs { naive, fused, .. }: &Runs) -> f64 {
    1.0 - fused.total().all() as f64 / naive.total().all() as f64
}

/// Bytes that cross between slow and fast memory.
pub struct Bytes {
    /// Of the (n, n) matrix, in the naive program.
    pub matrix: f64,
    /// The same with the passes in the middle fused.
    pub fused_matrix: f64,
    /// Of keys and values, again and again.
    pub keys_and_values: f64,
    /// Of inputs and output, if each crosses once.
    pub inputs_and_output: f64,
}

impl Bytes {
    pub fn of(n: usize, naive: &Report, fused: &Report) -> Self {
        let bytes = |report: &Report, name| report.matrix(name).bytes(ELEMENT) as f64;
        Bytes {
            matrix: bytes(naive, "scores"),
            fused_matrix: bytes(fused, "scores"),
            keys_and_values: bytes(naive, "k") + bytes(naive, "v"),
            inputs_and_output: (4 * n * D * ELEMENT) as f64,
        }
    }

    fn foretold(n: usize, capacity: usize) -> Result<Self> {
        let (naive, fused) =
            (naive_traffic(&shape(n), capacity)?, fused_traffic(&shape(n), capacity)?);
        Ok(Bytes::of(n, &naive, &fused))
    }
}

/// For sequences of more and more tokens.
pub fn over_tokens() -> Result<Vec<(usize, Bytes)>> {
    let lengths = (6..=14).map(|power| 1 << power);
    lengths.map(|n| Ok((n, Bytes::foretold(n, CAPACITY)?))).collect()
}

/// For fast memories from 1 KiB to 4 MiB, in numbers, eight steps for each doubling.
pub fn over_capacity() -> Result<Vec<(usize, Bytes)>> {
    let capacities = (64..=160).map(|i| (f64::from(i) / 8.0).exp2().round() as usize);
    capacities.map(|m| Ok((m, Bytes::foretold(CAPACITY_N, m)?))).collect()
}

pub fn kibibytes(numbers: usize) -> f64 {
    (numbers * ELEMENT) as f64 / 1024.0
}
