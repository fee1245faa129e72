//! Trains two blocks of attention with a fault in each, beside the right ones, on the task `repeated`: for the page *Faults that training hides*.
//!
//! `cargo run --release -p model --example hidden_faults -- crates/model/trained/hidden-faults.json`
//!
//! Attention is written out here, forward and backward, because the crate's can't be made wrong.

use anyhow::{Context as _, Result};
use attention::{
    Adam, NamedParameters as _, Parameters, Rotary, linear, linear_backward,
    named_parameters,
    positions::RotaryPairs,
    softmax::{softmax_rows, softmax_rows_backward},
};
use fast::Float;
use laboratory::Fault::{self, *};
use model::{NormCache, Repeated, RmsNorm, Run, Task as _, Text, cross_entropy};
use nalgebra::{DMatrix, RowDVector};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use rayon::iter::{IntoParallelRefIterator as _, ParallelIterator as _};
use serde_json::json;

const D_MODEL: usize = 64;
const HEADS: usize = 2;
const BLOCKS: usize = 2;
const BATCH: usize = 32;
const STEPS: usize = 600;
const EVERY: usize = 20;
/// The step at which entropy and gradients are looked at, before it is taken.
const LOOK: usize = 100;

/// The models: what each is called, its fault, and the width of its heads.
const MODELS: [(&str, Option<Fault>, usize); 7] = [
    ("right", None, 32),
    ("softmax over the wrong axis", Some(SoftmaxOverQueries), 32),
    ("heads merged without a transpose", Some(HeadsMergedWithoutTranspose), 32),
    ("right, 64 wide", None, 64),
    ("no scale, 64 wide", Some(ScaleMissing), 64),
    ("right, 512 wide", None, 512),
    ("no scale, 512 wide", Some(ScaleMissing), 512),
];

/// The parameters, or their gradients.
#[derive(Clone)]
struct Faulty<T: Float> {
    embedding: DMatrix<T>,
    norms: Vec<RmsNorm<T>>, // one for each block, and the last
    layers: Vec<Parameters<T>>,
    unembedding: DMatrix<T>,
}

named_parameters! {
    impl[T: Float] NamedParameters<T> for Faulty<T> { embedding, norms, layers, unembedding }
}

/// A forward pass: the scores of the next token after each, and what the backward pass needs.
struct Forward<T: Float> {
    scores: DMatrix<T>,
    layers: Vec<Cache<T>>,
    norm: NormCache<T>, // of the last norm, and what it returned
    normed: DMatrix<T>,
}

/// What the backward pass of one layer needs.
struct Cache<T: Float> {
    norm: NormCache<T>,
    x: DMatrix<T>,
    qkv: [DMatrix<T>; 3], // queries and keys turned
    weights: Vec<DMatrix<T>>,
    attended: DMatrix<T>,
}

impl<T: Float> Faulty<T> {
    fn new(vocabulary: usize, width: usize, rng: &mut ChaCha8Rng) -> Result<Self> {
        let layer = |_| Parameters::xavier(D_MODEL, HEADS * width, HEADS * width, rng);
        let layers: Vec<Parameters<T>> =
            (0..BLOCKS).map(layer).collect::<Result<_, _>>()?;
        let mut random = Parameters::xavier(vocabulary, D_MODEL, D_MODEL, rng)?;
        let deviation = ((vocabulary + D_MODEL) as f64 / 2.0).sqrt();
        random.w_q *= nalgebra::convert::<_, T>(deviation); // to 1
        let unembedding = Parameters::xavier(D_MODEL, vocabulary, vocabulary, rng)?.w_q;
        let norms = vec![RmsNorm::new(D_MODEL); BLOCKS + 1];
        Ok(Faulty { embedding: random.w_q, norms, layers, unembedding })
    }

