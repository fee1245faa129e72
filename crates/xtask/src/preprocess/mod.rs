//! The two steps that mdBook hands the chapters through: see `book.toml`.
//!
//! `cargo xtask` calls them as functions. mdBook's own program writes the book as JSON to our standard input and reads it,
//! changed, from our standard output. Messages go to standard error.

mod exercises;
mod formulas;
pub mod katex;
pub(crate) mod listings;
mod numbers;
mod paths;
mod punctuation;
pub mod snippets;
mod terms;

use crate::project::Project;
use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use mdbook_preprocessor::book::Book;
use mdbook_preprocessor::{Preprocessor, PreprocessorContext, parse_input};

/// The questions of mdBook to a preprocessor.
#[derive(Debug, Args)]
pub struct Options {
    /// Which preprocessor
    preprocessor: Name,

    #[command(subcommand)]
    question: Option<Question>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
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
    let project = project.clone();
    match options.preprocessor {
        Name::Snippets => {
            let build = snippets::build_alone;
            answer(snippets::Snippets { project, only: None, build }, options)
        }
        Name::Katex => answer(katex::Katex { project }, options),
    }
}

/// A preprocessor that gets the chapters with the line ends of Unix, whichever these and what they include have.
pub(crate) struct UnixLines<P>(pub(crate) P);

impl<P: Preprocessor> Preprocessor for UnixLines<P> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn supports_renderer(&self, renderer: &str) -> Result<bool> {
        self.0.supports_renderer(renderer)
    }

    fn run(&self, context: &PreprocessorContext, mut book: Book) -> Result<Book> {
        book.for_each_chapter_mut(|chapter| {
            chapter.content = chapter.content.replace("\r\n", "\n");
        });
        self.0.run(context, book)
    }
}

fn answer(preprocessor: impl Preprocessor, options: &Options) -> Result<()> {
    let preprocessor = UnixLines(preprocessor);
    if let Some(Question::Supports { renderer }) = &options.question {
        if !preprocessor.supports_renderer(renderer)? {
            bail!("this preprocessor is not for the renderer `{renderer}`");
        }
        return Ok(());
    }
    let (context, book) = parse_input(std::io::stdin())?;
    let book = preprocessor.run(&context, book)?;
    serde_json::to_writer(std::io::stdout().lock(), &book)?;
    Ok(())
}
