//! What is computed of the model that learned to write like the book.

use crate::trained::{Opened, book, open};
use anyhow::Result;
use model::{Characters, Task as _, Text, Transformer};
use nalgebra::DMatrix;

/// How many characters are read twice, to see what the model makes of the second time.
pub const STRETCH: usize = 96;

/// The sentence of the maps.
pub const SENTENCE: &str = "the mask hides the keys";

/// The model, and texts that it never saw.
pub struct Facts {
    pub opened: Opened,
    pub task: Characters,
    pub held_out: Vec<Text>,
    /// Stretches of `held_out`, each twice; the second time is to be said.
    pub twice: Vec<Text>,
}

/// One head: where its weight goes, on average over the queries of texts that it never saw, and what it is worth.
#[derive(Debug, Default, Clone)]
pub struct Head {
    pub block: usize,
    pub head: usize,
    /// The share of its weight on the character before.
    pub before: f64,
    /// On the one before that.
    pub two_back: f64,
    /// On the last space, or the query itself if it is one.
    pub space: f64,
    /// Before the previous word.
    pub older: f64,
    /// On the first character of the text.
    pub first: f64,
    /// How far back it looks.
    pub distance: f64,
    /// How much the loss rises when the head is off.
    pub rise: f64,
}

impl Facts {
    pub fn compute() -> Result<Self> {
        let (opened, task) = (open("book")?, book()?);
        let held_out = task.held_out();
        let twice = held_out.iter().map(|text| {
            let once = &text.tokens[..STRETCH];
            Text { tokens: [once, once].concat(), first: STRETCH + 1 }
        });
        let twice = twice.collect();
        Ok(Facts { opened, task, held_out, twice })
    }

    pub fn model(&self) -> &Transformer<f64> {
        &self.opened.model
    }

    /// The losses of stretches when they are read for the first time, and for the second.
    pub fn losses_of_readings(&self) -> Result<[f64; 2]> {
        let once = self
            .twice
            .iter()
            .map(|text| Text { tokens: text.tokens[..STRETCH].to_vec(), first: 1 });
        let once: Vec<_> = once.collect();
        Ok([self.model().loss(&once)?, self.model().loss(&self.twice)?])
    }

    /// All heads, block by block.
    pub fn heads(&self) -> Result<Vec<Head>> {
        let (model, sizes) = (self.model(), self.opened.trained.plan.sizes);
        let all =
            (0..sizes.n_blocks).flat_map(|b| (0..sizes.n_heads).map(move |h| (b, h)));
        let mut heads: Vec<_> =
            all.map(|(block, head)| Head { block, head, ..Head::default() }).collect();
        let space = self.task.tokens(" ")?[0];
        let queries: usize =
            self.held_out.iter().map(|text| text.tokens.len() - FIRST).sum();
        for Text { tokens, .. } in &self.held_out {
            let (_, cache) = model.forward(tokens)?;
            for head in &mut heads {
                head.add(&cache.heads(head.block)[head.head].weights, tokens, space);
            }
        }
        let loss = model.loss(&self.held_out)?;
        for head in &mut heads {
            head.divide(queries as f64);
            let off = model.without_heads(&[(head.block, head.head)]);
            head.rise = off.loss(&self.held_out)? - loss;
        }
        Ok(heads)
    }

    /// The weights of a head for [`SENTENCE`].
    pub fn map(&self, head: &Head) -> Result<DMatrix<f64>> {
        let (_, cache) = self.model().forward(&self.task.tokens(SENTENCE)?)?;
        Ok(cache.heads(head.block)[head.head].weights.clone())
    }
}

/// The first query that counts: those before have too few keys to choose from.
const FIRST: usize = 32;

impl Head {
    /// Adds the places where the queries of a text look.
    fn add(&mut self, weights: &DMatrix<f64>, tokens: &[usize], space: usize) {
        for i in FIRST..tokens.len() {
            let mut spaces = (0..=i).rev().filter(|&j| tokens[j] == space);
            let last = spaces.next();
            let before = spaces.next().unwrap_or(0);
            self.before += weights[(i, i - 1)];
            self.two_back += weights[(i, i - 2)];
            self.space += last.map_or(0.0, |j| weights[(i, j)]);
            self.older += (0..before).map(|j| weights[(i, j)]).sum::<f64>();
            self.first += weights[(i, 0)];
            self.distance +=
                (0..=i).map(|j| weights[(i, j)] * (i - j) as f64).sum::<f64>();
        }
    }

    fn divide(&mut self, by: f64) {
        let Head { before, two_back, space, older, first, distance, .. } = self;
        for sum in [before, two_back, space, older, first, distance] {
            *sum /= by;
        }
    }

    /// As in `2.3`: block and head, counted from 1.
    pub fn name(&self) -> String {
        format!("{}.{}", self.block + 1, self.head + 1)
    }
}

/// The head with the most of something.
pub fn most(heads: &[Head], of: impl Fn(&Head) -> f64) -> &Head {
    let mut best = &heads[0];
    for head in heads {
        if of(head) > of(best) {
            best = head;
        }
    }
    best
}
