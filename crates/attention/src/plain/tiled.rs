use super::{Matrix, Partial, scores};
use nalgebra::DVector;
use std::ops::Range;

// ANCHOR: tiles
/// The ranges that cut 0..n into tiles; the last one may be shorter.
pub fn tiles(n: usize, tile: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(tile).map(move |start| start..n.min(start + tile))
}

pub fn rows(matrix: &Matrix, range: &Range<usize>) -> Matrix {
    matrix.rows_range(range.clone()).into_owned()
}
// ANCHOR_END: tiles

// ANCHOR: tiled
/// The output of attention and the log-sum-exp of each query, by one tile after another.
pub fn tiled(
    [q, k, v]: [&Matrix; 3],
    sees: impl Fn(usize, usize) -> bool,
    tile: usize,
) -> (Matrix, DVector<f64>) {
    let mut output = Matrix::zeros(q.nrows(), v.ncols());
    let mut log_sum_exp = DVector::zeros(q.nrows());
    for queries in tiles(q.nrows(), tile) {
        let mut partials: Vec<_> =
            queries.clone().map(|_| Partial::new(v.ncols())).collect();
        for keys in tiles(k.nrows(), tile) {
            let scores = scores(&rows(q, &queries), &rows(k, &keys));
            for (i, query) in queries.clone().enumerate() {
                for (j, key) in keys.clone().enumerate() {
                    if sees(query, key) {
                        partials[i].absorb(scores[(i, j)], &v.row(key).into_owned());
                    }
                }
            }
        }
        for (query, partial) in queries.zip(partials) {
            let (row, lse) = partial.finish();
            output.set_row(query, &row);
            log_sum_exp[query] = lse;
        }
    }
    (output, log_sum_exp)
}
// ANCHOR_END: tiled
