"""Makes the tiny models of this folder, and what they must answer.

    pip install torch==2.15.0 transformers==5.24.0 tokenizers==0.23.3 \\
        safetensors==0.8.0 gguf==0.19.0 numpy==2.4.6
    python crates/model/tests/tiny/make.py

The weights are random and the seeds are fixed: a second run writes the same
bytes. Every file lands beside this script.

Models
    Folders (`llama`, `llama3`, `qwen2`, `gpt2`, `gpt2-shards`, `bert`) are what
    transformers' `save_pretrained` writes. The GGUF files carry the keys and
    the names of tensors that llama.cpp's converter writes. `expected.json`
    says for each folder and file which `NAME.expected.safetensors` it must
    reproduce; files whose weights are equal share one.

NAME.expected.safetensors
    `ids`          (n) I64: the sequence. Ids are drawn at random, and ids 3..10
                   come again at 13..20.
    `hidden.0`     (n, width): the sum of the embeddings (for BERT after their
                   LayerNorm).
    `hidden.l`     (n, width): the output of layer l, counted from 1. For Llama,
                   Qwen2 and GPT-2 the last one is taken after the final norm;
                   for BERT there is no final norm.
    `attentions`   (layers, heads, n, n): weights after the softmax.
    `logits`       (n, vocabulary): not for BERT.
    `padded.ids`, `padded.mask` (2, n) I64 and `padded.hidden` (2, n, width):
                   for BERT only, two sequences of which the second is shorter
                   by 7 and padded on the right. Rows of padding are computed
                   like any other row, they only aren't looked at.

Precision
    Models run in f64 from the weights as stored in the file, that is after
    rounding or quantising. Transformers nevertheless computes RMSNorm, rotary
    angles and Llama's softmax in f32, so the results, written as f32, are good
    to about 1e-6 of their size (BERT's and GPT-2's are good to f32's last bit).
"""

import copy
import json
import logging
import os
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from gguf import LlamaFileType
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

HERE = Path(__file__).resolve().parent
N = 24
torch.set_num_threads(1)
disable_progress_bar()
logging.getLogger("gguf").setLevel(logging.ERROR)

# Width and MLP differ, and so do heads and heads of keys. Matrices that are
# square all the same (`q_proj` where heads · head width = width) are told from
# their transposes by the values alone; in `llama3` no matrix is square.
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
LLAMA_IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=2)

# With a head width of 16 and base 500,000 the waves are 6, 32, 167 … tokens
# long: the first is shorter than 48/4 and stays, the second lies between 48/4
# and 48 and is stretched by 3.8, the others are stretched by 8.
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=48,
)

# What the tokenizers learn from.
SENTENCES = [
    "The cat sat on the mat because it was tired, and then the dog came in.",
    "She said that he had seen them in the house near the river in 1987.",
    "What is the name of the thing that you were looking for?",
    "There is nothing in the world that we can not read and write again.",
    "When the weather is good, the children are playing there with their friends.",
]
TEXTS = [
    "The cat sat on the mat because it was tired.",
    "In 1984 there were 12345 of them: 3.14, 42!",
    "Café, naïve, ÅNGSTRÖM, e\u0301, straße",
    "A smile 😀 and a family 👩\u200d👩\u200d👧.",
    "你好，世界!",
    "  leading and trailing   ",
    "two\nlines\r\n\n\tand a tab",
    "don't, we'll, it's: lower_case UPPER x=y+1;",
    None,  # a special token in the text: SPECIAL_TEXT
    "",
]
SPECIAL_TEXT = {
    "llama": "<|im_start|>user\nHello, world<|im_end|>\n<|im_start|>",
    "bert": "The cat [MASK] on the mat [SEP]then the dog",
}
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a very small model with random weights.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


# --- Tokenizers ---------------------------------------------------------------


def llama_tokenizer():
    """Byte-level BPE in SmolLM's form: 3 special tokens, 256 bytes, 29 merges."""
    t = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=288,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    t.train_from_iterator(SENTENCES, trainer)
    return t


