//! Gradient checking: is a gradient that was derived by hand the slope that can be measured?

use crate::Float;
use crate::error::{
    Error, Result, check_not_empty, check_positive, check_shape, wrong_value,
};
use crate::named_parameters::{NamedParameters, check_fit, shapes_of};
use nalgebra::{DMatrix, DMatrixView};
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Returns the relative error of two numbers that should be equal: `|a − n| / (|a| + |n| + 10⁻⁸)`.
///
/// [`gradient_check`] knows the loss as well, and divides by more where that is rounded much.
///
/// ```
/// assert_eq!(attention::gradient_check::relative_error(1.0_f64, 1.0), 0.0);
/// assert!((attention::gradient_check::relative_error(1.0_f64, 3.0) - 0.5).abs() < 1e-8);
/// ```
pub fn relative_error<T: Float>(analytic: T, numeric: T) -> T {
    let floor = nalgebra::convert(1e-8); // two zeros are equal
    relative_error_above(floor, analytic, numeric)
}

fn relative_error_above<T: Float>(floor: T, analytic: T, numeric: T) -> T {
    (analytic - numeric).abs() / (analytic.abs() + numeric.abs() + floor)
}

/// Returns the gradient of `loss` at `x`, measured: `(loss(x + ε e) − loss(x − ε e)) / 2ε` for every entry in turn.
///
/// Shapes: `x` (r, c) → (r, c). Central differences are off by O(ε²) and by rounding of the order of the loss's last
/// digit divided by ε: in `f64`, ε = 10⁻⁵ is near the best of both.
///
/// # Errors
/// `x` is empty, `epsilon` is not positive and finite or is lost in the rounding of an entry of `x`, or `loss` fails.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![3.0_f64, -1.0];
/// let gradient = attention::gradient_check::numerical_gradient(&x, 1e-5, |x| Ok(x.norm_squared()))?;
/// assert!((gradient - 2.0 * x).amax() < 1e-9);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn numerical_gradient<'a, T: Float>(
    x: impl Into<DMatrixView<'a, T>>,
    epsilon: T,
    mut loss: impl FnMut(&DMatrix<T>) -> Result<T>,
) -> Result<DMatrix<T>> {
    let x = x.into();
    check_not_empty("x", x)?;
    if !(epsilon > T::zero() && epsilon.is_finite()) {
        return Err(epsilon_is(epsilon, "it must be positive and finite".to_owned()));
    }
    let mut nudged = x.into_owned();
    let mut gradient = DMatrix::zeros(x.nrows(), x.ncols());
    for at in 0..x.len() {
        // The step is not quite ε, as the sum is rounded: divide by the step taken.
        let (high, low) = (x[at] + epsilon, x[at] - epsilon);
        if high == low {
            let because = format!("it is lost beside the entry {} of `x`", x[at]);
            return Err(epsilon_is(epsilon, because));
        }
        nudged[at] = high;
        let above = loss(&nudged)?;
        nudged[at] = low;
        let below = loss(&nudged)?;
        nudged[at] = x[at];
        gradient[at] = (above - below) / (high - low);
    }
    Ok(gradient)
}

fn epsilon_is<T: Float>(epsilon: T, because: String) -> Error {
    // The shortest decimal that is rounded to ε, since 1e-5 in f32 is 0.00000999999974737875 in f64.
    let exact: f64 = nalgebra::convert_unchecked(epsilon);
    let decimals = (0..40).map(|digits| 10_f64.powi(digits));
    let given = decimals
        .map(|scale| (exact * scale).round() / scale)
        .find(|decimal| nalgebra::convert::<f64, T>(*decimal) == epsilon)
        .unwrap_or(exact);
    wrong_value("epsilon", given, because)
}

/// Returns the standard deviation of the rounding errors of the losses around `x`.
///
/// Over steps whose square is lost beside 1, any smooth function is a straight line.
/// The second differences that are left, `L(−h) − 2 L(0) + L(h)`, are rounding. Three
/// numbers of variance σ² give them the variance (1 + 4 + 1) σ². All of them may be zero
/// by chance, but no loss is more exact than its own last rounding.
fn rounding<T: Float>(
    x: DMatrixView<T>,
    mut loss: impl FnMut(&DMatrix<T>) -> Result<T>,
) -> Result<T> {
    const STEPS: usize = 18;
    let mut losses = [T::zero(); STEPS];
    let entries: T = nalgebra::convert(x.len() as f64);
    let h = (T::default_epsilon() / entries).sqrt() / nalgebra::convert(16.0);
    for (steps, at_step) in losses.iter_mut().enumerate() {
        let step = h * nalgebra::convert(steps as f64);
        *at_step = loss(&x.map(|x| x + step * (T::one() + x.abs())))?;
    }
    let differences = losses.windows(3).map(|l| l[0] - l[1] - l[1] + l[2]);
    let norm = differences.fold(T::zero(), |norm, difference| norm.hypot(difference));
    let deviation = norm / nalgebra::convert((6.0 * (STEPS - 2) as f64).sqrt());
    let last_rounding = losses[0].abs() * T::default_epsilon() / nalgebra::convert(2.0);
    Ok(deviation.max(last_rounding))
}

