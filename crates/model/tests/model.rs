//! The model against PyTorch and against finite differences, its cache against whole texts, and its bits.

#[cfg(feature = "open")]
mod opened;

use attention::{
    KeyValueCache, NamedParameters, Result, gradient_check, gradient_check_parameters,
};
use model::{
    Characters, EightBits, LayerNorm, Mlp, Plan, Repeated, RmsNorm, Run, Sizes,
    Task as _, Text, Trained, Training, Transformer, cross_entropy, draw_next,
    head_scores,
};
use nalgebra::{DMatrix, DVector, RowDVector, dvector};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::{Distribution as _, StandardNormal};
use serde_json::Value;
use std::path::Path;

const SIZES: Sizes = Sizes {
    vocabulary: 7,
    d_model: 8,
    n_blocks: 2,
    n_heads: 4,
    n_kv_heads: 2,
    d_hidden: 12,
};

fn rng(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

fn random(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}

/// A model with all parameters random, gains and biases too.
fn random_model(sizes: Sizes, seed: u64) -> Transformer<f64> {
    let mut model = Transformer::new(sizes, &mut rng(seed)).unwrap();
    for (_, mut matrix) in model.named_mut() {
        let (rows, columns) = matrix.shape();
        matrix.copy_from(&(random(rows, columns, &mut rng(seed)) * 0.5));
    }
    model
}

fn text(tokens: &[usize], first: usize) -> Text {
    Text { tokens: tokens.to_vec(), first }
}

fn matrix(rows: &Value) -> DMatrix<f64> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(rows.clone()).unwrap();
    DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
}

fn compare(name: &str, ours: &DMatrix<f64>, theirs: &Value) {
    let theirs = matrix(theirs);
    assert_eq!(ours.shape(), theirs.shape(), "{name}");
    let difference = (ours - theirs).amax();
    assert!(difference < 1e-10, "{name} differs by {difference:e}");
}

#[test]
fn a_model_of_two_blocks_and_its_gradients_are_those_of_pytorch() -> Result<()> {
    let golden: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    let mut model = random_model(SIZES, 0);
    for (name, mut ours) in model.named_mut() {
        ours.copy_from(&matrix(&golden["parameters"][&name]));
    }
    let texts: Vec<Text> = golden["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| Text {
            tokens: serde_json::from_value(it["tokens"].clone()).unwrap(),
            first: serde_json::from_value(it["first"].clone()).unwrap(),
        })
        .collect();
    for (text, theirs) in texts.iter().zip(golden["scores"].as_array().unwrap()) {
        let (scores, _) = model.forward(&text.tokens[..text.tokens.len() - 1])?;
        compare("scores", &scores, theirs);
    }
    let (loss, gradients) = model.loss_and_gradients(&texts)?;
    assert!((loss - golden["loss"].as_f64().unwrap()).abs() < 1e-10);
    assert!((model.loss(&texts)? - loss).abs() < 1e-15);
    let named = gradients.named();
    assert_eq!(named.len(), golden["gradients"].as_object().unwrap().len());
    for (name, ours) in named {
        compare(&name, &ours.into_owned(), &golden["gradients"][&name]);
    }
    Ok(())
}

#[test]
fn layer_norm_and_its_gradients_are_those_of_pytorch() {
    let golden: Value = serde_json::from_str(include_str!("golden.json")).unwrap();
    let golden = &golden["layer_norm"];
    let row =
        |name: &str| -> RowDVector<f64> { matrix(&golden[name]).row(0).into_owned() };
    let norm = LayerNorm {
        rms: RmsNorm { gain: row("gain"), epsilon: 1e-5 },
        bias: row("bias"),
    };
    let (y, cache) = norm.forward(&matrix(&golden["x"]));
    compare("y", &y, &golden["y"]);
    let (grad_x, grads) = norm.backward(&cache, &matrix(&golden["grad_y"]));
    compare("grad_x", &grad_x, &golden["grad_x"]);
    for (name, ours) in [("grad_gain", &grads.rms.gain), ("grad_bias", &grads.bias)] {
        compare(name, &DMatrix::from_rows(std::slice::from_ref(ours)), &golden[name]);
    }
}

