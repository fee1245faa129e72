use super::Matrix;

/// The gradient of a loss, measured: by how much it changes when each entry of `x` moves
/// a little both ways.
pub fn numerical_gradient(loss: impl Fn(&Matrix) -> f64, x: &Matrix) -> Matrix {
    let step = 1e-5;
    Matrix::from_fn(x.nrows(), x.ncols(), |i, j| {
        let moved = |by: f64| {
            let mut x = x.clone();
            x[(i, j)] += by;
            loss(&x)
        };
        (moved(step) - moved(-step)) / (2.0 * step)
    })
}
