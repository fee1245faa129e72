"""What PyTorch offers for attention: `scaled_dot_product_attention` and `nn.MultiheadAttention`, on a CPU.

Each is called as its documentation says. The cache, rotary positions, ALiBi, windows and merging aren't in these two,
so those cases are unsupported; so is a mask together with `is_causal`, for which the documentation promises an error.
The function returns no log-sum-exp. Gradients are by autograd.

Documented behaviour that differs from the suite:
- `is_causal`: "has the form of the upper left causal bias ... when the mask is a non-square matrix". The suite's corner
  is the bottom right, which PyTorch has as `torch.nn.attention.bias.causal_lower_right`. The last query of a text, asked
  alone, sees the first key only, and that is why it hasn't the same bits.
- The documented equivalent adds −∞ and takes softmax, so a hidden key that is NaN stays NaN, and a hidden value is
  multiplied by 0. A query that may see nothing would get NaN there. The function itself returns 0 since pull request
  133882 of 2024; the documentation doesn't say so.
- Where a hidden key and its value are both NaN, the two come together: all gradients are NaN, as without the mask.
- `dropout_p`: "This function always applies dropout according to the specified dropout_p argument", training or not.
  The documented call is followed here: 0 when not training.
- `nn.MultiheadAttention`'s boolean mask is the opposite: True hides.
"""

import torch
import torch.nn.functional as F

framework = "torch"


def attention(q, k, v, causal=False, mask=None, scale=None):
    if causal and mask is not None:
        raise NotImplementedError("an error is thrown if both attn_mask and is_causal are set")
    shared = q.shape[0] != k.shape[0]
    # The function wants a batch in front when heads share keys.
    output = F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=shared
    )
    return output[0]


def attention_dropout(q, k, v, dropout, training, repeats=1, causal=False, scale=None):
    many = [part.expand(repeats if training else 1, *part.shape) for part in (q, k, v)]
    output = F.scaled_dot_product_attention(
        *many, dropout_p=dropout if training else 0.0, is_causal=causal, scale=scale, enable_gqa=q.shape[0] != k.shape[0]
    )
    flat = output.flatten(1)
    return output.mean(dim=0), flat.T @ flat / len(flat)


def multi_head(x, w_q, w_k, w_v, w_o, heads, causal=False):
    n, d_model = x.shape
    if not w_q.shape == w_k.shape == w_v.shape == w_o.shape == (d_model, d_model):
        raise NotImplementedError("MultiheadAttention has square matrices for queries and outputs")
    module = torch.nn.MultiheadAttention(d_model, heads, bias=False, dtype=x.dtype).eval()
    with torch.no_grad():
        # Linear layers hold (columns out, rows in), the transpose of the suite's matrices.
        module.in_proj_weight.copy_(torch.cat([w_q.T, w_k.T, w_v.T]))
        module.out_proj.weight.copy_(w_o.T)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(n, dtype=x.dtype) if causal else None
    return module(x, x, x, attn_mask=mask, is_causal=causal, need_weights=False)[0]
