//! # Which keys does a loop visit?
//!
//! easy, 15 minutes
//!
//! A program that skips hidden pairs doesn't ask about each pair. It asks once per query for the keys to visit. Return
//! them as a range, for a causal mask with a sliding window of width $w$, where $n_q$ queries meet $n_k$ keys. The last
//! query stands at the last key, as in a model that keeps earlier keys in a cache. A window counts the token itself.
//!
//! Sometimes there are more queries than keys. Then the first queries stand before the first key, and see nothing.
//! Return an empty range for them. Count everything from 0, as in code.
//!
//! # Hint
//!
//! At which position among the keys does query $i$ stand? Take five keys and two queries, and find the position of each
//! query.
//!
//! # Hint
//!
//! A range excludes its end. So what are its end and its start, if the last key that a query sees is its own and the
//! range has $w$ entries? What if there aren't so many?
//!
//! # Hint
//!
//! `a.saturating_sub(b)` is $a - b$, or 0 where that would be negative. Add before you subtract: the end is one more
//! than the position $i + n_k - n_q$, and 0 if the query stands before all keys.

use std::ops::Range;

/// Returns the keys that query `i` sees: those up to its own position, and no more than `window` of them.
pub fn keys_seen(i: usize, n_q: usize, n_k: usize, window: usize) -> Range<usize> {
    // SOLUTION
    // FAULT corner: counts from the first key
    // > let end = (i + 1).min(n_k);
    // FAULT not-itself: It ends before the query's own key
    // > let end = (i + n_k).saturating_sub(n_q);
    let end = (i + 1 + n_k).saturating_sub(n_q); // one after the query's own key
    // FAULT one-too-many: a window counts the token itself
    // > end.saturating_sub(window + 1)..end
    // FAULT window-without-cache: where does the window stand?
    // > (i + 1).saturating_sub(window)..end
    end.saturating_sub(window)..end
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::Mask;

    /// The answer by the crate's mask, pair by pair.
    fn seen(i: usize, n_q: usize, n_k: usize, window: usize) -> Vec<usize> {
        let mask =
            Mask::causal().and(Mask::window(window).unwrap()).sized(n_q, n_k).unwrap();
        (0..n_k).filter(|&j| mask.allows(i, j)).collect()
    }

    fn check(n_q: usize, n_k: usize, window: usize, slip: &str) {
        for i in 0..n_q {
            let range = keys_seen(i, n_q, n_k, window);
            let got: Vec<_> = range.clone().collect();
            let right = seen(i, n_q, n_k, window);
            if got == right {
                continue;
            }
            let own = i + n_k - n_q.min(i + n_k);
            let slip = if range.end == own && right.contains(&own) {
                "It ends before the query's own key: does a token see itself?"
            } else if right.last() == Some(&own) && range.end == own + 1 {
                "Its end is right. Then where does the window stand? It ends at the query's position among the *keys*, and counts the token itself"
            } else {
                slip
            };
            let sizes = if got.len() == right.len() {
                "has as many keys as it should, but others".to_owned()
            } else {
                format!("has {} keys, and it should have {}", got.len(), right.len())
            };
            panic!(
                "query {i} of {n_q}, with {n_k} keys and a window of {window}: {range:?} {sizes}. {slip}"
            );
        }
    }

    #[test]
    fn the_last_query_sees_its_own_key() {
        for n in [1, 2, 6] {
            let range = keys_seen(n - 1, n, n, 100);
            assert!(
                range.contains(&(n - 1)),
                "the last of {n} tokens gets {range:?}: does a token see itself?"
            );
            assert!(
                range == (0..n),
                "with a wide window, the last of {n} tokens sees all: yours is {range:?}, expected {:?}",
                0..n
            );
        }
    }

    #[test]
    fn a_window_keeps_its_width() {
        for width in [1, 2, 3] {
            let length = keys_seen(7, 8, 8, width).len();
            assert!(
                length == width,
                "a window of {width} holds {length} keys: a window counts the token itself, and nothing more"
            );
        }
        check(6, 6, 3, "Which tokens have fewer than three before them?");
    }

    #[test]
    fn after_a_cache_the_last_query_is_at_the_last_key() {
        check(
            1,
            5,
            100,
            "Your query counts from the first key, as if nothing were cached, doesn't it?",
        );
        check(
            2,
            6,
            100,
            "Each of the two has four cached keys before the queries' own. Did you count them?",
        );
    }

    #[test]
    fn the_window_moves_with_the_query() {
        check(
            2,
            6,
            3,
            "Then where does the window stand? It ends at the query's position among the *keys*",
        );
        check(3, 9, 1, "A window of 1 is the token alone: where does the window stand?");
    }

    #[test]
    fn queries_before_the_first_key_see_nothing() {
        check(
            5,
            2,
            4,
            "The first queries stand before the first key, so they see nothing",
        );
        assert!(
            keys_seen(0, 5, 2, 4).is_empty(),
            "query 0 of 5 with 2 keys stands before all keys"
        );
    }
}
