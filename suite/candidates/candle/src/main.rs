//! What candle offers for attention on a CPU, as a program that speaks the suite's
//! protocol.
//!
//! ```sh
//! candle-candidate           # matmul and softmax, as candle's models do it
//! candle-candidate flash     # the fused attention of candle-nn for CPUs
//! candle-candidate mistral   # windows and their cache as in models/mistral.rs
//! ```
//!
//! candle has no single function for attention on a CPU: each of its models has its own
//! lines. The lines here are those of candle-transformers 0.11.1, with the file named
//! beside them; what comes from candle-core and candle-nn is called. Models compute
//! attention in 32 bits (models/llama.rs), so f64 is unsupported. No model of candle
//! returns a log-sum-exp or merges partial results. Padding before a prompt is
//! unsupported, too: the models make no mask for it, and where one takes such a mask
//! (models/qwen2.rs), it replaces the causal one.
//!
//! Behaviour that leads to failed cases:
//! - Hidden scores become −∞ before softmax, so a query that may see nothing gets NaN,
//!   and a hidden NaN is multiplied by 0. The fused attention skips hidden keys, and has
//!   neither fault.
//! - `RotatingKvCache` has room for as many keys as the window has, and stores a chunk
//!   before the chunk attends, so the first queries of a chunk miss keys. A chunk as long
//!   as the window doesn't see the cache at all. Its mask hides j with j + context < i,
//!   so a chunk longer than the window sees one key too many.
//! - models/mistral.rs hides j with j + sliding_window < i, one key more than the w − 1
//!   before the token. It applies the window to the keys of the chunk alone, makes no
//!   mask for a single token, and never drops keys of the cache.
//! - Angles of rotary positions are products in 32 bits, which shows at positions of a
//!   million. A model's table is as long as its `max_position_embeddings`.

use candle_core::{DType, Device, IndexOp, Result, Tensor, Var, D};
use candle_nn::attention::{flash_attn, flash_attn_varlen_cpu, AttnMask};
use candle_nn::kv_cache::{KvCache, RotatingKvCache};
use serde_json::{json, Map, Value};
use std::io::{BufRead, Write};

const CPU: Device = Device::Cpu;

/// Which of candle's ways to attention is asked.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Models,
    Flash,
    Mistral,
}

/// Says that candle doesn't offer what a case asks for.
fn unsupported<T>(why: &str) -> Result<T> {
    candle_core::bail!("unsupported: {why}")
}

fn main() {
    let way = match std::env::args().nth(1).as_deref() {
        Some("flash") => Way::Flash,
        Some("mistral") => Way::Mistral,
        _ => Way::Models,
    };
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let reply = match serde_json::from_str::<Value>(&line) {
            Ok(question) => reply(way, &question),
            Err(error) => json!({ "error": error.to_string() }),
        };
        println!("{reply}");
        std::io::stdout().flush().expect("standard output is open");
    }
}

fn reply(way: Way, question: &Value) -> Value {
    let dtype = match question["precision"].as_str() {
        Some("f32") => DType::F32,
        Some("bf16") => DType::BF16,
        Some("f16") => DType::F16,
        _ => return json!({ "unsupported": "candle's models compute attention in f32" }),
    };
    let inputs = Inputs { values: &question["inputs"], dtype };
    match answer(way, question["operation"].as_str().unwrap_or(""), &inputs) {
        Ok(results) => {
            let named: Result<Map<String, Value>> = results
                .into_iter()
                .map(|(name, x)| Ok((name.to_string(), nested(&x)?)))
                .collect();
            named.map_or_else(
                |error| json!({ "error": error.to_string() }),
                |results| json!({ "results": results }),
            )
        }
        Err(error) => {
            let text = error.to_string();
            match text.split_once("unsupported: ") {
                Some((_, why)) => json!({ "unsupported": why.lines().next() }),
                None => json!({ "error": text.lines().next() }),
            }
        }
    }
}

