//! The rules that masks are made of: what each says of queries and keys.

use super::Visibility;
use crate::error::{Result, check_count, check_shape};
use nalgebra::DMatrix;
use std::ops::Range;

// Each method asks every kind of rule in one `match`, so the compiler lists what a new kind has to answer. The tests' samples of masks ask
// for one of each kind in the same way, and by these samples a new kind reaches every engine.
/// One of the rules that a [`Mask`](crate::Mask) is made of: see [`Mask::rules`](crate::Mask::rules). Query `i` stands at key position
/// `i + n_k − n_q`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Rule {
    /// No key is seen that is later than the query.
    Causal,
    /// A key is seen that is a real token (n_k).
    Padding(Vec<bool>),
    /// The last `width` keys up to the query's own position are seen, and the first `sinks` of all that are not later than it.
    Window {
        /// The number of keys, of which the query's own position is the last.
        width: usize,
        /// The number of keys at the beginning of the text that stay visible.
        sinks: usize,
    },
    /// The pairs that are true are seen (n_q, n_k).
    Dense(DMatrix<bool>),
    /// The blocks of pairs that are true are seen.
    Blocks {
        /// The queries, and the keys, of a block.
        size: usize,
        /// Which blocks are seen (n_q / size, n_k / size), rounded up.
        allowed: DMatrix<bool>,
    },
    /// A key is seen that is of the query's document.
    Documents {
        /// The number of each token's document (n_k).
        ids: Vec<usize>,
        /// For each token, from the first token of its document to the last.
        #[cfg_attr(feature = "serde", serde(skip))]
        spans: Vec<Range<usize>>,
    },
}

/// The numbers of queries and keys that a rule is laid over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub n_q: usize,
    pub n_k: usize,
}

// Engines in other crates ask about each row of a tile. What is asked there is inlined: these few operations cost less than a call.
impl Lengths {
    /// The keys that are not later than query `i`, which stands at key position i + n_k − n_q.
    #[inline]
    fn past(self, i: usize) -> usize {
        (i + 1 + self.n_k).saturating_sub(self.n_q)
    }

    /// The first query that is not earlier than key `j`.
    #[inline]
    fn first_query(self, j: usize) -> usize {
        (j + self.n_q).saturating_sub(self.n_k)
    }
}

impl Rule {
    /// The rule of documents: tokens with the same number belong to the same one.
    pub(crate) fn documents(ids: &[usize]) -> Self {
        let mut of_documents = std::collections::HashMap::new();
        for (token, id) in ids.iter().enumerate() {
            of_documents.entry(id).or_insert(token..token).end = token + 1;
        }
        let spans = ids.iter().map(|id| of_documents[id].clone()).collect();
        Rule::Documents { ids: ids.to_vec(), spans }
    }

    /// Checks that the rule can be laid over so many queries and keys.
    pub(crate) fn check(&self, Lengths { n_q, n_k }: Lengths) -> Result<()> {
        let count = |argument, given| {
            check_count(argument, "entry", given, n_k, || format!("n_k = {n_k}"))
        };
        match self {
            Rule::Causal | Rule::Window { .. } => Ok(()),
            Rule::Padding(valid) => count("valid", valid.len()),
            Rule::Dense(allowed) => {
                check_shape("allowed", allowed, (n_q, n_k), "the score matrix")
            }
            Rule::Blocks { size, allowed } => {
                let expected = (n_q.div_ceil(*size), n_k.div_ceil(*size));
                check_shape("allowed", allowed, expected, "the blocks of scores")
            }
            Rule::Documents { ids, .. } => count("ids", ids.len()),
        }
    }

    /// Whether query `i` may see key `j`.
    pub(crate) fn allows(&self, lengths: Lengths, i: usize, j: usize) -> bool {
        let past = lengths.past(i);
        match self {
            Rule::Causal => j < past,
            Rule::Padding(valid) => valid[j],
            Rule::Window { width, sinks } => {
                j < past && (past - j <= *width || j < *sinks)
            }
            Rule::Dense(allowed) => allowed[(i, j)],
            Rule::Blocks { size, allowed } => allowed[(i / size, j / size)],
            Rule::Documents { ids, .. } => past > 0 && ids[past - 1] == ids[j],
        }
    }

    /// The range of keys outside of which none of these queries, of which there is at least one, sees anything. Of one query,
    /// [`Rule::hide`] hides what the range leaves.
    #[inline]
    pub(crate) fn keys_seen_by(
        &self,
        lengths: Lengths,
        queries: &Range<usize>,
    ) -> Range<usize> {
        let (first, last) = (queries.start, queries.end - 1);
        match self {
            Rule::Causal => 0..lengths.past(last),
            Rule::Window { width, sinks: 0 } => {
                lengths.past(first).saturating_sub(*width)..lengths.past(last)
            }
            Rule::Window { .. } => 0..lengths.past(last), // with a gap behind the sinks
            Rule::Padding(_) | Rule::Dense(_) | Rule::Blocks { .. } => 0..lengths.n_k,
            Rule::Documents { spans, .. } => {
                let first = lengths.past(first).saturating_sub(1);
                around(&spans[first..lengths.past(last).max(first)])
            }
        }
    }

