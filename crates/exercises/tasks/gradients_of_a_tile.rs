//! # The gradients of a tile
//!
//! hard, 45 minutes
//!
//! A backward pass that never stores the weights asks this of each tile: what do your pairs add to $dQ$, $dK$ and $dV$?
//! Write that function, with a mask. You can train with it on texts whose weights would fill no memory.
//!
//! A `Tile` has $B_q$ queries with their $dO$, $L$ and $D$, and $B_k$ keys with their values. The call `sees(i, j)`
//! says whether query $i$ of the tile sees key $j$ of the tile. What is hidden adds nothing. Rows that see nothing
//! anywhere have $L = -\infty$.
//!
//! Return three shares. The caller adds up those of all tiles.
//!
//! # Hint
//!
//! Write down the shape of each of the three shares first. Which of the matrices must be transposed so that the sum
//! runs over the right index?
//!
//! # Hint
//!
//! Compute $S$, then $A = e^{S - L}$ where a query sees, and 0 elsewhere. With those zeros in $A$, where else do you
//! need the mask? $1 / \sqrt d$ stands in $S$. So in which shares does it stand, too?
//!
//! # Hint
//!
//! `A` by `from_fn` with `if sees(i, j)`; `dA = dO Vᵀ`; `dS = A ⊙ (dA − D)` by `from_fn`. Then `dS K`, `dSᵀ Q`, both
//! scaled, and `Aᵀ dO`, which isn't.

use nalgebra::{DMatrix, DVector};

/// A block of queries and a block of keys.
pub struct Tile<'a> {
    /// Queries, (B_q, d).
    pub q: DMatrix<f64>,
    /// Keys, (B_k, d).
    pub k: DMatrix<f64>,
    /// Values, (B_k, d_v).
    pub v: DMatrix<f64>,
    /// The gradient with respect to the output, (B_q, d_v).
    pub grad_output: DMatrix<f64>,
    /// L, the log-sum-exp of each whole row, B_q numbers.
    pub log_sum_exp: DVector<f64>,
    /// D, the sum of dA ⊙ A over each whole row, B_q numbers.
    pub d: DVector<f64>,
    /// Whether a query of the tile sees a key of the tile.
    pub sees: &'a dyn Fn(usize, usize) -> bool,
}

/// What a tile adds to the three gradients.
pub struct Shares {
    /// For its queries, (B_q, d).
    pub q: DMatrix<f64>,
    /// For its keys, (B_k, d).
    pub k: DMatrix<f64>,
    /// For its values, (B_k, d_v).
    pub v: DMatrix<f64>,
}

