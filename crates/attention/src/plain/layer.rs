use super::{Matrix, attention};

// ANCHOR: layer
/// What a layer learns: what a token asks, what it answers to, what it tells, and how the
/// outcome is mixed.
#[derive(Clone)]
pub struct Layer {
    pub w_q: Matrix, // (d_model, d_model), as the others
    pub w_k: Matrix,
    pub w_v: Matrix,
    pub w_o: Matrix,
}

impl Layer {
    /// Every token of `x` (n, d_model) asks the tokens that it sees.
    pub fn forward(&self, x: &Matrix, sees: impl Fn(usize, usize) -> bool) -> Matrix {
        let (q, k, v) = (x * &self.w_q, x * &self.w_k, x * &self.w_v);
        attention(&q, &k, &v, sees).0 * &self.w_o // (n, d_model)
    }
}
// ANCHOR_END: layer

// ANCHOR: random
impl Layer {
    /// A layer that has learned nothing. `normal` draws numbers of mean 0 and variance 1.
    pub fn new(d_model: usize, normal: &mut impl FnMut() -> f64) -> Layer {
        let mut matrix = || random(d_model, d_model, normal);
        Layer { w_q: matrix(), w_k: matrix(), w_v: matrix(), w_o: matrix() }
    }
}

/// Normal numbers of variance 1 / rows: a product with them keeps the size of its input.
pub fn random(rows: usize, columns: usize, normal: &mut impl FnMut() -> f64) -> Matrix {
    Matrix::from_fn(rows, columns, |_, _| normal() / (rows as f64).sqrt())
}
// ANCHOR_END: random
