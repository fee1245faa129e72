use super::{Heads, Kept, Layer, Matrix, join};

// ANCHOR: softmax_backward
/// The gradient of the scores from that of the weights: how far each is from its row's
/// mean, times the weight.
pub fn softmax_backward(weights: &Matrix, grad_weights: &Matrix) -> Matrix {
    let means = weights.component_mul(grad_weights).column_sum(); // (n_q)
    Matrix::from_fn(weights.nrows(), weights.ncols(), |i, j| {
        weights[(i, j)] * (grad_weights[(i, j)] - means[i])
    })
}
// ANCHOR_END: softmax_backward

// ANCHOR: attention_backward
/// The gradients of queries, keys and values from that of the output.
pub fn attention_backward(
    q: &Matrix,           // (n_q, d_k)
    k: &Matrix,           // (n_k, d_k)
    v: &Matrix,           // (n_k, d_v)
    weights: &Matrix,     // (n_q, n_k)
    grad_output: &Matrix, // (n_q, d_v)
) -> [Matrix; 3] {
    // ANCHOR: step_5
    // output = weights · v
    let grad_v = weights.transpose() * grad_output;
    let grad_weights = grad_output * v.transpose();
    // ANCHOR_END: step_5
    // ANCHOR: step_4
    // weights = softmax(scores)
    let grad_scores = softmax_backward(weights, &grad_weights);
    // ANCHOR_END: step_4
    // ANCHOR: step_3
    // scores = q kᵀ / √d_k
    let grad_products = grad_scores / (q.ncols() as f64).sqrt();
    // ANCHOR_END: step_3
    // ANCHOR: step_2
    [&grad_products * k, grad_products.transpose() * q, grad_v]
    // ANCHOR_END: step_2
}
// ANCHOR_END: attention_backward

// ANCHOR: heads
impl Heads {
    /// The gradients of the input and of each learned matrix, from that of the output.
    pub fn backward(&self, kept: &Kept, grad_output: &Matrix) -> (Matrix, Layer) {
        let Kept { x, qkv: [q, k, v], weights, attended } = kept;
        let Layer { w_q, w_k, w_v, w_o } = &self.layer;
        // ANCHOR: step_6
        // output = attended · w_o
        let grad_w_o = attended.transpose() * grad_output;
        let grad_attended = self.split(&(grad_output * w_o.transpose()));
        // ANCHOR_END: step_6
        // each head attended on its own columns, turned to their positions
        let mut grads = [vec![], vec![], vec![]];
        for (h, grad) in grad_attended.iter().enumerate() {
            let mut of_head = attention_backward(&q[h], &k[h], &v[h], &weights[h], grad);
            if let Some(turn) = self.turn {
                of_head[..2].iter_mut().for_each(|grad| *grad = turn(grad, 0, -1.0));
            }
            grads.iter_mut().zip(of_head).for_each(|(all, one)| all.push(one));
        }
        let [grad_q, grad_k, grad_v] = grads.map(|heads| join(&heads));
        // ANCHOR: step_1
        // q = x · w_q, k = x · w_k, v = x · w_v: the input has a part in all three
        let grad_x = &grad_q * w_q.transpose()
            + &grad_k * w_k.transpose()
            + &grad_v * w_v.transpose();
        let [w_q, w_k, w_v] = [grad_q, grad_k, grad_v].map(|grad| x.transpose() * grad);
        (grad_x, Layer { w_q, w_k, w_v, w_o: grad_w_o })
        // ANCHOR_END: step_1
    }
}
// ANCHOR_END: heads
