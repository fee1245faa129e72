"""A right attention in NumPy, with all operations of the suite. It passes every case in f64.

Clear before fast: one head and one query at a time. A query attends to the keys that it may see, and to no
others, so nothing hidden is ever read, no finite number stands for −∞, and an empty row needs no special softmax.
"""

import numpy as np

framework = "numpy"


def visible_keys(n_q, n_k, causal, mask, window):
    """(n_q, n_k) of booleans. The last query stands at the last key."""
    position = np.arange(n_q)[:, None] + n_k - n_q
    key = np.arange(n_k)[None, :]
    visible = np.ones((n_q, n_k), bool)
    if causal:
        visible &= key <= position
    if window is not None:
        visible &= key > position - window
    return visible if mask is None else visible & mask


def weights_of(scores):
    """Softmax of a few scores, and the logarithm of their sum of exponentials."""
    if scores.size == 0:
        return scores, -np.inf
    highest = scores.max()
    exponentials = np.exp(scores - highest)
    return exponentials / exponentials.sum(), highest + np.log(exponentials.sum())


def rows(q, k, causal, mask, window, scale, slopes, softcap):
    """Head, its key head, query, the keys that it sees, their weights, and the log-sum-exp, for every row."""
    (heads, n_q, d), (kv_heads, n_k, _) = q.shape, k.shape
    scale = 1 / np.sqrt(d) if scale is None else scale
    visible = visible_keys(n_q, n_k, causal, mask, window)
    for head in range(heads):
        shared = head * kv_heads // heads
        for i in range(n_q):
            seen = np.flatnonzero(visible[i])
            # Scaling the query first keeps the dot products small.
            scores = k[shared, seen] @ (q[head, i] * scale)
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            if slopes is not None:
                scores = scores - slopes[head] * np.abs(i + n_k - n_q - seen)
            yield (head, shared, i, seen, *weights_of(scores))


def attention(q, k, v, causal=False, mask=None, window=None, scale=None, slopes=None, softcap=None):
    output = np.zeros(q.shape[:2] + v.shape[2:], q.dtype)
    log_sum_exp = np.zeros(q.shape[:2], q.dtype)
    for head, shared, i, seen, weights, total in rows(q, k, causal, mask, window, scale, slopes, softcap):
        output[head, i] = weights @ v[shared, seen]
        log_sum_exp[head, i] = total
    return output, log_sum_exp


def attention_gradients(q, k, v, d_output, causal=False, mask=None, window=None, scale=None, slopes=None, softcap=None):
    output, _ = attention(q, k, v, causal, mask, window, scale, slopes, softcap)
    factor = 1 / np.sqrt(q.shape[2]) if scale is None else scale
    d_q, d_k, d_v = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for head, shared, i, seen, weights, _ in rows(q, k, causal, mask, window, scale, slopes, softcap):
        d_weights = v[shared, seen] @ d_output[head, i]
        d_scores = weights * (d_weights - weights @ d_weights)
        if softcap is not None:
            d_scores *= 1 - np.tanh(factor * k[shared, seen] @ q[head, i] / softcap) ** 2
        d_q[head, i] = factor * (d_scores @ k[shared, seen])
        # Heads that share keys and values add up what they learned.
        d_k[shared, seen] += factor * np.outer(d_scores, q[head, i])
        d_v[shared, seen] += np.outer(weights, d_output[head, i])
    return output, d_q, d_k, d_v


def attention_dropout(q, k, v, dropout, training, repeats=1, causal=False, mask=None, window=None, scale=None, slopes=None, softcap=None):
    if not training:
        return attention(q, k, v, causal, mask, window, scale, slopes, softcap)[0]
    outputs = np.zeros((repeats,) + q.shape[:2] + v.shape[2:], q.dtype)
    for head, shared, i, seen, weights, _ in rows(q, k, causal, mask, window, scale, slopes, softcap):
        kept = np.random.random((repeats, seen.size)) >= dropout
        outputs[:, head, i] = (kept * weights / (1 - dropout)) @ v[shared, seen]
    flat = outputs.reshape(repeats, -1)
    return outputs.mean(axis=0), flat.T @ flat / repeats


