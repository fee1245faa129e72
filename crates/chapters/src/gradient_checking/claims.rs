//! Tests of what the chapter says of its numbers.

use super::check::{Case, EPSILON};
use super::faults::{FAULTS, Fault, Trial};
use super::layers::{cases, layers, masks};
use super::step::{self, Curve, Problem, U, median_entry, problems};
use anyhow::Result;
use attention::{
    Mask, SingleHeadAttention, example,
    gradient_check::{gradient_check_parameters, numerical_gradient},
};
use nalgebra::{DMatrix, RowDVector};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use std::sync::LazyLock;

/// The threshold of a check, here as in the tests.
const THRESHOLD: f64 = 1e-5;

static THE_U: LazyLock<U> = LazyLock::new(|| step::the_u().unwrap());

/// The median slope, without signs.
static SLOPE: LazyLock<f64> = LazyLock::new(|| {
    let problems = problems().unwrap();
    let gradients: Result<Vec<_>> = problems.iter().map(Problem::gradient).collect();
    median_entry(&gradients.unwrap())
});

fn curves() -> [&'static Curve; 3] {
    [&THE_U.double, &THE_U.single, &THE_U.one_sided]
}

#[test]
fn the_loops_compute_the_layers_loss() {
    for problem in problems().unwrap() {
        let layer = problem.layer().unwrap();
        let (output, _) = layer.forward(&problem.x, Mask::none()).unwrap();
        let off = output.dot(&problem.r) - problem.loss(&problem.x);
        assert!(off.abs() < 1e-14, "{off}");
    }
}

#[test]
fn the_errors_are_those_predicted() {
    for curve in curves() {
        for &(epsilon, measured) in curve.measured.iter().step_by(2) {
            let ratio = measured / curve.prediction.error(epsilon);
            assert!((0.4..2.5).contains(&ratio), "at a step of {epsilon}: {ratio}");
        }
    }
}

#[test]
fn the_best_steps_and_their_errors_are_those_predicted() {
    let near = |a: f64, b: f64| a / b < 3.0 && b / a < 3.0;
    for curve in curves() {
        let (measured, predicted) = (curve.best(), curve.prediction.best());
        assert!(near(predicted.0, measured.0), "{predicted:?} {measured:?}");
        assert!(near(predicted.1, measured.1), "{predicted:?} {measured:?}");
    }
}

#[test]
fn in_f32_steps_are_lost_a_few_halvings_after_the_last_one_shown() {
    let problems = problems().unwrap();
    let any_is_lost = |power: i32| {
        problems.iter().any(|p| p.in_f32().central(0.5_f64.powi(power)).is_err())
    };
    assert!(!any_is_lost(20));
    assert!(any_is_lost(25));
}

#[test]
fn no_step_will_do_in_f32_and_those_of_f64_are_far_below_the_threshold() {
    // A relative error divides by the sum of both slopes.
    let relative = THE_U.single.best().1 / (2.0 * *SLOPE);
    assert!(relative > THRESHOLD, "{relative}");
    assert!(THE_U.double.best().1 / *SLOPE < THRESHOLD / 1e4);
}

#[test]
fn one_sided_differences_are_far_worse() {
    assert!(THE_U.double.best().1 < THE_U.one_sided.best().1 / 100.0);
    let at = |curve: &Curve| curve.measured[17].1;
    assert!(at(&THE_U.one_sided) / at(&THE_U.double) > 1e4);
}

/// Near the usual step.
#[test]
fn slopes_a_thousand_times_smaller_are_far_below_the_threshold() {
    let of_small_slopes = THE_U.double.measured[17].1 / (2.0 * *SLOPE / 1000.0);
    assert!(of_small_slopes < THRESHOLD / 100.0, "{of_small_slopes}");
}

/// Asserts something of the gradient with respect to the input and each parameter, of both layers under all masks.
fn of_every_gradient(assert: impl Fn(&str, &Case)) {
    let (one_head, two_heads) = layers().unwrap();
    for mask in masks().unwrap() {
        let cases = [cases(&one_head, &mask).unwrap(), cases(&two_heads, &mask).unwrap()];
        cases.iter().flatten().for_each(|(name, case)| assert(name, case));
    }
}

