//! The running example of the book: two sentences that share all words but two, in four dimensions that can be read.

use nalgebra::{DMatrix, dmatrix};

/// The meaning of each of the four dimensions of the running example.
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

/// Returns "the boat left the river bank".
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

/// Returns "the clerk left the city bank": another boat, another river, the same bank.
///
/// ```
/// use attention::example::{city, river};
///
/// assert_eq!(city().x.row(5), river().x.row(5)); // "bank" is the same vector in both
/// ```
// ANCHOR: city
pub fn city() -> Sentence {
    Sentence {
        tokens: ["the", "clerk", "left", "the", "city", "bank"],
        x: dmatrix![
            0.1, 0.1, 0.1, 0.1; // the
            0.1, 1.7, 0.3, 0.5; // clerk
            0.1, 0.1, 0.3, 2.0; // left
            0.1, 0.1, 0.1, 0.1; // the
            0.1, 1.4, 1.5, 0.1; // city
            1.0, 1.0, 1.2, 0.0; // bank
        ],
    }
}
// ANCHOR_END: city

/// Returns three projections that can be read, for the running example: places ask who speaks of water or money, actions ask who acts.
///
/// Shapes: W_Q and W_K (4, 2), W_V (4, 2).
///
/// ```
/// let [w_q, w_k, w_v] = attention::example::projections();
/// let x = attention::example::river().x; // (6, 4)
/// assert_eq!((x * w_q).shape(), (6, 2));
/// # assert_eq!((w_k.shape(), w_v.shape()), ((4, 2), (4, 2)));
/// ```
// ANCHOR: projections
pub fn projections() -> [DMatrix<f64>; 3] {
    let w_q = dmatrix![
        0.0, 0.0; // water asks nothing
        0.0, 0.0; // money asks nothing
        2.0, 0.0; // a place asks: who speaks of water or money?
        0.0, 2.0; // an action asks: who acts?
    ];
    let w_k = dmatrix![
        1.5, 1.0; // water answers both questions,
        1.5, 1.0; // money answers both,
       -0.5,-1.5; // and being a place counts against both
        0.0, 0.0; // an action answers neither
    ];
    let w_v = dmatrix![
        1.0, 0.0; // how much water
        0.0, 1.0; // how much money
        0.0, 0.0; // place and action hand nothing over
        0.0, 0.0;
    ];
    [w_q, w_k, w_v]
}
// ANCHOR_END: projections
