//! Short sequences: what a tile of queries costs beside its tiles of keys, fitted to what was measured of kernel 4, and what persistent
//! thread blocks may save of that.

use super::machine::MULTIPROCESSORS;
use super::measured::{WIDTH, find, lengths, setting, size, tokens};
use anyhow::{Context, Result, ensure};
use gpu::tiles::hopper::KEYS;
use record::{Record, Unit};

/// The kernel whose times are fitted, and the same with blocks that stay.
pub const KERNELS: [&str; 2] = ["hopper", "hopper_persistent"];

/// The work of a kernel on a batch: so many heads, each with the same tiles of queries.
pub struct Batch {
    pub heads: usize,
    /// Tiles of keys of each tile of queries of a head, from the last one to the first.
    pub keys: Vec<usize>,
}

impl Batch {
    /// Of `tokens` in sequences of `n`, by tiles of `rows` queries.
    pub fn new(tokens: u64, (n, d): (u64, u64), rows: usize, causal: bool) -> Self {
        let n_tokens = n as usize;
        let seen = |first: usize| {
            if causal { n_tokens.min(first + rows) } else { n_tokens }
        };
        let tiles = (0..n_tokens).step_by(rows).map(|first| seen(first).div_ceil(KEYS));
        let heads = (tokens / n * WIDTH / d) as usize;
        Batch { heads, keys: tiles.rev().collect() }
    }

    /// As the GPU deals out thread blocks: each tile of queries in turn to the multiprocessor that is free first.
    pub fn in_turns(&self, costs: Costs) -> f64 {
        let mut busy = [0.0_f64; MULTIPROCESSORS];
        for &keys in self.keys.iter().cycle().take(self.heads * self.keys.len()) {
            let first_free = busy.iter_mut().min_by(|a, b| a.total_cmp(b));
            *first_free.expect("there are multiprocessors") += costs.of(keys);
        }
        busy.into_iter().fold(0.0, f64::max)
    }

    /// As persistent blocks take them: the last tile of a head with its first, the next pair to the next multiprocessor.
    pub fn in_pairs(&self, costs: Costs) -> f64 {
        let (tiles, pairs) = (self.keys.len(), self.keys.len().div_ceil(2));
        let pair = |first: usize| {
            let second = tiles - 1 - first;
            let both = if second > first { 2 } else { 1 };
            [first, second][..both].iter().map(|&tile| costs.of(self.keys[tile])).sum()
        };
        let of_head: Vec<f64> = (0..pairs).map(pair).collect();
        let mut busy = [0.0_f64; MULTIPROCESSORS];
        for (i, seconds) in of_head.iter().cycle().take(self.heads * pairs).enumerate() {
            busy[i % MULTIPROCESSORS] += seconds;
        }
        busy.into_iter().fold(0.0, f64::max)
    }
}

/// Seconds of a tile of keys, and of a tile of queries beside them.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pub keys: f64,
    pub queries: f64,
}

impl Costs {
    fn of(self, tiles: usize) -> f64 {
        self.keys * tiles as f64 + self.queries
    }

    /// The costs by which two batches take so many seconds. Without a mask all tiles are alike, so a time is a number of rounds times
    /// the cost of one.
    fn fit(batches: [&Batch; 2], seconds: [f64; 2]) -> Self {
        let one_round = |i: usize| {
            let tiles = batches[i].heads * batches[i].keys.len();
            seconds[i] / tiles.div_ceil(MULTIPROCESSORS) as f64
        };
        let keys = batches.map(|batch| batch.keys[0] as f64);
        let of_keys = (one_round(1) - one_round(0)) / (keys[1] - keys[0]);
        Costs { keys: of_keys, queries: one_round(0) - of_keys * keys[0] }
    }
}

