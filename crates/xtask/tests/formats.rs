//! The book as one EPUB and one PDF: whole, and in an order that its readers can follow.
//!
//! Making them needs Chromium, and reading them epubcheck and poppler's pdftohtml. What needs a program that is missing is
//! not tested, and says so; with `REQUIRE_BROWSER=1` and `REQUIRE_READERS=1` it fails.

use rbook::Epub;
use rbook::ebook::toc::TocEntryKind;
use scraper::{ElementRef, Html, Selector};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use xtask::formats::{self, Contents};
use xtask::{browser, build, files, project::Project};

/// The least distance of the PDF's text to the right edge of its page, as a share of the page's width.
const MARGIN: f64 = 0.05;

#[test]
fn the_formats_hold_the_whole_book() {
    let browser = browser::find().unwrap_or_else(|error| panic!("{error:#}"));
    let Some(browser) = required(browser, "Chromium", "REQUIRE_BROWSER") else { return };
    let project = Project::find().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path();
    build::build_into(&project, book, &build::Options::default())
        .unwrap_or_else(|error| panic!("{error:#}"));
    formats::add_to(&project, book, &browser).unwrap_or_else(|error| panic!("{error:#}"));
    let contents = Contents::read(&project).unwrap();

    let epub = Epub::open(book.join(formats::EPUB)).unwrap();
    let mut complaints = missing_in_epub(&epub, &contents, book);
    complaints.extend(broken_links(&epub));
    complaints.extend(scripts(&epub));
    complaints.extend(said_by_epubcheck(&book.join(formats::EPUB)));
    complaints.extend(said_of_pdf(&book.join(formats::PDF), &contents, book));
    complaints.extend(unlinked(book));
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Returns what was found, or nothing with a word about it.
fn required(program: Option<PathBuf>, name: &str, variable: &str) -> Option<PathBuf> {
    if program.is_none() {
        let required = env::var_os(variable).is_some_and(|value| value == "1");
        assert!(!required, "no {name} found, and {variable} is set");
        // Past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "skipped: no {name} found");
    }
    program
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Returns the elements that `what` selects.
fn all<'a>(html: &'a Html, what: &str) -> Vec<ElementRef<'a>> {
    html.select(&selector(what)).collect()
}

/// The texts of what `what` selects.
fn texts(html: &Html, what: &str) -> Vec<String> {
    let texts = all(html, what).into_iter();
    texts.map(|element| element.text().collect::<String>().trim().to_owned()).collect()
}

/// The words inside the first element that `what` selects, but for those inside of `skipped`.
fn words(html: &Html, what: &str, skipped: &[&str]) -> Vec<String> {
    let skipped: Vec<_> = skipped.iter().map(|what| selector(what)).collect();
    let is_skipped =
        |element: ElementRef| skipped.iter().any(|what| what.matches(&element));
    let element = html.select(&selector(what)).next().unwrap();
    let texts = element.descendants().filter(|node| {
        node.value().is_text()
            && !node.ancestors().filter_map(ElementRef::wrap).any(is_skipped)
    });
    let text: String =
        texts.filter_map(|node| Some(node.value().as_text()?.to_string())).collect();
    text.split_whitespace().map(str::to_owned).collect()
}

/// The files of the EPUB that are read one after the other.
fn documents(epub: &Epub) -> BTreeMap<String, Html> {
    let read = epub.spine().iter().map(|entry| {
        let file = entry.manifest_entry().unwrap();
        let name = Path::new(file.href().as_str()).file_name().unwrap().to_owned();
        let html = Html::parse_document(&file.read_str().unwrap());
        (name.into_string().unwrap(), html)
    });
    read.collect()
}

/// What only a script shows: the choices of quick questions.
const HIDDEN: &str = "div[hidden]";

/// Complaints about what the pages have and the EPUB lacks, or the other way round.
fn missing_in_epub(epub: &Epub, contents: &Contents, book: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let documents = documents(epub);
    for chapter in contents.chapters() {
        let page = files::read(&book.join(format!("{}.html", chapter.name))).unwrap();
        let page = Html::parse_document(&page);
        let Some(document) = documents.get(&format!("{}.xhtml", chapter.name)) else {
            complaints.push(format!("the EPUB lacks the chapter {}", chapter.name));
            continue;
        };
        // The EPUB doesn't say its own size.
        let skipped = [".katex", ".boring", HIDDEN, "a > .size"];
        let expected = words(&page, "main", &skipped);
        let found = words(document, "body", &["math"]);
        let differ =
            expected.iter().zip(&found).find(|(expected, found)| expected != found);
        if expected != found {
            complaints.push(format!(
                "{}: {} words on the page and {} in the EPUB; the first that differ: {differ:?}",
                chapter.name,
                expected.len(),
                found.len()
            ));
        }
        let hidden = selector(HIDDEN);
        let is_hidden = |element: ElementRef| hidden.matches(&element);
        let is_shown = |element: &ElementRef| {
            !element.ancestors().filter_map(ElementRef::wrap).any(is_hidden)
        };
        let count = |html: &Html, what: &str| {
            all(html, what).into_iter().filter(is_shown).count()
        };
        for (on_page, in_epub) in [
            ("main .katex", "math[alttext]:not([alttext='']):has(> *)"),
            ("main figure", "figure"),
            ("main figure > svg", "figure > svg"),
            ("main pre > code", "pre > code"),
            ("main table", "table"),
            ("main details", "details[open]"),
        ] {
            let (expected, found) = (count(&page, on_page), count(document, in_epub));
            if expected != found {
                complaints.push(format!(
                    "{}: {expected} times {on_page} on the page, and {found} times {in_epub} in the EPUB",
                    chapter.name
                ));
            }
        }
    }
    let toc = epub.toc().contents().expect("the EPUB has a table of contents");
    let listed: Vec<_> = toc.flatten().map(|entry| entry.label().to_owned()).collect();
    let parts = contents.parts.iter().flat_map(|part| {
        let chapters = part.chapters.iter().map(|chapter| chapter.title.clone());
        part.title.clone().into_iter().chain(chapters)
    });
    let expected: Vec<_> = ["Title page".to_owned()]
        .into_iter()
        .chain(parts)
        .chain(["Licence".to_owned()])
        .collect();
    if listed != expected {
        complaints.push(format!("the EPUB's table of contents lists {listed:?}"));
    }
    let landmarks = epub.toc().landmarks().expect("the EPUB has landmarks");
    for kind in
        [TocEntryKind::BodyMatter, TocEntryKind::Glossary, TocEntryKind::CopyrightPage]
    {
        if !landmarks.flatten().any(|entry| entry.kind() == kind) {
            complaints.push(format!("the EPUB's landmarks lack {kind:?}"));
        }
    }
    complaints
}

