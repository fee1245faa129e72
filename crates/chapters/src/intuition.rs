//! Why let every position look at every other: one word in two sentences, a smoother, and the gradient's way back.

use crate::output::Page;
use anyhow::{Result, ensure};
use attention::{Mask, SingleHeadAttention, attention, example};
use figures::format::{fixed, integer, percent, scientific, table, tuple};
use figures::{
    Axis, BLUE, GREEN, HeatMap, Line, Marks, TEXT, VERMILION, line_chart, svg,
};
use nalgebra::{DMatrix, DVector, RowDVector};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use std::f64::consts::TAU;

pub fn generate(page: &mut Page) -> Result<()> {
    one_word_in_two_sentences(page)?;
    lookup(page)?;
    smoothing(page)?;
    gradient_paths(page)
}

/// The same vector for "bank" goes in, and two different ones come out.
fn one_word_in_two_sentences(page: &mut Page) -> Result<()> {
    let (river, city) = (example::river(), example::city());
    let bank = 5;
    let mut rows = vec![];
    let mut row = |name: &str, x: &DMatrix<f64>| {
        let numbers = x.row(bank).iter().map(|&x| fixed(x, 2)).collect::<Vec<_>>();
        rows.push([vec![name.to_owned()], numbers].concat());
    };
    row("the vector of “bank”, in any sentence", &river.x);
    for (name, sentence) in [("river", &river), ("city", &city)] {
        let (output, cache) =
            attention(&sentence.x, &sentence.x, &sentence.x, &Mask::none())?;
        row(&format!("after attention in “{}”", sentence.tokens.join(" ")), &output);
        page.value(format!("{name}-water"), fixed(output[(bank, 0)], 2));
        page.value(format!("{name}-money"), fixed(output[(bank, 1)], 2));
        page.value(format!("{name}-weight-word"), percent(cache.weights[(bank, 4)], 0));
        let weights = DMatrix::from_rows(&[cache.weights.row(bank)]);
        let map = HeatMap {
            matrix: &weights,
            rows: &["bank"],
            columns: &sentence.tokens,
            decimals: Some(2),
            full: 0.5,
        };
        let figure = svg(
            &format!("intuition-{name}"),
            &format!(
                "How “bank” shares its attention in “{}”",
                sentence.tokens.join(" ")
            ),
            "A row of six cells, one for each word. The darkest are the last two: the word before, and “bank” itself.",
            map.size(),
            |area| map.draw(area),
        )?;
        page.file(format!("{name}.svg"), figure);
        if name == "river" {
            let products = &sentence.x * sentence.x.row(bank).transpose();
            page.value("products", tuple(&products, 2));
            let exponentials: Vec<f64> =
                products.iter().map(|p| (p / 2.0).exp()).collect();
            page.value("exponentials", tuple(&exponentials, 4));
            page.value("exponential-sum", fixed(exponentials.iter().sum(), 4));
        }
    }
    let header = [&["vector"], &example::DIMENSIONS[..]].concat();
    page.file("bank.md", table(&header, &rows));
    Ok(())
}

/// A hash table finds one key or none; a soft lookup mixes all values.
fn lookup(page: &mut Page) -> Result<()> {
    let keys = DMatrix::from_row_slice(3, 2, &[4.0, 0.0, 0.0, 4.0, -4.0, 0.0]);
    let values = DMatrix::from_row_slice(3, 1, &[10.0, 20.0, 30.0]);
    let query = DMatrix::from_row_slice(1, 2, &[2.0, 2.0]); // between the first two keys
    let (_, cache) = attention(&query, &keys, &values, &Mask::none())?;
    page.value("lookup-weights", tuple(&cache.weights, 3));
    Ok(())
}

/// Points on a circle as keys, all of norm 1.
fn on_circle(angles: &[f64]) -> DMatrix<f64> {
    DMatrix::from_fn(angles.len(), 2, |i, c| {
        if c == 0 { angles[i].cos() } else { angles[i].sin() }
    })
}

