//! Attention tile by tile, without its matrix of weights.
//!
//! The same attention as [`attention`](crate::attention()), exact, in memory that grows with n and not with n²:
//!
//! - [`OnlineSoftmax`]: the softmax of rows that are not seen all at once.
//! - [`tiled_attention`] and [`tiled_attention_backward`]: the algorithm as the book explains it, and [`flash()`] for one head.
//!
//! # What is not a number
//! What the mask hides has no influence, whatever it is. A query that is NaN, or sees a key that is, gets NaN for its output
//! and its log-sum-exp, and gives NaN to its own gradient and to those of all keys and values that it sees. A NaN among the
//! values that it sees does so to its output, its gradient and those of the keys. Other queries keep theirs, and so do keys
//! that no such query sees. All programs here have their NaN in the same places as [`attention`](crate::attention()).
//!
//! Of infinities only the first sentence holds for all. Where an infinity is seen, or a score overflows, `∞ − ∞` and `0 · ∞`
//! are NaN, and whether they are met depends on the order of the sums: the query that sees it, and the keys and values that
//! this query sees, may get NaN from one program and a number from another.
//!
//! # Source
//! T. Dao et al., *FlashAttention* (2022), and T. Dao, *FlashAttention-2* (2023), for tiles and the backward pass;
//! M. Milakov, N. Gimelshein, *Online normalizer calculation for softmax* (2018), for the softmax.

mod online;
mod tiled;

pub use online::OnlineSoftmax;
pub use tiled::{tiled_attention, tiled_attention_backward};

use crate::Float;
use crate::dot_product::{
    AttentionGradients, check_queries_and_keys, check_values, scale,
};
use crate::dropout::{Dropout, HeadDropout};
use crate::error::{
    Result, check_count, check_heads, check_not_empty, check_positive, check_shape,
};
use crate::mask::{Mask, SizedMask};
use crate::softmax::log_sum_exp_and_low;
use nalgebra::{DMatrix, DMatrixView};
use std::ops::Range;

/// Returns the output of attention, as [`attention`](crate::attention()) does, without ever holding its matrix of weights.
///
/// It is computed by [`Tiled`](crate::engine::Tiled), for one head; several heads, a backward pass, and other engines, begin with
/// [`Inputs`].
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → (n_q, d_v). Views will do.
///
/// # Errors
/// An argument is empty, `k` is not as wide as `q`, `v` doesn't have as many rows as `k`, or the mask was made for another shape.
///
/// ```
/// use attention::{Mask, attention, flash::flash};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(300, 16, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let output = flash(&x, &x, &x, Mask::causal())?;
/// assert!((&output - attention(&x, &x, &x, Mask::causal())?.0).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn flash<'a, T: Float>(
    q: impl Into<DMatrixView<'a, T>>,
    k: impl Into<DMatrixView<'a, T>>,
    v: impl Into<DMatrixView<'a, T>>,
    mask: impl Into<Mask>,
) -> Result<DMatrix<T>> {
    Ok(tiled_attention(&Inputs::new(q, k, v, mask)?, Tiles::default())?.output)
}

/// Queries, keys and values of one or more heads, and the mask that says which query may see which key.
///
/// The heads lie side by side as columns, as the projections of a multi-head layer leave them. Nothing is copied.
///
/// ```
/// use attention::{Mask, flash::Inputs};
/// use nalgebra::DMatrix;
///
/// let [q, k] = [(2, 8), (5, 8)].map(|(n, width)| DMatrix::<f32>::zeros(n, width));
/// let v = DMatrix::zeros(5, 6);
/// let inputs = Inputs::new(&q, &k, &v, Mask::causal())?.with_heads(2)?; // d_k = 4, d_v = 3
/// assert_eq!(inputs.n_heads(), 2);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Inputs<'a, T: Float> {
    pub(crate) q: DMatrixView<'a, T>,
    pub(crate) k: DMatrixView<'a, T>,
    pub(crate) v: DMatrixView<'a, T>,
    pub(crate) mask: SizedMask,
    pub(crate) n_heads: usize,
    pub(crate) n_kv_heads: usize, // each is shared by n_heads / n_kv_heads heads, one after the other
    pub(crate) dropout: Option<Dropout>,
}

