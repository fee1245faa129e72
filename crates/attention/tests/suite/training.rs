//! Parameters under their names, steps along gradients, and Adam.

use crate::support::{blame, parameters, random};
use attention::{
    Adam, KeyValueCache, Mask, MultiHeadAttention, NamedParameters,
    Result, Rotary, RotaryPairs, SingleHeadAttention, named_parameters,
};
use nalgebra::{DMatrix, RowDVector, dmatrix};

/// Two layers and a head of one's own.
#[derive(Clone, PartialEq, Debug)]
struct Model {
    layers: Vec<MultiHeadAttention<f64>>,
    head: DMatrix<f64>,
    bias: RowDVector<f64>,
}

named_parameters! { impl[] NamedParameters<f64> for Model { layers, head, bias } }

fn model(seed: u64) -> Model {
    let layer =
        |seed| MultiHeadAttention::from_parameters(parameters(4, 4, 4, seed), 2).unwrap();
    let mut second = layer(seed + 1);
    second.parameters = second.parameters.into_inner().without_biases().into();
    let layers = vec![layer(seed), second];
    Model { layers, head: random(4, 3, seed), bias: random(1, 3, seed + 2).row(0).into() }
}

#[test]
fn parts_join_their_names() {
    let names: Vec<String> = model(0).named().into_iter().map(|(name, _)| name).collect();
    let first = ["w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o"];
    let first = first.map(|name| format!("layers.0.{name}"));
    let second = ["w_q", "w_k", "w_v", "w_o"].map(|name| format!("layers.1.{name}"));
    let own = ["head", "bias"].map(str::to_owned);
    assert_eq!(names, [&first[..], &second, &own].concat());
    let mut changed = model(0);
    let names_mut: Vec<String> =
        changed.named_mut().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names_mut, names);
}

#[test]
fn steps_sums_and_norms_reach_every_entry() -> Result<()> {
    let (before, gradients) = (model(0), model(10));
    let entries = |model: &Model| -> Vec<f64> {
        model
            .named()
            .iter()
            .flat_map(|(_, m)| m.iter().copied().collect::<Vec<_>>())
            .collect()
    };
    let (p, g) = (entries(&before), entries(&gradients));
    let each = |model: &Model, expected: &dyn Fn(f64, f64) -> f64| {
        let expected = p.iter().zip(&g).map(|(&p, &g)| expected(p, g));
        for (given, expected) in entries(model).into_iter().zip(expected) {
            assert!((given - expected).abs() < 1e-15, "{given}, not {expected}");
        }
    };
    let mut model = before.clone();
    model.step(&gradients, 0.25)?;
    each(&model, &|p, g| p - 0.25 * g);
    let mut model = before.clone();
    model.accumulate(&gradients)?;
    each(&model, &|p, g| p + g);
    model.scale(-2.0);
    each(&model, &|p, g| -2.0 * (p + g));

    let norm = g.iter().map(|g| g * g).sum::<f64>().sqrt();
    let mut clipped = gradients.clone();
    assert!((clipped.norm() - norm).abs() < 1e-14);
    assert!((clipped.clip_norm(1.0) - norm).abs() < 1e-14 && norm > 1.0);
    assert!((clipped.norm() - 1.0).abs() < 1e-15);
    let small = clipped.clone();
    clipped.clip_norm(1.5);
    assert_eq!(clipped, small, "a norm below the bound changes nothing");
    for bad in [f64::NAN, f64::INFINITY] {
        let mut ill = gradients.clone();
        ill.head[0] = bad;
        let unchanged = entries(&ill);
        assert!(!ill.clip_norm(1.0).is_finite());
        assert!(
            entries(&ill).iter().zip(&unchanged).all(|(a, b)| a.to_bits() == b.to_bits())
        );
    }
    Ok(())
}

