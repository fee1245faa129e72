//! What each step was predicted to bring and what it brought, from the records of the ladder and of its parts.

use crate::fast::facts::{D, HEADS, N};
use crate::fast::peers::{Cell, time};
use anyhow::{Context, Result, bail};
use attention::flash::{Flash, LibraryFlash, Tiles};
use record::{Cache, Machine, Measurement, Record, Unit};

/// Rows and columns of a tile up to step 5, and of step 6.
pub const SMALL: (usize, usize) = (64, 64);
pub const LARGE: (usize, usize) = (256, 512);

/// The numbers of keys that were tried, and of queries with the library.
pub const SIZES: [usize; 4] = [64, 128, 256, 512];
/// The numbers of queries that were tried with the micro-kernels.
pub const BLOCKS: [usize; 4] = [48, 192, 576, 1152];

/// FLOPs of both products, forward and full: 4 h n² d.
fn flops() -> f64 {
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
    fn is_causal(&self) -> bool {
        self.name.ends_with("causal")
    }

    fn is_both(&self) -> bool {
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
    /// How often it is due for all scores of the ladder's problem.
    fn count(self) -> f64 {
        scores() / (self.rows * self.columns) as f64
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

    fn find(&self, what: &str, sizes: &[(&str, usize)]) -> Result<&Measurement> {
        let record = if what.starts_with("parts/") { &self.parts } else { &self.steps };
        let fits = |m: &&Measurement| {
            sizes.iter().all(|(name, size)| m.sizes.get(*name) == Some(&(*size as u64)))
        };
        let mut found = record.all(what, "f32").filter(fits);
        match (found.next(), found.next()) {
            (Some(only), None) => {
                record.in_unit(only, Unit::Seconds)?;
                Ok(only)
            }
            (first, _) => {
                let how = if first.is_some() { "more than one" } else { "no" };
                bail!("the record `{}` has {how} {what}, f32, of {sizes:?}", record.topic)
            }
        }
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

    /// The seconds of one product of a whole head, by the same library.
    pub fn whole_product(&self) -> Result<f64> {
        Ok(self.find("parts/product whole", &[])?.median)
    }

    /// The seconds in which a small tile is copied.
    pub fn copied_tile(&self) -> Result<f64> {
        Ok(self.find("parts/copied tile", &[])?.median)
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
        let exponentials = |from, to| -> Result<Vec<(f64, f64)>> {
            let (from, to) = (self.exponential(from)?, self.exponential(to)?);
            Ok(vec![(-scores(), from), (scores(), to)])
        };
        Ok(match step {
            // Two large products a head become two small ones a tile, and tiles are copied.
            "tiled" => {
                let products = [
                    (-2.0 * HEADS as f64, self.whole_product()?),
                    (2.0 * tiles(SMALL), self.product(SMALL)?),
                    (5.0 * tiles(SMALL), self.copied_tile()?),
                ];
                [products.to_vec(), exponentials("vector", "one by one")?].concat()
            }
            // The transpose of the keys, the product, a copy of the scores, a copy of the values, their product.
            "scratch" => vec![(-5.0 * tiles(SMALL), self.copied_tile()?)],
            "portable" => exponentials("one by one", "portable")?,
            "vector" => exponentials("portable", "vector")?,
            "tiles" => vec![
                (-2.0 * tiles(SMALL), self.product(SMALL)?),
                (2.0 * tiles(LARGE), self.product(LARGE)?),
            ],
            "registers" => {
                let (scores, values) =
                    (self.kernel("scores", D)?, self.kernel("values", D)?);
                // A packed tile of keys and values serves a block of queries.
                let packing = self.kernel("packing", D)?;
                let blocks = (HEADS * N.div_ceil(Flash::TILES.queries)) as f64;
                vec![
                    (-2.0 * tiles(LARGE), self.product(LARGE)?),
                    (scores.count(), scores.seconds),
                    (values.count(), values.seconds),
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
            let kernel = self.kernel(name, D)?;
            anyhow::Ok(kernel.count() * kernel.seconds)
        };
        let products = time("scores")? + time("values")?;
        Ok(Rest {
            rate: flops() / products / self.roof,
            products: products / registers.seconds,
            exponentials: scores() * self.exponential("vector")? / registers.seconds,
        })
    }
}

// ------------------------------------------------------------------------------------------------ the sizes of tiles

/// The speed of a program over the sizes of its tiles.
pub struct TileSpeeds {
    /// GFLOP/s for each number of keys, with so many queries.
    pub rows: Vec<(usize, [f64; 4])>,
    pub best: Tiles,
    /// By which share the tile that the program takes is slower than the best.
    pub behind: f64,
}

impl Ladder {
    /// The time of a program with tiles of this size.
    fn time_with(&self, program: &str, Tiles { queries, keys }: Tiles) -> Result<f64> {
        let sizes = [("queries", queries), ("keys", keys)];
        Ok(self.find(&format!("tiles/{program}"), &sizes)?.median)
    }

    /// Of a program that does this work and takes these tiles.
    pub fn tile_speeds(
        &self,
        program: &str,
        work: f64,
        queries: [usize; 4],
        default: Tiles,
    ) -> Result<TileSpeeds> {
        let speed =
            |tiles| anyhow::Ok(work * flops() / self.time_with(program, tiles)? / 1e9);
        let (mut rows, mut best, mut fastest) = (vec![], default, 0.0);
        for queries in queries {
            let mut row = [0.0; 4];
            for (keys, cell) in SIZES.into_iter().zip(&mut row) {
                *cell = speed(Tiles { queries, keys })?;
                if *cell > fastest {
                    (fastest, best) = (*cell, Tiles { queries, keys });
                }
            }
            rows.push((queries, row));
        }
        Ok(TileSpeeds { rows, best, behind: 1.0 - speed(default)? / fastest })
    }
}

/// Which share of the scores that are computed is hidden: of a block of B queries, B (B − 1) / 2, and of all, (B − 1) of n + B.
pub fn hidden_share(queries: usize) -> f64 {
    (queries - 1) as f64 / (N + queries) as f64
}

// ---------------------------------------------------------------------------------------------------- measured again

/// The times of one computation in several runs: in the ladder, among the sizes of tiles, and beside the peers.
pub struct Again {
    pub name: String,
    pub times: [Option<f64>; 3],
}

impl Again {
    /// The factor that they are apart at most.
    pub fn apart(&self) -> f64 {
        let known = || self.times.iter().flatten().copied();
        known().fold(0.0, f64::max) / known().fold(f64::MAX, f64::min)
    }
}

impl Ladder {
    /// All computations of which there are several runs. `peers` are of the same machine, if they are there.
    pub fn again(&self, peers: Option<&Record>) -> Result<Vec<Again>> {
        let mut rows = vec![];
        for (step, peer) in [
            ("naive", Some("naive")),
            ("vector", None),
            ("tiles", None),
            ("registers", Some("flash")),
            ("threads", Some("flash")),
        ] {
            for pass in &PASSES {
                let Some(time) = self.time_if_any(pass, step)? else { continue };
                let beside = match peers.zip(peer) {
                    Some((peers, peer)) => Some(beside(peers, peer, step, pass)?),
                    None => None,
                };
                let times = [Some(time), self.time_among_tiles(step, pass)?, beside];
                if times.iter().flatten().count() > 1 {
                    rows.push(Again { name: format!("{step}, {}", pass.words), times });
                }
            }
        }
        Ok(rows)
    }

    /// The time of a pass among the sizes of tiles, if it is there.
    fn time_among_tiles(&self, step: &str, pass: &Pass) -> Result<Option<f64>> {
        let (queries, keys) = SMALL;
        let (program, tiles) = match step {
            "vector" => ("library", Tiles { queries, keys }),
            "tiles" => ("library", LibraryFlash::new().tiles()),
            "registers" if !pass.is_both() => ("registers", Flash::TILES),
            _ => return Ok(None),
        };
        let mask = if pass.is_causal() { " causal" } else { "" };
        self.time_with(&format!("{program}{mask}"), tiles).map(Some)
    }

    /// The spread of each time of the ladder, as a share of it.
    pub fn spreads(&self) -> Vec<f64> {
        let of_ladder = |m: &&Measurement| m.what.starts_with("ladder/");
        let found = self.steps.measurements.iter().filter(of_ladder);
        found.map(|m| m.spread / m.median).collect()
    }
}

/// The time of a pass in the run beside the peers, under this name.
fn beside(peers: &Record, name: &str, step: &str, pass: &Pass) -> Result<f64> {
    let cell = Cell {
        threads: threads(step),
        d: D as u64,
        mask: if pass.is_causal() { "causal" } else { "full" },
        pass: if pass.is_both() { "forward+backward" } else { "forward" },
        n: N as u64,
    };
    Ok(time(peers, name, cell)?.median)
}
