//! The chapter's page: values, tables and figures.

use super::facts::{self, Crossing, D, HEADS, Points, TimedLayer, core_share};
use super::roofline::{
    Ceilings, Parts, SOFTMAX_CROSSINGS, Step, cores_over_projections, steps,
};
use crate::figures::format::{bytes, duration, fixed, integer, percent, significant};
use crate::figures::{
    Area, Axis, BLUE, GREEN, Line, MUTED, Marks, RGBColor, Side, Spot, VERMILION,
    line_chart,
};
use crate::output::Page;
use crate::records::{least_and_most, list, provenance_of, threads};
use anyhow::{Context, Result};
use laboratory::hardware::{A100, Gpu, H100};
use record::Record;
use std::ops::Range;

pub fn generate(page: &mut Page) -> Result<()> {
    counts(page)?;
    let [times, memory, roof] = records(page)?;
    let others = [("the memory", &memory), ("the roofline", &roof)];
    page.value("where", provenance_of(&times, &others));
    page.value("threads", threads(&roof));
    crossover(page, &times)?;
    peaks(page, &memory)?;
    intensity(page)?;
    roofline(page, &roof, &times)
}

/// Returns the records that this chapter shows: times, memory, and the roofline's. Other chapters that speak of its machine take the
/// same ones.
pub fn records(page: &Page) -> Result<[Record; 3]> {
    page.records.of_one_machine(["complexity", "memory", "roofline"])
}

// --------------------------------------------------------------------------------------------------- what is counted

/// Operations and bytes of a layer with 32 heads.
fn counts(page: &mut Page) -> Result<()> {
    let giga = |count: u128| significant(count as f64 / 1e9, 3);
    let lengths = [128, 256, 512, 1024, 2048, 4096, 8192];
    let counts: Vec<_> = lengths.into_iter().map(facts::counts).collect::<Result<_>>()?;
    page.table_of(
        "counts",
        &counts,
        &[
            ("$n$", &|c| integer(c.n)),
            ("projections", &|c| giga(c.flops.projections)),
            ("products", &|c| giga(c.flops.scores + c.flops.values)),
            ("softmax", &|c| giga(c.flops.softmax)),
            ("core's share", &|c| percent(core_share(&c.flops), 0)),
        ],
    );
    page.table_of(
        "weights",
        &counts,
        &[
            ("$n$", &|c| integer(c.n)),
            ("weights of a head", &|c| bytes(c.bytes.weights / HEADS as u128)),
            ("of 32 heads", &|c| bytes(c.bytes.weights)),
        ],
    );
    let even = facts::counts(4096)?;
    let softmax = even.flops.softmax as f64 / even.flops.core() as f64;
    page.value("softmax-share", percent(softmax, 1));
    for n in [128, 8192] {
        let share = core_share(&facts::counts(n)?.flops);
        page.value(format!("share-{n}"), percent(share, 0));
        let doubling = significant(facts::doubling(n)?, 3);
        let [linear, quadratic] = [1.0 - share, share].map(|part| fixed(part, 3));
        let sum = format!("{linear} \\cdot 2 + {quadratic} \\cdot 4 \\approx {doubling}");
        page.value(format!("doubling-{n}-sum"), sum);
        page.value(format!("doubling-{n}"), doubling);
    }
    page.value("backward-shortest", fixed(facts::backward_flops_ratio(128)?, 3));
    page.value("backward-limit", fixed(facts::backward_flops_limit(), 3));
    // Weights that training keeps, of one sequence.
    let layers = 24;
    page.value("training-layers", integer(layers));
    let kept = layers as u128 * facts::counts(2048)?.bytes.weights;
    page.value("training-weights", bytes(kept));
    page.value("weights-4096", bytes(even.bytes.weights));
    page.value("weights-4096-head", bytes(even.bytes.weights / HEADS as u128));
    Ok(())
}

/// Operations per byte, as n grows.
fn intensity(page: &mut Page) -> Result<()> {
    let row = |n: String, intensities: [f64; 2]| {
        let [narrow, wide] = intensities.map(|intensity| fixed(intensity, 1));
        vec![n, narrow, wide]
    };
    let mut rows = vec![];
    for n in [64, 256, 1024, 4096, 16_384] {
        let intensities = [facts::intensity(n, D)?, facts::intensity(n, 2 * D)?];
        rows.push(row(integer(n), intensities));
    }
    let limits = [D, 2 * D].map(facts::intensity_limit);
    rows.push(row("$\\to \\infty$".to_owned(), limits));
    page.table("intensity", &["$n$", "$d = 64$", "$d = 128$"], &rows);
    Ok(())
}

