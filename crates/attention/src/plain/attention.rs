use super::{Matrix, hide, softmax_rows};

// ANCHOR: scores
/// How well each query fits each key: q kᵀ / √d_k.
pub fn scores(q: &Matrix, k: &Matrix) -> Matrix {
    q * k.transpose() / (q.ncols() as f64).sqrt() // (n_q, n_k)
}
// ANCHOR_END: scores

// ANCHOR: attention
/// Each query's mean of the values, and the weights of that mean.
pub fn attention(
    q: &Matrix,                          // (n_q, d_k)
    k: &Matrix,                          // (n_k, d_k)
    v: &Matrix,                          // (n_k, d_v)
    sees: impl Fn(usize, usize) -> bool, // query i sees key j
) -> (Matrix, Matrix) {
    let weights = softmax_rows(&hide(&scores(q, k), sees)); // (n_q, n_k)
    (&weights * v, weights) // (n_q, d_v)
}
// ANCHOR_END: attention
