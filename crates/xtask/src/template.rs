//! What every page has otherwise than mdBook's template gives it. That has no settings for these, and a copy of the template would be hundreds
//! of lines that belong to mdBook.

use crate::files;
use crate::pattern::{Pattern, pattern};
use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use regex::Captures;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A table header without a word, which becomes a cell: a screen reader would announce a header and have nothing to say.
static EMPTY_HEADER: Pattern = pattern!("<th( [^>]*)?></th>");

/// A button for a colour theme that book.css doesn't have.
static THEME: Pattern = pattern!(
    r#"\s*<li role="none"><button role="menuitem" class="theme" id="mdbook-theme-(?:rust|coal|ayu)">\w+</button></li>"#
);

/// The arrows beside the page, which lead where the links below the text lead.
static ARROWS: Pattern = pattern!(r#"(?s)\s*<nav class="nav-wide-wrapper".*?</nav>"#);

/// A link below the text: an arrow without a word.
static LINK: Pattern = pattern!(
    r#"(?s)(<a rel="[^"]*" href="([^"]*)" class=")mobile-(nav-chapters (previous|next)") title="[^"]*" aria-label="[^"]*"([^>]*>).*?</a>"#
);

/// The link to a page with all chapters, which a browser needs most of a minute for.
static PRINT: Pattern = pattern!(
    r#"(?s)<a href="[^"]*print\.html" title="Print this book" aria-label="Print this book">(.*?)</a>"#
);

/// The title of a page, and the title of the book behind it.
static TITLE: Pattern = pattern!(r"<title>([^<]*) - ([^<]*)</title>");

/// What may lie around a heading, where it begins and ends; and a heading of the second or third level.
static BLOCK: Pattern =
    pattern!(r"<(/?)(?:div|details|figure|blockquote|ul|ol|table)\b|(<h[23]\b)");

/// Changes all pages in a folder.
///
/// # Errors
///
/// If a page can't be read or written, or leads to one without a title.
pub fn change(folder: &Path) -> Result<()> {
    let files = files::with_extension(folder, "html");
    let read = |file: &PathBuf| Ok((files::relative(file, folder), files::read(file)?));
    let pages = files.par_iter().map(read).collect::<Result<BTreeMap<_, _>>>()?;
    let title = |(name, html): (&String, &String)| {
        Some((name.clone(), TITLE.captures(html)?[1].to_owned()))
    };
    let titles: BTreeMap<_, _> = pages.iter().filter_map(title).collect();
    pages.par_iter().try_for_each(|(name, html)| {
        let html = changed(html, &titles).with_context(|| name.clone())?;
        // What is printed is laid out as a whole.
        let html = if name == "print.html" { html } else { in_sections(&html) };
        files::write(&folder.join(name), html)
    })
}

fn changed(html: &str, titles: &BTreeMap<String, String>) -> Result<String> {
    let html = EMPTY_HEADER.replace_all(html, "<td$1></td>");
    let html = THEME.replace_all(&html, "");
    let html = ARROWS.replace_all(&html, "");
    let print = "<button type=\"button\" class=\"icon-button\" id=\"print\" title=\"Print this page\" \
                 aria-label=\"Print this page\">$1</button>";
    let html = PRINT.replace_all(&html, print);
    let linked = |link: &Captures| {
        let [before, href, class, direction, after] =
            [1, 2, 3, 4, 5].map(|part| &link[part]);
        let word = if direction == "next" { "Next" } else { "Previous" };
        let title = titles.get(href).map_or("", String::as_str);
        format!("{before}{class}{after}{word}: {title}</a>")
    };
    for link in LINK.captures_iter(&html) {
        ensure!(titles.contains_key(&link[2]), "{} has no title", &link[2]);
    }
    let html = LINK.replace_all(&html, linked);
    // The front page has the title of the book.
    let title = TITLE.captures(&html).filter(|title| title[1] == title[2]);
    let twice = title.map(|title| (format!("{0} - {0}", &title[1]), title[1].to_owned()));
    Ok(twice.map_or_else(
        || html.clone().into_owned(),
        |(twice, once)| html.replace(&twice, &once),
    ))
}

/// A page whose text has an element for each section, from a heading to the next, so that a browser can lay out first what is in sight:
/// book.css and reader.js. What is before the first heading, and a heading inside of something else, stay as they are.
fn in_sections(html: &str) -> String {
    let Some((before, rest)) = html.split_once("<main>") else { return html.to_owned() };
    let Some((text, after)) = rest.split_once("</main>") else { return html.to_owned() };
    let mut sections = String::new();
    let (mut done, mut depth, mut is_open) = (0, 0, false);
    for block in BLOCK.captures_iter(text) {
        match block.get(2) {
            Some(heading) if depth == 0 => {
                sections += &text[done..heading.start()];
                sections += if is_open { "</section>\n<section>" } else { "<section>" };
                (done, is_open) = (heading.start(), true);
            }
            Some(_) => {}
            None if block[1].is_empty() => depth += 1,
            None => depth -= 1,
        }
    }
    sections += &text[done..];
    let end = if is_open { "</section>\n" } else { "" };
    format!("{before}<main>{sections}{end}</main>{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_lasts_from_a_heading_to_the_next() {
        let page = "<main><h1>a</h1>b<h2 id=\"c\">c</h2><div><h2>d</h2></div><h3>e</h3>f</main><p>g";
        let expected = "<main><h1>a</h1>b<section><h2 id=\"c\">c</h2><div><h2>d</h2></div></section>\n\
            <section><h3>e</h3>f</section>\n</main><p>g";
        assert_eq!(in_sections(page), expected);
        assert_eq!(in_sections("<main><h1>a</h1></main>"), "<main><h1>a</h1></main>");
    }

    const PAGE: &str = r#"<ul><li role="none"><button role="menuitem" class="theme" id="mdbook-theme-light">Light</button></li>
        <li role="none"><button role="menuitem" class="theme" id="mdbook-theme-coal">Coal</button></li></ul>
        <th></th><th>key</th>
        <a href="print.html" title="Print this book" aria-label="Print this book">P</a>
        <a rel="next prefetch" href="b.html" class="mobile-nav-chapters next" title="Next chapter" aria-label="Next chapter" aria-keyshortcuts="Right">
            <span><svg></svg></span>
        </a>
        <nav class="nav-wide-wrapper"><a rel="next prefetch" href="b.html">›</a></nav>"#;

    #[test]
    fn a_page_names_the_next_and_has_two_themes() {
        let titles =
            BTreeMap::from([("b.html".to_owned(), "Bread &amp; Water".to_owned())]);
        let expected = r#"<ul><li role="none"><button role="menuitem" class="theme" id="mdbook-theme-light">Light</button></li></ul>
        <td></td><th>key</th>
        <button type="button" class="icon-button" id="print" title="Print this page" aria-label="Print this page">P</button>
        <a rel="next prefetch" href="b.html" class="nav-chapters next" aria-keyshortcuts="Right">Next: Bread &amp; Water</a>"#;
        assert_eq!(changed(PAGE, &titles).unwrap(), expected);
        let front = "<title>A book - A book</title><meta content=\"A book - A book\">";
        let expected = "<title>A book</title><meta content=\"A book\">";
        assert_eq!(changed(front, &titles).unwrap(), expected);
        let error = changed(PAGE, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.to_string(), "b.html has no title");
    }
}