/// The operators of a layer's own parameters are the same.
#[test]
fn operators_are_the_methods() -> Result<()> {
    let (one, other) = (parameters(4, 3, 2, 0), parameters(4, 3, 2, 1));
    let mut sum = one.clone();
    sum.accumulate(&other)?;
    let mut by_operator = one.clone();
    by_operator += &other;
    assert_eq!(by_operator, sum);
    sum.scale(0.5);
    assert_eq!(by_operator * 0.5, sum);
    assert_eq!(one.zeros_like().norm(), 0.0);
    let panics = std::panic::catch_unwind(|| {
        let mut one = parameters(4, 3, 2, 0);
        one += &parameters(4, 2, 2, 0);
    });
    let words = *panics.unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains("`w_q`"), "{words}");
    Ok(())
}

/// The last matrix has another shape: the first have not moved.
#[test]
fn an_error_leaves_everything_as_it_was() {
    let before = model(0);
    let mut wrong = model(1);
    wrong.bias = RowDVector::zeros(2);
    let mut model = before.clone();
    let mut adam = Adam::new(0.1);
    assert_eq!(blame(&model.step(&wrong, 1.0).unwrap_err()), "`bias`: Shape gradients");
    assert_eq!(blame(&model.accumulate(&wrong).unwrap_err()), "`bias`: Shape other");
    let error = adam.step(&mut model, &wrong).unwrap_err();
    assert_eq!(blame(&error), "`bias`: Shape gradients");
    assert_eq!(
        error.to_string(),
        "`bias`: `gradients` has 2 columns but the parameter `bias` is 1 x 3"
    );
    wrong.layers.pop();
    assert_eq!(blame(&model.step(&wrong, 1.0).unwrap_err()), "Shape gradients");
    assert_eq!((model, adam), (before, Adam::new(0.1)));
}

/// The published algorithm in plain loops, over all entries at once.
fn adam_by_definition(
    mut p: Vec<f64>,
    gradients: &[Vec<f64>],
    (rate, decay): (f64, f64),
) -> Vec<f64> {
    let (mut m, mut v) = (vec![0.0; p.len()], vec![0.0; p.len()]);
    for (t, g) in gradients.iter().enumerate() {
        for i in 0..p.len() {
            p[i] -= rate * decay * p[i]; // as torch.optim.AdamW: before the step
            m[i] = 0.9 * m[i] + (1.0 - 0.9) * g[i];
            v[i] = 0.999 * v[i] + (1.0 - 0.999) * g[i] * g[i];
            let (m_hat, v_hat) = (
                m[i] / (1.0 - 0.9_f64.powf(t as f64 + 1.0)),
                v[i] / (1.0 - 0.999_f64.powf(t as f64 + 1.0)),
            );
            p[i] -= rate * m_hat / (v_hat.sqrt() + 1e-8);
        }
    }
    p
}

#[test]
fn adam_is_the_published_algorithm_with_and_without_decay() -> Result<()> {
    let start = random(5, 3, 20);
    // From ordinary gradients down to some that are as small as ε, and zeros.
    let gradients: Vec<DMatrix<f64>> = (0..50)
        .map(|t| random(5, 3, 21 + t).map(|g| g * 10.0_f64.powi(-(t as i32) / 5)))
        .map(|mut g| {
            g[0] = 0.0;
            g
        })
        .collect();
    for decay in [0.0, 0.1] {
        let mut adam = Adam::new(0.05);
        adam.weight_decay = decay;
        let mut p = start.clone();
        for gradient in &gradients {
            adam.step(&mut p, gradient)?;
        }
        assert_eq!(adam.steps(), 50);
        let lists: Vec<_> = gradients.iter().map(|g| g.as_slice().to_vec()).collect();
        let right = adam_by_definition(start.as_slice().to_vec(), &lists, (0.05, decay));
        for (given, right) in p.iter().zip(&right) {
            assert!((given - right).abs() < 1e-12, "decay {decay}: {given}, not {right}");
        }
    }
    // The first step is as long as the rate, whatever the gradient, and goes the other way.
    let (mut p, mut adam) = (dmatrix![1.0, 1.0], Adam::new(0.1));
    adam.step(&mut p, &dmatrix![1e-3, -50.0])?;
    assert!((p - dmatrix![0.9, 1.1]).amax() < 1e-5);
    Ok(())
}

