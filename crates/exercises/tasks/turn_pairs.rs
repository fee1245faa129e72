//! # Turn pairs of columns
//!
//! medium, 25 minutes, without `attention::`
//!
//! To train on many short texts, programs pack several into one matrix. Each text starts again at position 0, so the
//! row number no longer says where a token stands. Write rotary positions for this case: each row comes with a position
//! of its own.
//!
//! Turn the columns $2c$ and $2c + 1$ of a row at position $p$ by the angle $p\,\omega_c$, with
//! $\omega_c = \text{base}^{-2c/d}$, as in the chapter: $x' = x\,R(p\,\omega_c)$ for each pair. Rows are queries or
//! keys of one head, and $d$ is even. The shape $(n, d)$ stays. Don't call the crate.
//!
//! # Hint
//!
//! Write $x' = x\,R(a)$ for a pair $(x_0, x_1)$ as two equations. Which of the two has a minus sign?
//!
//! # Hint
//!
//! Both new numbers need both old ones. What happens if you write the first into the matrix before you compute the
//! second?
//!
//! # Hint
//!
//! Clone `x`, and read from the original. For each row and each `c` in `0..d / 2`, `let (sin, cos) = angle.sin_cos()`.
//! The first column becomes $x_0 \cos a - x_1 \sin a$; the second is yours.

use nalgebra::DMatrix;

