//! The chapter's page: values, tables and figures.

use super::facts;
use crate::figures::HeatMap;
use crate::figures::format::{fixed, matrix, percent};
use crate::output::{Page, sum_of_products};
use crate::sentences::{self, BANK, BOAT, CITY, CLERK, LEFT, Steps};
use anyhow::Result;
use attention::Mask;
use attention::example::{self, Sentence};
use nalgebra::DMatrix;

pub fn generate(page: &mut Page) -> Result<()> {
    unprojected(page)?;
    projected(page)?;
    worked_examples(page)?;
    by_hand(page)
}

/// The first problem of the figure that checks what is computed by hand.
fn by_hand(page: &mut Page) -> Result<()> {
    let problem = facts::by_hand();
    let entries = problem.transpose();
    let entries: Vec<_> =
        entries.iter().map(|entry| fixed(*entry, 0).replace('−', "-")).collect();
    page.value("by-hand-first", entries.join(" "));
    Ok(())
}

/// Every token against every token, without anything learned: X Xᵀ.
fn unprojected(page: &mut Page) -> Result<()> {
    let Sentence { x, tokens } = example::river();
    let Steps { products, weights, .. } = sentences::unprojected(&x)?;
    page.value("left-left-before", percent(weights[(LEFT, LEFT)], 0));
    page.value("x", matrix(&x, 1));
    let map = HeatMap::of_tokens(&products, &tokens, products.max());
    let words = (
        "X Xᵀ of “the boat left the river bank”",
        "A symmetric six by six grid of dot products. The rows and columns of “the” are pale; river, boat and bank \
         match one another well, and “left” matches itself.",
    );
    page.heat_map("products", words, &map)
}

/// The running example through three projections.
fn projected(page: &mut Page) -> Result<()> {
    let Sentence { x, tokens } = example::river();
    let river = sentences::projected(&x, &x, &Mask::none())?;
    let x = example::city().x;
    let city = sentences::projected(&x, &x, &Mask::none())?;
    page.value("q", matrix(&river.q, 2));
    page.value("k", matrix(&river.k, 2));
    page.value("v", matrix(&river.v, 2));
    page.value("output", matrix(&river.output, 2));
    page.value("output-city", matrix(&city.output, 2));
    page.value("score-left-boat", fixed(river.scores[(LEFT, BOAT)], 2));
    page.value("score-boat-left", fixed(river.scores[(BOAT, LEFT)], 2));
    page.value("left-left", percent(river.weights[(LEFT, LEFT)], 0));
    let pairs = (0..2).map(|c| (river.q[(LEFT, c)], river.k[(BOAT, c)]));
    let terms = pairs.map(|(q, k)| format!("{} \\cdot {}", fixed(q, 2), fixed(k, 2)));
    let sum = terms.collect::<Vec<_>>().join(" + ");
    let score = fixed(river.scores[(LEFT, BOAT)], 2);
    page.value("score-by-hand", format!("\\frac{{{sum}}}{{\\sqrt 2}} = {score}"));
    page.value("left-boat", percent(river.weights[(LEFT, BOAT)], 0));
    let entropy = |row: usize| -> f64 {
        river.weights.row(row).iter().map(|weight| -weight * weight.ln()).sum()
    };
    page.value("entropy-left", fixed(entropy(LEFT), 2));
    page.value("entropy-the", fixed(entropy(0), 2));
    page.value("entropy-most", fixed(6.0_f64.ln(), 2));
    let [w_q, w_k, _] = example::projections();
    let x = example::river().x;
    // An entry of a product, term by term, without those that are zero.
    let by_hand = |w: &DMatrix<f64>, row: usize, product: &DMatrix<f64>| {
        let pairs = (0..4).map(|c| (w[(c, 1)], x[(row, c)])).filter(|(w, _)| *w != 0.0);
        let terms = pairs.map(|(w, x)| (fixed(w, 1), fixed(x, 1)));
        sum_of_products(terms, fixed(product[(row, 1)], 2))
    };
    page.value("query-by-hand", by_hand(&w_q, LEFT, &river.q));
    page.value("key-by-hand", by_hand(&w_k, BOAT, &river.k));
    page.value("city-bank-clerk", percent(city.weights[(BANK, CLERK)], 0));
    page.value("city-bank-city", percent(city.weights[(BANK, CITY)], 0));
    let words = (
        "Weights of “the boat left the river bank” after three projections",
        "A six by six grid, each row is a query. The row of “left” is strongest at boat, the row of “bank” at boat, \
         river and bank; the rows of “the” are nearly even.",
    );
    page.heat_map("weights", words, &HeatMap::of_tokens(&river.weights, &tokens, 0.75))
}

/// Every intermediate result of two small examples.
fn worked_examples(page: &mut Page) -> Result<()> {
    for (name, steps) in facts::worked_examples()? {
        let mut value = |what, m, decimals| {
            page.value(format!("{name}-{what}"), matrix(m, decimals));
        };
        value("q", &steps.q, 0);
        value("k", &steps.k, 0);
        value("v", &steps.v, 0);
        if name == "b" {
            value("products", &steps.products, 0);
        }
        value("scores", &steps.scores, 4);
        value("weights", &steps.weights, 4);
        value("output", &steps.output, 4);
        if name == "a" {
            second_query_by_hand(page, &steps);
        }
    }
    Ok(())
}

fn second_query_by_hand(page: &mut Page, steps: &Steps) {
    let exponentials = steps.scores.row(1).map(f64::exp);
    let row = |j: usize| {
        let numbers = [steps.scores[(1, j)], exponentials[j], steps.weights[(1, j)]];
        let product = fixed(steps.products[(1, j)], 0);
        [&[["first", "second"][j].to_owned(), product][..], &numbers.map(|x| fixed(x, 4))]
            .concat()
    };
    let sum = vec![
        "sum".to_owned(),
        String::new(),
        String::new(),
        fixed(exponentials.sum(), 4),
        fixed(steps.weights.row(1).sum(), 0),
    ];
    let header = ["key", "product", "score", "exponential", "weight"];
    page.table("by-hand", &header, &[row(0), row(1), sum]);
    let [weights, values] =
        [steps.weights.row(1).transpose(), steps.v.column(0).into_owned()];
    let terms = weights.iter().zip(&values).map(|(&w, &v)| (fixed(w, 4), fixed(v, 0)));
    page.value("a-by-hand", sum_of_products(terms, fixed(steps.output[(1, 0)], 2)));
}
