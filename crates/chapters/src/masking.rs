//! Masking in numbers: four masks, the running example under a causal one, and what finite masks do in three types.

use crate::output::Page;
use anyhow::{Result, ensure};
use attention::{Mask, attention, attention_weights, example, scaled_scores, softmax};
use figures::format::{fixed, integer, percent, scientific, table, tuple};
use figures::{HeatMap, svg};
use half::f16;
use nalgebra::{DMatrix, DVector, dvector};

pub fn generate(page: &mut Page) -> Result<()> {
    four_masks(page)?;
    alignment(page)?;
    causal_sentence(page)?;
    after_softmax(page)?;
    large_and_negative(page)
}

/// 1 where a query may look, `hidden` where it may not.
fn allowed(mask: &Mask, n_q: usize, n_k: usize, hidden: f64) -> Result<DMatrix<f64>> {
    let allowed = mask.sized(n_q, n_k)?.allowed_matrix();
    Ok(allowed.map(|seen| if seen { 1.0 } else { hidden }))
}

fn four_masks(page: &mut Page) -> Result<()> {
    let sentence = example::river().tokens;
    let short = ["the", "boat", "left", "–", "–", "–"];
    let valid = [true, true, true, false, false, false];
    for (name, says, rows, mask) in [
        (
            "causal",
            "Row by row one more cell is filled, from the left.",
            &sentence,
            Mask::causal(),
        ),
        (
            "window",
            "A diagonal band, three cells wide, that ends at the diagonal.",
            &sentence,
            Mask::window(3)?,
        ),
        (
            "padding",
            "The first three columns are filled, in every row.",
            &short,
            Mask::padding(&valid)?,
        ),
        (
            "both",
            "The first three rows grow from one cell to three; the last three have the first three cells.",
            &short,
            Mask::causal().and(Mask::padding(&valid)?),
        ),
    ] {
        let matrix = allowed(&mask, 6, 6, f64::NAN)?;
        let map = HeatMap::pattern(&matrix, rows);
        let title = format!("Which keys each of six queries may see: {name}");
        let figure = svg(&format!("masking-{name}"), &title, says, map.size(), |area| {
            map.draw(area)
        })?;
        page.file(format!("{name}.svg"), figure);
    }
    Ok(())
}

fn alignment(page: &mut Page) -> Result<()> {
    let rows = ["river", "bank"];
    let bottom_right = allowed(&Mask::causal(), 2, 6, f64::NAN)?;
    let top_left = DMatrix::from_fn(2, 6, |i, j| if j <= i { 1.0 } else { f64::NAN });
    for (name, says, matrix) in [
        ("aligned-ends", "River sees the first five keys, bank all six.", bottom_right),
        ("aligned-starts", "River sees the first key, bank the first two.", top_left),
    ] {
        let map = HeatMap::pattern(&matrix, &rows);
        let title = "A causal mask of two queries over six keys";
        let figure = svg(&format!("masking-{name}"), title, says, map.size(), |area| {
            map.draw(area)
        })?;
        page.file(format!("{name}.svg"), figure);
    }
    Ok(())
}

/// The running example, with its hand-made projections, under a causal mask.
fn causal_sentence(page: &mut Page) -> Result<()> {
    let sentence = example::river();
    let [w_q, w_k, w_v] = example::projections();
    let (q, k, v) = (&sentence.x * w_q, &sentence.x * w_k, &sentence.x * w_v);
    let mask = Mask::causal();
    let sized = mask.sized(6, 6)?;
    let scores = scaled_scores(&q, &k)?;
    let full = scores.amax();
    let (_, free) = attention(&q, &k, &v, &Mask::none())?;
    let (_, causal) = attention(&q, &k, &v, &mask)?;
    let masked = sized.apply(scores)?;
    let additive = sized.additive::<f64>();
    let hidden = allowed(&mask, 6, 6, f64::NAN)?;
    let visible = causal.weights.component_mul(&hidden); // NaN where nothing may be seen
    let labels = &sentence.tokens;
    let mut map = |name: &str, title: &str, says: &str, map: HeatMap| -> Result<()> {
        let figure = svg(&format!("masking-{name}"), title, says, map.size(), |area| {
            map.draw(area)
        })?;
        page.file(format!("{name}.svg"), figure);
        Ok(())
    };
    map(
        "mask",
        "The causal mask M of six tokens",
        "Zeros on and below the diagonal, minus infinity above it.",
        HeatMap { decimals: Some(0), ..HeatMap::of_tokens(&additive, labels, 1.0) },
    )?;
    map(
        "scores",
        "The scores of “the boat left the river bank” with the mask added",
        "Numbers on and below the diagonal, minus infinity above it. Bank scores boat, river and bank high.",
        HeatMap::of_tokens(&masked, labels, full),
    )?;
    map(
        "weights-free",
        "Weights of “the boat left the river bank” without a mask",
        "A full six by six grid. The first row, “the”, is nearly even.",
        HeatMap::of_tokens(&free.weights, labels, 0.75),
    )?;
    map(
        "weights",
        "Weights of “the boat left the river bank” under a causal mask",
        "A lower triangle. The first row is one at the first token and zero elsewhere; the last row is that of the \
         weights without a mask.",
        HeatMap::of_tokens(&visible, labels, 0.75),
    )?;
    let (left, boat, bank) = (2, 1, 5);
    ensure!(causal.weights.row(0)[0] == 1.0, "the first token does not see itself alone");
    ensure!(
        (causal.weights.row(bank) - free.weights.row(bank)).amax() < 1e-14,
        "the last token sees everything in both, but its weights differ"
    );
    // Of two visible weights the ratio stays.
    let ratio = |w: &DMatrix<f64>| w[(left, boat)] / w[(left, left)];
    ensure!((ratio(&causal.weights) / ratio(&free.weights) - 1.0).abs() < 1e-12);
    page.value("left-boat-free", percent(free.weights[(left, boat)], 0));
    page.value("left-boat-causal", percent(causal.weights[(left, boat)], 0));
    page.value("left-visible", percent(free.weights.row(left).columns(0, 3).sum(), 0));
    Ok(())
}