/// For each way a model can be built: with and without an MLP, with and without shared keys, one block and three.
#[test]
fn every_gradient_agrees_with_finite_differences() -> Result<()> {
    for (n_blocks, n_kv_heads, d_hidden) in [(1, 2, 0), (2, 1, 6), (3, 2, 6)] {
        let sizes = Sizes {
            vocabulary: 5,
            d_model: 4,
            n_blocks,
            n_heads: 2,
            n_kv_heads,
            d_hidden,
        };
        let model = random_model(sizes, 3);
        let texts = [text(&[0, 4, 4, 1, 2], 2), text(&[3, 0, 3], 1)];
        let (_, gradients) = model.loss_and_gradients(&texts)?;
        for (name, check) in
            gradient_check_parameters(&model, &gradients, 1e-5, |model| {
                model.loss(&texts)
            })?
        {
            assert!(check.max_relative_error < 1e-5, "{name}: {check:?}");
        }
    }
    Ok(())
}

#[test]
fn layers_and_loss_agree_with_finite_differences() -> Result<()> {
    let rng = &mut rng(5);
    let (x, grad_y) = (random(3, 6, rng), random(3, 6, rng));
    let along = |y: &DMatrix<f64>| Ok(y.dot(&grad_y));

    let mut norm = LayerNorm::new(6);
    norm.rms.gain.copy_from(&random(1, 6, rng));
    let grad_x = norm.backward(&norm.forward(&x).1, &grad_y).0;
    let check = gradient_check(&x, &grad_x, 1e-5, |x| along(&norm.forward(x).0))?;
    assert!(check.max_relative_error < 1e-6, "{check:?}");

    let mlp = Mlp::new(6, 9, 1.0, rng);
    let grad_x = mlp.backward(&mlp.forward(&x)?.1, &grad_y)?.0;
    let check = gradient_check(&x, &grad_x, 1e-5, |x| along(&mlp.forward(x)?.0))?;
    assert!(check.max_relative_error < 1e-6, "{check:?}");

    let targets = [Some(5), None, Some(0)];
    let (_, gradient) = cross_entropy(&x, &targets)?;
    let check =
        gradient_check(&x, &gradient, 1e-5, |x| Ok(cross_entropy(x, &targets)?.0))?;
    assert!(check.max_relative_error < 1e-6, "{check:?}");
    Ok(())
}

/// In `f32` two scores of 10⁷ have a log-sum-exp of 10⁷, and a sum of four million losses stops growing.
#[test]
fn a_loss_is_right_for_large_scores_and_for_many_rows() -> Result<()> {
    for size in [1e7_f32, -1e8, 1e30] {
        let (loss, _) = cross_entropy(&DMatrix::repeat(1, 2, size), &[Some(1)])?;
        assert_eq!(loss, 2.0_f32.ln(), "{size:e}");
    }
    let (loss, _) =
        cross_entropy(&DMatrix::from_row_slice(1, 2, &[1e8, 0.0]), &[Some(1)])?;
    assert_eq!(loss, 1e8_f32);
    let none = f32::NEG_INFINITY; // a token that can't come
    let (loss, _) =
        cross_entropy(&DMatrix::from_row_slice(1, 2, &[3.0, none]), &[Some(1)])?;
    assert_eq!(loss, f32::INFINITY);

    const ROWS: usize = 4_000_000;
    let (loss, _) = cross_entropy(&DMatrix::<f32>::zeros(ROWS, 2), &vec![Some(0); ROWS])?;
    assert!((loss / ROWS as f32 - 2.0_f32.ln()).abs() < 1e-6, "{loss}");
    Ok(())
}

#[test]
fn what_cannot_be_said_is_an_error() -> Result<()> {
    let model = random_model(SIZES, 1);
    let words = |error: Result<()>| error.unwrap_err().to_string();
    let unsaid = [text(&[1, 2], 9)];
    let of_both = [
        model.loss(&unsaid).map(drop),
        model.loss_and_gradients(&unsaid).map(drop),
        model.loss(&[]).map(drop),
    ];
    for error in of_both {
        let words = words(error);
        assert!(
            words.starts_with("`texts` is empty (no token is to be said)"),
            "{words}"
        );
    }
    let unknown = "`tokens` is 7 but the vocabulary has the tokens below 7";
    let mut caches = vec![KeyValueCache::new(); 2];
    assert_eq!(words(model.forward(&[1, 7]).map(drop)), unknown);
    assert_eq!(words(model.forward_cached(&[7], &mut caches).map(drop)), unknown);
    assert_eq!(caches[0].tokens(), 0);
    let last = "`targets` is 7 but the vocabulary has the tokens below 7";
    assert_eq!(words(model.loss(&[text(&[1, 7], 1)]).map(drop)), last);
    let few = cross_entropy(&DMatrix::<f64>::zeros(2, 7), &[None]).map(drop);
    assert_eq!(words(few), "`targets` has 1 entry but there are 2 rows of scores");
    Ok(())
}