/// The result of [`gradient_check`]: the entry where the two gradients differ most.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![3.0_f64, -1.0];
/// let wrong = dmatrix![6.0, 2.0]; // the second sign is wrong
/// let check = attention::gradient_check(&x, &wrong, 1e-5, |x| Ok(x.norm_squared()))?;
/// assert_eq!(check.worst, (0, 1));
/// assert!(check.max_relative_error > 0.99);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientCheck<T> {
    /// The largest relative error of all entries, see [`gradient_check`].
    pub max_relative_error: T,
    /// Its row and column; of equal errors, the first down the columns.
    pub worst: (usize, usize),
    /// The gradient that was given, there.
    pub analytic: T,
    /// The gradient that was measured, there.
    pub numeric: T,
}

/// Compares the gradient `analytic` of `loss` at `x` with the measured one, entry by entry: `|a − n| / (|a| + |n| + f)`.
///
/// The floor `f = 10⁻⁸ + 10⁶ σ/ε` follows the rounding σ of the loss, which is measured: 18 more evaluations next to `x`.
/// A slope is off by about σ/ε, so that a gradient of zero, such as that with respect to the bias of the keys, does not exceed a
/// threshold of 10⁻⁵; a difference of ten times that rounding does. In `f32` the rounding is so large that wrong gradients would
/// pass, which is an error: check in `f64`.
///
/// Shapes: `x` (r, c), `analytic` (r, c). A NaN on either side is the largest error of all: it is never passed over.
///
/// # Errors
/// As [`numerical_gradient`], `analytic` doesn't have the shape of `x`, or the loss is rounded so much that an error of 1 % would pass.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![3.0_f64, -1.0];
/// let check = attention::gradient_check(&x, &(2.0 * &x), 1e-5, |x| Ok(x.norm_squared()))?;
/// assert!(check.max_relative_error < 1e-9);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn gradient_check<'a, 'g, T: Float>(
    x: impl Into<DMatrixView<'a, T>>,
    analytic: impl Into<DMatrixView<'g, T>>,
    epsilon: T,
    mut loss: impl FnMut(&DMatrix<T>) -> Result<T>,
) -> Result<GradientCheck<T>> {
    let (x, analytic) = (x.into(), analytic.into());
    check_not_empty("x", x)?;
    check_shape("analytic", analytic, x.shape(), "`x`")?;
    let numeric = numerical_gradient(x, epsilon, &mut loss)?;
    let lost = rounding(x, loss)? / epsilon; // what a slope is off by
    let floor =
        nalgebra::convert::<f64, T>(1e-8) + nalgebra::convert::<f64, T>(1e6) * lost;
    check_that_errors_show(numeric.amax().max(analytic.amax()), lost, floor, epsilon)?;
    let entry = |i: usize, j: usize| GradientCheck {
        max_relative_error: relative_error_above(
            floor,
            analytic[(i, j)],
            numeric[(i, j)],
        ),
        worst: (i, j),
        analytic: analytic[(i, j)],
        numeric: numeric[(i, j)],
    };
    let mut check = entry(0, 0);
    for (i, j) in (0..x.ncols()).flat_map(|j| (0..x.nrows()).map(move |i| (i, j))) {
        let candidate = entry(i, j);
        let is_worse = candidate.max_relative_error > check.max_relative_error;
        // NaN compares as neither larger nor smaller, so it is asked for by name.
        let is_nan = |x: T| x.partial_cmp(&x).is_none();
        if is_worse
            || (is_nan(candidate.max_relative_error) && !is_nan(check.max_relative_error))
        {
            check = candidate;
        }
    }
    Ok(check)
}

