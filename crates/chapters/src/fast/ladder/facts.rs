//! What each step was predicted to bring and what it brought, from the records of the ladder and of its parts.

use crate::fast::facts::{D, HEADS, N};
use anyhow::{Context, Result, bail};
use attention::flash::Flash;
use record::{Cache, Machine, Measurement, Record, Unit};

/// Rows and columns of a tile up to step 5, and of step 6.
pub const SMALL: (usize, usize) = (64, 64);
pub const LARGE: (usize, usize) = (256, 512);

/// FLOPs of both products, forward and full: 4 h n² d.
pub fn flops() -> f64 {
    (4 * HEADS * N * N * D) as f64
}

fn scores() -> f64 {
    (HEADS * N * N) as f64
}

/// FLOPs a second of a product from width D.
pub fn rate(seconds: f64, (rows, columns): (usize, usize)) -> f64 {
    (2 * rows * columns * D) as f64 / seconds
}

/// A step, the name of its measurement, and what it changes.
const STEPS: [(&str, &str); 8] = [
    ("naive", "the matrix of weights, head by head"),
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

/// On how many threads a step runs.
pub fn threads(step: &str) -> usize {
    if step == "threads" { 2 } else { 1 }
}

/// What every step that can do it was timed with.
pub struct Pass {
    /// In the names of measurements.
    pub name: &'static str,
    pub words: &'static str,
    /// FLOPs, as a multiple of those forward without a mask.
    pub work: f64,
}

pub const PASSES: [Pass; 4] = [
    Pass { name: "forward", words: "forward", work: 1.0 },
    Pass { name: "forward causal", words: "forward, causal", work: 0.5 },
    Pass { name: "both", words: "forward + backward", work: 3.5 },
    Pass { name: "both causal", words: "both, causal", work: 1.75 },
];

impl Pass {
    pub fn is_causal(&self) -> bool {
        self.name.ends_with("causal")
    }

    pub fn is_both(&self) -> bool {
        self.name.starts_with("both")
    }
}

/// What a micro-kernel does once: a panel of so many rows, with so many columns, meets so many numbers at a time.
#[derive(Debug, Clone, Copy)]
pub struct MicroKernel {
    pub rows: usize,
    pub columns: usize,
    pub numbers: usize,
    pub seconds: f64,
    /// FLOPs a second, if it has any.
    pub rate: f64,
}

impl MicroKernel {
    /// How often it is due for all scores of the ladder's problem, and the seconds of each time.
    fn for_all_scores(self) -> (f64, f64) {
        (scores() / (self.rows * self.columns) as f64, self.seconds)
    }
}

/// The records of one machine.
pub struct Ladder {
    pub steps: Record,
    parts: Record,
    /// FLOPs a second of the fastest product of all that were measured: no program whose work is products can be faster.
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

    pub fn machine(&self) -> &Machine {
        &self.steps.machine
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

    /// The same, if the step has that pass.
    pub fn time_if_any(&self, pass: &Pass, step: &str) -> Result<Option<f64>> {
        if pass.is_both() && FORWARD_ALONE.contains(&step) {
            return Ok(None);
        }
        self.time(pass.name, step).map(Some)
    }

    /// The seconds of one product of tiles by a library, from width D.
    pub fn product(&self, (rows, columns): (usize, usize)) -> Result<f64> {
        let sizes = [("n", rows), ("columns", columns)];
        Ok(self.find("parts/product matrixmultiply", &sizes)?.median)
    }

    /// The seconds of another part.
    pub fn part(&self, name: &str) -> Result<f64> {
        Ok(self.find(&format!("parts/{name}"), &[])?.median)
    }

    pub fn kernel(&self, name: &str, d: usize) -> Result<MicroKernel> {
        let m = self.find(&format!("parts/micro-kernel {name}"), &[("d", d)])?;
        let size = |name: &str| match m.sizes.get(name) {
            Some(0) => bail!("{} has a size {name} of 0", m.what),
            Some(size) => Ok(usize::try_from(*size)?),
            None => bail!("{} has no size {name}", m.what),
        };
        let (rows, columns, numbers) = (size("n")?, size("columns")?, size("numbers")?);
        let rate = 2.0 * (rows as f64) * (columns as f64) * (d as f64) / m.median;
        Ok(MicroKernel { rows, columns, numbers, seconds: m.median, rate })
    }

    /// The seconds of one exponential, each way.
    pub fn exponential(&self, way: &str) -> Result<f64> {
        let m = self.find(&format!("parts/exponentials {way}"), &[])?;
        let count = *m.sizes.get("n").context("exponentials without n")?;
        Ok(m.median / count as f64)
    }

    /// The time of all exponentials that take so long each, as a share of that of both products at the roof.
    pub fn exponentials_share(&self, seconds: f64) -> f64 {
        seconds * scores() / (flops() / self.roof)
    }

    /// The speed of a step that does this work: FLOPs a second, and as a share of the roof. Two threads have two roofs.
    pub fn speed(&self, step: &str, work: f64, seconds: f64) -> (f64, f64) {
        let speed = work * flops() / seconds;
        (speed, speed / (threads(step) as f64 * self.roof))
    }
}

/// The sizes of the first-level and second-level cache of one core, if the record tells.
pub fn first_caches(machine: &Machine) -> [Option<u64>; 2] {
    let of_level = |level| {
        let found = |c: &&Cache| c.level == level && c.kind != "Instruction";
        machine.caches.iter().find(found).map(|c| c.bytes)
    };
    [1, 2].map(of_level)
}

// --------------------------------------------------------------------------------------------------------- the steps

/// A step of the ladder, forward and full.
pub struct Step {
    /// Counted from 1.
    pub number: usize,
    pub name: &'static str,
    pub change: &'static str,
    pub seconds: f64,
    /// From the step before, if there is one.
    pub prediction: Option<Prediction>,
}

/// The measured time of the step before, and what is exchanged for what it had.
pub struct Prediction {
    pub before: f64,
    /// So many of a part that takes so long come (or go, if the number is negative).
    pub exchange: Vec<(f64, f64)>,
}

impl Prediction {
    /// Negative if the parts that go take longer by themselves than the whole step before.
    pub fn seconds(&self) -> f64 {
        self.before + self.exchange.iter().map(|(count, each)| count * each).sum::<f64>()
    }
}

/// How many times as fast as the step before one is.
#[derive(Debug, Clone, Copy)]
pub struct Gain {
    /// The step, counted from 1.
    pub number: usize,
    /// Negative if the prediction is.
    pub predicted: f64,
    pub measured: f64,
}

impl Gain {
    /// How far the measurement is from what was predicted.
    pub fn surprise(&self) -> f64 {
        if self.predicted > 0.0 {
            (self.measured / self.predicted).ln().abs()
        } else {
            f64::INFINITY
        }
    }
}

impl Step {
    pub fn gain(&self) -> Option<Gain> {
        let prediction = self.prediction.as_ref()?;
        Some(Gain {
            number: self.number,
            predicted: prediction.before / prediction.seconds(),
            measured: prediction.before / self.seconds,
        })
    }
}

/// What the time of step 7 is made of, by its parts.
pub struct Rest {
    /// The rate of its products by themselves, as a share of the roof.
    pub rate: f64,
    /// The shares that products at this rate and exponentials have in the time.
    pub products: f64,
    pub exponentials: f64,
}

/// How many tiles of this size the ladder's problem has.
fn tiles((rows, columns): (usize, usize)) -> f64 {
    (HEADS * (N / rows) * (N / columns)) as f64
}

impl Ladder {
    pub fn steps(&self) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = vec![];
        for (i, (name, change)) in STEPS.into_iter().enumerate() {
            let prediction = match steps.last() {
                Some(Step { seconds: before, .. }) => {
                    let exchange = self.exchanged(name, *before)?;
                    Some(Prediction { before: *before, exchange })
                }
                None => None,
            };
            let seconds = self.time("forward", name)?;
            steps.push(Step { number: i + 1, name, change, seconds, prediction });
        }
        Ok(steps)
    }

    /// What a step exchanges for what the one before it had, which took so long.
    fn exchanged(&self, step: &str, before: f64) -> Result<Vec<(f64, f64)>> {
        let exponentials = |from, to| -> Result<[(f64, f64); 2]> {
            let (from, to) = (self.exponential(from)?, self.exponential(to)?);
            Ok([(-scores(), from), (scores(), to)])
        };
        Ok(match step {
            // Two large products a head become two small ones a tile, and tiles are copied.
            "tiled" => {
                let [go, come] = exponentials("vector", "one by one")?;
                vec![
                    (-2.0 * HEADS as f64, self.part("product whole")?),
                    (2.0 * tiles(SMALL), self.product(SMALL)?),
                    (5.0 * tiles(SMALL), self.part("copied tile")?),
                    go,
                    come,
                ]
            }
            // The transpose of the keys, the product, a copy of the scores, a copy of the values, their product.
            "scratch" => vec![(-5.0 * tiles(SMALL), self.part("copied tile")?)],
            "portable" => exponentials("one by one", "portable")?.to_vec(),
            "vector" => exponentials("portable", "vector")?.to_vec(),
            "tiles" => vec![
                (-2.0 * tiles(SMALL), self.product(SMALL)?),
                (2.0 * tiles(LARGE), self.product(LARGE)?),
            ],
            "registers" => {
                // A packed tile of keys and values serves a block of queries.
                let packing = self.kernel("packing", D)?;
                let blocks = (HEADS * N.div_ceil(Flash::TILES.queries)) as f64;
                vec![
                    (-2.0 * tiles(LARGE), self.product(LARGE)?),
                    self.kernel("scores", D)?.for_all_scores(),
                    self.kernel("values", D)?.for_all_scores(),
                    (blocks * (N / packing.columns) as f64, packing.seconds),
                ]
            }
            "threads" => vec![(-0.5, before)],
            other => bail!("nothing is predicted for {other}"),
        })
    }

    /// Which share of a step's time goes into neither products of small tiles nor exponentials one by one.
    pub fn unexplained(&self, step: &Step) -> Result<f64> {
        let products = 2.0 * tiles(SMALL) * self.product(SMALL)?;
        let exponentials = scores() * self.exponential("one by one")?;
        Ok(1.0 - (products + exponentials) / step.seconds)
    }

    pub fn rest(&self, registers: &Step) -> Result<Rest> {
        let time = |name| {
            let (count, seconds) = self.kernel(name, D)?.for_all_scores();
            anyhow::Ok(count * seconds)
        };
        let products = time("scores")? + time("values")?;
        Ok(Rest {
            rate: flops() / products / self.roof,
            products: products / registers.seconds,
            exponentials: scores() * self.exponential("vector")? / registers.seconds,
        })
    }
}
