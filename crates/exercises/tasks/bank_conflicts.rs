//! # Clocks and banks
//!
//! medium, 20 minutes
//!
//! A warp asks shared memory for one word per lane. How many clocks does it wait? Count by the chapter's rule: 32 banks, each of
//! which delivers one word a clock, and lanes that ask for the same word share it.
//!
//! Then choose the padding. A tile has rows of $d$ words; its padding is unused words behind each row. At one moment, lanes read a
//! piece of it: the first words of the first rows. Return the smallest padding with which this takes the fewest
//! clocks. Padding costs room, so not a word more.
//!
//! Before you run it: for eight rows and four columns, is one word of padding the answer, as in kernel 1?
//!
//! # Hint
//!
//! Two lanes ask for words 5 and 37, and a third for 5. Which banks are these, and what is each bank asked for?
//!
//! # Hint
//!
//! The slowest bank decides. For each bank, count its *different* words. Padding by 32 words does the same as none: why?
//!
//! # Hint
//!
//! Put the words into a set, then count per bank in `[0; 32]`, and take the largest. For the padding, try 0 to 31 with
//! `min_by_key`: of several smallest ones it returns the first.

use std::collections::HashSet;

/// Returns the clocks of a load: lane i asks for word `words[i]`. There are at most 32 lanes.
pub fn clocks(words: &[usize]) -> usize {
    // SOLUTION
    let mut asked = [0; 32];
    // FAULT same-word: lanes that ask for the same word share it
    // > for word in words {
    for word in words.iter().collect::<HashSet<_>>() {
        asked[word % 32] += 1;
    }
    // FAULT added-up: banks deliver at the same time
    // > asked.iter().map(|count: &usize| count.saturating_sub(1)).sum::<usize>() + 1
    asked.into_iter().max().unwrap_or(0)
    // END
}

/// Returns the smallest padding with which a piece of a tile takes the fewest clocks: words 0 to `columns` − 1 of rows 0 to `rows` − 1, at
/// most 32 words together. A row has d words, and the padding behind it.
pub fn best_padding(d: usize, rows: usize, columns: usize) -> usize {
    // SOLUTION
    let piece = |padding: usize| -> Vec<usize> {
        let words_of =
            |row: usize| (0..columns).map(move |column| row * (d + padding) + column);
        // FAULT one-column: suits a piece with one column
        // > (0..rows).map(|row| row * (d + padding)).collect()
        (0..rows).flat_map(words_of).collect()
    };
    // FAULT always-one: is one word of padding always the answer
    // > 1
    // FAULT largest: a smaller padding takes as few clocks
    // > (0..32).rev().min_by_key(|&padding| clocks(&piece(padding))).unwrap()
    (0..32).min_by_key(|&padding| clocks(&piece(padding))).unwrap()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule once more, said differently: of each bank's words, how many are there?
    fn counted(words: &[usize]) -> usize {
        let mut words = words.to_vec();
        words.sort();
        words.dedup();
        (0..32)
            .map(|bank| words.iter().filter(|word| *word % 32 == bank).count())
            .max()
            .unwrap()
    }

    fn piece(d: usize, rows: usize, columns: usize, padding: usize) -> Vec<usize> {
        (0..rows * columns)
            .map(|lane| lane / columns * (d + padding) + lane % columns)
            .collect()
    }

    #[test]
    fn a_load_waits_for_its_slowest_bank() {
        for (words, question) in [
            ((64..96).collect::<Vec<_>>(), "32 neighbours are in 32 banks"),
            (vec![5, 37], "which bank is word 37 in?"),
            (
                vec![0, 32, 64, 1, 33, 2],
                "banks deliver at the same time, so which of them is the last?",
            ),
            (
                piece(128, 8, 1, 0),
                "eight rows, one column, no padding: do they have to queue?",
            ),
            (piece(128, 32, 1, 2), "a column of 32 rows with two words of padding"),
        ] {
            let (given, expected) = (clocks(&words), counted(&words));
            assert!(given == expected, "{words:?}: you count {given} clocks: {question}");
        }
    }

    #[test]
    fn a_word_is_delivered_once() {
        for words in [vec![7; 32], vec![3, 3, 35, 3, 35, 4]] {
            let (given, expected) = (clocks(&words), counted(&words));
            assert!(
                given == expected,
                "{words:?}: you count {given} clocks: lanes that ask for the same word share it"
            );
        }
    }

    #[test]
    fn no_other_padding_is_better() {
        for (d, rows, columns) in [
            (33, 32, 1),
            (128, 8, 1),
            (128, 8, 4),
            (128, 16, 2),
            (64, 4, 8),
            (40, 4, 8),
            (20, 8, 4),
            (24, 5, 6),
        ] {
            let of = |columns, padding| counted(&piece(d, rows, columns, padding));
            let best =
                |columns| (0..32).min_by_key(|&padding| of(columns, padding)).unwrap();
            let given = best_padding(d, rows, columns);
            let place = format!(
                "d = {d}, a piece of {rows} × {columns} words: with padding {given}, clocks: {}",
                of(columns, given)
            );
            let question = match given {
                given if given == best(1) && columns > 1 => {
                    "this padding suits a piece with one column: which banks do the others need?"
                }
                1 => "is one word of padding always the answer?",
                _ => "did you try all of 0 to 31?",
            };
            if of(columns, given) == of(columns, best(columns)) {
                assert!(
                    given == best(columns),
                    "{place}, but a smaller padding takes as few clocks"
                );
            } else {
                panic!("{place}, and another padding takes fewer: {question}");
            }
        }
    }
}