/// Lines over n, on logarithmic axes that end at powers.
fn chart_over_tokens(area: &Area, unit: &'static str, lines: &[Line]) -> Result<()> {
    let points = || lines.iter().flat_map(|line| &line.points);
    let n = log_range(2.0, points().map(|point| point.0));
    let x = Axis::log("tokens n (logarithmic)", 2.0, n);
    let y = Axis::log(unit, 10.0, log_range(10.0, points().map(|point| point.1)));
    line_chart(area, &x, &y, lines, Marks::default())
}

/// The smallest range between two powers of the base that holds all values.
fn log_range(base: f64, values: impl IntoIterator<Item = f64>) -> Range<f64> {
    let (least, most) = least_and_most(values.into_iter().map(|value| value.log(base)));
    // A hair more on both sides, so that rounding leaves no border without its tick.
    base.powf(least.floor()) * (1.0 - 1e-12)..base.powf(most.ceil()) * (1.0 + 1e-12)
}

// ----------------------------------------------------------------------------------------------------- the crossover

/// The length at which the core costs as much as the projections: counted, and measured.
fn crossover(page: &mut Page, record: &Record) -> Result<()> {
    let layer = TimedLayer::of(record)?;
    page.table_of(
        "shares",
        &layer.times,
        &[
            ("$n$", &|time| integer(time.n as usize)),
            ("core's share of the FLOPs", &|time| percent(core_share(&time.flops), 0)),
            ("projections", &|time| duration(time.projections)),
            ("cores", &|time| duration(time.cores)),
            ("whole layer", &|time| duration(time.whole)),
        ],
    );
    page.value("layer-heads", integer(layer.heads));
    page.value("layer-crossover", integer(layer.crossover));
    page.value("layer-d-model", integer(layer.d_model));
    let even = layer.at_crossover().with_context(|| {
        format!("the record `{}` has no layer of n = {}", record.topic, layer.crossover)
    })?;
    page.value("even", significant(even.cores / even.projections, 2));
    let crossing = Crossing::of(&layer.measured());
    let (shortest, longest) = least_and_most(layer.times.iter().map(|time| time.n));
    let they_cross = crossing_in_words(&crossing, shortest, longest);
    page.value("measured-crossover", they_cross.clone());
    crossover_figures(page, &layer, &they_cross.replace('$', ""))
}

fn crossover_figures(
    page: &mut Page,
    layer: &TimedLayer,
    they_cross: &str,
) -> Result<()> {
    let mut draw = |name, texts: (&str, &str), unit, [projections, core]: [Points; 2]| {
        let lines = [
            Line::new("four projections", BLUE, projections).dashed(),
            Line::new("core", VERMILION, core),
        ];
        page.figure(name, texts, (380, 340), |area| chart_over_tokens(area, unit, &lines))
    };
    let texts = (
        "Operations of a layer's projections and of its core against the number of tokens",
        "The line of the core is steeper, and crosses the line of the projections at twice the model's width.",
    );
    draw("crossover-counted", texts, "GFLOP (logarithmic)", layer.counted())?;
    let title =
        "Time of a layer's projections and of its cores against the number of tokens";
    let [of_projections, of_core] = layer.slopes().map(|slope| fixed(slope, 1));
    let says = format!(
        "The line of the core has a slope of {of_core}, that of the projections one of {of_projections}. They cross \
         {they_cross}."
    );
    draw("crossover-measured", (title, &says), "seconds (logarithmic)", layer.measured())
}

// -------------------------------------------------------------------------------------------------------- the memory

/// The peak of allocated bytes against what the shapes say.
fn peaks(page: &mut Page, record: &Record) -> Result<()> {
    let peaks = facts::peaks(record)?;
    page.table_of(
        "memory",
        &peaks,
        &[
            ("$n$", &|peak| integer(peak.n)),
            ("Q, K, V, A, O", &|peak| bytes(peak.kept)),
            ("peak forward", &|peak| bytes(peak.forward as u128)),
            ("in $n^2$", &|peak| fixed(peak.in_squares(peak.forward), 2)),
            ("peak with backward", &|peak| bytes(peak.with_backward as u128)),
            ("in $n^2$", &|peak| fixed(peak.in_squares(peak.with_backward), 2)),
        ],
    );
    Ok(())
}

// ------------------------------------------------------------------------------------------------------ the roofline

