//! # Read a packed projection
//!
//! medium, 20 minutes
//!
//! The chapter cuts PyTorch's `in_proj_weight` into three equal parts. Published models with shared keys also pack their projections into one matrix,
//! and don't agree on how. Let there be $h$ heads of queries and $h_{kv}$ of keys and values, each $d$ wide. The packed matrix is PyTorch's,
//! $((h + 2 h_{kv})\, d,\ d_{\text{model}})$, in one of two orders:
//!
//! - `Stacked`: all queries, then all keys, then all values.
//! - `ByGroup`: for each head of keys, first the heads of queries that share it, then its keys, then its values.
//!
//! Return $W_Q$, $W_K$ and $W_V$ as this crate has them, heads side by side in order. A model that is read in the wrong order still runs. It
//! only writes nonsense.
//!
//! # Hint
//!
//! One row of the packed matrix makes one number of one head, from a token. What is that in $W_Q$: a row or a column?
//!
//! # Hint
//!
//! Write down the order of the heads for $h = 4$ and $h_{kv} = 2$, in both packings. Which rows does the second head of keys have? The three parts
//! aren't equally large.
//!
//! # Hint
//!
//! `packed.rows(start, count).transpose()` is what you need for `Stacked`. For `ByGroup`, a group has $(h / h_{kv} + 2)\, d$ rows. Copy group by
//! group with `w_q.columns_mut(start, count).copy_from(&…)`.

use nalgebra::DMatrix;

/// In which order the rows are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    Stacked,
    ByGroup,
}

/// How many heads of queries there are, how many of keys and values, and how wide they are.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
}

