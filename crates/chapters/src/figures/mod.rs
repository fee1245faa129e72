//! Figures: charts, heat maps and diagrams as SVG that follows the theme of the page, and numbers as text.
//!
//! plotters draws in the colours below. Afterwards each is replaced by the CSS variable that stands for it in the book's
//! style sheet, with the colour as what is used where there is no style sheet.

mod chart;
mod diagram;
pub mod format;
mod heat_map;

pub use chart::{Axis, Line, Marks, Side, Spot, line_chart};
pub use diagram::{arrow, filled, framed, label, line, ring, text, text_box};
pub use heat_map::HeatMap;
pub use plotters::style::{Color, RGBColor};

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use quick_xml::escape::escape;
use regex::Regex;
use std::sync::LazyLock;

pub const TEXT: RGBColor = RGBColor(0x1b, 0x1b, 0x1f);
pub const MUTED: RGBColor = RGBColor(0x6b, 0x6b, 0x75);
pub const BLUE: RGBColor = RGBColor(0x0b, 0x4f, 0xa0);
pub const VERMILION: RGBColor = RGBColor(0xd1, 0x56, 0x1a);
pub const GREEN: RGBColor = RGBColor(0x2f, 0x9e, 0x77);
/// Queries, keys and values, as in formulas and listings.
pub const ROLES: [RGBColor; 3] = [QUERY, KEY, VALUE];
pub const QUERY: RGBColor = RGBColor(0x6b, 0x1f, 0xa8);
pub const KEY: RGBColor = RGBColor(0x8f, 0x5c, 0x00);
pub const VALUE: RGBColor = RGBColor(0x14, 0x6e, 0x5f);
const HEAT: RGBColor = RGBColor(0x3f, 0x90, 0xd4);
const HEAT_NEGATIVE: RGBColor = RGBColor(0xe0, 0x76, 0x3a);

/// The style sheet's name for each colour.
const VARIABLES: [(RGBColor, &str); 10] = [
    (TEXT, "--fig-fg"),
    (MUTED, "--fig-muted"),
    (BLUE, "--fig-1"),
    (VERMILION, "--fig-2"),
    (GREEN, "--fig-3"),
    (QUERY, "--role-q"),
    (KEY, "--role-k"),
    (VALUE, "--role-v"),
    (HEAT, "--fig-heat"),
    (HEAT_NEGATIVE, "--fig-heat-neg"),
];

/// The colour of text, as it stands in a figure.
const TEXT_COLOUR: &str = "var(--fig-fg, #1b1b1f)";

/// plotters divides a font's size by 1.24 on its way to SVG.
const FONT_SIZE: f64 = 16.0 * 1.24;

/// Text that lies so beside its point.
fn text_style(colour: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    let font = ("sans-serif", FONT_SIZE).into_font();
    let pos = Pos::new(horizontal, vertical);
    TextStyle { font, color: colour.to_backend_color(), pos }
}

/// A line of text whose names with an index, such as `W_Q`, are set as in formulas.
fn with_index(line: &str) -> String {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b([A-Za-z])_([A-Za-z]+)\b").expect("a pattern"));
    if line.starts_with('<') {
        return line.to_owned();
    }
    let set = "<tspan font-style=\"italic\">$1</tspan><tspan dy=\"0.25em\" font-size=\"0.8em\">$2</tspan>\
               <tspan dy=\"-0.2em\">\u{200b}</tspan>";
    NAME.replace_all(line, set).into_owned()
}

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Lets `draw` draw on an area of this size and dresses the result for the page.
///
/// `id` must be unique in the book. `title` names the figure and `description` says what is to be seen, for those who
/// cannot see it.
pub fn svg(
    id: &str,
    title: &str,
    description: &str,
    (width, height): (u32, u32),
    draw: impl FnOnce(&Area) -> Result<()>,
) -> Result<String> {
    let mut drawn = String::new();
    {
        let area =
            SVGBackend::with_string(&mut drawn, (width, height)).into_drawing_area();
        draw(&area)?;
        area.present().map_err(|error| anyhow!("{error}"))?;
    }
    let mut body = drawn
        .split_once("<svg")
        .and_then(|(_, rest)| rest.split_once('>'))
        .ok_or_else(|| anyhow!("plotters wrote no <svg>"))?
        .1
        .to_owned();
    let size = format!(" font-size=\"{}\"", FONT_SIZE / 1.24);
    for usual in [&size, " font-family=\"sans-serif\"", " opacity=\"1\""] {
        body = body.replace(usual, "");
    }
    for (RGBColor(r, g, b), variable) in VARIABLES {
        let drawn = format!("\"#{r:02X}{g:02X}{b:02X}\"");
        body =
            body.replace(&drawn, &format!("\"var({variable}, #{r:02x}{g:02x}{b:02x})\""));
    }
    // The size and the usual colour of text are said once, at the root.
    let usual = format!(" fill=\"{TEXT_COLOUR}\"");
    let line = |line: &str| match line.starts_with("<text") {
        true => line.replace(&usual, ""),
        false => line.to_owned(),
    };
    // Markdown ends a block of HTML at an empty line.
    let body = body.lines().filter(|line| !line.trim().is_empty());
    let body: Vec<_> = body.map(line).map(|line| with_index(&line)).collect();
    Ok(format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"{id}-title {id}-description\" \
         style=\"max-width: {width}px\" font-size=\"16\" fill=\"{TEXT_COLOUR}\">\n<title id=\"{id}-title\">{}</title>\n\
         <desc id=\"{id}-description\">{}</desc>\n{}\n",
        escape(title),
        escape(description),
        body.join("\n")
    ))
}
