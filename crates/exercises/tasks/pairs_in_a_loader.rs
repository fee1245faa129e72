//! # The pairs in a loader
//!
//! medium, 35 minutes
//!
//! Rotary positions turn pairs of columns in each head, and programs differ in which columns are a pair:
//!
//! - **Neighbours**, as in llama.cpp's files of Llama's family: columns 0 and 1, then 2 and 3.
//! - **Halves**, as in our layer: columns 0 and $d/2$, then 1 and $d/2 + 1$, for a head of width $d$.
//!
//! In both, the first pair turns fastest, and a pair turns from its first column towards its second. Write `to_halves`, which reorders what makes
//! queries and keys, so that all scores stay the same.
//!
//! A loader that forgets it still runs. All shapes fit, and each row of weights sums to 1. The score of the first token is right. In fact
//! *every* token's score with itself is right: its query and its key turn by the same angle, which cancels in a dot product, in any pairing. The
//! chapter's model even completes a short sentence that way, and then gets stuck.
//!
//! Which test sees it? Write that, too: `is_right` calls a loader, and returns whether it keeps all scores, up to rounding. `scores` computes them in
//! either pairing. You choose the file and the tokens that the loader is tried on. Some wrong loaders are right for the wrong choice.
//!
//! # Hint
//!
//! Write down the columns of a head of width 6 in the file's order, and below them the same in our order. Which column of the file does our column 3
//! come from? Do the same for our column 1. A bias is added to the same columns.
//!
//! # Hint
//!
//! Which choices hide a fault? With one head, all heads may be reordered as one. With as many heads of keys as of queries, their numbers can be mixed
//! up. At width 4 the order is its own inverse. Biases of 0 can't be forgotten.
//!
//! # Hint
//!
//! Our column `place` of a head is the file's `2 * place` in the first half, and `2 * place + 1 - d` in the second. `DMatrix::from_fn` serves weights
//! and biases. In `is_right`, take 4 heads that share 2, width 6, three tokens, and sines for all numbers. Then compare `scores` of the file, turned as
//! neighbours, with `scores` of the loader's result, turned as halves.

use attention::{Rotary, positions::RotaryPairs};
use nalgebra::DMatrix;

/// What makes the queries and the keys of one block. A head is d wide, and `n_heads` of queries share `n_kv_heads` of keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Projections {
    pub n_heads: usize,
    pub n_kv_heads: usize,
    /// W_Q (d_model, n_heads · d).
    pub w_q: DMatrix<f64>,
    /// The bias of the queries (1, n_heads · d).
    pub b_q: DMatrix<f64>,
    /// W_K (d_model, n_kv_heads · d).
    pub w_k: DMatrix<f64>,
    /// The bias of the keys (1, n_kv_heads · d).
    pub b_k: DMatrix<f64>,
}

/// Returns the scores (n, n) of each head for tokens `x` (n, d_model), in a layer that turns these pairs.
pub fn scores(
    projections: &Projections,
    x: &DMatrix<f64>,
    pairs: RotaryPairs,
) -> Vec<DMatrix<f64>> {
    let Projections { n_heads, n_kv_heads, w_q, b_q, w_k, b_k } = projections;
    let rotary = Rotary::new(10_000.0, pairs).expect("the base is allowed");
    let turned = |w: &DMatrix<f64>, b: &DMatrix<f64>, heads| {
        let rows = x * w + DMatrix::repeat(x.nrows(), 1, 1.0) * b;
        rotary.turn(&rows, heads, 0).expect("a head has an even width")
    };
    let (q, k) = (turned(w_q, b_q, *n_heads), turned(w_k, b_k, *n_kv_heads));
    let d = q.ncols() / n_heads;
    let head = |head: usize| {
        let shared = head * n_kv_heads / n_heads;
        q.columns(head * d, d) * k.columns(shared * d, d).transpose() / (d as f64).sqrt()
    };
    (0..*n_heads).map(head).collect()
}

