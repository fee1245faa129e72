"""Tests of attention in two lines, and which of the 48 planted faults each finds.

    python lines.py            # a table, and the fewest tests that find all that these find
    python lines.py --json lines.json

Each test is a function of `planted`, with its inputs made beforehand, that says whether all is
well. None has numbers that were written down: they ask what has to be the same, or compare with the
formula."""

import argparse
import json
import math

import torch

import planted
import sets

torch.set_default_dtype(torch.float64)


def random(*shape):
    # The seed is the sum of the shape: tensors that are cut from others differ from one another.
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def formula(q, k, v, seen, scale=None):
    """Attention of the textbook, with a mask (n_q, n_k) of booleans."""
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v


def same(a, b):
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=1e-9)


q, k, v = random(2, 6, 4), random(2, 7, 4)[:, :6], random(2, 8, 4)[:, :6]
x, w = random(6, 8), [random(8, 8 + i)[:, :8] for i in range(4)]
lower = torch.ones(6, 6).tril().bool()


def shape(p):
    """The output has the shape that it should have."""
    return p.multi_head(x, *w, heads=2, causal=True).shape == x.shape


def finite(p):
    """And it isn't NaN anywhere."""
    return p.multi_head(x, *w, heads=2, causal=True).isfinite().all()


def ones(p):
    """Where all values are 1 the output is 1: weights sum to 1."""
    return same(p.attention(q, k, torch.ones_like(v), causal=True)[0], torch.ones_like(v))


def future(p):
    """A later token changes nothing before it."""
    y = x.clone()
    y[-1] += 1
    return same(p.multi_head(x, *w, 2, True)[:-1], p.multi_head(y, *w, 2, True)[:-1])


def past(p):
    """Each token sees itself, and what comes before."""
    seen = torch.autograd.functional.jacobian(
        lambda v: p.attention(q, k, v, causal=True)[0].sum((0, 2)), v
    )
    return ((seen.abs().sum((1, 3)) > 0) == lower).all()


def as_formula(p):
    """The formula, causal, as many queries as keys."""
    return same(p.attention(q, k, v, causal=True)[0], formula(q, k, v, lower))


def as_formula_heads(p):
    """Several heads give what the formula gives for each head, in a loop."""
    heads = [formula(*(x @ m[:, h : h + 4] for m in w[:3]), lower) for h in (0, 4)]
    return same(p.multi_head(x, *w, 2, True), torch.cat(heads, -1) @ w[3])


def last_queries(p):
    """The last two queries alone give the last two rows."""
    return same(
        p.attention(q[:, -2:], k, v, causal=True)[0], p.attention(q, k, v, causal=True)[0][:, -2:]
    )


def chunks(p):
    """Chunks of three, two and one tokens give what one pass gives, with a window and rotation."""
    parts = [
        {"q": a, "k": b, "v": c} for a, b, c in zip(*(y.split([3, 2, 1], 1) for y in (q, k, v)))
    ]
    whole = p.decode([{"q": q, "k": k, "v": v}], window=3, rotary="halves")
    return same(p.decode(parts, window=3, rotary="halves"), whole)


def window(p):
    """A window gives what the same mask gives, written out."""
    seen = lower & ~lower.tril(-3)
    return same(p.attention(q, k, v, causal=True, window=3)[0], formula(q, k, v, seen))


def padding(p):
    """Five hidden keys in front change nothing, even where all scores are far below 0."""
    front, low = [torch.cat([random(2, 5, 4), y], 1) for y in (-k - 3, v)], (q + 3) * 300
    mask = torch.cat([torch.zeros(6, 5), torch.ones(6, 6)], 1).bool()
    return same(p.attention(low, *front, mask=mask)[0], p.attention(low, -k - 3, v)[0])


def hidden_nan(p):
    """A NaN in a hidden key changes nothing, and a NaN that is seen reaches the output."""
    a, b = k.clone(), v.clone()
    a[:, 5], b[:, 5] = math.nan, math.nan
    hidden = p.attention(q, a, b, causal=True)[0]
    return (
        same(hidden[:, :5], p.attention(q, k, v, causal=True)[0][:, :5])
        and hidden[:, 5].isnan().all()
    )


def empty(p):
    """A query that sees nothing gets 0."""
    return same(p.attention(q, k, v, mask=torch.zeros(6, 6).bool())[0], torch.zeros_like(v))


def large(p):
    """The formula with scores of thousands, below 0 for one query and above for another."""
    big = torch.cat([(q + 3) * 300, -(q + 3) * 300], 1)
    seen = torch.cat([lower, lower])
    return same(p.attention(big, k + 3, v, mask=seen)[0], formula(big, k + 3, v, seen))


def half(p):
    """Products beyond 65,504, which f16 can't hold, give what the formula gives."""
    return same(
        p.attention(q * 500, k * 500, v, scale=1e-5)[0],
        formula(q * 500, k * 500, v, lower | True, 1e-5),
    )


def scale(p):
    """A scale that isn't the default."""
    return same(p.attention(q, k, v, scale=0.1)[0], formula(q, k, v, lower | True, 0.1))