fn answer(
    way: Way,
    operation: &str,
    inputs: &Inputs,
) -> Result<Vec<(&'static str, Tensor)>> {
    // What a way has no code of its own for belongs to the first report.
    let own = match way {
        Way::Models => true,
        Way::Flash => ["attention", "multi_head", "decode"].contains(&operation),
        Way::Mistral => ["attention", "decode"].contains(&operation),
    };
    if !own {
        return unsupported("asked of candle's models, and not here");
    }
    if let Some(name) = inputs.stranger() {
        return unsupported(&format!("candle's models have no `{name}`"));
    }
    let output = match operation {
        "attention" => attention(way, inputs)?,
        "attention_gradients" => return gradients(inputs),
        "attention_dropout" => return dropout(inputs),
        "multi_head" => multi_head(way, inputs)?,
        "rotate" => {
            let x = inputs.array("x")?;
            let positions: Vec<u32> = inputs.values["positions"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|p| p.as_f64().unwrap_or(0.0) as u32)
                .collect();
            let base = inputs.values["base"].as_f64().unwrap_or(10000.0);
            rotate(&x.unsqueeze(0)?, &positions, inputs.text("pairs"), base as f32)?
                .squeeze(0)?
        }
        "decode" => decode(way, inputs)?,
        "alibi_slopes" => {
            Tensor::new(alibi_slopes(inputs.size("heads").unwrap_or(1)), &CPU)?
        }
        "linear_attention" => linear_attention(inputs)?,
        "latent_attention" => latent_attention(inputs)?,
        _ => return unsupported("candle doesn't offer it"),
    };
    Ok(vec![("output", output)])
}

/// The inputs that are understood here. Others are unsupported.
const KNOWN: &str = "q k v causal mask window scale slopes softcap d_output dropout \
    training repeats x w_q w_k w_v w_o heads positions pairs base chunks rotary latent \
    w_uk w_uv k_rope outputs log_sum_exps";

/// The inputs of a case, and the precision that arrays are wanted in.
struct Inputs<'a> {
    values: &'a Value,
    dtype: DType,
}

impl Inputs<'_> {
    fn array(&self, name: &str) -> Result<Tensor> {
        array(&self.values[name], self.dtype)
    }
    fn size(&self, name: &str) -> Option<usize> {
        self.values[name].as_u64().map(|n| n as usize)
    }
    fn flag(&self, name: &str) -> bool {
        self.values[name].as_bool().unwrap_or(false)
    }
    fn text(&self, name: &str) -> &str {
        self.values[name].as_str().unwrap_or("")
    }
    fn has(&self, name: &str) -> bool {
        !self.values[name].is_null()
    }
    fn stranger(&self) -> Option<&str> {
        let names = self.values.as_object()?.keys();
        names
            .map(String::as_str)
            .find(|name| !KNOWN.split(' ').any(|known| known == *name))
    }
}

/// A tensor from nested lists, with booleans as 0 and 1.
fn array(value: &Value, dtype: DType) -> Result<Tensor> {
    fn flatten(value: &Value, numbers: &mut Vec<f64>) {
        match value {
            Value::Array(rows) => rows.iter().for_each(|row| flatten(row, numbers)),
            Value::String(text) => numbers.push(text.parse().unwrap_or(f64::NAN)),
            Value::Bool(flag) => numbers.push(f64::from(u8::from(*flag))),
            other => numbers.push(other.as_f64().unwrap_or(f64::NAN)),
        }
    }
    let (mut shape, mut numbers, mut inner) = (Vec::new(), Vec::new(), value);
    while let Value::Array(rows) = inner {
        shape.push(rows.len());
        inner = rows.first().unwrap_or(&Value::Null);
    }
    flatten(value, &mut numbers);
    Tensor::from_vec(numbers, shape, &CPU)?.to_dtype(dtype)
}

fn nested(x: &Tensor) -> Result<Value> {
    if x.rank() > 0 {
        return (0..x.dim(0)?)
            .map(|i| nested(&x.i(i)?))
            .collect::<Result<Vec<_>>>()
            .map(Value::Array);
    }
    let number = x.to_dtype(DType::F64)?.to_scalar::<f64>()?;
    Ok(match number {
        n if n.is_nan() => json!("NaN"),
        n if n.is_infinite() => json!(if n > 0.0 { "inf" } else { "-inf" }),
        n => json!(n),
    })
}

/// `repeat_kv` of candle-transformers/src/utils.rs, for (batch, heads, n, d).
fn repeat_kv(x: Tensor, times: usize) -> Result<Tensor> {
    let (batch, heads, n, d) = x.dims4()?;
    Tensor::cat(&vec![&x; times], 2)?.reshape((batch, heads * times, n, d))
}

