//! The model: what a token is, blocks that look and think, and what comes next.

use crate::cross_entropy::{check_tokens, cross_entropy};
use crate::mlp::{Mlp, MlpCache};
use crate::norm::{NormCache, RmsNorm};
use crate::parallel;
use crate::random::normal;
use attention::engine::{
    ByWeights, Engine, check_positive, linear_backward_by, linear_by, wrong_value,
};
use attention::{
    Error, ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, MultiHeadCache,
    NamedParameters, Parameters, Result, Rotary, named_parameters,
    positions::RotaryPairs, softmax,
};
use fast::{Flash, Float};
use nalgebra::{DMatrix, DVector, RowDVector};
use rand::{Rng, RngExt as _};

/// The sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "train", derive(serde::Serialize, serde::Deserialize))]
pub struct Sizes {
    /// How many different tokens there are.
    pub vocabulary: usize,
    /// The width of a token's vector.
    pub d_model: usize,
    /// The number of blocks.
    pub n_blocks: usize,
    /// The number of heads in each block.
    pub n_heads: usize,
    /// The number of heads of keys and values that they share.
    pub n_kv_heads: usize,
    /// The width inside the MLP of each block; 0 for blocks of attention alone.
    pub d_hidden: usize,
}

impl Sizes {
    /// Returns the number of parameters of such a model, or the largest number if there are more. Sizes that don't fit one another have one, too.
    pub fn parameters(self) -> usize {
        let Sizes { vocabulary, d_model, n_blocks, n_heads, n_kv_heads, d_hidden } = self;
        let product = |rows: usize, columns: usize| rows.saturating_mul(columns);
        let sum =
            |all: &[usize]| all.iter().fold(0_usize, |sum, it| sum.saturating_add(*it));
        let d_keys = product(d_model / n_heads.max(1), n_kv_heads);
        // Weights and biases of queries and outputs, and of keys and values.
        let inputs = sum(&[d_model, 1]);
        let attention = sum(&[
            product(2, product(inputs, d_model)),
            product(2, product(inputs, d_keys)),
        ]);
        let norm = d_model;
        let mlp = match d_hidden {
            0 => 0,
            _ => sum(&[norm, product(2, product(d_model, d_hidden)), d_hidden, d_model]),
        };
        let blocks = product(n_blocks, sum(&[norm, attention, mlp]));
        sum(&[blocks, norm, product(2, product(vocabulary, d_model))])
    }
}

/// One block: attention, and an MLP if it has one. Each reads a normalised copy of `x` and adds what it found to `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct Block<T: Float, Attention = MultiHeadAttention<T>> {
    /// Of attention's input.
    pub norm: RmsNorm<T>,
    /// A layer; in gradients, those of its parameters.
    pub attention: Attention,
    /// With a norm of its own.
    pub mlp: Option<Mlp<T>>,
}

/// A model that reads tokens and gives, for each, a score to every token that might come next.
///
/// Positions are rotary, in the layers of attention. [`Gradients`] have the same parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Transformer<T: Float, Attention = MultiHeadAttention<T>> {
    /// What a token is (vocabulary, d_model).
    pub embedding: DMatrix<T>,
    /// One after the other.
    pub blocks: Vec<Block<T, Attention>>,
    /// Of the last block's output.
    pub norm: RmsNorm<T>,
    /// From a token's vector to the scores of the next (d_model, vocabulary).
    pub unembedding: DMatrix<T>,
}

/// Gradients with respect to the parameters of a [`Transformer`].
pub type Gradients<T> = Transformer<T, Parameters<T>>;

named_parameters! {
    impl[T: Float, A: NamedParameters<T>] NamedParameters<T> for Block<T, A> {
        norm, attention, mlp
    }
}
named_parameters! {
    impl[T: Float, A: NamedParameters<T>] NamedParameters<T> for Transformer<T, A> {
        embedding, blocks, norm, unembedding
    }
}

/// What [`Transformer::backward`] needs of the forward pass.
#[derive(Debug, Clone)]
pub struct TransformerCache<T: Float> {
    tokens: Vec<usize>,
    blocks: Vec<BlockCache<T>>,
    norm: NormCache<T>,
    normed: DMatrix<T>,
}

