//! # The same words, the same rows
//!
//! easy, 15 minutes
//!
//! Attention as the chapter describes it sees which vectors there are, and in what proportions, but not where they
//! stand. If you know the output for one sentence, you can often predict it for another without computing any attention.
//! This shows what attention can't know, and why a model needs positions.
//!
//! Each word has one vector, whatever the sentence, and different words have different ones. You get the words of a
//! sentence, its output $(n, d)$ with a row for each word, and the words of another sentence, which may be longer or
//! shorter. Return the other sentence's output if the known one determines it. If it doesn't, return `None`.
//!
//! # Hint
//!
//! Take “the boat left the river bank” and “the bank left the river boat”. Which row of the first output belongs to
//! “bank”, and in which row of the second one do you want it?
//!
//! # Hint
//!
//! A weighted average changes when one word comes once more, because that word takes a second share. But if *every*
//! word comes twice as often, all shares are halved and added twice: “a b” and “a a b b” give the same average. Does
//! each word make up the same part of both sentences? A word that comes $k$ times in $n$ words and $a$ times in $m$ does
//! if $k m = a n$.
//!
//! # Hint
//!
//! For each word of the sentence that is asked about, find its place with `known.iter().position(|it| it == word)`. If
//! a word comes twice, its rows are equal, so any of them will do. `output.select_rows(&places)` builds the answer.

use nalgebra::DMatrix;

/// Returns the output of attention for the words `asked`, if it follows from that for the words `known`.
///
/// Shapes: `output` (n, d), a row for each word of `known` → (m, d), a row for each word of `asked`.
pub fn predict(
    known: &[&str],
    output: &DMatrix<f64>,
    asked: &[&str],
) -> Option<DMatrix<f64>> {
    // SOLUTION
    let times =
        |words: &[&str], word: &str| words.iter().filter(|it| **it == word).count();
    let same_part = |word: &&str| {
        // FAULT a-set: how often does each word come?
        // > times(known, word).min(1) == times(asked, word).min(1)
        // FAULT how-often: all shares are halved and added twice
        // > times(known, word) == times(asked, word)
        times(known, word) * asked.len() == times(asked, word) * known.len()
    };
    // FAULT only-the-length: has no word in common
    // > if known.len() != asked.len() {
    if !known.iter().chain(asked).all(same_part) {
        return None;
    }
    let place = |word: &&str| known.iter().position(|it| it == word).unwrap_or_default();
    // FAULT backwards: where the known word stands in the sentence asked
    // > let places: Vec<usize> = known.iter().map(|word| asked.iter().position(|it| it == word).unwrap_or_default()).collect();
    // FAULT not-moved: these are the known rows, in their old order
    // > let places: Vec<usize> = (0..known.len()).collect();
    let places: Vec<usize> = asked.iter().map(place).collect();
    Some(output.select_rows(&places))
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    /// The output for a sentence: each word has random numbers, always the same.
    fn attend(words: &[&str]) -> DMatrix<f64> {
        let mut x = DMatrix::zeros(words.len(), 3);
        for (word, mut row) in words.iter().zip(x.row_iter_mut()) {
            let seed = word.bytes().fold(0, |sum, byte| 31 * sum + u64::from(byte));
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            row.apply(|entry| *entry = StandardNormal.sample(&mut rng));
        }
        attention(&x, &x, &x, Mask::none()).expect("shapes that fit").0
    }

    fn check(known: &str, asked: &str) {
        let known: Vec<_> = known.split(' ').collect();
        let asked: Vec<_> = asked.split(' ').collect();
        let output = attend(&known);
        let Some(predicted) = predict(&known, &output, &asked) else {
            panic!(
                "in {asked:?} each word makes up the same part as in {known:?}, so its output is determined: you return None. If a word comes twice as often, and so does every other, all shares are halved and added twice"
            );
        };
        let right = attend(&asked);
        assert!(
            predicted.shape() == right.shape(),
            "a prediction has a row for each word: yours has the shape {:?}, expected {:?}",
            predicted.shape(),
            right.shape()
        );
        let is = |other: &DMatrix<f64>| {
            predicted.shape() == other.shape() && (&predicted - other).norm() < 1e-9
        };
        let places: Vec<_> = known
            .iter()
            .map(|word| asked.iter().position(|it| it == word).unwrap())
            .filter(|place| *place < output.nrows())
            .collect();
        if is(&right) {
            return;
        }
        assert!(
            !is(&output),
            "from {known:?} to {asked:?}: these are the known rows, in their old order"
        );
        assert!(
            !is(&output.select_rows(&places)),
            "from {known:?} to {asked:?}: each row came from where the known word stands in the sentence asked. Which way round should it be?"
        );
        let row = (0..asked.len())
            .find(|&i| !((predicted.row(i) - right.row(i)).norm() < 1e-9))
            .unwrap();
        panic!(
            "from {known:?} to {asked:?}: row {row} is wrong. It should be the known row of “{}”",
            asked[row]
        );
    }

    #[test]
    fn two_words_change_places() {
        check("the boat left the river bank", "the bank left the river boat");
    }

    #[test]
    fn every_word_moves() {
        check("man bites dog", "dog man bites");
        check("a b c d e", "c e d b a");
        check("so it goes so", "goes so so it");
    }

    #[test]
    fn only_the_proportions_matter() {
        check("a b", "a a b b");
        check("a a b b", "b a");
        check("the boat the", "boat the the the boat the");
        check("a a b", "b a a a a b");
    }

    #[test]
    fn other_proportions_change_the_output() {
        for (known, asked) in [
            (["the", "boat", "the"], ["the", "boat", "boat"]),
            (["a", "b", "b"], ["a", "a", "b"]),
        ] {
            let predicted = predict(&known, &attend(&known), &asked);
            assert!(
                predicted.is_none(),
                "from {known:?} you predict {asked:?}, whose output is another: how often does each word come?"
            );
        }
        let predicted =
            predict(&["the", "boat"], &attend(&["the", "boat"]), &["the", "boat", "the"]);
        assert!(
            predicted.is_none(),
            "one more “the” changes all weights: “the boat the” has another proportion of words than “the boat”"
        );
    }

    #[test]
    fn other_words_are_not_predicted() {
        let known = ["man", "bites", "dog"];
        let predicted = predict(&known, &attend(&known), &["the", "river", "bank"]);
        assert!(
            predicted.is_none(),
            "“the river bank” has no word in common with “man bites dog”, but you predict its output"
        );
    }
}
