//! Many heads in numbers: what heads cost, what their width allows, how cross-attention looks, what dropout does.

use crate::output::Page;
use crate::random::normal;
use anyhow::{Result, ensure};
use attention::{
    AttentionShape, Mask, MultiHeadAttention, attention, example, scaled_scores,
};
use figures::format::{fixed, integer, percent, table};
use figures::{Block, HeatMap, arrow, svg};
use rand::{SeedableRng, rngs::ChaCha8Rng};

pub fn generate(page: &mut Page) -> Result<()> {
    diagram(page)?;
    number_of_heads(page)?;
    across_sentences(page)?;
    dropout(page)
}

/// Cut into slices, attend, join, project.
fn diagram(page: &mut Page) -> Result<()> {
    const HEADS: usize = 3;
    let colours = [figures::BLUE, figures::VERMILION, figures::GREEN];
    let drawn = svg(
        "many-heads-diagram",
        "From the input through three heads to the output",
        "The input X is projected to Q, K and V, each cut into three slices of columns. One slice of each goes into each \
         of three attentions. Their outputs are joined side by side and projected by W O to the output Y.",
        (520, 330),
        |area| {
            let muted = figures::MUTED;
            Block::new((210, 6), (100, 34), "X", muted).draw(area)?;
            for (m, name) in ["Q", "K", "V"].into_iter().enumerate() {
                let left = 24 + 172 * m as i32;
                let from = 230 + 30 * m as i32;
                arrow(area, &[(from, 40), (left + 64, 78)], muted)?;
                for (h, colour) in colours.into_iter().enumerate() {
                    let text = format!("{name}{}", ["₁", "₂", "₃"][h]);
                    let corner = (left + 43 * h as i32, 80);
                    Block::new(corner, (40, 40), &text, colour).draw(area)?;
                }
            }
            for (h, colour) in colours.into_iter().enumerate() {
                let left = 24 + 172 * h as i32;
                for m in 0..HEADS {
                    let from = 24 + 172 * m as i32 + 43 * h as i32 + 20;
                    arrow(
                        area,
                        &[(from, 121), (left + 44 + 20 * m as i32, 168)],
                        colour,
                    )?;
                }
                Block::new((left, 170), (128, 36), "attention", colour).draw(area)?;
                let to = 195 + 43 * h as i32 + 20;
                arrow(area, &[(left + 64, 207), (to, 244)], colour)?;
                let text = format!("O{}", ["₁", "₂", "₃"][h]);
                Block::new((195 + 43 * h as i32, 246), (40, 34), &text, colour)
                    .draw(area)?;
            }
            arrow(area, &[(326, 263), (400, 263)], muted)?;
            figures::label(area, (364, 248), "W_O", figures::TEXT)?;
            Block::new((402, 246), (80, 34), "Y", muted).draw(area)?;
            figures::label(area, (260, 306), "joined", figures::MUTED)
        },
    )?;
    page.file("diagram.svg", drawn);
    Ok(())
}

const N: usize = 64;
const D_MODEL: usize = 64;

/// The same width in more and more heads: what stays and what changes.
fn number_of_heads(page: &mut Page) -> Result<()> {
    page.value("n", integer(N));
    page.value("d-model", integer(D_MODEL));
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let x = normal(N, D_MODEL, rng);
    let mut rows = vec![];
    let mut products = vec![];
    for n_heads in [1, 2, 4, 8, 16, 64] {
        let d = D_MODEL / n_heads;
        let shape = AttentionShape::self_attention(1, N, D_MODEL, d, n_heads);
        let flops = shape.flops()?;
        products.push(flops.scores + flops.values + flops.projections);
        let layer = MultiHeadAttention::<f64>::xavier(D_MODEL, n_heads, rng)?;
        let (_, cache) = layer.forward(&x, &Mask::none())?;
        for head in &cache.heads {
            let rank = scaled_scores(&head.q, &head.k)?.rank(1e-9);
            ensure!(rank == d.min(N), "a head's scores have another rank than its width");
        }
        rows.push(
            [
                n_heads,
                d,
                (flops.scores + flops.values) as usize,
                n_heads * N * N,
                d.min(N),
            ]
            .map(integer)
            .to_vec(),
        );
    }
    ensure!(products.iter().all(|&flops| flops == products[0]), "heads change the cost");
    page.file(
        "heads.md",
        table(
            &[
                "heads $h$",
                "width $d$",
                "FLOPs of both products",
                "weights to store",
                "rank of a head's scores",
            ],
            &rows,
        ),
    );
    Ok(())
}

