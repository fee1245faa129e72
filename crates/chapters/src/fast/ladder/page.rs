//! The ladder on the page: values, tables and figures.

use super::bars;
use super::facts::{LARGE, Ladder, PASSES, SMALL, Step, has_backward, rate, threads};
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
    let steps = ladder.steps()?;
    steps_table(page, ladder, &steps);
    predictions(page, &steps);
    time_of_steps(page, ladder, &steps)?;
    steps_figure(page, &steps)?;
    both(page, ladder, &steps)?;
    again(page, ladder, &steps, peers)
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
    let gain = |step: &Step| Some(fixed(step.gain()?, 2) + "\u{202f}×");
    let speed = |step: &Step| ladder.speed(step.name, &PASSES[0], step.seconds);
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

/// A sum for each step, in milliseconds: the parts that it exchanges for those of the one before.
fn predictions(page: &mut Page, steps: &[Step]) {
    let milliseconds = |seconds: f64| fixed(1e3 * seconds, 0);
    // That two threads take half of the time needs no sum.
    for step in steps.iter().filter(|step| threads(step.name) == 1) {
        let Some((before, predicted)) = step.before.zip(step.predicted()) else {
            continue;
        };
        let term = |seconds: f64, name: &str| {
            format!("\\underbrace{{{}}}_{{\\text{{{name}}}}}", milliseconds(seconds))
        };
        let mut sum = term(before, &format!("step {}", step.number - 1));
        for (name, seconds) in &step.exchange {
            let sign = if *seconds < 0.0 { '-' } else { '+' };
            sum += &format!(" {sign} {}", term(seconds.abs(), name));
        }
        let sum = format!("{sum} \\approx {}", milliseconds(predicted));
        page.value(format!("predicted-{}", step.name), sum);
        page.value(format!("measured-{}", step.name), duration(step.seconds));
        if step.name != "registers" {
            let ratio = step.seconds / predicted;
            page.value(format!("verdict-{}", step.name), verdict(&[ratio]));
        }
    }
}

/// Says what measured times tell of a prediction. Each is a multiple of the predicted one, in a run of its own.
fn verdict(runs: &[f64]) -> &'static str {
    // Times of one computation in several runs are as far apart.
    let holds = |ratio: &&f64| (0.94..1.06).contains(*ratio);
    match (runs.iter().filter(holds).count(), runs) {
        (count, all) if count == all.len() => "*The prediction holds.*",
        (0, [first, ..]) if *first > 1.0 => {
            "*The prediction failed:* the step takes longer."
        }
        (0, _) => "*The prediction was too high.*",
        (count, all) if 2 * count > all.len() => {
            "*The prediction holds* for most of the runs."
        }
        _ => "*The prediction holds* for some of the runs.",
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
    let mut left = vec![];
    for (step, tile, exponential) in [
        (&steps[2], SMALL, "one by one"),
        (&steps[3], SMALL, "portable"),
        (&steps[4], SMALL, "vector"),
        (&steps[5], LARGE, "vector"),
    ] {
        let seconds = step.seconds - ladder.explained(tile, exponential)?;
        page.value(
            format!("left-{}", step.name),
            format!("{} ms", fixed(1e3 * seconds, 0)),
        );
        left.push(seconds);
    }
    page.value("left-says", left_says(&left));
    page.value("left-tiles-says", left_tiles_says(left[2], left[3]));
    let exponentials = ladder.exponentials("one by one")?;
    page.value("price-exponentials", duration(exponentials));
    page.value("price-products", duration(explained - exponentials));
    Ok(())
}