#[test]
fn sizes_beyond_any_memory_are_an_error() {
    let huge = 1 << 62;
    for sizes in [
        Sizes { vocabulary: 6_400_000_000, d_model: 64, ..SIZES },
        Sizes { vocabulary: huge, ..SIZES },
        Sizes { d_model: huge, ..SIZES },
        Sizes { d_model: usize::MAX - 3, ..SIZES },
        Sizes { n_blocks: huge, ..SIZES },
        Sizes { d_hidden: huge, ..SIZES },
    ] {
        let error = Transformer::<f32>::new(sizes, &mut rng(0)).unwrap_err().to_string();
        assert!(error.ends_with("but no memory could hold them"), "{error}");
    }
    let none = Sizes { vocabulary: 0, ..SIZES };
    let error = Transformer::<f32>::new(none, &mut rng(0)).unwrap_err().to_string();
    assert_eq!(error, "`vocabulary` is 0 but it must be at least 1");
    for sizes in [SIZES, Sizes { d_hidden: 0, n_blocks: 3, ..SIZES }] {
        let model = Transformer::<f32>::new(sizes, &mut rng(0)).unwrap();
        let entries: usize = model.named().iter().map(|(_, matrix)| matrix.len()).sum();
        assert_eq!(sizes.parameters(), entries);
    }
}

/// A square of 10²⁰ is infinite in `f32`: a row of these is still brought to one size.
#[test]
fn large_rows_are_normalised() {
    let norm = RmsNorm::<f32>::new(2);
    let x = DMatrix::from_row_slice(2, 2, &[3e20, 4e20, 3.0, 4.0]);
    let (y, cache) = norm.forward(&x);
    assert!((y.row(0) - y.row(1)).amax() < 1e-6, "{y}");
    let (grad_x, _) =
        norm.backward(&cache, &DMatrix::from_row_slice(2, 2, &[1.0, 0.0, 1.0, 0.0]));
    assert!((grad_x.row(0) * 1e20 - grad_x.row(1)).amax() < 1e-6, "{grad_x}");
}

#[test]
fn a_text_that_comes_in_parts_gets_the_scores_of_the_whole() -> Result<()> {
    let model = random_model(SIZES, 1);
    let tokens: Vec<usize> = (0..20).map(|i| i * i % 7).collect();
    let (whole, _) = model.forward(&tokens)?;
    let mut caches = vec![KeyValueCache::new(); 2];
    for (first, count) in [(0, 7), (7, 1), (8, 12)] {
        let scores = model.forward_cached(&tokens[first..first + count], &mut caches)?;
        assert!((scores - whole.rows(first, count)).amax() < 1e-12);
    }
    Ok(())
}

#[test]
fn bits_are_the_same_for_one_thread_and_three() -> Result<()> {
    let task = Repeated { vocabulary: 9, periods: (3, 6), tokens: 15 };
    let texts: Vec<Text> = (0..5).map(|_| task.draw(&mut rng(2))).collect();
    let model = Transformer::<f32>::new(Sizes { vocabulary: 9, ..SIZES }, &mut rng(0))?;
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| model.loss_and_gradients(&texts))
    };
    assert_eq!(run(1)?, run(3)?);
    Ok(())
}

/// A head is switched off if and only if its output no longer reaches the block's: the model is linear in W_O's rows.
#[test]
fn a_head_that_is_off_changes_what_its_rows_of_w_o_carry() -> Result<()> {
    let model = random_model(SIZES, 4);
    let tokens = [1, 2, 3, 1];
    let off = model.without_heads(&[(0, 1), (1, 3)]);
    let (on, _) = model.forward(&tokens)?;
    let (without, cache) = off.forward(&tokens)?;
    assert!((&on - &without).amax() > 1e-3);
    assert_eq!(cache.weights(0).len(), 4); // it still looks, without effect
    let mut noisy = off.clone(); // what it finds makes no difference any more
    let w_q = &mut noisy.blocks[0].attention.parameters.w_q;
    w_q.columns_mut(2, 2).fill(9.0);
    assert_eq!(noisy.forward(&tokens)?.0, without);
    Ok(())
}