/// Returns what a tile adds to the gradients with respect to queries, keys and values.
pub fn shares(tile: &Tile) -> Shares {
    // SOLUTION
    let Tile { q, k, v, grad_output, log_sum_exp, d, sees } = tile;
    let scale = 1.0 / (q.ncols() as f64).sqrt();
    let scores = q * k.transpose() * scale; // (B_q, B_k)
    // FAULT no-mask: hidden pairs add nothing
    // > let weights = scores.map_with_location(|i, j, s| (s - log_sum_exp[i]).exp() + 0.0 * f64::from(sees(i, j)));
    let weights = scores.map_with_location(|i, j, s| {
        // FAULT two-exponentials: what is the exponential of
        // > if sees(i, j) { s.exp() / log_sum_exp[i].exp() } else { 0.0 }
        // FAULT no-mask
        if sees(i, j) { (s - log_sum_exp[i]).exp() } else { 0.0 }
        // FAULT no-mask
    });
    let grad_weights = grad_output * v.transpose();
    // FAULT tile-sum: is D the sum over the whole row
    // > let d = DVector::from_fn(d.len(), |i, _| weights.row(i).dot(&grad_weights.row(i)));
    let d = d.clone();
    let grad_scores =
        grad_weights.map_with_location(|i, j, da| weights[(i, j)] * (da - d[i]));
    Shares {
        // FAULT scale-missing: 1 / √d stands in
        // > q: &grad_scores * k,
        q: &grad_scores * k * scale,
        // FAULT scale-twice: scaled twice
        // > k: grad_scores.tr_mul(&(q * scale)) * scale,
        k: grad_scores.tr_mul(q) * scale,
        // FAULT value-gradient: is dV a sum of weights times dO
        // > v: grad_scores.tr_mul(grad_output),
        v: weights.tr_mul(grad_output),
    }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention, attention_backward};
    use nalgebra::{DMatrix, DVector};

    fn draw(rows: usize, columns: usize, seed: usize) -> DMatrix<f64> {
        DMatrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    fn compare(
        lengths: (usize, usize),
        tiles: (usize, usize),
        mask: Mask,
        question: &str,
    ) {
        compare_scaled(1.0, lengths, tiles, mask, question);
    }

    /// Adds up the shares of all tiles, and compares with the backward pass on whole matrices. All scores grow with `size`.
    fn compare_scaled(
        size: f64,
        (n_q, n_k): (usize, usize),
        (b_q, b_k): (usize, usize),
        mask: Mask,
        question: &str,
    ) {
        let (q, k, v, grad_output) =
            (draw(n_q, 4, 0) * size, draw(n_k, 4, 1), draw(n_k, 3, 2), draw(n_q, 3, 3));
        let sized = mask.sized(n_q, n_k).unwrap();
        let (output, cache) = attention(&q, &k, &v, mask).unwrap();
        let right = attention_backward(&cache, &grad_output).unwrap();
        let mut sums = Shares { q: &q * 0.0, k: &k * 0.0, v: &v * 0.0 };
        for i in (0..n_q).step_by(b_q) {
            for j in (0..n_k).step_by(b_k) {
                let (rows, keys) = (b_q.min(n_q - i), b_k.min(n_k - j));
                let d = DVector::from_fn(rows, |r, _| {
                    output.row(i + r).dot(&grad_output.row(i + r))
                });
                let of_tile = |x: &DMatrix<f64>, first, n| x.rows(first, n).into_owned();
                let share = shares(&Tile {
                    q: of_tile(&q, i, rows),
                    k: of_tile(&k, j, keys),
                    v: of_tile(&v, j, keys),
                    grad_output: of_tile(&grad_output, i, rows),
                    log_sum_exp: cache.log_sum_exp.rows(i, rows).into_owned(),
                    d,
                    sees: &|r, c| sized.allows(i + r, j + c),
                });
                let shapes = [share.q.shape(), share.k.shape(), share.v.shape()];
                assert!(
                    shapes == [(rows, 4), (keys, 4), (keys, 3)],
                    "the shapes of the shares of q, k and v: yours are {shapes:?}, expected {:?}",
                    [(rows, 4), (keys, 4), (keys, 3)]
                );
                for (sums, share, first) in [
                    (&mut sums.q, share.q, i),
                    (&mut sums.k, share.k, j),
                    (&mut sums.v, share.v, j),
                ] {
                    let mut place = sums.rows_mut(first, share.nrows());
                    place += share;
                }
            }
        }
        for (name, came, right) in
            [("dV", sums.v, right.v), ("dQ", sums.q, right.q), ("dK", sums.k, right.k)]
        {
            let what =
                format!("{n_q} queries, {n_k} keys, tiles of {b_q} × {b_k}: {name}");
            let off_by = |factor: f64| (&came * factor - &right).amax() / size;
            assert!(
                size != 1.0 || !(off_by(0.5) < 1e-12),
                "{what} is twice as large as it should be: 1 / √d stands in dQ and in dK"
            );
            assert!(
                size != 1.0 || !(off_by(2.0) < 1e-12),
                "{what} is half as large as it should be: was it scaled twice?"
            );
            assert!(
                off_by(1.0) < 1e-12,
                "{what} is off by {:.2e}: {question}",
                off_by(1.0)
            );
        }
    }

    #[test]
    fn one_tile_is_the_backward_pass() {
        compare(
            (5, 7),
            (5, 7),
            Mask::none(),
            "is dV a sum of weights times dO, and dS = A ⊙ (dA − D)?",
        );
    }

    #[test]
    fn tiles_add_up() {
        for tiles in [(2, 3), (1, 1), (5, 2), (3, 7)] {
            compare(
                (5, 7),
                tiles,
                Mask::none(),
                "is D the sum over the whole row, as it was given?",
            );
        }
    }

    #[test]
    fn hidden_pairs_add_nothing() {
        for tiles in [(4, 4), (3, 2), (8, 8)] {
            compare((8, 8), tiles, Mask::causal(), "hidden pairs add nothing");
            compare((4, 9), tiles, Mask::window(3).unwrap(), "hidden pairs add nothing");
        }
    }

    #[test]
    fn large_scores_are_no_trouble() {
        let question = "scores and L are in the thousands here: what is the exponential of 1,000, and of −1,000?";
        compare_scaled(3000.0, (5, 7), (2, 3), Mask::none(), question);
    }

    #[test]
    fn rows_that_see_nothing_add_nothing() {
        let question = "the first rows see nothing, and L is −∞: hidden pairs add nothing, not even NaN";
        compare((7, 4), (3, 3), Mask::causal(), question);
    }
}
