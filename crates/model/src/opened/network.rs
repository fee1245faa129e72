//! The layers of models that others have trained, forward: those of the book in other orders.

use super::families::Family;
use crate::norm::{LayerNorm, RmsNorm};
use anyhow::{Result, ensure};
use attention::engine::{ByWeights, linear_by};
use attention::{ForwardOptions, KeyValueCache, Mask, MultiHeadAttention};
use fast::{Flash, Float as _};
use nalgebra::{DMatrix, DMatrixView, RowDVector};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};
use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
use std::ops::Range;

/// A matrix and its bias, which has no columns where there is none.
#[derive(Debug, Clone)]
pub struct Linear {
    /// (d_in, d_out)
    pub w: DMatrix<f32>,
    /// (1, d_out) or (1, 0)
    pub b: RowDVector<f32>,
}

impl Linear {
    fn forward(&self, x: &DMatrix<f32>, engine: &Flash) -> Result<DMatrix<f32>> {
        Ok(linear_by(engine, x, &self.w, &self.b)?)
    }
}

/// Either norm.
#[derive(Debug, Clone)]
pub enum Norm {
    /// Rows divided by the root of their mean square.
    Rms(RmsNorm<f32>),
    /// Rows moved to a mean of zero first, and a bias at the end.
    Layer(LayerNorm<f32>),
}

impl Norm {
    fn apply(&self, mut x: DMatrix<f32>) -> DMatrix<f32> {
        match self {
            Norm::Rms(norm) => norm.apply(&mut x),
            Norm::Layer(norm) => norm.apply(&mut x),
        }
        x
    }
}

/// What is done to each number of the hidden layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// h · sigmoid(h)
    Silu,
    /// h · Φ(h), where Φ is the normal distribution's.
    Gelu,
    /// The same up to a thousandth, by a hyperbolic tangent.
    GeluTanh,
}

impl Activation {
    /// Replaces each number of the hidden layer.
    fn apply(self, hidden: &mut DMatrix<f32>) {
        // A column at a time, which lies together and stays in the cache.
        let n = hidden.nrows();
        hidden.as_mut_slice().par_chunks_mut(n).for_each(|h| match self {
            Activation::Silu => multiply_by_sigmoid(h, |h| h),
            Activation::Gelu => h.iter_mut().for_each(|h| {
                *h *= 0.5 * (1.0 + libm::erff(*h * FRAC_1_SQRT_2));
            }),
            // (1 + tanh u) / 2 = sigmoid(2u), and u = √(2/π) (h + 0.044715 h³)
            Activation::GeluTanh => {
                let twice = 2.0 * FRAC_2_PI.sqrt();
                multiply_by_sigmoid(h, |h| twice * (h + 0.044715 * h * h * h));
            }
        });
    }
}

/// hidden ⊙ gate
fn multiply(hidden: &mut DMatrix<f32>, gate: &DMatrix<f32>) {
    let n = gate.nrows();
    let columns =
        hidden.as_mut_slice().par_chunks_mut(n).zip(gate.as_slice().par_chunks(n));
    columns.for_each(|(h, gate)| h.iter_mut().zip(gate).for_each(|(h, gate)| *h *= gate));
}

/// h · sigmoid(u(h)).
fn multiply_by_sigmoid(h: &mut [f32], u: impl Fn(f32) -> f32) {
    let mut powers: Vec<f32> = h.iter().map(|&h| -u(h)).collect();
    f32::exp_all(&mut powers); // infinite at worst, where the sigmoid is 0
    h.iter_mut().zip(powers).for_each(|(h, power)| *h /= 1.0 + power);
}

/// The layer that is not attention: up, an activation, and down; or, with a gate, `(act(x W_gate) ⊙ x W_up) W_down`.
#[derive(Debug, Clone)]
pub struct Feed {
    /// (d_model, d_hidden), if there is a gate.
    pub gate: Option<Linear>,
    /// (d_model, d_hidden)
    pub up: Linear,
    /// (d_hidden, d_model)
    pub down: Linear,
    /// Of the gate, or of the hidden layer if there is none.
    pub activation: Activation,
}

