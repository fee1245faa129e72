//! What `Flash` refuses, and names. What every engine refuses is in the suite of engines.

use crate::support::blame;
use attention::flash::Tiles;
use fast::{Flash, Instructions, TileProducts};

#[test]
fn wrong_settings_are_refused() {
    let tiles = Flash::TILES;
    let [no_queries, no_keys] =
        [Tiles { queries: 0, ..tiles }, Tiles { keys: 0, ..tiles }];
    // No processor has both.
    let elsewhere = match cfg!(target_arch = "aarch64") {
        true => Instructions::Avx2,
        false => Instructions::Neon,
    };
    let products = |instructions, keys| TileProducts::<f32>::new(instructions, keys, 8);
    let mut wrong = vec![
        (Flash::new().with_tiles(no_queries).map(drop), "Zero tiles.queries"),
        (Flash::new().with_tiles(no_keys).map(drop), "Zero tiles.keys"),
        (Flash::new().with_threads(0).map(drop), "Zero threads"),
        (Flash::new().with_instructions(elsewhere).map(drop), "Value instructions"),
        (products(elsewhere, 8).map(drop), "Value instructions"),
        (products(Instructions::Portable, 0).map(drop), "Zero keys"),
    ];
    if cfg!(not(feature = "rayon")) {
        wrong.push((Flash::new().with_threads(2).map(drop), "Value threads"));
    }
    for (result, expected) in wrong {
        assert_eq!(blame(&result.unwrap_err()), expected);
    }
    let error = Flash::new().with_threads(100_000).unwrap_err();
    assert_eq!(error.to_string(), "`threads` is 100000 but it must be at most 1024");
}
