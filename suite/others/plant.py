"""Puts planted attention in the place of the code that public tests test. Each function is one
project's.

The code here is what a student, or the project's author, would have written, with `planted` for the
parts in which a fault can be. Nothing is written to the checkouts: functions are replaced when the
tests run."""

import contextlib
import importlib
import pathlib
import tempfile
import types

import numpy as np
import torch
import torch.nn.functional as F

import planted


@contextlib.contextmanager
def right():
    """Inside, nothing has a fault."""
    fault, planted.FAULT = planted.FAULT, None
    try:
        yield
    finally:
        planted.FAULT = fault


# ---------------------------------------------------------------- Stanford CS336, assignment 1


def run_scaled_dot_product_attention(Q, K, V, mask=None):
    """Q (..., n_q, d), mask (..., n_q, n_k), true where a query may see a key."""
    mask = None if mask is None else mask[..., None, :, :]
    q, k, v = (x[..., None, :, :] for x in (Q, K, V))
    return planted.attend(q, k, v, mask=mask)[0].squeeze(-3)


def self_attention(x, w_q, w_k, w_v, w_o, heads, positions=None, base=10000.0):
    """x (..., n, d_model); the matrices have (columns out, rows in). Rotary where there are
    positions (..., n).
    """
    q, k, v = (planted.split(x @ w.T, heads) for w in (w_q, w_k, w_v))
    if positions is not None:
        q, k = (planted.rotate(y, positions[..., None, :], "neighbours", base) for y in (q, k))
    return planted.join(planted.attend(q, k, v, causal=True)[0]) @ w_o.T


def run_multihead_self_attention(
    d_model,
    num_heads,
    q_proj_weight,
    k_proj_weight,
    v_proj_weight,
    o_proj_weight,
    in_features,
    max_seq_len=None,
    theta=10000.0,
    token_positions=None,
):
    matrices = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return self_attention(in_features, *matrices, num_heads, token_positions, theta)


def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):
    return planted.rotate(in_query_or_key, token_positions, "neighbours", theta)


