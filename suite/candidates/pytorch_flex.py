"""What PyTorch's `flex_attention` offers, on a CPU and without compiling it.

Masks, windows, ALiBi and soft caps are functions that the caller writes. They follow the examples of PyTorch's article
on FlexAttention (2024-08-07): `q_idx >= kv_idx`, `q_idx - kv_idx <= SLIDING_WINDOW`, `slope * (kv_idx - q_idx)`, and
`softcap * tanh(score / softcap)`. With a cache the article adds an offset to q_idx. The cap is a tensor here, since these
functions can't read a float that changes from call to call. `return_aux` gives the log-sum-exp. The backward pass isn't
there for CPUs, so gradients are unsupported.

The example's window doesn't count the token itself, so a window w of the suite is SLIDING_WINDOW = w - 1. A model's
configuration often counts it: who passes that number on has the fault window-one-wide.

What fails: a hidden NaN is multiplied by 0, which is NaN.
"""

import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

framework = "torch"


def attention(q, k, v, causal=False, mask=None, window=None, scale=None, slopes=None, softcap=None):
    n_q, n_k = q.shape[1], k.shape[1]
    offset = n_k - n_q
    cap = None if softcap is None else torch.tensor(softcap, dtype=q.dtype)

    def mask_mod(batch, head, q_idx, kv_idx):
        visible = kv_idx >= 0
        if causal:
            visible = visible & (q_idx + offset >= kv_idx)
        if window is not None:
            visible = visible & (q_idx + offset - kv_idx <= window - 1)
        if mask is not None:
            visible = visible & mask[q_idx, kv_idx]
        return visible

    def score_mod(score, batch, head, q_idx, kv_idx):
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        return score if slopes is None else score + slopes[head] * (kv_idx - (q_idx + offset))

    if slopes is not None and not causal:
        raise NotImplementedError("the example's ALiBi is for causal attention")
    output, auxiliary = flex_attention(
        q[None], k[None], v[None],
        score_mod=None if slopes is None and cap is None else score_mod,
        block_mask=create_block_mask(mask_mod, None, None, n_q, n_k, device="cpu"),
        scale=scale,
        enable_gqa=q.shape[0] != k.shape[0],
        return_aux=AuxRequest(lse=True),
    )
    return output[0], auxiliary.lse[0]
