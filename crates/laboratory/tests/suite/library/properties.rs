//! Properties of attention that hold for any input, whatever its numbers are.

use crate::support::{Layer, mask, masks, options, parameters, random};
use approx::assert_abs_diff_eq; // a NaN is far from everything
use attention::{
    BatchGradients, Float, ForwardOptions, Mask, MultiHeadAttention, Parameters,
    SingleHeadAttention, attention, attention_weights, scaled_scores,
    softmax::{
        log_sum_exp, log_sum_exp_rows, softmax, softmax_rows, softmax_rows_backward,
    },
};
use nalgebra::{DMatrix, DVector};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// The same cases in every run, and no file of those that failed.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        rng_seed: RngSeed::Fixed(2017),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

// ---------------------------------------------------------------------------------------------------- material

/// Some queries, keys and values, and a mask over them.
#[derive(Debug, Clone)]
struct Problem {
    q: DMatrix<f64>,
    k: DMatrix<f64>,
    v: DMatrix<f64>,
    mask: Mask,
}

prop_compose! {
    fn problems()(
        (n_q, n_k, d_k, d_v) in (1..8_usize, 1..8_usize, 1..6_usize, 1..6_usize),
        size in prop_oneof![Just(1.0), Just(10.0), Just(100.0)],
        seed in any::<u32>(),
    ) -> Problem {
        let seed = seed.into();
        let (mask, _) = mask(&mut ChaCha8Rng::seed_from_u64(seed), (n_q, n_k));
        Problem {
            q: size * random(n_q, d_k, seed),
            k: size * random(n_k, d_k, seed + 1),
            v: size * random(n_k, d_v, seed + 2),
            mask,
        }
    }
}

fn is_finite(matrix: &DMatrix<f64>) -> bool {
    matrix.iter().all(|x| x.is_finite())
}

fn bits(matrix: &DMatrix<f64>) -> Vec<u64> {
    matrix.iter().map(|x| x.to_bits()).collect()
}

fn single_head(seed: u64) -> SingleHeadAttention<f64> {
    SingleHeadAttention::from(parameters(6, 4, 3, seed))
}

fn multi_head(seed: u64) -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(6, 6, 6, seed), 3).unwrap()
}

// ---------------------------------------------------------------------------------------------------- weights

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_weights_of_a_query_are_shares_of_one_and_zero_where_hidden(problem in problems()) {
        let Problem { q, k, v, mask } = problem;
        let sized = mask.sized(q.nrows(), k.nrows()).unwrap();
        let (output, cache) = attention(&q, &k, &v, &mask).unwrap();
        for i in 0..q.nrows() {
            let weights = cache.weights.row(i);
            prop_assert!(weights.iter().all(|p| (0.0..=1.0).contains(p)));
            for j in (0..k.nrows()).filter(|&j| !sized.allows(i, j)) {
                prop_assert_eq!(weights[j], 0.0);
            }
            if (0..k.nrows()).any(|j| sized.allows(i, j)) {
                prop_assert!((weights.sum() - 1.0).abs() < 1e-12);
                prop_assert!(cache.log_sum_exp[i].is_finite());
            } else {
                prop_assert_eq!(weights.sum(), 0.0);
                prop_assert_eq!(cache.log_sum_exp[i], f64::NEG_INFINITY);
                prop_assert!(output.row(i).iter().all(|&x| x == 0.0));
            }
        }
    }

    /// exp(score − log-sum-exp) is the weight.
    #[test]
    fn the_log_sum_exp_and_the_scores_give_the_weights_back(problem in problems()) {
        let Problem { q, k, mask, .. } = problem;
        let (weights, lse) = attention_weights(&q, &k, &mask).unwrap();
        let scores = scaled_scores(&q, &k).unwrap();
        let sized = mask.sized(q.nrows(), k.nrows()).unwrap();
        for (i, j) in (0..q.nrows()).flat_map(|i| (0..k.nrows()).map(move |j| (i, j))) {
            if sized.allows(i, j) {
                let again = (scores[(i, j)] - lse[i]).exp();
                prop_assert!((weights[(i, j)] - again).abs() < 1e-10); // of scores up to 50 000
            }
        }
    }

    #[test]
    fn softmax_does_not_change_when_all_scores_move(
        n in 1..10_usize, seed in any::<u32>(), constant in -1e3..1e3_f64,
    ) {
        let x = DVector::from_column_slice((10.0 * random(n, 1, seed.into())).as_slice());
        let moved = softmax(&x.add_scalar(constant)).unwrap();
        assert_abs_diff_eq!(softmax(&x).unwrap(), moved, epsilon = 1e-12);
        let lse = log_sum_exp(&x.add_scalar(constant)).unwrap();
        prop_assert!((log_sum_exp(&x).unwrap() + constant - lse).abs() < 1e-12 * (10.0 + constant.abs()));
    }

    #[test]
    fn the_softmax_of_a_matrix_is_that_of_its_rows_to_the_bit(problem in problems()) {
        let Problem { q, k, mask, .. } = problem;
        let scores = scaled_scores(&q, &k).unwrap();
        let scores = mask.sized(q.nrows(), k.nrows()).unwrap().apply(scores).unwrap();
        let (weights, lse) = (softmax_rows(&scores).unwrap(), log_sum_exp_rows(&scores).unwrap());
        for (i, row) in scores.row_iter().enumerate() {
            let row = row.transpose();
            prop_assert_eq!(weights.row(i).transpose(), softmax(&row).unwrap());
            prop_assert_eq!(lse[i].to_bits(), log_sum_exp(&row).unwrap().to_bits());
        }
    }
}