def rms_norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def run_transformer_block(d_model, num_heads, d_ff, max_seq_len, theta, weights, in_features):
    x, w = in_features, weights
    matrices = [w[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output")]
    positions = torch.arange(x.shape[-2])[None]
    x = x + self_attention(rms_norm(x, w["ln1.weight"]), *matrices, num_heads, positions, theta)
    y = rms_norm(x, w["ln2.weight"])
    return (
        x + (F.silu(y @ w["ffn.w1.weight"].T) * (y @ w["ffn.w3.weight"].T)) @ w["ffn.w2.weight"].T
    )


def run_transformer_lm(
    vocab_size,
    context_length,
    d_model,
    num_layers,
    num_heads,
    d_ff,
    rope_theta,
    weights,
    in_indices,
):
    x = weights["token_embeddings.weight"][in_indices]
    for layer in range(num_layers):
        own = {
            name.split(".", 2)[2]: w
            for name, w in weights.items()
            if name.startswith(f"layers.{layer}.")
        }
        x = run_transformer_block(d_model, num_heads, d_ff, context_length, rope_theta, own, x)
    return rms_norm(x, weights["ln_final.weight"]) @ weights["lm_head.weight"].T


def random_weights(vocabulary=10000, d_model=64, d_ff=128, layers=3):
    """Weights in the place of those that are missing, by the same names."""
    generator = torch.Generator().manual_seed(336)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) / columns**0.5

    weights = {
        "token_embeddings.weight": matrix(vocabulary, d_model) * d_model**0.5,
        "lm_head.weight": matrix(vocabulary, d_model),
        "ln_final.weight": torch.ones(d_model),
    }
    for layer in range(layers):
        at = f"layers.{layer}."
        weights |= {
            f"{at}attn.{name}_proj.weight": matrix(d_model, d_model)
            for name in ("q", "k", "v", "output")
        }
        weights |= {
            f"{at}ffn.w{i}.weight": matrix(d_model, d_ff) if i == 2 else matrix(d_ff, d_model)
            for i in (1, 2, 3)
        }
        weights |= {f"{at}ln{i}.weight": torch.ones(d_model) for i in (1, 2)}
    return weights


def cs336_1(folder):
    adapters = importlib.import_module("tests.adapters")
    for name in (
        "scaled_dot_product_attention",
        "multihead_self_attention",
        "rope",
        "transformer_block",
        "transformer_lm",
    ):
        setattr(adapters, "run_" + name, globals()["run_" + name])
    adapters.run_multihead_self_attention_with_rope = run_multihead_self_attention
    conftest, common = (
        importlib.import_module("tests.conftest"),
        importlib.import_module("tests.common"),
    )
    scratch = pathlib.Path(tempfile.mkdtemp())
    (scratch / "ts_tests").mkdir()
    torch.save(random_weights(), scratch / "ts_tests" / "model.pt")
    (scratch / "ts_tests" / "model_config.json").write_text("{}")
    common.FIXTURES_PATH = scratch
    theirs = conftest.NumpySnapshot.assert_match

    def assert_match(self, actual, test_name, **rest):
        """Where the weights are ours, what the same test gives without a fault is the snapshot."""
        if any(word in test_name for word in ("multihead", "block", "transformer_lm")):
            path = scratch / f"{test_name}.npz"
            if not path.exists():
                np.savez(path, array=actual.detach().numpy())
            self.snapshot_dir = scratch
        return theirs(self, actual, test_name, **rest)

    conftest.NumpySnapshot.assert_match = assert_match
    with contextlib.suppress(SystemExit), right():
        import pytest

        pytest.main(
            [
                "-q",
                "-p",
                "no:cacheprovider",
                "tests/test_model.py",
                "-k",
                "attention or block or transformer_lm",
            ]
        )


# ---------------------------------------------------------------- Stanford CS336, assignment 2


class Kept(types.SimpleNamespace):
    """What `planted.Attend` keeps for its backward pass."""

    def save_for_backward(self, *saved):
        self.saved_tensors = saved

    def mark_non_differentiable(self, *_):
        pass


class Flash(torch.autograd.Function):
    """q, k, v (batch, n, d). The course's tests look for the log-sum-exps (batch, n) among what is
    saved.
    """

    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        ctx.inner = Kept()
        shape = (q.shape[-2], k.shape[-2], is_causal)
        seen, unhidden = planted.visible(*shape, fault=planted.FAULT), planted.visible(*shape)
        q, k, v = (x[:, None] for x in (q, k, v))
        output, log_sum_exp = planted.Attend.forward(
            ctx.inner, q, k, v, seen, unhidden, planted.scale_of(q)
        )
        ctx.save_for_backward(log_sum_exp[:, 0])
        return output[:, 0]

    @staticmethod
    def backward(ctx, d_output):
        gradients = planted.Attend.backward(ctx.inner, d_output[:, None], None)[:3]
        return *(gradient[:, 0] for gradient in gradients), None


def cs336_2(folder):
    adapters = importlib.import_module("tests.adapters")
    adapters.get_flashattention_autograd_function_pytorch = lambda: Flash


def cs336_2_gpu(folder):
    cs336_2(folder)
    adapters = importlib.import_module("tests.adapters")
    adapters.get_flashattention_autograd_function_triton = lambda: Flash
    available, torch.cuda.is_available = (
        torch.cuda.is_available,
        lambda: True,
    )  # Else the tests are skipped.
    tests = importlib.import_module("tests.test_attention")
    torch.cuda.is_available = available
    inputs = tests._make_attn_inputs
    tests._make_attn_inputs = lambda device=None: inputs(None)


# ---------------------------------------------------------------- nanochat


def nanochat_attention(q, k, v, window_size):
    """q (B, heads, n_q, d). The window's number is of the keys before the query's own."""
    window = None if window_size[0] < 0 else window_size[0] + 1
    if window is not None and planted.has("window-cut-too-early"):
        k, v = k[:, :, -window:], v[:, :, -window:]
    return planted.attend(q, k, v, causal=True, window=window)[0]


def heads_first(x):
    """(B, n, heads, d) to (B, heads, n, d)."""
    return planted.split(x.flatten(-2), x.shape[-2])


def flash_attn_func(q, k, v, causal=False, window_size=(-1, -1)):
    output = nanochat_attention(heads_first(q), heads_first(k), heads_first(v), window_size)
    return planted.join(output).unflatten(-1, (q.shape[-2], -1))


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, cache_seqlens=None, causal=False, window_size=(-1, -1)
):
    start = cache_seqlens[0].item()
    end = start + q.shape[1]
    k_cache[:, start:end], v_cache[:, start:end] = k, v
    return flash_attn_func(q, k_cache[:, :end], v_cache[:, :end], causal, window_size)


