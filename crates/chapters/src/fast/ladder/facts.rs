//! The predicted and the measured gain of each step, from the records of the ladder and of its parts.

use super::runs::{Again, median};
use crate::fast::facts::{D, HEADS, N, flops};
use ::fast::Flash;
use anyhow::{Context, Result, bail};
use record::{Measurement, Record, Unit};

/// Rows and columns of a tile up to step 5, and of step 6.
pub const SMALL: (usize, usize) = (64, 64);
pub const LARGE: (usize, usize) = (256, 512);

fn scores() -> f64 {
    (HEADS * N * N) as f64
}

/// FLOPs per second of a product from width D.
pub fn rate(seconds: f64, (rows, columns): (usize, usize)) -> f64 {
    (2 * rows * columns * D) as f64 / seconds
}

/// A step, the name of its measurement, and what it changes.
const STEPS: [(&str, &str); 8] = [
    ("naive", "the matrix of weights; products and exponentials as in version 7"),
    ("tiled", "tiles of 64 × 64, as in *Tiles, forward*; exponentials one by one"),
    ("scratch", "one scratch memory; softmax goes column by column"),
    ("portable", "exponentials by polynomial"),
    ("vector", "the widest vector instructions"),
    ("tiles", "larger tiles"),
    ("registers", "products by hand: packed, and summed in registers"),
    ("threads", "two threads"),
];

/// The steps that have no backward pass.
const FORWARD_ALONE: [&str; 4] = ["scratch", "portable", "vector", "tiles"];

pub fn has_backward(step: &str) -> bool {
    !FORWARD_ALONE.contains(&step)
}

/// Returns the number of threads on which a step runs.
pub fn threads(step: &str) -> usize {
    if step == "threads" { 2 } else { 1 }
}

/// A pass that was timed with every step that has it.
pub struct Pass {
    /// Its name in the names of measurements.
    pub name: &'static str,
    pub words: &'static str,
    pub backward: bool,
    pub causal: bool,
}

pub const PASSES: [Pass; 4] = [
    Pass { name: "forward", words: "forward", backward: false, causal: false },
    Pass {
        name: "forward causal",
        words: "forward, causal",
        backward: false,
        causal: true,
    },
    Pass { name: "both", words: "forward + backward", backward: true, causal: false },
    Pass { name: "both causal", words: "both, causal", backward: true, causal: true },
];

/// One product of a micro-kernel: of a panel of so many rows by so many columns.
#[derive(Debug, Clone, Copy)]
pub struct MicroKernel {
    pub rows: usize,
    pub columns: usize,
    pub seconds: f64,
    /// FLOPs per second, if it has any.
    pub rate: f64,
}

/// The records of one machine.
pub struct Ladder {
    pub steps: Record,
    parts: Record,
    /// FLOPs per second of the fastest product of all that were measured: no program whose work is products can be faster.
    pub roof: f64,
}

impl Ladder {
    pub fn of(steps: Record, parts: Record, roofline: &Record) -> Result<Self> {
        let mut ladder = Ladder { steps, parts, roof: 0.0 };
        let mut rates = vec![];
        for m in roofline.all("arithmetic/product", "f32") {
            let n = *m.sizes.get("n").context("a product without n")? as f64;
            rates.push(2.0 * n.powi(3) / roofline.in_unit(m, Unit::Seconds)?);
        }
        for tile in [SMALL, LARGE] {
            rates.push(rate(ladder.product(tile)?, tile));
        }
        for d in [D, 2 * D] {
            for name in ["scores", "values"] {
                rates.push(ladder.kernel(name, d)?.rate);
            }
        }
        ladder.roof = rates.into_iter().fold(0.0, f64::max);
        Ok(ladder)
    }