/// Says what the seconds that are left of steps 3, 4 and 5 tell of the price of step 3's exponential.
fn left_says(left: &[f64]) -> &'static str {
    if left[0] < 0.5 * left[1].min(left[2]) {
        "Too much was subtracted there: the price of the system's function was too high. So \
         bookkeeping was left after step 3, and the wrong price hid it."
    } else {
        "These are too much alike for a price that is far off."
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
fn both(page: &mut Page, ladder: &Ladder, steps: &[Step]) -> Result<()> {
    let mut rows = vec![];
    for step in steps.iter().filter(|step| has_backward(step.name)) {
        let mut row = vec![step.name.to_owned()];
        for pass in &PASSES {
            let seconds = ladder.time(pass.name, step.name)?;
            let (_, share) = ladder.speed(step.name, pass, seconds);
            row.push(format!("{} ({})", duration(seconds), percent(share, 0)));
        }
        rows.push(row);
    }
    let header: Vec<_> =
        ["step"].into_iter().chain(PASSES.map(|pass| pass.words)).collect();
    page.table("both", &header, &rows);

    let (forward, both) =
        (ladder.time("forward", "registers")?, ladder.time("both", "registers")?);
    page.value("both-over-forward", fixed(both / forward, 1));
    for step in ["naive", "registers"] {
        let share =
            ladder.time("forward causal", step)? / ladder.time("forward", step)?;
        page.value(format!("causal-{step}"), percent(share, 0));
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- measured again

/// The times of the forward pass of a step, in all of its runs.
fn times<'a>(runs: &'a [Again], step: &str) -> &'a [Option<f64>] {
    let name = format!("{step}, {}", PASSES[0].words);
    runs.iter().find(|run| run.name == name).map_or(&[], |run| &run.times)
}

/// Returns the shares of the roof that the forward pass of step 7 reached, over all of its runs: "79 to 85 %".
fn shares_of_the_roof(ladder: &Ladder, runs: &[Again]) -> Result<String> {
    let mut seconds: Vec<_> =
        times(runs, "registers").iter().flatten().copied().collect();
    if seconds.is_empty() {
        seconds.push(ladder.time("forward", "registers")?);
    }
    let share = |time: f64| ladder.speed("registers", &PASSES[0], time).1;
    let (least, most) = least_and_most(seconds.into_iter().map(share));
    let [least, most] = [least, most].map(|share| percent(share, 0));
    Ok(match least == most {
        true => most,
        false => format!("{} to {most}", least.trim_end_matches('%').trim_end()),
    })
}

/// `, and A in another run`, or in several; nothing if there was none.
fn in_other_runs(others: impl Iterator<Item = String>) -> String {
    match &others.collect::<Vec<_>>()[..] {
        [] => String::new(),
        [one] => format!(", and {one} in another run"),
        many => format!(", and {} in other runs", many.join(" and ")),
    }
}

/// Says how long step 7 took in its other runs, and what all of them tell of its prediction; and what two threads gained beside the
/// peers, if they were timed there.
fn other_runs(page: &mut Page, steps: &[Step], runs: &[Again]) -> Result<()> {
    let others = || times(runs, "registers").iter().skip(1).flatten();
    let told = in_other_runs(others().map(|seconds| duration(*seconds)));
    page.value("registers-again", told);
    let predicted = steps[6].predicted().context("a prediction of step 7")?;
    let ratio = |seconds: &f64| seconds / predicted;
    let ratios = [&steps[6].seconds].into_iter().chain(others()).map(ratio);
    page.value("verdict-registers", verdict(&ratios.collect::<Vec<_>>()));
    let beside = |step| times(runs, step).last().copied().flatten();
    let again = beside("registers").zip(beside("threads"));
    let told =
        again.map(|(one, two)| format!(", and {} in a second run", fixed(one / two, 2)));
    page.value("threads-again", told.unwrap_or_default());
    Ok(())
}

/// The same computation in several runs.
fn again(
    page: &mut Page,
    ladder: &Ladder,
    steps: &[Step],
    peers: Option<&Record>,
) -> Result<()> {
    let runs = ladder.again(peers)?;
    let time = |time: Option<f64>| time.map_or_else(String::new, duration);
    page.table_of(
        "again",
        &runs,
        &[
            ("computation", &|run| run.name.clone()),
            ("ladder", &|run| time(run.times[0])),
            ("once more", &|run| time(run.times[1])),
            ("beside the others", &|run| time(run.times[2])),
            ("longest / shortest", &|run| fixed(run.apart(), 2)),
        ],
    );
    let apart = runs.iter().map(Again::apart).fold(1.0, f64::max);
    page.value("again-apart", fixed(apart, 2));
    page.value("roof-registers", shares_of_the_roof(ladder, &runs)?);
    other_runs(page, steps, &runs)?;
    page.value("samples", integer(SAMPLES));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{left_says, left_tiles_says, verdict};

    #[test]
    fn a_prediction_is_judged_by_all_of_its_runs() {
        assert_eq!(verdict(&[1.03]), "*The prediction holds.*");
        assert!(verdict(&[1.2]).contains("takes longer"));
        assert!(verdict(&[0.9, 0.9]).contains("too high"));
        assert!(verdict(&[0.9, 1.0, 1.01]).contains("for most of the runs"));
        assert!(verdict(&[0.9, 1.0]).contains("for some of the runs"));
    }

    #[test]
    fn what_has_no_price_shrank_if_less_of_it_is_left() {
        assert!(left_tiles_says(0.027, 0.013).contains("shrank"));
        assert!(left_tiles_says(0.027, 0.026).contains("didn't shrink"));
    }

    #[test]
    fn a_price_is_too_high_if_it_leaves_less_than_half_of_what_others_leave() {
        assert!(left_says(&[0.004, 0.033, 0.027]).starts_with("Too much"));
        assert!(
            left_says(&[0.028, 0.026, 0.021]).starts_with("These are too much alike")
        );
    }
}
