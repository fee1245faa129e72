//! # Which tiles?
//!
//! medium, 25 minutes
//!
//! Flash attention skips tiles that a mask hides, and masks only those on its border. So it has to know a tile's kind before it looks inside. Find it from the tile's first and last query and key, without looking at every pair.
//!
//! Query $i$ of $n_q$ stands at key $i + n_k - n_q$, and $n_q \le n_k$. It sees that key and earlier ones. With a
//! window of $w$, it sees only the last $w$ of them, its own key included. A tile is a range of queries and a range of
//! keys, neither of them empty.
//!
//! Say whether all of its pairs are visible, none, or some.
//!
//! # Hint
//!
//! Draw the tile and the diagonal. Which of the tile's queries sees the most late keys? Which one sees the most early
//! keys?
//!
//! # Hint
//!
//! Let the first and the last query of the tile stand at keys $a$ and $b$. Without a window, all pairs are visible if
//! the tile's last key is visible to the *first* query. None is if the tile's first key is hidden from the *last*
//! query.
//!
//! # Hint
//!
//! With a window, the query at $p$ sees the keys from `(p + 1).saturating_sub(w)` to $p$. For a full tile, its first
//! key must be in the window of the query at $b$, too. A tile is also hidden if its last key is older than the window
//! of the query at $a$.

use std::ops::Range;

/// What a mask leaves of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No pair is visible.
    Hidden,
    /// Some pairs are visible.
    Partial,
    /// All pairs are visible.
    Full,
}

/// Says what a causal mask leaves of a tile, or a window of `window` keys if there is one.
pub fn kind(
    n_q: usize,
    n_k: usize,
    queries: Range<usize>,
    keys: Range<usize>,
    window: Option<usize>,
) -> Kind {
    // SOLUTION
    // FAULT first-corner: stands at key i + n_k − n_q
    // > let offset = 0 * (n_k - n_q);
    let offset = n_k - n_q;
    let (a, b) = (queries.start + offset, queries.end - 1 + offset);
    let last_key = keys.end - 1;
    // FAULT window-of-one-more: its own key included
    // > let oldest = |p: usize| window.map_or(0, |w| p.saturating_sub(w));
    let oldest = |p: usize| window.map_or(0, |w| (p + 1).saturating_sub(w));
    // FAULT last-query: is each key of the tile visible to its first query
    // > if last_key <= b && oldest(b) <= keys.start {
    // FAULT early-keys: and to its last query
    // > if last_key <= a && oldest(a) <= keys.start {
    if last_key <= a && oldest(b) <= keys.start {
        Kind::Full
        // FAULT too-old: older than every window
        // > } else if b < keys.start {
    } else if b < keys.start || last_key < oldest(a) {
        Kind::Hidden
    } else {
        Kind::Partial
    }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::Range;

    fn blocks(n: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
        (0..n).step_by(size).map(move |start| start..n.min(start + size))
    }

    /// What a tile is, pair by pair. `offset` is where query 0 stands.
    fn pair_by_pair(
        offset: usize,
        queries: &Range<usize>,
        keys: &Range<usize>,
        window: usize,
    ) -> Kind {
        let sees = |i: usize, j: usize| j <= i + offset && i + offset - j < window;
        let all = queries.len() * keys.len();
        match queries
            .clone()
            .map(|i| keys.clone().filter(|j| sees(i, *j)).count())
            .sum::<usize>()
        {
            0 => Kind::Hidden,
            some if some == all => Kind::Full,
            _ => Kind::Partial,
        }
    }

    fn compare(n_q: usize, n_k: usize, sizes: (usize, usize), window: Option<usize>) {
        let w = window.unwrap_or(usize::MAX);
        let tiles = blocks(n_q, sizes.0).flat_map(|queries| {
            blocks(n_k, sizes.1).map(move |keys| (queries.clone(), keys))
        });
        let tiles: Vec<_> = tiles
            .map(|(queries, keys)| {
                (kind(n_q, n_k, queries.clone(), keys.clone(), window), queries, keys)
            })
            .collect();
        // Whether all answers are those of another rule.
        let is = |offset, w| {
            tiles.iter().all(|(came, queries, keys)| {
                pair_by_pair(offset, queries, keys, w) == *came
            })
        };
        // How many of a tile's corners are visible.
        let corners = |queries: &Range<usize>, keys: &Range<usize>| {
            let ends = |r: &Range<usize>| [r.start, r.end - 1];
            let sees = |i: usize, j: usize| {
                let p = i + n_k - n_q;
                j <= p && p - j < w
            };
            ends(queries)
                .into_iter()
                .flat_map(|i| ends(keys).map(|j| sees(i, j)))
                .filter(|visible| *visible)
                .count()
        };
        for (came, queries, keys) in &tiles {
            let right = pair_by_pair(n_k - n_q, queries, keys, w);
            let why = match came {
                _ if n_q < n_k && is(0, w) => {
                    "query i stands at key i + n_k − n_q, not at key i"
                }
                _ if window.is_some() && is(n_k - n_q, w + 1) => {
                    "a window of w is w keys, its own key included"
                }
                Kind::Full => {
                    "is each key of the tile visible to its first query, and to its last query?"
                }
                Kind::Hidden if corners(queries, keys) == 0 => {
                    "all four corners are hidden, yet the diagonal passes between them: one pair is enough for a tile that must not be skipped"
                }
                Kind::Hidden => "one pair is enough for a tile that must not be skipped",
                Kind::Partial => {
                    "count its pairs by hand. Either all are visible, or none is: its keys are all later than its queries, or older than every window"
                }
            };
            assert!(
                *came == right,
                "{n_q} queries, {n_k} keys, window {window:?}: the tile of queries {queries:?} and keys {keys:?} isn't {came:?}: {why}"
            );
        }
    }

    const SIZES: [(usize, usize); 5] = [(4, 4), (1, 1), (3, 5), (5, 2), (7, 100)];

    #[test]
    fn a_causal_mask_in_square_tiles() {
        compare(16, 16, (4, 4), None);
    }

    #[test]
    fn tiles_need_not_be_square() {
        for sizes in SIZES {
            compare(13, 13, sizes, None);
        }
    }

    #[test]
    fn the_last_query_stands_beside_the_last_key() {
        for sizes in SIZES {
            compare(5, 17, sizes, None);
            compare(1, 9, sizes, None);
        }
    }

    #[test]
    fn a_window_hides_old_keys() {
        for sizes in SIZES {
            for window in [1, 2, 5, 6, 40] {
                compare(14, 14, sizes, Some(window));
                compare(6, 14, sizes, Some(window));
            }
        }
    }
}
