//! Products of whole matrices, for attention and its layers, on the micro-kernels of the tiles.

use super::exponential::Float;
use super::instructions::{InstructionSet, Instructions, Work};
use super::microkernel::{
    Aligned, pack_across, pack_columns, pack_panels, pack_rows,
    product as sums_of_products, vectors, vectors_mut,
};
use super::thin_product::{LARGEST_VECTOR, Thin};
#[cfg(feature = "rayon")]
use attention::engine::on_a_worker;
use attention::engine::{ByWeights, Engine, Factor, blocks};
use nalgebra::DMatrix;
use std::ops::Range;

/// Products that are summed in registers: a block of the second factor stays in the first-level cache.
const DEPTH: usize = 256;

/// Returns true where `a` has so few rows, or `b` so few columns, that to pack the other factor would cost more than it gains.
fn is_thin<T: Float>(a: &Factor<T>, b: &Factor<T>) -> bool {
    /// The limit if the columns of the other factor lie along the results, and the limit if they lie along the sums.
    const FEW: (usize, usize) = (5, 12);
    /// Numbers of the other factor from which on the second one holds.
    const LARGE: usize = 1 << 14;
    let ((rows, depth), columns) = (a.shape(), b.shape().1);
    let along_sums = if rows <= columns { !b.is_transposed } else { a.is_transposed };
    let large = along_sums && depth * rows.max(columns) >= LARGE;
    rows.min(columns) <= if large { FEW.1 } else { FEW.0 }
}

/// The product of two factors, with `bias` added to each row: what [`Compiled::multiply`](crate::compiled::Compiled) compiles. With
/// `one_order` a row is summed in the same order in a product of any shape, and else by the way that is fastest for the shape.
pub(crate) fn multiply<T: Float>(
    a: Factor<T>,
    b: Factor<T>,
    bias: Option<&[T]>,
    one_order: bool,
) -> DMatrix<T> {
    /// Up to this number of multiplications, packing would cost more than it gains.
    const FEW: usize = 64 * 64 * 64;
    /// The same for thin products, which are not packed.
    const FEWEST: usize = 512;
    let ((rows, depth), columns) = (a.shape(), b.shape().1);
    let count = rows.saturating_mul(depth).saturating_mul(columns);
    let thin = is_thin(&a, &b);
    let few = if thin { FEWEST } else { FEW };
    if count == 0 || (count <= few && !one_order) {
        ByWeights.product(a, b, bias)
    } else if thin {
        multiply_thin(&a, &b, bias, one_order)
    } else {
        multiply_packed(&a, &b, bias, threads())
    }
}

/// A product with few rows, or few columns: these are copied to vectors, and the other factor is read where it lies.
fn multiply_thin<T: Float>(
    a: &Factor<T>,
    b: &Factor<T>,
    bias: Option<&[T]>,
    one_order: bool,
) -> DMatrix<T> {
    /// Numbers of the large factor that are worth another thread.
    const SHARE: usize = 1 << 18;
    let ((rows, depth), columns) = (a.shape(), b.shape().1);
    let of_rows = rows <= columns;
    // The results lie along n, of which there are many.
    let (few, wide, count, n) =
        if of_rows { (a, b, rows, columns) } else { (b, a, columns, rows) };
    let x_stride = depth.next_multiple_of(LARGEST_VECTOR);
    let mut x = vec![T::zero(); count * x_stride];
    for (i, x) in x.chunks_exact_mut(x_stride).enumerate() {
        if few.is_transposed == of_rows {
            x[..depth].copy_from_slice(few.matrix.column(i).as_slice());
        } else {
            x.iter_mut().zip(few.matrix.row(i).iter()).for_each(|(to, &from)| *to = from);
        }
    }
    // Whether the large factor has its columns along the results.
    let across = wide.is_transposed == of_rows;
    let share = n.min((SHARE / depth).max(1)).next_multiple_of(LARGEST_VECTOR);
    let mut y = vec![T::zero(); n.div_ceil(share) * share * count];
    // In one order the sums begin with the bias, as those of packed panels do.
    let (first, last) = if one_order { (bias, None) } else { (None, bias) };
    if let Some(bias) = first {
        for (chunk, y) in y.chunks_exact_mut(share * count).enumerate() {
            for (i, y) in y.chunks_exact_mut(share).enumerate() {
                for (j, y) in (chunk * share..n).zip(y) {
                    *y = bias[if of_rows { j } else { i }];
                }
            }
        }
    }
    for_each_chunk(&mut y, share * count, |(chunk, y)| {
        let range = chunk * share..n.min((chunk + 1) * share);
        let w = if across {
            wide.matrix.rows_range(range)
        } else {
            wide.matrix.columns_range(range)
        };
        let one_order = one_order.then_some(DEPTH);
        let work = Thin {
            x: &x,
            x_stride,
            w,
            transposed: across,
            one_order,
            y,
            y_stride: share,
        };
        Instructions::best().run(work).expect("instructions of this processor");
    });
    let mut c = DMatrix::zeros(rows, columns);
    for (chunk, y) in y.chunks_exact(share * count).enumerate() {
        for (i, y) in y.chunks_exact(share).enumerate() {
            for (j, &sum) in (chunk * share..n).zip(y) {
                let at = if of_rows { (i, j) } else { (j, i) };
                c[at] = last.map_or(sum, |bias| sum + bias[at.1]);
            }
        }
    }
    c
}

