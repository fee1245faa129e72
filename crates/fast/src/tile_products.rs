//! The products of [`Flash`](crate::Flash) by themselves, for those who want to time them.

use crate::backward::add_grad_q;
use crate::simd::{
    Aligned, Float, InstructionSet, Instructions, Sizes, Work, mul_add, pack_columns,
    pack_rows, products, vectors, vectors_mut,
};
use attention::{Result, engine::check_room};
use nalgebra::{DMatrix, convert};

/// One panel of queries, and one tile of keys and values, with the micro-kernels that multiply them.
///
/// ```
/// use fast::{Instructions, Part, TileProducts};
///
/// let mut products = TileProducts::<f32>::new(Instructions::Portable, 256, 64)?;
/// products.run(Part::Scores);
/// assert_eq!(products.operations(Part::Scores), 2 * products.queries() * 256 * 64);
/// # Ok::<(), attention::Error>(())
/// ```
pub struct TileProducts<T: Float> {
    instructions: Instructions,
    sizes: Sizes,
    d: usize,
    k: DMatrix<T>,      // (keys, d)
    panel: Aligned<T>,  // (d, queries)
    keys: Aligned<T>,   // blocks of (d, NR)
    values: Aligned<T>, // blocks of (keys, NR)
    scores: Aligned<T>, // (keys, queries)
    output: Aligned<T>, // (d, queries), or the gradients of queries (keys, d)
}

/// The parts that can be timed.
///
/// ```
/// use fast::{Instructions, Part, TileProducts};
/// let products = TileProducts::<f64>::new(Instructions::Portable, 8, 8)?;
/// assert_eq!(products.operations(Part::Packing), 0);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The scores of a panel of queries and a tile of keys, without their maxima. Backward, weights and their gradients are made
    /// so.
    Scores,
    /// The product that a tile of values adds to the output of a panel. Backward, keys and values get their gradients so.
    Values,
    /// The product that a panel of keys adds to the gradients of queries: the one product with a factor that is not packed.
    Queries,
    /// The packing of a tile of keys and values.
    Packing,
    /// As many multiplications and additions as [`Part::Scores`] has, of numbers that never leave the registers.
    Registers,
}

impl<T: Float> TileProducts<T> {
    /// Returns a panel of queries, a tile of `keys` keys, and heads `d` wide, of numbers between 0 and 1.
    ///
    /// # Errors
    /// `keys` or `d` is 0, or this processor does not have these instructions.
    ///
    /// ```
    /// use fast::{Instructions, TileProducts};
    /// assert!(TileProducts::<f32>::new(Instructions::Portable, 0, 64).is_err());
    /// ```
    pub fn new(instructions: Instructions, keys: usize, d: usize) -> Result<Self> {
        check_room::<T>(("keys", keys), ("d", d))?;
        let sizes = instructions.check()?.sizes::<T>();
        let number = |i: usize| convert::<f64, T>((i * 37 % 101) as f64 / 101.0);
        let zeros = |n| Aligned::zeros(n);
        let (keys_padded, d_lanes, d_numbers) = (
            keys.next_multiple_of(sizes.numbers),
            d.next_multiple_of(sizes.lanes),
            d.next_multiple_of(sizes.numbers),
        );
        let output = (keys_padded * d_lanes).max(sizes.panel * d_numbers);
        let mut products = TileProducts {
            instructions,
            sizes,
            d,
            k: DMatrix::from_fn(keys, d, |i, j| number(i + 3 * j)),
            panel: zeros(d_lanes * sizes.panel),
            keys: zeros(keys_padded * d),
            values: zeros(keys * d_numbers),
            scores: zeros(keys_padded * sizes.panel),
            output: zeros(output),
        };
        products.panel.iter_mut().enumerate().for_each(|(i, x)| *x = number(i));
        products.run(Part::Packing);
        Ok(products)
    }

