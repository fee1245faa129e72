//! The forward pass with products from a library equals the naive one, however it exponentiates.

#[path = "../../attention/tests/common/one_problem.rs"]
mod one_problem;

use attention::Mask;
use laboratory::{Exponentials, LibraryFlash};
use one_problem::{F64, Problem, off};

#[test]
fn every_way_to_exponentiate() {
    let mask = Mask::causal().and(Mask::window(90).unwrap());
    let problem = Problem { lengths: (200, 230), widths: (16, 24), n_heads: 2, mask };
    let data = problem.data::<f64>(1.0);
    let (right, _) = problem.naive(&data);
    for exponentials in
        [Exponentials::OneByOne, Exponentials::Portable, Exponentials::Vector]
    {
        let library = LibraryFlash::new().with_exponentials(exponentials);
        let answer = library.forward(&problem.inputs(&data));
        assert!(off(&answer.output, &right.output) < F64, "{exponentials:?}");
        assert!(off(&answer.log_sum_exp, &right.log_sum_exp) < F64, "{exponentials:?}");
    }
}
