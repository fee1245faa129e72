//! What the families of models call their sizes and their matrices, and how a model is put together from them.

use super::gguf::{Metadata, Value};
use super::network::{Activation, Block, Feed, Linear, Network, Norm};
use super::tensors::Tensors;
use crate::norm::{LayerNorm, RmsNorm};
use anyhow::{Context as _, Result, bail, ensure};
use attention::positions::RotaryPairs;
use attention::{MultiHeadAttention, Parameters, Rotary};
use fast::Flash;
use nalgebra::{DMatrix, RowDVector};

/// A line of models that are built alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Rotary positions, RMSNorm before each layer, a gated MLP: Llama, SmolLM2, Qwen2.
    Llama,
    /// Learned positions, LayerNorm before each layer, an MLP with GELU.
    Gpt2,
    /// Reads both ways. Learned positions, LayerNorm after each layer, an MLP with GELU.
    Bert,
}

/// Where the names come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Gguf,
    Safetensors,
}

/// What a header or a `config.json` says.
#[derive(Debug, Clone)]
pub struct Sizes {
    pub family: Family,
    pub container: Container,
    pub d_model: usize,
    pub n_blocks: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    /// The width of a head.
    pub d_head: usize,
    pub d_hidden: usize,
    pub epsilon: f64,
    pub rotary: Option<Rotary>,
    pub activation: Activation,
    /// Whether the scores of the next token come from the embedding; where a container doesn't say, a file without another matrix means it.
    pub tied: Option<bool>,
}

impl Sizes {
    /// Reads the sizes from a GGUF header.
    ///
    /// # Errors
    /// The architecture isn't known, or a size is missing or impossible.
    pub fn of_gguf(metadata: &Metadata, tensors: &mut Tensors) -> Result<Self> {
        let name = metadata.text("general.architecture")?;
        let (family, pairs) = match name {
            // llama.cpp reorders the columns of Llama's queries and keys, so that pairs are neighbours.
            "llama" => (Family::Llama, RotaryPairs::Neighbours),
            "qwen2" => (Family::Llama, RotaryPairs::Halves),
            "gpt2" => (Family::Gpt2, RotaryPairs::Halves),
            "bert" => (Family::Bert, RotaryPairs::Halves),
            other => return Err(unknown("architecture", other)),
        };
        let size = |key: &str| {
            let key = format!("{name}.{key}");
            metadata.size(&key)?.with_context(|| format!("the file has no `{key}`"))
        };
        let d_model = size("embedding_length")?;
        let n_heads = size("attention.head_count")?;
        ensure!(n_heads > 0, "`{name}.attention.head_count` is 0");
        let n_kv_heads =
            metadata.size(&format!("{name}.attention.head_count_kv"))?.unwrap_or(n_heads);
        let d_head = metadata
            .size(&format!("{name}.attention.key_length"))?
            .unwrap_or(d_model / n_heads);
        let epsilon = match family {
            Family::Llama => format!("{name}.attention.layer_norm_rms_epsilon"),
            _ => format!("{name}.attention.layer_norm_epsilon"),
        };
        let epsilon = metadata
            .float(&epsilon)?
            .with_context(|| format!("the file has no `{epsilon}`"))?;
        let mut rotary = None;
        if family == Family::Llama {
            let turned =
                metadata.size(&format!("{name}.rope.dimension_count"))?.unwrap_or(d_head);
            ensure!(
                turned == d_head,
                "rotary positions of {turned} of a head's {d_head} columns aren't known here"
            );
            let base =
                metadata.float(&format!("{name}.rope.freq_base"))?.unwrap_or(10_000.0);
            let mut found = Rotary::new(base, pairs)?;
            match metadata.get(&format!("{name}.rope.scaling.type")) {
                None => {}
                Some(Value::Text(kind)) if kind == "none" => {}
                Some(Value::Text(kind)) if kind == "linear" => {
                    let factor =
                        metadata.float(&format!("{name}.rope.scaling.factor"))?;
                    found = found
                        .stretched(factor.context("linear scaling without a factor")?)?;
                }
                Some(other) => {
                    bail!("rotary positions scaled by {other:?} aren't known here")
                }
            }
            if tensors.has(FACTORS) {
                let factors = tensors.row(FACTORS, d_head / 2)?;
                found = slowed_by(found, factors.as_slice(), d_head)?;
            }
            rotary = Some(found);
        }
        Ok(Sizes {
            family,
            container: Container::Gguf,
            d_model,
            n_blocks: size("block_count")?,
            n_heads,
            n_kv_heads,
            d_head,
            d_hidden: size("feed_forward_length")?,
            epsilon,
            rotary,
            activation: match family {
                Family::Llama => Activation::Silu,
                Family::Gpt2 => Activation::GeluTanh,
                Family::Bert => Activation::Gelu,
            },
            tied: None,
        })
    }

