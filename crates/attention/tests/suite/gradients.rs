//! Every gradient against the slope that is measured: by every parameter and every input, under every mask.

use crate::support::{Layer, blame, masks, options, parameters, random};
use attention::{
    AttentionCache, BatchGradients, ForwardOptions, LayerGradients, Mask,
    MultiHeadAttention, NamedParameters, Result, SingleHeadAttention, attention,
    attention_backward,
    gradient_check::{GradientCheck, gradient_check, gradient_check_parameters},
    softmax::{softmax, softmax_backward, softmax_rows, softmax_rows_backward},
};
use nalgebra::{DMatrix, DVector, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};

const EPSILON: f64 = 1e-5;
const TOLERANCE: f64 = 1e-5;

fn assert_agrees(check: GradientCheck<f64>, what: &str) {
    assert!(check.max_relative_error < TOLERANCE, "{what}: {check:?}");
}

// ---------------------------------------------------------------------------------------------------- softmax

#[test]
fn of_softmax() {
    let (x, r) = (3.0 * random(7, 1, 0), random(7, 1, 1));
    let vector = |x: &DMatrix<f64>| DVector::from_column_slice(x.as_slice());
    let grad_x = softmax_backward(&softmax(&vector(&x)).unwrap(), &vector(&r)).unwrap();
    let grad_x = DMatrix::from_column_slice(7, 1, grad_x.as_slice());
    let check = gradient_check(&x, &grad_x, EPSILON, |x| {
        Ok(softmax(&vector(x))?.dot(&vector(&r)))
    })
    .unwrap();
    assert_agrees(check, "softmax");
}

#[test]
fn of_the_softmax_of_rows() {
    let (scores, r) = (3.0 * random(4, 6, 2), random(4, 6, 3));
    let weights = softmax_rows(&scores).unwrap();
    let grad_scores = softmax_rows_backward(&weights, &r).unwrap();
    let check =
        gradient_check(&scores, &grad_scores, EPSILON, |s| Ok(softmax_rows(s)?.dot(&r)))
            .unwrap();
    assert_agrees(check, "softmax_rows");
}

// ---------------------------------------------------------------------------------------------------- attention

/// The sum over a tile in the place of D is right as long as there is one tile.
#[test]
fn with_d_summed_over_a_tile_alone_the_check_fails() {
    let (q, k, v, r) =
        (random(4, 4, 90), random(6, 4, 91), random(6, 3, 92), random(4, 3, 93));
    let (_, cache) = attention(&q, &k, &v, Mask::none()).unwrap();
    let grad_weights = &r * v.transpose();
    let grad_q = |width: usize| {
        let mut grad_q = DMatrix::zeros(4, 4);
        for start in (0..6).step_by(width) {
            let weights = cache.weights.columns(start, width);
            let grads = grad_weights.columns(start, width);
            let d = grads.component_mul(&weights).column_sum();
            let grads = DMatrix::from_fn(4, width, |i, j| {
                weights[(i, j)] * (grads[(i, j)] - d[i])
            });
            grad_q += grads / 2.0 * k.rows(start, width); // √d_k = 2
        }
        grad_q
    };
    let loss = |q: &_| Ok(attention(q, &k, &v, Mask::none())?.0.dot(&r));
    let one_tile = gradient_check(&q, &grad_q(6), EPSILON, loss).unwrap();
    assert_agrees(one_tile, "one tile");
    assert_fails(gradient_check(&q, &grad_q(3), EPSILON, loss), "two tiles");
}

// ---------------------------------------------------------------------------------------------------- layers

#[test]
fn of_the_single_head_layer() {
    let layer = SingleHeadAttention::from(parameters(6, 4, 3, 20));
    check_under_every_mask(&layer, |o| o);
}

#[test]
fn of_the_multi_head_layer_with_one_two_and_four_heads() {
    for n_heads in [1, 2, 4] {
        let layer = MultiHeadAttention::from_parameters(parameters(8, 8, 8, 21), n_heads)
            .unwrap();
        check_under_every_mask(&layer, |o| o);
    }
}