impl Feed {
    fn forward(&self, x: &DMatrix<f32>, engine: &Flash) -> Result<DMatrix<f32>> {
        let mut hidden = self.up.forward(x, engine)?; // (n, d_hidden)
        match &self.gate {
            Some(gate) => {
                let mut gate = gate.forward(x, engine)?; // (n, d_hidden)
                self.activation.apply(&mut gate);
                multiply(&mut hidden, &gate);
            }
            None => self.activation.apply(&mut hidden),
        }
        self.down.forward(&hidden, engine) // (n, d_model)
    }
}

/// Attention and what follows it, each with a norm, before it or after it.
#[derive(Debug, Clone)]
pub struct Block {
    /// Before attention, or after it where [`Family::Bert`] is.
    pub attention_norm: Norm,
    /// The library's layer.
    pub attention: MultiHeadAttention<f32>,
    /// Before the MLP, or after it.
    pub mlp_norm: Norm,
    /// The other half of the block.
    pub mlp: Feed,
}

/// A head: its block, and its place in the block, both from 0.
pub type Head = (usize, usize);

/// What a pass went through.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The vectors of all tokens before each block, and at the end (n, d_model).
    pub hidden: Vec<DMatrix<f32>>,
    /// The weights of each head of each block (n, n).
    pub weights: Vec<Vec<DMatrix<f32>>>,
    /// What the heads of each block found, side by side, before W_O (n, n_heads · d).
    pub found: Vec<DMatrix<f32>>,
}

/// A model of somebody else's, forward.
#[derive(Debug, Clone)]
pub struct Network {
    /// How it is built.
    pub family: Family,
    /// A column for each token (d_model, vocabulary).
    pub embedding: DMatrix<f32>,
    /// A column for each position (d_model, context), where positions are learned.
    pub positions: Option<DMatrix<f32>>,
    /// Of the embedded tokens, before the first block.
    pub embedding_norm: Option<Norm>,
    /// One after the other.
    pub blocks: Vec<Block>,
    /// Of the last block's output.
    pub norm: Option<Norm>,
    /// From a token's vector to the scores of the next (d_model, vocabulary), if it isn't the embedding.
    pub unembedding: Option<DMatrix<f32>>,
    /// What computes attention and products.
    pub engine: Flash,
}

impl Network {
    /// Returns how many tokens there are.
    pub fn vocabulary(&self) -> usize {
        self.embedding.ncols()
    }

    /// Returns how many parameters the model has.
    pub fn parameters(&self) -> usize {
        let linear = |linear: &Linear| linear.w.len() + linear.b.len();
        let norm = |norm: &Norm| match norm {
            Norm::Rms(norm) => norm.gain.len(),
            Norm::Layer(norm) => norm.rms.gain.len() + norm.bias.len(),
        };
        let blocks = self.blocks.iter().map(|block| {
            let attention = block.attention.parameters.named();
            let attention: usize = attention.iter().map(|(_, matrix)| matrix.len()).sum();
            let Feed { gate, up, down, .. } = &block.mlp;
            let mlp = gate.as_ref().map_or(0, linear) + linear(up) + linear(down);
            norm(&block.attention_norm) + attention + norm(&block.mlp_norm) + mlp
        });
        let tables =
            [Some(&self.embedding), self.positions.as_ref(), self.unembedding.as_ref()];
        let norms = [&self.embedding_norm, &self.norm].into_iter().flatten();
        blocks.sum::<usize>()
            + tables.into_iter().flatten().map(DMatrix::len).sum::<usize>()
            + norms.map(norm).sum::<usize>()
    }

    fn check_tokens(&self, tokens: &[usize]) -> Result<()> {
        let vocabulary = self.vocabulary();
        for token in tokens {
            ensure!(
                *token < vocabulary,
                "token {token} is not one of the model's {vocabulary}"
            );
        }
        Ok(())
    }

