//! # Name the fault
//!
//! medium, 30 minutes
//!
//! Six patients are waiting, each a causal attention with one head. Each has one of the five faults of `Fault`, or
//! none. Two may have the same, and a fault may be missing.
//!
//! The code is in front of you; the exercise is to do without. Call `patient(0)` to `patient(5)` with inputs for
//! which you know what a healthy program and each faulty one returns. You can do that in a `#[test]` of your own at
//! the end of this file, run by `cargo test --test name_the_fault -- --nocapture`. The crate `laboratory` isn't
//! needed. Then let `diagnoses` return your six names. A tool that tells faults apart by behaviour also works on a
//! program whose source you will never see.
//!
//! # Hint
//!
//! With the identity for $V$, the output *is* the weights. What does each kind return if all scores are zero? Make a
//! table with a row for each kind. Which kinds does it tell apart?
//!
//! # Hint
//!
//! With scores of zero, three kinds look the same. One of them needs a score whose size you know: take keys with
//! four columns. Another shows only if two rows of scores lie far apart.
//!
//! # Hint
//!
//! Print three outputs of each patient: zeros for `q`; then `q` and the last key all ones, the other keys zeros, with
//! four columns; and queries of 1,000 and −1,000 with keys of width 1, which hold ones. Compare row by row with your
//! table.

use attention::softmax_rows;
use nalgebra::DMatrix;

/// What a patient may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Healthy,
    /// Softmax runs down the columns.
    WrongAxis,
    /// Scores aren't divided by √d.
    MissingScale,
    /// Each query sees the next token, too.
    SeesOneTooMany,
    /// Hidden weights are set to zero after softmax, and rows aren't divided again.
    MaskAfterSoftmax,
    /// Softmax subtracts the maximum of the whole matrix from every row. A row far below it underflows: all its
    /// exponentials are 0.
    OneMaximum,
}

/// Runs a patient, 0 to 5, on `q` and `k` (n, d) and `v` (n, d_v) → (n, d_v).
pub fn patient(
    number: usize,
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
) -> DMatrix<f64> {
    let code = [164, 353, 41, 227, 576, 504][number] * 37 % 101;
    let has = |bit: usize| code >> bit & 1;
    let turn = |m: DMatrix<f64>| if has(0) == 1 { m.transpose() } else { m };
    let root = (q.ncols() as f64).powf(0.5 * (1 - has(1)) as f64);
    let hide = |m: DMatrix<f64>, with: f64| {
        DMatrix::from_fn(m.nrows(), m.ncols(), |i, j| {
            if j > i + has(2) { with } else { m[(i, j)] }
        })
    };
    let products = q * k.transpose() / root;
    let seen = if has(3) == 1 { products } else { hide(products, f64::NEG_INFINITY) };
    let weights = if has(4) == 1 {
        let powers = seen.map(|score| (score - seen.max()).exp());
        DMatrix::from_fn(seen.nrows(), seen.ncols(), |i, j| {
            powers[(i, j)] / powers.row(i).sum()
        })
    } else {
        turn(softmax_rows(&turn(seen)).expect("they aren't empty"))
    };
    hide(weights, 0.0) * v
}

/// Returns what each of the six patients has.
pub fn diagnoses() -> [Fault; 6] {
    // SOLUTION
    use Fault::*;
    // FAULT first-glance: patient 3 isn't Healthy
    // > [MaskAfterSoftmax, Healthy, MissingScale, Healthy, WrongAxis, Healthy]
    // FAULT not-what-it-seems: patient 0 isn't WrongAxis
    // > [WrongAxis, Healthy, MissingScale, OneMaximum, WrongAxis, Healthy]
    // FAULT a-leak: patient 4 isn't SeesOneTooMany
    // > [MaskAfterSoftmax, Healthy, MissingScale, OneMaximum, SeesOneTooMany, Healthy]
    // FAULT zeros-alone: patient 2 isn't Healthy
    // > [MaskAfterSoftmax, Healthy, Healthy, OneMaximum, WrongAxis, Healthy]
    [MaskAfterSoftmax, Healthy, MissingScale, OneMaximum, WrongAxis, Healthy]
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{DMatrix, dmatrix};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// What a program with this fault returns.
    fn program(
        fault: Fault,
        q: &DMatrix<f64>,
        k: &DMatrix<f64>,
        v: &DMatrix<f64>,
    ) -> DMatrix<f64> {
        let n = q.nrows();
        let root =
            if fault == Fault::MissingScale { 1.0 } else { (q.ncols() as f64).sqrt() };
        let scores = q * k.transpose() / root;
        let hidden = |i, j| j > i + usize::from(fault == Fault::SeesOneTooMany);
        let exponentials = DMatrix::from_fn(n, n, |i, j| {
            let row_max = (0..n)
                .filter(|&j| !hidden(i, j))
                .map(|j| scores[(i, j)])
                .fold(f64::NEG_INFINITY, f64::max);
            let max = if fault == Fault::OneMaximum { scores.max() } else { row_max };
            if hidden(i, j) && fault != Fault::MaskAfterSoftmax {
                0.0
            } else {
                (scores[(i, j)] - max).exp()
            }
        });
        let mut columns = DMatrix::from_fn(n, n, |i, j| {
            let max = (j..n).map(|i| scores[(i, j)]).fold(f64::NEG_INFINITY, f64::max);
            if hidden(i, j) { 0.0 } else { (scores[(i, j)] - max).exp() }
        });
        columns.column_iter_mut().for_each(|mut column| column /= column.sum());
        let rows = DMatrix::from_fn(n, n, |i, j| {
            if hidden(i, j) {
                0.0
            } else {
                exponentials[(i, j)] / exponentials.row(i).sum()
            }
        });
        if fault == Fault::WrongAxis { columns * v } else { rows * v }
    }

    /// Inputs that together tell all kinds apart.
    fn probes() -> [[DMatrix<f64>; 3]; 4] {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut random = || DMatrix::from_fn(4, 3, |_, _| rng.random_range(-1.0..1.0));
        let (zeros, values) = (DMatrix::zeros(3, 4), dmatrix![1.0; 10.0; 100.0]);
        let last = DMatrix::from_fn(2, 4, |i, _| i as f64);
        let far = dmatrix![-1000.0; 1000.0; 2.0];
        [
            [zeros.clone(), zeros, values.clone()],
            [DMatrix::repeat(2, 4, 1.0), last, dmatrix![0.0; 1.0]],
            [far, DMatrix::repeat(3, 1, 1.0), values],
            [random(), random(), random()],
        ]
    }

    fn examine(patients: std::ops::Range<usize>) {
        let answer = diagnoses();
        for number in patients {
            let claim = answer[number];
            let same = probes().iter().all(|[q, k, v]| {
                let (claimed, found) =
                    (program(claim, q, k, v), patient(number, q, k, v));
                (claimed.iter().zip(&found))
                    .all(|(a, b)| (a - b).abs() < 1e-9 || a.is_nan() && b.is_nan())
            });
            let program = match claim {
                Fault::Healthy => "a healthy program",
                _ => "a program with this fault",
            };
            assert!(
                same,
                "patient {number} isn't {claim:?}: on some input {program} returns something else. Which input have you not tried?"
            );
        }
    }

    #[test]
    fn patients_0_and_1_have_what_you_say() {
        examine(0..2);
    }

    #[test]
    fn patients_2_and_3_have_what_you_say() {
        examine(2..4);
    }

    #[test]
    fn patients_4_and_5_have_what_you_say() {
        examine(4..6);
    }
}
