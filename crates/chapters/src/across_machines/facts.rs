//! The chapter's numbers.

use across::cost::{self, Speeds, Work};
use across::{Layout, Whole};
use anyhow::{Context, Result};
use attention::Mask;
use laboratory::hardware::{H100, LINKS, Link};
use record::{Measurement, Record};

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

// ---------------------------------------------------------------------------------------------------- who waits

/// A layout, and the share of the time in which ranks compute under a causal mask, with 4 ranks and with 8.
pub struct Balance {
    pub layout: Layout,
    pub busy: [f64; 2],
}

/// Tokens of the sequence whose work is shared out.
pub const BALANCED: usize = 1024;

pub fn balances() -> Result<Vec<Balance>> {
    let busy = |layout: Layout, ranks: usize| -> Result<f64> {
        let whole = Whole::new((BALANCED, BALANCED), (1, 1), Mask::causal());
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

/// Bytes that a rank sends for one layer, forward: in the ring; and for heads, if there are enough of them, with copies of keys where these
/// have too few.
pub struct Sent {
    pub ranks: usize,
    pub ring: u64,
    pub heads: Option<u64>,
}

pub fn sent() -> Vec<Sent> {
    let whole = |kv_heads: usize| {
        Whole::new((TOKENS, TOKENS), (WIDTH, WIDTH), Mask::none())
            .with_heads(HEADS.0, kv_heads)
    };
    let of = |ranks: usize| Sent {
        ranks,
        ring: cost::ring_forward(&whole(HEADS.1), ranks, 0, BYTES),
        heads: HEADS
            .0
            .is_multiple_of(ranks)
            .then(|| cost::heads_forward(&whole(HEADS.1.max(ranks)), ranks, 0, BYTES)),
    };
    [2, 4, 8, 16, 64].map(of).into()
}

/// Bytes that a rank sends for one step of decoding, without those by which ranks agree, and those of its keys and values that stay where they are.
pub fn sent_in_decoding(tokens: usize, ranks: usize) -> (u64, usize) {
    let whole = Whole::new((1, tokens), (WIDTH, WIDTH), Mask::none())
        .with_heads(HEADS.0, HEADS.1);
    let stay = tokens / ranks * HEADS.1 * 2 * WIDTH * BYTES;
    (cost::decode_forward(&whole, ranks, BYTES) - cost::agreement(ranks), stay)
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

/// GPUs of a large installation, and of one machine in it.
pub const GPUS: usize = 1024;
pub const GPUS_OF_MACHINE: usize = 8;

/// The fewest tokens with which a ring over all GPUs hides its exchange, causal, with shared keys and InfiniBand; and a ring over machines,
/// whose GPUs share out the heads: a GPU then computes and sends an eighth of the heads for the rows of its machine.
pub fn tokens_of_a_thousand() -> [f64; 2] {
    let [_, shared] = fewest_tokens(&LINKS[1]);
    let causal = 2.0 * shared;
    [GPUS, GPUS / GPUS_OF_MACHINE].map(|ranks| ranks as f64 * causal)
}

// ---------------------------------------------------------------------------------------------------- the model

/// Times of the ring on this machine, and what a model says that was fitted to other ones.
pub struct Model {
    /// The lengths of the two times of one rank that were fitted.
    pub fitted: [u64; 2],
    pub whole: Whole,
    pub cores: usize,
    pub cases: Vec<Case>,
    /// The longest one on two ranks, but with contiguous rows.
    pub contiguous: Case,
}

/// A case that the fit hasn't seen.
pub struct Case {
    pub n: u64,
    pub ranks: usize,
    pub predicted: f64,
    pub measured: f64,
    /// One process with as many threads.
    pub threads: f64,
    /// Whether computing takes longer than sending at each step, by the model.
    pub is_hidden: bool,
}

/// The length of a measurement.
fn length(m: &Measurement) -> Result<u64> {
    m.sizes.get("n").copied().with_context(|| format!("{} has no n", m.what))
}

/// The attention that was timed.
fn timed(m: &Measurement) -> Result<Whole> {
    let size = |name: &str| {
        let found = m.sizes.get(name).map(|&size| size as usize);
        found.with_context(|| format!("{} has no {name}", m.what))
    };
    let (n, d, heads) = (size("n")?, size("d")?, size("heads")?);
    let whole = Whole::new((n, n), (d, d), Mask::causal()).with_heads(heads, heads);
    let layout = if is_zigzag(m) { Layout::Zigzag } else { Layout::Contiguous };
    Ok(whole.with_layouts(layout, layout))
}

fn is_zigzag(m: &Measurement) -> bool {
    m.settings.get("layout").is_some_and(|layout| layout == "zigzag")
}

/// Seconds of a pair and of a row, by two times of one rank.
fn fit(times: [&Measurement; 2]) -> Result<(f64, f64)> {
    let work = |m: &Measurement| {
        let Work { pairs, rows } = cost::work(&timed(m)?, 1)?[0][0];
        anyhow::Ok((pairs as f64, rows as f64))
    };
    let [(a, b), (c, d)] = [work(times[0])?, work(times[1])?];
    let [first, second] = times.map(|m| m.median);
    let by = a * d - b * c;
    Ok(((first * d - second * b) / by, (a * second - c * first) / by))
}

pub fn model(record: &Record) -> Result<Model> {
    let (rings, contiguous): (Vec<_>, Vec<_>) =
        record.all("forward/ring", "f32").partition(|m| is_zigzag(m));
    let mut lengths = rings.iter().map(|m| length(m)).collect::<Result<Vec<_>>>()?;
    lengths.sort_unstable();
    lengths.dedup();
    let fitted = lengths.get(1..3).context("three lengths are needed")?;
    let fitted = [fitted[0], fitted[1]];
    let find = |what: &str, n: u64, ranks: usize| {
        let mut found =
            record.all(what, "f32").filter(|m| m.threads == ranks && is_zigzag(m));
        let found = found.find(|m| m.sizes.get("n") == Some(&n));
        found.with_context(|| format!("no {what}, n = {n}, {ranks} ranks"))
    };
    let one_rank = |n: u64| find("forward/ring", n, 1);
    let (pair, row) = fit([one_rank(fitted[0])?, one_rank(fitted[1])?])?;
    let (latency, long) = (shift(record, 8, 0)?, shift(record, LONG, 0)?);
    let bandwidth = LONG as f64 / (long - latency);
    let cores = record.machine.cores;
    let is_new = |m: &&&Measurement| {
        m.threads > 1 || length(m).is_ok_and(|n| !fitted.contains(&n))
    };
    let case = |m: &Measurement| {
        let (n, ranks) = (length(m)?, m.threads);
        // More ranks than cores take turns.
        let turns = (ranks as f64 / cores as f64).max(1.0);
        let speeds = Speeds { pair: turns * pair, row: turns * row, latency, bandwidth };
        let seconds = |speeds: Speeds| {
            anyhow::Ok(speeds.ring_forward(&timed(m)?, ranks, size_of::<f32>())?)
        };
        let predicted = seconds(speeds)?;
        let free = Speeds { latency: 0.0, bandwidth: f64::INFINITY, ..speeds };
        Ok(Case {
            n,
            ranks,
            predicted,
            is_hidden: predicted == seconds(free)?,
            measured: m.median,
            threads: find("forward/threads", n, ranks)?.median,
        })
    };
    let mut cases =
        rings.iter().filter(is_new).map(|m| case(m)).collect::<Result<Vec<_>>>()?;
    cases.sort_by_key(|case| (case.ranks, case.n));
    let whole = timed(one_rank(fitted[0])?)?;
    let contiguous = contiguous.last().context("no contiguous rows were timed")?;
    Ok(Model { fitted, whole, cores, cases, contiguous: case(contiguous)? })
}

/// Bytes of the message by which bandwidth is told.
const LONG: u64 = 1 << 24;

/// Seconds of a shift of so many bytes, beside a pause.
fn shift(record: &Record, bytes: u64, pause_ms: u64) -> Result<f64> {
    let sizes = [("bytes", bytes), ("pause_ms", pause_ms)];
    let is_it = |m: &&Measurement| {
        sizes.iter().all(|(name, size)| m.sizes.get(*name) == Some(size))
    };
    let found = record.all("shift", "f64").find(is_it);
    let found = found.with_context(|| format!("no shift with {sizes:?} was timed"))?;
    Ok(found.median)
}

/// A message, and a pause in which it may travel: bytes, and seconds.
pub struct Overlap {
    pub bytes: u64,
    pub pause: f64,
    pub alone: f64,
    pub both: f64,
}

pub fn overlap(record: &Record) -> Result<Overlap> {
    let (bytes, pause_ms) = (1 << 26, 100);
    let (alone, both) = (shift(record, bytes, 0)?, shift(record, bytes, pause_ms)?);
    Ok(Overlap { bytes, pause: pause_ms as f64 / 1e3, alone, both })
}
