"""What JAX offers for attention: `jax.nn.dot_product_attention`, on a CPU (its implementation `xla`).

It is called as its documentation says. Tokens come before heads there, so arrays are transposed. A window w of the suite
is `local_window_size=(w - 1, 0)`: that argument doesn't count the token itself. `return_residual` gives the log-sum-exp.
The documentation asks for values of the keys' shape, so cases with d_v ≠ d are unsupported, like slopes, a cache, rotary
positions and dropout, which it doesn't offer. Gradients are by `jax.vjp`.

Behaviour that differs from the suite, none of which the documentation settles:
- Softmax is computed in 32 bits even if the arrays hold 64, so f32 is the precision to check.
- `is_causal` and `local_window_size` count queries from the first key: the corner is the top left one. The last query of
  a text, asked alone, sees the first key only, and that is why it hasn't the same bits.
- Hidden scores are replaced by a large finite number, so a query that may see nothing gets an average of all values.
- A hidden NaN is multiplied by 0, which is NaN.
- A query alone may differ from the same query among others in the last bit, without a mask, too. That is rounding.
"""

import jax

framework = "jax"
precision = "f32"


def tokens_first(x):
    return x.transpose(1, 0, 2)


def attention(q, k, v, causal=False, mask=None, window=None, scale=None):
    if k.shape != v.shape:
        raise NotImplementedError("value should have the same shape as the key")
    output, log_sum_exp = jax.nn.dot_product_attention(
        tokens_first(q), tokens_first(k), tokens_first(v),
        mask=None if mask is None else mask[None],
        scale=scale,
        is_causal=causal,
        local_window_size=None if window is None else (window - 1, 0),
        return_residual=True,
    )
    return tokens_first(output), log_sum_exp.T
