//! Engines: programs that compute attention for all heads of a layer, and its gradients.
//!
//! They agree up to rounding, and a layer is handed one of them. [`ByWeights`] computes the equations as they stand,
//! [`Tiled`] goes tile by tile as the book explains it; both are here to be read. Others are crates of their own, for speed on a
//! CPU or on a GPU. Everything that an engine has to know is in [`Inputs`]: matrices, heads, mask, rule for scores, dropout.
//!
//! An engine may offer [products](Engine::product) of matrices, too, which the projections of layers then use.

use crate::Float;
use crate::blocks::map;
use crate::dot_product::{Attended, AttentionGradients, attend, attend_backward};
use crate::error::Result;
use crate::flash::{
    FlashOutput, Inputs, Tiles, tiled_attention, tiled_attention_backward,
};
use nalgebra::{DMatrix, DMatrixView};
use std::fmt::Debug;
use std::sync::Arc;

// What an author of an engine needs, beside the inputs.
pub use crate::blocks::on_a_worker;
pub use crate::blocks::{blocks, copy_of, tiles_between};
pub use crate::dot_product::{check_queries_and_keys, check_values, scale};
pub use crate::dropout::HeadDropout;
pub use crate::error::{
    check_count, check_positive, check_room, check_shape, wrong_value,
};
pub use crate::linear::{linear_backward_by, linear_by};
pub use crate::mask::{Rule, neg_infinity};
pub use crate::paged::{PagedInputs, Pages};
pub use crate::score_rule::{RuleGradients, Step};
pub use crate::softmax::{log_sum_exp_or_zero, normaliser, shift};

/// Computes attention of all heads, and its gradients.
///
/// ```
/// use attention::engine::{ByWeights, Engine, Tiled};
/// use attention::{Mask, example, flash::Inputs};
///
/// let x = example::river().x;
/// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(2)?;
/// let outputs = [&ByWeights as &dyn Engine<f64>, &Tiled::default()].map(|engine| engine.forward(&inputs));
/// let [by_weights, by_tiles] = outputs.map(|forward| forward.map(|forward| forward.output));
/// assert!((by_weights? - by_tiles?).amax() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
pub trait Engine<T: Float>: Debug + Send + Sync {
    /// Returns the outputs of all heads, and what the backward pass needs of them.
    ///
    /// # Errors
    /// The engine can't compute these inputs, and says why.
    fn forward(&self, inputs: &Inputs<T>) -> Result<FlashOutput<T>>;

    /// Returns the gradients with respect to queries, keys, values and the tables of the rule for scores, from what
    /// [`Engine::forward`] returned for these inputs and `grad_output` (n_q, n_heads · d_v).
    ///
    /// # Errors
    /// `forward` or `grad_output` doesn't have the shape of these inputs' output, or the engine can't compute them.
    fn backward(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> Result<AttentionGradients<T>>;

    /// Returns what [`Engine::forward`] does, where keys and values lie in the pages of a cache. Unless an engine knows better, they
    /// are copied together first.
    ///
    /// # Errors
    /// As [`Engine::forward`].
    fn forward_paged(&self, inputs: &PagedInputs<T>) -> Result<FlashOutput<T>> {
        let (keys, values) = (inputs.keys.gathered(), inputs.values.gathered());
        self.forward(&inputs.with_keys(&keys, &values))
    }

    /// Returns the product of two factors, with `bias` added to each row if it is given; by nalgebra, unless an engine is faster.
    ///
    /// Shapes: `a` (n, m), `b` (m, l), `bias` of l entries → (n, l).
    fn product(&self, a: Factor<T>, b: Factor<T>, bias: Option<&[T]>) -> DMatrix<T> {
        product_by_nalgebra(a, b, bias)
    }
}

/// A factor of a product: a matrix, or its transpose.
///
/// ```
/// use attention::engine::{ByWeights, Engine, Factor};
/// use nalgebra::dmatrix;
///
/// let x = dmatrix![1.0, 2.0];
/// let product = ByWeights.product(Factor::of(&x), Factor::transposed(&x), None);
/// assert_eq!(product, dmatrix![5.0]);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Factor<'a, T: Float> {
    /// The matrix as it lies in memory.
    pub matrix: DMatrixView<'a, T>,
    /// Whether its transpose is meant.
    pub is_transposed: bool,
}

impl<'a, T: Float> Factor<'a, T> {
    /// Returns a matrix as a factor.
    pub fn of(matrix: impl Into<DMatrixView<'a, T>>) -> Self {
        Factor { matrix: matrix.into(), is_transposed: false }
    }

    /// Returns the transpose of a matrix as a factor.
    pub fn transposed(matrix: impl Into<DMatrixView<'a, T>>) -> Self {
        Factor { matrix: matrix.into(), is_transposed: true }
    }

    /// Returns rows and columns of the factor, after it was transposed.
    pub fn shape(&self) -> (usize, usize) {
        let (rows, columns) = self.matrix.shape();
        if self.is_transposed { (columns, rows) } else { (rows, columns) }
    }
}

