//! Scaled dot-product attention in numbers: the running example, two worked examples, and patterns of weights.

use crate::output::Page;
use anyhow::{Result, ensure};
use attention::{
    Mask, attention, attention_weights, example, row_entropy, scaled_scores,
};
use figures::format::{fixed, matrix, percent, table, tuple};
use figures::{HeatMap, svg};
use nalgebra::{DMatrix, dmatrix};

pub fn generate(page: &mut Page) -> Result<()> {
    raw_attention(page)?;
    projected_attention(page)?;
    worked_example(
        page,
        "a",
        &dmatrix![1.0, 0.0, 1.0; 0.0, 1.0, 0.0],
        &dmatrix![1.0, 0.0, 0.0; 0.0, 1.0, 1.0],
        &dmatrix![10.0, 20.0, 30.0; 40.0, 50.0, 60.0],
    )?;
    worked_example(
        page,
        "b",
        &dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, 1.0],
        &dmatrix![1.0, 1.0; 0.0, 1.0; 1.0, 0.0],
        &dmatrix![2.0, 1.0; 1.0, 3.0; 0.0, 2.0],
    )?;
    patterns(page)
}

/// Every token against every token, without anything learned: X Xᵀ.
fn raw_attention(page: &mut Page) -> Result<()> {
    let sentence = example::river();
    let x = &sentence.x;
    let products = x * x.transpose();
    page.value("raw-left-boat", fixed(products[(2, 1)] / 2.0, 2));
    page.value("product-boat-boat", fixed(products[(1, 1)], 2));
    page.value("product-boat-river", fixed(products[(1, 4)], 2));
    page.value("raw-scores-left", tuple((products.row(2) / 2.0).iter().copied(), 2));
    let (_, cache) = attention(x, x, x, &Mask::none())?;
    page.value("raw-weights-left", tuple(cache.weights.row(2), 2));
    // What the chapter says in words.
    ensure!(cache.weights[(2, 2)] > 0.5, "“left” does not keep half of its attention");
    ensure!(products[(1, 4)] > products[(1, 1)], "“boat” does not prefer “river”");
    page.value("x", matrix(x, 1));
    page.value("product-river-bank", fixed(products[(4, 5)], 2));
    page.value("product-bank-river", fixed(products[(5, 4)], 2));
    page.value("product-left-left", fixed(products[(2, 2)], 2));
    let map = HeatMap::of_tokens(&products, &sentence.tokens, products.max());
    page.file(
        "products.svg",
        svg(
            "attention-products",
            "X Xᵀ of “the boat left the river bank”",
            "A symmetric six by six grid of dot products. The rows and columns of “the” are pale; river, boat and bank \
             match one another and themselves most.",
            map.size(),
            |area| map.draw(area),
        )?,
    );
    Ok(())
}

/// The running example through three projections: queries and keys differ, so the weights need not be symmetric.
fn projected_attention(page: &mut Page) -> Result<()> {
    let sentence = example::river();
    let [w_q, w_k, w_v] = example::projections();
    let (q, k, v) = (&sentence.x * &w_q, &sentence.x * &w_k, &sentence.x * &w_v);
    for (name, m) in [("q", &q), ("k", &k), ("v", &v)] {
        page.value(name, matrix(m, 2));
    }
    let scores = scaled_scores(&q, &k)?;
    let (output, cache) = attention(&q, &k, &v, &Mask::none())?;
    let (left, boat, river, bank) = (2, 1, 4, 5);
    let city = example::city().x;
    let (city_output, city_cache) =
        attention(&(&city * &w_q), &(&city * &w_k), &(&city * &w_v), &Mask::none())?;
    ensure!(
        cache.weights.row(boat).max() == cache.weights[(boat, boat)],
        "“boat” does not give most to itself"
    );
    page.value("output", matrix(&output, 2));
    page.value("output-city", matrix(&city_output, 2));
    page.value("city-bank-clerk", percent(city_cache.weights[(bank, boat)], 0));
    page.value("city-bank-city", percent(city_cache.weights[(bank, river)], 0));
    page.value("output-bank", tuple(output.row(bank), 2));
    page.value("output-bank-city", tuple(city_output.row(bank), 2));
    page.value("boat-boat", percent(cache.weights[(boat, boat)], 0));
    page.value("bank-boat", percent(cache.weights[(bank, boat)], 0));
    page.value("bank-bank", percent(cache.weights[(bank, bank)], 0));
    page.value("score-left-boat", fixed(scores[(left, boat)], 2));
    page.value("score-boat-left", fixed(scores[(boat, left)], 2));
    page.value("left-boat", percent(cache.weights[(left, boat)], 0));
    page.value("bank-river", percent(cache.weights[(bank, river)], 0));
    for (name, of, matrix, full) in [
        ("scores", "Scores", &scores, scores.amax()),
        ("weights", "Weights", &cache.weights, 0.75),
    ] {
        let map = HeatMap::of_tokens(matrix, &sentence.tokens, full);
        page.file(
            format!("{name}.svg"),
            svg(
                &format!("attention-{name}"),
                &format!("{of} of “the boat left the river bank” after three projections"),
                "A six by six grid, each row a query. The row of “left” is strongest at boat, the row of “bank” at boat, \
                 river and bank; the rows of “the” are nearly even.",
                map.size(),
                |area| map.draw(area),
            )?,
        );
    }
    Ok(())
}

