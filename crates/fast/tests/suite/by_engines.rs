//! The suite of all engines, on `Flash` with every set of instructions, and with several threads.

use crate::engines::{Named, test_engines};
use attention::flash::Tiles;
use fast::{Flash, Float, Instructions};
use std::sync::LazyLock;

/// Two threads, which all tests share; without the feature `rayon` there is one.
static THREADS: LazyLock<Flash> = LazyLock::new(|| {
    let threads = if cfg!(feature = "rayon") { 2 } else { 1 };
    Flash::new().with_threads(threads).unwrap()
});

fn table<T: Float>(tiles: Option<Tiles>) -> Vec<Named<T>> {
    let tiles = tiles.unwrap_or(Flash::TILES);
    let alone = Flash::new().with_threads(1).unwrap();
    let each = Instructions::available().into_iter().map(|instructions| {
        (format!("{instructions:?}"), alone.clone().with_instructions(instructions))
    });
    let all = each.chain([("two threads".to_owned(), Ok(THREADS.clone()))]);
    let named = all.map(|(name, flash)| {
        let flash = flash.unwrap().with_tiles(tiles).unwrap();
        let Tiles { queries, keys } = tiles;
        Named::new(format!("{name}, {queries} x {keys}"), keys, flash)
    });
    named.collect()
}

test_engines!(table);