/// Weights made by hand: a head that looks at itself, and one that looks at the token before.
#[test]
fn scores_of_heads_are_shares_of_weight() -> Result<()> {
    let model = random_model(SIZES, 6);
    let texts = [vec![0, 1, 2, 0, 1, 2]];
    let (_, cache) = model.forward(&texts[0])?;
    let weights = &cache.weights(1)[2];
    let scores = head_scores(&model, &texts)?[1][2];
    let mean = |of: &dyn Fn(usize) -> f64, from: usize| {
        (from..6).map(of).sum::<f64>() / (6 - from) as f64
    };
    let close = |a: f32, b: f64| assert!((a as f64 - b).abs() < 1e-6, "{a} and {b}");
    close(scores.itself, mean(&|i| weights[(i, i)], 0));
    close(scores.previous, mean(&|i| weights[(i, i - 1)], 1));
    close(scores.first, mean(&|i| weights[(i, 0)], 2));
    close(scores.after_copy, mean(&|i| weights[(i, i - 2)], 3)); // three back, and one on
    assert!(scores.entropy > 0.0 && scores.entropy <= 1.0);
    Ok(())
}

#[test]
fn a_temperature_near_zero_takes_the_largest_and_one_draws_by_softmax() -> Result<()> {
    let scores: DVector<f64> = dvector![0.0, 2.0, 1.0];
    let rng = &mut rng(0);
    assert!((0..50).all(|_| draw_next(&scores, 0.0, rng).unwrap() == 1));
    let mut counts = [0.0; 3];
    (0..20_000)
        .for_each(|_| counts[draw_next(&scores, 1.0, rng).unwrap()] += 1.0 / 20_000.0);
    let weights = attention::softmax(&scores)?;
    for (count, weight) in counts.iter().zip(weights.iter()) {
        assert!((count - weight).abs() < 0.02, "{counts:?}");
    }
    Ok(())
}

#[test]
fn texts_say_what_they_should() {
    let task = Repeated { vocabulary: 9, periods: (3, 6), tokens: 15 };
    let rng = &mut rng(1);
    for _ in 0..20 {
        let Text { tokens, first } = task.draw(rng);
        let period = first - 1;
        assert!((3..=6).contains(&period) && tokens.len() == 15);
        assert!((period..15).all(|i| tokens[i] == tokens[i - period]));
        let mut stretch = tokens[..period].to_vec();
        stretch.sort_unstable();
        stretch.dedup();
        assert_eq!(stretch.len(), period, "a token that stands twice has two successors");
    }

    // A paragraph of four characters in each line; one character is rare.
    let written: String =
        (0..500).map(|i| if i == 7 { "zab\n" } else { "b a\n" }).collect();
    let task = Characters::new(&written, 10, 2).unwrap();
    assert_eq!(task.alphabet, ['\n', ' ', 'a', 'b']); // z stands in it once
    assert_eq!(task.tokens("ba").unwrap(), [3, 2]);
    assert_eq!(
        task.tokens("bz").unwrap_err().to_string(),
        "'z' is not in the model's alphabet"
    );
    assert!(task.held_out().iter().all(|text| text.tokens.len() == 11));
    let Text { tokens, first } = task.draw(&mut ChaCha8Rng::seed_from_u64(rng.random()));
    assert_eq!((tokens.len(), first), (11, 1));
    assert!(Characters::new("too short", 10, 1).is_err());
}

/// A text that goes on beyond the length of training is one whose tokens look no further back than in training.
#[test]
fn no_token_looks_further_back_than_in_training() {
    let text: String = (0..500).map(|i| ["abc\n", "cab\n", "bca\n"][i % 3]).collect();
    let task = Characters::new(&text, 8, 1).unwrap();
    let mut cache = task.cache().unwrap();
    let layer = &random_model(SIZES, 2).blocks[0].attention;
    let x = random(30, 8, &mut rng(0));
    let output = layer.forward_cached(&x, &mut cache, attention::Mask::causal()).unwrap();
    let mut moved = x.clone();
    moved.rows_mut(0, 22).fill(1.0); // what the last token can't see
    let (seen, _) = layer
        .forward(
            &moved,
            attention::Mask::causal().and(attention::Mask::window(8).unwrap()),
        )
        .unwrap();
    assert!((output.row(29) - seen.row(29)).amax() < 1e-12);
}