/// With d_model = 8 and two heads a share is 4; these have d_k = 3 and d_v = 5.
#[test]
fn of_heads_that_are_wider_or_narrower_than_their_share() {
    let layer = MultiHeadAttention::from_parameters(parameters(8, 6, 10, 27), 2).unwrap();
    check_under_every_mask(&layer, |o| o);
}

#[test]
fn of_layers_without_biases() {
    let without = |d_k, d_v| parameters(6, d_k, d_v, 28).without_biases();
    check_under_every_mask(&SingleHeadAttention::from(without(4, 3)), |o| o);
    let layer = MultiHeadAttention::from_parameters(without(4, 6), 2).unwrap();
    check_under_every_mask(&layer, |o| o);

    // The same as with biases of zero; and a layer may have some of them.
    let mut zeros = layer.clone();
    zeros.parameters.b_q = RowDVector::zeros(4);
    let x = random(5, 6, 29);
    let run =
        |layer: &MultiHeadAttention<f64>| layer.forward(&x, Mask::causal()).unwrap();
    assert_eq!(run(&layer).0, run(&zeros).0);
    check_under_every_mask(&zeros, |o| o);
}

#[test]
fn of_the_multi_head_layer_in_training_where_weights_are_dropped() {
    let layer = MultiHeadAttention::from_parameters(parameters(8, 8, 8, 22), 2).unwrap();
    check_under_every_mask(&layer, DROPPING);

    let (_, cache) =
        layer.forward(&random(5, 8, 30), DROPPING(ForwardOptions::new())).unwrap();
    let dropped = |head: &AttentionCache<f64>| {
        head.dropout
            .as_ref()
            .is_some_and(|factors| factors.iter().any(|&factor| factor == 0.0))
    };
    assert!(
        cache.heads().iter().all(dropped),
        "nothing was dropped, so nothing was checked"
    );
}

/// The gradients of a batch's summed loss.
#[test]
fn of_a_batch_whose_sequences_differ_in_length() {
    fn check<L: Layer<f64>>(layer: &L, d_model: usize) {
        let xs = [random(4, d_model, 40), random(2, d_model, 41), random(5, d_model, 42)];
        let rs = [random(4, d_model, 46), random(2, d_model, 47), random(5, d_model, 48)];
        let masks = vec![Mask::causal(), Mask::none(), Mask::window(2).unwrap()];
        let (here, caches) = layer.forward_batch(&xs, masks.clone()).unwrap();
        let BatchGradients { parameters: grad_parameters, xs: grad_xs, .. } =
            layer.backward_batch(&caches, &rs).unwrap();
        let loss = |layer: &L, xs: &[DMatrix<f64>]| {
            let (outputs, _) = layer.forward_batch(xs, masks.clone())?;
            Ok((0..3).map(|b| (&outputs[b] - &here[b]).dot(&rs[b])).sum())
        };
        check_parameters(layer, &grad_parameters, "a batch", |layer| loss(layer, &xs));
        for (b, grad_x) in grad_xs.iter().enumerate() {
            let check = gradient_check(&xs[b], grad_x, EPSILON, |x| {
                let mut xs = xs.clone();
                xs[b].copy_from(x);
                loss(layer, &xs)
            });
            assert_agrees(check.unwrap(), &format!("sequence {b} of a batch"));
        }
    }
    check(&SingleHeadAttention::from(parameters(6, 4, 3, 25)), 6);
    check(&MultiHeadAttention::from_parameters(parameters(8, 8, 8, 26), 2).unwrap(), 8);
}

/// The options that every run of a layer has besides its mask and context.
type Configure = for<'a> fn(ForwardOptions<'a, f64>) -> ForwardOptions<'a, f64>;

/// The same weights are dropped in each run, since each begins at the same seed.
const DROPPING: Configure =
    |options| options.dropout(0.3, &mut ChaCha8Rng::seed_from_u64(5));

