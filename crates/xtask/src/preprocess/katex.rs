//! `preprocess katex`: what the chapters go through on their way to HTML. mdbook-katex renders their
//! formulas, found or installed, and made to fail on a formula that does not parse.
//!
//! Left alone, mdbook-katex logs such a formula and goes on, and KaTeX prints an unknown command as
//! red text without a word. So the colour of errors is set to one that nothing else has, and the
//! rendered chapters are searched for it.

use super::{listings, punctuation};
use crate::files;
use crate::markdown;
use crate::project::Project;
use crate::tools::MDBOOK_KATEX;
use anyhow::{Context, Result, bail};
use mdbook_preprocessor::book::{Book, Chapter};
use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::thread;

/// Marks what KaTeX could not make sense of.
const ERROR_COLOUR: &str = "#e4404e";

/// Passes the book through mdbook-katex.
///
/// # Errors
///
/// If mdbook-katex is missing and cannot be installed, or if a formula does not parse: the message
/// names the chapter, its line and the formula.
pub fn preprocess(project: &Project) -> Result<()> {
    let mut input = String::new();
    io::stdin().read_to_string(&mut input).context("mdBook's input cannot be read")?;
    let output = render(project, mark_errors(&input)?)?;
    complain(&String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("mdbook-katex failed ({})", output.status);
    }
    let mut book: Book = serde_json::from_slice(&output.stdout)
        .context("mdbook-katex returned something other than a book")?;
    check(&book, &project.chapters())?;
    book.for_each_chapter_mut(|chapter| {
        chapter.content = listings::dedent(&punctuation::hold(&chapter.content))
    });
    serde_json::to_writer(io::stdout().lock(), &book)?;
    Ok(())
}

/// mdBook's input, with the options under which KaTeX shows an error instead of giving up.
fn mark_errors(input: &str) -> Result<String> {
    let mut input: Value =
        serde_json::from_str(input).context("mdBook's input is not JSON")?;
    // A table that is missing is an empty one. Anything else in its place is not what mdBook says.
    let mut table =
        input.get_mut(0).context("mdBook's input is no pair of context and book")?;
    for key in ["config", "preprocessor", "katex"] {
        let object = table
            .as_object_mut()
            .with_context(|| format!("mdBook's input has no table around `{key}`"))?;
        table = object.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
    let options = table.as_object_mut().context("mdBook's input has no table `katex`")?;
    options.insert("throw-on-error".to_owned(), false.into());
    options.insert("error-color".to_owned(), ERROR_COLOUR.into());
    Ok(input.to_string())
}

fn render(project: &Project, input: String) -> Result<Output> {
    let mut child = Command::new(MDBOOK_KATEX.ensure(project)?)
        .current_dir(project.root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("mdbook-katex could not be started")?;
    let mut stdin = child.stdin.take().context("mdbook-katex takes no input")?;
    // It may answer before it has read everything, so writing must not wait for reading.
    let writer = thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().context("mdbook-katex went away")?;
    let _ = writer.join();
    Ok(output)
}

/// Passes on what mdbook-katex says, but for its remark that it was compiled against mdBook's
/// library in another patch release, which speaks the same protocol.
fn complain(said: &str) {
    for line in said.lines() {
        if !line.contains("was built against mdbook") {
            eprintln!("{line}");
        }
    }
}

fn check(book: &Book, chapters: &Path) -> Result<()> {
    let errors: Vec<_> =
        book.chapters().flat_map(|chapter| errors_in(chapter, chapters)).collect();
    if !errors.is_empty() {
        bail!("KaTeX cannot parse:\n{}", errors.join("\n"));
    }
    Ok(())
}

static MARK: LazyLock<Regex> = LazyLock::new(|| {
    let mark = format!(
        r#"(?s)<span class="katex-error" title="([^"]*)"[^>]*>([^<]*)</span>|{ERROR_COLOUR}[^<]*>"#
    );
    Regex::new(&mark).expect("the pattern is a constant")
});

static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"(?s)<annotation encoding="application/x-tex">([^<]*)</annotation>"#)
        .expect("the pattern is a constant")
});

