use super::{Matrix, hide, scores, softmax_rows};

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