/// One width of heads, at the shortest length of the record.
pub struct Short {
    pub d: u64,
    pub n: u64,
    pub costs: Costs,
    /// The lengths that were fitted, and of each the rounds of its thread blocks and the seconds.
    pub fitted: [(u64, usize, f64); 2],
    /// Rows of a tile of queries: of kernel 4, and with persistent blocks.
    pub rows: [usize; 2],
    /// Rows of the tiles of queries that no query fills: of kernel 4, and with persistent blocks.
    pub empty: [usize; 2],
    /// Kernel 4 without a mask, in seconds.
    pub full: f64,
    /// With a causal mask, which the fit has not seen: the model, kernel 4, cuDNN.
    pub causal: [f64; 3],
    /// With persistent blocks, without a mask and with one: the least and the most seconds, what cuDNN takes, and what was measured.
    pub persistent: [Persistent; 2],
}

pub struct Persistent {
    /// All cost beside the tiles of keys is paid once; or for each tile of queries, and the model is as far off as it was of kernel 4.
    pub predicted: [f64; 2],
    pub cudnn: f64,
    pub measured: Option<f64>,
}

/// The rows of a tile of queries: each warpgroup beside the producer has 64.
fn rows(kernels: &Record, kernel: &str, d: u64) -> Result<usize> {
    let is_its = |m: &&record::Measurement| {
        setting(m, "kernel").is_ok_and(|name| name == kernel)
            && m.what.starts_with("registers/")
            && size(m, "d").is_ok_and(|of| of == d)
    };
    let found = kernels.measurements.iter().find(is_its);
    let threads = found.with_context(|| format!("{kernel} was not compiled"))?.threads;
    Ok((threads / 128 - 1) * 64)
}

/// Fits and predicts for one width of heads.
pub fn of_width(times: &Record, kernels: &Record, d: u64) -> Result<Short> {
    let all = lengths(times);
    ensure!(all.len() > 1, "two lengths are needed for a fit");
    let (n, longer) = (all[0], all[1]);
    let tokens = tokens(times)?;
    let [own, persistent] = KERNELS.map(|kernel| rows(kernels, kernel, d));
    let rows = [own?, persistent?];
    let batch = |n, rows, causal| Batch::new(tokens, (n, d), rows, causal);
    let seconds = |name: &str, n: u64, causal: bool| {
        let place = (n, d, if causal { "causal" } else { "full" });
        let what = format!("forward/{name}");
        let found = find(times, &what, "bf16", place, Unit::Seconds);
        found.map(|m| m.median).with_context(|| format!("no {what}, {place:?}"))
    };
    let fitted = [n, longer].map(|n| batch(n, rows[0], false));
    let measured = [seconds("hopper", n, false)?, seconds("hopper", longer, false)?];
    let costs = Costs::fit(fitted.each_ref(), measured);
    let one_consumer = costs.keys / (rows[0] / 64) as f64;
    let of_persistent = Costs { keys: one_consumer * (rows[1] / 64) as f64, ..costs };
    let model = batch(n, rows[0], true).in_turns(costs);
    let own = seconds("hopper", n, true)?;
    let persistent = |causal: bool| {
        let off = if causal { (own / model).max(1.0) } else { 1.0 };
        let batch = batch(n, rows[1], causal);
        let hidden = Costs { queries: 0.0, ..of_persistent };
        let least = batch.in_pairs(hidden) + costs.queries;
        anyhow::Ok(Persistent {
            predicted: [least, off * batch.in_pairs(of_persistent)],
            cudnn: seconds("torch-cudnn", n, causal)?,
            measured: seconds(KERNELS[1], n, causal).ok(),
        })
    };
    let fitted = [0, 1].map(|i| {
        let Batch { heads, keys } = &fitted[i];
        let rounds = (heads * keys.len()).div_ceil(MULTIPROCESSORS);
        ([n, longer][i], rounds, measured[i])
    });
    Ok(Short {
        d,
        n,
        costs,
        fitted,
        rows,
        empty: rows.map(|rows| (n as usize).next_multiple_of(rows) - n as usize),
        full: measured[0],
        causal: [model, own, seconds("torch-cudnn", n, true)?],
        persistent: [persistent(false)?, persistent(true)?],
    })
}
