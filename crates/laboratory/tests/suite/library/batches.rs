//! Batches: options for all sequences or for each, dropout, and sums that lose no digits.

use crate::support::{Layer, blame, parameters, random};
use attention::{
    ForwardOptions, Mask, MultiHeadAttention, MultiHeadCache, Parameters, Result,
    SingleHeadAttention,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(6, 6, 6, 0), 2).unwrap()
}

fn dropping(seed: u64) -> ForwardOptions<'static, f64> {
    ForwardOptions::new().dropout(0.5, &mut ChaCha8Rng::seed_from_u64(seed))
}

#[test]
fn options_hold_for_all_sequences_or_for_each() -> Result<()> {
    fn check<L: Layer<f64>>(layer: &L) -> Result<()> {
        let xs = [random(4, 6, 1), random(2, 6, 2), random(5, 6, 3)];
        let contexts = [random(3, 6, 4), random(6, 6, 5), random(1, 6, 6)];
        let masks = vec![Mask::causal(), Mask::padding(&[true, false])?, Mask::none()];
        let same = layer.forward_batch(&xs, Mask::causal())?.0;
        let each = layer.forward_batch(&xs, masks.clone())?.0;
        let across =
            contexts.iter().map(|context| ForwardOptions::new().context(context));
        let across = layer.forward_batch(&xs, across.collect::<Vec<_>>())?.0;
        for (b, x) in xs.iter().enumerate() {
            assert_eq!(same[b], layer.forward(x, Mask::causal())?.0);
            assert_eq!(each[b], layer.forward(x, &masks[b])?.0);
            let alone = ForwardOptions::new().context(&contexts[b]);
            assert_eq!(across[b], layer.forward(x, alone)?.0);
        }
        let two =
            layer.forward_batch(&xs, vec![Mask::none(); 2]).map(|(outputs, _)| outputs);
        assert_eq!(blame(&two.unwrap_err()), "Shape options");
        Ok(())
    }
    check(&SingleHeadAttention::from(parameters(6, 4, 3, 0)))?;
    check(&multi_head())
}

fn dropped(cache: &MultiHeadCache<f64>) -> Vec<DMatrix<f64>> {
    cache.heads().into_iter().map(|head| head.dropout.unwrap()).collect()
}

#[test]
fn every_sequence_drops_weights_of_its_own_and_the_same_in_every_run() -> Result<()> {
    let (layer, x) = (multi_head(), random(8, 6, 7));
    let xs = vec![x.clone(); 4];
    let run = |options: ForwardOptions<'static, f64>| layer.forward_batch(&xs, options);
    let (outputs, caches) = run(dropping(1))?;
    for (a, b) in (0..4).flat_map(|a| (0..a).map(move |b| (a, b))) {
        assert_ne!(dropped(&caches[a]), dropped(&caches[b]), "sequences {a} and {b}");
    }
    assert_eq!(run(dropping(1))?.0, outputs, "the same seed");
    assert_ne!(run(dropping(2))?.0, outputs, "another seed");
    // Options that are given for each sequence are taken as they are.
    let (outputs, _) = layer.forward_batch(&xs, vec![dropping(1); 4])?;
    assert!(outputs.iter().all(|output| *output == outputs[0]));
    assert_eq!(outputs[0], layer.forward(&x, dropping(1))?.0);
    Ok(())
}

/// In `f32` a running sum of equal gradients is off by a part in a thousand after 200,000 of them.
#[test]
fn the_gradients_of_many_sequences_are_summed_to_the_last_digits() -> Result<()> {
    const B: usize = 100_000;
    let cast = |matrix: &DMatrix<f64>| matrix.map(|x| x as f32);
    let p = parameters(2, 1, 1, 0).without_biases();
    let [w_q, w_k, w_v, w_o] = [&p.w_q, &p.w_k, &p.w_v, &p.w_o].map(cast);
    let none = || nalgebra::RowDVector::zeros(0);
    let (b_q, b_k, b_v, b_o) = (none(), none(), none(), none());
    let layer =
        SingleHeadAttention::from(Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o });
    let x = cast(&random(2, 2, 8));
    let (output, cache) = layer.forward(&x, Mask::none())?;
    let one = layer.backward(&cache, &output)?.parameters;
    let sum = layer.backward_batch(&vec![cache; B], &vec![output; B])?.parameters;
    for ((name, one), (_, sum)) in one.named().into_iter().zip(sum.named()) {
        let right = one.map(|x| f64::from(x) * B as f64);
        let off = (sum.map(f64::from) - &right).amax() / right.amax();
        assert!(off < 2e-6, "{name}: {off:e}");
    }
    Ok(())
}
