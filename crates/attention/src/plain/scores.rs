use super::Matrix;

/// How well each query fits each key: q kᵀ / √d_k.
pub fn scores(q: &Matrix, k: &Matrix) -> Matrix {
    q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
}
