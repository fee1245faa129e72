//! # Build it yourself: positions
//!
//! medium, 30 minutes, without `attention::`
//!
//! The seventh file tells a layer who stands where, in two ways.
//!
//! `rotate` turns queries or keys of one head, $(n, d)$ with an even $d$, and returns the same shape. Row $i$ stands at position $i$ plus
//! `first`. In each row, columns $c$ and $c + d/2$ are a pair, with $c$ counted from 0. Turn it by the angle `direction` times position times
//! $\omega_c$, where $\omega_c = 10000^{-2c/d}$. A direction of −1 undoes what 1 does.
//!
//! `slopes` returns $2^{-8r/h}$ for the heads $r = 1, \dots, h$. `bias_by_distance` takes from each score $(n_q, n_k)$ its slope times
//! $|i - j|$. Keys in the future pay, too.
//!
//! # Hint
//!
//! The pair $(a, b)$ becomes $(a \cos \alpha - b \sin \alpha,\; a \sin \alpha + b \cos \alpha)$. Both new numbers need both old ones: what happens if you write
//! the first into the matrix from which you read the second?
//!
//! # Hint
//!
//! With `half` for $d/2$, the exponent $-2c/d$ is `-(c as f64) / half as f64`. For the distance, a difference of `usize` must not become negative:
//! `i.abs_diff(j)`.
//!
//! # Hint
//!
//! Clone `x`, read from `x`, and write into the clone. Two loops, over rows and over `0..half`. `let (sin, cos) = angle.sin_cos();`, and
//! `10_000_f64.powf(…)` is a power. For the slopes, `(1..=n_heads).map(|h| 2_f64.powf(…)).collect()`.

use attention::plain::*;