def seven_keys(p):
    """The formula with seven keys, a number that no tile divides, the largest score last."""
    more = torch.cat([k, q[:, :1] * 9], 1)
    values = torch.cat([v, v[:, :1]], 1)
    return same(p.attention(q, more, values)[0], formula(q, more, values, torch.ones(6, 7).bool()))


def repeated(p):
    """Heads that share keys give what repeated keys give."""
    many = torch.cat([q, q + 1])
    each = p.attention(many, k.repeat_interleave(2, 0), v.repeat_interleave(2, 0))[0]
    return same(p.attention(many, k, v)[0], each)


def gradients(p):
    """Gradients agree with small changes of the inputs, where two heads share their keys."""
    given = [y.clone().requires_grad_() for y in (q[:, :3], k[:1, :3], v[:1, :3])]
    return torch.autograd.gradcheck(
        lambda *y: p.attention(*y, causal=True)[0], given, raise_exception=False
    )


def rotary(p):
    """Rotary positions turn pairs of columns as complex numbers do, at position 1,001."""
    turn = torch.exp(1j * 1001 * 10000.0 ** (-torch.arange(2) / 2))
    near, far = (
        torch.view_as_complex(q.unflatten(-1, (2, 2))),
        torch.complex(q[..., :2], q[..., 2:]),
    )
    at = torch.full((6,), 1001)
    right = same(p.rotate(q, at, "neighbours"), torch.view_as_real(near * turn).flatten(-2))
    return right and same(
        p.rotate(q, at, "halves"), torch.cat([(far * turn).real, (far * turn).imag], -1)
    )


def alibi(p):
    """Slopes of 12 heads from the paper's program; with a cache, as the last rows."""
    slopes = 2.0 ** -torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5])
    bias = torch.arange(6.0) - torch.arange(6.0)[:, None]
    scores = (q @ k.transpose(1, 2) / 2 + slopes[:2, None, None] * bias).masked_fill(
        ~lower, -math.inf
    )
    given = p.attention(q[:, 4:], k, v, causal=True, slopes=slopes[:2])[0]
    return same(p.alibi_slopes(12), slopes) and same(given, (scores.softmax(-1) @ v)[:, 4:])


def parts(p):
    """Two halves of the keys, merged, are the whole; also with large scores, and with an empty
    part.
    """

    def halves(q):
        outputs = [p.attention(q, k[:, at], v[:, at]) for at in (slice(0, 2), slice(2, 6))]
        return p.merge([o[0] for o, _ in outputs], [s[0] for _, s in outputs])[0]

    nothing = [torch.zeros(6, 4)] * 2, [torch.full((6,), -math.inf)] * 2
    right = all(same(halves(y), p.attention(y, k, v)[0][0]) for y in (q, q * 2000))
    return right and same(p.merge(*nothing)[0], torch.zeros(6, 4))


def dropout(p):
    """Dropout does nothing in evaluation, and nothing on average in training."""
    torch.manual_seed(0)
    plain = p.attention(q, k, v)[0]
    mean = p.attention_dropout(q, k, v, 0.5, True, repeats=20000)
    return same(p.attention_dropout(q, k, v, 0.5, False), plain) and torch.allclose(
        mean, plain, atol=0.1
    )


def linear(p):
    """Linear attention as weights that are divided by their sum."""
    weights = (q.exp() @ k.exp().transpose(1, 2)).tril()
    return same(
        p.linear_attention(q.exp(), k.exp(), v), weights / weights.sum(-1, keepdim=True) @ v
    )


TESTS = [
    shape,
    finite,
    ones,
    future,
    past,
    as_formula,
    as_formula_heads,
    last_queries,
    chunks,
    window,
    padding,
    hidden_nan,
    empty,
    large,
    half,
    scale,
    seven_keys,
    repeated,
    gradients,
    rotary,
    alibi,
    parts,
    dropout,
    linear,
]


def holds(test, fault):
    planted.FAULT = fault
    try:
        return bool(test(planted))
    except Exception:  # A fault that ends the program is found, too.
        return False


def fewest(found):
    """Tests in the order in which each finds most of what those before it don't."""
    order, left = [], set().union(*found.values())
    while left:
        best = max(found, key=lambda test: len(left & found[test]))
        order.append((best, sorted(left & found[best])))
        left -= found[best]
    return order


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write what was found to this file")
    options = parser.parse_args()
    found = {}
    for test in TESTS:
        assert holds(test, None), f"{test.__name__} fails without a fault"
        found[test.__name__] = {fault for fault in sets.NEEDS if not holds(test, fault)}
        print(f"{test.__name__:>17} {len(found[test.__name__]):3}  {test.__doc__}")
    print()
    for number, (test, more) in enumerate(fewest(found), 1):
        print(f"{number:2}  {test:>17} {len(more):3}  {', '.join(more)}")
    print(
        "found by none:",
        ", ".join(sorted(set(sets.NEEDS) - set().union(*found.values()))) or "no fault",
    )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(
                {test: sorted(faults) for test, faults in found.items()},
                file,
                indent=1,
                sort_keys=True,
            )


if __name__ == "__main__":
    main()
