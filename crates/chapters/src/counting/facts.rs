//! The chapter's counts of attention, and what follows from the recorded times and bytes. The roofline has
//! a file of its own.

use crate::records::log_log_slope;
use anyhow::{Context, Result, ensure};
use laboratory::cost::{AttentionShape, Bytes, Flops};
use record::{Measurement, Record, Unit};

/// The width of a head, everywhere on this page.
pub const D: usize = 64;

/// Bytes of an `f32`.
pub const F32: usize = 4;

/// One head over one sequence of n tokens.
pub fn one_head(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, D, D, 1)
}

// --------------------------------------------------------------------------------------------------- what is counted

/// The heads of the layer in the table of counts.
pub const HEADS: usize = 32;

/// The layer with all of these heads, over one sequence of n tokens.
pub fn layer(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, HEADS * D, D, HEADS)
}

/// The layer's counts at one length.
pub struct Counts {
    pub n: usize,
    pub flops: Flops,
    pub bytes: Bytes,
}

pub fn counts(n: usize) -> Result<Counts> {
    Ok(Counts { n, flops: layer(n).flops()?, bytes: layer(n).bytes(F32)? })
}

/// Returns the share of a layer's operations that isn't in the projections.
pub fn core_share(flops: &Flops) -> f64 {
    flops.core() as f64 / flops.total() as f64
}

/// Returns the ratio of the layer's operations for 2n tokens and for n.
pub fn doubling(n: usize) -> Result<f64> {
    Ok(layer(2 * n).flops()?.total() as f64 / layer(n).flops()?.total() as f64)
}

/// Returns the ratio of the layer's operations backward and forward.
pub fn backward_flops_ratio(n: usize) -> Result<f64> {
    let backward = layer(n).backward_flops()?.total();
    Ok(backward as f64 / layer(n).flops()?.total() as f64)
}

/// Returns what [`backward_flops_ratio`] tends to as n grows: a head's four products and softmax backward over its two products and
/// softmax.
pub fn backward_flops_limit() -> f64 {
    let d = D as f64;
    (8.0 * d + 4.0) / (4.0 * d + 5.0)
}

/// FLOP/byte of one head of this width in `f32`, each matrix moved once.
pub fn intensity(n: usize, d: usize) -> Result<f64> {
    Ok(AttentionShape::self_attention(1, n, d, d, 1).intensity(F32)?)
}

/// Returns the limit of the intensity as n grows.
pub fn intensity_limit(d: usize) -> f64 {
    d as f64 + 1.25
}

// ----------------------------------------------------------------------------------------------------- times over n

/// Numbers of tokens, and what each took.
pub type Points = Vec<(f64, f64)>;

/// The size of a measurement that is called n.
fn tokens(measurement: &Measurement) -> Result<u64> {
    let n = measurement.sizes.get("n").copied();
    n.with_context(|| format!("{} has no n", measurement.what))
}

/// The medians of all measurements of `what`.
fn series(record: &Record, what: &str) -> Result<Points> {
    let point = |m| Ok((tokens(m)? as f64, record.in_unit(m, Unit::Seconds)?));
    let points = record.all(what, "f32").map(point).collect::<Result<Points>>()?;
    ensure!(points.len() > 2, "the record `{}` has too little of {what}", record.topic);
    ensure!(points.is_sorted_by(|a, b| a.0 < b.0), "{what}: not in order of n");
    Ok(points)
}

// ----------------------------------------------------------------------------------------------------- the crossover

/// A layer's counts and times for n tokens.
pub struct LayerTime {
    pub n: f64,
    pub flops: Flops,
    /// Seconds, as of the two below.
    pub projections: f64,
    pub cores: f64,
    pub whole: f64,
}

/// The layer that was timed.
pub struct TimedLayer {
    pub d_model: usize,
    pub heads: usize,
    /// The n at which the core has as many FLOPs in products as the projections.
    pub crossover: usize,
    pub times: Vec<LayerTime>,
}

impl TimedLayer {
    pub fn of(record: &Record) -> Result<Self> {
        let first = record.all("layer/forward", "f32").next().context("a layer")?;
        let size = |name: &str| -> Result<usize> {
            let size = first.sizes.get(name);
            Ok(*size.with_context(|| format!("the layer has no {name}"))? as usize)
        };
        let (d_model, heads) = (size("d_model")?, size("heads")?);
        let shape =
            |n| AttentionShape::self_attention(1, n, d_model, d_model / heads, heads);
        let time = |(n, whole): (f64, f64)| {
            let flops = shape(n as usize).flops()?;
            let of = |part| record.seconds(&format!("layer/{part}"), "f32", n as u64);
            let (projections, cores) = (of("projections")?, of("cores")?);
            Ok(LayerTime { n, flops, projections, cores, whole })
        };
        let times = series(record, "layer/forward")?.into_iter().map(time);
        let times = times.collect::<Result<Vec<_>>>()?;
        let count = |part| record.all(part, "f32").count();
        let counts = [count("layer/projections"), count("layer/cores")];
        ensure!(counts == [times.len(); 2], "the same n");
        Ok(TimedLayer { d_model, heads, crossover: shape(1).crossover(), times })
    }

