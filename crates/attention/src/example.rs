//! The running example of the book: two sentences that share all words but two, in four dimensions that can be read.

use nalgebra::{DMatrix, dmatrix};

/// What each of the four dimensions of the running example stands for.
///
/// ```
/// assert_eq!(attention::example::DIMENSIONS[1], "money");
/// ```
pub const DIMENSIONS: [&str; 4] = ["water", "money", "place", "action"];

/// A sentence, and one vector for each of its words.
///
/// ```
/// let sentence = attention::example::river();
/// assert_eq!(sentence.x.shape(), (sentence.tokens.len(), 4));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Sentence {
    /// The words.
    pub tokens: [&'static str; 6],
    /// One row for each word (6, 4), the same row for the same word, wherever it stands.
    pub x: DMatrix<f64>,
}

/// "the boat left the river bank".
///
/// ```
/// assert_eq!(attention::example::river().tokens.join(" "), "the boat left the river bank");
/// ```
// ANCHOR: river
pub fn river() -> Sentence {
    Sentence {
        tokens: ["the", "boat", "left", "the", "river", "bank"],
        // one row a token: water, money, place, action
        x: dmatrix![
            0.1, 0.1, 0.1, 0.1; // the
            1.6, 0.1, 0.4, 0.5; // boat
            0.1, 0.1, 0.3, 2.0; // left
            0.1, 0.1, 0.1, 0.1; // the
            2.0, 0.0, 0.9, 0.1; // river
            1.0, 1.0, 1.2, 0.0; // bank
        ],
    }
}
// ANCHOR_END: river

/// "the clerk left the city bank": another boat, another river, the same bank.
///
/// ```
/// use attention::example::{city, river};
///
/// assert_eq!(city().x.row(5), river().x.row(5)); // "bank" is the same vector in both
/// ```
pub fn city() -> Sentence {
    let mut sentence = river();
    for (i, token, row) in
        [(1, "clerk", [0.1, 1.7, 0.3, 0.5]), (4, "city", [0.1, 1.4, 1.5, 0.1])]
    {
        sentence.tokens[i] = token;
        sentence.x.row_mut(i).copy_from_slice(&row);
    }
    sentence
}