impl<'a, T: Float> Inputs<'a, T> {
    /// Returns the inputs of one head; or of as many as the mask's rule for scores is for.
    ///
    /// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v).
    ///
    /// # Errors
    /// An argument is empty, `k` is not as wide as `q`, `v` doesn't have as many rows as `k`, or the mask was made for another
    /// shape.
    ///
    /// ```
    /// use attention::{Mask, flash::Inputs};
    /// use nalgebra::DMatrix;
    ///
    /// let (q, k) = (DMatrix::<f64>::zeros(2, 4), DMatrix::zeros(5, 3));
    /// let error = Inputs::new(&q, &k, &k, Mask::none()).unwrap_err();
    /// assert_eq!(error.to_string(), "`k` has 3 columns but `q` has d_k = 4");
    /// ```
    pub fn new(
        q: impl Into<DMatrixView<'a, T>>,
        k: impl Into<DMatrixView<'a, T>>,
        v: impl Into<DMatrixView<'a, T>>,
        mask: impl Into<Mask>,
    ) -> Result<Self> {
        let (q, k, v) = (q.into(), k.into(), v.into());
        check_queries_and_keys(q, k)?;
        let mask: Mask = mask.into();
        let n_heads = mask.n_heads().unwrap_or(1);
        Inputs::grouped(q, k, v, mask, n_heads, n_heads)
    }

