//! The suite of all engines, on those of this crate.

use crate::engines::{Named, test_engines};
use attention::Float;
use attention::engine::{ByWeights, Tiled};
use attention::flash::Tiles;

fn table<T: Float>(tiles: Option<Tiles>) -> Vec<Named<T>> {
    let tiles = tiles.unwrap_or_default();
    let Tiles { queries, keys } = tiles;
    vec![
        Named::new("by weights", usize::MAX, ByWeights),
        Named::new(format!("tiled {queries} x {keys}"), keys, Tiled(tiles)),
    ]
}

test_engines!(table);