#[derive(Debug, Clone)]
struct BlockCache<T: Float> {
    norm: NormCache<T>,
    attention: MultiHeadCache<T>,
    mlp: Option<MlpCache<T>>,
}

impl<T: Float> TransformerCache<T> {
    /// Returns the weights of each head of a block (n, n).
    pub fn weights(&self, block: usize) -> &[DMatrix<T>] {
        self.blocks[block].attention.weights()
    }
}

/// A text to learn from: each token from `first` on is to be said by the model when it has read those before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Two at least.
    pub tokens: Vec<usize>,
    /// From 1 on.
    pub first: usize,
}

impl<T: Float> Block<T> {
    fn forward(
        &self,
        x: &mut DMatrix<T>,
        engine: impl Engine<T> + 'static,
    ) -> Result<BlockCache<T>> {
        let (normed, norm) = self.norm.forward(x);
        let options = ForwardOptions::new().mask(Mask::causal()).engine(engine);
        let (found, attention) = self.attention.forward(&normed, options)?;
        *x += found;
        let mlp = self.mlp.as_ref().map(|mlp| mlp.forward(x)).transpose()?;
        let mlp = mlp.map(|(thought, cache)| {
            *x += thought;
            cache
        });
        Ok(BlockCache { norm, attention, mlp })
    }

    /// Takes the gradient with respect to the block's output to that of its input: through each layer, and past it.
    fn backward(
        &self,
        cache: &BlockCache<T>,
        grad_x: &mut DMatrix<T>,
    ) -> Result<Block<T, Parameters<T>>> {
        let mlp = self.mlp.as_ref().zip(cache.mlp.as_ref());
        let mlp = mlp.map(|(mlp, cache)| mlp.backward(cache, grad_x)).transpose()?;
        let mlp = mlp.map(|(through, gradients)| {
            *grad_x += through;
            gradients
        });
        let attention = self.attention.backward(&cache.attention, &*grad_x)?;
        let (through, norm) = self.norm.backward(&cache.norm, &attention.x);
        *grad_x += through;
        Ok(Block { norm, attention: attention.parameters, mlp })
    }
}

impl<T: Float> Transformer<T> {
    /// Returns a model with fresh parameters.
    ///
    /// # Errors
    /// The vocabulary is empty, no memory could hold the parameters, or as [`MultiHeadAttention::xavier_grouped`].
    pub fn new<R: Rng + ?Sized>(sizes: Sizes, rng: &mut R) -> Result<Self> {
        let Sizes { vocabulary, d_model, n_blocks, n_heads, n_kv_heads, d_hidden } =
            sizes;
        check_positive("vocabulary", vocabulary)?;
        let given = sizes.parameters();
        if Vec::<T>::new().try_reserve_exact(given).is_err() {
            return Err(wrong_value("parameters", given, "no memory could hold them"));
        }
        // The more layers add to x, the less each adds at first.
        let output = (n_blocks as f64 * if d_hidden == 0 { 1.0 } else { 2.0 }).powf(-0.5);
        let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
        let mut block = |_| {
            let attention =
                MultiHeadAttention::xavier_grouped(d_model, n_heads, n_kv_heads, rng)?;
            let mut attention = attention.with_rotary(rotary)?;
            attention.parameters.w_o *= nalgebra::convert::<_, T>(output);
            let mlp = (d_hidden > 0).then(|| Mlp::new(d_model, d_hidden, output, rng));
            Ok(Block { norm: RmsNorm::new(d_model), attention, mlp })
        };
        let blocks = (0..n_blocks).map(&mut block).collect::<Result<_>>()?;
        Ok(Transformer {
            embedding: normal(vocabulary, d_model, 1.0, rng),
            blocks,
            norm: RmsNorm::new(d_model),
            unembedding: normal(d_model, vocabulary, (d_model as f64).powf(-0.5), rng),
        })
    }

