//! The keys and values of the tokens so far, for a model that writes.

use crate::error::{Result, check_count, check_not_empty, check_positive};
use crate::flash::{FlashOptions, Inputs};
use crate::linear::linear;
use crate::mask::Mask;
use crate::multi_head::MultiHeadAttention;
use crate::simd::Float;
use nalgebra::{DMatrix, DMatrixView};

/// The keys and values of a layer's tokens so far, so that each token is projected once.
///
/// [`MultiHeadAttention::forward_cached`] adds the tokens that it is given, one or many, and attends to all that are held. A model has a
/// cache for each layer. A copy is a cache of its own, so that a text may go on in two ways.
///
/// Memory: 2 · n_kv_heads · d numbers a token; rows are added in amortised constant time.
///
/// ```
/// use attention::{KeyValueCache, Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::<f64>::xavier_grouped(4, 2, 1, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = example::river().x; // six tokens
/// let mut cache = KeyValueCache::new();
/// let prompt = layer.forward_cached(&x.rows(0, 4), &mut cache, Mask::causal())?;
/// let fifth = layer.forward_cached(&x.rows(4, 1), &mut cache, Mask::causal())?;
/// assert_eq!(cache.tokens(), 5);
///
/// let (at_once, _) = layer.forward(&x.rows(0, 5), Mask::causal())?;
/// assert!((prompt - at_once.rows(0, 4)).amax() < 1e-15);
/// assert!((fifth - at_once.rows(4, 1)).amax() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KeyValueCache<T: Float> {
    keys: DMatrix<T>, // (room, n_kv_heads · d_k), turned where the layer has rotary positions
    values: DMatrix<T>, // (room, n_kv_heads · d_v)
    held: usize,      // rows of these that are filled
    tokens: usize,    // so many came by; the position of the next one
    window: Option<Window>,
}

/// What a cache with a window keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Window {
    width: usize,
    sinks: usize,
}

impl<T: Float> Default for KeyValueCache<T> {
    fn default() -> Self {
        KeyValueCache::new()
    }
}

impl<T: Float> KeyValueCache<T> {
    /// Returns an empty cache, which holds whatever comes.
    pub fn new() -> Self {
        let none = || DMatrix::zeros(0, 0);
        KeyValueCache { keys: none(), values: none(), held: 0, tokens: 0, window: None }
    }

    /// Returns an empty cache of which each token sees itself, the `width − 1` before it, and the first `sinks` of all:
    /// [`Mask::window_with_sinks`] holds beside the mask that is given. What no later token can see is forgotten, so that memory stays
    /// below 2 · width + sinks tokens and those that come at once, however long the text.
    ///
    /// Rotary positions stay those of the text. The distances of a rule for scores are counted in the tokens that are held.
    ///
    /// # Errors
    /// `width` is 0.
    ///
    /// # Source
    /// G. Xiao et al., *Efficient Streaming Language Models with Attention Sinks* (2023).
    ///
    /// ```
    /// # use attention::{KeyValueCache, Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let mut cache = KeyValueCache::with_window(2, 1)?;
    /// for i in 0..6 {
    ///     layer.forward_cached(&x.rows(i, 1), &mut cache, Mask::none())?;
    /// }
    /// assert_eq!(cache.tokens(), 6);
    /// assert!(cache.held() <= 2 * 2 + 1);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_window(width: usize, sinks: usize) -> Result<Self> {
        check_positive("width", width)?;
        Ok(KeyValueCache { window: Some(Window { width, sinks }), ..Self::new() })
    }

    /// Returns the number of tokens that came by, which is the position of the next one.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the number of tokens that are held; fewer than came by, where there is a window.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns the keys that are held (held, n_kv_heads · d_k), turned to their positions.
    pub fn keys(&self) -> DMatrixView<'_, T> {
        self.keys.rows(0, self.held)
    }

    /// Returns the values that are held (held, n_kv_heads · d_v).
    pub fn values(&self) -> DMatrixView<'_, T> {
        self.values.rows(0, self.held)
    }

    /// Returns the bytes of the keys and values that are held.
    pub fn bytes(&self) -> usize {
        (self.keys().len() + self.values().len()) * size_of::<T>()
    }

    // ANCHOR: push
    /// Adds the keys and values of some tokens.
    fn push(&mut self, keys: &DMatrix<T>, values: &DMatrix<T>) {
        let held = self.held + keys.nrows();
        for (store, new) in [(&mut self.keys, keys), (&mut self.values, values)] {
            if store.nrows() < held {
                // Room for twice as many, so that each row is copied less than twice.
                let mut larger = DMatrix::zeros(held.next_power_of_two(), new.ncols());
                if self.held > 0 {
                    larger.rows_mut(0, self.held).copy_from(&store.rows(0, self.held));
                }
                *store = larger;
            }
            store.rows_mut(self.held, new.nrows()).copy_from(new);
        }
        self.held = held;
        self.tokens += keys.nrows();
    }
    // ANCHOR_END: push

    /// Moves what a window still shows to the front, when as much can be forgotten.
    fn forget(&mut self) {
        let Some(Window { width, sinks }) = self.window else { return };
        let last = width - 1; // the next token sees so many before it
        let kept = sinks.saturating_add(last);
        if self.held < kept.saturating_add(width) {
            return;
        }
        let from = self.held - last;
        for store in [&mut self.keys, &mut self.values] {
            for mut column in store.column_iter_mut() {
                column.as_mut_slice().copy_within(from..from + last, sinks);
            }
        }
        self.held = kept;
    }

    /// The mask that the window is, beside another.
    fn mask(&self, mask: Mask) -> Result<Mask> {
        match self.window {
            Some(Window { width, sinks }) => {
                Ok(mask.and(Mask::window_with_sinks(width, sinks)?))
            }
            None => Ok(mask),
        }
    }
}

