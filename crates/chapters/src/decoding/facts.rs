//! The chapter's numbers.

use crate::trained::{book, open};
use anyhow::{Context, Result, ensure};
use attention::KeyValueCache;
use model::{Task as _, cross_entropy};
use record::{Record, Unit};

/// Visible scores that are computed while n tokens are written: each step over the whole text, or one row at a time with a cache.
pub fn scores(n: u128) -> (u128, u128) {
    let again = (1..=n).map(|i| i * (i + 1) / 2).sum();
    let cached = (1..=n).sum();
    (again, cached)
}

/// So many first tokens stay beside a window.
pub const SINKS: usize = 4;

/// The length of the texts of the training, in tokens; and the mean losses of the model of the book on text that it hasn't seen, within that
/// length and beyond, up to twice as far: with the window that the program writes with, and with sinks in place of its oldest tokens.
pub fn beyond_training() -> Result<(usize, [[f64; 2]; 2])> {
    let (model, task) = (open("book")?.model, book()?);
    let length = task.length();
    let text: Vec<_> = task.held_out().into_iter().flat_map(|text| text.tokens).collect();
    let losses = |cache: KeyValueCache<f64>| -> Result<[f64; 2]> {
        let (mut sums, mut count) = ([0.0; 2], 0.0);
        for stretch in text.chunks_exact(2 * length + 1) {
            let mut caches = vec![cache.clone(); model.blocks.len()];
            let scores = model.forward_cached(&stretch[..2 * length], &mut caches)?;
            let next: Vec<_> = stretch[1..].iter().copied().map(Some).collect();
            for (half, sum) in sums.iter_mut().enumerate() {
                let rows = half * length..(half + 1) * length;
                let scores = scores.rows_range(rows.clone()).into_owned();
                *sum += cross_entropy(&scores, &next[rows])?.0;
            }
            count += length as f64;
        }
        Ok(sums.map(|sum| sum / count))
    };
    let with_sinks = KeyValueCache::with_window(length - SINKS, SINKS)?;
    Ok((length, [losses(task.cache()?)?, losses(with_sinks)?]))
}

/// One step of decoding, as it was measured.
pub struct Step {
    pub kv_heads: u64,
    /// Of the keys and values that it reads.
    pub bytes: f64,
    /// Operations of the two products.
    pub flops: f64,
    pub seconds: f64,
    /// The time in which as many bytes are merely read.
    pub reading: f64,
}

/// The steps of a record, from many heads of keys to few; with the tokens in the cache, the heads and their width.
pub struct Steps {
    pub steps: Vec<Step>,
    pub n: u64,
    pub heads: u64,
    pub width: u64,
    /// Bytes per second, where they are merely read.
    pub bandwidth: f64,
}

impl Steps {
    /// Those of one thread.
    pub fn of(record: &Record) -> Result<Self> {
        let all = |what| {
            let all = record.all(what, "f32");
            all.filter(|measured| measured.threads == 1)
        };
        let size = |m: &record::Measurement, name: &str| {
            m.sizes.get(name).copied().with_context(|| format!("no {name} of {}", m.what))
        };
        let read = all("decoding/read").next().context("no decoding/read")?;
        let (n, heads, width) =
            (size(read, "n")?, size(read, "heads")?, size(read, "d")?);
        let bytes = |kv_heads: u64| (2 * 4 * kv_heads * width * n) as f64;
        let bandwidth =
            bytes(size(read, "kv_heads")?) / record.in_unit(read, Unit::Seconds)?;
        let mut steps = vec![];
        for measured in all("decoding/step") {
            let kv_heads = size(measured, "kv_heads")?;
            steps.push(Step {
                kv_heads,
                bytes: bytes(kv_heads),
                flops: (4 * heads * width * n) as f64,
                seconds: record.in_unit(measured, Unit::Seconds)?,
                reading: bytes(kv_heads) / bandwidth,
            });
        }
        ensure!(steps.len() > 1, "the record `{}` has no steps to compare", record.topic);
        steps.sort_by_key(|step| std::cmp::Reverse(step.kv_heads));
        Ok(Steps { steps, n, heads, width, bandwidth })
    }
}