/// Attention as a kernel smoother: `q` scaled so that the kernel has standard deviation `sigma`.
///
/// exp(−‖q − k‖² / 2σ²) is exp(q·k / σ²) times what does not depend on the key, where all keys have one norm. Attention
/// computes exp(q'·k / √d_k), so q' = q √d_k / σ².
fn smooth(
    queries: &DMatrix<f64>,
    keys: &DMatrix<f64>,
    values: &DMatrix<f64>,
    sigma: f64,
) -> Result<DMatrix<f64>> {
    let scaled = queries * ((queries.ncols() as f64).sqrt() / sigma.powi(2));
    Ok(attention(&scaled, keys, values, &Mask::none())?.0)
}

/// The estimator of Nadaraya and Watson, by its definition.
fn nadaraya_watson(
    queries: &DMatrix<f64>,
    keys: &DMatrix<f64>,
    values: &DMatrix<f64>,
    sigma: f64,
) -> DMatrix<f64> {
    DMatrix::from_fn(queries.nrows(), 1, |i, _| {
        let kernel = |j: usize| {
            (-(queries.row(i) - keys.row(j)).norm_squared() / (2.0 * sigma.powi(2))).exp()
        };
        let total: f64 = (0..keys.nrows()).map(kernel).sum();
        (0..keys.nrows()).map(|j| kernel(j) * values[j]).sum::<f64>() / total
    })
}

fn smoothing(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let truth = |angle: f64| angle.sin() + 0.5 * (3.0 * angle).cos();
    let (count, noise) = (60, 0.3);
    page.value("smoothing-count", integer(count));
    page.value("smoothing-noise", fixed(noise, 1));
    let mut angles: Vec<f64> = (0..count).map(|_| rng.random_range(0.0..TAU)).collect();
    angles.sort_by(f64::total_cmp);
    let noisy = |&angle: &f64| {
        let z: f64 = StandardNormal.sample(rng);
        truth(angle) + noise * z
    };
    let values = DMatrix::from_iterator(
        angles.len(),
        1,
        angles.iter().map(noisy).collect::<Vec<_>>(),
    );
    let keys = on_circle(&angles);
    let grid: Vec<f64> = (0..=240).map(|i| TAU * f64::from(i) / 240.0).collect();
    let queries = on_circle(&grid);

    let mut lines = vec![Line {
        name: "the curve behind the dots".to_owned(),
        colour: TEXT,
        dashed: true,
        points: grid.iter().map(|&angle| (angle, truth(angle))).collect(),
    }];
    for (name, sigma, colour) in
        [("narrow", 0.03, VERMILION), ("middle", 0.2, BLUE), ("wide", 1.0, GREEN)]
    {
        let estimate = smooth(&queries, &keys, &values, sigma)?;
        let difference =
            (&estimate - nadaraya_watson(&queries, &keys, &values, sigma)).amax();
        ensure!(difference < 1e-12, "attention is not the smoother: {difference}");
        let error = grid
            .iter()
            .zip(estimate.iter())
            .map(|(&a, e)| (truth(a) - e).powi(2))
            .sum::<f64>();
        page.value(
            format!("smoothing-error-{name}"),
            fixed((error / grid.len() as f64).sqrt(), 2),
        );
        lines.push(Line {
            name: format!("σ = {sigma}"),
            colour,
            dashed: false,
            points: grid.iter().copied().zip(estimate.iter().copied()).collect(),
        });
    }
    let dots: Vec<_> = angles.iter().copied().zip(values.iter().copied()).collect();
    page.file(
        "smoothing.svg",
        svg(
            "intuition-smoothing",
            "Attention as a smoother, for three widths of its kernel",
            "Noisy dots around a wavy curve. A narrow kernel jumps from dot to dot, a middle one follows the curve, a \
             wide one is almost flat.",
            (520, 350),
            |area| {
                let x = Axis::linear("angle θ (radians)", 0.0..TAU);
                let y = Axis::linear("value", -2.5..3.5);
                line_chart(area, &x, &y, &lines, Marks { dots: &dots, ..Marks::default() })
            },
        )?,
    );

    let mut unequal = keys.clone();
    for (j, mut row) in unequal.row_iter_mut().enumerate() {
        row *= if j % 2 == 0 { 1.0 } else { 1.1 };
    }
    let difference = (smooth(&queries, &unequal, &values, 0.2)?
        - nadaraya_watson(&queries, &unequal, &values, 0.2))
    .amax();
    page.value("smoothing-difference-unequal", fixed(difference, 2));
    Ok(())
}

