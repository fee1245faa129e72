//! Rules for scores: what is done to a score before the softmax, by where its query and its key stand.
//!
//! A [`Mask`](crate::Mask) carries such a rule to every program of this crate, which asks it for the pairs of a tile at a time,
//! and only where something is seen.

use crate::Float;
use crate::error::{
    Result, check_count, check_not_empty, check_positive, empty, wrong_value,
};
use nalgebra::{DMatrix, DMatrixView, RealField, convert, try_convert};
use std::fmt;
use std::sync::Arc;

/// A rule that changes every score before the softmax: a bias by distance, a soft cap, or a function of one's own.
///
/// [`Mask::with_scores`](crate::Mask::with_scores) lays it beside a mask. What the mask hides is never asked about.
///
/// Distances are between positions: query `i` stands at key position `i + n_k − n_q`, as in a mask, so key `j` is
/// `i + n_k − n_q − j` tokens back. That of a key in the future is negative.
///
/// # Source
/// J. Dong et al., *FlexAttention* (2024), in which such a rule is called `score_mod`.
///
/// ```
/// use attention::{Mask, ScoreRule, attention};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::<f64>::zeros(3, 2); // all scores are 0
/// let nearer_is_better = ScoreRule::slopes(&[1.0])?;
/// let (_, cache) = attention(&x, &x, &x, Mask::causal().with_scores(nearer_is_better))?;
/// let weights = cache.weights.row(2); // softmax(−2, −1, 0)
/// assert!((weights[1] / weights[2] - (-1.0_f64).exp()).abs() < 1e-15);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScoreRule(Option<Arc<Vec<Step>>>); // none at all where scores stay as they are

/// One of the changes that a [`ScoreRule`] makes, one after another: see [`ScoreRule::steps`].
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// For each head: what a token of distance costs.
    Slopes(Vec<f64>),
    /// A number for each bucket of distances, and each head (buckets, heads).
    Table(DMatrix<f64>, DistanceBuckets),
    /// A score is bent so that it stays between −cap and cap.
    SoftCap(f64),
    /// A function of one's own.
    Custom(Custom),
}

/// The place of a score: its head, its query and its key.
///
/// ```
/// let place = attention::score_rule::ScorePlace { head: 0, query: 2, key: 0, distance: 2 };
/// assert!(place.distance > 0); // the key is in the past
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScorePlace {
    /// The number of the head.
    pub head: usize,
    /// The query's position, `i + n_k − n_q` for row `i`; with a cache, in the whole text. Negative, where a query stands before the first
    /// key.
    pub query: isize,
    /// The key's position: its row; with a cache, its place in the whole text, tokens that were forgotten counted.
    pub key: usize,
    /// How many tokens the key stands before the query: `query − key`.
    pub distance: isize,
}

/// A rule for scores of one's own, and its derivative, in `f64` whatever the scores are in.
///
/// ```
/// use attention::{Mask, ScoreRule, attention, attention_backward, score_rule::{ScoreFunction, ScorePlace}};
/// use nalgebra::dmatrix;
///
/// /// Scores count for half as much in the second half of a text.
/// #[derive(Debug)]
/// struct HalfInTheEnd;
///
/// impl ScoreFunction for HalfInTheEnd {
///     fn value(&self, score: f64, place: ScorePlace) -> f64 {
///         if place.key < 2 { score } else { score / 2.0 }
///     }
///     fn derivative(&self, _score: f64, place: ScorePlace) -> f64 {
///         if place.key < 2 { 1.0 } else { 0.5 }
///     }
/// }
///
/// let (q, k) = (dmatrix![1.0_f64; 1.0; 1.0], dmatrix![1.0; 1.0; 2.0]);
/// let mask = Mask::none().with_scores(ScoreRule::custom(HalfInTheEnd));
/// let (output, cache) = attention(&q, &k, &k, mask)?;
/// assert!((output[0] - 4.0 / 3.0).abs() < 1e-15); // three scores of 1
/// attention_backward(&cache, &output)?;
/// # Ok::<(), attention::Error>(())
/// ```
pub trait ScoreFunction: fmt::Debug + Send + Sync {
    /// Returns the new score, which must be finite: a mask hides, not a score of −∞.
    fn value(&self, score: f64, place: ScorePlace) -> f64;

