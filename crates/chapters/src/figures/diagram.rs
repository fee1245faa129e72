//! Diagrams: boxes, arrows and words at places that the caller chooses, in pixels from the upper left corner.

use super::{Area, TEXT, text_style};
use anyhow::{Result, bail};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

/// A box of a diagram, with a line of text in it.
pub fn text_box(
    area: &Area,
    (x, y): (i32, i32),
    (width, height): (i32, i32),
    text: &str,
    colour: RGBColor,
) -> Result<()> {
    let corners = [(x, y), (x + width, y + height)];
    filled(area, corners, colour.mix(0.15))?;
    framed(area, corners, colour)?;
    label(area, (x + width / 2, y + height / 2), text, TEXT)
}

/// A rectangle in this colour, from one corner to the opposite one.
pub fn filled(area: &Area, corners: [(i32, i32); 2], colour: impl Color) -> Result<()> {
    area.draw(&Rectangle::new(corners, colour.filled()))?;
    Ok(())
}

/// The border of a rectangle.
pub fn framed(
    area: &Area,
    corners: [(i32, i32); 2],
    style: impl Into<ShapeStyle>,
) -> Result<()> {
    area.draw(&Rectangle::new(corners, style))?;
    Ok(())
}

/// A line by way of these points.
pub fn line(
    area: &Area,
    points: &[(i32, i32)],
    style: impl Into<ShapeStyle>,
) -> Result<()> {
    area.draw(&PathElement::new(points.to_vec(), style))?;
    Ok(())
}

/// A small circle.
pub fn ring(area: &Area, place: (i32, i32), colour: RGBColor) -> Result<()> {
    area.draw(&Circle::new(place, 5, colour.stroke_width(2)))?;
    Ok(())
}

/// Text that begins at a point, at half its height.
pub fn text(area: &Area, place: (i32, i32), text: &str) -> Result<()> {
    let style = text_style(TEXT, HPos::Left, VPos::Center);
    area.draw(&Text::new(text.to_owned(), place, style))?;
    Ok(())
}

/// A line of text around a point of a diagram.
pub fn label(area: &Area, place: (i32, i32), text: &str, colour: RGBColor) -> Result<()> {
    let style = text_style(colour, HPos::Center, VPos::Center);
    area.draw(&Text::new(text.to_owned(), place, style))?;
    Ok(())
}

/// An arrow of a diagram, by way of these points.
pub fn arrow(area: &Area, points: &[(i32, i32)], colour: RGBColor) -> Result<()> {
    const HEAD: f64 = 9.0;
    let [.., (x0, y0), (x, y)] = *points else { bail!("an arrow needs two points") };
    line(area, points, colour.stroke_width(2))?;
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
