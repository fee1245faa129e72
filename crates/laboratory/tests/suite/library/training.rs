//! Parameters under their names, steps along gradients, and Adam.

use crate::support::{blame, parameters, random};
use attention::{
    Adam, KeyValueCache, Mask, MultiHeadAttention, NamedParameters, Result, Rotary,
    SingleHeadAttention, named_parameters, positions::RotaryPairs,
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

/// Two structs with the same parts in another order.
struct Named {
    a: DMatrix<f64>,
    b: DMatrix<f64>,
}
struct Swapped {
    b: DMatrix<f64>,
    a: DMatrix<f64>,
}

named_parameters! { impl[] NamedParameters<f64> for Named { a, b } }
named_parameters! { impl[] NamedParameters<f64> for Swapped { b, a } }

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

/// An `f32` ends at 10³⁸ and 10⁻⁴⁵, so the square of 10²⁰ is infinite, and that of 10⁻²³ is 0.
#[test]
fn norms_are_right_where_squares_are_out_of_range() {
    for size in [1e19_f32, 1e-23, 3e37, 1e-38] {
        let mut gradients = DMatrix::repeat(10, 10, size);
        gradients[(3, 4)] = 0.0;
        let right = 99.0_f64.sqrt() * f64::from(size);
        let is_right = |norm: f32| (f64::from(norm) / right - 1.0).abs() < 1e-6;
        assert!(is_right(NamedParameters::norm(&gradients)), "{size:e}");
        assert!(is_right(gradients.clip_norm(size)), "{size:e}");
        let clipped = f64::from(NamedParameters::norm(&gradients)) / f64::from(size);
        assert!((clipped - 1.0).abs() < 1e-6, "{size:e}: {clipped}");
    }
    for size in [1e200_f64, 1e-200] {
        let norm = NamedParameters::norm(&dmatrix![3.0 * size, 4.0 * size]);
        assert!((norm / (5.0 * size) - 1.0).abs() < 1e-15, "{size:e}: {norm:e}");
    }
    assert_eq!(NamedParameters::norm(&dmatrix![0.0, 0.0]), 0.0);
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
    let swapped = Swapped { b: dmatrix![1.0], a: dmatrix![2.0] };
    let error = Named { a: dmatrix![1.0], b: dmatrix![2.0] }.step(&swapped, 1.0);
    assert_eq!(
        error.unwrap_err().to_string(),
        "`b`: `gradients` is `b` but the parameter in its place is `a`"
    );
    for bad in [f64::NAN, f64::INFINITY] {
        let mut wrong = before.clone();
        wrong.layers[1].parameters.w_v[3] = bad;
        let words = format!("`layers.1.w_v`: `gradients` is {bad} but it must be finite");
        assert_eq!(model.step(&wrong, 1.0).unwrap_err().to_string(), words);
        assert_eq!(adam.step(&mut model, &wrong).unwrap_err().to_string(), words);
    }
    assert_eq!((model, adam), (before, Adam::new(0.1)));
}

/// The gradients fit the model; what doesn't is the state from other steps.
#[test]
fn an_optimiser_of_another_model_says_so() -> Result<()> {
    let mut adam = Adam::new(0.1);
    adam.step(&mut dmatrix![1.0, 2.0; 3.0, 4.0], &dmatrix![1.0, 1.0; 1.0, 1.0])?;
    let before = adam.clone();
    let error = adam.step(&mut dmatrix![1.0, 2.0], &dmatrix![1.0, 1.0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`model` has 1 row but the parameter is 2 x 2 in the optimiser's state"
    );
    let mut layer = parameters(2, 2, 2, 0);
    let error = adam.step(&mut layer, &parameters(2, 2, 2, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`model` has 8 entries but there is 1 parameter in the optimiser's state"
    );
    assert_eq!(adam, before);
    Ok(())
}

/// The published algorithm in plain loops, over all entries at once.
fn adam_by_definition(
    mut p: Vec<f64>,
    gradients: &[Vec<f64>],
    (rate, decay, epsilon): (f64, f64, f64),
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
            p[i] -= rate * m_hat / (v_hat.sqrt() + epsilon);
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
        let settings = (0.05, decay, 1e-8);
        let right = adam_by_definition(start.as_slice().to_vec(), &lists, settings);
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

/// In `f32` the square of 2·10¹⁹ is infinite, and that of 10⁻²³ is 0; the steps are ordinary ones.
#[test]
fn adam_is_right_where_squares_are_out_of_range() -> Result<()> {
    for sizes in [[2e19_f32, 1.0, 1.0], [1e38, -1e38, 0.0], [1e-23, 0.0, -1e-30]] {
        let mut adam = Adam::new(0.1_f32);
        adam.epsilon = 0.0;
        let mut p = dmatrix![0.0_f32];
        for (count, &size) in (1..).zip(&sizes) {
            adam.step(&mut p, &dmatrix![size])?;
            let so_far = sizes[..count].iter().map(|&size| vec![f64::from(size)]);
            let so_far: Vec<_> = so_far.collect();
            let right = adam_by_definition(vec![0.0], &so_far, (0.1, 0.0, 0.0))[0];
            assert!(
                (f64::from(p[0]) - right).abs() < 1e-6,
                "{sizes:?}: {p}, not {right}"
            );
        }
        let saved = serde_json::to_string(&adam).unwrap();
        assert_eq!(serde_json::from_str::<Adam<f32>>(&saved).unwrap(), adam);
    }
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
        assert_eq!(blame(&error), "Value cache", "change {number}");
        let before = writing.clone();
        let error = changed.forward_cached(&x, &mut writing, Mask::causal()).unwrap_err();
        assert_eq!(blame(&error), "Value cache", "change {number}");
        assert_eq!(writing, before);
    }
    let copy = layer.clone();
    assert_eq!(copy.backward(&cache, &output)?, gradients);
    assert!(copy.forward_cached(&x, &mut writing, Mask::causal()).is_ok());
    let mut single = SingleHeadAttention::from(parameters(16, 3, 2, 4));
    let (output, cache) = single.forward(&x, Mask::none())?;
    assert!(single.backward(&cache, &output).is_ok());
    single.parameters.w_q.swap_rows(0, 1);
    assert_eq!(blame(&single.backward(&cache, &output).unwrap_err()), "Value cache");
    Ok(())
}