    /// Returns the derivative of the new score with respect to the old one.
    fn derivative(&self, score: f64, place: ScorePlace) -> f64;
}

/// A function of one's own; equal to itself alone.
#[derive(Debug, Clone)]
pub struct Custom(Arc<dyn ScoreFunction>);

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ScoreRule {
    /// Returns the rule that leaves scores as they are.
    pub fn none() -> Self {
        ScoreRule(None)
    }

    fn of(step: Step) -> Self {
        ScoreRule(Some(Arc::new(vec![step])))
    }

    /// Returns the changes, one after another.
    ///
    /// ```
    /// use attention::{ScoreRule, engine::Step};
    ///
    /// assert_eq!(ScoreRule::soft_cap(50.0)?.steps(), [Step::SoftCap(50.0)]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn steps(&self) -> &[Step] {
        self.0.as_ref().map_or(&[], |steps| steps)
    }

    /// Returns the rule that takes `slope · |distance|` from a score, with a slope for each head.
    ///
    /// # Errors
    /// `slopes` is empty, or one of them is not finite.
    ///
    /// ```
    /// let error = attention::ScoreRule::slopes(&[f64::NAN]).unwrap_err();
    /// assert_eq!(error.to_string(), "`slopes` is NaN but it must be finite");
    /// ```
    pub fn slopes(slopes: &[f64]) -> Result<Self> {
        if slopes.is_empty() {
            return Err(empty("slopes", "0 entries"));
        }
        slopes.iter().try_for_each(|&slope| check_finite("slopes", slope))?;
        Ok(ScoreRule::of(Step::Slopes(slopes.to_vec())))
    }

    /// Returns the rule of ALiBi, attention with linear biases: [`ScoreRule::slopes`] with slopes that fall geometrically from
    /// head to head, `2^(−8(h + 1)/n_heads)`.
    ///
    /// Where `n_heads` is no power of two, the paper's own program takes the slopes of the next smaller power, and then every
    /// other one of the next larger; so does this function.
    ///
    /// # Errors
    /// `n_heads` is 0.
    ///
    /// # Source
    /// O. Press, N. A. Smith, M. Lewis, *Train Short, Test Long* (2022).
    ///
    /// ```
    /// use attention::ScoreRule;
    ///
    /// assert_eq!(ScoreRule::alibi(2)?, ScoreRule::slopes(&[1.0 / 16.0, 1.0 / 256.0])?);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn alibi(n_heads: usize) -> Result<Self> {
        check_positive("n_heads", n_heads)?;
        let slope = |h: usize, n: usize| (-8.0 * (h + 1) as f64 / n as f64).exp2();
        let power = 1 << n_heads.ilog2(); // the largest power of two that is not larger
        let first = (0..power).map(|h| slope(h, power));
        let others = (0..n_heads - power).map(|h| slope(2 * h, 2 * power));
        ScoreRule::slopes(&first.chain(others).collect::<Vec<_>>())
    }

    /// Returns the rule that adds to a score what a table has for its bucket of distances and its head.
    ///
    /// A table is learned: [`AttentionGradients::tables`](crate::AttentionGradients::tables) has its gradient. Shapes: `table`
    /// (buckets, n_heads).
    ///
    /// # Errors
    /// The table is empty, has another number of rows than there are buckets, or holds a number that is not finite.
    ///
    /// # Source
    /// P. Shaw, J. Uszkoreit, A. Vaswani, *Self-Attention with Relative Position Representations* (2018), for positions by distance;
    /// C. Raffel et al., *Exploring the Limits of Transfer Learning* (T5, 2020), for one number a bucket.
    ///
    /// ```
    /// use attention::{ScoreRule, score_rule::DistanceBuckets};
    ///
    /// let buckets = DistanceBuckets::clipped(1)?; // one token ahead or more; here; one token back or more
    /// let error = ScoreRule::table(&nalgebra::dmatrix![0.5; 0.0], buckets).unwrap_err();
    /// assert_eq!(error.to_string(), "`table` has 2 rows but there are 3 buckets");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn table<'a, T: Float>(
        table: impl Into<DMatrixView<'a, T>>,
        buckets: DistanceBuckets,
    ) -> Result<Self> {
        let table = table.into();
        check_not_empty("table", table)?;
        let because = || format!("there are {} buckets", buckets.count());
        check_count("table", "row", table.nrows(), buckets.count(), because)?;
        let table = table.map(|x| try_convert(x).unwrap_or(f64::NAN));
        table.iter().try_for_each(|&x| check_finite("table", x))?;
        Ok(ScoreRule::of(Step::Table(table, buckets)))
    }

    /// Returns the rule that bends scores so that none leaves −`cap` to `cap`: `cap · tanh(score / cap)`.
    ///
    /// # Errors
    /// `cap` is not positive and finite.
    ///
    /// # Source
    /// Gemma team, *Gemma 2* (2024), section 2.
    ///
    /// ```
    /// use attention::{Mask, ScoreRule, attention};
    /// use nalgebra::dmatrix;
    ///
    /// let mask = Mask::none().with_scores(ScoreRule::soft_cap(2.0)?);
    /// let (_, cache) = attention(&dmatrix![1000.0], &dmatrix![1.0; -1.0], &dmatrix![0.0; 0.0], mask)?;
    /// assert!((cache.weights[0] / cache.weights[1] - 4_f64.exp()).abs() < 1e-12); // scores of 2 and −2
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn soft_cap(cap: f64) -> Result<Self> {
        if !(cap > 0.0 && cap.is_finite()) {
            return Err(wrong_value("cap", cap, "it must be positive and finite"));
        }
        Ok(ScoreRule::of(Step::SoftCap(cap)))
    }

    /// Returns the rule that is this function.
    pub fn custom(function: impl ScoreFunction + 'static) -> Self {
        ScoreRule::of(Step::Custom(Custom(Arc::new(function))))
    }

    /// Returns the rule that does first this, then `other`.
    ///
    /// ```
    /// use attention::ScoreRule;
    ///
    /// let rule = ScoreRule::soft_cap(50.0)?.then(ScoreRule::alibi(8)?);
    /// assert_ne!(rule, ScoreRule::alibi(8)?.then(ScoreRule::soft_cap(50.0)?));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn then(self, other: ScoreRule) -> Self {
        match (self.0, other.0) {
            (Some(mut steps), Some(other)) => {
                Arc::make_mut(&mut steps).extend(Arc::unwrap_or_clone(other));
                ScoreRule(Some(steps))
            }
            (this, other) => ScoreRule(this.or(other)),
        }
    }

    /// Returns `true` if scores stay as they are.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The heads that slopes and tables are for, if there are any.
    fn heads(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.steps().iter().filter_map(|step| match step {
            Step::Slopes(slopes) => Some(("slopes", slopes.len())),
            Step::Table(table, _) => Some(("table", table.ncols())),
            Step::SoftCap(_) | Step::Custom(_) => None,
        })
    }

    /// The number of heads that the rule is for; `None` if any number will do.
    pub(crate) fn n_heads(&self) -> Option<usize> {
        self.heads().map(|(_, heads)| heads).next()
    }

    /// Checks that slopes and tables are for so many heads.
    pub(crate) fn check_heads(&self, n_heads: usize) -> Result<()> {
        self.heads().try_for_each(|(name, heads)| {
            check_count(name, "head", heads, n_heads, || format!("n_heads = {n_heads}"))
        })
    }

    /// Checks that slopes and tables are for more heads than `head`.
    pub(crate) fn check_head(&self, head: usize) -> Result<()> {
        self.heads().try_for_each(|(name, heads)| {
            if head < heads {
                return Ok(());
            }
            Err(wrong_value("head", head, format!("`{name}` has {heads} heads")))
        })
    }

    /// Whether the backward pass has a step of its own: not where something was merely added that isn't learned.
    pub fn has_backward(&self) -> bool {
        self.steps().iter().any(|step| !matches!(step, Step::Slopes(_)))
    }

    /// The gradients of this rule's tables, as zeros.
    pub(crate) fn zero_tables<T: Float>(&self) -> Vec<DMatrix<T>> {
        let zeros = self.steps().iter().filter_map(|step| match step {
            Step::Table(table, _) => Some(DMatrix::zeros(table.nrows(), table.ncols())),
            _ => None,
        });
        zeros.collect()
    }

    /// Changes the scores of a line. `seen` says of each whether it may be seen.
    #[inline(always)]
    pub(crate) fn change<T: RealField + Copy>(
        &self,
        line: Line,
        scores: &mut [T],
        seen: impl Fn(usize) -> bool,
    ) {
        for step in self.steps() {
            step.change(line, scores, &seen);
        }
    }

    /// Turns the gradients with respect to the changed scores of a line into those with respect to the scores as they were, and adds
    /// to those of the tables. `grads` has zeros where nothing is seen.
    pub(crate) fn change_back<T: RealField + Copy>(
        &self,
        line: Line,
        scores: &[T], // before any change
        grads: &mut [T],
        into: &mut RuleGradients,
        seen: impl Fn(usize) -> bool,
    ) {
        let mut table = into.tables.len();
        let mut before = vec![];
        for (number, step) in self.steps().iter().enumerate().rev() {
            if !matches!(step, Step::Slopes(_) | Step::Table(..)) {
                // What this step was given.
                before.clear();
                before.extend_from_slice(scores);
                self.steps()[..number]
                    .iter()
                    .for_each(|step| step.change(line, &mut before, &seen));
            }
            match step {
                Step::Slopes(_) => {} // a constant was added
                Step::Table(_, buckets) => {
                    table -= 1;
                    let sums = &mut into.tables[table];
                    buckets.for_runs(line, grads.len(), |run, bucket| {
                        let grads = grads[run].iter();
                        sums[bucket] += grads.map(|&x| to_f64(x)).sum::<f64>();
                    });
                }
                Step::SoftCap(cap) => {
                    for (grad, &score) in grads.iter_mut().zip(&before) {
                        let slope: T = convert(tanh_derivative(to_f64(score) / cap));
                        // A hidden score may be NaN, and 0 · NaN is.
                        *grad = if grad.is_zero() { *grad } else { *grad * slope };
                    }
                }
                Step::Custom(custom) => {
                    for ((t, grad), &score) in grads.iter_mut().enumerate().zip(&before) {
                        let place = line.place(t);
                        if seen(t) {
                            *grad *= convert(custom.0.derivative(to_f64(score), place));
                        }
                    }
                }
            }
        }
    }
}