    /// Returns the scores of the next token after each, and a cache for the backward pass, which has the weights of every head.
    ///
    /// Shapes: n tokens → (n, vocabulary).
    ///
    /// # Errors
    /// There are no tokens, or one is not in the vocabulary.
    pub fn forward(&self, tokens: &[usize]) -> Result<(DMatrix<T>, TransformerCache<T>)> {
        self.forward_by(ByWeights, tokens)
    }

    /// The rows of some tokens in the embedding.
    fn embed(&self, tokens: &[usize]) -> Result<DMatrix<T>> {
        check_tokens("tokens", tokens, self.embedding.nrows())?;
        Ok(self.embedding.select_rows(tokens))
    }

    fn forward_by(
        &self,
        engine: impl Engine<T> + Clone + 'static,
        tokens: &[usize],
    ) -> Result<(DMatrix<T>, TransformerCache<T>)> {
        let mut x = self.embed(tokens)?;
        let blocks =
            self.blocks.iter().map(|block| block.forward(&mut x, engine.clone()));
        let blocks = blocks.collect::<Result<_>>()?;
        let (normed, norm) = self.norm.forward(&x);
        let scores =
            linear_by(&Flash::new(), &normed, &self.unembedding, &RowDVector::zeros(0))?;
        Ok((scores, TransformerCache { tokens: tokens.to_vec(), blocks, norm, normed }))
    }

    /// Returns the gradients with respect to all parameters.
    ///
    /// # Errors
    /// `grad_scores` is not of the shape of the scores.
    pub fn backward(
        &self,
        cache: &TransformerCache<T>,
        grad_scores: &DMatrix<T>,
    ) -> Result<Gradients<T>> {
        let TransformerCache { tokens, blocks, norm, normed } = cache;
        let (grad_normed, unembedding, _) =
            linear_backward_by(&Flash::new(), normed, &self.unembedding, grad_scores)?;
        let (mut grad_x, norm) = self.norm.backward(norm, &grad_normed);
        let blocks = self.blocks.iter().zip(blocks).rev();
        let blocks = blocks.map(|(block, cache)| block.backward(cache, &mut grad_x));
        let mut blocks = blocks.collect::<Result<Vec<_>>>()?;
        blocks.reverse();
        // A token's row was read wherever the token stands.
        let mut embedding =
            DMatrix::zeros(self.embedding.nrows(), self.embedding.ncols());
        for (&token, grad) in tokens.iter().zip(grad_x.row_iter()) {
            let mut row = embedding.row_mut(token);
            row += grad;
        }
        Ok(Transformer { embedding, blocks, norm, unembedding })
    }

    /// Returns the mean loss of the tokens that are to be said in some texts, and its gradients.
    ///
    /// Attention runs tile by tile, without a matrix of weights. Texts run in parallel; the bits are the same for any number of threads.
    ///
    /// # Errors
    /// No token is to be said, a text has less than two tokens, or a token is not in the vocabulary.
    pub fn loss_and_gradients(&self, texts: &[Text]) -> Result<(T, Gradients<T>)> {
        let said = Text::said(texts);
        let of_texts = parallel::map(texts, |text| {
            let (scores, cache) = self.forward_by(Flash::new(), text.read())?;
            let (loss, grad_scores) = cross_entropy(&scores, &text.targets())?;
            Ok((loss, self.backward(&cache, &grad_scores)?))
        });
        let mut sums = of_texts.into_iter().collect::<Result<Vec<_>>>()?;
        // Pairs, then pairs of pairs: an order that depends on nothing but the number of texts.
        while sums.len() > 1 {
            let mut pairs = sums.into_iter();
            sums = vec![];
            while let Some((mut loss, mut gradients)) = pairs.next() {
                if let Some((other_loss, other)) = pairs.next() {
                    loss += other_loss;
                    gradients.accumulate(&other)?;
                }
                sums.push((loss, gradients));
            }
        }
        let Some((loss, mut gradients)) = sums.pop().filter(|_| said > 0) else {
            return Err(nothing_said());
        };
        let share = nalgebra::convert::<_, T>(said as f64).recip();
        gradients.scale(share);
        Ok((loss * share, gradients))
    }

