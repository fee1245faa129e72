//! Figures: charts and heat maps as SVG that follows the theme of the page.
//!
//! plotters draws in the colours below. Afterwards each is replaced by the CSS variable that stands for it in the book's
//! style sheet, with the colour as what is used where there is no style sheet.

use crate::format::fixed;
use anyhow::{Result, anyhow, bail};
use nalgebra::DMatrix;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use quick_xml::escape::escape;
use std::ops::Range;

pub const TEXT: RGBColor = RGBColor(0x1b, 0x1b, 0x1f);
pub const MUTED: RGBColor = RGBColor(0x6b, 0x6b, 0x75);
pub const BLUE: RGBColor = RGBColor(0x0b, 0x4f, 0xa0);
pub const VERMILION: RGBColor = RGBColor(0xd1, 0x56, 0x1a);
pub const GREEN: RGBColor = RGBColor(0x2f, 0x9e, 0x77);
const HEAT: RGBColor = RGBColor(0x3f, 0x90, 0xd4);
const HEAT_NEGATIVE: RGBColor = RGBColor(0xe0, 0x76, 0x3a);

/// The style sheet's name for each colour.
const VARIABLES: [(RGBColor, &str); 7] = [
    (TEXT, "--fig-fg"),
    (MUTED, "--fig-muted"),
    (BLUE, "--fig-1"),
    (VERMILION, "--fig-2"),
    (GREEN, "--fig-3"),
    (HEAT, "--fig-heat"),
    (HEAT_NEGATIVE, "--fig-heat-neg"),
];

/// plotters divides a font's size by 1.24 on its way to SVG.
const FONT_SIZE: f64 = 16.0 * 1.24;

fn text_style(
    size: f64,
    colour: RGBColor,
    horizontal: HPos,
    vertical: VPos,
) -> TextStyle<'static> {
    let font = ("sans-serif", size).into_font();
    TextStyle {
        font,
        color: colour.to_backend_color(),
        pos: Pos::new(horizontal, vertical),
    }
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
    let body = drawn
        .split_once("<svg")
        .and_then(|(_, rest)| rest.split_once('>'))
        .ok_or_else(|| anyhow!("plotters wrote no <svg>"))?
        .1;
    let size = format!("font-size=\"{}\"", FONT_SIZE / 1.24);
    let body = body.replace(&size, "font-size=\"16\"");
    let mut body =
        body.replace(" font-family=\"sans-serif\"", "").replace(" opacity=\"1\"", "");
    for (RGBColor(r, g, b), variable) in VARIABLES {
        let drawn = format!("\"#{r:02X}{g:02X}{b:02X}\"");
        body =
            body.replace(&drawn, &format!("\"var({variable}, #{r:02x}{g:02x}{b:02x})\""));
    }
    // Markdown ends a block of HTML at an empty line.
    let body: Vec<&str> = body.lines().filter(|line| !line.trim().is_empty()).collect();
    Ok(format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-labelledby=\"{id}-title {id}-description\" \
         style=\"max-width: {width}px\">\n<title id=\"{id}-title\">{}</title>\n\
         <desc id=\"{id}-description\">{}</desc>\n{}\n",
        escape(title),
        escape(description),
        body.join("\n")
    ))
}

/// How an axis runs and what it says.
pub struct Axis {
    pub label: &'static str,
    pub range: Range<f64>,
    pub scale: Scale,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    Linear,
    /// Powers of this base, each with a tick, or every other or every fourth if there are many.
    Log(f64),
}

impl Axis {
    pub fn linear(label: &'static str, range: Range<f64>) -> Self {
        Axis { label, range, scale: Scale::Linear }
    }

    pub fn log(label: &'static str, base: f64, range: Range<f64>) -> Self {
        Axis { label, range, scale: Scale::Log(base) }
    }

    fn place(&self, x: f64) -> f64 {
        match self.scale {
            Scale::Linear => x,
            Scale::Log(base) => snap(x.log(base)),
        }
    }