impl Step {
    // With the caller's vector instructions; in a browser, where there are none, once and small.
    #[cfg_attr(not(target_family = "wasm"), inline(always))]
    #[cfg_attr(target_family = "wasm", inline(never))]
    fn change<T: RealField + Copy>(
        &self,
        line: Line,
        scores: &mut [T],
        seen: &impl Fn(usize) -> bool,
    ) {
        match self {
            Step::Slopes(slopes) => line.fall(convert(slopes[line.first.head]), scores),
            Step::Table(table, buckets) => {
                buckets.for_runs(line, scores.len(), |run, bucket| {
                    let bias: T = convert(table[(bucket, line.first.head)]);
                    scores[run].iter_mut().for_each(|score| *score += bias);
                });
            }
            Step::SoftCap(cap) => {
                for score in scores {
                    *score = convert(cap * (to_f64(*score) / cap).tanh());
                }
            }
            Step::Custom(custom) => {
                for (t, score) in scores.iter_mut().enumerate() {
                    let place = line.place(t);
                    if seen(t) {
                        *score = convert(custom.0.value(to_f64(*score), place));
                    }
                }
            }
        }
    }
}

/// Some scores that stand side by side: of one key and consecutive queries, or of one query and consecutive keys.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    pub first: ScorePlace,
    pub along: Along,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Along {
    Queries,
    Keys,
}