    /// Returns the number of queries in the panel.
    ///
    /// ```
    /// use fast::{Instructions, TileProducts};
    /// let products = TileProducts::<f32>::new(Instructions::Portable, 8, 8)?;
    /// assert_eq!(products.queries(), 8); // two vectors of four
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn queries(&self) -> usize {
        self.sizes.panel
    }

    /// Returns the number of numbers that meet the panel's vectors in registers.
    ///
    /// ```
    /// use fast::{Instructions, TileProducts};
    /// let products = TileProducts::<f32>::new(Instructions::Portable, 8, 8)?;
    /// assert_eq!(products.numbers(), 6);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn numbers(&self) -> usize {
        self.sizes.numbers
    }

    /// Returns the floating-point operations of a part.
    ///
    /// ```
    /// use fast::{Instructions, Part, TileProducts};
    /// let products = TileProducts::<f32>::new(Instructions::Portable, 16, 8)?;
    /// assert_eq!(products.operations(Part::Values), 2 * 8 * 16 * 8);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn operations(&self, part: Part) -> usize {
        match part {
            Part::Packing => 0,
            _ => 2 * self.sizes.panel * self.k.nrows() * self.d,
        }
    }

    /// Computes it once.
    ///
    /// ```
    /// use fast::{Instructions, Part, TileProducts};
    /// let mut products = TileProducts::<f64>::new(Instructions::Portable, 8, 8)?;
    /// products.run(Part::Registers);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn run(&mut self, part: Part) {
        let work = Timed { products: self, part };
        work.products.instructions.run(work).expect("these instructions were checked");
    }
}

struct Timed<'a, T: Float> {
    products: &'a mut TileProducts<T>,
    part: Part,
}

impl<T: Float> Work for Timed<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: InstructionSet, const MR: usize, const NR: usize>(self, simd: S) {
        let Timed { products: tile, part } = self;
        let (width, (n, d)) = (tile.sizes.panel, tile.k.shape());
        match part {
            Part::Scores => {
                let panel = vectors::<S, T, MR>(&tile.panel[..d * width]);
                let blocks = tile.keys.as_chunks::<NR>().0.chunks_exact(d);
                let into = vectors_mut::<S, T, MR>(&mut tile.scores);
                products::<S, T, MR, NR>(simd, panel, blocks, into, |_, into, sums| {
                    *into = sums;
                });
            }
            Part::Values => {
                let weights = vectors::<S, T, MR>(&tile.scores[..n * width]);
                let columns = tile.values.chunks_exact(n * NR);
                let blocks = columns.map(|column| column.as_chunks().0);
                let into = &mut tile.output[..d.next_multiple_of(NR) * width];
                let into = vectors_mut::<S, T, MR>(into);
                products::<S, T, MR, NR>(simd, weights, blocks, into, |_, into, sums| {
                    for i in 0..MR {
                        into[i] = T::add_vectors(simd, into[i], sums[i]);
                    }
                });
            }
            Part::Queries => {
                let d = d.next_multiple_of(tile.sizes.lanes);
                let (across, rows) = (&tile.panel[..width * d], n.next_multiple_of(NR));
                let scores = &tile.scores[..rows * width];
                let share = &mut tile.output[..rows * d];
                let keys = 0..across.len() / d; // all of them
                add_grad_q::<S, T, MR, NR>(simd, across, scores, width, share, d, keys);
            }
            Part::Packing => {
                pack_rows::<T, NR>(tile.k.as_view(), &mut tile.keys);
                pack_columns::<T, NR>(tile.k.as_view(), &mut tile.values);
            }
            Part::Registers => {
                let a = vectors::<S, T, MR>(&tile.panel)[0];
                let b = T::splat_vector(simd, tile.panel[0]);
                let mut sums = [[a[0]; MR]; NR];
                for _ in 0..(n * d).div_ceil(NR) {
                    for sums in &mut sums {
                        for i in 0..MR {
                            sums[i] = mul_add::<S, T>(simd, a[i], b, sums[i]);
                        }
                    }
                }
                vectors_mut::<S, T, MR>(&mut tile.output).as_chunks_mut().0[0] = sums;
            }
        }
    }
}