/// A model of fewer tokens, or of more, isn't one that learned this task.
#[test]
fn a_model_of_another_vocabulary_does_not_write() {
    let text: String = (0..500).map(|i| ["abc\n", "cab\n"][i % 2]).collect();
    let task = Characters::new(&text, 8, 1).unwrap();
    for vocabulary in [3, 5] {
        let model = random_model(Sizes { vocabulary, ..SIZES }, 0);
        let error = task.go_on(&model, "ab", (5, 1.0, 0), |_| Ok(())).unwrap_err();
        let words =
            format!("the model has {vocabulary} tokens and the text 4 characters");
        assert!(error.to_string().starts_with(&words), "{error}");
    }
}

/// The book's training in small: it falls, by the heads that the book shows, and again with the same bits.
#[test]
fn a_short_training_brings_two_heads_that_work_together() {
    let task = Repeated { vocabulary: 16, periods: (5, 8), tokens: 24 };
    let plan = Plan {
        sizes: Sizes {
            vocabulary: 16,
            d_model: 32,
            n_blocks: 2,
            n_heads: 1,
            n_kv_heads: 1,
            d_hidden: 0,
        },
        seed: 0,
        steps: 200,
        batch: 32,
        rate: 0.006,
        warm_up: 20,
        clip: 1.0,
        weight_decay: 0.0,
        measure_every: 100,
    };
    let train = || {
        let mut training = Training::new(plan.clone(), &task).unwrap();
        while training.steps() < plan.steps {
            training.step(&task).unwrap();
        }
        training
    };
    let training = train();
    let steps: Vec<_> = training.history.iter().map(|at| at.step).collect();
    assert_eq!(steps, [0, 100, 200]);
    let last = training.history.last().unwrap();
    assert!(training.history[0].held_out > 2.5 && last.held_out < 0.2);
    assert!(last.heads[0][0].previous > 0.4 && last.heads[1][0].after_copy > 0.6);
    assert_eq!(train(), training);

    let guessing =
        training.model.without_heads(&[(1, 0)]).loss(&task.held_out()).unwrap();
    assert!(guessing > 1.0, "{guessing}");
}

#[test]
fn a_rate_that_is_too_large_is_named_and_nothing_is_lost() {
    let task = Repeated { vocabulary: 16, periods: (5, 8), tokens: 24 };
    let sizes = Sizes { vocabulary: 16, d_hidden: 0, ..SIZES };
    let plan = Plan {
        sizes,
        seed: 0,
        steps: 10,
        batch: 2,
        rate: f32::MAX,
        warm_up: 1,
        clip: 1.0,
        weight_decay: 0.0,
        measure_every: 100,
    };
    let mut training = Training::new(plan, &task).unwrap();
    let error = loop {
        let before = training.clone();
        match training.step(&task) {
            Ok(_) => assert!(training.steps() < 5),
            Err(error) => {
                assert_eq!(training.steps(), before.steps());
                break error.to_string();
            }
        }
    };
    assert!(error.contains("try a smaller rate than"), "{error}");
}

fn small() -> (Plan, Repeated) {
    let task = Repeated { vocabulary: 16, periods: (5, 8), tokens: 24 };
    let sizes = Sizes { vocabulary: 16, d_hidden: 0, ..SIZES };
    let plan = Plan {
        sizes,
        seed: 0,
        steps: 10,
        batch: 2,
        rate: 0.01,
        warm_up: 20,
        clip: 1.0,
        weight_decay: 0.0,
        measure_every: 1,
    };
    (plan, task)
}

/// What can't be opened isn't written, and the file from before stays.
#[test]
fn a_training_that_is_not_finite_is_not_saved() {
    let (plan, task) = small();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.json");
    let mut training = Training::new(plan, &task).unwrap();
    training.step(&task).unwrap();
    training.save(&file).unwrap();
    let before = training.clone();
    for (spoil, what) in [
        (
            (|it: &mut Training| it.model.norm.gain[3] = f32::NAN) as fn(&mut Training),
            "`norm.gain` has NaN",
        ),
        (
            |it| it.history[1].held_out = f32::INFINITY,
            "what was measured at step 1 has inf",
        ),
        (
            |it| it.history[0].heads[0][1].entropy = f32::NAN,
            "what was measured at step 0 has NaN",
        ),
        (
            |it| it.history[1].gradients[0].1 = f32::NAN,
            "what was measured at step 1 has NaN",
        ),
        (|it| it.plan.rate = f32::NAN, "the plan has NaN"),
    ] {
        let mut training = before.clone();
        spoil(&mut training);
        let error = format!("{:#}", training.save(&file).unwrap_err());
        assert!(error.contains(what), "{error}");
        let run = Run {
            date: String::new(),
            processor: String::new(),
            threads: 1,
            seconds: 1.0,
            peak_bytes: None,
        };
        let trained = Trained::new(training, run, vec![]);
        let error = format!("{:#}", trained.save(folder.path(), "it").unwrap_err());
        assert!(error.contains(what), "{error}");
        let files = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 1);
    }
    assert_eq!(Training::open(&file, &task).unwrap(), before);
}

