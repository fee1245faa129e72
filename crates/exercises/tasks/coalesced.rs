//! # Count the sectors of a load
//!
//! medium, 20 minutes
//!
//! A warp computes 32 scores: each lane has its own key, and at each moment all lanes read the same column. How
//! many sectors does that load touch? That depends on the layout of the keys:
//!
//! - `Rows`: as $(n, d)$, row by row.
//! - `Columns`: as $(d, n)$, so a column of the keys is one run of words.
//! - `Groups`: 32 keys together, and each group as $(d, 32)$. The last group has room for 32 keys, too.
//!
//! A word has four bytes. Write which words the lanes read, and how many sectors and clocks that is, as the
//! chapter counts them. A sector begins at word 0. Then find out: when is `Columns` worse than `Groups`?
//!
//! # Hint
//!
//! Write down the words of the 32 lanes for $d = 4$ and column 1, in each layout. Which sector is word 7 in, and which is word 8 in?
//!
//! # Hint
//!
//! What counts is how many *different* sectors there are. Neither the distance from the first to the last word nor the number of words
//! tells. A clock that isn't full is still a clock.
//!
//! # Hint
//!
//! `words.iter().map(|word| word / 8).collect::<HashSet<_>>()` has every sector once. The keys of warp $w$ begin at $32 w$, and end
//! before $\min(32 w + 32, n)$. In `Groups`, a group takes $32 d$ words.

use std::collections::HashSet;

/// How keys lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    Rows,
    Columns,
    Groups,
}

/// Returns the words that the lanes of a warp read: column `column` of 32 keys, those of the `warp`th warp. There are n keys of
/// width d. A lane whose key is past the end reads nothing.
pub fn words(
    layout: Layout,
    warp: usize,
    column: usize,
    n: usize,
    d: usize,
) -> Vec<usize> {
    // SOLUTION
    // FAULT past-the-end: read past the last key
    // > let keys = 32 * warp..32 * warp + 32;
    let keys = 32 * warp..n.min(32 * warp + 32);
    keys.map(|j| match layout {
        Layout::Rows => j * d + column,
        Layout::Columns => column * n + j,
        Layout::Groups => warp * 32 * d + column * 32 + j % 32,
    })
    .collect()
    // END
}

/// Returns how many sectors these words are in.
pub fn sectors(words: &[usize]) -> usize {
    // SOLUTION
    // FAULT aligned: does every run of words begin where a sector begins
    // > return words.iter().collect::<HashSet<_>>().len().div_ceil(8);
    // FAULT span: are sectors between two words loaded, too
    // > return words.iter().max().map_or(0, |last| last / 8 - words.iter().min().unwrap() / 8 + 1);
    // FAULT bytes: a sector has 32 bytes: how many words
    // > return words.iter().map(|word| word / 32).collect::<HashSet<_>>().len();
    words.iter().map(|word| word / 8).collect::<HashSet<_>>().len()
    // END
}

/// Returns how many clocks a load of these words takes.
pub fn clocks(words: &[usize]) -> usize {
    // SOLUTION
    // FAULT part-of-a-clock: is a clock with one sector a clock
    // > sectors(words) / 4
    sectors(words).div_ceil(4)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LAYOUTS: [Layout; 3] = [Layout::Rows, Layout::Columns, Layout::Groups];

    #[test]
    fn each_key_has_a_word_in_each_column() {
        for (layout, n, d) in
            LAYOUTS.into_iter().flat_map(|it| [(it, 64_usize, 12), (it, 45, 7)])
        {
            let mut seen = BTreeSet::new();
            for (warp, column) in
                (0..n.div_ceil(32)).flat_map(|warp| (0..d).map(move |c| (warp, c)))
            {
                let words = words(layout, warp, column, n, d);
                let lanes = (n - 32 * warp).min(32);
                let place =
                    format!("{layout:?}, n = {n}, d = {d}, warp {warp}, column {column}");
                assert!(
                    words.len() <= lanes,
                    "{place}: {} lanes read, but {lanes} have a key: the others read past the last key",
                    words.len()
                );
                assert!(
                    words.len() == lanes,
                    "{place}: {} lanes read, but {lanes} have a key",
                    words.len()
                );
                for word in words {
                    assert!(
                        seen.insert(word),
                        "{place}: word {word} was read before, in place of another key or column"
                    );
                }
            }
            let room =
                if layout == Layout::Groups { n.next_multiple_of(32) * d } else { n * d };
            assert!(
                seen.last().unwrap() < &room,
                "{layout:?}, n = {n}, d = {d}: word {} is past the end",
                seen.last().unwrap()
            );
        }
    }

    #[test]
    fn words_are_where_the_layout_says() {
        // Key 34 of 45, width 7, column 2: lane 2 of warp 1.
        for (layout, expected) in [
            (Layout::Rows, 34 * 7 + 2),
            (Layout::Columns, 2 * 45 + 34),
            (Layout::Groups, 32 * 7 + 2 * 32 + 2),
        ] {
            let given = words(layout, 1, 2, 45, 7)[2];
            assert!(
                given == expected,
                "{layout:?}, 45 keys of width 7: lane 2 of warp 1 reads word {given} for column 2: which key has it, and where does that begin?"
            );
        }
    }

    #[test]
    fn sectors_are_counted_once_each() {
        let run = |from: usize| (from..from + 32).collect::<Vec<_>>();
        for (words, expected, question) in [
            (vec![5; 32], 1, "all lanes read one word: in how many sectors is it?"),
            (run(64), 4, "a sector has 32 bytes: how many words is that?"),
            (run(3), 5, "does every run of words begin where a sector begins?"),
            (vec![0, 9, 800, 801], 3, "are sectors between two words loaded, too?"),
            (
                (0..32).map(|lane| lane * 128).collect(),
                32,
                "how many lanes share a sector?",
            ),
            (vec![], 0, "no lane reads"),
        ] {
            let given = sectors(&words);
            assert!(
                given == expected,
                "words {:?} and so on: you count {given} sectors: {question}",
                &words[..words.len().min(4)]
            );
        }
    }

    #[test]
    fn a_clock_brings_any_four_sectors() {
        for (count, expected) in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (32, 8)] {
            let words: Vec<_> = (0..count).map(|i| 24 * i).collect();
            let given = clocks(&words);
            assert!(
                given == expected,
                "{count} sectors: you count {given} clocks: is a clock with one sector a clock?"
            );
        }
    }

    #[test]
    fn columns_need_more_where_n_is_no_multiple_of_a_sector() {
        let all = |layout, n| {
            (0..12).map(|column| sectors(&words(layout, 0, column, n, 12))).sum::<usize>()
        };
        assert!(
            [all(Layout::Rows, 64), all(Layout::Columns, 64), all(Layout::Groups, 64)]
                == [384, 48, 48],
            "64 keys of width 12, all columns of warp 0, by layout: yours are {:?}, expected {:?}",
            [all(Layout::Rows, 64), all(Layout::Columns, 64), all(Layout::Groups, 64)],
            [384, 48, 48]
        );
        assert!(
            all(Layout::Columns, 67) > all(Layout::Groups, 67),
            "67 keys: each column of `Columns` should begin within a sector"
        );
    }
}