/// Links inside the EPUB to a file or an id that it does not have.
fn broken_links(epub: &Epub) -> Vec<String> {
    let documents = documents(epub);
    let ids: BTreeMap<&str, BTreeSet<String>> = documents
        .iter()
        .map(|(name, html)| {
            let ids = all(html, "[id]").into_iter();
            let ids = ids.filter_map(|element| element.attr("id").map(str::to_owned));
            (name.as_str(), ids.collect())
        })
        .collect();
    let mut complaints = Vec::new();
    let mut links = 0;
    for (name, html) in &documents {
        for link in all(html, "a[href]") {
            let target = link.attr("href").unwrap_or_default();
            if target.contains("://") {
                continue;
            }
            links += 1;
            let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
            let file = if file.is_empty() { name } else { file };
            let fragment =
                percent_encoding::percent_decode_str(fragment).decode_utf8_lossy();
            let found = ids.get(file).is_some_and(|ids| {
                fragment.is_empty() || ids.contains(fragment.as_ref())
            });
            if !found {
                complaints.push(format!("{name}: {target} goes nowhere"));
            }
        }
    }
    if links == 0 {
        complaints.push("the EPUB has no links".to_owned());
    }
    complaints
}

/// Complaints about what would run, or be fetched from another host.
fn scripts(epub: &Epub) -> Vec<String> {
    let documents = documents(epub);
    let found = documents.iter().flat_map(|(name, html)| {
        let elements = all(html, "script, iframe, [onclick], [src^=http]").into_iter();
        elements.map(move |element| format!("{name}: {}", element.html()))
    });
    found.collect()
}

fn said_by_epubcheck(epub: &Path) -> Vec<String> {
    let program = which::which("epubcheck").ok();
    let Some(program) = required(program, "epubcheck", "REQUIRE_READERS") else {
        return vec![];
    };
    // Debian's is an archive for Java; others have a script that starts it.
    let is_archive = fs::read(&program).unwrap().starts_with(b"PK");
    let mut command = if is_archive {
        let mut java = Command::new("java");
        java.arg("-jar").arg(&program);
        java
    } else {
        Command::new(&program)
    };
    let output = command.arg("--failonwarnings").arg(epub).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if output.status.success() { vec![] } else { vec![format!("epubcheck:\n{said}")] }
}

/// The PDF as poppler reads it: its outline, and the texts of its pages with their places.
fn said_of_pdf(pdf: &Path, contents: &Contents, book: &Path) -> Vec<String> {
    let program = which::which("pdftohtml").ok();
    let Some(program) =
        required(program, "pdftohtml of poppler-utils", "REQUIRE_READERS")
    else {
        return vec![];
    };
    let output =
        Command::new(program).args(["-xml", "-i", "-stdout"]).arg(pdf).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = Html::parse_document(&String::from_utf8_lossy(&output.stdout));
    let mut complaints = Vec::new();

    let outline = texts(&read, ":not(outline) > outline > item");
    let printed = Html::parse_document(&files::read(&book.join("print.html")).unwrap());
    let expected = texts(&printed, "main > h1");
    assert_eq!(expected.len(), contents.chapters().count());
    if outline != expected {
        complaints.push(format!("the PDF's outline lists {outline:?}"));
    }

    let pages = all(&read, "page");
    let number = |element: ElementRef, name: &str| -> f64 {
        element.attr(name).unwrap().parse().unwrap()
    };
    for page in &pages {
        let name = page.attr("number").unwrap();
        let width = number(*page, "width");
        let words: Vec<_> = page
            .select(&selector("text"))
            .filter(|text| !text.text().collect::<String>().trim().is_empty())
            .collect();
        // The number of the page is one of them.
        if words.len() < 2 {
            complaints.push(format!("page {name} of the PDF is blank"));
        }
        let beyond = words.iter().find(|text| {
            number(**text, "left") + number(**text, "width") > width * (1.0 - MARGIN)
        });
        if let Some(text) = beyond {
            complaints.push(format!("page {name} of the PDF cuts off {}", text.html()));
        }
    }
    if pages.len() < contents.chapters().count() {
        complaints.push(format!("the PDF has {} pages", pages.len()));
    }
    complaints
}

/// The page *Using this book* speaks of both formats, and links them with their sizes where they are.
fn unlinked(book: &Path) -> Vec<String> {
    let path = book.join("using-this-book.html");
    let page = Html::parse_document(&files::read(&path).unwrap());
    let names = [formats::EPUB, formats::PDF];
    let missing = names.into_iter().filter(|name| {
        let links = texts(&page, &format!("main a[href='{name}']"));
        !links.iter().any(|words| words.ends_with(" MB)"))
    });
    missing
        .map(|name| format!("*Using this book* has no link to {name} with its size"))
        .collect()
}