    fn forward(&self, fault: Option<Fault>, tokens: &[usize]) -> Result<Forward<T>> {
        let mut x = self.embedding.select_rows(tokens);
        let mut caches = vec![];
        for (layer, norm) in self.layers.iter().zip(&self.norms) {
            let (normed, norm) = norm.forward(&x);
            let [mut q, mut k] = [(&layer.w_q, &layer.b_q), (&layer.w_k, &layer.b_k)]
                .map(|(w, b)| linear(&normed, w, b));
            (q, k) =
                (Ok(rotary()?.turn(&q?, HEADS, 0)?), Ok(rotary()?.turn(&k?, HEADS, 0)?));
            let qkv = [q?, k?, linear(&normed, &layer.w_v, &layer.b_v)?];
            let (weights, attended) = attend(fault, &qkv)?;
            x += linear(&attended, &layer.w_o, &layer.b_o)?;
            caches.push(Cache { norm, x: normed, qkv, weights, attended });
        }
        let (normed, norm) = self.norms[BLOCKS].forward(&x);
        let scores = linear(&normed, &self.unembedding, &RowDVector::zeros(0))?;
        Ok(Forward { scores, layers: caches, norm, normed })
    }

    /// Returns the sum of the losses of a text and its gradients.
    fn loss_and_gradients(&self, fault: Option<Fault>, text: &Text) -> Result<(T, Self)> {
        let (read, targets) = (text.read(), text.targets());
        let Forward { scores, layers: caches, norm, normed } =
            self.forward(fault, read)?;
        let (loss, grad_scores) = cross_entropy(&scores, &targets)?;
        let mut gradients = self.clone();
        gradients.scale(T::zero());
        let (grad, unembedding, _) =
            linear_backward(&normed, &self.unembedding, &grad_scores)?;
        gradients.unembedding = unembedding;
        let (mut grad_x, of_norm) = self.norms[BLOCKS].backward(&norm, &grad);
        gradients.norms[BLOCKS] = of_norm;
        for (b, cache) in caches.iter().enumerate().rev() {
            let layer = &self.layers[b];
            let (grad_attended, w_o, b_o) =
                linear_backward(&cache.attended, &layer.w_o, &grad_x)?;
            let [q, k, v] = attend_backward(fault, cache, &grad_attended)?;
            let [q, k] =
                [rotary()?.turn_back(&q, HEADS, 0)?, rotary()?.turn_back(&k, HEADS, 0)?];
            let (from_q, w_q, b_q) = linear_backward(&cache.x, &layer.w_q, &q)?;
            let (from_k, w_k, b_k) = linear_backward(&cache.x, &layer.w_k, &k)?;
            let (from_v, w_v, b_v) = linear_backward(&cache.x, &layer.w_v, &v)?;
            gradients.layers[b] = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
            let (through, of_norm) =
                self.norms[b].backward(&cache.norm, &(from_q + from_k + from_v));
            gradients.norms[b] = of_norm;
            grad_x += through;
        }
        for (&token, grad) in read.iter().zip(grad_x.row_iter()) {
            let mut row = gradients.embedding.row_mut(token);
            row += grad;
        }
        Ok((loss, gradients))
    }

    /// The mean loss of what is to be said, when the texts are read whole as in training, or token by token as when the model writes.
    fn loss(&self, fault: Option<Fault>, texts: &[Text], by_token: bool) -> Result<f64> {
        let losses = texts.par_iter().map(|text| -> Result<f64> {
            let (read, targets) = (text.read(), text.targets());
            let scores = if by_token {
                let rows = (1..=read.len()).map(|n| {
                    Ok(self.forward(fault, &read[..n])?.scores.row(n - 1).into_owned())
                });
                DMatrix::from_rows(&rows.collect::<Result<Vec<_>>>()?)
            } else {
                self.forward(fault, read)?.scores
            };
            Ok(cross_entropy(&scores, &targets)?.0.to_subset_unchecked())
        });
        let count = Text::said(texts);
        Ok(losses.collect::<Result<Vec<_>>>()?.iter().sum::<f64>() / count as f64)
    }
}

