//! Regular expressions.

use regex::Regex;
use std::sync::LazyLock;

/// A regular expression that is compiled when it is needed first.
pub(crate) type Pattern = LazyLock<Regex>;

/// The [`Pattern`] of a constant.
macro_rules! pattern {
    ($pattern:expr $(,)?) => {
        std::sync::LazyLock::new(|| {
            regex::Regex::new($pattern).expect("the pattern is a constant")
        })
    };
}
pub(crate) use pattern;
