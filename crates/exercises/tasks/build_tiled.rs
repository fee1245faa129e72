//! # Build it yourself: attention by tiles
//!
//! hard, 45 minutes, without `attention::`
//!
//! `tiles` cuts $0 \dots n$ into ranges of `tile` numbers, the last of which may be shorter, and `rows` copies a range of rows out of a matrix.
//! `tiled` computes what `attention` computes, without ever holding more scores than one tile has. It walks over tiles of queries, and
//! for each over all tiles of keys; every query has a `Partial`, which absorbs the keys that it sees. Return the output $(n_q, d_v)$ and the
//! log-sum-exp of each query. You have `scores` and `Partial`. A query that sees nothing makes `finish` panic.
//!
//! # Hint
//!
//! Write it with a tile of 1 in mind: one query, then one key after another. What has to begin anew with each query, and what with each tile of
//! queries?
//!
//! # Hint
//!
//! The scores of a tile have their own row and column numbers, from 0. `sees` wants those of the whole matrix. Walk over both with
//! `queries.clone().enumerate()`.
//!
//! # Hint
//!
//! `queries.clone().map(|_| Partial::new(v.ncols())).collect()` before the loop over keys; `partials[i].absorb(…)` in the innermost loop; after
//! the loop over keys `for (query, partial) in queries.zip(partials)`, `finish`, `set_row`.

use attention::plain::*;

