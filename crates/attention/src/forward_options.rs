//! Options of a layer's forward pass.

use crate::Float;
use crate::dropout::Dropout;
use crate::engine::{ByWeights, Engine, SharedEngine, Tiled};
use crate::error::{Result, check_count, wrong_value};
use crate::mask::Mask;
use nalgebra::DMatrixView;
use rand::{Rng, RngExt};

/// The options of a layer's forward pass: mask, context, dropout, and the engine that computes attention.
///
/// A mask alone says most: `layer.forward(&x, Mask::causal())`. For more than that, begin with [`ForwardOptions::new`].
///
/// ```
/// use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (x, context) = (example::river().x, example::city().x);
/// let mask = Mask::padding(&[true, true, true, true, true, false])?; // keys of the context
/// let options = ForwardOptions::new().mask(mask).context(&context);
/// let (output, _) = layer.forward(&x, options.clone())?;
/// let (by_tiles, _) = layer.forward(&x, options.flash())?;
/// assert!((output - by_tiles).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ForwardOptions<'a, T: Float> {
    pub(crate) mask: Mask,
    pub(crate) context: Option<DMatrixView<'a, T>>, // (n_k, d_model)
    pub(crate) dropout: Option<Dropout>,
    pub(crate) engine: SharedEngine<T>,
}

impl<'a, T: Float> ForwardOptions<'a, T> {
    /// Returns the options for self-attention in which every query sees every key, without dropout, by [`ByWeights`].
    ///
    /// ```
    /// # use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// assert_eq!(layer.forward(&x, ForwardOptions::new())?, layer.forward(&x, Mask::none())?);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn new() -> Self {
        ForwardOptions {
            mask: Mask::none(),
            context: None,
            dropout: None,
            engine: SharedEngine::new(ByWeights),
        }
    }

    /// Returns these options with a mask, which says which query may see which key.
    ///
    /// ```
    /// # use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let (output, _) = layer.forward(&x, ForwardOptions::new().mask(Mask::causal()))?;
    /// assert_eq!(output, layer.forward(&x, Mask::causal())?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn mask(self, mask: impl Into<Mask>) -> Self {
        ForwardOptions { mask: mask.into(), ..self }
    }

    /// Returns these options with a context (n_k, d_model), from which keys and values come, and not from the input: cross-attention.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let (x, context) = (example::river().x, example::city().x);
    /// let options = ForwardOptions::new().context(&context);
    /// let (output, cache) = layer.forward(&x.rows(0, 2), options)?;
    /// assert_eq!((output.shape(), cache.heads()[0].weights.shape()), ((2, 4), (2, 6)));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn context(self, context: impl Into<DMatrixView<'a, T>>) -> Self {
        ForwardOptions { context: Some(context.into()), ..self }
    }

    /// Returns these options with dropout, for training: each weight is set to 0 with this probability, and the others are divided by
    /// one minus it, so that a row's expected sum stays 1.
    ///
    /// One seed is drawn from `rng`. Options that are used again drop the same weights again; the sequences of a batch drop different
    /// ones. The draws depend on the seed and a weight's place alone, so that both engines, and any number of threads, drop the same.
    /// A probability that is not at least 0 and less than 1 is an error of the forward pass; with 0, nothing is dropped.
    ///
    /// # Source
    /// N. Srivastava et al., *Dropout* (2014), in its inverted form.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let train = |seed| {
    ///     let mut rng = ChaCha8Rng::seed_from_u64(seed);
    ///     layer.forward(&x, ForwardOptions::new().dropout(0.5, &mut rng))
    /// };
    /// assert_eq!(train(1)?, train(1)?); // same seed, same bits
    /// assert_ne!(train(1)?.0, train(2)?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn dropout<R: Rng + ?Sized>(self, probability: f64, rng: &mut R) -> Self {
        let dropout = Dropout { probability, seed: rng.random() };
        ForwardOptions { dropout: Some(dropout), ..self }
    }

    /// Returns these options with the engine that goes tile by tile, [`Tiled`], forward and backward: the same output up to rounding, in
    /// memory that grows with n and not with n².
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let (output, cache) = layer.forward(&x, ForwardOptions::new().flash())?;
    /// assert!(cache.weights().is_empty()); // none were kept
    /// let gradients = layer.backward(&cache, &output)?;
    /// # assert_eq!(gradients.x.shape(), x.shape());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn flash(self) -> Self {
        self.engine(Tiled::default())
    }

    /// Returns these options with this engine, for attention and for the products of the projections.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, engine::Tiled, example, flash::Tiles};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let options = ForwardOptions::new().engine(Tiled(Tiles { queries: 2, keys: 3 }));
    /// let off = layer.forward(&x, options)?.0 - layer.forward(&x, ForwardOptions::new())?.0;
    /// assert!(off.amax() < 1e-15);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn engine(self, engine: impl Engine<T> + 'static) -> Self {
        ForwardOptions { engine: SharedEngine::new(engine), ..self }
    }

    /// The matrix that keys and values come from.
    pub(crate) fn source<'s>(&'s self, x: DMatrixView<'s, T>) -> DMatrixView<'s, T> {
        self.context.unwrap_or(x)
    }

    /// The dropout, if it drops something.
    ///
    /// # Errors
    /// The probability is not at least 0 and less than 1.
    pub(crate) fn active_dropout(&self) -> Result<Option<Dropout>> {
        let Some(dropout) = self.dropout else { return Ok(None) };
        if !(0.0..1.0).contains(&dropout.probability) {
            let because = "it must be at least 0 and less than 1";
            return Err(wrong_value("options.dropout", dropout.probability, because));
        }
        Ok((dropout.probability > 0.0).then_some(dropout))
    }

    /// These options for sequence `b` of a batch: with other weights dropped than in the other sequences.
    fn of_sequence(mut self, b: usize) -> Self {
        if let Some(dropout) = &mut self.dropout {
            dropout.seed = dropout.seed.wrapping_add(b as u64);
        }
        self
    }
}

