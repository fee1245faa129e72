//! The suite of all engines, on all of them: those of the crate `attention`, and `Flash` with every set of instructions, with two threads, and
//! with one order of summation.

use crate::engines::{Named, test_engines};
use attention::engine::{ByWeights, Tiled};
use attention::flash::Tiles;
use fast::{Flash, Float, Instructions};
use std::sync::LazyLock;

/// Two threads, which all tests share; without the feature `rayon` there is one.
static THREADS: LazyLock<Flash> = LazyLock::new(|| {
    let threads = if cfg!(feature = "rayon") { 2 } else { 1 };
    Flash::new().with_threads(threads).unwrap()
});

fn table<T: Float>(tiles: Option<Tiles>) -> Vec<Named<T>> {
    let name =
        |name: &str, Tiles { queries, keys }| format!("{name}, {queries} x {keys}");
    let of_tiled = tiles.unwrap_or_default();
    let mut all = vec![
        Named::new("by weights", usize::MAX, ByWeights),
        Named::new(name("tiled", of_tiled), of_tiled.keys, Tiled(of_tiled)),
    ];
    let tiles = tiles.unwrap_or(Flash::TILES);
    let alone = Flash::new().with_threads(1).unwrap();
    let each = Instructions::available().into_iter().map(|instructions| {
        (format!("{instructions:?}"), alone.clone().with_instructions(instructions))
    });
    let others = [
        ("two threads".to_owned(), Ok(THREADS.clone())),
        ("batch-invariant".to_owned(), Ok(alone.clone().with_batch_invariance())),
    ];
    all.extend(each.chain(others).map(|(instructions, flash)| {
        let flash = flash.unwrap().with_tiles(tiles).unwrap();
        Named::new(name(&instructions, tiles), tiles.keys, flash)
    }));
    all
}

test_engines!(table);