fn measured(case: &Case, epsilon: f64) -> nalgebra::DMatrix<f64> {
    numerical_gradient(&case.at, epsilon, &case.loss).unwrap()
}

#[test]
fn the_difference_from_a_right_gradient_shrinks_with_the_square_of_the_step() {
    of_every_gradient(|name, case| {
        let off = |epsilon| (&case.gradient - measured(case, epsilon)).amax();
        let ratio = off(1e-2) / off(1e-3);
        assert!(name == "b_k" || (99.0..101.0).contains(&ratio), "{name}: {ratio}");
    });
}

#[test]
fn the_gradient_with_respect_to_the_bias_of_the_keys_is_zero() {
    of_every_gradient(|name, case| {
        if name == "b_k" {
            assert!(case.gradient.amax() < 1e-14);
            assert!(measured(case, EPSILON).amax() < 1e-9);
        }
    });
}

#[test]
fn faults_pass_on_one_input_and_are_caught_on_another() {
    for Fault { name, case, .. } in FAULTS {
        let check = |hides| case(Trial { hides, planted: true })?.check(EPSILON);
        let [hidden, seen] = [true, false].map(|hides| check(hides).unwrap());
        assert!(hidden.max_relative_error < THRESHOLD, "{name}: {hidden:?}");
        assert!(seen.max_relative_error > 0.01, "{name}: {seen:?}");
    }
}

#[test]
fn without_the_fault_both_inputs_pass() {
    for Fault { name, case, .. } in FAULTS {
        for hides in [true, false] {
            let case = case(Trial { hides, planted: false }).unwrap();
            let check = case.check(EPSILON).unwrap();
            assert!(check.max_relative_error < THRESHOLD, "{name}: {check:?}");
        }
    }
}

#[test]
fn the_difference_from_a_wrong_gradient_does_not_shrink_with_the_step() {
    for Fault { name, case, .. } in FAULTS {
        for hides in [true, false] {
            let case = case(Trial { hides, planted: true }).unwrap();
            let [wide, narrow] =
                [1e-3, 1e-4].map(|epsilon| case.relative_error(epsilon).unwrap());
            let stays = (wide / narrow - 1.0).abs() < 0.01;
            assert!(narrow < THRESHOLD || stays, "{name}: {wide}, {narrow}");
        }
    }
}

/// The layer that the chapter checks, its input and P.
fn checked_layer() -> (SingleHeadAttention<f64>, [DMatrix<f64>; 2]) {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let layer = SingleHeadAttention::xavier(4, 3, 2, rng).unwrap();
    let projection = DMatrix::from_fn(6, 4, |_, _| rng.random_range(-1.0..1.0));
    (layer, [example::river().x, projection])
}

#[test]
fn without_a_floor_the_key_bias_raises_a_false_alarm_and_with_one_it_does_not() {
    let (layer, [x, projection]) = checked_layer();
    let loss = |layer: &SingleHeadAttention<f64>| {
        Ok(layer.forward(&x, Mask::causal())?.0.dot(&projection))
    };
    let (_, cache) = layer.forward(&x, Mask::causal()).unwrap();
    let gradients = layer.backward(&cache, &projection).unwrap();
    let b_k = DMatrix::from_row_slice(1, 3, layer.parameters.b_k.as_slice());
    let slopes = numerical_gradient(&b_k, EPSILON, |b_k| {
        let mut nudged = layer.clone();
        nudged.parameters.b_k = RowDVector::from_row_slice(b_k.as_slice());
        loss(&nudged)
    });
    let slopes = slopes.unwrap();
    let errors = gradients.parameters.b_k.iter().zip(slopes.iter());
    let errors = errors.map(|(a, slope)| (a - slope).abs() / (a.abs() + slope.abs()));
    let worst = errors.filter(|error| error.is_finite()).fold(0.0, f64::max);
    assert!(worst > 0.9, "{worst}");
    for (name, check) in
        gradient_check_parameters(&layer, &gradients, EPSILON, loss).unwrap()
    {
        assert!(check.max_relative_error < THRESHOLD, "{name}: {check:?}");
    }
}
