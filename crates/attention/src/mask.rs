//! Masks: which query may see which key.
//!
//! A [`Mask`] is a rule, such as "no token sees its future". Laid over a given number of queries and keys it becomes a
//! [`SizedMask`], which answers for each pair, gives the 0/−∞ matrix of the equations, and tells tiled code which tiles
//! it may skip.

mod rule;

use crate::error::{
    Result, check_matrix, check_not_empty, check_positive, check_shape, empty,
};
use crate::score_rule::{Along, Line, RuleGradients, ScorePlace, ScoreRule};
use nalgebra::{DMatrix, RealField};
use rule::Lengths;
pub use rule::Rule;
use std::ops::Range;
use std::sync::Arc;

/// Which query may see which key, as a rule that fits any number of tokens.
///
/// With fewer queries than keys, positions are aligned at their ends: query `i` stands at key position
/// `i + n_k − n_q`, as when the last few tokens of a text ask about all of it. With more queries than keys the first
/// `n_q − n_k` of a causal mask see nothing. (PyTorch's `is_causal` aligns at the beginnings instead.)
///
/// ```
/// use attention::Mask;
///
/// // A text of three tokens, of which the last is padding, where no token may see its future.
/// let mask = Mask::causal().and(Mask::padding(&[true, true, false])?);
/// let sized = mask.sized(3, 3)?;
/// assert!(sized.allows(1, 0));
/// assert!(!sized.allows(0, 1)); // the future
/// assert!(!sized.allows(2, 2)); // padding
/// # Ok::<(), attention::Error>(())
/// ```
///
/// Functions that need a mask take it by value or by reference (`impl Into<Mask>`). A copy shares its rules with the original,
/// so it costs nothing, however large the mask is.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Vec<saved::Rule>"))]
pub struct Mask {
    rules: Arc<Vec<Rule>>, // a key is seen where all rules allow it
    scores: ScoreRule,
    head: Option<usize>, // that the scores are of; a layer says it for each of its heads
}

impl From<&Mask> for Mask {
    /// Returns the same mask, which shares its rules with the given one.
    fn from(mask: &Mask) -> Self {
        mask.clone()
    }
}

impl From<ScoreRule> for Mask {
    /// Returns the mask that hides nothing, with this rule for scores.
    fn from(scores: ScoreRule) -> Self {
        Mask::none().with_scores(scores)
    }
}

impl Mask {
    pub(crate) fn of(rules: Vec<Rule>) -> Self {
        Mask { rules: Arc::new(rules), scores: ScoreRule::none(), head: None }
    }