    fn placed_range(&self) -> Range<f64> {
        self.place(self.range.start)..self.place(self.range.end)
    }

    fn ticks(&self) -> usize {
        match self.scale {
            Scale::Linear => 6,
            Scale::Log(_) => {
                let range = self.placed_range();
                let steps = (range.end - range.start).round() as usize;
                match steps {
                    0..=9 => steps + 1,
                    10..=18 => steps / 2 + 1,
                    _ => steps / 4 + 1,
                }
            }
        }
    }

    fn tick(&self, place: f64) -> String {
        let whole = (place - place.round()).abs() < 1e-9;
        match self.scale {
            Scale::Linear => fixed(place, decimals(&self.range)),
            Scale::Log(_) if !whole => String::new(),
            Scale::Log(base) if base == 2.0 && place >= 0.0 => fixed(base.powf(place), 0),
            Scale::Log(base) => {
                let digits = "⁰¹²³⁴⁵⁶⁷⁸⁹";
                let power: String = fixed(place, 0)
                    .chars()
                    .map(|c| {
                        c.to_digit(10).map_or('⁻', |d| {
                            digits.chars().nth(d as usize).unwrap_or(c)
                        })
                    })
                    .collect();
                format!("{base}{power}")
            }
        }
    }
}

/// A quotient of two logarithms misses whole numbers by its last bit, and with them their ticks.
fn snap(power: f64) -> f64 {
    let whole = power.round();
    if (power - whole).abs() < 1e-9 { whole } else { power }
}

fn decimals(range: &Range<f64>) -> usize {
    match range.end - range.start {
        width if width >= 5.0 => 0,
        width if width >= 0.5 => 1,
        _ => 2,
    }
}

/// One line of a chart. Lines are told apart by colour and by dashes.
pub struct Line {
    pub name: String,
    pub colour: RGBColor,
    pub dashed: bool,
    pub points: Vec<(f64, f64)>,
}

/// A place in a chart with a name beside it.
pub struct Spot {
    pub name: String,
    pub place: (f64, f64),
    pub colour: RGBColor,
    /// Where the name stands, seen from the spot.
    pub side: Side,
}

#[derive(Clone, Copy)]
pub enum Side {
    Left,
    Right,
    Below,
}

/// What a chart shows besides its lines.
#[derive(Default)]
pub struct Marks<'a> {
    /// Dots that belong to no line.
    pub dots: &'a [(f64, f64)],
    /// Rings, to be told from the lines that they lie on.
    pub rings: &'a [(f64, f64)],
    pub spots: &'a [Spot],
}

/// A chart of lines, with marks if there are any.
pub fn line_chart(
    area: &Area,
    x: &Axis,
    y: &Axis,
    lines: &[Line],
    Marks { dots, rings, spots }: Marks,
) -> Result<()> {
    let label = text_style(FONT_SIZE, TEXT, HPos::Center, VPos::Center);
    let (legend, plot) = area.split_vertically(legend_height(lines));
    draw_legend(&legend, lines)?;
    let mut chart = ChartBuilder::on(&plot)
        .margin_top(14)
        .margin_right(22)
        .margin_bottom(6)
        .margin_left(6)
        .x_label_area_size(50)
        .y_label_area_size(66)
        .build_cartesian_2d(x.placed_range(), y.placed_range())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(MUTED.mix(0.25))
        .axis_style(MUTED)
        .x_labels(x.ticks())
        .y_labels(y.ticks())
        .x_label_formatter(&|place| x.tick(*place))
        .y_label_formatter(&|place| y.tick(*place))
        .label_style(label.clone())
        .axis_desc_style(label.clone())
        .x_desc(x.label)
        .y_desc(y.label)
        .draw()?;
    chart.draw_series(dots.iter().map(|&(a, b)| {
        Circle::new((x.place(a), y.place(b)), 3, MUTED.mix(0.6).filled())
    }))?;
    for Line { colour, dashed, points, .. } in lines {
        let style = colour.stroke_width(if *dashed { 2 } else { 3 });
        let points = points.iter().map(|&(a, b)| (x.place(a), y.place(b)));
        let points = until_it_leaves(points, &y.placed_range());
        if *dashed {
            chart.draw_series(DashedLineSeries::new(points, 8, 6, style))?;
        } else {
            chart.draw_series(LineSeries::new(points, style))?;
        }
    }
    for Spot { name, place, colour, side } in spots {
        let place = (x.place(place.0), y.place(place.1));
        let (offset, horizontal, vertical) = match side {
            Side::Left => ((-10, 0), HPos::Right, VPos::Center),
            Side::Right => ((10, 0), HPos::Left, VPos::Center),
            Side::Below => ((0, 10), HPos::Center, VPos::Top),
        };
        let style = text_style(FONT_SIZE, TEXT, horizontal, vertical);
        let dot = EmptyElement::at(place)
            + Circle::new((0, 0), 5, colour.filled())
            + Text::new(name.clone(), offset, style);
        chart.draw_series([dot])?;
    }
    chart.draw_series(
        rings.iter().map(|&(a, b)| Circle::new((x.place(a), y.place(b)), 4, TEXT)),
    )?;
    Ok(())
}

