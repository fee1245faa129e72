//! How the chapter says and draws its ladder.

use super::bars;
use super::facts::{
    Gain, LARGE, Ladder, PASSES, SMALL, Step, first_caches, rate, threads,
};
use super::runs::{Again, BLOCKS, SIZES, hidden_share};
use super::words::*;
use crate::fast::facts::{D, HEADS, N};
use crate::output::Page;
use crate::records::Compared;
use anyhow::{Context, Result};
use attention::flash::{Flash, Tiles};
use figures::format::{bytes, duration, fixed, integer, percent, significant};
use laboratory::LibraryFlash;
use record::Record;
use record::statistics::median;

/// `peers` were timed on the same machine, if they are there.
pub fn generate(page: &mut Page, ladder: &Ladder, peers: Option<&Record>) -> Result<()> {
    exponentials(page, ladder)?;
    pieces(page, ladder)?;
    products(page, ladder)?;
    let steps = ladder.steps()?;
    let gains: Vec<_> = steps.iter().filter_map(Step::gain).collect();
    steps_table(page, ladder, &steps);
    steps_words(page, ladder, &steps, &gains)?;
    steps_figure(page, &steps)?;
    both(page, ladder, &steps)?;
    let apart = again(page, ladder, peers, &gains)?;
    tile_sizes(page, ladder, apart)
}

// --------------------------------------------------------------------------------------------------------- the parts

fn exponentials(page: &mut Page, ladder: &Ladder) -> Result<()> {
    let nanoseconds = |seconds| format!("{} ns", significant(seconds * 1e9, 2));
    let share = |seconds| percent(ladder.exponentials_share(seconds), 0);
    let arch = &ladder.machine().arch;
    let arch = if arch == "x86_64" { "x86-64" } else { arch };
    let portable = format!("polynomial, instructions of every {arch}");
    let each = ladder.exponential("one by one")?;
    let ways = [
        ("one call of the system's `exp2f` each", each),
        (&portable, ladder.exponential("portable")?),
        ("polynomial, the widest instructions there are", ladder.exponential("vector")?),
    ];
    page.table_of(
        "exponentials",
        &ways,
        &[
            ("an exponential", &|(name, _)| name.to_string()),
            ("time", &|(_, seconds)| nanoseconds(*seconds)),
            ("all of them, in the time of both products at the roof", &|(_, seconds)| {
                share(*seconds)
            }),
        ],
    );
    page.value("exp-one-by-one", nanoseconds(each));
    page.value("exp-share-one-by-one", share(each));
    page.value("exp-operations", significant(each * ladder.roof, 1));
    Ok(())
}

fn giga(rate: f64) -> String {
    fixed(rate / 1e9, 0)
}

/// What tiles cost: products and copies of whole heads and of small tiles.
fn pieces(page: &mut Page, ladder: &Ladder) -> Result<()> {
    let (whole, small) = (ladder.part("product whole")?, ladder.product(SMALL)?);
    let copied = ladder.part("copied tile")?;
    let (whole_rate, small_rate) = (rate(whole, (N, N)), rate(small, SMALL));
    let size = SMALL.0;
    let rows = [
        (format!("product of {0} × {0} entries", integer(N)), whole, giga(whole_rate)),
        (format!("product of {size} × {size} entries"), small, giga(small_rate)),
        (format!("copy of {size} × {size} entries"), copied, String::new()),
    ];
    let rows = rows.map(|(name, seconds, speed)| vec![name, duration(seconds), speed]);
    page.table("pieces", &["part", "time", "GFLOP/s"], &rows);
    let compared = Compared::of(small_rate, whole_rate);
    page.value("small-products", compared.choose("slower", "about as fast", "faster"));
    let tile = (size * size * size_of::<f32>()) as u64;
    page.value("small-tile", bytes(tile.into()));
    let caches = first_caches(ladder.machine());
    page.value("five-tiles", five_tiles_in_words(5 * tile, caches));
    Ok(())
}

/// Products of tiles, by the library and by the micro-kernels, beside what the registers could do.
fn products(page: &mut Page, ladder: &Ladder) -> Result<()> {
    let mut rows = vec![];
    for tile in [SMALL, LARGE] {
        let speed = giga(rate(ladder.product(tile)?, tile));
        rows.push(vec![format!("{} × {}", tile.0, tile.1), speed]);
    }
    page.table("products", &["tile", "matrixmultiply, GFLOP/s"], &rows);

    let mut rows = vec![];
    for d in [D, 2 * D] {
        let peak = ladder.kernel("registers", d)?.rate;
        let mut row = vec![format!("$d = {d}$"), giga(peak)];
        for name in ["scores", "values", "queries"] {
            let rate = ladder.kernel(name, d)?.rate;
            row.push(format!("{} ({})", giga(rate), percent(rate / peak, 0)));
        }
        rows.push(row);
    }
    let header = [
        "",
        "in registers alone",
        "scores, $Q K^\\top$",
        "values, $A V$",
        "gradients of queries, $dS\\, K$",
    ];
    page.table("kernels", &header, &rows);

    let scores = ladder.kernel("scores", D)?;
    let registers = ladder.kernel("registers", D)?.rate;
    let library = rate(ladder.product(LARGE)?, LARGE);
    let packing = ladder.kernel("packing", D)?.seconds;
    page.value("panel", integer(scores.rows));
    page.value("numbers", integer(scores.numbers));
    page.value("registers", giga(registers));
    page.value("library-of-registers", percent(library / registers, 0));
    page.value("packing-shared", percent(packing / (scores.seconds * 2.0), 0));
    Ok(())
}

