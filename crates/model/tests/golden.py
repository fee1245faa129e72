"""A model of two blocks in PyTorch (float64, CPU): its loss, scores and gradients, written as JSON. Usage: golden.py SEED OUT"""
import json
import sys

import torch
import torch.nn.functional as F

VOCABULARY, D_MODEL, HEADS, KV_HEADS, HIDDEN, BLOCKS = 7, 8, 4, 2, 12, 2


def parameters():
    """Every parameter under its name, random, gains and biases too."""
    d = D_MODEL // HEADS
    shapes = {"embedding": (VOCABULARY, D_MODEL)}
    for block in range(BLOCKS):
        shapes |= {
            f"blocks.{block}.{name}": shape
            for name, shape in {
                "norm.gain": (1, D_MODEL),
                "attention.w_q": (D_MODEL, HEADS * d),
                "attention.w_k": (D_MODEL, KV_HEADS * d),
                "attention.w_v": (D_MODEL, KV_HEADS * d),
                "attention.w_o": (HEADS * d, D_MODEL),
                "attention.b_q": (1, HEADS * d),
                "attention.b_k": (1, KV_HEADS * d),
                "attention.b_v": (1, KV_HEADS * d),
                "attention.b_o": (1, D_MODEL),
                "mlp.norm.gain": (1, D_MODEL),
                "mlp.w_1": (D_MODEL, HIDDEN),
                "mlp.b_1": (1, HIDDEN),
                "mlp.w_2": (HIDDEN, D_MODEL),
                "mlp.b_2": (1, D_MODEL),
            }.items()
        }
    shapes |= {"norm.gain": (1, D_MODEL), "unembedding": (D_MODEL, VOCABULARY)}
    return {name: (torch.randn(shape) / 2).requires_grad_() for name, shape in shapes.items()}


def rotary(x):  # (heads, n, d), pairs of halves
    n, half = x.shape[1], x.shape[2] // 2
    speeds = 10_000.0 ** (-torch.arange(half) / half)
    angles = torch.arange(n)[:, None] * speeds
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def norm(x, p, name):
    return F.rms_norm(x, (D_MODEL,), p[f"{name}.gain"][0], eps=1e-5)


def attend(x, p, name):  # (n, d_model)
    def project(which, heads):
        y = x @ p[f"{name}.w_{which}"] + p[f"{name}.b_{which}"]
        return y.unflatten(-1, (heads, -1)).transpose(0, 1)

    q, k, v = project("q", HEADS), project("k", KV_HEADS), project("v", KV_HEADS)
    q, k, v = rotary(q)[None], rotary(k)[None], v[None]
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return o[0].transpose(0, 1).flatten(1) @ p[f"{name}.w_o"] + p[f"{name}.b_o"]


def think(x, p, name):
    hidden = norm(x, p, f"{name}.norm") @ p[f"{name}.w_1"] + p[f"{name}.b_1"]
    return F.silu(hidden) @ p[f"{name}.w_2"] + p[f"{name}.b_2"]


def scores(tokens, p):
    x = p["embedding"][tokens]
    for block in range(BLOCKS):
        name = f"blocks.{block}"
        x = x + attend(norm(x, p, f"{name}.norm"), p, f"{name}.attention")
        x = x + think(x, p, f"{name}.mlp")
    return norm(x, p, "norm") @ p["unembedding"]


def main(seed, out):
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    p = parameters()
    texts = [([1, 5, 5, 2, 0, 6], 1), ([3, 3, 4, 1], 2)]  # tokens, and the first that is to be said
    losses, all_scores = [], []
    for tokens, first in texts:
        said = scores(torch.tensor(tokens[:-1]), p)
        all_scores.append(said)
        losses.append(F.cross_entropy(said[first - 1 :], torch.tensor(tokens[first:]), reduction="none"))
    loss = torch.cat(losses).mean()
    loss.backward()

    x = torch.randn(5, D_MODEL, requires_grad=True)
    gain, bias = [torch.randn(1, D_MODEL, requires_grad=True) for _ in range(2)]
    y, grad_y = F.layer_norm(x, (D_MODEL,), gain[0], bias[0]), torch.randn(5, D_MODEL)
    y.backward(grad_y)
    layer_norm = dict(x=x, gain=gain, bias=bias, y=y, grad_y=grad_y)
    layer_norm |= dict(grad_x=x.grad, grad_gain=gain.grad, grad_bias=bias.grad)

    golden = dict(
        source=f"torch {torch.__version__}, float64, CPU",
        texts=[dict(tokens=tokens, first=first) for tokens, first in texts],
        loss=loss.item(),
        scores=[s.tolist() for s in all_scores],
        parameters={name: t.tolist() for name, t in p.items()},
        gradients={name: t.grad.tolist() for name, t in p.items()},
        layer_norm={name: t.tolist() for name, t in layer_norm.items()},
    )
    with open(out, "w") as file:
        json.dump(golden, file)


main(int(sys.argv[1]), sys.argv[2])
