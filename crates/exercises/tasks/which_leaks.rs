//! # Which of these leaks?
//!
//! medium, 20 minutes
//!
//! Five programmers were asked for causal attention in which the queries are the last tokens of the text. Their functions are in the exercise's file. A token is a key and its value. Judge each program for numbers of ordinary size, up to rounding:
//!
//! - `Sound`: an output depends on every token that its query may see, and on no other.
//! - `Leaks`: an output depends on a token of its future.
//! - `HidesTooMuch`: an output ignores a token that its query may see, and no output depends on its future.
//!
//! Two of them are better than they look. Read them first. If in doubt, test them as the chapter does: change a
//! token, and see which outputs move. Change it a lot, too.
//!
//! # Hint
//!
//! A hidden score does no harm if nothing else was computed from it before it was hidden. So look for sums, means and
//! maxima that run over *all* keys. Which of them still matter in the end?
//!
//! # Hint
//!
//! Two facts of *Softmax* decide the two that look wrong. Weights don't change when all scores of a row move together.
//! And a common factor of a row's weights cancels when the row is divided by its sum.
//!
//! # Hint
//!
//! Take two queries and four keys. Which keys may the first query see? Try `ada(&q, &k, &v)` with random matrices, then
//! with another last key and value, in a `#[test]` at the end of this file, run by `cargo test --test which_leaks`.

use nalgebra::DMatrix;

type Matrix = DMatrix<f64>;

/// What you think of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It shows each query what it may see, and nothing else.
    Sound,
    /// It shows a query something of its future.
    Leaks,
    /// It hides something that a query may see.
    HidesTooMuch,
}
use Verdict::*;

/// Scores (n_q, n_k).
fn scores(q: &Matrix, k: &Matrix) -> Matrix {
    q * k.transpose() / (q.ncols() as f64).sqrt()
}

/// Whether query i may see key j: the last query stands at the last key.
fn may_see(i: usize, j: usize, s: &Matrix) -> bool {
    j + s.nrows() <= i + s.ncols()
}

/// The scores, with −∞ where a query may not see a key.
fn hide(s: &Matrix) -> Matrix {
    Matrix::from_fn(s.nrows(), s.ncols(), |i, j| {
        if may_see(i, j, s) { s[(i, j)] } else { f64::NEG_INFINITY }
    })
}

fn softmax(s: &Matrix) -> Matrix {
    attention::softmax_rows(s).expect("scores of one key or more")
}

/// Shapes of this and the others: q (n_q, d_k), k (n_k, d_k), v (n_k, d_v) → (n_q, d_v), with n_q ≤ n_k.
pub fn ada(q: &Matrix, k: &Matrix, v: &Matrix) -> Matrix {
    let s = scores(q, k);
    let mut weights = softmax(&s);
    for (i, mut row) in weights.row_iter_mut().enumerate() {
        for j in 0..row.len() {
            row[j] = if may_see(i, j, &s) { row[j] } else { 0.0 };
        }
        let sum = row.sum();
        row /= sum;
    }
    weights * v
}

pub fn ben(q: &Matrix, k: &Matrix, v: &Matrix) -> Matrix {
    let s = scores(q, k);
    let seen = s.map_with_location(|i, j, _| if may_see(i, j, &s) { 1.0 } else { 0.0 });
    softmax(&s.component_mul(&seen)) * v
}

pub fn cleo(q: &Matrix, k: &Matrix, v: &Matrix) -> Matrix {
    let s = scores(q, k);
    let hidden =
        s.map_with_location(|i, j, score| if j <= i { score } else { f64::NEG_INFINITY });
    softmax(&hidden) * v
}

pub fn dan(q: &Matrix, k: &Matrix, v: &Matrix) -> Matrix {
    let mut s = scores(q, k);
    for mut row in s.row_iter_mut() {
        let mean = row.mean();
        row.add_scalar_mut(-mean); // so that scores stay small
    }
    softmax(&hide(&s)) * v
}