/// Numbers that no training would write, with an error for each, before any memory is asked for.
#[test]
fn a_tampered_training_is_an_error() {
    let (plan, task) = small();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.json");
    let mut training = Training::new(plan, &task).unwrap();
    training.step(&task).unwrap();
    training.save(&file).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let huge = 1_u64 << 62;
    for (place, value, words) in [
        ("/plan/sizes/vocabulary", huge.into(), "the sizes ask for"),
        ("/plan/sizes/vocabulary", 6_400_000_000_u64.into(), "the sizes ask for"),
        ("/plan/sizes/n_blocks", huge.into(), "the sizes ask for"),
        ("/plan/sizes/d_model", u64::MAX.into(), "the sizes ask for"),
        ("/plan/sizes/n_heads", 0.into(), "the sizes ask for"),
        ("/plan/batch", huge.into(), "a batch of 4611686018427387904 texts"),
        ("/plan/batch", 0.into(), "a batch of 0 texts"),
        ("/parameters/0/1/0", Value::from(1e39), "number out of range"),
        ("/adam/averages/0/1/1", huge.into(), "`mean` has"),
    ] {
        let mut tampered = written.clone();
        *tampered.pointer_mut(place).unwrap() = value;
        std::fs::write(&file, tampered.to_string()).unwrap();
        let error = format!("{:#}", Training::open(&file, &task).unwrap_err());
        assert!(error.contains(words), "{place}: {error}");
    }
    // There is nothing wrong with these, but that sums and differences of them are out of range.
    for place in ["/adam/steps", "/plan/warm_up", "/plan/steps"] {
        let mut tampered = written.clone();
        *tampered.pointer_mut(place).unwrap() = u64::MAX.into();
        std::fs::write(&file, tampered.to_string()).unwrap();
        Training::open(&file, &task).unwrap().step(&task).unwrap();
    }
}

#[test]
fn another_task_is_no_task_to_go_on_with() {
    let (plan, task) = small();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.json");
    let mut training = Training::new(plan, &task).unwrap();
    training.save(&file).unwrap();
    let other = Repeated { tokens: 25, ..task };
    let words = "it was trained on other texts";
    let error = training.step(&other).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
    let error = format!("{:#}", Training::open(&file, &other).unwrap_err());
    assert!(error.contains(words), "{error}");
}

/// Every entry is at most half a step off, and bytes that are no model are refused.
#[test]
fn eight_bits_are_near_the_parameters_and_those_that_are_committed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("trained");
    let trained = Trained::open(&folder, "book").unwrap();
    let bytes =
        EightBits::to_bytes(trained.plan.sizes, &trained.alphabet, &trained.model);
    assert!(bytes == std::fs::read(folder.join("book.i8")).unwrap(), "another book.i8");
    assert!(bytes.len() <= 300 * 1024, "a page fetches {} bytes", bytes.len());
    let read = EightBits::<f32>::from_bytes(&bytes).unwrap();
    assert_eq!((read.sizes, &read.alphabet), (trained.plan.sizes, &trained.alphabet));
    for ((name, near), (_, exact)) in read.model.named().iter().zip(trained.model.named())
    {
        for (near, exact) in near.column_iter().zip(exact.column_iter()) {
            let step = exact.amax() / 127.0;
            assert!((near - exact).amax() <= 0.501 * step, "{name}");
        }
    }
    for (bytes, words) in [
        (&b"no model"[..], "no sizes"),
        (b"1 2 3\n", "six sizes are needed"),
        (b"80 64 4 4 2 99999999999999\nabc", "too few for the sizes"),
        (&bytes[..bytes.len() - 1], "they end too soon"),
        (&[&bytes[..], b"x"].concat(), "there are too many"),
        (&[b"1 2 1 1 1 0\na", &[0xff; 200][..]].concat(), "a number isn't finite"),
        (b"4611686018427387904 2 1 1 1 0\na", "too few for the sizes"),
        (b"2 2 4611686018427387904 1 1 0\na", "too few for the sizes"),
    ] {
        let error = EightBits::<f32>::from_bytes(bytes).unwrap_err().to_string();
        assert!(error.ends_with(words), "{error}");
    }
}