impl Line {
    fn place(self, t: usize) -> ScorePlace {
        let ScorePlace { head, query, key, distance } = self.first;
        match self.along {
            Along::Queries => ScorePlace {
                head,
                query: query + t as isize,
                key,
                distance: distance + t as isize,
            },
            Along::Keys => {
                ScorePlace { head, query, key: key + t, distance: distance - t as isize }
            }
        }
    }

    /// Takes `slope · |distance|` from each score.
    #[inline(always)]
    fn fall<T: RealField + Copy>(self, slope: T, scores: &mut [T]) {
        const LANES: usize = 16; // so that the compiler fills vectors
        let step = if self.along == Along::Queries { 1.0 } else { -1.0 };
        let steps: [T; LANES] = std::array::from_fn(|lane| convert(step * lane as f64));
        let (chunks, rest) = scores.as_chunks_mut::<LANES>();
        let start = |t: usize| convert(self.first.distance as f64 + step * t as f64);
        for (number, chunk) in chunks.iter_mut().enumerate() {
            let start: T = start(number * LANES);
            for (score, &step) in chunk.iter_mut().zip(&steps) {
                *score -= slope * (start + step).abs();
            }
        }
        let start: T = start(chunks.len() * LANES);
        for (score, &step) in rest.iter_mut().zip(&steps) {
            *score -= slope * (start + step).abs();
        }
    }
}

