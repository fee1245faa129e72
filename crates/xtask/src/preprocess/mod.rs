//! The two steps that mdBook hands the chapters through: see `book.toml`.
//!
//! mdBook writes the book as JSON to our standard input and reads it, changed, from our standard
//! output. Whatever we have to say goes to standard error.

pub mod katex;
pub(crate) mod listings;
mod punctuation;
pub mod snippets;

use crate::project::Project;
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};

/// What mdBook asks of a preprocessor.
#[derive(Debug, Args)]
pub struct Options {
    /// Which preprocessor
    preprocessor: Preprocessor,

    #[command(subcommand)]
    question: Option<Question>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Preprocessor {
    /// Runs the Rust snippets of the chapters against the crate
    Snippets,
    /// Renders the formulas
    Katex,
}

#[derive(Debug, Subcommand)]
enum Question {
    /// Exits with success if the preprocessor works for a renderer
    Supports {
        /// `html`, or `test` when mdBook tests
        renderer: String,
    },
}

/// Answers mdBook.
///
/// # Errors
///
/// If the renderer is not supported, a snippet fails or a formula cannot be parsed.
pub fn preprocess(project: &Project, options: &Options) -> Result<()> {
    if let Some(Question::Supports { renderer }) = &options.question {
        return supports(options.preprocessor, renderer);
    }
    match options.preprocessor {
        Preprocessor::Snippets => snippets::preprocess(project),
        Preprocessor::Katex => katex::preprocess(project),
    }
}

fn supports(preprocessor: Preprocessor, renderer: &str) -> Result<()> {
    let supported = match preprocessor {
        Preprocessor::Snippets => "test",
        Preprocessor::Katex => "html",
    };
    if renderer != supported {
        bail!(
            "this preprocessor is for the renderer `{supported}`, not for `{renderer}`"
        );
    }
    Ok(())
}
