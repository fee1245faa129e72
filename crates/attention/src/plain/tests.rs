//! The checks that travel with the folder: every gradient is measured, and every second way gives what the first gave.

use super::*;

/// Numbers that look random: the fractional parts of multiples of an irrational number, as normal as a sum of four makes them.
fn numbers() -> impl FnMut() -> f64 {
    let mut n = 0.0_f64;
    move || {
        n += 1.0;
        (1..=4)
            .map(|c| (n * 0.754_877_666 * f64::from(c).sqrt()).fract() - 0.5)
            .sum::<f64>()
            * 1.7
    }
}

fn far_apart(a: &Matrix, b: &Matrix) -> f64 {
    (a - b).amax()
}

#[test]
fn gradients_are_those_that_are_measured() {
    let model = Model::new([5, 4, 2, 2], &mut numbers());
    let text = [0, 3, 1, 3, 4, 2, 2];
    let (_, mut gradients) = model.loss_and_gradients(&text);
    for (at, gradient) in gradients.matrices().into_iter().enumerate() {
        let loss = |moved: &Matrix| {
            let mut model = model.clone();
            *model.matrices()[at] = moved.clone();
            model.loss_and_gradients(&text).0
        };
        let measured = numerical_gradient(loss, &*model.clone().matrices()[at]);
        assert!(far_apart(&measured, gradient) < 1e-8, "matrix {at}");
    }
}

#[test]
fn tiles_change_nothing() {
    let mut draw = numbers();
    let [q, k, v, grad] = [3, 3, 2, 2].map(|d| Matrix::from_fn(7, d, |_, _| draw()));
    let (output, weights) = attention(&q, &k, &v, window(3));
    let gradients = attention_backward(&q, &k, &v, &weights, &grad);
    for tile in 1..9 {
        let (by_tiles, lse) = tiled([&q, &k, &v], window(3), tile);
        assert!(far_apart(&by_tiles, &output) < 1e-14);
        let forward = (&by_tiles, &lse);
        let tiles = tiled_backward([&q, &k, &v], forward, &grad, window(3), tile);
        assert!(tiles.iter().zip(&gradients).all(|(a, b)| far_apart(a, b) < 1e-14));
    }
}

#[test]
fn token_by_token_is_all_at_once() {
    let model = Model::new([5, 4, 2, 2], &mut numbers());
    let mut caches: Vec<_> = model.blocks.iter().map(|b| Cache::new(&b.heads)).collect();
    let steps = [2, 0, 1].map(|token| model.step(token, &mut caches));
    let at_once = model.forward(&[2, 0, 1]).0;
    assert!((at_once.row(2) - steps[2].row(0)).amax() < 1e-14);
}

#[test]
fn a_model_learns_a_line_by_heart() {
    let mut model = Model::new([5, 8, 1, 2], &mut numbers());
    let (text, mut adam) = ([0, 3, 1, 3, 4, 2, 2, 0], Adam::new(0.02));
    for _ in 0..150 {
        let (_, mut gradients) = model.loss_and_gradients(&text);
        adam.step(model.matrices(), gradients.matrices());
    }
    assert!(model.loss_and_gradients(&text).0 < 0.02);
}
