//! `preprocess katex`: what the chapters go through on their way to HTML. mdbook-katex renders their
//! formulas, and is made to fail on a formula that does not parse.
//!
//! Left alone, mdbook-katex logs such a formula and goes on, and KaTeX prints an unknown command as
//! red text without a word. So the colour of errors is set to one that nothing else has, and the
//! rendered chapters are searched for it.

use super::{listings, minutes, numbers, punctuation, terms};
use crate::files;
use crate::markdown;
use crate::pattern::{Pattern, pattern};
use crate::project::Project;
use anyhow::{Result, ensure};
use mdbook_katex::preprocess::KatexProcessor;
use mdbook_preprocessor::book::{Book, Chapter};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use regex::Captures;
use std::fs;
use std::path::Path;

/// Marks what KaTeX could not make sense of.
const ERROR_COLOUR: &str = "#e4404e";

/// Renders the formulas of the chapters.
#[derive(Debug)]
pub struct Katex {
    /// Where the chapters are, so that an error can name the line.
    pub project: Project,
}

impl Preprocessor for Katex {
    fn name(&self) -> &str {
        "katex"
    }

    fn supports_renderer(&self, renderer: &str) -> Result<bool> {
        Ok(renderer == "html")
    }

    /// # Errors
    ///
    /// If a formula does not parse: the message names the chapter, its line and the formula.
    fn run(&self, context: &PreprocessorContext, mut book: Book) -> Result<Book> {
        minutes::insert(&mut book)?;
        terms::link(&mut book)?;
        numbers::insert(&mut book)?;
        let mut context = context.clone();
        context.config.set("preprocessor.katex.throw-on-error", false)?;
        context.config.set("preprocessor.katex.error-color", ERROR_COLOUR)?;
        let mut book = KatexProcessor.run(&context, book)?;
        check(&book, &self.project.chapters())?;
        let (root, chapters) = (self.project.root(), self.project.chapters());
        book.for_each_chapter_mut(|chapter| {
            let text = listings::dedent(&punctuation::keep_together(&chapter.content));
            let text = without_the_implied(&text);
            let file = chapter.source_path.as_ref().map(|path| chapters.join(path));
            let written = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
            chapter.content =
                match (&written, file.as_ref().and_then(|file| file.parent())) {
                    (Some(written), Some(folder)) => {
                        listings::captioned(&text, written, folder, root)
                    }
                    _ => text,
                };
        });
        Ok(book)
    }
}

/// The page without attributes that HTML does not need: a twentieth of a page with many formulas.
fn without_the_implied(content: &str) -> String {
    content
        .replace(" xmlns=\"http://www.w3.org/1998/Math/MathML\"", "")
        .replace(" encoding=\"application/x-tex\"", "")
}

fn check(book: &Book, chapters: &Path) -> Result<()> {
    let of = |chapter| errors_in(chapter, chapters);
    let errors: Vec<_> = book.chapters().flat_map(of).collect();
    ensure!(errors.is_empty(), "KaTeX cannot parse:\n{}", errors.join("\n"));
    Ok(())
}

static MARK: Pattern = pattern!(&format!(
    r#"(?s)<span class="katex-error" title="([^"]*)"[^>]*>([^<]*)</span>|{ERROR_COLOUR}[^<]*>"#
));

static SOURCE: Pattern =
    pattern!(r#"(?s)<annotation encoding="application/x-tex">([^<]*)</annotation>"#);

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
    let source = files::read(&chapters.join(path)).unwrap_or_default();
    let line = line_of(formula, &source).map(|line| format!(":{line}"));
    format!("src/{}{}", files::relative(path, chapters), line.unwrap_or_default())
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

    proptest! {
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
