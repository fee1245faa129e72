//! Sentences that the data chooses.

/// Of what it is true that recomputing is faster than reading, and what a program had better do with its weights on the thread: it
/// takes so many times as long to fetch one as to compute it.
pub fn recompute_in_words(fetched: f64) -> (&'static str, &'static str) {
    if fetched < 1.0 {
        (
            "of a GPU with tensor cores, and of nothing else in this table",
            "kept its weights",
        )
    } else {
        (
            "of a GPU with tensor cores, and of the thread in this table",
            "computed its weights again",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recomputing_is_praised_where_fetching_takes_longer() {
        assert!(recompute_in_words(0.1).0.contains("nothing else"));
        assert_eq!(recompute_in_words(0.1).1, "kept its weights");
        assert!(recompute_in_words(2.0).0.contains("of the thread"));
        assert_eq!(recompute_in_words(2.0).1, "computed its weights again");
    }
}
