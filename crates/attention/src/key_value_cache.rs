//! The keys and values of the tokens so far, for a model that writes.

use crate::Float;
use crate::blocks::blocks;
use crate::error::{Result, check_not_empty, check_positive, wrong_value};
use crate::forward_options::ForwardOptions;
use crate::linear::linear_by;
use crate::mask::{Mask, SizedMask};
use crate::multi_head::{Maker, MultiHeadAttention};
use crate::paged::{PagedInputs, Pages};
use crate::parameters::check_maker;
use nalgebra::{DMatrix, DMatrixView};
use std::ops::Range;
use std::sync::Arc;

/// The keys and values of a layer's tokens so far, so that each token is projected once.
///
/// [`MultiHeadAttention::forward_cached`] adds the tokens that it is given, one or many, and attends to all that are held. A model has a
/// cache for each layer. A copy is a cache of its own, so that a text may go on in two ways.
///
/// Memory: 2 · n_kv_heads · d numbers a token; rows are added in amortised constant time. [`KeyValueCache::with_pages`] says how the memory
/// grows.
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
    pages: Vec<Arc<Page<T>>>, // all of one size, and all but the last are full
    page_tokens: Option<usize>, // none: there is one page, which grows
    held: usize,              // rows of the pages that are filled
    tokens: usize,            // so many came by; the position of the next one
    before: usize,            // rows before those that a window has forgotten
    window: Option<Window>,
    maker: Option<Maker>, // the layer that filled it; none before the first token
}

/// Memory for the keys and values of some tokens. Copies of a cache share pages until one of them writes to a page.
#[derive(Debug, Clone, PartialEq)]
struct Page<T: Float> {
    keys: DMatrix<T>, // (tokens, n_kv_heads · d_k), turned where the layer has rotary positions
    values: DMatrix<T>, // (tokens, n_kv_heads · d_v)
}

impl<T: Float> Page<T> {
    fn zeros(tokens: usize, (keys, values): (usize, usize)) -> Self {
        let zeros = |width| DMatrix::zeros(tokens, width);
        Page { keys: zeros(keys), values: zeros(values) }
    }

