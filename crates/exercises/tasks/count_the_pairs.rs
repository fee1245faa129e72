//! # Count the pairs
//!
//! easy, 10 minutes
//!
//! How much does a pattern save? Count the visible pairs of a query and a key in a text of $n$ tokens, for three
//! patterns. Don't build a mask: for long texts it wouldn't fit. Count for each query, or find a formula.
//!
//! In all of them, no token sees a later one, and each token sees itself.
//!
//! - A window of $w$ tokens, with $s$ sinks: also the first $s$ tokens are visible. Each pair counts once.
//! - A dilated window: $w$ tokens again, itself included, but only every `step`-th token before it.
//! - Blocks of $b$ tokens: a token sees its own block and the block before. The last block may be shorter.
//!
//! # Hint
//!
//! How many keys does query $i$ see, if you count from 0? Near the beginning of the text it sees fewer than the pattern
//! allows.
//!
//! # Hint
//!
//! For the window, let `first` be the first key of query $i$'s window. The keys before `first` are hidden, but for
//! sinks: how many sinks are among them?
//!
//! # Hint
//!
//! Window: `first = (i + 1).saturating_sub(w)`, and the query sees `i + 1 - first + s.min(first)` keys. Dilated: there
//! are `i / step` tokens before it at the right distances. Blocks: the first visible key is
//! `(i / b).saturating_sub(1) * b`.

/// Visible pairs under a window of `w` tokens with `sinks` sinks.
pub fn window(n: usize, w: usize, sinks: usize) -> usize {
    // SOLUTION
    // FAULT full-rows: the first tokens have fewer before them
    // > return n * (w + sinks);
    // > let seen = |i: usize| i;
    let seen = |i: usize| {
        // FAULT full-rows
        let first = (i + 1).saturating_sub(w);
        // FAULT sinks-twice: a sink in the window counts once
        // > i + 1 - first + sinks.min(i + 1)
        // FAULT full-rows
        i + 1 - first + sinks.min(first)
        // FAULT full-rows
    };
    (0..n).map(seen).sum()
    // END
}

/// Visible pairs under a window of `w` tokens that takes every `step`-th one.
pub fn dilated(n: usize, w: usize, step: usize) -> usize {
    // SOLUTION
    // FAULT step-in-window: w counts the tokens that are seen
    // > (0..n).map(|i| i.min(w - 1) / step + 1).sum()
    (0..n).map(|i| w.min(i / step + 1)).sum()
    // END
}

/// Visible pairs if each token sees its block of `b` tokens and the block before, up to itself.
pub fn blocks(n: usize, b: usize) -> usize {
    // SOLUTION
    // FAULT later-tokens: no token sees a later one
    // > (0..n).map(|i| n.min((i / b + 1) * b) - (i / b).saturating_sub(1) * b).sum()
    (0..n).map(|i| i + 1 - (i / b).saturating_sub(1) * b).sum()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [usize; 4] = [1, 10, 23, 64];

    /// Counts pair by pair. A query comes first, and no key is later.
    fn count(n: usize, sees: impl Fn(usize, usize) -> bool) -> usize {
        (0..n).map(|i| (0..=i).filter(|j| sees(i, *j)).count()).sum()
    }

    #[test]
    fn a_window_with_sinks() {
        for n in TEXTS {
            for (w, s) in [(1, 0), (4, 0), (4, 2), (9, 3), (3, 12), (100, 1)] {
                let (came, right) =
                    (window(n, w, s), count(n, |i, j| i - j < w || j < s));
                let twice: usize = (0..n).map(|i| w.min(i + 1) + s.min(i + 1)).sum();
                let what = format!("{n} tokens, window {w}, {s} sinks: {came} pairs");
                assert!(
                    came == right || came != n * (w + s),
                    "{what}, if each token saw them all: the first tokens have fewer before them"
                );
                assert!(
                    came == right || came != twice,
                    "{what} are too many: a sink in the window counts once"
                );
                let without_itself = count(n, |i, j| i - j <= w || j < s);
                assert!(
                    came == right || came != without_itself,
                    "{what}: does w include the token itself?"
                );
                assert!(
                    came == right,
                    "{what}: are some missing, or some too many? Yours is {came:?}, expected {right:?}"
                );
            }
        }
    }

    #[test]
    fn a_dilated_window() {
        for n in TEXTS {
            for (w, step) in [(1, 3), (4, 1), (4, 2), (3, 5), (50, 4)] {
                let right = count(n, |i, j| (i - j) % step == 0 && (i - j) / step < w);
                let came = dilated(n, w, step);
                let shrunk = count(n, |i, j| (i - j) % step == 0 && i - j < w);
                let what = format!("{n} tokens, window {w}, step {step}: {came} pairs");
                assert!(
                    came == right || came != shrunk,
                    "{what}: the window should reach {step} times as far, since w counts the tokens that are seen"
                );
                assert!(
                    came == right,
                    "{what}: are some missing, or some too many? Yours is {came:?}, expected {right:?}"
                );
            }
        }
    }

    #[test]
    fn blocks_of_tokens() {
        for n in TEXTS {
            for b in [1, 4, 7, 100] {
                let (came, right) = (blocks(n, b), count(n, |i, j| i / b - j / b < 2));
                let what = format!("{n} tokens in blocks of {b}: {came} pairs");
                assert!(
                    came <= right,
                    "{what} are too many, {right} are visible: no token sees a later one, and the last block may be shorter"
                );
                assert!(
                    came == right,
                    "{what}: does a token see all of the block before? Yours is {came:?}, expected {right:?}"
                );
            }
        }
    }
}
