//! What the reader gets: pages, style sheets and scripts.

use super::html::{Element, Page, Text};
use super::links::{decoded, local_path};
use super::{Finding, pattern};
use crate::files;
use anyhow::Result;
use regex::Regex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;

/// Attributes that hold an address.
const ADDRESSES: &[&str] = &["href", "src", "xlink:href", "poster", "data", "srcset"];

/// Elements whose address is only followed when the reader asks for it.
const FOLLOWED: &[&str] = &["a", "area", "base"];

/// Kinds of `<link>` that load nothing.
const UNLOADED: &[&str] = &["canonical", "license", "author", "me", "next", "prev"];

/// Elements whose text is not for the reader, or is shown letter by letter.
const VERBATIM: &[&str] = &["code", "pre", "script", "style", "annotation", "textarea"];

static ELSEWHERE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(?:(?:https?|wss?):)?//"));

static STYLE_ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?i)(?:url\(\s*["']?|@import\s+["'])([^"')]*)"#));

static SCRIPT_REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?x)
        (?: (?:fetch\w*|import|importScripts|sendBeacon|WebSocket|EventSource|Request|Worker) \s* \(
          | \b(?:import|from) \s
          | \bopen \s* \( \s* ["'`]\w+["'`] \s* ,
          | \.src \s* =
        )
        \s* ["'`] ((?:(?:https?|wss?):)?// [^"'`\s]*)
        "#,
    )
});

/// Where mdBook's own script sends a snippet of class `playground`.
const PLAYGROUND: &str = "https://play.rust-lang.org/";

/// The number of pages in `folder`.
#[must_use]
pub fn count(folder: &Path) -> usize {
    files::with_extension(folder, "html").len()
}

/// Everything that was built.
struct Site {
    folder: PathBuf,
    pages: Vec<Page>,
    /// What a fragment can point to on each page.
    ids: BTreeMap<PathBuf, BTreeSet<String>>,
}

pub(super) fn check(folder: &Path) -> Result<Vec<Finding>> {
    let site = Site::read(folder)?;
    let mut findings = requests_of_files(&site)?;
    findings.extend(
        side_by_side(&site.pages, |page| {
            [
                broken_links(page, &site),
                requests(page, &site),
                leftovers(page),
                structure(page),
            ]
            .concat()
        })
        .concat(),
    );
    Ok(findings)
}

/// Calls `work` for each item, on as many threads as the machine runs at once: the page for
/// printing alone is as long as all others together.
fn side_by_side<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let take_turns = || {
        while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(item);
            results.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(take_turns);
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Site {
    fn read(folder: &Path) -> Result<Self> {
        let folder = files::normal(&std::path::absolute(folder)?);
        let mut files = files::with_extension(&folder, "html");
        // The longest first, so that no thread is left with it at the end.
        files.sort_by_key(|file| {
            Reverse(file.metadata().map_or(0, |metadata| metadata.len()))
        });
        let parsed = side_by_side(&files, |file| {
            let page = Page::parse(files::relative(file, &folder), &files::read(file)?);
            Ok((file.clone(), page))
        });
        let parsed = parsed.into_iter().collect::<Result<Vec<_>>>()?;
        let ids = |page: &Page| page.elements.iter().flat_map(targets).collect();
        let ids = parsed.iter().map(|(file, page)| (file.clone(), ids(page))).collect();
        let pages = parsed.into_iter().map(|(_, page)| page).collect();
        Ok(Self { folder, pages, ids })
    }

    /// The play buttons that would send a snippet away.
    fn has_playground(&self) -> bool {
        let mut elements = self.pages.iter().flat_map(|page| &page.elements);
        elements.any(|element| element.has_class("playground"))
    }
}

fn targets(element: &Element) -> impl Iterator<Item = String> {
    let name = element.attribute("name").filter(|_| element.tag == "a");
    element.attribute("id").into_iter().chain(name).map(str::to_owned)
}

fn finding(file: &str, line: usize, message: impl Into<String>) -> Finding {
    Finding { file: file.to_owned(), line: Some(line), message: message.into() }
}

/// The addresses in the attributes of an element.
fn addresses(element: &Element) -> Vec<&str> {
    let mut addresses = Vec::new();
    for name in ADDRESSES {
        let Some(value) = element.attribute(name) else {
            continue;
        };
        if *name == "srcset" {
            let candidates = value.split(',');
            addresses.extend(candidates.filter_map(|one| one.split_whitespace().next()));
        } else if *name != "data" || element.tag == "object" {
            addresses.push(value.trim());
        }
    }
    addresses
}

/// Addresses on this site where nothing is.
fn broken_links(page: &Page, site: &Site) -> Vec<Finding> {
    let mut findings = Vec::new();
    for element in page.elements.iter().filter(|element| element.tag != "base") {
        for address in addresses(element) {
            if let Some(problem) = broken(address, page, site) {
                findings.push(finding(&page.name, element.line, problem));
            }
        }
    }
    findings
}

fn broken(address: &str, page: &Page, site: &Site) -> Option<String> {
    let file = match local_path(address) {
        Some(path) if path.starts_with('/') => {
            return Some(format!(
                "{address} breaks when the book does not lie at a host's root"
            ));
        }
        Some(path) => target_file(&path, page, site),
        None if address.starts_with(['#', '?']) => site.folder.join(&page.name),
        None => return None,
    };
    if !file.is_file() {
        return Some(format!("{address} goes to a file that does not exist"));
    }
    let fragment = decoded(address.split_once('#')?.1);
    let ids = site.ids.get(&file)?;
    let found = fragment.is_empty() || fragment == "top" || ids.contains(&fragment);
    (!found).then(|| format!("{address} goes to an id that does not exist"))
}

fn target_file(path: &str, page: &Page, site: &Site) -> PathBuf {
    let from = site.folder.join(&page.name);
    let file = files::normal(&from.parent().unwrap_or(&site.folder).join(path));
    if file.is_dir() { file.join("index.html") } else { file }
}

/// Requests to other hosts that a page makes by itself.
fn requests(page: &Page, site: &Site) -> Vec<Finding> {
    let mut findings = Vec::new();
    for element in &page.elements {
        for address in loaded(element) {
            findings.push(finding(&page.name, element.line, request(&address)));
        }
    }
    for text in &page.texts {
        let holder = page.around(text).next().map(|element| element.tag.as_str());
        let extension = match holder {
            Some("style") => "css",
            Some("script") => "js",
            _ => continue,
        };
        findings.extend(requests_in(&page.name, extension, &text.text, text.line, site));
    }
    findings
}

fn request(address: &str) -> String {
    format!("the page asks another host for {address}; serve the file with the book")
}

/// What the browser fetches for `element` from other hosts.
fn loaded(element: &Element) -> Vec<String> {
    let relation = element.attribute("rel").unwrap_or_default();
    let only_names = element.tag == "link" && UNLOADED.contains(&relation);
    let mut loaded = Vec::new();
    if !only_names && !FOLLOWED.contains(&element.tag.as_str()) {
        loaded.extend(addresses(element).into_iter().map(str::to_owned));
    }
    let style = element.attribute("style").unwrap_or_default();
    loaded.extend(STYLE_ADDRESS.captures_iter(style).map(|found| found[1].to_owned()));
    loaded.retain(|address| ELSEWHERE.is_match(address));
    loaded
}

/// Requests in style sheets and scripts, and fonts and images that a style sheet misses.
fn requests_of_files(site: &Site) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for extension in ["css", "js"] {
        for file in files::with_extension(&site.folder, extension) {
            let name = files::relative(&file, &site.folder);
            let text = files::read(&file)?;
            findings.extend(requests_in(&name, extension, &text, 1, site));
            if extension == "css" {
                findings.extend(missing_in_style(&name, &file, &text));
            }
        }
    }
    Ok(findings)
}

fn requests_in(
    name: &str,
    extension: &str,
    text: &str,
    first_line: usize,
    site: &Site,
) -> Vec<Finding> {
    let requests = if extension == "css" { &STYLE_ADDRESS } else { &SCRIPT_REQUEST };
    requests
        .captures_iter(text)
        .filter_map(|found| found.get(1))
        .filter(|found| ELSEWHERE.is_match(found.as_str()))
        .filter(|found| !found.as_str().starts_with(PLAYGROUND) || site.has_playground())
        .map(|found| {
            let line = first_line - 1 + files::line_at(text, found.start());
            finding(name, line, request(found.as_str()))
        })
        .collect()
}

fn missing_in_style(name: &str, file: &Path, text: &str) -> Vec<Finding> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let missing = |address: &str| {
        local_path(address)
            .is_some_and(|path| !files::normal(&folder.join(path)).is_file())
    };
    STYLE_ADDRESS
        .captures_iter(text)
        .filter_map(|found| found.get(1))
        .filter(|found| missing(found.as_str().trim()))
        .map(|found| {
            let message =
                format!("{} goes to a file that does not exist", found.as_str());
            finding(name, files::line_at(text, found.start()), message)
        })
        .collect()
}

