//! The error of a measured slope against its step, measured and predicted.

use crate::random::uniform;
use anyhow::Result;
use attention::{
    Float, Mask, Parameters, SingleHeadAttention, gradient_check::numerical_gradient,
};
use nalgebra::{DMatrix, RealField, convert, convert_unchecked};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use record::statistics::median;

/// A layer without biases, an input and the projection P of its loss, `r`, in either precision.
pub struct Problem<T: Float> {
    pub x: DMatrix<T>,
    /// W_Q, W_K, W_V and W_O.
    weights: [DMatrix<T>; 4],
    pub r: DMatrix<T>,
}

/// Separate layers, in numbers that `f32` holds exactly, so that both precisions are asked the same question.
pub fn problems() -> Result<Vec<Problem<f64>>> {
    let draw = |seed| {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let p = Parameters::xavier(4, 3, 2, rng)?;
        let weights = [p.w_q, p.w_k, p.w_v, p.w_o];
        let problem =
            Problem { weights, x: 2.0 * uniform(5, 4, rng), r: uniform(5, 4, rng) };
        Ok(problem.in_f32().map(f64::from))
    };
    (0..40).map(draw).collect()
}

impl Problem<f64> {
    pub fn in_f32(&self) -> Problem<f32> {
        self.map(|x| x as f32)
    }

    pub fn layer(&self) -> Result<SingleHeadAttention<f64>> {
        let [w_q, w_k, w_v, w_o] = self.weights.clone();
        let without_biases =
            Parameters::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
        Ok(Parameters { w_q, w_k, w_v, w_o, ..without_biases }.into())
    }

    /// The gradient with respect to x, from the crate.
    pub fn gradient(&self) -> Result<DMatrix<f64>> {
        let layer = self.layer()?;
        let (_, cache) = layer.forward(&self.x, Mask::none())?;
        Ok(layer.backward(&cache, &self.r)?.x)
    }
}

impl<T: Float> Problem<T> {
    fn map<To: Float>(&self, convert: fn(T) -> To) -> Problem<To> {
        let weights = self.weights.each_ref().map(|w| w.map(convert));
        Problem { x: self.x.map(convert), weights, r: self.r.map(convert) }
    }

    /// The layer's loss Σ output ⊙ P once more, from additions, multiplications, divisions and a root alone.
    ///
    /// The left arm of the U is made of last digits. These operations have the same last digit on every machine; the
    /// system's exponential, and products that are tuned to a processor, don't.
    pub fn loss(&self, x: &DMatrix<T>) -> T {
        let [w_q, w_k, w_v, w_o] = &self.weights;
        let (q, k, v) = (product(x, w_q), product(x, w_k), product(x, w_v));
        let root = convert::<f64, T>(q.ncols() as f64).sqrt();
        let mut weights = product(&q, &k.transpose()).map(|score| score / root);
        for mut row in weights.row_iter_mut() {
            let max = row.max();
            row.apply(|score| *score = exponential(*score - max));
            let sum = row.iter().fold(T::zero(), |sum, &p| sum + p);
            row.apply(|p| *p /= sum);
        }
        let output = product(&product(&weights, &v), w_o);
        output.iter().zip(self.r.iter()).fold(T::zero(), |sum, (&o, &r)| sum + o * r)
    }