    /// Returns the mask in which every query sees every key.
    ///
    /// ```
    /// assert!(attention::Mask::none().sized(2, 3)?.allows(0, 2));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn none() -> Self {
        Mask::of(vec![])
    }

    /// Returns the mask in which no query sees the future: query `i` sees key `j` when `j ≤ i + n_k − n_q`.
    ///
    /// ```
    /// let mask = attention::Mask::causal();
    /// assert!(mask.sized(4, 4)?.allows(2, 2));
    /// assert!(!mask.sized(4, 4)?.allows(2, 3));
    /// assert!(mask.sized(1, 4)?.allows(0, 3)); // the last token's query alone sees all
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn causal() -> Self {
        Mask::of(vec![Rule::Causal])
    }

    /// Returns the mask that leaves only keys that are real tokens: query `i` sees key `j` when `valid[j]`.
    ///
    /// The rows of padding tokens may hold anything in a forward pass. In training they must be finite: they have queries of its
    /// own, and the gradients of the parameters are sums over all rows.
    ///
    /// # Errors
    /// `valid` is empty.
    ///
    /// ```
    /// let mask = attention::Mask::padding(&[true, false])?;
    /// assert!(!mask.sized(2, 2)?.allows(0, 1));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn padding(valid: &[bool]) -> Result<Self> {
        check_has_entries("valid", valid)?;
        Ok(Mask::of(vec![Rule::Padding(valid.to_vec())]))
    }

    /// Returns the mask of several documents in one sequence, of which none sees another: query `i` sees key `j` when both are of
    /// the same one, which has a number in `ids`. Tiled code skips what is between documents, if each is in one piece.
    ///
    /// With fewer queries than keys, query `i` is of the document of key `i + n_k − n_q`; one that stands before the first key is of
    /// none, and sees nothing.
    ///
    /// Shapes: `ids` (n_k).
    ///
    /// # Errors
    /// `ids` is empty.
    ///
    /// ```
    /// let mask = attention::Mask::documents(&[7, 7, 8])?.and(attention::Mask::causal());
    /// let sized = mask.sized(3, 3)?;
    /// assert!(sized.allows(1, 0));
    /// assert!(!sized.allows(2, 1)); // of another document
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn documents(ids: &[usize]) -> Result<Self> {
        check_has_entries("ids", ids)?;
        Ok(Mask::of(vec![Rule::documents(ids)]))
    }

    /// Returns the mask that leaves only the last `width` keys up to the query's own position, itself among them: a causal sliding
    /// window.
    ///
    /// # Errors
    /// `width` is 0.
    ///
    /// # Source
    /// I. Beltagy, M. E. Peters, A. Cohan, *Longformer* (2020), in its one-sided form.
    ///
    /// ```
    /// let window = attention::Mask::window(2)?.sized(4, 4)?.allowed_matrix();
    /// assert_eq!(window.row(3).iter().copied().collect::<Vec<_>>(), [false, false, true, true]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn window(width: usize) -> Result<Self> {
        Mask::window_with_sinks(width, 0)
    }

    /// Returns the mask that leaves the last `width` keys up to the query's own position, as [`Mask::window`], and beside them the first
    /// `sinks` keys of all that are not later than the query.
    ///
    /// # Errors
    /// `width` is 0.
    ///
    /// # Source
    /// G. Xiao et al., *Efficient Streaming Language Models with Attention Sinks* (2023).
    ///
    /// ```
    /// let mask = attention::Mask::window_with_sinks(2, 1)?.sized(5, 5)?.allowed_matrix();
    /// assert_eq!(mask.row(4).iter().copied().collect::<Vec<_>>(), [true, false, false, true, true]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn window_with_sinks(width: usize, sinks: usize) -> Result<Self> {
        check_positive("width", width)?;
        Ok(Mask::of(vec![Rule::Window { width, sinks }]))
    }

    /// Returns the mask of any pattern: query `i` sees key `j` when `allowed[(i, j)]`. `true` means "may see".
    ///
    /// Shapes: `allowed` (n_q, n_k).
    ///
    /// # Errors
    /// `allowed` is empty.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let mask = attention::Mask::dense(dmatrix![true, false; true, true])?;
    /// assert!(!mask.sized(2, 2)?.allows(0, 1));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn dense(allowed: DMatrix<bool>) -> Result<Self> {
        check_not_empty("allowed", &allowed)?;
        Ok(Mask::of(vec![Rule::Dense(allowed)]))
    }

    /// Returns the mask of a pattern of blocks, `size` queries by `size` keys each: query `i` sees key `j` when
    /// `allowed[(i / size, j / size)]`. Tiled code skips the blocks that are hidden.
    ///
    /// Shapes: `allowed` (n_q / size, n_k / size), rounded up.
    ///
    /// # Errors
    /// `size` is 0, or `allowed` is empty.
    ///
    /// # Source
    /// R. Child et al., *Generating Long Sequences with Sparse Transformers* (2019), section 5.5.
    ///
    /// ```
    /// use attention::Mask;
    /// use nalgebra::dmatrix;
    ///
    /// // Each pair of tokens sees itself, and all see the first pair.
    /// let blocks = dmatrix![true, false, false; true, true, false; true, false, true];
    /// let sized = Mask::blocks(2, blocks)?.sized(6, 6)?;
    /// assert!(sized.allows(5, 1) && !sized.allows(5, 2) && sized.allows(5, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn blocks(size: usize, allowed: DMatrix<bool>) -> Result<Self> {
        check_positive("size", size)?;
        check_not_empty("allowed", &allowed)?;
        Ok(Mask::of(vec![Rule::Blocks { size, allowed }]))
    }

    /// Returns both rules at once: a key is seen where both masks allow it.
    ///
    /// ```
    /// use attention::Mask;
    ///
    /// let mask = Mask::causal().and(Mask::padding(&[false, true])?);
    /// assert!(!mask.sized(2, 2)?.allows(0, 0)); // the first token sees nothing at all
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn and(self, other: Mask) -> Self {
        let mut rules = self.rules;
        Arc::make_mut(&mut rules).extend(Arc::unwrap_or_clone(other.rules));
        let scores = self.scores.then(other.scores);
        Mask { rules, scores, head: self.head.or(other.head) }
    }

    /// Returns the mask with a rule for the scores of what it leaves, after any that it has.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, ScoreRule, example};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let mask = Mask::causal().with_scores(ScoreRule::alibi(2)?);
    /// let (output, _) = layer.forward(&example::river().x, &mask)?;
    /// assert_ne!(output, layer.forward(&example::river().x, Mask::causal())?.0);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn with_scores(self, rule: ScoreRule) -> Self {
        Mask { scores: self.scores.then(rule), ..self }
    }

    /// Returns the mask of one head of several, for [`attention`](crate::attention()), which doesn't know which head it computes:
    /// a rule for scores may differ from head to head. Layers say it themselves.
    ///
    /// ```
    /// use attention::{Mask, ScoreRule};
    ///
    /// let mask = Mask::from(ScoreRule::alibi(2)?);
    /// let error = mask.sized(2, 2).unwrap_err();
    /// assert_eq!(error.to_string(), "`slopes` has 2 heads but n_heads = 1");
    /// assert!(mask.of_head(1).sized(2, 2).is_ok());
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn of_head(self, head: usize) -> Self {
        Mask { head: Some(head), ..self }
    }

    /// The same; for a mask that names its head already, that head.
    pub(crate) fn or_of_head(&self, head: usize) -> Self {
        Mask { head: self.head.or(Some(head)), ..self.clone() }
    }

    /// Returns the rules: a key is seen where all of them allow it.
    ///
    /// ```
    /// use attention::{Mask, engine::Rule};
    ///
    /// assert_eq!(Mask::causal().rules(), [Rule::Causal]);
    /// ```
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The number of heads that the mask asks for.
    pub(crate) fn n_heads(&self) -> Option<usize> {
        self.scores.n_heads().filter(|_| self.head.is_none())
    }

    /// Checks that the mask can be that of so many heads.
    pub(crate) fn check_heads(&self, n_heads: usize) -> Result<()> {
        match self.head {
            Some(head) => self.scores.check_head(head),
            None => self.scores.check_heads(n_heads),
        }
    }

    /// Returns the rule laid over `n_q` queries and `n_k` keys.
    ///
    /// # Errors
    /// `n_q` or `n_k` is 0 or beyond any memory, or the rule was made for another shape: [`Mask::padding`] of another length than `n_k`,
    /// [`Mask::dense`] of another shape than `(n_q, n_k)`, [`Mask::blocks`] of another number of blocks; or its rule for scores is for several heads, and [`Mask::of_head`] didn't say
    /// which.
    ///
    /// ```
    /// let error = attention::Mask::padding(&[true, false])?.sized(3, 3).unwrap_err();
    /// assert_eq!(error.to_string(), "`valid` has 2 entries but n_k = 3");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn sized(&self, n_q: usize, n_k: usize) -> Result<SizedMask> {
        self.check_heads(1)?;
        self.sized_for_heads(n_q, n_k)
    }

    /// The same for each of several heads: see [`SizedMask::of_head`].
    pub(crate) fn sized_for_heads(&self, n_q: usize, n_k: usize) -> Result<SizedMask> {
        check_matrix(("n_q", n_q), ("n_k", n_k))?;
        let lengths = Lengths { n_q, n_k };
        self.rules.iter().try_for_each(|rule| rule.check(lengths))?;
        let (rules, scores) = (Arc::clone(&self.rules), self.scores.clone());
        Ok(SizedMask { rules, scores, head: self.head, lengths, forgotten: n_k..n_k })
    }
}