/// Each thread gets a share of the columns where the feature `rayon` is on. Results do not depend on the number of threads, since each
/// entry is summed in the same order.
fn multiply_packed<T: Float>(
    a: &Factor<T>,
    b: &Factor<T>,
    bias: Option<&[T]>,
    threads: usize,
) -> DMatrix<T> {
    let (rows, columns) = (a.shape().0, b.shape().1);
    // `vec!` asks for memory that is zero already, where `DMatrix::zeros` would write to it.
    let mut c = vec![T::zero(); rows * columns];
    // Fewer columns are not worth the packed copy of `a` that each share makes; of more, the copy leaves the cache.
    let share = columns.div_ceil(threads).clamp(64, 1024);
    let one = |(group, c): (usize, &mut [T])| {
        let from = group * share;
        let columns = from..from + c.len() / rows;
        let work = Multiply { a, b, bias, columns, c };
        Instructions::best().run(work).expect("instructions of this processor");
    };
    let numbers = (share * rows).max(1);
    for_each_chunk(&mut c, numbers, one);
    DMatrix::from_vec(rows, columns, c)
}

fn threads() -> usize {
    #[cfg(feature = "rayon")]
    if !on_a_worker() {
        return rayon::current_num_threads();
    }
    1
}

/// `f` of each chunk of `size` numbers and its index.
fn for_each_chunk<T: Float>(
    numbers: &mut [T],
    size: usize,
    f: impl Fn((usize, &mut [T])) + Sync + Send,
) {
    #[cfg(feature = "rayon")]
    if numbers.len() > size && !on_a_worker() {
        use rayon::prelude::*;
        return numbers.par_chunks_mut(size).enumerate().for_each(f);
    }
    numbers.chunks_mut(size).enumerate().for_each(f);
}

/// Some columns of `a · b`, with `bias` added to each row.
struct Multiply<'a, T: Float> {
    a: &'a Factor<'a, T>,  // (rows, depth)
    b: &'a Factor<'a, T>,  // (depth, columns)
    bias: Option<&'a [T]>, // for all columns
    columns: Range<usize>,
    c: &'a mut [T], // (rows, these columns)
}

