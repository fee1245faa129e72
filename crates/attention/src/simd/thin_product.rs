//! Products of a few vectors with a large matrix, each number of which is used so few times that a packed copy would cost more than it
//! gains: what one token, or a few of them, ask of a layer's weights or of cached keys and values.
//!
//! The large matrix is read where it lies, once for every three vectors, down its columns. So there are two ways to multiply: where columns
//! lie along the sum, a result is the [inner product](dots) of two columns; where they lie along the results, columns
//! [are added up](combinations).

use super::exponential::Float;
use super::instructions::{InstructionSet, Work, mul_add};
use super::microkernel::pieces;
use crate::blocks::blocks;
use nalgebra::DMatrixView;

/// No vector has more numbers.
pub(crate) const LARGEST_VECTOR: usize = 16;

/// So many vectors meet a column at once; in a browser one, so that there is less code to send.
const AT_ONCE: usize = if cfg!(target_family = "wasm") { 1 } else { 3 };

/// So many columns are read at once: their sums are independent of each other, and a processor can wait for all of them.
const COLUMNS: usize = 4;

/// So many vectors are added one after the other, so that a long sum loses little to rounding.
const BLOCK: usize = 64;

/// Calls a function of M vectors with up to three of `x` and of `y` at once.
macro_rules! in_pieces {
    ($f:ident, $simd:ident, ($x:ident, $x_stride:ident), $w:ident, ($y:ident, $y_stride:ident)) => {
        for piece in pieces($x.len() / $x_stride, AT_ONCE) {
            let x = (&$x[piece.start * $x_stride..], $x_stride);
            let y = (&mut $y[piece.start * $y_stride..], $y_stride);
            match piece.len() {
                1 => $f::<S, T, 1>($simd, x, $w, y),
                2 if AT_ONCE > 2 => $f::<S, T, 2>($simd, x, $w, y),
                _ => $f::<S, T, AT_ONCE>($simd, x, $w, y),
            }
        }
    };
}

/// `y[i][j] = Σ_k x[i][k] · w[(k, j)]`.
///
/// Shapes: `x` some vectors of whole vectors of numbers, each `x_stride` after the last, with zeros beyond the depth; `w` (depth, n),
/// `y` as many vectors, each `y_stride` after the last.
#[inline(always)]
pub(crate) fn dots<S: InstructionSet, T: Float>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    (y, y_stride): (&mut [T], usize),
) {
    in_pieces!(dots_of, simd, (x, x_stride), w, (y, y_stride));
}

#[inline(always)]
fn dots_of<S: InstructionSet, T: Float, const M: usize>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    (y, y_stride): (&mut [T], usize),
) {
    let (depth, n) = w.shape();
    let whole = depth / T::lanes::<S>() * T::lanes::<S>();
    let x: [&[T]; M] = std::array::from_fn(|i| &x[i * x_stride..][..x_stride]);
    let x = x.map(T::vectors::<S>);
    for first in (0..n).step_by(COLUMNS) {
        // Past the end, the last column once more.
        let columns: [_; COLUMNS] =
            std::array::from_fn(|j| w.column((first + j).min(n - 1)));
        let columns = columns.each_ref().map(|column| column.as_slice());
        let vectors =
            columns.map(|column| &T::vectors::<S>(column)[..whole / T::lanes::<S>()]);
        let mut sums = [[T::splat_vector(simd, T::zero()); M]; COLUMNS];
        for block in blocks(vectors[0].len(), BLOCK) {
            let mut block_sums = [[T::splat_vector(simd, T::zero()); M]; COLUMNS];
            for k in block {
                for j in 0..COLUMNS {
                    for i in 0..M {
                        let sum = &mut block_sums[j][i];
                        *sum = mul_add::<S, T>(simd, x[i][k], vectors[j][k], *sum);
                    }
                }
            }
            for j in 0..COLUMNS {
                for i in 0..M {
                    sums[j][i] = T::add_vectors(simd, sums[j][i], block_sums[j][i]);
                }
            }
        }
        for j in 0..COLUMNS.min(n - first) {
            let rest = &columns[j][whole..];
            for i in 0..M {
                if !rest.is_empty() {
                    let rest = T::load_some(simd, rest);
                    let last = x[i][vectors[0].len()];
                    sums[j][i] = mul_add::<S, T>(simd, last, rest, sums[j][i]);
                }
                y[i * y_stride + first + j] = T::sum_of_vector(simd, sums[j][i]);
            }
        }
    }
}

