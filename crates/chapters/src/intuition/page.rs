//! The chapter's page: values, tables and figures.

use super::facts::{self, curve, grid};
use super::recurrent::{self, LENGTHS, Norms, through_recurrence};
use crate::figures::format::{fixed, integer, percent, tuple};
use crate::figures::{
    Area, Axis, BLUE, Color, GREEN, Line, MUTED, Marks, RGBColor, TEXT, VERMILION, arrow,
    line, line_chart, text, text_box,
};
use crate::output::{Page, sum_of_products};
use crate::sentences::{BANK, BOAT, RIVER, Steps, unprojected};
use anyhow::Result;
use attention::example::{self, Sentence};
use nalgebra::DMatrix;
use std::f64::consts::TAU;

pub fn generate(page: &mut Page) -> Result<()> {
    one_word_in_two_sentences(page)?;
    page.value("lookup-weights", tuple(&facts::lookup()?, 3));
    smoothing(page)?;
    three_designs(page)?;
    gradient_paths(page)
}

/// Three paths from an earlier word to a later one: recurrence, convolution, attention.
fn three_designs(page: &mut Page) -> Result<()> {
    let words = (
        "Three ways from “boat” to “bank”",
        "The six words of the sentence three times. In the first row an arrow leads from each word to the next one, and those from \
         “boat” to “bank” are marked. In the second, each word of a layer hears from the words around it in the layer below, and a \
         path of two layers is marked. In the third, arrows lead from every word straight to “bank”; the one from “boat” is marked.",
    );
    page.figure("designs", words, (640, 416), draw_designs)
}

fn draw_designs(area: &Area) -> Result<()> {
    const LEFT: i32 = 150;
    const STEP: i32 = 88;
    let tokens = example::river().tokens;
    let x = |i: usize| LEFT + STEP * i as i32;
    let row = |y: i32, colour: RGBColor| {
        tokens.iter().enumerate().try_for_each(|(i, token)| {
            text_box(area, (x(i) - 34, y - 14), (68, 28), token, colour)
        })
    };
    let colour = |marked: bool| if marked { VERMILION } else { MUTED };

    text(area, (0, 24), "recurrence")?;
    row(24, BLUE)?;
    for i in 0..BANK {
        let marked = (BOAT..BANK).contains(&i);
        arrow(area, &[(x(i) + 34, 24), (x(i + 1) - 35, 24)], colour(marked))?;
    }

    text(area, (0, 158), "convolution")?;
    const MIDDLE: usize = (BOAT + BANK) / 2;
    for (y, from, to) in [(224, BOAT, MIDDLE), (158, MIDDLE, BANK)] {
        row(y, GREEN)?;
        for (i, j) in (0..6_usize).flat_map(|i| (0..6).map(move |j| (i, j))) {
            // A window of five words, two to each side.
            if i.abs_diff(j) <= 2 && (i, j) != (from, to) {
                line(area, &[(x(i), y - 14), (x(j), y - 52)], MUTED.mix(0.5))?;
            }
        }
        arrow(area, &[(x(from), y - 14), (x(to), y - 52)], VERMILION)?;
    }
    row(92, GREEN)?;

    text(area, (0, 350), "attention")?;
    row(390, BLUE)?;
    for i in (0..6).filter(|&i| i != BOAT).chain([BOAT]) {
        arrow(area, &[(x(i), 376), (x(BANK), 324)], colour(i == BOAT))?;
    }
    row(310, BLUE)
}

/// The same vector for "bank" goes in, and two different ones come out.
fn one_word_in_two_sentences(page: &mut Page) -> Result<()> {
    let (river, city) = (example::river(), example::city());
    weights_of_bank(page, &river)?;
    let row = |name: String, x: &DMatrix<f64>| {
        let numbers = x.row(BANK).iter().map(|&x| fixed(x, 2)).collect();
        [vec![name], numbers].concat()
    };
    let mut rows =
        vec![row("the vector of “bank”, in any sentence".to_owned(), &river.x)];
    let plain = [&river.x, &city.x].map(facts::plain_average);
    for (name, Sentence { tokens, x }) in [("river", river), ("city", city)] {
        let Steps { weights, output, .. } = unprojected(&x)?;
        let sentence = tokens.join(" ");
        rows.push(row(format!("after attention in “{sentence}”"), &output));
        page.value(format!("{name}-weight-word"), percent(weights[(BANK, 4)], 0));
    }
    for (name, plain) in ["first", "second"].into_iter().zip(&plain) {
        rows.push(row(format!("a plain average of the {name} sentence"), plain));
    }
    let header = [&["vector"], &example::DIMENSIONS[..]].concat();
    page.table("bank", &header, &rows);
    Ok(())
}