// PROGRAM positions
// FAULT neighbours: Columns 2c and 2c + 1 were turned together
// - let (a, b) = (x[(i, c)], x[(i, c + half)]);
// > let (a, b) = (x[(i, 2 * c)], x[(i, 2 * c + 1)]);
// FAULT neighbours
// - turned[(i, c)] = a * cos - b * sin;
// > turned[(i, 2 * c)] = a * cos - b * sin;
// FAULT neighbours
// - turned[(i, c + half)] = a * sin + b * cos;
// > turned[(i, 2 * c + 1)] = a * sin + b * cos;
// FAULT other-way: A positive angle turns the first axis towards the second
// - let (a, b) = (x[(i, c)], x[(i, c + half)]);
// > let (a, b, sin) = (x[(i, c)], x[(i, c + half)], -sin);
// FAULT both-plus: a turn needs one minus sign
// - turned[(i, c)] = a * cos - b * sin;
// > turned[(i, c)] = a * cos + b * sin;
// FAULT overwritten: Does a new number overwrite one that is still needed?
// - turned[(i, c + half)] = a * sin + b * cos;
// > turned[(i, c + half)] = turned[(i, c)] * sin + b * cos;
// FAULT one-column: The second column of the pair stayed as it was
// - turned[(i, c + half)] = a * sin + b * cos;
// FAULT half-speed: Is the exponent −2c/d, or half of that?
// - let frequency = 10_000_f64.powf(-(c as f64) / half as f64);
// > let frequency = 10_000_f64.powf(-(c as f64) / x.ncols() as f64);
// FAULT one-speed: All pairs turn at the same speed
// - let frequency = 10_000_f64.powf(-(c as f64) / half as f64);
// > let frequency = 1.0;
// FAULT growing: A later pair turns faster than the first
// - let frequency = 10_000_f64.powf(-(c as f64) / half as f64);
// > let frequency = 10_000_f64.powf(c as f64 / half as f64);
// FAULT first-ignored: Does your angle ask for `first`?
// - let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
// > let (sin, cos) = (direction * i as f64 * frequency).sin_cos();
// FAULT row-ignored: All rows were turned by the angle of the first
// - let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
// > let (sin, cos) = (direction * first as f64 * frequency).sin_cos();
// FAULT from-one: Position 0 is turned by no angle
// - let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
// > let (sin, cos) = (direction * (first + i + 1) as f64 * frequency).sin_cos();
// FAULT no-direction: Does your angle ask for `direction`?
// - let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
// > let (sin, cos) = ((first + i) as f64 * frequency).sin_cos();
// FAULT direction-of-i: The direction multiplies the whole position
// - let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
// > let position = first as f64 + direction * i as f64;
// > let (sin, cos) = (position * frequency).sin_cos();
// FAULT angles-in-f32: An angle that is computed in `f32`
// - let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
// > let angle = (first + i) as f32 * frequency as f32;
// > let (sin, cos) = (direction * f64::from(angle)).sin_cos();
// FAULT slopes-from-zero: The first head of the formula is number 1
// - (1..=n_heads).map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
// > (0..n_heads).map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
// FAULT natural: The formula has a power of 2, not of e
// - (1..=n_heads).map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
// > (1..=n_heads).map(|h| (-8.0 * h as f64 / n_heads as f64).exp()).collect()
// FAULT halves: The number of heads stands in the exponent
// - (1..=n_heads).map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
// > (1..=n_heads).map(|h| 2_f64.powf(-(h as f64))).collect()
// FAULT reversed: The first head has the largest slope
// - (1..=n_heads).map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
// > (1..=n_heads).rev().map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
// FAULT plus: A distance should cost, and here it pays
// - scores[(i, j)] - slope * i.abs_diff(j) as f64
// > scores[(i, j)] + slope * i.abs_diff(j) as f64
// FAULT multiplied: Is the bias taken from the score, whatever the score is?
// - scores[(i, j)] - slope * i.abs_diff(j) as f64
// > scores[(i, j)] * (1.0 - slope * i.abs_diff(j) as f64)
// FAULT future-gains: A distance has no sign
// - scores[(i, j)] - slope * i.abs_diff(j) as f64
// > scores[(i, j)] - slope * (i as f64 - j as f64)
// FAULT future-free: Keys in the future pay nothing
// - scores[(i, j)] - slope * i.abs_diff(j) as f64
// > scores[(i, j)] - slope * i.saturating_sub(j) as f64

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// Numbers between −1 and 1 that look random.
    fn numbers(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| {
            let at = (100 * seed + 10 * i + j + 1) as f64;
            (at * at * 0.754_877_666).fract() * 2.0 - 1.0
        })
    }

    fn near(a: &Matrix, b: &Matrix) -> bool {
        a.shape() == b.shape() && (a - b).norm() < 1e-9 // false for NaN
    }

    /// Each row turned by the angle that `angle` gives for row i and pair c, whose columns `pair` says.
    fn turned(
        x: &Matrix,
        angle: impl Fn(usize, usize) -> f64,
        pair: impl Fn(usize) -> [usize; 2],
    ) -> Matrix {
        let mut turned = x.clone();
        for (i, c) in (0..x.nrows()).flat_map(|i| (0..x.ncols() / 2).map(move |c| (i, c)))
        {
            let (sin, cos) = angle(i, c).sin_cos();
            let [one, two] = pair(c);
            turned[(i, one)] = x[(i, one)] * cos - x[(i, two)] * sin;
            turned[(i, two)] = x[(i, one)] * sin + x[(i, two)] * cos;
        }
        turned
    }

    fn speed(c: usize, d: usize) -> f64 {
        1e4_f64.powf(-2.0 * c as f64 / d as f64)
    }

    #[test]
    fn two_arrows_turn_by_their_position() {
        let x = dmatrix![1.0, 0.0; 1.0, 0.0];
        let got = rotate(&x, 0, 1.0);
        let (sin, cos) = 1.0_f64.sin_cos();
        let said = format!(
            "the row (1, 0) at the positions 0 and 1 becomes ({:.4}, {:.4}) and ({:.4}, {:.4}).",
            got[(0, 0)],
            got[(0, 1)],
            got[(1, 0)],
            got[(1, 1)]
        );
        assert!(
            (got[(0, 0)] - cos).abs() > 1e-9 || (got[(0, 1)].abs() - sin).abs() > 1e-9,
            "{said} Position 0 is turned by no angle"
        );
        assert!(
            !near(&got, &dmatrix![1.0, 0.0; cos, -sin]),
            "{said} A positive angle turns the first axis towards the second, so that (1, 0) becomes (cos 1, sin 1)"
        );
        assert!(
            !near(&got, &dmatrix![1.0, 0.0; cos, 0.0]),
            "{said} The second column of the pair stayed as it was"
        );
        assert!(
            !near(&got, &x),
            "{said} All rows were turned by the angle of the first, and row i has the position `first` + i"
        );
        assert!(
            !near(&got, &dmatrix![1.0, 0.0; cos, cos * sin]),
            "{said} The second number should be sin 1, and is cos 1 · sin 1. Does a new number overwrite one that is still needed?"
        );
        assert!(
            near(&got, &dmatrix![1.0, 0.0; cos, sin]),
            "{said} It should become (1, 0) and (cos 1, sin 1) = ({cos:.4}, {sin:.4})"
        );
    }

    #[test]
    fn the_other_axis_turns_back() {
        let got = rotate(&dmatrix![0.0, 1.0], 1, 1.0);
        let (sin, cos) = 1.0_f64.sin_cos();
        let said = format!(
            "the row (0, 1) at position 1 becomes ({:.4}, {:.4}), and should become (−sin 1, cos 1).",
            got[0], got[1]
        );
        assert!(
            !near(&got, &dmatrix![sin, cos])
                || rotate(&dmatrix![1.0, 0.0], 1, 1.0)[1] < 0.0,
            "{said} Of the four products, a turn needs one minus sign"
        );
        assert!(near(&got, &dmatrix![-sin, cos]), "{said} Look at what b adds to both");
    }

    #[test]
    fn lengths_stay() {
        let x = numbers(4, 6, 1);
        let got = rotate(&x, 3, 1.0);
        for i in 0..4 {
            let (before, after) = (x.row(i).norm(), got.row(i).norm());
            assert!(
                (before - after).abs() < 1e-9,
                "row {i} had the length {before:.4} and now has {after:.4}, but a turn keeps lengths. Which old numbers does each new number read?"
            );
        }
    }

    #[test]
    fn pairs_and_speeds() {
        for d in [4, 6, 10] {
            let x = numbers(3, d, 2);
            let got = rotate(&x, 0, 1.0);
            let neighbours =
                turned(&x, |i, c| i as f64 * speed(c, d), |c| [2 * c, 2 * c + 1]);
            assert!(
                !near(&got, &neighbours),
                "d = {d}: Columns 2c and 2c + 1 were turned together. Here a pair is c and c + d/2"
            );
            let halves = |speed: &dyn Fn(usize) -> f64| {
                turned(&x, |i, c| i as f64 * speed(c), |c| [c, c + d / 2])
            };
            for (wrong, what) in [
                (
                    halves(&|_| 1.0),
                    "All pairs turn at the same speed, and each should have its own",
                ),
                (
                    halves(&|c| speed(c, 2 * d)),
                    "The later pairs turn too fast. Is the exponent −2c/d, or half of that?",
                ),
                (
                    halves(&|c| 1.0 / speed(c, d)),
                    "A later pair turns faster than the first, and should turn more slowly: the exponent is negative",
                ),
            ] {
                assert!(!near(&got, &wrong), "d = {d}: {what}");
            }
            let right = halves(&|c| speed(c, d));
            let wrong = (0..d).find(|&c| (got.column(c) - right.column(c)).norm() > 1e-9);
            assert!(
                wrong.is_none(),
                "d = {d}: column {} is the first that is wrong, in pair {}",
                wrong.unwrap_or(0),
                wrong.unwrap_or(0) % (d / 2)
            );
        }
    }

    #[test]
    fn the_first_row_has_a_position() {
        let x = numbers(5, 4, 3);
        let (all, end) = (rotate(&x, 0, 1.0), x.rows(2, 3).into_owned());
        let later = rotate(&end, 2, 1.0);
        let said = "rows 2 to 4 alone, with `first` = 2, should be turned as they are among all rows.";
        assert!(
            !near(&later, &rotate(&end, 0, 1.0)),
            "{said} They are turned as with `first` = 0. Does your angle ask for `first`?"
        );
        assert!(
            near(&later, &all.rows(2, 3).into_owned()),
            "{said} Is the position of row i `first` + i?"
        );
        let far = 123_457;
        let got = rotate(&x, far, 1.0);
        let right = turned(&x, |i, c| (far + i) as f64 * speed(c, 4), |c| [c, c + 2]);
        let off = (got - right).amax();
        assert!(
            !(1e-8..0.05).contains(&off),
            "at position {far} an entry is off by {off:.0e}, and at small positions it is right. An angle that is computed in `f32` has seven digits in all, and large angles leave few of them behind the point"
        );
        assert!(off < 1e-8, "at position {far} an entry is off by {off:.3}");
    }

    #[test]
    fn minus_one_turns_back() {
        let x = numbers(4, 6, 4);
        for first in [0, 3] {
            let there = rotate(&x, first, 1.0);
            let back = rotate(&there, first, -1.0);
            assert!(
                !near(&rotate(&x, first, -1.0), &there),
                "the directions 1 and −1 give the same rows. Does your angle ask for `direction`?"
            );
            assert!(
                near(&back, &x),
                "turning rows with the direction 1, and then with −1, should give the rows back, and with `first` = {first} it doesn't. The direction multiplies the whole position, `first` + i"
            );
        }
    }

    #[test]
    fn products_depend_on_the_distance() {
        let (q, k) = (numbers(1, 8, 5), numbers(1, 8, 6));
        let product = |i, j| rotate(&q, i, 1.0).dot(&rotate(&k, j, 1.0));
        for (i, j) in [(3, 0), (2, 6), (5, 5)] {
            let (near, far) = (product(i, j), product(i + 70, j + 70));
            assert!(
                (near - far).abs() < 1e-9,
                "query at {i} and key at {j} have the product {near:.4}; both 70 later, {far:.4}. Each should be turned by its own position, and only the distance should count"
            );
        }
        assert!(
            (product(3, 0) - product(4, 0)).abs() > 1e-3,
            "another distance doesn't change the product: is anything turned?"
        );
    }

    #[test]
    fn slopes_fall_from_head_to_head() {
        let got = slopes(2);
        let said = format!("`slopes(2)` is {got:?}, and should be 1/16 and 1/256.");
        assert!(got.len() == 2, "{said} There is one for each head");
        let first = |right: f64| (got[0] - right).abs() < 1e-12;
        for (wrong, what) in [
            (1.0, "The first head of the formula is number 1, not 0"),
            ((-4.0_f64).exp(), "The formula has a power of 2, not of e"),
            (
                0.5,
                "The number of heads stands in the exponent: with eight heads each slope is half the one before, with two it is a sixteenth",
            ),
            (1.0 / 256.0, "The first head has the largest slope"),
        ] {
            assert!(!first(wrong), "{said} {what}");
        }
        for n_heads in [1, 2, 4, 8, 16] {
            let got = slopes(n_heads);
            assert!(
                got.len() == n_heads,
                "`slopes({n_heads})` has {} slopes, and should have one for each head",
                got.len()
            );
            let mut right = 1.0;
            for (index, slope) in got.iter().enumerate() {
                right *= 0.5_f64.powf(8.0 / n_heads as f64);
                assert!(
                    (slope - right).abs() < 1e-12,
                    "slope {index} of {n_heads}, counted from 0, should be {right:.6} and is {slope:.6}"
                );
            }
        }
    }

    #[test]
    fn distance_costs() {
        let got = bias_by_distance(&Matrix::zeros(3, 3), 0.5);
        let right = dmatrix![0.0, -0.5, -1.0; -0.5, 0.0, -0.5; -1.0, -0.5, 0.0];
        let said =
            format!("three queries, three keys, all scores 0, slope ½: yours are{got}");
        assert!(!near(&got, &-&right), "{said}A distance should cost, and here it pays");
        let (past, future) = (got[(2, 0)], got[(0, 2)]);
        assert!(
            past != -1.0 || future != 1.0,
            "{said}The query sees a key of the future with a score that grew. A distance has no sign"
        );
        assert!(
            past != -1.0 || future != 0.0,
            "{said}Keys in the future pay nothing, and should pay as those of the past do"
        );
        assert!(
            got != Matrix::zeros(3, 3),
            "{said}Nothing has changed. Is the bias taken from the score, whatever the score is?"
        );
        assert!(near(&got, &right), "{said}and should be{right}");
        for (n_q, n_k) in [(2, 5), (4, 3)] {
            let scores = numbers(n_q, n_k, 7);
            let got = bias_by_distance(&scores, 0.25);
            assert!(
                got.shape() == (n_q, n_k),
                "biased scores have the shape of the scores, ({n_q}, {n_k}), and yours {:?}",
                got.shape()
            );
            for (i, j) in (0..n_q).flat_map(|i| (0..n_k).map(move |j| (i, j))) {
                let right = scores[(i, j)] - 0.25 * (i as f64 - j as f64).abs();
                assert!(
                    (got[(i, j)] - right).abs() < 1e-12,
                    "{n_q} queries, {n_k} keys, slope ¼: the score {:.4} of query {i} and key {j} should become {right:.4}, and becomes {:.4}",
                    scores[(i, j)],
                    got[(i, j)]
                );
            }
        }
    }
}
