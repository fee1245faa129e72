//! Tests of what the chapter says of its numbers.

use super::facts::{self, Passed};
use super::wrong;
use crate::backward::gradients_by_path;
use crate::random::uniform;
use crate::sentences::{Steps, projected};
use anyhow::Result;
use attention::{Mask, attention, example, relative_error, softmax_rows};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

#[test]
fn only_without_the_scale_do_wide_vectors_change_the_largest_weight() {
    let [narrow, wide] = [4, 512].map(|d| facts::largest_weight(d, 1.0).unwrap());
    assert!((wide.wrong - narrow.wrong).abs() > 0.2);
    assert!((wide.right - narrow.right).abs() < 0.05);
}

#[test]
fn the_root_of_the_width_of_the_model_flattens_the_weights() {
    let largest = facts::largest_weight_by_model().unwrap();
    assert!(largest.wrong < largest.right - 0.1);
}

#[test]
fn one_maximum_for_all_rows_fails_where_rows_differ_in_size() {
    let near = DMatrix::from_row_slice(2, 2, &[2.0_f32, 1.0, -3.0, -4.0]);
    let right = softmax_rows(&near).unwrap();
    assert!((wrong::softmax_with_one_maximum(&near) - right).amax() < 1e-6);
    let far = DMatrix::from_row_slice(2, 2, &[2.0_f32, 1.0, -150.0, -151.0]);
    assert!(wrong::softmax_with_one_maximum(&far)[(1, 0)].is_nan());
}

#[test]
fn an_inverted_padding_mask_makes_all_outputs_alike() {
    let Steps { weights, output, .. } =
        facts::padded(facts::REAL.map(|real| !real)).unwrap();
    assert!((weights.row(5).sum() - 1.0).abs() < 1e-14);
    for i in 0..6 {
        assert!((output.row(i) - output.row(0)).amax() < 1e-14);
    }
}

#[test]
fn the_first_tile_is_right_when_a_tile_is_added_twice() {
    let mask = wrong::tile_added_twice(6).unwrap();
    let mask = mask.sized(6, 6).unwrap();
    assert!((1..6).all(|j| !mask.allows(0, j)));
    assert!((2..6).all(|j| !mask.allows(1, j)));
}

#[test]
fn the_last_query_by_itself_gets_the_last_output_of_all() {
    let x = example::river().x;
    let Steps { q, k, v, output: all, .. } = projected(&x, &x, &Mask::causal()).unwrap();
    let last = q.rows(5, 1).into_owned();
    let (alone, _) = attention(&last, &k, &v, Mask::causal()).unwrap();
    assert!((all.rows(5, 1) - alone).amax() < 1e-14);
}

/// After a split by reshape each head has the tokens of one half of the sentence.
#[test]
fn the_second_half_of_a_sentence_does_not_see_the_first_after_a_reshape() {
    let attend = |x: &DMatrix<f64>| {
        let heads = wrong::split_by_reshape(x, 2).into_iter();
        let outputs = heads
            .map(|head| attention(&head, &head, &head, Mask::none()).unwrap().0)
            .collect::<Vec<_>>();
        wrong::join_by_reshape(&outputs)
    };
    let x = example::river().x;
    let mut changed = x.clone();
    changed.row_mut(0).fill(2.0);
    let moved = attend(&x) - attend(&changed);
    assert!(moved.rows(3, 3).amax() == 0.0);
    assert!(moved.rows(0, 3).amax() > 0.1);
}

#[test]
fn the_mean_of_heads_hides_the_flat_one() {
    let [live, _, averaged] = facts::head_entropies().unwrap();
    assert!(live < averaged - 0.1);
    assert!(averaged < facts::most_entropy() - 0.1);
}

#[test]
fn a_flat_head_learns() {
    let (layer, cache) = facts::with_a_flat_head().unwrap();
    let r = uniform(6, 4, &mut ChaCha8Rng::seed_from_u64(1));
    let grad_w_q = layer.backward(&cache, &r).unwrap().parameters.w_q;
    assert!(grad_w_q.columns(2, 2).amax() > 1e-3);
}

#[test]
fn dropout_without_its_division_loses_half_of_the_weights() {
    let sums = facts::dropout_sums().unwrap();
    assert!((sums.right - 1.0).abs() < 0.01 && (sums.wrong - 0.5).abs() < 0.01);
}

#[test]
fn a_gradient_check_of_the_input_finds_each_path_that_is_left_out() -> Result<()> {
    let Passed { layer, cache, grad_output } = facts::passed(50)?;
    let right = layer.backward(&cache, &grad_output)?.x;
    for path in gradients_by_path(&layer.parameters, &cache, &grad_output)? {
        let wrong = &right - path;
        assert!(wrong.zip_map(&right, relative_error).max() > 0.1);
    }
    Ok(())
}

#[test]
fn the_crate_refuses_a_stale_cache_which_would_do_harm() {
    let stale = facts::stale(0).unwrap();
    assert!(stale.layer.backward(&stale.cache, &stale.grad_output).is_err());
    assert!(facts::off_by_stale_caches().unwrap().0 > 0.01);
}
