//! Charts of lines and bars, on linear and logarithmic axes.

use super::format::fixed;
use super::{Area, BLUE, MUTED, TEXT, text_style};
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::ops::Range;

/// An axis: its scale, its range and its name.
pub struct Axis {
    pub label: &'static str,
    pub range: Range<f64>,
    /// Of a logarithmic axis: its powers have a tick each, or every other or every fourth if there are many.
    base: Option<f64>,
}

impl Axis {
    pub fn linear(label: &'static str, range: Range<f64>) -> Self {
        Axis { label, range, base: None }
    }

    pub fn log(label: &'static str, base: f64, range: Range<f64>) -> Self {
        Axis { label, range, base: Some(base) }
    }

    fn place(&self, x: f64) -> f64 {
        self.base.map_or(x, |base| snap(x.log(base)))
    }

    fn placed_range(&self) -> Range<f64> {
        self.place(self.range.start)..self.place(self.range.end)
    }

    fn ticks(&self) -> usize {
        if self.base.is_none() {
            return 6;
        }
        let range = self.placed_range();
        match (range.end - range.start).round() as usize {
            steps @ 0..=9 => steps + 1,
            steps @ 10..=18 => steps / 2 + 1,
            steps => steps / 4 + 1,
        }
    }

    fn tick(&self, place: f64) -> String {
        let whole = (place - place.round()).abs() < 1e-9;
        match self.base {
            None => fixed(place, decimals(&self.range)),
            Some(_) if !whole => String::new(),
            Some(base) if base == 2.0 && place >= 0.0 => fixed(base.powf(place), 0),
            Some(base) => {
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

impl Line {
    pub fn new(
        name: impl Into<String>,
        colour: RGBColor,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter().collect();
        Line { name: name.into(), colour, dashed: false, points }
    }

    pub fn dashed(self) -> Self {
        Line { dashed: true, ..self }
    }
}

/// A place in a chart with a name beside it.
pub struct Spot {
    pub name: String,
    pub place: (f64, f64),
    pub colour: RGBColor,
    /// The side of the spot on which the name stands.
    pub side: Side,
}

#[derive(Clone, Copy)]
pub enum Side {
    Left,
    Right,
}

impl Side {
    /// The distance in pixels from the spot to its name, and the name's alignment.
    fn of_name(self) -> ((i32, i32), TextStyle<'static>) {
        let (offset, horizontal) = match self {
            Side::Left => ((-10, 0), HPos::Right),
            Side::Right => ((10, 0), HPos::Left),
        };
        (offset, text_style(TEXT, horizontal, VPos::Center))
    }
}

/// Marks of a chart beside its lines.
#[derive(Default)]
pub struct Marks<'a> {
    /// Bars of a histogram, all of this width, with their left edges and their heights.
    pub bars: (f64, &'a [(f64, f64)]),
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
    Marks { bars: (width, bars), dots, rings, spots }: Marks,
) -> Result<()> {
    let label = text_style(TEXT, HPos::Center, VPos::Center);
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
    chart.draw_series(bars.iter().map(|&(left, height)| {
        Rectangle::new([(left, 0.0), (left + width, height)], BLUE.mix(0.45).filled())
    }))?;
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
        let (offset, style) = side.of_name();
        let dot = EmptyElement::at((x.place(place.0), y.place(place.1)))
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
        let style = text_style(TEXT, HPos::Left, VPos::Center);
        area.draw(&Text::new(name.clone(), (left + 36, middle), style))?;
    }
    Ok(())
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