fn check_has_entries<T>(argument: &'static str, given: &[T]) -> Result<()> {
    if given.is_empty() {
        return Err(empty(argument, "0 entries"));
    }
    Ok(())
}

/// Masks in files: what is read has to be something that the constructors could have made.
#[cfg(feature = "serde")]
mod saved {
    use super::Mask;
    use crate::error::{Error, Result};
    use crate::saved::Matrix;

    #[derive(serde::Deserialize)]
    pub enum Rule {
        Causal,
        Padding(Vec<bool>),
        Window { width: usize, sinks: usize },
        Dense(Matrix<bool>),
        Blocks { size: usize, allowed: Matrix<bool> },
        Documents { ids: Vec<usize> },
    }

    impl TryFrom<Vec<Rule>> for Mask {
        type Error = Error;

        fn try_from(rules: Vec<Rule>) -> Result<Self> {
            let mut mask = Mask::none();
            for rule in rules {
                mask = mask.and(match rule {
                    Rule::Causal => Mask::causal(),
                    Rule::Padding(valid) => Mask::padding(&valid)?,
                    Rule::Window { width, sinks } => {
                        Mask::window_with_sinks(width, sinks)?
                    }
                    Rule::Dense(allowed) => Mask::dense(allowed.into_matrix("allowed")?)?,
                    Rule::Blocks { size, allowed } => {
                        Mask::blocks(size, allowed.into_matrix("allowed")?)?
                    }
                    Rule::Documents { ids } => Mask::documents(&ids)?,
                });
            }
            Ok(mask)
        }
    }

