//! Digits in single precision: sums of many terms. The suite of engines has those of attention.

use crate::engines::numbers::{hard_scores, relative};
use attention::{Result, linear_backward, log_sum_exp, softmax, softmax_rows};
use nalgebra::{DMatrix, DVector, dmatrix};

#[test]
fn of_softmax_over_equal_and_nearly_equal_scores() {
    for (n_k, spread, score) in hard_scores() {
        let x = DVector::from_fn(n_k, |j, _| score(j) as f32);
        let sum: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
        let context = format!("{n_k} keys, {spread}");
        assert!(relative(log_sum_exp(&x).unwrap(), sum.ln()) < 3e-7, "{context}");
        let of_vector = softmax(&x).unwrap();
        let of_rows = softmax_rows(&x.transpose()).unwrap();
        for j in [0, n_k / 3, n_k - 1] {
            let right = f64::from(x[j]).exp() / sum;
            for weight in [of_vector[j], of_rows[j]] {
                assert!(
                    relative(weight, right) < 1e-6,
                    "{context}: {weight} for {right}"
                );
            }
        }
    }
}

#[test]
fn of_the_gradients_of_parameters_over_many_rows() -> Result<()> {
    const N: usize = 65_536;
    let x = DMatrix::from_element(N, 1, 0.5_f32);
    let w = dmatrix![1.0_f32, 2.0];
    let grad_y = DMatrix::from_fn(N, 2, |_, c| if c == 0 { 0.999 } else { 0.1 });
    let (_, grad_w, grad_b) = linear_backward(&x, &w, &grad_y)?;
    for c in 0..2 {
        let right = f64::from(grad_y[(0, c)]) * N as f64;
        assert!(relative(grad_b[c], right) < 1e-6, "bias: {} for {right}", grad_b[c]);
        let of_weight = 2.0 * grad_w[c];
        assert!(relative(of_weight, right) < 3e-6, "weight: {of_weight} for {right}");
    }
    Ok(())
}