/// Self-attention on four tokens and on one, and cross-attention with fewer and with more queries than keys.
fn check_under_every_mask<L: Layer<f64>>(layer: &L, configure: Configure) {
    let d_model = layer.parameters().d_model();
    for (n_q, n_k, is_cross) in [(4, 4, false), (1, 1, false), (2, 4, true), (4, 2, true)]
    {
        let x = 2.0 * random(n_q, d_model, 30);
        let context = is_cross.then(|| 2.0 * random(n_k, d_model, 31));
        for (kind, mask) in masks(n_q, n_k) {
            let what = format!("mask {kind}, {n_q} queries, {n_k} keys");
            check_layer(layer, &x, context.as_ref(), &mask, configure, &what);
        }
    }
}

fn check_layer<L: Layer<f64>>(
    layer: &L,
    x: &DMatrix<f64>,
    context: Option<&DMatrix<f64>>,
    mask: &Mask,
    configure: Configure,
    what: &str,
) {
    let r = random(x.nrows(), x.ncols(), 32);
    let run = |layer: &L, x: &_, context: Option<&_>| {
        layer.forward(x, configure(options(context, mask)))
    };
    let (output, cache) = run(layer, x, context).unwrap();
    let gradients = layer.backward(&cache, &r).unwrap();
    // The loss less its value here: the slope is the same, and a small number is rounded less than a large one.
    let value = |layer: &L, x: &_, context: Option<&_>| {
        Ok((run(layer, x, context)?.0 - &output).dot(&r))
    };

    check_parameters(layer, &gradients, what, |layer| value(layer, x, context));
    let by_x = gradient_check(x, &gradients.x, EPSILON, |x| value(layer, x, context));
    assert_agrees(by_x.unwrap(), &format!("x, {what}"));
    assert_eq!(gradients.context.is_some(), context.is_some());
    if let (Some(context), Some(grad_context)) = (context, &gradients.context) {
        let by_context = gradient_check(context, grad_context, EPSILON, |context| {
            value(layer, x, Some(context))
        });
        assert_agrees(by_context.unwrap(), &format!("context, {what}"));
    }
}

fn check_parameters<L: Layer<f64>>(
    layer: &L,
    gradients: &impl NamedParameters<f64>,
    what: &str,
    loss: impl FnMut(&L) -> Result<f64>,
) {
    for (name, check) in
        gradient_check_parameters(layer, gradients, EPSILON, loss).unwrap()
    {
        assert_agrees(check, &format!("{name}, {what}"));
        // The key bias moves all scores of a query by the same amount, which softmax does not see.
        if name == "b_k" {
            assert!(
                check.analytic.abs() < 1e-14 && check.numeric.abs() < 1e-9,
                "{check:?}"
            );
        }
    }
}

// ---------------------------------------------------------------------------------------------------- planted errors

/// Queries, keys and values each carry a gradient into x. Whichever is forgotten, the check sees it.
#[test]
fn without_one_of_the_three_paths_into_x_the_check_fails() {
    let layer = SingleHeadAttention::from(parameters(6, 4, 3, 50));
    let (x, r) = (random(5, 6, 51), random(5, 6, 52));
    let (_, cache) = layer.forward(&x, Mask::none()).unwrap();
    let gradients = layer.backward(&cache, &r).unwrap();
    let p = &layer.parameters;
    let d = attention_backward(&cache.attention, &(&r * p.w_o.transpose())).unwrap();
    let loss = |x: &_| Ok(layer.forward(x, Mask::none())?.0.dot(&r));

    let paths =
        [("queries", &d.q, &p.w_q), ("keys", &d.k, &p.w_k), ("values", &d.v, &p.w_v)];
    for (name, d, w) in paths {
        let without = &gradients.x - d * w.transpose();
        assert_fails(gradient_check(&x, &without, EPSILON, loss), name);
    }
    let all = paths.iter().map(|(_, d, w)| *d * w.transpose()).sum();
    assert_agrees(gradient_check(&x, &all, EPSILON, loss).unwrap(), "all three paths");
}