def without_fault_if(reference, function):
    """The function, without a fault while the reference is asked for."""

    def chosen(*arguments, **named):
        with right() if reference() else contextlib.nullcontext():
            return function(*arguments, **named)

    return chosen


def nanochat(folder):
    module = importlib.import_module("nanochat.flash_attention")
    for function in (flash_attn_func, flash_attn_with_kvcache):
        setattr(
            module.flash_attn, function.__name__, without_fault_if(lambda: module.USE_FA3, function)
        )
    return module


def nanochat_gpu(folder):
    nanochat(folder).HAS_FA3 = True  # And `flash_attn` gives what is right where it is asked for.
    importlib.import_module("nanochat.common").COMPUTE_DTYPE = torch.bfloat16  # As on a GPU.
    importlib.import_module("test_attention_fallback").TestFA3VsSDPA.DEVICE = "cpu"


# ---------------------------------------------------------------- rasbt/LLMs-from-scratch


def attend_and_project(self, q, k, v, window=None):
    """The rest of a layer, from heads (b, heads, n, d)."""
    dropout = getattr(self, "dropout", 0.0)
    p = dropout if isinstance(dropout, float) else dropout.p
    output = planted.attend(q, k, v, causal=True, window=window, p=p, training=self.training)[0]
    project = self.proj if hasattr(self, "proj") else self.out_proj
    return project(planted.join(output))


def projected(self, x):
    """Queries, keys and values (b, heads, n, d), by matrices or linear layers, with normalized
    heads where there are such.
    """
    if hasattr(self, "qkv"):
        return [planted.split(y, self.num_heads) for y in self.qkv(x).chunk(3, -1)]
    matrices = (self.W_query, self.W_key, self.W_value)
    q, k, v = (layer(x) if callable(layer) else x @ layer for layer in matrices)
    groups = getattr(self, "num_kv_groups", self.num_heads)
    q, k, v = planted.split(q, self.num_heads), planted.split(k, groups), planted.split(v, groups)
    if getattr(self, "q_norm", None):
        q, k = self.q_norm(q), self.k_norm(k)
    return q, k, v


def plain_forward(self, x):
    return attend_and_project(self, *projected(self, x))


def apply_rope(x, cos, sin, offset=0):
    """x (b, heads, n, d); cos and sin (context, d), whose halves are equal."""
    at = planted.standing(planted.positions_of(offset, x.shape[-2]))
    half = x.shape[-1] // 2
    return planted.turn(x, cos[at, :half], sin[at, :half], "halves").to(x.dtype)


def rotary_forward(self, x, mask, cos, sin):
    q, k, v = projected(self, x)
    return attend_and_project(self, apply_rope(q, cos, sin), apply_rope(k, cos, sin), v)


def fast_rotary_forward(self, x, cos, sin):
    return rotary_forward(self, x, None, cos, sin)


def cached_rotary_forward(self, x, mask, cos, sin, start_pos=0, cache=None):
    q, k, v = projected(self, x)
    q, k = apply_rope(q, cos, sin, start_pos), apply_rope(k, cos, sin, start_pos)
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    return attend_and_project(self, q, k, v), (k, v)


def cached_forward(self, x, use_cache=False):
    """With a cache in the layer, as chapter 4 has it: (b, n, heads, d). It's cut to the window, if
    there is one.
    """
    q, k, v = projected(self, x)
    window = getattr(self, "sliding_window_size", None)
    if use_cache:
        if self.cache_k is not None:
            k, v = (
                torch.cat([held.transpose(1, 2), new], 2)
                for held, new in ((self.cache_k, k), (self.cache_v, v))
            )
        keep = window if window and not planted.has("window-forgotten-with-cache") else k.shape[2]
        if planted.has("window-cut-too-early"):
            k, v = k[:, :, -keep:], v[:, :, -keep:]
        self.cache_k, self.cache_v = (y[:, :, -keep:].transpose(1, 2) for y in (k, v))
    return attend_and_project(self, q, k, v, window)


