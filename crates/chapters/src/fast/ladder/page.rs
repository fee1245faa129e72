//! The ladder on the page: values, tables and figures.

use super::bars;
use super::facts::{
    LARGE, Ladder, PASSES, Pass, SMALL, Step, has_backward, rate, threads,
};
use super::runs::Again;
use crate::fast::facts::{D, HEADS, N};
use crate::figures::format::{duration, fixed, integer, percent, significant};
use crate::output::Page;
use crate::records::least_and_most;
use anyhow::{Context, Result};
use record::{Record, SAMPLES};

/// `peers` were timed on the same machine, if they are there.
pub fn generate(page: &mut Page, ladder: &Ladder, peers: Option<&Record>) -> Result<()> {
    exponentials(page, ladder)?;
    products(page, ladder)?;
    let runs = ladder.again(peers)?;
    let steps = ladder.steps(&runs)?;
    steps_table(page, ladder, &steps);
    let apart = again(page, &runs);
    predictions(page, &steps, apart);
    time_of_steps(page, ladder, &steps)?;
    steps_figure(page, &steps)?;
    both(page, ladder, &steps, &runs)
}

// --------------------------------------------------------------------------------------------------------- the parts

fn exponentials(page: &mut Page, ladder: &Ladder) -> Result<()> {
    let each = ladder.exponential("one by one")?;
    // Those of a (4096, 4096) matrix, which *Counting* speaks of.
    let vector = ladder.exponential("vector")?;
    page.value("exponentials-4096", duration(f64::from(4096 * 4096) * vector));
    let ways = [
        ("one call of the system's `exp2f` each", each),
        ("polynomial, portable", ladder.exponential("portable")?),
        ("polynomial, the widest instructions there are", ladder.exponential("vector")?),
    ];
    page.table_of(
        "exponentials",
        &ways,
        &[
            ("an exponential", &|(name, _)| name.to_string()),
            ("time", &|(_, seconds)| format!("{} ns", significant(seconds * 1e9, 2))),
            ("all of them, in the time of both products at the roof", &|(_, seconds)| {
                percent(ladder.exponentials_share(*seconds), 0)
            }),
        ],
    );
    page.value("exponentials-share", percent(ladder.exponentials_share(each), 0));
    Ok(())
}

fn giga(rate: f64) -> String {
    fixed(rate / 1e9, 0)
}

/// Products of tiles, by the library and by the micro-kernels, as shares of the roof.
fn products(page: &mut Page, ladder: &Ladder) -> Result<()> {
    let (rows, columns) = LARGE;
    page.value("tile-large", format!("{rows} × {columns}"));
    let (rows, columns) = ladder.tile_of_registers()?;
    page.value("tile-registers", format!("{} × {columns}", integer(rows)));
    let [small, large] = [SMALL, LARGE]
        .map(|tile| -> Result<f64> { Ok(rate(ladder.product(tile)?, tile)) });
    let (small, large) = (small?, large?);
    page.value("rate-small", giga(small));
    page.value("rate-large", giga(large));

    page.value("library-of-roof", percent(large / ladder.roof, 0));
    for name in ["scores", "values", "queries"] {
        let share = ladder.kernel(name, D)?.rate / ladder.roof;
        page.value(format!("{name}-of-roof"), percent(share, 0));
    }
    Ok(())
}

// --------------------------------------------------------------------------------------------------------- the steps