pub fn eve(q: &Matrix, k: &Matrix, v: &Matrix) -> Matrix {
    let mut s = scores(q, k);
    for mut row in s.row_iter_mut() {
        let size = row.amax();
        row /= size; // so that scores stay small
    }
    softmax(&hide(&s)) * v
}

/// Returns your verdicts on ada, ben, cleo, dan and eve, in this order.
pub fn verdicts() -> [Verdict; 5] {
    // SOLUTION
    [
        // FAULT late-is-wrong: is what cancels still a leak?
        // > Leaks,
        Sound, // what the hidden keys add to the denominator cancels
        // FAULT zero-hides: what is the weight of a key with the score 0?
        // > Sound,
        Leaks, // a score of 0 is a score
        // FAULT first-key-only: does each output react to all that it may see?
        // > Sound,
        HidesTooMuch, // aligns the first query with the first key
        // FAULT mean-leaks: all scores of a row move together
        // > Leaks,
        Sound, // moves all scores of a row together
        // FAULT stretched: stretched by one factor
        // > Sound,
        Leaks, // a future score stretches those of the past
    ]
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    type Attend = fn(&DMatrix<f64>, &DMatrix<f64>, &DMatrix<f64>) -> DMatrix<f64>;

    /// Changes each key and its value in turn, and looks which outputs move.
    fn tried(attend: Attend) -> Verdict {
        let rng = &mut ChaCha8Rng::seed_from_u64(6);
        let mut draw =
            |n, d| DMatrix::<f64>::from_fn(n, d, |_, _| StandardNormal.sample(rng));
        let (n_q, n_k) = (3, 5);
        let (q, k, v) = (draw(n_q, 4), draw(n_k, 4), draw(n_k, 2));
        let before = attend(&q, &k, &v);
        let (mut leaks, mut hides) = (false, false);
        for j in 0..n_k {
            // The outputs of a query, after a few changes of this key and its value.
            let changed = [-8.0, -1.5, 8.0].map(|factor| {
                let (mut k, mut v) = (k.clone(), v.clone());
                k.row_mut(j).scale_mut(factor);
                v.row_mut(j).add_scalar_mut(1.0);
                attend(&q, &k, &v)
            });
            for i in 0..n_q {
                let moved = changed
                    .iter()
                    .any(|after| (after.row(i) - before.row(i)).amax() > 1e-9);
                let seen = j <= i + n_k - n_q;
                leaks |= moved && !seen;
                hides |= seen && !moved;
            }
        }
        if leaks {
            Verdict::Leaks
        } else if hides {
            Verdict::HidesTooMuch
        } else {
            Verdict::Sound
        }
    }

    fn check(index: usize, attend: Attend, question: &str) {
        let name = ["ada", "ben", "cleo", "dan", "eve"][index];
        let yours = verdicts()[index];
        assert!(
            yours == tried(attend),
            "{name}: we changed one key and its value at a time, and {yours:?} isn't what we saw. {question}"
        );
    }

    #[test]
    fn ada_divides_by_the_sum_in_the_end() {
        check(0, ada, "Write out a weight at the end: is what cancels still a leak?");
    }

    #[test]
    fn ben_multiplies_by_zero() {
        check(
            1,
            ben,
            "In a row of scores, what is the weight of a key with the score 0?",
        );
    }

    #[test]
    fn cleo_compares_rows_and_columns() {
        let question = "With three queries and five keys, does each output react to all that it may see?";
        check(2, cleo, question);
    }

    #[test]
    fn dan_subtracts_a_mean() {
        check(3, dan, "What does softmax do when all scores of a row move together?");
    }

    #[test]
    fn eve_divides_by_the_largest() {
        let question = if verdicts()[4] == Verdict::HidesTooMuch {
            "All scores of a row are stretched by one factor. Whose score can be the factor, and who may see it?"
        } else {
            "What does softmax do when all scores of a row are stretched by one factor?"
        };
        check(4, eve, question);
    }
}