    /// Reads the sizes from a `config.json`.
    ///
    /// # Errors
    /// The type of model isn't known, or a size is missing or impossible.
    pub fn of_config(config: &serde_json::Value) -> Result<Self> {
        let kind = config["model_type"].as_str().context("it has no `model_type`")?;
        let family = match kind {
            "llama" | "qwen2" => Family::Llama,
            "gpt2" => Family::Gpt2,
            "bert" => Family::Bert,
            other => return Err(unknown("model_type", other)),
        };
        let size = |key: &str| {
            let size = config[key].as_u64().and_then(|size| usize::try_from(size).ok());
            size.with_context(|| format!("it has no size `{key}`"))
        };
        let named = |gpt2: &'static str, other: &'static str| {
            size(if family == Family::Gpt2 { gpt2 } else { other })
        };
        let d_model = named("n_embd", "hidden_size")?;
        let n_heads = named("n_head", "num_attention_heads")?;
        ensure!(n_heads > 0, "the number of heads is 0");
        let or = |key: &str, otherwise: usize| {
            if config[key].is_null() { Ok(otherwise) } else { size(key) }
        };
        let d_head = or("head_dim", d_model / n_heads)?;
        let epsilon = match family {
            Family::Llama => "rms_norm_eps",
            Family::Gpt2 => "layer_norm_epsilon",
            Family::Bert => "layer_norm_eps",
        };
        let epsilon = config[epsilon]
            .as_f64()
            .with_context(|| format!("it has no number `{epsilon}`"))?;
        let activation = match family {
            Family::Gpt2 => "activation_function",
            _ => "hidden_act",
        };
        let activation = match config[activation].as_str() {
            Some("silu") => Activation::Silu,
            Some("gelu") => Activation::Gelu,
            Some("gelu_new" | "gelu_pytorch_tanh") => Activation::GeluTanh,
            other => bail!("its `{activation}` is {other:?}, which isn't known here"),
        };
        let no = serde_json::Value::Bool(false);
        for (key, known) in [
            ("use_sliding_window", &no),
            ("position_embedding_type", &"absolute".into()),
            ("scale_attn_by_inverse_layer_idx", &no),
            ("is_decoder", &no),
            ("add_cross_attention", &no),
        ] {
            let given = &config[key];
            ensure!(
                given.is_null() || given == known,
                "its `{key}` is {given}, and only {known} is known here"
            );
        }
        Ok(Sizes {
            family,
            container: Container::Safetensors,
            d_model,
            n_blocks: named("n_layer", "num_hidden_layers")?,
            n_heads,
            n_kv_heads: or("num_key_value_heads", n_heads)?,
            d_head,
            d_hidden: match family {
                Family::Gpt2 => or("n_inner", d_model.saturating_mul(4))?,
                _ => size("intermediate_size")?,
            },
            epsilon,
            rotary: match family {
                Family::Llama => Some(rotary_of_config(config)?),
                _ => None,
            },
            activation,
            tied: Some(
                config["tie_word_embeddings"]
                    .as_bool()
                    .unwrap_or(family != Family::Llama),
            ),
        })
    }

    /// What the container calls a tensor; `{}` is the number of its block.
    fn name(&self, name: Name, block: usize) -> String {
        let names = match (self.container, self.family) {
            (Container::Gguf, _) => name.in_gguf,
            (_, Family::Llama) => name.in_llama,
            (_, Family::Gpt2) => name.in_gpt2,
            (_, Family::Bert) => name.in_bert,
        };
        names.replace("{}", &block.to_string())
    }
}

fn unknown(what: &str, given: &str) -> anyhow::Error {
    anyhow::anyhow!("its {what} is `{given}`; known here are llama, qwen2, gpt2 and bert")
}

/// The scaled frequencies of Llama 3 in a GGUF file: what each pair's frequency is divided by.
const FACTORS: &str = "rope_freqs.weight";

