//! Scores that are too low for any number.

use crate::support::Problem;
use attention::Mask;
use fast::{Flash, Instructions};

/// They are not hidden ones, and no zero says that they were.
#[test]
fn nothing_but_scores_that_overflow_is_not_nothing() {
    for n_q in [1, 20] {
        let mask = Mask::padding(&[true, false, true]).unwrap();
        let problem = Problem::new((n_q, 3), (4, 3), (1, 1), mask);
        let mut data = problem.data::<f32>(0.0);
        data.q.fill(1e30);
        data.k.fill(-1e30);
        for instructions in Instructions::available() {
            let flash = Flash::new().with_instructions(instructions).unwrap();
            let (forward, gradients) = problem.by(&flash, &data);
            let all = forward.output.iter().chain(&forward.log_sum_exp);
            assert!(all.chain(&gradients.v.row(0)).all(|x| x.is_nan()));
            assert!(gradients.v.row(1).iter().all(|&x| x == 0.0));
        }
    }
}
