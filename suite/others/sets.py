"""The sets of public tests, and what a fault needs before somebody can have it.

A fault can be in an implementation only if that has the part where the fault lives: a window, a
cache, heads that share keys. `NEEDS` says which, and each set says what its code under test has."""

import dataclasses
import pathlib

import plant

HIDING = ["causal|mask"]
NEEDS = {
    "alibi-added": ["slopes"],
    "alibi-from-one": ["slopes"],
    "alibi-plain-formula": ["slopes"],
    "alibi-top-left": ["slopes", "cache"],
    "causal-forgotten-with-cache": ["causal", "cache"],
    "causal-strict": ["causal"],
    "causal-top-left": ["causal", "cache"],
    "dropout-in-evaluation": ["dropout"],
    "dropout-not-scaled": ["dropout"],
    "empty-row-mean": ["mask"],
    "empty-row-nan": ["mask"],
    "gradient-scale-missing": ["own gradient"],
    "gradient-scale-twice": ["own gradient"],
    "gradient-without-d": ["own gradient"],
    "group-gradients-overwritten": ["own gradient", "shared keys"],
    "heads-interleaved": ["shared keys"],
    "heads-merged-without-transpose": ["heads"],
    "heads-split-without-transpose": ["heads"],
    "hidden-nan": HIDING,
    "hidden-tile-maximum": ["tiles", "mask|window"],
    "hidden-tile-nan": ["tiles", "mask|window"],
    "linear-denominator-of-all": ["linear attention"],
    "linear-without-denominator": ["linear attention"],
    "mask-added": HIDING,
    "mask-after-softmax": HIDING,
    "mask-inverted": HIDING,
    "mask-minus-10000": HIDING,
    "mask-zero-scores": HIDING,
    "merge-empty-nan": ["merge"],
    "merge-mean": ["merge"],
    "merge-without-maximum": ["merge"],
    "nan-to-zero": [],
    "position-in-half": ["rotary"],
    "position-of-the-chunk": ["positions", "cache"],
    "rotary-always-halves": ["rotary neighbours"],
    "rotary-always-neighbours": ["rotary halves"],
    "scale-ignored": ["scale"],
    "scale-missing": [],
    "scale-of-the-model": ["heads"],
    "scores-overflow-half": ["half"],
    "softmax-over-queries": [],
    "softmax-without-maximum": [],
    "tile-not-rescaled": ["tiles"],
    "tile-padding-counted": ["tiles"],
    "window-cut-too-early": ["window", "cache"],
    "window-forgotten-with-cache": ["window", "cache"],
    "window-one-narrow": ["window"],
    "window-one-wide": ["window"],
}


@dataclasses.dataclass
class Set:
    """Tests of a project, and the code that they test."""

    name: str
    repository: str
    commit: str
    licence: str
    meant_for: str
    folder: str  # Of the checkout.
    tests: list  # Files, or files with names of tests, as pytest takes them.
    has: list  # The parts that the code under test has.
    plant: object  # A function that puts planted attention there.
    arguments: list = dataclasses.field(default_factory=list)
    path: list = dataclasses.field(default_factory=lambda: ["."])
    left_out: dict = dataclasses.field(default_factory=dict)
    stops: bool = False  # At the first test that is red, since these tests take long.
    changed: str = ""  # What isn't as the project has it, in a sentence.

    def missing(self, fault):
        """The parts that the code under test lacks for this fault."""
        have = set(self.has) | {part.split()[0] for part in self.has if part.startswith("rotary")}
        return [part for part in NEEDS[fault] if not have & set(part.split("|"))]

    def about(self):
        words = ("repository", "commit", "licence", "meant_for", "has", "changed", "stops")
        return {word: getattr(self, word) for word in words} | {
            "files": self.tests,
            "left_out_because": self.left_out,
        }


