//! What the search looks in: the sections of the book and their index, as a script that a page loads when its search is opened.
//! `theme/search.js` does the searching, and shows parts of these texts, so they are sentences: of a formula there is one short spelling.

use crate::files;
use crate::lint::html::{Node, Page, inside};
use anyhow::Result;
use fs_err as fs;
use rayon::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where a page finds the sections, beside the library that searches in them.
const FILE: &str = "theme/on-demand/sections.js";

const MINISEARCH: &str = include_str!("../../../theme/on-demand/minisearch.js");
const SEARCH: &str = include_str!("../../../theme/search.js");

/// Pages that repeat others, or have no text.
const NO_CHAPTERS: [&str; 4] = ["404.html", "index.html", "print.html", "toc.html"];

const GLOSSARY: &str = "glossary.html";

/// A heading and the text below it, up to the next.
#[derive(Debug, Default, PartialEq)]
struct Section {
    /// Its address; that of a chapter's beginning is the page's.
    url: String,
    title: String,
    text: String,
}

/// Writes the sections of the book.
///
/// # Errors
///
/// If a page can't be read, or the file can't be written.
pub fn write_sections(book: &Path) -> Result<()> {
    let name = |file: &PathBuf| files::relative(file, book);
    let mut pages = files::with_extension(book, "html");
    pages.retain(|file| {
        let name = name(file);
        !name.contains('/') && !NO_CHAPTERS.contains(&name.as_str())
    });
    let read = |file: &PathBuf| Ok(Page::parse(name(file), &files::read(file)?));
    let pages = pages.par_iter().map(read).collect::<Result<Vec<_>>>()?;
    let glossary = pages.iter().find(|page| page.name == GLOSSARY);
    let names = glossary.map(names).unwrap_or_default();
    let entry = |chapter: &str, Section { url, title, text }: &Section| -> Value {
        let names = names.get(url).map_or(&[][..], Vec::as_slice);
        json!({ "url": url, "chapter": chapter, "title": title, "names": names, "text": text })
    };
    let entries: Vec<_> = pages
        .iter()
        .flat_map(|page| {
            let sections = sections(page);
            let chapter = sections.first().map_or("", |first| &first.title).to_owned();
            sections.iter().map(|section| entry(&chapter, section)).collect::<Vec<_>>()
        })
        .collect();
    let sections = Value::from(entries).to_string();
    let index = Value::from(index(&sections)?);
    let script = format!(
        "globalThis.bookSections = {sections};\nglobalThis.bookIndex = {index};\n"
    );
    let file = book.join(FILE);
    fs::create_dir_all(file.parent().unwrap_or(book))?;
    files::write(&file, script)
}

/// The index of sections, made by the library and the rules that a page searches with.
fn index(sections: &str) -> Result<String> {
    let context = quick_js::Context::new()?;
    for script in [MINISEARCH, SEARCH] {
        context.eval(script)?;
    }
    let made = format!(
        "const made = new MiniSearch(bookWords.options);\n\
         made.addAll({sections}.map((section, id) => ({{ id, ...section }})));\n\
         JSON.stringify(made)"
    );
    Ok(context.eval_as(&made)?)
}

/// The words of the glossary, and the other names that it gives them in italics, by the address of the section that explains them. A name
/// with a link of its own belongs there.
fn names(glossary: &Page) -> BTreeMap<String, Vec<String>> {
    let mut names = BTreeMap::<_, Vec<_>>::new();
    for row in glossary.all("tr") {
        let mut section = None;
        for name in inside(row, "strong").take(1).chain(inside(row, "em")) {
            let link = inside(name, "a").next();
            section = link.and_then(|link| link.value().attribute("href")).or(section);
            if let Some(section) = section {
                names.entry(section.to_owned()).or_default().push(text_of(name));
            }
        }
    }
    names
}

fn sections(page: &Page) -> Vec<Section> {
    let mut sections = Vec::new();
    if let Some(main) = page.all("main").next() {
        collect(main, &page.name, &mut sections);
    }
    for section in &mut sections {
        section.text = tidy(&section.text);
    }
    sections
}

/// Adds what is in an element to the last section, or to new ones.
fn collect(element: Node, page: &str, sections: &mut Vec<Section>) {
    let part = element.value();
    let level = ["h1", "h2", "h3"].iter().position(|tag| *tag == part.tag);
    if let Some((level, id)) = level.zip(part.attribute("id")) {
        let url = if level == 0 { page.to_owned() } else { format!("{page}#{id}") };
        sections.push(Section { url, title: text_of(element), ..Section::default() });
    } else if let Some(section) = sections.last_mut()
        && let Some(text) = whole(element)
    {
        section.text += &text;
    } else {
        element.children().for_each(|inner| collect(inner, page, sections));
        if let Some(section) = sections.last_mut() {
            section.text += behind(&part.tag);
        }
    }
}