/// The gradients of one head's column of each table.
#[derive(Debug, Clone, Default)]
pub struct RuleGradients {
    tables: Vec<Vec<f64>>, // (buckets), for each table
}

impl RuleGradients {
    /// Returns zeros, in the shapes of the rule's tables.
    pub fn new(rule: &ScoreRule) -> Self {
        let zeros = rule.steps().iter().filter_map(|step| match step {
            Step::Table(table, _) => Some(vec![0.0; table.nrows()]),
            _ => None,
        });
        RuleGradients { tables: zeros.collect() }
    }

    /// Adds these, of one head, to the gradients of all heads.
    pub fn add_to<T: Float>(&self, tables: &mut [DMatrix<T>], head: usize) {
        for (table, sums) in tables.iter_mut().zip(&self.tables) {
            for (entry, &sum) in table.column_mut(head).iter_mut().zip(sums) {
                *entry += convert(sum);
            }
        }
    }
}

/// Distances shared out among buckets: those of a bucket have one entry of a table in common.
///
/// ```
/// use attention::score_rule::DistanceBuckets;
///
/// let buckets = DistanceBuckets::clipped(2)?;
/// assert_eq!([-7, -2, -1, 0, 1, 2, 7].map(|distance| buckets.of(distance)), [0, 0, 1, 2, 3, 4, 4]);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistanceBuckets {
    runs: Arc<[(isize, usize)]>, // the first distance of each run, in order, and its bucket
    count: usize,
}

impl DistanceBuckets {
    /// Returns a bucket for each distance from `−furthest` to `furthest`, in this order; those beyond share the outer two.
    ///
    /// # Errors
    /// `furthest` is 0, or more than 2^20.
    pub fn clipped(furthest: usize) -> Result<Self> {
        check_positive("furthest", furthest)?;
        check_buckets("furthest", furthest)?;
        let distance = |bucket: usize| bucket as isize - furthest as isize;
        Ok(Self::of_buckets(
            (0..2 * furthest + 1).map(|bucket| (distance(bucket), bucket)),
        ))
    }