A1 = dict(
    repository="stanford-cs336/assignment1-basics",
    commit="25a8a49f6460c83a30416d42348f2ef11d1dd185",
    licence="MIT",
    folder="assignment1-basics",
)
A2 = dict(
    repository="stanford-cs336/assignment2-systems",
    commit="9d95f3b5dc4a5fc48c2661b58d2e509bbc904e36",
    licence="MIT",
    folder="assignment2-systems",
)
NANOCHAT = dict(
    repository="karpathy/nanochat",
    commit="92d63d4e8bb4df75c3b71618f31ddde2378b2bcd",
    licence="MIT",
    folder="nanochat",
    path=[".", "tests"],
)
RASBT = dict(
    repository="rasbt/LLMs-from-scratch",
    commit="28c65cdfbc3338e2e040016eea4b7fdf556e4d57",
    licence="Apache-2.0",
)
HF = dict(
    repository="huggingface/transformers",
    commit="the source package of 5.24.0",
    licence="Apache-2.0",
    folder="transformers",
    tests=[str(pathlib.Path(__file__).parent / "transformers_llama.py")],
)
HF_LEFT_OUT = {
    "tests of generation, with a cache and with padding on the left": (
        "their file isn't in the source package"
    ),
    "test_generation_tester_mixin_inheritance": "it asks for that file",
}
HF_CHANGED = (
    "The list of a Llama's inputs is ours, by their numbers, since their file isn't in the "
    "source package."
)

