//! Traffic with slow memory: the crossings of the (n, n) matrix, and the growth with n and with d.

use super::verdict::{Claim, about, by_parts, only_when};
use crate::output::Page;
use anyhow::Result;
use attention::AttentionShape;
use figures::format::{fixed, integer};
use figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart};
use laboratory::traffic::tiles_for;

/// The steps of attention, and how the (n, n) matrix crosses slow memory in each: if each is a pass of its own, and if
/// scaling and masking are done on the way into softmax.
pub const STEPS: [(&str, &[&str], &[&str]); 5] = [
    ("scores $QK^\\top$", &["write"], &["write"]),
    ("scale", &["read", "write"], &[]),
    ("mask", &["read", "write"], &[]),
    ("softmax", &["read", "write"], &["read", "write"]),
    ("times values", &["read"], &["read"]),
];
/// The number of its crossings in all of the [`STEPS`].
pub const NAIVE_CROSSINGS: usize = 1 + 2 + 2 + 2 + 1;
pub const FUSED_CROSSINGS: usize = 1 + 2 + 1;

/// Numbers that cross slow memory: so many (n, d) matrices once, the (n, n) matrix so many times.
pub fn core_traffic(narrow: usize, n: usize, d: usize, crossings: usize) -> f64 {
    (narrow * n * d + crossings * n * n) as f64
}

/// Numbers that cross slow memory if `rows` queries at a time visit all keys and values: q read once, the output written
/// once, k and v read once for each group of queries. The weights never leave fast memory.
pub fn tiled_traffic(n: usize, d: usize, rows: usize) -> f64 {
    (2 * n * d + n.div_ceil(rows) * 2 * n * d) as f64
}

/// (8) Bytes of one crossing at n = 4096 with 32 heads, in `f32`.
pub fn bytes_of_a_crossing() -> Result<u128> {
    Ok(AttentionShape::self_attention(1, 4096, 2048, 64, 32).bytes(4)?.weights)
}

pub fn claim_crossings(page: &mut Page) -> Result<Claim> {
    let bytes = bytes_of_a_crossing()?;
    let gigabytes = |times: usize| fixed(times as f64 * bytes as f64 / 1e9, 1);
    let total = |times: usize| format!("{times}: {}\u{202f}GB", gigabytes(times));
    let cell = |crossings: &[&str]| match crossings {
        [] => "–".to_owned(),
        crossings => crossings.join(", "),
    };
    let step = |(step, naive, fused): (&str, &[&str], &[&str])| {
        vec![step.to_owned(), cell(naive), cell(fused)]
    };
    let mut rows = STEPS.map(step).to_vec();
    rows.push(vec![
        "together".to_owned(),
        total(NAIVE_CROSSINGS),
        total(FUSED_CROSSINGS),
    ]);
    page.table("crossings", &["step", "step by step", "fused"], &rows);
    let fused_gibibytes = (FUSED_CROSSINGS as u128 * bytes) >> 30;
    page.value("crossing-gib", integer((bytes >> 30) as usize));
    page.value("crossing-fused-gib", integer(fused_gibibytes as usize));
    page.value("crossing-fused-gb", gigabytes(FUSED_CROSSINGS));
    Ok(Claim {
        section: "8-how-often-the-matrix-crosses",
        said: "The $(n, n)$ matrix crosses slow memory four times, 8 GB at $n = 4096$ with 32 heads.".to_owned(),
        verdict: only_when(
            "scale and mask are fused with softmax, in `f32`, and GB means GiB",
            NAIVE_CROSSINGS == 4,
            FUSED_CROSSINGS == 4 && fused_gibibytes == 8,
        )?,
    })
}

const D: usize = 64;

/// (9) MiB through slow memory in bf16, where the weights cross it so many times.
pub fn untiled(n: usize, crossings: usize) -> f64 {
    mebibytes(core_traffic(4, n, D, crossings))
}

/// Returns the same for tiles of so many queries.
pub fn tiled(n: usize, queries: usize) -> f64 {
    mebibytes(tiled_traffic(n, D, queries))
}

fn mebibytes(numbers: f64) -> f64 {
    2.0 * numbers / f64::from(1 << 20)
}

/// The widths of the heads that are compared.
pub const WIDTHS: [usize; 3] = [32, 64, 128];

/// The numbers that fast memory holds for all of them.
pub const ROOM: usize = 1 << 16;

/// The length for which they are compared.
const COMPARED: usize = 16_384;

