//! The engine that computes the equations as they stand, head by head.

use crate::dot_product::{Attended, AttentionGradients, attend, attend_backward};
use crate::error::{Result, check_count};
use crate::flash::{FlashOutput, Inputs};
use crate::float::Float;
use crate::parallel;
use nalgebra::DMatrixView;

pub(crate) fn forward<T: Float>(inputs: &Inputs<T>) -> Result<FlashOutput<T>> {
    let shape = inputs.lengths(); // of the scores, (n_q, n_k)
    let heads = parallel::map(inputs.n_heads(), |h| {
        let head = inputs.head(h); // its columns; those of keys and values may be shared
        let factors = head.dropout.map(|dropout| dropout.matrix(shape));
        attend(&head, factors.as_ref())
    });
    let mut forward = FlashOutput::zeros(inputs);
    let d_v = inputs.widths().1;
    for (h, attended) in heads.into_iter().enumerate() {
        let Attended { output, weights, log_sum_exp } = attended?;
        forward.output.columns_mut(h * d_v, d_v).copy_from(&output); // side by side
        forward.log_sum_exp.set_column(h, &log_sum_exp);
        forward.weights.push(weights);
    }
    Ok(forward)
}

pub(crate) fn backward<T: Float>(
    inputs: &Inputs<T>,
    forward: &FlashOutput<T>,
    grad_output: DMatrixView<T>,
) -> Result<AttentionGradients<T>> {
    inputs.check_output(forward)?;
    inputs.check_grad_output(grad_output)?;
    let n_heads = inputs.n_heads();
    check_count("forward.weights", "entry", forward.weights.len(), n_heads, || {
        format!("there are n_heads = {n_heads}")
    })?;
    let (d_k, d_v) = inputs.widths();
    let heads = parallel::map(n_heads, |h| {
        let head = inputs.head(h);
        let factors = head.dropout.map(|dropout| dropout.matrix(inputs.lengths()));
        let grad_output = grad_output.columns(h * d_v, d_v);
        attend_backward(&head, &forward.weights[h], factors.as_ref(), grad_output)
    });
    let mut gradients = inputs.zero_gradients();
    for (h, of_head) in heads.into_iter().enumerate() {
        let (of_head, g) = (of_head?, inputs.kv_head(h));
        gradients.q.columns_mut(h * d_k, d_k).copy_from(&of_head.q);
        // Heads that share keys and values share their gradients.
        let mut sum = gradients.k.columns_mut(g * d_k, d_k);
        sum += of_head.k;
        let mut sum = gradients.v.columns_mut(g * d_v, d_v);
        sum += of_head.v;
        for (sum, table) in gradients.tables.iter_mut().zip(of_head.tables) {
            *sum += table;
        }
    }
    Ok(gradients)
}
