//! A peer: a process of its own, with its own libraries, its own threads and the compiler flags that its users would give it. It
//! reads one question a line and writes one answer a line, both in JSON.

#![deny(missing_docs, unsafe_code)]

mod process;

pub use process::Process;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An answer of a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// The first line, unasked.
    Hello {
        /// Of its libraries.
        versions: BTreeMap<String, String>,
        /// The number of threads that it will use.
        threads: usize,
    },
    /// It is done, after so many seconds for each time that it computed.
    Done {
        /// One number a time.
        seconds: Vec<f64>,
    },
    /// It cannot.
    Error {
        /// Why.
        message: String,
    },
}
