#!/usr/bin/env python3
"""Training steps of the book's model, by the crate `model` and by the same model in PyTorch, eager, in turns.

    cargo build --release -p model
    target/peers/venv/bin/python benches/peers/train.py

Each round times both, for the same number of steps, in programs of their own; the ratio is the median of the rounds' ratios. The losses aren't
compared: that the two models and their gradients are the same is what crates/model/tests/golden.py is for.
"""

import argparse
import datetime
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time


def rotary(torch, x, cos, sin):  # (B, heads, n, d), pairs of halves
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def in_pytorch(sizes, steps):
    """The seconds of some steps, after one that isn't counted."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(sizes["threads"])
    torch.manual_seed(0)
    d_model, heads, kv_heads = sizes["d_model"], sizes["n_heads"], sizes["n_kv_heads"]
    d, n = d_model // heads, sizes["length"]
    angles = torch.arange(n)[:, None] * 10_000.0 ** (-torch.arange(d // 2) / (d // 2))
    cos, sin = angles.cos(), angles.sin()

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.mlp_norm = nn.RMSNorm(d_model, eps=1e-5), nn.RMSNorm(d_model, eps=1e-5)
            self.qkv = nn.Linear(d_model, d * (heads + 2 * kv_heads))
            self.out = nn.Linear(d_model, d_model)
            self.up, self.down = nn.Linear(d_model, sizes["d_hidden"]), nn.Linear(sizes["d_hidden"], d_model)

        def forward(self, x):
            qkv = self.qkv(self.norm(x)).split([heads * d, kv_heads * d, kv_heads * d], -1)
            q, k, v = (y.unflatten(-1, (-1, d)).transpose(1, 2) for y in qkv)
            q, k = rotary(torch, q, cos, sin), rotary(torch, k, cos, sin)
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + self.out(o.transpose(1, 2).flatten(2))
            return x + self.down(F.silu(self.up(self.mlp_norm(x))))

    blocks = [Block() for _ in range(sizes["n_blocks"])]
    embedding, norm = nn.Embedding(sizes["vocabulary"], d_model), nn.RMSNorm(d_model, eps=1e-5)
    unembedding = nn.Linear(d_model, sizes["vocabulary"], bias=False)
    model = nn.Sequential(embedding, *blocks, norm, unembedding)
    adam = torch.optim.AdamW(model.parameters(), lr=0.001, weight_decay=0.01)

    def step():
        tokens = torch.randint(sizes["vocabulary"], (sizes["batch"], n + 1))
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    step()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return time.perf_counter() - begin


def compare(arguments, threads):
    """Rounds of both in turns: tokens a second of each, and the ratio."""
    steps = str(arguments.steps)
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        command = [arguments.program, "time", "--steps", steps, "--threads", str(threads)]
        measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        ours.append(measured.pop("seconds"))
        command = [sys.executable, __file__, "--steps", steps, "--in-pytorch", json.dumps(measured)]
        theirs.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    tokens = measured["batch"] * measured["length"] * arguments.steps
    ratios = sorted(b / a for a, b in zip(ours, theirs))
    run = dict(threads=threads, ours=tokens / statistics.median(ours), theirs=tokens / statistics.median(theirs))
    run |= dict(ratio=statistics.median(ratios), lowest=ratios[0], highest=ratios[-1])
    print("{threads} threads: {ours:.0f} tokens a second, PyTorch {theirs:.0f}, ratio {ratio:.2f} ({lowest:.2f} to {highest:.2f})".format(**run))
    return run, measured["processor"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--program", default="target/release/model")
    parser.add_argument("--record", help="a file for the results: crates/model/trained/speed.json is the one that the book shows")
    parser.add_argument("--in-pytorch", help=argparse.SUPPRESS)  # the sizes: a round of PyTorch
    arguments = parser.parse_args()
    if arguments.in_pytorch:
        print(in_pytorch(json.loads(arguments.in_pytorch), arguments.steps))
        return
    runs, processors = zip(*(compare(arguments, threads) for threads in arguments.threads))
    if arguments.record:
        torch = importlib.metadata.version("torch").split("+")[0]
        told = dict(processor=processors[0], torch=torch, date=str(datetime.date.today()), runs=runs)
        with open(arguments.record, "w") as file:
            json.dump(told, file, indent=1)


main()
