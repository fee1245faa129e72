//! Which bits of a row change with what stands beside it, or with how the work is shared out.

use attention::engine::{Engine, Factor};
use attention::flash::{FlashOutput, Inputs};
use attention::{Float, ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, Result};
use derive_more::Display;
use nalgebra::{DMatrix, try_convert};
use std::sync::Arc;

/// What may change around a row while its result stays the same on paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Display)]
pub enum Change {
    /// The same again.
    #[display("another run")]
    Run,
    /// Two to four threads in place of one.
    #[display("more threads")]
    Threads,
    /// Other sequences in the batch, each of which is computed by itself.
    #[display("other sequences, each by itself")]
    Sequences,
    /// Fifteen rows of other texts, multiplied by the same weights at once.
    #[display("rows of other texts in the same product")]
    Rows,
    /// The text goes on.
    #[display("later tokens, which the mask hides")]
    LongerText,
    /// The text comes in chunks, with a cache, in place of all at once: token by token, or in longer ones.
    #[display("the text in chunks, with a cache")]
    Chunks,
    /// The cache lies in pages.
    #[display("a cache in pages")]
    Pages,
    /// The keys are cut into parts, as several machines share them out, and the parts are merged.
    #[display("keys in parts, which are merged")]
    Parts,
}

impl Change {
    /// All of them, in the order of the book's table.
    pub const ALL: [Change; 8] = [
        Change::Run,
        Change::Threads,
        Change::Sequences,
        Change::Pages,
        Change::Rows,
        Change::LongerText,
        Change::Chunks,
        Change::Parts,
    ];
}

/// How many rows have the same bits, of how many that were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SameRows {
    /// With the same bits in each column.
    pub same: usize,
    /// All that were compared.
    pub all: usize,
}

impl SameRows {
    /// Whether no row changed.
    pub fn hold(self) -> bool {
        self.same == self.all
    }

    fn count<T: Float>(&mut self, one: &DMatrix<T>, other: &DMatrix<T>) {
        // As f64, which has room for every f32: equal bits there are equal bits here.
        let bits = |x: &T| try_convert::<T, f64>(*x).unwrap_or(f64::NAN).to_bits();
        assert_eq!(one.shape(), other.shape(), "the same rows");
        let rows = one.row_iter().zip(other.row_iter());
        let same = rows.filter(|(a, b)| a.iter().map(bits).eq(b.iter().map(bits)));
        self.same += same.count();
        self.all += one.nrows();
    }
}

