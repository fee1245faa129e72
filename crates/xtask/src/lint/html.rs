//! A page as a tree of elements and texts that know their lines.

use super::Finding;
use ego_tree::{NodeRef, Tree};
use html5gum::{DefaultEmitter, HtmlString, Token, Tokenizer};
use std::collections::BTreeMap;
use std::iter;

/// Elements that never have an end tag.
pub const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source",
    "track", "wbr",
];

/// A parsed page.
#[derive(Debug)]
pub(crate) struct Page {
    /// Its path as seen from the root of the site.
    pub(crate) name: String,
    tree: Tree<Part>,
}

/// An element or a run of text, with what is inside and around it.
pub(crate) type Node<'a> = NodeRef<'a, Part>;

/// An element, or a run of text.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// The name of the element; a text has none.
    pub(crate) tag: String,
    attributes: BTreeMap<String, String>,
    /// The words of a text; an element has none of its own.
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Part {
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
        let newlines: Vec<_> = html.match_indices('\n').map(|(at, _)| at).collect();
        let line_at = |offset| 1 + newlines.partition_point(|newline| *newline < offset);
        let mut emitter = DefaultEmitter::<usize>::new_with_span();
        emitter.naively_switch_states(true);
        let mut tree = Tree::new(Part::default());
        let mut innermost = tree.root().id(); // of the elements that have not ended
        for Ok(token) in Tokenizer::new_with_emitter(html, emitter) {
            let Some(mut around) = tree.get_mut(innermost) else { break };
            match token {
                Token::StartTag(start) => {
                    let tag = text(&start.name);
                    let ends = !start.self_closing && !VOID.contains(&tag.as_str());
                    let attributes = start.attributes.iter();
                    let element = around.append(Part {
                        tag,
                        attributes: attributes
                            .map(|(name, value)| (text(name), text(&value.value)))
                            .collect(),
                        line: line_at(start.span.start),
                        ..Part::default()
                    });
                    if ends {
                        innermost = element.id();
                    }
                }
                Token::EndTag(tag) => {
                    let name = text(&tag.name);
                    // The innermost element of that name ends, and what was left open inside it.
                    let around = around.as_ref();
                    let mut open = iter::once(around).chain(around.ancestors());
                    let ended = open.find(|element| element.value().tag == name);
                    if let Some(parent) = ended.and_then(|element| element.parent()) {
                        innermost = parent.id();
                    }
                }
                Token::String(string) => {
                    around.append(Part {
                        text: text(&string.value),
                        line: line_at(string.span.start),
                        ..Part::default()
                    });
                }
                _ => {}
            }
        }
        Self { name, tree }
    }

    pub(crate) fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding::new(&self.name, line, message)
    }

    /// All elements and texts, in the order in which they begin.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.tree.root().descendants().map(|node| node.value())
    }

    /// All texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Node<'_>> {
        texts(self.tree.root())
    }

    /// The elements called `tag`.
    pub(crate) fn all<'a>(&'a self, tag: &'a str) -> impl Iterator<Item = Node<'a>> {
        inside(self.tree.root(), tag)
    }
}

/// The elements called `tag` inside `element`.
pub(crate) fn inside<'a>(
    element: Node<'a>,
    tag: &'a str,
) -> impl Iterator<Item = Node<'a>> {
    element.descendants().skip(1).filter(move |inner| inner.value().tag == tag)
}

/// The texts inside `element`.
pub(crate) fn texts<'a>(element: Node<'a>) -> impl Iterator<Item = Node<'a>> {
    element.descendants().filter(|inner| !inner.value().text.is_empty())
}

/// All text inside `element`.
pub(crate) fn text_of(element: Node) -> String {
    texts(element).map(|text| text.value().text.as_str()).collect()
}

fn text(string: &HtmlString) -> String {
    String::from_utf8_lossy(string).into_owned()
}
