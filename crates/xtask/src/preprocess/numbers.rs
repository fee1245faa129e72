//! Figures and equations get a number, by which one can speak of them, and an id, by which one can link to them. The id is a name,
//! so that the link still leads there when another one is added before it: a figure's is that of its drawing, and an equation's
//! that of its `\label{…}`. Equations without a label have neither.
//!
//! A link without text, `[](softmax.md#equation-jacobian)`, gets the number as its text.

use crate::markdown::formulas;
use crate::pattern::{Pattern, pattern};
use anyhow::{Result, ensure};
use mdbook_preprocessor::book::Book;
use path_clean::PathClean;
use regex::Captures;
use std::collections::HashMap;

/// A figure with its attributes, what is in it up to the caption, and the rest.
static FIGURE: Pattern = pattern!(r"(?s)<figure\b([^>]*)>(.*?)</figure>");

const CAPTION: &str = "<figcaption>";

/// The name of a drawing, by the id of its title.
static DRAWING: Pattern = pattern!(r#"<title id="([^"]+?)-title""#);

/// The name of an equation.
static LABEL: Pattern = pattern!(r"\s*\\label\{([a-z0-9-]+)\}");

/// A link without text: to a chapter or in this one, and the id of a figure or an equation.
static REFERENCE: Pattern =
    pattern!(r"\[\]\(([^()\s#]*)#((?:figure|equation)-[^()\s]+)\)");

/// A numbered item: its id, and the text of a link to it.
type Named = (String, String);

/// Numbers the figures and equations of all chapters, and names them in the links to them.
///
/// # Errors
///
/// If two equations of a chapter have one label, or a link without text leads to none: the message names the chapter.
pub(super) fn insert(book: &mut Book) -> Result<()> {
    let mut names = HashMap::new();
    let mut wrong = Vec::new();
    book.for_each_chapter_mut(|chapter| {
        let file = chapter.source_path.clone().unwrap_or_default();
        let number = chapter.number.as_ref().map(ToString::to_string).unwrap_or_default();
        let (text, figures) = with_figures(&chapter.content, &number);
        let (text, equations) = with_equations(&text, &number);
        chapter.content = text;
        for (id, name) in figures.into_iter().chain(equations) {
            if names.insert((file.clone(), id.clone()), name).is_some() {
                wrong.push(format!("  {}: two are called {id}", file.display()));
            }
        }
    });
    book.for_each_chapter_mut(|chapter| {
        let file = chapter.source_path.clone().unwrap_or_default();
        let named = |link: &Captures| {
            let [page, id] = [&link[1], &link[2]];
            let target =
                if page.is_empty() { file.clone() } else { file.with_file_name(page) };
            let name = names.get(&(target.clean(), id.to_owned()));
            let name = name.map_or_else(
                || {
                    wrong.push(format!("  {}: {page}#{id}", file.display()));
                    ""
                },
                String::as_str,
            );
            format!("[{name}]({page}#{id})")
        };
        chapter.content = REFERENCE.replace_all(&chapter.content, named).into_owned();
    });
    ensure!(
        wrong.is_empty(),
        "links without text to no figure or equation, or names that two have:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// The chapter with "Figure 7.3" before the caption of the third figure, if the chapter's number is "7.".
fn with_figures(text: &str, chapter: &str) -> (String, Vec<Named>) {
    let mut named = Vec::new();
    let mut figure = 0;
    let number = |found: &Captures| {
        let [attributes, content] = [&found[1], &found[2]];
        let Some((content, caption)) = content.split_once(CAPTION) else {
            return found[0].to_owned();
        };
        figure += 1;
        let number = format!("{chapter}{figure}");
        let name =
            DRAWING.captures(content).map_or(number.clone(), |title| title[1].to_owned());
        let id = format!("figure-{name}");
        named.push((id.clone(), format!("Figure {number}")));
        format!(
            "<figure{attributes} id=\"{id}\">{content}{CAPTION}\
             <a class=\"number\" href=\"#{id}\">Figure {number}</a> {}</figure>",
            caption.trim_start()
        )
    };
    let text = FIGURE.replace_all(text, number).into_owned();
    (text, named)
}

/// The chapter with "(7.3)" beside the third equation that has a label, if the chapter's number is "7.".
fn with_equations(text: &str, chapter: &str) -> (String, Vec<Named>) {
    let mut named = Vec::new();
    let mut numbered = String::new();
    let mut written = 0;
    for range in formulas(text) {
        let formula = &text[range.clone()];
        let Some(label) = LABEL.captures(formula) else { continue };
        let id = format!("equation-{}", &label[1]);
        let name = format!("({chapter}{})", named.len() + 1);
        numbered += &text[written..range.start];
        numbered += &format!(
            "<div class=\"equation\" id=\"{id}\"><a class=\"number\" href=\"#{id}\">{name}</a>\n\n{}\n\n</div>",
            LABEL.replace(formula, "")
        );
        written = range.end;
        named.push((id, name));
    }
    numbered += &text[written..];
    (numbered, named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdbook_preprocessor::book::{BookItem, Chapter, SectionNumber};

    #[test]
    fn figures_are_counted_in_their_chapter() {
        let text = "<figure>\n<svg><title id=\"a-b-title\">A</title></svg>\n<figcaption>One.</figcaption>\n</figure>\n\n\
            <figure data-figure=\"x\">\n<figcaption>\nTwo.</figcaption>\n</figure>\n";
        let expected = "<figure id=\"figure-a-b\">\n<svg><title id=\"a-b-title\">A</title></svg>\n<figcaption>\
            <a class=\"number\" href=\"#figure-a-b\">Figure 7.1</a> One.</figcaption>\n</figure>\n\n\
            <figure data-figure=\"x\" id=\"figure-7.2\">\n<figcaption>\
            <a class=\"number\" href=\"#figure-7.2\">Figure 7.2</a> Two.</figcaption>\n</figure>\n";
        assert_eq!(with_figures(text, "7.").0, expected);
        assert!(with_figures(text, "").0.contains(">Figure 2</a> Two."));
    }

    #[test]
    fn a_figure_without_a_caption_has_no_number() {
        let bare = "<figure>\n<svg></svg>\n</figure>\n";
        let both = format!("{bare}<figure><figcaption>One.</figcaption></figure>");
        let (numbered, _) = with_figures(&both, "");
        assert!(numbered.starts_with(bare) && numbered.contains(">Figure 1</a> One."));
    }

    #[test]
    fn equations_with_a_label_are_counted_in_their_chapter() {
        let text = "One:\n\n$$\na = b \\label{first} .\n$$\n\n$$ c $$\n\n`$$ \\label{code} $$`\n\n$$\nd \\label{second}\n$$\n";
        let (text, named) = with_equations(text, "7.");
        let equation = |name: &str, number: u32, formula: &str| {
            format!(
                "<div class=\"equation\" id=\"equation-{name}\">\
                 <a class=\"number\" href=\"#equation-{name}\">(7.{number})</a>\n\n{formula}\n\n</div>"
            )
        };
        let expected = format!(
            "One:\n\n{}\n\n$$ c $$\n\n`$$ \\label{{code}} $$`\n\n{}\n",
            equation("first", 1, "$$\na = b .\n$$"),
            equation("second", 2, "$$\nd\n$$")
        );
        assert_eq!(text, expected);
        assert_eq!(named[1], ("equation-second".to_owned(), "(7.2)".to_owned()));
    }

    fn book(chapters: [(&str, &str); 2]) -> Book {
        let chapter = |(number, (file, text)): (u32, (&str, &str))| {
            let mut chapter = Chapter::new(file, text.to_owned(), file, vec![]);
            chapter.number = Some(SectionNumber::new([number]));
            BookItem::Chapter(chapter)
        };
        Book::new_with_items((1..).zip(chapters).map(chapter).collect())
    }

    #[test]
    fn a_link_without_text_says_the_number() {
        let drawing = "<figure><svg><title id=\"x-title\"></svg><figcaption>X</figcaption></figure>";
        let text = format!("$$ a \\label{{e}} $$ [](#equation-e) {drawing}");
        let other = "See [](a.md#equation-e) and [](./a.md#figure-x).";
        let mut book = book([("a.md", &text), ("b.md", other)]);
        insert(&mut book).unwrap();
        let texts: Vec<_> =
            book.chapters().map(|chapter| chapter.content.as_str()).collect();
        assert!(texts[0].contains("[(1.1)](#equation-e)"), "{}", texts[0]);
        assert_eq!(
            texts[1],
            "See [(1.1)](a.md#equation-e) and [Figure 1.1](./a.md#figure-x)."
        );
    }

    #[test]
    fn a_link_to_nothing_and_a_name_that_two_have_are_errors() {
        let mut wrong = book([
            ("a.md", "[](#equation-e) [](b.md#figure-x)"),
            ("b.md", "$$ a \\label{e} $$ $$ b \\label{e} $$"),
        ]);
        let message = insert(&mut wrong).unwrap_err().to_string();
        for expected in [
            "  a.md: #equation-e",
            "  a.md: b.md#figure-x",
            "  b.md: two are called equation-e",
        ] {
            assert!(message.contains(expected), "{message}");
        }
    }
}