impl<T: Float> Work for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        /// Bytes of a column of the panels of `a` that stay in the second-level cache: a multiple of every panel's.
        const HEIGHT: usize = 1536;
        let Multiply { a, b, bias, columns, c } = self;
        let ((rows, depth), lanes) = (a.shape(), T::lanes::<S>());
        let (panel, height) = (MR * lanes, HEIGHT / size_of::<T>());
        let (most, height) = (depth.min(DEPTH), rows.min(height));
        let mut packed_left = Aligned::zeros(height.next_multiple_of(lanes) * most);
        let mut packed_right = Aligned::zeros(columns.len().next_multiple_of(NR) * most);
        let (mut edge, zeros) = (Aligned::zeros(panel * NR), [T::zero(); NR]);
        for k in blocks(depth, DEPTH) {
            pack_right::<T, NR>(b, &k, &columns, &mut packed_right);
            for group in blocks(rows, height) {
                pack_left(a, &group, &k, (panel, lanes), &mut packed_left);
                let right_blocks = packed_right.as_chunks::<NR>().0.chunks_exact(k.len());
                for (right, block) in right_blocks.zip(blocks(columns.len(), NR)) {
                    // Memory that was never touched is written, not read: that would cost a page fault more.
                    let bias = match bias {
                        Some(bias) => &bias[columns.start + block.start..][..block.len()],
                        None => &zeros[..block.len()],
                    };
                    let bias = (k.start == 0).then_some(bias);
                    for part in blocks(group.len(), panel) {
                        let width = part.len().next_multiple_of(lanes);
                        let left =
                            &packed_left[part.start * k.len()..][..width * k.len()];
                        let first = rows * block.start + group.start + part.start;
                        let mut target =
                            Target { numbers: &mut c[first..], stride: rows };
                        let count = block.len();
                        if part.len() == panel {
                            target.add_products::<S, MR, NR>(
                                simd, left, right, count, bias,
                            );
                            continue;
                        }
                        // The last panel has fewer rows than its vectors have numbers. Its sums go to a place of
                        // their own, and from there those of its rows go where they belong.
                        let mut sums = Target { numbers: &mut edge, stride: width };
                        let none = Some(&zeros as &[T]);
                        match width / lanes {
                            1 => {
                                sums.add_products::<S, 1, NR>(simd, left, right, NR, none)
                            }
                            2 => {
                                sums.add_products::<S, 2, NR>(simd, left, right, NR, none)
                            }
                            _ => sums
                                .add_products::<S, MR, NR>(simd, left, right, NR, none),
                        }
                        target.add_numbers(&edge, width, part.len(), count, bias);
                    }
                }
            }
        }
    }
}

/// Blocks of `NR` of these columns of `b`, from the rows `k`.
#[inline(always)]
fn pack_right<T: Float, const NR: usize>(
    b: &Factor<T>,
    k: &Range<usize>,
    columns: &Range<usize>,
    to: &mut [T],
) {
    let part = |rows: &Range<usize>, columns: &Range<usize>| {
        b.matrix.view_range(rows.clone(), columns.clone())
    };
    if b.is_transposed {
        pack_rows::<T, NR>(part(columns, k), to);
    } else {
        pack_columns::<T, NR>(part(k, columns), to);
    }
}

/// Panels of these rows of `a`, from the columns `k`.
#[inline(always)]
fn pack_left<T: Float>(
    a: &Factor<T>,
    rows: &Range<usize>,
    k: &Range<usize>,
    (panel, lanes): (usize, usize),
    to: &mut [T],
) {
    if !a.is_transposed {
        let part = a.matrix.view_range(rows.clone(), k.clone());
        return pack_panels(part, panel, lanes, to);
    }
    for part in blocks(rows.len(), panel) {
        let these = rows.start + part.start..rows.start + part.end;
        let place = &mut to[part.start * k.len()..];
        let part = a.matrix.view_range(k.clone(), these);
        pack_across(part, k.len(), lanes, panel / lanes, place);
    }
}

/// The place for sums: some rows of columns that begin `stride` numbers apart.
struct Target<'a, T> {
    numbers: &'a mut [T],
    stride: usize,
}