    /// Returns the mean loss of the tokens that are to be said in some texts.
    ///
    /// # Errors
    /// As [`Transformer::loss_and_gradients`].
    pub fn loss(&self, texts: &[Text]) -> Result<T> {
        let losses = parallel::map(texts, |text| {
            let (scores, _) = self.forward_by(Flash::new(), text.read())?;
            Ok(cross_entropy(&scores, &text.targets())?.0)
        });
        let losses = losses.into_iter().collect::<Result<Vec<T>>>()?;
        let said = Text::said(texts);
        if said == 0 {
            return Err(nothing_said());
        }
        // In `f64`, because a sum of many loses in `f32`.
        let losses = losses.into_iter().map(nalgebra::convert_unchecked::<T, f64>);
        Ok(nalgebra::convert(losses.sum::<f64>() / said as f64))
    }

    /// Returns the scores of the next token after each new token, which sees those that the caches hold, one cache a block; and adds the new
    /// ones to the caches.
    ///
    /// # Errors
    /// There are no tokens, one is not in the vocabulary, or the caches are those of another model.
    ///
    /// # Panics
    /// There is not a cache for each block.
    pub fn forward_cached(
        &self,
        tokens: &[usize],
        caches: &mut [KeyValueCache<T>],
    ) -> Result<DMatrix<T>> {
        assert_eq!(caches.len(), self.blocks.len(), "a cache for each block");
        let mut x = self.embed(tokens)?;
        for (block, cache) in self.blocks.iter().zip(caches) {
            let (normed, _) = block.norm.forward(&x);
            let options = ForwardOptions::new().mask(Mask::causal()).engine(Flash::new());
            x += block.attention.forward_cached(&normed, cache, options)?;
            if let Some(mlp) = &block.mlp {
                let (thought, _) = mlp.forward(&x)?;
                x += thought;
            }
        }
        let (normed, _) = self.norm.forward(&x);
        linear_by(&Flash::new(), &normed, &self.unembedding, &RowDVector::zeros(0))
    }

    /// Returns the model without what these heads find: the rows of W_O that carry their outputs are 0. A head is a block and a number in it.
    ///
    /// # Panics
    /// There is no such head.
    pub fn without_heads(&self, heads: &[(usize, usize)]) -> Self {
        let mut model = self.clone();
        for &(block, head) in heads {
            let attention = &mut model.blocks[block].attention;
            assert!(head < attention.n_heads(), "head {head} of {}", attention.n_heads());
            let d = attention.parameters.w_o.nrows() / attention.n_heads();
            attention.parameters.w_o.rows_mut(head * d, d).fill(T::zero());
        }
        model
    }
}

impl Text {
    /// Returns all tokens but the last, which nothing follows.
    pub fn read(&self) -> &[usize] {
        &self.tokens[..self.tokens.len().saturating_sub(1)]
    }

    /// Returns what is to be said after each token that is read, if anything.
    pub fn targets(&self) -> Vec<Option<usize>> {
        let next = self.tokens.iter().enumerate().skip(1);
        next.map(|(i, &token)| (i >= self.first).then_some(token)).collect()
    }

    /// Returns how many tokens are to be said in some texts.
    pub fn said(texts: &[Text]) -> usize {
        texts.iter().flat_map(Text::targets).flatten().count()
    }
}

/// A mean over nothing.
fn nothing_said() -> Error {
    let because = "at least one entry is needed";
    wrong_value("texts", "empty (no token is to be said)", because)
}

/// Draws the next token: with the probabilities that softmax gives to the scores divided by `temperature`. Near 0 the largest score wins.
///
/// # Errors
/// There are no scores.
pub fn draw_next<T: Float, R: Rng + ?Sized>(
    scores: &DVector<T>,
    temperature: T,
    rng: &mut R,
) -> Result<usize> {
    // A temperature of 0 would divide by 0.
    let largest = scores.max();
    let least: T = nalgebra::convert(1e-4);
    let weights =
        softmax(&scores.map(|score| (score - largest) / temperature.max(least)))?;
    let mut left: T = nalgebra::convert(rng.random::<f64>());
    let drawn = weights.iter().position(|&weight| {
        left -= weight;
        left < T::zero()
    });
    Ok(drawn.unwrap_or(weights.imax()))
}