/// `build_causal_mask` of candle-transformers/src/utils.rs: 1 hides.
fn causal_mask(n: usize, offset: usize) -> Result<Tensor> {
    let mask: Vec<u8> = (0..n)
        .flat_map(|i| (0..offset + n).map(move |j| u8::from(j > offset + i)))
        .collect();
    Tensor::from_slice(&mask, (n, offset + n), &CPU)
}

/// `build_additive_causal_mask` of candle-transformers/src/utils.rs: "a sliding window of
/// `sw` preceding keys".
fn window_mask(n: usize, offset: usize, preceding: usize) -> Result<Tensor> {
    let hides =
        |i: usize, j: usize| u8::from(j > i + offset || j + preceding < i + offset);
    let mask: Vec<u8> =
        (0..n).flat_map(|i| (0..offset + n).map(move |j| hides(i, j))).collect();
    Tensor::from_slice(&mask, (n, offset + n), &CPU)
}

/// `prepare_decoder_attention_mask` of models/mistral.rs: the window is applied to the
/// chunk, and not to the cache.
fn mistral_mask(n: usize, offset: usize, window: usize) -> Result<Tensor> {
    let hides = |i: usize, j: usize| u8::from(i < j || j + window < i);
    let mask: Vec<u8> = (0..n).flat_map(|i| (0..n).map(move |j| hides(i, j))).collect();
    let mask = Tensor::from_slice(&mask, (n, n), &CPU)?;
    Tensor::cat(&[&Tensor::zeros((n, offset), DType::U8, &CPU)?, &mask], 1)
}

/// `masked_fill` of models/llama.rs.
fn masked_fill(scores: &Tensor, hidden: &Tensor) -> Result<Tensor> {
    let hidden = hidden.broadcast_as(scores.shape())?;
    hidden.where_cond(
        &Tensor::new(f32::NEG_INFINITY, &CPU)?.broadcast_as(scores.shape())?,
        scores,
    )
}

/// The middle of `CausalSelfAttention::forward` in models/llama.rs, in 32 bits, with the
/// soft cap of models/gemma2.rs. `hidden` is 1 where a key is hidden.
fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    hidden: Option<&Tensor>,
    bias: Option<&Tensor>,
    softcap: Option<f64>,
    scale: f64,
) -> Result<Tensor> {
    let [q, k, v] = [q, k, v].map(|x| x.to_dtype(DType::F32));
    let (q, k, v) = (q?, k?, v?);
    let groups = q.dim(1)? / k.dim(1)?;
    let (k, v) = (repeat_kv(k, groups)?, repeat_kv(v, groups)?);
    let mut scores = (q.contiguous()?.matmul(&k.t()?.contiguous()?)? * scale)?;
    if let Some(cap) = softcap {
        scores = ((scores / cap)?.tanh()? * cap)?;
    }
    if let Some(bias) = bias {
        scores = scores.broadcast_add(bias)?;
    }
    if let Some(hidden) = hidden {
        scores = masked_fill(&scores, hidden)?;
    }
    // `softmax_last_dim` of the models has no backward pass; `softmax` is the same
    // function with one.
    let weights = if scores.track_op() {
        candle_nn::ops::softmax(&scores, D::Minus1)?
    } else {
        candle_nn::ops::softmax_last_dim(&scores)?
    };
    weights.matmul(&v.contiguous()?)
}

fn hidden_of(
    way: Way,
    inputs: &Inputs,
    n_q: usize,
    n_k: usize,
) -> Result<Option<Tensor>> {
    let mask = match inputs.has("mask") {
        true => Some(array(&inputs.values["mask"], DType::F32)?.eq(0f32)?),
        false => None,
    };
    if !inputs.flag("causal") {
        return if inputs.has("window") {
            unsupported("a window comes with a causal mask")
        } else {
            Ok(mask)
        };
    }
    let Some(offset) = n_k.checked_sub(n_q) else {
        return unsupported("more queries than keys");
    };
    let causal = match (inputs.size("window"), way) {
        (Some(window), Way::Mistral) => mistral_mask(n_q, offset, window)?,
        (Some(window), _) => window_mask(n_q, offset, window - 1)?,
        (None, _) => causal_mask(n_q, offset)?,
    };
    Ok(Some(match mask {
        Some(mask) => mask.maximum(&causal)?,
        None => causal,
    }))
}