    /// Returns the inputs of heads of queries that share heads of keys and values: grouped-query attention, and with one of the latter
    /// multi-query attention.
    ///
    /// The heads of a group follow one another: query head `h` asks the keys of head `h · n_kv_heads / n_heads`, rounded down.
    ///
    /// Shapes: `q` (n_q, n_heads · d_k), `k` (n_k, n_kv_heads · d_k), `v` (n_k, n_kv_heads · d_v).
    ///
    /// # Errors
    /// As [`Inputs::new`]; a number of heads is 0 or doesn't divide the columns that it shares out; or `n_kv_heads` doesn't divide
    /// `n_heads`.
    ///
    /// # Source
    /// N. Shazeer, *Fast Transformer Decoding: One Write-Head is All You Need* (2019); J. Ainslie et al., *GQA* (2023).
    ///
    /// ```
    /// use attention::{Mask, engine::{ByWeights, Engine}, flash::Inputs};
    /// use nalgebra::{DMatrix, dmatrix};
    ///
    /// let (q, k) = (DMatrix::<f64>::zeros(1, 4), DMatrix::zeros(2, 2));
    /// let v = dmatrix![10.0, 20.0; 10.0, 20.0]; // two heads of one column each
    /// let inputs = Inputs::grouped(&q, &k, &v, Mask::none(), 4, 2)?;
    /// assert_eq!(ByWeights.forward(&inputs)?.output, dmatrix![10.0, 10.0, 20.0, 20.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn grouped(
        q: impl Into<DMatrixView<'a, T>>,
        k: impl Into<DMatrixView<'a, T>>,
        v: impl Into<DMatrixView<'a, T>>,
        mask: impl Into<Mask>,
        n_heads: usize,
        n_kv_heads: usize,
    ) -> Result<Self> {
        let (q, k, v) = (q.into(), k.into(), v.into());
        check_not_empty("q", q)?;
        check_groups(n_heads, n_kv_heads)?;
        check_columns("n_heads", n_heads, [("q", q)])?;
        let width = q.ncols() / n_heads * n_kv_heads;
        check_not_empty("k", k)?;
        check_count("k", "column", k.ncols(), width, || match n_kv_heads == n_heads {
            true => format!("`q` has d_k = {}", q.ncols()),
            false => format!("{n_kv_heads} heads as wide as those of `q` have {width}"),
        })?;
        check_values(k, v)?;
        check_columns(kv_name(n_heads, n_kv_heads), n_kv_heads, [("v", v)])?;
        let mask = mask.into().sized_for_heads(q.nrows(), k.nrows())?;
        mask.check_heads(n_heads)?;
        Ok(Inputs { q, k, v, mask, n_heads, n_kv_heads, dropout: None })
    }

    /// Returns the same columns, shared out among `n_heads` heads, each with keys of its own: head `h` has `h · d .. (h + 1) · d`.
    ///
    /// # Errors
    /// `n_heads` is 0, or does not divide the width of queries and keys, or that of the values; or the mask's rule for scores is for another
    /// number of heads.
    ///
    /// ```
    /// # use attention::{Mask, flash::Inputs};
    /// # let x = nalgebra::DMatrix::<f64>::zeros(2, 4);
    /// let error = Inputs::new(&x, &x, &x, Mask::none())?.with_heads(3).unwrap_err();
    /// assert_eq!(error.to_string(), "`n_heads` is 3 but it must divide the 4 columns of `q`");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_heads(self, n_heads: usize) -> Result<Self> {
        self.mask.check_heads(n_heads)?;
        check_columns("n_heads", n_heads, [("q", self.q), ("v", self.v)])?;
        let because = || "with_heads is for heads with keys of their own".to_owned();
        check_count("k", "column", self.k.ncols(), self.q.ncols(), because)?;
        Ok(Inputs { n_heads, n_kv_heads: n_heads, ..self })
    }

    /// The same, with dropout on the weights of every head.
    pub(crate) fn with_dropout(self, dropout: Option<Dropout>) -> Self {
        Inputs { dropout, ..self }
    }

    /// Returns the number of heads.
    ///
    /// ```
    /// # use attention::{Mask, flash::Inputs};
    /// # let x = nalgebra::DMatrix::<f64>::zeros(2, 4);
    /// assert_eq!(Inputs::new(&x, &x, &x, Mask::none())?.n_heads(), 1);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    /// Returns the number of heads of keys and values.
    pub fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// The heads that share the keys and values of head `g`.
    pub fn group(&self, g: usize) -> Range<usize> {
        let heads = self.n_heads / self.n_kv_heads;
        g * heads..(g + 1) * heads
    }

    /// The head of keys and values that head `h` asks.
    pub fn kv_head(&self, h: usize) -> usize {
        h / (self.n_heads / self.n_kv_heads)
    }

    /// (n_q, n_heads · d_v)
    pub fn output_shape(&self) -> (usize, usize) {
        (self.q.nrows(), self.n_heads * self.widths().1)
    }

    /// Gradients of zero.
    pub fn zero_gradients(&self) -> AttentionGradients<T> {
        let zeros = |x: DMatrixView<T>| DMatrix::zeros(x.nrows(), x.ncols());
        let tables = self.mask.scores().zero_tables();
        AttentionGradients {
            q: zeros(self.q),
            k: zeros(self.k),
            v: zeros(self.v),
            tables,
        }
    }

    /// Returns one head after another.
    ///
    /// ```
    /// # use attention::{Mask, flash::Inputs};
    /// # let x = nalgebra::DMatrix::<f64>::zeros(2, 4);
    /// let inputs = Inputs::new(&x, &x, &x, Mask::none())?.with_heads(2)?;
    /// let widths: Vec<_> = inputs.heads().map(|head| head.q.ncols()).collect();
    /// assert_eq!(widths, [2, 2]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn heads(&self) -> impl Iterator<Item = Head<'_, T>> {
        (0..self.n_heads).map(|h| self.head(h))
    }

    /// (n_q, n_k)
    pub fn lengths(&self) -> (usize, usize) {
        self.mask.shape()
    }

    /// (d_k, d_v) of one head
    pub fn widths(&self) -> (usize, usize) {
        (self.q.ncols() / self.n_heads, self.v.ncols() / self.n_kv_heads)
    }

    /// The columns of head `h`.
    pub fn head(&self, h: usize) -> Head<'_, T> {
        let ((d_k, d_v), g) = (self.widths(), self.kv_head(h));
        Head {
            q: self.q.columns(h * d_k, d_k),
            k: self.k.columns(g * d_k, d_k), // which the heads of a group share
            v: self.v.columns(g * d_v, d_v),
            mask: self.mask.of_head(h),
            scale: scale(d_k),
            dropout: self.dropout.map(|dropout| dropout.of_head(h)),
        }
    }

    /// Checks that `forward` has the shapes of what these inputs give.
    ///
    /// # Errors
    /// It hasn't.
    pub fn check_output(&self, forward: &FlashOutput<T>) -> Result<()> {
        let name = "(n_q, n_heads · d_v)";
        check_shape("forward.output", &forward.output, self.output_shape(), name)?;
        let (shape, name) = ((self.q.nrows(), self.n_heads), "(n_q, n_heads)");
        check_shape("forward.log_sum_exp", &forward.log_sum_exp, shape, name)?;
        check_shape("forward.log_sum_exp_low", &forward.log_sum_exp_low, shape, name)
    }

    /// Checks that `grad_output` has the shape of the output.
    ///
    /// # Errors
    /// It hasn't, or is empty.
    pub fn check_grad_output(&self, grad_output: DMatrixView<T>) -> Result<()> {
        check_not_empty("grad_output", grad_output)?;
        check_shape("grad_output", grad_output, self.output_shape(), "the output")
    }
}

/// Checks that heads divide the columns that they share out.
fn check_columns<T: Float, const N: usize>(
    argument: &'static str,
    heads: usize,
    matrices: [(&str, DMatrixView<T>); N],
) -> Result<()> {
    matrices.into_iter().try_for_each(|(name, matrix)| {
        let width = matrix.ncols();
        check_heads(argument, heads, width, || {
            format!("it must divide the {width} columns of `{name}`")
        })
    })
}

