//! Gradient checking: how far a measured slope is off, against its step, and what a check sees and does not see.

use crate::output::Page;
use anyhow::{Result, ensure};
use attention::{
    AttentionCache, GradientCheck, LayerGradients, Mask, MultiHeadAttention, Parameters,
    SingleHeadAttention, attention, attention_backward, gradient_check,
    numerical_gradient,
};
use figures::format::{fixed, integer, scientific, table};
use figures::{Axis, BLUE, GREEN, Line, Marks, VERMILION, line_chart, svg};
use nalgebra::{DMatrix, RealField, convert};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// What a check asks for, here as in the tests.
const THRESHOLD: f64 = 1e-5;
const EPSILON: f64 = 1e-5;

pub fn generate(page: &mut Page) -> Result<()> {
    the_u(page)?;
    every_gradient(page)?;
    faults(page)
}

/// A matrix of numbers between −1 and 1.
pub fn random(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
}

/// Fresh parameters, with biases that are not zero.
pub fn parameters(
    d_model: usize,
    d_k: usize,
    d_v: usize,
    rng: &mut ChaCha8Rng,
) -> Result<Parameters<f64>> {
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng)?;
    for (name, entries) in parameters.named_mut() {
        if name.starts_with('b') {
            entries.iter_mut().for_each(|b| *b = rng.random_range(-0.5..0.5));
        }
    }
    Ok(parameters)
}

// ---------------------------------------------------------------------------------------------------- the U

/// A layer without biases, an input and the projection P of its loss, `r`, in either precision.
struct Problem<T: RealField + Copy> {
    x: DMatrix<T>,
    w_q: DMatrix<T>,
    w_k: DMatrix<T>,
    w_v: DMatrix<T>,
    w_o: DMatrix<T>,
    r: DMatrix<T>,
}

impl Problem<f64> {
    /// Of numbers that `f32` holds exactly, so that both precisions are asked the same question.
    fn new(seed: u64) -> Result<Self> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let p = Parameters::xavier(4, 3, 2, rng)?;
        let (x, r) = (2.0 * random(5, 4, rng), random(5, 4, rng));
        let [x, w_q, w_k, w_v, w_o, r] =
            [x, p.w_q, p.w_k, p.w_v, p.w_o, r].map(|m| m.map(|a| f64::from(a as f32)));
        Ok(Problem { x, w_q, w_k, w_v, w_o, r })
    }

    fn to_f32(&self) -> Problem<f32> {
        let convert = |m: &DMatrix<f64>| m.map(|x| x as f32);
        Problem {
            x: convert(&self.x),
            w_q: convert(&self.w_q),
            w_k: convert(&self.w_k),
            w_v: convert(&self.w_v),
            w_o: convert(&self.w_o),
            r: convert(&self.r),
        }
    }

    /// The gradient by x, from the crate.
    fn gradient(&self) -> Result<DMatrix<f64>> {
        let mut layer = SingleHeadAttention::<f64>::xavier(
            4,
            3,
            2,
            &mut ChaCha8Rng::seed_from_u64(0),
        )?;
        let p = &mut layer.parameters;
        for (to, from) in [
            (&mut p.w_q, &self.w_q),
            (&mut p.w_k, &self.w_k),
            (&mut p.w_v, &self.w_v),
            (&mut p.w_o, &self.w_o),
        ] {
            to.copy_from(from);
        }
        let (output, cache) = layer.forward(&self.x, &Mask::none())?;
        let off = output.dot(&self.r) - self.loss(&self.x);
        ensure!(off.abs() < 1e-14, "the loops do not compute the layer's loss: {off}");
        Ok(layer.backward(&cache, &self.r)?.x)
    }
}

impl<T: RealField + Copy> Problem<T> {
    /// The layer's loss Σ output ⊙ P once more, from additions, multiplications, divisions and a root alone.
    ///
    /// The left arm of the U is made of last digits. These operations have the same last digit on every machine; the
    /// system's exponential, and products that are tuned to a processor, have not.
    fn loss(&self, x: &DMatrix<T>) -> T {
        let q = product(x, &self.w_q);
        let k = product(x, &self.w_k);
        let v = product(x, &self.w_v);
        let root = convert::<f64, T>(q.ncols() as f64).sqrt();
        let scores = product(&q, &k.transpose()).map(|score| score / root);
        let mut weights = scores.clone();
        for mut row in weights.row_iter_mut() {
            let max = row.max();
            row.apply(|score| *score = exponential(*score - max));
            let sum = row.iter().fold(T::zero(), |sum, &p| sum + p);
            row.apply(|p| *p /= sum);
        }
        let output = product(&product(&weights, &v), &self.w_o);
        output.iter().zip(self.r.iter()).fold(T::zero(), |sum, (&o, &r)| sum + o * r)
    }
}

