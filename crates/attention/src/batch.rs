//! A batch: several sequences through one layer, in parallel where the feature `rayon` is on; and what else is shared out
//! among threads.
//!
//! Results come back in the order of the sequences and are summed in that order, so that they are the same to the last
//! bit for any number of threads.

use crate::error::{Error, Result, check_count};
use crate::mask::Mask;
use crate::parameters::{LayerGradients, Parameters};
use nalgebra::{DMatrix, RealField};

/// The outputs of a batch, and the cache of each sequence.
///
/// ```
/// # use attention::{BatchOutput, SingleHeadCache, Mask, SingleHeadAttention, example};
/// # use rand::{SeedableRng, rngs::ChaCha8Rng};
/// # let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let batch = [example::river().x, example::city().x];
/// let (outputs, caches): BatchOutput<f64, SingleHeadCache<f64>> =
///     layer.forward_batch(&batch, &[Mask::none()])?;
/// assert_eq!((outputs.len(), caches.len()), (2, 2));
/// # Ok::<(), attention::Error>(())
/// ```
pub type BatchOutput<T, C> = (Vec<DMatrix<T>>, Vec<C>);

/// `f` of every index below `n`, in order.
pub(crate) fn map<R: Send>(n: usize, f: impl Fn(usize) -> R + Sync + Send) -> Vec<R> {
    #[cfg(feature = "rayon")]
    {
        use rayon::iter::{IntoParallelIterator, ParallelIterator};
        (0..n).into_par_iter().map(f).collect()
    }
    #[cfg(not(feature = "rayon"))]
    (0..n).map(f).collect()
}

/// A layer's forward pass over each sequence with its mask.
pub(crate) fn forward<T: RealField + Copy, C: Send>(
    xs: &[DMatrix<T>],
    masks: &[Mask],
    forward: impl Fn(&DMatrix<T>, &Mask) -> Result<(DMatrix<T>, C)> + Sync + Send,
) -> Result<BatchOutput<T, C>> {
    if xs.is_empty() {
        return Err(Error::Empty { argument: "xs", given: "0 sequences".to_owned() });
    }
    if masks.len() != 1 {
        check_count("masks", "entry", masks.len(), xs.len(), || {
            format!("`xs` has {}; give one mask a sequence, or one for all", xs.len())
        })?;
    }
    let mask_of = |b: usize| if masks.len() == 1 { &masks[0] } else { &masks[b] };
    let results = map(xs.len(), |b| forward(&xs[b], mask_of(b)));
    named(results).map(|pairs| pairs.into_iter().unzip())
}

/// A layer's backward pass over each sequence; parameter gradients are summed.
pub(crate) fn backward<T: RealField + Copy, C: Sync>(
    caches: &[C],
    grad_outputs: &[DMatrix<T>],
    backward: impl Fn(&C, &DMatrix<T>) -> Result<LayerGradients<T>> + Sync + Send,
) -> Result<(Parameters<T>, Vec<DMatrix<T>>)> {
    check_count("grad_outputs", "entry", grad_outputs.len(), caches.len(), || {
        format!("`caches` has {}", caches.len())
    })?;
    let results = map(caches.len(), |b| backward(&caches[b], &grad_outputs[b]));
    let mut gradients = named(results)?;
    if gradients.iter().any(|gradients| gradients.context.is_some()) {
        // Summing over a batch would leave out the gradients of the contexts.
        let expected = "`forward_batch` makes those of self-attention".to_owned();
        let given = "of cross-attention".to_owned();
        return Err(Error::Unsupported { argument: "caches", given, expected });
    }
    let mut gradients = gradients.drain(..);
    let Some(LayerGradients { parameters: mut sum, x, .. }) = gradients.next() else {
        return Err(Error::Empty { argument: "caches", given: "0 sequences".to_owned() });
    };
    let mut grad_xs = vec![x];
    for LayerGradients { parameters, x, .. } in gradients {
        sum.accumulate(&parameters);
        grad_xs.push(x);
    }
    Ok((sum, grad_xs))
}

/// All results, or the first error with the number of its sequence.
fn named<R>(results: Vec<Result<R>>) -> Result<Vec<R>> {
    let number = |(index, result): (usize, Result<R>)| {
        result.map_err(|source| Error::Sequence { index, source: Box::new(source) })
    };
    results.into_iter().enumerate().map(number).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Mask, SingleHeadAttention, example};
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    #[test]
    fn gradients_of_contexts_are_not_dropped_in_silence() {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, rng).unwrap();
        let (x, context) = (example::river().x, example::city().x);
        let (output, cache) = layer.forward_cross(&x, &context, &Mask::none()).unwrap();
        let error = layer.backward_batch(&[cache], &[output]).unwrap_err();
        let message = "`caches` is of cross-attention but `forward_batch` makes those of \
                       self-attention";
        assert_eq!(error.to_string(), message);
    }
}
