//! Blocks of code: too wide for the page, kept from being checked, without a language, or pasted.

use super::includes::{included, includes};
use super::{Document, Finding, Sources};
use crate::markdown::{CodeBlock, ERROR_CODE, code_blocks};
use crate::preprocess::listings::margin;

/// The columns that the page has room for beside the table of contents; rustfmt.toml says the same.
const COLUMNS: usize = 90;
/// The same for the kernels, which the style sheet sets in smaller letters.
const COLUMNS_OF_KERNELS: usize = 100;

/// Blocks that are too wide, that are ignored, that fail for any reason, that name no language, and listings with
/// something pasted in.
pub(super) fn check(sources: &Sources) -> Vec<Finding> {
    let findings_in = |chapter: &Document| -> Vec<Finding> {
        let blocks = code_blocks(&chapter.text).into_iter();
        let all = blocks.flat_map(|block| {
            let complaints = complaints(&block, chapter, sources).into_iter();
            complaints.map(move |message| (block.line, message))
        });
        all.map(|(line, message)| chapter.finding(line, message)).collect()
    };
    sources.chapters.iter().flat_map(findings_in).collect()
}

fn complaints(block: &CodeBlock, chapter: &Document, sources: &Sources) -> Vec<String> {
    let has = |is: &dyn Fn(&str) -> bool| block.words().any(is);
    let unchecked = [
        (
            !has(&|_| true),
            "a block of code without a language: fence it, as `rust` to have it run or as `text`",
        ),
        (
            has(&|word| word.starts_with("ignore")),
            "an ignored block rots unseen: let it run, or make it a `listing` of the crate",
        ),
        (
            block.has("compile_fail") && !has(&|word| ERROR_CODE.is_match(word)),
            "`compile_fail` without the error code that it is to show, as in \
             `compile_fail,E0382`, passes on any mistake",
        ),
    ];
    let found = unchecked.into_iter().filter(|(is_so, _)| *is_so);
    let mut complaints: Vec<_> = found.map(|(_, message)| message.to_owned()).collect();
    if block.is_listing() {
        complaints.extend(pasted(block, chapter, sources));
    }
    if block.is_rust() {
        complaints.extend(too_wide(block, chapter, COLUMNS));
    } else if block.has("cpp") {
        complaints.extend(too_wide(block, chapter, COLUMNS_OF_KERNELS));
    }
    complaints
}

/// A line that the reader would have to scroll for.
fn too_wide(block: &CodeBlock, chapter: &Document, room: usize) -> Option<String> {
    let code = included(&block.body, chapter.folder());
    let margin = if block.is_listing() { margin(&code) } else { 0 };
    let shown = |line: &&str| !line.contains("ANCHOR");
    let columns = |line: &str| line.chars().count().saturating_sub(margin);
    let wide = code.lines().filter(shown).find(|line| columns(line) > room)?;
    Some(format!(
        "a line of code has {} columns where {room} fit: `{}`",
        columns(wide),
        wide.trim()
    ))
}

/// A listing is not run, so it must be what the crate is: only includes, and only of the crates.
fn pasted(block: &CodeBlock, chapter: &Document, sources: &Sources) -> Option<String> {
    let crates = sources.root.join("crates");
    let is_of_crates = |line: &str| {
        let found = includes(line, chapter.folder());
        let directive = line.trim().starts_with("{{") && line.trim().ends_with("}}");
        directive && found.len() == 1 && found[0].file.starts_with(&crates)
    };
    let lines = block.body.lines().filter(|line| !line.trim().is_empty());
    let foreign = lines.into_iter().find(|line| !is_of_crates(line))?;
    Some(format!(
        "a listing may hold includes of files in crates/ and nothing else, but this one has `{}`",
        foreign.trim()
    ))
}
