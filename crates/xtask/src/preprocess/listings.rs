//! Listings: without the indentation that they have in their file, and with a line that says which file that is.

use crate::lint::includes::includes;
use crate::markdown::{CodeBlock, code_blocks};
use crate::pattern::{Pattern, pattern};
use fs_err as fs;
use std::borrow::Cow;
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
        let Some((caption, shown)) =
            written.and_then(|block| caption(&block, folder, root))
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
            let source = format!(
                "{indent}<div class=\"source\" data-lines=\"{shown}\">{caption}</div>\n\n{fence}"
            );
            lines[block.line - 1] = Cow::from(source);
        }
    }
    let mut presented = lines.join("\n");
    presented.push('\n');
    presented
}

/// Returns the origin of a listing: its file, with the function that it is a part of; and the first and last line there of what
/// it includes first.
fn caption(written: &CodeBlock, folder: &Path, root: &Path) -> Option<(String, String)> {
    let include = includes(&written.body, folder).into_iter().next()?;
    let file = include.file.strip_prefix(root).ok()?.display().to_string();
    let text = fs::read_to_string(&include.file).ok()?;
    let part = include.part_of(&text).ok()?;
    let first = include.first_line(&text)?;
    let lines = format!("{first}-{}", first + part.lines().count().max(1) - 1);
    let within = function_around(&text, first, &part);
    let within = within.map_or(String::new(), |name| format!(", in {name}"));
    Some((format!("From {file}{within}"), lines))
}

/// The function that a part of a file lies in, which begins at the line `first`, as its indentation tells.
fn function_around(text: &str, first: usize, part: &str) -> Option<String> {
    // Without the line that names the part.
    let above: Vec<_> = text.lines().take(first.saturating_sub(2)).collect();
    let mut depth = margin(part);
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
        let from = |lines: &str, within: &str| {
            format!(
                "<div class=\"source\" data-lines=\"{lines}\">From x.rs{within}</div>"
            )
        };
        let method = || from("3-7", "");
        let deep = || from("15-15", ", in second");
        assert_eq!(captions(&chapter(&["method"])), [method()]);
        assert_eq!(captions(&chapter(&["inside"])), [from("5-5", ", in first")]);
        assert_eq!(captions(&chapter(&["deep"])), [deep()]);
        assert_eq!(captions(&chapter(&["method", "method", "deep"])), [method(), deep()]);
        let apart = chapter(&["method"]) + "And then:\n\n" + &chapter(&["method"]);
        assert_eq!(captions(&apart), [method(), method()]);
        let own = "<div class=\"source\">From x.rs, by hand</div>";
        assert_eq!(captions(&format!("{own}\n\n{}", chapter(&["method"]))), [own]);
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