/// The bias of models/mpt.rs, `build_alibi_bias`: for a causal model it is counted from
/// the last key, which softmax allows.
fn alibi_bias(inputs: &Inputs, n_q: usize, n_k: usize) -> Result<Option<Tensor>> {
    if !inputs.has("slopes") {
        return Ok(None);
    }
    let slopes = array(&inputs.values["slopes"], DType::F32)?.reshape((1, (), 1, 1))?;
    let from_last = Tensor::arange(1 - n_k as i64, 1, &CPU)?.to_dtype(DType::F32)?;
    let distance = match (inputs.flag("causal"), n_q == n_k) {
        (true, _) => from_last.reshape((1, 1, 1, n_k))?,
        (false, true) => from_last
            .reshape((1, n_k))?
            .broadcast_sub(&from_last.reshape((n_k, 1))?)?
            .abs()?
            .neg()?
            .reshape((1, 1, n_k, n_k))?,
        _ => return unsupported("its bias is square unless it is causal"),
    };
    distance.broadcast_mul(&slopes).map(Some)
}

/// The cap of models/gemma2.rs and models/gemma3.rs, which have no slopes.
fn softcap_of(way: Way, inputs: &Inputs) -> Result<Option<f64>> {
    match inputs.values["softcap"].as_f64() {
        Some(_) if way == Way::Mistral => {
            unsupported("models/mistral.rs has no soft cap")
        }
        Some(_) if inputs.has("slopes") => {
            unsupported("a soft cap and slopes aren't in one model")
        }
        softcap => Ok(softcap),
    }
}

fn attention(way: Way, inputs: &Inputs) -> Result<Tensor> {
    let [q, k, v] = ["q", "k", "v"].map(|name| inputs.array(name)?.unsqueeze(0));
    let (q, k, v) = (q?, k?, v?);
    if way == Way::Flash {
        return fused(inputs, &q, &k, &v)?.squeeze(0);
    }
    let (n_q, n_k) = (q.dim(2)?, k.dim(2)?);
    let scale =
        inputs.values["scale"].as_f64().unwrap_or(1.0 / (q.dim(3)? as f64).sqrt());
    let hidden = hidden_of(way, inputs, n_q, n_k)?;
    let bias = alibi_bias(inputs, n_q, n_k)?;
    let softcap = softcap_of(way, inputs)?;
    attend(&q, &k, &v, hidden.as_ref(), bias.as_ref(), softcap, scale)?.squeeze(0)
}

/// candle_nn::attention::flash_attn, and its variable-length form where a window or
/// slopes are asked for.
fn fused(inputs: &Inputs, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (_, _, n_q, d) = q.dims4()?;
    let n_k = k.dim(2)?;
    if v.dim(3)? != d {
        return unsupported("the fused attention has values as wide as keys");
    }
    let causal = inputs.flag("causal");
    let scale = inputs.values["scale"].as_f64().unwrap_or(1.0 / (d as f64).sqrt()) as f32;
    if causal && (inputs.has("mask") || n_k < n_q) {
        return unsupported("the fused attention takes a mask or a causal mask, and no more queries than keys");
    }
    let [q, k, v] = [q, k, v].map(|x| x.transpose(1, 2)?.contiguous());
    let (q, k, v) = (q?, k?, v?);
    if inputs.has("window") || inputs.has("slopes") {
        if inputs.has("mask") || inputs.has("softcap") || inputs.dtype == DType::BF16 {
            return unsupported(
                "the variable-length form takes no mask, no soft cap and no bf16",
            );
        }
        let slopes = if inputs.has("slopes") {
            Some(array(&inputs.values["slopes"], DType::F32)?)
        } else {
            None
        };
        let (lengths_q, lengths_k) =
            (Tensor::new(&[n_q as u32], &CPU)?, Tensor::new(&[n_k as u32], &CPU)?);
        let left = inputs.size("window").map(|window| window - 1);
        let (q, k, v) = (q.squeeze(0)?, k.squeeze(0)?, v.squeeze(0)?);
        let right = left.map(|_| 0);
        let y = flash_attn_varlen_cpu(
            &q,
            &k,
            &v,
            slopes.as_ref(),
            &lengths_q,
            &lengths_k,
            n_q,
            n_k,
            scale,
            causal,
            left,
            right,
        )?;
        return y.unsqueeze(0)?.transpose(1, 2);
    }
    let mask = if inputs.has("mask") {
        let hidden = array(&inputs.values["mask"], DType::F32)?.eq(0f32)?;
        let zeros = Tensor::zeros(hidden.shape(), DType::F32, &CPU)?;
        AttnMask::Mask(masked_fill(&zeros, &hidden)?.to_dtype(inputs.dtype)?)
    } else if causal {
        AttnMask::causal_with_offset(n_k - n_q)
    } else {
        AttnMask::None
    };
    let cap = inputs.values["softcap"].as_f64().map(|cap| cap as f32);
    match inputs.dtype {
        DType::F32 => flash_attn::<f32>(&q, &k, &v, scale, mask, None, cap),
        DType::BF16 => flash_attn::<half::bf16>(&q, &k, &v, scale, mask, None, cap),
        _ => flash_attn::<half::f16>(&q, &k, &v, scale, mask, None, cap),
    }
}