def bert_tokenizer():
    """WordPiece in BERT's form. The library's trainer numbers its pieces in an
    order that changes from run to run, so the vocabulary is put together here:
    characters, the same inside a word, some endings, and words by frequency."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = list("0123456789abcdefghijklmnopqrstuvwxyz")
    inside = ["##" + x for x in letters + ["ing", "ed", "er", "es", "ly", "at", "en", "il"]]
    words = "".join(c.lower() if c.isalpha() else " " for c in " ".join(SENTENCES)).split()
    words = sorted({w for w in words if len(w) > 1}, key=lambda w: (-words.count(w), w))
    vocab = special + list("!,.:;?'[]") + letters + inside + ["世"] + words
    t = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    t.add_special_tokens(special)
    return t


# --- Weights and what they answer ---------------------------------------------


def randomize(model, seed, matrices=torch.float32, vectors=torch.float32):
    """Draws every parameter, biases too: gains 1 ± 0.3, all else 0 ± 0.3, which
    is large enough for attention that is far from uniform. They are rounded to
    the types `matrices` and `vectors`, so that a file of those loses nothing."""
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            x = torch.tensor(0.3 * rng.standard_normal(tuple(p.shape)))
            if p.ndim == 1 and name.endswith(".weight"):
                x += 1
            p.copy_(x.to(matrices if p.ndim == 2 else vectors))
    return model.eval()


def save(model, name, dtype=torch.float32, **how):
    # A copy, because `to` also rounds the rotary frequencies, which no file has.
    copy.deepcopy(model).to(dtype).save_pretrained(HERE / name, **how)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)


def draw_ids(seed, vocabulary):
    ids = np.random.default_rng(seed).integers(vocabulary, size=N)
    ids[13:21] = ids[3:11]
    return torch.tensor(ids)


def expect(name, model, seed):
    """Runs `model` in f64 and writes NAME.expected.safetensors."""
    model = model.double().eval()
    model.set_attn_implementation("eager")
    ids = draw_ids(seed, model.config.vocab_size)
    with torch.no_grad():
        out = model(ids[None], output_hidden_states=True, output_attentions=True)
        result = {f"hidden.{i}": h[0] for i, h in enumerate(out.hidden_states)}
        result["attentions"] = torch.cat(out.attentions)
        if "logits" in out:
            result["logits"] = out.logits[0]
        else:
            short = draw_ids(seed + 1, model.config.vocab_size)
            short[N - 7 :] = model.config.pad_token_id
            padded = torch.stack([ids, short])
            mask = torch.ones_like(padded)
            mask[1, N - 7 :] = 0
            result["padded.hidden"] = model(padded, attention_mask=mask).last_hidden_state
    result = {k: v.float().contiguous() for k, v in result.items()}
    result["ids"] = ids
    if "padded.hidden" in result:
        result["padded.ids"], result["padded.mask"] = padded, mask
    save_file(result, HERE / f"{name}.expected.safetensors")


def expect_folder(name, seed):
    """The same from the weights that lie in the folder `name`."""
    auto = AutoModel if name == "bert" else AutoModelForCausalLM
    expect(name, auto.from_pretrained(HERE / name, dtype=torch.float64), seed)


# --- GGUF ---------------------------------------------------------------------


def permute(w, heads):
    """llama.cpp turns neighbouring pairs (2i, 2i+1) of a head, transformers
    turns (i, i + half): rows of q and k change places, and so do their biases."""
    return w.reshape(heads, 2, len(w) // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(file, arch, model, matrices=Q.F32, embeddings=None, file_type=LlamaFileType.ALL_F32, tokenizer=None):
    """Writes `model` and returns its weights as a reader of the file gets them,
    by transformers' names. What isn't a matrix stays F32, and so do the
    embeddings of positions and token types, as in llama.cpp."""
    c = model.config
    heads, kv_heads = c.num_attention_heads, getattr(c, "num_key_value_heads", c.num_attention_heads)
    w = gguf.GGUFWriter(HERE / file, gguf.MODEL_ARCH_NAMES[arch])
    w.add_type("model")
    w.add_name("tiny " + file.removesuffix(".gguf"))
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(getattr(c, "intermediate_size", None) or c.n_inner)
    w.add_head_count(heads)
    if arch == gguf.MODEL_ARCH.LLAMA:
        w.add_head_count_kv(kv_heads)
        w.add_rope_freq_base(c.rope_parameters["rope_theta"])
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
        # A key that older converters leave out where it says width / heads.
        if c.head_dim != c.hidden_size // heads:
            w.add_key_length(c.head_dim)
            w.add_value_length(c.head_dim)
        w.add_vocab_size(c.vocab_size)
        w.add_rope_dimension_count(c.head_dim)
    elif arch == gguf.MODEL_ARCH.GPT2:
        w.add_layer_norm_eps(c.layer_norm_epsilon)
    else:
        w.add_layer_norm_eps(c.layer_norm_eps)
        w.add_causal_attention(False)
        w.add_pooling_type(gguf.PoolingType.MEAN)
        w.add_token_type_count(c.type_vocab_size)
    w.add_file_type(file_type)
    if matrices not in (Q.F32, Q.F16):
        w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    if tokenizer:
        add_tokenizer(w, tokenizer)

    names = gguf.get_tensor_name_map(arch, c.num_hidden_layers)
    tied = model.config.tie_word_embeddings and "lm_head.weight"
    stored = {}

    for name, p in model.state_dict().items():
        if name == tied or name.startswith("pooler.") or name.endswith("_ids"):
            continue
        x = p.numpy()
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = matrices if x.ndim == 2 else Q.F32
        if new == "token_embd.weight" and embeddings:
            kind = embeddings
        if new in ("position_embd.weight", "token_types.weight"):
            kind = Q.F32
        # Rows are quantised one by one, so they may change places afterwards.
        stored[name] = torch.tensor(gguf.dequantize(gguf.quantize(x, kind), kind))
        # GPT-2's linear layers are (in, out) in transformers, (out, in) here.
        if arch == gguf.MODEL_ARCH.GPT2 and x.ndim == 2 and ".h." in name:
            x = np.ascontiguousarray(x.T)
        if arch == gguf.MODEL_ARCH.LLAMA and ".q_proj." in name:
            x = permute(x, heads)
        if arch == gguf.MODEL_ARCH.LLAMA and ".k_proj." in name:
            x = permute(x, kv_heads)
        data = gguf.quantize(x, kind)
        w.add_tensor(new, data, raw_dtype=kind)
        # llama.cpp's older converters write GPT-2's tied output layer again, newer
        # ones leave it out.
        if arch == gguf.MODEL_ARCH.GPT2 and new == "token_embd.weight":
            w.add_tensor("output.weight", data, raw_dtype=kind)
    if getattr(c, "rope_parameters", None) and c.rope_parameters["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_factors(model))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return stored


def llama3_factors(model):
    """By what each frequency is divided, as llama.cpp's converter computes it."""
    r, d = LLAMA3_ROPE, model.config.head_dim
    frequencies = 1 / r["rope_theta"] ** (np.arange(0, d, 2) / d)
    turns = r["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high, factor = r["low_freq_factor"], r["high_freq_factor"], r["factor"]
    smooth = ((turns - low) / (high - low)).clip(0, 1)
    factors = 1 / ((1 - smooth) / factor + smooth)
    # All three ranges occur, and transformers uses the same frequencies.
    assert factors[0] == 1 and 1.5 < factors[1] < 7 and (factors[2:] == factor).all()
    assert np.allclose(frequencies / factors, model.model.rotary_emb.inv_freq, rtol=1e-6)
    return factors.astype(np.float32)


def add_tokenizer(w, tokenizer):
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda kv: kv[1])
    w.add_add_space_prefix(False)
    w.add_add_bos_token(False)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list([token for token, _ in vocab])
    w.add_token_types([gguf.TokenType.CONTROL if i < 3 else gguf.TokenType.NORMAL for _, i in vocab])
    w.add_token_merges([" ".join(m) for m in json.loads(tokenizer.to_str())["model"]["merges"]])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_pad_token_id(2)
    w.add_chat_template(CHAT_TEMPLATE)


