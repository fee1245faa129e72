//! The sizes of attention on a GPU.

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
        let ((n_q, n_k), (d_k, _)) = (inputs.lengths(), inputs.widths());
        let Some(causal) = inputs.mask.is_causal() else {
            let given = "another than none and causal";
            let expected = "the kernels on the GPU know these two";
            return Err(unsupported("mask", given, expected).into());
        };
        let width = inputs.k.ncols();
        let because = || format!("the kernels on the GPU want the {width} of `k`");
        check_count("v", "column", inputs.v.ncols(), width, because)?;
        let (heads, kv_heads) = (inputs.n_heads(), inputs.n_kv_heads());
        Ok(Shape { heads, kv_heads, n_q, n_k, d: d_k, causal })
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
                return Err(
                    crate::Error::TooMany { argument, given, most, because }.into()
                );
            }
        }
        let because = || format!("it must divide heads = {}", self.heads);
        check_heads("kv_heads", self.kv_heads, self.heads, because)?;
        if self.group() > 1 {
            program.check_takes("kv_heads", "fewer than `heads`")?;
        }
        program.check_width(self.d)
    }
}
