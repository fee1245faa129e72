//! Heads that share keys and values, and rotary positions: what must be equal is.

use attention::flash::{Flash, FlashOptions, Inputs, Tiles, flash};
use attention::testing::one_problem::{F64, Problem, numbers, off};
use attention::testing::{masks, random};
use attention::{
    ForwardOptions, Mask, MultiHeadAttention, Result, Rotary, RotaryPairs, ScoreRule,
    attention, gradient_check, gradient_check_parameters,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Each head of keys or values, as often as heads of queries share it.
fn repeated(joined: &DMatrix<f64>, kv_heads: usize, heads: usize) -> DMatrix<f64> {
    let d = joined.ncols() / kv_heads;
    let of = |c: usize| (c / d) * kv_heads / heads * d + c % d;
    DMatrix::from_fn(joined.nrows(), heads * d, |i, c| joined[(i, of(c))])
}

/// The sum over the heads that share: the transpose of [`repeated`].
fn summed(joined: &DMatrix<f64>, kv_heads: usize, heads: usize) -> DMatrix<f64> {
    let d = joined.ncols() / heads;
    let mut sum = DMatrix::zeros(joined.nrows(), kv_heads * d);
    for h in 0..heads {
        let mut to = sum.columns_mut(h * kv_heads / heads * d, d);
        to += joined.columns(h * d, d);
    }
    sum
}

#[test]
fn shared_keys_are_repeated_keys() -> Result<()> {
    let tiles = Tiles { queries: 16, keys: 24 };
    for (n_heads, n_kv_heads) in [(4, 1), (4, 2), (6, 3)] {
        for lengths in [(37, 53), (40, 7), (1, 70), (6, 300), (5, 3)] {
            for (kind, mask) in masks(lengths.0, lengths.1) {
                let mask = mask.with_scores(ScoreRule::alibi(n_heads)?);
                let problem =
                    Problem { lengths, widths: (6, 5), n_heads, n_kv_heads, mask };
                let data = problem.data::<f64>(2.0);
                let [k, v] = [&data.k, &data.v].map(|x| repeated(x, n_kv_heads, n_heads));
                let full = Inputs::new(&data.q, &k, &v, &problem.mask)?;
                let (right, grads) = attention::testing::one_problem::naive(
                    &full,
                    &problem.mask,
                    &data.grad_output,
                );
                let flash = Flash::new().with_tiles(tiles)?;
                for (program, (forward, gradients)) in [
                    ("naive", problem.naive(&data)),
                    ("tiled", problem.tiled(&data, tiles)),
                    ("fast", problem.fast(&data, &flash)),
                    ("fast, large tiles", problem.fast(&data, &Flash::new())),
                ] {
                    let offs = [
                        off(&forward.output, &right.output),
                        off(&forward.log_sum_exp, &right.log_sum_exp),
                        off(&gradients.q, &grads.q),
                        off(&gradients.k, &summed(&grads.k, n_kv_heads, n_heads)),
                        off(&gradients.v, &summed(&grads.v, n_kv_heads, n_heads)),
                    ];
                    let worst = offs.iter().copied().fold(0.0, f64::max);
                    assert!(worst < F64, "{kind}, {lengths:?}, {program}: {offs:?}");
                }
            }
        }
    }
    Ok(())
}

/// With gradients, for any number of threads: the sums over a group are added in one order.
#[cfg(feature = "rayon")]
#[test]
fn shared_keys_have_the_same_bits_for_any_threads() -> Result<()> {
    let (widths, mask) = ((16, 16), Mask::causal());
    for lengths in [(700, 700), (1, 5000)] {
        let problem =
            Problem { lengths, widths, n_heads: 8, n_kv_heads: 2, mask: mask.clone() };
        let data = problem.data::<f32>(1.0);
        let of = |threads| Ok(problem.fast(&data, &Flash::new().with_threads(threads)?));
        let (one, two): (_, Result<_>) = (of(1)?, of(2));
        assert_eq!(one, two?);
    }
    Ok(())
}

fn layer(pairs: RotaryPairs) -> Result<MultiHeadAttention<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    MultiHeadAttention::xavier_grouped(16, 4, 2, rng)?
        .with_rotary(Rotary::new(100.0, pairs)?)
}