fn product<T: RealField + Copy>(a: &DMatrix<T>, b: &DMatrix<T>) -> DMatrix<T> {
    let entry =
        |i, j| (0..a.ncols()).fold(T::zero(), |sum, l| sum + a[(i, l)] * b[(l, j)]);
    DMatrix::from_fn(a.nrows(), b.ncols(), entry)
}

/// eˣ for x ≤ 0: x = r − m ln 2 with a small r, whose Taylor series is short, and 2⁻ᵐ is exact.
pub fn exponential<T: RealField + Copy>(x: T) -> T {
    const HIGH: f64 = 0.693_359_375; // ln 2 in nine bits, so that m · HIGH is exact
    let low = std::f64::consts::LN_2 - HIGH;
    let m = (-x / convert(std::f64::consts::LN_2)).round();
    let r = (x + m * convert(HIGH)) + m * convert(low);
    let mut sum = T::one();
    for n in (1..=14).rev() {
        sum = T::one() + r * sum / convert(f64::from(n));
    }
    let mut halvings = m;
    while halvings > T::zero() {
        sum *= convert(0.5);
        halvings -= T::one();
    }
    sum
}

/// One-sided differences, divided by the step that was taken.
fn one_sided<T: RealField + Copy>(
    x: &DMatrix<T>,
    epsilon: T,
    loss: impl Fn(&DMatrix<T>) -> T,
) -> DMatrix<T> {
    let here = loss(x);
    let mut nudged = x.clone();
    let mut slopes = x.clone();
    for at in 0..x.len() {
        nudged[at] = x[at] + epsilon;
        slopes[at] = (loss(&nudged) - here) / (nudged[at] - x[at]);
        nudged[at] = x[at];
    }
    slopes
}