/// `y[i] += Σ_k x[i][k] · w.column(k)`.
///
/// Shapes: `x` some vectors, each `x_stride` after the last; `w` (n, depth), `y` as many vectors of whole vectors of numbers, each
/// `y_stride` after the last.
#[inline(always)]
pub(crate) fn combinations<S: InstructionSet, T: Float>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    (y, y_stride): (&mut [T], usize),
) {
    in_pieces!(add_columns, simd, (x, x_stride), w, (y, y_stride));
}

#[inline(always)]
fn add_columns<S: InstructionSet, T: Float, const M: usize>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    (y, y_stride): (&mut [T], usize),
) {
    let mut y = y.chunks_mut(y_stride);
    let mut y: [_; M] =
        std::array::from_fn(|_| T::vectors_mut::<S>(y.next().expect("M vectors")));
    let groups = w.ncols() / COLUMNS * COLUMNS;
    let x = |i: usize, k: usize| x[i * x_stride + k];
    for k in (0..groups).step_by(COLUMNS) {
        add_some::<S, T, M, COLUMNS>(
            simd,
            |i, j| x(i, k + j),
            w.columns(k, COLUMNS),
            &mut y,
        );
    }
    for k in groups..w.ncols() {
        add_some::<S, T, M, 1>(simd, |i, _| x(i, k), w.columns(k, 1), &mut y);
    }
}

#[inline(always)]
fn add_some<S: InstructionSet, T: Float, const M: usize, const K: usize>(
    simd: S,
    x: impl Fn(usize, usize) -> T,
    w: DMatrixView<T>, // (n, K)
    y: &mut [&mut [T::Vector<S>]; M],
) {
    let columns: [_; K] = std::array::from_fn(|k| w.column(k));
    let columns = columns.each_ref().map(|column| column.as_slice());
    let factors: [[_; K]; M] =
        std::array::from_fn(|i| std::array::from_fn(|k| T::splat_vector(simd, x(i, k))));
    let whole = w.nrows() / T::lanes::<S>();
    let vectors = columns.map(|column| &T::vectors::<S>(column)[..whole]);
    for i in 0..M {
        let y = &mut y[i][..w.nrows().div_ceil(T::lanes::<S>())];
        let mut add = |at: usize, vectors: [T::Vector<S>; K]| {
            for k in 0..K {
                y[at] = mul_add::<S, T>(simd, factors[i][k], vectors[k], y[at]);
            }
        };
        (0..whole).for_each(|at| add(at, vectors.map(|vectors| vectors[at])));
        if whole * T::lanes::<S>() < w.nrows() {
            let rest =
                |column: &[T]| T::load_some(simd, &column[whole * T::lanes::<S>()..]);
            add(whole, columns.map(rest));
        }
    }
}

/// As [`dots`] or [`combinations`] by themselves, for `w` or its transpose.
pub(crate) struct Thin<'a, T: Float> {
    pub x: &'a [T], // (some, stride): vectors with zeros beyond the depth
    pub x_stride: usize,
    pub w: DMatrixView<'a, T>,
    pub transposed: bool, // whether w is (n, depth), and not (depth, n)
    pub y: &'a mut [T],   // (some, stride)
    pub y_stride: usize,
}

impl<T: Float> Work for Thin<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        let (x, y) = ((self.x, self.x_stride), (self.y, self.y_stride));
        if self.transposed {
            combinations::<S, T>(simd, x, self.w, y);
        } else {
            dots::<S, T>(simd, x, self.w, y);
        }
    }
}
