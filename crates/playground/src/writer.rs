//! The trained model of the book: what its heads look at, and what it writes.

use crate::Matrix;
use attention::{ForwardOptions, KeyValueCache, Mask, softmax};
use model::{EightBits, Transformer, draw_next};
use nalgebra::{DMatrix, DVector};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use wasm_bindgen::prelude::*;

/// A trained model whose tokens are characters.
#[wasm_bindgen]
pub struct Writer(EightBits<f64>);

/// A text that the model reads and goes on with, character by character, with a cache: a page can show each before the next one comes.
#[wasm_bindgen]
pub struct Written {
    model: Transformer<f64>,
    alphabet: Vec<char>,
    /// What was given, and what was written.
    tokens: Vec<usize>,
    /// How many of them were read.
    read: usize,
    caches: Vec<KeyValueCache<f64>>,
    /// By block, by head: a row for each character that was read, as long as what it saw.
    weights: Vec<Vec<Vec<DVector<f64>>>>,
    /// The scores after the last character that was read.
    scores: DVector<f64>,
    /// The losses of all characters but the first, summed up.
    loss: f64,
    rng: ChaCha8Rng,
}

#[wasm_bindgen]
impl Writer {
    /// # Errors
    /// As [`EightBits::from_bytes`].
    #[wasm_bindgen(constructor)]
    pub fn new(bytes: &[u8]) -> Result<Writer, JsError> {
        Ok(Writer(EightBits::from_bytes(bytes)?))
    }

    /// Begins with a text, of which nothing is read yet. Heads are counted through all blocks; those that are `off` add nothing.
    ///
    /// # Errors
    /// There is no text, or a character of it is not in the model's alphabet, or there is no such head.
    pub fn begin(
        &self,
        text: &str,
        off: &[usize],
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
        if tokens.is_empty() {
            return Err(JsError::new("There is no text."));
        }
        if let Some(head) =
            off.iter().find(|head| **head >= sizes.n_blocks * sizes.n_heads)
        {
            return Err(JsError::new(&format!("There is no head number {head}.")));
        }
        let off: Vec<_> =
            off.iter().map(|head| (head / sizes.n_heads, head % sizes.n_heads)).collect();
        Ok(Written {
            model: model.without_heads(&off),
            alphabet: alphabet.clone(),
            tokens,
            read: 0,
            caches: vec![KeyValueCache::new(); sizes.n_blocks],
            weights: vec![vec![vec![]; sizes.n_heads]; sizes.n_blocks],
            scores: DVector::zeros(0),
            loss: 0.0,
            rng: ChaCha8Rng::seed_from_u64(seed),
        })
    }
}

impl Written {
    /// Reads the next token, as [`Transformer::forward_cached`] does, and keeps the weights that its heads give.
    fn read_token(&mut self) -> attention::Result<()> {
        let token = self.tokens[self.read];
        if self.read > 0 {
            self.loss -= softmax(&self.scores)?[token].ln();
        }
        let mut x = self.model.embedding.select_rows(&[token]);
        let parts = self.model.blocks.iter().zip(&mut self.caches).zip(&mut self.weights);
        for ((block, cache), weights) in parts {
            let (normed, _) = block.norm.forward(&x);
            let options = ForwardOptions::new().mask(Mask::causal());
            x += block.attention.forward_cached(&normed, cache, options)?;
            let layer = &block.attention;
            let mut q = &normed * &layer.parameters.w_q;
            if let Some(rotary) = layer.rotary() {
                q = rotary.turn(&q, layer.n_heads(), self.read as isize)?;
            }
            let keys = cache.keys();
            let width = q.ncols() / layer.n_heads();
            let n_kv_heads = keys.ncols() / width;
            for (head, rows) in weights.iter_mut().enumerate() {
                let shared = head * n_kv_heads / layer.n_heads();
                let keys = keys.columns(shared * width, width);
                let scores = keys * q.columns(head * width, width).transpose();
                rows.push(softmax(&(scores.column(0) / (width as f64).sqrt()))?);
            }
            if let Some(mlp) = &block.mlp {
                x += mlp.forward(&x)?.0;
            }
        }
        let (normed, _) = self.model.norm.forward(&x);
        self.scores = (normed * &self.model.unembedding).row(0).transpose();
        self.read += 1;
        Ok(())
    }
}

#[wasm_bindgen]
impl Written {
    /// Reads one more character; if there is none, writes it first.
    ///
    /// # Errors
    /// None that is known.
    #[wasm_bindgen(js_name = goOn)]
    pub fn go_on(&mut self, temperature: f64) -> Result<(), JsError> {
        if self.read == self.tokens.len() {
            self.tokens.push(draw_next(&self.scores, temperature, &mut self.rng)?);
        }
        Ok(self.read_token()?)
    }

    /// What was read, given or written.
    #[wasm_bindgen(getter)]
    pub fn text(&self) -> String {
        self.tokens[..self.read].iter().map(|token| self.alphabet[*token]).collect()
    }

    /// The weights of a head: a row for each character that asks, a column for each that it may see.
    ///
    /// # Errors
    /// There is no such head.
    pub fn weights(&self, block: usize, head: usize) -> Result<Matrix, JsError> {
        let rows = self.weights.get(block).and_then(|heads| heads.get(head));
        let rows = rows.ok_or_else(|| JsError::new("There is no such head."))?;
        let at = |i: usize, j: usize| rows[i].get(j).copied().unwrap_or_default();
        Ok(Matrix(DMatrix::from_fn(self.read, self.read, at)))
    }

    /// The characters that may come next, the likeliest first.
    #[wasm_bindgen(getter, js_name = nextCharacters)]
    pub fn next_characters(&self) -> Vec<String> {
        self.next().into_iter().map(|(_, c)| c.to_string()).collect()
    }

    /// Their probabilities.
    #[wasm_bindgen(getter, js_name = nextProbabilities)]
    pub fn next_probabilities(&self) -> Vec<f64> {
        self.next().into_iter().map(|(probability, _)| probability).collect()
    }

    /// The mean loss of all characters but the first, in nats; 0 if there is but one.
    #[wasm_bindgen(getter)]
    pub fn surprise(&self) -> f64 {
        self.loss / (self.read.max(2) - 1) as f64
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

impl Written {
    fn next(&self) -> Vec<(f64, char)> {
        let probabilities = softmax(&self.scores).unwrap_or_default();
        let mut next: Vec<_> =
            probabilities.iter().copied().zip(self.alphabet.iter().copied()).collect();
        next.sort_by(|a, b| b.0.total_cmp(&a.0));
        next
    }
}
