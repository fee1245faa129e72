use super::Matrix;

// ANCHOR: rotate
/// Turns the pairs of columns c and c + d/2 of each row by an angle that grows with its
/// position, which is `first` for the first row. A direction of 1 turns queries and keys,
/// and −1 turns their gradients back.
pub fn rotate(x: &Matrix, first: usize, direction: f64) -> Matrix {
    let half = x.ncols() / 2;
    let mut turned = x.clone();
    for i in 0..x.nrows() {
        for c in 0..half {
            let frequency = 10_000_f64.powf(-(c as f64) / half as f64);
            let (sin, cos) = (direction * (first + i) as f64 * frequency).sin_cos();
            let (a, b) = (x[(i, c)], x[(i, c + half)]);
            turned[(i, c)] = a * cos - b * sin;
            turned[(i, c + half)] = a * sin + b * cos;
        }
    }
    turned
}
// ANCHOR_END: rotate

// ANCHOR: slopes
/// A slope for each head: 1/2, 1/4, … 1/256 for eight heads.
pub fn slopes(n_heads: usize) -> Vec<f64> {
    (1..=n_heads).map(|h| 2_f64.powf(-8.0 * h as f64 / n_heads as f64)).collect()
}

/// Takes from each score the distance of query and key, times a slope.
pub fn bias_by_distance(scores: &Matrix, slope: f64) -> Matrix {
    Matrix::from_fn(scores.nrows(), scores.ncols(), |i, j| {
        scores[(i, j)] - slope * i.abs_diff(j) as f64
    })
}
// ANCHOR_END: slopes