/// Finds the rule behind the factors, since a file has only what it came to.
fn slowed_by(rotary: Rotary, factors: &[f32], d_head: usize) -> Result<Rotary> {
    let largest = factors.iter().copied().fold(1.0, f32::max).into();
    let turns = (1.0, 4.0); // in every model that was published so far
    // The factor of a pair that was mixed says how many turns it makes, and so how long the texts were.
    let mixed = factors.iter().enumerate().filter_map(|(pair, &factor)| {
        let factor = f64::from(factor);
        let kept = (1.0 / factor - 1.0 / largest) / (1.0 - 1.0 / largest);
        let turns = turns.0 + kept * (turns.1 - turns.0);
        let length = turns * std::f64::consts::TAU / rotary.angle(1, pair, d_head);
        (factor > 1.0 && factor < largest).then_some(length.round() as usize)
    });
    for length in mixed.chain((0..20).map(|power| 1 << power)) {
        let slowed = rotary.slowed(largest, turns, length)?;
        let fits = factors.iter().enumerate().all(|(pair, &factor)| {
            let found = rotary.angle(1, pair, d_head) / slowed.angle(1, pair, d_head);
            (found / f64::from(factor) - 1.0).abs() < 1e-4
        });
        if fits {
            return Ok(slowed);
        }
    }
    bail!("tensor `{FACTORS}` doesn't scale frequencies as Llama 3 does")
}

fn rotary_of_config(config: &serde_json::Value) -> Result<Rotary> {
    let parameters = &config["rope_parameters"];
    let scaling = if parameters.is_null() { &config["rope_scaling"] } else { parameters };
    let base = [&parameters["rope_theta"], &config["rope_theta"]];
    let base = base.into_iter().find_map(serde_json::Value::as_f64).unwrap_or(10_000.0);
    let rotary = Rotary::new(base, RotaryPairs::Halves)?;
    let number = |key: &str| {
        scaling[key]
            .as_f64()
            .with_context(|| format!("its rotary positions have no `{key}`"))
    };
    let kind = scaling["rope_type"].as_str().or(scaling["type"].as_str());
    Ok(match kind {
        None | Some("default") => rotary,
        Some("linear") => rotary.stretched(number("factor")?)?,
        Some("llama3") => {
            let turns = (number("low_freq_factor")?, number("high_freq_factor")?);
            let length = number("original_max_position_embeddings")? as usize;
            rotary.slowed(number("factor")?, turns, length)?
        }
        Some(other) => bail!("rotary positions of type `{other}` aren't known here"),
    })
}

/// What a tensor is called in each container and family; nothing where there is none.
#[derive(Clone, Copy)]
struct Name {
    in_gguf: &'static str,
    in_llama: &'static str,
    in_gpt2: &'static str,
    in_bert: &'static str,
}

macro_rules! names {
    ($($name:ident: $in_gguf:literal, $in_llama:literal, $in_gpt2:literal, $in_bert:literal;)*) => {
        $(const $name: Name = Name {
            in_gguf: $in_gguf, in_llama: $in_llama, in_gpt2: $in_gpt2, in_bert: $in_bert,
        };)*
    };
}

names! {
    EMBEDDING: "token_embd", "model.embed_tokens", "wte", "embeddings.word_embeddings";
    POSITIONS: "position_embd", "", "wpe", "embeddings.position_embeddings";
    TOKEN_TYPES: "token_types", "", "", "embeddings.token_type_embeddings";
    EMBEDDING_NORM: "token_embd_norm", "", "", "embeddings.LayerNorm";
    QUERIES: "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", "", "encoder.layer.{}.attention.self.query";
    KEYS: "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", "", "encoder.layer.{}.attention.self.key";
    VALUES: "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", "", "encoder.layer.{}.attention.self.value";
    ALL_THREE: "blk.{}.attn_qkv", "", "h.{}.attn.c_attn", "";
    OUTPUT: "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", "h.{}.attn.c_proj", "encoder.layer.{}.attention.output.dense";
    GATE: "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj", "", "";
    UP: "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj", "h.{}.mlp.c_fc", "encoder.layer.{}.intermediate.dense";
    DOWN: "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj", "h.{}.mlp.c_proj", "encoder.layer.{}.output.dense";
    NORM_BEFORE_ATTENTION: "blk.{}.attn_norm", "model.layers.{}.input_layernorm", "h.{}.ln_1", "";
    NORM_BEFORE_MLP: "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", "h.{}.ln_2", "";
    NORM_AFTER_ATTENTION: "blk.{}.attn_output_norm", "", "", "encoder.layer.{}.attention.output.LayerNorm";
    NORM_AFTER_MLP: "blk.{}.layer_output_norm", "", "", "encoder.layer.{}.output.LayerNorm";
    NORM_AT_THE_END: "output_norm", "model.norm", "ln_f", "";
}

