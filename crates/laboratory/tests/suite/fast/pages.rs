//! Keys in pages that are read where they are.

use crate::engines::cached::{in_chunks, layer, tokens};
use attention::flash::Tiles;
use attention::{ForwardOptions, KeyValueCache, Mask};
use fast::{Flash, Float};

/// Outputs with pages, and without: equal to the bit.
fn check<T: Float>(n_kv_heads: usize, rotary: bool, page: usize) {
    let engine = Flash::new().with_tiles(Tiles { queries: 1152, keys: 256 }).unwrap();
    let options = ForwardOptions::new().mask(Mask::causal()).engine(engine);
    let (x, layer) = (tokens::<T>(2500, 10), layer(n_kv_heads, rotary));
    let run = |cache| in_chunks(&layer, cache, &x, &[2490, 1, 5, 1, 3], &options);
    let paged = KeyValueCache::new().with_pages(page).unwrap();
    assert_eq!(run(paged), run(KeyValueCache::new()), "pages of {page}");
}

/// A chunk of 2,048 keys lies in two pages that are read where they are, in one that is larger, or in three that have to be copied.
#[test]
fn a_chunk_may_lie_in_several_pages() {
    for page in [1024, 2048, 1000] {
        check::<f64>(2, true, page);
        check::<f32>(1, false, page);
    }
}