/// Returns W_Q (d_model, queries · width), W_K and W_V (d_model, keys · width), from the packed matrix ((queries + 2 · keys) · width, d_model).
pub fn unpacked(
    packed: &DMatrix<f64>,
    heads: Heads,
    packing: Packing,
) -> [DMatrix<f64>; 3] {
    // SOLUTION
    let Heads { queries, keys, width } = heads;
    // FAULT always-stacked: was it read as if it were stacked
    // > let groups = 1;
    let groups = if packing == Packing::Stacked { 1 } else { keys };
    // FAULT thirds: three equal parts
    // > let sizes = [(queries + 2 * keys) * width / groups / 3; 3];
    let sizes = [queries, keys, keys].map(|heads| heads * width / groups); // rows of a group
    // FAULT values-first: keys and values have changed places
    // > let starts = [0, sizes[0] + sizes[2], sizes[0]];
    let starts = [0, sizes[0], sizes[0] + sizes[1]];
    let group_rows: usize = sizes.iter().sum();
    [0, 1, 2].map(|part| {
        let mut weight = DMatrix::zeros(packed.ncols(), groups * sizes[part]);
        for group in 0..groups {
            let rows = packed.rows(group * group_rows + starts[part], sizes[part]);
            weight
                .columns_mut(group * sizes[part], sizes[part])
                .copy_from(&rows.transpose());
        }
        // FAULT not-transposed: was it transposed
        // > weight.transpose()
        weight
    })
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    const SIZES: [(Heads, usize); 4] = [
        (Heads { queries: 4, keys: 2, width: 3 }, 5),
        (Heads { queries: 6, keys: 2, width: 2 }, 12), // W_Q is square
        (Heads { queries: 2, keys: 2, width: 4 }, 8),
        (Heads { queries: 3, keys: 1, width: 2 }, 7),
    ];

    /// Each entry says where it was: row + column / 1000.
    fn labelled(heads: Heads, d_model: usize) -> DMatrix<f64> {
        let rows = (heads.queries + 2 * heads.keys) * heads.width;
        DMatrix::from_fn(rows, d_model, |row, column| row as f64 + column as f64 / 1000.0)
    }

    /// The row of the packed matrix that makes a number of a head: part 0 are queries, 1 keys, 2 values.
    fn row_of(
        heads: Heads,
        packing: Packing,
        part: usize,
        head: usize,
        number: usize,
    ) -> usize {
        let shared = heads.queries / heads.keys;
        let before = match (packing, part) {
            (Packing::Stacked, 0) => head,
            (Packing::Stacked, _) => heads.queries + (part - 1) * heads.keys + head,
            (Packing::ByGroup, 0) => head / shared * (shared + 2) + head % shared,
            (Packing::ByGroup, _) => head * (shared + 2) + shared + part - 1,
        };
        before * heads.width + number
    }

    fn check(packing: Packing) {
        for (heads, d_model) in SIZES {
            let weights = unpacked(&labelled(heads, d_model), heads, packing);
            for (part, weight) in weights.iter().enumerate() {
                let count = if part == 0 { heads.queries } else { heads.keys };
                let place =
                    format!("{packing:?}, {heads:?}: {}", ["W_Q", "W_K", "W_V"][part]);
                let (shape, expected) = (weight.shape(), (d_model, count * heads.width));
                assert!(
                    shape == expected || shape != (expected.1, expected.0),
                    "{place} is {shape:?}, not {expected:?}: was it transposed?"
                );
                assert!(
                    shape == expected,
                    "{place} is {shape:?}, not {expected:?}: was the packed matrix cut into three equal parts?"
                );
                for (head, number) in
                    (0..count).flat_map(|head| (0..heads.width).map(move |c| (head, c)))
                {
                    let column = head * heads.width + number;
                    let given = weight[(1, column)];
                    let row = |packing, part| {
                        row_of(heads, packing, part, head, number) as f64 + 0.001
                    };
                    let is = |x: f64| (given - x).abs() < 1e-9;
                    let question = if (given - 1.0).abs() < 0.1
                        && (given * 1000.0).round() as usize % 1000 == column
                    {
                        "was it transposed?"
                    } else if part > 0 && is(row(packing, 3 - part)) {
                        "keys and values have changed places"
                    } else if packing == Packing::ByGroup
                        && is(row(Packing::Stacked, part))
                    {
                        "was it read as if it were stacked?"
                    } else if packing == Packing::Stacked
                        && is(row(Packing::ByGroup, part))
                    {
                        "was it read as if it were packed by group?"
                    } else {
                        "which rows come before it?"
                    };
                    assert!(
                        is(row(packing, part)),
                        "{place}, head {head}, number {number}: it has row {} of the packed matrix, not row {}: {question}",
                        given.floor(),
                        row(packing, part).floor()
                    );
                }
            }
        }
    }

    #[test]
    fn stacked_rows_are_cut() {
        check(Packing::Stacked);
    }

    #[test]
    fn groups_are_put_side_by_side() {
        check(Packing::ByGroup);
    }

    #[test]
    fn both_packings_give_the_same_attention() {
        let (heads, d_model) = SIZES[0];
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let x = DMatrix::from_fn(6, d_model, |_, _| rng.random_range(-1.0..1.0));
        let stacked = DMatrix::from_fn(24, d_model, |_, _| rng.random_range(-1.0..1.0));
        let order: Vec<usize> = [0, 1, 4, 6, 2, 3, 5, 7]
            .iter()
            .flat_map(|head| (0..3).map(move |c| head * 3 + c))
            .collect();
        let by_group = stacked.select_rows(&order);
        let last_head = |packed: &DMatrix<f64>, packing| {
            let [w_q, w_k, w_v] = unpacked(packed, heads, packing);
            attention(
                &(&x * w_q.columns(9, 3)),
                &(&x * w_k.columns(3, 3)),
                &(&x * w_v.columns(3, 3)),
                Mask::causal(),
            )
            .unwrap()
            .0
        };
        let difference = (last_head(&stacked, Packing::Stacked)
            - last_head(&by_group, Packing::ByGroup))
        .amax();
        assert!(
            difference < 1e-12,
            "one model, packed in both orders: the outputs of its last head differ by {difference:.3}"
        );
    }
}
