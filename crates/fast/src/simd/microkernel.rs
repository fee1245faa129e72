//! Products of tiles, from packed copies and in registers.
//!
//! A product adds up `sums[j][i] += a[k][i] · b[k][j]` over k. Read from memory, that is two numbers for each
//! multiplication, and no processor reads as fast as it multiplies. So `MR` vectors of one factor meet `NR` numbers of the
//! other, and all their sums stay in registers until the last k: `MR + NR` loads for `MR · NR` vector multiplications.
//!
//! A *panel* is as many rows of a matrix as fill `MR` vectors, and its vectors lie in the order in which k goes by. What lies
//! in such an order is *packed*: everything is read once, from one end to the other.
//!
//! # Source
//! K. Goto, R. A. van de Geijn, *Anatomy of High-Performance Matrix Multiplication* (2008).

use super::exponential::Float;
use super::instructions::{InstructionSet, mul_add};
use attention::engine::blocks;
use nalgebra::DMatrixView;
use std::ops::{Deref, DerefMut, Range};

/// `sums[j][i] = Σ_k a[k][i] · b[k][j]`: `a[k][i]` is a vector, and `b[k][j]` a number.
/// The bounds of both inner loops are constants: they are unrolled, and no sum ever
/// leaves its register.
#[inline(always)]
pub(crate) fn product<S: InstructionSet, T: Float, const MR: usize, const NR: usize>(
    simd: S,
    a: &[[T::Vector<S>; MR]],
    b: &[[T; NR]],
) -> [[T::Vector<S>; MR]; NR] {
    let mut sums = [[T::splat_vector(simd, T::zero()); MR]; NR];
    for (a, b) in a.iter().zip(b) {
        for j in 0..NR {
            let b = T::splat_vector(simd, b[j]);
            for i in 0..MR {
                sums[j][i] = mul_add::<S, T>(simd, a[i], b, sums[j][i]);
            }
        }
    }
    sums
}

/// Products of one panel with block after block of `NR` numbers. `into` has one row of `MR` vectors for each number of the
/// blocks, and `store` gets the row's number, the row, and its sums.
#[inline(always)]
pub(crate) fn products<
    'b,
    S: InstructionSet,
    T: Float,
    const MR: usize,
    const NR: usize,
>(
    simd: S,
    a: &[[T::Vector<S>; MR]],
    blocks: impl ExactSizeIterator<Item = &'b [[T; NR]]>,
    into: &mut [[T::Vector<S>; MR]],
    mut store: impl FnMut(usize, &mut [T::Vector<S>; MR], [T::Vector<S>; MR]),
) {
    let into = into.as_chunks_mut::<NR>().0;
    debug_assert!(blocks.len() >= into.len(), "a block of numbers for every row");
    for (block, (into, b)) in into.iter_mut().zip(blocks).enumerate() {
        let sums = product::<S, T, MR, NR>(simd, a, b);
        for j in 0..NR {
            store(block * NR + j, &mut into[j], sums[j]);
        }
    }
}

/// [`product`] where `b` is not packed: `b[j]` holds the numbers `b[k][j]` of all k.
#[inline(always)]
pub(crate) fn product_with_rows<
    S: InstructionSet,
    T: Float,
    const MR: usize,
    const NR: usize,
>(
    simd: S,
    a: &[[T::Vector<S>; MR]],
    b: [&[T]; NR],
) -> [[T::Vector<S>; MR]; NR] {
    let mut sums = [[T::splat_vector(simd, T::zero()); MR]; NR];
    let b = b.map(|b| &b[..a.len()]);
    for (k, a) in a.iter().enumerate() {
        for j in 0..NR {
            let b = T::splat_vector(simd, b[j][k]);
            for i in 0..MR {
                sums[j][i] = mul_add::<S, T>(simd, a[i], b, sums[j][i]);
            }
        }
    }
    sums
}

