//! Products of a few vectors with a large matrix, each number of which is used so few times that a packed copy would cost more than it
//! gains: what one token, or a few of them, ask of a layer's weights or of cached keys and values.
//!
//! The large matrix is read where it lies, down its columns, once for every four or eight vectors: so many sums fit into registers beside
//! what they are made of. There are two ways to multiply: where columns lie along the sum, a result is the [inner product](dots) of two
//! columns; where they lie along the results, columns [are added up](combinations).

use super::exponential::Float;
use super::instructions::{InstructionSet, Work, mul_add};
use attention::engine::blocks;
use nalgebra::DMatrixView;

/// No vector has more numbers.
pub(crate) const LARGEST_VECTOR: usize = 16;

/// So many vectors are added one after the other, so that a long sum loses little to rounding.
const BLOCK: usize = 64;

/// Where a sum is cut at a multiple of so many numbers, [its parts](dots_so_far) add up to the same bits.
pub(crate) const WHOLE_BLOCKS: usize = BLOCK * LARGEST_VECTOR;

/// In a browser one vector meets a column at a time, so that there is less code to send.
const BROWSER: bool = cfg!(target_family = "wasm");

/// The largest power of two that is at most `all` and at most `most`.
fn some_of(all: usize, most: usize) -> usize {
    if all >= most { most } else { 1 << all.ilog2() }
}

/// `y[i][j] = Σ_k x[i][k] · w[(k, j)]`.
///
/// Shapes: `x` some vectors of whole vectors of numbers, each `x_stride` after the last, with zeros beyond the depth; `w` (depth, n),
/// `y` as many vectors, each `y_stride` after the last.
#[inline(always)]
pub(crate) fn dots<S: InstructionSet, T: Float>(
    simd: S,
    x: (&[T], usize),
    w: DMatrixView<T>,
    (y, y_stride): (&mut [T], usize),
) {
    let zero = T::splat_vector(simd, T::zero());
    let start = |_: &[T], _, _| zero;
    let end = |y: &mut [T], i: usize, j: usize, sum| {
        y[i * y_stride + j] = T::sum_of_vector(simd, sum);
    };
    dots_from_to::<S, T>(simd, x, w, y, start, end);
}

/// The same sums over some more rows of `w`: each entry of `sums` is a vector, whose own sum is the result so far. If all parts but the
/// last have a multiple of [`WHOLE_BLOCKS`] rows, results have the same bits as without parts.
///
/// Shapes: `sums` (vectors of `x`, n, numbers of a vector), row by row.
#[inline(always)]
pub(crate) fn dots_so_far<S: InstructionSet, T: Float>(
    simd: S,
    x: (&[T], usize),
    w: DMatrixView<T>,
    sums: &mut [T],
) {
    let n = w.ncols();
    let start = |sums: &[T], i: usize, j: usize| T::vectors::<S>(sums)[i * n + j];
    let end = |sums: &mut [T], i: usize, j: usize, sum| {
        T::vectors_mut::<S>(sums)[i * n + j] = sum;
    };
    dots_from_to::<S, T>(simd, x, w, sums, start, end);
}

/// The sums of each vector and column, from what `start` says on. `end` gets them.
#[inline(always)]
fn dots_from_to<S: InstructionSet, T: Float>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    y: &mut [T],
    start: impl Fn(&[T], usize, usize) -> T::Vector<S>,
    end: impl Fn(&mut [T], usize, usize, T::Vector<S>),
) {
    let count = x.len().div_ceil(x_stride);
    let mut first = 0;
    while first < count {
        let x = (&x[first * x_stride..], x_stride);
        let start = |y: &[T], i: usize, j: usize| start(y, first + i, j);
        let end = |y: &mut [T], i: usize, j: usize, sum| end(y, first + i, j, sum);
        let some = some_of(count - first, if BROWSER { 1 } else { 4 });
        match some {
            4 if !BROWSER && S::MANY_REGISTERS => {
                dots_of::<S, T, 4, 4>(simd, x, w, y, start, end)
            }
            4 if !BROWSER => dots_of::<S, T, 4, 2>(simd, x, w, y, start, end),
            2 if !BROWSER => dots_of::<S, T, 2, 4>(simd, x, w, y, start, end),
            _ if !BROWSER => dots_of::<S, T, 1, 8>(simd, x, w, y, start, end),
            _ => dots_of::<S, T, 1, 4>(simd, x, w, y, start, end),
        }
        first += some;
    }
}