/// The text of what is not looked into: a run of text, a formula, and what isn't text at all.
fn whole(element: Node) -> Option<String> {
    let part = element.value();
    if !part.text.is_empty() {
        // Only in a listing does a new line mean something.
        let is_code = element.ancestors().any(|around| around.value().tag == "pre");
        let text = if is_code { part.text.clone() } else { part.text.replace('\n', " ") };
        Some(text)
    } else if part.has_class("katex") {
        Some(inside(element, "math").map(formula).collect())
    } else if matches!(part.tag.as_str(), "script" | "style" | "svg" | "button" | "input")
        || part.has_class("reading-time")
    {
        Some(String::new())
    } else {
        None
    }
}

/// What sets the text of an element off from the next.
fn behind(tag: &str) -> &'static str {
    match tag {
        "td" | "th" => " · ",
        "p" | "li" | "tr" | "pre" | "div" | "figcaption" | "summary" | "h4" | "h5"
        | "h6" | "dt" | "dd" | "br" => "\n",
        _ => "",
    }
}

/// All text inside an element, in one line.
fn text_of(element: Node) -> String {
    let text = whole(element)
        .unwrap_or_else(|| element.children().map(text_of).collect::<String>());
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of a text without what is empty in them.
fn tidy(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        line.trim_matches([' ', '·']).to_owned()
    });
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Operators with room around them.
const SPACED: &str = "=≈≠<>≤≥≪≫∼←→↦∈+−±×⋅·/∣∘⊙";

/// A formula in one line, such as "QKᵀ/√(d_k)".
fn formula(node: Node) -> String {
    let part = node.value();
    let inner: Vec<_> = node.children().map(formula).collect();
    // In parentheses, unless it is one name; `subscript` says whether that may have a subscript.
    let grouped = |at: usize, subscript: bool| {
        let text = inner.get(at).map_or("", |text| text.trim());
        let in_name = |c: char| c.is_alphanumeric() || subscript && c == '_';
        let is_one = text.chars().count() < 2 || text.chars().all(in_name);
        if is_one { text.to_owned() } else { format!("({text})") }
    };
    match (part.tag.as_str(), inner.as_slice()) {
        ("", _) => part.text.chars().filter(|c| *c != '\u{2061}').collect(),
        ("annotation", _) => String::new(),
        ("mspace", _) => " ".to_owned(),
        ("mo", [operator]) if operator == "," => ", ".to_owned(),
        ("mo", [operator]) if is_between(operator, node) => format!(" {operator} "),
        ("msqrt", [_]) => format!("√{}", grouped(0, true)),
        ("mfrac", [_, _]) => format!("{}/{}", grouped(0, true), grouped(1, true)),
        ("msub" | "munder", [base, _]) => format!("{base}_{}", grouped(1, false)),
        ("msup", [base, power]) => match power.as_str() {
            "2" => format!("{base}²"),
            "3" => format!("{base}³"),
            "⊤" => format!("{base}ᵀ"),
            "′" => format!("{base}′"),
            _ => format!("{base}^{}", grouped(1, false)),
        },
        ("msubsup" | "munderover", [base, _, _]) => {
            format!("{base}_{}^{}", grouped(1, false), grouped(2, false))
        }
        ("mover", [base, _]) => base.clone(),
        ("mtd", _) => format!("{} ", inner.concat()),
        ("mtr", _) => format!("{}; ", inner.concat().trim()),
        _ => side_by_side(&inner),
    }
}

/// True for an operator between two sides: a minus may also be the sign of a number.
fn is_between(operator: &str, node: Node) -> bool {
    let before = node.prev_sibling().map(formula).unwrap_or_default();
    let is_sign = before.is_empty() || before.ends_with(['=', '≈', '(', '[', '{', ' ']);
    !operator.is_empty() && SPACED.contains(operator) && !is_sign
}

