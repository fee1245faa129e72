//! How far a measured slope is off, against its step: a U, and what is predicted of it.

use super::check::random;
use anyhow::Result;
use attention::{Mask, Parameters, SingleHeadAttention, numerical_gradient};
use nalgebra::{DMatrix, RealField, convert, convert_unchecked};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use record::statistics::median;

/// A layer without biases, an input and the projection P of its loss, `r`, in either precision.
pub struct Problem<T: RealField + Copy> {
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
            Problem { weights, x: 2.0 * random(5, 4, rng), r: random(5, 4, rng) };
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

    /// The gradient by x, from the crate.
    fn gradient(&self) -> Result<DMatrix<f64>> {
        let layer = self.layer()?;
        let (_, cache) = layer.forward(&self.x, &Mask::none())?;
        Ok(layer.backward(&cache, &self.r)?.x)
    }
}

impl<T: RealField + Copy> Problem<T> {
    fn map<To: RealField + Copy>(&self, convert: fn(T) -> To) -> Problem<To> {
        let weights = self.weights.each_ref().map(|w| w.map(convert));
        Problem { x: self.x.map(convert), weights, r: self.r.map(convert) }
    }

    /// The layer's loss Σ output ⊙ P once more, from additions, multiplications, divisions and a root alone.
    ///
    /// The left arm of the U is made of last digits. These operations have the same last digit on every machine; the
    /// system's exponential, and products that are tuned to a processor, have not.
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

/// How slopes are measured, and in which precision.
#[derive(Clone, Copy)]
pub enum Differences {
    Central64,
    Central32,
    OneSided64,
}

/// Medians over all layers or, where there is one for each, over all entries of x.
pub struct Medians {
    pub loss: f64,
    pub slope: f64,
    pub second: f64,
    pub third: f64,
}

impl Medians {
    fn of(problems: &[Problem<f64>], gradients: &[DMatrix<f64>]) -> Self {
        let losses: Vec<_> = problems.iter().map(|p| p.loss(&p.x).abs()).collect();
        let (second, third): (Vec<_>, Vec<_>) =
            problems.iter().flat_map(higher_derivatives).unzip();
        Medians {
            loss: median(&losses),
            slope: median_entry(gradients.iter().cloned()),
            second: median(&second),
            third: median(&third),
        }
    }

    /// By how much the rounding of a loss moves a slope: u |L| / ε.
    pub fn rounding(&self, differences: Differences, epsilon: f64) -> f64 {
        let unit = match differences {
            Differences::Central32 => f64::from(f32::EPSILON) / 2.0,
            _ => f64::EPSILON / 2.0,
        };
        unit * self.loss / epsilon
    }

    /// E(ε), truncation and rounding together. A one-sided difference divides its two roundings by ε and not by 2 ε.
    fn predicted(&self, differences: Differences, epsilon: f64) -> f64 {
        let rounding = self.rounding(differences, epsilon);
        match differences {
            Differences::OneSided64 => 2.0 * rounding + self.second * epsilon / 2.0,
            _ => rounding + self.third * epsilon * epsilon / 6.0,
        }
    }

    /// The best step, and the error there.
    fn predicted_best(&self, differences: Differences) -> (f64, f64) {
        let rounding = self.rounding(differences, 1.0);
        let step = match differences {
            Differences::OneSided64 => 2.0 * (rounding / self.second).sqrt(),
            _ => (3.0 * rounding / self.third).cbrt(),
        };
        (step, self.predicted(differences, step))
    }
}

/// The median of the entries, without signs.
fn median_entry(matrices: impl Iterator<Item = DMatrix<f64>>) -> f64 {
    median(&matrices.flat_map(|m| m.abs().as_slice().to_vec()).collect::<Vec<_>>())
}

/// Errors of slopes, each with its step: the medians over all entries of x in all layers.
pub struct Curve {
    /// At the steps 2⁰, 2⁻¹, …
    pub measured: Vec<(f64, f64)>,
    /// At every other of these steps.
    pub predicted: Vec<(f64, f64)>,
    pub predicted_best: (f64, f64),
}

impl Curve {
    pub fn best(&self) -> (f64, f64) {
        let points = self.measured.iter().copied();
        points.min_by(|a, b| a.1.total_cmp(&b.1)).expect("points")
    }
}

pub struct U {
    pub layers: usize,
    pub entries: usize,
    pub medians: Medians,
    pub double: Curve,
    pub single: Curve,
    pub one_sided: Curve,
}

impl U {
    /// Of a median slope in `f32`, at the best step. It divides by the sum of both slopes.
    pub fn relative_error_in_f32(&self) -> f64 {
        self.single.best().1 / (2.0 * self.medians.slope)
    }
}

pub fn the_u() -> Result<U> {
    let problems = problems()?;
    let singles: Vec<_> = problems.iter().map(Problem::in_f32).collect();
    let gradients: Vec<_> =
        problems.iter().map(Problem::gradient).collect::<Result<_>>()?;
    let medians = Medians::of(&problems, &gradients);
    let curve = |differences, last_power: i32| {
        let slopes = |i: usize, epsilon| match differences {
            Differences::Central64 => problems[i].central(epsilon),
            Differences::Central32 => singles[i].central(epsilon),
            Differences::OneSided64 => Ok(one_sided(&problems[i], epsilon)),
        };
        let at = |power| {
            let epsilon = 0.5_f64.powi(power);
            let all =
                (0..problems.len()).map(|i| Ok(slopes(i, epsilon)? - &gradients[i]));
            let off = all.collect::<Result<Vec<_>>>()?;
            Ok((epsilon, median_entry(off.into_iter())))
        };
        let measured = (0..=last_power).map(at).collect::<Result<Vec<_>>>()?;
        let predict =
            |&(epsilon, _): &_| (epsilon, medians.predicted(differences, epsilon));
        anyhow::Ok(Curve {
            predicted: measured.iter().step_by(2).map(predict).collect(),
            predicted_best: medians.predicted_best(differences),
            measured,
        })
    };
    Ok(U {
        layers: problems.len(),
        entries: problems.iter().map(|p| p.x.len()).sum(),
        double: curve(Differences::Central64, 40)?,
        single: curve(Differences::Central32, 20)?,
        one_sided: curve(Differences::OneSided64, 40)?,
        medians,
    })
}
