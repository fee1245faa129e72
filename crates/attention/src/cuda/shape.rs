//! The sizes of attention on a GPU, and of the tensors that it takes.

use super::error::Result;
use super::program::Program;
use crate::error::{check_count, check_heads, check_positive, unsupported};
use crate::flash::Inputs;

/// The sizes of attention on a GPU. Keys and values have the same width, `d`.
///
/// ```
/// use attention::cuda::Shape;
///
/// let shape = Shape { heads: 8, kv_heads: 8, n_q: 1000, n_k: 1000, d: 64, causal: true };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Heads of queries; those of a whole batch count as so many heads.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` neighbouring heads of queries.
    pub kv_heads: usize,
    /// Queries of a head.
    pub n_q: usize,
    /// Keys of a head.
    pub n_k: usize,
    /// The width of a query, a key and a value.
    pub d: usize,
    /// `true` if query `i` sees key `j` only when `j ≤ i + n_k − n_q`.
    pub causal: bool,
}

/// The most queries or keys of a head: indices are 32 bits wide, and a tile reaches past the last one.
const MOST_ROWS: usize = 1 << 30;
/// The most heads: the size of a grid in its second dimension.
const MOST_HEADS: usize = 65_535;

impl Shape {
    /// Returns the sizes of these inputs.
    ///
    /// # Errors
    /// The mask is neither none nor causal, or values are not as wide as keys. (A rule for scores is no part of the sizes.)
    ///
    /// ```
    /// use attention::{Mask, cuda::Shape, flash::Inputs};
    ///
    /// let x = nalgebra::DMatrix::<f32>::zeros(5, 4);
    /// let shape = |mask: Mask| Shape::of(&Inputs::new(&x, &x, &x, mask)?.with_heads(2)?);
    /// assert_eq!(shape(Mask::causal())?, Shape { heads: 2, kv_heads: 2, n_q: 5, n_k: 5, d: 2, causal: true });
    ///
    /// let error = shape(Mask::window(3)?).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`mask` is another than none and causal but the kernels on the GPU know these two"
    /// );
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn of(inputs: &Inputs<f32>) -> Result<Self> {
        let ((n_q, n_k), (d, _)) = (inputs.lengths(), inputs.widths());
        let Some(causal) = inputs.mask.is_causal() else {
            let given = "another than none and causal";
            let expected = "the kernels on the GPU know these two";
            return Err(unsupported("mask", given, expected).into());
        };
        let width = inputs.k.ncols();
        let because = || format!("the kernels on the GPU want the {width} of `k`");
        check_count("v", "column", inputs.v.ncols(), width, because)?;
        let (heads, kv_heads) = (inputs.n_heads(), inputs.n_kv_heads());
        Ok(Shape { heads, kv_heads, n_q, n_k, d, causal })
    }

    /// Heads of queries that share a head of keys and values; 0 where these are none.
    pub(super) fn group(self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// That the program can have these sizes. Then none is 0, a grid holds them, and their products without scores fit a
    /// `usize`.
    pub(super) fn check(self, program: Program) -> Result<()> {
        for (argument, given, most) in [
            ("heads", self.heads, MOST_HEADS),
            ("kv_heads", self.kv_heads, MOST_HEADS),
            ("n_q", self.n_q, MOST_ROWS),
            ("n_k", self.n_k, MOST_ROWS),
        ] {
            check_positive(argument, given)?;
            if given > most {
                let because = format!("a grid holds {most} at most");
                let most = Some(most);
                let error = crate::Error::TooMany { argument, given, most, because };
                return Err(error.into());
            }
        }
        let because = || format!("it must divide heads = {}", self.heads);
        check_heads("kv_heads", self.kv_heads, self.heads, because)?;
        program.check_width(self.d)
    }
}

/// A tensor that a function on the device takes: its name there, and its size.
///
/// ```
/// use attention::cuda::{Size, Tensor};
///
/// assert_eq!(Tensor::LSE, Tensor { name: "lse", size: Size::Rows });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    /// The name, which an error has, too.
    pub name: &'static str,
    /// The size.
    pub size: Size,
}

/// The size of a tensor, row-major.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// (heads, n_q, d)
    Queries,
    /// (kv_heads, n_k, d)
    Keys,
    /// (heads, n_q): a number of each query, in `f32`.
    Rows,
    /// (heads, n_q, n_k), in `f32`.
    Scores,
}

