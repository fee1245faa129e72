//! A layer on some tokens, forward and backward, with every matrix on the way.

use crate::{Mask, Matrix};
use attention::{
    AttentionCache, Float, ForwardOptions, MultiHeadAttention, Parameters, Rotary,
    ScoreRule, attention_backward, example,
    gradient_check::numerical_gradient,
    linear, linear_backward,
    positions::{RotaryPairs, sinusoidal_positions},
    scaled_scores,
    softmax::softmax_rows_backward,
};
use nalgebra::{DMatrix, RowDVector, convert};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use wasm_bindgen::prelude::*;

/// The ways in which a layer knows where its tokens stand.
#[wasm_bindgen]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Positions {
    /// It doesn't.
    None,
    /// Sines and cosines, added to the input.
    Waves,
    /// Queries and keys are turned.
    Angles,
    /// A bias on the scores, which falls with the distance.
    Bias,
}

/// A layer and its input. The loss is Σ output ⊙ P with a fixed P, so that its gradient with respect to the output is P.
#[wasm_bindgen]
pub struct Layer {
    layer: MultiHeadAttention<f64>,
    x: DMatrix<f64>,
    mask: attention::Mask,
    /// The probability that a weight is dropped, and the seed of the draws.
    dropout: (f64, u64),
}

#[wasm_bindgen]
impl Layer {
    /// The running example: one head with its projections, and W_O = W_Vᵀ.
    ///
    /// # Errors
    /// None that is known.
    pub fn example() -> Result<Layer, JsError> {
        let layer = example_parameters();
        let layer = MultiHeadAttention::from_parameters(layer, 1)?;
        let (x, mask) = (example::river().x, attention::Mask::none());
        Ok(Layer { layer, x, mask, dropout: (0.0, 0) })
    }