// ---------------------------------------------------------------------------------------------------- shapes and batches

/// Each sequence of a batch comes out as it would alone, to the bit; and the parameters' gradients are the sum.
#[test]
fn the_members_of_a_batch_do_not_see_one_another() {
    fn check(layer: &impl Layer<f64>) {
        let xs: Vec<_> = [5, 1, 3, 8].map(|n| random(n, 6, n as u64)).into();
        let masks: Vec<Mask> = [5, 1, 3, 8].map(|n| masks(n, n)[n % 4].1.clone()).into();
        let (outputs, caches) = layer.forward_batch(&xs, masks.clone()).unwrap();
        let BatchGradients { parameters: summed, xs: grad_xs, .. } =
            layer.backward_batch(&caches, &outputs).unwrap();
        let mut each = vec![];
        for b in 0..xs.len() {
            let (output, cache) = layer.forward(&xs[b], &masks[b]).unwrap();
            let gradients = layer.backward(&cache, &output).unwrap();
            assert_eq!(outputs[b], output, "sequence {b}");
            assert_eq!(grad_xs[b], gradients.x, "sequence {b}");
            each.push(gradients.parameters);
        }
        // Pairs, and a pair of pairs.
        let [mut sum, b, mut c, d] = each.try_into().expect("four sequences");
        sum += &b;
        c += &d;
        sum += &c;
        assert_eq!(sum, summed);
    }
    check(&single_head(9));
    check(&multi_head(9));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn multi_head_attention_with_one_head_is_single_head_attention_to_the_bit(
        (n, context_length, d) in (1..7_usize, 1..7_usize, 1..7_usize),
        is_cross in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let seed = seed.into();
        let parameters = parameters(d, d, d, seed);
        let (x, other) = (random(n, d, seed + 1), random(context_length, d, seed + 2));
        let context = is_cross.then_some(&other);
        let n_k = context.map_or(n, DMatrix::nrows);
        let (mask, _) = mask(&mut ChaCha8Rng::seed_from_u64(seed), (n, n_k));
        let one = SingleHeadAttention::from(parameters.clone());
        let multi = MultiHeadAttention::from_parameters(parameters, 1).unwrap();

        let (of_one, cache_of_one) = one.forward(&x, options(context, &mask)).unwrap();
        let (of_multi, cache_of_multi) = multi.forward(&x, options(context, &mask)).unwrap();
        prop_assert_eq!(bits(&of_one), bits(&of_multi));
        let r = random(n, d, seed + 4);
        let d_of_one = one.backward(&cache_of_one, &r).unwrap();
        let d_of_multi = multi.backward(&cache_of_multi, &r).unwrap();
        prop_assert_eq!(d_of_one, d_of_multi);
    }
}

// ---------------------------------------------------------------------------------------------------- large numbers

#[test]
fn scores_over_seven_hundred_stay_finite() {
    let scores = DMatrix::from_row_slice(2, 3, &[710.0, 900.0, -900.0, 5e4, 5e4, 0.0]);
    let weights = softmax_rows(&scores).unwrap();
    assert!(is_finite(&weights));
    assert!(weights.column_sum().iter().all(|sum| (sum - 1.0).abs() < 1e-15));
    assert_eq!(weights[(1, 0)], 0.5);
    let lse = log_sum_exp_rows(&scores).unwrap();
    assert_eq!((lse[0], lse[1]), (900.0, 5e4 + 2.0_f64.ln()));
    assert!(is_finite(&softmax_rows_backward(&weights, &random(2, 3, 11)).unwrap()));
}