/// Vectors, `MR` at a time.
#[inline(always)]
pub(crate) fn vectors<S: InstructionSet, T: Float, const MR: usize>(
    x: &[T],
) -> &[[T::Vector<S>; MR]] {
    T::vectors::<S>(x).as_chunks().0
}

/// Vectors that can be written to, `MR` at a time.
#[inline(always)]
pub(crate) fn vectors_mut<S: InstructionSet, T: Float, const MR: usize>(
    x: &mut [T],
) -> &mut [[T::Vector<S>; MR]] {
    T::vectors_mut::<S>(x).as_chunks_mut().0
}

/// (rows, depth) → for each panel of `width` rows (depth, width). The last panel has as many whole vectors of `lanes` rows as
/// it needs, and zeros below the last row.
pub(crate) fn pack_panels<T: Float>(
    from: DMatrixView<T>,
    width: usize,
    lanes: usize,
    to: &mut [T],
) {
    let (rows, depth) = from.shape();
    for start in (0..rows).step_by(width) {
        let live = (rows - start).min(width);
        let width = live.next_multiple_of(lanes);
        let panel = &mut to[start * depth..][..width * depth];
        for (k, to) in panel.chunks_exact_mut(width).enumerate() {
            to[..live].copy_from_slice(&from.column(k).as_slice()[start..][..live]);
            to[live..].fill(T::zero());
        }
    }
}

/// (rows, depth) → [⌈rows / NR⌉][depth][NR], zeros below the last row. Eight blocks at a time: some whole cache lines of each
/// column.
#[inline(always)]
pub(crate) fn pack_rows<T: Float, const NR: usize>(from: DMatrixView<T>, to: &mut [T]) {
    const GROUP: usize = 8;
    let (rows, depth) = from.shape();
    let blocks = &mut to.as_chunks_mut::<NR>().0[..rows.div_ceil(NR) * depth];
    for (start, group) in
        (0..rows).step_by(GROUP * NR).zip(blocks.chunks_mut(GROUP * depth))
    {
        let live = (rows - start).min(GROUP * NR);
        for k in 0..depth {
            let column = from.column(k);
            let (whole, rest) = column.as_slice()[start..][..live].as_chunks::<NR>();
            for (block, &from) in whole.iter().enumerate() {
                group[block * depth + k] = from;
            }
            if !rest.is_empty() {
                let last = &mut group[whole.len() * depth + k];
                *last = [T::zero(); NR];
                last[..rest.len()].copy_from_slice(rest);
            }
        }
    }
}

/// (rows, columns) → [⌈columns / NR⌉][rows][NR], zeros to the right of the last column.
#[inline(always)]
pub(crate) fn pack_columns<T: Float, const NR: usize>(
    from: DMatrixView<T>,
    to: &mut [T],
) {
    let (rows, columns) = from.shape();
    let blocks = to[..columns.div_ceil(NR) * rows * NR].chunks_exact_mut(rows * NR);
    for (block, to) in blocks.enumerate() {
        let first = block * NR;
        let to = to.as_chunks_mut::<NR>().0;
        if first + NR <= columns {
            let from: [_; NR] = std::array::from_fn(|j| from.column(first + j));
            let from = from.each_ref().map(|column| &column.as_slice()[..to.len()]);
            for (k, to) in to.iter_mut().enumerate() {
                *to = std::array::from_fn(|j| from[j][k]);
            }
        } else {
            to.fill([T::zero(); NR]);
            for (j, from) in
                from.columns(first, columns - first).column_iter().enumerate()
            {
                for (to, &from) in to.iter_mut().zip(from.as_slice()) {
                    to[j] = from;
                }
            }
        }
    }
}

/// `all` vectors in pieces of at most `most`, as equal as can be: a piece of one vector makes slow products.
pub(crate) fn pieces(all: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = all.div_ceil(most);
    (0..count).map(move |piece| piece * all / count..(piece + 1) * all / count)
}