    /// Returns which keys a query sees.
    fn mask(&self) -> Mask {
        if self.family == Family::Bert { Mask::none() } else { Mask::causal() }
    }

    /// The vectors of tokens of which the first stands at this position (n, d_model).
    fn embed(&self, tokens: &[usize], first: usize) -> Result<DMatrix<f32>> {
        ensure!(!tokens.is_empty(), "there are no tokens");
        self.check_tokens(tokens)?;
        let mut x = self.embedding.select_columns(tokens);
        if let Some(positions) = &self.positions {
            let (end, context) = (first + tokens.len(), positions.ncols());
            ensure!(
                end <= context,
                "the text has {end} tokens, and the model learned {context} positions"
            );
            x += positions.columns(first, tokens.len());
        }
        let x = x.transpose();
        Ok(match &self.embedding_norm {
            Some(norm) => norm.apply(x),
            None => x,
        })
    }

    /// Goes through all blocks. `attend` says how attention is computed; `see` sees the vectors before each block and at the end.
    fn pass(
        &self,
        mut x: DMatrix<f32>,
        mut attend: impl FnMut(usize, &DMatrix<f32>) -> attention::Result<DMatrix<f32>>,
        mut see: impl FnMut(usize, &mut DMatrix<f32>),
    ) -> Result<DMatrix<f32>> {
        for (number, block) in self.blocks.iter().enumerate() {
            see(number, &mut x);
            if self.family == Family::Bert {
                x += attend(number, &x)?;
                x = block.attention_norm.apply(x);
                x += block.mlp.forward(&x, &self.engine)?;
                x = block.mlp_norm.apply(x);
            } else {
                x += attend(number, &block.attention_norm.apply(x.clone()))?;
                x += block.mlp.forward(&block.mlp_norm.apply(x.clone()), &self.engine)?;
            }
        }
        if let Some(norm) = &self.norm {
            x = norm.apply(x);
        }
        see(self.blocks.len(), &mut x);
        Ok(x)
    }

    /// Returns what the tokens became (n, d_model): [`Network::scores`] makes scores of it.
    ///
    /// # Errors
    /// There are no tokens, one isn't in the vocabulary, or there are more than the model has positions.
    pub fn forward(&self, tokens: &[usize]) -> Result<DMatrix<f32>> {
        self.forward_masked(tokens, self.mask())
    }

    /// The same, where only some tokens are there: the others are padding, which no token looks at.
    ///
    /// # Errors
    /// As [`Network::forward`], or `valid` is of another length.
    pub fn forward_padded(
        &self,
        tokens: &[usize],
        valid: &[bool],
    ) -> Result<DMatrix<f32>> {
        self.forward_masked(tokens, self.mask().and(Mask::padding(valid)?))
    }

    fn forward_masked(&self, tokens: &[usize], mask: Mask) -> Result<DMatrix<f32>> {
        let attend = |number: usize, x: &DMatrix<f32>| {
            let options = ForwardOptions::new().mask(&mask).engine(self.engine.clone());
            Ok(self.blocks[number].attention.forward(x, options)?.0)
        };
        self.pass(self.embed(tokens, 0)?, attend, |_, _| ())
    }

