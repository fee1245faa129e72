//! A page of the book as the XHTML that an EPUB holds.
//!
//! E-readers differ in what they know. So the formulas are MathML without the spans that KaTeX adds for browsers, colours of
//! figures are written out where the pages name variables, folds are open, and no script is needed.

use crate::lint::html::VOID;
use anyhow::{Context, Result, ensure};
use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use regex::Regex;
use scraper::node::Element;
use scraper::{ElementRef, Node};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const MATHML: &str = "http://www.w3.org/1998/Math/MathML";
const SVG: &str = "http://www.w3.org/2000/svg";

/// Elements of MathML that hold text and nothing else. KaTeX puts the letters of `\bmod` into elements of their own.
const TOKENS: &[&str] = &["mi", "mn", "mo", "mtext"];

/// A variable of the style sheet with the value that stands for it where there is none.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"var\(--[\w-]+,\s*([^()]+)\)").expect("the pattern is a constant")
});

/// The content of `element`, for a book whose pages have these names without their extension.
///
/// # Errors
///
/// If a formula lacks its MathML, a figure names a colour that only a style sheet knows, or a link goes to a page that is
/// no chapter.
pub(super) fn content(element: ElementRef, pages: &BTreeSet<&str>) -> Result<String> {
    let mut page = Page { pages, writer: Writer::new(Vec::new()) };
    page.children(element)?;
    Ok(String::from_utf8(page.writer.into_inner())?)
}

struct Page<'a> {
    pages: &'a BTreeSet<&'a str>,
    writer: Writer<Vec<u8>>,
}