    pub fn find(&self, what: &str, sizes: &[(&str, usize)]) -> Result<&Measurement> {
        let record = if what.starts_with("parts/") { &self.parts } else { &self.steps };
        let fits = |m: &&Measurement| {
            sizes.iter().all(|(name, size)| m.sizes.get(*name) == Some(&(*size as u64)))
        };
        let found: Vec<_> = record.all(what, "f32").filter(fits).collect();
        let [only] = found[..] else {
            let (topic, count) = (&record.topic, found.len());
            bail!("the record `{topic}` has {count} of {what}, f32, {sizes:?}, not one")
        };
        record.in_unit(only, Unit::Seconds)?;
        Ok(only)
    }

    /// The time of a pass of one step.
    pub fn time(&self, pass: &str, step: &str) -> Result<f64> {
        Ok(self.find(&format!("ladder/{pass} {step}"), &[])?.median)
    }

    /// The median of all runs of a pass of one step.
    pub fn usual(&self, runs: &[Again], pass: &Pass, step: &str) -> Result<f64> {
        let name = format!("{step}, {}", pass.words);
        match runs.iter().find(|run| run.name == name) {
            Some(run) => Ok(median(run.times.iter().flatten().copied())),
            None => self.time(pass.name, step),
        }
    }

    /// Returns the time in the ladder's own run, if the step has that pass.
    pub fn time_if_any(&self, pass: &Pass, step: &str) -> Result<Option<f64>> {
        if pass.backward && !has_backward(step) {
            return Ok(None);
        }
        self.time(pass.name, step).map(Some)
    }

    /// The seconds of one product of tiles by a library, from width D.
    pub fn product(&self, (rows, columns): (usize, usize)) -> Result<f64> {
        let sizes = [("n", rows), ("columns", columns)];
        Ok(self.find("parts/product matrixmultiply", &sizes)?.median)
    }

    pub fn kernel(&self, name: &str, d: usize) -> Result<MicroKernel> {
        let m = self.find(&format!("parts/micro-kernel {name}"), &[("d", d)])?;
        let size = |name: &str| match m.sizes.get(name) {
            Some(0) => bail!("{} has a size {name} of 0", m.what),
            Some(size) => Ok(usize::try_from(*size)?),
            None => bail!("{} has no size {name}", m.what),
        };
        let (rows, columns) = (size("n")?, size("columns")?);
        let rate = 2.0 * (rows as f64) * (columns as f64) * (d as f64) / m.median;
        Ok(MicroKernel { rows, columns, seconds: m.median, rate })
    }

    /// The seconds of one exponential, each way.
    pub fn exponential(&self, way: &str) -> Result<f64> {
        let m = self.find(&format!("parts/exponentials {way}"), &[])?;
        let count = *m.sizes.get("n").context("exponentials without n")?;
        Ok(m.median / count as f64)
    }

    /// The time of all exponentials that take so long each, as a share of that of both products at the roof.
    pub fn exponentials_share(&self, seconds: f64) -> f64 {
        seconds * scores() / (flops(N, false, false) / self.roof)
    }

    /// The speed of a step in this pass: FLOPs per second, and as a share of the roof. Two threads have two roofs.
    pub fn speed(&self, step: &str, pass: &Pass, seconds: f64) -> (f64, f64) {
        let speed = flops(N, pass.backward, pass.causal) / seconds;
        (speed, speed / (threads(step) as f64 * self.roof))
    }
}

// --------------------------------------------------------------------------------------------------------- the steps

/// A step of the ladder, forward and full.
pub struct Step {
    /// Counted from 1.
    pub number: usize,
    pub name: &'static str,
    pub change: &'static str,
    pub seconds: f64,
    /// The measured time of the step before, if there is one.
    pub before: Option<f64>,
    /// The parts that replace those of that step, and their seconds, negative for parts that go; none if nothing is predicted.
    pub exchange: Vec<(&'static str, f64)>,
}

impl Step {
    /// The time that is predicted, if something is. It is negative if the parts that go take longer by themselves than the whole
    /// step before.
    pub fn predicted(&self) -> Option<f64> {
        let before = self.before.filter(|_| !self.exchange.is_empty())?;
        Some(before + self.exchange.iter().map(|(_, seconds)| seconds).sum::<f64>())
    }