impl Tensor {
    /// Queries.
    pub const Q: Self = Tensor { name: "q", size: Size::Queries };
    /// Keys.
    pub const K: Self = Tensor { name: "k", size: Size::Keys };
    /// Values.
    pub const V: Self = Tensor { name: "v", size: Size::Keys };
    /// The output.
    pub const OUTPUT: Self = Tensor { name: "output", size: Size::Queries };
    /// The log-sum-exp of each query's scores.
    pub const LSE: Self = Tensor { name: "lse", size: Size::Rows };
    /// Scores, then weights.
    pub const SCORES: Self = Tensor { name: "scores", size: Size::Scores };
    /// The gradient of the output.
    pub const D_OUTPUT: Self = Tensor { name: "d_output", size: Size::Queries };
    /// The gradient of the queries.
    pub const D_Q: Self = Tensor { name: "d_q", size: Size::Queries };
    /// The gradient of the keys.
    pub const D_K: Self = Tensor { name: "d_k", size: Size::Keys };
    /// The gradient of the values.
    pub const D_V: Self = Tensor { name: "d_v", size: Size::Keys };

    /// Heads, rows, columns.
    pub(super) fn sizes(self, shape: Shape) -> [usize; 3] {
        let Shape { heads, kv_heads, n_q, n_k, d, .. } = shape;
        match self.size {
            Size::Queries => [heads, n_q, d],
            Size::Keys => [kv_heads, n_k, d],
            Size::Rows => [heads, n_q, 1],
            Size::Scores => [heads, n_q, n_k],
        }
    }

    /// Returns the number of entries. Scores may be more than can be counted: no tensor has as many as that.
    pub fn entries(self, shape: Shape) -> usize {
        self.sizes(shape).into_iter().fold(1, usize::saturating_mul)
    }

    /// That a slice for this tensor is as long as it.
    pub(super) fn check_entries(self, given: usize, shape: Shape) -> Result<()> {
        let formula = match self.size {
            Size::Queries => "heads · n_q · d",
            Size::Keys => "kv_heads · n_k · d",
            Size::Rows => "heads · n_q",
            Size::Scores => "heads · n_q · n_k",
        };
        let expected = self.entries(shape);
        let because = || format!("{formula} = {expected}");
        Ok(check_count(self.name, "entry", given, expected, because)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::NAIVE;

    const SHAPE: Shape =
        Shape { heads: 4, kv_heads: 2, n_q: 3, n_k: 5, d: 32, causal: false };

    #[test]
    fn a_slice_of_another_length_is_refused() {
        for (tensor, entries, words) in [
            (Tensor::Q, 384, "`q` has 385 entries but heads · n_q · d = 384"),
            (Tensor::D_V, 320, "`d_v` has 321 entries but kv_heads · n_k · d = 320"),
            (Tensor::LSE, 12, "`lse` has 13 entries but heads · n_q = 12"),
            (Tensor::SCORES, 60, "`scores` has 61 entries but heads · n_q · n_k = 60"),
        ] {
            tensor.check_entries(entries, SHAPE).unwrap();
            let error = tensor.check_entries(entries + 1, SHAPE).unwrap_err();
            assert_eq!(error.to_string(), words);
        }
    }

    /// 2⁷⁵ scores are more than a `usize` counts, and 2⁷⁵ mod 2⁶⁴ is 0.
    #[test]
    fn too_many_scores_are_no_small_number() {
        let (heads, n) = (1 << 15, 1 << 30);
        let shape = Shape { heads, kv_heads: heads, n_q: n, n_k: n, ..SHAPE };
        shape.check(NAIVE).unwrap();
        assert_eq!(Tensor::SCORES.entries(shape), usize::MAX);
        Tensor::SCORES.check_entries(0, shape).unwrap_err();
    }

    #[test]
    fn sizes_that_no_grid_has_are_refused() {
        for (shape, words) in [
            (Shape { n_q: 0, ..SHAPE }, "`n_q` is 0 but it must be at least 1"),
            (
                Shape { heads: 65_536, ..SHAPE },
                "`heads` is 65536 but a grid holds 65535 at most",
            ),
            (
                Shape { kv_heads: 3, ..SHAPE },
                "`kv_heads` is 3 but it must divide heads = 4",
            ),
        ] {
            assert_eq!(shape.check(NAIVE).unwrap_err().to_string(), words);
        }
    }
}