fn gradients(inputs: &Inputs) -> Result<Vec<(&'static str, Tensor)>> {
    let [q, k, v] =
        ["q", "k", "v"].map(|name| Var::from_tensor(&inputs.array(name)?.unsqueeze(0)?));
    let (q, k, v) = (q?, k?, v?);
    let (n_q, n_k) = (q.dim(2)?, k.dim(2)?);
    let scale =
        inputs.values["scale"].as_f64().unwrap_or(1.0 / (q.dim(3)? as f64).sqrt());
    let hidden = hidden_of(Way::Models, inputs, n_q, n_k)?;
    let bias = alibi_bias(inputs, n_q, n_k)?;
    let softcap = softcap_of(Way::Models, inputs)?;
    let output = attend(&q, &k, &v, hidden.as_ref(), bias.as_ref(), softcap, scale)?;
    let d_output = array(&inputs.values["d_output"], DType::F32)?.unsqueeze(0)?;
    let gradients = (&output * d_output)?.sum_all()?.backward()?;
    let of = |x: &Var| {
        gradients.get(x).map_or_else(|| x.zeros_like(), |g| Ok(g.clone()))?.squeeze(0)
    };
    Ok(vec![
        ("output", output.detach().squeeze(0)?),
        ("d_q", of(&q)?),
        ("d_k", of(&k)?),
        ("d_v", of(&v)?),
    ])
}

/// `candle_nn::Dropout` on the weights, where GPT-2 and BERT have it.
fn dropout(inputs: &Inputs) -> Result<Vec<(&'static str, Tensor)>> {
    if inputs.has("slopes") || inputs.has("softcap") {
        return unsupported("models with dropout have neither slopes nor a soft cap");
    }
    let [q, k, v] =
        ["q", "k", "v"].map(|name| array(&inputs.values[name], DType::F32)?.unsqueeze(0));
    let (q, k, v) = (q?, k?, v?);
    let scale =
        inputs.values["scale"].as_f64().unwrap_or(1.0 / (q.dim(3)? as f64).sqrt());
    let (groups, train) = (q.dim(1)? / k.dim(1)?, inputs.flag("training"));
    let (k, v) = (repeat_kv(k, groups)?, repeat_kv(v, groups)?);
    let mut scores = (q.matmul(&k.t()?.contiguous()?)? * scale)?;
    if let Some(hidden) = hidden_of(Way::Models, inputs, q.dim(2)?, k.dim(2)?)? {
        scores = masked_fill(&scores, &hidden)?;
    }
    let repeats = if train { inputs.size("repeats").unwrap_or(1) } else { 1 };
    let weights =
        candle_nn::ops::softmax_last_dim(&scores)?.repeat((repeats, 1, 1, 1))?;
    let dropout =
        candle_nn::Dropout::new(inputs.values["dropout"].as_f64().unwrap_or(0.0) as f32);
    let outputs =
        dropout.forward(&weights, train)?.matmul(&v.repeat((repeats, 1, 1, 1))?)?;
    let flat = outputs.flatten_from(1)?.to_dtype(DType::F64)?;
    let products = (flat.t()?.matmul(&flat)? / repeats as f64)?;
    Ok(vec![("output", outputs.mean(0)?), ("products", products)])
}