/// The two ceilings, and the steps below them.
fn roofline(page: &mut Page, record: &Record, times: &Record) -> Result<()> {
    let ceilings = Ceilings::of(record)?;
    ceilings_values(page, &ceilings);
    let (short, long) = (steps(record, times, 512)?, steps(record, times, 4096)?);
    let (small, large) = (short.map(|step| (512, step)), long.map(|step| (4096, step)));
    let decimals = |step: &Step| if step.counted.intensity() < 1.0 { 3 } else { 1 };
    page.table_of(
        "steps",
        &[small, large].concat(),
        &[
            ("step", &|(_, step)| step.counted.name.to_owned()),
            ("$n$", &|(n, _)| integer(*n)),
            ("time", &|(_, step)| duration(step.seconds)),
            ("FLOP/byte", &|(_, step)| fixed(step.counted.intensity(), decimals(step))),
            ("GFLOP/s", &|(_, step)| significant(step.speed(), 3)),
            ("of its roof", &|(_, step)| percent(ceilings.share(step), 0)),
        ],
    );
    steps_values(page, &ceilings, &long);
    let [scores, scale, softmax, values, whole] = &short;
    let layer = TimedLayer::of(times)?;
    // At the crossover softmax wasn't timed: we take it to be proportional to the number of scores. At 512 tokens it was timed alone,
    // where it copies the scores, and it's what the other steps leave of the whole.
    let even = layer.at_crossover().context("a layer at the crossover")?;
    let left = whole.seconds - scores.seconds - scale.seconds - values.seconds;
    page.value("softmax-over-scale", fixed(left / scale.seconds, 0));
    for (key, seconds) in [("alone", softmax.seconds), ("left", left)] {
        let estimate = layer.heads as f64 * seconds * (even.n / 512.0).powi(2);
        let without = fixed(cores_over_projections(even, estimate), 1);
        page.value(format!("cores-without-softmax-{key}"), without);
        page.value(format!("softmax-{key}"), duration(seconds));
    }
    where_it_goes(page, record, &ceilings, &long)?;
    draw_roofline(page, &ceilings, &short, &long)
}

/// What attention at n = 4096 spends its time on.
fn where_it_goes(
    page: &mut Page,
    record: &Record,
    ceilings: &Ceilings,
    long: &[Step; 5],
) -> Result<()> {
    let [pages] = page.records.of_one_machine(["pages"])?;
    let parts = Parts::of(record, &pages, ceilings, long)?;
    let row = |part: &str, seconds: f64| vec![part.to_owned(), fixed(1e3 * seconds, 1)];
    page.table(
        "parts",
        &["", "milliseconds"],
        &[
            row("both products, at the peak", parts.at_peak),
            row("both products, beyond that", parts.beyond_peak),
            row("new memory for the $(n, n)$ matrix", parts.new_memory),
            row("softmax, in memory that was there before", parts.softmax),
            row("scaling", parts.scale),
            row("**sum**", parts.sum()),
            row("**attention, timed as a whole**", parts.whole),
        ],
    );
    page.value("matrix-new", duration(parts.filled_new));
    page.value("matrix-old", duration(parts.filled_old));
    page.value("softmax-long", duration(parts.softmax));
    page.value("softmax-moved", duration(parts.softmax_moves));
    page.value("softmax-crossings", integer(SOFTMAX_CROSSINGS));
    Ok(())
}

fn ceilings_values(page: &mut Page, ceilings: &Ceilings) {
    let speed = |what: &str, speed: f64, unit: &str| {
        vec![what.to_owned(), format!("{} {unit}", significant(speed, 3))]
    };
    page.table(
        "ceilings",
        &["", ""],
        &[
            speed("peak: multiply-adds in registers", ceilings.peak(), "GFLOP/s"),
            speed("bandwidth: scaling an array in place", ceilings.bandwidth(), "GB/s"),
            speed("**ridge**: peak / bandwidth", ceilings.ridge(), "FLOP/byte"),
        ],
    );
    page.table(
        "ceilings-others",
        &["", "best of several"],
        &[
            speed("nalgebra's product of square matrices", ceilings.product, "GFLOP/s"),
            speed("adding up an array", ceilings.read, "GB/s"),
            speed("the triad $a = b + 3 c$ over three arrays", ceilings.triad, "GB/s"),
        ],
    );
    page.value("machines", machines(ceilings));
    page.value("gpu-ridge", fixed(H100.ridge_f32(), 0));
}

