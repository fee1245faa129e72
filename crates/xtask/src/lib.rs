//! The project's commands: everything that `cargo xtask …` can do, and the checks behind it.
//!
//! The book is built by mdBook, whose silence about a missing include or an unknown key would let
//! the text drift from the code. So [`build`] surrounds it with the checks in [`lint`], and
//! [`preprocess`] runs the snippets of the chapters against the crate as it is now.

#![deny(missing_docs, unsafe_code)]

pub mod across;
pub mod address;
mod api;
pub mod bench;
pub mod browser;
pub mod build;
pub mod cli;
pub mod console;
pub mod exercises;
pub mod files;
#[cfg(feature = "formats")]
pub mod formats;
pub mod generate;
pub mod gpu;
pub mod lint;
pub mod markdown;
pub mod mdbook;
mod pattern;
pub mod peers;
pub mod playground;
pub mod preprocess;
pub mod process;
pub mod project;
pub mod prove;
pub mod python;
pub mod repository;
mod search;
pub mod serve;
pub mod server;
mod template;