    /// Returns the speed as a multiple of that of the step before.
    pub fn gain(&self) -> Option<f64> {
        Some(self.before? / self.seconds)
    }
}

/// Returns the number of tiles of this size in the ladder's problem.
fn tiles((rows, columns): (usize, usize)) -> f64 {
    (HEADS * (N / rows) * (N / columns)) as f64
}

impl Ladder {
    /// The time of a step is the median of its runs.
    pub fn steps(&self, runs: &[Again]) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = vec![];
        for (i, (name, change)) in STEPS.into_iter().enumerate() {
            let seconds = self.usual(runs, &PASSES[0], name)?;
            let before = steps.last().map(|step| step.seconds);
            let exchange = match before {
                Some(before) => self.exchanged(name, before)?,
                None => vec![],
            };
            steps.push(Step { number: i + 1, name, change, seconds, before, exchange });
        }
        Ok(steps)
    }

    /// Returns the parts that a step exchanges for those of the one before it, which took so long, and their seconds.
    fn exchanged(&self, step: &str, before: f64) -> Result<Vec<(&'static str, f64)>> {
        Ok(match step {
            // What takes their time isn't in parts that were timed alone.
            "tiled" | "scratch" => vec![],
            "portable" => vec![
                ("exp2f", -self.exponentials("one by one")?),
                ("polynomial", self.exponentials("portable")?),
            ],
            "vector" => vec![
                ("polynomial", -self.exponentials("portable")?),
                ("in wide vectors", self.exponentials("vector")?),
            ],
            "tiles" => vec![
                ("products, small tiles", -self.library_products(SMALL)?),
                ("products, large tiles", self.library_products(LARGE)?),
            ],
            "registers" => vec![
                ("library's products", -self.library_products(LARGE)?),
                ("scores", self.micro_kernels("scores")?),
                ("values", self.micro_kernels("values")?),
                ("packing", self.packing()?),
            ],
            "threads" => vec![("half", -0.5 * before)],
            other => bail!("nothing is predicted for {other}"),
        })
    }

    /// Returns the seconds of all exponentials of the ladder's problem, computed this way.
    pub fn exponentials(&self, way: &str) -> Result<f64> {
        Ok(scores() * self.exponential(way)?)
    }

    /// Returns the seconds of both products of all tiles, by the library.
    fn library_products(&self, tile: (usize, usize)) -> Result<f64> {
        Ok(2.0 * tiles(tile) * self.product(tile)?)
    }

    /// Returns the seconds of a micro-kernel for all scores of the ladder's problem.
    fn micro_kernels(&self, name: &str) -> Result<f64> {
        let kernel = self.kernel(name, D)?;
        Ok(scores() / (kernel.rows * kernel.columns) as f64 * kernel.seconds)
    }

    /// The largest tile of queries and keys of step 7: blocks of queries are of one size, and of whole panels.
    pub fn tile_of_registers(&self) -> Result<(usize, usize)> {
        let panel = self.kernel("scores", D)?.rows;
        let queries = N.div_ceil(N.div_ceil(Flash::TILES.queries));
        Ok((queries.next_multiple_of(panel), Flash::TILES.keys))
    }

    fn packing(&self) -> Result<f64> {
        let packing = self.kernel("packing", D)?;
        let blocks = (HEADS * N.div_ceil(Flash::TILES.queries)) as f64;
        Ok(blocks * (N / packing.columns) as f64 * packing.seconds)
    }

    /// The time of the library's products of such tiles and of such exponentials, by themselves.
    pub fn explained(&self, tile: (usize, usize), exponential: &str) -> Result<f64> {
        Ok(self.library_products(tile)? + self.exponentials(exponential)?)
    }
}
