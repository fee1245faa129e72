"""Attention in PyTorch with a fault switched on: the 48 faults of the suite, one at a time.

    FAULT=causal-top-left python suite/check.py planted.py

`FAULT` is a name from the suite's faults.json, or None. With None everything is right. With a fault
exactly the cases that name it fail, and no other (`python planted_test.py` holds it to that).
Nothing here is fast: each function is the formula, and the fault is where its author would have
made it. Arrays may have more axes in front; the last three are always (heads, tokens, width)."""

import math
import os

import torch

framework = "torch"
FAULT = os.environ.get("FAULT") or None
TILE = 4  # Keys in a tile of the faults that concern tiles.


def has(*faults):
    return FAULT in faults


# ---------------------------------------------------------------- attention


def visible(n_q, n_k, causal=False, mask=None, window=None, fault=None):
    """(n_q, n_k) of booleans, or a mask's shape: whether query i sees key j. The last query stands
    at the last key.
    """
    offset = 0 if fault == "causal-top-left" else n_k - n_q
    distance = torch.arange(n_q)[:, None] + offset - torch.arange(n_k)[None, :]
    seen = torch.ones(n_q, n_k, dtype=torch.bool)
    if causal and fault == "causal-strict":
        seen = distance > 0
    elif causal and not (fault == "causal-forgotten-with-cache" and n_q != n_k):
        seen = distance >= 0
    if window is not None and not (fault == "window-forgotten-with-cache" and n_q != n_k):
        width = window + {"window-one-wide": 1, "window-one-narrow": -1}.get(fault, 0)
        seen = seen & (distance < width)
    if mask is not None:
        seen = seen & mask
    return ~seen if fault == "mask-inverted" and (causal or mask is not None) else seen


def scale_of(q, scale=None):
    """The factor of the scores of queries (..., heads, n_q, d)."""
    heads, _, d = q.shape[-3:]
    if scale is not None and not has("scale-ignored"):
        return scale
    width = heads * d if has("scale-of-the-model") else 1 if has("scale-missing") else d
    return 1 / math.sqrt(width)


def shared(heads, kv_heads):
    """(heads) of integers: the head of keys that each head of queries reads."""
    head = torch.arange(heads)
    return head % kv_heads if has("heads-interleaved") else head * kv_heads // heads


def distances(n_q, n_k):
    """(n_q, n_k): how far each key is from the query, for ALiBi."""
    offset = 0 if has("alibi-top-left") else n_k - n_q
    return (torch.arange(n_q)[:, None] + offset - torch.arange(n_k)[None, :]).abs()


def hide(scores, seen):
    """What the scores are where a query doesn't see the key."""
    if has("mask-after-softmax"):
        return scores
    if has("mask-zero-scores"):
        return torch.where(seen, scores, scores * 0)
    if has("mask-added"):
        return torch.where(seen, scores, scores - math.inf)
    hidden = -1e9 if has("empty-row-mean") else -1e4 if has("mask-minus-10000") else -math.inf
    if math.isfinite(hidden):  # In 16 bits it's the lowest number that there is.
        hidden = max(hidden, torch.finfo(scores.dtype).min)
    return torch.where(seen, scores, hidden)


def alibi(slopes, n_q, n_k):
    """(heads, n_q, n_k): what is added to scores, from the slopes of heads."""
    sign = 1 if has("alibi-added") else -1
    return sign * slopes[:, None, None] * distances(n_q, n_k)


def scores_of(q, k, seen, scale, bias=None):
    """(..., heads, n_q, n_k), from q (..., heads, n_q, d) and k (..., heads, n_k, d)."""
    products = q @ k.transpose(-1, -2)
    if has("scores-overflow-half"):
        products = torch.where(products.abs() > 65504, products * math.inf, products)
    scores = products * scale
    return hide(scores if bias is None else scores + bias, seen)


def largest(scores):
    """(..., n_q, 1): the largest score of each query. NaN doesn't count, so it stays in its own
    place.
    """
    return torch.where(scores.isnan(), -math.inf, scores).amax(-1, keepdim=True)


