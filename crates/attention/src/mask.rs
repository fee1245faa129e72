//! Masks: which query may see which key.
//!
//! A [`Mask`] is a rule, such as "no token sees its future". Laid over a given number of queries and keys it becomes a
//! [`SizedMask`], which answers for each pair, gives the 0/−∞ matrix of the equations, and tells tiled code which tiles
//! it may skip.

use crate::error::{
    Error, Result, check_count, check_matrix, check_not_empty, check_positive,
    check_shape,
};
use crate::score_rule::{Along, Line, RuleGradients, ScorePlace, ScoreRule};
use nalgebra::{DMatrix, RealField};
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

#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
enum Rule {
    Causal,
    Padding(Vec<bool>),
    Window(usize),
    Sinks { width: usize, sinks: usize },
    Dense(DMatrix<bool>),
    Blocks { size: usize, allowed: DMatrix<bool> },
}

impl From<ScoreRule> for Mask {
    /// Returns the mask that hides nothing, with this rule for scores.
    fn from(scores: ScoreRule) -> Self {
        Mask::none().with_scores(scores)
    }
}

impl Mask {
    fn of(rules: Vec<Rule>) -> Self {
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
        if valid.is_empty() {
            return Err(Error::Empty {
                argument: "valid",
                given: "0 entries".to_owned(),
            });
        }
        Ok(Mask::of(vec![Rule::Padding(valid.to_vec())]))
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
        check_positive("width", width)?;
        Ok(Mask::of(vec![Rule::Window(width)]))
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
        Ok(Mask::of(vec![Rule::Sinks { width, sinks }]))
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
        for rule in self.rules.iter() {
            match rule {
                Rule::Padding(valid) => {
                    let because = || format!("n_k = {n_k}");
                    check_count("valid", "entry", valid.len(), n_k, because)?;
                }
                Rule::Dense(allowed) => {
                    check_shape("allowed", allowed, (n_q, n_k), "the score matrix")?;
                }
                Rule::Blocks { size, allowed } => {
                    let expected = (n_q.div_ceil(*size), n_k.div_ceil(*size));
                    check_shape("allowed", allowed, expected, "the blocks of scores")?;
                }
                Rule::Causal | Rule::Window(_) | Rule::Sinks { .. } => {} // fit any shape
            }
        }
        let (rules, scores) = (Arc::clone(&self.rules), self.scores.clone());
        Ok(SizedMask { rules, scores, head: self.head, n_q, n_k })
    }
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
        Window(usize),
        Sinks { width: usize, sinks: usize },
        Dense(Matrix<bool>),
        Blocks { size: usize, allowed: Matrix<bool> },
    }

    impl TryFrom<Vec<Rule>> for Mask {
        type Error = Error;

        fn try_from(rules: Vec<Rule>) -> Result<Self> {
            let mut mask = Mask::none();
            for rule in rules {
                mask = mask.and(match rule {
                    Rule::Causal => Mask::causal(),
                    Rule::Padding(valid) => Mask::padding(&valid)?,
                    Rule::Window(width) => Mask::window(width)?,
                    Rule::Sinks { width, sinks } => {
                        Mask::window_with_sinks(width, sinks)?
                    }
                    Rule::Dense(allowed) => Mask::dense(allowed.into_matrix("allowed")?)?,
                    Rule::Blocks { size, allowed } => {
                        Mask::blocks(size, allowed.into_matrix("allowed")?)?
                    }
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
/// use attention::{Mask, Visibility};
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
    n_q: usize,
    n_k: usize,
}

impl SizedMask {
    /// Returns `(n_q, n_k)`.
    ///
    /// ```
    /// assert_eq!(attention::Mask::none().sized(2, 3)?.shape(), (2, 3));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn shape(&self) -> (usize, usize) {
        (self.n_q, self.n_k)
    }

    /// Returns `true` if query `i` may see key `j`. A pair outside of the matrix is never seen.
    ///
    /// ```
    /// assert!(!attention::Mask::causal().sized(2, 2)?.allows(0, 1));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn allows(&self, i: usize, j: usize) -> bool {
        let is_inside = i < self.n_q && j < self.n_k;
        is_inside && self.rules.iter().all(|rule| self.rule_allows(rule, i, j))
    }

    /// Returns `Some(true)` for the causal rule, `Some(false)` if nothing is hidden, `None` if something else is. Scores may change.
    #[cfg(feature = "cuda")]
    pub(crate) fn is_causal(&self) -> Option<bool> {
        let no_others = self.rules.iter().all(|rule| *rule == Rule::Causal);
        no_others.then_some(!self.rules.is_empty())
    }

    fn rule_allows(&self, rule: &Rule, i: usize, j: usize) -> bool {
        // Query i stands at key position i + n_k − n_q. We add n_q to both sides, because a
        // usize can't be negative.
        let (query, key) = (i + self.n_k, j + self.n_q);
        match rule {
            Rule::Causal => key <= query,
            Rule::Padding(valid) => valid[j],
            Rule::Window(width) => key <= query && query - key < *width,
            Rule::Sinks { width, sinks } => {
                key <= query && (query - key < *width || j < *sinks)
            }
            Rule::Dense(allowed) => allowed[(i, j)],
            Rule::Blocks { size, allowed } => allowed[(i / size, j / size)],
        }
    }

    /// Returns the part of the tile `rows` × `columns` that may be seen. An empty tile, or one outside of the matrix, is not seen.
    ///
    /// ```
    /// use attention::{Mask, Visibility};
    ///
    /// let mask = Mask::window(2)?;
    /// assert_eq!(mask.sized(8, 8)?.visibility(6..8, 0..4), Visibility::Hidden); // too long ago
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn visibility(&self, rows: Range<usize>, columns: Range<usize>) -> Visibility {
        let rows = rows.start..rows.end.min(self.n_q);
        let columns = columns.start..columns.end.min(self.n_k);
        if rows.is_empty() || columns.is_empty() {
            return Visibility::Hidden;
        }
        // The least of what each rule says: one that sees nothing hides all, and all is seen where each sees all.
        let by_rule =
            self.rules.iter().map(|rule| self.rule_visibility(rule, &rows, &columns));
        by_rule.min().unwrap_or(Visibility::Full)
    }

    fn rule_visibility(
        &self,
        rule: &Rule,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> Visibility {
        match rule {
            Rule::Causal | Rule::Window(_) => {
                // A later query's keys begin later and end later.
                let first = self.rule_keys(rule, rows.start);
                let last = self.rule_keys(rule, rows.end - 1);
                if last.start <= columns.start && columns.end <= first.end {
                    Visibility::Full
                } else if last.end <= columns.start || columns.end <= first.start {
                    Visibility::Hidden
                } else {
                    Visibility::Partial
                }
            }
            Rule::Sinks { width, sinks } => {
                // The sinks among these keys, and the others: seen as under two rules.
                let middle = columns.end.min(columns.start.max(*sinks));
                let parts = [
                    (Rule::Causal, columns.start..middle),
                    (Rule::Window(*width), middle..columns.end),
                ];
                let parts = parts.iter().filter(|(_, columns)| !columns.is_empty());
                let mut seen = parts
                    .map(|(rule, columns)| self.rule_visibility(rule, rows, columns));
                let first = seen.next().unwrap_or(Visibility::Hidden);
                if seen.all(|other| other == first) { first } else { Visibility::Partial }
            }
            Rule::Padding(valid) => of_all(columns.clone().map(|j| valid[j])),
            Rule::Dense(allowed) => of_all(
                columns.clone().flat_map(|j| rows.clone().map(move |i| allowed[(i, j)])),
            ),
            Rule::Blocks { size, allowed } => {
                let (rows, columns) = (blocks_of(rows, *size), blocks_of(columns, *size));
                of_all(columns.flat_map(|j| rows.clone().map(move |i| allowed[(i, j)])))
            }
        }
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
        DMatrix::from_fn(self.n_q, self.n_k, |i, j| self.allows(i, j))
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
        self.fill_hidden(DMatrix::zeros(self.n_q, self.n_k), neg_infinity())
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
                self.change_queries(j, 0..self.n_q, column.as_mut_slice());
            }
        }
        scores
    }

    /// The mask of one head, if it isn't that of another already.
    pub(crate) fn of_head(&self, head: usize) -> Self {
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
    pub(crate) fn head(&self) -> usize {
        self.head.unwrap_or(0)
    }

    /// The rule for scores.
    pub(crate) fn scores(&self) -> &ScoreRule {
        &self.scores
    }

    /// What rows and columns of scores are to the rule: the place of the first entry, and the way to the next.
    fn line(&self, query: usize, key: usize, along: Along) -> Line {
        let distance = (query + self.n_k) as isize - (key + self.n_q) as isize;
        Line { first: ScorePlace { head: self.head(), query, key, distance }, along }
    }

    /// Changes the scores of key `j`. `line` is a column of them, from `queries.start` on.
    #[inline(always)]
    pub(crate) fn change_queries<T: RealField + Copy>(
        &self,
        j: usize,
        queries: Range<usize>,
        line: &mut [T],
    ) {
        let at = self.line(queries.start, j, Along::Queries);
        self.scores.change(at, line, |i, j| self.allows(i, j));
    }

    /// Changes the scores of query `i`. `line` is a row of them, from `keys.start` on.
    #[inline(always)]
    pub(crate) fn change_keys<T: RealField + Copy>(
        &self,
        i: usize,
        keys: Range<usize>,
        line: &mut [T],
    ) {
        let at = self.line(i, keys.start, Along::Keys);
        self.scores.change(at, line, |i, j| self.allows(i, j));
    }

    /// Turns gradients with respect to the scores of key `j` as they were changed, zeros where they are hidden, into those with respect to
    /// `scores`, as they were before.
    pub(crate) fn change_queries_back<T: RealField + Copy>(
        &self,
        j: usize,
        queries: Range<usize>,
        scores: &[T],
        grads: &mut [T],
        into: &mut RuleGradients,
    ) {
        let at = self.line(queries.start, j, Along::Queries);
        self.scores.change_back(at, scores, grads, into, |i, j| self.allows(i, j));
    }

    /// The same along the keys of query `i`.
    pub(crate) fn change_keys_back<T: RealField + Copy>(
        &self,
        i: usize,
        keys: Range<usize>,
        scores: &[T],
        grads: &mut [T],
        into: &mut RuleGradients,
    ) {
        let at = self.line(i, keys.start, Along::Keys);
        self.scores.change_back(at, scores, grads, into, |i, j| self.allows(i, j));
    }

    /// `matrix` with `hidden` in every place that a query may not see.
    // ANCHOR: fill_hidden
    pub(crate) fn fill_hidden<T: RealField + Copy>(
        &self,
        mut matrix: DMatrix<T>,
        hidden: T,
    ) -> DMatrix<T> {
        for (j, mut column) in matrix.column_iter_mut().enumerate() {
            self.hide_queries(j, 0..self.n_q, column.as_mut_slice(), hidden);
        }
        matrix
    }
    // ANCHOR_END: fill_hidden

    /// Returns the keys that at least one of these queries may see: any other is hidden from each of them.
    ///
    /// This is what tiled code walks. It is as narrow as [`Mask::causal`] and [`Mask::window`] make it, and knows nothing of
    /// [`Mask::padding`], [`Mask::dense`] and [`Mask::blocks`]: of the tiles within it, some may still be hidden.
    ///
    /// ```
    /// let mask = attention::Mask::causal();
    /// assert_eq!(mask.sized(8, 8)?.keys_seen_by(2..4), 0..4);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn keys_seen_by(&self, queries: Range<usize>) -> Range<usize> {
        let queries = queries.start..queries.end.min(self.n_q);
        if queries.is_empty() {
            return 0..0;
        }
        // A later query's keys begin later and end later.
        let start = self.keys_of(queries.start).start;
        let end = self.keys_of(queries.end - 1).end;
        start.min(end)..end
    }

    /// The queries that may see at least one of these keys, by the same rules as [`SizedMask::keys_seen_by`].
    pub(crate) fn queries_that_see(&self, keys: Range<usize>) -> Range<usize> {
        let keys = keys.start..keys.end.min(self.n_k);
        if keys.is_empty() {
            return 0..0;
        }
        let start = self.queries_of(keys.start).start;
        let end = self.queries_of(keys.end - 1).end;
        start.min(end)..end
    }

    /// The range of keys outside of which query `i` sees nothing.
    fn keys_of(&self, i: usize) -> Range<usize> {
        intersection(0..self.n_k, self.rules.iter().map(|rule| self.rule_keys(rule, i)))
    }

    fn rule_keys(&self, rule: &Rule, i: usize) -> Range<usize> {
        // Query i stands at key position i + n_k − n_q, and what it may see ends there.
        let end = (i + 1 + self.n_k).saturating_sub(self.n_q).min(self.n_k);
        match rule {
            Rule::Causal => 0..end,
            Rule::Window(width) => {
                let start = (i + 1 + self.n_k).saturating_sub(*width);
                start.saturating_sub(self.n_q)..end
            }
            Rule::Sinks { sinks: 0, width } => self.rule_keys(&Rule::Window(*width), i),
            Rule::Sinks { .. } => 0..end, // with a gap
            Rule::Padding(_) | Rule::Dense(_) | Rule::Blocks { .. } => 0..self.n_k,
        }
    }

    /// The range of queries outside of which none sees key `j`.
    fn queries_of(&self, j: usize) -> Range<usize> {
        let by_rule = self.rules.iter().map(|rule| self.rule_queries(rule, j));
        intersection(0..self.n_q, by_rule)
    }

    fn rule_queries(&self, rule: &Rule, j: usize) -> Range<usize> {
        let start = (j + self.n_q).saturating_sub(self.n_k);
        match rule {
            Rule::Causal => start..self.n_q,
            Rule::Window(width) => {
                let end = (j + self.n_q).saturating_add(*width);
                start..end.saturating_sub(self.n_k).min(self.n_q)
            }
            Rule::Sinks { sinks, .. } if j < *sinks => start..self.n_q,
            Rule::Sinks { width, .. } => self.rule_queries(&Rule::Window(*width), j),
            Rule::Padding(_) | Rule::Dense(_) | Rule::Blocks { .. } => 0..self.n_q,
        }
    }

    /// Writes `hidden` over what query `i` may not see. `line` is its row of the matrix, from `keys.start` on.
    pub(crate) fn hide_keys<T: Copy>(
        &self,
        i: usize,
        keys: Range<usize>,
        line: &mut [T],
        hidden: T,
    ) {
        hide_outside(self.keys_of(i), keys.start, line, hidden);
        for rule in self.rules.iter() {
            match rule {
                Rule::Causal | Rule::Window(_) => {} // ranges, which are hidden by now
                Rule::Sinks { width, sinks } => {
                    // Before the window all but the sinks.
                    let first = self.rule_keys(&Rule::Window(*width), i).start;
                    let place = |j: usize| j.saturating_sub(keys.start).min(line.len());
                    let gap = place(*sinks)..place(first).max(place(*sinks));
                    line[gap].fill(hidden);
                }
                Rule::Padding(valid) => {
                    hide_where_false(&valid[keys.clone()], line, hidden);
                }
                Rule::Dense(allowed) => {
                    for (entry, j) in line.iter_mut().zip(keys.clone()) {
                        if !allowed[(i, j)] {
                            *entry = hidden;
                        }
                    }
                }
                Rule::Blocks { size, allowed } => {
                    for (entry, j) in line.iter_mut().zip(keys.clone()) {
                        if !allowed[(i / size, j / size)] {
                            *entry = hidden;
                        }
                    }
                }
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
        if j >= self.n_k {
            return line.fill(hidden);
        }
        hide_outside(self.queries_of(j), queries.start, line, hidden);
        let queries = queries.start.min(self.n_q)..queries.end.min(self.n_q);
        for rule in self.rules.iter() {
            match rule {
                // Ranges, which are hidden by now.
                Rule::Causal | Rule::Window(_) | Rule::Sinks { .. } => {}
                Rule::Padding(valid) if valid[j] => {}
                Rule::Padding(_) => line.fill(hidden),
                Rule::Dense(allowed) => {
                    // nalgebra stores columns: those that may see this key stand side by side.
                    let column = &allowed.as_slice()[j * self.n_q..][..self.n_q];
                    hide_where_false(&column[queries.clone()], line, hidden);
                }
                Rule::Blocks { size, allowed } => {
                    for (entry, i) in line.iter_mut().zip(queries.clone()) {
                        if !allowed[(i / size, j / size)] {
                            *entry = hidden;
                        }
                    }
                }
            }
        }
    }
}

fn hide_where_false<T: Copy>(seen: &[bool], line: &mut [T], hidden: T) {
    for (entry, &seen) in line.iter_mut().zip(seen) {
        *entry = if seen { *entry } else { hidden };
    }
}

fn intersection(
    all: Range<usize>,
    ranges: impl Iterator<Item = Range<usize>>,
) -> Range<usize> {
    ranges.fold(all, |a, b| a.start.max(b.start)..a.end.min(b.end))
}

/// Writes `hidden` over the entries of `line` that are not `seen`; the first entry has the number `first`.
fn hide_outside<T: Copy>(seen: Range<usize>, first: usize, line: &mut [T], hidden: T) {
    let place = |number: usize| number.saturating_sub(first).min(line.len());
    let (start, end) = (place(seen.start), place(seen.end));
    line[end..].fill(hidden);
    line[..start].fill(hidden); // all of it, if nothing is seen
}

/// The numbers of the blocks in which these rows or columns are.
fn blocks_of(range: &Range<usize>, size: usize) -> Range<usize> {
    range.start / size..range.end.div_ceil(size)
}

fn of_all(mut entries: impl Iterator<Item = bool>) -> Visibility {
    let first = entries.next();
    match (first, entries.all(|entry| Some(entry) == first)) {
        (Some(true), true) => Visibility::Full,
        (_, true) => Visibility::Hidden,
        _ => Visibility::Partial,
    }
}

/// Returns −∞: the score of a hidden key.
pub fn neg_infinity<T: RealField>() -> T {
    nalgebra::convert(f64::NEG_INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// The GPU knows two rules, also where they stand among others that hide nothing.
    #[cfg(feature = "cuda")]
    #[test]
    fn causal_or_nothing_or_something_else() -> Result<()> {
        let (none, causal) = (Mask::none, Mask::causal);
        for (mask, expected) in [
            (none(), Some(false)),
            (causal(), Some(true)),
            (none().and(causal()), Some(true)),
            (causal().and(causal()), Some(true)),
            (none().and(none()), Some(false)),
            (Mask::window(9)?, None),
            (causal().and(Mask::window(9)?), None),
            (Mask::padding(&[true; 3])?.and(causal()), None),
            (Mask::dense(DMatrix::repeat(3, 3, true))?, None),
        ] {
            assert_eq!(mask.sized(3, 3)?.is_causal(), expected, "{mask:?}");
        }
        Ok(())
    }

    /// Longer than a tile, so that there are hidden, full and border tiles.
    #[test]
    fn filling_by_tiles_is_filling_by_entries() {
        for (n_q, n_k) in [(130, 200), (200, 70), (64, 64), (65, 1)] {
            for mask in masks(n_q, n_k) {
                let sized = mask.sized(n_q, n_k).unwrap();
                let filled = sized.fill_hidden(DMatrix::repeat(n_q, n_k, 1.0), 0.0);
                let expected =
                    sized.allowed_matrix().map(|seen| f64::from(u8::from(seen)));
                assert_eq!(filled, expected, "{mask:?}");
            }
        }
    }

    fn masks(n_q: usize, n_k: usize) -> Vec<Mask> {
        let valid: Vec<bool> = (0..n_k).map(|j| j % 3 != 1).collect();
        let allowed = DMatrix::from_fn(n_q, n_k, |i, j| (i * 7 + j * 3) % 4 != 0);
        vec![
            Mask::none(),
            Mask::causal(),
            Mask::window(1).unwrap(),
            Mask::window(3).unwrap(),
            Mask::window(usize::MAX).unwrap(),
            Mask::window_with_sinks(3, 2).unwrap(),
            Mask::window_with_sinks(1, 0).unwrap(),
            Mask::window_with_sinks(2, usize::MAX).unwrap(),
            Mask::padding(&valid).unwrap(),
            Mask::dense(allowed).unwrap(),
            Mask::causal().and(Mask::padding(&valid).unwrap()),
        ]
    }

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

    /// The visibility of a tile is that of each of its pairs, for every tile of every mask.
    #[test]
    fn visibility_agrees_with_every_pair() {
        for (n_q, n_k) in [(5, 5), (3, 7), (7, 3), (1, 1)] {
            for mask in masks(n_q, n_k) {
                let sized = mask.sized(n_q, n_k).unwrap();
                let combined = mask.rules.len() > 1;
                for (r0, r1) in (0..n_q).flat_map(|a| (a + 1..=n_q).map(move |b| (a, b)))
                {
                    for (c0, c1) in
                        (0..n_k).flat_map(|a| (a + 1..=n_k).map(move |b| (a, b)))
                    {
                        let pairs = (r0..r1).flat_map(|i| (c0..c1).map(move |j| (i, j)));
                        let seen = of_all(pairs.map(|(i, j)| sized.allows(i, j)));
                        let said = sized.visibility(r0..r1, c0..c1);
                        let careful = combined && said == Visibility::Partial;
                        assert!(
                            said == seen || careful,
                            "{mask:?} {r0}..{r1} {c0}..{c1}: {said:?}"
                        );
                    }
                }
            }
        }
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

    #[test]
    fn applying_equals_adding() {
        let scores = DMatrix::from_fn(4, 6, |i, j| i as f64 - 0.5 * j as f64);
        for mask in masks(4, 6) {
            let sized = mask.sized(4, 6).unwrap();
            assert_eq!(
                sized.apply(scores.clone()).unwrap(),
                &scores + sized.additive::<f64>()
            );
        }
    }
}
