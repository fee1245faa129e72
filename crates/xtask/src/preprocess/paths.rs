//! Paths through the book, and the time that chapters take to read: `{{minutes softmax masking}}` becomes a number, `{{chapters softmax masking}}`
//! a list of links, and `{{path short | A question? | softmax masking}}` a path, which its chapters know (theme/reader.js). A chapter that some page
//! names in this way says its minutes below its own title, too.

use crate::markdown::parse;
use crate::pattern::{Pattern, pattern};
use anyhow::{Result, bail};
use mdbook_markdown::pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};
use mdbook_preprocessor::book::{Book, Chapter};
use regex::Captures;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

/// Slower than a novel is read, since there are formulas on the way.
const WORDS_PER_MINUTE: usize = 100;

static DIRECTIVE: Pattern = pattern!(
    r"\{\{(minutes|chapters|path (?<id>[a-z-]+) \| (?<question>[^|{}]+) \|)(?<names>(?: [a-z0-9-]+)+)\}\}"
);

/// What is known of a chapter.
struct Known {
    title: String,
    minutes: usize,
}

/// A path: its name, the question that it answers, and its chapters.
struct Path {
    id: String,
    question: String,
    names: Vec<String>,
}

/// Writes minutes, lists of chapters and paths into the chapters. The minutes of a chapter are rounded to five, so that sums agree with what is
/// shown of their parts.
///
/// # Errors
/// There is no chapter of that name.
pub(super) fn insert(book: &mut Book) -> Result<()> {
    let known = |chapter: &Chapter| {
        let known = Known { title: escaped(&chapter.name), minutes: minutes(chapter) };
        Some((name(chapter)?, known))
    };
    let known: HashMap<String, Known> = book.chapters().filter_map(known).collect();
    let directives = |chapter: &Chapter| {
        DIRECTIVE.captures_iter(&chapter.content).map(|it| directive(&it)).collect()
    };
    let directives: Vec<Directive> =
        book.chapters().flat_map(|chapter| -> Vec<_> { directives(chapter) }).collect();
    let named: BTreeSet<&String> = directives.iter().flat_map(|it| &it.1).collect();
    if let Some(unknown) = named.iter().find(|name| !known.contains_key(**name)) {
        bail!("{{{{… {unknown}}}}}: there is no chapter `{unknown}`");
    }
    let paths: Vec<Path> = directives.iter().filter_map(path).collect();
    book.for_each_chapter_mut(|chapter| {
        let written = |found: &Captures| written(&directive(found), &known);
        chapter.content = DIRECTIVE.replace_all(&chapter.content, written).into_owned();
        if let Some(name) = name(chapter).filter(|name| named.contains(name)) {
            chapter.content = below_title(&chapter.content, known[&name].minutes);
            chapter.content += &in_paths(&name, &paths, &known);
        }
    });
    Ok(())
}

/// What a directive asks for, and the chapters that it names; of a path its name and question, too.
type Directive = (String, Vec<String>, Option<(String, String)>);

fn directive(found: &Captures) -> Directive {
    let text = |name| found.name(name).map(|it| it.as_str().trim().to_owned());
    let names = found["names"].split_whitespace().map(str::to_owned).collect();
    let kind = found[1].split(' ').next().unwrap_or_default().to_owned();
    (kind, names, text("id").zip(text("question")))
}

fn path((_, names, path): &Directive) -> Option<Path> {
    let (id, question) = path.clone()?;
    Some(Path { id, question, names: names.clone() })
}

/// What stands in the place of a directive.
fn written(directive: &Directive, known: &HashMap<String, Known>) -> String {
    let (kind, names, _) = directive;
    let minutes: usize = names.iter().map(|name| known[name].minutes).sum();
    if kind == "minutes" {
        return minutes.to_string();
    }
    let link = |name: &String| {
        format!("<li><a href=\"{name}.html\">{}</a></li>", known[name].title)
    };
    let links: String = names.iter().map(link).collect();
    let list = format!("<ol class=\"chapters\">{links}</ol>");
    let minutes = format!("<span class=\"minutes\">{minutes} minutes</span>");
    match path(directive) {
        None => format!("{list}<p>{minutes}</p>"),
        Some(Path { id, question, .. }) => format!(
            "<div class=\"path\" id=\"path-{id}\" data-path=\"{id}\"><p><strong>{}</strong> {minutes}</p>{list}</div>",
            escaped(&question)
        ),
    }
}

/// For theme/reader.js, the paths that a chapter is on: their names and questions, which of how many chapters it is, and the next one.
fn in_paths(name: &str, paths: &[Path], known: &HashMap<String, Known>) -> String {
    let on = |path: &Path| {
        let Path { id, question, names } = path;
        let at = names.iter().position(|it| it == name)?;
        let next =
            names.get(at + 1).map(|next| (format!("{next}.html"), &known[next].title));
        Some(json!([id, question, at + 1, names.len(), next]))
    };
    let paths: Vec<_> = paths.iter().filter_map(on).collect();
    if paths.is_empty() {
        return String::new();
    }
    let mut element = String::new();
    let data = escaped(&json!(paths).to_string());
    let _ = write!(element, "\n\n<div data-paths=\"{data}\" hidden></div>\n");
    element
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}