/// Returns the numbers that cross slow memory with heads of this width, in the tiles that move least.
fn traffic_of_width(d: usize) -> Result<f64> {
    let (queries, _) = tiles_for(ROOM, d, d)?;
    Ok(tiled_traffic(COMPARED, d, queries))
}

/// Returns for each of the [`WIDTHS`] how many times as much traffic it makes as the width before it: 1 for the first.
pub fn growth_with_width() -> Result<[f64; 3]> {
    let [narrow, middle, wide] = WIDTHS.map(traffic_of_width);
    let [narrow, middle, wide] = [narrow?, middle?, wide?];
    Ok([1.0, middle / narrow, wide / middle])
}

/// The power of n that traffic grows with, at the most tokens of the figure.
pub fn slope(traffic: impl Fn(usize) -> f64) -> f64 {
    (traffic(65_536) / traffic(32_768)).log2()
}

/// The numbers of queries in a tile of the table.
pub const TILES: [usize; 4] = [64, 128, 256, 512];

pub fn claim_growth(page: &mut Page) -> Result<Claim> {
    let [naive, fused] = [NAIVE_CROSSINGS, FUSED_CROSSINGS];
    let of = |queries| (queries, tiled(16_384, queries), tiled(32_768, queries));
    page.table_of(
        "tiled-traffic",
        &TILES.map(of),
        &[
            ("queries in a tile", &|(queries, ..)| integer(*queries)),
            ("MiB, $n = 16384$", &|(_, now, _)| fixed(*now, 0)),
            ("MiB, $n = 32768$", &|(.., twice)| fixed(*twice, 0)),
            ("growth", &|(_, now, twice)| fixed(twice / now, 2)),
            ("gain on eight crossings", &|(_, now, _)| {
                fixed(untiled(16_384, naive) / now, 0)
            }),
            ("on four", &|(_, now, _)| fixed(untiled(16_384, fused) / now, 0)),
        ],
    );
    growth_figure(page)?;
    let growth = growth_with_width()?;
    let mut rows = vec![];
    for (i, d) in WIDTHS.into_iter().enumerate() {
        let numbers = traffic_of_width(d)?;
        let times = |growth: f64| match i {
            0 => "–".to_owned(),
            _ => fixed(growth, 2),
        };
        let claimed = d as f64 / WIDTHS[i.max(1) - 1] as f64;
        rows.push(vec![
            integer(d),
            integer(tiles_for(ROOM, d, d)?.0),
            fixed(mebibytes(numbers), 0),
            times(growth[i]),
            times(claimed),
        ]);
    }
    let header = ["$d$", "queries in a block", "MiB", "growth", "growth by the claim"];
    page.table("traffic-by-width", &header, &rows);
    page.value("traffic-room-kib", integer((2 * ROOM) >> 10));
    page.value("traffic-n", integer(COMPARED));
    let is_linear = |growth: f64| about(growth, 2.0);
    Ok(Claim {
        section: "9-traffic-with-slow-memory",
        said: "With flash attention, traffic with slow memory is $O(n^2 d / R)$ for a fast memory of $R$ numbers."
            .to_owned(),
        verdict: by_parts(&[
            ("$n$", about(slope(|n| tiled(n, 128)), 2.0)),
            ("$d$", growth[1..].iter().all(|growth| is_linear(*growth))),
        ]),
    })
}

fn growth_figure(page: &mut Page) -> Result<()> {
    let line = |name, colour, of: fn(usize) -> f64| {
        Line::new(
            name,
            colour,
            (7..=16).map(|power| 1 << power).map(|n| (n as f64, of(n))),
        )
    };
    let lines = [
        line("eight crossings", VERMILION, |n| untiled(n, NAIVE_CROSSINGS)),
        line("tiles of 128 queries", BLUE, |n| tiled(n, 128)),
        line("each matrix once", GREEN, |n| untiled(n, 0)).dashed(),
    ];
    page.figure(
        "traffic",
        (
            "Traffic with slow memory against the number of tokens",
            "On logarithmic axes the traffic of the naive program and of the tiled one rise in parallel for large n, with a \
             slope of two; the tiled one lies far below. A line of slope one, for each matrix once, leaves them both behind.",
        ),
        (520, 400),
        |area| {
            let x = Axis::log("tokens n (logarithmic)", 2.0, 128.0..65_536.0);
            let y = Axis::log("MiB (logarithmic)", 10.0, 0.01..100_000.0);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}