/// Returns queries or keys of one head, turned.
///
/// Shapes: `x` (n, d), `positions` (n) → (n, d).
pub fn turn_pairs(x: &DMatrix<f64>, positions: &[usize], base: f64) -> DMatrix<f64> {
    // SOLUTION
    let d = x.ncols();
    // FAULT the-crate: this exercise asks you to do without it
    // > let mut turned = attention::Rotary::new(base, attention::positions::RotaryPairs::Neighbours).map(|_| x.clone()).unwrap();
    let mut turned = x.clone();
    // FAULT row-number: has a position of its own
    // > for (i, position) in (0..positions.len()).enumerate() {
    for (i, &position) in positions.iter().enumerate() {
        for c in 0..d / 2 {
            // FAULT half-speed: are the speeds base^(−2c/d)
            // > let speed = base.powf(-(c as f64) / d as f64);
            let speed = base.powf(-2.0 * c as f64 / d as f64);
            // FAULT angles-in-f32: is an angle computed in f32
            // > let (sin, cos) = f64::from(position as f32 * speed as f32).sin_cos();
            // FAULT all-in-f32: is an angle computed in f32
            // > let (sin, cos) = (position as f32 * speed as f32).sin_cos();
            // > let (sin, cos) = (f64::from(sin), f64::from(cos));
            // FAULT turned-back: turned the other way
            // > let (sin, cos) = (-(position as f64) * speed).sin_cos();
            let (sin, cos) = (position as f64 * speed).sin_cos();
            // FAULT halves: columns c and c + d/2 were turned together
            // > let (first, second) = (c, c + d / 2);
            let (first, second) = (2 * c, 2 * c + 1);
            turned[(i, first)] = x[(i, first)] * cos - x[(i, second)] * sin;
            // FAULT overwritten: a turn keeps lengths
            // > turned[(i, second)] = turned[(i, first)] * sin + x[(i, second)] * cos;
            turned[(i, second)] = x[(i, first)] * sin + x[(i, second)] * cos;
        }
    }
    turned
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Rotary, positions::RotaryPairs};
    use nalgebra::{DMatrix, dmatrix};
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    fn same(a: &DMatrix<f64>, b: &DMatrix<f64>) -> bool {
        (a - b).norm() < 1e-9 // false for NaN
    }

    /// A number that is off in the seventh digit or so was rounded to an f32 on its way.
    fn check_digits(off: f64) {
        assert!(
            !(1e-9..1e-4).contains(&off),
            "right to some digits, and off by {off:.0e}: is an angle computed in f32?"
        );
    }

    fn draw(n: usize, d: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(n, d, |_, _| StandardNormal.sample(rng))
    }

    /// The crate's answer, row by row. With a sign of -1, turned the other way.
    fn by_the_crate(
        x: &DMatrix<f64>,
        positions: &[usize],
        base: f64,
        pairs: RotaryPairs,
        sign: isize,
    ) -> DMatrix<f64> {
        let rotary = Rotary::new(base, pairs).unwrap();
        let mut turned = x.clone();
        for (i, &position) in positions.iter().enumerate() {
            let x = x.rows(i, 1).into_owned();
            let row = rotary.turn(&x, 1, sign * position as isize).unwrap();
            turned.row_mut(i).copy_from(&row);
        }
        turned
    }

    #[test]
    fn an_arrow_turns_by_its_position() {
        let got = turn_pairs(&dmatrix![1.0, 0.0; 0.0, 2.0], &[1, 1], 10000.0);
        let (sin, cos) = 1.0_f64.sin_cos();
        assert!(
            !((got[(0, 1)] + sin).abs() < 1e-9),
            "(1, 0) at position 1 became (cos 1, −sin 1): it turned the other way"
        );
        let right = dmatrix![cos, sin; -2.0 * sin, 2.0 * cos];
        check_digits((&got - &right).amax());
        assert!(
            same(&got, &right),
            "at position 1, (1, 0) becomes (cos 1, sin 1), and (0, 2) becomes (−2 sin 1, 2 cos 1)"
        );
    }

    #[test]
    fn lengths_stay() {
        let x = draw(4, 6, 1);
        let got = turn_pairs(&x, &[0, 1, 5, 40], 100.0);
        for i in 0..4 {
            let (before, after) = (x.row(i).norm(), got.row(i).norm());
            check_digits((before - after).abs());
            assert!(
                (before - after).abs() < 1e-9,
                "row {i} had the length {before:.4} and now has {after:.4}, but a turn keeps lengths. Does a new number overwrite one that is still needed?"
            );
        }
    }

    #[test]
    fn scores_depend_on_distances_alone() {
        let (q, k) = (draw(1, 8, 2), draw(1, 8, 3));
        let score = |i: usize, j: usize| {
            turn_pairs(&q, &[i], 100.0).dot(&turn_pairs(&k, &[j], 100.0))
        };
        for (i, j) in [(3, 0), (2, 6), (5, 5)] {
            let (near, far) = (score(i, j), score(i + 70, j + 70));
            check_digits((near - far).abs());
            assert!(
                (near - far).abs() < 1e-9,
                "query at {i} and key at {j} score {near:.4}; both 70 later, {far:.4}. Are both turned by their own position?"
            );
        }
        assert!(
            (score(3, 0) - score(4, 0)).abs() > 1e-3,
            "another distance doesn't change the score: is anything turned?"
        );
    }

    #[test]
    fn pairs_and_speeds_are_those_of_the_crate() {
        for (d, base) in [(2, 10000.0), (4, 10000.0), (6, 100.0), (10, 50.0)] {
            let (x, positions) = (draw(3, d, 4), [0, 1, 2]);
            let got = turn_pairs(&x, &positions, base);
            let halves = by_the_crate(&x, &positions, base, RotaryPairs::Halves, 1);
            assert!(
                d == 2 || !same(&got, &halves),
                "d = {d}: columns c and c + d/2 were turned together, and neighbours are asked for"
            );
            let right = by_the_crate(&x, &positions, base, RotaryPairs::Neighbours, 1);
            let back = by_the_crate(&x, &positions, base, RotaryPairs::Neighbours, -1);
            assert!(
                !same(&got, &back),
                "d = {d}, base {base}: every pair turned the other way, by the negative angle"
            );
            check_digits((&got - &right).amax());
            let column =
                (0..d).find(|&c| !((got.column(c) - right.column(c)).norm() < 1e-9));
            let question = match column {
                Some(0 | 1) => "the first pair turns by its position itself, in radians",
                _ => "are the speeds base^(−2c/d), where c counts pairs?",
            };
            assert!(
                column.is_none(),
                "d = {d}, base {base}: column {} is wrong, the first that is: {question}",
                column.unwrap_or(0)
            );
        }
    }

    #[test]
    fn packed_texts_start_again() {
        let text = draw(3, 4, 5);
        let both = DMatrix::from_fn(6, 4, |i, c| text[(i % 3, c)]);
        let got = turn_pairs(&both, &[0, 1, 2, 0, 1, 2], 100.0);
        assert!(
            (got.rows(0, 3) - got.rows(3, 3)).norm() < 1e-9,
            "the same text packed twice gets different rows: each row has a position of its own, which isn't its number"
        );
        let one = turn_pairs(&text, &[9, 4, 700], 100.0);
        let [right, back] = [1, -1].map(|sign| {
            by_the_crate(&text, &[9, 4, 700], 100.0, RotaryPairs::Neighbours, sign)
        });
        assert!(
            !same(&one, &back),
            "with the positions 9, 4 and 700, every pair turned the other way"
        );
        check_digits((&one - &right).amax());
        assert!(
            same(&one, &right),
            "with the positions 9, 4 and 700, the rows are turned by other angles than these positions give"
        );
    }
}