    /// Returns T5's buckets for keys on both sides of a query, half of them for the past and half for the future. Of each half the first
    /// half is for one distance each; the others grow by a constant factor up to `furthest`, and the last holds all beyond.
    ///
    /// # Errors
    /// `count` is not a multiple of 4, or 0, or so large that `furthest` is not beyond the distances of their own; or more than 2^20.
    ///
    /// # Source
    /// C. Raffel et al., *Exploring the Limits of Transfer Learning* (T5, 2020); the formula is that of its program.
    ///
    /// ```
    /// let buckets = attention::score_rule::DistanceBuckets::t5(32, 128)?;
    /// assert_eq!([0, 1, 7, 8, 200, -1, -200].map(|distance| buckets.of(distance)), [0, 1, 7, 8, 15, 17, 31]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn t5(count: usize, furthest: usize) -> Result<Self> {
        check_divides("count", count, 4)?;
        let half = count / 2;
        let past = t5_runs(half, furthest)?;
        // n tokens ahead: a distance of −n, so that a run ends where the one before it began.
        let ends = past[1..].iter().map(|&(start, _)| 1 - start).chain([isize::MIN]);
        let ahead = past.iter().zip(ends).map(|(&(_, bucket), end)| (end, half + bucket));
        let ahead: Vec<_> = ahead.collect();
        // At the distance 0 stands bucket 0; the future's first bucket is for no distance at all.
        let ahead = ahead.into_iter().rev().filter(|&(_, bucket)| bucket > half);
        Ok(DistanceBuckets {
            count,
            ..Self::of_buckets(ahead.chain(past.iter().copied()))
        })
    }

    /// Returns T5's buckets for keys of the past, and the query's own, which shares the first with the future.
    ///
    /// # Errors
    /// As [`DistanceBuckets::t5`], but that `count` must be even.
    ///
    /// ```
    /// let buckets = attention::score_rule::DistanceBuckets::t5_causal(32, 128)?;
    /// assert_eq!([-1, 0, 15, 16, 127, 128].map(|distance| buckets.of(distance)), [0, 0, 15, 16, 31, 31]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn t5_causal(count: usize, furthest: usize) -> Result<Self> {
        check_divides("count", count, 2)?;
        Ok(Self::of_buckets(t5_runs(count, furthest)?.into_iter()))
    }

    fn of_buckets(runs: impl Iterator<Item = (isize, usize)>) -> Self {
        let runs: Arc<[_]> = runs.collect();
        let count = runs.iter().map(|&(_, bucket)| bucket + 1).max().unwrap_or(0);
        DistanceBuckets { runs, count }
    }

    /// Returns the number of buckets.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bucket of a distance, which is negative for a key of the future.
    pub fn of(&self, distance: isize) -> usize {
        self.runs[self.run_of(distance)].1
    }

    /// The largest distance, of the past or the future, at which a run begins, and one more: all beyond share a bucket with it.
    #[cfg(feature = "cuda")]
    pub(crate) fn furthest(&self) -> isize {
        let starts = self.runs.iter().skip(1).map(|&(start, _)| start.abs());
        starts.max().unwrap_or(0) + 1
    }

    /// The run of a distance; those before the first belong to it.
    fn run_of(&self, distance: isize) -> usize {
        self.runs.partition_point(|&(start, _)| start <= distance).saturating_sub(1)
    }

    /// Calls `f` with the entries of a line that share a bucket, and that bucket.
    fn for_runs(
        &self,
        line: Line,
        entries: usize,
        mut f: impl FnMut(std::ops::Range<usize>, usize),
    ) {
        let mut t = 0;
        while t < entries {
            let distance = line.place(t).distance;
            let run = self.run_of(distance);
            let left = match line.along {
                Along::Queries => match self.runs.get(run + 1) {
                    Some(&(next, _)) => next.abs_diff(distance),
                    None => entries,
                },
                Along::Keys if run == 0 => entries,
                Along::Keys => distance.abs_diff(self.runs[run].0) + 1,
            };
            let end = t.saturating_add(left).min(entries);
            f(t..end, self.runs[run].1);
            t = end;
        }
    }
}

/// The most buckets, or distances with a bucket of their own: more would be a slip.
const MOST_BUCKETS: usize = 1 << 20;

fn check_buckets(argument: &'static str, given: usize) -> Result<()> {
    if given <= MOST_BUCKETS {
        return Ok(());
    }
    Err(wrong_value(argument, given, format!("there are at most {MOST_BUCKETS} buckets")))
}

fn check_divides(argument: &'static str, given: usize, by: usize) -> Result<()> {
    check_positive(argument, given)?;
    check_buckets(argument, given)?;
    if given.is_multiple_of(by) {
        return Ok(());
    }
    Err(wrong_value(argument, given, format!("it must be a multiple of {by}")))
}

/// T5's buckets of the distances from 0 on: where each begins.
fn t5_runs(count: usize, furthest: usize) -> Result<Vec<(isize, usize)>> {
    let exact = count / 2; // so many have one distance each
    if furthest <= exact || furthest > MOST_BUCKETS {
        let because = format!("it must be from {} to {MOST_BUCKETS}", exact + 1);
        return Err(wrong_value("furthest", furthest, because));
    }
    let bucket = |distance: usize| {
        if distance < exact {
            return distance;
        }
        let share = (distance as f64 / exact as f64).log2()
            / (furthest as f64 / exact as f64).log2();
        (exact + (share * (count - exact) as f64) as usize).min(count - 1)
    };
    let mut runs: Vec<(isize, usize)> = vec![(0, 0)];
    for distance in 1..=furthest {
        let bucket = bucket(distance);
        if runs.last().is_some_and(|&(_, last)| last != bucket) {
            runs.push((distance as isize, bucket));
        }
    }
    Ok(runs)
}