/// Errs if a gradient that is off by a hundredth of the largest slope would stay below the threshold of 10⁻⁵, because the loss is
/// rounded so much. Slopes that are nothing but rounding, or below the floor of 10⁻⁸, are zeros, and may stay.
fn check_that_errors_show<T: Float>(
    largest: T,
    lost: T,
    floor: T,
    epsilon: T,
) -> Result<()> {
    let [ten, hundredth, threshold, zero] =
        [10.0, 0.01, 1e-5, 1e-8].map(nalgebra::convert::<f64, T>);
    let shown = hundredth * largest / (largest + largest + floor);
    if largest > (ten * lost).max(zero) && shown < threshold {
        let because = "the loss is rounded so much that an error of 1 % would not show: check in f64, or \
                       with a longer step";
        return Err(epsilon_is(epsilon, because.to_owned()));
    }
    Ok(())
}

/// Returns [`gradient_check`] of every parameter of a layer or model in turn, with its name. [`gradient_check_sample`] checks some entries
/// of each, which is faster.
///
/// # Errors
/// As [`gradient_check`], or `gradients` are of other shapes than the parameters.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example, gradient_check_parameters};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = example::river().x;
/// let (output, cache) = layer.forward(&x, Mask::causal())?;
/// let gradients = layer.backward(&cache, &output)?; // of ½ Σ output²
/// let checks = gradient_check_parameters(&layer, &gradients, 1e-5, |layer| {
///     Ok(layer.forward(&x, Mask::causal())?.0.norm_squared() / 2.0)
/// })?;
/// assert!(checks.iter().all(|(_, check)| check.max_relative_error < 1e-5));
/// # Ok::<(), attention::Error>(())
/// ```
pub fn gradient_check_parameters<T: Float, Model: NamedParameters<T> + Clone>(
    model: &Model,
    gradients: &impl NamedParameters<T>,
    epsilon: T,
    loss: impl FnMut(&Model) -> Result<T>,
) -> Result<Vec<(String, GradientCheck<T>)>> {
    gradient_check_sample(model, gradients, epsilon, usize::MAX, loss)
}

