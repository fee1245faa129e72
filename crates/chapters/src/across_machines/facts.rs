//! The chapter's numbers.

use across::cost::{self, Speeds};
use across::{Layout, Local, Network as _, Threads, Whole, by_keys, ring};
use anyhow::{Context, Result};
use attention::Mask;
use attention::engine::{ByWeights, Engine, Tiled};
use attention::flash::Inputs;
use laboratory::hardware::{H100, Link};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use record::{Measurement, Record, Unit};

/// Llama 3 with 8 billion weights: layers, heads of queries, heads of keys, the width of a head.
pub const LAYERS: usize = 32;
pub const HEADS: (usize, usize) = (32, 8);
pub const WIDTH: usize = 128;
/// Bytes of a number in bf16.
pub const BYTES: usize = 2;

/// Bytes of the keys and values of a token, in all layers.
pub fn bytes_of_token() -> usize {
    LAYERS * HEADS.1 * 2 * WIDTH * BYTES
}

// ---------------------------------------------------------------------------------------------------- results

/// Results of so many ranks, beside those of one process.
pub struct Results {
    pub ranks: usize,
    /// The largest difference of an entry of the output, from all weights in one process.
    pub off: f64,
    /// Whether all entries have the bits of one rank: in the order of the ring, and in that of the keys.
    pub same_bits: [bool; 2],
}

/// A causal attention of 96 tokens on 1 to 8 ranks, which are threads here.
pub fn results() -> Result<Vec<Results>> {
    const N: usize = 96;
    const D: usize = 16;
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let x = DMatrix::from_fn(N, 3 * D, |_, _| rng.random_range(-2.0..2.0));
    let [q, k, v] = [0, 1, 2].map(|part| x.columns(part * D, D).into_owned());
    let inputs = Inputs::new(&q, &k, &v, Mask::causal())?;
    let expected = ByWeights.forward(&inputs)?.output;
    let whole =
        |layout| Whole::new((N, N), (D, D), Mask::causal()).with_layouts(layout, layout);
    let (in_ring, in_order) = (whole(Layout::Zigzag), whole(Layout::Tiles(8)));
    let output = |ranks: usize, whole: &Whole| -> Result<DMatrix<f64>> {
        let parts = Threads::run(ranks, |network| {
            let rows = whole.layouts.0.rows(N, ranks, network.rank());
            let mine = [&q, &k, &v].map(|matrix| matrix.select_rows(&rows));
            let [q, k, v] = mine.each_ref().map(|matrix| matrix.as_view());
            let local = Local { q, k, v };
            let forward = match whole.layouts.0 {
                Layout::Tiles(_) => by_keys::forward(network, whole, &local),
                _ => ring::forward(network, &Tiled::default(), whole, &local),
            };
            forward.map(|forward| (rows, forward.output))
        });
        let mut output = DMatrix::zeros(N, D);
        for part in parts {
            let (rows, part) = part?;
            for (i, row) in rows.into_iter().enumerate() {
                output.row_mut(row).copy_from(&part.row(i));
            }
        }
        Ok(output)
    };
    let alone = [output(1, &in_ring)?, output(1, &in_order)?];
    let of_ranks = |ranks: usize| {
        let both = [output(ranks, &in_ring)?, output(ranks, &in_order)?];
        let off = (&both[0] - &expected).amax();
        let same_bits = [both[0] == alone[0], both[1] == alone[1]];
        Ok(Results { ranks, off, same_bits })
    };
    [2, 3, 4, 8].into_iter().map(of_ranks).collect()
}

// ---------------------------------------------------------------------------------------------------- who waits

/// A layout, and the share of the time in which ranks compute under a causal mask, with 4 ranks and with 8.
pub struct Balance {
    pub layout: Layout,
    pub busy: [f64; 2],
}

/// Of 1,024 tokens.
pub fn balances() -> Result<Vec<Balance>> {
    let busy = |layout: Layout, ranks: usize| -> Result<f64> {
        let whole = Whole::new((1024, 1024), (1, 1), Mask::causal());
        let whole = whole.with_layouts(layout, layout);
        Ok(cost::balance(&cost::pairs(&whole, ranks)?))
    };
    let of = |layout: Layout| {
        Ok(Balance { layout, busy: [busy(layout, 4)?, busy(layout, 8)?] })
    };
    [Layout::Contiguous, Layout::Zigzag, Layout::Striped].into_iter().map(of).collect()
}

// ---------------------------------------------------------------------------------------------------- what is sent

/// Tokens of the sequence whose bytes are counted.
pub const TOKENS: usize = 1 << 17;

/// Bytes that a rank sends for one layer, forward: in the ring; and for heads, if there are enough of them.
pub struct Sent {
    pub ranks: usize,
    pub ring: u64,
    pub heads: Option<u64>,
}