/// The derivative of the hyperbolic tangent, 1 − tanh² x, without the difference, which would cancel.
fn tanh_derivative(x: f64) -> f64 {
    let e = (-2.0 * x.abs()).exp();
    4.0 * e / ((1.0 + e) * (1.0 + e))
}

#[inline(always)]
fn to_f64<T: RealField + Copy>(x: T) -> f64 {
    try_convert(x).unwrap_or(f64::NAN)
}

fn check_finite(argument: &'static str, given: f64) -> Result<()> {
    if given.is_finite() {
        return Ok(());
    }
    Err(wrong_value(argument, given, "it must be finite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula of T5's program, distance by distance.
    #[test]
    fn buckets_are_those_of_t5() -> Result<()> {
        for (count, furthest) in [(32, 128), (8, 20), (4, 3), (64, 1000)] {
            for is_causal in [false, true] {
                let buckets = if is_causal {
                    DistanceBuckets::t5_causal(count, furthest)?
                } else {
                    DistanceBuckets::t5(count, furthest)?
                };
                for distance in -1100_isize..1100 {
                    let half = if is_causal { count } else { count / 2 };
                    let (first, n) = match (is_causal, distance < 0) {
                        (true, true) => (0, 0),
                        (false, true) => (half, distance.unsigned_abs()),
                        (_, false) => (0, distance.unsigned_abs()),
                    };
                    let exact = half / 2;
                    let expected = if n < exact {
                        n
                    } else {
                        let [n, exact_, furthest] =
                            [n, exact, furthest].map(|x| x as f64);
                        let share = (n / exact_).log2() / (furthest / exact_).log2();
                        (exact + (share * (half - exact) as f64) as usize).min(half - 1)
                    };
                    let given = buckets.of(distance);
                    assert_eq!(given, first + expected, "{count} {furthest} {distance}");
                }
                assert_eq!(buckets.count(), count);
            }
        }
        Ok(())
    }

    /// A line's runs are the buckets of its entries, in both directions.
    #[test]
    fn runs_are_the_buckets_of_entries() -> Result<()> {
        for buckets in [DistanceBuckets::clipped(3)?, DistanceBuckets::t5(8, 20)?] {
            for (along, distance) in [(Along::Queries, -30), (Along::Keys, 30)] {
                let first = ScorePlace { head: 0, query: 0, key: 0, distance };
                let line = Line { first, along };
                let mut given = vec![];
                buckets.for_runs(line, 60, |run, bucket| {
                    assert_eq!(run.start, given.len());
                    given.resize(run.end, bucket);
                });
                let expected = (0..60).map(|t| buckets.of(line.place(t).distance));
                assert_eq!(given, expected.collect::<Vec<_>>());
            }
        }
        Ok(())
    }

    /// Relative to the result, however small it is.
    #[test]
    fn the_slope_of_a_soft_cap_does_not_cancel() {
        let steps = (1..4000).map(|x| f64::from(x) / 200.0);
        for x in steps.flat_map(|x| [x, -x]) {
            let off = tanh_derivative(x) * x.cosh() * x.cosh() - 1.0;
            assert!(off.abs() < 1e-14, "{x}: {off}");
        }
    }

    /// A cap far beyond all scores changes none.
    #[test]
    fn a_distant_cap_keeps_scores() -> Result<()> {
        let mut scores = [0.0, 1.0, 3.0, -2.0];
        let first = ScorePlace { head: 0, query: 0, key: 0, distance: 0 };
        let line = Line { first, along: Along::Queries };
        ScoreRule::soft_cap(1e17)?.change(line, &mut scores, |_| true);
        assert_eq!(scores.map(|x: f64| (x * 1e14).round() / 1e14), [0.0, 1.0, 3.0, -2.0]);
        Ok(())
    }

    /// As the paper's program has them for 12 heads.
    #[test]
    fn slopes_between_powers_of_two() -> Result<()> {
        let first = (1..=8).map(|h| (-f64::from(h)).exp2());
        let others = [0.5, 1.5, 2.5, 3.5].map(|h: f64| (-h).exp2());
        let expected: Vec<_> = first.chain(others).collect();
        assert_eq!(ScoreRule::alibi(12)?, ScoreRule::slopes(&expected)?);
        Ok(())
    }
}
