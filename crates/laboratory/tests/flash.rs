//! The forward pass with products from a library, in tiles of any size.

use attention::Mask;
use attention::flash::Tiles;
use attention::testing::one_problem::{F64, Problem, off};
use laboratory::LibraryFlash;

#[test]
fn tiles_of_no_query_or_no_key_are_tiles_of_one() {
    let mask = Mask::causal();
    let problem =
        Problem { lengths: (7, 9), widths: (3, 2), n_heads: 1, n_kv_heads: 1, mask };
    let data = problem.data::<f64>(1.0);
    let (right, _) = problem.naive(&data);
    for (queries, keys) in [(0, 4), (4, 0), (0, 0)] {
        let tiles = Tiles { queries, keys };
        let library = LibraryFlash { tiles, ..LibraryFlash::default() };
        let answer = library.forward(&problem.inputs(&data));
        assert!(off(&answer.output, &right.output) < F64, "{tiles:?}");
        assert!(off(&answer.log_sum_exp, &right.log_sum_exp) < F64, "{tiles:?}");
    }
}