/// The second and the third derivative along each entry, each from a stencil with a wide step.
fn higher_derivatives(problem: &Problem<f64>) -> (Vec<f64>, Vec<f64>) {
    let h = 1.0 / 128.0;
    let along = |at: usize| {
        let at_step = |steps: f64| {
            let mut x = problem.x.clone();
            x[at] += steps * h;
            problem.loss(&x)
        };
        let second = (at_step(1.0) - 2.0 * at_step(0.0) + at_step(-1.0)) / (h * h);
        let third = (at_step(2.0) - 2.0 * at_step(1.0) + 2.0 * at_step(-1.0)
            - at_step(-2.0))
            / (2.0 * h * h * h);
        (second.abs(), third.abs())
    };
    (0..problem.x.len()).map(along).unzip()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

const PROBLEMS: u64 = 40;

/// How far off the slopes are, against the step: the median over all entries of x in many layers.
fn the_u(page: &mut Page) -> Result<()> {
    let problems: Vec<_> = (0..PROBLEMS).map(Problem::new).collect::<Result<_>>()?;
    let singles: Vec<_> = problems.iter().map(Problem::to_f32).collect();
    let gradients: Vec<_> =
        problems.iter().map(Problem::gradient).collect::<Result<_>>()?;
    let off = |slopes: &[DMatrix<f64>]| {
        let pairs = slopes.iter().zip(&gradients);
        median(pairs.flat_map(|(s, g)| (s - g).abs().as_slice().to_vec()).collect())
    };
    let (mut double, mut single, mut forward) = (vec![], vec![], vec![]);
    for power in 0..=40 {
        let epsilon = 0.5_f64.powi(power);
        let slopes: Vec<_> = problems
            .iter()
            .map(|p| numerical_gradient(&p.x, epsilon, |x| Ok(p.loss(x))))
            .collect::<Result<_, _>>()?;
        double.push((epsilon, off(&slopes)));
        let slopes: Vec<_> =
            problems.iter().map(|p| one_sided(&p.x, epsilon, |x| p.loss(x))).collect();
        forward.push((epsilon, off(&slopes)));
        if power <= 20 {
            let slopes: Vec<_> = singles
                .iter()
                .map(|p| {
                    let slopes =
                        numerical_gradient(&p.x, epsilon as f32, |x| Ok(p.loss(x)))?;
                    Ok(slopes.map(f64::from))
                })
                .collect::<Result<_>>()?;
            single.push((epsilon, off(&slopes)));
        }
    }

    let size = median(problems.iter().map(|p| p.loss(&p.x).abs()).collect());
    let slope =
        median(gradients.iter().flat_map(|g| g.abs().as_slice().to_vec()).collect());
    let (second, third): (Vec<_>, Vec<_>) =
        problems.iter().map(higher_derivatives).unzip();
    let (second, third) = (median(second.concat()), median(third.concat()));
    let rounding = |u: f64, epsilon: f64| u * size / epsilon;
    let (unit_64, unit_32) = (f64::EPSILON / 2.0, f64::from(f32::EPSILON) / 2.0);

    // E(ε), truncation and rounding together. A one-sided difference divides its two roundings by ε and not by 2 ε.
    let of_central =
        |u: f64, epsilon: f64| rounding(u, epsilon) + third * epsilon * epsilon / 6.0;
    let of_one_sided =
        |epsilon: f64| 2.0 * rounding(unit_64, epsilon) + second * epsilon / 2.0;
    let mut predicted = vec![];
    for (line, prediction) in [
        (&double, &(|epsilon| of_central(unit_64, epsilon)) as &dyn Fn(f64) -> f64),
        (&single, &|epsilon| of_central(unit_32, epsilon)),
        (&forward, &of_one_sided),
    ] {
        for &(epsilon, measured) in line.iter().step_by(2) {
            let ratio = measured / prediction(epsilon);
            ensure!((0.4..2.5).contains(&ratio), "at a step of {epsilon}: {ratio}");
            predicted.push((epsilon, prediction(epsilon)));
        }
    }
    // Why f32 ends early: a few halvings later the step is lost beside an entry.
    let lost = |p: &Problem<f32>, power| {
        numerical_gradient(&p.x, 0.5_f32.powi(power), |x| Ok(p.loss(x))).is_err()
    };
    ensure!(!singles.iter().any(|p| lost(p, 20)), "a step is lost at 2⁻²⁰");
    ensure!(singles.iter().any(|p| lost(p, 25)), "no step is lost at 2⁻²⁵");
    let line = |name: &str, colour, points: &[(f64, f64)]| {
        let name = name.to_owned();
        Line { name, colour, dashed: false, points: points.to_vec() }
    };
    let lines = [
        line("central, f64", BLUE, &double),
        line("central, f32", VERMILION, &single),
        line("one-sided, f64", GREEN, &forward),
    ];
    page.file(
        "u.svg",
        svg(
            "gradient-checking-u",
            "The error of a measured slope against the step",
            "Two curves shaped like a U on logarithmic axes. From the right each falls with the square of the step, \
             reaches its lowest point and rises again as one over the step. In f64 the lowest point is deep and lies \
             near a step of one hundred-thousandth, in f32 it is shallow and lies near one hundredth. One-sided \
             differences in f64 fall more slowly and turn at a smaller step. Rings, the predictions, lie along all three.",
            (520, 440),
            |area| {
                let x = Axis::log("step ε (logarithmic)", 10.0, 1e-12..1.0);
                let y = Axis::log("error of the slope (logarithmic)", 10.0, 1e-12..1.0);
                line_chart(area, &x, &y, &lines, Marks { rings: &predicted, ..Marks::default() })
            },
        )?,
    );

    let best = |line: &[(f64, f64)]| {
        line.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).expect("points")
    };
    let central = |u: f64| {
        let step = (3.0 * u * size / third).cbrt();
        (step, of_central(u, step))
    };
    let forward_best = {
        let step = 2.0 * (unit_64 * size / second).sqrt(); // two roundings over one ε
        (step, of_one_sided(step))
    };
    let rows = [
        ("central, `f64`", central(unit_64), best(&double)),
        ("central, `f32`", central(unit_32), best(&single)),
        ("one-sided, `f64`", forward_best, best(&forward)),
    ];
    // One column for each kind of difference: five columns would be too wide for a phone.
    type Case = (&'static str, (f64, f64), (f64, f64));
    let small = |x: f64| format!("${}$", scientific(x, 0));
    let line = |what: &str, cell: &dyn Fn(&Case) -> String| {
        [what.to_owned()].into_iter().chain(rows.iter().map(cell)).collect()
    };
    let power = |step: f64| format!("$2^{{{}}}$", fixed(step.log2(), 0));
    let lines: [Vec<String>; 5] = [
        line("best $\\varepsilon$, predicted", &|case| small(case.1.0)),
        line("measured", &|case| power(case.2.0)),
        line("that is about", &|case| small(case.2.0)),
        line("error there, predicted", &|case| small(case.1.1)),
        line("measured", &|case| small(case.2.1)),
    ];
    let header = ["", rows[0].0, rows[1].0, rows[2].0];
    page.file("best.md", table(&header, &lines));
    for (name, predicted, measured) in rows {
        let near = |a: f64, b: f64| a / b < 3.0 && b / a < 3.0;
        ensure!(near(predicted.0, measured.0), "{name}: the best step");
        ensure!(near(predicted.1, measured.1), "{name}: the error there");
    }
    // The relative error divides by the sum of both slopes.
    let relative = best(&single).1 / (2.0 * slope);
    ensure!(relative > THRESHOLD, "f32 would do: {relative}");
    ensure!(
        best(&double).1 / slope < THRESHOLD / 1e4,
        "f64 is not far below the threshold"
    );
    ensure!(best(&double).1 < best(&forward).1 / 100.0, "one-sided is as good");
    let at = |line: &[(f64, f64)], power: usize| line[power].1;
    ensure!(at(&forward, 17) / at(&double, 17) > 1e4, "the gain at 2⁻¹⁷");
    let of_small_slopes = at(&double, 17) / (2.0 * slope / 1000.0);
    ensure!(of_small_slopes < THRESHOLD / 100.0, "small slopes: {of_small_slopes}");
    page.value("u-entries", integer(problems.iter().map(|p| p.x.len()).sum()));
    page.value("u-layers", integer(problems.len()));
    page.value("u-loss", fixed(size, 2));
    page.value("u-second", fixed(second, 3));
    page.value("u-third", fixed(third, 3));
    page.value("u-zero", scientific(rounding(unit_64, EPSILON), 0));
    page.value("u-slope", fixed(slope, 2));
    page.value("u-single", scientific(relative, 1));
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- every gradient

/// What runs a layer with these parameters: output, and gradients from the gradient by the output.
type Run =
    fn(&Parameters<f64>, &DMatrix<f64>, &Mask) -> attention::Result<(DMatrix<f64>, Back)>;
type Back = Box<dyn Fn(&DMatrix<f64>) -> attention::Result<LayerGradients<f64>>>;

fn single_head(
    p: &Parameters<f64>,
    x: &DMatrix<f64>,
    mask: &Mask,
) -> attention::Result<(DMatrix<f64>, Back)> {
    let layer = SingleHeadAttention::from(p.clone());
    let (output, cache) = layer.forward(x, mask)?;
    Ok((output, Box::new(move |grad_output| layer.backward(&cache, grad_output))))
}

fn two_heads(
    p: &Parameters<f64>,
    x: &DMatrix<f64>,
    mask: &Mask,
) -> attention::Result<(DMatrix<f64>, Back)> {
    let layer = MultiHeadAttention::from_parameters(p.clone(), 2)?;
    let (output, cache) = layer.forward(x, mask)?;
    Ok((output, Box::new(move |grad_output| layer.backward(&cache, grad_output))))
}

/// What the check says of each gradient, with the loss Σ sin(output) ⊙ P; and of the key bias, whose gradient is zero,
/// the largest entry of both sides.
struct Checked {
    gradients: Vec<Gradient>,
    flat: (f64, f64),
}

struct Gradient {
    name: &'static str,
    relative_error: f64,
    /// The largest difference of an entry from its slope.
    off: f64,
}

impl Gradient {
    fn new(
        name: &'static str,
        x: &DMatrix<f64>,
        gradient: &DMatrix<f64>,
        epsilon: f64,
        loss: impl Fn(&DMatrix<f64>) -> attention::Result<f64>,
    ) -> attention::Result<Self> {
        let check = gradient_check(x, gradient, epsilon, &loss)?;
        let off = (gradient - numerical_gradient(x, epsilon, loss)?).amax();
        Ok(Gradient { name, relative_error: check.max_relative_error, off })
    }
}

fn check_layer(
    run: Run,
    parameters: &Parameters<f64>,
    x: &DMatrix<f64>,
    mask: &Mask,
    epsilon: f64,
) -> Result<Checked> {
    let r = random(x.nrows(), x.ncols(), &mut ChaCha8Rng::seed_from_u64(8));
    let (output, back) = run(parameters, x, mask)?;
    let mut gradients = back(&output.map(f64::cos).component_mul(&r))?;
    let here = output.map(f64::sin);
    let loss = |p: &Parameters<f64>, x: &DMatrix<f64>| {
        Ok((run(p, x, mask)?.0.map(f64::sin) - &here).dot(&r))
    };
    let by_x = |x: &DMatrix<f64>| loss(parameters, x);
    let mut checks = vec![Gradient::new("x", x, &gradients.x, epsilon, by_x)?];
    let mut flat = (0.0, 0.0);
    let mut values = parameters.clone();
    let values = values.named_mut();
    for (which, (name, gradient)) in
        gradients.parameters.named_mut().into_iter().enumerate()
    {
        let column =
            |entries: &[f64]| DMatrix::from_column_slice(entries.len(), 1, entries);
        let (value, gradient) = (column(values[which].1), column(gradient));
        let loss = |entries: &DMatrix<f64>| {
            let mut changed = parameters.clone();
            changed.named_mut()[which].1.copy_from_slice(entries.as_slice());
            loss(&changed, x)
        };
        if name == "b_k" {
            flat = (gradient.amax(), numerical_gradient(&value, epsilon, loss)?.amax());
        } else {
            checks.push(Gradient::new(name, &value, &gradient, epsilon, loss)?);
        }
    }
    Ok(Checked { gradients: checks, flat })
}

/// All parameters and the input of both layers under three masks.
///
/// The table is measured at a step where truncation is all there is, so that its digits are the same on every machine.
fn every_gradient(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let layers: [(Run, _, _); 2] = [
        (single_head, parameters(6, 4, 3, rng)?, 2.0 * random(5, 6, rng)),
        (two_heads, parameters(8, 8, 8, rng)?, 2.0 * random(5, 8, rng)),
    ];
    let masks =
        [Mask::none(), Mask::causal(), Mask::padding(&[true, false, true, true, false])?];
    let mut worst = 0.0_f64;
    let mut flat = (0.0_f64, 0.0_f64);
    for (file, (run, parameters, x)) in
        ["one-head.md", "two-heads.md"].iter().zip(&layers)
    {
        let mut rows: Vec<Vec<String>> = vec![];
        for mask in &masks {
            let at = |epsilon| check_layer(*run, parameters, x, mask, epsilon);
            let (wide, narrow, usual) = (at(1e-2)?, at(1e-3)?, at(EPSILON)?);
            if rows.is_empty() {
                let name = |gradient: &Gradient| vec![format!("`{}`", gradient.name)];
                rows = narrow.gradients.iter().map(name).collect();
            }
            let pairs = wide.gradients.iter().zip(&narrow.gradients);
            for (row, (wide, narrow)) in rows.iter_mut().zip(pairs) {
                row.push(format!("${}$", scientific(narrow.relative_error, 0)));
                let ratio = wide.off / narrow.off;
                ensure!(
                    (99.0..101.0).contains(&ratio),
                    "{} shrinks by {ratio}",
                    narrow.name
                );
            }
            for Gradient { name, relative_error, .. } in usual.gradients {
                ensure!(relative_error < THRESHOLD, "{name}: {relative_error}");
                worst = worst.max(relative_error);
            }
            flat = (flat.0.max(usual.flat.0), flat.1.max(usual.flat.1));
        }
        page.file(*file, table(&["gradient by", "no mask", "causal", "padding"], &rows));
    }
    ensure!(flat.0 < 1e-14 && flat.1 < 1e-9, "the key bias: {flat:?}");
    ensure!(worst < 1e-6, "the worst of all is {worst}");
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- planted faults

/// A fault in a backward pass: what the check says of it on an input that hides it and on one that does not.
struct Fault {
    name: &'static str,
    hidden_by: &'static str,
    hidden: GradientCheck<f64>,
    seen_by: &'static str,
    seen: GradientCheck<f64>,
}

/// Draws what attention is given, runs it, and checks the gradient by the queries that `wrong` makes.
fn by_queries(
    (n_q, n_k): (usize, usize),
    scale: f64,
    mask: &Mask,
    wrong: impl Fn(&AttentionCache<f64>, &DMatrix<f64>) -> attention::Result<DMatrix<f64>>,
) -> Result<GradientCheck<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(9);
    let (q, k, v) =
        (scale * random(n_q, 4, rng), random(n_k, 4, rng), random(n_k, 3, rng));
    let r = random(n_q, 3, rng);
    let (_, cache) = attention(&q, &k, &v, mask)?;
    let right = attention_backward(&cache, &r)?.q;
    let loss = |q: &DMatrix<f64>| Ok(attention(q, &k, &v, mask)?.0.dot(&r));
    let check = gradient_check(&q, &right, EPSILON, loss)?;
    ensure!(check.max_relative_error < THRESHOLD, "the right gradient fails: {check:?}");
    let wrong = wrong(&cache, &r)?;
    let at = |epsilon| gradient_check(&q, &wrong, epsilon, loss);
    // The disagreement with a wrong gradient does not shrink with the step.
    let (wide, narrow) = (at(1e-3)?.max_relative_error, at(1e-4)?.max_relative_error);
    ensure!(narrow < THRESHOLD || (wide / narrow - 1.0).abs() < 0.01, "{wide}, {narrow}");
    Ok(at(EPSILON)?)
}

/// Keys up to the query's own number, counted from the beginning and not from the end.
fn aligned_at_the_beginning(n_q: usize, n_k: usize) -> attention::Result<Mask> {
    Mask::dense(DMatrix::from_fn(n_q, n_k, |i, j| j <= i))
}

/// Softmax's backward pass with the plain mean of g in the place of its mean under the weights.
fn plain_mean(weights: &DMatrix<f64>, g: &DMatrix<f64>) -> DMatrix<f64> {
    let mean = g.column_mean();
    DMatrix::from_fn(g.nrows(), g.ncols(), |i, j| weights[(i, j)] * (g[(i, j)] - mean[i]))
}

fn faults(page: &mut Page) -> Result<()> {
    let realigned = |cache: &AttentionCache<f64>, r: &DMatrix<f64>| {
        let mask = aligned_at_the_beginning(cache.q.nrows(), cache.k.nrows())?;
        Ok(attention_backward(&AttentionCache { mask, ..cache.clone() }, r)?.q)
    };
    let doubled = |cache: &AttentionCache<f64>, r: &DMatrix<f64>| {
        Ok(2.0 * attention_backward(cache, r)?.q)
    };
    let unweighted = |cache: &AttentionCache<f64>, r: &DMatrix<f64>| {
        let grad_scores = plain_mean(&cache.weights, &(r * cache.v.transpose()));
        Ok(grad_scores * &cache.k / 2.0) // √d_k = 2
    };
    let unmasked = |cache: &AttentionCache<f64>, r: &DMatrix<f64>| {
        let (_, again) = attention(&cache.q, &cache.k, &cache.v, &Mask::none())?;
        Ok(attention_backward(&again, r)?.q)
    };
    let faults = [
        Fault {
            name: "backward aligns the causal mask at the first key",
            hidden_by: "4 queries, 4 keys",
            hidden: by_queries((4, 4), 1.0, &Mask::causal(), realigned)?,
            seen_by: "2 queries, 4 keys",
            seen: by_queries((2, 4), 1.0, &Mask::causal(), realigned)?,
        },
        Fault {
            name: "the queries' gradient is doubled",
            hidden_by: "one key",
            hidden: by_queries((1, 1), 1.0, &Mask::none(), doubled)?,
            seen_by: "2 keys",
            seen: by_queries((1, 2), 1.0, &Mask::none(), doubled)?,
        },
        Fault {
            name: "softmax's backward pass takes the plain mean of $g$",
            hidden_by: "$Q = 0$, so all weights are equal",
            hidden: by_queries((3, 4), 0.0, &Mask::none(), unweighted)?,
            seen_by: "random $Q$",
            seen: by_queries((3, 4), 1.0, &Mask::none(), unweighted)?,
        },
        transposed()?,
        on_zeros()?,
        Fault {
            name: "backward computes the weights again, and forgets the mask",
            hidden_by: "no mask",
            hidden: by_queries((4, 4), 1.0, &Mask::none(), unmasked)?,
            seen_by: "a causal mask",
            seen: by_queries((4, 4), 1.0, &Mask::causal(), unmasked)?,
        },
        no_dropout()?,
    ];
    let mut rows = vec![];
    for Fault { name, hidden_by, hidden, seen_by, seen } in faults {
        ensure!(hidden.max_relative_error < THRESHOLD, "{name} was caught: {hidden:?}");
        ensure!(seen.max_relative_error > 0.01, "{name} was not caught: {seen:?}");
        rows.push(vec![
            name.to_owned(),
            hidden_by.to_owned(),
            seen_by.to_owned(),
            fixed(seen.max_relative_error, 2),
        ]);
    }
    let header = ["the fault", "passes on", "caught on", "relative error there"];
    page.file("faults.md", table(&header, &rows));
    Ok(())
}

/// Self-attention by x, with W_Q in the place of its transpose.
fn transposed() -> Result<Fault> {
    let check = |symmetric: bool| {
        let rng = &mut ChaCha8Rng::seed_from_u64(10);
        let mut layer = SingleHeadAttention::from(parameters(4, 4, 4, rng)?);
        if symmetric {
            layer.parameters.w_q.fill_with_identity();
        }
        let (x, context, r) = (random(3, 4, rng), random(5, 4, rng), random(3, 4, rng));
        let (_, cache) = layer.forward_cross(&x, &context, &Mask::none())?;
        let p = &layer.parameters;
        let d = attention_backward(&cache.attention, &(&r * p.w_o.transpose()))?;
        let wrong = d.q * &p.w_q;
        let loss = |x: &DMatrix<f64>| {
            Ok(layer.forward_cross(x, &context, &Mask::none())?.0.dot(&r))
        };
        anyhow::Ok(gradient_check(&x, &wrong, EPSILON, loss)?)
    };
    Ok(Fault {
        name: "$W_Q$ instead of $W_Q^\\top$ on the way to $X$",
        hidden_by: "$W_Q = I$",
        hidden: check(true)?,
        seen_by: "random $W_Q$, even if square",
        seen: check(false)?,
    })
}

/// The gradient by W_Q of an input of zeros, three times too large.
fn on_zeros() -> Result<Fault> {
    let check = |scale: f64| {
        let rng = &mut ChaCha8Rng::seed_from_u64(11);
        let layer = SingleHeadAttention::from(parameters(4, 3, 2, rng)?);
        let (x, r) = (scale * random(5, 4, rng), random(5, 4, rng));
        let (_, cache) = layer.forward(&x, &Mask::none())?;
        let wrong = 3.0 * layer.backward(&cache, &r)?.parameters.w_q;
        let loss = |w_q: &DMatrix<f64>| {
            let mut layer = layer.clone();
            layer.parameters.w_q.copy_from(w_q);
            Ok(layer.forward(&x, &Mask::none())?.0.dot(&r))
        };
        anyhow::Ok(gradient_check(&layer.parameters.w_q, &wrong, EPSILON, loss)?)
    };
    Ok(Fault {
        name: "the gradient by $W_Q$ is three times too large",
        hidden_by: "$X = 0$",
        hidden: check(0.0)?,
        seen_by: "random $X$",
        seen: check(1.0)?,
    })
}

/// Backward forgets that weights were dropped.
fn no_dropout() -> Result<Fault> {
    let check = |p: f64| {
        let rng = &mut ChaCha8Rng::seed_from_u64(12);
        let layer = MultiHeadAttention::from_parameters(parameters(4, 4, 4, rng)?, 2)?;
        let layer = layer.with_dropout(p)?;
        let (x, r) = (random(5, 4, rng), random(5, 4, rng));
        let forward = |x: &DMatrix<f64>| {
            // The same draw each time, or else the slope would be that of another function.
            layer.forward_training(
                x,
                None,
                &Mask::none(),
                &mut ChaCha8Rng::seed_from_u64(1),
            )
        };
        let (_, mut cache) = forward(&x)?;
        cache.heads.iter_mut().for_each(|head| head.dropout = None);
        let wrong = layer.backward(&cache, &r)?.x;
        anyhow::Ok(gradient_check(&x, &wrong, EPSILON, |x| Ok(forward(x)?.0.dot(&r)))?)
    };
    Ok(Fault {
        name: "backward forgets dropout",
        hidden_by: "dropout switched off",
        hidden: check(0.0)?,
        seen_by: "half of the weights dropped",
        seen: check(0.5)?,
    })
}