    /// Returns all that a pass goes through, weights included: n² numbers a head.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn look(&self, tokens: &[usize]) -> Result<Seen> {
        self.look_edited(tokens, |_, _, _| ())
    }

    /// The same, where `edit` may change what the attention of each block adds (n, d_model); it is told what its heads found.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn look_edited(
        &self,
        tokens: &[usize],
        mut edit: impl FnMut(usize, &DMatrix<f32>, &mut DMatrix<f32>),
    ) -> Result<Seen> {
        let (mut hidden, mut weights, mut found) = (vec![], vec![], vec![]);
        let attend = |number: usize, x: &DMatrix<f32>| {
            let options = ForwardOptions::new().mask(self.mask()).engine(ByWeights);
            let (mut output, cache) =
                self.blocks[number].attention.forward(x, options)?;
            weights.push(cache.weights().to_vec());
            edit(number, &cache.forward().output, &mut output);
            found.push(cache.forward().output.clone());
            Ok(output)
        };
        self.pass(self.embed(tokens, 0)?, attend, |_, x| hidden.push(x.clone()))?;
        Ok(Seen { hidden, weights, found })
    }

    /// Returns what [`Network::forward`] does, where `edit` may change the vectors of all tokens (n, d_model) before each block.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn forward_edited(
        &self,
        tokens: &[usize],
        mut edit: impl FnMut(usize, &mut DMatrix<f32>),
    ) -> Result<DMatrix<f32>> {
        let attend = |number: usize, x: &DMatrix<f32>| {
            let options =
                ForwardOptions::new().mask(self.mask()).engine(self.engine.clone());
            Ok(self.blocks[number].attention.forward(x, options)?.0)
        };
        let before_block = |number: usize, x: &mut DMatrix<f32>| {
            if number < self.blocks.len() {
                edit(number, x);
            }
        };
        self.pass(self.embed(tokens, 0)?, attend, before_block)
    }

    /// Returns caches for a text to be written, one for each block.
    pub fn caches(&self) -> Vec<KeyValueCache<f32>> {
        self.blocks.iter().map(|_| KeyValueCache::new()).collect()
    }

    /// Returns what new tokens became (n, d_model), which see those that the caches hold; and adds them to the caches.
    ///
    /// # Errors
    /// As [`Network::forward`]; or the model reads both ways, so that what is kept of early tokens depends on later ones.
    ///
    /// # Panics
    /// There is not a cache for each block.
    pub fn forward_cached(
        &self,
        tokens: &[usize],
        caches: &mut [KeyValueCache<f32>],
    ) -> Result<DMatrix<f32>> {
        ensure!(
            self.family != Family::Bert,
            "a model that reads both ways doesn't write"
        );
        assert_eq!(caches.len(), self.blocks.len(), "a cache for each block");
        let first = caches.first().map_or(0, KeyValueCache::tokens);
        let attend = |number: usize, x: &DMatrix<f32>| {
            let options =
                ForwardOptions::new().mask(self.mask()).engine(self.engine.clone());
            self.blocks[number].attention.forward_cached(x, &mut caches[number], options)
        };
        self.pass(self.embed(tokens, first)?, attend, |_, _| ())
    }

    /// Returns what one new token of each of several texts became (texts, d_model), each of which sees those that the caches of its text hold;
    /// and adds them to the caches. So a server writes many texts at once: attention is each text's own, the products of the other layers
    /// are common. `edit` may change the vectors before each block.
    ///
    /// # Errors
    /// As [`Network::forward_cached`].
    ///
    /// # Panics
    /// A token has no caches, or a text doesn't have one for each block.
    pub fn forward_together(
        &self,
        tokens: &[usize],
        caches: &mut [Vec<KeyValueCache<f32>>],
        mut edit: impl FnMut(&mut DMatrix<f32>),
    ) -> Result<DMatrix<f32>> {
        assert_eq!(caches.len(), tokens.len(), "a list of caches for each text");
        let first = |caches: &[KeyValueCache<f32>]| {
            caches.first().map_or(0, KeyValueCache::tokens)
        };
        let rows = tokens.iter().zip(&*caches);
        let rows = rows.map(|(&token, caches)| {
            Ok(self.embed(&[token], first(caches))?.row(0).into_owned())
        });
        let x = DMatrix::from_rows(&rows.collect::<Result<Vec<_>>>()?);
        let attend = |number: usize, x: &DMatrix<f32>| {
            let options =
                ForwardOptions::new().mask(self.mask()).engine(self.engine.clone());
            let layer = &self.blocks[number].attention;
            let mut output = DMatrix::zeros(x.nrows(), x.ncols());
            for (i, caches) in caches.iter_mut().enumerate() {
                let x = x.rows(i, 1);
                let row =
                    layer.forward_cached(x, &mut caches[number], options.clone())?;
                output.rows_mut(i, 1).copy_from(&row);
            }
            Ok(output)
        };
        let n = self.blocks.len();
        let before_block = |number: usize, x: &mut DMatrix<f32>| {
            if number < n {
                edit(x);
            }
        };
        self.pass(x, attend, before_block)
    }

    /// Returns the scores of the next token after some rows of what [`Network::forward`] returned.
    ///
    /// Shapes: (n, d_model) → (n, vocabulary).
    ///
    /// # Errors
    /// The model reads both ways, or `hidden` isn't d_model wide.
    pub fn scores<'h>(
        &'h self,
        hidden: impl Into<DMatrixView<'h, f32>>,
    ) -> Result<DMatrix<f32>> {
        self.scores_of(hidden.into(), 0..self.vocabulary())
    }

    /// The scores of some tokens.
    fn scores_of(
        &self,
        hidden: DMatrixView<f32>,
        tokens: Range<usize>,
    ) -> Result<DMatrix<f32>> {
        ensure!(
            self.family != Family::Bert,
            "a model that reads both ways has no next token"
        );
        let w = self.unembedding.as_ref().unwrap_or(&self.embedding);
        let w = w.columns_range(tokens);
        Ok(linear_by(&self.engine, hidden, w, &RowDVector::zeros(0))?)
    }

    /// Returns −log p of each token but the first, given those before it, in nats.
    ///
    /// # Errors
    /// As [`Network::forward`] and [`Network::scores`].
    pub fn losses(&self, tokens: &[usize]) -> Result<Vec<f64>> {
        self.losses_after(&self.forward(tokens)?, &tokens[1..])
    }

    /// Returns −log p of the tokens that came next, one for each of the first rows of what [`Network::forward`] returned, in nats.
    ///
    /// # Errors
    /// As [`Network::scores`], or more tokens came next than there are rows, or one isn't in the vocabulary.
    pub fn losses_after<'h>(
        &self,
        hidden: impl Into<DMatrixView<'h, f32>>,
        next: &[usize],
    ) -> Result<Vec<f64>> {
        /// Tokens whose scores are in memory together. Those of all tokens after a text would take more than the model.
        const TOKENS: usize = 4096;
        let (hidden, n) = (hidden.into(), next.len());
        ensure!(n <= hidden.nrows(), "{n} tokens can't follow {} rows", hidden.nrows());
        self.check_tokens(next)?;
        let (mut sums, mut of_next) = (vec![f64::NEG_INFINITY; n], vec![0.0; n]);
        for first in (0..self.vocabulary()).step_by(TOKENS) {
            let tokens = first..self.vocabulary().min(first + TOKENS);
            let scores = self.scores_of(hidden.rows(0, n), tokens.clone())?;
            for (sum, of_part) in sums.iter_mut().zip(log_sum_exps(&scores)) {
                let (smaller, larger) = (sum.min(of_part), sum.max(of_part));
                *sum = larger + (smaller - larger).exp().ln_1p();
            }
            for (i, token) in
                next.iter().enumerate().filter(|(_, token)| tokens.contains(token))
            {
                of_next[i] = f64::from(scores[(i, token - first)]);
            }
        }
        Ok(sums.iter().zip(of_next).map(|(sum, of_next)| sum - of_next).collect())
    }

    /// Runs something while these heads are off: what they find is 0.
    ///
    /// # Errors
    /// As [`Network::with_heads_replaced`].
    pub fn without_heads<R>(
        &mut self,
        heads: &[Head],
        run: impl FnOnce(&Self) -> Result<R>,
    ) -> Result<R> {
        let attention = self.blocks.first().map(|block| &block.attention);
        let d = attention.map_or(0, |of| of.parameters.w_o.nrows() / of.n_heads());
        self.with_heads_replaced(heads, |_| vec![0.0; d], run)
    }

    /// Runs something while these heads find the same for every token, such as what they find on average: d numbers.
    ///
    /// The rows of W_O that carry a head's output are 0 for so long, and what they would make of those numbers is part of the bias.
    ///
    /// # Errors
    /// There is no such head, or `run` fails. Then, too, all heads are as they were.
    pub fn with_heads_replaced<R>(
        &mut self,
        heads: &[Head],
        mean_of: impl Fn(Head) -> Vec<f32>,
        run: impl FnOnce(&Self) -> Result<R>,
    ) -> Result<R> {
        for &(block, head) in heads {
            let n_heads = self.blocks.get(block).map(|block| block.attention.n_heads());
            ensure!(
                n_heads.is_some_and(|n_heads| head < n_heads),
                "there is no head {block}.{head}: blocks go from 0 to {}, and their heads from 0 to {}",
                self.blocks.len().saturating_sub(1),
                self.blocks.first().map_or(0, |block| block.attention.n_heads() - 1)
            );
        }
        let mut kept = vec![];
        // ANCHOR: off
        for &(block, head) in heads {
            let attention = &mut self.blocks[block].attention;
            let d = attention.parameters.w_o.nrows() / attention.n_heads();
            let parameters = &mut *attention.parameters;
            let mut rows = parameters.w_o.rows_mut(head * d, d); // (d, d_model)
            kept.push((rows.clone_owned(), parameters.b_o.clone()));
            let mean = RowDVector::from_vec(mean_of((block, head))); // (1, d)
            let carried = mean * &rows; // (1, d_model)
            if parameters.b_o.is_empty() {
                parameters.b_o = RowDVector::zeros(carried.len());
            }
            parameters.b_o += carried;
            rows.fill(0.0);
        }
        // ANCHOR_END: off
        let result = run(self);
        // In the opposite order, so that a head that was named twice gets what it had at first.
        for (&(block, head), (rows, bias)) in heads.iter().zip(kept).rev() {
            let parameters = &mut *self.blocks[block].attention.parameters;
            let d = rows.nrows();
            parameters.w_o.rows_mut(head * d, d).copy_from(&rows);
            parameters.b_o = bias;
        }
        result
    }
}

