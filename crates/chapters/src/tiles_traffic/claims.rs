//! Tests of what both chapters say of traffic.

use super::facts::{Pass, Program, fused, naive, naive_backward, random_inputs};
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

#[test]
fn counts_follow_the_formula_within_ten_percent_and_not_so_closely_elsewhere() {
    for pass in [Pass::Forward, Pass::Backward] {
        let close = pass.close();
        let (from, to) = (*close.start(), *close.end());
        let ranges = [close, from / 2..=from - 1, to + 1..=2 * to];
        let [here, below, beyond] = ranges.map(|range| {
            let [least, most] = pass.above_formula(range).unwrap();
            assert!(least > 0.0, "{pass:?}: the formula is a little less");
            most
        });
        assert!(here < 0.1, "{pass:?}, within 10 %: {here}");
        assert!(below > here && beyond > here, "{pass:?}: further above elsewhere");
    }
}
