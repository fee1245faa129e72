//! Every variant of the error, and a misuse of every public function that can fail: an error that names the argument, never a
//! panic.

use crate::support::{Layer, blame, options, parameters, random as numbers};
use attention::engine::wrong_value;
use attention::flash::{
    Inputs, OnlineSoftmax, Tiles, flash, tiled_attention, tiled_attention_backward,
};
use attention::{
    Adam, AttentionCache, Error, ForwardOptions, Mask, MultiHeadAttention,
    NamedParameters, Parameters, Result, ScoreRule, SingleHeadAttention, SingleHeadCache,
    attention, attention_backward, attention_weights,
    gradient_check::{
        gradient_check, gradient_check_parameters, gradient_check_sample,
        numerical_gradient, relative_error,
    },
    inspect::{heat_map, row_entropy},
    linear, linear_backward, scaled_scores,
    softmax::{
        log_sum_exp, log_sum_exp_rows, softmax, softmax_backward, softmax_jacobian,
        softmax_rows, softmax_rows_backward,
    },
};
use laboratory::cost::AttentionShape;
use nalgebra::{DMatrix, DVector, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Each call is an error that blames this argument.
macro_rules! blames {
    ($($expected:literal: $call:expr;)*) => {$(
        match $call {
            Err(error) => assert_eq!(blame(&error), $expected, "{}", stringify!($call)),
            Ok(_) => panic!("no error: {}", stringify!($call)),
        }
    )*};
}

const ABSURD: usize = 1 << 50; // no memory holds as many numbers

fn matrix(rows: usize, columns: usize) -> DMatrix<f64> {
    numbers(rows, columns, 0)
}

fn vector(entries: usize) -> DVector<f64> {
    DVector::from_element(entries, 0.5)
}

fn valid(entries: usize) -> Mask {
    Mask::padding(&vec![true; entries]).unwrap()
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

/// d_model = 4, d_k = 3, d_v = 2.
fn single_head() -> SingleHeadAttention<f64> {
    SingleHeadAttention::from(parameters(4, 3, 2, 0))
}

/// d_model = 4, two heads.
fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap()
}

// ---------------------------------------------------------------------------------------------------- variants

/// Each call is an error of this variant, with these numbers, and prints this sentence.
macro_rules! says {
    ($($call:expr => $pattern:pat, $sentence:literal;)*) => {$(
        let error = $call.unwrap_err();
        assert!(matches!(error, $pattern), "{}", stringify!($call));
        assert_eq!(error.to_string(), $sentence);
        assert_eq!(format!("{error:?}"), $sentence, "what a `main` that fails prints");
    )*};
}

/// A caller matches on variants, with numbers as numbers; a person reads the sentence. `Elsewhere` is made, and tested, on a GPU.
#[test]
fn every_variant_has_its_numbers_and_its_sentence() {
    let x = matrix(2, 4);
    let inputs = |heads| Inputs::new(&x, &x, &x, Mask::none())?.with_heads(heads);
    let batch = [x.clone(), matrix(0, 4)];
    let mut changed = single_head();
    let (output, cache) = changed.forward(&x, Mask::none()).unwrap();
    changed.parameters.w_k[0] += 1e-9;
    let huge = AttentionShape::self_attention(ABSURD, ABSURD, ABSURD, 1, 1);
    says! {
        single_head().forward(&matrix(0, 4), Mask::none())
            => Error::Value { argument: "x", .. },
            "`x` is empty (0 x 4) but at least one entry is needed";
        scaled_scores(&x, &matrix(5, 3))
            => Error::Shape { argument: "k", axis: "column", given: 3, expected: 4, .. },
            "`k` has 3 columns but `q` has d_k = 4";
        scaled_scores(&x, &matrix(5, 1))
            => Error::Shape { given: 1, .. },
            "`k` has 1 column but `q` has d_k = 4";
        softmax_backward(&vector(2), &vector(0))
            => Error::Shape { axis: "entry", given: 0, .. },
            "`grad_p` has 0 entries but `p` has 2";
        inputs(0)
            => Error::Value { argument: "n_heads", .. },
            "`n_heads` is 0 but it must be at least 1";
        inputs(3)
            => Error::Value { argument: "n_heads", .. },
            "`n_heads` is 3 but it must divide the 4 columns of `q`";
        attention(&x, &x, &x, Mask::from(ScoreRule::alibi(2).unwrap()).of_head(2))
            => Error::Value { argument: "head", .. },
            "`head` is 2 but `slopes` has 2 heads";
        numerical_gradient(&x, -0.5, |x| Ok(x.sum()))
            => Error::Value { argument: "epsilon", .. },
            "`epsilon` is -0.5 but it must be positive and finite";
        Mask::none().sized(3, usize::MAX)
            => Error::NoMemory { rows: ("n_q", 3), columns: ("n_k", usize::MAX) },
            "`n_k` is 18446744073709551615 but with n_q = 3 no memory could hold the matrix";
        MultiHeadAttention::<f64>::xavier(ABSURD, 1, &mut rng())
            => Error::NoMemory { rows: ("d_model", ABSURD), columns: ("d_model", ABSURD) },
            "`d_model` is 1125899906842624 but no memory could hold a square matrix of that size";
        huge.flops()
            => Error::Value { argument: "shape", .. },
            "`shape` is too large but its operations and bytes, and their sums, must fit 128 bits";
        changed.backward(&cache, &output)
            => Error::Value { argument: "cache", .. },
            "`cache` is of other parameters but only the layer that made it, unchanged, can use it";
        single_head().forward(&x, ForwardOptions::new().flash())
            => Error::Value { argument: "options.engine", .. },
            "`options.engine` is another one but SingleHeadAttention has ByWeights alone";
        multi_head().forward_batch(&batch, Mask::none())
            => Error::Within { .. },
            "sequence 1 of the batch: `x` is empty (0 x 4) but at least one entry is needed";
    }
}

// ---------------------------------------------------------------------------------------------------- functions

#[test]
fn of_softmax_and_masks() {
    let three = Mask::none().sized(3, 4).unwrap();
    blames! {
        "Empty x": softmax(&vector(0));
        "Empty x": log_sum_exp(&vector(0));
        "Empty p": softmax_jacobian(&vector(0));
        "Empty p": softmax_backward(&vector(0), &vector(0));
        "Shape grad_p": softmax_backward(&vector(4), &vector(3));
        "Empty scores": softmax_rows(&matrix(0, 4));
        "Empty scores": log_sum_exp_rows(&matrix(4, 0));
        "Empty weights": softmax_rows_backward(&matrix(0, 4), &matrix(0, 4));
        "Shape grad_weights": softmax_rows_backward(&matrix(3, 4), &matrix(3, 5));
        "Empty valid": Mask::padding(&[]);
        "Zero width": Mask::window(0);
        "Empty ids": Mask::documents(&[]);
        "Empty allowed": Mask::dense(DMatrix::from_element(3, 0, true));
        "Zero size": Mask::blocks(0, DMatrix::from_element(1, 1, true));
        "Empty allowed": Mask::blocks(2, DMatrix::from_element(0, 1, true));
        "Zero n_q": Mask::none().sized(0, 3);
        "Zero n_k": Mask::none().sized(3, 0);
        "Shape valid": Mask::causal().and(valid(2)).sized(3, 3);
        "Shape allowed": Mask::dense(DMatrix::from_element(2, 3, true)).unwrap().sized(3, 3);
        "Shape allowed": Mask::blocks(2, DMatrix::from_element(1, 2, true)).unwrap().sized(3, 3);
        "Shape ids": Mask::documents(&[0, 1]).unwrap().sized(2, 3);
        "Shape scores": three.apply(matrix(2, 4));
    }
}

#[test]
fn of_attention() {
    let (q, k, v) = (matrix(3, 4), matrix(5, 4), matrix(5, 2));
    let cache = |change: fn(&mut AttentionCache<f64>)| {
        let mut cache = attention(&q, &k, &v, Mask::none()).unwrap().1;
        change(&mut cache);
        cache
    };
    let backward = |change| attention_backward(&cache(change), &matrix(3, 2));
    blames! {
        "Empty q": scaled_scores(&matrix(0, 4), &k);
        "Empty k": attention_weights(&q, &matrix(5, 0), Mask::none());
        "Shape valid": attention_weights(&q, &k, valid(2));
        "Shape k": attention(&q, k.transpose().as_view(), &v, Mask::none()); // and not `v`
        "Empty v": attention(&q, &k, &matrix(5, 0), Mask::none());
        "Shape v": attention(&q, &k, &matrix(4, 2), Mask::none());
        "Shape valid": attention(&q, &k, &v, valid(2));
        "Shape grad_output": attention_backward(&cache(|_| ()), &matrix(3, 3));
        "Empty cache.q": backward(|cache| cache.q = matrix(0, 4));
        "Empty cache.v": cache(|cache| cache.v = matrix(5, 0)).check();
        "Shape cache.k": backward(|cache| cache.k = matrix(4, 4));
        "Shape cache.weights": cache(|cache| cache.weights = matrix(2, 5)).check();
        "Shape cache.dropout": backward(|cache| cache.dropout = Some(matrix(2, 5)));
        "Shape cache.dropout": cache(|cache| cache.dropout = Some(matrix(1, 5))).weights_used();
        "Shape valid": backward(|cache| cache.mask = valid(2));
    }
}

#[test]
fn of_parameters_and_what_steps_along_gradients() {
    let p = || parameters(4, 3, 2, 0);
    let (mut one, other) = (p(), parameters(4, 2, 2, 0));
    let mut adam = Adam::new(0.1);
    adam.step(&mut one, &p()).unwrap();
    let mut infinite = p();
    infinite.b_k[1] = f64::NEG_INFINITY;
    let xavier =
        |d_model, d_k, d_v| Parameters::<f64>::xavier(d_model, d_k, d_v, &mut rng());
    let changed = |change: fn(&mut Parameters<f64>)| {
        let mut parameters = p();
        change(&mut parameters);
        parameters.check()
    };
    let loss = |p: &Parameters<f64>| Ok(p.w_q.sum());
    blames! {
        "Zero d_model": xavier(0, 3, 2);
        "NoMemory d_v": xavier(4, 3, ABSURD);
        "Zero d_k": SingleHeadAttention::<f64>::xavier(4, 0, 2, &mut rng());
        "Value n_heads": MultiHeadAttention::<f64>::xavier(8, 3, &mut rng());
        "Value n_heads": MultiHeadAttention::from_parameters(p(), 2);
        "Empty w_q": changed(|p| p.w_q = matrix(4, 0));
        "Empty w_v": changed(|p| p.w_v = matrix(0, 2));
        "Shape w_k": changed(|p| p.w_k = matrix(4, 5));
        "Shape w_v": changed(|p| p.w_v = matrix(3, 2));
        "Shape w_o": changed(|p| p.w_o = matrix(2, 5));
        "Shape b_q": changed(|p| p.b_q = RowDVector::zeros(2));
        "Shape b_k": changed(|p| p.b_k = RowDVector::zeros(1));
        "Shape b_v": changed(|p| p.b_v = RowDVector::zeros(3));
        "Shape b_o": changed(|p| p.b_o = RowDVector::zeros(5));
        "`w_q`: Shape gradients": one.step(&other, 0.1);
        "`w_q`: Shape other": one.accumulate(&other);
        "Shape other": one.accumulate(&p().without_biases());
        "`w_q`: Shape gradients": adam.step(&mut p(), &other);
        "`w_q`: Shape model": adam.step(&mut other.clone(), &other); // not that of the first step
        "`b_k`: Value gradients": one.step(&infinite, 0.1);
        "`b_k`: Value gradients": adam.step(&mut p(), &infinite);
        "`w_q`: Shape gradients": gradient_check_parameters(&p(), &other, 1e-5, loss);
        "Zero entries": gradient_check_sample(&p(), &p(), 1e-5, 0, loss);
        "Value epsilon": gradient_check_parameters(&p(), &p(), 0.0, loss);
    }
    // The parameters are public: a layer says what is wrong with them whenever it is used.
    let (x, mut layer, mut single) = (matrix(3, 4), multi_head(), single_head());
    let (output, cache) = layer.forward(&x, Mask::none()).unwrap();
    let (_, cache_of_one) = single.forward(&x, Mask::none()).unwrap();
    layer.parameters.b_k = RowDVector::zeros(1);
    single.parameters.b_k = RowDVector::zeros(1);
    blames! {
        "Shape b_k": layer.forward(&x, Mask::none());
        "Value cache": layer.backward(&cache, &output);
        "Shape b_k": single.forward(&x, Mask::none());
        "Shape b_k": single.backward(&cache_of_one, &output);
    }
}

fn misuse_layer<L: Layer<f64>>(layer: &L) {
    let x = matrix(3, 4);
    let (output, cache) = layer.forward(&x, Mask::none()).unwrap();
    let across = |context: &DMatrix<f64>, mask: Mask| {
        layer.forward(&x, options(Some(context), &mask)).map(|(output, _)| output)
    };
    let batch = [x.clone(), x.clone()];
    let (outputs, caches) = layer.forward_batch(&batch, Mask::none()).unwrap();
    let dropping = |p| {
        let options = ForwardOptions::new().dropout(p, &mut rng());
        layer.forward(&x, options).map(|(output, _)| output)
    };
    blames! {
        "Empty x": layer.forward(&matrix(0, 4), Mask::none());
        "Shape x": layer.forward(&matrix(3, 5), Mask::none());
        "Shape valid": layer.forward(&x, valid(7));
        "Empty context": across(&matrix(0, 4), Mask::none());
        "Shape context": across(&matrix(5, 3), Mask::none());
        "Shape valid": across(&matrix(5, 4), valid(3));
        "Value options.dropout": dropping(1.0);
        "Value options.dropout": dropping(-0.1);
        "Value options.dropout": dropping(f64::NAN);
        "Shape grad_output": layer.backward(&cache, &matrix(2, 4));
        "Shape grad_output": layer.backward(&cache, &matrix(3, 5));
        "Empty xs": layer.forward_batch(&[], Mask::none());
        "Shape options": layer.forward_batch(&batch, vec![Mask::none()]);
        "sequence 1 of the batch: Shape valid": layer.forward_batch(&batch, vec![valid(3), valid(2)]);
        "Empty caches": layer.backward_batch(&[], &[]);
        "Shape grad_outputs": layer.backward_batch(&caches, std::slice::from_ref(&output));
        "sequence 0 of the batch: Shape grad_output":
            layer.backward_batch(&caches, &[matrix(1, 4), outputs[1].clone()]);
    }
}

#[test]
fn of_layers() {
    misuse_layer(&single_head());
    misuse_layer(&multi_head());
    let dropping = ForwardOptions::new().dropout(0.5, &mut rng());
    blames! {
        "Value options.dropout": single_head().forward(&matrix(3, 4), dropping);
        "Empty x": linear(&matrix(0, 4), &matrix(4, 2), &RowDVector::zeros(2));
        "Shape w": linear(&matrix(3, 4), &matrix(5, 2), &RowDVector::zeros(2));
        "Shape b": linear(&matrix(3, 4), &matrix(4, 2), &RowDVector::zeros(3));
        "Empty w": linear_backward(&matrix(3, 4), &matrix(4, 0), &matrix(3, 0));
        "Shape grad_y": linear_backward(&matrix(3, 4), &matrix(4, 2), &matrix(1, 2));
    }
}

/// The fields of one head's cache are public, to be looked at.
#[test]
fn of_caches_that_were_changed() {
    let (x, context, layer) = (matrix(3, 4), matrix(5, 4), single_head());
    let backward = |change: fn(&mut SingleHeadCache<f64>)| {
        let options = ForwardOptions::new().context(&context);
        let (output, mut cache) = layer.forward(&x, options).unwrap();
        change(&mut cache);
        layer.backward(&cache, &output)
    };
    blames! {
        "Empty cache.x": backward(|cache| cache.x = matrix(0, 4));
        "Shape cache.context": backward(|cache| cache.context = Some(matrix(5, 3)));
        "Shape cache.attended": backward(|cache| cache.attended = matrix(2, 2));
        "Shape cache.attention.q": backward(|cache| cache.attention.q = matrix(2, 3));
        "Shape cache.attention.v": backward(|cache| cache.context = None);
        "Shape cache.k": backward(|cache| cache.attention.k = matrix(4, 3));
    }
}

/// And not as `f64` has it, which makes 0.00000999999974737875 of 1e-5.
#[test]
fn a_step_in_f32_is_told_in_the_digits_of_f32() {
    let x = DMatrix::<f32>::zeros(1, 1);
    for epsilon in [-1e-5_f32, -3e-4, -0.1, -7.0, -123.456, -1e-12, f32::NEG_INFINITY] {
        let error = numerical_gradient(&x, epsilon, |x| Ok(x[0])).unwrap_err();
        let Error::Value { given, .. } = error else { panic!("{error}") };
        assert_eq!(given, epsilon.to_string());
    }
}

#[test]
fn of_gradient_checks_costs_and_inspection() {
    let loss = |x: &DMatrix<f64>| Ok(x.sum());
    let failing = |_: &DMatrix<f64>| Err(wrong_value("mine", 0, "it must be at least 1"));
    let x = matrix(2, 2);
    let small = AttentionShape::self_attention(1, 8, 4, 4, 1);
    let no_heads = AttentionShape { n_heads: 0, ..small };
    blames! {
        "Empty x": numerical_gradient(&matrix(0, 2), 1e-5, loss);
        "Value epsilon": numerical_gradient(&x, f64::NAN, loss);
        "Zero mine": numerical_gradient(&x, 1e-5, failing);
        "Shape analytic": gradient_check(&x, &matrix(2, 1), 1e-5, loss);
        "Value epsilon": gradient_check(&x, &x, 0.0, loss);
        "Zero mine": gradient_check(&x, &x, 1e-5, failing);
        "Zero batch": AttentionShape { batch: 0, ..small }.flops();
        "Zero n_heads": no_heads.backward_flops();
        "Zero d_v": AttentionShape { d_v: 0, ..small }.bytes(4);
        "Zero element": small.bytes(0);
        "Zero element": small.intensity(0);
        "Empty weights": row_entropy(&matrix(0, 3));
        "Empty matrix": heat_map(&matrix(0, 0), &[], &[]);
        "Shape row_labels": heat_map(&x, &["a"], &["a", "b"]);
        "Shape column_labels": heat_map(&x, &["a", "b"], &["a"]);
    }
}

/// What each engine refuses is in the suite of engines.
#[test]
fn of_attention_in_tiles() {
    let (q, k, v) = (matrix(3, 8), matrix(5, 8), matrix(5, 4)); // two heads
    let grouped = |k, heads, kv_heads| {
        Inputs::grouped(&q, k, &v, Mask::none(), heads, kv_heads).map(drop)
    };
    let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap().with_heads(2).unwrap();
    let no_keys = Tiles { keys: 0, ..Tiles::default() };
    let no_queries = Tiles { queries: 0, ..Tiles::default() };
    let forward = tiled_attention(&inputs, Tiles::default()).unwrap();
    let state = || OnlineSoftmax::<f64>::new(2, 3).unwrap();
    blames! {
        "Empty q": flash(&matrix(0, 8), &k, &v, Mask::none());
        "Shape k": flash(&q, &matrix(5, 6), &v, Mask::none());
        "Shape valid": flash(&q, &k, &v, valid(4));
        "Shape v": Inputs::new(&q, &k, &matrix(4, 4), Mask::none());
        "Zero n_heads": inputs.clone().with_heads(0);
        "Value n_heads": inputs.clone().with_heads(3);
        "Value n_kv_heads": grouped(&k, 4, 3);
        "Zero n_kv_heads": grouped(&k, 4, 0);
        "Shape k": grouped(&k, 4, 2);
        "Zero n_kv_heads": MultiHeadAttention::<f64>::xavier_grouped(8, 4, 0, &mut rng());
        "Zero tiles.keys": tiled_attention(&inputs, no_keys);
        "Zero tiles.queries": tiled_attention_backward(&inputs, &forward, &forward.output, no_queries);
        "Zero rows": OnlineSoftmax::<f64>::new(0, 2);
        "NoMemory d_v": OnlineSoftmax::<f64>::new(2, usize::MAX);
        "Empty scores": state().absorb(&matrix(2, 0), &matrix(0, 3));
        "Shape scores": state().absorb(&matrix(1, 4), &matrix(4, 3));
        "Shape values": state().absorb(&matrix(2, 4), &matrix(5, 3));
        "Shape other": state().merge(OnlineSoftmax::new(3, 3).unwrap());
    }
    let narrow = k.columns(0, 4).into_owned();
    assert!(grouped(&narrow, 4, 2).is_ok());
    let error = grouped(&k, 4, 2).unwrap_err();
    let sentence = "`k` has 8 columns but 2 heads as wide as those of `q` have 4";
    assert_eq!(error.to_string(), sentence);
}

/// A length of 0 is an error wherever one can be given, and never a panic.
#[test]
fn nothing_is_an_error() {
    for (n_q, n_k, d_k, d_v) in [(0, 3, 2, 2), (3, 0, 2, 2), (3, 3, 0, 2), (3, 3, 2, 0)] {
        let q = DMatrix::<f32>::zeros(n_q, d_k);
        let (k, v) = (DMatrix::zeros(n_k, d_k), DMatrix::zeros(n_k, d_v));
        for mask in [Mask::none(), Mask::causal(), Mask::window(2).unwrap()] {
            assert!(attention(&q, &k, &v, &mask).is_err());
            assert!(Inputs::new(&q, &k, &v, &mask).is_err());
        }
    }
}

// ---------------------------------------------------------------------------------------------------- no error to return

/// Functions that cannot fail have an answer for everything.
#[test]
fn functions_without_errors_answer_every_question() -> Result<()> {
    assert!(relative_error(f64::NAN, 1.0).is_nan());
    let sized = Mask::window(usize::MAX)?.and(Mask::causal()).sized(3, 5)?;
    assert!(!sized.allows(usize::MAX, 0) && !sized.allows(0, usize::MAX));
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give one")]
    let tiles = [(usize::MAX..usize::MAX, 0..5), (2..1, 0..5), (0..3, 7..usize::MAX)];
    for (rows, columns) in tiles {
        assert_eq!(sized.visibility(rows, columns), attention::mask::Visibility::Hidden);
    }
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give one")]
    let elsewhere = [(usize::MAX, 0..3), (0, 2..9), (4, 3..usize::MAX), (9, 2..1)];
    for (key, queries) in elsewhere {
        let mut line = [1.0; 4];
        sized.hide_queries(key, queries.clone(), &mut line, 0.0);
        for (entry, i) in line.into_iter().zip(queries) {
            assert_eq!(entry != 0.0, sized.allows(i, key), "query {i}, key {key}");
        }
    }
    let huge = AttentionShape::self_attention(0, 0, usize::MAX, 0, 0);
    assert_eq!(huge.crossover(), usize::MAX);
    Ok(())
}