/// Returns what a file has for pairs of neighbours, reordered for a layer that turns halves.
pub fn to_halves(file: &Projections) -> Projections {
    // SOLUTION
    let reordered = |m: &DMatrix<f64>, heads: usize| {
        // FAULT as-one: all heads were reordered as one
        // > let d = m.ncols();
        let d = m.ncols() / heads;
        DMatrix::from_fn(m.nrows(), m.ncols(), |row, column| {
            let place = column % d;
            // FAULT inverse: from halves to neighbours
            // > let from = place / 2 + place % 2 * (d / 2);
            // FAULT turned-round: the two columns of each pair have changed places
            // > let from = if place < d / 2 { 2 * place + 1 } else { 2 * place - d };
            let from = if place < d / 2 { 2 * place } else { 2 * place + 1 - d };
            m[(row, column - place + from)]
        })
    };
    let mut halves = file.clone();
    // FAULT not-at-all: is as it was in the file
    halves.w_q = reordered(&file.w_q, file.n_heads);
    // FAULT no-biases: a bias moves with the columns
    // FAULT not-at-all
    halves.b_q = reordered(&file.b_q, file.n_heads);
    // FAULT queries-alone: W_K is as it was in the file
    // FAULT heads-of-queries: cut into as many heads as there are of queries
    // > halves.w_k = reordered(&file.w_k, file.n_heads);
    // FAULT not-at-all
    halves.w_k = reordered(&file.w_k, file.n_kv_heads);
    // FAULT no-biases
    // FAULT queries-alone
    // FAULT heads-of-queries
    // > halves.b_k = reordered(&file.b_k, file.n_heads);
    // FAULT not-at-all
    halves.b_k = reordered(&file.b_k, file.n_kv_heads);
    halves
    // END
}

/// What should do the same as [`to_halves`].
pub type Loader<'a> = &'a dyn Fn(&Projections) -> Projections;

