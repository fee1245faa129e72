//! The time-line of kernel 4, as it is planned: who has the tensor cores when, if everything takes as long as its rates say.

use super::banks::D;
use super::machine::{COMPARISONS, EXPONENTIALS, LANES, TENSOR};
use super::source::{constant, has};
use crate::output::Page;
use anyhow::{Result, ensure};
use figures::format::{integer, percent};
use figures::{
    BLUE, Block, GREEN, MUTED, RGBColor, TEXT, VERMILION, label, line, svg, text,
};

/// Clocks from the request of a tile to its arrival: assumed, for none is stated.
const ARRIVAL: usize = 800;
const CONSUMERS: usize = 2;
const ROWS: usize = 64; // of a consumer
const STAGES: usize = 2;
const TILES: usize = 6;
/// Tiles drawn.
const SHOWN: usize = 4;

/// Something that takes its time, from one clock to another.
#[derive(Debug, Clone, Copy)]
struct Span {
    tile: usize,
    from: usize,
    to: usize,
}

#[derive(Default)]
struct Plan {
    scores: [Vec<Span>; CONSUMERS],
    outputs: [Vec<Span>; CONSUMERS],
    softmax: [Vec<Span>; CONSUMERS],
    /// From request to release.
    keys: Vec<Span>,
    values: Vec<Span>,
}

/// Clocks of a consumer's pieces of work for one tile.
#[derive(Debug, Clone, Copy)]
struct Lengths {
    product: usize,
    exponentials: usize,
    /// Beside each exponential, a difference and a sum, and a maximum and half a conversion, which are slower.
    others: usize,
    /// Of the output, when the maximum has moved.
    correction: usize,
}

impl Lengths {
    fn new(keys: usize) -> Self {
        let entries = ROWS * keys;
        Self {
            product: entries * D / TENSOR,
            exponentials: entries / EXPONENTIALS,
            others: entries * 2 / LANES + entries * 3 / 2 / COMPARISONS,
            correction: ROWS * D / LANES,
        }
    }

    fn softmax(self) -> usize {
        self.exponentials + self.others
    }

    /// The share of the time that the tensor cores work, far from the beginning and the end; a consumer waits for its
    /// softmax and correction, and for both of its products or, if they overlap, for one.
    fn busy(self, consumers: usize, overlap: bool) -> f64 {
        let waited_for = if overlap { 1 } else { 2 };
        let products = 2 * consumers * self.product;
        let one = waited_for * self.product + self.softmax() + self.correction;
        products as f64 / products.max(one) as f64
    }

    /// How long a softmax may take while two consumers keep the tensor cores busy.
    fn longest_softmax(self, overlap: bool) -> usize {
        let waited_for = if overlap { 1 } else { 2 };
        (2 * CONSUMERS - waited_for) * self.product - self.correction
    }
}

fn plan(lengths: Lengths) -> Plan {
    let Lengths { product, correction, .. } = lengths;
    let softmax = lengths.softmax();
    let mut plan = Plan::default();
    let mut tensor = 0; // when the tensor cores are free
    let mut ready = [0; CONSUMERS];
    let mut turn = 0; // when the consumer before has begun
    let (mut keys_there, mut values_there) = (vec![], vec![]);
    for tile in 0..=TILES {
        // The producer asks as soon as the stage is empty.
        let request = |of: &[Span], tile: usize| {
            tile.checked_sub(STAGES).map_or(0, |before: usize| of[before].to)
        };
        if tile < TILES {
            let from = request(&plan.keys, tile);
            keys_there.push(from + ARRIVAL);
            plan.keys.push(Span { tile, from, to: 0 });
        }
        if tile > 0 {
            let from = request(&plan.values, tile - 1)
                .max(plan.keys[(tile).min(TILES - 1)].from);
            values_there.push(from + ARRIVAL);
            plan.values.push(Span { tile: tile - 1, from, to: 0 });
        }
        for (consumer, ready) in ready.iter_mut().enumerate() {
            let mut begin = turn.max(*ready);
            let mut output_over = 0;
            if tile < TILES {
                begin = begin.max(keys_there[tile]);
                let from = begin.max(tensor);
                tensor = from + product;
                plan.scores[consumer].push(Span { tile, from, to: tensor });
                plan.keys[tile].to = plan.keys[tile].to.max(tensor);
                plan.softmax[consumer].push(Span {
                    tile,
                    from: tensor,
                    to: tensor + softmax,
                });
            }
            if tile > 0 {
                let from = tensor.max(begin).max(values_there[tile - 1]);
                tensor = from + product;
                output_over = tensor;
                plan.outputs[consumer].push(Span { tile: tile - 1, from, to: tensor });
                plan.values[tile - 1].to = plan.values[tile - 1].to.max(tensor);
            }
            turn = begin;
            let weighed = plan.softmax[consumer].last().map_or(0, |span| span.to);
            // The first tile finds nothing to correct.
            *ready = weighed.max(output_over) + if tile > 0 { correction } else { 0 };
        }
    }
    plan
}

