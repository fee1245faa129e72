//! PyTorch's calls of the page *From PyTorch to here*, as they are made with this crate, against what PyTorch returned: those of
//! `golden/from_pytorch.py`.

use crate::engines::pytorch::{cases, compare, matrices, matrix};
// ANCHOR: imports
use attention::engine::{Engine, Tiled};
use attention::flash::{Inputs, flash};
use attention::{Mask, MultiHeadAttention, Parameters, Result, ScoreRule, attention};
use nalgebra::{DMatrix, RowDVector};

type Matrix = DMatrix<f64>;
// ANCHOR_END: imports

// ANCHOR: one_head
fn one_head(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    Ok(attention(q, k, v, Mask::none())?.0)
}
// ANCHOR_END: one_head

// ANCHOR: scale
fn scale(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    let q = q * (0.1 * (q.ncols() as f64).sqrt()); // attention divides by √d
    Ok(attention(&q, k, v, Mask::none())?.0)
}
// ANCHOR_END: scale

// ANCHOR: causal
fn causal(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    flash(q, k, v, Mask::causal()) // the ends are aligned
}
// ANCHOR_END: causal

// ANCHOR: padding
fn padding(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    let valid: Vec<bool> = (0..k.nrows()).map(|j| j + 2 < k.nrows()).collect();
    flash(q, k, v, Mask::padding(&valid)?)
}
// ANCHOR_END: padding

// ANCHOR: heads
fn heads(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    let inputs = Inputs::new(q, k, v, Mask::none())?.with_heads(4)?; // side by side
    Ok(Tiled::default().forward(&inputs)?.output)
}
// ANCHOR_END: heads

// ANCHOR: groups
fn groups(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    let inputs = Inputs::grouped(q, k, v, Mask::causal(), 4, 2)?;
    Ok(Tiled::default().forward(&inputs)?.output)
}
// ANCHOR_END: groups

// ANCHOR: bias
fn bias(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    flash(q, k, v, Mask::none().with_scores(ScoreRule::slopes(&[0.5])?))
}
// ANCHOR_END: bias

// ANCHOR: flex
fn flex(q: &Matrix, k: &Matrix, v: &Matrix) -> Result<Matrix> {
    flash(q, k, v, Mask::window(3)?.with_scores(ScoreRule::soft_cap(2.0)?))
}
// ANCHOR_END: flex

/// PyTorch's parameters, (d_out, d_in), as this crate has them, (d_in, d_out).
// ANCHOR: from_state
fn from_state(
    in_proj_weight: &Matrix, // (3 · d_model, d_model)
    in_proj_bias: &RowDVector<f64>,
    out_proj_weight: &Matrix,
    out_proj_bias: &RowDVector<f64>,
    n_heads: usize,
) -> Result<MultiHeadAttention<f64>> {
    let d = in_proj_weight.ncols();
    let weight = |i: usize| in_proj_weight.rows(i * d, d).transpose();
    let bias = |i: usize| in_proj_bias.columns(i * d, d).into_owned();
    let parameters = Parameters {
        w_q: weight(0),
        w_k: weight(1),
        w_v: weight(2),
        w_o: out_proj_weight.transpose(),
        b_q: bias(0),
        b_k: bias(1),
        b_v: bias(2),
        b_o: out_proj_bias.clone(),
    };
    MultiHeadAttention::from_parameters(parameters, n_heads)
}
// ANCHOR_END: from_state

// ANCHOR: layer
fn layer(layer: &MultiHeadAttention<f64>, x: &Matrix) -> Result<[Matrix; 3]> {
    let (y, cache) = layer.forward(x, Mask::causal())?;
    let gradients = layer.backward(&cache, &y)?; // of the loss ½ Σ y²
    Ok([y, gradients.x, gradients.parameters.w_q])
}
// ANCHOR_END: layer

#[test]
fn every_call_gives_what_pytorch_gives() {
    for case in cases("from_pytorch.json", include_str!("../golden/from_pytorch.json")) {
        let name = case["name"].as_str().unwrap();
        let (inputs, expected) = (matrices(&case["inputs"]), matrix(&case["output"]));
        if let [q, k, v] = &inputs[..] {
            let call = match name {
                "one_head" => one_head,
                "scale" => scale,
                "causal" => causal,
                "padding" => padding,
                "heads" => heads,
                "groups" => groups,
                "bias" => bias,
                "flex" => flex,
                _ => panic!("no call {name}"),
            };
            compare(name, &call(q, k, v).unwrap(), &expected);
        } else {
            let [x, in_weight, in_bias, out_weight, out_bias] = &inputs[..] else {
                panic!("{name} has {} inputs", inputs.len())
            };
            let [in_bias, out_bias] =
                [in_bias, out_bias].map(|bias| bias.row(0).into_owned());
            let m = from_state(in_weight, &in_bias, out_weight, &out_bias, 2).unwrap();
            let [y, grad_x, grad_w_q] = layer(&m, x).unwrap();
            compare(name, &y, &expected);
            compare("grad_x", &grad_x, &matrix(&case["grad_x"]));
            let grad = matrix(&case["grad_in_proj"]);
            compare("grad_w_q", &grad_w_q.transpose(), &grad.rows(0, 8).into_owned());
        }
    }
}
