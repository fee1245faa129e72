//! What doesn't fit is refused, and named.

use super::Engines;
use crate::support::{answer, blame, random};
use attention::Mask;
use attention::engine::Engine;
use attention::flash::{FlashOutput, Inputs};
use nalgebra::DMatrix;

pub fn wrong_shapes_are_refused(engines: Engines<f64>) {
    let (q, k, v) = (random(3, 8, 0), random(5, 8, 1), random(5, 4, 2)); // two heads
    let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap().with_heads(2).unwrap();
    let grad = random(3, 4, 3);
    for engine in engines(None) {
        let (forward, _) = answer(&engine, &inputs, &grad);
        let blamed = |change: fn(&mut FlashOutput<f64>), grad: &DMatrix<f64>| {
            let mut forward = forward.clone();
            change(&mut forward);
            blame(&engine.backward(&inputs, &forward, grad.as_view()).unwrap_err())
        };
        for (given, expected) in [
            (blamed(|f| f.output = random(2, 4, 0), &grad), "Shape forward.output"),
            (
                blamed(|f| f.log_sum_exp = random(2, 2, 0), &grad),
                "Shape forward.log_sum_exp",
            ),
            (
                blamed(|f| f.log_sum_exp_low = random(3, 1, 0), &grad),
                "Shape forward.log_sum_exp_low",
            ),
            (blamed(|_| (), &random(4, 4, 0)), "Shape grad_output"),
            (blamed(|_| (), &DMatrix::zeros(3, 0)), "Empty grad_output"),
        ] {
            assert_eq!(given, expected, "{engine:?}");
        }
    }
}