impl<T: Float> Default for ForwardOptions<'_, T> {
    fn default() -> Self {
        ForwardOptions::new()
    }
}

impl<T: Float> From<Mask> for ForwardOptions<'_, T> {
    /// Returns the options with this mask, and nothing else.
    fn from(mask: Mask) -> Self {
        ForwardOptions::new().mask(mask)
    }
}

impl<T: Float> From<&Mask> for ForwardOptions<'_, T> {
    /// Returns the options with this mask, and nothing else.
    fn from(mask: &Mask) -> Self {
        ForwardOptions::new().mask(mask)
    }
}

/// The options of a batch: the same for all sequences, or a list of them, such as masks or options with contexts.
///
/// ```
/// use attention::{BatchOptions, Mask};
///
/// let same = BatchOptions::<f64>::from(Mask::causal());
/// let each = BatchOptions::<f64>::from(vec![Mask::causal(), Mask::padding(&[true, false])?]);
/// assert!(same != each);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum BatchOptions<'a, T: Float> {
    /// The options of every sequence; each sequence drops other weights, if there is dropout.
    Same(ForwardOptions<'a, T>),
    /// The options of each sequence, in the order of the sequences.
    Each(Vec<ForwardOptions<'a, T>>),
}

impl<'a, T: Float> BatchOptions<'a, T> {
    /// The options of each of `sequences` sequences.
    ///
    /// # Errors
    /// The list has another length.
    pub(crate) fn for_each(self, sequences: usize) -> Result<Vec<ForwardOptions<'a, T>>> {
        match self {
            BatchOptions::Same(options) => {
                Ok((0..sequences).map(|b| options.clone().of_sequence(b)).collect())
            }
            BatchOptions::Each(options) => {
                let because = || format!("`xs` has {sequences}");
                check_count("options", "entry", options.len(), sequences, because)?;
                Ok(options)
            }
        }
    }
}

impl<T: Float> From<Mask> for BatchOptions<'_, T> {
    /// Returns the options in which this mask holds for every sequence.
    fn from(mask: Mask) -> Self {
        BatchOptions::Same(mask.into())
    }
}

impl<T: Float> From<&Mask> for BatchOptions<'_, T> {
    /// Returns the options in which this mask holds for every sequence.
    fn from(mask: &Mask) -> Self {
        BatchOptions::Same(mask.into())
    }
}

impl<'a, T: Float> From<ForwardOptions<'a, T>> for BatchOptions<'a, T> {
    /// Returns the options that are the same for every sequence, but for the weights that dropout drops.
    fn from(options: ForwardOptions<'a, T>) -> Self {
        BatchOptions::Same(options)
    }
}

impl<'a, T: Float, O: Into<ForwardOptions<'a, T>>> From<Vec<O>> for BatchOptions<'a, T> {
    /// Returns the options of each sequence.
    fn from(options: Vec<O>) -> Self {
        BatchOptions::Each(options.into_iter().map(Into::into).collect())
    }
}