/// The roofs that the figure that moves knows: name, peak in GFLOP/s and bandwidth in GB/s, parted by bars, one roof after a semicolon.
fn machines(ceilings: &Ceilings) -> String {
    let sheet = |name, peak: f64, gpu: Gpu| (name, peak / 1e9, gpu.bandwidth / 1e9);
    let machines = [
        ("the machine of this chapter, f32", ceilings.peak(), ceilings.bandwidth()),
        sheet("NVIDIA A100, f32", A100.f32, A100),
        sheet("NVIDIA A100, bf16 tensor cores", A100.bf16, A100),
        sheet("NVIDIA H100, f32", H100.f32, H100),
        sheet("NVIDIA H100, bf16 tensor cores", H100.bf16, H100),
    ];
    let line = |(name, peak, bandwidth)| format!("{name}|{peak:.1}|{bandwidth:.1}");
    machines.map(line).join(";")
}

/// The steps at n = 4096.
fn steps_values(
    page: &mut Page,
    ceilings: &Ceilings,
    [.., softmax, _, whole]: &[Step; 5],
) {
    page.value("whole-intensity", fixed(whole.counted.intensity(), 1));
    page.value("whole-share", percent(ceilings.share(whole), 0));
    page.value("softmax-flops", percent(softmax.counted.flops / whole.counted.flops, 0));
}

fn draw_roofline(
    page: &mut Page,
    ceilings: &Ceilings,
    short: &[Step; 5],
    long: &[Step; 5],
) -> Result<()> {
    let shares = |steps: &[Step]| {
        let share = |step: &Step| {
            format!("{} {}", step.counted.name, percent(ceilings.share(step), 0))
        };
        list(&steps.iter().map(share).collect::<Vec<_>>())
    };
    let says = format!(
        "The roof rises with the intensity and is level from {} FLOP/byte on. For n = 4096 the steps reach these shares of the \
         roof above them: {}. The grey dots, for n = 512: {}.",
        significant(ceilings.ridge(), 3),
        shares(long),
        shares(short)
    );
    let range = 0.03125..256.0;
    let corners = [range.start, ceilings.ridge(), range.end];
    let roof = corners.map(|intensity| (intensity, ceilings.roof(intensity)));
    let roof = Line::new("roof", BLUE, roof);
    let spots: Vec<_> = short.iter().map(grey).chain(long.iter().map(named)).collect();
    let heights = spots.iter().map(|spot| spot.place.1);
    let heights = heights.chain(roof.points.iter().map(|point| point.1));
    let y = Axis::log("GFLOP/s (logarithmic)", 10.0, log_range(10.0, heights));
    let x = Axis::log("intensity in FLOP/byte (logarithmic)", 2.0, range);
    page.figure(
        "roofline",
        ("The roofline of one thread, with the steps of attention below it", &says),
        (520, 440),
        |area| {
            let marks = Marks { spots: &spots, ..Marks::default() };
            line_chart(area, &x, &y, &[roof], marks)
        },
    )
}

fn spot(step: &Step, name: &str, colour: RGBColor, side: Side) -> Spot {
    let place = (step.counted.intensity(), step.speed());
    Spot { name: name.to_owned(), place, colour, side }
}

/// A step for n = 512.
fn grey(step: &Step) -> Spot {
    // One of them says what the grey ones are.
    let name = if step.counted.name == "softmax" { "n = 512" } else { "" };
    spot(step, name, MUTED, Side::Right)
}

/// A step for n = 4096.
fn named(step: &Step) -> Spot {
    let (colour, side) = match step.counted.name {
        "whole" => (VERMILION, Side::Right),
        "scores" | "scale" => (GREEN, Side::Left),
        _ => (GREEN, Side::Right),
    };
    spot(step, step.counted.name, colour, side)
}

/// The end of a sentence that begins with "They cross", where these lengths were timed.
fn crossing_in_words(crossing: &Crossing, shortest: f64, longest: f64) -> String {
    let end = |end: f64| fixed(end, 0);
    match crossing {
        Crossing::At(n) => format!("near $n = {}$", integer(n.round() as usize)),
        Crossing::Before => {
            format!("before $n = {}$, the shortest that was timed", end(shortest))
        }
        Crossing::Beyond => {
            format!("beyond $n = {}$, the longest that was timed", end(longest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossover_outside_of_the_timed_lengths_is_told_as_such() {
        let words = |crossing| crossing_in_words(&crossing, 64.0, 2048.0);
        assert!(words(Crossing::Before).contains("before $n = 64$"));
        assert!(words(Crossing::Beyond).contains("beyond $n = 2048$"));
    }
}