/// The chapter with a line on its minutes below its title.
fn below_title(content: &str, minutes: usize) -> String {
    let is_title =
        |event: &Event| *event == Event::End(TagEnd::Heading(HeadingLevel::H1));
    let title = parse(content).find(|(event, _)| is_title(event));
    let (above, below) = content.split_at(title.map_or(0, |(_, range)| range.end));
    let time =
        format!("<div class=\"reading-time\">About {minutes} minutes to read</div>");
    format!("{above}\n{time}\n\n{}", below.trim_start_matches('\n'))
}

/// The chapter's file without its ending, as addresses have it.
fn name(chapter: &Chapter) -> Option<String> {
    Some(chapter.source_path.as_ref()?.file_stem()?.to_string_lossy().into_owned())
}

/// Words of formulas count, those of code and figures do not.
fn minutes(chapter: &Chapter) -> usize {
    let mut in_code = false;
    let mut words = 0;
    for (event, _) in parse(&chapter.content) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => in_code = true,
            Event::End(TagEnd::CodeBlock) => in_code = false,
            Event::Text(text) if !in_code => words += text.split_whitespace().count(),
            _ => {}
        }
    }
    let fives = words as f64 / (5 * WORDS_PER_MINUTE) as f64;
    5 * (fives.round() as usize).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdbook_preprocessor::book::BookItem;

    fn book(contents: [(&str, &str); 2]) -> Book {
        let chapter = |(name, content): (&str, &str)| {
            let path = format!("{name}.md");
            BookItem::Chapter(Chapter::new(name, content.to_owned(), path, vec![]))
        };
        Book::new_with_items(contents.map(chapter).to_vec())
    }

    #[test]
    fn code_takes_no_time_and_words_take_theirs() {
        let words = "word ".repeat(1950);
        let long = format!("{words}\n\n```rust\n{words}\n```\n");
        let mut book = book([
            ("welcome", "{{minutes long}}, {{minutes long welcome}}"),
            ("long", &long),
        ]);
        insert(&mut book).unwrap();
        let welcome = &book.chapters().next().unwrap().content;
        assert!(welcome.ends_with("20, 25"), "{welcome}");
    }

    #[test]
    fn a_chapter_says_its_own_time_below_its_title() {
        let chapter = "# Long\n\nOnce.\n\n# Not the title\n";
        let mut book =
            book([("welcome", "# Hello\n\n{{minutes long}}\n"), ("long", chapter)]);
        insert(&mut book).unwrap();
        let contents: Vec<_> =
            book.chapters().map(|chapter| chapter.content.as_str()).collect();
        let time = "<div class=\"reading-time\">About 5 minutes to read</div>";
        assert_eq!(
            contents,
            [
                "# Hello\n\n5\n".to_owned(),
                format!("# Long\n\n{time}\n\nOnce.\n\n# Not the title\n")
            ]
        );
    }

    #[test]
    fn an_unknown_chapter_is_named() {
        let mut book = book([("welcome", "{{minutes long}}"), ("short", "")]);
        let error = insert(&mut book).unwrap_err().to_string();
        assert_eq!(error, "{{… long}}: there is no chapter `long`");
    }

    #[test]
    fn a_path_is_a_list_of_links_and_its_chapters_know_the_next_one() {
        let path = "{{path all | Why \"all\"? | short long}}";
        let mut book = book([("short", path), ("long", "{{chapters long}}")]);
        insert(&mut book).unwrap();
        let contents: Vec<_> =
            book.chapters().map(|chapter| chapter.content.as_str()).collect();
        let link = |name| format!("<li><a href=\"{name}.html\">{name}</a></li>");
        let list =
            format!("<ol class=\"chapters\">{}{}</ol>", link("short"), link("long"));
        let path = "<div class=\"path\" id=\"path-all\" data-path=\"all\"><p><strong>Why &quot;all&quot;?</strong> \
            <span class=\"minutes\">10 minutes</span></p>";
        assert!(contents[0].contains(&format!("{path}{list}</div>")), "{}", contents[0]);
        assert!(
            contents[1]
                .contains(&format!("<ol class=\"chapters\">{}</ol>", link("long")))
        );
        let next = r#"[["all","Why \"all\"?",1,2,["long.html","long"]]]"#;
        let last = r#"[["all","Why \"all\"?",2,2,null]]"#;
        for (content, data) in contents.into_iter().zip([next, last]) {
            let element = format!("<div data-paths=\"{}\" hidden></div>", escaped(data));
            assert!(content.contains(&element), "{content}");
        }
    }
}
