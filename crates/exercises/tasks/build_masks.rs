//! # Build it yourself: masks
//!
//! medium, 20 minutes, without `attention::`
//!
//! A mask is a function that says whether a query sees a key, both given by their numbers. This file has three. Later tokens are hidden by
//! `causal`. With `window(width)` each token sees itself and those just before it, `width` in all. In `padding(is_token)` each key that isn't
//! a token is hidden from every query: there may be more queries than entries. A padding query may see, since its output is thrown away.
//!
//! `hide` gets scores $(n_q, n_k)$ and a mask, and returns a matrix of the same shape. Scores that are seen stay; whatever a hidden
//! score was, even NaN, $-\infty$ stands in its place. No pair of tokens makes a mask panic.
//!
//! # Hint
//!
//! Draw each mask for four tokens: a row for each query, a column for each key. Which cells are filled in the row of the first token, and
//! which on the diagonal?
//!
//! # Hint
//!
//! `window` and `padding` return closures. `query` and `key` are `usize`, so `query - key` panics if the key comes later, and
//! `query - width` panics in the first rows. Ask first which is larger.
//!
//! # Hint
//!
//! `move |query, key| …` takes the width along. `&&` looks at its right side only if the left side is true, so `key <= query` protects a
//! difference behind it. In `hide`, `Matrix::from_fn(scores.nrows(), scores.ncols(), |i, j| if … { … } else { f64::NEG_INFINITY })`.

use attention::plain::*;