pub fn sent() -> Vec<Sent> {
    let whole = Whole::new((TOKENS, TOKENS), (WIDTH, WIDTH), Mask::none())
        .with_heads(HEADS.0, HEADS.1);
    let of = |ranks: usize| Sent {
        ranks,
        ring: cost::ring_forward(&whole, ranks, 0, BYTES),
        heads: (HEADS.1.is_multiple_of(ranks))
            .then(|| cost::heads_forward(&whole, ranks, 0, BYTES)),
    };
    [2, 4, 8, 16, 64].map(of).into()
}

/// Bytes that a rank sends for one step of decoding, and those of its keys and values that stay where they are.
pub fn sent_in_decoding(ranks: usize) -> (u64, usize) {
    let whole = Whole::new((1, TOKENS), (WIDTH, WIDTH), Mask::none())
        .with_heads(HEADS.0, HEADS.1);
    let stay = TOKENS / ranks * HEADS.1 * 2 * WIDTH * BYTES;
    (cost::decode_forward(&whole, ranks, BYTES), stay)
}

// ---------------------------------------------------------------------------------------------------- what is hidden

/// The fewest tokens of a rank with which an exchange over this link takes no longer than the computing beside it, if the GPU reaches its
/// stated rate: with a head of keys for each head of queries, and with shared ones. Without a mask.
///
/// m queries and m keys take 4 m² h d FLOPs, and m keys and values of g heads 2 m g d numbers: m is at least rate · bytes · g / (2 · bandwidth · h).
pub fn fewest_tokens(link: &Link) -> [f64; 2] {
    let of_heads = |kv_heads: usize| {
        let heads = HEADS.0 as f64;
        H100.bf16 * BYTES as f64 * kv_heads as f64 / (2.0 * link.bandwidth * heads)
    };
    [HEADS.0, HEADS.1].map(of_heads)
}

// ---------------------------------------------------------------------------------------------------- the model

/// Times of the ring on this machine, and what a model says that was fitted to other ones.
pub struct Model {
    /// Fitted to the one-rank time of the shortest length but one, and to two messages.
    pub speeds: Speeds,
    pub fitted: u64,
    pub cores: usize,
    pub cases: Vec<Case>,
}

/// A case that the fit hasn't seen.
pub struct Case {
    pub n: u64,
    pub ranks: usize,
    pub predicted: f64,
    pub measured: f64,
    /// One process with as many threads.
    pub threads: f64,
}

pub fn model(record: &Record) -> Result<Model> {
    let find = |what: &str, n: u64, ranks: usize| {
        let found = record.all(what, "f32");
        let found = found.filter(|m| m.sizes.get("n") == Some(&n));
        let found = found.into_iter().find(|m| m.threads == ranks);
        found.with_context(|| format!("no {what}, n = {n}, {ranks} ranks"))
    };
    let all = || record.all("forward/ring", "f32");
    let size = |m: &Measurement, name: &str| {
        let found = m.sizes.get(name).copied();
        found.with_context(|| format!("{} has no {name}", m.what))
    };
    let mut lengths = all().map(|m| size(m, "n")).collect::<Result<Vec<_>>>()?;
    lengths.sort_unstable();
    lengths.dedup();
    let fitted = *lengths.get(1).context("two lengths are needed")?;
    let one = find("forward/ring", fitted, 1)?;
    let shift = |bytes: u64| {
        let mut shifts = record.all("shift", "f64");
        let found = shifts.find(|m| m.sizes.get("bytes") == Some(&bytes));
        Ok::<_, anyhow::Error>(found.context("no shift")?.median)
    };
    let (short, long) = (shift(8)?, shift(1 << 24)?);
    let pairs = (fitted * (fitted + 1) / 2) as f64;
    let speeds = Speeds {
        pairs: pairs / one.median,
        latency: short,
        bandwidth: (1 << 24) as f64 / (long - short),
    };
    let cores = record.machine.cores;
    let mut cases = vec![];
    for m in all() {
        let (n, ranks) = (size(m, "n")?, m.threads);
        if (n, ranks) == (fitted, 1) {
            continue;
        }
        // More ranks than cores take turns.
        let turns = (ranks as f64 / cores as f64).max(1.0);
        let speeds = Speeds { pairs: speeds.pairs / turns, ..speeds };
        let (heads, d) = (size(m, "heads")? as usize, size(m, "d")? as usize);
        let whole = Whole::new((n as usize, n as usize), (d, d), Mask::causal())
            .with_heads(heads, heads)
            .with_layouts(Layout::Zigzag, Layout::Zigzag);
        cases.push(Case {
            n,
            ranks,
            predicted: speeds.ring_forward(&whole, ranks, size_of::<f32>())?,
            measured: record.in_unit(m, Unit::Seconds)?,
            threads: find("forward/threads", n, ranks)?.median,
        });
    }
    cases.sort_by_key(|case| (case.n, case.ranks));
    Ok(Model { speeds, fitted, cores, cases })
}
