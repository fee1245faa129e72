#!/usr/bin/env python3
"""PyTorch and NumPy as peers: reads one question a line, writes one answer a line, both in JSON.

The questions are those of `src/question.rs`, the answers those of `worker/src/lib.rs`. Numbers in bulk go through files of raw little-endian
numbers. If you run this by hand, you want `cargo xtask bench --peers` instead.
"""

import argparse
import contextlib
import gc
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import re
import signal
import sys
import time

REQUIREMENTS = pathlib.Path(__file__).with_name("requirements.txt")


class Trouble(Exception):
    """Something that the asking program should read, without a trace of where it happened."""


def check_requirements(needed):
    """Exactly the pinned versions are measured, or nothing."""
    pinned = dict(line.split("==") for line in REQUIREMENTS.read_text().split() if "==" in line)
    for name in needed:
        try:
            version = importlib.metadata.version(name).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version != pinned[name]:
            found = f"{name} {version}" if version else f"no {name}"
            raise Trouble(
                f"{sys.executable} has {found}, but {name} {pinned[name]} is needed; install it with\n"
                f"  python3 -m venv target/peers/venv\n"
                f"  target/peers/venv/bin/pip install -r benches/peers/requirements.txt"
            )


class NumPy:
    """NumPy, written out as somebody does who cares for speed: in place wherever that is possible."""

    kernels = ["numpy"]

    def __init__(self, threads):
        check_requirements(["numpy", "threadpoolctl"])
        global np
        import numpy as np
        import threadpoolctl

        threadpoolctl.threadpool_limits(limits=threads)
        self.versions = {"numpy": np.__version__}
        for library in threadpoolctl.threadpool_info():
            if library["num_threads"] != threads:
                raise Trouble(f"{library['internal_api']} uses {library['num_threads']} threads, not {threads}")
            self.versions[library["internal_api"]] = library["version"]

    def load(self, problem, file):
        n, h, d = problem["n"], problem["heads"], problem["d"]
        self.scale = 1 / math.sqrt(d)
        self.hidden = np.triu(np.ones((n, n), dtype=bool), 1)  # (n, n), where the causal mask hides
        self.q, self.k, self.v, self.grad_output = np.fromfile(file, "<f4").reshape(4, h, n, d)

    def attention(self, q, k, v, mask):
        """(h, n, d) three times -> output (h, n, d), weights (h, n, n)."""
        weights = q @ k.transpose(0, 2, 1)  # the scores, to begin with
        weights *= self.scale
        if mask == "causal":
            np.copyto(weights, -np.inf, where=self.hidden)
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        return weights @ v, weights

    def attention_backward(self, q, k, v, weights, grad_output):
        """The six steps of the book, from the gradient of the output (h, n, d) to those of q, k and v."""
        grad_v = weights.transpose(0, 2, 1) @ grad_output
        grad_scores = grad_output @ v.transpose(0, 2, 1)  # the weights' gradient, to begin with
        grad_scores -= np.einsum("hij,hij->hi", grad_scores, weights)[:, :, None]
        grad_scores *= weights
        grad_scores *= self.scale
        return grad_scores @ k, grad_scores.transpose(0, 2, 1) @ q, grad_v

    def compute(self, task):
        output, weights = self.attention(self.q, self.k, self.v, task["mask"])
        if task["pass"] == "forward":
            return [output]
        return [output, *self.attention_backward(self.q, self.k, self.v, weights, self.grad_output)]

    def around(self, task):
        return contextlib.nullcontext()

    def write(self, results, file):
        with open(file, "wb") as out:
            for result in results:
                np.ascontiguousarray(result).tofile(out)


class PyTorch:
    """PyTorch, fused and written out. Gradients are freed after each time."""

    kernels = ["pytorch-fused", "pytorch-written"]

    def __init__(self, threads):
        check_requirements(["torch", "numpy"])
        global np, torch
        import numpy as np
        import torch

        torch.set_num_threads(threads)
        if torch.get_num_threads() != threads:
            raise Trouble(f"PyTorch uses {torch.get_num_threads()} threads, not {threads}")
        self.versions = {"torch": torch.__version__}
        found = re.search(r"Math Kernel Library Version (\S+)", torch.__config__.show())
        if found:
            self.versions["mkl"] = found[1].split("-")[0]

    def load(self, problem, file):
        n, h, d = problem["n"], problem["heads"], problem["d"]
        tensors = np.fromfile(file, "<f4").reshape(4, 1, h, n, d)
        self.q, self.k, self.v, self.grad_output = [torch.from_numpy(tensor) for tensor in tensors]
        self.scale = 1 / math.sqrt(d)
        self.bias = torch.full((n, n), -math.inf).triu(1)  # what the causal mask adds
        for tensor in (self.q, self.k, self.v):
            tensor.requires_grad_()

    def written(self, causal):
        scores = self.q @ self.k.transpose(-2, -1) * self.scale
        if causal:
            scores = scores + self.bias
        return torch.softmax(scores, dim=-1) @ self.v

    def fused(self, causal):
        return torch.nn.functional.scaled_dot_product_attention(self.q, self.k, self.v, is_causal=causal)

    def compute(self, task):
        attention = self.fused if task["kernel"] == "pytorch-fused" else self.written
        output = attention(task["mask"] == "causal")
        if task["pass"] == "forward":
            return [output]
        return [output, *torch.autograd.grad(output, (self.q, self.k, self.v), self.grad_output)]

    def around(self, task):
        """No gradients where none are asked for; and what is called fused must be fused, or fail."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        around = contextlib.ExitStack()
        around.enter_context(sdpa_kernel(SDPBackend.FLASH_ATTENTION))
        if task["pass"] == "forward":
            around.enter_context(torch.no_grad())
        return around

    def write(self, results, file):
        with open(file, "wb") as out:
            for result in results:
                result.detach().contiguous().numpy().tofile(out)


def compute_and_time(peer, task):
    begun = time.perf_counter()
    results = peer.compute(task)
    return time.perf_counter() - begun, results


def answer(peer, question):
    """The times that the question asks for."""
    if question["do"] == "load":
        peer.load(question["problem"], question["file"])
        return []
    task = question["task"]
    if task["kernel"] not in peer.kernels:
        raise Trouble(f"{type(peer).__name__} does not know {task['kernel']}")
    with peer.around(task):
        if question["do"] == "check":
            seconds, results = compute_and_time(peer, task)
            peer.write(results, question["file"])
            return [seconds]
        if question["warm"]:
            peer.compute(task)
        # What was computed is thrown away after the clock has stopped.
        return [compute_and_time(peer, task)[0] for _ in range(question["samples"])]


def say(**answer):
    print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["pytorch", "numpy"])
    parser.add_argument("threads", type=int)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the asking program tells what happened
    try:
        peer = {"pytorch": PyTorch, "numpy": NumPy}[arguments.peer](arguments.threads)
    except (Trouble, ImportError) as trouble:
        return say(answer="error", message=str(trouble))
    gc.disable()
    gc.freeze()
    versions = {"python": platform.python_version(), **peer.versions}
    say(answer="hello", versions=versions, threads=arguments.threads)
    for line in sys.stdin:
        try:
            seconds = answer(peer, json.loads(line))
            gc.collect()  # before the answer: after it, it is somebody else's turn
            say(answer="done", seconds=seconds)
        except Exception as trouble:  # whatever it is, the asking program is told
            say(answer="error", message=f"{type(trouble).__name__}: {trouble}")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)  # no one listens any more, not even to a complaint