impl Page<'_> {
    fn children(&mut self, element: ElementRef) -> Result<()> {
        for child in element.children() {
            match child.value() {
                Node::Text(text) => {
                    self.writer.write_event(Event::Text(BytesText::new(text)))?;
                }
                Node::Element(_) => {
                    self.element(ElementRef::wrap(child).context("an element")?)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn element(&mut self, element: ElementRef) -> Result<()> {
        let value = element.value();
        let has_class = |class: &str| value.classes().any(|found| found == class);
        match value.name() {
            // What KaTeX draws, the lines of a listing that are hidden, and the source of a formula, which the element around
            // it says already.
            "span" if has_class("katex-html") || has_class("boring") => return Ok(()),
            "annotation" => return Ok(()),
            // What a script fills.
            "div" if value.attr("hidden").is_some() => return Ok(()),
            "span" if has_class("katex") || has_class("katex-display") => {
                let formulas = element.descendent_elements();
                let formulas = formulas.filter(|inner| inner.value().name() == "math");
                ensure!(
                    formulas.count() == 1,
                    "a formula without MathML: {}",
                    element.html()
                );
                return self.children(element);
            }
            "span"
                if has_class("katex-mathml") || value.attr("data-format").is_some() =>
            {
                return self.children(element);
            }
            "semantics" => return self.children(element),
            "a" if has_class("header") => return self.children(element),
            _ => {}
        }
        let name = value.name();
        let mut start = BytesStart::new(name);
        let outside =
            ElementRef::wrap(element.parent().context("an element is in another")?);
        let namespace = |element: &Element| element.name.ns.to_string();
        let here = namespace(value);
        if outside.is_none_or(|outside| namespace(outside.value()) != here)
            && (here == MATHML || here == SVG)
        {
            start.push_attribute(("xmlns", here.as_str()));
        }
        for (attribute, text) in value.attrs() {
            if let Some(text) = self.attribute(value, attribute, text)? {
                start.push_attribute((attribute, text.as_str()));
            }
        }
        match name {
            "details" => start.push_attribute(("open", "open")),
            "math" => start.push_attribute(("alttext", source(element)?.as_str())),
            _ => {}
        }
        if VOID.contains(&name) {
            self.writer.write_event(Event::Empty(start))?;
            return Ok(());
        }
        self.writer.write_event(Event::Start(start))?;
        if TOKENS.contains(&name) {
            let text: String = element.text().collect();
            self.writer.write_event(Event::Text(BytesText::new(&text)))?;
        } else {
            self.children(element)?;
        }
        self.writer.write_event(Event::End(BytesEnd::new(name)))?;
        Ok(())
    }

    /// Returns the attribute as an EPUB has it, if it has it at all.
    fn attribute(
        &self,
        element: &Element,
        name: &str,
        text: &str,
    ) -> Result<Option<String>> {
        let is_moving = element.attr("data-figure").is_some();
        Ok(match name {
            "xmlns" | "open" => None,
            _ if name.starts_with("data-") => None,
            "class" | "style" if is_moving => None,
            "href" => Some(self.link(text)?),
            _ => {
                let text = VARIABLE.replace_all(text, "$1");
                ensure!(
                    !text.contains("var("),
                    "a colour without a value: {name}=\"{text}\""
                );
                Some(text.into_owned())
            }
        })
    }

    /// Returns the target in the EPUB of a link to a page of the book.
    fn link(&self, target: &str) -> Result<String> {
        let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
        // A query sets a figure that moves, and here none does.
        let path = path.split_once('?').map_or(path, |(page, _)| page);
        let is_elsewhere = path.is_empty() || path.contains(':');
        if is_elsewhere {
            return Ok(target.to_owned());
        }
        let chapter = path.strip_suffix(".html").filter(|name| self.pages.contains(name));
        let chapter = chapter
            .with_context(|| format!("{target} goes to a page that is no chapter"))?;
        let hash = if fragment.is_empty() { "" } else { "#" };
        Ok(format!("{chapter}.xhtml{hash}{fragment}"))
    }
}

/// A formula as it was written, for readers that show no MathML and those that read aloud.
fn source(formula: ElementRef) -> Result<String> {
    let mut inside = formula.descendent_elements();
    let source = inside.find(|element| element.value().name() == "annotation");
    let source = source
        .with_context(|| format!("a formula without its source: {}", formula.html()))?;
    Ok(source.text().collect::<String>().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::selector;
    use scraper::Html;

    fn xhtml(html: &str) -> Result<String> {
        let page = Html::parse_document(&format!("<main>{html}</main>"));
        let main = page.select(&selector("main")).next().context("there is one")?;
        content(main, &BTreeSet::from(["softmax"]))
    }

    fn body(html: &str) -> String {
        xhtml(html).unwrap()
    }

    #[test]
    fn a_formula_is_mathml_alone() {
        let formula = "<span class=\"katex\"><span class=\"katex-mathml\"><math><semantics><mi>x</mi><annotation> x_\"\
                       </annotation></semantics></math></span><span class=\"katex-html\">x</span></span>";
        let expected =
            format!("<math xmlns=\"{MATHML}\" alttext=\"x_&quot;\"><mi>x</mi></math>");
        assert_eq!(body(formula), expected);
    }

    #[test]
    fn the_name_of_an_operator_is_text() {
        let formula = "<math><mo><mrow><mi>m</mi><mi>o</mi><mi>d</mi></mrow></mo><annotation>a</annotation></math>";
        assert!(body(formula).ends_with("<mo>mod</mo></math>"));
    }

    #[test]
    fn a_formula_without_mathml_is_an_error() {
        let error = xhtml("<span class=\"katex\">x</span>").err().unwrap();
        assert!(error.to_string().contains("a formula without MathML"), "{error}");
    }

    #[test]
    fn a_figure_has_its_colours_and_no_script() {
        let figure = "<figure class=\"moves\" data-figure=\"a\" style=\"--rows: 1\"><svg viewbox=\"0 0 1 1\"><path fill=\"\
                      var(--fig-1, #0b4fa0)\"/></svg></figure>";
        let expected = format!(
            "<figure><svg xmlns=\"{SVG}\" viewBox=\"0 0 1 1\"><path fill=\"#0b4fa0\"></path></svg></figure>"
        );
        assert_eq!(body(figure), expected);
        assert!(xhtml("<svg fill=\"var(--fig-1)\"></svg>").is_err());
    }

    #[test]
    fn links_go_to_the_files_of_the_epub() {
        let links = "<a href=\"softmax.html?bank=1_2#a\">a</a><a href=\"#b\">b</a><a href=\"https://rustup.rs\">c</a>";
        let expected = "<a href=\"softmax.xhtml#a\">a</a><a href=\"#b\">b</a><a href=\"https://rustup.rs\">c</a>";
        assert_eq!(body(links), expected);
        assert!(xhtml("<a href=\"print.html\">all</a>").is_err());
    }

    #[test]
    fn folds_are_open_and_hidden_lines_are_left_out() {
        let fold = "<details><summary>a &amp; b</summary><pre>c<br><span class=\"boring\">d</span></pre></details>";
        let expected = "<details open=\"open\"><summary>a &amp; b</summary><pre>c<br/></pre></details>";
        assert_eq!(body(fold), expected);
    }
}
