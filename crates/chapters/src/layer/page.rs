//! How the chapter says it.

use super::facts::{self, D_K, D_MODEL, LAYERS, N};
use crate::output::Page;
use crate::sentences::BANK;
use anyhow::Result;
use attention::example;
use figures::format::{fixed, integer, percent, scientific, tuple};

pub fn generate(page: &mut Page) -> Result<()> {
    readable_layer(page)?;
    biases(page)?;
    quiz(page)?;
    initialisation(page)?;
    counts(page);
    Ok(())
}

/// What a layer with readable parameters adds to "bank".
fn readable_layer(page: &mut Page) -> Result<()> {
    let (river, city) = (example::river(), example::city());
    page.value("bank", tuple(river.x.row(BANK).iter().copied(), 1));
    for (name, sentence) in [("river", river), ("city", city)] {
        let [output, sum] = facts::readable_layer(&sentence)?;
        page.value(format!("{name}-output"), tuple(&output, 2));
        page.value(format!("{name}-sum"), tuple(&sum, 2));
    }
    Ok(())
}

fn biases(page: &mut Page) -> Result<()> {
    let gradients = facts::gradients()?;
    page.value("grad-b-q", fixed(gradients.b_q.norm(), 2));
    page.value("grad-b-v", fixed(gradients.b_v.norm(), 2));
    Ok(())
}

/// The first of the quick questions.
fn quiz(page: &mut Page) -> Result<()> {
    for (key, kind) in [
        ("quiz-q-and-k", "w_q"),
        ("quiz-v-and-o", "w_v"),
        ("quiz-weights", "w_"),
        ("quiz-biases", "b_"),
        ("quiz-all", ""),
    ] {
        page.value(key, integer(facts::count_parameters(kind)?));
    }
    Ok(())
}

fn counts(page: &mut Page) {
    let rows = [(512, 64), (512, 512), (4096, 128)].map(|(d_model, d)| {
        let (weights, biases) = facts::counts(d_model, d);
        [d_model, d, weights, biases].map(integer).to_vec()
    });
    let header =
        ["$d_{\\text{model}}$", "$d_k = d_v$", "in weight matrices", "in biases"];
    page.table("counts", &header, &rows);
}

/// What a fresh layer does to inputs and gradients, for several spreads of its weights.
fn initialisation(page: &mut Page) -> Result<()> {
    page.value("xavier", fixed(facts::xavier(), 3));
    page.value("n", integer(N));
    page.value("d-model", integer(D_MODEL));
    page.value("d-k", integer(D_K));
    page.value("layers", integer(LAYERS));
    page.value("var-q", fixed(facts::variance_from(D_MODEL), 2));
    page.value("var-o", fixed(facts::variance_from(D_K), 2));
    let mut rows = vec![];
    for (name, factor) in [("Xavier ÷ 10", 0.1), ("**Xavier**", 1.0), ("Xavier × 3", 3.0)]
    {
        let start = facts::start(factor)?;
        let gradient = if start.grad_w_q < 0.01 {
            format!("$ {} $", scientific(start.grad_w_q, 1))
        } else {
            fixed(start.grad_w_q, 2)
        };
        if factor == 1.0 {
            page.value("xavier-scores", fixed(start.scores, 2));
        }
        rows.push(vec![
            name.to_owned(),
            fixed(start.queries, 2),
            fixed(start.scores, 2),
            percent(start.entropy, 0),
            fixed(start.output, if factor < 1.0 { 4 } else { 2 }),
            gradient,
        ]);
    }
    let header = [
        "deviation",
        "queries",
        "scores",
        "entropy",
        "output",
        "$\\partial L / \\partial W_Q$",
    ];
    page.table("initialisation", &header, &rows);
    Ok(())
}
