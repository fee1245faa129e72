//! The layer in numbers: what a layer with readable parameters adds to a word, and what a start with other spreads does.

use crate::output::Page;
use crate::random::normal;
use anyhow::{Result, ensure};
use attention::{
    AttentionCache, Mask, Parameters, SingleHeadAttention, example, row_entropy,
    scaled_scores,
};
use figures::format::{fixed, integer, percent, scientific, table, tuple};
use nalgebra::{DMatrix, RowDVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};

pub fn generate(page: &mut Page) -> Result<()> {
    readable_layer(page)?;
    biases(page)?;
    quiz(page)?;
    initialisation(page)?;
    let counts = [(512, 64), (512, 512), (4096, 128)].map(|(d_model, d)| {
        let weights = 4 * d_model * d;
        let biases = 3 * d + d_model;
        [d_model, d, weights, biases].map(integer).to_vec()
    });
    page.file(
        "counts.md",
        table(
            &["$d_{\\text{model}}$", "$d_k = d_v$", "in weight matrices", "in biases"],
            &counts,
        ),
    );
    Ok(())
}

/// The first of the quick questions, counted by making the layer.
fn quiz(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let parameters = Parameters::<f64>::xavier(8, 2, 3, rng)?;
    let count = |kind: &str| -> usize {
        let named = parameters.named();
        let of_kind = named.iter().filter(|(name, _)| name.starts_with(kind));
        of_kind.map(|(_, numbers)| numbers.len()).sum()
    };
    for (key, kind) in
        [("q-and-k", "w_q"), ("v-and-o", "w_v"), ("weights", "w_"), ("biases", "b_")]
    {
        page.value(format!("quiz-{key}"), integer(count(kind)));
    }
    page.value("quiz-all", integer(count("")));
    Ok(())
}

/// The projections of the running example, with an output projection that puts water and money back where they were.
fn readable_layer(page: &mut Page) -> Result<()> {
    let [w_q, w_k, w_v] = example::projections();
    let w_o = w_v.transpose();
    let (d_model, d_k) = w_q.shape();
    let layer = SingleHeadAttention::from(Parameters {
        b_q: RowDVector::zeros(d_k),
        b_k: RowDVector::zeros(d_k),
        b_v: RowDVector::zeros(w_v.ncols()),
        b_o: RowDVector::zeros(d_model),
        w_q,
        w_k,
        w_v,
        w_o,
    });
    let bank = 5;
    page.value("bank", tuple(example::river().x.row(bank).iter().copied(), 1));
    for (name, sentence) in [("river", example::river()), ("city", example::city())] {
        let (output, _) = layer.forward(&sentence.x, &Mask::none())?;
        let sum = &sentence.x + &output;
        page.value(format!("{name}-output"), tuple(output.row(bank), 2));
        page.value(format!("{name}-sum"), tuple(sum.row(bank), 2));
    }
    Ok(())
}

/// A bias of the keys moves all scores of a row together.
fn biases(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(11);
    let layer = SingleHeadAttention::<f64>::xavier(16, 8, 8, rng)?;
    let x = normal(10, 16, rng);
    let grad_output = normal(10, 16, rng);
    let (_, cache) = layer.forward(&x, &Mask::causal())?;
    let gradients = layer.backward(&cache, &grad_output)?.parameters;
    ensure!(gradients.b_k.norm() < 1e-14, "the keys' bias has a gradient");
    page.value("grad-b-q", fixed(gradients.b_q.norm(), 2));
    page.value("grad-b-v", fixed(gradients.b_v.norm(), 2));
    Ok(())
}

const N: usize = 64;
const D_MODEL: usize = 512;
const D_K: usize = 64;
const LAYERS: usize = 20;

/// What a fresh layer does to inputs and gradients of spread 1, for several spreads of its weights.
fn initialisation(page: &mut Page) -> Result<()> {
    let xavier = (2.0 / (D_MODEL + D_K) as f64).sqrt();
    page.value("xavier", fixed(xavier, 3));
    page.value("n", integer(N));
    page.value("d-model", integer(D_MODEL));
    page.value("d-k", integer(D_K));
    page.value("layers", integer(LAYERS));
    page.value("var-q", fixed((2.0 * D_MODEL as f64) / (D_MODEL + D_K) as f64, 2));
    page.value("var-o", fixed((2.0 * D_K as f64) / (D_MODEL + D_K) as f64, 2));
    let mut rows = vec![];
    let mut measured = vec![];
    for (name, factor) in [("Xavier ÷ 10", 0.1), ("**Xavier**", 1.0), ("Xavier × 3", 3.0)]
    {
        let start = measure(factor)?;
        rows.push(vec![
            name.to_owned(),
            fixed(start.queries, 2),
            fixed(start.scores, 2),
            percent(start.entropy, 0),
            fixed(start.output, if factor < 1.0 { 4 } else { 2 }),
            if start.grad_w_q < 0.01 {
                format!("$ {} $", scientific(start.grad_w_q, 1))
            } else {
                fixed(start.grad_w_q, 2)
            },
        ]);
        measured.push(start);
    }
    let [small, xavier, large] = &measured[..] else { anyhow::bail!("three starts") };
    ensure!(small.entropy > 0.999 && large.entropy < 0.1, "the extremes are not extreme");
    ensure!((0.5..0.9).contains(&xavier.entropy), "Xavier is not between the extremes");
    page.value("xavier-scores", fixed(xavier.scores, 2));
    ensure!((0.5..2.0).contains(&xavier.queries));
    ensure!(small.grad_w_q < 1e-2 * xavier.grad_w_q && large.grad_w_q > xavier.grad_w_q);
    page.file(
        "initialisation.md",
        table(
            &[
                "deviation",
                "queries",
                "scores",
                "entropy",
                "output",
                "$\\partial L / \\partial W_Q$",
            ],
            &rows,
        ),
    );
    Ok(())
}

#[derive(Default)]
struct Start {
    queries: f64,
    scores: f64,
    /// Divided by ln n.
    entropy: f64,
    output: f64,
    grad_w_q: f64,
}

fn measure(factor: f64) -> Result<Start> {
    let mut mean = Start::default();
    for seed in 0..LAYERS as u64 {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut layer = SingleHeadAttention::<f64>::xavier(D_MODEL, D_K, D_K, rng)?;
        let Parameters { w_q, w_k, w_v, w_o, .. } = &mut layer.parameters;
        for w in [w_q, w_k, w_v, w_o] {
            *w *= factor;
        }
        let x = normal(N, D_MODEL, rng);
        let grad_output = normal(N, D_MODEL, rng);
        let (output, cache) = layer.forward(&x, &Mask::none())?;
        let AttentionCache { q, k, weights, .. } = &cache.attention;
        let gradients = layer.backward(&cache, &grad_output)?;
        let share = 1.0 / LAYERS as f64;
        mean.queries += share * spread(q);
        mean.scores += share * spread(&scaled_scores(q, k)?);
        mean.entropy += share * row_entropy(weights)?.mean() / (N as f64).ln();
        mean.output += share * spread(&output);
        mean.grad_w_q += share * spread(&gradients.parameters.w_q);
    }
    Ok(mean)
}

/// The root mean square of the entries.
fn spread(m: &DMatrix<f64>) -> f64 {
    m.norm() / (m.len() as f64).sqrt()
}