impl<T: Float> Target<'_, T> {
    /// Adds the products of a panel of `left` and the first `count` columns of a block of `right`; to `bias`, if it is given, and else
    /// to what is here.
    #[inline(always)]
    fn add_products<S: InstructionSet, const M: usize, const NR: usize>(
        &mut self,
        simd: S,
        left: &[T],
        right: &[[T; NR]],
        count: usize,
        bias: Option<&[T]>,
    ) {
        let sums = sums_of_products::<S, T, M, NR>(simd, vectors::<S, T, M>(left), right);
        for j in 0..NR {
            if j == count {
                return;
            }
            let column = &mut self.numbers[self.stride * j..][..M * T::lanes::<S>()];
            let column = &mut vectors_mut::<S, T, M>(column)[0];
            if let Some(bias) = bias {
                *column = [T::splat_vector(simd, bias[j]); M];
            }
            for i in 0..M {
                column[i] = T::add_vectors(simd, column[i], sums[j][i]);
            }
        }
    }

    /// The same with sums (columns, width), of which the first `rows` and `count` columns count.
    #[inline(always)]
    fn add_numbers(
        &mut self,
        sums: &[T],
        width: usize,
        rows: usize,
        count: usize,
        bias: Option<&[T]>,
    ) {
        for (j, sums) in sums.chunks_exact(width).take(count).enumerate() {
            let column = &mut self.numbers[self.stride * j..][..rows];
            for (number, &sum) in column.iter_mut().zip(sums) {
                *number = sum + bias.map_or(*number, |bias| bias[j]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{convert, try_convert};

    /// Every order of the factors, both types, all sizes around those of vectors, panels and blocks; and both ways of computing.
    #[test]
    fn products_equal_the_definition() {
        fn check<T: Float>() {
            let numbers = |rows, columns, seed: usize| {
                DMatrix::from_fn(rows, columns, |i, j| {
                    ((seed + 7 * i + 5 * j) * 37 % 23) as f64 - 11.0
                })
            };
            let exact = |c: DMatrix<T>| c.map(|x| try_convert::<T, f64>(x).unwrap());
            for rows in [1, 2, 5, 7, 24, 49, 400] {
                for depth in [1, 5, 257] {
                    for columns in [1, 8, 13, 129] {
                        let a = numbers(rows, depth, 0);
                        let b = numbers(depth, columns, 3);
                        let bias = DMatrix::from_fn(1, columns, |_, j| j as f64);
                        let right = DMatrix::from_fn(rows, columns, |i, j| {
                            a.row(i).transpose().dot(&b.column(j))
                        });
                        let right_plus = DMatrix::from_fn(rows, columns, |i, j| {
                            right[(i, j)] + j as f64
                        });
                        let [a, b] = [a, b].map(|x| x.map(convert::<f64, T>));
                        let bias = bias.map(convert::<f64, T>);
                        let shape = (rows, depth, columns);
                        // Sums of products of small whole numbers are exact.
                        let [a_tr, b_tr] = [&a, &b].map(DMatrix::transpose);
                        for a in [Factor::of(&a), Factor::transposed(&a_tr)] {
                            for b in [Factor::of(&b), Factor::transposed(&b_tr)] {
                                let bias = Some(bias.as_slice());
                                let thin =
                                    |one_order| multiply_thin(&a, &b, bias, one_order);
                                for product in [
                                    multiply_packed(&a, &b, bias, 2),
                                    ByWeights.product(a, b, bias),
                                    if is_thin(&a, &b) {
                                        assert_eq!(exact(thin(true)), right_plus);
                                        thin(false)
                                    } else {
                                        multiply(a, b, bias, false)
                                    },
                                ] {
                                    assert_eq!(exact(product), right_plus, "{shape:?}");
                                }
                            }
                        }
                        let without =
                            multiply(Factor::of(&a), Factor::of(&b), None, false);
                        assert_eq!(exact(without), right, "{shape:?}");
                    }
                }
            }
        }
        check::<f32>();
        check::<f64>();
    }

    #[cfg(feature = "rayon")]
    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let numbers = |rows, columns| {
            DMatrix::from_fn(rows, columns, |i, j| ((3 * i + 7 * j) as f64).sin())
        };
        let (a, b) = (numbers(50, 300), numbers(300, 517));
        let run =
            |threads| multiply_packed(&Factor::of(&a), &Factor::of(&b), None, threads);
        let one = run(1);
        assert!((2..6).all(|threads| run(threads) == one));
    }
}