def model_positions(theirs):
    """A forward pass of a model that counts positions itself, and starts again at 0 in each chunk
    if that's the fault.
    """

    def forward(self, in_idx, use_cache=False):
        counter = "current_pos" if hasattr(self, "current_pos") else "ptr_current_pos"
        if use_cache:
            setattr(self, counter, int(planted.positions_of(getattr(self, counter), 1)[0]))
        return theirs(self, in_idx, use_cache)

    return forward


class Tokenizer:
    """GPT-2's tokens of the only text that the tests encode."""

    def encode(self, text):
        return {"Hello, I am": [15496, 11, 314, 716]}[text]


def rasbt(folder):
    import os

    os.environ["GITHUB_ACTIONS"] = (
        "true"  # As in their own runs: it skips a test with a model of 1.2 billion weights.
    )
    os.environ["HF_HUB_OFFLINE"] = "1"
    importlib.import_module("tiktoken").get_encoding = lambda name: Tokenizer()


def rasbt_pkg(folder):
    rasbt(folder)
    package = "llms_from_scratch."
    chapter = importlib.import_module(package + "ch03")
    chapter.MultiHeadAttention.forward = chapter.PyTorchMultiHeadAttention.forward = plain_forward
    importlib.import_module(package + "kv_cache.gpt2").MultiHeadAttention.forward = (
        lambda self, x, use_cache=False, start_pos=0, cache=None: (plain_forward(self, x), None)
    )
    for name in ("llama3", "qwen3"):
        plain, cached = (
            importlib.import_module(package + part + name) for part in ("", "kv_cache.")
        )
        plain.apply_rope = cached.apply_rope = apply_rope
        plain.GroupedQueryAttention.forward = rotary_forward
        cached.GroupedQueryAttention.forward = cached_rotary_forward
    importlib.import_module(
        package + "llama3"
    ).GroupedQueryAttentionFast.forward = fast_rotary_forward


def rasbt_mha(folder):
    utils = importlib.import_module("llms_from_scratch.utils")
    theirs = utils.import_definitions_from_notebook

    def definitions(*arguments):
        module = theirs(*arguments)
        module.MHAEinsum.forward = plain_forward
        return module

    utils.import_definitions_from_notebook = definitions


def rasbt_swa(folder):
    rasbt(folder)
    module = importlib.import_module("gpt_with_kv_swa")
    module.MultiHeadAttentionWithSWA.forward = cached_forward
    module.GPTModel.forward = model_positions(module.GPTModel.forward)


def of_two_layers(theirs):
    def begin(self, cfg):
        theirs(self, cfg | {"n_layers": 2})

    return begin


def rasbt_kv(folder):
    rasbt(folder)
    for name in ("gpt_ch04", "gpt_with_kv_cache", "gpt_with_kv_cache_optimized"):
        module = importlib.import_module(name)
        module.GPTModel.__init__ = of_two_layers(module.GPTModel.__init__)
        if name != "gpt_ch04":
            module.MultiHeadAttention.forward = cached_forward
            module.GPTModel.forward = model_positions(module.GPTModel.forward)


# ---------------------------------------------------------------- skyzh/tiny-llm


def from_mlx(x):
    import mlx.core as mx

    return torch.from_numpy(np.array(x.astype(mx.float32) if x.dtype == mx.bfloat16 else x))


def to_mlx(x, like):
    import mlx.core as mx

    return mx.array(x.contiguous().numpy()).astype(like.dtype)


def grouped(query, key, value, scale=None, mask=None):
    """(..., heads, n, d). The mask is added to scores, unless it is the word "causal"."""
    q, k, v = from_mlx(query), from_mlx(key), from_mlx(value)
    rest = {"causal": True} if isinstance(mask, str) else {}
    if mask is not None and not rest:
        added = from_mlx(mask)
        seen = (
            added > -torch.inf
        )  # Where all of it is finite it's no mask that could be read the wrong way.
        rest = {"bias": torch.where(seen, added, 0.0), "mask": None if seen.all() else seen}
    scale = None if scale is None else float(scale)
    return to_mlx(planted.attend(q, k, v, scale=scale, **rest)[0], query)


