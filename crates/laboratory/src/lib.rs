#![doc = include_str!("../README.md")]
#![deny(missing_docs, unsafe_code)]

pub mod cost; // operations and bytes of a layer
pub mod fewer_pairs; // what may be left out
pub mod gpu; // a multiprocessor on paper
pub mod hardware; // the GPUs that the book speaks of
pub mod roofline; // operations and bytes of each step
pub mod traffic; // what crosses between slow and fast memory

mod exponentials; // the ways to exponentiate, from slow to fast
mod library_flash; // attention by tiles, with products from a library

mod chunks; // a text in chunks against the whole text
mod diagnose; // finds what is wrong with a layer
mod faults; // the one list of planted faults
mod invariance; // whether a row keeps its bits
mod layer; // the interface through which a layer is examined
mod patients; // layers with something wrong

#[cfg(test)]
#[allow(dead_code, unused_imports)] // what other crates' tests need
#[path = "../../attention/tests/support/mod.rs"]
mod support;

pub use chunks::{ChunkDiagnosis, SAME, diagnose_chunks};
pub use diagnose::{
    CHOICES, COLLAPSED, DIFFUSE, Diagnosis, FAINT, Finding, HeadDiagnosis, MOVED,
    NO_GRADIENT, ROW_SUM_TOLERANCE, SCALE_TOLERANCE, SLOPE_TOLERANCE, diagnose,
};
pub use exponentials::Exponentials;
pub use faults::Fault;
pub use invariance::{Change, SameRows, same_rows};
pub use layer::{AttentionLayer, DecodingLayer};
pub use library_flash::LibraryFlash;
pub use patients::{Patient, PatientCache, PatientKeyValues};