/// Compares the rows of a layer's output for a text, bit by bit, before and after a change.
///
/// Shapes: `x` (n, d_model). `engine` returns the engine with a number of threads. The mask must be one that a cache can continue: causal,
/// with or without a window or a rule for scores.
///
/// # Errors
/// As the layer's own passes.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, engine::ByWeights, example};
/// use laboratory::{Change, same_rows};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
/// use std::sync::Arc;
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let engine = |_| Ok(Arc::new(ByWeights) as _);
/// assert!(same_rows(&layer, &example::river().x, &Mask::causal(), &engine, Change::Run)?.hold());
/// # Ok::<(), attention::Error>(())
/// ```
pub fn same_rows<T: Float>(
    layer: &MultiHeadAttention<T>,
    x: &DMatrix<T>,
    mask: &Mask,
    engine: &dyn Fn(usize) -> Result<Arc<dyn Engine<T>>>,
    change: Change,
) -> Result<SameRows> {
    let n = x.nrows();
    let options = |threads| -> Result<ForwardOptions<T>> {
        Ok(ForwardOptions::new().mask(mask).engine(engine(threads)?))
    };
    let one = options(1)?;
    let run = |options: &ForwardOptions<T>| layer.forward(x, options.clone());
    let whole = run(&one)?.0;
    let mut rows = SameRows::default();
    match change {
        Change::Run => rows.count(&run(&one)?.0, &whole),
        Change::Threads => {
            for threads in 2..=4 {
                rows.count(&run(&options(threads)?)?.0, &whole);
            }
        }
        Change::Sequences => {
            let beginning = x.rows(0, n / 3).into_owned();
            let batch = [x * nalgebra::convert::<f64, T>(0.5), x.clone(), beginning];
            let (outputs, _) = layer.forward_batch(&batch, one)?;
            rows.count(&outputs[1], &whole);
        }
        Change::LongerText => {
            for n in [n.min(5), n / 7 + 1, n / 3, n - 1] {
                let (shorter, _) =
                    layer.forward(&x.rows(0, n).into_owned(), one.clone())?;
                rows.count(&shorter, &whole.rows(0, n).into_owned());
            }
        }
        Change::Pages => {
            let chunks = [n / 2, 1, 9];
            let plain = in_chunks(layer, KeyValueCache::new(), x, &chunks, &one)?;
            for page in [16, 100] {
                let cache = KeyValueCache::new().with_pages(page)?;
                rows.count(&in_chunks(layer, cache, x, &chunks, &one)?, &plain);
            }
        }
        Change::Rows => {
            let (engine, w) = (engine(1)?, &layer.parameters.w_q);
            let product = |rows| engine.product(Factor::of(rows), Factor::of(w), None);
            for first in (0..n - n % 16).step_by(16) {
                let together = product(x.rows(first, 16));
                for i in 0..16 {
                    let alone = product(x.rows(first + i, 1));
                    rows.count(&alone, &together.rows(i, 1).into_owned());
                }
            }
        }
        Change::Chunks => {
            let chunks: [&[usize]; 6] = [&[1], &[2, 5], &[6], &[7], &[64], &[131, 10]];
            for chunks in chunks {
                let cut = in_chunks(layer, KeyValueCache::new(), x, chunks, &one)?;
                rows.count(&cut, &whole);
            }
        }
        Change::Parts => {
            // Of attention alone, since a layer has its keys in one place.
            let attend = |first: usize, count: usize| -> Result<FlashOutput<T>> {
                let keys = x.rows(first, count);
                engine(1)?.forward(&Inputs::new(x, keys, keys, Mask::none())?)
            };
            let whole = attend(0, n)?;
            let parts = [attend(0, n / 2)?, attend(n / 2, n - n / 2)?];
            rows.count(&merged(&parts), &whole.output);
        }
    }
    Ok(rows)
}

/// The text in chunks of these lengths, again and again.
fn in_chunks<T: Float>(
    layer: &MultiHeadAttention<T>,
    mut cache: KeyValueCache<T>,
    x: &DMatrix<T>,
    chunks: &[usize],
    options: &ForwardOptions<T>,
) -> Result<DMatrix<T>> {
    let mut outputs = layer.forward_cached(
        x.rows(0, chunks[0].min(x.nrows())),
        &mut cache,
        options.clone(),
    )?;
    let mut first = outputs.nrows();
    for &chunk in chunks.iter().cycle().skip(1) {
        let count = chunk.min(x.nrows() - first);
        if count == 0 {
            return Ok(outputs);
        }
        let output =
            layer.forward_cached(x.rows(first, count), &mut cache, options.clone())?;
        outputs = outputs.insert_rows(first, count, T::zero());
        outputs.rows_mut(first, count).copy_from(&output);
        first += count;
    }
    unreachable!("chunks go on")
}

/// The output of all keys from those of two parts, by their log-sum-exps.
fn merged<T: Float>(parts: &[FlashOutput<T>; 2]) -> DMatrix<T> {
    let [a, b] = parts;
    DMatrix::from_fn(a.output.nrows(), a.output.ncols(), |i, c| {
        let [of_a, of_b] = [a, b].map(|part| part.log_sum_exp[(i, 0)]);
        let max = of_a.max(of_b);
        let [of_a, of_b] = [of_a, of_b].map(|x| (x - max).exp());
        (a.output[(i, c)] * of_a + b.output[(i, c)] * of_b) / (of_a + of_b)
    })
}