/// What should have been turned into something else.
fn leftovers(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, element) in page.elements.iter().enumerate() {
        if element.has_class("katex-error") {
            let message = format!("KaTeX cannot parse `{}`", page.text_of(number).trim());
            findings.push(finding(&page.name, element.line, message));
        }
    }
    for (number, code) in page.all("code") {
        if page.text_of(number).trim().is_empty() {
            let message = "an empty piece of code: does its include name an anchor?";
            findings.push(finding(&page.name, code.line, message));
        }
    }
    findings.extend(page.texts.iter().filter_map(|text| leftover(text, page)));
    findings
}

fn leftover(text: &Text, page: &Page) -> Option<Finding> {
    let mut around = page.around(text).map(|element| element.tag.as_str());
    let inside = |tags: &[&str]| {
        page.around(text).any(|element| tags.contains(&element.tag.as_str()))
    };
    let at = |offset: usize| text.line - 1 + files::line_at(&text.text, offset);
    if let Some(offset) = text.text.find("{{#").filter(|_| !inside(&["script", "style"]))
    {
        return Some(finding(
            &page.name,
            at(offset),
            "an include that mdBook did not resolve",
        ));
    }
    let offset =
        text.text.find("$$").filter(|_| !around.any(|tag| VERBATIM.contains(&tag)))?;
    Some(finding(&page.name, at(offset), "`$$` that opens no formula"))
}