/// Checks that the heads of keys and values divide those of queries.
pub(crate) fn check_groups(n_heads: usize, n_kv_heads: usize) -> Result<()> {
    check_positive("n_heads", n_heads)?;
    let because = || format!("it must divide n_heads = {n_heads}");
    check_heads("n_kv_heads", n_kv_heads, n_heads, because)
}

/// What the heads of keys and values are called in errors: where there are as many as of queries, they were given no number of their own.
pub(crate) fn kv_name(n_heads: usize, n_kv_heads: usize) -> &'static str {
    if n_kv_heads == n_heads { "n_heads" } else { "n_kv_heads" }
}

/// The queries, keys and values of one head: see [`Inputs::heads`].
///
/// ```
/// use attention::{Mask, flash::Inputs};
///
/// let x = nalgebra::DMatrix::<f64>::zeros(2, 8);
/// let inputs = Inputs::new(&x, &x, &x, Mask::causal())?.with_heads(2)?;
/// let head = inputs.heads().next().unwrap();
/// assert_eq!((head.k.shape(), head.scale), ((2, 4), 0.5));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Head<'a, T: Float> {
    /// The queries (n_q, d_k).
    pub q: DMatrixView<'a, T>,
    /// The keys (n_k, d_k).
    pub k: DMatrixView<'a, T>,
    /// The values (n_k, d_v).
    pub v: DMatrixView<'a, T>,
    /// Which query may see which key.
    pub mask: SizedMask,
    /// The factor 1/√d_k of the scores.
    pub scale: T,
    /// Which weights are dropped, if there is dropout.
    pub dropout: Option<HeadDropout>,
}

/// The output of the forward pass, and all that the backward pass needs of it.
///
/// ```
/// use attention::{Mask, attention, flash::{FlashOutput, Inputs, Tiles, tiled_attention}};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(6, 2, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let tiles = Tiles { queries: 2, keys: 4 };
/// let forward = tiled_attention(&Inputs::new(&x, &x, &x, Mask::causal())?, tiles)?;
///
/// let (expected, cache) = attention(&x, &x, &x, Mask::causal())?;
/// assert!((forward.output - expected).amax() < 1e-15);
/// assert!((forward.log_sum_exp - cache.log_sum_exp).amax() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct FlashOutput<T: Float> {
    /// The outputs of the heads, side by side (n_q, n_heads · d_v).
    pub output: DMatrix<T>,
    /// The log-sum-exp of each query's scores, a column for each head (n_q, n_heads); −∞ if it may see no key.
    pub log_sum_exp: DMatrix<T>,
    /// The rounding error of each log-sum-exp (n_q, n_heads): the sum of both has twice the precision. Without it, scores
    /// of 10⁷ in `f32` would give back weights that are off by a half. Zeros, where it is not known.
    pub log_sum_exp_low: DMatrix<T>,
    /// The weights of each head (n_q, n_k), before dropout, if the engine keeps them; else none.
    pub weights: Vec<DMatrix<T>>,
}

impl<T: Float> FlashOutput<T> {
    /// Returns zeros in the shapes of what these inputs give, to be written over.
    ///
    /// ```
    /// # use attention::{Mask, flash::{FlashOutput, Inputs}};
    /// # let x = nalgebra::DMatrix::<f64>::zeros(2, 4);
    /// let zeros = FlashOutput::zeros(&Inputs::new(&x, &x, &x, Mask::none())?);
    /// assert_eq!((zeros.output.shape(), zeros.log_sum_exp.shape()), ((2, 4), (2, 1)));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn zeros(inputs: &Inputs<T>) -> Self {
        FlashOutput::of_shape(inputs.q.nrows(), inputs.n_heads, inputs.widths().1)
    }

    /// Returns zeros, to be written over, for so many queries and heads whose values are `d_v` wide.
    pub fn of_shape(n_q: usize, n_heads: usize, d_v: usize) -> Self {
        FlashOutput {
            output: DMatrix::zeros(n_q, n_heads * d_v),
            log_sum_exp: DMatrix::zeros(n_q, n_heads),
            log_sum_exp_low: DMatrix::zeros(n_q, n_heads),
            weights: vec![],
        }
    }

    /// Writes the log-sum-exp of a query and head from its largest score, which a factor is still to be multiplied with, and its sum of
    /// exponentials.
    pub fn write_log_sum_exp(&mut self, at: (usize, usize), scale: T, max: T, sum: T) {
        let (lse, low) = log_sum_exp_and_low(scale, max, sum);
        (self.log_sum_exp[at], self.log_sum_exp_low[at]) = (lse, low);
    }
}

