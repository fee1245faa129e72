//! The needs of each function on Hopper, by the compiler's report, and the number of its blocks that a multiprocessor holds.

use super::banks::D;
use super::machine::{MOST_BLOCKS, MOST_THREADS, REGISTERS, SHARED, WARP};
use super::measured::{setting, size};
use anyhow::{Context, Result, ensure};
use gpu::tiles::hopper::{CONSUMER_REGISTERS, PRODUCER_REGISTERS};
use record::{Measurement, Record};

/// The needs of a function on Hopper, without a mask.
pub struct Needs {
    pub registers: usize,
    pub spills: usize,
    pub shared: usize,
    pub threads: usize,
}

impl Needs {
    /// Blocks that a multiprocessor holds at once. Registers are given to warps, 256 at a time; of shared memory, the system
    /// keeps one KiB a block.
    pub fn blocks(&self) -> usize {
        let warps = self.threads / WARP;
        let registers = (self.registers * WARP).next_multiple_of(256) * warps;
        [
            REGISTERS / registers.max(1),
            SHARED / (self.shared + 1024),
            MOST_THREADS / self.threads,
            MOST_BLOCKS,
        ]
        .into_iter()
        .min()
        .unwrap_or(0)
    }

    /// Warps that a multiprocessor holds at once.
    pub fn warps(&self) -> usize {
        self.blocks() * self.threads / WARP
    }
}

/// Returns the needs of every function at the chapter's width, with its kernel and its name.
pub fn needs(record: &Record) -> Result<Vec<(&str, &str, Needs)>> {
    let mut functions = vec![];
    for first in on_hopper(record) {
        let Some(function) = first.what.strip_prefix("registers/") else { continue };
        let (kernel, d) = (setting(first, "kernel")?, size(first, "d")?);
        if d as usize != D {
            continue;
        }
        let number = |what: &str| -> Result<usize> {
            let what = format!("{what}/{function}");
            let found = on_hopper(record).find(|m| {
                m.what == what
                    && m.settings == first.settings
                    && m.sizes.get("d") == Some(&d)
            });
            Ok(found.with_context(|| format!("no {what} of {kernel}"))?.median as usize)
        };
        let needs = Needs {
            registers: first.median as usize,
            spills: number("spills")?,
            shared: number("shared")?,
            threads: first.threads,
        };
        ensure!(
            needs.blocks() > 0,
            "{function} of {kernel} does not fit a multiprocessor"
        );
        if kernel == "hopper" {
            check_dealt(&needs)?;
        }
        functions.push((kernel, function, needs));
    }
    ensure!(!functions.is_empty(), "the record `kernels` has nothing for Hopper");
    Ok(functions)
}

fn on_hopper(record: &Record) -> impl Iterator<Item = &Measurement> {
    record.measurements.iter().filter(|m| {
        let is = |name: &str, what: &str| {
            m.settings.get(name).is_some_and(|setting| setting == what)
        };
        let hopper = ["hopper", "backward_hopper"].iter().any(|name| is("kernel", name));
        is("architecture", if hopper { "sm_90a" } else { "sm_90" }) && is("mask", "full")
    })
}

/// Fails if kernel 4 deals out more registers than it was given at the launch.
fn check_dealt(hopper: &Needs) -> Result<()> {
    let warpgroups = hopper.threads / (4 * WARP);
    let dealt = PRODUCER_REGISTERS + (warpgroups - 1) * CONSUMER_REGISTERS;
    ensure!(
        dealt <= warpgroups * hopper.registers,
        "kernel 4 deals out {dealt} registers"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_bound_by_what_runs_out_first() {
        let needs = |registers, shared, threads| {
            Needs { registers, spills: 0, shared, threads }.blocks()
        };
        assert_eq!(needs(32, 0, 128), 16); // threads
        assert_eq!(needs(128, 0, 128), 4); // registers
        assert_eq!(needs(121, 0, 128), 4); // given eight at a time: 128
        assert_eq!(needs(64, 100 << 10, 128), 2); // shared memory
        assert_eq!(needs(16, 0, 32), 32); // blocks
    }
}
