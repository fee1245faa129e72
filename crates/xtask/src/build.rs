//! `cargo xtask build`: the book, whole and checked, or the one before it untouched.

use crate::address::SiteAddress;
use crate::api;
use crate::browser;
use crate::console::{Activity, count};
use crate::lint::{self, Finding};
use crate::mdbook;
use crate::playground;
use crate::process;
use crate::project::Project;
use crate::repository::Repository;
use crate::search;
use crate::template;
use anyhow::{Context, Result, bail};
use clap::Args;
use fs_err as fs;
use std::path::Path;
use tempfile::TempDir;

/// The options of `build`.
#[derive(Debug, Default, Args)]
pub struct Options {
    /// Open the book in the browser once it is built
    #[arg(long)]
    open: bool,

    /// The address at which the book will be published; without it, no page names its own
    #[arg(long, value_name = "URL")]
    pub site_url: Option<SiteAddress>,

    /// The repository that the sources are published in; with it, pages link to their sources and to a form for mistakes
    #[arg(long, value_name = "URL")]
    pub repository: Option<Repository>,

    /// Make an EPUB and a PDF of the whole book, too; this takes Chromium or Chrome
    #[arg(long)]
    formats: bool,

    /// Leave out the solutions of the exercises, as a teacher may want
    #[arg(long)]
    pub without_solutions: bool,

    /// Put the documentation of the crate beside the book, and link to it from the listings
    #[arg(long)]
    pub api: bool,
}

/// Checks the sources, builds the book into `target/book` and checks its pages. Only a book that
/// passes everything takes the place of the last one.
///
/// # Errors
///
/// If a check finds something, mdBook fails, or a format that was asked for cannot be made.
pub fn build(project: &Project, options: &Options) -> Result<()> {
    if options.formats {
        browser::required()?; // before anything is built
    }
    let activity = Activity::begin("building the book");
    let staging = staging(project)?;
    let finished = staging.path().join("book");
    build_into(project, &finished, options)?;
    if options.formats {
        process::run(process::own_program(project, "formats").arg(&finished))?;
    }
    if options.api {
        // The formats have no links to it, so it comes after them.
        api::add_to(project, &finished)?;
    }
    if let Some(repository) = &options.repository {
        // It is known to captions that already link to the documentation.
        repository.add_to(project, &finished)?;
    }
    if options.formats || options.api || options.repository.is_some() {
        fail_on(&lint::pages(&finished)?)?; // the new links, too
    }
    // The page with all chapters takes a browser most of a minute. It was there for the PDF; readers print one page, or that.
    fs::remove_file(finished.join("print.html"))?;
    move_into_place(&project.book(), &finished, &staging.path().join("last"))?;
    let pages = lint::pages::count(&project.book());
    activity.done(&format!("built {} in target/book", count(pages, "page")));
    if options.open {
        let page = project.book().join("index.html");
        open::that(&page).with_context(|| format!("open {} by hand", page.display()))?;
    }
    Ok(())
}

/// Builds the book into the folder `destination`, which is empty or not there yet, with all checks before and after.
///
/// # Errors
///
/// If a check finds something, or mdBook fails.
pub fn build_into(
    project: &Project,
    destination: &Path,
    options: &Options,
) -> Result<()> {
    let mut findings = lint::sources(project.root())?;
    // A broken source may be why mdBook fails, so it is reported with that.
    let (site, repository) = (options.site_url.as_ref(), options.repository.as_ref());
    let solutions = !options.without_solutions;
    mdbook::render(project, destination, site, repository, solutions).or_else(
        |error| {
            fail_on(&findings).context(format!("{error:#}"))?;
            Err(error)
        },
    )?;
    complete(destination)?;
    if let Some(site) = site {
        site.add_to(destination)?;
    }
    playground::add_to(project, destination)?;
    findings.extend(lint::pages(destination)?);
    fail_on(&findings)
}

/// Does to rendered pages what mdBook does not.
///
/// # Errors
///
/// If a page has another form than mdBook gives it, or cannot be written.
pub fn complete(pages: &Path) -> Result<()> {
    template::change(pages)?;
    search::write_sections(pages)
}

/// An empty folder beside the book, so that a book that is finished there is moved into place in one step.
fn staging(project: &Project) -> Result<TempDir> {
    let target = project.target();
    fs::create_dir_all(&target)
        .and_then(|()| tempfile::Builder::new().prefix("book-").tempdir_in(&target))
        .with_context(|| format!("nothing can be written in {}", target.display()))
}

/// Nothing found is success.
fn fail_on(findings: &[Finding]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let list: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    bail!("{} in the book:{list}", count(findings.len(), "finding"));
}

/// Moves the finished book into place, and the one before it to `last`. If that fails midway, the last one goes back.
fn move_into_place(book: &Path, finished: &Path, last: &Path) -> Result<()> {
    let had_one = book.exists();
    if had_one {
        fs::rename(book, last).with_context(|| in_use(book))?;
    }
    if let Err(error) = fs::rename(finished, book) {
        if had_one {
            fs::rename(last, book)?;
        }
        return Err(error).with_context(|| in_use(book));
    }
    Ok(())
}

fn in_use(book: &Path) -> String {
    format!("{} is in use; close what has it open", book.display())
}