def simple(query, key, value, scale=None, mask=None):
    """(..., n, d), without an axis of heads."""
    mask = None if mask is None else mask[..., None, :, :]
    return grouped(*(x[..., None, :, :] for x in (query, key, value)), scale, mask).squeeze(-3)


def causal_mask(L, S, dtype):
    import mlx.core as mx

    seen = planted.visible(L, S, True, fault=planted.FAULT)
    return mx.array(planted.hide(torch.zeros(L, S), seen).numpy()).astype(dtype)


def in_heads(x, heads, norm=lambda x: x):
    """(B, n, heads · d) to (B, heads, n, d), with each head normalized."""
    return to_mlx(
        planted.split(from_mlx(norm(x.reshape(*x.shape[:2], heads, -1)).flatten(-2)), heads), x
    )


def in_a_row(x):
    return to_mlx(planted.join(from_mlx(x)), x)


def simple_layer(self, query, key, value, mask=None):
    given = ((query, self.wq), (key, self.wk), (value, self.wv))
    q, k, v = (in_heads(x @ w.T, self.num_heads) for x, w in given)
    return in_a_row(grouped(q, k, v, mask=mask)) @ self.wo.T


def qwen_layer(self, x, mask=None):
    import mlx.core as mx

    q = in_heads(x @ self.wq.T, self.num_heads, self.q_norm)
    k = in_heads(x @ self.wk.T, self.num_kv_heads, self.k_norm)
    v = in_heads(x @ self.wv.T, self.num_kv_heads)
    q, k = (self.rope(y.swapaxes(1, 2), slice(0, x.shape[1])).swapaxes(1, 2) for y in (q, k))
    output = grouped(*(y.astype(mx.float32) for y in (q, k, v)), mask=mask).astype(x.dtype)
    return in_a_row(output) @ self.wo.T


def rope(self, x, offset=None):
    """x (N, n, heads, d), and where its tokens stand: a slice, or one for each row."""
    starts = (
        [0]
        if offset is None
        else [part.start for part in (offset if isinstance(offset, list) else [offset])]
    )
    positions = torch.stack([planted.positions_of(start, x.shape[1]) for start in starts])[:, None]
    pairs = "neighbours" if self.traditional else "halves"
    turned = planted.rotate(from_mlx(x).float().transpose(1, 2), positions, pairs, self.base)
    return to_mlx(turned.transpose(1, 2), x)


def tiny_llm(folder):
    import sys
    from unittest import mock

    sys.modules["extensions_ref"] = (
        mock.MagicMock()
    )  # Kernels that have to be built, and aren't used here.
    importlib.import_module("tiny_llm_ref")
    ours = {
        "scaled_dot_product_attention_simple": simple,
        "scaled_dot_product_attention_grouped": grouped,
        "causal_mask": causal_mask,
    }
    for module in [
        module for name, module in sys.modules.items() if name.startswith("tiny_llm_ref")
    ]:
        for name in set(ours) & set(vars(module)):
            setattr(module, name, ours[name])
    importlib.import_module("tiny_llm_ref.positional_encoding").RoPE.__call__ = rope
    importlib.import_module(
        "tiny_llm_ref.attention"
    ).SimpleMultiHeadAttention.__call__ = simple_layer
    importlib.import_module(
        "tiny_llm_ref.qwen3_week1"
    ).Qwen3MultiHeadAttention.__call__ = qwen_layer


# ---------------------------------------------------------------- huggingface/transformers


def heads_last(x):
    """(b, heads, n, d) to (b, n, heads, d)."""
    return planted.join(x).unflatten(-1, (x.shape[1], -1))


def of_transformers(query, key, value, seen, scaling, p, training):
    """Attention where a mask (b, 1, n_q, n_k) says what is seen; without one it's causal."""
    causal = seen is None and query.shape[2] > 1
    if seen is not None and planted.has("causal-strict") and query.shape[2] > 1:
        seen = seen & planted.visible(query.shape[2], key.shape[2], True, fault="causal-strict")
    scale = None if planted.has("scale-missing", "scale-of-the-model") else scaling
    return planted.attend(
        query, key, value, causal=causal, mask=seen, scale=scale, p=p, training=training
    )[0]


