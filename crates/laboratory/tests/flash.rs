//! The forward pass with products from a library equals the naive one, however it exponentiates.

use attention::Mask;
use attention::flash::Tiles;
use attention::testing::one_problem::{F64, Problem, off};
use laboratory::{Exponentials, LibraryFlash};

#[test]
fn every_way_to_exponentiate() {
    let mask = Mask::causal().and(Mask::window(90).unwrap());
    let problem = Problem { lengths: (200, 230), widths: (16, 24), n_heads: 2, mask };
    let data = problem.data::<f64>(1.0);
    let (right, _) = problem.naive(&data);
    for exponentials in
        [Exponentials::OneByOne, Exponentials::Portable, Exponentials::Vector]
    {
        let library = LibraryFlash { exponentials, ..LibraryFlash::default() };
        let answer = library.forward(&problem.inputs(&data));
        assert!(off(&answer.output, &right.output) < F64, "{exponentials:?}");
        assert!(off(&answer.log_sum_exp, &right.log_sum_exp) < F64, "{exponentials:?}");
    }
}

#[test]
fn tiles_of_no_query_or_no_key_are_tiles_of_one() {
    let mask = Mask::causal();
    let problem = Problem { lengths: (7, 9), widths: (3, 2), n_heads: 1, mask };
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
