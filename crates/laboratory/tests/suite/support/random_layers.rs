//! Random layers, and what they compute by definition.

use super::random_problems::{mask, reference, same, unit};
use super::samples::{length, numbers, options, to_f64};
use attention::flash::Tiles;
use attention::{Float, ForwardOptions, LayerGradients, Mask, Parameters, plain};
use nalgebra::{DMatrix, RowDVector, convert};
use rand::{RngExt, rngs::ChaCha8Rng};

/// The results of a layer by their names: the output, and the gradients with respect to its input, the context and every parameter.
pub type Results = Vec<(String, DMatrix<f64>)>;

/// What a layer is given.
pub struct RandomLayer<T: Float> {
    pub x: DMatrix<T>,
    pub context: Option<DMatrix<T>>,
    pub grad_output: DMatrix<T>,
    pub mask: Mask,
    pub tiles: Tiles,
    pub n_heads: usize,
    allowed: DMatrix<bool>,
}

impl<T: Float> RandomLayer<T> {
    pub fn random(rng: &mut ChaCha8Rng) -> Self {
        let (n_q, n_k, is_cross) = (length(rng), length(rng), rng.random_bool(0.5));
        let (mask, allowed) = mask(rng, (n_q, if is_cross { n_k } else { n_q }));
        let n_heads = rng.random_range(1..4);
        let d_model = n_heads * rng.random_range(1..7);
        let mut matrix = |rows| numbers::<T>(rows, d_model, rng.random());
        let (mut x, context, grad_output) = (matrix(n_q), matrix(n_k), matrix(n_q));
        // A NaN in a token that no other sees, as in padding: its own row is NaN, and the gradients of parameters are.
        if rng.random_bool(0.3) {
            x[(rng.random_range(0..n_q), 0)] = convert(f64::NAN);
        }
        let context = is_cross.then_some(context);
        let tiles = Tiles { queries: length(rng), keys: length(rng) };
        RandomLayer { x, context, grad_output, mask, tiles, n_heads, allowed }
    }

    /// Parameters for heads that are so wide all together; with biases.
    pub fn parameters(
        &self,
        (d_k, d_v): (usize, usize),
        rng: &mut ChaCha8Rng,
    ) -> Parameters<T> {
        let mut p = Parameters::xavier(self.x.ncols(), d_k, d_v, rng).unwrap();
        for bias in [&mut p.b_q, &mut p.b_k, &mut p.b_v, &mut p.b_o] {
            bias.apply(|b| *b = convert(rng.random_range(-0.5..0.5)));
        }
        p
    }

