//! The chapter's page: values and tables.

use super::facts::{self, D_K, D_MODEL, LAYERS, N};
use crate::figures::format::{fixed, integer, percent, scientific};
use crate::figures::{
    Area, BLUE, HeatMap, KEY, MUTED, QUERY, TEXT, VALUE, arrow, label, ring, text_box,
};
use crate::output::Page;
use crate::sentences::BANK;
use anyhow::Result;
use attention::example;
use nalgebra::RowDVector;

pub fn generate(page: &mut Page) -> Result<()> {
    let words = (
        "The steps of a layer, from its input to its output",
        "From the input X three arrows with parameters lead to queries, keys and values. Queries and keys meet in the scores, \
         which a mask and softmax turn into weights. Weights and values give O, and a fourth arrow with parameters leads \
         to the output Y.",
    );
    page.figure("flow", words, (520, 400), flow)?;
    let words = (
        "One block of a transformer",
        "A line runs from the input at the top to the output at the bottom. Twice a copy leaves it, passes a norm and a layer, \
         attention first and then feed-forward, and is added to it.",
    );
    page.figure("block", words, (520, 300), block)?;
    comparison(page)?;
    readable_layer(page)?;
    quiz(page)?;
    initialisation(page)?;
    counts(page);
    Ok(())
}

/// The matrix through which the hand-made projections compare two tokens.
fn comparison(page: &mut Page) -> Result<()> {
    let features = ["water", "money", "place", "action"];
    let product = facts::comparison();
    let words = (
        "W_Q W_Kᵀ of the running example",
        "Four by four cells. The rows of water and money are zero. Place matches water and money with 3 and place with −1; \
         action matches water and money with 2 and place with −3. The column of action is zero.",
    );
    let map = HeatMap {
        decimals: Some(0),
        ..HeatMap::of_tokens(&product, &features, product.amax())
    };
    page.heat_map("comparison", words, &map)
}

/// The figure from X to Y, with the shapes and the places of parameters.
fn flow(area: &Area) -> Result<()> {
    let step = |(x, y), width, text: &str, colour| {
        text_box(area, (x, y), (width, 34), text, colour)
    };
    let down = |points: &[(i32, i32)], colour| arrow(area, points, colour);
    step((180, 6), 160, "X  (n, d_model)", MUTED)?;
    let projections = [
        ("Q  (n, dₖ)", "W_Q", QUERY),
        ("K  (n, dₖ)", "W_K", KEY),
        ("V  (n, dᵥ)", "W_V", VALUE),
    ];
    for (i, (name, parameters, colour)) in (0..).zip(projections) {
        let x = 20 + 180 * i;
        down(&[(230 + 30 * i, 40), (x + 60, 88)], colour)?;
        label(area, (x + 60 + [-28, 26, 28][i as usize], 66), parameters, TEXT)?;
        step((x, 90), 120, name, colour)?;
    }
    down(&[(80, 124), (120, 156)], MUTED)?;
    down(&[(260, 124), (220, 156)], MUTED)?;
    step((40, 158), 260, "scores  S = Q Kᵀ / √dₖ  (n, n)", MUTED)?;
    down(&[(170, 192), (170, 214)], MUTED)?;
    step((40, 216), 260, "weights  A = softmax(S + M)  (n, n)", MUTED)?;
    down(&[(170, 250), (230, 282)], MUTED)?;
    down(&[(440, 124), (440, 250), (350, 282)], MUTED)?;
    step((180, 284), 220, "O = A V  (n, dᵥ)", MUTED)?;
    down(&[(290, 318), (290, 358)], BLUE)?;
    label(area, (322, 338), "W_O", TEXT)?;
    step((200, 360), 180, "Y  (n, d_model)", BLUE)
}

/// The place of a layer in a transformer.
fn block(area: &Area) -> Result<()> {
    let line = 90;
    label(area, (line, 12), "X", TEXT)?;
    arrow(area, &[(line, 24), (line, 276)], MUTED)?;
    label(area, (line, 290), "X″", TEXT)?;
    for (top, name, sum) in [(40, "attention", "X′"), (160, "feed-forward", "")] {
        arrow(area, &[(line, top), (168, top), (168, top + 8)], MUTED)?;
        text_box(area, (118, top + 10), (100, 34), "normalise", MUTED)?;
        arrow(area, &[(218, top + 27), (258, top + 27)], MUTED)?;
        text_box(area, (260, top + 10), (150, 34), name, BLUE)?;
        arrow(area, &[(335, top + 44), (335, top + 80), (line + 12, top + 80)], MUTED)?;
        ring(area, (line, top + 80), BLUE)?;
        label(area, (line - 22, top + 80), "+", TEXT)?;
        label(area, (line - 22, top + 100), sum, TEXT)?;
    }
    Ok(())
}

/// The vector that a layer with readable parameters adds to "bank".
fn readable_layer(page: &mut Page) -> Result<()> {
    let (river, city) = (example::river(), example::city());
    let row = |name: &str, of: &RowDVector<f64>| {
        let numbers = of.iter().map(|&x| fixed(x, 2)).collect();
        [vec![name.to_owned()], numbers].concat()
    };
    let input = river.x.row(BANK).into_owned();
    let [by_the_river, river_sum] = facts::readable_layer(&river)?;
    let [in_the_city, city_sum] = facts::readable_layer(&city)?;
    let rows = [
        row("input, in both sentences", &input),
        row("output by the river", &by_the_river),
        row("input + output", &river_sum),
        row("output in the city", &in_the_city),
        row("input + output", &city_sum),
    ];
    let header = [&["“bank”"], &example::DIMENSIONS[..]].concat();
    page.table("bank", &header, &rows);
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

/// The effect of a fresh layer on inputs and gradients, for several spreads of its weights.
fn initialisation(page: &mut Page) -> Result<()> {
    page.value("xavier", fixed(facts::xavier(), 3));
    page.value("n", integer(N));
    page.value("d-model", integer(D_MODEL));
    page.value("d-k", integer(D_K));
    page.value("layers", integer(LAYERS));
    page.value("var-q", fixed(facts::variance_from(D_MODEL), 2));
    let [small, middle] = [0.1, 1.0].map(facts::start);
    let times_smaller = middle?.grad_w_o / small?.grad_w_o;
    page.value("times-smaller-w-o", fixed(times_smaller, 0));
    let mut rows = vec![];
    for (name, factor) in
        [("a tenth of Xavier", 0.1), ("**Xavier**", 1.0), ("three times Xavier", 3.0)]
    {
        let start = facts::start(factor)?;
        let gradient = |size: f64| {
            if size < 0.01 {
                format!("$ {} $", scientific(size, 1))
            } else {
                fixed(size, 2)
            }
        };
        rows.push(vec![
            name.to_owned(),
            fixed(start.scores, 2),
            percent(start.entropy, 0),
            gradient(start.grad_w_q),
            gradient(start.grad_w_o),
        ]);
    }
    let header = [
        "spread of the matrices",
        "size of the scores",
        "evenness of the weights",
        "size of $\\partial \\mathcal{L} / \\partial W_Q$",
        "size of $\\partial \\mathcal{L} / \\partial W_O$",
    ];
    page.table("initialisation", &header, &rows);
    Ok(())
}