/// The reshapes of `CausalSelfAttention::forward` in models/llama.rs.
fn multi_head(way: Way, inputs: &Inputs) -> Result<Tensor> {
    let x = inputs.array("x")?;
    let (n, heads) = (x.dim(0)?, inputs.size("heads").unwrap_or(1));
    let split = |name: &str| {
        x.matmul(&inputs.array(name)?)?
            .reshape((1, n, heads, ()))?
            .transpose(1, 2)?
            .contiguous()
    };
    let (q, k, v) = (split("w_q")?, split("w_k")?, split("w_v")?);
    let y = if way == Way::Flash {
        fused(inputs, &q, &k, &v)?
    } else {
        let hidden = if inputs.flag("causal") { Some(causal_mask(n, 0)?) } else { None };
        attend(&q, &k, &v, hidden.as_ref(), None, None, 1.0 / (q.dim(3)? as f64).sqrt())?
    };
    y.to_dtype(inputs.dtype)?
        .transpose(1, 2)?
        .reshape((n, ()))?
        .matmul(&inputs.array("w_o")?)
}

/// candle_nn::rotary_emb with the tables of `Cache::new` in models/llama.rs: angles in 32
/// bits, then the tensor's type.
fn rotate(x: &Tensor, positions: &[u32], pairs: &str, base: f32) -> Result<Tensor> {
    let d = x.dim(D::Minus1)?;
    let theta: Vec<f32> =
        (0..d).step_by(2).map(|i| 1f32 / base.powf(i as f32 / d as f32)).collect();
    let theta = Tensor::new(theta, &CPU)?.reshape((1, d / 2))?;
    let angles = Tensor::new(positions, &CPU)?
        .to_dtype(DType::F32)?
        .reshape((positions.len(), 1))?
        .matmul(&theta)?;
    let (cos, sin) =
        (angles.cos()?.to_dtype(x.dtype())?, angles.sin()?.to_dtype(x.dtype())?);
    let x = x.unsqueeze(0)?.contiguous()?;
    match pairs {
        "neighbours" => candle_nn::rotary_emb::rope_i(&x, &cos, &sin)?.squeeze(0),
        _ => candle_nn::rotary_emb::rope(&x, &cos, &sin)?.squeeze(0),
    }
}

/// The slopes of models/mpt.rs, `build_alibi_bias`.
fn alibi_slopes(heads: usize) -> Vec<f32> {
    let above = heads.next_power_of_two();
    let slopes: Vec<f32> =
        (1..=above).map(|v| 1f32 / 2f32.powf((v * 8) as f32 / above as f32)).collect();
    if above == heads {
        return slopes;
    }
    slopes
        .iter()
        .skip(1)
        .step_by(2)
        .chain(slopes.iter().step_by(2))
        .take(heads)
        .copied()
        .collect()
}

/// A cache of candle-nn: `KvCache` without a window, `RotatingKvCache` with one, as in
/// models/mimi/transformer.rs; models/mistral.rs keeps all keys.
fn decode(way: Way, inputs: &Inputs) -> Result<Tensor> {
    let window = inputs.size("window");
    let chunks = inputs.values["chunks"].as_array().cloned().unwrap_or_default();
    let (mut plain, mut rotating) =
        (KvCache::new(2, 4096), RotatingKvCache::new(2, window.unwrap_or(1)));
    let (mut outputs, mut start) = (Vec::new(), 0);
    for chunk in &chunks {
        let chunk = Inputs { values: chunk, dtype: inputs.dtype };
        let (mut q, mut k, v) =
            (chunk.array("q")?, chunk.array("k")?, chunk.array("v")?.unsqueeze(0)?);
        let n = q.dim(1)?;
        if inputs.has("rotary") {
            let positions: Vec<u32> = (start as u32..(start + n) as u32).collect();
            q = rotate(&q, &positions, inputs.text("rotary"), 10000.0)?;
            k = rotate(&k, &positions, inputs.text("rotary"), 10000.0)?;
        }
        let (q, k) = (q.unsqueeze(0)?, k.unsqueeze(0)?.contiguous()?);
        let scale = 1.0 / (q.dim(3)? as f64).sqrt();
        let output = match (window, way) {
            (Some(_), Way::Flash) => {
                return unsupported("the fused attention has no cache with a window")
            }
            (None, Way::Flash) => {
                let (k, v) = plain.append(&k, &v.contiguous()?)?;
                let causal = json!({ "causal": true });
                fused(&Inputs { values: &causal, dtype: inputs.dtype }, &q, &k, &v)?
            }
            (Some(_), Way::Models) => {
                let hidden = rotating.attn_mask(n, &CPU)?;
                let (k, v) = rotating.append(&k, &v.contiguous()?)?;
                attend(&q, &k, &v, hidden.as_ref(), None, None, scale)?
            }
            (_, _) => {
                let (k, v) = plain.append(&k, &v.contiguous()?)?;
                let hidden = mistral_mask(n, start, window.unwrap_or(n + 1))?;
                // The models make no mask for a single token.
                attend(&q, &k, &v, (n > 1).then_some(&hidden), None, None, scale)?
            }
        };
        start += n;
        outputs.push(output.squeeze(0)?);
    }
    Tensor::cat(&outputs, 1)
}