/// For M vectors, N columns at a time.
#[inline(always)]
fn dots_of<S: InstructionSet, T: Float, const M: usize, const N: usize>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    y: &mut [T],
    start: impl Fn(&[T], usize, usize) -> T::Vector<S>,
    end: impl Fn(&mut [T], usize, usize, T::Vector<S>),
) {
    let (depth, n) = w.shape();
    let lanes = T::lanes::<S>();
    let (whole, padded) = (depth / lanes, depth.next_multiple_of(lanes));
    let x: [_; M] = std::array::from_fn(|i| &x[i * x_stride..][..padded]);
    let x = x.map(T::vectors::<S>);
    for first in (0..n).step_by(N) {
        // Past the end, the last column once more.
        let columns: [_; N] = std::array::from_fn(|j| w.column((first + j).min(n - 1)));
        let columns = columns.each_ref().map(|column| column.as_slice());
        let vectors = columns.map(|column| &T::vectors::<S>(column)[..whole]);
        let mut sums = [[T::splat_vector(simd, T::zero()); M]; N];
        for (j, sums) in sums.iter_mut().enumerate() {
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = start(y, i, (first + j).min(n - 1));
            }
        }
        for block in blocks(whole, BLOCK) {
            let mut block_sums = [[T::splat_vector(simd, T::zero()); M]; N];
            for k in block {
                for j in 0..N {
                    for i in 0..M {
                        let sum = &mut block_sums[j][i];
                        *sum = mul_add::<S, T>(simd, x[i][k], vectors[j][k], *sum);
                    }
                }
            }
            for j in 0..N {
                for i in 0..M {
                    sums[j][i] = T::add_vectors(simd, sums[j][i], block_sums[j][i]);
                }
            }
        }
        for j in 0..N.min(n - first) {
            let rest = &columns[j][whole * lanes..];
            for i in 0..M {
                if !rest.is_empty() {
                    let rest = T::load_some(simd, rest);
                    sums[j][i] = mul_add::<S, T>(simd, x[i][whole], rest, sums[j][i]);
                }
                end(y, i, first + j, sums[j][i]);
            }
        }
    }
}

/// `y[i][j] = Σ_k x[i][k] · w[(k, j)]`, one k after the other, as the micro-kernels add; in parts, which end before the rows `ends` of `w`.
/// Where a column lies along the sum, vectors that lie along the results are made in registers, by transposing small squares.
///
/// Shapes: `x` some vectors, each `x_stride` after the last; `w` (depth, n). `store` gets the number of a part, that of a vector, that of
/// the first of its results, and as many results as a vector has numbers, of which those beyond n mean nothing.
#[inline(always)]
pub(crate) fn dots_in_order<S: InstructionSet, T: Float>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    ends: &[usize],
    mut store: impl FnMut(usize, usize, usize, T::Vector<S>),
) {
    let count = x.len().div_ceil(x_stride);
    // All parts of some columns, before other columns: these are read from one end to the other.
    for first in (0..w.ncols()).step_by(T::lanes::<S>()) {
        let mut start = 0;
        for (part, &end) in ends.iter().enumerate() {
            let w = w.rows_range(start..end);
            let mut i = 0;
            while i < count {
                let x = (&x[i * x_stride + start..], x_stride);
                let some = some_of(count - i, if BROWSER { 1 } else { 4 });
                let mut sums = [T::splat_vector(simd, T::zero()); 4];
                match some {
                    4 if !BROWSER => sums = chains::<S, T, 4>(simd, x, w, first),
                    2 if !BROWSER => {
                        [sums[0], sums[1]] = chains::<S, T, 2>(simd, x, w, first);
                    }
                    _ => [sums[0]] = chains::<S, T, 1>(simd, x, w, first),
                }
                for (row, &sums) in sums[..some].iter().enumerate() {
                    store(part, i + row, first, sums);
                }
                i += some;
            }
            start = end;
        }
    }
}