/// (rows, columns) → for each panel of `width` rows, and in it for each piece of at most `most` vectors of the columns, (rows of
/// the panel, the piece), zeros to the right of the last column.
pub(crate) fn pack_across<T: Float>(
    from: DMatrixView<T>,
    width: usize,
    lanes: usize,
    most: usize,
    to: &mut [T],
) {
    let (rows, columns) = from.shape();
    let mut to = to;
    for panel in blocks(rows, width) {
        for piece in pieces(columns.div_ceil(lanes), most) {
            let (first, width) = (piece.start * lanes, piece.len() * lanes);
            let (here, rest) = to.split_at_mut(panel.len() * width);
            to = rest;
            // A few rows at a time: what is written stays in the first-level cache until its lines are full.
            for rows in blocks(panel.len(), 16) {
                let here = &mut here[rows.start * width..rows.end * width];
                let rows = panel.start + rows.start..panel.start + rows.end;
                for c in 0..width {
                    let places = here[c..].iter_mut().step_by(width);
                    if first + c < columns {
                        let column = from.column(first + c);
                        let column = &column.as_slice()[rows.clone()];
                        places.zip(column).for_each(|(to, &from)| *to = from);
                    } else {
                        places.for_each(|to| *to = T::zero());
                    }
                }
            }
        }
    }
}

/// Numbers that begin where a cache line does. Vectors of 64 bytes would all lie across two lines otherwise.
pub(crate) struct Aligned<T> {
    numbers: Vec<T>,
    start: usize,
    len: usize,
}

impl<T: Float> Aligned<T> {
    pub fn zeros(len: usize) -> Self {
        const LINE: usize = 64;
        let more = LINE / size_of::<T>();
        let numbers = vec![T::zero(); len + more];
        let start = numbers.as_ptr().align_offset(LINE).min(more);
        Aligned { numbers, start, len }
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.numbers[self.start..][..self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.numbers[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::super::instructions::{Instructions, Work};
    use super::*;
    use nalgebra::{DMatrix, convert, try_convert};

    /// `a · bᵀ` and `c · d`, by panels of `a` and `c`; the latter of `a · bᵀ` also with rows of `b` that are not packed.
    struct Products<'a, T> {
        a: &'a DMatrix<T>, // (rows, depth)
        b: &'a DMatrix<T>, // (columns, depth)
    }

    impl<T: Float> Work for Products<'_, T> {
        type Output = [DMatrix<T>; 3];

        #[inline(always)]
        fn run<S: InstructionSet, const MR: usize, const NR: usize>(
            self,
            simd: S,
        ) -> [DMatrix<T>; 3] {
            let (lanes, (rows, depth)) = (T::lanes::<S>(), self.a.shape());
            let columns = self.b.nrows();
            let b_transposed = self.b.transpose();
            let mut panels = Aligned::zeros(rows.next_multiple_of(lanes) * depth);
            let mut b_rows = Aligned::zeros(columns.next_multiple_of(NR) * depth);
            let mut b_columns = Aligned::zeros(columns.next_multiple_of(NR) * depth);
            pack_panels(self.a.as_view(), MR * lanes, lanes, &mut panels);
            pack_rows::<T, NR>(self.b.as_view(), &mut b_rows);
            pack_columns::<T, NR>(b_transposed.as_view(), &mut b_columns);
            let mut across = Aligned::zeros(depth * rows.next_multiple_of(lanes));
            let a_transposed = self.a.transpose(); // (depth, rows)
            pack_across(a_transposed.as_view(), depth, lanes, MR, &mut across);
            let mut results = std::array::from_fn(|_| DMatrix::zeros(rows, columns));
            for (block, columns_here) in blocks(columns, NR).enumerate() {
                let of_block = block * NR * depth..(block + 1) * NR * depth;
                let mut write = |way: usize, first: usize, sums: &[T]| {
                    let width = sums.len() / NR;
                    for (j, column) in columns_here.clone().zip(sums.chunks_exact(width))
                    {
                        for (i, &x) in (first..rows).zip(column) {
                            results[way][(i, j)] = x;
                        }
                    }
                };
                for panel in blocks(rows, MR * lanes) {
                    let vectors = panel.len().div_ceil(lanes);
                    let a = &panels[panel.start * depth..][..vectors * lanes * depth];
                    for (way, b) in [&b_rows, &b_columns].into_iter().enumerate() {
                        let sums = by_width::<S, T, MR, NR>(simd, vectors, a, |_| {
                            Right::Packed(&b[of_block.clone()])
                        });
                        write(way, panel.start, &sums);
                    }
                }
                let last: Vec<Vec<T>> = (0..NR)
                    .map(|j| {
                        let j = (block * NR + j).min(columns - 1);
                        self.b.row(j).iter().copied().collect()
                    })
                    .collect();
                for piece in pieces(rows.div_ceil(lanes), MR) {
                    let a =
                        &across[piece.start * lanes * depth..piece.end * lanes * depth];
                    let sums = by_width::<S, T, MR, NR>(simd, piece.len(), a, |j| {
                        Right::Row(&last[j])
                    });
                    write(2, piece.start * lanes, &sums);
                }
            }
            results
        }
    }

    enum Right<'a, T> {
        Packed(&'a [T]),
        Row(&'a [T]),
    }

    fn by_width<'a, S: InstructionSet, T: Float, const MR: usize, const NR: usize>(
        simd: S,
        width: usize,
        a: &[T],
        b: impl Fn(usize) -> Right<'a, T>,
    ) -> Vec<T> {
        match width {
            1 => one::<S, T, 1, NR>(simd, a, b),
            2 => one::<S, T, 2, NR>(simd, a, b),
            _ => one::<S, T, MR, NR>(simd, a, b),
        }
    }

    fn one<'a, S: InstructionSet, T: Float, const M: usize, const NR: usize>(
        simd: S,
        a: &[T],
        b: impl Fn(usize) -> Right<'a, T>,
    ) -> Vec<T> {
        let a = vectors::<S, T, M>(a);
        let sums = match b(0) {
            Right::Packed(b) => product::<S, T, M, NR>(simd, a, b.as_chunks().0),
            Right::Row(_) => {
                let rows = std::array::from_fn(|j| match b(j) {
                    Right::Row(row) => row,
                    Right::Packed(_) => unreachable!("all rows are of one kind"),
                });
                product_with_rows::<S, T, M, NR>(simd, a, rows)
            }
        };
        let mut to = vec![T::zero(); M * NR * T::lanes::<S>()];
        for (to, sums) in vectors_mut::<S, T, M>(&mut to).iter_mut().zip(sums) {
            *to = sums;
        }
        to
    }

