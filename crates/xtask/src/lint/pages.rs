//! Checks of what the reader gets: pages, style sheets and scripts.

use super::html::{Node, Page, Part, inside, text_of, texts};
use super::links::{decoded, local_path};
use super::{Finding, style};
use crate::api;
use crate::files;
use crate::pattern::{Pattern, pattern};
use anyhow::Result;
use path_clean::PathClean;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Attributes that hold an address.
const ADDRESSES: &[&str] = &["href", "src", "xlink:href", "poster", "data", "srcset"];

/// Elements whose address is only followed when the reader asks for it.
const FOLLOWED: &[&str] = &["a", "area", "base"];

/// Kinds of `<link>` that load nothing.
const UNLOADED: &[&str] = &["canonical", "license", "author", "me", "next", "prev"];

/// Elements whose text is not for the reader, or is shown letter by letter.
const VERBATIM: &[&str] = &["code", "pre", "script", "style", "annotation", "textarea"];

static ELSEWHERE: Pattern = pattern!(r"^\s*(?:(?:https?|wss?):)?//");

static STYLE_ADDRESS: Pattern =
    pattern!(r#"(?i)(?:url\(\s*["']?|@import\s+["'])([^"')]*)"#);

static SCRIPT_REQUEST: Pattern = pattern!(
    r#"(?x)
        (?: (?:fetch\w*|import|importScripts|sendBeacon|WebSocket|EventSource|Request|Worker) \s* \(
          | \b(?:import|from) \s
          | \bopen \s* \( \s* ["'`]\w+["'`] \s* ,
          | \.src \s* =
        )
        \s* ["'`] ((?:(?:https?|wss?):)?// [^"'`\s]*)
        "#,
);

/// The address to which mdBook's own script sends a snippet of class `playground`, if its button is pressed.
const PLAYGROUND: &str = "https://play.rust-lang.org/";

/// The number of pages in `folder`.
#[must_use]
pub fn count(folder: &Path) -> usize {
    pages_in(folder).len()
}

/// The pages of the book, without those that rustdoc has put beside them.
fn pages_in(folder: &Path) -> Vec<PathBuf> {
    let mut pages = files::with_extension(folder, "html");
    pages.retain(|page| !page.starts_with(folder.join(api::FOLDER)));
    pages
}

/// Everything that was built.
struct Site {
    folder: PathBuf,
    pages: Vec<Page>,
    /// The ids and names on each page that a fragment can point to.
    ids: BTreeMap<PathBuf, BTreeSet<String>>,
}

pub(super) fn check(folder: &Path) -> Result<Vec<Finding>> {
    let site = Site::read(folder)?;
    let mut findings = requests_of_files(&site)?;
    findings.par_extend(site.pages.par_iter().with_max_len(1).flat_map_iter(|page| {
        let links = broken_links(page, &site);
        // The page to be printed says what the others say.
        let style = if page.name == "print.html" { vec![] } else { style::check(page) };
        [links, requests(page), leftovers(page), structure(page), style].concat()
    }));
    Ok(findings)
}

impl Site {
    fn read(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder)?.clean();
        let files = pages_in(&folder);
        let parse = |file: &PathBuf| {
            Ok(Page::parse(files::relative(file, &folder), &files::read(file)?))
        };
        let pages =
            files.par_iter().with_max_len(1).map(parse).collect::<Result<Vec<_>>>()?;
        let ids = pages.iter().map(|page| page.parts().flat_map(targets).collect());
        Ok(Self { ids: files.into_iter().zip(ids).collect(), folder, pages })
    }
}

fn targets(element: &Part) -> impl Iterator<Item = String> {
    let name = element.attribute("name").filter(|_| element.tag == "a");
    element.attribute("id").into_iter().chain(name).map(str::to_owned)
}

/// The addresses in the attributes of an element.
fn addresses(element: &Part) -> Vec<&str> {
    let of = |name: &&str| -> Vec<&str> {
        let value = element.attribute(name).unwrap_or_default();
        match *name {
            "srcset" => {
                value.split(',').filter_map(|one| one.split_whitespace().next()).collect()
            }
            "data" if element.tag != "object" => vec![],
            _ if element.attribute(name).is_none() => vec![],
            _ => vec![value.trim()],
        }
    };
    ADDRESSES.iter().flat_map(of).collect()
}

/// Addresses on this site where nothing is.
fn broken_links(page: &Page, site: &Site) -> Vec<Finding> {
    let elements = page.parts().filter(|element| element.tag != "base");
    let all = elements.flat_map(|element| {
        addresses(element).into_iter().map(move |address| (element.line, address))
    });
    let file = site.folder.join(&page.name);
    let problem =
        |(line, address)| Some(page.finding(line, broken(address, &file, site)?));
    all.filter_map(problem).collect()
}

/// Returns the fault of an address in the file `from`, if it has one.
fn broken(address: &str, from: &Path, site: &Site) -> Option<String> {
    let file = match local_path(address) {
        Some(path) if path.starts_with('/') => {
            return Some(format!(
                "{address} breaks when the book does not lie at a host's root"
            ));
        }
        Some(path) => target_file(&path, from),
        None if address.starts_with(['#', '?']) => from.to_owned(),
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

fn target_file(path: &str, from: &Path) -> PathBuf {
    let file = from.with_file_name(path).clean();
    if file.is_dir() { file.join("index.html") } else { file }
}

/// Requests to other hosts that a page makes by itself.
fn requests(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for element in page.parts() {
        if element.has_class("playground") {
            let message = format!("a play button sends its snippet to {PLAYGROUND}");
            findings.push(page.finding(element.line, message));
        }
        let loaded = loaded(element).into_iter();
        findings
            .extend(loaded.map(|address| page.finding(element.line, request(address))));
    }
    for (tag, extension) in [("style", "css"), ("script", "js")] {
        for text in page.all(tag).flat_map(texts) {
            let Part { text, line, .. } = text.value();
            findings.extend(requests_in(&page.name, extension, text, *line));
        }
    }
    findings
}

fn request(address: &str) -> String {
    format!("the page asks another host for {address}; serve the file with the book")
}

/// The addresses on other hosts that the browser fetches for `element`.
fn loaded(element: &Part) -> Vec<&str> {
    let relation = element.attribute("rel").unwrap_or_default();
    let only_names = element.tag == "link" && UNLOADED.contains(&relation);
    let mut loaded = Vec::new();
    if !only_names && !FOLLOWED.contains(&element.tag.as_str()) {
        loaded = addresses(element);
    }
    let style = element.attribute("style").unwrap_or_default();
    loaded.extend(matches(&STYLE_ADDRESS, style).map(|(_, address)| address));
    loaded.retain(|address| ELSEWHERE.is_match(address));
    loaded
}

/// The first group of each match, and where it begins.
fn matches<'a>(
    pattern: &'static Pattern,
    text: &'a str,
) -> impl Iterator<Item = (usize, &'a str)> {
    let groups = pattern.captures_iter(text).filter_map(|found| found.get(1));
    groups.map(|group| (group.start(), group.as_str()))
}

/// Requests in style sheets and scripts, and fonts and images that a style sheet misses.
fn requests_of_files(site: &Site) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for extension in ["css", "js"] {
        for file in files::with_extension(&site.folder, extension) {
            let name = files::relative(&file, &site.folder);
            let text = files::read(&file)?;
            findings.extend(requests_in(&name, extension, &text, 1));
            if extension == "css" {
                let missing = |(at, address): (usize, &str)| {
                    let message = broken(address.trim(), &file, site)?;
                    Some(Finding::new(&name, files::line_at(&text, at), message))
                };
                findings.extend(matches(&STYLE_ADDRESS, &text).filter_map(missing));
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
) -> Vec<Finding> {
    let requests = if extension == "css" { &STYLE_ADDRESS } else { &SCRIPT_REQUEST };
    matches(requests, text)
        .filter(|(_, address)| ELSEWHERE.is_match(address))
        .filter(|(_, address)| !address.starts_with(PLAYGROUND))
        .map(|(at, address)| {
            let line = first_line - 1 + files::line_at(text, at);
            Finding::new(name, line, request(address))
        })
        .collect()
}

/// Finds text that should have been turned into something else.
fn leftovers(page: &Page) -> Vec<Finding> {
    let empty = page.all("code").filter(|code| text_of(*code).trim().is_empty());
    let message = "an empty piece of code: does its include name an anchor?";
    let empty = empty.map(|code| page.finding(code.value().line, message));
    empty.chain(page.texts().filter_map(|text| leftover(text, page))).collect()
}

fn leftover(node: Node, page: &Page) -> Option<Finding> {
    let is_inside = |tags: &[&str]| {
        node.ancestors().any(|element| tags.contains(&element.value().tag.as_str()))
    };
    let Part { text, line, .. } = node.value();
    let find =
        |mark: &str, exempt: &[&str]| text.find(mark).filter(|_| !is_inside(exempt));
    let (at, message) = find("{{#", &["script", "style"])
        .map(|at| (at, "an include that mdBook did not resolve"))
        .or_else(|| Some((find("$$", VERBATIM)?, "`$$` that opens no formula")))
        .or_else(|| {
            Some((find("](", VERBATIM)?, "a link that is none: its address has a space"))
        })?;
    Some(page.finding(line - 1 + files::line_at(text, at), message))
}

/// Finds pages that lack what search engines and screen readers rely on.
fn structure(page: &Page) -> Vec<Finding> {
    let mut findings = repeated_ids(page);
    findings.extend(undescribed(page));
    findings.extend(questions(page));
    if !is_fragment(page) {
        findings.extend(missing_in_head(page));
        findings.extend(headings(page));
    }
    findings
}

/// The table of contents is a frame, and a redirection is no page of its own.
fn is_fragment(page: &Page) -> bool {
    let redirects = page
        .all("meta")
        .any(|meta| meta.value().attribute("http-equiv") == Some("refresh"));
    page.name == "toc.html" || redirects
}

fn repeated_ids(page: &Page) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let ids =
        page.parts().filter_map(|element| Some((element, element.attribute("id")?)));
    ids.filter(|(_, id)| !seen.insert(*id))
        .map(|(element, id)| page.finding(element.line, format!("the id `{id}` again")))
        .collect()
}

/// Figures without words.
fn undescribed(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    for svg in page.all("svg") {
        let is_figure = svg.value().attribute("role") == Some("img")
            || svg.ancestors().any(|element| element.value().tag == "figure");
        for part in ["title", "desc"] {
            if is_figure && !has_words(svg, part) {
                let message =
                    format!("a figure without a <{part}> for those who cannot see it");
                findings.push(page.finding(svg.value().line, message));
            }
        }
    }
    let images = page.all("img").map(|image| image.value());
    let silent = images.filter(|image| image.attribute("alt").is_none());
    findings
        .extend(silent.map(|image| page.finding(image.line, "an image without `alt`")));
    findings
}

/// Quick questions whose choices `theme/quiz.js` could not ask: one of them is right, and each other has a reason.
fn questions(page: &Page) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lists = page.all("div").filter(|list| {
        ["choices", "typed"].iter().any(|class| list.value().has_class(class))
    });
    for list in lists {
        let boxes: Vec<_> = inside(list, "input").collect();
        let is_right = |one: &&Node| one.value().attribute("checked").is_some();
        let right = boxes.iter().filter(is_right).count();
        let line = list.value().line;
        if right != 1 {
            let message = format!("a quick question with {right} right answers, not one");
            findings.push(page.finding(line, message));
        }
        for wrong in boxes.iter().filter(|one| !is_right(one)) {
            let item = wrong.ancestors().find(|node| node.value().tag == "li");
            if item.is_none_or(|item| inside(item, "p").count() < 2) {
                let message = "a wrong answer without a reason below it";
                findings.push(page.finding(wrong.value().line, message));
            }
        }
    }
    findings
}

fn has_words(element: Node, tag: &str) -> bool {
    let mut children = element.children();
    children.any(|child| child.value().tag == tag && !text_of(child).trim().is_empty())
}

fn missing_in_head(page: &Page) -> Vec<Finding> {
    let has_title = page.all("head").any(|head| has_words(head, "title"));
    let has_language = page.all("html").any(|html| {
        html.value().attribute("lang").is_some_and(|language| !language.is_empty())
    });
    let has_description = page.all("meta").map(|meta| meta.value()).any(|meta| {
        meta.attribute("name") == Some("description")
            && meta.attribute("content").is_some_and(|content| !content.trim().is_empty())
    });
    let parts = [
        (has_title, "the page has no title"),
        (has_language, "the page does not say its language"),
        (has_description, "the page has no description"),
    ];
    let missing = parts.into_iter().filter(|(has, _)| !has);
    missing.map(|(_, message)| page.finding(1, message)).collect()
}

/// One first-level heading a page. The menu bar, which is on each, is not counted; the page for
/// printing holds all chapters.
fn headings(page: &Page) -> Option<Finding> {
    let number = match page.all("main").next() {
        Some(main) => inside(main, "h1").count(),
        None => page.all("h1").count(),
    };
    let right = number == 1 || (number > 1 && page.name == "print.html");
    (!right)
        .then(|| page.finding(1, format!("the page has {number} first-level headings")))
}