def multi_head(x, w_q, w_k, w_v, w_o, heads, causal=False):
    def split(y):
        return y.reshape(len(y), heads, -1).transpose(1, 0, 2)

    output, _ = attention(split(x @ w_q), split(x @ w_k), split(x @ w_v), causal)
    return output.transpose(1, 0, 2).reshape(len(x), -1) @ w_o


def rotate(x, positions, pairs, base=10000):
    d = x.shape[-1]
    angles = positions[:, None] * base ** (-2 * np.arange(d // 2) / d)
    first, second = (slice(0, d, 2), slice(1, d, 2)) if pairs == "neighbours" else (slice(0, d // 2), slice(d // 2, d))
    a, b = x[..., first], x[..., second]
    y = np.empty_like(x)
    y[..., first] = a * np.cos(angles) - b * np.sin(angles)
    y[..., second] = a * np.sin(angles) + b * np.cos(angles)
    return y


def decode(chunks, window=None, rotary=None, padding=0):
    keys, values, outputs, start = None, None, [], 0
    for chunk in chunks:
        q, k, v = chunk["q"], chunk["k"], chunk["v"]
        if rotary is not None:
            positions = np.arange(start, start + q.shape[1])
            q, k = rotate(q, positions, rotary), rotate(k, positions, rotary)
        start += q.shape[1]
        keys = k if keys is None else np.concatenate([keys, k], axis=1)
        values = v if values is None else np.concatenate([values, v], axis=1)
        # Positions that count padding are right, too, if all do: only differences matter.
        real = np.arange(start - keys.shape[1], start) >= padding
        mask = np.tile(real, (q.shape[1], 1)) if padding else None
        outputs.append(attention(q, keys, values, causal=True, mask=mask, window=window)[0])
        if window is not None:  # The next query sees itself and the w − 1 keys before it.
            drop = max(0, keys.shape[1] - (window - 1))
            keys, values = keys[:, drop:], values[:, drop:]
    return np.concatenate(outputs, axis=1)


def merge(outputs, log_sum_exps):
    outputs, parts = np.stack(outputs), np.stack(log_sum_exps)
    highest = parts.max(axis=0)
    finite = np.where(np.isfinite(highest), highest, 0)  # Where all parts are empty, all weights are 0.
    weights = np.exp(parts - finite)
    total = weights.sum(axis=0)
    output = (weights[..., None] * outputs).sum(axis=0) / np.where(total == 0, 1, total)[:, None]
    return output, finite + np.log(total)


def alibi_slopes(heads):
    def powers(n):
        return 2.0 ** (-8 * np.arange(1, n + 1) / n)

    below = 2 ** int(np.log2(heads))
    return np.concatenate([powers(below), powers(2 * below)[0::2][: heads - below]])


def linear_attention(q, k, v, causal=True):
    shared = np.arange(q.shape[0]) * k.shape[0] // q.shape[0]
    k, v = k[shared], v[shared]
    weights = q @ k.transpose(0, 2, 1)
    if causal:
        weights = np.tril(weights, k.shape[1] - q.shape[1])
    return weights @ v / weights.sum(axis=-1, keepdims=True)


def latent_attention(q, latent, w_uk, w_uv, k_rope, causal=False, rotary=None):
    d_nope, n_k = w_uk.shape[2], len(latent)
    q_rope = q[..., d_nope:]
    if rotary is not None:
        q_rope, k_rope = rotate(q_rope, np.arange(n_k - q.shape[1], n_k), rotary), rotate(k_rope, np.arange(n_k), rotary)
    k = np.concatenate([latent @ w_uk, np.broadcast_to(k_rope, (len(q),) + k_rope.shape)], axis=2)
    return attention(np.concatenate([q[..., :d_nope], q_rope], axis=2), k, latent @ w_uv, causal)[0]