/// The sums of `M` vectors with a vector's number of columns from `first` on.
#[inline(always)]
fn chains<S: InstructionSet, T: Float, const M: usize>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    first: usize,
) -> [T::Vector<S>; M] {
    /// So many k at a time.
    const GROUP: usize = 4;
    let (depth, n) = w.shape();
    let lanes = T::lanes::<S>();
    let square = 16 / size_of::<T>(); // rows and columns of what is transposed
    let x: [_; M] = std::array::from_fn(|i| &x[i * x_stride..][..depth]);
    // Past the end, the last column once more.
    let columns: [_; LARGEST_VECTOR] =
        std::array::from_fn(|j| w.column((first + j.min(lanes - 1)).min(n - 1)));
    let columns = columns.each_ref().map(|column| column.as_slice());
    let mut sums = [T::splat_vector(simd, T::zero()); M];
    // The same number of groups of each slice, so that no index in the loop is checked.
    let groups = depth / GROUP;
    let factors = x.map(|x| &x.as_chunks::<GROUP>().0[..groups]);
    let pieces = columns.map(|column| &column.as_chunks::<GROUP>().0[..groups]);
    for group in 0..groups {
        // Vector r has, in each 128 bits, some k of one column.
        let mut rows = [[T::zero(); LARGEST_VECTOR]; GROUP];
        for r in 0..GROUP {
            let (mut j, from) = (0, r / square * square);
            while j < lanes {
                let piece = &pieces[j + r % square][group];
                rows[r][j..j + square].copy_from_slice(&piece[from..from + square]);
                j += square;
            }
        }
        let rows = rows.each_ref().map(|row| T::vectors::<S>(row)[0]);
        let along_results = T::transpose_squares(simd, rows);
        for r in 0..GROUP {
            for i in 0..M {
                let factor = T::splat_vector(simd, factors[i][group][r]);
                sums[i] = mul_add::<S, T>(simd, factor, along_results[r], sums[i]);
            }
        }
    }
    for k in groups * GROUP..depth {
        let row = columns.map(|column| column[k]);
        let vector = T::vectors::<S>(&row)[0];
        for i in 0..M {
            let factor = T::splat_vector(simd, x[i][k]);
            sums[i] = mul_add::<S, T>(simd, factor, vector, sums[i]);
        }
    }
    sums
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
    let count = y.len().div_ceil(y_stride);
    let most = match (BROWSER, S::MANY_REGISTERS) {
        (true, _) => 1,
        (_, true) => 8,
        (_, false) => 4,
    };
    let mut first = 0;
    while first < count {
        let x = (&x[first * x_stride..], x_stride);
        let y = (&mut y[first * y_stride..], y_stride);
        let some = some_of(count - first, most);
        match some {
            8 if !BROWSER && S::MANY_REGISTERS => {
                add_columns::<S, T, 8, 2>(simd, x, w, y)
            }
            4 if !BROWSER => add_columns::<S, T, 4, 2>(simd, x, w, y),
            2 if !BROWSER => add_columns::<S, T, 2, 4>(simd, x, w, y),
            _ if !BROWSER => add_columns::<S, T, 1, 4>(simd, x, w, y),
            _ => add_columns::<S, T, 1, 1>(simd, x, w, y),
        }
        first += some;
    }
}

/// For M vectors, V vectors of numbers of each at a time.
#[inline(always)]
fn add_columns<S: InstructionSet, T: Float, const M: usize, const V: usize>(
    simd: S,
    (x, x_stride): (&[T], usize),
    w: DMatrixView<T>,
    (y, y_stride): (&mut [T], usize),
) {
    /// So many columns are read at once, so that a sum is read and written once for all of them.
    const COLUMNS: usize = if BROWSER { 4 } else { 8 };
    let mut y = y.chunks_mut(y_stride);
    let mut y: [_; M] =
        std::array::from_fn(|_| T::vectors_mut::<S>(y.next().expect("M vectors")));
    let groups = w.ncols() / COLUMNS * COLUMNS;
    let x = |i: usize, k: usize| x[i * x_stride + k];
    for k in (0..groups).step_by(COLUMNS) {
        let (x, w) = (|i, j| x(i, k + j), w.columns(k, COLUMNS));
        add_some::<S, T, M, V, COLUMNS>(simd, x, w, &mut y);
    }
    for k in groups..w.ncols() {
        add_some::<S, T, M, V, 1>(simd, |i, _| x(i, k), w.columns(k, 1), &mut y);
    }
}

