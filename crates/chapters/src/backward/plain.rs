//! The six steps forward and backward in plain matrix products: the page shows these lines, `claims.rs` compares them with the crate.

use attention::{Mask, Parameters, Result, softmax_rows};
use nalgebra::DMatrix;

// ANCHOR: plain
/// One causal head without biases: the output, and the gradients with respect to
/// W_Q, W_K, W_V, W_O and X.
pub fn plain(
    p: &Parameters<f64>,
    x: &DMatrix<f64>,
    grad_y: &DMatrix<f64>,
) -> Result<(DMatrix<f64>, [DMatrix<f64>; 5])> {
    let (n, root) = (x.nrows(), (p.w_q.ncols() as f64).sqrt());

    // ANCHOR: forward
    let (q, k, v) = (x * &p.w_q, x * &p.w_k, x * &p.w_v); // 1
    let products = &q * k.transpose(); // 2
    let s = Mask::causal().sized(n, n)?.apply(products / root)?; // 3
    let a = softmax_rows(&s)?; // 4
    let o = &a * &v; // 5
    let y = &o * &p.w_o; // 6
    // ANCHOR_END: forward

    // ANCHOR: step_6
    let grad_o = grad_y * p.w_o.transpose();
    let grad_w_o = o.transpose() * grad_y;
    // ANCHOR_END: step_6
    // ANCHOR: step_5
    let grad_a = &grad_o * v.transpose();
    let grad_v = a.transpose() * &grad_o;
    // ANCHOR_END: step_5
    // ANCHOR: step_4
    let means = grad_a.component_mul(&a).column_sum(); // D, one number per row
    let grad_s = DMatrix::from_fn(n, n, |i, j| a[(i, j)] * (grad_a[(i, j)] - means[i]));
    // ANCHOR_END: step_4
    // ANCHOR: step_3
    let grad_products = grad_s / root;
    // ANCHOR_END: step_3
    // ANCHOR: step_2
    let grad_q = &grad_products * &k;
    let grad_k = grad_products.transpose() * &q;
    // ANCHOR_END: step_2
    // ANCHOR: step_1
    let grad_w_q = x.transpose() * &grad_q;
    let grad_w_k = x.transpose() * &grad_k;
    let grad_w_v = x.transpose() * &grad_v;
    let grad_x = grad_q * p.w_q.transpose()
        + grad_k * p.w_k.transpose()
        + grad_v * p.w_v.transpose();
    // ANCHOR_END: step_1

    Ok((y, [grad_w_q, grad_w_k, grad_w_v, grad_w_o, grad_x]))
}
// ANCHOR_END: plain