fn steps_table(page: &mut Page, ladder: &Ladder, steps: &[Step]) {
    let predicted = |step: &Step| step.predicted().map(duration);
    let gain = |step: &Step| Some(significant(step.gain()?, 2) + "\u{202f}×");
    let speed = |step: &Step| ladder.speed(step.name, &PASSES[0], step.seconds);
    let which = |step: &Step| if threads(step.name) == 2 { " of two" } else { "" };
    page.table_of(
        "steps",
        steps,
        &[
            ("version", &|step| {
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

/// A sum for each step, in milliseconds: the parts that it exchanges for those of the one before. Runs of one computation are `apart` by this
/// factor at most.
fn predictions(page: &mut Page, steps: &[Step], apart: f64) {
    let milliseconds = |seconds: f64| fixed(1e3 * seconds, 1);
    for step in steps {
        let Some((before, predicted)) = step.before.zip(step.predicted()) else {
            continue;
        };
        let term = |seconds: f64, name: &str| {
            format!("\\underbrace{{{}}}_{{\\text{{{name}}}}}", milliseconds(seconds))
        };
        let mut sum = term(before, &format!("version {}", step.number - 1));
        for (name, seconds) in &step.exchange {
            let sign = if *seconds < 0.0 { '-' } else { '+' };
            sum += &format!(" {sign} {}", term(seconds.abs(), name));
        }
        let sum = format!("{sum} \\approx {}", milliseconds(predicted));
        // That two threads take half of the time needs no sum.
        if threads(step.name) == 1 {
            page.value(format!("predicted-{}", step.name), sum);
        }
        page.value(format!("measured-{}", step.name), duration(step.seconds));
        let ratio = step.seconds / predicted;
        page.value(format!("verdict-{}", step.name), verdict(ratio, apart));
    }
}

/// Says what a measured time, as a multiple of the predicted one, tells of the prediction. Runs of one computation are as far `apart` as this
/// factor.
fn verdict(ratio: f64, apart: f64) -> &'static str {
    if ratio > apart {
        "*The prediction failed:* the step takes longer."
    } else if ratio < 1.0 / apart {
        "*The prediction was too high.*"
    } else {
        "*The prediction holds.*"
    }
}

/// The parts of the time of some steps.
fn time_of_steps(page: &mut Page, ladder: &Ladder, steps: &[Step]) -> Result<()> {
    let over_naive = steps[1].seconds / steps[0].seconds;
    page.value("tiled-over-naive", significant(over_naive, 2));
    page.value("gain-threads", fixed(steps[7].gain().context("a gain")?, 2));
    let explained = ladder.explained(SMALL, "one by one")?;
    for step in &steps[1..3] {
        let share = explained / step.seconds;
        page.value(format!("explained-{}", step.name), percent(share, 0));
    }
    let (mut left, mut rows) = (vec![], vec![]);
    for (step, tile, exponential) in [
        (&steps[2], SMALL, "one by one"),
        (&steps[3], SMALL, "portable"),
        (&steps[4], SMALL, "vector"),
        (&steps[5], LARGE, "vector"),
    ] {
        let exponentials = ladder.exponentials(exponential)?;
        let products = ladder.explained(tile, exponential)? - exponentials;
        // In whole milliseconds, so that what is printed can be subtracted.
        let [measured, products, exponentials] =
            [step.seconds, products, exponentials].map(|time| (1e3 * time).round());
        let rest = measured - products - exponentials;
        let mut row = vec![format!("{} **{}**", step.number, step.name)];
        row.extend([measured, products, exponentials, rest].map(|ms| fixed(ms, 0)));
        rows.push(row);
        left.push(1e-3 * rest);
    }
    let header = ["version", "measured", "products", "exponentials", "left, in ms"];
    page.table("left", &header, &rows[..3]);
    for (key, rest) in [("left-vector", left[2]), ("left-tiles", left[3])] {
        page.value(key, format!("{} ms", fixed(1e3 * rest, 0)));
    }
    page.value("left-says", left_says(&left));
    let registers = &steps[6];
    let new = registers.exchange.iter().map(|(_, seconds)| seconds.max(0.0));
    let vector = ladder.exponentials("vector")?;
    let rest = registers.seconds - new.sum::<f64>() - vector;
    page.value("price-vector", format!("{} ms", fixed(1e3 * vector, 0)));
    page.value("left-registers", format!("{} ms", fixed(1e3 * rest, 0)));
    page.value("left-tiles-says", left_tiles_says(left[2], left[3]));
    let exponentials = ladder.exponentials("one by one")?;
    page.value("price-exponentials", duration(exponentials));
    page.value("price-products", duration(explained - exponentials));
    Ok(())
}

/// Says what the seconds that are left of steps 3, 4 and 5 tell of the price of step 3's exponential.
fn left_says(left: &[f64]) -> String {
    let others = left[1].min(left[2]);
    let [scratch, least] = [left[0], others].map(|seconds| fixed(1e3 * seconds, 0));
    if left[0] < 0.5 * others {
        format!(
            "Versions 4 and 5 spend at least {least} ms on all else. Version 3 has the same loops, and the table leaves it \
             {scratch} ms. Too much was subtracted there. The products have the same price in all three, so it must be the \
             exponentials': a call of `exp2f` costs less in this program than alone."
        )
    } else {
        "These are too much alike for a price that is far off.".to_owned()
    }
}

/// Says what the seconds that are left of steps 5 and 6 tell of what has no price.
fn left_tiles_says(vector: f64, tiles: f64) -> &'static str {
    if tiles < 0.8 * vector {
        "So something shrank that we hadn't priced. We suspect the corrections of the output, since fewer tiles mean \
         fewer of them."
    } else {
        "So what we hadn't priced didn't shrink with the number of tiles."
    }
}

fn steps_figure(page: &mut Page, steps: &[Step]) -> Result<()> {
    let told = steps.iter().map(|step| {
        let predicted = |predicted| format!(", predicted {}", duration(predicted));
        let predicted = bars::ring_of(step).map_or_else(String::new, predicted);
        format!("{} {}{predicted}", step.name, duration(step.seconds))
    });
    let says = format!(
        "A bar for each step from top to bottom, and a ring where a time was predicted: {}.",
        told.collect::<Vec<_>>().join("; ")
    );
    let title = "Time of each step of the ladder, forward, measured and predicted";
    page.figure("steps", (title, &says), (520, 380), |area| bars::draw(area, steps))
}

/// The steps that have a backward pass: forward and backward, and with a causal mask.
fn both(page: &mut Page, ladder: &Ladder, steps: &[Step], runs: &[Again]) -> Result<()> {
    let mut rows = vec![];
    for step in steps.iter().filter(|step| has_backward(step.name)) {
        let mut row = vec![step.name.to_owned()];
        for pass in &PASSES {
            let seconds = ladder.usual(runs, pass, step.name)?;
            let (_, share) = ladder.speed(step.name, pass, seconds);
            row.push(format!("{} ({})", duration(seconds), percent(share, 0)));
        }
        rows.push(row);
    }
    let header: Vec<_> =
        ["version"].into_iter().chain(PASSES.map(|pass| pass.words)).collect();
    page.table("both", &header, &rows);

    let forward = ladder.usual(runs, &PASSES[0], "registers")?;
    let both = ladder.usual(runs, &PASSES[2], "registers")?;
    page.value("both-over-forward", fixed(both / forward, 1));
    let [full, causal, both] = [0, 1, 2].map(|pass| ("registers", &PASSES[pass]));
    page.value("both-of-runs", of_each_run(runs, both, full, |it| fixed(it, 1)));
    page.value("causal-of-runs", of_each_run(runs, causal, full, |it| percent(it, 0)));
    for (key, registers) in [("gain-of-runs", full), ("gain-causal-of-runs", causal)] {
        let tiles = ("tiles", registers.1);
        page.value(key, of_each_run(runs, tiles, registers, |it| fixed(it, 2)));
    }
    Ok(())
}

/// The time of a pass of one step as a multiple of another's in the same run: the least and the most of all runs, as "1.2 to 1.3".
fn of_each_run(
    runs: &[Again],
    one: (&str, &Pass),
    other: (&str, &Pass),
    shown: impl Fn(f64) -> String,
) -> String {
    let times = |(step, pass): (&str, &Pass)| {
        let name = format!("{step}, {}", pass.words);
        runs.iter().find(|run| run.name == name).map_or([None; 3], |run| run.times)
    };
    let together = times(other).into_iter().zip(times(one));
    let ratios: Vec<_> =
        together.filter_map(|(other, one)| Some(one? / other?)).collect();
    if ratios.is_empty() {
        return "–".to_owned();
    }
    let (least, most) = least_and_most(ratios);
    range(shown(least), shown(most))
}

/// "1 % to 2 %" is "1 to 2 %".
fn range(least: String, most: String) -> String {
    match least == most {
        true => most,
        false => format!("{} to {most}", least.trim_end_matches('%').trim_end()),
    }
}

// ---------------------------------------------------------------------------------------------------- measured again

/// The same computation in several runs. Returns the factor that runs of one forward pass without a mask are apart at most, as the ladder's are.
fn again(page: &mut Page, runs: &[Again]) -> f64 {
    let time = |time: Option<f64>| time.map_or_else(String::new, duration);
    page.table_of(
        "again",
        runs,
        &[
            ("computation", &|run| run.name.clone()),
            ("ladder", &|run| time(run.times[0])),
            ("once more", &|run| time(run.times[1])),
            ("beside the others", &|run| time(run.times[2])),
            ("longest / shortest", &|run| fixed(run.apart(), 2)),
        ],
    );
    let most = |runs: &mut dyn Iterator<Item = &Again>| {
        runs.map(Again::apart).fold(1.0, f64::max)
    };
    let is_forward = |run: &&Again| run.name.ends_with(&format!(", {}", PASSES[0].words));
    let apart = most(&mut runs.iter().filter(is_forward));
    page.value("apart", fixed(apart, 2));
    page.value("again-apart", fixed(most(&mut runs.iter()), 2));
    page.value("samples", integer(SAMPLES));
    apart
}

#[cfg(test)]
mod tests {
    use super::{left_says, left_tiles_says, verdict};

    #[test]
    fn a_prediction_holds_if_it_is_as_near_as_runs_are() {
        assert_eq!(verdict(1.03, 1.05), "*The prediction holds.*");
        assert_eq!(verdict(0.96, 1.05), "*The prediction holds.*");
        assert!(verdict(1.2, 1.05).contains("takes longer"));
        assert!(verdict(0.9, 1.05).contains("too high"));
    }

    #[test]
    fn what_has_no_price_shrank_if_less_of_it_is_left() {
        assert!(left_tiles_says(0.027, 0.013).contains("shrank"));
        assert!(left_tiles_says(0.027, 0.026).contains("didn't shrink"));
    }

    #[test]
    fn a_price_is_too_high_if_it_leaves_less_than_half_of_what_others_leave() {
        assert!(left_says(&[0.004, 0.033, 0.027]).contains("Too much"));
        assert!(
            left_says(&[0.028, 0.026, 0.021]).starts_with("These are too much alike")
        );
    }
}
