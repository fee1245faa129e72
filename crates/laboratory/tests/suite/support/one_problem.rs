//! One problem of attention with several heads, solved by any engine.

use super::samples::{numbers, random};
use attention::engine::Engine;
use attention::flash::{FlashOutput, Inputs};
use attention::{AttentionGradients, Float, Mask};
use nalgebra::{DMatrix, DMatrixView, SMatrix, convert};

/// Results that differ by less than this are equal.
pub fn tolerance<T: Float>() -> f64 {
    if size_of::<T>() == 4 { 2e-6 } else { 1e-12 }
}

/// One problem: (n_q, n_k), (d_k, d_v) of a head, (heads of queries, of keys and values), and a mask.
#[derive(Debug, Clone)]
pub struct Problem {
    pub lengths: (usize, usize),
    pub widths: (usize, usize),
    pub heads: (usize, usize),
    pub mask: Mask,
}

pub struct Data<T: Float> {
    pub q: DMatrix<T>,
    pub k: DMatrix<T>,
    pub v: DMatrix<T>,
    pub grad_output: DMatrix<T>,
}

pub type Answer<T> = (FlashOutput<T>, AttentionGradients<T>);

impl Problem {
    pub fn new(
        lengths: (usize, usize),
        widths: (usize, usize),
        heads: (usize, usize),
        mask: impl Into<Mask>,
    ) -> Self {
        Problem { lengths, widths, heads, mask: mask.into() }
    }

    pub fn data<T: Float>(&self, spread: f64) -> Data<T> {
        let ((n_q, n_k), (d_k, d_v), (h, g)) = (self.lengths, self.widths, self.heads);
        Data {
            q: numbers(n_q, h * d_k, 0) * convert::<f64, T>(spread),
            k: numbers(n_k, g * d_k, 1),
            v: numbers(n_k, g * d_v, 2),
            grad_output: numbers(n_q, h * d_v, 3),
        }
    }

    pub fn inputs<'a, T: Float>(&'a self, data: &'a Data<T>) -> Inputs<'a, T> {
        let (heads, kv_heads) = self.heads;
        Inputs::grouped(&data.q, &data.k, &data.v, &self.mask, heads, kv_heads).unwrap()
    }

    pub fn by<T: Float>(&self, engine: &dyn Engine<T>, data: &Data<T>) -> Answer<T> {
        answer(engine, &self.inputs(data), &data.grad_output)
    }
}

/// The answer of an engine, forward and backward.
pub fn answer<T: Float>(
    engine: &dyn Engine<T>,
    inputs: &Inputs<T>,
    grad_output: &DMatrix<T>,
) -> Answer<T> {
    let forward = engine.forward(inputs).unwrap();
    let gradients = engine.backward(inputs, &forward, grad_output.into()).unwrap();
    (forward, gradients)
}

/// Four tokens of width 4, each view a part of a larger matrix that holds NaN around it.
pub fn each_view(check: impl Fn(DMatrixView<f64>)) {
    let mut large = DMatrix::from_element(9, 11, f64::NAN);
    large.view_mut((2, 3), (4, 4)).copy_from(&random(4, 4, 1));
    let columns = large.rows(2, 4).into_owned();
    let rows = large.columns(3, 4).into_owned();
    check((&columns.columns(3, 4)).into());
    check((&rows.rows(2, 4)).into());
    check((&large.view((2, 3), (4, 4))).into());
    check(rows.rows_range(2..6));
    check((&SMatrix::<f64, 4, 4>::from_fn(|i, j| large[(i + 2, j + 3)])).into());
    check((&large.fixed_view::<4, 4>(2, 3)).into());
}