fn rotary() -> Result<Rotary> {
    Ok(Rotary::new(10_000.0, RotaryPairs::Halves)?)
}

fn scale<T: Float>(fault: Option<Fault>, d: usize) -> T {
    let width = if fault == Some(ScaleMissing) { 1 } else { d };
    nalgebra::convert((width as f64).powf(-0.5))
}

/// Causal attention of all heads with a fault: weights and outputs.
fn attend<T: Float>(
    fault: Option<Fault>,
    [q, k, v]: &[DMatrix<T>; 3],
) -> Result<(Vec<DMatrix<T>>, DMatrix<T>)> {
    let (n, d) = (q.nrows(), q.ncols() / HEADS);
    let (mut weights, mut outputs) = (vec![], vec![]);
    for head in 0..HEADS {
        let of = |x: &DMatrix<T>| x.columns(head * d, d).into_owned();
        let mut scores = of(q) * of(k).transpose() * scale::<T>(fault, d);
        for (i, j) in (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))) {
            scores[(i, j)] = nalgebra::convert(f64::NEG_INFINITY);
        }
        // ANCHOR: axis
        let of_head = match fault {
            Some(SoftmaxOverQueries) => softmax_rows(&scores.transpose())?.transpose(),
            _ => softmax_rows(&scores)?,
        };
        // ANCHOR_END: axis
        outputs.push(&of_head * of(v));
        weights.push(of_head);
    }
    let attended = DMatrix::from_fn(n, HEADS * d, |i, c| {
        let (head, i, c) = place(fault, (i, c), (n, d));
        outputs[head][(i, c)]
    });
    Ok((weights, attended))
}

// ANCHOR: place
/// The head, the token and the column whose output stands here once heads are merged.
fn place(
    fault: Option<Fault>,
    (i, c): (usize, usize),
    (n, d): (usize, usize),
) -> (usize, usize, usize) {
    match fault {
        Some(HeadsMergedWithoutTranspose) => {
            let flat = i * HEADS * d + c; // as (n, heads · d), and so as (heads, n, d)
            (flat / (n * d), flat / d % n, flat % d)
        }
        _ => (c / d, i, c % d),
    }
}
// ANCHOR_END: place

fn attend_backward<T: Float>(
    fault: Option<Fault>,
    cache: &Cache<T>,
    grad_attended: &DMatrix<T>,
) -> Result<[DMatrix<T>; 3]> {
    let [q, k, v] = &cache.qkv;
    let (n, d) = (q.nrows(), q.ncols() / HEADS);
    let mut grad_outputs = vec![DMatrix::zeros(n, d); HEADS];
    for (i, c) in (0..n).flat_map(|i| (0..HEADS * d).map(move |c| (i, c))) {
        let (head, row, column) = place(fault, (i, c), (n, d));
        grad_outputs[head][(row, column)] = grad_attended[(i, c)];
    }
    let mut grads = [q, k, v].map(|x| DMatrix::zeros(n, x.ncols()));
    for (head, grad_output) in grad_outputs.iter().enumerate() {
        let of = |x: &DMatrix<T>| x.columns(head * d, d).into_owned();
        let weights = &cache.weights[head];
        let grad_weights = grad_output * of(v).transpose();
        let grad_scores = match fault {
            Some(SoftmaxOverQueries) => {
                softmax_rows_backward(&weights.transpose(), &grad_weights.transpose())?
                    .transpose()
            }
            _ => softmax_rows_backward(weights, &grad_weights)?,
        } * scale::<T>(fault, d);
        grads[0].columns_mut(head * d, d).copy_from(&(&grad_scores * of(k)));
        grads[1].columns_mut(head * d, d).copy_from(&(grad_scores.transpose() * of(q)));
        grads[2].columns_mut(head * d, d).copy_from(&(weights.transpose() * grad_output));
    }
    Ok(grads)
}