/// The numbers of queries and keys that meet in one tile. The last tile of a row or column may be smaller.
///
/// ```
/// use attention::{Mask, flash::{Inputs, Tiles, tiled_attention}};
///
/// # let x = nalgebra::DMatrix::<f64>::zeros(2, 4);
/// let tiles = Tiles { queries: 64, keys: 0 };
/// let error = tiled_attention(&Inputs::new(&x, &x, &x, Mask::none())?, tiles).unwrap_err();
/// assert_eq!(error.to_string(), "`tiles.keys` is 0 but it must be at least 1");
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tiles {
    /// Queries in a tile: its rows.
    pub queries: usize,
    /// Keys in a tile: its columns.
    pub keys: usize,
}

impl Default for Tiles {
    /// Returns 64 × 64: in `f64`, 32 KiB of scores.
    fn default() -> Self {
        Tiles { queries: 64, keys: 64 }
    }
}

impl Tiles {
    fn check(self) -> Result<()> {
        check_positive("tiles.queries", self.queries)?;
        check_positive("tiles.keys", self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    // What a program skips is seen in none of its results, so it has to be counted where it happens.

    /// The program is at a step that it takes once a tile forward, and twice a tile backward.
    pub fn count_step() {
        STEPS.set(STEPS.get() + 1);
    }

    /// The numbers of four documents of equal length.
    fn quarters(n: usize) -> Vec<usize> {
        (0..n).map(|token| 4 * token / n).collect()
    }

    /// Hidden tiles are not computed: the readable version takes one step a visible tile forward and two backward, and none
    /// for the others.
    #[test]
    fn hidden_tiles_are_skipped() -> Result<()> {
        const TILE: usize = 4;
        let n = 8 * TILE;
        let x = DMatrix::from_fn(n, 3, |i, j| ((7 * i + 3 * j) as f64).sin());
        let tiles = Tiles { queries: TILE, keys: TILE };
        let first_half: Vec<bool> = (0..n).map(|j| j < n / 2).collect();
        for (mask, visible) in [
            (Mask::none(), 64),
            (Mask::causal(), 8 * 9 / 2),
            (Mask::window(TILE + 1)?, 8 + 7),
            (Mask::padding(&first_half)?, 32),
            (Mask::causal().and(Mask::padding(&first_half)?), 4 * 5 / 2 + 4 * 4),
            (Mask::padding(&vec![false; n])?, 0),
            (Mask::documents(&quarters(n))?, 4 * 4),
            (Mask::window_with_sinks(1, 1)?, 8 + 7),
        ] {
            let inputs = Inputs::new(&x, &x, &x, &mask)?;
            STEPS.set(0);
            let forward = tiled_attention(&inputs, tiles)?;
            assert_eq!(STEPS.replace(0), visible, "{mask:?}, tiled");
            tiled_attention_backward(&inputs, &forward, &x, tiles)?;
            assert_eq!(STEPS.get(), 2 * visible, "{mask:?}, tiled, backward");
        }
        Ok(())
    }

    /// With another query, the last key that is seen moves: no tile is walked that ends beyond it.
    #[test]
    fn the_walk_ends_where_the_mask_does() -> Result<()> {
        let mask = Mask::causal();
        assert_eq!(mask.sized(8, 8)?.queries_that_see(2..4), 2..8);
        let sized = mask.sized(5, 9)?;
        assert_eq!(sized.keys_seen_by(0..1), 0..5);
        assert_eq!(sized.keys_seen_by(0..5), 0..9);
        assert_eq!(sized.queries_that_see(5..6), 1..5);
        let window = Mask::window(2)?;
        let sized = window.sized(9, 9)?;
        assert_eq!(sized.keys_seen_by(4..6), 3..6);
        assert_eq!(sized.queries_that_see(4..5), 4..6);
        let both = Mask::window(3)?.and(Mask::causal());
        for (n_q, n_k) in [(6, 6), (3, 7), (7, 3)] {
            for mask in [&mask, &window, &both] {
                let sized = mask.sized(n_q, n_k)?;
                for i in 0..n_q {
                    let seen: Vec<_> = (0..n_k).filter(|&j| sized.allows(i, j)).collect();
                    assert_eq!(sized.keys_seen_by(i..i + 1).collect::<Vec<_>>(), seen);
                }
                for j in 0..n_k {
                    let seeing: Vec<_> =
                        (0..n_q).filter(|&i| sized.allows(i, j)).collect();
                    assert_eq!(
                        sized.queries_that_see(j..j + 1).collect::<Vec<_>>(),
                        seeing
                    );
                }
            }
        }
        Ok(())
    }
}
