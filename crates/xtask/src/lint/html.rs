//! A page as a list of elements in the order in which they begin.

use super::Finding;
use html5gum::{DefaultEmitter, HtmlString, Token, Tokenizer};
use std::collections::BTreeMap;
use std::ops::Range;

/// Elements that never have an end tag.
pub(crate) const VOID: &[&str] = &[
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
    attributes: BTreeMap<String, String>,
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
        self.attributes.get(name).map(String::as_str)
    }

    pub(crate) fn has_class(&self, class: &str) -> bool {
        let classes = self.attribute("class").unwrap_or_default();
        classes.split_whitespace().any(|found| found == class)
    }
}

impl Page {
    pub(crate) fn parse(name: String, html: &str) -> Self {
        let mut page = Self { name, elements: Vec::new(), texts: Vec::new() };
        let newlines: Vec<_> = html.match_indices('\n').map(|(at, _)| at).collect();
        let line_at = |offset| 1 + newlines.partition_point(|newline| *newline < offset);
        let mut emitter = DefaultEmitter::<usize>::new_with_span();
        emitter.naively_switch_states(true);
        let mut open = Vec::new(); // elements that have not ended, from the outside in
        for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
            let parent = open.last().copied();
            match token {
                Token::StartTag(start) => {
                    let (number, texts) = (page.elements.len(), page.texts.len());
                    let tag = text(&start.name);
                    if !start.self_closing && !VOID.contains(&tag.as_str()) {
                        open.push(number);
                    }
                    let attributes = start.attributes.iter();
                    page.elements.push(Element {
                        tag,
                        attributes: attributes
                            .map(|(name, value)| (text(name), text(&value.value)))
                            .collect(),
                        line: line_at(start.span.start),
                        parent,
                        end: number + 1,
                        texts: texts..texts,
                    });
                }
                Token::EndTag(tag) => {
                    let name = text(&tag.name);
                    let is_it = |number: &usize| page.elements[*number].tag == name;
                    // The innermost element of that name ends, and what was left open inside it.
                    if let Some(depth) = open.iter().rposition(is_it) {
                        page.end(open.drain(depth..));
                    }
                }
                Token::String(string) => page.texts.push(Text {
                    text: text(&string.value),
                    line: line_at(string.span.start),
                    parent,
                }),
                _ => {}
            }
        }
        page.end(open);
        page
    }

    /// Lets these elements end here.
    fn end(&mut self, elements: impl IntoIterator<Item = usize>) {
        let (end, last_text) = (self.elements.len(), self.texts.len());
        for number in elements {
            self.elements[number].end = end;
            self.elements[number].texts.end = last_text;
        }
    }

    pub(crate) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { file: self.name.clone(), line: Some(line), message: message.into() }
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

    /// The texts inside element `number`.
    pub(crate) fn texts_of(&self, number: usize) -> &[Text] {
        &self.texts[self.elements[number].texts.clone()]
    }

    /// All text inside element `number`.
    pub(crate) fn text_of(&self, number: usize) -> String {
        self.texts_of(number).iter().map(|text| text.text.as_str()).collect()
    }

    /// The elements around `text`, from the inside out.
    pub(crate) fn around(&self, text: &Text) -> impl Iterator<Item = &Element> {
        self.from(text.parent)
    }

    /// The elements around element `number`, from the inside out.
    pub(crate) fn outside(&self, number: usize) -> impl Iterator<Item = &Element> {
        self.from(self.elements[number].parent)
    }

    fn from(&self, number: Option<usize>) -> impl Iterator<Item = &Element> {
        let outer = |number: &usize| self.elements[*number].parent;
        std::iter::successors(number, outer).map(|number| &self.elements[number])
    }
}

fn text(string: &HtmlString) -> String {
    String::from_utf8_lossy(string).into_owned()
}