    /// The slopes of the loss by central differences.
    pub fn central(&self, epsilon: f64) -> Result<DMatrix<f64>> {
        let slopes = numerical_gradient(&self.x, convert(epsilon), |x| Ok(self.loss(x)))?;
        Ok(slopes.map(convert_unchecked))
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

/// The slopes of the loss by one-sided differences, divided by the step that was taken.
fn one_sided(problem: &Problem<f64>, epsilon: f64) -> DMatrix<f64> {
    let x = &problem.x;
    let here = problem.loss(x);
    let mut nudged = x.clone();
    let mut slopes = x.clone();
    for at in 0..x.len() {
        nudged[at] = x[at] + epsilon;
        slopes[at] = (problem.loss(&nudged) - here) / (nudged[at] - x[at]);
        nudged[at] = x[at];
    }
    slopes
}

/// The second and the third derivative along each entry, without signs, each from a stencil with a wide step.
fn higher_derivatives(problem: &Problem<f64>) -> Vec<(f64, f64)> {
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
    (0..problem.x.len()).map(along).collect()
}

/// The predicted error of a slope: E(ε) = rounding / ε + truncation · ε^order.
#[derive(Clone, Copy)]
pub struct Prediction {
    rounding: f64,
    truncation: f64,
    order: i32,
}

impl Prediction {
    fn of_rounding(self, epsilon: f64) -> f64 {
        self.rounding / epsilon
    }

    pub fn error(self, epsilon: f64) -> f64 {
        self.of_rounding(epsilon) + self.truncation * epsilon.powi(self.order)
    }

    /// The step where the derivative is zero, and the error there.
    pub fn best(self) -> (f64, f64) {
        let order = f64::from(self.order);
        let power = self.rounding / (order * self.truncation);
        let step = power.powf(1.0 / (order + 1.0));
        (step, self.error(step))
    }
}

/// Errors of slopes, each with its step: the medians over all entries of x in all layers.
pub struct Curve {
    /// At the steps 2⁰, 2⁻¹, …
    pub measured: Vec<(f64, f64)>,
    pub prediction: Prediction,
}

impl Curve {
    /// The best of the steps that were measured, and the error there.
    pub fn best(&self) -> (f64, f64) {
        let points = self.measured.iter().copied();
        points.min_by(|a, b| a.1.total_cmp(&b.1)).expect("points")
    }

    /// At every other step.
    pub fn predicted(&self) -> impl Iterator<Item = (f64, f64)> {
        let steps = self.measured.iter().step_by(2);
        steps.map(|&(epsilon, _)| (epsilon, self.prediction.error(epsilon)))
    }
}

/// Medians over all layers or, where there is one for each, over all entries of x; and how far slopes are off.
pub struct U {
    pub layers: usize,
    pub entries: usize,
    pub double: Curve,
    pub single: Curve,
    pub one_sided: Curve,
}

/// The median of the entries, without signs.
pub fn median_entry(matrices: &[DMatrix<f64>]) -> f64 {
    median(&matrices.iter().flat_map(|m| m.abs().as_slice().to_vec()).collect::<Vec<_>>())
}

/// Returns the errors of slopes at steps down to this power of a half. `slopes` measures those of one layer.
fn measured(
    last_power: i32,
    (problems, gradients): (&[Problem<f64>], &[DMatrix<f64>]),
    slopes: impl Fn(&Problem<f64>, f64) -> Result<DMatrix<f64>>,
) -> Result<Vec<(f64, f64)>> {
    let at = |power| {
        let epsilon = 0.5_f64.powi(power);
        let off =
            problems.iter().zip(gradients).map(|(p, g)| Ok(slopes(p, epsilon)? - g));
        Ok((epsilon, median_entry(&off.collect::<Result<Vec<_>>>()?)))
    };
    (0..=last_power).map(at).collect()
}

pub fn the_u() -> Result<U> {
    let problems = problems()?;
    let gradients: Vec<_> =
        problems.iter().map(Problem::gradient).collect::<Result<_>>()?;
    let losses: Vec<_> = problems.iter().map(|p| p.loss(&p.x).abs()).collect();
    let derivatives = problems.iter().flat_map(higher_derivatives);
    let (seconds, thirds): (Vec<_>, Vec<_>) = derivatives.unzip();
    let (loss, second, third) = (median(&losses), median(&seconds), median(&thirds));
    let central =
        |unit| Prediction { rounding: unit * loss, truncation: third / 6.0, order: 2 };
    let asked = (&problems[..], &gradients[..]);
    let (unit_64, unit_32) = (f64::EPSILON / 2.0, f64::from(f32::EPSILON) / 2.0);
    Ok(U {
        layers: problems.len(),
        entries: seconds.len(),
        double: Curve {
            measured: measured(40, asked, Problem::central)?,
            prediction: central(unit_64),
        },
        single: Curve {
            measured: measured(20, asked, |p, epsilon| p.in_f32().central(epsilon))?,
            prediction: central(unit_32),
        },
        one_sided: Curve {
            measured: measured(40, asked, |p, epsilon| Ok(one_sided(p, epsilon)))?,
            // It divides its two roundings by ε and not by 2 ε.
            prediction: Prediction {
                rounding: 2.0 * unit_64 * loss,
                truncation: second / 2.0,
                order: 1,
            },
        },
    })
}