/// What files carry along that no token's vector depends on here: buffers, and heads for other tasks than the next token.
const NOT_OURS: [&str; 5] = [
    "attn.bias",
    "attn.masked_bias",
    "position_ids",
    "rotary_emb.inv_freq",
    "pooler.dense",
];

/// Takes the tensors of a model out of a file, and puts the model together.
pub struct Builder {
    pub sizes: Sizes,
    pub tensors: Tensors,
    /// What stands before every name, as `transformer.` in some files of GPT-2.
    prefix: &'static str,
}

impl Builder {
    pub fn new(sizes: Sizes, tensors: Tensors) -> Self {
        let embedding = sizes.name(EMBEDDING, 0) + ".weight";
        let prefixes = ["", "transformer.", "bert."].into_iter();
        let prefix =
            prefixes.clone().find(|prefix| tensors.has(&format!("{prefix}{embedding}")));
        Builder { sizes, tensors, prefix: prefix.unwrap_or_default() }
    }

    /// Builds the model. `progress` is told how many blocks there are, and how many are done.
    ///
    /// # Errors
    /// A tensor is missing, of another shape, not finite, or not one of the model's; or the sizes don't fit one another.
    pub fn build(mut self, mut progress: impl FnMut(usize, usize)) -> Result<Network> {
        let (family, d_model) = (self.sizes.family, self.sizes.d_model);
        let embedding = self.whole(EMBEDDING)?;
        let mut positions = None;
        if family != Family::Llama {
            positions = Some(self.whole(POSITIONS)?);
        }
        let mut embedding_norm = None;
        if family == Family::Bert {
            // Every text is of the first type here, so that type is part of each position.
            let types = self.whole(TOKEN_TYPES)?;
            if let Some(positions) = &mut positions {
                positions
                    .column_iter_mut()
                    .for_each(|mut column| column += types.column(0));
            }
            embedding_norm = Some(self.norm(EMBEDDING_NORM, 0)?);
        }
        let mut blocks = vec![];
        for number in 0..self.sizes.n_blocks {
            progress(number, self.sizes.n_blocks);
            let block = self.block(number);
            blocks.push(block.with_context(|| format!("in block {number}"))?);
        }
        progress(self.sizes.n_blocks, self.sizes.n_blocks);
        let mut norm = None;
        if family != Family::Bert {
            norm = Some(self.norm(NORM_AT_THE_END, 0)?);
        }
        let vocabulary = embedding.ncols();
        let mut unembedding = None;
        let name = match self.sizes.container {
            Container::Gguf => "output.weight",
            Container::Safetensors => "lm_head.weight", // without a prefix
        };
        let has = self.tensors.has(name) || self.sizes.tied == Some(false);
        if family != Family::Bert && has {
            unembedding = Some(self.tensors.matrix(name, d_model, vocabulary)?);
        }
        let left = self
            .tensors
            .left()
            .find(|name| !NOT_OURS.iter().any(|end| name.contains(end)));
        if let Some(left) = left {
            bail!(
                "tensor `{left}` isn't one of a model of this kind: it would be ignored"
            );
        }
        Ok(Network {
            family,
            embedding,
            positions,
            embedding_norm,
            blocks,
            norm,
            unembedding,
            engine: Flash::new(),
        })
    }

    fn name(&self, name: Name, block: usize, end: &str) -> String {
        format!("{}{}.{end}", self.prefix, self.sizes.name(name, block))
    }

    /// A table of vectors, d_model wide, of as many as there are.
    fn whole(&mut self, name: Name) -> Result<DMatrix<f32>> {
        let name = self.name(name, 0, "weight");
        let columns = self.tensors.shape(&name)?.get(1).copied().unwrap_or(1);
        self.tensors.matrix(&name, self.sizes.d_model, columns)
    }

