//! Which changes around a row leave its bits alone: of each engine, and all of them with [`Flash::with_batch_invariance`].

use crate::engines::cached::tokens;
use attention::engine::{ByWeights, Engine, Factor, Tiled};
use attention::{
    Mask, MultiHeadAttention, Result, Rotary, ScoreRule, positions::RotaryPairs,
};
use fast::{Flash, Float, Instructions};
use laboratory::{Change, same_rows};
use nalgebra::{DMatrix, convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use std::sync::Arc;

type OnThreads<T> = dyn Fn(usize) -> Result<Arc<dyn Engine<T>>>;

/// Numbers from −2 to 2.
fn random<T: Float>(n: usize, d: usize) -> DMatrix<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    DMatrix::from_fn(n, d, |_, _| convert(4.0 * rng.random::<f64>() - 2.0))
}

fn layer<T: Float>(d: usize, heads: usize, kv: usize) -> MultiHeadAttention<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let mut layer = MultiHeadAttention::xavier_grouped(d, heads, kv, rng).unwrap();
    layer.parameters.b_q = random::<T>(1, d).row(0).into_owned();
    layer
}

/// What the book's table says. A layer is wide enough that its projections are cut, and longer than a tile.
#[test]
fn what_holds_of_each_engine() {
    let (layer, x) = (layer::<f32>(320, 4, 2), random(400, 320));
    let flash = |threads| Flash::new().with_threads(threads);
    let by_shape = [Change::Rows, Change::LongerText, Change::Chunks, Change::Parts];
    let engines: [(&str, &OnThreads<f32>, &[Change]); 4] = [
        ("by weights", &|_| Ok(Arc::new(ByWeights)), &by_shape),
        ("tiled", &|_| Ok(Arc::new(Tiled::default())), &by_shape),
        ("flash", &move |threads| Ok(Arc::new(flash(threads)?)), &by_shape),
        (
            "flash, batch-invariant",
            &move |threads| Ok(Arc::new(flash(threads)?.with_batch_invariance())),
            &[Change::Parts],
        ),
    ];
    for (name, engine, changed_by) in engines {
        for change in Change::ALL {
            let rows = same_rows(&layer, &x, &Mask::causal(), engine, change).unwrap();
            let holds = !changed_by.contains(&change);
            assert_eq!(rows.hold(), holds, "{name}, {change}: {rows:?}");
        }
    }
}

/// Every set of instructions, both types, masks and rules for scores, shared keys, rotated positions, tiles that no length is a multiple of.
#[test]
fn a_row_of_the_invariant_engine_keeps_its_bits() {
    fn check<T: Float>() {
        let rotary = Rotary::new(10_000.0, RotaryPairs::Halves).unwrap();
        let layers = [
            (layer::<T>(16, 2, 1).with_rotary(rotary).unwrap(), tokens(140, 4)),
            (layer(24, 4, 4), random(150, 24)),
        ];
        let masks = [
            Mask::causal(),
            Mask::causal().and(Mask::window(37).unwrap()),
            Mask::causal().with_scores(ScoreRule::soft_cap(5.0).unwrap()),
            Mask::window_with_sinks(20, 3).unwrap(),
        ];
        for instructions in Instructions::available() {
            for ((layer, x), mask) in layers.iter().cycle().zip(&masks) {
                let engine: &OnThreads<T> = &move |threads| {
                    let flash = Flash::new().with_threads(threads)?;
                    let flash = flash.with_instructions(instructions)?;
                    Ok(Arc::new(flash.with_batch_invariance()))
                };
                for change in Change::ALL {
                    if change == Change::Parts {
                        continue;
                    }
                    let rows = same_rows(layer, x, mask, engine, change).unwrap();
                    assert!(
                        rows.hold(),
                        "{instructions:?}, {mask:?}, {change}: {rows:?}"
                    );
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
}

/// A value that isn't finite reaches what sees it, and changes no other bit, whatever is computed beside it.
#[test]
fn what_is_not_finite_changes_no_order() {
    let (q, k, mut v) = (random::<f32>(200, 8), random(200, 8), random(200, 8));
    v[(20, 3)] = f32::INFINITY; // in one column: the others stay finite
    v[(150, 5)] = f32::NEG_INFINITY;
    let engine = Flash::new().with_batch_invariance();
    let run = |rows: std::ops::Range<usize>| {
        let (k, v) = (k.rows(0, rows.end), v.rows(0, rows.end));
        let q = q.rows_range(rows);
        let inputs = attention::flash::Inputs::new(q, k, v, Mask::causal()).unwrap();
        engine.forward(&inputs).unwrap().output
    };
    let whole = run(0..200);
    assert!(whole[(19, 3)].is_finite() && whole[(20, 3)] == f32::INFINITY);
    let bits = |row: nalgebra::RowDVector<f32>| row.map(f32::to_bits);
    for i in 0..200 {
        assert_eq!(bits(run(i..i + 1).row(0).into()), bits(whole.row(i).into()), "{i}");
    }
}

/// A product of any shape, with factors as they lie or transposed.
#[test]
fn a_row_of_a_product_keeps_its_bits() {
    fn check<T: Float>() {
        let engine = Flash::new().with_batch_invariance();
        for (depth, columns) in [(1, 1), (3, 70), (256, 9), (257, 40), (600, 33)] {
            let (x, w) = (random::<T>(130, depth), random(depth, columns));
            let (x_t, w_t, bias) = (x.transpose(), w.transpose(), random(1, columns));
            let bias = Some(bias.as_slice());
            let whole = engine.product(Factor::of(&x), Factor::of(&w), bias);
            for (first, count) in [(0, 1), (129, 1), (5, 2), (17, 49), (0, 130)] {
                let of = |x: &DMatrix<T>| x.rows(first, count).into_owned();
                let (x, x_t) = (of(&x), x_t.columns(first, count).into_owned());
                for x in [Factor::of(&x), Factor::transposed(&x_t)] {
                    for w in [Factor::of(&w), Factor::transposed(&w_t)] {
                        let product = engine.product(x, w, bias);
                        assert_eq!(product, of(&whole), "{depth} x {columns}");
                    }
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
}