/// Returns what [`gradient_check_parameters`] does, of at most so many entries of each parameter, which are drawn at random, always the
/// same. Each entry takes two losses; all 16 thousand of a small model are a matter of minutes in a program that isn't optimised. A
/// gradient that is wrong as a whole, as most are, is found in a few dozen; one that is wrong in one row may not be.
///
/// # Errors
/// As [`gradient_check_parameters`], or `entries` is 0.
///
/// ```
/// # use attention::{Mask, MultiHeadAttention, example, gradient_check_sample};
/// # use rand::{SeedableRng, rngs::ChaCha8Rng};
/// # let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// # let x = example::river().x;
/// # let (output, cache) = layer.forward(&x, Mask::causal())?;
/// # let gradients = layer.backward(&cache, &output)?;
/// let checks = gradient_check_sample(&layer, &gradients, 1e-5, 3, |layer| {
///     Ok(layer.forward(&x, Mask::causal())?.0.norm_squared() / 2.0)
/// })?;
/// assert!(checks.iter().all(|(_, check)| check.max_relative_error < 1e-5));
/// # Ok::<(), attention::Error>(())
/// ```
pub fn gradient_check_sample<T: Float, Model: NamedParameters<T> + Clone>(
    model: &Model,
    gradients: &impl NamedParameters<T>,
    epsilon: T,
    entries: usize,
    mut loss: impl FnMut(&Model) -> Result<T>,
) -> Result<Vec<(String, GradientCheck<T>)>> {
    check_positive("entries", entries)?;
    let gradients = gradients.named();
    let parameters = model.named();
    check_fit("gradients", shapes_of(&gradients), shapes_of(&parameters), "")?;
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut checks = vec![];
    for (at, (name, gradient)) in gradients.into_iter().enumerate() {
        let (mut changed, parameter) = (model.clone(), parameters[at].1);
        // In order, so that all entries are checked as they stand.
        let count = entries.min(parameter.len());
        let mut sample = rand::seq::index::sample(rng, parameter.len(), count).into_vec();
        sample.sort_unstable();
        let row = |matrix: DMatrixView<T>| {
            DMatrix::from_iterator(1, count, sample.iter().map(|&entry| matrix[entry]))
        };
        let mut check =
            gradient_check(&row(parameter), &row(gradient), epsilon, |values| {
                let matrix = &mut changed.named_mut()[at].1;
                for (&entry, &value) in sample.iter().zip(values) {
                    matrix[entry] = value;
                }
                loss(&changed)
            })?;
        let worst = sample[check.worst.1];
        check.worst = (worst % parameter.nrows(), worst / parameter.nrows());
        checks.push((name, check));
    }
    Ok(checks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// The slope of the identity is 1, in f32 and far from 0 too, where x + ε is rounded hard.
    #[test]
    fn the_step_that_was_taken_counts() {
        let slope = numerical_gradient(&dmatrix![100.0_f32], 1e-5, |x| Ok(x[0])).unwrap();
        assert_eq!(slope[0], 1.0);
        let slope = numerical_gradient(&dmatrix![1e6_f64], 1e-5, |x| Ok(x[0])).unwrap();
        assert_eq!(slope[0], 1.0);
        let error =
            numerical_gradient(&dmatrix![1e6_f32], 1e-5, |x| Ok(x[0])).unwrap_err();
        assert!(error.to_string().contains("lost beside the entry 1000000"), "{error}");
    }

    /// The entry is moved to see how a loss is rounded; an entry of 0 has to move, too.
    #[test]
    fn rounding_is_seen_at_zero() {
        let far_away = |x: &DMatrix<f64>| Ok((x[0] + 1e8) - 1e8); // a multiple of 1.5e-8
        let seen = rounding(dmatrix![0.0].as_view(), far_away).unwrap();
        assert!((1e-9..1e-8).contains(&seen), "{seen}");
    }

    /// In `f32`, squares of such differences are infinite or 0.
    #[test]
    fn rounding_grows_with_the_loss() {
        let of_loss_times = |factor: f32| {
            let x = dmatrix![0.3_f32, 0.7];
            rounding(x.as_view(), |x: &DMatrix<f32>| Ok(x.map(f32::sin).sum() * factor))
        };
        let one = of_loss_times(1.0).unwrap();
        for power in [2.0_f32.powi(100), 2.0_f32.powi(-100)] {
            let share = of_loss_times(power).unwrap() / power / one;
            assert!((share - 1.0).abs() < 1e-6, "{power:e}: {share}");
        }
    }

    /// The losses are asked for at steps of the documented size, each a multiple of the first.
    #[test]
    fn rounding_takes_steps_whose_square_is_lost() {
        let mut moved = vec![];
        rounding(dmatrix![0.0, 3.0; 0.0, -3.0].as_view(), |x: &DMatrix<f64>| {
            moved.push([x[0], x[2], x[3]]);
            Ok(x.sum())
        })
        .unwrap();
        let step = (f64::EPSILON / 4.0).sqrt() / 16.0; // four entries
        for (steps, moved) in moved.into_iter().enumerate() {
            let step = step * steps as f64;
            assert_eq!(moved, [step, 3.0 + 4.0 * step, -3.0 + 4.0 * step]);
        }
    }

    /// Losses of 1 and −1 in turn have second differences of ±4, whose variance is six times that of one loss.
    #[test]
    fn rounding_is_the_deviation_that_second_differences_show() {
        let mut loss = -1.0;
        let seen = rounding(dmatrix![0.0_f64].as_view(), |_| {
            loss = -loss;
            Ok(loss)
        });
        assert!((seen.unwrap() - (16.0_f64 / 6.0).sqrt()).abs() < 1e-12);
    }

    /// A loss that never moves shows no rounding, and is still no more exact than half its last place.
    #[test]
    fn rounding_is_at_least_half_the_last_place() {
        let seen = rounding(dmatrix![0.0_f64].as_view(), |_| Ok(3.0)).unwrap();
        assert_eq!(seen, 1.5 * f64::EPSILON);
    }

    #[test]
    fn of_equal_errors_the_first_is_named() {
        let x = dmatrix![0.0_f64, 0.0];
        let ones = dmatrix![1.0, 1.0];
        let check = gradient_check(&x, &ones, 0.5, |x| Ok(x.sum())).unwrap();
        assert_eq!((check.max_relative_error, check.worst), (0.0, (0, 0)));
    }

    /// A loss that does not depend on x, and a gradient that is zero up to rounding: nothing is lost, and nothing is wrong.
    #[test]
    fn a_gradient_of_nothing_but_rounding_is_not_refused() {
        let x = dmatrix![1.0_f64, 2.0];
        let check = gradient_check(&x, &(1e-17 * &x), 1e-5, |_| Ok(0.0)).unwrap();
        assert!(check.max_relative_error < 1e-8);
    }

    #[test]
    fn nan_is_never_passed_over() {
        let x = dmatrix![1.0_f64, 2.0];
        let analytic = dmatrix![1.0, f64::NAN];
        let check = gradient_check(&x, &analytic, 1e-5, |x| Ok(x.sum())).unwrap();
        assert!(check.max_relative_error.is_nan());
        assert_eq!(check.worst, (0, 1));
    }
}