/// What search engines and screen readers rely on.
fn structure(page: &Page) -> Vec<Finding> {
    let mut findings = repeated_ids(page);
    findings.extend(undescribed(page));
    if !is_fragment(page) {
        findings.extend(missing_in_head(page));
        findings.extend(headings(page));
    }
    findings
}

/// The table of contents is a frame, and a redirection is no page of its own.
fn is_fragment(page: &Page) -> bool {
    let redirects =
        page.all("meta").any(|(_, meta)| meta.attribute("http-equiv") == Some("refresh"));
    page.name == "toc.html" || redirects
}

fn repeated_ids(page: &Page) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for element in &page.elements {
        let Some(id) = element.attribute("id") else {
            continue;
        };
        if !seen.insert(id) {
            findings.push(finding(
                &page.name,
                element.line,
                format!("the id `{id}` again"),
            ));
        }
    }
    findings
}

/// Figures without words.
fn undescribed(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    let in_figures: BTreeSet<_> = page
        .all("figure")
        .flat_map(|(figure, _)| page.numbers_inside(figure, "svg"))
        .collect();
    for (number, svg) in page.all("svg") {
        if svg.attribute("role") != Some("img") && !in_figures.contains(&number) {
            continue;
        }
        for part in ["title", "desc"] {
            if !has_words(page, number, part) {
                let message =
                    format!("a figure without a <{part}> for those who cannot see it");
                findings.push(finding(&page.name, svg.line, message));
            }
        }
    }
    for (_, image) in
        page.all("img").filter(|(_, image)| image.attribute("alt").is_none())
    {
        findings.push(finding(&page.name, image.line, "an image without `alt`"));
    }
    findings
}

fn has_words(page: &Page, number: usize, tag: &str) -> bool {
    page.children(number).any(|(child, element)| {
        element.tag == tag && !page.text_of(child).trim().is_empty()
    })
}

fn missing_in_head(page: &Page) -> Vec<Finding> {
    let has_title = page.all("head").any(|(head, _)| has_words(page, head, "title"));
    let has_language = page.all("html").any(|(_, html)| {
        html.attribute("lang").is_some_and(|language| !language.is_empty())
    });
    let has_description = page.all("meta").any(|(_, meta)| {
        meta.attribute("name") == Some("description")
            && meta.attribute("content").is_some_and(|content| !content.trim().is_empty())
    });
    let parts = [
        (has_title, "the page has no title"),
        (has_language, "the page does not say its language"),
        (has_description, "the page has no description"),
    ];
    let missing = parts.into_iter().filter(|(has, _)| !has);
    missing.map(|(_, message)| finding(&page.name, 1, message)).collect()
}

/// One first-level heading a page. The menu bar, which is on each, is not counted; the page for
/// printing holds all chapters.
fn headings(page: &Page) -> Option<Finding> {
    let number = match page.all("main").next() {
        Some((main, _)) => page.numbers_inside(main, "h1").count(),
        None => page.all("h1").count(),
    };
    let right = number == 1 || (number > 1 && page.name == "print.html");
    (!right).then(|| {
        finding(&page.name, 1, format!("the page has {number} first-level headings"))
    })
}