// PROGRAM masks
// FAULT strictly-before: A token sees itself, so the diagonal is filled
// - key <= query
// > key < query
// FAULT only-later: hides the past and shows the future: which of the two numbers has to be the larger one?
// - key <= query
// > key >= query
// FAULT one-too-many: `width` counts the tokens that are seen, the token itself among them
// - move |query, key| key <= query && query - key < width
// > move |query, key| key <= query && query - key <= width
// FAULT one-too-few: Does the window count one token twice, or leave out the token itself?
// - move |query, key| key <= query && query - key < width
// > move |query, key| key <= query && query - key + 1 < width
// FAULT both-ways: a window looks back only
// - move |query, key| key <= query && query - key < width
// > move |query, key| query.abs_diff(key) < width
// FAULT negative: a `usize` can't be negative
// - move |query, key| key <= query && query - key < width
// > move |query, key| key <= query && key > query - width
// FAULT padding-queries: hides rows. The entry that decides is the key's, not the query's
// - |_, key| is_token[key]
// > |query, _| is_token[query]
// FAULT padding-both: a padding query sees nothing, and softmax has no weights for it
// - |_, key| is_token[key]
// > |query, key| is_token[query] && is_token[key]
// FAULT padding-inverted: `true` stands for a token, which may be seen
// - |_, key| is_token[key]
// > |_, key| !is_token[key]
// FAULT hidden-stays: Your mask and `hide` disagree about what `true` means: it means seen
// - if sees(i, j) { scores[(i, j)] } else { f64::NEG_INFINITY }
// > if sees(i, j) { f64::NEG_INFINITY } else { scores[(i, j)] }
// FAULT zero: softmax gives it the weight e⁰ divided by the sum
// - if sees(i, j) { scores[(i, j)] } else { f64::NEG_INFINITY }
// > if sees(i, j) { scores[(i, j)] } else { 0.0 }
// FAULT finite: A large negative number isn't −∞
// - if sees(i, j) { scores[(i, j)] } else { f64::NEG_INFINITY }
// > if sees(i, j) { scores[(i, j)] } else { -1e9 }
// FAULT added: Is −∞ added to the score, or put in its place?
// - if sees(i, j) { scores[(i, j)] } else { f64::NEG_INFINITY }
// > scores[(i, j)] + if sees(i, j) { 0.0 } else { f64::NEG_INFINITY }
// FAULT key-first: The mask wants the query first, which is the row
// - if sees(i, j) { scores[(i, j)] } else { f64::NEG_INFINITY }
// > if sees(j, i) { scores[(i, j)] } else { f64::NEG_INFINITY }

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const HIDDEN: f64 = f64::NEG_INFINITY;

    /// A line for each query: ■ where it sees the key, □ where it doesn't.
    fn picture(
        queries: usize,
        keys: usize,
        sees: impl Fn(usize, usize) -> bool,
    ) -> String {
        let cell = |i, j| if sees(i, j) { '■' } else { '□' };
        let line = |i| (0..keys).map(|j| cell(i, j)).collect::<String>() + "\n";
        (0..queries).map(line).collect()
    }

    #[test]
    fn causal_hides_the_future() {
        let (got, right) = (picture(3, 3, causal), "■□□\n■■□\n■■■\n");
        assert!(
            got != "□□□\n■□□\n■■□\n",
            "`causal`, a line for each query:\n{got}A token sees itself, so the diagonal is filled"
        );
        assert!(
            got != "■■■\n□■■\n□□■\n",
            "`causal`, a line for each query:\n{got}This hides the past and shows the future: which of the two numbers has to be the larger one?"
        );
        assert!(
            got == right,
            "`causal` for three tokens, a line for each query:\n{got}should be\n{right}"
        );
    }

    #[test]
    fn a_window_counts_the_token_itself() {
        let ask = |width: usize| {
            let came = catch_unwind(|| picture(4, 4, window(width)));
            assert!(
                came.is_ok(),
                "`window({width})` panics for one of four tokens. Does it subtract a larger number from a smaller one? The first tokens have fewer than {width} before them, or a key comes later than the query, and a `usize` can't be negative"
            );
            came.unwrap_or_default()
        };
        for (width, right) in [
            (2, "■□□□\n■■□□\n□■■□\n□□■■\n"),
            (1, "■□□□\n□■□□\n□□■□\n□□□■\n"),
            (3, "■□□□\n■■□□\n■■■□\n□■■■\n"),
            (9, "■□□□\n■■□□\n■■■□\n■■■■\n"),
        ] {
            let got = ask(width);
            let said = format!(
                "`window({width})` for four tokens, a line for each query:\n{got}"
            );
            let later = got.lines().enumerate().any(|(query, line)| {
                line.chars().skip(query + 1).any(|cell| cell == '■')
            });
            assert!(
                !later,
                "{said}A token sees tokens that come later, and a window looks back only"
            );
            let count = |text: &str| text.chars().filter(|&cell| cell == '■').count();
            assert!(
                count(&got) <= count(right),
                "{said}Too much is seen: `width` counts the tokens that are seen, the token itself among them"
            );
            assert!(
                count(&got) >= count(right),
                "{said}Too little is seen. Does the window count one token twice, or leave out the token itself?"
            );
            assert!(got == right, "{said}should be\n{right}");
        }
    }

    #[test]
    fn padding_hides_keys() {
        let is_token = [true, true, false];
        let ask = |queries| {
            catch_unwind(|| picture(queries, 3, padding(&is_token))).unwrap_or_default()
        };
        let (got, right) = (ask(3), "■■□\n■■□\n■■□\n");
        let said = format!(
            "`padding(&[true, true, false])` for three tokens, a line for each query:\n{got}"
        );
        assert!(
            got != "■■■\n■■■\n□□□\n",
            "{said}It hides rows. The entry that decides is the key's, not the query's"
        );
        assert!(
            got != "■■□\n■■□\n□□□\n",
            "{said}So a padding query sees nothing, and softmax has no weights for it. Only the key decides"
        );
        assert!(
            got != "□□■\n□□■\n□□■\n",
            "{said}This shows padding alone: `true` stands for a token, which may be seen"
        );
        assert!(got == right, "{said}should be\n{right}");
        let got = ask(4);
        assert!(
            got == right.to_owned() + "■■□\n",
            "four queries and three keys, as where queries come from another text: `padding` should show two keys to each query. Does it look up a query in a list of keys?"
        );
    }

    #[test]
    fn hidden_scores_become_minus_infinity() {
        let got = hide(&dmatrix![1.0, 2.0; 3.0, 4.0], |i, j| j <= i);
        let said = format!("hiding the score 2 of 1, 2; 3, 4 gives{got}");
        assert!(
            got != dmatrix![HIDDEN, 2.0; HIDDEN, HIDDEN],
            "{said}Your mask and `hide` disagree about what `true` means: it means seen"
        );
        assert!(
            got != dmatrix![1.0, HIDDEN; HIDDEN, 4.0]
                && got != dmatrix![1.0, 2.0; HIDDEN, 4.0],
            "{said}It is the score of query 1 and key 0 that is gone. The mask wants the query first, which is the row"
        );
        assert!(
            got[(0, 1)] != 0.0,
            "{said}A score of 0 hides nothing: softmax gives it the weight e⁰ divided by the sum"
        );
        let far = hide(&dmatrix![-2e9, 2.0], |_, j| j == 0);
        assert!(
            far[1] == HIDDEN,
            "the score −2,000,000,000 is seen, and the other became {:.3e}, which is larger, so softmax gives all the weight to the hidden key. A large negative number isn't −∞",
            far[1]
        );
        assert!(
            got == dmatrix![1.0, HIDDEN; 3.0, 4.0],
            "{said}and should be 1, −∞; 3, 4"
        );
        for hidden in [f64::NAN, f64::INFINITY] {
            let got = hide(&dmatrix![1.0, hidden], |_, j| j == 0);
            assert!(
                got == dmatrix![1.0, HIDDEN],
                "a hidden score of {hidden} becomes {}, and should be −∞. Is −∞ added to the score, or put in its place?",
                got[1]
            );
        }
    }

    #[test]
    fn any_rule_hides_any_matrix() {
        let table = ["■□□■■", "□■□□■", "■■□■□"]
            .map(|line| line.chars().map(|cell| cell == '■').collect::<Vec<_>>());
        let scores = Matrix::from_fn(3, 5, |i, j| (10 * i + j) as f64 - 7.0);
        let ask = || hide(&scores, |i, j| table[i][j]);
        let came = catch_unwind(AssertUnwindSafe(ask));
        assert!(
            came.is_ok(),
            "`hide` panics for three queries and five keys: is the mask asked about a pair that isn't there? The mask wants the query first, which is the row"
        );
        let got = came.unwrap();
        assert!(
            got.shape() == (3, 5),
            "`hide` keeps the shape of the scores, (3, 5), and yours is {:?}",
            got.shape()
        );
        for (i, j) in (0..3).flat_map(|i| (0..5).map(move |j| (i, j))) {
            let right = if table[i][j] { scores[(i, j)] } else { HIDDEN };
            assert!(
                got[(i, j)] == right,
                "three queries and five keys: the score of query {i} and key {j} becomes {}, and should be {right}",
                got[(i, j)]
            );
        }
    }
}