/// Factors side by side, with room where a longer name would run into the next.
fn side_by_side(factors: &[String]) -> String {
    let mut line = String::new();
    let mut before = "";
    for factor in factors.iter().filter(|factor| !factor.is_empty()) {
        let ends_name =
            before.chars().count() > 1 && before.ends_with(char::is_alphanumeric);
        if ends_name && factor.starts_with(char::is_alphanumeric) {
            line.push(' ');
        }
        line += factor;
        before = factor;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, main: &str) -> Page {
        Page::parse(name.to_owned(), &format!("<body><main>{main}</main></body>"))
    }

    #[test]
    fn a_chapter_is_its_sections_in_sentences() {
        let html = "<h1 id=\"why\"><a class=\"header\" href=\"#why\">Why √dₖ</a></h1>\n\
            <p class=\"reading-time\">Five minutes</p><p>Why\ndivide <em>scores</em>?</p><script>no</script>\
            <h2 id=\"a\">Code</h2><pre><code>let a = 1;\nlet b = 2;</code></pre><h4 id=\"b\">Part</h4>\
            <table><tr><th>key</th><th></th></tr><tr><td>1</td><td>2</td></tr></table><svg><text>3</text></svg>";
        let section = |url: &str, title: &str, text: &str| Section {
            url: url.to_owned(),
            title: title.to_owned(),
            text: text.to_owned(),
        };
        let expected = [
            section("why.html", "Why √dₖ", "Why divide scores?"),
            section("why.html#a", "Code", "let a = 1;\nlet b = 2;\nPart\nkey\n1 · 2"),
        ];
        assert_eq!(sections(&page("why.html", html)), expected);
    }

    #[test]
    fn a_formula_is_spelt_once() {
        let cases = [
            (
                "<mfrac><mrow><mi>Q</mi><msup><mi>K</mi><mo>⊤</mo></msup></mrow><msqrt><msub><mi>d</mi><mi>k</mi></msub></msqrt></mfrac>",
                "QKᵀ/(√d_k)",
            ),
            (
                "<msub><mi>d</mi><mtext>in</mtext></msub><mi>Var</mi><mo>⁡</mo><mo>[</mo><mi>W</mi><mo>]</mo><mo>=</mo><mo>−</mo><msup><mi>n</mi><mn>2</mn></msup>",
                "d_in Var[W] = −n²",
            ),
            (
                "<munderover><mo>∑</mo><mrow><mi>j</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><msup><mi>e</mi><msub><mi>s</mi><mi>j</mi></msub></msup>",
                "∑_(j = 1)^n e^(s_j)",
            ),
        ];
        for (mathml, expected) in cases {
            let html = format!(
                "<h1 id=\"a\">A</h1><p><span class=\"katex\"><span class=\"katex-mathml\"><math><semantics><mrow>{mathml}</mrow>\
                 <annotation>\\TeX</annotation></semantics></math></span><span class=\"katex-html\">no</span></span></p>"
            );
            assert_eq!(sections(&page("a.html", &html))[0].text, expected);
        }
    }

    #[test]
    fn the_glossary_names_sections() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, main: &str| {
            fs::write(folder.path().join(name), format!("<main>{main}</main>")).unwrap();
        };
        write(
            "positions.html",
            "<h1 id=\"p\">Positions</h1><h2 id=\"angles\">Angles</h2><p>Turned.</p>",
        );
        write("print.html", "<h1 id=\"p\">Positions</h1>");
        write(
            "glossary.html",
            "<h1 id=\"g\">Glossary</h1><table><tr><td><strong id=\"term-rotary\"><a href=\"positions.html#angles\">Rotary positions</a></strong></td>\
             <td>Turned by angles. Often <em>RoPE</em>, or <em><a href=\"positions.html\">PE</a></em>.</td></tr></table>",
        );
        write_sections(folder.path()).unwrap();
        let script = fs::read_to_string(folder.path().join(FILE)).unwrap();
        let (sections, index) = script.split_once('\n').unwrap();
        let value = |line: &str, name: &str| -> Value {
            let json = line.strip_prefix(&format!("globalThis.{name} = ")).unwrap();
            serde_json::from_str(json.trim_end().trim_end_matches(';')).unwrap()
        };
        let found = value(sections, "bookSections");
        let expected = json!([
            { "url": "glossary.html", "chapter": "Glossary", "title": "Glossary", "names": [],
              "text": "Rotary positions · Turned by angles. Often RoPE, or PE." },
            { "url": "positions.html", "chapter": "Positions", "title": "Positions", "names": ["PE"], "text": "" },
            { "url": "positions.html#angles", "chapter": "Positions", "title": "Angles", "names": ["Rotary positions", "RoPE"],
              "text": "Turned." },
        ]);
        assert_eq!(found, expected);
        let index = value(index, "bookIndex");
        let index: Value = serde_json::from_str(index.as_str().unwrap()).unwrap();
        assert_eq!(index["documentCount"], 3);
        let is_in = |word| {
            index["index"].as_array().unwrap().iter().any(|entry| entry[0] == word)
        };
        assert!(is_in("rope") && !is_in("RoPE"), "{index}");
    }
}
