"""PyTorch's calls of the page From PyTorch to here, each beside the same in tests/suite/from_pytorch.rs. generate.py runs them."""
# ANCHOR: imports
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
# ANCHOR_END: imports


# ANCHOR: one_head
def one_head(q, k, v):  # (n_q, d), (n_k, d), (n_k, d_v)
    return F.scaled_dot_product_attention(q, k, v)
# ANCHOR_END: one_head


# ANCHOR: scale
def scale(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, scale=0.1)
# ANCHOR_END: scale


# ANCHOR: causal
def causal(q, k, v):  # fewer queries than keys: the last ones
    (n_q, _), (n_k, _) = q.shape, k.shape
    seen = torch.ones(n_q, n_k, dtype=torch.bool).tril(n_k - n_q)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
# ANCHOR_END: causal


# ANCHOR: padding
def padding(q, k, v):  # the last two keys are padding
    seen = torch.tensor([True] * (len(k) - 2) + [False] * 2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen[None, :])
# ANCHOR_END: padding


# ANCHOR: heads
def heads(q, k, v):  # (n, 4 · d) each
    def split(x):  # (4, n, d)
        return x.unflatten(-1, (4, -1)).transpose(0, 1)

    o = F.scaled_dot_product_attention(split(q), split(k), split(v))
    return o.transpose(0, 1).flatten(1)
# ANCHOR_END: heads


# ANCHOR: groups
def groups(q, k, v):  # as many queries as keys; 4 · d, 2 · d and 2 · d columns
    def split(x, heads):
        return x.unflatten(-1, (heads, -1)).transpose(0, 1)

    q, k, v = split(q, 4)[None], split(k, 2)[None], split(v, 2)[None]
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return o[0].transpose(0, 1).flatten(1)
# ANCHOR_END: groups


# ANCHOR: bias
def bias(q, k, v):  # as many queries as keys
    distance = torch.arange(len(q))[:, None] - torch.arange(len(k))[None, :]
    falling = (-0.5 * distance.abs()).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=falling)
# ANCHOR_END: bias


# ANCHOR: flex
def flex(q, k, v):  # as many queries as keys
    def soft_cap(score, b, h, i, j):
        return 2.0 * torch.tanh(score / 2.0)

    def window(b, h, i, j):
        return (j <= i) & (i - j < 3)

    mask = create_block_mask(window, None, None, len(q), len(k), device="cpu")
    q, k, v = q[None, None], k[None, None], v[None, None]
    return flex_attention(q, k, v, score_mod=soft_cap, block_mask=mask)[0, 0]
# ANCHOR_END: flex


# ANCHOR: layer
def layer(m: nn.MultiheadAttention, x):  # (n, d_model)
    hidden = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    y, _ = m(x, x, x, attn_mask=hidden)  # True: hidden
    loss = y.square().sum() / 2
    loss.backward()
    return y, x.grad, m.in_proj_weight.grad
# ANCHOR_END: layer


def cases():
    """The inputs and outputs of all calls."""
    # What a query gets that sees no key, as the page says.
    x, seen = torch.ones(3, 8), torch.tensor([[True], [False], [True]]).expand(3, 3)
    assert (F.scaled_dot_product_attention(x, x, x, attn_mask=seen)[1] == 0).all()
    with torch.random.fork_rng():  # its parameters are drawn
        assert nn.MultiheadAttention(8, 2)(x, x, x, attn_mask=~seen)[0][1].isnan().all()

    def case(call, *shapes):
        inputs = [torch.randn(*shape) for shape in shapes]
        return dict(name=call.__name__, inputs=inputs, output=call(*inputs))

    calls = [case(call, (5, 4), (5, 4), (5, 3)) for call in (one_head, scale, padding)]
    calls += [case(call, (6, 4), (6, 4), (6, 4)) for call in (bias, flex)]
    calls.append(case(causal, (2, 4), (5, 4), (5, 3)))
    calls.append(case(heads, (5, 8), (5, 8), (5, 8)))
    calls.append(case(groups, (5, 8), (5, 4), (5, 4)))
    m = nn.MultiheadAttention(8, 2)
    for p in m.parameters():
        p.data = torch.randn_like(p) / 8**0.5
    x = torch.randn(5, 8, requires_grad=True)
    y, grad_x, grad_in_proj = layer(m, x)
    biases = m.in_proj_bias[None, :], m.out_proj.bias[None, :]
    inputs = [x, m.in_proj_weight, biases[0], m.out_proj.weight, biases[1]]
    calls.append(dict(name="layer", inputs=inputs, output=y, grad_x=grad_x, grad_in_proj=grad_in_proj))
    return calls
