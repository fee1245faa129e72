//! A page as a list of elements in the order in which they begin.

use html5gum::{DefaultEmitter, HtmlString, Token, Tokenizer};
use std::ops::Range;

/// Elements that never have an end tag.
const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source",
    "track", "wbr",
];

/// A parsed page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its path as seen from the root of the site.
    pub(crate) name: String,
    pub(crate) elements: Vec<Element>,
    pub(crate) texts: Vec<Text>,
}

/// An element, whose descendants are the ones that follow it, up to `end`.
#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) tag: String,
    attributes: Vec<(String, String)>,
    pub(crate) line: usize,
    parent: Option<usize>,
    end: usize,
    /// Which texts lie inside.
    texts: Range<usize>,
}

/// A run of text.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) line: usize,
    parent: Option<usize>,
}

impl Element {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn has_class(&self, class: &str) -> bool {
        let classes = self.attribute("class").unwrap_or_default();
        classes.split_whitespace().any(|found| found == class)
    }
}

impl Page {
    pub(crate) fn parse(name: String, html: &str) -> Self {
        let mut builder = Builder::new(name, html);
        let mut emitter = DefaultEmitter::<usize>::new_with_span();
        emitter.naively_switch_states(true);
        for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
            builder.take(token);
        }
        builder.finish()
    }

    /// The elements called `tag`, with their number.
    pub(crate) fn all<'a>(
        &'a self,
        tag: &'a str,
    ) -> impl Iterator<Item = (usize, &'a Element)> {
        self.elements.iter().enumerate().filter(move |(_, element)| element.tag == tag)
    }

    /// The elements right inside element `number`.
    pub(crate) fn children(
        &self,
        number: usize,
    ) -> impl Iterator<Item = (usize, &Element)> {
        (number + 1..self.elements[number].end)
            .map(|child| (child, &self.elements[child]))
            .filter(move |(_, child)| child.parent == Some(number))
    }

    /// The elements called `tag` inside element `number`, by their numbers.
    pub(crate) fn numbers_inside(
        &self,
        number: usize,
        tag: &str,
    ) -> impl Iterator<Item = usize> {
        (number + 1..self.elements[number].end)
            .filter(move |inner| self.elements[*inner].tag == tag)
    }

    /// All text inside element `number`.
    pub(crate) fn text_of(&self, number: usize) -> String {
        let inside = self.elements[number].texts.clone();
        self.texts[inside].iter().map(|text| text.text.as_str()).collect()
    }

    /// The elements around `text`, from the inside out.
    pub(crate) fn around(&self, text: &Text) -> impl Iterator<Item = &Element> {
        let outer = |number: &usize| self.elements[*number].parent;
        std::iter::successors(text.parent, outer).map(|number| &self.elements[number])
    }
}

/// Puts a page together from its tokens.
struct Builder {
    page: Page,
    open: Vec<usize>,
    newlines: Vec<usize>,
}

impl Builder {
    fn new(name: String, html: &str) -> Self {
        let newlines = html.match_indices('\n').map(|(at, _)| at).collect();
        let page = Page { name, elements: Vec::new(), texts: Vec::new() };
        Self { page, open: Vec::new(), newlines }
    }

    fn take(&mut self, token: Token<usize>) {
        match token {
            Token::StartTag(tag) => {
                let line = self.line(tag.span.start);
                let attributes = tag.attributes.iter();
                let attributes = attributes
                    .map(|(name, value)| (text(name), text(&value.value)))
                    .collect();
                self.begin(text(&tag.name), attributes, line, tag.self_closing);
            }
            Token::EndTag(tag) => self.end(&text(&tag.name)),
            Token::String(string) => {
                let line = self.line(string.span.start);
                let parent = self.open.last().copied();
                self.page.texts.push(Text { text: text(&string.value), line, parent });
            }
            _ => {}
        }
    }

    fn line(&self, offset: usize) -> usize {
        1 + self.newlines.partition_point(|newline| *newline < offset)
    }

    fn begin(
        &mut self,
        tag: String,
        attributes: Vec<(String, String)>,
        line: usize,
        closed: bool,
    ) {
        let number = self.page.elements.len();
        let parent = self.open.last().copied();
        if !closed && !VOID.contains(&tag.as_str()) {
            self.open.push(number);
        }
        let first = self.page.texts.len();
        let (end, texts) = (number + 1, first..first);
        self.page.elements.push(Element { tag, attributes, line, parent, end, texts });
    }

    /// Closes the innermost element of that name, and what was left open inside it.
    fn end(&mut self, tag: &str) {
        let is_it = |number: &usize| self.page.elements[*number].tag == tag;
        if let Some(depth) = self.open.iter().rposition(is_it) {
            self.close(depth);
        }
    }

    fn close(&mut self, depth: usize) {
        let (end, last_text) = (self.page.elements.len(), self.page.texts.len());
        for number in self.open.drain(depth..) {
            self.page.elements[number].end = end;
            self.page.elements[number].texts.end = last_text;
        }
    }

    fn finish(mut self) -> Page {
        self.close(0);
        self.page
    }
}

fn text(string: &HtmlString) -> String {
    String::from_utf8_lossy(string).into_owned()
}
