//! The answers to the experiments that the page proposes.

use attention::{
    ForwardOptions, Mask, MultiHeadAttention, Rotary, ScoreRule, example,
    linear_backward,
    positions::{RotaryPairs, sinusoidal_positions},
    softmax::softmax_rows_backward,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

fn layer(heads: usize) -> MultiHeadAttention<f64> {
    MultiHeadAttention::xavier(4, heads, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()
}

fn gradient_of_output() -> DMatrix<f64> {
    DMatrix::from_fn(6, 4, |i, j| ((1 + i + 2 * j) as f64).cos())
}

#[test]
fn equal_tokens_get_equal_weights() {
    let x = DMatrix::from_fn(3, 4, |_, j| example::river().x[(5, j)]);
    let (_, cache) = layer(2).forward(&x, Mask::none()).unwrap();
    assert!(
        cache.heads()[0].weights.iter().all(|weight| (weight - 1.0 / 3.0).abs() < 1e-15)
    );
    let (_, cache) = layer(2).forward(&x, Mask::causal()).unwrap();
    let second = cache.heads()[0].weights.row(1).into_owned();
    assert_eq!([second[0], second[1], second[2]], [0.5, 0.5, 0.0]);
}

#[test]
fn a_single_token_has_no_gradient_through_its_score() {
    let x = example::river().x.rows(5, 1).into_owned();
    let layer = layer(2);
    let (output, cache) = layer.forward(&x, Mask::none()).unwrap();
    assert_eq!(cache.heads()[0].weights[0], 1.0);
    let gradients = layer.backward(&cache, &output).unwrap().parameters;
    assert_eq!(gradients.w_q.amax().max(gradients.w_k.amax()), 0.0);
}

#[test]
fn the_bias_of_the_keys_has_no_gradient() {
    for heads in [1, 2, 4] {
        let layer = layer(heads);
        let (_, cache) = layer.forward(&example::river().x, Mask::causal()).unwrap();
        let gradients = layer.backward(&cache, &gradient_of_output()).unwrap().parameters;
        assert!(gradients.b_k.amax() < 1e-15 && gradients.b_q.amax() > 1e-6);
    }
}

#[test]
fn with_dropout_rows_sum_to_one_only_on_average() {
    let (layer, x) = (layer(1), example::river().x);
    let sums = |seed| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let options = ForwardOptions::new().dropout(0.5, &mut rng);
        let (_, cache) = layer.forward(&x, options).unwrap();
        cache.heads()[0].weights_used().unwrap().column_sum()
    };
    assert!((sums(1).add_scalar(-1.0)).amax() > 0.1);
    let draws = 10_000;
    let mean = (0..draws).map(sums).sum::<nalgebra::DVector<f64>>() / draws as f64;
    assert!(mean.add_scalar(-1.0).amax() < 0.05, "{mean}");
}

#[test]
fn in_heads_of_width_one_queries_of_one_sign_agree_on_the_order_of_the_keys() {
    let (_, cache) = layer(4).forward(&example::river().x, Mask::none()).unwrap();
    for head in cache.heads() {
        for i in 0..6 {
            let along = (head.q[i] * (head.k[1] - head.k[5])).signum();
            let order = (head.weights[(i, 1)] - head.weights[(i, 5)]).signum();
            assert_eq!(along, order);
        }
    }
}

#[test]
fn with_four_heads_only_bank_in_the_second_turns_the_order_round() {
    let (_, cache) = layer(4).forward(&example::river().x, Mask::none()).unwrap();
    let signs: Vec<Vec<bool>> = cache
        .heads()
        .iter()
        .map(|head| head.q.iter().map(|query| *query > 0.0).collect())
        .collect();
    assert_eq!(signs[1], [false, false, false, false, false, true]);
    for others in [&signs[0], &signs[2], &signs[3]] {
        assert!(others.iter().all(|sign| *sign == others[0]));
    }
}

#[test]
fn a_large_factor_starves_the_row_of_left_and_not_those_of_the() {
    let mut layer = layer(2);
    layer.parameters.w_q *= 5.0;
    let x = example::river().x;
    let (_, cache) = layer.forward(&x, Mask::none()).unwrap();
    let head = &cache.heads()[0];
    let w_o = &layer.parameters.w_o;
    let (grad_attended, ..) = linear_backward(&x, w_o, &gradient_of_output()).unwrap();
    let grad_weights = grad_attended.columns(0, 2) * head.v.transpose();
    let grad_scores = softmax_rows_backward(&head.weights, &grad_weights).unwrap();
    let largest = |token: usize| grad_scores.row(token).amax();
    assert!(head.weights.row(2).max() > 0.99 && largest(2) < 0.005, "{grad_scores:.3}");
    assert!([0, 3].iter().all(|the| largest(*the) > 0.05), "{grad_scores:.3}");
}

/// How far the weights of the two “the” are from one another, in the first head.
fn between_the_two_the(
    layer: &MultiHeadAttention<f64>,
    x: &DMatrix<f64>,
    mask: Mask,
) -> f64 {
    let (_, cache) = layer.forward(x, mask).unwrap();
    let weights = &cache.heads()[0].weights;
    (weights.row(0) - weights.row(3)).amax()
}

#[test]
fn each_kind_of_positions_parts_the_two_the() {
    let (plain, x) = (layer(2), example::river().x);
    assert_eq!(between_the_two_the(&plain, &x, Mask::none()), 0.0);
    let waves = &x + sinusoidal_positions::<f64>(6, 4).unwrap();
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves).unwrap();
    let turning = plain.clone().with_rotary(rotary).unwrap();
    let bias = Mask::none().with_scores(ScoreRule::alibi(2).unwrap());
    for apart in [
        between_the_two_the(&plain, &waves, Mask::none()),
        between_the_two_the(&turning, &x, Mask::none()),
        between_the_two_the(&plain, &x, bias),
    ] {
        assert!(apart > 0.01, "{apart}");
    }
}

#[test]
fn heads_that_share_keys_and_values_have_queries_weights_and_outputs_of_their_own() {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let layer = MultiHeadAttention::<f64>::xavier_grouped(4, 4, 1, rng).unwrap();
    let (_, cache) = layer.forward(&example::river().x, Mask::none()).unwrap();
    let heads = cache.heads();
    let (first, others) = heads.split_first().unwrap();
    for other in others {
        assert!(other.k == first.k && other.v == first.v);
        assert!(other.q != first.q && other.weights != first.weights);
    }
}
