//! # Texts of unequal length
//!
//! medium, 25 minutes
//!
//! A batch has one length, so shorter texts are filled up with padding tokens: behind the text, or before it. Programs that write do the latter,
//! so that every text ends at the same place. Both masks are needed then, the causal one and the padding's, and they meet in a trap.
//!
//! `masks` returns for each text a matrix $(n, n)$, where $n$ is the longest length: true where a query sees a key. No token sees its future,
//! and none sees a padding token. There is one exception, without which softmax would divide by 0: a row that would see nothing sees itself.
//! Its output is thrown away, and nothing else may read it.
//!
//! `positions` returns the position of each token, from which a model learns its place. The first token of each text has the position 0, and
//! so has padding before it. Behind a text the positions go on.
//!
//! # Hint
//!
//! Write down both matrices for a text of two tokens in a batch of length three, padded before and behind. Which rows are empty?
//!
//! # Hint
//!
//! A query sees a key if the key isn't later *and* the key is a token. Which columns are tokens, in either case?
//!
//! # Hint
//!
//! With `first` the column of the first token, which is 0 or $n - \mathrm{length}$: `(first..first + length).contains(&key)`. And a position
//! is `column.saturating_sub(first)`.

use nalgebra::DMatrix;

/// Where padding tokens stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Before each text.
    Before,
    /// Behind each text.
    Behind,
}

/// Returns for each text a matrix (n, n), where n is the longest length: whether a query sees a key.
pub fn masks(lengths: &[usize], padding: Padding) -> Vec<DMatrix<bool>> {
    // SOLUTION
    let n = lengths.iter().copied().max().unwrap_or(0);
    let mask = |&length: &usize| {
        let first = if padding == Padding::Before { n - length } else { 0 };
        let is_token = move |column: usize| (first..first + length).contains(&column);
        DMatrix::from_fn(n, n, |query, key| {
            // FAULT padding-alone: sees a later token
            // > let sees = is_token(key);
            // FAULT causal-alone: sees a padding token
            // > let sees = key <= query;
            // FAULT either: sees a later token
            // > let sees = key <= query || is_token(key);
            // FAULT not-itself: doesn't see itself
            // > let sees = key < query && is_token(key);
            // FAULT padding-asks: sees a padding token
            // > let sees = key <= query && is_token(query);
            // FAULT other-side: doesn't see itself
            // > let sees = key <= query && is_token(n - 1 - key);
            let sees = key <= query && is_token(key);
            // FAULT empty-rows: sees nothing, so softmax divides by 0
            // > sees
            // FAULT all-see-themselves: a row that sees something needs no exception
            // > sees || key == query
            // FAULT empty-rows-see-all: a row that would see nothing sees itself, and no other
            // > sees || query < first
            sees || (query < first && key == query)
        })
    };
    lengths.iter().map(mask).collect()
    // END
}

/// Returns the position of each token of each text, n numbers for each.
pub fn positions(lengths: &[usize], padding: Padding) -> Vec<Vec<usize>> {
    // SOLUTION
    let n = lengths.iter().copied().max().unwrap_or(0);
    let of_text = |&length: &usize| {
        // FAULT columns: the first token of each text has the position 0
        // > let first = 0;
        let first = if padding == Padding::Before { n - length } else { 0 };
        (0..n).map(|column| column.saturating_sub(first)).collect()
    };
    lengths.iter().map(of_text).collect()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;

    const LENGTHS: [usize; 3] = [2, 4, 1];

    fn first(length: usize, padding: Padding) -> usize {
        if padding == Padding::Before { 4 - length } else { 0 }
    }

    /// All texts in both paddings: length, first token, mask, what to call it.
    fn all() -> Vec<(usize, usize, DMatrix<bool>, String)> {
        let mut all = vec![];
        for padding in [Padding::Behind, Padding::Before] {
            let masks = masks(&LENGTHS, padding);
            assert!(masks.len() == 3, "three texts, and {} masks", masks.len());
            for (mask, length) in masks.into_iter().zip(LENGTHS) {
                let what = format!("{length} of 4 tokens, padding {padding:?}");
                assert!(
                    mask.shape() == (4, 4),
                    "{what}: the mask should be (4, 4), and is {:?}",
                    mask.shape()
                );
                all.push((length, first(length, padding), mask, what));
            }
        }
        all
    }

    #[test]
    fn tokens_see_themselves_and_those_before() {
        for (length, first, mask, what) in all() {
            for query in first..first + length {
                assert!(
                    mask[(query, query)],
                    "{what}: the token in row {query} doesn't see itself"
                );
                for key in 0..4 {
                    let sees = mask[(query, key)];
                    assert!(
                        !sees || key <= query,
                        "{what}: the token in row {query} sees a later token, in column {key}"
                    );
                    let is_token = (first..first + length).contains(&key);
                    assert!(
                        !sees || is_token,
                        "{what}: the token in row {query} sees a padding token, in column {key}"
                    );
                    assert!(
                        sees || key > query || !is_token,
                        "{what}: the token in row {query} doesn't see the one in column {key}"
                    );
                }
            }
        }
    }

    #[test]
    fn no_row_is_empty() {
        for (length, first, mask, what) in all() {
            for query in (0..4).filter(|row| !(first..first + length).contains(row)) {
                let seen: Vec<_> = (0..4).filter(|&key| mask[(query, key)]).collect();
                assert!(
                    !seen.is_empty(),
                    "{what}: the padding token in row {query} sees nothing, so softmax divides by 0"
                );
                if query < first {
                    assert!(
                        seen == [query],
                        "{what}: row {query} sees columns {seen:?}: a row that would see nothing sees itself, and no other"
                    );
                } else {
                    assert!(
                        seen.iter().all(|key| *key < length),
                        "{what}: row {query} sees columns {seen:?}: behind a text there are tokens to see, and a row that sees something needs no exception"
                    );
                }
            }
        }
    }

    #[test]
    fn a_padded_text_attends_as_it_would_alone() {
        let x = DMatrix::from_fn(4, 3, |i, j| ((3 + 5 * i + 3 * j * j) as f64).sin());
        for (length, first, mask, what) in all() {
            let text = x.rows(0, length).into_owned();
            let alone = attention(&text, &text, &text, Mask::causal()).unwrap().0;
            let mut padded = DMatrix::repeat(4, 3, 9.0);
            padded.rows_mut(first, length).copy_from(&text);
            let mask = Mask::dense(mask).unwrap();
            let came = attention(&padded, &padded, &padded, mask).unwrap().0;
            let off = (came.rows(first, length) - alone).amax();
            assert!(
                off < 1e-12,
                "{what}: the outputs of the text are off by {off:.2e} from those without padding"
            );
        }
    }

    #[test]
    fn positions_count_from_the_first_token() {
        let before = positions(&LENGTHS, Padding::Before);
        assert!(
            before[0] == [0, 0, 0, 1] && before[2] == [0, 0, 0, 0],
            "two tokens and one behind padding stand at {:?} and {:?}: the first token of each text has the position 0",
            before[0],
            before[2]
        );
        for text in positions(&LENGTHS, Padding::Behind).iter().chain([&before[1]]) {
            assert!(
                text[..] == [0, 1, 2, 3],
                "with nothing before a text its columns are its positions, and yours are {text:?}"
            );
        }
    }
}