/// Words of one sentence ask those of the other.
fn across_sentences(page: &mut Page) -> Result<()> {
    let (river, city) = (example::river(), example::city());
    let [w_q, w_k, w_v] = example::projections();
    let x = river.x.rows(3, 3).into_owned();
    let (_, cache) =
        attention(&(&x * w_q), &(&city.x * w_k), &(&city.x * w_v), &Mask::none())?;
    let weights = &cache.weights;
    let map = HeatMap {
        rows: &river.tokens[3..],
        columns: &city.tokens,
        ..HeatMap::of_tokens(weights, &[], 0.75)
    };
    let drawn = svg(
        "many-heads-cross",
        "Weights of three words of one sentence over the six of the other",
        "Three rows, “the”, “river” and “bank”, and six columns. River and bank give most to clerk, then to bank.",
        map.size(),
        |area| map.draw(area),
    )?;
    let (clerk, bank) = (1, 5);
    for row in [1, 2] {
        ensure!(weights.row(row).max() == weights[(row, clerk)], "“clerk” is not first");
        let second = (0..6)
            .filter(|&j| j != clerk)
            .all(|j| weights[(row, j)] <= weights[(row, bank)]);
        ensure!(second, "“bank” is not second");
    }
    page.file("cross.svg", drawn);
    page.value("river-clerk", percent(weights[(1, clerk)], 0));
    Ok(())
}

/// The sums of rows of weights under dropout.
fn dropout(page: &mut Page) -> Result<()> {
    const ROWS: usize = 12_800;
    page.value("rows", integer(ROWS));
    let mut rows = vec![];
    for (p, n) in [(0.1, 8), (0.1, 512), (0.5, 8), (0.5, 512)] {
        let rng = &mut ChaCha8Rng::seed_from_u64(5);
        let layer = MultiHeadAttention::<f64>::xavier(8, 1, rng)?.with_dropout(p)?;
        let x = normal(n, 8, rng);
        let (mut sums, mut squares) = (vec![], vec![]);
        while sums.len() < ROWS {
            let (_, cache) = layer.forward_training(&x, None, &Mask::none(), rng)?;
            let head = &cache.heads[0];
            sums.extend(head.weights_used()?.column_sum().iter().copied());
            squares.push(head.weights.norm_squared() / n as f64);
        }
        let count = sums.len() as f64;
        let mean = sums.iter().sum::<f64>() / count;
        let spread =
            (sums.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / count).sqrt();
        let zero = sums.iter().filter(|&&s| s == 0.0).count() as f64 / count;
        let square = squares.iter().sum::<f64>() / squares.len() as f64;
        let predicted = (p / (1.0 - p) * square).sqrt();
        ensure!((spread / predicted - 1.0).abs() < 0.05, "{spread} is not {predicted}");
        ensure!((mean - 1.0).abs() < 0.02, "the sums are not 1 on average: {mean}");
        rows.push(vec![
            fixed(p, 1),
            integer(n),
            fixed(mean, 2),
            fixed(spread, 2),
            fixed(predicted, 2),
            percent(zero, 1),
        ]);
    }
    page.file(
        "dropout.md",
        table(
            &[
                "$p$",
                "$n$",
                "mean sum of a row",
                "spread",
                "predicted spread",
                "rows that lost all",
            ],
            &rows,
        ),
    );
    Ok(())
}