    /// Every set of instructions of this processor, both types, all sizes around those of vectors, panels and blocks.
    #[test]
    fn products_equal_the_definition() {
        fn check<T: Float>(instructions: Instructions) {
            let numbers = |rows, columns, seed: usize| {
                DMatrix::from_fn(rows, columns, |i, j| {
                    ((seed + 7 * i + 5 * j) * 37 % 23) as f64 - 11.0
                })
            };
            for rows in [1, 2, 7, 8, 15, 16, 17, 33, 47, 48, 49, 97] {
                for columns in [1, 5, 6, 7, 8, 9, 13, 65] {
                    for depth in [1, 2, 5, 8, 9] {
                        let a = numbers(rows, depth, 0);
                        let b = numbers(columns, depth, 3);
                        let right = &a * b.transpose();
                        let [a, b] = [a, b].map(|x| x.map(convert::<f64, T>));
                        let results = instructions
                            .run(Products { a: &a, b: &b })
                            .expect("available");
                        for (way, result) in results.iter().enumerate() {
                            // Sums of products of small whole numbers are exact.
                            let result =
                                result.map(|x| try_convert::<T, f64>(x).unwrap());
                            assert_eq!(
                                result, right,
                                "{instructions:?}, way {way}: {rows} x {depth} x {columns}"
                            );
                        }
                    }
                }
            }
        }
        for instructions in Instructions::available() {
            check::<f32>(instructions);
            check::<f64>(instructions);
        }
    }
}