impl<T: Float> MultiHeadAttention<T> {
    /// Returns the output for new tokens, which see themselves and the tokens that the cache holds, as far as the mask allows; and adds them
    /// to the cache. It has no backward pass: it is for a model that writes.
    ///
    /// Whether a text comes at once, in chunks or token by token makes no difference beyond rounding, as long as no token sees a later one:
    /// take [`Mask::causal`]. Masks are laid over the tokens that are held and the new ones, so [`Mask::padding`] and [`Mask::dense`] must
    /// have their number.
    ///
    /// Shapes: `x` (n, d_model) → (n, d_model).
    ///
    /// # Errors
    /// `x` is empty or not d_model wide, the mask was made for another shape, or the cache is that of a layer of other widths. Then
    /// nothing was added.
    ///
    /// ```
    /// use attention::{KeyValueCache, Mask, MultiHeadAttention, Rotary, RotaryPairs};
    /// use nalgebra::DMatrix;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f32>::xavier(8, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let layer = layer.with_rotary(Rotary::new(10_000.0, RotaryPairs::Halves)?)?;
    /// let mut cache = KeyValueCache::new();
    /// let mut token = DMatrix::repeat(1, 8, 0.5);
    /// for _ in 0..10 {
    ///     token = layer.forward_cached(&token, &mut cache, Mask::causal())?; // a model does more in between
    /// }
    /// assert_eq!(cache.tokens(), 10);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward_cached<'x>(
        &self,
        x: impl Into<DMatrixView<'x, T>>,
        cache: &mut KeyValueCache<T>,
        options: impl Into<FlashOptions>,
    ) -> Result<DMatrix<T>> {
        let (x, FlashOptions { mask, engine, .. }) = (x.into(), options.into());
        self.check()?;
        check_not_empty("x", x)?;
        let mut qkv = self.parameters.project_inputs(x, x)?;
        self.turn_at(&mut qkv, cache.tokens as isize);
        let [q, k, v] = qkv;

        // Everything that can be wrong, before anything is added.
        for (argument, held, new) in
            [("cache.keys", &cache.keys, &k), ("cache.values", &cache.values, &v)]
        {
            let (held, new) = (held.ncols(), new.ncols());
            let because = || format!("the layer's are {new} wide");
            check_count(
                argument,
                "column",
                if held == 0 { new } else { held },
                new,
                because,
            )?;
        }
        let mask = cache.mask(mask)?;
        mask.check_heads(self.n_heads())?;
        cache.forget(); // which changes nothing that a token could see
        mask.sized_for_heads(x.nrows(), cache.held + x.nrows())?;

        // ANCHOR: attend
        cache.push(&k, &v);
        let (n_heads, n_kv_heads) = (self.n_heads(), self.n_kv_heads());
        let inputs =
            Inputs::grouped(&q, cache.keys(), cache.values(), mask, n_heads, n_kv_heads)?;
        let attended = engine.forward(&inputs).output;
        linear(&attended, &self.parameters.w_o, &self.parameters.b_o)
        // ANCHOR_END: attend
    }
}