/// A recurrent net as small as it can be: one vector `h` carries all that was read.
///
/// Shapes: `w_x` and `w_h` (d, d); a token and the state are rows (1, d).
// ANCHOR: rnn
struct TanhRnn {
    w_x: DMatrix<f64>,
    w_h: DMatrix<f64>,
}

impl TanhRnn {
    /// The states after each token of `x` (n, d): `h_t = tanh(x_t W_x + h_{t−1} W_h)`.
    fn states(&self, x: &DMatrix<f64>) -> Vec<RowDVector<f64>> {
        let mut states: Vec<RowDVector<f64>> = vec![];
        for x_t in x.row_iter() {
            let mut a = x_t * &self.w_x;
            if let Some(h) = states.last() {
                a += h * &self.w_h; // all that is known of the past
            }
            states.push(a.map(f64::tanh));
        }
        states
    }

    /// From the last state, whose gradient is `grad_h`, back to the first token.
    fn gradient_of_first_token(
        &self,
        x: &DMatrix<f64>,
        grad_h: &RowDVector<f64>,
    ) -> RowDVector<f64> {
        let mut grad_h = grad_h.clone();
        for (t, h) in self.states(x).iter().enumerate().rev() {
            // h = tanh(a), and tanh' = 1 − tanh²
            let grad_a = grad_h.component_mul(&h.map(|h| 1.0 - h * h));
            // a = x_t W_x + h_{t−1} W_h
            grad_h = if t == 0 {
                grad_a * self.w_x.transpose()
            } else {
                grad_a * self.w_h.transpose()
            };
        }
        grad_h
    }
}
// ANCHOR_END: rnn

const WIDTH: usize = 64;
const DRAWS: u64 = 40;

fn normal(
    rows: usize,
    columns: usize,
    deviation: f64,
    rng: &mut ChaCha8Rng,
) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| {
        let z: f64 = StandardNormal.sample(rng);
        deviation * z
    })
}

/// The norm of the gradient that reaches token 0 from the last output, averaged over draws as a geometric mean.
fn mean_norm(norm: impl Fn(&mut ChaCha8Rng) -> Result<f64>) -> Result<f64> {
    let mut sum = 0.0;
    for seed in 0..DRAWS {
        let norm = norm(&mut ChaCha8Rng::seed_from_u64(seed))?;
        ensure!(norm > 0.0, "seed {seed}: a gradient of zero has no logarithm");
        sum += norm.ln();
    }
    Ok((sum / DRAWS as f64).exp())
}

fn norm_through_rnn(n: usize, gain: f64) -> Result<f64> {
    let deviation = 1.0 / (WIDTH as f64).sqrt();
    mean_norm(|rng| {
        let rnn = TanhRnn {
            w_x: normal(WIDTH, WIDTH, deviation, rng),
            w_h: normal(WIDTH, WIDTH, gain * deviation, rng),
        };
        let grad_h = normal(1, WIDTH, deviation, rng).row(0).into_owned();
        let x = normal(n, WIDTH, 1.0, rng);
        Ok(rnn.gradient_of_first_token(&x, &grad_h).norm())
    })
}

fn norm_through_attention(n: usize) -> Result<f64> {
    mean_norm(|rng| {
        let layer = SingleHeadAttention::xavier(WIDTH, WIDTH, WIDTH, rng)?;
        let grad_last = normal(1, WIDTH, 1.0 / (WIDTH as f64).sqrt(), rng);
        let x = normal(n, WIDTH, 1.0, rng);
        let (_, cache) = layer.forward(&x, &Mask::causal())?;
        let mut grad_output = DMatrix::zeros(n, WIDTH);
        grad_output.row_mut(n - 1).copy_from(&grad_last.row(0));
        Ok(layer.backward(&cache, &grad_output)?.x.row(0).norm())
    })
}

/// The slope of a straight line through the points, by least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let x = DVector::from_iterator(points.len(), points.iter().map(|p| p.0));
    let y = DVector::from_iterator(points.len(), points.iter().map(|p| p.1));
    let x = x.add_scalar(-x.mean());
    x.dot(&y) / x.norm_squared()
}

