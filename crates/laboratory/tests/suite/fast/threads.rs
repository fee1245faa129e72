//! The same bits with any number of threads, forward and backward.

use crate::support::{Answer, Problem, random};
use attention::engine::{Engine, Factor};
use attention::{
    AttentionGradients, ForwardOptions, Mask, MultiHeadAttention, ScoreRule,
    score_rule::DistanceBuckets,
};
use fast::Flash;
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Every entry as bits, since a NaN equals nothing.
fn bits((forward, gradients): &Answer<f32>) -> Vec<u32> {
    let AttentionGradients { q, k, v, tables } = gradients;
    let all = [&forward.output, &forward.log_sum_exp, &forward.log_sum_exp_low, q, k, v];
    all.into_iter().chain(tables).flatten().map(|x| x.to_bits()).collect()
}

/// Without the feature `rayon` there is one.
fn on_threads(threads: usize) -> Flash {
    let threads = if cfg!(feature = "rayon") { threads } else { 1 };
    Flash::new().with_threads(threads).unwrap()
}

/// Heads with keys of their own, one head, whose last row can be a block of its own, a rule with a table, and shared keys, whose
/// gradients are added in one order.
#[test]
fn the_same_bits_with_any_number_of_threads() {
    let buckets = DistanceBuckets::t5(8, 20).unwrap();
    let table = ScoreRule::table(&random(8, 2, 40), buckets).unwrap();
    for (lengths, heads, mask) in [
        ((700, 700), (3, 3), Mask::causal()),
        ((300, 1100), (3, 3), Mask::none()),
        ((40, 60), (3, 3), Mask::causal()),
        ((481, 481), (1, 1), Mask::causal()),
        ((700, 700), (2, 2), Mask::causal().with_scores(table)),
        ((700, 700), (8, 2), Mask::causal()),
        ((1, 5000), (8, 2), Mask::causal()),
    ] {
        let problem = Problem::new(lengths, (16, 16), heads, mask);
        for poison in [false, true] {
            let mut data = problem.data::<f32>(1.0);
            if poison {
                data.v[(0, 0)] = f32::NAN;
            }
            let run = |flash: &Flash| bits(&problem.by(flash, &data));
            let one = run(&on_threads(1));
            for threads in 2..=5 {
                let same = run(&on_threads(threads)) == one;
                assert!(same, "{lengths:?}: {threads} threads give other bits");
            }
            let same = run(&Flash::new()) == one;
            assert!(same, "{lengths:?}: as many threads as there are give other bits");
        }
    }
}

/// Of a layer with dropout, and of the products of its projections.
#[test]
fn the_same_bits_of_layers_and_products_with_any_number_of_threads() {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer = MultiHeadAttention::<f64>::xavier(32, 2, rng).unwrap();
    let x = random(400, 32, 1);
    let options = ForwardOptions::new().mask(Mask::causal()).dropout(0.3, rng);
    let run = |threads| {
        let engine = on_threads(threads);
        let product = engine.product(Factor::transposed(&x), Factor::of(&x), None);
        let options = options.clone().engine(engine);
        let (output, cache) = layer.forward(&x, options).unwrap();
        (layer.backward(&cache, &output).unwrap(), output, product)
    };
    let one = run(1);
    assert!((2..=3).all(|threads| run(threads) == one));
}
