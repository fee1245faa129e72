//! The trained model of the book: what its heads look at, and what it writes.

use crate::Matrix;
use attention::{KeyValueCache, softmax};
use model::{EightBits, draw_next};
use nalgebra::DVector;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use wasm_bindgen::prelude::*;

/// A trained model whose tokens are characters.
#[wasm_bindgen]
pub struct Writer(EightBits<f64>);

/// A text that the model has read and gone on with.
#[wasm_bindgen]
pub struct Written {
    characters: Vec<char>,
    weights: Vec<Vec<Matrix>>, // by block, by head
    caches: Vec<KeyValueCache<f64>>,
    next: Vec<(f64, char)>, // the probabilities, the largest first
    surprise: f64,
}

#[wasm_bindgen]
impl Writer {
    /// # Errors
    /// As [`EightBits::from_bytes`].
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: &[u8]) -> Result<Writer, JsError> {
        Ok(Writer(EightBits::from_bytes(bytes)?))
    }

    /// Reads a text and goes on with it, character by character, with a cache. Heads are counted through all blocks; those that are `off` add nothing.
    ///
    /// # Errors
    /// There is no text, or a character of it is not in the model's alphabet, or there is no such head.
    pub fn write(
        &self,
        text: &str,
        off: &[usize],
        characters: usize,
        temperature: f64,
        seed: u64,
    ) -> Result<Written, JsError> {
        let EightBits { sizes, alphabet, model } = &self.0;
        let mut tokens = vec![];
        for c in text.chars() {
            let token = alphabet.binary_search(&c).map_err(|_| {
                JsError::new(&format!("The model has never seen the character {c:?}."))
            })?;
            tokens.push(token);
        }
        if let Some(head) =
            off.iter().find(|head| **head >= sizes.n_blocks * sizes.n_heads)
        {
            return Err(JsError::new(&format!("There is no head number {head}.")));
        }
        let off: Vec<_> =
            off.iter().map(|head| (head / sizes.n_heads, head % sizes.n_heads)).collect();
        let model = model.without_heads(&off);
        let mut caches = vec![KeyValueCache::new(); sizes.n_blocks];
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut scores = model.forward_cached(&tokens, &mut caches)?;
        for _ in 0..characters {
            let token = draw_next(&last_row(&scores), temperature, rng)?;
            tokens.push(token);
            scores = model.forward_cached(&[token], &mut caches)?;
        }
        let probabilities = softmax(&last_row(&scores))?;
        let mut next: Vec<_> =
            probabilities.iter().copied().zip(alphabet.iter().copied()).collect();
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (all_scores, cache) = model.forward(&tokens)?;
        let targets =
            tokens[1..].iter().copied().map(Some).chain([None]).collect::<Vec<_>>();
        let (sum, _) = model::cross_entropy(&all_scores, &targets)?;
        let of_block = |block| {
            cache.weights(block).iter().map(|weights| Matrix(weights.clone())).collect()
        };
        Ok(Written {
            characters: tokens.iter().map(|token| alphabet[*token]).collect(),
            weights: (0..sizes.n_blocks).map(of_block).collect(),
            caches,
            next,
            surprise: sum / (tokens.len() - 1).max(1) as f64,
        })
    }
}

#[wasm_bindgen]
impl Written {
    /// What was given, and what the model has written.
    #[wasm_bindgen(getter)]
    pub fn text(&self) -> String {
        self.characters.iter().collect()
    }

    /// The weights of a head: a row for each character that asks, a column for each that it may see.
    ///
    /// # Errors
    /// There is no such head.
    pub fn weights(&self, block: usize, head: usize) -> Result<Matrix, JsError> {
        let head = self.weights.get(block).and_then(|heads| heads.get(head));
        head.cloned().ok_or_else(|| JsError::new("There is no such head."))
    }

    /// The characters that may come next, the likeliest first.
    #[wasm_bindgen(getter, js_name = nextCharacters)]
    pub fn next_characters(&self) -> Vec<String> {
        self.next.iter().map(|(_, c)| c.to_string()).collect()
    }

    /// Their probabilities.
    #[wasm_bindgen(getter, js_name = nextProbabilities)]
    pub fn next_probabilities(&self) -> Vec<f64> {
        self.next.iter().map(|(probability, _)| *probability).collect()
    }

    /// The mean loss of all characters but the first, in nats; 0 if there is but one.
    #[wasm_bindgen(getter)]
    pub fn surprise(&self) -> f64 {
        self.surprise
    }

    /// The keys that a block's cache holds: a row for each character, all key-value heads side by side.
    ///
    /// # Errors
    /// There is no such block.
    pub fn keys(&self, block: usize) -> Result<Matrix, JsError> {
        let cache = self.caches.get(block);
        cache
            .map(|cache| Matrix(cache.keys()))
            .ok_or_else(|| JsError::new("There is no such block."))
    }
}

/// The scores after the last token.
fn last_row(scores: &nalgebra::DMatrix<f64>) -> DVector<f64> {
    scores.row(scores.nrows() - 1).transpose()
}