// PROGRAM scores online tiled
// FAULT last-tile-lost: the last tile may be shorter
// - (0..n).step_by(tile).map(move |start| start..n.min(start + tile))
// > (0..n / tile).map(move |index| index * tile..(index + 1) * tile)
// FAULT past-the-end: does the last range end at n
// - (0..n).step_by(tile).map(move |start| start..n.min(start + tile))
// > (0..n).step_by(tile).map(move |start| start..start + tile)
// FAULT whole-matrix: only the rows of the range
// - matrix.rows_range(range.clone()).into_owned()
// > matrix.clone()
// FAULT numbers-in-the-tile: `sees` counts queries and keys from the first of all
// - if sees(query, key) {
// > if sees(i, j) {
// FAULT turned-around: `sees` takes the query first
// - if sees(query, key) {
// > if sees(key, query) {
// FAULT no-mask: a hidden key is absorbed
// - if sees(query, key) {
// > if sees(query, key) || true {
// FAULT value-of-the-tile: the value of the same key
// - partials[i].absorb(scores[(i, j)], &v.row(key).into_owned());
// > partials[i].absorb(scores[(i, j)], &v.row(j).into_owned());
// FAULT lse-in-the-tile: the log-sum-exp of query
// - log_sum_exp[query] = lse;
// > log_sum_exp[query % tile] = lse;

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DVector;

    fn draw(rows: usize, columns: usize, seed: usize) -> Matrix {
        Matrix::from_fn(rows, columns, |i, j| ((seed + 5 * i + 3 * j * j) as f64).sin())
    }

    /// All scores at once: the output, and the log-sum-exps.
    fn at_once(
        [q, k, v]: [&Matrix; 3],
        sees: impl Fn(usize, usize) -> bool,
    ) -> (Matrix, DVector<f64>) {
        let exponential = |i: usize, j: usize| {
            let product: f64 = (0..q.ncols()).map(|c| q[(i, c)] * k[(j, c)]).sum();
            if sees(i, j) { (product / (q.ncols() as f64).sqrt()).exp() } else { 0.0 }
        };
        let exponentials = Matrix::from_fn(q.nrows(), k.nrows(), exponential);
        let sums = DVector::from_fn(q.nrows(), |i, _| exponentials.row(i).sum());
        let output = Matrix::from_fn(q.nrows(), v.ncols(), |i, c| {
            (0..k.nrows()).map(|j| exponentials[(i, j)] * v[(j, c)]).sum::<f64>()
                / sums[i]
        });
        (output, sums.map(f64::ln))
    }

    fn compare(
        [n_q, n_k]: [usize; 2],
        sees: impl Fn(usize, usize) -> bool,
        tile: usize,
        question: &str,
    ) {
        let (q, k, v) = (draw(n_q, 4, 0), draw(n_k, 4, 1), draw(n_k, 3, 2));
        let (output, lse) = tiled([&q, &k, &v], &sees, tile);
        let (right, right_lse) = at_once([&q, &k, &v], &sees);
        let what = format!("{n_q} queries, {n_k} keys, tiles of {tile}");
        assert!(
            output.shape() == right.shape(),
            "{what}: the output should be {:?}, and is {:?}",
            right.shape(),
            output.shape()
        );
        for i in 0..n_q {
            let off = (output.row(i) - right.row(i)).amax();
            assert!(
                off < 1e-12,
                "{what}: row {i} of the output is off by {off:.2e}: {question}"
            );
            assert!(
                (lse[i] - right_lse[i]).abs() < 1e-12,
                "{what}: the log-sum-exp of query {i} should be {:.4} and is {:.4}",
                right_lse[i],
                lse[i]
            );
        }
    }

    #[test]
    fn ranges_cover_all_rows() {
        for (n, tile) in [(6, 3), (7, 3), (2, 5)] {
            let ranges: Vec<_> = tiles(n, tile).collect();
            let covered: Vec<_> = ranges.iter().cloned().flatten().collect();
            assert!(
                ranges.last().is_some_and(|range| range.end <= n),
                "0..{n} in tiles of {tile} became {ranges:?}: does the last range end at n, and is there one? The last tile may be shorter"
            );
            assert!(
                covered == (0..n).collect::<Vec<_>>()
                    && ranges.iter().all(|range| range.len() <= tile),
                "0..{n} in tiles of {tile} became {ranges:?}: the last tile may be shorter, and none is missing"
            );
        }
        let matrix = draw(5, 2, 0);
        assert!(
            rows(&matrix, &(1..3)) == matrix.rows(1, 2).into_owned(),
            "`rows` of 1..3 should copy only the rows of the range: 1 and 2"
        );
    }

    #[test]
    fn one_tile_is_attention() {
        let all = |_, _| true;
        compare([4, 4], all, 4, "with one tile this is attention by `Partial`s");
    }

    #[test]
    fn the_size_of_a_tile_changes_nothing() {
        for tile in [1, 2, 3, 4, 9] {
            let question = "each key comes with the value of the same key, counted from the first of all, and each query begins with a new `Partial`";
            compare([5, 7], |_, _| true, tile, question);
        }
    }

    #[test]
    fn hidden_keys_are_not_absorbed() {
        let question = "a hidden key is absorbed, or one that is seen is not: `sees` takes the query first, then the key";
        compare([7, 7], |i, j| j <= i, 7, question);
        for tile in [1, 2, 3] {
            let question = "`sees` counts queries and keys from the first of all, not from that of the tile";
            compare([7, 7], |i, j| j <= i && i - j < 3, tile, question);
        }
        let q = draw(3, 2, 5);
        let v = Matrix::from_fn(3, 1, |j, _| if j == 2 { f64::NAN } else { 1.0 });
        let (output, _) = tiled([&q, &q, &v], |_, j| j < 2, 2);
        assert!(
            output.iter().all(|it| (it - 1.0).abs() < 1e-12),
            "a key is hidden and its value is NaN, and the output is {:?}: a hidden key is absorbed, with a weight of 0",
            output.as_slice()
        );
    }

    #[test]
    fn every_query_keeps_its_log_sum_exp() {
        let (q, k, v) = (draw(5, 4, 0), draw(7, 4, 1), draw(7, 3, 2));
        let (_, lse) = tiled([&q, &k, &v], |_, _| true, 2);
        let (_, right) = at_once([&q, &k, &v], |_, _| true);
        for i in 0..5 {
            assert!(
                (lse[i] - right[i]).abs() < 1e-12,
                "the log-sum-exp of query {i} should be {:.4} and is {:.4}: is it stored at the query's place among all?",
                right[i],
                lse[i]
            );
        }
    }
}