SETS = [
    Set(
        "cs336-1",
        **A1,
        plant=plant.cs336_1,
        has=["mask", "causal", "heads", "rotary neighbours", "positions"],
        meant_for=(
            "A student's own attention, multi-head attention, rotary positions and model, held "
            "to the outputs of the course's implementation (snapshots)."
        ),
        tests=["tests/test_model.py"],
        arguments=["-k", "attention or rope or block or transformer_lm"],
        changed=(
            "The weights (tests/fixtures/ts_tests/model.pt) are missing in our copy, which has "
            "no file above 4 MB. Random weights of the same shapes stand in, and the snapshots "
            "of the five tests that use them are those of our attention without a fault."
        ),
    ),
    Set(
        "cs336-1-snapshots",
        **A1,
        plant=plant.cs336_1,
        has=["mask", "rotary neighbours", "positions"],
        meant_for=(
            "The same, only the tests whose own snapshots could be used: attention with a mask,"
            " and rotary positions."
        ),
        tests=["tests/test_model.py"],
        arguments=["-k", "dot_product_attention or test_rope"],
    ),
    Set(
        "cs336-2",
        **A2,
        plant=plant.cs336_2,
        has=["tiles", "own gradient"],
        meant_for=(
            "A student's attention by tiles in PyTorch, forward and backward, as it runs on any "
            "machine."
        ),
        tests=["tests/test_attention.py"],
    ),
    Set(
        "cs336-2-gpu",
        **A2,
        plant=plant.cs336_2_gpu,
        has=["tiles", "own gradient", "causal"],
        meant_for="The tests for a kernel in Triton, which are causal, too, beside those for a CPU.",
        tests=["tests/test_attention.py"],
        changed="The tests that ask for a GPU run on the CPU (their device argument is dropped).",
    ),
    Set(
        "nanochat",
        **NANOCHAT,
        plant=plant.nanochat,
        has=["causal", "cache", "window", "shared keys", "heads"],
        meant_for="Attention for a CPU, and the cache, as they run on any machine.",
        tests=["tests/test_attention_fallback.py", "tests/test_engine.py"],
    ),
    Set(
        "nanochat-gpu",
        **NANOCHAT,
        plant=plant.nanochat_gpu,
        has=["causal", "cache", "window", "shared keys", "heads"],
        meant_for=(
            "The tests that compare it with a kernel for Hopper GPUs, beside those for a CPU."
        ),
        tests=["tests/test_attention_fallback.py", "tests/test_engine.py"],
        changed=(
            "Our attention without a fault stands in for FlashAttention-3, and the device is "
            "the CPU."
        ),
    ),
    Set(
        "rasbt-mha",
        **RASBT,
        folder="LLMs-from-scratch",
        path=["pkg"],
        plant=plant.rasbt_mha,
        has=["causal", "heads", "dropout"],
        meant_for=(
            "Chapter 3: multi-head attention by einsum, compared with the book's own multi-head "
            "attention."
        ),
        tests=["ch03/02_bonus_efficient-multihead-attention/tests/test_mha_implementations.py"],
    ),
    Set(
        "rasbt-swa",
        **RASBT,
        folder="LLMs-from-scratch/ch04/06_swa",
        path=[".", "../../pkg"],
        plant=plant.rasbt_swa,
        has=["causal", "heads", "dropout", "cache", "window", "positions"],
        meant_for=(
            "Chapter 4: a sliding window with a cache, compared with the same layer without a cache "
            "and to GPT-2."
        ),
        tests=["tests.py"],
    ),
    Set(
        "rasbt-kv",
        **RASBT,
        folder="LLMs-from-scratch/ch04/03_kv-cache",
        path=["."],
        plant=plant.rasbt_kv,
        has=["causal", "heads", "dropout", "cache", "positions"],
        meant_for="Chapter 4: two caches, whose texts are those of the model without a cache.",
        tests=["tests.py"],
        stops=True,
        changed="The tokens of the prompt are given, since the tokenizer's files can't be had "
        "here, and GPT-2 has two layers, not twelve, to save time.",
    ),
    Set(
        "rasbt-pkg",
        **RASBT,
        folder="LLMs-from-scratch/pkg",
        path=["."],
        plant=plant.rasbt_pkg,
        has=["causal", "heads", "dropout", "cache", "shared keys", "rotary halves", "positions"],
        meant_for=(
            "The book's package: GPT-2, Llama 3 and Qwen3, compared with a text written down once and"
            " to Transformers."
        ),
        tests=[
            f"llms_from_scratch/tests/test_{name}.py"
            for name in ("llama3", "qwen3", "ch03", "ch04")
        ],
        stops=True,
        left_out={"tests of tokenizers, of experts and of RMSNorm": "they don't concern attention"},
        arguments=[
            "-k",
            "not tokenizer and not chat and not multiturn and not rmsnorm and not moe "
            "and not special_tokens and not test_model",
        ],
        changed=(
            "The tokens of the prompt are given, since the tokenizer's files can't be had here."
        ),
    ),
    Set(
        "tiny-llm",
        repository="skyzh/tiny-llm",
        commit="1078c08130fa0648fe45f11bf32ca33a7ecfdd58",
        licence="Apache-2.0",
        folder="tiny-llm",
        path=[".", "src"],
        plant=plant.tiny_llm,
        has=[
            "mask",
            "causal",
            "cache",
            "heads",
            "shared keys",
            "scale",
            "rotary halves",
            "rotary neighbours",
            "positions",
            "half",
        ],
        meant_for=(
            "Weeks 1 and 2 of a course: a student's attention, rotary positions and shared "
            "keys, compared with MLX."
        ),
        tests=[
            f"tests_refsol/test_{name}.py"
            for name in (
                "week_1_day_1",
                "week_1_day_2",
                "week_1_day_3",
                "week_1_day_5",
                "rope",
                "week_2_day_1",
            )
        ],
        arguments=["-k", "not gpu and not linear and not qwen3_0_6b and not embedding"],
        left_out={
            "tests on a GPU or with a model's weights": "neither can be had here",
            "paged attention and decode attention (weeks 2 and 3)": (
                "they need the course's own kernels, for Metal"
            ),
        },
    ),
    Set(
        "transformers-sdpa",
        **HF,
        plant=plant.transformers_sdpa,
        has=["mask", "causal", "heads", "dropout", "scale", "half"],
        meant_for=(
            "The common tests of all models, on a small Llama, with planted attention as its "
            "`sdpa`."
        ),
        left_out=HF_LEFT_OUT,
        changed=HF_CHANGED,
    ),
    Set(
        "transformers-model",
        **HF,
        plant=plant.transformers_model,
        has=["mask", "causal", "heads", "dropout", "scale", "half", "rotary halves"],
        meant_for=(
            "The common tests of all models, on a small Llama, with the fault in the model's own "
            "code, so that its `eager` and its "
            "`sdpa` share it."
        ),
        left_out=HF_LEFT_OUT,
        changed=HF_CHANGED,
    ),
    Set(
        "mingpt",
        repository="karpathy/minGPT",
        commit="37baab71b9abea1b76ab957409a1cc2fbfba8a26",
        licence="MIT",
        folder="minGPT",
        plant=plant.mingpt,
        has=["causal", "heads", "dropout"],
        stops=True,
        tests=["tests/test_huggingface_import.py"],
        meant_for=(
            "Whether GPT-2's weights load: the same numbers and the same text as "
            "Transformers' GPT-2."
        ),
        changed=(
            "Random weights and bytes stand in for GPT-2's weights and tokens, which can't be "
            "had here, and numbers have 64 bits, since the test asks for equality that a newer "
            "Transformers doesn't give in 32."
        ),
    ),
]