// --------------------------------------------------------------------------------------------------------- the steps

fn steps_table(page: &mut Page, ladder: &Ladder, steps: &[Step]) {
    let predicted = |step: &Step| Some(duration(step.prediction.as_ref()?.seconds()));
    let gain = |step: &Step| Some(fixed(step.gain()?.measured, 2) + "\u{202f}×");
    let speed = |step: &Step| ladder.speed(step.name, 1.0, step.seconds);
    let which = |step: &Step| if threads(step.name) == 2 { " of two" } else { "" };
    page.table_of(
        "steps",
        steps,
        &[
            ("step", &|step| {
                format!("{} **{}**: {}", step.number, step.name, step.change)
            }),
            ("predicted", &|step| predicted(step).unwrap_or_default()),
            ("measured", &|step| duration(step.seconds)),
            ("gain", &|step| gain(step).unwrap_or_default()),
            ("GFLOP/s", &|step| giga(speed(step).0)),
            ("of the roof", &|step| percent(speed(step).1, 0) + which(step)),
        ],
    );
    page.value("n", integer(N));
    page.value("d", integer(D));
    page.value("heads", integer(HEADS));
}

fn steps_words(
    page: &mut Page,
    ladder: &Ladder,
    steps: &[Step],
    gains: &[Gain],
) -> Result<()> {
    for (step, gain) in steps[1..].iter().zip(gains) {
        let (name, number) = (step.name, step.number);
        // Steps 2 and 3 have sentences of their own.
        if number > 3 {
            page.value(format!("gain-{name}"), fixed(gain.measured, 2));
        }
        if (3..8).contains(&number) {
            page.value(format!("predicted-{name}"), predicted_in_words(gain));
        }
        // That two threads take half of the time needs no sum.
        if let Some(prediction) = step.prediction.as_ref().filter(|_| number < 8) {
            page.value(format!("sum-{name}"), sum_in_words(prediction));
        }
    }
    let (naive, tiled, scratch, registers) = (&steps[0], &steps[1], &steps[2], &steps[6]);
    let on_one_thread = naive.seconds / registers.seconds;
    page.value("gain-one-thread", significant(on_one_thread, 2));
    let mut both = vec![];
    for pass in ["both", "both causal"] {
        both.push(ladder.time(pass, "tiled")? / ladder.time(pass, "naive")?);
    }
    page.value("tiled", tiled_in_words(&gains[0]));
    page.value("tiled-predicted", tiled_predicted_in_words(&gains[0], &both));
    // What is neither a product nor an exponential, before and after the loops were laid out anew.
    let rests = [ladder.unexplained(tiled)?, ladder.unexplained(scratch)?];
    page.value("scratch", scratch_in_words(&gains[1], &gains[0], rests));
    let furthest = gains.iter().max_by(|a, b| a.surprise().total_cmp(&b.surprise()));
    let furthest = furthest.context("the ladder has no steps")?;
    page.value("surprise", surprise_in_words(furthest));
    let rest = ladder.rest(registers)?;
    page.value("rest", rest_in_words(&rest));
    page.value("most", most_in_words(rest.products));
    Ok(())
}

fn steps_figure(page: &mut Page, steps: &[Step]) -> Result<()> {
    let told = steps.iter().map(|step| {
        let predicted = |predicted| format!(", predicted {}", duration(predicted));
        let predicted = bars::ring_of(step).map_or_else(String::new, predicted);
        format!("{} {}{predicted}", step.name, duration(step.seconds))
    });
    let says = format!(
        "A bar for each step from top to bottom, and from the second on a ring at the time that was predicted: {}.",
        told.collect::<Vec<_>>().join("; ")
    );
    let title = "Time of each step of the ladder, forward, measured and predicted";
    page.figure("steps", (title, &says), (520, 380), |area| bars::draw(area, steps))
}