#[test]
fn gradients_of_a_layer_with_both_are_the_measured_slopes() -> Result<()> {
    let (x, context, r) = (random(5, 16, 1), random(7, 16, 2), random(5, 16, 3));
    let layer = layer(RotaryPairs::Neighbours)?;
    for options in [
        ForwardOptions::new().mask(Mask::causal()),
        ForwardOptions::new().mask(Mask::causal()).flash(),
        ForwardOptions::new().context(&context),
    ] {
        let (_, cache) = layer.forward(&x, options.clone())?;
        let gradients = layer.backward(&cache, &r)?;
        let by_x = gradient_check(&x, &gradients.x, 1e-5, |x| {
            Ok(layer.forward(x, options.clone())?.0.dot(&r))
        })?;
        assert!(by_x.max_relative_error < 1e-5, "{by_x:?}");
        let checks = gradient_check_parameters(&layer, &gradients, 1e-5, |layer| {
            Ok(layer.forward(&x, options.clone())?.0.dot(&r))
        })?;
        for (name, check) in checks {
            assert!(check.max_relative_error < 1e-5, "{name}: {check:?}");
        }
    }
    Ok(())
}

/// Only distances count: all positions later by 1,000, and scores stay. In a head of its own each.
#[test]
fn products_of_turned_rows_depend_on_distances() -> Result<()> {
    let (q, k) = (random(6, 12, 1), random(6, 12, 2));
    for pairs in [RotaryPairs::Neighbours, RotaryPairs::Halves] {
        let rotary = Rotary::new(10_000.0, pairs)?;
        let scores = |first| -> Result<DMatrix<f64>> {
            let (q, k) = (rotary.turn(&q, 2, first)?, rotary.turn(&k, 2, first)?);
            Ok(q.columns(0, 6) * k.columns(0, 6).transpose())
        };
        assert!(off(&scores(1000)?, &scores(0)?) < F64);
        let norms = |x: &DMatrix<f64>| DMatrix::from_fn(6, 1, |i, _| x.row(i).norm());
        assert!(off(&norms(&rotary.turn(&q, 2, 77)?), &norms(&q)) < F64);
    }
    Ok(())
}

/// Weights with reordered columns make of one pairing the other, also with biases and shared keys.
#[test]
fn pairings_can_be_converted() -> Result<()> {
    let x = random(9, 16, 4);
    let mut neighbours = layer(RotaryPairs::Neighbours)?;
    neighbours.parameters.b_q = numbers::<f64>(1, 16, 5).row(0).into_owned();
    let mut halves = layer(RotaryPairs::Halves)?;
    halves.parameters = neighbours.parameters.clone();
    let (expected, _) = neighbours.forward(&x, Mask::causal())?;
    assert!(off(&halves.forward(&x, Mask::causal())?.0, &expected) > 0.01); // runs, and is wrong
    let reorder = |w: &DMatrix<f64>, heads| {
        RotaryPairs::Neighbours.reorder(w, heads, RotaryPairs::Halves)
    };
    let p = &mut halves.parameters;
    (p.w_q, p.w_k) = (reorder(&p.w_q, 4)?, reorder(&p.w_k, 2)?);
    let b_q = DMatrix::from_row_slice(1, 16, p.b_q.as_slice());
    p.b_q = reorder(&b_q, 4)?.row(0).into_owned();
    assert!(off(&halves.forward(&x, Mask::causal())?.0, &expected) < F64);
    Ok(())
}

/// In `f32`, at position 131,072: as accurate as `f32` can be.
#[test]
fn angles_are_accurate_far_out() -> Result<()> {
    let (d, first) = (64, 131_072);
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
    let x = numbers::<f64>(1, d, 6);
    let expected = rotary.turn(&x, 1, first)?;
    let given = rotary.turn(&x.map(|x| x as f32), 1, first)?;
    let worst = given.iter().zip(&expected).map(|(&a, b)| (f64::from(a) - b).abs());
    assert!(worst.fold(0.0, f64::max) < 2e-7);
    Ok(())
}

#[test]
fn wrong_groups_are_refused() {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let x = DMatrix::<f64>::zeros(3, 8);
    let grouped = |heads, kv| Inputs::grouped(&x, &x, &x, Mask::none(), heads, kv);
    let narrow = x.columns(0, 4);
    for (error, sentence) in [
        (grouped(4, 3).unwrap_err(), "`n_kv_heads` is 3 but it must divide n_heads = 4"),
        (
            grouped(4, 2).unwrap_err(),
            "`k` has 8 columns but 2 heads as wide as those of `q` have 4",
        ),
        (
            Inputs::new(&x, narrow, narrow, Mask::none()).unwrap_err(),
            "`k` has 4 columns but `q` has d_k = 8",
        ),
        (
            MultiHeadAttention::<f64>::xavier_grouped(8, 4, 0, rng).unwrap_err(),
            "`n_kv_heads` is 0 but it must be at least 1",
        ),
        (
            attention(&x, narrow, narrow, Mask::none()).unwrap_err(),
            "`k` has 4 columns but `q` has d_k = 8",
        ),
    ] {
        assert_eq!(error.to_string(), sentence);
    }
    let options = FlashOptions::new().heads(4).kv_heads(2);
    assert_eq!(flash(&x, narrow, narrow, options).unwrap().shape(), (3, 8));
}
