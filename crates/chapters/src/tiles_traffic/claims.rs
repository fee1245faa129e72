//! Tests of what both chapters say of traffic.

use super::facts::{
    CAPACITY, D, LONG, N, OfTiles, Pass, Program, Total, capacities, causal_share, fused,
    greatest_common_divisor, naive, naive_backward, random_inputs,
};
use anyhow::Result;
use attention::{Mask, attention, attention_backward};

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
        Program::Chunked(strip) => Pass::Forward.by_tiles(n, mask, (strip, 1)),
        Program::Tiled(tiles) => Pass::Forward.by_tiles(n, mask, tiles),
        Program::TiledBackward(tiles) => Pass::Backward.by_tiles(n, mask, tiles),
    }
}

/// Tests the tiles of a table.
pub fn tiles_run_as_predicted(pass: Pass, sizes: &[OfTiles]) {
    for of in sizes {
        runs_as_predicted(pass.program(of.tiles), N, &Mask::none(), CAPACITY);
    }
}

/// Within 10 %, and the more, the larger the blocks that stay.
pub fn the_formula_holds_of_every_size(sizes: &[OfTiles]) {
    let off = sizes.iter().flat_map(|of| [of.off(), of.causal_off()]);
    let largest = off.map(f64::abs).fold(0.0, f64::max);
    assert!(largest < 0.1, "within 10 %: {largest}");
    assert!(sizes.is_sorted_by(|a, b| a.full > b.full), "larger blocks, less traffic");
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

/// Exactly so if tiles of either kind divide n, and within 10 % if there are twenty blocks of either. (What a last block lacks, if
/// it is not full, is counted as if the block saw fewer keys, and it sees most.)
#[test]
fn a_causal_mask_leaves_half_and_the_diagonal() {
    let mut exact = 0;
    for n in [512, 700, 1024, 1536, 4096] {
        for queries in [1, 2, 16, 24, 48, 64, 87] {
            for keys in [1, 2, 16, 24, 48, 64, 87] {
                let tiles = (queries, keys);
                let moved = Pass::Forward.by_tiles(n, &Mask::causal(), tiles).unwrap();
                let seen = (moved - Pass::Forward.moved(n, 0)) / (2 * D) as f64;
                let diagonal = queries + keys - greatest_common_divisor(queries, keys);
                let formula = (n * n) as f64 / queries as f64 * causal_share(n, tiles);
                let context = format!("{n} {tiles:?}: {seen} for {formula}");
                if n.is_multiple_of(queries) && n.is_multiple_of(keys) {
                    let twice = 2.0 * seen * queries as f64;
                    assert_eq!(twice, (n * (n + diagonal)) as f64, "{context}");
                    exact += 1;
                }
                if n >= 20 * queries.max(keys) {
                    assert!((seen / formula - 1.0).abs() < 0.1, "{context}");
                    let half = 0.5 * (n.div_ceil(queries) * n) as f64;
                    assert!(seen >= half && seen < 1.2 * half, "{context}");
                }
            }
        }
    }
    assert!(exact > 50);
}

/// The counts tile by tile.
pub fn blocks_predict_the_count(pass: Pass, capacities: &[usize]) {
    for &capacity in capacities {
        let tiles = pass.tiles(capacity).unwrap();
        let by_tiles = pass.by_tiles(LONG, &Mask::none(), tiles).unwrap();
        assert_eq!(by_tiles, pass.tiled(LONG, capacity).unwrap(), "M = {capacity}");
    }
}

/// Tests that tiles pay from some capacity on, and returns it.
pub fn tiles_pay(pass: Pass, least: usize, other: Total) -> usize {
    let from = pass.pays_from(LONG, least, other).unwrap();
    assert!(least < from && from < CAPACITY / 4, "it pays from some capacity on");
    for m in capacities().into_iter().filter(|&m| m >= CAPACITY / 2) {
        let (tiled, other) = (pass.tiled(LONG, m).unwrap(), other(LONG, m).unwrap());
        assert!(tiled < other, "M = {m}: it pays");
    }
    from
}