pub fn generate(page: &mut Page) -> Result<()> {
    let keys = constant("hopper.cu", "KEYS")?;
    ensure!(constant("hopper.cu", "STAGES")? == STAGES);
    has(
        "hopper.cu",
        &[
            "constexpr int CONSUMERS = D == 128 ? 2 : 3;",
            "begin_output(o, weights, shared.v[stage(t - 1)]);\n        pass_turn(number);",
        ],
    )?;
    let lengths = Lengths::new(keys);
    let plan = plan(lengths);
    // From the second tile's scores to the last tile's: neither the beginning nor the end.
    let (first, last) = (plan.scores[0][1].from, plan.scores[0][TILES - 1].from);
    let busy: usize = plan
        .scores
        .iter()
        .chain(&plan.outputs)
        .flatten()
        .map(|span| span.to.min(last).saturating_sub(span.from.max(first)))
        .sum();
    let share = busy as f64 / (last - first) as f64;
    ensure!(share > 0.99, "the plan leaves the tensor cores idle: {share}");
    let one = plan.scores[0][0];
    let soft = plan.softmax[0][0];
    page.value("plan-product", integer(one.to - one.from));
    page.value("plan-softmax", integer(soft.to - soft.from));
    page.value("plan-entries", integer(ROWS * keys));
    page.value("plan-exponentials", integer(lengths.exponentials));
    page.value("plan-others", integer(lengths.others));
    page.value("plan-correction", integer(lengths.correction));
    page.value("plan-two-products", integer(2 * lengths.product));
    page.value("plan-waited-for", integer(lengths.softmax() + lengths.correction));
    page.value("plan-slack-turns", integer(lengths.longest_softmax(false)));
    page.value("plan-slack-both", integer(lengths.longest_softmax(true)));
    page.value("plan-busy-alone", percent(lengths.busy(1, false), 0));
    page.value("plan-busy-overlap", percent(lengths.busy(1, true), 0));
    // Turns alone are enough here, and either overlap alone is not with one consumer.
    ensure!(
        lengths.busy(CONSUMERS, false) == 1.0 && lengths.busy(CONSUMERS, true) == 1.0
    );
    ensure!(
        lengths.busy(1, false) < lengths.busy(1, true) && lengths.busy(1, true) < 1.0
    );
    // The two gaps at the beginning: the first keys come, and the first softmax has no product of its own beside it.
    ensure!(plan.scores[0][0].from == ARRIVAL && plan.scores[1][0].from == one.to);
    let gap = first - plan.scores[1][0].to;
    ensure!(gap == lengths.softmax() - lengths.product && gap > 0);
    page.value("plan-gap", integer(gap));
    // No two softmaxes at once, which would share the units; but for the very first.
    let apart = |tile: usize| plan.softmax[0][tile].to <= plan.softmax[1][tile].from;
    ensure!((1..TILES).all(apart));
    page.value("plan-arrival", integer(ARRIVAL));
    page.value("plan-busy", percent(share, 0));
    // One consumer alone would have to wait: its softmax is longer than the output that hides it.
    ensure!(soft.to - soft.from > one.to - one.from);
    page.file("pipeline.svg", drawing(&plan)?);
    Ok(())
}

