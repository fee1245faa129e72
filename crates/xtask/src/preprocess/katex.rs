//! `preprocess katex`: what the chapters go through on their way to HTML. `mdbook-katex` renders their formulas. What it cannot
//! parse it would only log, so its HTML is checked: such a formula fails the book.

use super::{exercises, formulas, listings, numbers, paths, punctuation, terms};
use crate::files;
use crate::lint::html::Page;
use crate::markdown;
use crate::project::Project;
use anyhow::{Result, ensure};
use mdbook_katex::cfg::KatexConfig;
use mdbook_katex::process_chapter_prerender;
use mdbook_preprocessor::book::{Book, Chapter};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};
use rayon::prelude::*;
use std::fs;
use std::path::Path;

/// In this colour KaTeX prints a command that it does not know, or that it does not trust, and calls that a success. Nothing else
/// has it, so the formula is found by it.
const ERROR_COLOUR: &str = "#e4404e";

/// The setting that says whether exercises come with their solutions. They do unless it is false.
pub const SOLUTIONS: &str = "preprocessor.katex.solutions";

/// Renders the formulas of the chapters.
#[derive(Debug)]
pub struct Katex {
    /// The project with the chapters, so that an error can name the line.
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
        paths::insert(&mut book)?;
        let tasks = self.project.root().join("crates/exercises/tasks");
        let solutions = context.config.get::<bool>(SOLUTIONS)?.unwrap_or(true);
        exercises::insert(&mut book, &tasks, solutions)?;
        terms::link(&mut book)?;
        numbers::insert(&mut book)?;
        let (root, chapters) = (self.project.root(), self.project.chapters());
        let mut errors = Vec::new();
        book.for_each_chapter_mut(|chapter| {
            let file = chapter.source_path.as_ref().map(|path| chapters.join(path));
            let file = file.unwrap_or_default(); // none, and so no captions, if the chapter is not written in a file
            let written = fs::read_to_string(&file).unwrap_or_default();
            chapter.content = punctuation::with_units(&chapter.content);
            let text = with_formulas(chapter, &written, &mut errors);
            let folder = file.parent().unwrap_or(&chapters);
            chapter.content = listings::presented(&text, &written, folder, root);
        });
        ensure!(errors.is_empty(), "KaTeX cannot parse:\n{}", errors.join("\n"));
        Ok(book)
    }
}

/// The text of the chapter with its formulas as HTML. What cannot be rendered is left out, and told in `errors`, once.
/// `written` is the chapter before its includes were resolved, by which an error names the line.
fn with_formulas(chapter: &Chapter, written: &str, errors: &mut Vec<String>) -> String {
    let text = &chapter.content;
    let formulas = markdown::formulas(text);
    let rendered: Vec<_> =
        formulas.par_iter().map(|range| html(&text[range.clone()])).collect();
    let mut with_formulas = String::new();
    let mut done = 0;
    for (range, rendered) in formulas.into_iter().zip(rendered) {
        with_formulas += &text[done..range.start];
        done = range.end;
        match rendered {
            Ok(html) => {
                let (html, marks) = punctuation::keep_together(&html, &text[done..]);
                with_formulas += &html;
                done += marks;
            }
            Err(why) => {
                let formula = text[range].trim_matches('$').replace('\n', " ");
                let place = place(chapter, &formula, written);
                let error = format!("  {place}: `{}`: {why}", formula.trim());
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
    }
    with_formulas + &text[done..]
}

/// The formula, which comes with its dollar signs, as HTML in one line; or why KaTeX cannot make it that.
fn html(formula: &str) -> Result<String, String> {
    // Not in `book.toml`, where a misspelt option would be passed over.
    let config = KatexConfig {
        output: "htmlAndMathml".to_owned(),
        // What it would throw is only logged; in the HTML it is told, and found below.
        throw_on_error: false,
        error_color: ERROR_COLOUR.to_owned(),
        ..KatexConfig::default()
    };
    let (in_line, on_its_own) = config.build_opts("");
    let options = config.build_extra_opts();
    let html = process_chapter_prerender(formula, in_line, on_its_own, "", &options);
    if html == formula {
        return Err("KaTeX gives up; it may be nested too deep".to_owned());
    }
    // HTML does not need these, and without them a page with many formulas is a twentieth shorter.
    let html = html
        .replace(" xmlns=\"http://www.w3.org/1998/Math/MathML\"", "")
        .replace(" encoding=\"application/x-tex\"", "");
    if html.starts_with("<span class=\"katex-error\"") {
        let page = Page::parse(String::new(), &html);
        let why = page.all("span").find_map(|error| error.value().attribute("title"));
        return Err(why.unwrap_or(&html).to_owned());
    }
    if html.contains(ERROR_COLOUR) {
        return Err("unknown command".to_owned());
    }
    let html = formulas::with_roles(&html);
    let is_on_its_own = html.starts_with("<span class=\"katex-display\">");
    Ok(if is_on_its_own { formulas::broken_before_relations(&html) } else { html })
}

/// `src/softmax.md:12`, or without the line when the formula came in by an include.
fn place(chapter: &Chapter, formula: &str, written: &str) -> String {
    let Some(path) = &chapter.source_path else {
        return chapter.name.clone();
    };
    let line = line_of(formula, written).map(|line| format!(":{line}"));
    format!("src/{}{}", files::relative(path, Path::new("")), line.unwrap_or_default())
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

#[cfg(test)]
mod tests {
    use super::*;
    use mdbook_katex::preprocess::KATEX_HEADER;

    /// What KaTeX writes is laid out by the style sheet of the same version.
    #[test]
    fn the_style_sheet_is_of_the_version_that_renders() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let style = files::read(&root.join("theme/katex/katex.min.css")).unwrap();
        let version = KATEX_HEADER.split(['@', '/']).find(|part| part.starts_with("0."));
        assert!(style.contains(&format!("content:\"{}\"", version.unwrap())));
    }

    #[test]
    fn what_katex_cannot_make_sense_of_has_a_reason() {
        for formula in [
            r"$\foo x$",
            r"$$ \href{https://example.org}{x} $$",
            r"$\url{https://example.org}$",
            r"$\includegraphics{x.png}$",
        ] {
            assert_eq!(html(formula), Err("unknown command".to_owned()));
        }
        let deep = format!("${}x{}$", "{".repeat(9_000), "}".repeat(9_000));
        assert!(html(&deep).unwrap_err().contains("nested too deep"));
        let why = html("$a < \"b\" & c$").unwrap_err();
        assert!(why.starts_with("ParseError: KaTeX parse error: "), "{why}");
        assert!(why.contains("a < \"b\" &"), "{why}");
    }
}
