//! Tests of what both chapters say of traffic.

use super::facts::{D, LONG, Pass, Program, fused, naive, naive_backward, random_inputs};
use anyhow::Result;
use attention::{Mask, attention, attention_backward, mask::Visibility};
use laboratory::traffic::blocks;

/// A run computes attention, or its gradients, and moves what was predicted.
pub fn runs_as_predicted(program: Program, n: usize, mask: &Mask, capacity: usize) {
    let [q, k, v, grad_output] = random_inputs(n);
    let (output, cache) = attention(&q, &k, &v, mask).unwrap();
    let (expected, tolerance) = match program {
        Program::NaiveBackward | Program::TiledBackward(_) => {
            let gradients = attention_backward(&cache, &grad_output).unwrap();
            (vec![gradients.q, gradients.k, gradients.v], 1e-3)
        }
        _ => (vec![output], 1e-4),
    };
    let (results, memory) = program.run(n, mask, capacity).unwrap();
    assert_eq!(results.len(), expected.len());
    for (result, expected) in results.into_iter().zip(expected) {
        assert!(
            (result - expected).amax() < tolerance,
            "{program:?}, n = {n}: the result"
        );
    }
    let predicted = by_formula(program, n, mask, capacity).unwrap();
    assert_eq!(memory.report().total().all() as f64, predicted, "{program:?}, n = {n}");
}

fn by_formula(program: Program, n: usize, mask: &Mask, capacity: usize) -> Result<f64> {
    match program {
        Program::Naive => naive(n, capacity),
        Program::Fused => fused(n, capacity),
        Program::NaiveBackward => naive_backward(n, capacity),
        Program::Chunked(strip) => by_tiles(Pass::Forward, n, mask, (strip, 1)),
        Program::Tiled(tiles) => by_tiles(Pass::Forward, n, mask, tiles),
        Program::TiledBackward(tiles) => by_tiles(Pass::Backward, n, mask, tiles),
    }
}

/// The numbers that a pass moves, counted tile by tile, where a mask may hide some.
fn by_tiles(
    pass: Pass,
    n: usize,
    mask: &Mask,
    (queries, keys): (usize, usize),
) -> Result<f64> {
    let mask = mask.sized(n, n)?;
    let mut tokens = 0;
    for rows in blocks(n, queries) {
        for columns in blocks(n, keys) {
            if mask.visibility(rows.clone(), columns.clone()) != Visibility::Hidden {
                tokens += if pass == Pass::Forward { columns.len() } else { rows.len() };
            }
        }
    }
    Ok(pass.moved(n, tokens))
}

/// The formulas of the chapters, for tiles that fill fast memory: 2nd + 4n²d² / R forward, 7nd + 16n²d² / R backward.
#[test]
fn counts_lie_a_little_above_the_formulas() {
    let numbers = (LONG * D) as f64;
    for (pass, [once, again], capacities) in [
        (Pass::Forward, [2.0, 4.0], 64 * D..=LONG * D / 8),
        (Pass::Backward, [7.0, 16.0], 128 * D..=LONG * D / 4),
    ] {
        for capacity in capacities {
            let formula = once * numbers + again * numbers * numbers / capacity as f64;
            let above = pass.tiled(LONG, capacity).unwrap() / formula - 1.0;
            assert!(above > 0.0 && above < 0.1, "{pass:?}, R = {capacity}: {above}");
        }
    }
}