/// The product by nalgebra's `*`.
pub(crate) fn product_by_nalgebra<T: Float>(
    a: Factor<T>,
    b: Factor<T>,
    bias: Option<&[T]>,
) -> DMatrix<T> {
    let mut product = match (a.is_transposed, b.is_transposed) {
        // nalgebra multiplies a row by a matrix one entry at a time: dot products down the columns are nine times as fast.
        (false, false) if a.matrix.nrows() == 1 => {
            b.matrix.tr_mul(&a.matrix.transpose()).transpose()
        }
        (false, false) => a.matrix * b.matrix,
        (false, true) => a.matrix * b.matrix.transpose(),
        (true, false) => product_of_columns(a.matrix, b.matrix),
        (true, true) => (b.matrix * a.matrix).transpose(),
    };
    if let Some(bias) = bias {
        let rows = product.nrows();
        // By slices, since nalgebra's own addition takes one entry at a time.
        for (column, &bias) in product.as_mut_slice().chunks_exact_mut(rows).zip(bias) {
            column.iter_mut().for_each(|sum| *sum += bias);
        }
    }
    product
}

/// Returns `aᵀ · b`. Its sums over all rows are sums of halves, as those of [`sum`](crate::sums::sum): a running sum in `f32` over
/// thousands of rows would lose digits. And the wider of the two, often a matrix of weights, isn't copied.
fn product_of_columns<T: Float>(a: DMatrixView<T>, b: DMatrixView<T>) -> DMatrix<T> {
    const ROWS: usize = 128;
    let n = a.nrows();
    if n > ROWS {
        let half = (n / 2).next_multiple_of(ROWS);
        let of =
            |first, rows| product_of_columns(a.rows(first, rows), b.rows(first, rows));
        return of(0, half) + of(half, n - half);
    }
    if a.ncols() > b.ncols() {
        (b.transpose() * a).transpose()
    } else {
        a.transpose() * b
    }
}

/// The equations as they stand, with a matrix of weights for each head, which is kept for the backward pass: n_q · n_k numbers a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByWeights;

impl<T: Float> Engine<T> for ByWeights {
    fn forward(&self, inputs: &Inputs<T>) -> Result<FlashOutput<T>> {
        let shape = inputs.lengths(); // of the scores, (n_q, n_k)
        let heads = map(inputs.n_heads(), |h| {
            let head = inputs.head(h); // its columns; those of keys and values may be shared
            let factors = head.dropout.map(|dropout| dropout.matrix(shape));
            attend(&head, factors.as_ref())
        });
        let mut forward = FlashOutput::zeros(inputs);
        let d_v = inputs.widths().1;
        for (h, attended) in heads.into_iter().enumerate() {
            let Attended { output, weights, log_sum_exp } = attended?;
            forward.output.columns_mut(h * d_v, d_v).copy_from(&output); // side by side
            forward.log_sum_exp.set_column(h, &log_sum_exp);
            forward.weights.push(weights);
        }
        Ok(forward)
    }

    fn backward(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> Result<AttentionGradients<T>> {
        inputs.check_output(forward)?;
        inputs.check_grad_output(grad_output)?;
        let n_heads = inputs.n_heads();
        check_count("forward.weights", "entry", forward.weights.len(), n_heads, || {
            format!("there are n_heads = {n_heads}")
        })?;
        let (d_k, d_v) = inputs.widths();
        let heads = map(n_heads, |h| {
            let head = inputs.head(h);
            let factors = head.dropout.map(|dropout| dropout.matrix(inputs.lengths()));
            let grad_output = grad_output.columns(h * d_v, d_v);
            attend_backward(&head, &forward.weights[h], factors.as_ref(), grad_output)
        });
        let mut gradients = inputs.zero_gradients();
        for (h, of_head) in heads.into_iter().enumerate() {
            let (of_head, g) = (of_head?, inputs.kv_head(h));
            gradients.q.columns_mut(h * d_k, d_k).copy_from(&of_head.q);
            // Heads that share keys and values share their gradients.
            let mut sum = gradients.k.columns_mut(g * d_k, d_k);
            sum += of_head.k;
            let mut sum = gradients.v.columns_mut(g * d_v, d_v);
            sum += of_head.v;
            for (sum, table) in gradients.tables.iter_mut().zip(of_head.tables) {
                *sum += table;
            }
        }
        Ok(gradients)
    }
}

/// Tile by tile, as the book explains it: in memory that grows with n and not with n². See
/// [`tiled_attention`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tiled(pub Tiles);

impl<T: Float> Engine<T> for Tiled {
    fn forward(&self, inputs: &Inputs<T>) -> Result<FlashOutput<T>> {
        tiled_attention(inputs, self.0)
    }

    fn backward(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> Result<AttentionGradients<T>> {
        tiled_attention_backward(inputs, forward, grad_output, self.0)
    }
}

/// An engine that is chosen while the program runs.
impl<T: Float> Engine<T> for Arc<dyn Engine<T>> {
    fn forward(&self, inputs: &Inputs<T>) -> Result<FlashOutput<T>> {
        (**self).forward(inputs)
    }

    fn backward(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> Result<AttentionGradients<T>> {
        (**self).backward(inputs, forward, grad_output)
    }

    fn forward_paged(&self, inputs: &PagedInputs<T>) -> Result<FlashOutput<T>> {
        (**self).forward_paged(inputs)
    }

    fn product(&self, a: Factor<T>, b: Factor<T>, bias: Option<&[T]>) -> DMatrix<T> {
        (**self).product(a, b, bias)
    }
}

/// An engine that options and caches share. Two are equal if they print the same.
#[derive(Debug, Clone)]
pub(crate) struct SharedEngine<T: Float>(Arc<dyn Engine<T>>);

impl<T: Float> SharedEngine<T> {
    pub fn new(engine: impl Engine<T> + 'static) -> Self {
        SharedEngine(Arc::new(engine))
    }
}

impl<T: Float> std::ops::Deref for SharedEngine<T> {
    type Target = dyn Engine<T>;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl<T: Float> PartialEq for SharedEngine<T> {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}