    fn matrix(
        &mut self,
        name: Name,
        block: usize,
        d_in: usize,
        d_out: usize,
    ) -> Result<DMatrix<f32>> {
        let name = self.name(name, block, "weight");
        // GPT-2's own files have (d_in, d_out), whose rows are ours.
        if self.sizes.family == Family::Gpt2
            && self.sizes.container == Container::Safetensors
        {
            return Ok(self.tensors.matrix(&name, d_out, d_in)?.transpose());
        }
        self.tensors.matrix(&name, d_in, d_out)
    }

    /// The bias, or none where the file has none.
    fn bias(
        &mut self,
        name: Name,
        block: usize,
        width: usize,
    ) -> Result<RowDVector<f32>> {
        let name = self.name(name, block, "bias");
        if self.tensors.has(&name) {
            self.tensors.row(&name, width)
        } else {
            Ok(RowDVector::zeros(0))
        }
    }

    fn linear(
        &mut self,
        name: Name,
        block: usize,
        d_in: usize,
        d_out: usize,
    ) -> Result<Linear> {
        let w = self.matrix(name, block, d_in, d_out)?;
        Ok(Linear { w, b: self.bias(name, block, d_out)? })
    }

    fn norm(&mut self, name: Name, block: usize) -> Result<Norm> {
        let (weight, bias) =
            (self.name(name, block, "weight"), self.name(name, block, "bias"));
        let gain = self.tensors.row(&weight, self.sizes.d_model)?;
        let rms = RmsNorm { gain, epsilon: self.sizes.epsilon };
        Ok(match self.sizes.family {
            Family::Llama => Norm::Rms(rms),
            _ => Norm::Layer(LayerNorm {
                rms,
                bias: self.tensors.row(&bias, self.sizes.d_model)?,
            }),
        })
    }

    fn block(&mut self, block: usize) -> Result<Block> {
        let Sizes { family, d_model, d_hidden, activation, .. } = self.sizes;
        let (before_attention, before_mlp) = match family {
            Family::Bert => (NORM_AFTER_ATTENTION, NORM_AFTER_MLP),
            _ => (NORM_BEFORE_ATTENTION, NORM_BEFORE_MLP),
        };
        let gate = match family {
            Family::Llama => Some(self.linear(GATE, block, d_model, d_hidden)?),
            _ => None,
        };
        Ok(Block {
            attention_norm: self.norm(before_attention, block)?,
            attention: self.attention(block)?,
            mlp_norm: self.norm(before_mlp, block)?,
            mlp: Feed {
                gate,
                up: self.linear(UP, block, d_model, d_hidden)?,
                down: self.linear(DOWN, block, d_hidden, d_model)?,
                activation,
            },
        })
    }

    fn attention(&mut self, block: usize) -> Result<MultiHeadAttention<f32>> {
        let Sizes { family, d_model, n_heads, n_kv_heads, d_head, rotary, .. } =
            self.sizes;
        let width =
            |heads: usize| heads.checked_mul(d_head).context("the heads are too wide");
        let (d_q, d_k) = (width(n_heads)?, width(n_kv_heads)?);
        let [q, k, v] = if family == Family::Gpt2 {
            // The three side by side.
            let Linear { w, b } =
                self.linear(ALL_THREE, block, d_model, d_q.saturating_mul(3))?;
            let part = |first: usize, width: usize| Linear {
                w: w.columns(first, width).into_owned(),
                b: b.columns(first.min(b.len()), width.min(b.len())).into_owned(),
            };
            [part(0, d_q), part(d_q, d_k), part(d_q + d_k, d_k)]
        } else {
            [
                self.linear(QUERIES, block, d_model, d_q)?,
                self.linear(KEYS, block, d_model, d_k)?,
                self.linear(VALUES, block, d_model, d_k)?,
            ]
        };
        let o = self.linear(OUTPUT, block, d_q, d_model)?;
        let parameters = Parameters {
            w_q: q.w,
            w_k: k.w,
            w_v: v.w,
            w_o: o.w,
            b_q: q.b,
            b_k: k.b,
            b_v: v.b,
            b_o: o.b,
        };
        let layer =
            MultiHeadAttention::from_grouped_parameters(parameters, n_heads, n_kv_heads)?;
        Ok(match rotary {
            Some(rotary) => layer.with_rotary(rotary)?,
            None => layer,
        })
    }
}