def sdpa(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **_):
    output = of_transformers(query, key, value, attention_mask, scaling, dropout, module.training)
    return heads_last(output), None


def eager(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
    """The mask is of numbers: 0, or the lowest there is where a key is hidden. Also returns the
    weights.
    """
    seen = None if attention_mask is None else attention_mask >= 0
    output = of_transformers(query, key, value, seen, scaling, dropout, module.training)
    every = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool) if seen is None else seen
    index = planted.shared(query.shape[1], key.shape[1])
    weights, _ = planted.weights_of(query, key[:, index], every, every, scaling)
    return heads_last(output), weights


def llama_forward(
    self, hidden_states, position_embeddings=None, attention_mask=None, cache=None, **rest
):
    from transformers.models.llama import modeling_llama

    heads, x = self.config.num_attention_heads, hidden_states
    q, k, v = (
        planted.split(y, h)
        for y, h in zip(
            (self.q_proj(x), self.k_proj(x), self.v_proj(x)),
            (heads, *[heads // self.num_key_value_groups] * 2),
        )
    )
    half = self.head_dim // 2
    cos, sin = (y[:, None, :, :half] for y in position_embeddings)
    q, k = planted.turn(q, cos, sin, "halves"), planted.turn(k, cos, sin, "halves")
    if cache is not None:
        k, v = cache.update(k, v, self.layer_idx, kwargs=rest)
    interface = modeling_llama.ALL_ATTENTION_FUNCTIONS.get_interface(
        self.config._attn_implementation, eager
    )
    dropout = self.attention_dropout if self.training else 0.0
    output, weights = interface(
        self, q, k, v, attention_mask, dropout=dropout, scaling=self.scaling, **rest
    )
    return self.o_proj(output.reshape(*x.shape[:-1], -1)), weights


def transformers_sdpa(folder):
    import os
    import sys
    from unittest import mock

    os.environ["HF_HUB_OFFLINE"] = "1"
    package = types.ModuleType(
        "tests"
    )  # The folder isn't a package, and two of its files aren't there.
    package.__path__ = [str(folder / "transformers" / "tests")]
    sys.modules["tests"] = package
    for name, mixin in (
        ("exporters.test_export", "ExportTesterMixin"),
        ("generation.test_utils", "GenerationTesterMixin"),
    ):
        sys.modules["tests." + name.split(".")[0]] = mock.MagicMock()
        sys.modules["tests." + name] = types.SimpleNamespace(**{mixin: type(mixin, (), {})})
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("sdpa", sdpa)


def transformers_model(folder):
    transformers_sdpa(folder)
    from transformers.models.llama import modeling_llama

    modeling_llama.LlamaAttention.forward = llama_forward
    modeling_llama.eager_attention_forward = eager


# ---------------------------------------------------------------- karpathy/minGPT


def mingpt_forward(self, x):
    q, k, v = (planted.split(y, self.n_head) for y in self.c_attn(x).split(self.n_embd, 2))
    output = planted.attend(q, k, v, causal=True, p=self.attn_dropout.p, training=self.training)[0]
    return self.resid_dropout(self.c_proj(planted.join(output)))


def random_gpt2(name):
    """Transformers' GPT-2 with random weights, and with the buffers that it had when the test was
    written.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel._from_config(GPT2Config(), attn_implementation="eager")
    for block in model.transformer.h:
        block.attn.register_buffer("bias", torch.ones(1, 1, 1024, 1024).tril())
    return model


class Bytes:
    """A tokenizer in the place of GPT-2's, whose files can't be had here."""

    def __call__(self, text, return_tensors=None):
        from transformers import BatchEncoding

        ids = torch.tensor([list(text.encode())[:6]])
        return BatchEncoding({"input_ids": ids}) if return_tensors else ids

    def decode(self, ids):
        return str(ids.tolist())


def mingpt(folder):
    import transformers

    torch.set_default_dtype(torch.float64)
    module = importlib.import_module("mingpt.model")
    module.CausalSelfAttention.forward = mingpt_forward
    transformers.GPT2LMHeadModel.from_pretrained = staticmethod(random_gpt2)
    transformers.GPT2Tokenizer.from_pretrained = staticmethod(lambda name: Bytes())
    importlib.import_module("mingpt.bpe").BPETokenizer = Bytes