    impl serde::Serialize for Mask {
        /// Writes the list of rules. A rule for scores may be any function, and is no part of a file.
        fn serialize<S: serde::Serializer>(
            &self,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            if !self.scores.is_none() {
                let what =
                    "a mask with a rule for scores can't be saved: save the mask alone";
                return Err(serde::ser::Error::custom(what));
            }
            self.rules.serialize(serializer)
        }
    }
}

/// The part of a tile of the score matrix that may be seen.
///
/// ```
/// use attention::{Mask, mask::Visibility};
///
/// let mask = Mask::causal();
/// let sized = mask.sized(8, 8)?;
/// assert_eq!(sized.visibility(0..4, 4..8), Visibility::Hidden); // above the diagonal
/// assert_eq!(sized.visibility(4..8, 0..4), Visibility::Full); // below it
/// assert_eq!(sized.visibility(0..4, 0..4), Visibility::Partial);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Visibility {
    // In this order, since what two masks leave is the smaller of what each leaves.
    /// No pair is allowed: the tile may be skipped.
    Hidden,
    /// Each pair must be asked about. Combined masks may answer so for a tile of which nothing is seen.
    Partial,
    /// Every pair is allowed: the tile needs no mask.
    Full,
}

impl Visibility {
    /// What is seen of several parts together.
    fn of(mut parts: impl Iterator<Item = Visibility>) -> Self {
        let first = parts.next().unwrap_or(Visibility::Hidden);
        if parts.all(|part| part == first) { first } else { Visibility::Partial }
    }
}

impl From<bool> for Visibility {
    /// Returns what is seen of one pair.
    fn from(seen: bool) -> Self {
        if seen { Visibility::Full } else { Visibility::Hidden }
    }
}

/// A [`Mask`] over a given number of queries and keys.
///
/// ```
/// let mask = attention::Mask::causal();
/// let sized = mask.sized(2, 2)?;
/// assert_eq!(sized.shape(), (2, 2));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SizedMask {
    rules: Arc<Vec<Rule>>,
    scores: ScoreRule,
    head: Option<usize>,
    lengths: Lengths,
    /// In a cache with a window, the tokens of the text that are no longer held. Rules and scores are asked about places in the
    /// whole text; all methods take numbers of keys that are held, of which those from `forgotten.start` on stand later.
    forgotten: Range<usize>,
}