fn gradient_paths(page: &mut Page) -> Result<()> {
    let lengths = [2, 4, 8, 16, 32, 64, 128, 256];
    let gains = [
        (0.5, VERMILION, true),
        (1.0, VERMILION, false),
        (2.0, GREEN, true),
        (4.0, GREEN, false),
    ];
    let mut lines = vec![];
    let mut columns = vec![];
    for (gain, colour, dashed) in gains {
        let norms = lengths
            .iter()
            .map(|&n| norm_through_rnn(n, gain))
            .collect::<Result<Vec<_>>>()?;
        let name = format!("recurrent, gain {gain}");
        lines.push((name, colour, dashed, norms.clone()));
        columns.push(norms);
    }
    let attention =
        lengths.iter().map(|&n| norm_through_attention(n)).collect::<Result<Vec<_>>>()?;
    lines.push(("attention".to_owned(), BLUE, false, attention.clone()));
    columns.push(attention.clone());

    let logs = |norms: &[f64], x: fn(f64) -> f64| -> Vec<(f64, f64)> {
        lengths
            .iter()
            .zip(norms)
            .skip(2)
            .map(|(&n, norm)| (x(n as f64), norm.ln()))
            .collect()
    };
    page.value("attention-slope", fixed(slope(&logs(&attention, f64::ln)), 2));
    for (name, norms) in ["half", "one", "two", "four"].iter().zip(&columns) {
        let factor = slope(&logs(norms, |n| n)).exp(); // for each further token
        // What the chapter says in words: these vanish, this is nearly level, this explodes.
        let as_said = match *name {
            "half" | "one" => factor < 0.9,
            "two" => (factor - 1.0).abs() < 0.05,
            _ => factor > 1.1,
        };
        ensure!(as_said, "gain {name} has a factor of {factor}");
        if *name != "half" {
            // With gain 4 the network is chaotic, and the second decimal is the last bit's.
            let decimals = if *name == "four" { 1 } else { 2 };
            page.value(format!("rnn-factor-{name}"), fixed(factor, decimals));
        }
        if *name == "one" {
            page.value("rnn-256-one", scientific(norms[7], 0));
        }
    }
    page.value("draws", DRAWS.to_string());
    page.value("width", WIDTH.to_string());

    let line = |(name, colour, dashed, norms): (String, _, _, Vec<f64>)| Line {
        name,
        colour,
        dashed,
        points: lengths.iter().map(|&n| n as f64).zip(norms).collect(),
    };
    let lines: Vec<_> = lines.into_iter().map(line).collect();
    page.file(
        "gradient-paths.svg",
        svg(
            "intuition-gradient-paths",
            "The gradient that reaches the first token, against the length of the sequence",
            "On logarithmic axes the line of attention falls slowly and straight. The lines of recurrent networks with gain \
             a half and one plunge out of the picture, with gain two the line stays nearly level, with gain four it leaves at the top.",
            (520, 350),
            |area| {
                let x = Axis::log("tokens n", 2.0, 2.0..256.0);
                let y = Axis::log("gradient at the first token", 10.0, 1e-16..1e16);
                line_chart(area, &x, &y, &lines, Marks::default())
            },
        )?,
    );
    let rows: Vec<Vec<String>> = lengths
        .iter()
        .enumerate()
        .map(|(i, &n)| {
            let cells =
                columns.iter().map(|norms| format!("${}$", scientific(norms[i], 0)));
            [vec![integer(n)], cells.collect()].concat()
        })
        .collect();
    let header = ["tokens", "gain 0.5", "gain 1", "gain 2", "gain 4", "attention"];
    page.file("gradient-paths.md", table(&header, &rows));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::gradient_check;

    #[test]
    fn the_recurrent_gradient_is_the_measured_one() {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let rnn = TanhRnn { w_x: normal(3, 3, 0.5, rng), w_h: normal(3, 3, 0.5, rng) };
        let (x, grad_h) =
            (normal(5, 3, 1.0, rng), normal(1, 3, 1.0, rng).row(0).into_owned());
        let first = x.rows(0, 1).into_owned();
        let analytic = DMatrix::from_rows(&[rnn.gradient_of_first_token(&x, &grad_h)]);
        let check = gradient_check(&first, &analytic, 1e-5, |first| {
            let mut x = x.clone();
            x.row_mut(0).copy_from(&first.row(0));
            Ok(rnn.states(&x)[4].dot(&grad_h))
        });
        assert!(check.unwrap().max_relative_error < 1e-7);
    }
}
