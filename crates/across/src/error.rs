//! The errors: which rank, and what is wrong with it.

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation of several ranks failed.
///
/// ```
/// let error = across::Error::Rank { rank: 2, what: "has left".into() };
/// assert_eq!(error.to_string(), "rank 2 has left");
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that this rank was given, or what its engine says of it.
    #[error(transparent)]
    Attention(#[from] attention::Error),
    /// A rank that left, gave up, sent nothing for too long, or sent something else than was expected.
    #[error("rank {rank} {what}")]
    Rank {
        /// The rank.
        rank: usize,
        /// What it did, such as `has left`.
        what: String,
    },
    /// The first rank that was asked for something else than rank 0.
    #[error("rank {rank} has {what} = {given} but rank 0 has {expected}")]
    Differs {
        /// The rank.
        rank: usize,
        /// In what it differs, such as `n_q`.
        what: &'static str,
        /// What that rank has.
        given: String,
        /// What rank 0 has.
        expected: String,
    },
}

impl Error {
    /// The rank to blame, and what it did, as `rank` tells it to others.
    #[must_use]
    pub fn blame(&self, rank: usize) -> (usize, String) {
        match self {
            Error::Rank { rank, what } => (*rank, what.clone()),
            other => (rank, format!("gave up: {other}")),
        }
    }
}

pub(crate) fn blamed(rank: usize, what: impl Into<String>) -> Error {
    Error::Rank { rank, what: what.into() }
}