impl SizedMask {
    /// Returns `(n_q, n_k)`.
    ///
    /// ```
    /// assert_eq!(attention::Mask::none().sized(2, 3)?.shape(), (2, 3));
    /// # Ok::<(), attention::Error>(())
    /// ```
    #[inline]
    pub fn shape(&self) -> (usize, usize) {
        let Lengths { n_q, n_k } = self.lengths;
        (n_q, n_k - self.forgotten.len())
    }

    /// Returns the mask over the keys that are left when a cache has forgotten some: it says of them what the whole mask says.
    ///
    /// ```
    /// let of_last = attention::Mask::window_with_sinks(2, 1)?.sized(1, 5)?.without(1..3);
    /// assert_eq!(of_last.allowed_matrix(), nalgebra::dmatrix![true, true, true]); // keys 0, 3 and 4
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn without(self, forgotten: Range<usize>) -> Self {
        SizedMask { forgotten, ..self }
    }

    /// The places in the text of some keys that are held: those before what was forgotten, and those behind it.
    #[inline]
    fn places(&self, keys: Range<usize>) -> [Range<usize>; 2] {
        let Range { start, end } = self.forgotten;
        let later = |key: usize| key.max(start) + (end - start);
        [keys.start.min(start)..keys.end.min(start), later(keys.start)..later(keys.end)]
    }

    /// The place in the text of a key that is held.
    #[inline]
    fn place(&self, key: usize) -> usize {
        if key < self.forgotten.start { key } else { key + self.forgotten.len() }
    }

    /// The keys that are held, of a range of places in the text.
    #[inline]
    fn held(&self, places: Range<usize>) -> Range<usize> {
        let Range { start, end } = self.forgotten;
        let number = |place: usize| place.min(start) + place.saturating_sub(end);
        number(places.start)..number(places.end)
    }

