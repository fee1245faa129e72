//! The plan of kernel 4, with the numbers that its source has.

use super::banks::D;
use super::source::{constant, has};
use anyhow::{Result, ensure};
use laboratory::gpu::{Lengths, Plan, STAGES};

/// Tiles drawn.
pub const SHOWN: usize = 4;

/// The plan of kernel 4.
pub fn of_hopper() -> Result<(Lengths, Plan)> {
    ensure!(constant("hopper.cu", "STAGES")? == STAGES);
    has(
        "hopper.cu",
        &[
            "constexpr int CONSUMERS = D == 128 ? 2 : 3;",
            "begin_output(o, weights, shared.v[stage(t - 1)]);\n        pass_turn(number);",
        ],
    )?;
    let lengths = Lengths::new(constant("hopper.cu", "KEYS")?, D);
    Ok((lengths, Plan::new(lengths)))
}
