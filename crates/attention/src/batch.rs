//! Batches: the same layer for many sequences, which may differ in length.
//!
//! The sequences run in parallel, where the feature `rayon` is on. Results come back in the order of the sequences and are summed in
//! an order that depends on their number alone, so that they are the same to the last bit for any number of threads.

use crate::Float;
use crate::blocks;
use crate::error::{Result, check_count, check_shape, empty};
use crate::forward_options::{BatchOptions, ForwardOptions};
use crate::parameters::{LayerGradients, Parameters};
use nalgebra::DMatrix;

/// The gradients of a loss with respect to a layer's parameters and to the inputs of a batch: see
/// [`MultiHeadAttention::backward_batch`](crate::MultiHeadAttention::backward_batch).
///
/// ```
/// # use attention::{ForwardOptions, MultiHeadAttention, example};
/// # use rand::{SeedableRng, rngs::ChaCha8Rng};
/// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (x, context) = (example::river().x, example::city().x);
/// let (outputs, caches) = layer.forward_batch(&[x], ForwardOptions::new().context(&context))?;
/// let gradients = layer.backward_batch(&caches, &outputs)?;
/// assert_eq!(gradients.contexts[0].as_ref().unwrap().shape(), context.shape());
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct BatchGradients<T: Float> {
    /// With respect to each parameter, summed over the batch.
    pub parameters: Parameters<T>,
    /// With respect to the input of each sequence (n_b, d_model).
    pub xs: Vec<DMatrix<T>>,
    /// With respect to the context of each sequence, in cross-attention; `None` in self-attention.
    pub contexts: Vec<Option<DMatrix<T>>>,
    /// With respect to each table in the masks' rules for scores (buckets, n_heads), summed over the batch.
    pub tables: Vec<DMatrix<T>>,
}

/// Returns the output and the cache of each sequence.
pub(crate) fn forward<'a, T: Float, Cache: Send>(
    xs: &[DMatrix<T>],
    options: BatchOptions<'a, T>,
    forward: impl Fn(&DMatrix<T>, ForwardOptions<'a, T>) -> Result<(DMatrix<T>, Cache)>
    + Send
    + Sync,
) -> Result<(Vec<DMatrix<T>>, Vec<Cache>)> {
    if xs.is_empty() {
        return Err(empty("xs", "0 sequences"));
    }
    let options = options.for_each(xs.len())?;
    let results = blocks::map_each(xs.len(), |b| forward(&xs[b], options[b].clone()));
    numbered(results).map(|pairs| pairs.into_iter().unzip())
}

/// Returns the gradients of a batch, from those of its sequences.
pub(crate) fn backward<T: Float, Cache: Sync>(
    caches: &[Cache],
    grad_outputs: &[DMatrix<T>],
    backward: impl Fn(&Cache, &DMatrix<T>) -> Result<LayerGradients<T>> + Send + Sync,
) -> Result<BatchGradients<T>> {
    check_count("grad_outputs", "entry", grad_outputs.len(), caches.len(), || {
        format!("`caches` has {}", caches.len())
    })?;
    let gradients =
        blocks::map_each(caches.len(), |b| backward(&caches[b], &grad_outputs[b]));
    let (mut parameters, mut xs, mut contexts) = (vec![], vec![], vec![]);
    let gradients = numbered(gradients)?;
    let tables = sum_of_tables(gradients.iter().map(|sequence| &sequence.tables[..]))?;
    for gradients in gradients {
        parameters.push(gradients.parameters);
        xs.push(gradients.x);
        contexts.push(gradients.context);
    }
    // Pairs, then pairs of pairs: a running sum of thousands of sequences would lose digits.
    while parameters.len() > 1 {
        let mut rest = parameters.into_iter();
        parameters = vec![];
        while let Some(mut sum) = rest.next() {
            if let Some(other) = rest.next() {
                sum += &other;
            }
            parameters.push(sum);
        }
    }
    let Some(parameters) = parameters.pop() else {
        return Err(empty("caches", "0 sequences"));
    };
    Ok(BatchGradients { parameters, xs, contexts, tables })
}

/// Sums the gradients of several tables over heads or sequences.
///
/// # Errors
/// The tables of one are not those of another.
pub(crate) fn sum_of_tables<'a, T: Float>(
    mut all: impl Iterator<Item = &'a [DMatrix<T>]>,
) -> Result<Vec<DMatrix<T>>> {
    let mut sums = all.next().unwrap_or_default().to_vec();
    for tables in all {
        check_count("tables", "entry", tables.len(), sums.len(), || {
            format!("another sequence has {}", sums.len())
        })?;
        for (sum, table) in sums.iter_mut().zip(tables) {
            check_shape("tables", table, sum.shape(), "another sequence's")?;
            *sum += table;
        }
    }
    Ok(sums)
}

/// Returns all results, or the first error with the number of its sequence.
fn numbered<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    let number = |(index, result): (usize, Result<R>)| {
        result.map_err(|error| error.within(format!("sequence {index} of the batch")))
    };
    results.into_iter().enumerate().map(number).collect()
}
