#!/usr/bin/env python3
"""PyTorch on a GPU as a peer: reads one question a line, writes one answer a line, both in JSON.

The questions are those of `src/torch.rs`, the answers those of `../peers/worker`. If you run this by hand, you want
`gpu time` instead.
"""

import gc
import importlib.metadata
import json
import os
import platform
import signal
import sys
import warnings

try:
    import torch
except ImportError as trouble:
    torch, missing = None, trouble


class Trouble(Exception):
    """Something that the asking program should read, without a trace of where it happened."""


def check():
    """That there is what this needs."""
    if torch is None:
        raise Trouble(f"{sys.executable} has no PyTorch ({missing})")
    if not torch.cuda.is_available():
        raise Trouble(f"PyTorch {torch.__version__} of {sys.executable} finds no GPU")


def versions():
    cudnn = torch.backends.cudnn.version() or 0  # 91002 is 9.10.2
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch-cuda": torch.version.cuda,
        "cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}",
        "torch-deterministic": str(torch.are_deterministic_algorithms_enabled()).lower(),
    } | package("flash-attn-4")


def package(name):
    try:
        return {name: importlib.metadata.version(name)}
    except importlib.metadata.PackageNotFoundError:
        return {}


def dtype(name):
    return {"f32": torch.float32, "bf16": torch.bfloat16}[name]


def seconds(work, warm_up, launches):
    """How long each launch takes on the device. All are launched before the first one is waited for."""
    for _ in range(warm_up):
        work()
    clocks = []
    for _ in range(launches):
        clock = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        clock[0].record()
        work()
        clock[1].record()
        clocks.append(clock)
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in clocks]


def product(question):
    """Two square matrices: as fast as the device computes at all."""
    sides = (question["side"],) * 2
    a, b = (torch.randn(sides, device="cuda", dtype=dtype(question["dtype"])) for _ in range(2))
    out = torch.empty_like(a)
    return seconds(lambda: torch.matmul(a, b, out=out), question["warm_up"], question["launches"])


class Problem:
    """Queries and the gradient of the output, (batch, heads, queries, d); keys and values, (batch, kv_heads, n, d)."""

    def __init__(self, key):
        name, batch, heads, kv_heads, queries, n, d = self.key = key
        draw = lambda *shape: torch.randn(batch, *shape, d, device="cuda", dtype=dtype(name))
        self.q, self.d_output = draw(heads, queries), draw(heads, queries)
        self.k, self.v = draw(kv_heads, n), draw(kv_heads, n)
        self.shared = kv_heads < heads
        for tensor in (self.q, self.k, self.v):
            tensor.requires_grad_()

    def forward(self, causal):
        return torch.nn.functional.scaled_dot_product_attention(
            self.q, self.k, self.v, is_causal=causal, enable_gqa=self.shared
        )

    def backward(self, output):
        return torch.autograd.grad(output, (self.q, self.k, self.v), self.d_output, retain_graph=True)


class ByTokens(Problem):
    """The same for FlashAttention-4 (`pip install --pre flash-attn-4`): (batch, n, heads, d). It sees itself which keys are shared."""

    def __init__(self, problem, deterministic):
        turned = lambda tensor: tensor.detach().transpose(1, 2).contiguous()
        self.q, self.k, self.v = (turned(tensor).requires_grad_() for tensor in (problem.q, problem.k, problem.v))
        self.d_output, self.deterministic = turned(problem.d_output), deterministic

    def forward(self, causal):
        from flash_attn.cute import flash_attn_func

        return flash_attn_func(self.q, self.k, self.v, causal=causal, deterministic=self.deterministic)[0]


class Worker:
    problem = None

    def attention(self, question):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        key = tuple(question[name] for name in ("dtype", "batch", "heads", "kv_heads", "queries", "n", "d"))
        if self.problem is None or self.problem.key != key:
            self.problem = None  # before there is another one
            free()
            self.problem = Problem(key)
        problem, causal = self.problem, question["causal"]
        backends = {
            "flash": SDPBackend.FLASH_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "math": SDPBackend.MATH,
        }
        backend = question["backend"]
        if backend.startswith("flash4"):
            problem = ByTokens(problem, backend.endswith("deterministic"))
            backend = "flash"  # of no meaning then
        counts = question["warm_up"], question["launches"]
        with sdpa_kernel(backends[backend]):  # this one, or an error
            if question["pass"] != "backward":
                with torch.no_grad():
                    return seconds(lambda: problem.forward(causal), *counts)
            output = problem.forward(causal)
            return seconds(lambda: problem.backward(output), *counts)

    def answer(self, question):
        if question["do"] == "product":
            return product(question)
        try:
            return self.attention(question)
        finally:
            if question["backend"] == "math":
                free()  # the scores of all heads, which others need room for


def free():
    gc.collect()
    torch.cuda.empty_cache()


def reason(trouble, heard):
    """What went wrong, in one line, with what PyTorch warned of before."""
    parts = [f"{type(trouble).__name__}: {trouble}"] + [str(warning.message) for warning in heard]
    return " | ".join(dict.fromkeys(" ".join(part.split()) for part in parts))


def say(**answer):
    print(json.dumps(answer), flush=True)


def main():
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the asking program tells what happened
    try:
        check()
    except Trouble as trouble:
        return say(answer="error", message=str(trouble))
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    say(answer="hello", versions=versions(), threads=torch.get_num_threads())
    worker = Worker()
    gc.disable()
    for line in sys.stdin:
        message = None
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            try:
                times = worker.answer(json.loads(line))
            except Exception as trouble:  # whatever it is, the asking program is told
                message = reason(trouble, heard)
        if message is None:
            say(answer="done", seconds=times)
        elif "CUDA error" in message:  # nothing works in this process from now on
            print(message, file=sys.stderr)
            sys.exit(3)
        else:
            free()  # what the failure held
            say(answer="error", message=message)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)  # no one listens any more, not even to a complaint
