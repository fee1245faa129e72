//! What is computed of the model that learned to write like the book.

use crate::trained::{Opened, book, open};
use anyhow::Result;
use model::{
    Characters, EightBits, Task as _, Text, Trained, Transformer, cross_entropy,
};
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
    /// The share of its weight on the query itself, on the one before, on the one before that, and on all others.
    pub itself: f64,
    pub one_back: f64,
    pub two_back: f64,
    pub further: f64,
    /// Of queries that are a space, on themselves.
    pub space_on_itself: f64,
    /// Of queries that are an `e`, one back and two back.
    pub e_one_back: f64,
    pub e_two_back: f64,
    /// On the first character of the text.
    pub first: f64,
    /// How far back it looks.
    pub distance: f64,
    /// In stretches that are read twice: of the second time, on the place after the same place of the first time.
    pub after_same_place: f64,
    /// How much the loss rises when the head is off.
    pub rise: f64,
}

impl Facts {
    pub fn compute() -> Result<Self> {
        let (opened, task) = (open("book")?, book()?);
        // Enough for two digits; all of them would take half a minute.
        let held_out: Vec<_> = task.held_out().into_iter().take(24).collect();
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

    /// Returns the loss of the texts, and that of a model with eight bits for each parameter.
    pub fn losses_of_rounding(&self) -> Result<[f64; 2]> {
        let Trained { plan, alphabet, model, .. } = &self.opened.trained;
        let bytes = EightBits::to_bytes(plan.sizes, alphabet, model);
        let rounded = EightBits::<f64>::from_bytes(&bytes)?.model;
        Ok([self.model().loss(&self.held_out)?, rounded.loss(&self.held_out)?])
    }

    /// All heads, block by block.
    pub fn heads(&self) -> Result<Vec<Head>> {
        let (model, sizes) = (self.model(), self.opened.trained.plan.sizes);
        let all =
            (0..sizes.n_blocks).flat_map(|b| (0..sizes.n_heads).map(move |h| (b, h)));
        let mut heads: Vec<_> =
            all.map(|(block, head)| Head { block, head, ..Head::default() }).collect();
        let [space, e] = [self.task.tokens(" ")?[0], self.task.tokens("e")?[0]];
        for Text { tokens, .. } in &self.held_out {
            let (_, cache) = model.forward(tokens)?;
            for head in &mut heads {
                head.add(&cache.weights(head.block)[head.head], tokens, [space, e]);
            }
        }
        for Text { tokens, .. } in &self.twice {
            let (_, cache) = model.forward(tokens)?;
            for head in &mut heads {
                let weights = &cache.weights(head.block)[head.head];
                let again = (STRETCH..2 * STRETCH).map(|i| weights[(i, i - STRETCH + 1)]);
                head.after_same_place += again.sum::<f64>();
            }
        }
        let queries = self.held_out.iter().flat_map(|text| &text.tokens[FIRST..]);
        let count =
            |of: usize| queries.clone().filter(|token| **token == of).count() as f64;
        let (spaces, es, all) = (count(space), count(e), queries.clone().count() as f64);
        let again = (self.twice.len() * STRETCH) as f64;
        for head in &mut heads {
            head.divide([all, spaces, es, again]);
            head.rise = self.rise(&[(head.block, head.head)])?;
        }
        Ok(heads)
    }

    /// How much the loss of unseen text rises without some heads.
    pub fn rise(&self, off: &[(usize, usize)]) -> Result<f64> {
        let (whole, without) = (self.model(), self.model().without_heads(off));
        Ok(without.loss(&self.held_out)? - whole.loss(&self.held_out)?)
    }

    /// How much the loss of what follows a space, an `e` and any other character rises without some heads.
    pub fn rises_after(&self, off: &[(usize, usize)]) -> Result<[f64; 3]> {
        let [space, e] = [self.task.tokens(" ")?[0], self.task.tokens("e")?[0]];
        let kind =
            |token: usize| [token == space, token == e, true].iter().position(|is| *is);
        let (whole, without) = (self.model(), self.model().without_heads(off));
        let (mut sums, mut counts) = ([0.0; 3], [0; 3]);
        for text in &self.held_out {
            let scores = [&without, whole].map(|model| model.forward(text.read()));
            let [without, whole] = scores;
            let (without, whole) = (without?.0, whole?.0);
            for at in 0..3 {
                let targets = text.targets().into_iter().zip(text.read());
                let targets: Vec<_> = targets
                    .map(|(target, token)| target.filter(|_| kind(*token) == Some(at)))
                    .collect();
                counts[at] += targets.iter().flatten().count();
                sums[at] += cross_entropy(&without, &targets)?.0
                    - cross_entropy(&whole, &targets)?.0;
            }
        }
        Ok([0, 1, 2].map(|at| sums[at] / counts[at] as f64))
    }

    /// The share of the first character, and the distance, if all weights were even.
    pub fn of_even_weights(&self) -> (f64, f64) {
        let queries = self.held_out.iter().flat_map(|text| FIRST..text.tokens.len());
        let (mut first, mut distance, mut count) = (0.0, 0.0, 0.0);
        for i in queries {
            first += 1.0 / (i as f64 + 1.0);
            distance += i as f64 / 2.0;
            count += 1.0;
        }
        (first / count, distance / count)
    }

    /// The weights of a head for [`SENTENCE`].
    pub fn map(&self, head: &Head) -> Result<DMatrix<f64>> {
        let (_, cache) = self.model().forward(&self.task.tokens(SENTENCE)?)?;
        Ok(cache.weights(head.block)[head.head].clone())
    }
}

/// The first query that counts: those before have too few keys to choose from.
const FIRST: usize = 32;

impl Head {
    /// Adds the places where the queries of a text look.
    fn add(&mut self, weights: &DMatrix<f64>, tokens: &[usize], [space, e]: [usize; 2]) {
        for i in FIRST..tokens.len() {
            let [itself, one, two] = [0, 1, 2].map(|back| weights[(i, i - back)]);
            self.itself += itself;
            self.one_back += one;
            self.two_back += two;
            self.further += (0..i - 2).map(|j| weights[(i, j)]).sum::<f64>();
            if tokens[i] == space {
                self.space_on_itself += itself;
            }
            if tokens[i] == e {
                self.e_one_back += one;
                self.e_two_back += two;
            }
            self.first += weights[(i, 0)];
            self.distance +=
                (0..=i).map(|j| weights[(i, j)] * (i - j) as f64).sum::<f64>();
        }
    }

    fn divide(&mut self, [all, spaces, es, again]: [f64; 4]) {
        let Head { itself, one_back, two_back, further, first, distance, .. } = self;
        for sum in [itself, one_back, two_back, further, first, distance] {
            *sum /= all;
        }
        self.space_on_itself /= spaces;
        self.e_one_back /= es;
        self.e_two_back /= es;
        self.after_same_place /= again;
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