/// Every intermediate result of a small example.
fn worked_example(
    page: &mut Page,
    name: &str,
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
) -> Result<()> {
    let (output, cache) = attention(q, k, v, &Mask::none())?;
    let mut value = |what: &str, m: &DMatrix<f64>, decimals| {
        page.value(format!("{name}-{what}"), matrix(m, decimals));
    };
    value("q", q, 0);
    value("k", k, 0);
    value("v", v, 0);
    value("products", &(q * k.transpose()), 0);
    value("scores", &scaled_scores(q, k)?, 4);
    value("weights", &cache.weights, 4);
    value("output", &output, 4);
    Ok(())
}

/// How much longer the queries of the figures are than the keys, which have length 1.
const QUERY_LENGTH: f64 = 20.0;

/// Four patterns that weights often show. Which keys a query matches decides where a row looks; the query's length decides
/// how sharply. The table shows both, with queries of length 1 and with the long queries of the figures.
fn patterns(page: &mut Page) -> Result<()> {
    const N: usize = 8;
    let identity = DMatrix::<f64>::identity(N, N);
    let first = DMatrix::from_fn(N, N, |_, j| if j == 0 { 1.0 } else { 0.0 });
    let groups =
        DMatrix::from_fn(
            N,
            N,
            |i, j| if [0, 0, 0, 1, 1, 2, 2, 2][i] == j { 1.0 } else { 0.0 },
        );
    let zero = DMatrix::zeros(N, N);
    let most = (N as f64).ln();
    let mut rows = vec![];
    for (name, says, q, k) in [
        ("diagonal", "Each row has its weight on the diagonal.", &identity, &identity),
        ("stripe", "Each row has its weight in the first column.", &first, &identity),
        (
            "block",
            "Rows of a group share their weight among the columns of the group.",
            &groups,
            &groups,
        ),
        ("diffuse", "All cells are equally pale.", &zero, &identity),
    ] {
        let (short, _) = attention_weights(q, k, &Mask::none())?;
        let (weights, _) = attention_weights(&(q * QUERY_LENGTH), k, &Mask::none())?;
        let entropies = [row_entropy(&short)?.mean(), row_entropy(&weights)?.mean()];
        // What the chapter says in words: short queries are nearly diffuse, whatever they match.
        ensure!(entropies[0] > 0.98 * most, "{name} is not nearly diffuse");
        ensure!(
            (name == "diffuse") == (entropies[1] > 0.98 * most),
            "{name} does not show its pattern"
        );
        rows.push(vec![name.to_owned(), fixed(entropies[0], 2), fixed(entropies[1], 2)]);
        let blank = [""; N];
        let map = HeatMap::pattern(&weights, &blank);
        page.file(
            format!("pattern-{name}.svg"),
            svg(
                &format!("attention-pattern-{name}"),
                &format!("Weights of eight tokens: {name}"),
                says,
                map.size(),
                |area| map.draw(area),
            )?,
        );
    }
    let length = fixed(QUERY_LENGTH, 0);
    page.file(
        "patterns.md",
        table(
            &[
                "pattern",
                "mean entropy, queries as long as keys",
                &format!("queries {length} times as long"),
            ],
            &rows,
        ),
    );
    page.value("query-length", length);
    page.value("ln-8", fixed(most, 2));
    Ok(())
}