/// A figure from the dot products of "bank" to its weights.
fn weights_of_bank(page: &mut Page, river: &Sentence) -> Result<()> {
    let Steps { products, scores, weights, output, .. } = unprojected(&river.x)?;
    let (word, bank) = (river.x.row(RIVER), river.x.row(BANK));
    let terms = word.iter().zip(bank.iter()).map(|(&a, &b)| (fixed(a, 1), fixed(b, 1)));
    page.value(
        "product-river-bank",
        sum_of_products(terms, fixed(products[(BANK, RIVER)], 2)),
    );
    let water = (0..6).map(|j| (weights[(BANK, j)], river.x[(j, 0)]));
    let terms = water.map(|(weight, water)| (fixed(weight, 3), fixed(water, 1)));
    page.value("water-of-bank", sum_of_products(terms, fixed(output[(BANK, 0)], 2)));
    let exponentials = scores.row(BANK).map(f64::exp);
    let row = |(j, token): (usize, &&str)| {
        let numbers = [products[(BANK, j)], scores[(BANK, j)], exponentials[j]];
        let weight = percent(weights[(BANK, j)], 1);
        [&[(*token).to_owned()][..], &numbers.map(|x| fixed(x, 2)), &[weight]].concat()
    };
    let sum = ["sum".to_owned(), String::new(), String::new()];
    let sum = [&sum[..], &[fixed(exponentials.sum(), 2), percent(1.0, 0)]].concat();
    let words = river.tokens.iter().enumerate().map(row);
    let header = ["word", "product with “bank”", "divided by 2", "exponential", "weight"];
    page.table("steps", &header, &words.chain([sum]).collect::<Vec<_>>());
    Ok(())
}

/// Attention as a smoother of noisy points, for three widths of its weighting function.
fn smoothing(page: &mut Page) -> Result<()> {
    page.value("smoothing-count", integer(facts::POINTS));
    let points = facts::points();
    let behind = grid().into_iter().map(|angle| (angle, curve(angle)));
    let mut lines = vec![Line::new("the curve behind the dots", TEXT, behind).dashed()];
    for (sigma, colour) in [(0.03, VERMILION), (0.2, BLUE), (1.0, GREEN)] {
        let estimate = points.smoothed(sigma)?;
        let places = grid().into_iter().zip(estimate.iter().copied());
        lines.push(Line::new(format!("σ = {sigma}"), colour, places));
    }
    let values = points.values.iter().copied();
    let dots: Vec<_> = points.angles.iter().copied().zip(values).collect();
    page.figure(
        "smoothing",
        (
            "Attention as a smoother, for three widths of its weighting function",
            "Noisy dots around a wavy curve. A narrow weighting function jumps from dot to dot, a middle one follows the curve, a \
             wide one is almost flat.",
        ),
        (520, 350),
        |area| {
            let x = Axis::linear("angle θ (radians)", 0.0..TAU);
            let y = Axis::linear("value", -2.5..3.5);
            line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
        },
    )
}

/// The gradient that reaches the first token, through recurrent networks and through attention.
fn gradient_paths(page: &mut Page) -> Result<()> {
    page.value("draws", recurrent::DRAWS.to_string());
    page.value("width", recurrent::WIDTH.to_string());
    let attention = recurrent::through_attention()?;
    page.value("attention-slope", fixed(recurrent::power(&attention), 2));
    let [half, one, two, four] = [0.5, 1.0, 2.0, 4.0].map(through_recurrence);
    let (half, one, two, four) = (half?, one?, two?, four?);

    let line = |name, colour, norms: Norms| {
        Line::new(name, colour, LENGTHS.map(|n| n as f64).into_iter().zip(norms))
    };
    let lines = [
        line("recurrent, gain 0.5", VERMILION, half).dashed(),
        line("recurrent, gain 1", VERMILION, one),
        line("recurrent, gain 2", GREEN, two).dashed(),
        line("recurrent, gain 4", GREEN, four),
        line("attention", BLUE, attention),
    ];
    page.figure(
        "gradient-paths",
        (
            "The gradient that reaches the first token, against the length of the sequence",
            "On logarithmic axes the line of attention falls slowly and straight. The lines of recurrent networks with gain \
             a half and one plunge out of the picture, with gain two the line stays nearly level, with gain four it leaves at the top.",
        ),
        (520, 350),
        |area| {
            let x = Axis::log("tokens n", 2.0, 2.0..256.0);
            let y = Axis::log("gradient at the first token", 10.0, 1e-16..1e16);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}
