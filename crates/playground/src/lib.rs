//! The interface of the crate `attention` for the figures that move, in the reader's browser.
//!
//! Matrices cross the border as [`Matrix`], row by row. Attention, its gradients and its slopes are the crate's; here they are only called.

mod layer; // a layer forward and backward, for the map of gradients and the workbench
mod machine; // rooflines, tiles, banks and time-lines
mod writer; // the trained model

pub use layer::{Layer, Positions, embed};
pub use machine::{BankLoad, PlannedWork, RingWalk, RooflineStep, TileWalk};
pub use writer::{Writer, Written};

use attention::flash;
use attention::{
    Float, Rotary, SingleHeadAttention, example, gradient_check::numerical_gradient,
    mask::SizedMask, positions::RotaryPairs,
};
use layer::{example_parameters, loss_gradient};
use nalgebra::{DMatrix, DVector, RowDVector, convert};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use wasm_bindgen::prelude::*;

/// A matrix of numbers, row by row.
#[wasm_bindgen]
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix(DMatrix<f64>);

#[wasm_bindgen]
impl Matrix {
    /// # Errors
    /// The entries don't fill the rows.
    #[wasm_bindgen(constructor)]
    pub fn new(rows: usize, columns: usize, entries: &[f64]) -> Result<Matrix, JsError> {
        if rows.checked_mul(columns) != Some(entries.len()) {
            let given = entries.len();
            let message =
                format!("{given} entries can't fill a matrix ({rows}, {columns})");
            return Err(JsError::new(&message));
        }
        Ok(Matrix(DMatrix::from_row_slice(rows, columns, entries)))
    }

    #[wasm_bindgen(getter)]
    pub fn rows(&self) -> usize {
        self.0.nrows()
    }

    #[wasm_bindgen(getter)]
    pub fn columns(&self) -> usize {
        self.0.ncols()
    }

    /// All entries, row by row.
    #[wasm_bindgen(getter)]
    pub fn entries(&self) -> Vec<f64> {
        self.0.transpose().as_slice().to_vec()
    }
}

/// The weights of some scores.
///
/// # Errors
/// As [`attention::softmax()`].
#[wasm_bindgen]
pub fn softmax(scores: &[f64]) -> Result<Vec<f64>, JsError> {
    let weights = attention::softmax(&DVector::from_column_slice(scores))?;
    Ok(weights.as_slice().to_vec())
}

/// The derivative of each weight with respect to each score.
///
/// # Errors
/// As [`attention::softmax()`].
#[wasm_bindgen]
pub fn softmax_jacobian(scores: &[f64]) -> Result<Matrix, JsError> {
    let weights = attention::softmax(&DVector::from_column_slice(scores))?;
    Ok(Matrix(attention::softmax::softmax_jacobian(&weights)?))
}

/// A sentence of the running example: its words, and a row for each of them.
#[wasm_bindgen]
pub struct Sentence(example::Sentence);

#[wasm_bindgen]
impl Sentence {
    /// "the boat left the river bank".
    pub fn river() -> Sentence {
        Sentence(example::river())
    }

    /// "the clerk left the city bank".
    pub fn city() -> Sentence {
        Sentence(example::city())
    }

    #[wasm_bindgen(getter)]
    pub fn tokens(&self) -> Vec<String> {
        self.0.tokens.map(str::to_owned).to_vec()
    }

    #[wasm_bindgen(getter)]
    pub fn x(&self) -> Matrix {
        Matrix(self.0.x.clone())
    }
}

/// The names of the columns of a sentence's matrix.
#[wasm_bindgen]
pub fn dimensions() -> Vec<String> {
    example::DIMENSIONS.map(str::to_owned).to_vec()
}

/// W_Q, W_K and W_V of the running example.
#[wasm_bindgen]
pub fn projections() -> Vec<Matrix> {
    example::projections().map(Matrix).to_vec()
}

/// The rows of `x`, each multiplied by `w`.
///
/// # Errors
/// As [`attention::linear`].
#[wasm_bindgen]
pub fn project(x: &Matrix, w: &Matrix) -> Result<Matrix, JsError> {
    Ok(Matrix(attention::linear(&x.0, &w.0, &RowDVector::zeros(0))?))
}

/// The keys that a query may see.
#[wasm_bindgen]
#[derive(Debug, Clone)]
pub struct Mask(attention::Mask);

#[wasm_bindgen]
impl Mask {
    /// All of them.
    pub fn none() -> Mask {
        Mask(attention::Mask::none())
    }

    /// None that comes later.
    pub fn causal() -> Mask {
        Mask(attention::Mask::causal())
    }

    /// The last `width` up to itself.
    ///
    /// # Errors
    /// As [`attention::Mask::window`].
    pub fn window(width: usize) -> Result<Mask, JsError> {
        Ok(Mask(attention::Mask::window(width)?))
    }

    /// The first `valid` of `tokens`.
    ///
    /// # Errors
    /// As [`attention::Mask::padding`].
    pub fn padding(valid: usize, tokens: usize) -> Result<Mask, JsError> {
        let valid: Vec<_> = (0..tokens).map(|j| j < valid).collect();
        Ok(Mask(attention::Mask::padding(&valid)?))
    }

    /// Those that both allow.
    pub fn and(&self, other: &Mask) -> Mask {
        Mask(self.0.clone().and(other.0.clone()))
    }
}

/// Attention, with what lies between its inputs and its output.
#[wasm_bindgen(getter_with_clone)]
pub struct Attention {
    /// Q Kᵀ / √d_k (n_q, n_k).
    pub scores: Matrix,
    /// The same with −∞ where the mask hides a key.
    pub masked: Matrix,
    /// (n_q, n_k)
    pub weights: Matrix,
    /// (n_q, d_v)
    pub output: Matrix,
}