// ---------------------------------------------------------------------------------------------------- the same bits

#[test]
fn the_same_seed_gives_the_same_bits_with_any_number_of_threads() {
    let run = || {
        let rng = &mut ChaCha8Rng::seed_from_u64(17);
        let layer = MultiHeadAttention::<f64>::xavier(8, 4, rng).unwrap();
        let xs: Vec<_> = (0..6).map(|b| random(9 + b, 8, b as u64)).collect();
        let (outputs, caches) = layer.forward_batch(&xs, Mask::causal()).unwrap();
        let BatchGradients { parameters, xs: grad_xs, .. } =
            layer.backward_batch(&caches, &outputs).unwrap();
        let dropping = ForwardOptions::new().dropout(0.25, rng);
        let (trained, caches) = layer.forward_batch(&xs, dropping).unwrap();
        let gradients = layer.backward_batch(&caches, &trained).unwrap();
        let of = |parameters: &Parameters<f64>| {
            let named = parameters.named().into_iter();
            named.map(|(_, matrix)| matrix.into_owned()).collect::<Vec<_>>()
        };
        [outputs, grad_xs, of(&parameters), of(&gradients.parameters), trained]
            .concat()
            .iter()
            .map(bits)
            .collect::<Vec<_>>()
    };
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(run)
    };
    let alone = with(1);
    assert_eq!(alone, with(1), "a second run");
    assert_eq!(alone, with(2), "two threads");
    assert_eq!(alone, with(4), "four threads");
}

/// Weights of mean 0 and standard deviation √(2 / (d_in + d_out)), within four of the estimate's own; no bias.
#[test]
fn fresh_parameters_have_the_spread_that_xavier_asks_for() {
    let parameters =
        Parameters::<f64>::xavier(96, 64, 32, &mut ChaCha8Rng::seed_from_u64(19))
            .unwrap();
    for (name, matrix) in parameters.named() {
        if name.starts_with('b') {
            assert!(matrix.iter().all(|&b| b == 0.0), "{name}");
            continue;
        }
        let deviation = (2.0 / (matrix.nrows() + matrix.ncols()) as f64).sqrt();
        let n = matrix.len() as f64;
        assert!(
            matrix.mean().abs() < 4.0 * deviation / n.sqrt(),
            "{name}: {}",
            matrix.mean()
        );
        let measured = (matrix.norm_squared() / n).sqrt();
        assert!(
            (measured / deviation - 1.0).abs() < 4.0 / (2.0 * n).sqrt(),
            "{name}: {measured}"
        );
    }
}

/// Numbers that may not change without a reason: a layer from seed 0, on a fixed input.
#[test]
fn the_numbers_of_a_seeded_layer_are_these() {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, rng).unwrap();
    let x = DMatrix::from_fn(3, 4, |i, j| (i as f64 - j as f64) / 4.0);
    let (output, cache) = layer.forward(&x, Mask::causal()).unwrap();
    let d = layer.backward(&cache, &output).unwrap();
    assert_pinned(&layer.parameters.w_q.rows(0, 1).into_owned(), &pinned::W_Q);
    assert_pinned(&output, &pinned::OUTPUT);
    assert_pinned(&cache.attention.weights, &pinned::WEIGHTS);
    assert_pinned(&d.parameters.w_k.rows(0, 1).into_owned(), &pinned::D_W_K);

    let layer = MultiHeadAttention::<f64>::xavier(4, 2, rng).unwrap();
    let (output, _) = layer.forward(&x, Mask::none()).unwrap();
    assert_pinned(&output.rows(0, 1).into_owned(), &pinned::MULTI_HEAD_OUTPUT);
    let (output, _) = layer.forward(&x, ForwardOptions::new().dropout(0.5, rng)).unwrap();
    assert_pinned(&output.rows(0, 1).into_owned(), &pinned::TRAINING_OUTPUT);
}

/// Row by row, to twelve digits after the point.
fn assert_pinned(matrix: &DMatrix<f64>, expected: &[f64]) {
    let rows = matrix.transpose();
    let is_near =
        rows.iter().zip(expected).all(|(x, expected)| (x - expected).abs() < 1e-12);
    assert!(rows.len() == expected.len() && is_near, "{matrix:.12} is not {expected:?}");
}

