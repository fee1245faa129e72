//! The roofline: what the machine can do at most, and how near the steps of attention come to it.

use super::facts::{F32, LayerTime, one_head};
use anyhow::{Context, Result, ensure};
use record::{Record, Unit};

/// A step of attention, timed.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub counted: laboratory::roofline::Step,
    pub seconds: f64,
}

impl Step {
    /// GFLOP/s
    pub fn speed(&self) -> f64 {
        self.counted.flops / self.seconds / 1e9
    }
}

/// Scores, scale, softmax and values for n tokens, and the whole of attention, which is timed among the lengths.
pub fn steps(record: &Record, times: &Record, n: usize) -> Result<[Step; 5]> {
    let [scores, scale, softmax, values, whole] =
        laboratory::roofline::steps(&one_head(n), F32)?;
    let timed = |counted: laboratory::roofline::Step| -> Result<Step> {
        let seconds = match counted.name {
            "whole" => times.seconds("attention/forward", "f32", n as u64)?,
            name => record.seconds(&format!("steps/{name}"), "f32", n as u64)?,
        };
        Ok(Step { counted, seconds })
    };
    Ok([timed(scores)?, timed(scale)?, timed(softmax)?, timed(values)?, timed(whole)?])
}

/// How long the cores of a layer take per FLOP of their products, as a multiple of what the projections take, when these seconds
/// are subtracted: those of a softmax for each head.
pub fn cores_over_projections(layer: &LayerTime, subtracted: f64) -> f64 {
    let products = layer.cores - subtracted;
    let per_flop = products / (layer.flops.scores + layer.flops.values) as f64;
    per_flop / (layer.projections / layer.flops.projections as f64)
}

/// How often the library's softmax of a matrix in memory moves all of it: read and written for a copy, read for the maxima, read and
/// written for the exponentials, read and written for the division.
pub const SOFTMAX_CROSSINGS: usize = 7;

/// Attention for 4096 tokens, in seconds of its parts.
pub struct Parts {
    /// What both products would take at the peak, and what they take beyond that without their new memory.
    pub at_peak: f64,
    pub beyond_peak: f64,
    pub new_memory: f64,
    pub softmax: f64,
    pub scale: f64,
    pub whole: f64,
    /// The times of a matrix (n, n) that gets one number everywhere: a new one, and one that was there before.
    pub filled_new: f64,
    pub filled_old: f64,
    /// What moving its bytes would take softmax.
    pub softmax_moves: f64,
}

impl Parts {
    pub fn of(
        record: &Record,
        pages: &Record,
        ceilings: &Ceilings,
        [scores, scale, _, values, whole]: &[Step; 5],
    ) -> Result<Self> {
        let n: usize = 4096;
        let filled =
            |which: &str| record.seconds(&format!("matrix/{which}"), "f32", n as u64);
        let (filled_new, filled_old) = (filled("new")?, filled("old")?);
        let new_memory = filled_new - filled_old;
        let products = scores.counted.flops + values.counted.flops;
        let at_peak = products / ceilings.peak() / 1e9;
        let bytes = (SOFTMAX_CROSSINGS * F32 * n * n) as f64;
        Ok(Parts {
            at_peak,
            beyond_peak: scores.seconds + values.seconds - new_memory - at_peak,
            new_memory,
            softmax: pages.seconds("kept/softmax", "f32", n as u64)?,
            scale: scale.seconds,
            whole: whole.seconds,
            filled_new,
            filled_old,
            softmax_moves: bytes / ceilings.bandwidth() / 1e9,
        })
    }

    pub fn sum(&self) -> f64 {
        self.at_peak + self.beyond_peak + self.new_memory + self.softmax + self.scale
    }
}

/// The most that `of` makes of any measurement.
fn best(record: &Record, what: &str, of: impl Fn(f64) -> f64) -> Result<f64> {
    let speeds = record.all(what, "f32").map(|m| -> Result<f64> {
        let n = *m.sizes.get("n").with_context(|| format!("{what} has no n"))?;
        Ok(of(n as f64) / record.in_unit(m, Unit::Seconds)? / 1e9)
    });
    let speeds = speeds.collect::<Result<Vec<_>>>()?;
    ensure!(!speeds.is_empty(), "the record `{}` has no {what}", record.topic);
    Ok(speeds.into_iter().fold(0.0, f64::max))
}

/// The ceilings that make the roof, in GFLOP/s and GB/s.
#[derive(Clone, Copy)]
pub struct Ceilings {
    pub registers: f64,
    pub product: f64,
    pub read: f64,
    pub update: f64,
    pub triad: f64,
}

impl Ceilings {
    pub fn of(record: &Record) -> Result<Self> {
        let bytes = F32 as f64;
        Ok(Ceilings {
            registers: best(record, "arithmetic/registers", |n| 2.0 * n)?,
            product: best(record, "arithmetic/product", |n| 2.0 * n.powi(3))?,
            read: best(record, "bandwidth/read", |n| bytes * n)?,
            update: best(record, "bandwidth/update", |n| 2.0 * bytes * n)?,
            triad: best(record, "bandwidth/triad", |n| 3.0 * bytes * n)?,
        })
    }

    pub fn peak(&self) -> f64 {
        self.registers.max(self.product)
    }

    pub fn bandwidth(&self) -> f64 {
        self.read.max(self.update).max(self.triad)
    }

    /// FLOP/byte from which on the roof is level.
    pub fn ridge(&self) -> f64 {
        self.peak() / self.bandwidth()
    }

    /// The most GFLOP/s at an intensity.
    pub fn roof(&self, intensity: f64) -> f64 {
        self.peak().min(self.bandwidth() * intensity)
    }

    /// Returns the share of the roof above it that a step reaches.
    pub fn share(&self, step: &Step) -> f64 {
        step.speed() / self.roof(step.counted.intensity())
    }
}

/// FLOP/byte at which the roofline of the machine in the record is level.
pub fn ridge(record: &Record) -> Result<f64> {
    Ok(Ceilings::of(record)?.ridge())
}