#[test]
fn with_the_scale_forgotten_the_check_fails() {
    let (q, k, v) = (random(4, 9, 53), random(5, 9, 54), random(5, 3, 55));
    let r = random(4, 3, 56);
    let (_, cache) = attention(&q, &k, &v, Mask::none()).unwrap();
    let d = attention_backward(&cache, &r).unwrap();
    let unscaled = d.q * 9.0_f64.sqrt();
    let loss = |q: &_| Ok(attention(q, &k, &v, Mask::none())?.0.dot(&r));
    assert_fails(gradient_check(&q, &unscaled, EPSILON, loss), "unscaled");
}

fn assert_fails(check: Result<GradientCheck<f64>>, what: &str) {
    let check = check.unwrap();
    assert!(check.max_relative_error > 0.01, "{what} was not caught: {check:?}");
}

/// The gradient of the key bias is zero, and the measured one is rounding: no healthy layer is blamed for that. And each is, if
/// something is wrong with a gradient.
#[test]
fn no_healthy_layer_is_blamed_for_the_rounding_of_its_loss() {
    for seed in 0..50 {
        // Losses from a tenth to thousands.
        let size = 10.0_f64.powi((seed % 5) as i32 - 1);
        let (x, r) = (random(6, 5, 2 * seed), size * random(6, 5, 2 * seed + 1));
        let layer = SingleHeadAttention::from(parameters(5, 4, 3, seed));
        let (_, cache) = layer.forward(&x, Mask::causal()).unwrap();
        let right = layer.backward(&cache, &r).unwrap();
        let check = |gradients: &LayerGradients<f64>| {
            gradient_check_parameters(&layer, gradients, EPSILON, |layer| {
                Ok(layer.forward(&x, Mask::causal())?.0.dot(&r))
            })
            .unwrap()
        };
        for (name, check) in check(&right) {
            assert_agrees(check, &format!("{name} of layer {seed}"));
        }
        // A thousandth too much, in the largest entry; of the key bias, whose gradient is zero, of the loss's size.
        let mut wrong = right.clone();
        for (_, mut gradient) in wrong.named_mut() {
            let (largest, at) = (gradient.amax(), gradient.iamax_full());
            gradient[at] += 1e-3 * largest.max(1e-3 * size);
        }
        for (name, check) in check(&wrong) {
            assert!(check.max_relative_error > 1e-4, "{name} of layer {seed}: {check:?}");
        }
    }
}

/// In `f32` the loss is rounded so much that a wrong gradient could pass: the check refuses, or shows what is wrong.
#[test]
fn no_wrong_gradient_passes_in_single_precision() {
    let (q, k, v, r) =
        (random(6, 8, 63), random(7, 8, 64), random(7, 5, 65), random(6, 5, 66));
    let [q, k, v, r] = [q, k, v, r].map(|matrix| matrix.map(|x| x as f32));
    let (_, cache) = attention(&q, &k, &v, Mask::none()).unwrap();
    let right = attention_backward(&cache, &r).unwrap().q;
    for epsilon in [1e-5, 1e-4, 1e-3, 1e-2, 1e-1] {
        let check = |gradient: &DMatrix<f32>| {
            gradient_check(&q, gradient, epsilon, |q| {
                Ok(attention(q, &k, &v, Mask::none())?.0.dot(&r))
            })
        };
        for factor in [-1.0, 0.99, 1.01] {
            let passes = check(&(&right * factor))
                .is_ok_and(|check| check.max_relative_error < 1e-5);
            assert!(!passes, "a gradient times {factor} passes with a step of {epsilon}");
        }
    }
    let refused = gradient_check(&q, &right, 1e-5, |q| {
        Ok(attention(q, &k, &v, Mask::none())?.0.dot(&r))
    });
    assert_eq!(blame(&refused.unwrap_err()), "Value epsilon");
}
