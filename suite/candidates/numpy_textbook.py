"""Attention as most tutorials write it in NumPy. It is a specimen: it is left as it is found.

The form is the one that tutorials share: scores are a product of matrices over √d, hidden scores are replaced by −10⁹
(`np.where(mask, scores, -1e9)`), the causal mask is `np.tril` of ones, and softmax subtracts the row's maximum. For
example tracker-7ex.pages.dev (03-masking-in-code) and prof.lexailabs.com (scaled-dot-product-attention) have these
lines; ainiketan.in (08-transformer-2017) has the same number with the opposite polarity; picoGPT's gpt2.py adds
(1 − np.tri(n)) · −10¹⁰ instead. Tutorials offer neither windows nor positions, so those cases are unsupported.

What fails, and why:
- `np.tril` starts in the top left corner, and nothing in the tutorials says that it needs n_q = n_k.
- A query that may see nothing gets the average of all values, since −10⁹ is the same everywhere.
- A hidden NaN is multiplied by 0, which is NaN.
- A visible score below −10⁹ would lose to the hidden ones. No case goes that far.
"""

import numpy as np

framework = "numpy"


def softmax(x, axis=-1):
    x = x - np.max(x, axis=axis, keepdims=True)
    exp = np.exp(x)
    return exp / np.sum(exp, axis=axis, keepdims=True)


def scaled_dot_product_attention(q, k, v, mask=None):
    d_k = q.shape[-1]
    scores = np.matmul(q, k.transpose(0, 2, 1)) / np.sqrt(d_k)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores, axis=-1)
    return np.matmul(weights, v)


def attention(q, k, v, causal=False, mask=None):
    if q.shape[0] != k.shape[0]:
        raise NotImplementedError("heads that share keys aren't in the tutorials")
    if causal:
        lower = np.tril(np.ones((q.shape[1], k.shape[1]), dtype=bool))
        mask = lower if mask is None else lower & mask
    return scaled_dot_product_attention(q, k, v, mask)


def multi_head(x, w_q, w_k, w_v, w_o, heads, causal=False):
    n, d_model = x.shape
    if not w_q.shape == w_k.shape == w_v.shape == (d_model, d_model):
        raise NotImplementedError("matrices are d_model by d_model in the tutorials")
    d_head = d_model // heads

    def split_heads(y):
        return y.reshape(n, heads, d_head).transpose(1, 0, 2)

    output = attention(split_heads(x @ w_q), split_heads(x @ w_k), split_heads(x @ w_v), causal)
    concatenated = output.transpose(1, 0, 2).reshape(n, d_model)
    return concatenated @ w_o
