//! Texts and files after random damage, for tests of what reads them. Other crates of the project share this module.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// `bytes` after a few edits, each of which takes out some bytes and puts in random ones or one of `tokens`, which mean
/// something to the reader. One case in four is nothing but edits.
pub fn bytes(
    bytes: Vec<u8>,
    tokens: &'static [&'static str],
) -> impl Strategy<Value = Vec<u8>> {
    let token = select(tokens).prop_map(|token| token.as_bytes().to_vec());
    let inserted = prop_oneof![vec(any::<u8>(), 0..8), token];
    let edit =
        (any::<Index>(), prop_oneof![4 => 0..8_usize, 1 => 0..200_usize], inserted);
    (prop::bool::weighted(0.75), vec(edit, 0..8)).prop_map(move |(keep, edits)| {
        let mut bytes = if keep { bytes.clone() } else { vec![] };
        for (at, removed, inserted) in edits {
            let start = at.index(bytes.len() + 1);
            let end = (start + removed).min(bytes.len());
            bytes.splice(start..end, inserted);
        }
        bytes
    })
}

/// The same for a text. What is no UTF-8 any more is replaced.
pub fn text(
    text: &str,
    tokens: &'static [&'static str],
) -> impl Strategy<Value = String> + use<> {
    bytes(text.as_bytes().to_vec(), tokens)
        .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
