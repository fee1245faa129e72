//! The chapter's page: values, tables and figures.

use super::facts;
use super::learning;
use crate::figures::format::{fixed, integer, matrix, percent, tuple};
use crate::figures::{
    Area, Axis, BLUE, Line, MUTED, Marks, TEXT, VERMILION, arrow, label, line_chart,
    text_box,
};
use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    page.figure(
        "cache",
        (
            "The forward pass, what is kept, and the backward pass",
            "Six steps run down at the left, from the input to the loss. Six steps run up at the right, from dY to the gradients. \
             Between them stands what is kept: X, then Q and K, then A, then A and V, then O. Only the scale needs nothing.",
        ),
        (520, 404),
        draw_cache,
    )?;
    worked_example(page)?;
    let cosine = facts::cosine_without_queries(&facts::fresh_layers()?);
    page.value("cosine-without-queries", fixed(cosine, 2));
    cache(page)?;
    learning(page)
}

fn worked_example(page: &mut Page) -> Result<()> {
    let e = facts::worked_example()?;
    for (name, m, decimals) in [
        ("q", &e.cache.q, 0),
        ("k", &e.cache.k, 0),
        ("v", &e.cache.v, 0),
        ("grad-output", &e.grad_output, 0),
        ("grad-weights", &e.grad_weights, 0),
        ("weights", &e.cache.weights, 3),
        ("grad-scores", &e.grad_scores, 3),
        ("grad-v", &e.gradients.v, 3),
        ("grad-q", &e.gradients.q, 3),
        ("grad-k", &e.gradients.k, 3),
    ] {
        page.value(name, matrix(m, decimals));
    }
    let d_k = e.cache.q.ncols() as f64;
    page.value("grad-products", matrix(&(&e.grad_scores / d_k.sqrt()), 3));
    page.value("row-sums", tuple(&e.row_sums(), 3));

    // One entry of each of the harder steps, term by term.
    let (a, grad_a, means) = (&e.cache.weights, &e.grad_weights, e.row_sums());
    let sum = (0..3)
        .map(|j| format!("{} \\cdot {}", fixed(a[(0, j)], 3), fixed(grad_a[(0, j)], 0)));
    let sum: Vec<_> = sum.collect();
    page.value("first-mean", format!("{} = {}", sum.join(" + "), fixed(means[0], 3)));
    page.value(
        "first-grad-score",
        format!(
            "{} \\cdot ({} - {}) = {}",
            fixed(a[(0, 0)], 3),
            fixed(grad_a[(0, 0)], 0),
            fixed(means[0], 3),
            fixed(e.grad_scores[(0, 0)], 3)
        ),
    );
    let sum = (0..3).map(|i| {
        let score = fixed(e.grad_scores[(i, 0)], 3);
        let score =
            if e.grad_scores[(i, 0)] < 0.0 { format!("({score})") } else { score };
        format!("{score} \\cdot {}", fixed(e.cache.q[(i, 0)], 0))
    });
    let sum: Vec<_> = sum.collect();
    let entry = fixed(e.gradients.k[(0, 0)], 3);
    page.value("first-grad-key", format!("({}) / \\sqrt 2 = {entry}", sum.join(" + ")));

    // The mean of the last row again, from its output.
    let output = a * &e.cache.v;
    let [first, second] = [0, 1].map(|c| fixed(output[(2, c)], 3));
    let grads = [0, 1].map(|c| e.grad_output[(2, c)]);
    let [grad_first, grad_second] = grads.map(|grad| fixed(grad, 0));
    let mean = fixed(means[2], 3);
    page.value(
        "third-mean",
        format!("{grad_first} \\cdot {first} + ({grad_second}) \\cdot {second} = {mean}"),
    );
    Ok(())
}

/// The six steps forward and backward, with what is kept between them.
fn draw_cache(area: &Area) -> Result<()> {
    let steps = [
        ("Q, K, V = X W", "dX, dW", "X"),
        ("Q Kᵀ", "dQ, dK", "Q, K"),
        ("S = Q Kᵀ / √dₖ", "d(Q Kᵀ)", ""),
        ("A = softmax(S + M)", "dS", "A"),
        ("O = A V", "dA, dV", "A, V"),
        ("Y = O W_O", "dO, dW_O", "O"),
    ];
    label(area, (100, 14), "forward", MUTED)?;
    label(area, (260, 14), "kept", MUTED)?;
    label(area, (420, 14), "backward", MUTED)?;
    for (i, (forward, backward, kept)) in (0..).zip(steps) {
        let top = 34 + 56 * i;
        text_box(area, (20, top), (160, 34), forward, BLUE)?;
        text_box(area, (345, top), (150, 34), backward, VERMILION)?;
        if !kept.is_empty() {
            text_box(area, (225, top), (70, 34), kept, MUTED)?;
            arrow(area, &[(180, top + 17), (223, top + 17)], MUTED)?;
            arrow(area, &[(295, top + 17), (343, top + 17)], MUTED)?;
        }
        if i < 5 {
            arrow(area, &[(100, top + 34), (100, top + 54)], BLUE)?;
            arrow(area, &[(420, top + 56), (420, top + 36)], VERMILION)?;
        }
    }
    arrow(area, &[(100, 348), (100, 376)], BLUE)?;
    label(area, (100, 388), "Y, then the loss", TEXT)?;
    label(area, (420, 388), "dY", TEXT)?;
    arrow(area, &[(420, 376), (420, 350)], VERMILION)
}

/// The matrices that the forward pass keeps, in MiB.
fn cache(page: &mut Page) -> Result<()> {
    let mib = |bytes: u128| fixed(bytes as f64 / f64::from(1 << 20), 2);
    page.table_of(
        "cache",
        &facts::kept()?,
        &[
            ("$n$", &|kept| integer(kept.n)),
            ("$X$", &|kept| mib(kept.x)),
            ("$Q, K, V, O$", &|kept| mib(kept.projected)),
            ("weights $A$", &|kept| mib(kept.weights)),
            ("share of $A$", &|kept| percent(kept.share_of_weights(), 0)),
        ],
    );
    page.value("d-model", integer(facts::D_MODEL));
    page.value("heads", integer(facts::HEADS));
    Ok(())
}

fn learning(page: &mut Page) -> Result<()> {
    let all = learning::with_all_trained()?;
    let held = learning::with_queries_and_keys_held()?;
    page.value("loss-values", fixed(held.loss_at_end(400), 2));
    let found = all.found()?;
    page.value("mean-found", percent(found.iter().sum::<f64>() / found.len() as f64, 0));
    page.value("least-found", percent(found.into_iter().fold(1.0, f64::min), 0));
    let lines = [
        Line::new("all trained", BLUE, all.smoothed()),
        Line::new("W_Q, W_K held", VERMILION, held.smoothed()).dashed(),
    ];
    page.figure(
        "learning",
        (
            "Loss against step, with all parameters trained and with queries and keys held",
            "With all parameters trained the loss falls steadily to nearly zero. With queries and keys held as \
             they were drawn it stays high.",
        ),
        (520, 330),
        |area| {
            let x = Axis::linear("step", 0.0..learning::STEPS as f64);
            let y = Axis::linear("loss", 0.0..0.7);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}