#[wasm_bindgen]
impl Attention {
    /// Queries (n_q, d_k), keys (n_k, d_k), values (n_k, d_v).
    ///
    /// # Errors
    /// As [`attention::attention`].
    #[wasm_bindgen(constructor)]
    pub fn new(
        q: &Matrix,
        k: &Matrix,
        v: &Matrix,
        mask: &Mask,
    ) -> Result<Attention, JsError> {
        let (output, cache) = attention::attention(&q.0, &k.0, &v.0, &mask.0)?;
        let scores = attention::scaled_scores(&q.0, &k.0)?;
        let sized: SizedMask = mask.0.sized(q.rows(), k.rows())?;
        let masked = sized.apply(scores.clone())?;
        let [scores, masked, weights, output] =
            [scores, masked, cache.weights, output].map(Matrix);
        Ok(Attention { scores, masked, weights, output })
    }
}

/// Softmax of one row that comes piece by piece, over values of width 1.
#[wasm_bindgen]
pub struct OnlineSoftmax(flash::OnlineSoftmax<f64>);

#[wasm_bindgen]
impl OnlineSoftmax {
    /// Before any score.
    ///
    /// # Errors
    /// As [`flash::OnlineSoftmax::new`].
    #[wasm_bindgen(constructor)]
    pub fn new() -> Result<OnlineSoftmax, JsError> {
        Ok(OnlineSoftmax(flash::OnlineSoftmax::new(1, 1)?))
    }

    /// Some more keys: their scores, and as many values.
    ///
    /// # Errors
    /// As [`flash::OnlineSoftmax::absorb`].
    pub fn absorb(&mut self, scores: &[f64], values: &[f64]) -> Result<(), JsError> {
        let scores = DMatrix::from_row_slice(1, scores.len(), scores);
        let values = DMatrix::from_row_slice(values.len(), 1, values);
        Ok(self.0.absorb(&scores, &values)?)
    }

    /// The state after the keys of both.
    ///
    /// # Errors
    /// As [`flash::OnlineSoftmax::merge`].
    pub fn merge(&self, other: &OnlineSoftmax) -> Result<OnlineSoftmax, JsError> {
        Ok(OnlineSoftmax(self.0.clone().merge(other.0.clone())?))
    }

    /// m, the largest score so far.
    #[wasm_bindgen(getter)]
    pub fn max(&self) -> f64 {
        self.0.max()[0]
    }

    /// ℓ, the sum of the exponentials.
    #[wasm_bindgen(getter)]
    pub fn sum(&self) -> f64 {
        self.0.sum()[0]
    }

    /// o, the sum of the weighted values.
    #[wasm_bindgen(getter)]
    pub fn values(&self) -> f64 {
        self.0.values()[0]
    }

    /// The weighted mean of the values, as far as they have come.
    #[wasm_bindgen(getter)]
    pub fn output(&self) -> f64 {
        self.0.clone().finish().0[0]
    }
}

/// The row (1, 0, 1, 0, …) of some pairs of neighbours, turned to a position with a base of 100.
///
/// # Errors
/// `pairs` is 0.
#[wasm_bindgen]
pub fn turned_row(position: i32, pairs: usize) -> Result<Vec<f64>, JsError> {
    let row = DMatrix::from_fn(1, 2 * pairs, |_, c| if c % 2 == 0 { 1.0 } else { 0.0 });
    let rotary = Rotary::new(100.0, RotaryPairs::Neighbours)?;
    Ok(rotary.turn(&row, 1, position as isize)?.as_slice().to_vec())
}

/// The widest random products.
const WIDEST: usize = 1024;

/// The dot products of the first `width` entries of a random query with those of random keys, all entries of mean 0 and variance 1. A
/// wider product goes on with the sum of a narrower one.
///
/// # Errors
/// A size is 0, or the width more than 1,024.
#[wasm_bindgen]
pub fn random_products(
    keys: usize,
    width: usize,
    seed: u64,
) -> Result<Vec<f64>, JsError> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    if width > WIDEST {
        return Err(JsError::new(&format!("the width {width} is more than {WIDEST}")));
    }
    let mut draw = |rows| {
        let all = DMatrix::from_fn(rows, WIDEST, |_, _| StandardNormal.sample(rng));
        all.columns(0, width).into_owned()
    };
    let (q, k) = (draw(1), draw(keys));
    Ok((attention::scaled_scores(&q, &k)? * (width as f64).sqrt()).as_slice().to_vec())
}

/// “bank”, water.
const NUDGED: (usize, usize) = (5, 0);

/// The slope of a loss with respect to one number, by central differences with this step, in `f32` if `single` and in `f64` if not: how
/// much “bank” has to do with water, in the layer of [`Layer::example`]. The loss is that of [`Layer`].
///
/// # Errors
/// As [`attention::gradient_check::numerical_gradient`]: the step is lost beside the number, for instance.
#[wasm_bindgen]
pub fn measured_slope(epsilon: f64, single: bool) -> Result<f64, JsError> {
    Ok(if single { measured::<f32>(epsilon)?.into() } else { measured::<f64>(epsilon)? })
}

fn measured<T: Float>(epsilon: f64) -> attention::Result<T> {
    let to = |matrix: DMatrix<f64>| matrix.map(convert::<f64, T>);
    let layer = SingleHeadAttention::from(example_parameters::<T>());
    let (mut x, p) = (to(example::river().x), to(loss_gradient(6, 4)));
    let number = DMatrix::from_element(1, 1, x[NUDGED]);
    let slope = numerical_gradient(&number, convert(epsilon), |number| {
        x[NUDGED] = number[0];
        Ok(layer.forward(&x, attention::Mask::none())?.0.dot(&p))
    })?;
    Ok(slope[0])
}
