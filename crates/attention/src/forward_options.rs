//! How the forward pass of a layer is to run.

use crate::error::{Error, Result, unsupported};
use crate::flash::Flash;
use crate::mask::{Mask, NONE};
use nalgebra::{DMatrix, RealField};

/// What a layer's forward pass attends to, and how: context, mask, dropout, and whether it runs tile by tile.
///
/// A mask alone says most: `layer.forward(&x, &Mask::causal())`. For more than that, begin with [`ForwardOptions::new`].
///
/// ```
/// use attention::{ForwardOptions, Mask, MultiHeadAttention, example, flash::Flash};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let (x, context) = (example::river().x, example::city().x);
/// let mask = Mask::padding(&[true, true, true, true, true, false])?; // keys of the context
/// let options = ForwardOptions::new().with_mask(&mask).with_context(&context);
/// let (output, _) = layer.forward(&x, options)?;
/// let (by_tiles, _) = layer.forward(&x, options.with_flash(&Flash::new()))?;
/// assert!((output - by_tiles).amax() < 1e-14);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ForwardOptions<'a, T: RealField> {
    /// Where keys and values come from (n_k, d_model); `None` in self-attention.
    pub context: Option<&'a DMatrix<T>>,
    /// Which query may see which key.
    pub mask: &'a Mask,
    /// The probability that a weight is dropped, and the seed of the draws.
    pub dropout: Option<(f64, u64)>,
    /// What computes attention tile by tile; `None`: by its matrix of weights.
    pub flash: Option<&'a Flash>,
}

impl<'a, T: RealField> ForwardOptions<'a, T> {
    /// Self-attention in which every query sees every key, without dropout, by the matrix of weights.
    ///
    /// ```
    /// # use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// assert_eq!(layer.forward(&x, ForwardOptions::new())?, layer.forward(&x, &Mask::none())?);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn new() -> Self {
        ForwardOptions { context: None, mask: &NONE, dropout: None, flash: None }
    }

    /// Which query may see which key.
    ///
    /// ```
    /// # use attention::{ForwardOptions, Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let mask = Mask::causal();
    /// let (output, _) = layer.forward(&x, ForwardOptions::new().with_mask(&mask))?;
    /// assert_eq!(output, layer.forward(&x, &mask)?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_mask(self, mask: &'a Mask) -> Self {
        ForwardOptions { mask, ..self }
    }

    /// Cross-attention: keys and values come from `context` (n_k, d_model), and not from the input.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let x = example::river().x.rows(0, 2).into_owned();
    /// let context = example::city().x;
    /// let (output, cache) = layer.forward(&x, ForwardOptions::new().with_context(&context))?;
    /// assert_eq!((output.shape(), cache.heads()[0].weights.shape()), ((2, 4), (2, 6)));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_context(self, context: &'a DMatrix<T>) -> Self {
        ForwardOptions { context: Some(context), ..self }
    }

    /// Dropout, for training: each weight is set to 0 with this probability, and the others are divided by one minus it, so that a
    /// row's expected sum stays 1.
    ///
    /// What is dropped depends on the seed alone, and not on the number of threads: each head has random numbers of its own. Take
    /// another seed for each pass, each layer and each sequence of a batch. A probability that is not at least 0 and less than 1
    /// is an error of the forward pass; with a probability of 0 nothing is dropped.
    ///
    /// # Source
    /// N. Srivastava et al., *Dropout* (2014), in its inverted form.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let train = |seed| layer.forward(&x, ForwardOptions::new().with_dropout(0.5, seed));
    /// assert_eq!(train(1)?, train(1)?); // same seed, same bits
    /// assert_ne!(train(1)?.0, train(2)?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_dropout(self, probability: f64, seed: u64) -> Self {
        ForwardOptions { dropout: Some((probability, seed)), ..self }
    }

    /// Computed tile by tile, here and in the backward pass: the same output up to rounding, in memory that grows with n and not
    /// with n². It cannot be combined with dropout.
    ///
    /// ```
    /// # use attention::{ForwardOptions, MultiHeadAttention, example, flash::Flash};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let (output, cache) = layer.forward(&x, ForwardOptions::new().with_flash(&Flash::new()))?;
    /// assert!(cache.heads().is_empty()); // no weights were kept
    /// let gradients = layer.backward(&cache, &output)?;
    /// # assert_eq!(gradients.x.shape(), x.shape());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_flash(self, flash: &'a Flash) -> Self {
        ForwardOptions { flash: Some(flash), ..self }
    }

    /// Where keys and values come from.
    pub(crate) fn source<'s>(&'s self, x: &'s DMatrix<T>) -> &'s DMatrix<T> {
        self.context.unwrap_or(x)
    }

    /// For a layer that has neither dropout nor flash attention: neither was asked for.
    ///
    /// # Errors
    /// Dropout or flash attention was asked for.
    ///
    /// ```
    /// use attention::ForwardOptions;
    ///
    /// let options = ForwardOptions::<f64>::new().with_dropout(0.1, 0);
    /// let error = options.check_no_dropout_or_flash("MyLayer").unwrap_err();
    /// assert_eq!(error.to_string(), "`options.dropout` is given but MyLayer has none");
    /// ```
    pub fn check_no_dropout_or_flash(&self, layer: &str) -> Result<()> {
        let expected = || format!("{layer} has none");
        match (self.active_dropout(), self.flash) {
            (Some(_), _) => Err(unsupported("options.dropout", "given", expected())),
            (_, Some(_)) => Err(unsupported("options.flash", "given", expected())),
            (None, None) => Ok(()),
        }
    }

    /// Dropout that drops something.
    fn active_dropout(&self) -> Option<(f64, u64)> {
        self.dropout.filter(|(probability, _)| *probability != 0.0)
    }

    /// The probability is one, and dropout is not combined with flash attention.
    pub(crate) fn check(&self) -> Result<()> {
        let Some((probability, _)) = self.active_dropout() else { return Ok(()) };
        if !(0.0..1.0).contains(&probability) {
            let because = "it must be at least 0 and less than 1".to_owned();
            let (argument, given) = ("options.dropout", probability);
            return Err(Error::OutOfRange { argument, given, because });
        }
        if self.flash.is_some() {
            let expected = "flash attention keeps no weights to drop";
            return Err(unsupported("options.dropout", "given", expected));
        }
        Ok(())
    }
}

impl<T: RealField> Default for ForwardOptions<'_, T> {
    fn default() -> Self {
        ForwardOptions::new()
    }
}

impl<'a, T: RealField> From<&'a Mask> for ForwardOptions<'a, T> {
    /// This mask, and nothing else.
    fn from(mask: &'a Mask) -> Self {
        ForwardOptions::new().with_mask(mask)
    }
}