/// The points of a line up to where it leaves the range of the y axis, and the point where it does.
fn until_it_leaves(
    points: impl Iterator<Item = (f64, f64)>,
    range: &Range<f64>,
) -> Vec<(f64, f64)> {
    let mut inside: Vec<(f64, f64)> = vec![];
    for (x, y) in points {
        let border = y.clamp(range.start, range.end);
        if border == y {
            inside.push((x, y));
        } else {
            if let Some(&(x0, y0)) = inside.last() {
                inside.push((x0 + (x - x0) * (border - y0) / (y - y0), border));
            }
            break;
        }
    }
    inside
}

const LEGEND_ROW: i32 = 24;

/// Names stand in two columns above the plot, in three if they are short, where they cover no line.
fn legend_columns(lines: &[Line]) -> usize {
    let longest = lines.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    if longest > 12 { 2 } else { 3 }
}

fn legend_height(lines: &[Line]) -> i32 {
    LEGEND_ROW * lines.len().div_ceil(legend_columns(lines)) as i32 + 4
}

fn draw_legend(area: &Area, lines: &[Line]) -> Result<()> {
    let columns = legend_columns(lines);
    let rows = lines.len().div_ceil(columns);
    let width = (area.dim_in_pixel().0 as i32 - 66) / columns as i32;
    for (i, Line { name, colour, dashed, .. }) in lines.iter().enumerate() {
        let left = 66 + width * (i / rows) as i32;
        let middle = LEGEND_ROW / 2 + LEGEND_ROW * (i % rows) as i32;
        let (end, start) = if *dashed { (11, 17) } else { (14, 14) };
        for (a, b) in [(0, end), (start, 28)] {
            let part = [(left + a, middle), (left + b, middle)];
            area.draw(&PathElement::new(part, colour.stroke_width(3)))?;
        }
        let style = text_style(FONT_SIZE, TEXT, HPos::Left, VPos::Center);
        area.draw(&Text::new(name.clone(), (left + 36, middle), style))?;
    }
    Ok(())
}

/// A histogram's bars, `(left edge, density)` each, all `width` wide, with a curve over them.
pub fn histogram(
    area: &Area,
    x: &Axis,
    y: &Axis,
    (width, bars): (f64, &[(f64, f64)]),
    curve: Line,
) -> Result<()> {
    let label = text_style(FONT_SIZE, TEXT, HPos::Center, VPos::Center);
    let mut chart = ChartBuilder::on(area)
        .margin_top(14)
        .margin_right(16)
        .margin_bottom(6)
        .x_label_area_size(50)
        .y_label_area_size(66)
        .build_cartesian_2d(x.placed_range(), y.placed_range())?;
    chart
        .configure_mesh()
        .disable_mesh()
        .axis_style(MUTED)
        .x_labels(5)
        .y_labels(4)
        .x_label_formatter(&|place| x.tick(*place))
        .y_label_formatter(&|place| y.tick(*place))
        .label_style(label.clone())
        .axis_desc_style(label)
        .x_desc(x.label)
        .y_desc(y.label)
        .draw()?;
    chart.draw_series(bars.iter().map(|&(left, density)| {
        Rectangle::new([(left, 0.0), (left + width, density)], BLUE.mix(0.45).filled())
    }))?;
    chart.draw_series(LineSeries::new(curve.points, curve.colour.stroke_width(3)))?;
    Ok(())
}