    pub fn options(&self) -> ForwardOptions<'_, T> {
        options(self.context.as_ref(), &self.mask)
    }

    /// Projections, heads side by side, projection.
    pub fn by_definition(&self, p: &Parameters<T>, n_heads: usize) -> Results {
        let x = &to_f64(&self.x);
        let context = self.context.as_ref().map(to_f64);
        let source = context.as_ref().unwrap_or(x);
        let [w_q, w_k, w_v, w_o] = [&p.w_q, &p.w_k, &p.w_v, &p.w_o].map(to_f64);
        let (q, k) = (project(x, &w_q, &p.b_q), project(source, &w_k, &p.b_k));
        let v = project(source, &w_v, &p.b_v);
        let (d_k, d_v) = (q.ncols() / n_heads, v.ncols() / n_heads);
        let heads = |grad: &DMatrix<f64>| -> Vec<_> {
            let slice = |m: &DMatrix<f64>, h, d| m.columns(h * d, d).into_owned();
            let head = |h| {
                let [q, k] = [&q, &k].map(|x| slice(x, h, d_k));
                let [v, grad] = [&v, grad].map(|x| slice(x, h, d_v));
                reference([&q, &k, &v, &grad], &self.allowed)
            };
            (0..n_heads).map(head).collect()
        };
        let forward = heads(&DMatrix::zeros(x.nrows(), v.ncols()));
        let outputs: Vec<_> = forward.into_iter().map(|head| head.output).collect();
        let attended = plain::join(&outputs);
        let output = project(&attended, &w_o, &p.b_o);
        let grad = to_f64(&self.grad_output);
        let (grad_attended, w_o, b_o) = project_back(&attended, &w_o, &grad);
        let mut grads = [vec![], vec![], vec![]];
        for head in heads(&grad_attended) {
            let of_head = [head.q, head.k, head.v];
            grads.iter_mut().zip(of_head).for_each(|(all, one)| all.push(one));
        }
        let [grad_q, grad_k, grad_v] = grads.map(|heads| plain::join(&heads));
        let (x_q, w_q, b_q) = project_back(x, &w_q, &grad_q);
        let (x_k, w_k, b_k) = project_back(source, &w_k, &grad_k);
        let (x_v, w_v, b_v) = project_back(source, &w_v, &grad_v);
        let (by_x, by_context) = match context {
            Some(_) => (x_q, x_k + x_v),
            None => (x_q + x_k + x_v, DMatrix::zeros(0, 0)),
        };
        let named = [
            ("output", output),
            ("x", by_x),
            ("context", by_context),
            ("w_q", w_q),
            ("w_k", w_k),
            ("w_v", w_v),
            ("w_o", w_o),
            ("b_q", b_q),
            ("b_k", b_k),
            ("b_v", b_v),
            ("b_o", b_o),
        ];
        named.map(|(name, matrix)| (name.to_owned(), matrix)).to_vec()
    }

    /// Compares entries of ordinary size: relative to the largest, a layer is off by a few roundings of each of the sums it is made of.
    pub fn compare(
        &self,
        output: &DMatrix<T>,
        gradients: &LayerGradients<T>,
        right: &Results,
    ) -> Result<(), String> {
        let (n_q, n_k) = self.allowed.shape();
        let sums = n_q + n_k + 8 * self.x.ncols() + 64;
        let tolerance = sums as f64 * 4.0 * unit::<T>();
        let context = gradients.context.as_ref();
        let mut given = vec![
            ("output".to_owned(), to_f64(output)),
            ("x".to_owned(), to_f64(&gradients.x)),
            ("context".to_owned(), context.map_or(DMatrix::zeros(0, 0), to_f64)),
        ];
        let named = gradients.parameters.named().into_iter();
        given.extend(named.map(|(name, matrix)| (name, to_f64(&matrix.into_owned()))));
        assert_eq!(given.len(), right.len());
        for ((name, given), (expected, right)) in given.iter().zip(right) {
            assert_eq!((name, given.shape()), (expected, right.shape()));
            let finite = right.iter().map(|x| x.abs()).filter(|x| x.is_finite());
            let largest = finite.fold(1.0, f64::max);
            for (at, (&given, &right)) in given.iter().zip(right).enumerate() {
                same(given, right, tolerance * largest, false).map_err(|how| {
                    format!("{name}, entry {at}: {given:e}, not {right:e}: {how}")
                })?;
            }
        }
        Ok(())
    }
}

/// `x W + b`
fn project<T: Float>(
    x: &DMatrix<f64>,
    w: &DMatrix<f64>,
    b: &RowDVector<T>,
) -> DMatrix<f64> {
    let b = to_f64(&DMatrix::from_row_slice(1, b.len(), b.as_slice()));
    let mut y = x * w;
    y.row_iter_mut().for_each(|mut row| row += b.row(0));
    y
}

/// The gradients of [`project`] with respect to `x`, `w` and `b`.
fn project_back(
    x: &DMatrix<f64>,
    w: &DMatrix<f64>,
    grad: &DMatrix<f64>,
) -> (DMatrix<f64>, DMatrix<f64>, DMatrix<f64>) {
    let ones = DMatrix::repeat(1, x.nrows(), 1.0);
    (grad * w.transpose(), x.transpose() * grad, ones * grad)
}
