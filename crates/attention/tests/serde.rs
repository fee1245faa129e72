//! What is written and read again is the same, to the bit; and what was read may be wrong, but does not panic.

#![cfg(feature = "serde")]

use attention::{Mask, MultiHeadAttention, Parameters, SingleHeadAttention};
use nalgebra::{DMatrix, RowDVector};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde_json::{Value, from_str, from_value, json, to_string, to_value};

fn parameters(d_model: usize, d_k: usize, d_v: usize) -> Parameters<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng).unwrap();
    parameters.b_q = RowDVector::from_fn(d_k, |_, _| rng.random());
    parameters
}

fn multi_head() -> MultiHeadAttention<f64> {
    let layer = MultiHeadAttention::from_parameters(parameters(4, 4, 4), 2).unwrap();
    layer.with_dropout(0.1).unwrap()
}

fn x() -> DMatrix<f64> {
    attention::example::river().x
}

#[test]
fn a_single_head_layer_comes_back_to_the_bit() {
    let layer = SingleHeadAttention::from(parameters(4, 3, 2));
    let again: SingleHeadAttention<f64> = from_str(&to_string(&layer).unwrap()).unwrap();
    assert_eq!(again, layer);
    let bits = |layer: &SingleHeadAttention<f64>| {
        layer.parameters.w_q.iter().map(|w| w.to_bits()).collect::<Vec<_>>()
    };
    assert_eq!(bits(&again), bits(&layer));
    let run = |layer: &SingleHeadAttention<f64>| {
        layer.forward(&x(), &Mask::causal()).unwrap().0
    };
    assert_eq!(run(&again), run(&layer));
}

#[test]
fn a_multi_head_layer_comes_back_with_its_heads_and_its_dropout() {
    let layer = multi_head();
    let again: MultiHeadAttention<f64> = from_str(&to_string(&layer).unwrap()).unwrap();
    assert_eq!(again, layer);
    assert_eq!((again.n_heads(), again.dropout()), (2, 0.1));
    let run = |layer: &MultiHeadAttention<f64>| {
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        layer.forward_training(&x(), None, &Mask::causal(), rng).unwrap()
    };
    assert_eq!(run(&again), run(&layer));
}

#[test]
fn masks_of_every_kind_come_back() {
    let padding = Mask::padding(&[true, false, true]).unwrap();
    let allowed = DMatrix::from_fn(2, 3, |i, j| (i + j) % 2 == 0);
    for mask in [
        Mask::none(),
        Mask::causal(),
        padding.clone(),
        Mask::window(2).unwrap(),
        Mask::dense(allowed).unwrap(),
        Mask::causal().and(padding),
    ] {
        let again: Mask = from_str(&to_string(&mask).unwrap()).unwrap();
        assert_eq!(again, mask);
        let matrix = |mask: &Mask| mask.sized(2, 3).unwrap().allowed_matrix();
        assert_eq!(matrix(&again), matrix(&mask));
    }
}

/// A file may hold what no constructor would have let through: using it is an error.
#[test]
fn a_layer_that_was_read_with_wrong_numbers_is_an_error_when_used() {
    for (field, value, message) in [
        ("n_heads", json!(0), "`n_heads` is 0 but it must be at least 1"),
        ("n_heads", json!(3), "`n_heads` is 3 but it must divide d_model = 4"),
        (
            "n_heads",
            json!(usize::MAX),
            "`n_heads` is 18446744073709551615 but it must divide d_model = 4",
        ),
        (
            "dropout",
            json!(1.0),
            "`dropout` is 1 but it must be at least 0 and less than 1",
        ),
        (
            "dropout",
            json!(-2.0),
            "`dropout` is -2 but it must be at least 0 and less than 1",
        ),
    ] {
        let (_, cache) = multi_head().forward(&x(), &Mask::none()).unwrap();
        let mut written: Value = to_value(multi_head()).unwrap();
        written[field] = value;
        let layer: MultiHeadAttention<f64> = from_value(written).unwrap();
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mask = Mask::none();
        let errors = [
            layer.forward(&x(), &mask).unwrap_err(),
            layer.forward_cross(&x(), &x(), &mask).unwrap_err(),
            layer.forward_training(&x(), None, &mask, rng).unwrap_err(),
            layer.backward(&cache, &x()).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.to_string(), message);
        }
    }
}

#[test]
fn a_mask_that_was_read_with_wrong_numbers_is_an_error_or_hides_all() {
    let empty: Mask = from_value(json!({ "Padding": [] })).unwrap();
    let error = empty.sized(1, 1).unwrap_err().to_string();
    assert_eq!(error, "`valid` has 0 entries but n_k = 1");

    let closed: Mask = from_value(json!({ "Window": 0 })).unwrap();
    let (output, _) = attention::attention(&x(), &x(), &x(), &closed).unwrap();
    assert!(output.iter().all(|&y| y == 0.0));
}

/// A matrix whose size and number of entries do not fit is refused while it is read.
#[test]
fn a_matrix_that_was_cut_short_is_not_read() {
    let mut written = to_value(SingleHeadAttention::from(parameters(4, 3, 2))).unwrap();
    let w_q = &mut written["parameters"]["w_q"];
    w_q[0].as_array_mut().expect("a list of entries").pop();
    assert!(from_value::<SingleHeadAttention<f64>>(written).is_err());
}
