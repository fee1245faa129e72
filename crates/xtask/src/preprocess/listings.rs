//! Listings: without the indentation that they have in their file, and with a line that says which file that is.

use crate::lint::includes::{Include, includes};
use crate::markdown::{CodeBlock, code_blocks};
use crate::pattern::{Pattern, pattern};
use std::borrow::Cow;
use std::fs;
use std::path::Path;

static FUNCTION: Pattern = pattern!(r"^ *(?:pub(?:\([a-z]+\))? )?(?:unsafe )?fn (\w+)");

/// `text` with every listing moved to the left, as far as its least indented line, below a line that says where it is from.
/// `written` is the same chapter as it was written, where the includes are still directives; `folder` is where their paths start
/// from, and `root` where those of captions do. A listing that follows another one of the same file at once goes without a caption,
/// and so does one below a line that its author wrote.
pub(super) fn presented(text: &str, written: &str, folder: &Path, root: &Path) -> String {
    let listings = |text| code_blocks(text).into_iter().filter(CodeBlock::is_listing);
    let mut from = listings(written);
    let mut lines: Vec<Cow<str>> = text.lines().map(Cow::from).collect();
    let mut last = (String::new(), 0); // a caption, and the line where its listing ends
    for block in listings(text) {
        let margin = margin(&block.body);
        for line in &mut lines[block.line..][..block.body.lines().count()] {
            *line = Cow::from(line.get(margin..).unwrap_or("").to_owned());
        }
        let written = from.next();
        let Some(caption) = written.and_then(|block| caption(&block, folder, root))
        else {
            continue;
        };
        let above =
            lines[..block.line - 1].iter().rposition(|line| !line.trim().is_empty());
        let above = above.map_or((0, ""), |at| (at + 1, lines[at].as_ref()));
        let follows = last == (caption.clone(), above.0);
        let has_its_own = above.1.contains("class=\"source\"");
        last = (caption.clone(), block.line + block.body.lines().count() + 1);
        if !follows && !has_its_own {
            let fence = &lines[block.line - 1];
            let indent = &fence[..fence.len() - fence.trim_start().len()];
            let source =
                format!("{indent}<div class=\"source\">{caption}</div>\n\n{fence}");
            lines[block.line - 1] = Cow::from(source);
        }
    }
    let mut presented = lines.join("\n");
    presented.push('\n');
    presented
}

/// Returns the origin of a listing: its file, and the function that it is a part of.
fn caption(written: &CodeBlock, folder: &Path, root: &Path) -> Option<String> {
    let include = includes(&written.body, folder).into_iter().next()?;
    let file = include.file.strip_prefix(root).ok()?.display().to_string();
    let within = function_around(&include);
    Some(within.map_or(format!("From {file}"), |name| format!("From {file}, in {name}")))
}

/// The function that a part of a file lies in, as its indentation tells.
fn function_around(include: &Include) -> Option<String> {
    let text = fs::read_to_string(&include.file).ok()?;
    let lines: Vec<_> = text.lines().collect();
    let above = &lines[..include.lines_above(&text)?];
    let mut depth = margin(&include.part_of(&text).ok()?);
    for line in above.iter().rev().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let ends_signature = indent < depth && line.trim_start().starts_with(')');
        if indent >= depth || ends_signature {
            continue;
        }
        if let Some(function) = FUNCTION.captures(line) {
            return Some(function[1].to_owned());
        }
        depth = indent;
    }
    None
}

/// The spaces that all lines of `code` begin with, but for empty ones.
pub(crate) fn margin(code: &str) -> usize {
    let indents = code.lines().filter(|line| !line.trim().is_empty());
    indents.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
impl X {
    // BEGIN method
    pub fn first(&self) {
        // BEGIN inside
        work();
        // END inside
    }
    // END method

    fn second(
        &self,
    ) -> u8 {
        if true {
            // BEGIN deep
            7
            // END deep
        }
    }
}
";

    #[test]
    fn a_listing_says_where_it_is_from() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        // The lints would take these marks for those of this file.
        let file = FILE.replace("BEGIN ", "ANCHOR: ").replace("END ", "ANCHOR_END: ");
        fs::write(root.join("x.rs"), file).unwrap();
        let chapter = |anchors: &[&str]| -> String {
            let block = |anchor: &&str| {
                format!("```rust,listing\n{{{{#include ../x.rs:{anchor}}}}}\n```\n\n")
            };
            anchors.iter().map(block).collect()
        };
        let captions = |written: &str| -> Vec<String> {
            let presented = presented(written, written, &root.join("src"), root);
            let is_caption = |line: &&str| line.starts_with("<div");
            presented.lines().filter(is_caption).map(str::to_owned).collect()
        };
        let from = |what: &str| format!("<div class=\"source\">From x.rs{what}</div>");
        assert_eq!(captions(&chapter(&["method"])), [from("")]);
        assert_eq!(captions(&chapter(&["inside"])), [from(", in first")]);
        assert_eq!(captions(&chapter(&["deep"])), [from(", in second")]);
        assert_eq!(
            captions(&chapter(&["method", "method", "deep"])),
            [from(""), from(", in second")]
        );
        let apart = chapter(&["method"]) + "And then:\n\n" + &chapter(&["method"]);
        assert_eq!(captions(&apart), [from(""), from("")]);
        let own = from(", by hand") + "\n\n" + &chapter(&["method"]);
        assert_eq!(captions(&own), [from(", by hand")]);
        assert!(captions("```rust,listing\nlet x = 1;\n```\n").is_empty());
    }

    fn dedented(text: &str) -> String {
        presented(text, "", Path::new(""), Path::new(""))
    }

    #[test]
    fn a_listing_begins_at_the_margin() {
        let fenced =
            |info: &str, code: &str| format!("A.\n\n```{info}\n{code}```\n\nB.\n");
        let indented = "    if x {\n\n        y\n    }\n";
        assert_eq!(
            dedented(&fenced("rust,listing", indented)),
            fenced("rust,listing", "if x {\n\n    y\n}\n")
        );
        assert_eq!(dedented(&fenced("rust", indented)), fenced("rust", indented));
    }
}
