//! One problem of attention with several heads, solved by any engine.

use attention::engine::Engine;
use attention::flash::{FlashOutput, Inputs};
use attention::{AttentionGradients, Float, Mask};
use nalgebra::{DMatrix, convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// Results that differ by less than this are equal.
pub fn tolerance<T: Float>() -> f64 {
    if size_of::<T>() == 4 { 2e-6 } else { 1e-12 }
}

/// Numbers between −1 and 1, the same for the same seed.
pub fn numbers<T: Float>(rows: usize, columns: usize, seed: u64) -> DMatrix<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| convert(rng.random_range(-1.0..1.0)))
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

/// The largest difference, relative to the largest entry of what is right (or to 1, if that is smaller). An infinity must
/// be met by the same one.
pub fn off<T: Float, R: Float>(given: &DMatrix<T>, right: &DMatrix<R>) -> f64 {
    assert_eq!(given.shape(), right.shape());
    let [given, right] = [to_f64(given), to_f64(right)];
    let finite = right.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let largest = finite.fold(1.0, f64::max);
    let pairs = given.iter().zip(&right);
    let offs = pairs.map(|(&a, &b)| if a == b { 0.0 } else { (a - b).abs() / largest });
    offs.fold(0.0, |worst, off| {
        assert!(!off.is_nan(), "a NaN");
        worst.max(off)
    })
}

pub fn to_f64<T: Float>(x: &DMatrix<T>) -> DMatrix<f64> {
    x.map(|x| nalgebra::try_convert(x).unwrap())
}