#[inline(always)]
fn add_some<
    S: InstructionSet,
    T: Float,
    const M: usize,
    const V: usize,
    const K: usize,
>(
    simd: S,
    x: impl Fn(usize, usize) -> T,
    w: DMatrixView<T>, // (n, K)
    y: &mut [&mut [T::Vector<S>]; M],
) {
    let columns: [_; K] = std::array::from_fn(|k| w.column(k));
    let columns = columns.each_ref().map(|column| column.as_slice());
    let factors: [[_; K]; M] = std::array::from_fn(|i| std::array::from_fn(|k| x(i, k)));
    let lanes = T::lanes::<S>();
    let whole = w.nrows() / lanes;
    let vectors = columns.map(|column| &T::vectors::<S>(column)[..whole]);

    // All sums of a block of V vectors stay in registers while the columns are added.
    let blocks = vectors.map(|column| &column.as_chunks::<V>().0[..whole / V]);
    let sums = y.each_mut().map(|y| &mut y.as_chunks_mut::<V>().0[..whole / V]);
    for at in 0..whole / V {
        let mut block = [[T::splat_vector(simd, T::zero()); V]; M];
        for i in 0..M {
            for v in 0..V {
                block[i][v] = sums[i][at][v];
            }
        }
        for k in 0..K {
            for i in 0..M {
                let factor = T::splat_vector(simd, factors[i][k]);
                for v in 0..V {
                    let sum = &mut block[i][v];
                    *sum = mul_add::<S, T>(simd, factor, blocks[k][at][v], *sum);
                }
            }
        }
        for i in 0..M {
            for v in 0..V {
                sums[i][at][v] = block[i][v];
            }
        }
    }

    // What fills no block, and what fills no vector.
    let mut add = |at: usize, vectors: [T::Vector<S>; K]| {
        for i in 0..M {
            for k in 0..K {
                let factor = T::splat_vector(simd, factors[i][k]);
                y[i][at] = mul_add::<S, T>(simd, factor, vectors[k], y[i][at]);
            }
        }
    };
    (whole / V * V..whole).for_each(|at| add(at, vectors.map(|vectors| vectors[at])));
    if whole * lanes < w.nrows() {
        add(whole, columns.map(|column| T::load_some(simd, &column[whole * lanes..])));
    }
}

/// As [`dots`] or [`combinations`] by themselves, for `w` or its transpose; or in one order, added to what is in `y`.
pub(crate) struct Thin<'a, T: Float> {
    pub x: &'a [T], // (some, stride): vectors with zeros beyond the depth
    pub x_stride: usize,
    pub w: DMatrixView<'a, T>,
    pub transposed: bool, // whether w is (n, depth), and not (depth, n)
    pub one_order: Option<usize>, // sums are cut after so many products, as those of packed panels are
    pub y: &'a mut [T],           // (some, stride)
    pub y_stride: usize,
}

impl<T: Float> Work for Thin<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        let (x, y, w) = ((self.x, self.x_stride), self.y, self.w);
        let Some(depth) = self.one_order else {
            let y = (y, self.y_stride);
            return match self.transposed {
                true => combinations::<S, T>(simd, x, w, y),
                false => dots::<S, T>(simd, x, w, y),
            };
        };
        let lanes = T::lanes::<S>();
        let mut room = vec![T::zero(); if self.transposed { y.len() } else { 0 }];
        for k in blocks(if self.transposed { w.ncols() } else { w.nrows() }, depth) {
            let x = (&x.0[k.start..], x.1);
            if self.transposed {
                room.fill(T::zero());
                combinations::<S, T>(
                    simd,
                    x,
                    w.columns_range(k),
                    (&mut room, self.y_stride),
                );
                let sums = T::vectors_mut::<S>(y).iter_mut().zip(T::vectors::<S>(&room));
                sums.for_each(|(y, &sum)| *y = T::add_vectors(simd, *y, sum));
            } else {
                let (w, end) = (w.rows_range(k.clone()), [k.len()]);
                dots_in_order::<S, T>(simd, x, w, &end, |_, i, first, sums| {
                    let y = &mut y[i * self.y_stride + first..][..lanes];
                    let y = &mut T::vectors_mut::<S>(y)[0];
                    *y = T::add_vectors(simd, *y, sums);
                });
            }
        }
    }
}