/// What a training showed.
#[derive(Default)]
struct Curves {
    /// Steps, and the loss of unseen texts that are read whole.
    losses: Vec<[f64; 2]>,
    /// The last of them, for texts that are read token by token.
    by_token: f64,
    /// The mean entropy of all rows, as a share of the largest possible, at the step [`LOOK`].
    entropy: f64,
    /// The norm of the gradients of all W_Q over that of all W_V, at the same step.
    q_over_v: f64,
}

/// The mean entropy of the rows of all heads, as a share of the largest that so many visible keys allow.
fn entropy<'a, T: Float>(heads: impl Iterator<Item = &'a DMatrix<T>>) -> Result<f64> {
    let mut shares = vec![];
    for weights in heads {
        let rows = attention::inspect::row_entropy(weights)?;
        let entropy = |i: usize| -> f64 { rows[i].to_subset_unchecked() };
        let share = |i: usize| entropy(i) / (i as f64 + 1.0).ln();
        shares.extend((1..rows.len()).map(share));
    }
    Ok(shares.iter().sum::<f64>() / shares.len() as f64)
}

/// Trains a model with this fault.
fn train(fault: Option<Fault>, width: usize, steps: usize) -> Result<Curves> {
    let task = Repeated::OF_BOOK;
    let held_out = task.held_out();
    let mut model =
        Faulty::<f32>::new(task.vocabulary, width, &mut ChaCha8Rng::seed_from_u64(0))?;
    let mut adam = Adam::new(0.003);
    adam.beta_2 = 0.98;
    let mut curves = Curves::default();
    curves.losses.push([0.0, model.loss(fault, &held_out, false)?]);
    for step in 1..=steps {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        rng.set_stream(step as u64);
        let texts: Vec<Text> = (0..BATCH).map(|_| task.draw(&mut rng)).collect();
        let count = Text::said(&texts);
        let of_texts = texts.par_iter().map(|text| model.loss_and_gradients(fault, text));
        let mut of_texts = of_texts.collect::<Result<Vec<_>>>()?.into_iter();
        let (_, mut gradients) = of_texts.next().context("a batch without texts")?;
        for (_, other) in of_texts {
            gradients.accumulate(&other)?;
        }
        gradients.scale((count as f32).recip());
        if step == LOOK {
            let norm = |of: fn(&Parameters<f32>) -> &DMatrix<f32>| {
                gradients.layers.iter().map(|layer| of(layer).norm_squared()).sum::<f32>()
            };
            let [q, v] = [norm(|layer| &layer.w_q), norm(|layer| &layer.w_v)];
            curves.q_over_v = f64::from((q / v).sqrt());
            let forward = model.forward(fault, held_out[0].read())?;
            curves.entropy = entropy(forward.layers.iter().flat_map(|it| &it.weights))?;
        }
        gradients.clip_norm(1.0);
        adam.rate = 0.003 * (step as f32 / 50.0).min(1.0);
        adam.step(&mut model, &gradients)?;
        if step % EVERY == 0 {
            curves.losses.push([step as f64, model.loss(fault, &held_out, false)?]);
        }
    }
    curves.by_token = model.loss(fault, &held_out, true)?;
    Ok(curves)
}