    /// Writes some tokens of another page from row `first` on.
    fn write(&mut self, first: usize, from: &Page<T>, rows: Range<usize>) {
        let stores = [(&mut self.keys, &from.keys), (&mut self.values, &from.values)];
        for (to, from) in stores {
            to.rows_mut(first, rows.len()).copy_from(&from.rows_range(rows.clone()));
        }
    }
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
        KeyValueCache {
            pages: vec![],
            page_tokens: None,
            held: 0,
            tokens: 0,
            before: 0,
            window: None,
            maker: None,
        }
    }

    /// Returns an empty cache of which each token sees itself, the `width − 1` before it, and the first `sinks` of all:
    /// [`Mask::window_with_sinks`] holds beside the mask that is given. What no later token can see is forgotten, so that memory stays
    /// below 2 · width + sinks tokens and those that come at once, however long the text.
    ///
    /// Positions and distances stay those of the text, in rotary positions, masks and rules for scores: outputs are those of the whole
    /// text under that mask.
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

    /// Returns the same cache with memory in pages of so many tokens. When the last page is full, another is added: no row that is held
    /// moves, and less than a page is empty. Without pages there is one matrix, which is copied to one of twice the size when it is full.
    ///
    /// A copy of the cache shares all pages with it. Whichever of the two writes to a page first gets that page for itself, so caches
    /// whose texts begin with the same prompt hold its full pages once.
    ///
    /// Outputs have the same bits with and without pages. A few new tokens read the pages where they are if `tokens` is a multiple of 1,024;
    /// otherwise they copy some thousand keys and values of a head at a time. Many tokens at once, as in a prompt, first copy all pages
    /// into one matrix. With a window, pages are freed as wholes, so up to two pages more are held.
    ///
    /// # Errors
    /// `tokens` is 0.
    ///
    /// # Source
    /// W. Kwon et al., *Efficient Memory Management for Large Language Model Serving with PagedAttention* (2023).
    ///
    /// ```
    /// # use attention::{KeyValueCache, Mask, MultiHeadAttention, example};
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// # let x = example::river().x;
    /// let mut paged = KeyValueCache::new().with_pages(4)?;
    /// let mut whole = KeyValueCache::new();
    /// for i in 0..6 {
    ///     let token = x.rows(i, 1);
    ///     let output = layer.forward_cached(token, &mut paged, Mask::causal())?;
    ///     assert_eq!(output, layer.forward_cached(token, &mut whole, Mask::causal())?);
    /// }
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_pages(self, tokens: usize) -> Result<Self> {
        check_positive("tokens", tokens)?;
        let held = Page { keys: self.keys(), values: self.values() };
        let mut paged =
            KeyValueCache { pages: vec![], page_tokens: Some(tokens), held: 0, ..self };
        paged.push(&held);
        Ok(paged)
    }

    /// Returns the number of tokens that came by, which is the position of the next one.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Returns the number of tokens that are held; fewer than came by, where there is a window.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Returns a copy of the keys that are held (held, n_kv_heads · d_k), turned to their positions.
    pub fn keys(&self) -> DMatrix<T> {
        self.views(|page| &page.keys).gathered()
    }

    /// Returns a copy of the values that are held (held, n_kv_heads · d_v).
    pub fn values(&self) -> DMatrix<T> {
        self.views(|page| &page.values).gathered()
    }

    /// Returns the bytes of the keys and values that are held.
    pub fn bytes(&self) -> usize {
        let width = |page: &Arc<Page<T>>| page.keys.ncols() + page.values.ncols();
        self.held * self.pages.first().map_or(0, width) * size_of::<T>()
    }

    /// The tokens in a page.
    fn page_room(&self) -> usize {
        self.pages.first().map_or(0, |page| page.keys.nrows())
    }

    /// The rows that are held, of all keys or of all values.
    fn views<'a>(&'a self, of: impl Fn(&'a Page<T>) -> &'a DMatrix<T>) -> Pages<'a, T> {
        let filled = blocks(self.held, self.page_room());
        let pages = self.pages.iter().zip(filled);
        Pages::new(pages.map(|(page, rows)| of(page).rows(0, rows.len())).collect())
    }

    /// Adds the keys and values of some tokens.
    fn push(&mut self, new: &Page<T>) {
        let (mut added, count) = (0, new.keys.nrows());
        self.make_room(self.held + count, (new.keys.ncols(), new.values.ncols()));
        while added < count {
            let (page, first) =
                (self.held / self.page_room(), self.held % self.page_room());
            let some = (self.page_room() - first).min(count - added);
            let page = Arc::make_mut(&mut self.pages[page]); // of this cache alone
            page.write(first, new, added..added + some);
            self.held += some;
            added += some;
        }
    }

    /// Adds pages; or makes the one page larger.
    fn make_room(&mut self, tokens: usize, widths: (usize, usize)) {
        if let Some(page_tokens) = self.page_tokens {
            while self.pages.len() * page_tokens < tokens {
                self.pages.push(Arc::new(Page::zeros(page_tokens, widths)));
            }
        } else if self.page_room() < tokens {
            // Room for twice as many, so that on average a row is copied less than twice.
            let mut larger = Page::zeros(tokens.next_power_of_two(), widths);
            if let Some(page) = self.pages.first() {
                larger.write(0, page, 0..self.held);
            }
            self.pages = vec![Arc::new(larger)];
        }
    }

    /// Frees what a window no longer shows: pages; or of one page its middle, by moving what is still seen, once that pays.
    fn forget(&mut self) {
        let Some(Window { width, sinks }) = self.window else { return };
        let last = width - 1; // the next token sees so many before it
        if let Some(tokens) = self.page_tokens {
            let first = sinks.div_ceil(tokens); // the page after those of the sinks
            let unseen = self.held.saturating_sub(last) / tokens; // the page with the first row that is seen
            if first < unseen {
                self.pages.drain(first..unseen);
                self.held -= (unseen - first) * tokens;
                self.before = first * tokens;
            }
            return;
        }
        let kept = sinks.saturating_add(last);
        if self.held < kept.saturating_add(width) {
            return;
        }
        let from = self.held - last;
        let page = Arc::make_mut(&mut self.pages[0]);
        for store in [&mut page.keys, &mut page.values] {
            for mut column in store.column_iter_mut() {
                column.as_mut_slice().copy_within(from..from + last, sinks);
            }
        }
        (self.held, self.before) = (kept, sinks);
    }

    /// Queries of a layer, and all keys and values that are held.
    fn inputs<'a>(
        &'a self,
        q: DMatrixView<'a, T>,
        mask: SizedMask,
        layer: &MultiHeadAttention<T>,
    ) -> PagedInputs<'a, T> {
        PagedInputs {
            q,
            keys: self.views(|page| &page.keys),
            values: self.views(|page| &page.values),
            mask,
            n_heads: layer.n_heads(),
            n_kv_heads: layer.n_kv_heads(),
            dropout: None,
        }
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
    /// take [`Mask::causal`]. Masks are laid over all tokens of the text so far and the new ones, also where a window has forgotten some:
    /// [`Mask::padding`] has an entry for each of [`KeyValueCache::tokens`] and of the new ones.
    ///
    /// Shapes: `x` (n, d_model) → (n, d_model).
    ///
    /// # Errors
    /// `x` is empty or not d_model wide, the mask was made for another shape, there is a context or dropout, or the
    /// cache was filled by another layer, or by this one before its parameters changed. Then the cache is as it was.
    ///
    /// ```
    /// use attention::{KeyValueCache, Mask, MultiHeadAttention, Rotary, positions::RotaryPairs};
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
    pub fn forward_cached<'a, 'x>(
        &self,
        x: impl Into<DMatrixView<'x, T>>,
        cache: &mut KeyValueCache<T>,
        options: impl Into<ForwardOptions<'a, T>>,
    ) -> Result<DMatrix<T>> {
        let (x, options) = (x.into(), options.into());
        self.check()?;
        check_not_empty("x", x)?;
        let expected = "a cache holds the tokens of one text that is written";
        if options.context.is_some() {
            return Err(wrong_value("options.context", "given", expected));
        }
        if options.active_dropout()?.is_some() {
            return Err(wrong_value("options.dropout", "given", expected));
        }
        let ForwardOptions { mask, engine, .. } = options;
        if let Some(maker) = &cache.maker {
            check_maker(maker, &self.maker())?;
        }
        let mask = cache.mask(mask)?;
        mask.check_heads(self.n_heads())?;
        let mask = mask.sized_for_heads(x.nrows(), cache.tokens + x.nrows())?;
        let mut qkv = self.parameters.project_inputs(&*engine, x, x)?;
        self.turn(&mut qkv, cache.tokens as isize, false);
        let [q, keys, values] = qkv;
        let new = Page { keys, values };

        // From here on nothing fails. What is forgotten no token could see.
        cache.forget();
        let forgotten = cache.before..cache.before + (cache.tokens - cache.held);
        let mask = mask.without(forgotten);
        cache.maker = Some(self.maker());
        cache.tokens += x.nrows();
        cache.push(&new);
        let inputs = cache.inputs(q.as_view(), mask, self);
        let attended = engine.forward_paged(&inputs)?.output;
        linear_by(&*engine, &attended, &self.parameters.w_o, &self.parameters.b_o)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    fn layer_and_tokens() -> (MultiHeadAttention<f64>, DMatrix<f64>) {
        let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0));
        (
            layer.unwrap(),
            DMatrix::from_fn(30, 4, |i, j| (3.0 * i as f64 + j as f64).sin()),
        )
    }

    fn places(cache: &KeyValueCache<f64>) -> Vec<[*const f64; 2]> {
        let of = |page: &Arc<Page<f64>>| [&page.keys, &page.values].map(|x| x.as_ptr());
        cache.pages.iter().map(of).collect()
    }

    /// Pages stay where they are while the cache grows.
    #[test]
    fn no_row_that_is_held_moves() -> Result<()> {
        let (layer, x) = layer_and_tokens();
        let mut cache = KeyValueCache::new().with_pages(4)?;
        let mut before = vec![];
        for (first, count) in [(0, 3), (3, 6), (9, 1), (10, 20)] {
            layer.forward_cached(x.rows(first, count), &mut cache, Mask::causal())?;
            let now = places(&cache);
            assert_eq!(now.len(), (first + count).div_ceil(4));
            assert!(now.starts_with(&before));
            before = now;
        }
        Ok(())
    }

    /// Two texts with one prompt hold its full pages once, and neither sees what the other wrote.
    #[test]
    fn copies_share_the_pages_of_their_prompt() -> Result<()> {
        let (layer, x) = layer_and_tokens();
        let mut first = KeyValueCache::new().with_pages(4)?;
        layer.forward_cached(x.rows(0, 10), &mut first, Mask::causal())?;
        let mut second = first.clone();
        layer.forward_cached(x.rows(10, 5), &mut first, Mask::causal())?;
        layer.forward_cached(x.rows(20, 5), &mut second, Mask::causal())?;
        let (of_first, of_second) = (places(&first), places(&second));
        assert_eq!(of_first[..2], of_second[..2]); // eight tokens
        assert!((2..4).all(|page| of_first[page] != of_second[page]));

        for (cache, start) in [(first, 10), (second, 20)] {
            let mut alone = KeyValueCache::new();
            layer.forward_cached(x.rows(0, 10), &mut alone, Mask::causal())?;
            layer.forward_cached(x.rows(start, 5), &mut alone, Mask::causal())?;
            assert_eq!((cache.keys(), cache.values()), (alone.keys(), alone.values()));
            let paged = alone.with_pages(4)?; // a cache that is not empty
            assert_eq!((cache.keys(), cache.tokens()), (paged.keys(), paged.tokens()));
        }
        Ok(())
    }
}