    /// A layer for these tokens under a mask, without positions. Its parameters are drawn at random, its scores are multiplied by
    /// `factor`, and its weights are dropped with the probability `dropout`.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::xavier_grouped`].
    #[wasm_bindgen(constructor)]
    pub fn new(
        x: &Matrix,
        n_heads: usize,
        n_kv_heads: usize,
        seed: u64,
        factor: f64,
        mask: &Mask,
        dropout: f64,
    ) -> Result<Layer, JsError> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut layer =
            MultiHeadAttention::xavier_grouped(x.columns(), n_heads, n_kv_heads, rng)?;
        layer.parameters.w_q *= factor;
        let (x, mask) = (x.0.clone(), mask.0.clone());
        Ok(Layer { layer, x, mask, dropout: (dropout, seed) })
    }

    /// Lets the layer know where its tokens stand.
    ///
    /// # Errors
    /// Heads have an odd width, and their queries and keys are to be turned.
    pub fn place(&mut self, positions: Positions) -> Result<(), JsError> {
        match positions {
            Positions::None => {}
            Positions::Waves => {
                self.x += sinusoidal_positions::<f64>(self.x.nrows(), self.x.ncols())?;
            }
            Positions::Angles => {
                let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
                self.layer = self.layer.clone().with_rotary(rotary)?;
            }
            Positions::Bias => {
                let rule = ScoreRule::alibi(self.layer.n_heads())?;
                self.mask = self.mask.clone().with_scores(rule);
            }
        }
        Ok(())
    }

    /// A matrix of the forward pass (X, Q, K, V, S, A, O, Y) or of the backward pass (the same after a d). S has −∞ where the mask
    /// hides a key, and A is what multiplies the values, after dropout. Q, K, V, S, A and O are those of one `head`, counted from 0;
    /// Q and K as they meet, turned where positions turn them, and dK and dV what this head sends to keys and values that it may share.
    ///
    /// # Errors
    /// There is no matrix of this name or no such head, or a pass fails.
    pub fn matrix(&self, name: &str, head: usize) -> Result<Matrix, JsError> {
        let (output, cache) = self.layer.forward(&self.x, self.options())?;
        let grad_y = self.loss_gradient();
        let gradients = self.layer.backward(&cache, &grad_y)?;
        let attended = cache.forward().output.clone();
        let mut heads = cache.heads();
        let w_o = &self.layer.parameters.w_o;
        let (grad_attended, ..) = linear_backward(&attended, w_o, &grad_y)?;
        if head >= heads.len() {
            let message = format!("head {head} is asked for, of {}", heads.len());
            return Err(JsError::new(&message));
        }
        let cache = heads.swap_remove(head);
        let of_head = |joined: &DMatrix<f64>| {
            let width = joined.ncols() / self.layer.n_heads();
            joined.columns(width * head, width).into_owned()
        };
        let grad_o = of_head(&grad_attended);
        let grad_core = || attention_backward(&cache, &grad_o);
        Ok(Matrix(match name {
            "X" => self.x.clone(),
            "Q" => cache.q,
            "K" => cache.k,
            "V" => cache.v,
            "S" => {
                let sized = cache.mask.sized(self.x.nrows(), self.x.nrows())?;
                sized.apply(scaled_scores(&cache.q, &cache.k)?)?
            }
            "A" => cache.weights_used()?.into_owned(),
            "O" => of_head(&attended),
            "Y" => output,
            "dY" => grad_y,
            "dO" => grad_o,
            "dA" => grad_weights(&cache, &grad_o)?,
            "dS" => {
                let grad = grad_weights(&cache, &grad_o)?;
                softmax_rows_backward(&cache.weights, &grad)?
            }
            "dQ" => grad_core()?.q,
            "dK" => grad_core()?.k,
            "dV" => grad_core()?.v,
            "dX" => gradients.x,
            name => return Err(JsError::new(&format!("there is no matrix `{name}`"))),
        }))
    }

    /// The part of dX that comes by one path: through the queries (0), the keys (1) or the values (2), of all heads.
    ///
    /// # Errors
    /// There is no such path, or a pass fails.
    pub fn path(&self, which: usize) -> Result<Matrix, JsError> {
        let Parameters { w_q, w_k, w_v, .. } = &*self.layer.parameters;
        let Some((name, w)) = [("dQ", w_q), ("dK", w_k), ("dV", w_v)].get(which).copied()
        else {
            return Err(JsError::new(&format!("there is no path {which}")));
        };
        let mut term = DMatrix::zeros(self.x.nrows(), self.x.ncols());
        for head in 0..self.layer.n_heads() {
            let mut grad = self.matrix(name, head)?.0;
            if let (Some(rotary), true) = (self.layer.rotary(), which < 2) {
                grad = rotary.turn_back(&grad, 1, 0)?;
            }
            let n_heads = w.ncols() / grad.ncols(); // of these parameters
            let at = head * n_heads / self.layer.n_heads();
            let w = w.columns(grad.ncols() * at, grad.ncols());
            term += linear_backward(&self.x, w, &grad)?.0;
        }
        Ok(Matrix(term))
    }

    /// The names of the parameters, as the crate has them.
    #[wasm_bindgen(getter, js_name = parameterNames)]
    pub fn parameter_names(&self) -> Vec<String> {
        let named = self.layer.parameters.named();
        named.into_iter().map(|(name, _)| name).collect()
    }

    /// One parameter, by its place among the names.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn parameter(&self, which: usize) -> Result<Matrix, JsError> {
        matrix_of(&self.layer.parameters, which)
    }

    /// The gradient of the loss with respect to a parameter, by the backward pass.
    ///
    /// # Errors
    /// There is no such parameter, or a pass fails.
    pub fn gradient(&self, which: usize) -> Result<Matrix, JsError> {
        let (_, cache) = self.layer.forward(&self.x, self.options())?;
        let gradients = self.layer.backward(&cache, &self.loss_gradient())?;
        matrix_of(&gradients.parameters, which)
    }

    /// The slope of the loss with respect to one entry of a parameter, measured by central differences.
    ///
    /// # Errors
    /// There is no such entry, or as [`attention::gradient_check::numerical_gradient`].
    pub fn measured(
        &self,
        which: usize,
        row: usize,
        column: usize,
        epsilon: f64,
    ) -> Result<f64, JsError> {
        let parameter = matrix_of(&self.layer.parameters, which)?;
        if row >= parameter.rows() || column >= parameter.columns() {
            let shape = parameter.0.shape();
            let message = format!("({row}, {column}) is outside of a matrix {shape:?}");
            return Err(JsError::new(&message));
        }
        let number = DMatrix::from_element(1, 1, parameter.0[(row, column)]);
        let mut layer = self.layer.clone();
        let p = self.loss_gradient();
        let slope = numerical_gradient(&number, epsilon, |number| {
            let mut named = layer.parameters.named_mut();
            named[which].1[(row, column)] = number[0];
            Ok(layer.forward(&self.x, self.options())?.0.dot(&p))
        })?;
        Ok(slope[0])
    }
}