/// A matrix as coloured cells with their numbers in them.
pub struct HeatMap<'a> {
    /// −∞ is drawn as an empty frame that says so, NaN as one that says 0: what a mask hides.
    pub matrix: &'a DMatrix<f64>,
    pub rows: &'a [&'a str],
    pub columns: &'a [&'a str],
    /// Written in each cell with this many decimals; `None` leaves cells without numbers.
    pub decimals: Option<usize>,
    /// The size of a value that has the full colour.
    pub full: f64,
}

impl<'a> HeatMap<'a> {
    /// Every token of a sentence against every token, with two decimals.
    pub fn of_tokens(matrix: &'a DMatrix<f64>, tokens: &'a [&'a str], full: f64) -> Self {
        HeatMap { matrix, rows: tokens, columns: tokens, decimals: Some(2), full }
    }

    /// A pattern: cells without numbers, and names for the rows alone.
    pub fn pattern(matrix: &'a DMatrix<f64>, rows: &'a [&'a str]) -> Self {
        HeatMap { matrix, rows, columns: &[], decimals: None, full: 1.0 }
    }
}

const CELL: i32 = 58;
const SMALL_CELL: i32 = 26;

impl HeatMap<'_> {
    fn cell(&self) -> i32 {
        if self.decimals.is_some() { CELL } else { SMALL_CELL }
    }

    fn left(&self) -> i32 {
        let longest =
            self.rows.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        12 + 9 * longest as i32
    }

    fn top(&self) -> i32 {
        if self.columns.iter().all(|label| label.is_empty()) { 8 } else { 32 }
    }

    pub fn size(&self) -> (u32, u32) {
        let (rows, columns) = self.matrix.shape();
        let width = self.left() + self.cell() * columns as i32 + 8;
        let height = self.top() + self.cell() * rows as i32 + 8;
        (width as u32, height as u32)
    }

    pub fn draw(&self, area: &Area) -> Result<()> {
        let (left, top, cell) = (self.left(), self.top(), self.cell());
        for (i, j, &x) in entries(self.matrix) {
            let corner = (left + cell * j as i32, top + cell * i as i32);
            let opposite = (corner.0 + cell - 2, corner.1 + cell - 2);
            let middle = (corner.0 + cell / 2 - 1, corner.1 + cell / 2 - 1);
            if x.is_finite() {
                let strength = (x.abs() / self.full).min(1.0);
                let colour = if x < 0.0 { HEAT_NEGATIVE } else { HEAT };
                // A little colour even for 0, so that a cell is a cell.
                let colour = colour.mix(round(0.06 + 0.94 * strength));
                area.draw(&Rectangle::new([corner, opposite], colour.filled()))?;
            } else {
                // Hidden: an empty frame.
                area.draw(&Rectangle::new([corner, opposite], MUTED.mix(0.25)))?;
            }
            if let Some(decimals) = self.decimals {
                let (text, colour) = if x.is_finite() {
                    (fixed(x, decimals), TEXT)
                } else if x.is_nan() {
                    ("0".to_owned(), MUTED)
                } else {
                    ("−∞".to_owned(), MUTED)
                };
                let style = text_style(FONT_SIZE, colour, HPos::Center, VPos::Center);
                area.draw(&Text::new(text, middle, style))?;
            }
        }
        for (i, label) in self.rows.iter().enumerate() {
            let place = (left - 8, top + cell * i as i32 + cell / 2 - 1);
            let style = text_style(FONT_SIZE, TEXT, HPos::Right, VPos::Center);
            area.draw(&Text::new((*label).to_owned(), place, style))?;
        }
        for (j, label) in self.columns.iter().enumerate() {
            let place = (left + cell * j as i32 + cell / 2 - 1, top - 14);
            let style = text_style(FONT_SIZE, TEXT, HPos::Center, VPos::Center);
            area.draw(&Text::new((*label).to_owned(), place, style))?;
        }
        Ok(())
    }
}

/// A box of a diagram, with a line of text in it.
pub struct Block {
    pub corner: (i32, i32),
    pub size: (i32, i32),
    pub text: String,
    pub colour: RGBColor,
}

impl Block {
    pub fn new(
        corner: (i32, i32),
        size: (i32, i32),
        text: &str,
        colour: RGBColor,
    ) -> Self {
        Block { corner, size, text: text.to_owned(), colour }
    }

