//! # A product in small pieces
//!
//! medium, 25 minutes
//!
//! A tensor core multiplies a $16 \times 16$ matrix by a $16 \times 8$ one, and adds the result to what it already has. The factors
//! are in bf16, the sums in `f32`. Programs build every product from that one instruction.
//!
//! Write $C = AB$ for matrices of any size, with `mma` alone. Round both factors with `to_bf16`. Where a matrix ends
//! within a piece, the rest is zero. Sums stay in `f32` from the first piece to the last.
//!
//! Then say what it costs: a bound for the error of each entry of $C$, as a share of $\sum_c |A_{ic} B_{cj}|$, that comes from rounding the factors. Rounding
//! to bf16 changes a number by at most its $2^{-8}$th part.
//!
//! # Hint
//!
//! Three loops walk over pieces: rows of $C$, columns of $C$, and the length of the sums. Which of them goes on with the same accumulator, and so
//! stands inside?
//!
//! # Hint
//!
//! How many pieces do 17 rows take? For an entry of a piece that is past the end, take 0. `matrix.get((i, j))` is `None` there. For
//! the bound: if each factor may be larger by a part $u$, how much larger may a product be?
//!
//! # Hint
//!
//! `array::from_fn(|r| array::from_fn(|c| …))` fills a piece. Begin with `[[0.0; 8]; 16]` for each piece of $C$, call `mma` once for every 16
//! terms, then copy to $C$ what lies inside. For the bound, let both factors be too
//! large by a part $u$, and multiply out.

use nalgebra::DMatrix;
use std::array;

/// The nearest number of bf16.
pub fn to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + ((bits >> 16) & 1)) >> 16 << 16)
}

/// Adds the product of a (16, 16) and b (16, 8), which are in bf16, to the sums (16, 8).
pub fn mma(sums: &mut [[f32; 8]; 16], a: &[[f32; 16]; 16], b: &[[f32; 8]; 16]) {
    let rounded = |x: &f32| to_bf16(*x) == *x;
    assert!(
        a.iter().flatten().all(rounded) && b.iter().flatten().all(rounded),
        "a tensor core multiplies numbers of bf16: were these rounded?"
    );
    for (r, row) in sums.iter_mut().enumerate() {
        for (c, sum) in row.iter_mut().enumerate() {
            *sum += (0..16).map(|l| a[r][l] * b[l][c]).sum::<f32>();
        }
    }
}

/// Returns the product of a (m, k) and b (k, n) as (m, n), by tensor cores.
pub fn product(a: &DMatrix<f32>, b: &DMatrix<f32>) -> DMatrix<f32> {
    // SOLUTION
    let entry = |m: &DMatrix<f32>, i: usize, j: usize| {
        let number = *m.get((i, j)).unwrap_or(&0.0);
        // FAULT not-rounded: numbers of bf16: were these rounded
        // > number
        to_bf16(number)
    };
    let mut product = DMatrix::zeros(a.nrows(), b.ncols());
    // FAULT last-rows: are the rows behind the last whole piece missing
    // > for i in (0..a.nrows() / 16 * 16).step_by(16) {
    for i in (0..a.nrows()).step_by(16) {
        for j in (0..b.ncols()).step_by(8) {
            let mut sums = [[0.0; 8]; 16];
            for l in (0..a.ncols()).step_by(16) {
                let left = array::from_fn(|r| array::from_fn(|c| entry(a, i + r, l + c)));
                let right =
                    array::from_fn(|r| array::from_fn(|c| entry(b, l + r, j + c)));
                // FAULT only-the-last: only the last of them
                // > sums = [[0.0; 8]; 16];
                // > mma(&mut sums, &left, &right);
                // FAULT sums-in-bf16: do the sums stay in f32
                // > mma(&mut sums, &left, &right);
                // > sums = sums.map(|row| row.map(to_bf16));
                mma(&mut sums, &left, &right);
            }
            for (r, c) in (0..16).flat_map(|r| (0..8).map(move |c| (r, c))) {
                if let Some(place) = product.get_mut((i + r, j + c)) {
                    *place = sums[r][c];
                }
            }
        }
    }
    product
    // END
}

/// Returns the bound: by how much an entry of the product may be off, relative to the sum of the sizes of its terms.
pub fn bound() -> f64 {
    // SOLUTION
    let u = 2.0_f64.powi(-8);
    // FAULT one-factor: is only one factor rounded
    // > u
    (1.0 + u) * (1.0 + u) - 1.0
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// Small whole numbers, which bf16 holds.
    fn whole(rows: usize, columns: usize, seed: u64) -> DMatrix<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-9..10) as f32)
    }

    fn check(m: usize, k: usize, n: usize, question: &str) {
        let (a, b) = (whole(m, k, 1), whole(k, n, 2));
        let (given, expected) = (product(&a, &b), &a * &b);
        assert!(
            given.shape() == (m, n),
            "{m} × {k} by {k} × {n}: your product has the shape {:?}",
            given.shape()
        );
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let (given, expected) = (given[(i, j)], expected[(i, j)]);
            assert!(
                given == expected,
                "{m} × {k} by {k} × {n}, row {i}, column {j}: got {given}, not {expected}: {question}"
            );
        }
    }

    #[test]
    fn one_piece() {
        check(16, 16, 8, "is one call of `mma` enough here?");
    }

    #[test]
    fn pieces_are_added_up() {
        check(16, 64, 8, "is this the sum over all pieces, or only the last of them?");
    }

    #[test]
    fn sums_are_kept_in_f32() {
        let given = product(
            &DMatrix::from_element(1, 1024, 1.0),
            &DMatrix::from_element(1024, 1, 1.0),
        )[0];
        assert!(
            given == 1024.0,
            "1024 ones add up to {given}: do the sums stay in f32? After 256, bf16 can't count by ones"
        );
        let long = product(
            &DMatrix::from_fn(1, 640, |_, l| if l == 0 { 4096.0 } else { 1.0 }),
            &DMatrix::from_element(640, 1, 1.0),
        )[0];
        assert!(
            long == 4735.0,
            "4096 and 639 ones add up to {long}: do the sums stay in f32?"
        );
    }

    #[test]
    fn matrices_of_any_size() {
        check(37, 16, 8, "are the rows behind the last whole piece missing?");
        check(16, 16, 21, "are the columns behind the last whole piece missing?");
        check(5, 19, 11, "is what is past the end zero?");
    }

    #[test]
    fn the_bound_holds_and_is_tight() {
        let (bound, mut rng) = (bound(), ChaCha8Rng::seed_from_u64(5));
        // 1 + 2⁻⁸ lies in the middle between two numbers of bf16, and 1 is the even one.
        let worst = 1.0 + 2.0_f32.powi(-8);
        for a in [
            DMatrix::from_element(3, 40, worst),
            DMatrix::from_fn(3, 40, |_, _| rng.random_range(-1.0..1.0)),
        ] {
            let b = a.transpose();
            let [left, right, given] =
                [&a, &b, &product(&a, &b)].map(|matrix| matrix.map(f64::from));
            let error = (given - &left * &right)
                .abs()
                .component_div(&(left.abs() * right.abs()))
                .max();
            assert!(
                error <= bound,
                "an entry is off by {error:.5}, and your bound is {bound:.5}: is only one factor rounded?"
            );
        }
        assert!(
            bound < 0.0079,
            "your bound {bound:.5} is larger than two roundings can explain"
        );
    }
}