impl Layer {
    /// The same whenever it is asked for, so that every pass drops the same weights.
    fn options(&self) -> ForwardOptions<'_, f64> {
        let (probability, seed) = self.dropout;
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        ForwardOptions::new().mask(&self.mask).dropout(probability, rng)
    }

    fn loss_gradient(&self) -> DMatrix<f64> {
        loss_gradient(self.x.nrows(), self.x.ncols())
    }
}

/// P.
pub(crate) fn loss_gradient(rows: usize, columns: usize) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |i, j| ((1 + i + 2 * j) as f64).cos())
}

/// dO Vᵀ where the mask lets a key be seen and dropout has kept it.
fn grad_weights(
    cache: &AttentionCache<f64>,
    grad_o: &DMatrix<f64>,
) -> Result<DMatrix<f64>, JsError> {
    let mut grad = linear(grad_o, &cache.v.transpose(), &RowDVector::zeros(0))?;
    if let Some(factors) = &cache.dropout {
        grad.component_mul_assign(factors);
    }
    let mask = cache.mask.sized(grad.nrows(), grad.ncols())?;
    Ok(DMatrix::from_fn(grad.nrows(), grad.ncols(), |i, j| {
        if mask.allows(i, j) { grad[(i, j)] } else { 0.0 }
    }))
}

fn matrix_of(parameters: &Parameters<f64>, which: usize) -> Result<Matrix, JsError> {
    let named = parameters.named();
    let Some((_, matrix)) = named.get(which) else {
        return Err(JsError::new(&format!("there is no parameter {which}")));
    };
    Ok(Matrix(matrix.clone_owned()))
}

/// Those of the running example: one head with its projections, and W_O = W_Vᵀ.
pub(crate) fn example_parameters<T: Float>() -> Parameters<T> {
    let [w_q, w_k, w_v] =
        example::projections().map(|matrix| matrix.map(convert::<f64, T>));
    let none = RowDVector::zeros(0);
    Parameters {
        w_o: w_v.transpose(),
        w_q,
        w_k,
        w_v,
        b_q: none.clone(),
        b_k: none.clone(),
        b_v: none.clone(),
        b_o: none,
    }
}

