//! The chapter's numbers.

use crate::random::normal;
use anyhow::{Context as _, Result};
use attention::engine::{ByWeights, Engine, Tiled};
use attention::{Mask, MultiHeadAttention};
use fast::Flash;
use laboratory::{Change, same_rows};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use record::{Record, Unit};
use serde::Deserialize;
use std::sync::Arc;

/// Returns an engine with so many threads.
type OnThreads = fn(usize) -> attention::Result<Arc<dyn Engine<f32>>>;

const ENGINES: [OnThreads; 4] = [
    |_| Ok(Arc::new(ByWeights)),
    |_| Ok(Arc::new(Tiled::default())),
    |threads| Ok(Arc::new(Flash::new().with_threads(threads)?)),
    |threads| Ok(Arc::new(Flash::new().with_threads(threads)?.with_batch_invariance())),
];

/// A change, and whether each engine's rows keep their bits: by weights, tiled, flash, and flash with one order.
pub struct Kept {
    pub change: Change,
    pub holds: [bool; 4],
}

/// Compares a layer's outputs before and after each change. The layer is wide enough that its projections are cut, and the text longer than
/// a tile.
pub fn kept() -> Result<Vec<Kept>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let layer = MultiHeadAttention::<f32>::xavier_grouped(320, 4, 2, rng)?;
    let x = normal(400, 320, rng).map(|x| x as f32);
    let row = |change| {
        let mut holds = [false; 4];
        for (holds, engine) in holds.iter_mut().zip(ENGINES) {
            let rows = same_rows(&layer, &x, &Mask::causal(), &engine, change)?;
            *holds = rows.hold();
        }
        Ok(Kept { change, holds })
    };
    Change::ALL.into_iter().map(row).collect()
}

/// What `crates/model/examples/same_bits.rs` wrote.
#[derive(Deserialize)]
pub struct Written {
    pub processor: String,
    pub date: String,
    pub tokens: usize,
    pub runs: [Run; 3],
}

/// All texts, each alone and all together, with one engine and one precision between blocks.
#[derive(Deserialize)]
pub struct Run {
    pub texts: Vec<Text>,
    pub seconds_alone: f64,
}

#[derive(Deserialize)]
pub struct Text {
    pub text: String,
    /// The first token that differs.
    pub parted: Option<usize>,
    /// The tokens up to there, that one included, and how many of them have scores of the same bits.
    pub compared: usize,
    pub same_bits: usize,
    /// Of the largest score, while the tokens are the same.
    pub largest_difference: f64,
    #[serde(default)]
    pub before: String,
    #[serde(default)]
    pub alone: String,
    #[serde(default)]
    pub together: String,
    /// How far the winner's score was ahead at the token that differs, alone and together.
    #[serde(default)]
    pub leads: [f64; 2],
}

impl Run {
    pub fn parted(&self) -> usize {
        self.texts.iter().filter(|text| text.parted.is_some()).count()
    }

    /// The share of the tokens that were written from the same beginning whose two largest scores have the same bits.
    pub fn same_bits(&self) -> f64 {
        let sum = |of: fn(&Text) -> usize| self.texts.iter().map(of).sum::<usize>();
        sum(|text| text.same_bits) as f64 / sum(|text| text.compared) as f64
    }

    pub fn largest_difference(&self) -> f64 {
        self.texts.iter().map(|text| text.largest_difference).fold(0.0, f64::max)
    }

    /// The text that parted first.
    pub fn first(&self) -> Result<&Text> {
        let parted = self.texts.iter().filter(|text| text.parted.is_some());
        parted.min_by_key(|text| text.parted).context("no texts parted")
    }
}

pub fn written() -> Result<Written> {
    let text = include_str!("../../../model/opened/same_bits.json");
    serde_json::from_str(text).context("in crates/model/opened/same_bits.json")
}

/// What was timed, in seconds: as it is by default, and in one order.
pub struct Cost {
    pub what: &'static str,
    pub default: f64,
    pub one_order: f64,
}

/// The costs of a record.
pub fn costs(record: &Record) -> Result<Vec<Cost>> {
    let seconds = |what: &str, sizes: &[(&str, u64)]| {
        let mut all = record.all(what, "f32");
        let of = |name: &str| sizes.iter().find(|size| size.0 == name).map(|size| size.1);
        let fits = |measured: &&record::Measurement| {
            measured
                .sizes
                .iter()
                .all(|(name, size)| of(name).is_none_or(|of| of == *size))
        };
        let measured =
            all.find(fits).with_context(|| format!("no {what} of {sizes:?}"))?;
        record.in_unit(measured, Unit::Seconds)
    };
    let row = |what, name: &str, sizes: &[(&str, u64)]| {
        Ok(Cost {
            what,
            default: seconds(&format!("same_bits/{name}-default"), sizes)?,
            one_order: seconds(&format!("same_bits/{name}-invariant"), sizes)?,
        })
    };
    [
        row("1,024 queries and keys, 8 heads", "attention", &[("n", 1024)]),
        row(
            "one query against 4,096 keys, 8 heads",
            "attention",
            &[("n", 4096), ("kv_heads", 8)],
        ),
        row(
            "the same, 2 heads of keys and values",
            "attention",
            &[("n", 4096), ("kv_heads", 2)],
        ),
        row("one row times 576 × 1,536 weights", "product", &[("n", 1)]),
        row("eight rows times the same", "product", &[("n", 8)]),
    ]
    .into_iter()
    .collect()
}
