//! The chapter's counts and predictions.

pub use crate::tiles_traffic::facts::{CAPACITY, D, ELEMENT, N, kibibytes, strip};
use crate::tiles_traffic::facts::{LONG, Program, RUN, lengths, sweeps};
use anyhow::{Result, bail, ensure};
use attention::Mask;
use laboratory::traffic::{Counts, Report};
use rayon::prelude::*;

/// Tokens of the figure over capacities.
pub const CAPACITY_N: usize = LONG;

/// Both programs, run on the same tokens.
pub struct Runs {
    pub n: usize,
    pub naive: Report,
    pub fused: Report,
}

impl Runs {
    /// Bytes of the (n, n) matrix in both programs, and of keys and values.
    pub fn bytes(&self) -> [f64; 3] {
        let bytes = |report: &Report, name| report.matrix(name).bytes(ELEMENT) as f64;
        let keys_and_values = bytes(&self.naive, "k") + bytes(&self.naive, "v");
        [bytes(&self.naive, "scores"), bytes(&self.fused, "scores"), keys_and_values]
    }
}

/// Returns the runs of all lengths up to [`N`], under a causal mask.
pub fn runs() -> Result<Vec<Runs>> {
    let both = |&n: &usize| {
        let run = |program: Program| program.run(n, &Mask::causal(), CAPACITY);
        let ((_, naive), (_, fused)) = (run(Program::Naive)?, run(Program::Fused)?);
        Ok(Runs { n, naive: naive.report(), fused: fused.report() })
    };
    RUN.par_iter().map(both).collect()
}

/// The backward pass of [`N`] tokens, under a causal mask.
pub fn backward() -> Result<Report> {
    Ok(Program::NaiveBackward.run(N, &Mask::causal(), CAPACITY)?.1.report())
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

/// Returns so many numbers as a multiple of the entries of the matrix (n, n).
pub fn crossings(numbers: u128) -> Result<usize> {
    let entries = (N * N) as u128;
    ensure!(numbers.is_multiple_of(entries), "{numbers} is no multiple of n²");
    Ok((numbers / entries) as usize)
}

/// The three passes between the products.
pub const MIDDLE: [&str; 3] = ["scale", "mask", "softmax"];

/// Returns the share of all numbers that the passes in the middle move, and the share of the operations that they do.
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
    /// The bytes of the (n, n) matrix, in the naive program.
    pub matrix: f64,
    /// The same, with the passes in the middle fused.
    pub fused_matrix: f64,
    /// The bytes of keys and values, again and again.
    pub keys_and_values: f64,
    /// The bytes of inputs and output, if each crosses once.
    pub inputs_and_output: f64,
}

impl Bytes {
    /// Returns the bytes by the formula of the chapter, term by term.
    pub fn predicted(n: usize, capacity: usize) -> Self {
        let bytes = |numbers: usize| (numbers * ELEMENT) as f64;
        let (square, sweeps) = (n * n, sweeps(n, capacity));
        Bytes {
            matrix: bytes((7 + sweeps) * square),
            fused_matrix: bytes((3 + sweeps) * square),
            keys_and_values: bytes(2 * n * D * n.div_ceil(strip(capacity))),
            inputs_and_output: bytes(4 * n * D),
        }
    }
}

/// Returns the predictions for sequences of more and more tokens.
pub fn over_tokens() -> Vec<(usize, Bytes)> {
    lengths().map(|n| (n, Bytes::predicted(n, CAPACITY))).collect()
}

/// Returns the predictions for fast memories from 1 KiB to 4 MiB, in numbers, eight steps for each doubling.
pub fn over_capacity() -> Vec<(usize, Bytes)> {
    let capacities = (64..=160).map(|i| (f64::from(i) / 8.0).exp2().round() as usize);
    capacities.map(|m| (m, Bytes::predicted(CAPACITY_N, m))).collect()
}
