//! Values that are written and read again are the same, to the bit; files may be wrong, but reading them does not panic.

use crate::support::{masks, random};
use attention::{
    Adam, ForwardOptions, LayerGradients, Mask, MultiHeadAttention, Parameters, Result,
    Rotary, SingleHeadAttention, positions::RotaryPairs,
};
use nalgebra::{DMatrix, RowDVector, dmatrix};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use serde_json::{Value, from_str, from_value, json, to_string, to_value};

fn parameters(d_model: usize, d_k: usize, d_v: usize) -> Parameters<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng).unwrap();
    parameters.b_q = RowDVector::from_fn(d_k, |_, _| rng.random());
    parameters
}

fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(4, 4, 4), 2).unwrap()
}

fn dropping() -> ForwardOptions<'static, f64> {
    ForwardOptions::new().dropout(0.1, &mut ChaCha8Rng::seed_from_u64(1))
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
    let run =
        |layer: &SingleHeadAttention<f64>| layer.forward(&x(), Mask::causal()).unwrap().0;
    assert_eq!(run(&again), run(&layer));
}

#[test]
fn a_multi_head_layer_comes_back_with_its_heads() {
    let layer = multi_head();
    let again: MultiHeadAttention<f64> = from_str(&to_string(&layer).unwrap()).unwrap();
    assert_eq!(again, layer);
    assert_eq!(again.n_heads(), 2);
    let run = |layer: &MultiHeadAttention<f64>| {
        let (output, cache) = layer.forward(&x(), dropping()).unwrap();
        (output, cache.forward().clone())
    };
    assert_eq!(run(&again), run(&layer));
}

#[test]
fn a_layer_comes_back_with_shared_keys_and_positions() {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer = MultiHeadAttention::<f64>::xavier_grouped(8, 4, 2, rng).unwrap();
    let rotary = Rotary::new(500.0, RotaryPairs::Halves).unwrap();
    let layer = layer.with_rotary(rotary.stretched(4.0).unwrap()).unwrap();
    let again: MultiHeadAttention<f64> = from_str(&to_string(&layer).unwrap()).unwrap();
    assert_eq!(again, layer);
    let mut written: Value = to_value(&layer).unwrap();
    written["rotary"]["base"] = json!(1.0);
    let error = from_value::<MultiHeadAttention<f64>>(written).unwrap_err();
    assert_eq!(error.to_string(), "`base` is 1 but it must be greater than 1 and finite");
}

#[test]
fn a_layer_without_biases_comes_back_without_them() {
    let without = parameters(4, 4, 4).without_biases();
    let layer = MultiHeadAttention::from_parameters(without, 2).unwrap();
    let again: MultiHeadAttention<f64> = from_str(&to_string(&layer).unwrap()).unwrap();
    assert_eq!(again, layer);
    assert_eq!(again.parameters.named().len(), 4);
}

#[test]
fn masks_of_every_kind_come_back() {
    for (_, mask) in masks(2, 3) {
        let again: Mask = from_str(&to_string(&mask).unwrap()).unwrap();
        assert_eq!(again, mask);
        let matrix = |mask: &Mask| mask.sized(2, 3).unwrap().allowed_matrix();
        assert_eq!(matrix(&again), matrix(&mask));
    }
}

/// Grouped heads: fewer keys and values than queries, in a layer of one's own, which is saved as its parameters.
#[test]
fn parameters_with_fewer_heads_for_keys_and_values_come_back() {
    let mut grouped = parameters(8, 8, 2); // four heads of queries, and one of keys and values
    grouped.w_k = grouped.w_k.columns(0, 2).into_owned();
    grouped.b_k = RowDVector::from_element(2, 0.25);
    grouped.w_o = DMatrix::from_fn(8, 8, |i, j| (i + j) as f64);
    let again: Parameters<f64> = from_str(&to_string(&grouped).unwrap()).unwrap();
    assert_eq!(again, grouped);
    assert!(
        SingleHeadAttention::from(again).forward(&random(2, 8, 0), Mask::none()).is_err()
    );
    grouped.b_k = RowDVector::zeros(3);
    let error = to_string(&grouped).unwrap_err().to_string();
    assert_eq!(error, "`b_k` has 3 columns but `w_k` has 2");
}