/// `LinearAttention::forward` of models/based.rs for a whole text, behind its feature map.
fn linear_attention(inputs: &Inputs) -> Result<Tensor> {
    let [q, k, v] = ["q", "k", "v"].map(|name| inputs.array(name)?.unsqueeze(0));
    let (q, k, v) = (q?, k?, v?);
    let l = q.dim(2)?;
    if q.dims() != k.dims() || inputs.values["causal"] == false {
        return unsupported(
            "models/based.rs is causal, with queries and keys of one shape",
        );
    }
    let eps = 1e-12;
    let aqk = q.matmul(&k.transpose(D::Minus1, D::Minus2)?)?;
    let tril = Tensor::tril2(l, aqk.dtype(), aqk.device())?;
    let aqk = aqk.broadcast_mul(&tril)?.matmul(&v)?;
    let z = (1f64 / (q.mul(&k.cumsum(2)?)?.sum(D::Minus1)? + eps)?)?;
    aqk.broadcast_mul(&z.unsqueeze(D::Minus1)?)?.squeeze(0)
}

/// `Attention::forward` of models/deepseek2.rs. `kv_b_proj` holds the matrices for keys
/// and values of all heads.
fn latent_attention(inputs: &Inputs) -> Result<Tensor> {
    let (q, latent) = (inputs.array("q")?.unsqueeze(0)?, inputs.array("latent")?);
    let (w_uk, w_uv) = (inputs.array("w_uk")?, inputs.array("w_uv")?);
    let (heads, d_c, d_nope) = w_uk.dims3()?;
    let (n_q, n_k, d_v) = (q.dim(2)?, latent.dim(0)?, w_uv.dim(2)?);
    let d_rope = q.dim(3)? - d_nope;
    let kv_b_proj = Tensor::cat(&[w_uk, w_uv], 2)?
        .transpose(0, 1)?
        .contiguous()?
        .reshape((d_c, ()))?;
    let kv = latent.matmul(&kv_b_proj)?.reshape((1, n_k, heads, d_nope + d_v))?;
    let kv = kv.transpose(1, 2)?;
    let k_nope = kv.narrow(D::Minus1, 0, d_nope)?;
    let v = kv.narrow(D::Minus1, d_nope, d_v)?;
    let q_nope = q.narrow(D::Minus1, 0, d_nope)?;
    let mut q_pe = q.narrow(D::Minus1, d_nope, d_rope)?;
    let mut k_pe = inputs.array("k_rope")?.reshape((1, 1, n_k, d_rope))?;
    if inputs.has("rotary") {
        if inputs.text("rotary") != "neighbours" {
            return unsupported("models/deepseek2.rs turns neighbours");
        }
        let positions: Vec<u32> = (0..n_k as u32).collect();
        let turned = |x: &Tensor, positions: &[u32]| {
            rotate(&x.squeeze(0)?, positions, "neighbours", 10000.0)?.unsqueeze(0)
        };
        q_pe = turned(&q_pe, &positions[n_k - n_q..])?;
        k_pe = turned(&k_pe, &positions)?;
    }
    let q = Tensor::cat(&[q_nope, q_pe], D::Minus1)?;
    let k = Tensor::cat(&[k_nope, k_pe.repeat((1, heads, 1, 1))?], D::Minus1)?;
    let causal = inputs.flag("causal") && n_q > 1;
    let hidden = if causal { Some(causal_mask(n_q, n_k - n_q)?) } else { None };
    let scale = 1.0 / (q.dim(3)? as f64).sqrt();
    attend(&q, &k, &v, hidden.as_ref(), None, None, scale)?.squeeze(0)
}