    /// The projections and the core, in billions of operations.
    pub fn counted(&self) -> [Points; 2] {
        self.lines(|t| (t.flops.projections as f64 / 1e9, t.flops.core() as f64 / 1e9))
    }

    /// The projections and the core, in seconds.
    pub fn measured(&self) -> [Points; 2] {
        self.lines(|time| (time.projections, time.cores))
    }

    /// The slopes of the measured lines on logarithmic axes.
    pub fn slopes(&self) -> [f64; 2] {
        self.measured().map(|points| log_log_slope(&points))
    }

    fn lines(&self, of: impl Fn(&LayerTime) -> (f64, f64)) -> [Points; 2] {
        let points = self.times.iter().map(|time| (time.n, of(time)));
        let (a, b) = points.map(|(n, (a, b))| ((n, a), (n, b))).unzip();
        [a, b]
    }

    /// Its times where both have the same FLOPs.
    pub fn at_crossover(&self) -> Option<&LayerTime> {
        self.times.iter().find(|time| time.n == self.crossover as f64)
    }
}

/// The place at which one line rises above another.
#[derive(Debug, PartialEq)]
pub enum Crossing {
    /// At this n, interpolated on logarithmic axes.
    At(f64),
    /// It is above from the start.
    Before,
    /// It stays below.
    Beyond,
}

impl Crossing {
    /// Returns the place at which the second line first rises above the first one.
    pub fn of([a, b]: &[Points; 2]) -> Self {
        let lead: Vec<_> =
            a.iter().zip(b).map(|(a, b)| (a.0.ln(), (b.1 / a.1).ln())).collect();
        let step = lead.windows(2).find(|step| step[0].1 < 0.0 && step[1].1 >= 0.0);
        match step {
            Some(step) => {
                let [(x0, y0), (x1, y1)] = [step[0], step[1]];
                Self::At((x0 - y0 * (x1 - x0) / (y1 - y0)).exp())
            }
            None if lead[0].1 >= 0.0 => Self::Before,
            None => Self::Beyond,
        }
    }
}

// -------------------------------------------------------------------------------------------------------- the memory

/// The peak of allocated bytes for one head.
pub struct Peak {
    pub n: usize,
    /// Queries, keys, values, weights and output, by their shapes.
    pub kept: u128,
    pub forward: f64,
    pub with_backward: f64,
}

impl Peak {
    /// Returns so many bytes as a multiple of a matrix of (n, n).
    pub fn in_squares(&self, bytes: f64) -> f64 {
        bytes / (F32 * self.n * self.n) as f64
    }
}

/// Numbers that are alive at once for n tokens: forward, and with the backward pass. Inputs, output and gradients beside the
/// matrices of (n, n), as the bench `memory` counts them.
pub fn alive(n: usize) -> [usize; 2] {
    [n * n + 4 * n * D + n, 2 * n * n + 7 * n * D + n]
}

/// The peaks of the record, which are those that the chapter has formulas for.
pub fn peaks(record: &Record) -> Result<Vec<Peak>> {
    let peak = |forward| {
        let n = tokens(forward)?;
        let both = record.find("memory/forward and backward", "f32", n)?;
        let n = n as usize;
        // The product packs up to a block of each factor.
        let buffers = 1 << 19;
        for (found, numbers) in [forward, both].into_iter().zip(alive(n)) {
            let formula = F32 * numbers;
            let bytes = record.in_unit(found, Unit::Bytes)?;
            ensure!(
                (formula..formula + buffers).contains(&(bytes as usize)),
                "the record `memory`: {} at n = {n} takes {bytes} bytes, far from {formula}",
                found.what
            );
        }
        let kept = one_head(n).bytes(F32)?.total();
        Ok(Peak { n, kept, forward: forward.median, with_backward: both.median })
    };
    record.all("memory/forward", "f32").map(peak).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_where_they_are_equal() {
        let line = |factor: f64, power: i32| -> Points {
            [1.0_f64, 2.0, 4.0, 8.0].map(|n| (n, factor * n.powi(power))).to_vec()
        };
        let Crossing::At(n) = Crossing::of(&[line(3.0, 1), line(1.0, 2)]) else {
            panic!("3 n = n² has a solution")
        };
        assert!((n - 3.0).abs() < 1e-12);
        assert_eq!(Crossing::of(&[line(1.0, 1), line(2.0, 1)]), Crossing::Before);
        assert_eq!(Crossing::of(&[line(2.0, 1), line(1.0, 1)]), Crossing::Beyond);
    }
}