    /// The range of queries outside of which none sees any of these keys, of which there is at least one.
    #[inline]
    pub(crate) fn queries_that_see(
        &self,
        lengths: Lengths,
        keys: &Range<usize>,
    ) -> Range<usize> {
        let start = lengths.first_query(keys.start);
        match self {
            Rule::Causal => start..lengths.n_q,
            // A sink is seen by all queries to come, however long the window of the other keys.
            Rule::Window { sinks, .. } if keys.start < *sinks => start..lengths.n_q,
            Rule::Window { width, .. } => {
                let end = (keys.end - 1 + lengths.n_q).saturating_add(*width);
                start..end.saturating_sub(lengths.n_k).min(lengths.n_q)
            }
            Rule::Padding(_) | Rule::Dense(_) | Rule::Blocks { .. } => 0..lengths.n_q,
            Rule::Documents { spans, .. } => {
                let Range { start, end } = around(&spans[keys.clone()]);
                lengths.first_query(start)..lengths.first_query(end)
            }
        }
    }

    /// The part of a tile that may be seen. The tile isn't empty.
    pub(crate) fn visibility(
        &self,
        lengths: Lengths,
        rows: &Range<usize>,
        columns: &Range<usize>,
    ) -> Visibility {
        // Where each query sees a range of keys, and a later query's range begins later and ends later.
        let of_ranges = |rule: Rule, columns: &Range<usize>| {
            let range = |i: usize| rule.keys_seen_by(lengths, &(i..i + 1));
            let (first, last) = (range(rows.start), range(rows.end - 1));
            if last.start <= columns.start && columns.end <= first.end {
                Visibility::Full
            } else if last.end <= columns.start || columns.end <= first.start {
                Visibility::Hidden
            } else {
                Visibility::Partial
            }
        };
        match self {
            Rule::Causal => of_ranges(Rule::Causal, columns),
            Rule::Window { width, sinks } => {
                let others = (*sinks).clamp(columns.start, columns.end);
                let (sinks, others) = (columns.start..others, others..columns.end);
                let window = Rule::Window { width: *width, sinks: 0 };
                let parts = [(Rule::Causal, sinks), (window, others)].into_iter();
                let parts = parts.filter(|(_, columns)| !columns.is_empty());
                Visibility::of(parts.map(|(rule, columns)| of_ranges(rule, &columns)))
            }
            Rule::Padding(valid) => {
                Visibility::of(columns.clone().map(|j| valid[j].into()))
            }
            Rule::Dense(allowed) => {
                let rows_of = |j| rows.clone().map(move |i| allowed[(i, j)].into());
                Visibility::of(columns.clone().flat_map(rows_of))
            }
            Rule::Blocks { size, allowed } => {
                let blocks =
                    |range: &Range<usize>| range.start / size..range.end.div_ceil(*size);
                let rows = blocks(rows);
                let rows_of = |j| rows.clone().map(move |i| allowed[(i, j)].into());
                Visibility::of(blocks(columns).flat_map(rows_of))
            }
            Rule::Documents { ids, .. } => {
                let queries =
                    lengths.past(rows.start).max(1) - 1..lengths.past(rows.end - 1);
                let has_earlier = lengths.past(rows.start) == 0; // than the first key
                let (queries, keys) = (&ids[queries], &ids[columns.clone()]);
                let is_one = |ids: &[usize]| ids.iter().all(|id| *id == keys[0]);
                if !has_earlier && is_one(queries) && is_one(keys) {
                    Visibility::Full
                } else if queries.iter().any(|id| keys.contains(id)) {
                    Visibility::Partial
                } else {
                    Visibility::Hidden
                }
            }
        }
    }

    /// Whether [`Rule::keys_seen_by`] and [`Rule::queries_that_see`] say all of it.
    #[inline]
    pub(crate) fn is_range(&self) -> bool {
        matches!(self, Rule::Causal | Rule::Window { sinks: 0, .. })
    }

    /// Writes `hidden` over what may not be seen of a tile of one query or of one key, within the ranges of
    /// [`Rule::keys_seen_by`] and [`Rule::queries_that_see`]. `line` has an entry for each pair.
    pub(crate) fn hide<T: Copy>(
        &self,
        lengths: Lengths,
        (queries, keys): (Range<usize>, Range<usize>),
        line: &mut [T],
        hidden: T,
    ) {
        let columns = keys.zip(line.chunks_exact_mut(queries.len()));
        match self {
            Rule::Causal | Rule::Window { sinks: 0, .. } => {} // the ranges say it all
            Rule::Padding(valid) => {
                for (j, column) in columns {
                    if !valid[j] {
                        column.fill(hidden);
                    }
                }
            }
            Rule::Dense(allowed) => {
                // nalgebra stores columns: those that may see a key stand side by side.
                for (j, column) in columns {
                    let seen = &allowed.as_slice()[j * lengths.n_q..][queries.clone()];
                    for (entry, &seen) in column.iter_mut().zip(seen) {
                        *entry = if seen { *entry } else { hidden };
                    }
                }
            }
            Rule::Window { .. } | Rule::Blocks { .. } | Rule::Documents { .. } => {
                for (j, column) in columns {
                    for (entry, i) in column.iter_mut().zip(queries.clone()) {
                        *entry = if self.allows(lengths, i, j) { *entry } else { hidden };
                    }
                }
            }
        }
    }
}

/// From the first start of these ranges to the last end.
fn around(ranges: &[Range<usize>]) -> Range<usize> {
    let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
    start..ranges.iter().map(|range| range.end).max().unwrap_or(0)
}