/// Returns whether a loader keeps all scores, up to rounding.
pub fn is_right(loader: Loader) -> bool {
    // SOLUTION
    let matrix = |rows: usize, columns: usize, seed: usize| {
        DMatrix::from_fn(rows, columns, |i, j| {
            ((seed + 3 * i + 5 * j + 2 * i * j * j) as f64).sin()
        })
    };
    // FAULT one-head: reorders all heads as one
    // > let (n_heads, n_kv_heads, d) = (1, 1, 6);
    // FAULT no-sharing: cuts the keys into as many heads
    // > let (n_heads, n_kv_heads, d) = (2, 2, 6);
    // FAULT narrow: the order is its own inverse
    // > let (n_heads, n_kv_heads, d) = (4, 2, 4);
    let (n_heads, n_kv_heads, d) = (4, 2, 6);
    let file = Projections {
        n_heads,
        n_kv_heads,
        w_q: matrix(5, n_heads * d, 1),
        // FAULT no-bias: forgets the bias of the queries
        // > b_q: DMatrix::zeros(1, n_heads * d),
        b_q: matrix(1, n_heads * d, 2),
        w_k: matrix(5, n_kv_heads * d, 3),
        // FAULT no-bias-of-keys: forgets the bias of the keys
        // > b_k: DMatrix::zeros(1, n_kv_heads * d),
        b_k: matrix(1, n_kv_heads * d, 4),
    };
    // FAULT one-token: a token with itself
    // > let x = matrix(1, 5, 5);
    let x = matrix(3, 5, 5);
    let loaded = loader(&file);
    let right = scores(&file, &x, RotaryPairs::Neighbours);
    let found = scores(&loaded, &x, RotaryPairs::Halves);
    // FAULT same-matrices: compare scores, not matrices
    // > (&loaded.w_q - to_halves(&file).w_q).amax() < 1e-9
    // FAULT shapes: a token with itself
    // > loaded.w_q.shape() == file.w_q.shape() && loaded.w_k.shape() == file.w_k.shape()
    // FAULT diagonal: a token with itself
    // > right.iter().zip(&found).all(|(a, b)| (a - b).diagonal().amax() < 1e-9)
    // FAULT exact: you reject a right loader
    // > right == found
    // FAULT sums: a token with itself
    // > found.iter().all(|scores| attention::softmax_rows(scores).unwrap().row_iter().all(|row| (row.sum() - 1.0).abs() < 1e-9))
    right.iter().zip(&found).all(|(a, b)| (a - b).amax() < 1e-9)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::positions::RotaryPairs;
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// Heads of queries and of keys, and their width.
    const SIZES: [(usize, usize, usize); 4] =
        [(2, 2, 6), (4, 2, 8), (3, 1, 6), (4, 4, 2)];

    /// A file, each number of which says its column, and its row in thousandths.
    fn labelled((n_heads, n_kv_heads, d): (usize, usize, usize)) -> Projections {
        let matrix = |rows, heads| {
            DMatrix::from_fn(rows, heads * d, |row, column| {
                column as f64 + row as f64 / 1000.0
            })
        };
        Projections {
            n_heads,
            n_kv_heads,
            w_q: matrix(3, n_heads),
            b_q: matrix(1, n_heads),
            w_k: matrix(3, n_kv_heads),
            b_k: matrix(1, n_kv_heads),
        }
    }

    fn random((n_heads, n_kv_heads, d): (usize, usize, usize), seed: u64) -> Projections {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut matrix = |rows, heads| {
            DMatrix::from_fn(rows, heads * d, |_, _| rng.random_range(-1.0..1.0))
        };
        Projections {
            n_heads,
            n_kv_heads,
            w_q: matrix(4, n_heads),
            b_q: matrix(1, n_heads),
            w_k: matrix(4, n_kv_heads),
            b_k: matrix(1, n_kv_heads),
        }
    }

    /// The column of the file that becomes a column of a head of width d.
    type Order = fn(usize, usize) -> usize;

    /// Also for an odd width, whose last column stays.
    fn right_order(place: usize, d: usize) -> usize {
        let half = d / 2;
        match place {
            _ if place < half => 2 * place,
            _ if place < 2 * half => 2 * (place - half) + 1,
            _ => place,
        }
    }

    fn same_order(place: usize, _: usize) -> usize {
        place
    }

    fn inverse_order(place: usize, d: usize) -> usize {
        (0..d).find(|&to| right_order(to, d) == place).unwrap_or(place)
    }

    fn swapped_order(place: usize, d: usize) -> usize {
        let half = d / 2;
        match place {
            _ if place < half => 2 * place + 1,
            _ if place < 2 * half => 2 * (place - half),
            _ => place,
        }
    }

    /// A matrix as so many heads, whose columns come from those of an order.
    fn ordered(m: &DMatrix<f64>, heads: usize, order: Order) -> DMatrix<f64> {
        let d = (m.ncols() / heads).max(1);
        DMatrix::from_fn(m.nrows(), m.ncols(), |row, column| {
            let place = column % d;
            let from = column - place + order(place, d);
            m[(row, if from < m.ncols() { from } else { column })]
        })
    }

    /// The columns of the file, in the order of a result.
    fn columns(m: &DMatrix<f64>) -> Vec<usize> {
        m.row(0).iter().map(|label| label.round() as usize).collect()
    }

    fn check_weights(
        which: &str,
        size: (usize, usize, usize),
        heads: usize,
        before: &DMatrix<f64>,
        after: &DMatrix<f64>,
    ) {
        let (n_heads, n_kv_heads, d) = size;
        let place =
            format!("{n_heads} heads that share {n_kv_heads}, width {d}: {which}");
        assert!(
            after.shape() == before.shape(),
            "{place} is {:?}, and keeps its shape {:?}",
            after.shape(),
            before.shape()
        );
        let right = ordered(before, heads, right_order);
        let is = |heads: usize, order: Order| *after == ordered(before, heads, order);
        let why = if after == before {
            format!("{which} is as it was in the file")
        } else if is(heads, inverse_order) {
            "it was reordered the other way, from halves to neighbours".to_owned()
        } else if is(heads, swapped_order) {
            "the two columns of each pair have changed places, so that each pair turns backwards"
                .to_owned()
        } else if is(1, right_order) {
            "all heads were reordered as one".to_owned()
        } else if is(n_heads, right_order) {
            "it was cut into as many heads as there are of queries".to_owned()
        } else {
            "which column of the file does each one come from?".to_owned()
        };
        assert!(
            *after == right,
            "{place} has the file's columns {:?}, expected {:?}: {why}",
            columns(after),
            columns(&right)
        );
    }

    #[test]
    fn the_columns_of_each_head_are_reordered() {
        for size in SIZES {
            let file = labelled(size);
            let loaded = to_halves(&file);
            check_weights("W_Q", size, size.0, &file.w_q, &loaded.w_q);
            check_weights("W_K", size, size.1, &file.w_k, &loaded.w_k);
        }
    }

    #[test]
    fn biases_move_with_the_columns() {
        for size in SIZES {
            let file = labelled(size);
            let loaded = to_halves(&file);
            for (what, heads, before, after) in [
                ("queries", size.0, &file.b_q, &loaded.b_q),
                ("keys", size.1, &file.b_k, &loaded.b_k),
            ] {
                let right = ordered(before, heads, right_order);
                assert!(
                    *after == right,
                    "{size:?}: the bias of the {what} has the file's columns {:?}, expected {:?}: a bias moves with the columns that it is added to",
                    columns(after),
                    columns(&right)
                );
            }
        }
    }

    #[test]
    fn scores_stay_the_same() {
        for (seed, size) in SIZES.into_iter().enumerate() {
            let file = random(size, seed as u64);
            let x = random((1, 1, 4), 9).w_q;
            let right = scores(&file, &x, RotaryPairs::Neighbours);
            let found = scores(&to_halves(&file), &x, RotaryPairs::Halves);
            for (head, (found, right)) in found.iter().zip(&right).enumerate() {
                let off = (found - right).amax();
                assert!(
                    off < 1e-12,
                    "{size:?}: the scores of head {head} are off by {off:.3}"
                );
            }
        }
    }

    /// A loader that reorders by such orders: heads and order of the queries, then of the keys, then whether it does the biases of each.
    fn loader(
        queries: impl Fn(&Projections) -> (usize, Order),
        keys: impl Fn(&Projections) -> (usize, Order),
        biases: [bool; 2],
    ) -> impl Fn(&Projections) -> Projections {
        move |file| {
            let ((q_heads, q_order), (k_heads, k_order)) = (queries(file), keys(file));
            let mut loaded = file.clone();
            loaded.w_q = ordered(&file.w_q, q_heads, q_order);
            loaded.w_k = ordered(&file.w_k, k_heads, k_order);
            if biases[0] {
                loaded.b_q = ordered(&file.b_q, q_heads, q_order);
            }
            if biases[1] {
                loaded.b_k = ordered(&file.b_k, k_heads, k_order);
            }
            loaded
        }
    }

    /// A loader that gives all heads one order.
    fn all_by(order: Order) -> impl Fn(&Projections) -> Projections {
        loader(move |it| (it.n_heads, order), move |it| (it.n_kv_heads, order), [true; 2])
    }

    #[test]
    fn right_loaders_are_accepted() {
        assert!(
            is_right(&all_by(right_order)),
            "you reject a right loader, which reorders the columns of each head"
        );
        let rounded = |file: &Projections| {
            let mut loaded = all_by(right_order)(file);
            loaded.w_q *= 1.0 + 1e-14;
            loaded
        };
        assert!(
            is_right(&rounded),
            "you reject a loader that rounds in another way, in the fourteenth digit"
        );
        let negated = |file: &Projections| {
            let mut loaded = all_by(right_order)(file);
            for m in [&mut loaded.w_q, &mut loaded.b_q, &mut loaded.w_k, &mut loaded.b_k]
            {
                m.neg_mut();
            }
            loaded
        };
        assert!(
            is_right(&negated),
            "you reject a loader that changes the sign of all queries and all keys. No score moves by that, so compare scores, not matrices"
        );
    }

    #[test]
    fn wrong_pairings_are_rejected() {
        assert!(
            !is_right(&all_by(same_order)),
            "you accept a loader that reorders nothing. Shapes, sums of rows and the score of a token with itself don't show it: look at the scores of two different tokens"
        );
        assert!(
            !is_right(&all_by(swapped_order)),
            "you accept a loader that changes the places of the two columns of each pair, so that all pairs turn backwards"
        );
        assert!(
            !is_right(&all_by(inverse_order)),
            "you accept a loader that reorders the other way, from halves to neighbours. At width 4 the order is its own inverse"
        );
        let queries = loader(
            |it| (it.n_heads, right_order),
            |it| (it.n_kv_heads, same_order),
            [true; 2],
        );
        assert!(
            !is_right(&queries),
            "you accept a loader that reorders the queries alone, and not the keys"
        );
    }

    #[test]
    fn wrong_heads_are_rejected() {
        let as_one = loader(|_| (1, right_order), |_| (1, right_order), [true; 2]);
        assert!(
            !is_right(&as_one),
            "you accept a loader that reorders all heads as one: with one head, that is right"
        );
        let of_queries = loader(
            |it| (it.n_heads, right_order),
            |it| (it.n_heads, right_order),
            [true; 2],
        );
        assert!(
            !is_right(&of_queries),
            "you accept a loader that cuts the keys into as many heads as the queries: with as many heads of keys as of queries, that is right"
        );
    }

    #[test]
    fn forgotten_biases_are_rejected() {
        for (biases, whose) in [([false, true], "queries"), ([true, false], "keys")] {
            let forgets = loader(
                |it| (it.n_heads, right_order),
                |it| (it.n_kv_heads, right_order),
                biases,
            );
            assert!(
                !is_right(&forgets),
                "you accept a loader that forgets the bias of the {whose}"
            );
        }
    }
}