/// The same steps forward and backward, and with a causal mask.
fn both(page: &mut Page, ladder: &Ladder, steps: &[Step]) -> Result<()> {
    let mut rows = vec![];
    for step in steps {
        let mut row = vec![step.name.to_owned()];
        for pass in &PASSES {
            let time = ladder.time_if_any(pass, step.name)?.map(|seconds| {
                let (_, share) = ladder.speed(step.name, pass.work, seconds);
                format!("{} ({})", duration(seconds), percent(share, 0))
            });
            row.push(time.unwrap_or("–".to_owned()));
        }
        rows.push(row);
    }
    let header: Vec<_> =
        ["step"].into_iter().chain(PASSES.map(|pass| pass.words)).collect();
    page.table("both", &header, &rows);

    let forward = |step| ladder.time("forward", step);
    let causal = |step| ladder.time("forward causal", step);
    let both = ladder.time("both", "registers")?;
    let ratio = both / forward("registers")?;
    page.value("both-over-forward", fixed(ratio, 1));
    page.value("both-near", near_in_words(ratio));
    page.value("gain-both", significant(ladder.time("both", "naive")? / both, 2));
    let tiles = causal_tiles_in_words(causal("vector")?, causal("tiles")?);
    page.value("causal-tiles", tiles);
    let without = forward("tiles")? / forward("registers")?;
    let with = causal("tiles")? / causal("registers")?;
    page.value("causal-registers", causal_registers_in_words(without, with));
    // D again for each of two stripes, beside five products backward: 2 · 2 n d of 10 n² d.
    page.value("again-d", percent(2.0 * 2.0 / (10.0 * N as f64), 2));
    let (_, share) = ladder.speed("registers", 1.0, forward("registers")?);
    page.value("roof-registers", percent(share, 0));
    Ok(())
}

// ------------------------------------------------------------------------------------------------ the sizes of tiles

/// The speed over the sizes of tiles. Two runs of one program differ by the factor `apart`.
fn tile_sizes(page: &mut Page, ladder: &Ladder, apart: f64) -> Result<()> {
    let library = LibraryFlash::new().tiles();
    for (program, file, work, queries, default) in [
        ("library", "tile-sizes", 1.0, SIZES, library),
        ("library causal", "tile-sizes-causal", 0.5, SIZES, library),
        ("registers", "panel-sizes", 1.0, BLOCKS, Flash::TILES),
    ] {
        let speeds = ladder.tile_speeds(program, work, queries, default)?;
        let mut header = vec!["queries \\ keys", "64", "128", "256", "512"];
        let mut rows = vec![];
        for (queries, row) in speeds.rows {
            let row = row.iter().map(|speed| fixed(*speed, 0));
            rows.push([integer(queries)].into_iter().chain(row).collect::<Vec<_>>());
        }
        let key = program.replace(' ', "-");
        let tile = |tiles: Tiles| format!("{} × {}", integer(tiles.queries), tiles.keys);
        if work < 1.0 {
            header.push("computed, then hidden");
            for (row, queries) in rows.iter_mut().zip(queries) {
                row.push(percent(hidden_share(queries), 0));
            }
        } else {
            page.value(format!("default-{key}"), tile(default));
        }
        page.table(file, &header, &rows);
        page.value(format!("best-tile-{key}"), tile(speeds.best));
        page.value(format!("behind-{key}"), behind_in_words(speeds.behind, apart));
    }
    let bytes = |rows: usize, tiles: Tiles| (rows * tiles.keys * size_of::<f32>()) as u64;
    let panel = bytes(ladder.kernel("scores", D)?.rows, Flash::TILES);
    let tile = bytes(library.queries, library);
    let caches = first_caches(ladder.machine());
    page.value("tiles-cache", tiles_cache_in_words(tile, panel, caches));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- measured again

/// The same computation in several runs: returns the factor that their medians are apart at most.
fn again(
    page: &mut Page,
    ladder: &Ladder,
    peers: Option<&Record>,
    gains: &[Gain],
) -> Result<f64> {
    let runs = ladder.again(peers)?;
    let time = |time: Option<f64>| time.map_or_else(String::new, duration);
    page.table_of(
        "again",
        &runs,
        &[
            ("computation", &|run| run.name.clone()),
            ("ladder", &|run| time(run.times[0])),
            ("sizes of tiles", &|run| time(run.times[1])),
            ("beside the others", &|run| time(run.times[2])),
            ("longest / shortest", &|run| fixed(run.apart(), 2)),
        ],
    );
    let largest = runs.iter().map(Again::apart).fold(1.0, f64::max);
    let spreads = ladder.spreads();
    let widest = spreads.iter().copied().fold(0.0, f64::max);
    page.value("spread-count", integer(spreads.len()));
    page.value("spread-median", percent(median(&spreads), 1));
    page.value("spread-most", percent(widest, 1));
    page.value("again-where", again_where_in_words(&ladder.steps, peers));
    page.value("again", again_in_words(largest, widest, gains));
    let bench = include_str!("../../../../laboratory/benches/support/mod.rs");
    let samples =
        bench.split_once(".sample_size(").and_then(|(_, rest)| rest.split_once(')'));
    page.value("samples", samples.context("how many samples are there?")?.0);
    Ok(largest)
}