#[rustfmt::skip]
mod pinned {
    pub const W_Q: [f64; 3] = [0.374144782524, 0.641609606565, 0.572037443757];
    pub const OUTPUT: [f64; 12] = [
        -0.2500083053, -0.698475156876, -0.067507388428, -0.039342739183,
        -0.297889396473, -0.514249530299, -0.056351711582, -0.04602310888,
        -0.351445029437, -0.308190733439, -0.04387393967, -0.053495190631,
    ];
    pub const WEIGHTS: [f64; 9] = [
        1.0, 0.0, 0.0,
        0.515869110499, 0.484130889501, 0.0,
        0.320596662546, 0.33316899036, 0.346234347094,
    ];
    pub const D_W_K: [f64; 3] = [-0.005327349359, 0.000107719698, 0.002722140674];
    pub const MULTI_HEAD_OUTPUT: [f64; 4] = [0.184297627591, 0.031936968668, -0.248144705184, 0.10115314865];
    pub const TRAINING_OUTPUT: [f64; 4] = [0.550783589292, 0.152656335988, -0.174452034902, 0.067043286883];
}

// ---------------------------------------------------------------------------------------------------- precision

/// Both precisions draw the same numbers, so that a layer can be checked in one and timed in the other.
#[test]
fn both_precisions_draw_the_same_parameters() {
    fn draw<T: Float>() -> Parameters<T> {
        Parameters::xavier(5, 4, 3, &mut ChaCha8Rng::seed_from_u64(23)).unwrap()
    }
    let (single, double) = (draw::<f32>(), draw::<f64>());
    for ((name, single), (_, double)) in single.named().iter().zip(double.named()) {
        assert_eq!(*single, double.map(|x| x as f32), "{name}");
    }
}

// ---------------------------------------------------------------------------------------------------- dropout

#[test]
fn dropout_keeps_the_expected_weight() {
    let (p, n) = (0.3, 64);
    let layer = multi_head(24);
    let x = random(n, 6, 25);
    let rng = &mut ChaCha8Rng::seed_from_u64(26);
    let (mut dropped, mut sums, mut draws, mut rows) = (0, 0.0, 0, 0);
    for _ in 0..10 {
        let dropping = ForwardOptions::new().dropout(p, rng);
        let (_, cache) = layer.forward(&x, dropping).unwrap();
        for head in cache.heads() {
            let factors = head.dropout.as_ref().expect("dropout is on");
            assert!(
                factors.iter().all(|&factor| factor == 0.0 || factor == 1.0 / (1.0 - p))
            );
            dropped += factors.iter().filter(|&&factor| factor == 0.0).count();
            draws += factors.len();
            assert!(
                head.weights.column_sum().iter().all(|sum| (sum - 1.0).abs() < 1e-12)
            );
            let used = head.weights_used().unwrap();
            assert_eq!(*used, head.weights.component_mul(factors));
            sums += used.sum();
            rows += n;
        }
        let [a, b] = [0, 1].map(|h| cache.heads()[h].dropout.clone());
        assert_ne!(a, b, "two heads drop the same weights");
    }
    // 122 880 draws: the share has a standard deviation of 0.0013, the mean of 1920 row sums one of about 0.002.
    let share = dropped as f64 / draws as f64;
    assert!((share - p).abs() < 0.006, "{share} were dropped");
    assert!(
        (sums / rows as f64 - 1.0).abs() < 0.01,
        "rows sum to {}",
        sums / rows as f64
    );
}

#[test]
fn dropout_is_for_training_only() {
    let x = random(5, 6, 27);
    let layer = multi_head(28);
    let (output, cache) = layer.forward(&x, Mask::causal()).unwrap();
    assert!(cache.heads().iter().all(|head| head.dropout.is_none()));

    let run = |p| {
        let options = ForwardOptions::from(Mask::causal());
        let rng = &mut ChaCha8Rng::seed_from_u64(29);
        layer.forward(&x, options.dropout(p, rng)).unwrap()
    };
    assert_ne!(run(0.5).0, output);
    let (undropped, cache) = run(0.0);
    assert_eq!(undropped, output, "with p = 0 training changes nothing");
    assert!(cache.heads().iter().all(|head| head.dropout.is_none()));
}