/// Each formula of the rendered chapter that is marked, once.
fn errors_in(chapter: &Chapter, chapters: &Path) -> Vec<String> {
    let mut errors = Vec::new();
    for mark in MARK.captures_iter(&chapter.content) {
        let Some((formula, why)) = marked(&mark, &chapter.content) else {
            continue;
        };
        let place = place(chapter, &formula, chapters);
        let error = format!("  {place}: `{}`: {why}", formula.trim());
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    errors
}

/// The formula that is marked, and why. Nothing if the mark repeats one: KaTeX renders a formula
/// once for screen readers, with its source beside it, and once for the eye.
fn marked(mark: &Captures, content: &str) -> Option<(String, String)> {
    if let (Some(why), Some(formula)) = (mark.get(1), mark.get(2)) {
        return Some((unescape(formula.as_str()), unescape(why.as_str())));
    }
    let rest = &content[mark.get(0)?.end()..];
    let same_formula = rest.split("<math").next()?;
    let formula = match SOURCE.captures(same_formula) {
        Some(source) => unescape(&source[1]),
        None if content.contains("<annotation") => return None,
        None => unescape(rest.split('<').next()?),
    };
    Some((formula, "unknown command".to_owned()))
}

/// `src/softmax.md:12`, or without the line when the formula came in by an include.
fn place(chapter: &Chapter, formula: &str, chapters: &Path) -> String {
    let Some(path) = &chapter.source_path else {
        return chapter.name.clone();
    };
    let shown = format!("src/{}", path.to_string_lossy().replace('\\', "/"));
    let source = files::read(&chapters.join(path)).unwrap_or_default();
    match line_of(formula, &source) {
        Some(line) => format!("{shown}:{line}"),
        None => shown,
    }
}

/// The line on which `formula` begins in the chapter. What is rendered has no line breaks.
fn line_of(formula: &str, source: &str) -> Option<usize> {
    markdown::formulas(source).into_iter().find_map(|range| {
        let written = source[range.clone()].trim_matches('$');
        let same = written.replace('\n', " ").trim() == formula.trim();
        let first = range.end - source[range].trim_start_matches('$').trim_start().len();
        same.then(|| files::line_at(source, first))
    })
}

fn unescape(html: &str) -> String {
    html.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#x27;", "'")
        .replace("&#39;", "'")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutated;
    use proptest::prelude::*;

    const INPUT: &str = r#"[{"root": "book", "config": {"preprocessor": {"katex": {"no-css": true}}}}, {"items": []}]"#;

    const JSON: &[&str] =
        &["null", "1", "{}", "[]", "\"", "[", "{", "}", "]", ",", "\"katex\"", "[[[["];

    #[test]
    fn errors_are_marked_and_other_options_stay() {
        let marked: Value = serde_json::from_str(&mark_errors(INPUT).unwrap()).unwrap();
        let options = &marked[0]["config"]["preprocessor"]["katex"];
        assert_eq!(options["throw-on-error"], false);
        assert_eq!(options["error-color"], ERROR_COLOUR);
        assert_eq!(options["no-css"], true);
    }

    #[test]
    fn input_that_is_no_book_is_an_error() {
        for input in [
            "{}",
            "[]",
            "1",
            "[1]",
            r#"[{"config": []}]"#,
            r#"[{"config": {"preprocessor": 1}}]"#,
        ] {
            let error = mark_errors(input).unwrap_err().to_string();
            assert!(error.contains("mdBook's input"), "{input}: {error}");
        }
        let error = mark_errors("[").unwrap_err().to_string();
        assert_eq!(error, "mdBook's input is not JSON");
    }

    proptest! {
        /// Whatever mdBook says: the same with the options, or an error that says whose input it is.
        #[test]
        fn damaged_input_is_marked_or_refused(input in mutated::text(INPUT, JSON)) {
            match mark_errors(&input) {
                Ok(marked) => {
                    let marked: Value = serde_json::from_str(&marked).unwrap();
                    prop_assert_eq!(&marked[0]["config"]["preprocessor"]["katex"]["error-color"], ERROR_COLOUR);
                }
                Err(error) => prop_assert!(error.to_string().contains("mdBook's input"), "{}", error),
            }
        }

        /// Whatever mdbook-katex renders, an error has the chapter's name.
        #[test]
        fn damaged_chapters_are_searched(
            content in mutated::text(
                "<p><span class=\"katex-error\" title=\"no\" style=\"color:#e4404e\">x_</span></p>\n<annotation encoding=\"application/x-tex\">\\x</annotation><span style=\"color:#e4404e\">x</span>",
                &["#e4404e", ">", "<", "<math", "<annotation", "é"],
            ),
        ) {
            let chapter = Chapter { name: "A".to_owned(), content, ..Chapter::default() };
            for error in errors_in(&chapter, Path::new("nowhere")) {
                prop_assert!(error.starts_with("  A: `"), "{}", error);
            }
        }
    }
}
