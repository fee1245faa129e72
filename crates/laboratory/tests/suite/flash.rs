//! The forward pass with products from a library, in tiles of any size.

use crate::support::{Problem, off};
use attention::Mask;
use attention::engine::ByWeights;
use attention::flash::Tiles;
use laboratory::LibraryFlash;

#[test]
fn tiles_of_no_query_or_no_key_are_tiles_of_one() {
    let mask = Mask::causal();
    let problem = Problem::new((7, 9), (3, 2), (1, 1), mask);
    let data = problem.data::<f64>(1.0);
    let (right, _) = problem.by(&ByWeights, &data);
    for (queries, keys) in [(0, 4), (4, 0), (0, 0)] {
        let tiles = Tiles { queries, keys };
        let library = LibraryFlash { tiles, ..LibraryFlash::default() };
        let answer = library.forward(&problem.inputs(&data));
        assert!(off(&answer.output, &right.output) < 1e-12, "{tiles:?}");
        assert!(off(&answer.log_sum_exp, &right.log_sum_exp) < 1e-12, "{tiles:?}");
    }
}
