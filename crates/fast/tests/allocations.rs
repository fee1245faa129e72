//! The engine allocates before its loops, and not in them.

use attention::Mask;
use attention::engine::Engine;
use attention::flash::{Inputs, Tiles};
use fast::Flash;
use nalgebra::DMatrix;

/// One block of queries against so many keys: allocations forward, and forward and backward.
fn allocations(n_k: usize) -> [u64; 2] {
    let numbers = |rows: usize| {
        DMatrix::<f32>::from_fn(rows, 16, |i, j| ((7 * i + 3 * j) as f32).sin())
    };
    let (q, k) = (numbers(32), numbers(n_k));
    let mask = Mask::window(n_k).unwrap(); // tiles that are seen in part, too
    let inputs = Inputs::new(&q, &k, &k, &mask).unwrap();
    let tiles = Tiles { queries: 32, keys: 32 };
    let flash = Flash::new().with_tiles(tiles).unwrap().with_threads(1).unwrap();
    let forward = || flash.forward(&inputs).unwrap();
    assert_eq!(forward().output.nrows(), 32);
    let once = allocation_counter::measure(|| drop(forward()));
    let both = allocation_counter::measure(|| {
        flash.backward(&inputs, &forward(), q.as_view()).unwrap();
    });
    [once.count_total, both.count_total]
}

/// Eleven times the tiles, and as many allocations. (Both are cut into four stripes of keys, and each stripe allocates.)
#[test]
fn no_tile_allocates() {
    let few = allocations(192);
    assert!(few[0] > 5 && few[1] > few[0], "nothing is counted: {few:?}");
    assert_eq!(allocations(11 * 192), few);
}
