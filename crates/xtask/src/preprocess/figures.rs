//! Figures get a number, by which one can speak of them, and an id, by which one can link to them: the name of their drawing, so
//! that the link still leads there when a figure is added before it.

use crate::pattern::{Pattern, pattern};
use mdbook_preprocessor::book::SectionNumber;
use regex::Captures;

/// A figure with its attributes, what is in it up to the caption, and the rest.
static FIGURE: Pattern = pattern!(r"(?s)<figure\b([^>]*)>(.*?)</figure>");

const CAPTION: &str = "<figcaption>";

/// The name of a drawing, by the id of its title.
static DRAWING: Pattern = pattern!(r#"<title id="([^"]+?)-title""#);

/// The chapter with "Figure 7.3" before the caption of the third figure, if the chapter's number is 7.
pub(super) fn numbered(text: &str, chapter: Option<&SectionNumber>) -> String {
    let chapter = chapter.map(ToString::to_string).unwrap_or_default();
    let mut figure = 0;
    let number = |found: &Captures| {
        let [attributes, content] = [&found[1], &found[2]];
        let Some((content, caption)) = content.split_once(CAPTION) else {
            return found[0].to_owned();
        };
        figure += 1;
        let number = format!("{chapter}{figure}");
        let name =
            DRAWING.captures(content).map_or(number.clone(), |title| title[1].to_owned());
        let id = format!("figure-{name}");
        format!(
            "<figure{attributes} id=\"{id}\">{content}{CAPTION}\
             <a class=\"number\" href=\"#{id}\">Figure {number}</a> {}</figure>",
            caption.trim_start()
        )
    };
    FIGURE.replace_all(text, number).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counted_in_their_chapter() {
        let text = "<figure>\n<svg><title id=\"a-b-title\">A</title></svg>\n<figcaption>One.</figcaption>\n</figure>\n\n\
            <figure data-figure=\"x\">\n<figcaption>\nTwo.</figcaption>\n</figure>\n";
        let chapter = SectionNumber::new([7]);
        let expected = "<figure id=\"figure-a-b\">\n<svg><title id=\"a-b-title\">A</title></svg>\n<figcaption>\
            <a class=\"number\" href=\"#figure-a-b\">Figure 7.1</a> One.</figcaption>\n</figure>\n\n\
            <figure data-figure=\"x\" id=\"figure-7.2\">\n<figcaption>\
            <a class=\"number\" href=\"#figure-7.2\">Figure 7.2</a> Two.</figcaption>\n</figure>\n";
        assert_eq!(numbered(text, Some(&chapter)), expected);
        assert!(numbered(text, None).contains(">Figure 2</a> Two."));
    }

    #[test]
    fn a_figure_without_a_caption_has_no_number() {
        let bare = "<figure>\n<svg></svg>\n</figure>\n";
        let both = format!("{bare}<figure><figcaption>One.</figcaption></figure>");
        let numbered = numbered(&both, None);
        assert!(numbered.starts_with(bare) && numbered.contains(">Figure 1</a> One."));
    }
}