fn main() -> Result<()> {
    let file = std::env::args().nth(1).context("give the file for the curves")?;
    let (begin, date) = (std::time::Instant::now(), record::here::now()?);
    let mut models = vec![];
    for (name, fault, width) in MODELS {
        let Curves { losses, by_token, entropy, q_over_v } = train(fault, width, STEPS)?;
        let last = losses.last().map_or(f64::NAN, |last| last[1]);
        eprintln!(
            "{name}: {last:.3}, token by token {by_token:.3}, entropy {entropy:.3}, W_Q over W_V {q_over_v:.3}; {:.0?} since the start",
            begin.elapsed()
        );
        models.push(json!({
            "name": name, "losses": losses, "by_token": by_token, "entropy": entropy, "q_over_v": q_over_v,
        }));
    }
    let run = Run {
        date,
        processor: record::here::machine()?.processor(),
        threads: rayon::current_num_threads(),
        seconds: begin.elapsed().as_secs_f64(),
        peak_bytes: None,
    };
    let all = json!({ "run": run, "look": LOOK, "models": models });
    std::fs::write(&file, serde_json::to_vec(&all)?)
        .with_context(|| format!("{file} can't be written"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults are in the forward pass alone: every backward pass is that of its forward pass.
    #[test]
    fn every_model_has_the_gradients_of_its_own_forward_pass() -> Result<()> {
        let texts = [Text { tokens: vec![0, 3, 1, 0, 3, 1], first: 4 }];
        for (_, fault, _) in MODELS {
            let model = Faulty::<f64>::new(5, 4, &mut ChaCha8Rng::seed_from_u64(0))?;
            let (_, gradients) = model.loss_and_gradients(fault, &texts[0])?;
            let loss = |model: &Faulty<f64>| {
                let (loss, _) = model.loss_and_gradients(fault, &texts[0]).unwrap();
                Ok(loss)
            };
            for (name, check) in
                attention::gradient_check_parameters(&model, &gradients, 1e-5, loss)?
            {
                assert!(check.max_relative_error < 1e-4, "{fault:?}, {name}: {check:?}");
            }
        }
        Ok(())
    }

    /// The table of the page: which test sees which fault, in fresh models with heads of width 64.
    #[test]
    fn which_test_sees_which_fault() -> Result<()> {
        let model = Faulty::<f64>::new(10, 64, &mut ChaCha8Rng::seed_from_u64(0))?;
        let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
        let right = model.forward(None, &tokens)?;
        for (fault, seen) in [
            // rows sum to one, the last token, one head at a time, entropy, a right program
            (None, [false, false, false, false, false]),
            (Some(SoftmaxOverQueries), [true, true, false, false, true]),
            (Some(HeadsMergedWithoutTranspose), [false, true, true, false, true]),
            (Some(ScaleMissing), [false, false, false, true, true]),
        ] {
            let forward = model.forward(fault, &tokens)?;
            let Cache { qkv, weights, attended, .. } = &forward.layers[0];
            let n = tokens.len();
            let rows =
                weights.iter().any(|it| it.column_sum().add_scalar(-1.0).amax() > 1e-9);
            let other = model.forward(fault, &[3, 1, 4, 1, 5, 9, 2, 7])?.scores;
            let last = other.rows(0, n - 1) != forward.scores.rows(0, n - 1);
            let d = attended.ncols() / HEADS;
            let columns = weights.iter().enumerate().any(|(head, weights)| {
                let alone = weights * qkv[2].columns(head * d, d);
                (alone - attended.columns(head * d, d)).amax() > 1e-9
            });
            let collapsed = !rows && entropy(weights[..1].iter())? < 0.5;
            let differs = (&forward.scores - &right.scores).amax() > 1e-9;
            assert_eq!([rows, last, columns, collapsed, differs], seen, "{fault:?}");
        }
        Ok(())
    }

    /// A shorter training than the book's, with the order of its results.
    #[test]
    fn two_faults_see_the_future() -> Result<()> {
        for (fault, leaks) in [
            (None, false),
            (Some(SoftmaxOverQueries), true),
            (Some(HeadsMergedWithoutTranspose), true),
        ] {
            let Curves { losses, by_token, .. } = train(fault, 16, 60)?;
            let last = losses.last().unwrap()[1];
            assert_eq!(
                (by_token - last).abs() > 1e-3,
                leaks,
                "{fault:?}: {last} {by_token}"
            );
        }
        Ok(())
    }
}
