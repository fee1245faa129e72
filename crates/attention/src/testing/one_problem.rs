//! One problem of attention with several heads, solved by any engine.

use crate::engine::{ByWeights, Engine, Tiled};
use crate::flash::{FlashOutput, Inputs, Tiles};
use crate::{AttentionGradients, Float, Mask};
use nalgebra::{DMatrix, convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// Results that differ by less than this are equal.
pub const F64: f64 = 1e-12;

/// Numbers between −1 and 1.
pub fn numbers<T: Float>(rows: usize, columns: usize, seed: u64) -> DMatrix<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| convert(rng.random_range(-1.0..1.0)))
}

/// One problem: (n_q, n_k), (d_k, d_v) of a head, heads, and a mask.
#[derive(Debug, Clone)]
pub struct Problem {
    pub lengths: (usize, usize),
    pub widths: (usize, usize),
    pub n_heads: usize,
    pub n_kv_heads: usize,
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
    pub fn data<T: Float>(&self, spread: f64) -> Data<T> {
        let ((n_q, n_k), (d_k, d_v)) = (self.lengths, self.widths);
        let (h, g) = (self.n_heads, self.n_kv_heads);
        Data {
            q: numbers(n_q, h * d_k, 0) * convert::<f64, T>(spread),
            k: numbers(n_k, g * d_k, 1),
            v: numbers(n_k, g * d_v, 2),
            grad_output: numbers(n_q, h * d_v, 3),
        }
    }

    pub fn inputs<'a, T: Float>(&'a self, data: &'a Data<T>) -> Inputs<'a, T> {
        let (n_heads, n_kv_heads) = (self.n_heads, self.n_kv_heads);
        Inputs::grouped(&data.q, &data.k, &data.v, &self.mask, n_heads, n_kv_heads)
            .unwrap()
    }

    pub fn naive<T: Float>(&self, data: &Data<T>) -> Answer<T> {
        self.by(&ByWeights, data)
    }

    pub fn tiled<T: Float>(&self, data: &Data<T>, tiles: Tiles) -> Answer<T> {
        self.by(&Tiled(tiles), data)
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

/// The largest difference, relative to the largest entry of what is right (or to 1, if that is smaller). An infinity must
/// be met by the same one.
pub fn off<T: Float>(given: &DMatrix<T>, right: &DMatrix<T>) -> f64 {
    assert_eq!(given.shape(), right.shape());
    let number = |x: T| -> f64 { nalgebra::try_convert(x).unwrap() };
    let pairs = given.iter().zip(right.iter()).map(|(&a, &b)| (number(a), number(b)));
    let finite = right.iter().map(|&x| number(x).abs()).filter(|x| x.is_finite());
    let largest = finite.fold(1.0, f64::max);
    pairs.map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() / largest }).fold(
        0.0,
        |worst, x| {
            assert!(!x.is_nan(), "a NaN");
            worst.max(x)
        },
    )
}
