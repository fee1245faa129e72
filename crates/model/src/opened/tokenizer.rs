//! How a text becomes tokens, as a `tokenizer.json`: Hugging Face's models have that file, and from a GGUF header it is put together.

use super::gguf::{Metadata, Value};
use anyhow::{Result, bail};
use serde_json::json;

/// The `tokenizer.json` that says what a GGUF header says.
///
/// # Errors
/// The header has no tokenizer, or one of a kind that isn't known here.
pub fn of_gguf(metadata: &Metadata) -> Result<Vec<u8>> {
    let model = metadata.text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        bail!(
            "its tokenizer is of the kind `{model}`; known here is gpt2, byte-level pairs"
        );
    }
    let (pairs, digits) = (
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
        json!({"type": "Digits", "individual_digits": true}),
    );
    // Where a text is cut before pairs are joined.
    let cut = match metadata.text("tokenizer.ggml.pre") {
        Ok("smollm") => json!({"type": "Sequence", "pretokenizers": [digits, pairs]}),
        Ok("gpt-2" | "default") | Err(_) => pairs.clone(),
        Ok("llama-bpe") => by_pattern(LLAMA_3),
        Ok("qwen2") => by_pattern(QWEN_2),
        Ok(other) => bail!(
            "its tokenizer cuts texts by the rule `{other}`; known here are smollm, gpt-2, llama-bpe and qwen2"
        ),
    };
    let tokens = metadata.texts("tokenizer.ggml.tokens")?;
    let merges = metadata.texts("tokenizer.ggml.merges")?;
    let kinds = match metadata.get("tokenizer.ggml.token_type") {
        Some(Value::List(kinds)) => kinds.as_slice(),
        _ => &[],
    };
    // Those for control (3) and those that somebody added (4) are never cut.
    let added = tokens.iter().zip(kinds).enumerate().filter_map(|(id, (token, kind))| {
        let special = match kind {
            Value::Integer(3) => true,
            Value::Integer(4) => false,
            _ => return None,
        };
        Some(json!({
            "id": id, "content": token, "special": special, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        }))
    });
    let added: Vec<_> = added.collect();
    let vocabulary: serde_json::Map<_, _> = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| ((*token).to_owned(), id.into()))
        .collect();
    // Some models begin every text with a token.
    let first = metadata.size("tokenizer.ggml.bos_token_id")?;
    let first = first.and_then(|id| Some((id, *tokens.get(id)?)));
    let first = match metadata.get("tokenizer.ggml.add_bos_token") {
        Some(Value::Bool(true)) => first,
        _ => None,
    };
    let template = first.map(|(id, token)| {
        json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {token: {"id": token, "ids": [id], "tokens": [token]}},
        })
    });
    let tokenizer = json!({
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": cut,
        "post_processor": template,
        "decoder": pairs,
        "model": {
            "type": "BPE",
            "vocab": vocabulary,
            "merges": merges,
            "ignore_merges": metadata.text("tokenizer.ggml.pre").is_ok_and(|rule| rule == "llama-bpe"),
        },
    });
    Ok(serde_json::to_vec(&tokenizer)?)
}

/// Llama 3's rule: contractions, words with the character before them, up to three digits, signs, line ends, spaces.
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen2's: the same with single digits.
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

fn by_pattern(pattern: &str) -> serde_json::Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]})
}