    /// Returns `true` if query `i` may see key `j`. A pair outside of the matrix is never seen.
    ///
    /// ```
    /// assert!(!attention::Mask::causal().sized(2, 2)?.allows(0, 1));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn allows(&self, i: usize, j: usize) -> bool {
        let (n_q, n_k) = self.shape();
        i < n_q && j < n_k && self.allows_place(i, self.place(j))
    }

    /// Whether query `i` may see the key at this place of the text.
    fn allows_place(&self, i: usize, place: usize) -> bool {
        self.rules.iter().all(|rule| rule.allows(self.lengths, i, place))
    }

    /// Returns the rules, if they are about the places that the keys have in the matrix: a cache may have forgotten some.
    #[cfg(feature = "cuda")]
    pub(crate) fn rules(&self) -> Option<&[Rule]> {
        self.forgotten.is_empty().then_some(&self.rules)
    }

    /// Returns the part of the tile `rows` × `columns` that may be seen. An empty tile, or one outside of the matrix, is not seen.
    ///
    /// ```
    /// use attention::{Mask, mask::Visibility};
    ///
    /// let mask = Mask::window(2)?;
    /// assert_eq!(mask.sized(8, 8)?.visibility(6..8, 0..4), Visibility::Hidden); // too long ago
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn visibility(&self, rows: Range<usize>, columns: Range<usize>) -> Visibility {
        let (n_q, n_k) = self.shape();
        let rows = rows.start..rows.end.min(n_q);
        let columns = columns.start..columns.end.min(n_k);
        if rows.is_empty() || columns.is_empty() {
            return Visibility::Hidden;
        }
        // The least of what each rule says: one that sees nothing hides all, and all is seen where each sees all.
        let seen = |places: Range<usize>| {
            let rules = self.rules.iter();
            let by_rule = rules.map(|rule| rule.visibility(self.lengths, &rows, &places));
            by_rule.min().unwrap_or(Visibility::Full)
        };
        let parts = self.places(columns).into_iter();
        Visibility::of(parts.filter(|places| !places.is_empty()).map(seen))
    }

    /// Returns the mask as a matrix of booleans, `true` where a query may see a key.
    ///
    /// Shapes: → (n_q, n_k).
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let allowed = attention::Mask::causal().sized(2, 2)?.allowed_matrix();
    /// assert_eq!(allowed, dmatrix![true, false; true, true]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn allowed_matrix(&self) -> DMatrix<bool> {
        let (n_q, n_k) = self.shape();
        DMatrix::from_fn(n_q, n_k, |i, j| self.allows(i, j))
    }

    /// Returns the matrix that the equations add to the scores: 0 where a query may see a key, −∞ where it may not. A rule for scores is
    /// not in it.
    ///
    /// Shapes: → (n_q, n_k).
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let additive = attention::Mask::causal().sized(2, 2)?.additive::<f64>();
    /// assert_eq!(additive, dmatrix![0.0, f64::NEG_INFINITY; 0.0, 0.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn additive<T: RealField + Copy>(&self) -> DMatrix<T> {
        let (n_q, n_k) = self.shape();
        self.fill_hidden(DMatrix::zeros(n_q, n_k), neg_infinity())
    }

    /// Returns the scores with −∞ in every place that a query may not see, and the others as the rule for scores makes them.
    ///
    /// Without such a rule the same as adding [`SizedMask::additive`], but for scores that are NaN: NaN + (−∞) is NaN, so what must
    /// stay hidden is overwritten, not added to.
    ///
    /// Shapes: `scores` (n_q, n_k) → (n_q, n_k).
    ///
    /// # Errors
    /// `scores` has another shape.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let scores = attention::Mask::causal().sized(2, 2)?.apply(dmatrix![1.0, f64::NAN; 2.0, 3.0])?;
    /// assert_eq!(scores, dmatrix![1.0, f64::NEG_INFINITY; 2.0, 3.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn apply<T: RealField + Copy>(&self, scores: DMatrix<T>) -> Result<DMatrix<T>> {
        check_shape("scores", &scores, self.shape(), "the mask")?;
        let scores = self.change_scores(scores);
        Ok(self.fill_hidden(scores, neg_infinity()))
    }

    /// These scores of all queries and keys, as the rule for scores makes them.
    fn change_scores<T: RealField + Copy>(&self, mut scores: DMatrix<T>) -> DMatrix<T> {
        if !self.scores.is_none() {
            for (j, mut column) in scores.column_iter_mut().enumerate() {
                self.change_queries(j, 0..self.lengths.n_q, column.as_mut_slice());
            }
        }
        scores
    }

    /// The mask of one head, if it isn't that of another already.
    pub fn of_head(&self, head: usize) -> Self {
        SizedMask { head: self.head.or(Some(head)), ..self.clone() }
    }

    /// Checks that the mask can be that of so many heads.
    pub(crate) fn check_heads(&self, n_heads: usize) -> Result<()> {
        match self.head {
            Some(head) => self.scores.check_head(head),
            None => self.scores.check_heads(n_heads),
        }
    }

    /// The head that the mask was made for, if it was made for one.
    #[cfg(feature = "cuda")]
    pub(crate) fn own_head(&self) -> Option<usize> {
        self.head
    }

    /// The number of the head.
    pub fn head(&self) -> usize {
        self.head.unwrap_or(0)
    }

    /// The rule for scores.
    pub fn scores(&self) -> &ScoreRule {
        &self.scores
    }

    /// A line of scores, as the rule for scores is asked about it: the place of the first, and the way to the next.
    fn line(&self, query: usize, key: usize, along: Along) -> Line {
        let Lengths { n_q, n_k } = self.lengths;
        let query = (query + n_k) as isize - n_q as isize;
        let first =
            ScorePlace { head: self.head(), query, key, distance: query - key as isize };
        Line { first, along }
    }

    /// Changes the scores of key `j`. `line` is a column of them, from `queries.start` on.
    #[inline(always)]
    pub fn change_queries<T: RealField + Copy>(
        &self,
        j: usize,
        queries: Range<usize>,
        line: &mut [T],
    ) {
        let at = self.line(queries.start, self.place(j), Along::Queries);
        self.scores.change(at, line, |t| self.allows(queries.start + t, j));
    }

    /// Changes the scores of query `i`. `line` is a row of them, from `keys.start` on.
    #[inline(always)]
    pub fn change_keys<T: RealField + Copy>(
        &self,
        i: usize,
        keys: Range<usize>,
        line: &mut [T],
    ) {
        let mut rest = line;
        for places in self.places(keys) {
            let (part, others) = rest.split_at_mut(places.len());
            let at = self.line(i, places.start, Along::Keys);
            self.scores.change(at, part, |t| self.allows_place(i, places.start + t));
            rest = others;
        }
    }

    /// Turns gradients with respect to the scores of key `j` as they were changed, zeros where they are hidden, into those with respect to
    /// `scores`, as they were before.
    pub fn change_queries_back<T: RealField + Copy>(
        &self,
        j: usize,
        queries: Range<usize>,
        scores: &[T],
        grads: &mut [T],
        into: &mut RuleGradients,
    ) {
        let at = self.line(queries.start, self.place(j), Along::Queries);
        let seen = |t| self.allows(queries.start + t, j);
        self.scores.change_back(at, scores, grads, into, seen);
    }

    /// The same along the keys of query `i`, where nothing was forgotten: caches have no backward pass.
    pub fn change_keys_back<T: RealField + Copy>(
        &self,
        i: usize,
        keys: Range<usize>,
        scores: &[T],
        grads: &mut [T],
        into: &mut RuleGradients,
    ) {
        let at = self.line(i, keys.start, Along::Keys);
        let seen = |t| self.allows(i, keys.start + t);
        self.scores.change_back(at, scores, grads, into, seen);
    }

    /// `matrix` with `hidden` in every place that a query may not see.
    pub(crate) fn fill_hidden<T: RealField + Copy>(
        &self,
        mut matrix: DMatrix<T>,
        hidden: T,
    ) -> DMatrix<T> {
        for (j, mut column) in matrix.column_iter_mut().enumerate() {
            self.hide_queries(j, 0..self.lengths.n_q, column.as_mut_slice(), hidden);
        }
        matrix
    }

    /// Returns the keys that at least one of these queries may see: any other is hidden from each of them.
    ///
    /// This is what tiled code walks. It is as narrow as [`Mask::causal`], [`Mask::window`] and [`Mask::documents`] make it, and
    /// knows nothing of [`Mask::padding`], [`Mask::dense`] and [`Mask::blocks`]: of the tiles within it, some may still be hidden.
    ///
    /// ```
    /// let mask = attention::Mask::causal();
    /// assert_eq!(mask.sized(8, 8)?.keys_seen_by(2..4), 0..4);
    /// # Ok::<(), attention::Error>(())
    /// ```
    #[inline]
    pub fn keys_seen_by(&self, queries: Range<usize>) -> Range<usize> {
        let Lengths { n_q, n_k } = self.lengths;
        let queries = queries.start..queries.end.min(n_q);
        if queries.is_empty() {
            return 0..0;
        }
        let by_rule = |rule: &Rule| rule.keys_seen_by(self.lengths, &queries);
        self.held(intersection(0..n_k, self.rules.iter().map(by_rule)))
    }

    /// The queries that may see at least one of these keys, by the same rules as [`SizedMask::keys_seen_by`].
    #[inline]
    pub fn queries_that_see(&self, keys: Range<usize>) -> Range<usize> {
        let (n_q, n_k) = self.shape();
        let keys = keys.start..keys.end.min(n_k);
        if keys.is_empty() {
            return 0..0;
        }
        let places = self.place(keys.start)..self.place(keys.end - 1) + 1;
        let by_rule = |rule: &Rule| rule.queries_that_see(self.lengths, &places);
        intersection(0..n_q, self.rules.iter().map(by_rule))
    }

    /// Writes `hidden` over what query `i` may not see. `line` is its row of the matrix, from `keys.start` on.
    pub fn hide_keys<T: Copy>(
        &self,
        i: usize,
        keys: Range<usize>,
        line: &mut [T],
        hidden: T,
    ) {
        hide_outside(self.keys_seen_by(i..i + 1), keys.start, line, hidden);
        for rule in self.rules.iter().filter(|rule| !rule.is_range()) {
            let mut rest = &mut *line;
            for places in self.places(keys.clone()) {
                let (part, others) = rest.split_at_mut(places.len());
                rule.hide(self.lengths, (i..i + 1, places), part, hidden);
                rest = others;
            }
        }
    }

    /// Writes `hidden` over what may not see key `j`. `line` is its column of the matrix, from `queries.start` on: one entry for
    /// each of these queries.
    ///
    /// ```
    /// let mask = attention::Mask::causal();
    /// let mut line = [0.1, 0.2, 0.3]; // how much queries 1, 2 and 3 attend to key 2
    /// mask.sized(4, 4)?.hide_queries(2, 1..4, &mut line, 0.0);
    /// assert_eq!(line, [0.0, 0.2, 0.3]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn hide_queries<T: Copy>(
        &self,
        j: usize,
        queries: Range<usize>,
        line: &mut [T],
        hidden: T,
    ) {
        let (n_q, n_k) = self.shape();
        if j >= n_k {
            return line.fill(hidden);
        }
        hide_outside(self.queries_that_see(j..j + 1), queries.start, line, hidden);
        let queries = queries.start..queries.end.min(n_q);
        if queries.is_empty() {
            return;
        }
        let (place, line) = (self.place(j), &mut line[..queries.len()]);
        for rule in self.rules.iter().filter(|rule| !rule.is_range()) {
            let tile = (queries.clone(), place..place + 1);
            rule.hide(self.lengths, tile, line, hidden);
        }
    }
}