/// A row for a word: that of the running example where it has the word, or else one that is random and depends on its letters alone.
/// Capitals don't count.
#[wasm_bindgen]
pub fn embed(word: &str) -> Vec<f64> {
    let word = &word.to_lowercase();
    for sentence in [example::river(), example::city()] {
        if let Some(i) = sentence.tokens.iter().position(|token| token == word) {
            return sentence.x.row(i).iter().copied().collect();
        }
    }
    // FNV-1a: the same on every machine and in every version of the standard library.
    let seed = word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || {
        let x: f64 = StandardNormal.sample(rng);
        (10.0 * x).round() / 10.0
    };
    (0..example::DIMENSIONS.len()).map(|_| draw()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layers, and a head of each.
    fn layers() -> Vec<(Layer, usize)> {
        let x = Matrix(example::city().x);
        let mut layers = vec![(Layer::example().ok().unwrap(), 0)];
        for n_kv_heads in [2, 1] {
            for positions in
                [Positions::None, Positions::Waves, Positions::Angles, Positions::Bias]
            {
                let mask = Mask::causal();
                let random = Layer::new(&x, 2, n_kv_heads, 7, 1.5, &mask, 0.3);
                let mut random = random.ok().unwrap();
                random.place(positions).ok().unwrap();
                layers.push((random, 1));
            }
        }
        let four = Layer::new(&x, 4, 2, 7, 1.5, &Mask::causal(), 0.3);
        layers.push((four.ok().unwrap(), 1));
        layers
    }

    /// Waves change X and all that follows, angles begin with Q and K, and a bias with S. The first row stands at position 0.
    #[test]
    fn positions_begin_where_they_act() {
        let x = Matrix(example::city().x);
        let of = |positions| {
            let layer = Layer::new(&x, 2, 2, 7, 1.0, &Mask::none(), 0.0);
            let mut layer = layer.ok().unwrap();
            layer.place(positions).ok().unwrap();
            layer
        };
        let changed = |positions| -> Vec<&str> {
            let [plain, placed] = [Positions::None, positions].map(of);
            let is_changed =
                |name: &&str| plain.matrix(name, 0).ok() != placed.matrix(name, 0).ok();
            ["X", "Q", "K", "V", "S", "A"].into_iter().filter(is_changed).collect()
        };
        assert_eq!(changed(Positions::None), [""; 0]);
        assert_eq!(changed(Positions::Waves), ["X", "Q", "K", "V", "S", "A"]);
        assert_eq!(changed(Positions::Angles), ["Q", "K", "S", "A"]);
        assert_eq!(changed(Positions::Bias), ["S", "A"]);
        let [plain, biased] = [Positions::None, Positions::Bias]
            .map(|positions| of(positions).matrix("S", 1).ok().unwrap().0);
        // The second of two heads has the slope 1/256.
        assert!((plain[(5, 1)] - biased[(5, 1)] - 4.0 / 256.0).abs() < 1e-15);
    }

    #[test]
    fn heads_of_a_group_have_the_same_keys_and_values() {
        let x = Matrix(example::city().x);
        let layer = Layer::new(&x, 4, 2, 7, 1.0, &Mask::none(), 0.0).ok().unwrap();
        for (name, is_shared) in [("K", true), ("V", true), ("Q", false), ("A", false)] {
            let [first, second, third] =
                [0, 1, 2].map(|head| layer.matrix(name, head).ok().unwrap());
            assert_eq!(first == second, is_shared, "{name}");
            assert_ne!(second, third, "{name}");
        }
    }

    #[test]
    fn the_three_paths_add_up_to_the_gradient_of_the_input() {
        for (layer, head) in layers() {
            let paths = [0, 1, 2].map(|path| layer.path(path).ok().unwrap().0);
            let sum: DMatrix<f64> = paths.into_iter().sum();
            let error = (sum - layer.matrix("dX", head).ok().unwrap().0).amax();
            assert!(error < 1e-14, "{error}");
        }
    }

    /// dQ = dS K / √d_k, which the crate computes without handing out dS.
    #[test]
    fn the_gradient_of_the_scores_is_the_one_that_the_backward_pass_goes_through() {
        for (layer, head) in layers() {
            let [d_q, d_s, k] =
                ["dQ", "dS", "K"].map(|name| layer.matrix(name, head).ok().unwrap().0);
            let expected = &d_s * &k / (k.ncols() as f64).sqrt();
            assert!((expected - d_q).amax() < 1e-14);
        }
    }

    #[test]
    fn slopes_are_as_measured() {
        for (layer, _) in layers() {
            for which in 0..layer.parameter_names().len() {
                let gradient = layer.gradient(which).ok().unwrap().0;
                let measured = layer.measured(which, 0, 1, 1e-5).ok().unwrap();
                assert!((gradient[(0, 1)] - measured).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn words_of_the_running_example_have_its_rows() {
        assert_eq!(embed("bank"), [1.0, 1.0, 1.2, 0.0]);
        assert_eq!(embed("Submarine"), embed("submarine"));
        assert_ne!(embed("submarine"), embed("submarines"));
    }
}
