//! What the models of the book learn: to go on with what stood before, and to write like the book.

use crate::transformer::{Text, Transformer, draw_next};
use anyhow::{Context as _, Result, ensure};
use attention::KeyValueCache;
use fast::Float;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng};

/// Texts to learn from, drawn at random, and texts to look at.
pub trait Task: Sync {
    /// How many different tokens there are.
    fn vocabulary(&self) -> usize;

    /// Returns a text of a training step.
    fn draw(&self, rng: &mut ChaCha8Rng) -> Text;

    /// Returns texts that no training step has.
    fn held_out(&self) -> Vec<Text>;

    /// Returns a number that another task has not: a training goes on with its own.
    fn fingerprint(&self) -> u64;
}

/// Fowler, Noll and Vo's hash (FNV-1a) of some numbers, which is the same on every machine.
fn hash(numbers: impl IntoIterator<Item = usize>) -> u64 {
    let bytes = numbers.into_iter().flat_map(|number| (number as u64).to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Random tokens that are repeated: from the second time on, the text says what comes next.
#[derive(Debug, Clone, Copy)]
pub struct Repeated {
    /// How many different tokens there are, at least as many as the longest period.
    pub vocabulary: usize,
    /// The shortest and the longest stretch that is repeated. It differs from text to text, so that no fixed distance leads to the copy.
    pub periods: (usize, usize),
    /// The tokens of a text.
    pub tokens: usize,
}

impl Repeated {
    /// The task of the book.
    pub const OF_BOOK: Self = Repeated { vocabulary: 64, periods: (12, 24), tokens: 48 };
}

impl Task for Repeated {
    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> Text {
        let (shortest, longest) = self.periods;
        let period = rng.random_range(shortest..=longest);
        let mut all: Vec<usize> = (0..self.vocabulary).collect();
        let (stretch, _) = all.partial_shuffle(rng, period);
        let tokens = stretch.iter().copied().cycle().take(self.tokens).collect();
        // Nothing says that the first token comes again.
        Text { tokens, first: period + 1 }
    }

    fn held_out(&self) -> Vec<Text> {
        let rng = &mut ChaCha8Rng::seed_from_u64(u64::MAX);
        (0..32).map(|_| self.draw(rng)).collect()
    }

    fn fingerprint(&self) -> u64 {
        hash([self.vocabulary, self.periods.0, self.periods.1, self.tokens])
    }
}

/// Stretches of a long text, character by character.
#[derive(Debug, Clone)]
pub struct Characters {
    /// The characters that are tokens, sorted; a token is a place in this list.
    pub alphabet: Vec<char>,
    train: Vec<usize>,
    held_out: Vec<usize>,
    length: usize,
    fingerprint: u64,
}

impl Characters {
    /// The task of the book: stretches of 256 characters, and no character that stands in its text less than twenty times.
    ///
    /// # Errors
    /// As [`Characters::new`].
    pub fn of_book(text: &str) -> Result<Self> {
        Self::new(text, 256, 20)
    }

    /// Returns how many characters a stretch has.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns how many characters there are to learn from.
    pub fn characters(&self) -> usize {
        self.train.len()
    }

    /// Returns stretches of `length` characters of a text, of which every twentieth paragraph is held out. Characters that stand in it less than
    /// `rare` times are left out.
    ///
    /// # Errors
    /// The text is too short.
    pub fn new(text: &str, length: usize, rare: usize) -> Result<Self> {
        let mut counts = std::collections::BTreeMap::new();
        text.chars().for_each(|c| *counts.entry(c).or_insert(0) += 1);
        let alphabet = counts.into_iter().filter(|(_, count)| *count >= rare);
        let alphabet: Vec<char> = alphabet.map(|(c, _)| c).collect();
        let (mut train, mut held_out) = (vec![], vec![]);
        for (i, paragraph) in text.split_inclusive('\n').enumerate() {
            let part = if i % 20 == 19 { &mut held_out } else { &mut train };
            part.extend(
                paragraph.chars().filter_map(|c| alphabet.binary_search(&c).ok()),
            );
        }
        ensure!(
            train.len() > length && held_out.len() > length,
            "every twentieth paragraph of the text is held out, which leaves {} characters to learn from and {} to test with; both have to be more than {length}",
            train.len(),
            held_out.len()
        );
        let sizes = [length, alphabet.len(), train.len()];
        let characters = alphabet.iter().map(|c| *c as usize);
        let tokens = train.iter().chain(&held_out).copied();
        let fingerprint = hash(sizes.into_iter().chain(characters).chain(tokens));
        Ok(Characters { alphabet, train, held_out, length, fingerprint })
    }

    /// Returns an empty cache for a block of a model that writes. Its tokens see no further back than in training, because the angles of longer
    /// distances would be new to the model; so it has no sinks, whose distance grows with the text.
    ///
    /// # Errors
    /// The stretches have no characters.
    pub fn cache<T: Float>(&self) -> Result<KeyValueCache<T>> {
        Ok(KeyValueCache::with_window(self.length, 0)?)
    }

    /// Lets a model go on with a text, and hands over each character that it draws. The text may become longer than those of training.
    ///
    /// # Errors
    /// The model has another number of tokens, a character of the text is not in the alphabet, the text is empty, or `say` fails.
    pub fn go_on<T: Float>(
        &self,
        model: &Transformer<T>,
        text: &str,
        (characters, temperature, seed): (usize, T, u64),
        mut say: impl FnMut(char) -> Result<()>,
    ) -> Result<()> {
        ensure!(
            model.embedding.nrows() == self.alphabet.len(),
            "the model has {} tokens and the text {} characters: take the text that it learned from",
            model.embedding.nrows(),
            self.alphabet.len()
        );
        let mut caches = vec![self.cache()?; model.blocks.len()];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut scores = model.forward_cached(&self.tokens(text)?, &mut caches)?;
        for _ in 0..characters {
            let last = scores.row(scores.nrows() - 1).transpose();
            let token = draw_next(&last, temperature, &mut rng)?;
            say(self.alphabet[token])?;
            scores = model.forward_cached(&[token], &mut caches)?;
        }
        Ok(())
    }

    /// Returns the tokens of a text.
    ///
    /// # Errors
    /// A character is not in the alphabet.
    pub fn tokens(&self, text: &str) -> Result<Vec<usize>> {
        let token = |c: char| {
            let place = self.alphabet.binary_search(&c).ok();
            place.with_context(|| format!("{c:?} is not in the model's alphabet"))
        };
        text.chars().map(token).collect()
    }
}

impl Task for Characters {
    fn vocabulary(&self) -> usize {
        self.alphabet.len()
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> Text {
        let first = rng.random_range(0..self.train.len() - self.length);
        Text { tokens: self.train[first..=first + self.length].to_vec(), first: 1 }
    }

    fn held_out(&self) -> Vec<Text> {
        let stretches = self.held_out.chunks_exact(self.length + 1);
        stretches.map(|stretch| Text { tokens: stretch.to_vec(), first: 1 }).collect()
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}