def shift_of(scores):
    """(..., n_q, n_k): what is subtracted from each score before its exponential. Without a fault
    it's the maximum.
    """
    n_k = scores.shape[-1]
    top = largest(scores).expand(scores.shape)
    first_hidden = largest(scores[..., :TILE]) == -math.inf
    if has("softmax-without-maximum"):
        return torch.zeros_like(scores)
    if has("tile-not-rescaled"):
        ends = [min(j // TILE * TILE + TILE, n_k) for j in range(n_k)]
        return torch.cat([largest(scores[..., :end]) for end in ends], -1)
    if has("hidden-tile-maximum"):
        return torch.where(first_hidden, top.clamp(min=0), top)
    if has("hidden-tile-nan"):
        return torch.where(first_hidden, -math.inf, top)
    return top.clamp(min=0) if padding(n_k) else top


def padding(n_k):
    """How many keys of zeros fill up the last tile and are counted, if that is the fault."""
    return -n_k % TILE if has("tile-padding-counted") and n_k > TILE else 0


def softmax(scores, empty):
    """Weights (..., n_q, n_k) and log-sum-exps (..., n_q). Rows that are `empty` (..., n_q, 1) get
    weights of 0.
    """
    guarded = empty & (not has("empty-row-nan"))
    shift = shift_of(scores)
    shift = torch.where(guarded & ~shift.isfinite(), 0.0, shift)
    weights, last = (scores - shift).exp(), shift[..., -1:]
    total = weights.sum(-1, keepdim=True)
    if padding(scores.shape[-1]):
        total = total + padding(scores.shape[-1]) * (-last).exp()
    log_sum_exp = (last + total.log()).squeeze(-1)
    guarded = guarded | has("hidden-tile-maximum")
    return weights / torch.where(guarded & (total == 0), 1.0, total), log_sum_exp


def softmax_over_queries(scores):
    top = scores.amax(-2, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    weights = (scores - top).exp()
    total = weights.sum(-2, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total)


def weights_of(q, k, seen, right, scale, bias=None):
    """Weights and log-sum-exps. `seen` is what the fault lets see, `right` what is to be seen."""
    scores = scores_of(q, k, seen, scale, bias)
    weights, log_sum_exp = softmax(scores, ~(seen | right).any(-1, keepdim=True))
    if has("softmax-over-queries"):
        weights = softmax_over_queries(scores)
    if has("mask-after-softmax"):
        weights = weights * seen
    return weights, log_sum_exp


def product(weights, rows):
    """weights @ rows, but a row whose weight is 0 isn't read: 0 · NaN is NaN."""
    if has("hidden-nan") or rows.isfinite().all():
        return weights @ rows
    each = weights[..., :, :, None] * rows[..., None, :, :]
    return torch.where((weights != 0)[..., None], each, 0.0).sum(-2)


def dropped(like, p, training):
    """The factors of weights: 0 with the probability p, else 1 / (1 − p). In evaluation 1."""
    if p == 0 or not (training or has("dropout-in-evaluation")):
        return torch.ones_like(like)
    kept = (torch.rand(like.shape) >= p).to(like.dtype)
    return kept if has("dropout-not-scaled") else kept / (1 - p)


class Attend(torch.autograd.Function):
    """Attention with its gradient by hand, since some faults are in the gradient."""

    @staticmethod
    def forward(ctx, q, k, v, seen, right, scale, bias=None, p=0.0, training=False):
        index = shared(q.shape[-3], k.shape[-3])
        weights, log_sum_exp = weights_of(q, k[..., index, :, :], seen, right, scale, bias)
        kept = dropped(weights, p, training)
        output = product(weights * kept, v[..., index, :, :])
        if has("nan-to-zero"):
            output = torch.where(output.isnan(), 0.0, output)
        ctx.save_for_backward(q, k, v, weights, kept, seen, log_sum_exp)
        ctx.scale = scale
        ctx.mark_non_differentiable(log_sum_exp)
        return output, log_sum_exp

    @staticmethod
    def backward(ctx, d_output, _):
        q, k, v, weights, kept, seen, _ = ctx.saved_tensors
        index = shared(q.shape[-3], k.shape[-3])
        constant = ~seen & (not has("hidden-nan"))  # What the mask put there has no gradient.
        d_weights = kept * (d_output @ v[..., index, :, :].transpose(-1, -2))
        d_weights = torch.where(constant, 0.0, d_weights)
        products = weights * d_weights
        total = products.sum(-2 if has("softmax-over-queries") else -1, keepdim=True)
        d_scores = weights * (d_weights - (0.0 if has("gradient-without-d") else total))
        power = {"gradient-scale-missing": 0, "gradient-scale-twice": 2}.get(FAULT, 1)
        d_products = torch.where(constant, 0.0, d_scores) * ctx.scale**power
        d_q = product(d_products, k[..., index, :, :])
        d_k = over_groups(product(d_products.transpose(-1, -2), q), index, k)
        d_v = over_groups(product((weights * kept).transpose(-1, -2), d_output), index, v)
        return d_q, d_k, d_v, None, None, None, None, None, None


def over_groups(gradients, index, like):
    """The gradient of shared keys or values (like `like`) from that of each head (..., heads, n_k,
    d).
    """
    total = torch.zeros_like(like)
    for head, group in enumerate(index.tolist()):
        before = 0.0 if has("group-gradients-overwritten") else total[..., group, :, :]
        total[..., group, :, :] = before + gradients[..., head, :, :]
    return total


def attend(
    q, k, v, causal=False, mask=None, window=None, scale=None, bias=None, p=0.0, training=False
):
    """Output (..., heads, n_q, d_v) and log-sum-exps. `bias` is added to scores; weights are
    dropped with probability p.
    """
    shape = (q.shape[-2], k.shape[-2], causal, mask, window)
    seen, right = visible(*shape, FAULT), visible(*shape)
    return Attend.apply(q, k, v, seen, right, scale_of(q, scale), bias, p, training)


def attention(q, k, v, causal=False, mask=None, window=None, scale=None, slopes=None):
    """Output (..., heads, n_q, d_v) and log-sum-exps (..., heads, n_q)."""
    bias = None if slopes is None else alibi(slopes, q.shape[-2], k.shape[-2])
    return attend(q, k, v, causal, mask, window, scale, bias)


def attention_dropout(q, k, v, dropout, training, repeats=1, **rest):
    """The mean of `repeats` outputs, each with weights dropped anew."""
    many = [x.expand(repeats if training else 1, *x.shape) for x in (q, k, v)]
    return attend(*many, p=dropout, training=training, **rest)[0].mean(0)


# ---------------------------------------------------------------- heads


def split(x, heads):
    """(..., n, heads · d) to (..., heads, n, d)."""
    *front, n, width = x.shape
    if has("heads-split-without-transpose"):
        return x.reshape(*front, heads, n, width // heads)
    return x.reshape(*front, n, heads, width // heads).transpose(-2, -3)


def join(x):
    """(..., heads, n, d) to (..., n, heads · d)."""
    *front, heads, n, d = x.shape
    if not has("heads-merged-without-transpose"):
        x = x.transpose(-2, -3)
    return x.reshape(*front, n, heads * d)


def multi_head(x, w_q, w_k, w_v, w_o, heads, causal=False):
    q, k, v = (split(x @ w, heads) for w in (w_q, w_k, w_v))
    return join(attention(q, k, v, causal)[0]) @ w_o


# ---------------------------------------------------------------- positions and a cache


def turn(x, cos, sin, pairs):
    """x (..., n, d), each pair of columns turned by the angle whose cosine and sine (..., n, d/2)
    are given.
    """
    pairs = {"rotary-always-halves": "halves", "rotary-always-neighbours": "neighbours"}.get(
        FAULT, pairs
    )
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs == "neighbours" else x.chunk(2, -1)
    turned = [a * cos - b * sin, a * sin + b * cos]
    return torch.stack(turned, -1).flatten(-2) if pairs == "neighbours" else torch.cat(turned, -1)


def standing(positions):
    """Positions as they are used for angles."""
    return (
        positions.to(torch.bfloat16).to(positions.dtype) if has("position-in-half") else positions
    )


def rotate(x, positions, pairs, base=10000):
    """x (..., n, d) turned as positions (n) or (..., n) say."""
    d = x.shape[-1]
    powers = float(base) ** (-2 * torch.arange(d // 2, dtype=torch.float64) / d)
    angles = standing(positions).to(torch.float64)[..., None] * powers
    return turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype), pairs)


def positions_of(start, n):
    """(n) of integers: where the tokens of a chunk stand, of which the first comes after `start`
    others.
    """
    start = 0 if has("position-of-the-chunk") else start
    return torch.arange(start, start + n)


class Cache:
    """Keys and values so far, and causal attention of each new chunk over them."""

    def __init__(self, window=None, rotary=None):
        self.window, self.rotary, self.tokens, self.held = window, rotary, 0, None

    def keep(self, last):
        self.held = [x[..., max(0, x.shape[-2] - last) :, :] for x in self.held]

    def step(self, q, k, v, **rest):
        """The output of a chunk (heads, n, d_v)."""
        n = q.shape[-2]
        if self.rotary is not None:
            positions = positions_of(self.tokens, n)
            q, k = (rotate(x, positions, self.rotary) for x in (q, k))
        self.tokens += n
        self.held = (
            [k, v] if self.held is None else [torch.cat(x, -2) for x in zip(self.held, (k, v))]
        )
        if self.window is not None and has("window-cut-too-early"):
            self.keep(self.window)
        output = attention(q, *self.held, causal=True, window=self.window, **rest)[0]
        if self.window is not None and not has("window-forgotten-with-cache"):
            self.keep(self.window - 1)
        return output


def decode(chunks, window=None, rotary=None):
    cache = Cache(window, rotary)
    return torch.cat([cache.step(**chunk) for chunk in chunks], -2)


def merge(outputs, log_sum_exps):
    """Outputs, a list of (n_q, d_v), and their log-sum-exps (n_q), over parts of the keys:
    attention over all.
    """
    outputs, parts = torch.stack(outputs), torch.stack(log_sum_exps)
    top = parts.amax(0)
    empty = top == -math.inf
    if has("merge-without-maximum"):
        top = torch.zeros_like(top)
    elif not has("merge-empty-nan"):
        top = torch.where(empty, 0.0, top)
    weights = (parts - top).exp()
    total = weights.sum(0)
    shares = weights / torch.where((total == 0) & empty, 1.0, total)
    if has("merge-mean"):
        shares = torch.full_like(shares, 1 / len(parts))
    return (shares[..., None] * outputs).sum(0), top + total.log()


def alibi_slopes(heads):
    first = 0 if has("alibi-from-one") else 1
    power = heads if has("alibi-plain-formula") else 2 ** int(math.log2(heads))
    numbers = torch.arange(first, heads + first, dtype=torch.float64)
    beyond = 2.0 ** (-8 * (2 * (numbers - power) - 1) / (2 * power))
    return torch.where(numbers > power, beyond, 2.0 ** (-8 * numbers / power))


def linear_attention(q, k, v, causal=True):
    """q, k (heads, n, d) are positive; weights are dot products, without an exponential."""
    index = torch.arange(q.shape[-3]) * k.shape[-3] // q.shape[-3]
    every = q @ k[..., index, :, :].transpose(-1, -2)
    weights = every.tril() if causal else every
    total = (every if has("linear-denominator-of-all") else weights).sum(-1, keepdim=True)
    sums = weights @ v[..., index, :, :]
    return sums if has("linear-without-denominator") else sums / total
