//! Rules for scores: slopes that are measured, in layers, and what is refused. The suite of engines holds every engine to the naive one.

use crate::support::{OfThePast, random, score_rules};
use approx::assert_abs_diff_eq;
use attention::{
    ForwardOptions, Mask, MultiHeadAttention, Result, ScoreRule, attention,
    attention_backward, gradient_check, score_rule::DistanceBuckets,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

const HEADS: usize = 2;

/// The naive program against measured slopes; the others are held to it above.
#[test]
fn gradients_through_rules_are_the_measured_slopes() -> Result<()> {
    let (n_q, n_k) = (5, 7);
    let [q, k, v, r] = [(n_q, 4, 10), (n_k, 4, 11), (n_k, 3, 12), (n_q, 3, 13)]
        .map(|(n, d, seed)| random(n, d, seed));
    let mut all = score_rules(HEADS);
    all.push(("of the past".to_owned(), ScoreRule::custom(OfThePast)));
    for (name, rule) in all {
        let mask = Mask::causal().with_scores(rule).of_head(1);
        let (_, cache) = attention(&q, &k, &v, &mask)?;
        let d = attention_backward(&cache, &r)?;
        let loss = |q: &_, k: &_, v: &_| Ok(attention(q, k, v, &mask)?.0.dot(&r));
        for (input, check) in [
            ("q", gradient_check(&q, &d.q, 1e-5, |q| loss(q, &k, &v))?),
            ("k", gradient_check(&k, &d.k, 1e-5, |k| loss(&q, k, &v))?),
            ("v", gradient_check(&v, &d.v, 1e-5, |v| loss(&q, &k, v))?),
        ] {
            assert!(check.max_relative_error < 1e-5, "{name}, {input}: {check:?}");
        }
    }
    Ok(())
}

/// Through a layer: with dropout by tiles as well, and summed over a batch.
#[test]
fn layers_take_rules_for_scores() -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let layer = MultiHeadAttention::<f64>::xavier(8, HEADS, rng)?;
    let (x, grad) = (random(20, 8, 30), random(20, 8, 31));
    let rule = ScoreRule::table(&random(8, HEADS, 32), DistanceBuckets::t5(8, 20)?)?;
    let mask = Mask::causal().with_scores(rule);
    let options = ForwardOptions::new().mask(&mask).dropout(0.3, rng);
    let (output, cache) = layer.forward(&x, options.clone())?;
    let gradients = layer.backward(&cache, &grad)?;
    let (by_tiles, cache) = layer.forward(&x, options.flash())?;
    let gradients_by_tiles = layer.backward(&cache, &grad)?;
    assert_abs_diff_eq!(by_tiles, output, epsilon = 1e-12);
    assert_abs_diff_eq!(gradients_by_tiles.x, gradients.x, epsilon = 1e-12);
    let [given, right] = [gradients_by_tiles, gradients].map(|mut g| g.tables.remove(0));
    assert_abs_diff_eq!(given, right, epsilon = 1e-12);

    let [xs, grads] = [x, grad].map(|x| [x.rows(0, 7).into_owned(), x]);
    let (_, caches) = layer.forward_batch(&xs, &mask)?;
    let of_batch = layer.backward_batch(&caches, &grads)?;
    let mut sum = DMatrix::zeros(8, HEADS);
    for (cache, grad) in caches.iter().zip(&grads) {
        sum += &layer.backward(cache, grad)?.tables[0];
    }
    assert_abs_diff_eq!(of_batch.tables[0], sum, epsilon = 1e-12);
    Ok(())
}

#[test]
fn wrong_rules_are_refused() -> Result<()> {
    let x = DMatrix::<f64>::zeros(4, 6);
    let alibi = Mask::from(ScoreRule::alibi(3)?);
    let layer =
        MultiHeadAttention::<f64>::xavier(6, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    for (error, sentence) in [
        (
            attention(&x, &x, &x, &alibi).unwrap_err(),
            "`slopes` has 3 heads but n_heads = 1",
        ),
        (layer.forward(&x, &alibi).unwrap_err(), "`slopes` has 3 heads but n_heads = 2"),
        (
            layer.forward(&x, ForwardOptions::new().mask(&alibi).flash()).unwrap_err(),
            "`slopes` has 3 heads but n_heads = 2",
        ),
        (
            attention(&x, &x, &x, alibi.clone().of_head(3)).unwrap_err(),
            "`head` is 3 but `slopes` has 3 heads",
        ),
        (
            ScoreRule::soft_cap(0.0).unwrap_err(),
            "`cap` is 0 but it must be positive and finite",
        ),
        (
            DistanceBuckets::t5(6, 9).unwrap_err(),
            "`count` is 6 but it must be a multiple of 4",
        ),
        (
            DistanceBuckets::t5(32, 8).unwrap_err(),
            "`furthest` is 8 but it must be from 9 to 1048576",
        ),
    ] {
        assert_eq!(error.to_string(), sentence);
    }
    Ok(())
}