fn drawing(plan: &Plan) -> Result<String> {
    const LEFT: i32 = 118;
    const WIDTH: i32 = 760;
    const ROW: i32 = 40;
    let end = plan.scores[CONSUMERS - 1][SHOWN].to;
    let x = |clock: usize| LEFT + (WIDTH as usize * clock.min(end) / end) as i32;
    let rows = [
        "tensor cores",
        "consumer 0",
        "consumer 1",
        "keys, stage 0",
        "keys, stage 1",
        "values, stage 0",
        "values, stage 1",
    ];
    let height = 16 + ROW * rows.len() as i32 + 52;
    let bar = |area: &figures::Area,
               row: usize,
               span: &Span,
               text: String,
               colour: RGBColor|
     -> Result<()> {
        if span.from >= end {
            return Ok(());
        }
        let (left, right) = (x(span.from) + 1, x(span.to) - 1);
        let corner = (left, 16 + ROW * row as i32);
        let text = if span.to > end { "" } else { &text };
        Block::new(corner, (right - left, ROW - 10), text, colour).draw(area)
    };
    svg(
        "gpu-pipeline",
        "The planned time-line of kernel 4",
        "Seven rows over time. In the first, the tensor cores are idle until the first keys have come and again after the first scores; from S₁ on \
         they go without a gap from the scores and the output of one consumer to those of the other. In the next two, each consumer's softmax lies beside the products of the other. The last four show \
         how long each stage of keys and of values is taken by a tile.",
        ((LEFT + WIDTH + 12) as u32, height as u32),
        |area| {
            for (i, name) in rows.iter().enumerate() {
                let y = 16 + ROW * i as i32 + (ROW - 10) / 2;
                text(area, (2, y), name)?;
            }
            for (consumer, colour) in [BLUE, VERMILION].into_iter().enumerate() {
                for span in &plan.scores[consumer] {
                    bar(area, 0, span, format!("S{}", subscript(span.tile)), colour)?;
                }
                for span in &plan.outputs[consumer] {
                    bar(area, 0, span, format!("O{}", subscript(span.tile)), colour)?;
                }
                for span in &plan.softmax[consumer] {
                    bar(
                        area,
                        1 + consumer,
                        span,
                        format!("A{}", subscript(span.tile)),
                        colour,
                    )?;
                }
            }
            for (first, spans, name, colour) in
                [(3, &plan.keys, "K", GREEN), (5, &plan.values, "V", MUTED)]
            {
                for span in spans {
                    bar(
                        area,
                        first + span.tile % STAGES,
                        span,
                        format!("{name}{}", subscript(span.tile)),
                        colour,
                    )?;
                }
            }
            let base = 16 + ROW * rows.len() as i32 + 2;
            line(area, &[(LEFT, base), (LEFT + WIDTH, base)], MUTED)?;
            for thousand in 0..=end / 1000 {
                let at = x(1000 * thousand);
                line(area, &[(at, base), (at, base + 5)], MUTED)?;
                label(area, (at, base + 16), &integer(1000 * thousand), TEXT)?;
            }
            label(area, (LEFT + WIDTH / 2, base + 34), "clocks", TEXT)
        },
    )
}

fn subscript(i: usize) -> char {
    char::from_u32(0x2080 + i as u32).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_the_tensor_cores_twice_and_no_tile_is_used_before_it_is_there() {
        let plan = plan(Lengths::new(128));
        let mut all: Vec<_> =
            plan.scores.iter().chain(&plan.outputs).flatten().copied().collect();
        all.sort_by_key(|span| span.from);
        assert!(all.windows(2).all(|pair| pair[0].to <= pair[1].from));
        assert_eq!(all.len(), 2 * CONSUMERS * TILES);
        for consumer in 0..CONSUMERS {
            for tile in 0..TILES {
                let [scores, output, softmax] =
                    [&plan.scores, &plan.outputs, &plan.softmax]
                        .map(|of| of[consumer][tile]);
                assert!(
                    plan.keys[tile].from + ARRIVAL <= scores.from
                        && scores.to <= plan.keys[tile].to
                );
                assert!(
                    plan.values[tile].from + ARRIVAL <= output.from
                        && output.to <= plan.values[tile].to
                );
                assert!(scores.to <= softmax.from && softmax.to <= output.from);
            }
        }
        for stage in [&plan.keys, &plan.values] {
            assert!(stage.windows(3).all(|tiles| tiles[0].to <= tiles[2].from));
        }
    }

    #[test]
    fn the_plan_keeps_the_tensor_cores_busy_as_long_as_the_softmax_allows() {
        let lengths = Lengths::new(128);
        let most = lengths.longest_softmax(true) - lengths.others;
        for (exponentials, full) in [(512, true), (most, true), (most + 64, false)] {
            let lengths = Lengths { exponentials, ..lengths };
            let plan = plan(lengths);
            let turns = TILES - 3;
            let time = plan.scores[0][TILES - 1].from - plan.scores[0][2].from;
            let busy = (2 * CONSUMERS * turns * lengths.product) as f64 / time as f64;
            assert_eq!(busy == 1.0, full, "{exponentials}");
            assert!((busy - lengths.busy(CONSUMERS, true)).abs() < 0.01, "{busy}");
        }
        let barely = Lengths {
            exponentials: lengths.longest_softmax(false) - lengths.others,
            ..lengths
        };
        assert_eq!(barely.busy(CONSUMERS, false), 1.0);
        let more = Lengths { exponentials: barely.exponentials + 1, ..barely };
        assert!(more.busy(CONSUMERS, false) < 1.0);
        assert_eq!(more.busy(CONSUMERS, true), 1.0);
    }
}