/// Weights that are multiplied by 0 after softmax: what is left of each row.
fn after_softmax(page: &mut Page) -> Result<()> {
    let sentence = example::river();
    let [w_q, w_k, _] = example::projections();
    let (q, k) = (&sentence.x * w_q, &sentence.x * w_k);
    let (weights, _) = attention_weights(&q, &k, &Mask::none())?;
    let late = weights.component_mul(&allowed(&Mask::causal(), 6, 6, 0.0)?);
    let sums = late.column_sum();
    ensure!((sums[5] - 1.0).abs() < 1e-12 && sums.iter().take(5).all(|&sum| sum < 0.9));
    page.value("row-sums", tuple(&sums, 2));

    // The last token changes, and a row that must not see it changes.
    let mut changed = sentence.x.clone();
    changed.row_mut(5).copy_from(&(3.0 * sentence.x.row(5)));
    let [w_q, w_k, _] = example::projections();
    let (moved, _) =
        attention_weights(&(&changed * w_q), &(&changed * w_k), &Mask::none())?;
    page.value("boat-before", fixed(late[(1, 1)], 2));
    page.value("boat-after", fixed(moved[(1, 1)], 2));
    ensure!((late[(1, 1)] - moved[(1, 1)]).abs() > 0.1, "the leak is too small to show");
    Ok(())
}

/// −10⁹ in the place of −∞, in three types.
fn large_and_negative(page: &mut Page) -> Result<()> {
    let scores = dvector![2.0_f64, 1.0, 0.1];
    let hide = [false, true, true];

    // One key is left to see: all types agree, to the bit.
    let partly = DVector::from_fn(3, |j, _| scores[j] + if hide[j] { -1e9 } else { 0.0 });
    let partly_32 = partly.map(|s| s as f32);
    ensure!(softmax(&partly)?.as_slice() == [1.0, 0.0, 0.0]);
    ensure!(softmax(&partly_32)?.as_slice() == [1.0, 0.0, 0.0]);

    // Nothing is left to see.
    let double = scores.map(|s| s + -1e9);
    let single = scores.map(|s| s as f32 + -1e9_f32);
    let half = scores.map(|s| f16::from_f64(s) + f16::from_f64(-1e9));
    let p_double = softmax(&double)?;
    let p_single = softmax(&single)?;
    ensure!(
        (&p_double - softmax(&scores)?).amax() < 1e-7,
        "in f64 it is not the free row"
    );
    ensure!(p_single.iter().all(|&p| p == 1.0 / 3.0), "in f32 the row is not uniform");
    ensure!(half.iter().all(|&s| s == f16::NEG_INFINITY), "f16 holds −10⁹");
    let largest = half.iter().copied().fold(f16::NEG_INFINITY, f16::max);
    let exponents: Vec<f16> = half.iter().map(|&s| s - largest).collect();
    ensure!(exponents.iter().all(|x| x.is_nan()), "−∞ − (−∞) is a number in f16");
    let nothing = DVector::from_element(3, f64::NEG_INFINITY);
    let p_nothing = softmax(&nothing)?;
    ensure!(p_nothing.iter().all(|&p| p == 0.0));

    let row = |name: &str, becomes: String, weights: String| {
        vec![name.to_owned(), becomes, weights]
    };
    let show = |p: &DVector<f64>| format!("$ {} $", tuple(p, 3));
    page.file(
        "finite.md",
        table(
            &["added, in type", "the score 2 becomes", "weights"],
            &[
                row(
                    "$-10^9$ in `f64`",
                    format!("$ {} $", fixed(double[0], 0)),
                    show(&p_double),
                ),
                row(
                    "$-10^9$ in `f32`",
                    format!("$ {} $", fixed(f64::from(single[0]), 0)),
                    show(&p_single.map(f64::from)),
                ),
                row(
                    "$-10^9$ in `f16`",
                    "$−\\infty$".to_owned(),
                    "NaN, three times".to_owned(),
                ),
                row("$-\\infty$, this crate", "$−\\infty$".to_owned(), show(&p_nothing)),
            ],
        ),
    );
    page.value("f16-max", integer(f16::MAX.to_f64() as usize));
    let next = |x: f64| x.next_up() - x;
    page.value("spacing-64", scientific(next(-1e9), 1));
    let x = -1e9_f32;
    page.value("spacing-32", fixed(f64::from(x.next_up() - x), 0));
    Ok(())
}