    pub fn draw(&self, area: &Area) -> Result<()> {
        let ((x, y), (width, height)) = (self.corner, self.size);
        let corners = [(x, y), (x + width, y + height)];
        area.draw(&Rectangle::new(corners, self.colour.mix(0.15).filled()))?;
        area.draw(&Rectangle::new(corners, self.colour.stroke_width(1)))?;
        label(area, (x + width / 2, y + height / 2), &self.text, TEXT)
    }
}

/// Text that begins at a point, at half its height.
pub fn left_aligned() -> TextStyle<'static> {
    text_style(FONT_SIZE, TEXT, HPos::Left, VPos::Center)
}

/// A line of text around a point of a diagram.
pub fn label(area: &Area, place: (i32, i32), text: &str, colour: RGBColor) -> Result<()> {
    let style = text_style(FONT_SIZE, colour, HPos::Center, VPos::Center);
    area.draw(&Text::new(text.to_owned(), place, style))?;
    Ok(())
}

/// An arrow of a diagram, by way of these points.
pub fn arrow(area: &Area, points: &[(i32, i32)], colour: RGBColor) -> Result<()> {
    const HEAD: f64 = 9.0;
    let [.., (x0, y0), (x, y)] = *points else { bail!("an arrow needs two points") };
    area.draw(&PathElement::new(points.to_vec(), colour.stroke_width(2)))?;
    let (dx, dy) = (f64::from(x - x0), f64::from(y - y0));
    let length = dx.hypot(dy);
    let (dx, dy) = (HEAD * dx / length, HEAD * dy / length);
    let at = |along: f64, across: f64| {
        let back = (f64::from(x) - along * dx, f64::from(y) - along * dy);
        ((back.0 - across * dy).round() as i32, (back.1 + across * dx).round() as i32)
    };
    let head = vec![(x, y), at(1.0, 0.5), at(1.0, -0.5)];
    area.draw(&Polygon::new(head, colour.filled()))?;
    Ok(())
}

/// Two decimals, so that an opacity does not depend on the last bit of an `exp`.
fn round(x: f64) -> f64 {
    (100.0 * x).round() / 100.0
}

fn entries(matrix: &DMatrix<f64>) -> impl Iterator<Item = (usize, usize, &f64)> {
    (0..matrix.nrows())
        .flat_map(move |i| (0..matrix.ncols()).map(move |j| (i, j, &matrix[(i, j)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ln 10⁻¹² / ln 10 is not quite −12.
    #[test]
    fn every_power_of_ten_has_its_tick() {
        for power in -20..=20 {
            let axis = Axis::log("", 10.0, 10_f64.powi(power)..10_f64.powi(power + 1));
            let ends = axis.placed_range();
            assert_eq!((ends.start, ends.end), (f64::from(power), f64::from(power + 1)));
        }
    }

    #[test]
    fn a_line_is_cut_at_the_border() {
        let points = [(0.0, 1.0), (1.0, 0.5), (2.0, -0.5), (3.0, 0.5)];
        let cut = until_it_leaves(points.into_iter(), &(0.0..1.0));
        assert_eq!(cut, [(0.0, 1.0), (1.0, 0.5), (1.5, 0.0)]);
    }
}