/// Returns log Σ e^score of each row of scores (n, vocabulary).
pub fn log_sum_exps(scores: &DMatrix<f32>) -> Vec<f64> {
    /// Columns that a thread takes at a time. A column lies together, and a row doesn't.
    const COLUMNS: usize = 1024;
    let n = scores.nrows();
    // The largest score so far of each row, and the sum of e^(score − largest).
    let parts = scores.as_slice().par_chunks(COLUMNS * n).map(|part| {
        let (mut largest, mut sums) = (vec![f32::NEG_INFINITY; n], vec![0.0_f64; n]);
        for column in part.chunks_exact(n) {
            largest
                .iter_mut()
                .zip(column)
                .for_each(|(largest, score)| *largest = largest.max(*score));
        }
        let mut powers = vec![0.0; n];
        for column in part.chunks_exact(n) {
            for ((power, score), largest) in powers.iter_mut().zip(column).zip(&largest) {
                *power = score - largest;
            }
            f32::exp_all(&mut powers);
            sums.iter_mut()
                .zip(&powers)
                .for_each(|(sum, &power)| *sum += f64::from(power));
        }
        largest.into_iter().zip(sums).collect::<Vec<_>>()
    });
    let parts: Vec<_> = parts.collect(); // in order, for any number of threads
    let row = |i: usize| {
        let of_row = parts.iter().map(|part| (f64::from(part[i].0), part[i].1));
        let largest =
            of_row.clone().map(|(largest, _)| largest).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = of_row.map(|(of_part, sum)| sum * (of_part - largest).exp()).sum();
        largest + sum.ln()
    };
    (0..n).map(row).collect()
}