/// TOML has no `null` and no unit.
#[test]
fn layers_and_masks_come_back_from_toml() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Saved {
        layer: MultiHeadAttention<f64>,
        masks: Vec<Mask>,
    }
    let allowed = DMatrix::from_fn(2, 3, |i, j| (i + j) % 2 == 0);
    let masks = vec![
        Mask::none(),
        Mask::causal(),
        Mask::padding(&[true, false, true]).unwrap(),
        Mask::window(2).unwrap().and(Mask::dense(allowed).unwrap()),
    ];
    let saved = Saved { layer: multi_head(), masks };
    let text = toml::to_string(&saved).unwrap();
    assert_eq!(toml::from_str::<Saved>(&text).unwrap(), saved);
}

/// A file may hold what no constructor would have let through: reading it is an error.
#[test]
fn a_layer_with_wrong_numbers_is_not_read() {
    for (field, value, message) in [
        ("n_heads", json!(0), "`n_heads` is 0 but it must be at least 1"),
        ("n_heads", json!(3), "`n_heads` is 3 but it must divide the 4 columns of `w_q`"),
        (
            "n_heads",
            json!(usize::MAX),
            "`n_heads` is 18446744073709551615 but it must divide the 4 columns of `w_q`",
        ),
        (
            "dropout",
            json!(0.1),
            "unknown field `dropout`, expected one of `n_heads`, `n_kv_heads`, `rotary`, `parameters`",
        ),
    ] {
        let mut written: Value = to_value(multi_head()).unwrap();
        written[field] = value;
        let error = from_value::<MultiHeadAttention<f64>>(written).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_mask_with_wrong_numbers_is_not_read() {
    for (written, message) in [
        (
            json!([{ "Padding": [] }]),
            "`valid` is empty (0 entries) but at least one entry is needed",
        ),
        (
            json!(["Causal", { "Window": { "width": 0, "sinks": 1 } }]),
            "`width` is 0 but it must be at least 1",
        ),
        (
            json!([{ "Dense": [[], 0, 3] }]),
            "`allowed` is empty (0 x 3) but at least one entry is needed",
        ),
        (
            json!([{ "Blocks": { "size": 0, "allowed": [[true], 1, 1] } }]),
            "`size` is 0 but it must be at least 1",
        ),
        (
            json!(["Forward"]),
            "unknown variant `Forward`, expected one of `Causal`, `Padding`, `Window`, `Dense`, `Blocks`, `Documents`",
        ),
        (json!(["Causal", ["Causal"]]), "invalid type: sequence, expected string or map"),
    ] {
        let error = from_value::<Mask>(written).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

/// Half of the digits would be lost without a word. A file from elsewhere may leave it out.
#[test]
fn a_file_is_read_in_the_precision_of_its_numbers() {
    let mut written = to_value(multi_head()).unwrap();
    let error = from_value::<MultiHeadAttention<f32>>(written.clone()).unwrap_err();
    assert_eq!(error.to_string(), "`precision` is f64 but it is read as f32");
    written["parameters"].as_object_mut().unwrap().remove("precision").unwrap();
    assert!(from_value::<MultiHeadAttention<f32>>(written).is_ok());
}

/// A matrix whose size and number of entries do not fit is refused while it is read.
#[test]
fn a_matrix_that_was_cut_short_is_not_read() {
    let mut written = to_value(SingleHeadAttention::from(parameters(4, 3, 2))).unwrap();
    let w_q = &mut written["parameters"]["w_q"];
    w_q[0].as_array_mut().expect("a list of entries").pop();
    assert!(from_value::<SingleHeadAttention<f64>>(written).is_err());
}

/// Rows times columns overflows to the number of entries: this matrix would be read out of bounds.
#[test]
fn a_matrix_whose_size_overflows_is_not_read() {
    let large = (1_u64 << 63) + 1; // twice that is 2, if the overflow is dropped
    let mut written = to_value(SingleHeadAttention::from(parameters(4, 3, 2))).unwrap();
    written["parameters"]["w_q"] = json!([[1.0, 2.0], large, 2]);
    let error = from_value::<SingleHeadAttention<f64>>(written).unwrap_err().to_string();
    assert_eq!(error, format!("`w_q` has 2 entries but it is {large} x 2"));
    let mask = json!([{ "Dense": [[true, true], large, 2] }]);
    let error = from_value::<Mask>(mask).unwrap_err().to_string();
    assert_eq!(error, format!("`allowed` has 2 entries but it is {large} x 2"));
}

/// JSON has no NaN, and would hold a `null` that can't be read: so the error comes when the layer is written.
#[test]
fn a_parameter_that_is_not_finite_is_neither_written_nor_read() {
    for (bad, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let mut layer = multi_head();
        layer.parameters.b_v[2] = bad;
        let message =
            format!("`b_v` is {shown} but a parameter in a file must be finite");
        assert_eq!(to_string(&layer).unwrap_err().to_string(), message);
    }
    // A number beyond the range of `f32` is an infinity there.
    let written = to_string(&multi_head()).unwrap();
    let mut written: Value = from_str(&written).unwrap();
    written["parameters"]["w_k"][0][1] = json!(1e300);
    written["parameters"]["precision"] = json!("f32");
    let error = from_value::<MultiHeadAttention<f32>>(written).unwrap_err().to_string();
    assert_eq!(error, "`w_k` is inf but a parameter in a file must be finite");
}

/// Parameters are open to all: these were changed to a width that two heads cannot share.
#[test]
fn a_layer_whose_heads_do_not_divide_is_not_written() {
    let mut layer = multi_head();
    layer.parameters = parameters(4, 3, 2).into();
    let error = to_string(&layer).unwrap_err().to_string();
    assert_eq!(error, "`n_heads` is 2 but it must divide the 3 columns of `w_q`");
}

fn gradients(layer: &MultiHeadAttention<f64>) -> Result<LayerGradients<f64>> {
    let (output, cache) = layer.forward(&random(5, 4, 30), Mask::causal())?;
    layer.backward(&cache, &output)
}

/// Training that is saved and continued goes on as training that never stopped, to the bit.
#[test]
fn a_saved_optimiser_goes_on_where_it_was() -> Result<()> {
    let mut layer = multi_head();
    let mut adam = Adam::new(0.02);
    adam.weight_decay = 0.01;
    for _ in 0..3 {
        let gradients = gradients(&layer)?;
        adam.step(&mut layer, &gradients)?;
    }
    let saved = to_string(&(&layer, &adam)).unwrap();
    let (mut layer_again, mut adam_again): (MultiHeadAttention<f64>, Adam<f64>) =
        from_str(&saved).unwrap();
    assert_eq!(adam_again, adam);
    for _ in 0..3 {
        let gradients_here = gradients(&layer)?;
        adam.step(&mut layer, &gradients_here)?;
        let gradients_again = gradients(&layer_again)?;
        adam_again.step(&mut layer_again, &gradients_again)?;
    }
    assert_eq!((layer_again, adam_again), (layer, adam));
    let unknown = saved.replace("\"steps\"", "\"count\"");
    assert!(from_str::<(MultiHeadAttention<f64>, Adam<f64>)>(&unknown).is_err());
    Ok(())
}

/// What no optimiser could have written is an error that names it, and no panic; what could not be read again isn't written.
#[test]
fn a_file_with_a_wrong_optimiser_is_not_read() -> Result<()> {
    let mut adam = Adam::new(0.02_f64);
    adam.step(&mut dmatrix![1.0, 2.0], &dmatrix![1.0, 1.0])?;
    let written = to_value(&adam).unwrap();
    let huge = 1_u64 << 63;
    for (averages, words) in [
        (
            json!([["", [[1.0, 1.0], huge, 2], [[1.0, 1.0], 1, 2]]]),
            "`mean` has 2 entries",
        ),
        (
            json!([["", [[1.0, 1.0], 1, 2], [[1.0], 1, 2]]]),
            "`root_mean_square` has 1 entry",
        ),
        (
            json!([["", [[1.0, 1.0], 1, 2], [[1.0], 1, 1]]]),
            "`root_mean_square` has 1 column",
        ),
    ] {
        let mut tampered = written.clone();
        tampered["averages"] = averages;
        let error = from_value::<Adam<f64>>(tampered).unwrap_err();
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let mut tampered = written.clone();
    tampered["steps"] = json!(u64::MAX);
    let mut last: Adam<f64> = from_value(tampered).unwrap();
    last.step(&mut dmatrix![1.0, 2.0], &dmatrix![1.0, 1.0])?;
    let mut tampered = written;
    tampered["averages"][0] = json!(["w", [[1.0], 1, 1], [[1e39], 1, 1]]);
    let error = from_value::<Adam<f32>>(tampered).unwrap_err();
    assert_eq!(error.to_string(), "`w`: `root_mean_square` is inf but it must be finite");
    adam.rate = f64::NAN;
    let error = to_string(&adam).unwrap_err();
    assert_eq!(error.to_string(), "`rate` is NaN but it must be finite");
    Ok(())
}
