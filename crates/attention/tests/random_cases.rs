//! Every engine on random problems, against the definition of attention written once more in plain loops.
//!
//! The problems are those that break programs: lengths around the edges of tiles, more queries than keys and fewer, all
//! masks, NaN and infinities in hidden and in visible places, subnormal numbers, ties, and scores up to 1e30 in `f32` and
//! 1e200 in `f64`. Each result is compared entry by entry, forward and backward, with a tolerance that follows from the
//! precision and the sizes; and what is not a number has to be so in the same places.
//!
//! `RANDOM_CASES` is the number of problems (for each precision; the default takes a few seconds in a debug build), and
//! `RANDOM_SEED` the seed of the first one: a failure names its seed. `--nocapture` shows how many cases each engine has
//! passed.

use attention::flash::{Flash, Inputs, Instructions, Tiles};
use attention::testing::one_problem::{fast, naive, tiled};
use attention::testing::options;
use attention::testing::random_problems::{
    Answers, Data, LARGEST_F32, LARGEST_F64, Problem, Reference, exact, length, mask,
    reference, run, same, setting, unit,
};
use attention::{
    AttentionGradients, BatchGradients, Float, LayerGradients, Mask, MultiHeadAttention,
    Parameters, SingleHeadAttention, attention, attention_backward,
};
use nalgebra::{DMatrix, RowDVector, convert, dmatrix, try_convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use std::collections::BTreeMap;

// ---------------------------------------------------------------------------------------------------- engines

/// Pools of 1, 2 and 3 threads, which all cases share.
fn pools() -> Vec<Flash> {
    let threads = if cfg!(feature = "rayon") { vec![1, 2, 3] } else { vec![1] };
    threads.into_iter().map(|n| Flash::new().with_threads(n).unwrap()).collect()
}

/// Every engine on one problem.
fn every_engine<T: Float>(
    pools: &[Flash],
    problem: &Problem,
    data: &Data<T>,
    inputs: &Inputs<T>,
) -> Answers<T> {
    let grad_output = &data.grad_output;
    let mut answers = vec![
        ("naive".to_owned(), naive(inputs, &problem.mask, grad_output)),
        ("tiled".to_owned(), tiled(inputs, grad_output, problem.tiles)),
    ];
    let flash = &pools[(problem.threads - 1) % pools.len()];
    for instructions in Instructions::available() {
        let flash = flash.clone().with_instructions(instructions).unwrap();
        let flash = flash.with_tiles(problem.tiles).unwrap();
        let answer = fast(inputs, grad_output, &flash);
        answers.push((format!("flash, {instructions:?}"), answer));
    }
    answers.push(("flash, its own tiles".to_owned(), fast(inputs, grad_output, flash)));
    let of_both = |(name, (forward, gradients))| (name, forward, Some(gradients));
    answers.into_iter().map(of_both).collect()
}

// ---------------------------------------------------------------------------------------------------- tests

#[test]
fn every_engine_in_f32() {
    let pools = pools();
    run("f32", LARGEST_F32, |of, data, inputs| {
        every_engine::<f32>(&pools, of, data, inputs)
    });
}

#[test]
fn every_engine_in_f64() {
    let pools = pools();
    run("f64", LARGEST_F64, |of, data, inputs| {
        every_engine::<f64>(&pools, of, data, inputs)
    });
}

/// A query that sees a NaN, beside keys that it does not see: those keep their gradients, whatever the tiles.
#[test]
fn a_visible_nan_does_not_reach_hidden_keys() {
    let (q, v) = (dmatrix![1.0; 1.0], dmatrix![1.0; 2.0; 3.0]);
    let allowed = dmatrix![true, false, false; false, true, true];
    let mask = Mask::dense(allowed).unwrap();
    let k = dmatrix![f64::NAN; 1.0; 0.5];
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    let ones = dmatrix![1.0; 1.0];
    let (_, cache) = attention(&q, &k, &v, &mask).unwrap();
    let right = attention_backward(&cache, &ones).unwrap();
    assert!(right.v[0].is_nan() && right.v[1].is_finite());
    for keys in 1..4 {
        let flash = Flash::new().with_tiles(Tiles { queries: 2, keys }).unwrap();
        let (_, given) = fast(&inputs, &ones, &flash);
        for j in 0..3 {
            let same = given.v[j].is_nan() && right.v[j].is_nan()
                || (given.v[j] - right.v[j]).abs() < 1e-15;
            assert!(same, "tiles of {keys} keys: {} and not {}", given.v, right.v);
        }
    }
}

/// A score that overflows is infinite; the keys that its query does not see keep their gradients.
#[test]
fn a_score_that_overflows_does_not_reach_hidden_keys() {
    let (q, v) = (dmatrix![1e20_f32; 1.0], dmatrix![1.0; 2.0; 3.0]);
    let k = dmatrix![1e20_f32; 1.0; 0.5];
    let allowed = dmatrix![true, false, false; false, true, true];
    let mask = Mask::dense(allowed).unwrap();
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    for keys in 1..4 {
        let tiles = Tiles { queries: 2, keys };
        let flash = Flash::new().with_tiles(tiles).unwrap();
        let ones = dmatrix![1.0; 1.0];
        for (_, gradients) in [fast(&inputs, &ones, &flash), tiled(&inputs, &ones, tiles)]
        {
            let grad_v = gradients.v;
            assert!(grad_v[1].is_finite() && grad_v[2].is_finite(), "{keys}: {grad_v}");
        }
    }
}

/// NaN stays NaN in the backward pass.
#[test]
fn a_nan_among_visible_scores_is_nan_in_every_gradient_of_its_row() {
    let (q, k, v) = (dmatrix![1.0], dmatrix![f64::NAN; 1.0], dmatrix![1.0; 2.0]);
    let mask = Mask::none();
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    let tiles = Tiles { queries: 1, keys: 1 };
    for (_, AttentionGradients { q, k, v, .. }) in [
        tiled(&inputs, &dmatrix![1.0], tiles),
        fast(&inputs, &dmatrix![1.0], &Flash::new().with_tiles(tiles).unwrap()),
    ] {
        assert!(q.iter().chain(&k).chain(&v).all(|x| x.is_nan()), "{q}{k}{v}");
    }
}

/// Two equal keys get half of the weight each, however large their scores: forward, and when the backward pass computes
/// the weights again.
#[test]
fn ties_are_ties_at_any_score() {
    fn check<T: Float>(scores: &[f64], tolerance: f64) {
        for d_k in [1, 2, 3, 5] {
            for &score in scores {
                let size: T = convert(score.sqrt());
                let (q, k) =
                    (DMatrix::repeat(1, d_k, size), DMatrix::repeat(2, d_k, size));
                let v: DMatrix<T> = dmatrix![T::zero(); T::one()];
                let mask = Mask::none();
                let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
                let grad = dmatrix![T::one()];
                for keys in [1, 2] {
                    let tiles = Tiles { queries: 1, keys };
                    let mut answers = vec![tiled(&inputs, &grad, tiles)];
                    for instructions in Instructions::available() {
                        let flash = Flash::new().with_tiles(tiles).unwrap();
                        let flash = flash.with_instructions(instructions).unwrap();
                        answers.push(fast(&inputs, &grad, &flash));
                    }
                    for (_, gradients) in answers {
                        for &weight in gradients.v.iter() {
                            let weight: f64 = try_convert(weight).unwrap();
                            assert!(
                                (weight - 0.5).abs() <= tolerance,
                                "a score of {score:e} · √{d_k}, tiles of {keys}: {weight}"
                            );
                        }
                    }
                }
            }
        }
    }
    let scores = [1.0, 9e2, 9e4, 4e8, 1e20, 1e30];
    check::<f32>(&scores, 4.0 * f64::from(f32::EPSILON));
    check::<f64>(&scores, 4.0 * f64::EPSILON);
    check::<f64>(&[1e100, 1e200], 4.0 * f64::EPSILON);
}

// ---------------------------------------------------------------------------------------------------- layers

/// `x W + b`, in plain loops.
fn project(x: &DMatrix<f64>, w: &DMatrix<f64>, b: &RowDVector<f64>) -> DMatrix<f64> {
    DMatrix::from_fn(x.nrows(), w.ncols(), |i, c| {
        b[c] + (0..x.ncols()).map(|l| x[(i, l)] * w[(l, c)]).sum::<f64>()
    })
}

/// The gradients of [`project`] with respect to `x`, `w` and `b`.
fn project_back(
    x: &DMatrix<f64>,
    w: &DMatrix<f64>,
    grad: &DMatrix<f64>,
) -> (DMatrix<f64>, DMatrix<f64>, DMatrix<f64>) {
    let by_x = DMatrix::from_fn(x.nrows(), x.ncols(), |i, l| {
        (0..w.ncols()).map(|c| grad[(i, c)] * w[(l, c)]).sum()
    });
    let by_w = DMatrix::from_fn(w.nrows(), w.ncols(), |l, c| {
        (0..x.nrows()).map(|i| x[(i, l)] * grad[(i, c)]).sum()
    });
    let by_b =
        DMatrix::from_fn(1, w.ncols(), |_, c| (0..x.nrows()).map(|i| grad[(i, c)]).sum());
    (by_x, by_w, by_b)
}

/// The results of a layer by their names: the output, and the gradients with respect to its input, the context and every parameter.
type Named = Vec<(String, Vec<f64>)>;

/// A layer from the definition: projections, heads side by side, projection.
fn layer_by_definition(
    p: &Parameters<f64>,
    n_heads: usize,
    (x, context): (&DMatrix<f64>, Option<&DMatrix<f64>>),
    allowed: &DMatrix<bool>,
    grad_output: &DMatrix<f64>,
) -> Named {
    let source = context.unwrap_or(x);
    let (q, k) = (project(x, &p.w_q, &p.b_q), project(source, &p.w_k, &p.b_k));
    let v = project(source, &p.w_v, &p.b_v);
    let (d_k, d_v) = (q.ncols() / n_heads, v.ncols() / n_heads);
    let heads = |grad_attended: &DMatrix<f64>| -> Vec<Reference> {
        (0..n_heads)
            .map(|h| {
                let slice = |m: &DMatrix<f64>, d: usize| m.columns(h * d, d).into_owned();
                let grad = slice(grad_attended, d_v);
                reference(
                    [&slice(&q, d_k), &slice(&k, d_k), &slice(&v, d_v), &grad],
                    allowed,
                )
            })
            .collect()
    };
    let join = |parts: Vec<DMatrix<f64>>| {
        let d = parts[0].ncols();
        DMatrix::from_fn(parts[0].nrows(), d * n_heads, |i, c| parts[c / d][(i, c % d)])
    };
    let forward = heads(&DMatrix::zeros(x.nrows(), v.ncols()));
    let attended = join(forward.into_iter().map(|head| head.output).collect());
    let output = project(&attended, &p.w_o, &p.b_o);
    let (grad_attended, w_o, b_o) = project_back(&attended, &p.w_o, grad_output);
    let (mut grad_q, mut grad_k, mut grad_v) = (vec![], vec![], vec![]);
    for head in heads(&grad_attended) {
        grad_q.push(head.q);
        grad_k.push(head.k);
        grad_v.push(head.v);
    }
    let (x_q, w_q, b_q) = project_back(x, &p.w_q, &join(grad_q));
    let (x_k, w_k, b_k) = project_back(source, &p.w_k, &join(grad_k));
    let (x_v, w_v, b_v) = project_back(source, &p.w_v, &join(grad_v));
    let (by_x, by_context) = match context {
        Some(_) => (x_q, x_k + x_v),
        None => (x_q + x_k + x_v, DMatrix::zeros(0, 0)),
    };
    [
        ("output", output),
        ("x", by_x),
        ("context", by_context),
        ("w_q", w_q),
        ("w_k", w_k),
        ("w_v", w_v),
        ("w_o", w_o),
        ("b_q", b_q),
        ("b_k", b_k),
        ("b_v", b_v),
        ("b_o", b_o),
    ]
    .map(|(name, matrix)| (name.to_owned(), matrix.as_slice().to_vec()))
    .to_vec()
}

fn layer_answer<T: Float>(output: &DMatrix<T>, gradients: &LayerGradients<T>) -> Named {
    let list = |numbers: &[T]| numbers.iter().map(|&x| try_convert(x).unwrap()).collect();
    let context = gradients.context.as_ref().map_or(&[][..], |matrix| matrix.as_slice());
    let mut named = vec![
        ("output".to_owned(), list(output.as_slice())),
        ("x".to_owned(), list(gradients.x.as_slice())),
        ("context".to_owned(), list(context)),
    ];
    for (name, matrix) in gradients.parameters.named() {
        named.push((name, list(matrix.into_owned().as_slice())));
    }
    named
}

/// Entries of ordinary size: relative to the largest, a layer is off by a few roundings of each of the sums it is made of.
fn compare_layers(given: &Named, right: &Named, tolerance: f64) -> Result<(), String> {
    for ((name, given), (expected, right)) in given.iter().zip(right) {
        assert_eq!((name, given.len()), (expected, right.len()));
        let largest =
            right.iter().filter(|x| x.is_finite()).fold(1.0_f64, |a, b| a.max(b.abs()));
        for (at, (&given, &right)) in given.iter().zip(right).enumerate() {
            same(given, right, tolerance * largest, false).map_err(|how| {
                format!("{name}, entry {at}: {given:e}, not {right:e}: {how}")
            })?;
        }
    }
    Ok(())
}

/// One random layer of each kind, in every way that it can be run: alone, across two sequences, in a batch, by `Flash`.
fn every_layer<T: Float>(
    rng: &mut ChaCha8Rng,
    pools: &[Flash],
) -> Result<Vec<&'static str>, String> {
    let (n_q, n_k) = (length(rng), length(rng));
    let cross = rng.random_bool(0.5);
    let n_k = if cross { n_k } else { n_q };
    let (mask, allowed) = mask(rng, (n_q, n_k));
    let n_heads = rng.random_range(1..4);
    let d_model = n_heads * rng.random_range(1..7);
    let mut matrix = |rows, columns| {
        DMatrix::from_fn(rows, columns, |_, _| {
            convert::<f64, T>(rng.random_range(-1.0..1.0))
        })
    };
    let (mut x, context) = (matrix(n_q, d_model), matrix(n_k, d_model));
    let grad_output = matrix(n_q, d_model);
    // A NaN in a token that no other sees, as in padding: its own row is NaN, and the gradients of parameters are.
    let poisoned = (rng.random_bool(0.3)).then(|| rng.random_range(0..n_q));
    if let Some(token) = poisoned {
        x[(token, 0)] = convert(f64::NAN);
    }
    let context = cross.then_some(&context);
    let (exact_x, exact_context) = (exact(&x), context.map(exact));
    let inputs = (&exact_x, exact_context.as_ref());
    let flash = &pools[rng.random_range(0..pools.len())];
    let tiles = Tiles { queries: length(rng), keys: length(rng) };
    let flash = flash.clone().with_tiles(tiles).unwrap();
    let available = Instructions::available();
    let instructions = available[rng.random_range(0..available.len())];
    let flash = flash.with_instructions(instructions).unwrap();
    let tolerance = (n_q + n_k + 8 * d_model + 64) as f64 * 4.0 * unit::<T>();
    let with_biases = |mut p: Parameters<T>, rng: &mut ChaCha8Rng| {
        for (name, mut matrix) in p.named_mut() {
            if name.starts_with('b') {
                matrix.apply(|b| *b = convert(rng.random_range(-0.5..0.5)));
            }
        }
        p
    };
    let exact_parameters = |p: &Parameters<T>| {
        let row = |b: &RowDVector<T>| b.map(|x| try_convert::<T, f64>(x).unwrap());
        Parameters {
            w_q: exact(&p.w_q),
            w_k: exact(&p.w_k),
            w_v: exact(&p.w_v),
            w_o: exact(&p.w_o),
            b_q: row(&p.b_q),
            b_k: row(&p.b_k),
            b_v: row(&p.b_v),
            b_o: row(&p.b_o),
        }
    };
    let grad = exact(&grad_output);

    let (d_k, d_v) = (rng.random_range(1..8), rng.random_range(1..8));
    let parameters =
        with_biases(Parameters::xavier(d_model, d_k, d_v, rng).unwrap(), rng);
    let right =
        layer_by_definition(&exact_parameters(&parameters), 1, inputs, &allowed, &grad);
    let single = SingleHeadAttention::from(parameters);
    let options = options(context, &mask);
    let (output, cache) = single.forward(&x, options.clone()).unwrap();
    let gradients = single.backward(&cache, &grad_output).unwrap();
    compare_layers(&layer_answer(&output, &gradients), &right, tolerance)
        .map_err(|how| format!("one head: {how}"))?;

    let parameters =
        with_biases(Parameters::xavier(d_model, d_model, d_model, rng).unwrap(), rng);
    let right = layer_by_definition(
        &exact_parameters(&parameters),
        n_heads,
        inputs,
        &allowed,
        &grad,
    );
    let multi = MultiHeadAttention::from_parameters(parameters, n_heads).unwrap();
    let (output, cache) = multi.forward(&x, options.clone()).unwrap();
    let gradients = multi.backward(&cache, &grad_output).unwrap();
    compare_layers(&layer_answer(&output, &gradients), &right, tolerance)
        .map_err(|how| format!("{n_heads} heads: {how}"))?;
    let (output, cache) = multi.forward(&x, options.clone().engine(flash)).unwrap();
    let gradients = multi.backward(&cache, &grad_output).unwrap();
    compare_layers(&layer_answer(&output, &gradients), &right, tolerance)
        .map_err(|how| format!("{n_heads} heads, flash: {how}"))?;
    let mut passed = vec!["one head", "several heads", "several heads, flash"];

    if !cross {
        let xs = [x.clone(), x.clone()];
        let (outputs, caches) = multi.forward_batch(&xs, options).unwrap();
        let BatchGradients { mut parameters, xs: grad_xs, .. } =
            multi.backward_batch(&caches, &[grad_output.clone(), grad_output]).unwrap();
        let half: T = convert(0.5);
        parameters *= half;
        let gradients = LayerGradients {
            parameters,
            x: grad_xs[1].clone(),
            context: None,
            tables: vec![],
        };
        compare_layers(&layer_answer(&outputs[0], &gradients), &right, tolerance)
            .map_err(|how| format!("{n_heads} heads, a batch of two: {how}"))?;
        passed.push("several heads, a batch");
    }
    Ok(passed)
}

fn run_layers<T: Float>(name: &str) {
    let (cases, first) = (setting("RANDOM_CASES", 400) / 2, setting("RANDOM_SEED", 0));
    let pools = pools();
    let mut passed = BTreeMap::new();
    for seed in first..first + cases {
        match every_layer::<T>(&mut ChaCha8Rng::seed_from_u64(seed), &pools) {
            Ok(layers) => {
                for layer in layers {
                    *passed.entry(layer).or_insert(0_u64) += 1;
                }
            }
            Err(how) => panic!("RANDOM_SEED={seed}, {name}: {how}"),
        }
    }
    for (layer, count) in &passed {
        println!("{name}, {layer}: {count} cases");
    }
}

#[test]
fn every_layer_in_f32() {
    run_layers::<f32>("f32");
}

#[test]
fn every_layer_in_f64() {
    run_layers::<f64>("f64");
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
