//! Shared memory: the banks that the lanes of a warp read, and the clocks that a load takes.

use super::{BANKS, WARP};
use std::collections::BTreeSet;

/// A lane's part of a load: `words` of four bytes, from `address` on, which is counted in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The first word.
    pub address: usize,
    /// Their number: one, or four.
    pub words: usize,
}

impl Ask {
    /// One word.
    pub fn word(address: usize) -> Self {
        Ask { address, words: 1 }
    }

    /// Four words.
    pub fn quad(address: usize) -> Self {
        Ask { address, words: 4 }
    }

    /// Returns the addresses of the words.
    pub fn words(self) -> impl Iterator<Item = usize> {
        self.address..self.address + self.words
    }
}

/// Clocks of one load. A bank gives one word a clock, to as many lanes as ask for it. Of one word a lane, the warp is served
/// at once; of four, a quarter of it at a time, or a half where all neighbours, or all lanes that lie two apart, ask for the same.
///
/// # Panics
/// There are not as many lanes as a warp has, or they ask for neither one word nor four.
///
/// ```
/// use laboratory::gpu::{Ask, clocks, warp};
///
/// // A column of a matrix whose rows are 32 words long, and one of rows that are 33 long.
/// let column = |stride| warp(|lane| Ask::word(lane * stride));
/// assert_eq!((clocks(&column(32)), clocks(&column(33))), (32, 1));
/// ```
pub fn clocks(asks: &[Ask]) -> usize {
    assert_eq!(asks.len(), WARP, "a warp");
    let paired = |by: usize| (0..WARP).all(|lane| asks[lane] == asks[lane ^ by]);
    let at_once = match asks[0].words {
        1 => WARP,
        4 if paired(1) || paired(2) => WARP / 2,
        4 => WARP / 4,
        words => panic!("no load has {words} words a lane"),
    };
    asks.chunks(at_once).map(busiest_bank).sum()
}

/// Returns the number of different words that the busiest bank is asked for.
pub fn busiest_bank(asks: &[Ask]) -> usize {
    let mut banks = vec![BTreeSet::new(); BANKS];
    for word in asks.iter().flat_map(|ask| ask.words()) {
        banks[word % BANKS].insert(word);
    }
    banks.iter().map(BTreeSet::len).max().unwrap_or(0)
}

/// Returns the parts of all lanes of a warp.
pub fn warp(ask: impl Fn(usize) -> Ask) -> Vec<Ask> {
    (0..WARP).map(ask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bank_gives_a_word_a_clock_to_all_who_ask_for_it() {
        assert_eq!(clocks(&warp(Ask::word)), 1); // 32 neighbours
        assert_eq!(clocks(&warp(|_| Ask::word(7))), 1); // all the same
        assert_eq!(clocks(&warp(|lane| Ask::word(2 * lane))), 2);
        assert_eq!(clocks(&warp(|lane| Ask::word(32 * lane))), 32);
        assert_eq!(clocks(&warp(|lane| Ask::quad(4 * lane))), 4);
        assert_eq!(clocks(&warp(|lane| Ask::quad(lane / 2 * 4))), 2);
        assert_eq!(clocks(&warp(|lane| Ask::quad(128 * lane))), 32);
    }
}