#[inline]
fn intersection(
    all: Range<usize>,
    ranges: impl Iterator<Item = Range<usize>>,
) -> Range<usize> {
    let both = ranges.fold(all, |a, b| a.start.max(b.start)..a.end.min(b.end));
    both.start.min(both.end)..both.end
}

/// Writes `hidden` over the entries of `line` that are not `seen`; the first entry has the number `first`.
fn hide_outside<T: Copy>(seen: Range<usize>, first: usize, line: &mut [T], hidden: T) {
    let place = |number: usize| number.saturating_sub(first).min(line.len());
    let (start, end) = (place(seen.start), place(seen.end));
    line[end..].fill(hidden);
    line[..start].fill(hidden); // all of it, if nothing is seen
}

/// Returns −∞: the score of a hidden key.
pub fn neg_infinity<T: RealField>() -> T {
    nalgebra::convert(f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    #[test]
    fn causal_is_aligned_at_the_end() {
        let fewer = Mask::causal().sized(2, 4).unwrap().allowed_matrix();
        assert_eq!(fewer, dmatrix![true, true, true, false; true, true, true, true]);
        let more = Mask::causal().sized(4, 2).unwrap().allowed_matrix();
        assert_eq!(more, dmatrix![false, false; false, false; true, false; true, true]);
    }

    #[test]
    fn a_window_is_causal_and_that_wide() {
        let window = Mask::window(2).unwrap();
        assert_eq!(
            window.sized(3, 4).unwrap().allowed_matrix(),
            dmatrix![true, true, false, false; false, true, true, false; false, false, true, true]
        );
    }

    #[test]
    fn outside_of_the_matrix_nothing_is_seen() {
        let mask = Mask::none();
        let sized = mask.sized(2, 3).unwrap();
        assert!(!sized.allows(2, 0) && !sized.allows(0, 3));
        assert_eq!(sized.visibility(2..4, 0..3), Visibility::Hidden);
        assert_eq!(sized.visibility(1..1, 0..3), Visibility::Hidden);
        assert_eq!(sized.visibility(1..9, 0..9), Visibility::Full);
    }
}
