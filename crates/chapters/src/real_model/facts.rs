//! What was recorded, as `crates/model/examples/real_heads` and `benches/peers/open.py` wrote it.

use anyhow::{Context as _, Result};
use model::Run;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub struct Facts {
    pub models: Vec<File>,
    pub repeated: Repeated,
    pub prose: Prose,
    pub it: It,
    pub resolved: Resolved,
    pub names: Names,
    pub blocks: Blocks,
    pub reasons: [Reason; 3],
    pub run: Run,
}

#[derive(Deserialize)]
pub struct File {
    pub file: String,
    pub sha256: String,
    pub parameters: usize,
    pub vocabulary: usize,
    pub blocks: usize,
    /// Of a block.
    pub heads: usize,
    /// The width of all keys of a block together.
    pub d_keys: usize,
}

/// A number for each head, block by block.
pub type Map = Vec<Vec<f64>>;

/// Random tokens that are said twice.
#[derive(Deserialize)]
pub struct Repeated {
    pub tokens: usize,
    pub texts: usize,
    /// The losses of the first and second reading of each text.
    pub first: Vec<f64>,
    pub second: Vec<f64>,
    /// The loss of even probabilities.
    pub even: f64,
    pub scores: BTreeMap<String, Map>,
    /// The loss of the second reading with a head off, and with its mean in place of what it finds.
    pub without: BTreeMap<String, f64>,
    pub replaced: BTreeMap<String, f64>,
    pub induction_heads: Vec<String>,
    pub chain: Vec<Link>,
}

/// What happens to induction when some heads are off.
#[derive(Deserialize)]
pub struct Link {
    pub what: String,
    pub heads: Vec<String>,
    pub second: f64,
    /// The induction scores of the four best induction heads.
    pub patterns: Vec<f64>,
}

/// English, read twice.
#[derive(Deserialize)]
pub struct Prose {
    pub rows: Vec<ProseRow>,
}

#[derive(Deserialize)]
pub struct ProseRow {
    #[cfg(test)]
    pub heads: Vec<String>,
    #[cfg(test)]
    pub first: f64,
    pub second: f64,
}

/// Where "it" looks in pairs of sentences.
#[derive(Deserialize)]
pub struct It {
    pub sentences: usize,
    /// All weights of three heads in the first pair: two of the model that reads both ways, from "it", and one of the other, from the late word.
    pub first_pair: [InFull; 3],
    pub causal: Causal,
    pub both_ways: BothWays,
    pub late_word: LateWord,
}

/// A row of a head's weights in each of two sentences.
#[derive(Deserialize)]
pub struct InFull {
    pub head: String,
    pub tokens: [Vec<String>; 2],
    pub weights: [Vec<f64>; 2],
}

#[derive(Deserialize)]
pub struct Causal {
    /// Between the weights of "it" in the two sentences of a pair, of all heads.
    #[cfg(test)]
    pub largest_difference: f64,
    pub head: Nouns,
}

#[derive(Deserialize)]
pub struct BothWays {
    pub moved: Nouns,
    pub unmoved: Nouns,
    pub right_by_chance: usize,
}

/// A head's weights on the two nouns.
#[derive(Deserialize)]
pub struct Nouns {
    pub head: String,
    pub right: usize,
    pub pairs_with_two_answers: usize,
    /// Of each pair, of its two sentences, on the first and the second noun.
    pub weights: Vec<[[f64; 2]; 2]>,
}

/// What a head looks at from the word that decides.
#[derive(Deserialize)]
pub struct LateWord {
    pub head: Nouns,
    /// What it gives to both nouns together, with a name in the pronoun's place, on average.
    pub on_nouns_with_name: f64,
}

/// What the causal model says that "it" refers to.
#[derive(Deserialize)]
pub struct Resolved {
    pub it: Answers,
    /// With a name in the pronoun's place.
    pub with_name: Answers,
    pub moved: Vec<Moved>,
}

/// How much of the distance the odds move when a head, or all, have at the late word the outputs of the other sentence.
#[derive(Deserialize)]
pub struct Moved {
    pub head: String,
    pub all_pairs: f64,
    pub where_map_changes: f64,
}

#[derive(Deserialize)]
pub struct Answers {
    pub right: usize,
    /// In so many pairs log p leans further to the first noun where that is meant.
    pub move_right: usize,
    /// log p of the first noun less log p of the second, in the sentences of the first pair.
    pub first_pair: [f64; 2],
}

/// Means over paragraphs of English, block by block.
#[derive(Deserialize)]
pub struct Blocks {
    pub paragraphs: usize,
    pub near: Vec<f64>,
    pub first: Vec<f64>,
}

/// What the second word of a name gives to the first, and to another one in its place.
#[derive(Deserialize)]
pub struct Names {
    pub texts: usize,
    pub heads: Vec<OfNames>,
    /// What the best of all heads has by chance.
    pub more_by_chance: usize,
}

#[derive(Deserialize)]
pub struct OfNames {
    pub head: String,
    pub names: f64,
    pub others: f64,
    /// In so many texts the name's word gets more.
    pub more: usize,
}

/// A text whose next word seems to have a reason.
#[derive(Deserialize)]
pub struct Reason {
    pub example: String,
    pub cases: usize,
    /// p of the next word, and of the next word of another text.
    pub p: [f64; 2],
    pub heads: Vec<ReasonHead>,
    /// Heads drawn from all others.
    pub random: Vec<ReasonHead>,
}

#[derive(Deserialize)]
pub struct ReasonHead {
    pub head: String,
    pub weight: f64,
    /// The token of the example that gets most from the last one, the first left out, and its weight.
    pub most: (String, f64),
    /// p of the next word with the head off at the last token.
    pub off: f64,
    /// p of both words with the head's output of the other text there.
    pub swapped: [f64; 2],
}

/// How fast the model is beside transformers.
#[derive(Deserialize)]
pub struct Speed {
    pub processor: String,
    pub torch: String,
    pub transformers: String,
    pub date: String,
    pub rounds: usize,
    pub runs: Vec<SpeedRun>,
}

#[derive(Deserialize)]
pub struct SpeedRun {
    pub threads: usize,
    pub load: Compared,
    pub prefill: Compared,
    pub write: Compared,
    pub peak_bytes: Peak,
}

#[derive(Deserialize)]
pub struct Compared {
    pub ours: f64,
    pub theirs: f64,
    pub ratio: f64,
}

#[derive(Deserialize)]
pub struct Peak {
    pub ours: u64,
    pub theirs: u64,
}

impl Facts {
    pub fn open() -> Result<Self> {
        let text = include_str!("../../../model/opened/results.json");
        serde_json::from_str(text).context("crates/model/opened/results.json")
    }

    /// A head's score of a kind.
    pub fn score(&self, kind: &str, head: &str) -> f64 {
        let (block, place) = head.split_once('.').unwrap_or_default();
        let [block, place] =
            [block, place].map(|number| number.parse::<usize>().unwrap_or_default());
        self.repeated.scores[kind][block][place]
    }
}

impl Speed {
    pub fn open() -> Result<Self> {
        let text = include_str!("../../../model/opened/speed.json");
        serde_json::from_str(text).context("crates/model/opened/speed.json")
    }
}