#[cfg(feature = "serde")]
fn gradients(layer: &MultiHeadAttention<f64>) -> Result<attention::LayerGradients<f64>> {
    let (output, cache) = layer.forward(&random(5, 4, 30), Mask::causal())?;
    layer.backward(&cache, &output)
}

/// Training that is saved and continued goes on as training that never stopped, to the bit.
#[cfg(feature = "serde")]
#[test]
fn a_saved_optimiser_goes_on_where_it_was() -> Result<()> {
    let mut layer = model(2).layers.remove(0);
    let mut adam = Adam::new(0.02);
    adam.weight_decay = 0.01;
    for _ in 0..3 {
        let gradients = gradients(&layer)?;
        adam.step(&mut layer, &gradients)?;
    }
    let saved = serde_json::to_string(&(&layer, &adam)).unwrap();
    let (mut layer_again, mut adam_again): (MultiHeadAttention<f64>, Adam<f64>) =
        serde_json::from_str(&saved).unwrap();
    assert_eq!(adam_again, adam);
    for _ in 0..3 {
        let gradients_here = gradients(&layer)?;
        adam.step(&mut layer, &gradients_here)?;
        let gradients_again = gradients(&layer_again)?;
        adam_again.step(&mut layer_again, &gradients_again)?;
    }
    assert_eq!((layer_again, adam_again), (layer, adam));
    let unknown = saved.replace("\"steps\"", "\"count\"");
    assert!(
        serde_json::from_str::<(MultiHeadAttention<f64>, Adam<f64>)>(&unknown).is_err()
    );
    Ok(())
}

/// Whatever may have changed a layer makes every cache from before it useless, and the layer says so.
#[test]
fn every_stale_cache_is_found() -> Result<()> {
    type Layer = MultiHeadAttention<f64>;
    let x = random(3, 16, 31);
    let layer = Layer::from_parameters(parameters(16, 16, 16, 3), 2)?;
    let (output, cache) = layer.forward(&x, Mask::none())?;
    let mut writing = KeyValueCache::new();
    layer.forward_cached(&x, &mut writing, Mask::causal())?;
    let gradients = layer.backward(&cache, &output)?;
    let rotary = Rotary::new(1e4, RotaryPairs::Halves)?;
    let changes: [&dyn Fn(Layer) -> Result<Layer>; 7] = [
        &|mut layer| layer.parameters.step(&gradients.parameters, 0.0).map(|()| layer),
        &|mut layer| Adam::new(0.1).step(&mut layer, &gradients).map(|()| layer),
        &|mut layer| {
            layer.parameters.b_q[0] += 1e-9;
            Ok(layer)
        },
        &|mut layer| {
            layer.named_mut()[0].1.fill(0.0);
            Ok(layer)
        },
        &|layer| Layer::from_parameters(layer.parameters.into_inner(), 2),
        &|layer| {
            let mut of_four = Layer::from_parameters(parameters(16, 16, 16, 3), 4)?;
            of_four.parameters = layer.parameters;
            Ok(of_four)
        },
        &|layer| layer.with_rotary(rotary),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let changed = change(layer.clone())?;
        let error = changed.backward(&cache, &output).unwrap_err();
        assert_eq!(blame(&error), "OtherParameters cache", "change {number}");
        let before = writing.clone();
        let error = changed.forward_cached(&x, &mut writing, Mask::causal()).unwrap_err();
        assert_eq!(blame(&error), "OtherParameters cache", "change {number}");
        assert_eq!(writing, before);
    }
    let copy = layer.clone();
    assert_eq!(copy.backward(&cache, &output)?, gradients);
    assert!(copy.forward_cached(&x, &mut writing, Mask::causal()).is_ok());
    let mut single = SingleHeadAttention::from(parameters(16, 3, 2, 4));
    let (output, cache) = single.forward(&x, Mask::none())?;
    assert!(single.backward(&cache, &output).is_ok());
    single.parameters.w_q.swap_rows(0, 1);
    assert_eq!(
        blame(&single.backward(&cache, &output).unwrap_err()),
        "OtherParameters cache"
    );
    Ok(())
}
