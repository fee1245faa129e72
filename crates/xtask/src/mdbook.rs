//! mdBook, as a library: it loads `book.toml`, renders the pages and tests the snippets.
//!
//! With mdBook's own program the preprocessors of `book.toml` are programs too. Here they are
//! functions of this one, so that nothing has to be installed before the first page.

use crate::address::SiteAddress;
use crate::files;
use crate::preprocess::UnixLines;
use crate::preprocess::katex::{Katex, SOLUTIONS};
use crate::preprocess::snippets::Snippets;
use crate::project::Project;
use crate::repository::Repository;
use anyhow::{Context, Result, bail};
use fs_err as fs;
use mdbook_driver::MDBook;
use mdbook_html::HtmlHandlebars;
use mdbook_preprocessor::Preprocessor;
use mdbook_renderer::{RenderContext, Renderer};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tracing::Level;

/// Renders the book into the folder `destination`, to be published at `site` if that is known, with a link to its repository if
/// that is, with solutions of the exercises or without. mdBook calls a build a success after many errors, so what it says is read too.
///
/// # Errors
///
/// If mdBook fails or reports an error, or a preprocessor finds something.
pub fn render(
    project: &Project,
    destination: &Path,
    site: Option<&SiteAddress>,
    repository: Option<&Repository>,
    solutions: bool,
) -> Result<()> {
    let (result, said) = listen(|| {
        let mut book = load(project)?;
        book.config.build.build_dir = destination.to_owned();
        if let Some(site) = site {
            book.config.set("output.html.site-url", site.path())?;
        }
        if let Some(repository) = repository {
            book.config.set("output.html.git-repository-url", repository.address())?;
        }
        if !solutions {
            book.config.set(SOLUTIONS, false)?;
        }
        write(project, &book)
    })?;
    result.with_context(|| {
        format!("mdbook could not build the book\n{}", said.trim_end())
    })?;
    // It warns of tags that do not match, and writes the broken page all the same.
    let broken = said.contains("HTML tag");
    if broken || said.lines().any(|line| line.trim_start().starts_with("ERROR")) {
        bail!("mdbook could not build the book:\n{}", said.trim_end());
    }
    eprint!("{said}");
    // Pages ask for these scripts only when they are needed, so that mdBook knows nothing of them.
    let on_demand = "theme/on-demand";
    files::copy(&project.root().join(on_demand), &destination.join(on_demand))
}

/// Writes the pages, and what the book has beside its chapters. mdBook would publish what editors leave there, and stop at a lock
/// file of Emacs, so it sees a folder with nothing but the page of an error.
fn write(project: &Project, book: &MDBook) -> Result<()> {
    let renderer = HtmlHandlebars::new();
    let (chapters, preprocessed) = book.preprocess_book(&renderer)?;
    let destination = book.build_dir_for(renderer.name());
    let nothing = tempfile::tempdir().context("no temporary folder can be made")?;
    let error = project.chapters().join("404.md");
    if error.exists() {
        fs::copy(&error, nothing.path().join("404.md"))?;
    }
    let mut config = book.config.clone();
    config.book.src = nothing.path().to_owned();
    let mut context = RenderContext::new(project.root(), chapters, config, &destination);
    context.chapter_titles = preprocessed.chapter_titles.take();
    renderer.render(&context)?;
    files::copy(&project.chapters(), &destination)
}

/// Runs all snippets of the book, as `mdbook test` does, or those of one chapter. `build` is the command by which cargo builds the crates.
///
/// # Errors
///
/// If a snippet fails; the message names the chapter and the line.
pub fn test(
    project: &Project,
    chapter: Option<&str>,
    build: fn(&Project) -> Command,
) -> Result<()> {
    let only = chapter.map(str::to_owned);
    let (result, said) = listen(|| {
        let mut book = load(project)?;
        replace(&mut book, Snippets { project: project.clone(), only, build });
        book.test(vec![])
    })?;
    eprint!("{said}");
    result
}

fn load(project: &Project) -> Result<MDBook> {
    let mut book = MDBook::load(project.root())?;
    replace(&mut book, Katex { project: project.clone() });
    Ok(book)
}

/// Puts a preprocessor of this program in the place of the command of that name, if `book.toml` has one.
fn replace<P: Preprocessor + 'static>(book: &mut MDBook, preprocessor: P) {
    if book.config.contains_key(&format!("preprocessor.{}", preprocessor.name())) {
        book.with_preprocessor(UnixLines(preprocessor));
    }
}

/// Returns the result of `work`, and the warnings and errors that mdBook logs meanwhile.
fn listen<T>(work: impl FnOnce() -> Result<T>) -> Result<(Result<T>, String)> {
    let log = Arc::new(tempfile::tempfile().context("no temporary file can be made")?);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(Arc::clone(&log))
        .finish();
    let result = tracing::subscriber::with_default(subscriber, work);
    let mut said = String::new();
    let mut log = &*log;
    log.rewind().and_then(|()| log.read_to_string(&mut said))?;
    Ok((result, said))
}