# --- All of it ----------------------------------------------------------------


def main():
    tokenizers = {"llama": llama_tokenizer(), "bert": bert_tokenizer()}
    expected = {}

    # Llama: matrices are f16's numbers in a file of f32, so that the file in
    # F16 answers the same. Norms use all of f32.
    config = LlamaConfig(
        **SIZES,
        **LLAMA_IDS,
        vocab_size=tokenizers["llama"].get_vocab_size(),
        intermediate_size=64,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        tie_word_embeddings=True,
    )
    llama = randomize(LlamaForCausalLM(config), 1, torch.float16)
    save(llama, "llama")
    expect_folder("llama", 101)
    expected["llama"] = "llama"
    for name, matrices, embeddings, file_type in [
        ("llama-f32", Q.F32, Q.F32, LlamaFileType.ALL_F32),
        ("llama-f16", Q.F16, Q.F16, LlamaFileType.MOSTLY_F16),
        ("llama-q8_0", Q.Q8_0, Q.Q8_0, LlamaFileType.MOSTLY_Q8_0),
        ("llama-q4_0", Q.Q4_0, Q.Q8_0, LlamaFileType.MOSTLY_Q4_0),
        ("llama-q4_1", Q.Q4_1, Q.Q8_0, LlamaFileType.MOSTLY_Q4_1),
    ]:
        stored = write_gguf(
            name + ".gguf", gguf.MODEL_ARCH.LLAMA, llama, matrices, embeddings, file_type, tokenizers["llama"]
        )
        same = all(torch.equal(stored[k], v) for k, v in llama.state_dict().items() if k in stored)
        if not same:
            model = LlamaForCausalLM(config)
            model.load_state_dict(stored, strict=False)
            model.tie_weights()
            expect(name, model, 101)
        expected[name + ".gguf"] = "llama" if same else name

    # Llama 3: biases everywhere, scaled frequencies, one head of keys for all
    # four, and heads that are wider than width / heads.
    config = LlamaConfig(
        **SIZES,
        vocab_size=40,
        intermediate_size=48,
        num_key_value_heads=1,
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=LLAMA3_ROPE,
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=False,
    )
    llama3 = randomize(LlamaForCausalLM(config), 2, torch.bfloat16, torch.bfloat16)
    save(llama3, "llama3", torch.bfloat16)
    expect_folder("llama3", 102)
    write_gguf("llama3.gguf", gguf.MODEL_ARCH.LLAMA, llama3)
    expected["llama3"] = expected["llama3.gguf"] = "llama3"

    # Qwen2: biases on q, k and v alone.
    config = Qwen2Config(
        **SIZES,
        vocab_size=40,
        intermediate_size=48,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    save(randomize(Qwen2ForCausalLM(config), 3), "qwen2", torch.float16)
    expect_folder("qwen2", 103)
    expected["qwen2"] = "qwen2"

    # GPT-2: in one file, in two, and in F16, all with the same weights.
    config = GPT2Config(
        n_embd=32, n_layer=2, n_head=4, n_inner=48, n_positions=64, vocab_size=40, bos_token_id=0, eos_token_id=0
    )
    gpt2 = randomize(GPT2LMHeadModel(config), 4, torch.float16)
    save(gpt2, "gpt2")
    save(gpt2, "gpt2-shards", max_shard_size="40KB")
    assert len(list((HERE / "gpt2-shards").glob("*.safetensors"))) == 2
    expect_folder("gpt2", 104)
    write_gguf("gpt2.gguf", gguf.MODEL_ARCH.GPT2, gpt2, Q.F16, file_type=LlamaFileType.MOSTLY_F16)
    expected["gpt2"] = expected["gpt2-shards"] = expected["gpt2.gguf"] = "gpt2"

    # BERT: post-norm, erf's GELU, reads both ways. Weights use all of f32.
    config = BertConfig(
        **SIZES,
        vocab_size=tokenizers["bert"].get_vocab_size(),
        intermediate_size=48,
        hidden_act="gelu",
        layer_norm_eps=1e-12,
        pad_token_id=0,
    )
    bert = randomize(BertModel(config), 5)
    save(bert, "bert")
    expect_folder("bert", 105)
    write_gguf("bert.gguf", gguf.MODEL_ARCH.BERT, bert)
    expected["bert"] = expected["bert.gguf"] = "bert"

    # Tokenizers, and the ids with the special tokens that they add themselves.
    answers = {}
    for name, tokenizer in tokenizers.items():
        tokenizer.save(str(HERE / name / "tokenizer.json"), pretty=False)
        answers[name] = []
        for text in TEXTS:
            text = SPECIAL_TEXT[name] if text is None else text
            e = tokenizer.encode(text)
            answers[name].append(dict(text=text, ids=e.ids, tokens=e.tokens))
    (HERE / "tokenizer.expected.json").write_text(json.dumps(answers, ensure_ascii=False) + "\n", "utf-8")
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")


main()
