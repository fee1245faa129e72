//! Matrices as coloured cells.

use super::format::fixed;
use super::{Area, HEAT, HEAT_NEGATIVE, MUTED, TEXT, text_style};
use anyhow::Result;
use nalgebra::DMatrix;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

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
    /// Many short rows: cells as low as their numbers.
    pub low: bool,
}

impl<'a> HeatMap<'a> {
    /// Every token of a sentence against every token, with two decimals.
    pub fn of_tokens(matrix: &'a DMatrix<f64>, tokens: &'a [&'a str], full: f64) -> Self {
        HeatMap {
            matrix,
            rows: tokens,
            columns: tokens,
            decimals: Some(2),
            full,
            low: false,
        }
    }

    /// A pattern: cells without numbers, and names for the rows alone.
    pub fn pattern(matrix: &'a DMatrix<f64>, rows: &'a [&'a str]) -> Self {
        HeatMap { matrix, rows, columns: &[], decimals: None, full: 1.0, low: false }
    }
}

const CELL: i32 = 58;
const SMALL_CELL: i32 = 26;

impl HeatMap<'_> {
    /// The width and height of a cell.
    fn cell(&self) -> (i32, i32) {
        let side = if self.decimals.is_some() { CELL } else { SMALL_CELL };
        let label = self.columns.iter().map(|label| label.chars().count()).max();
        let width = side.max(8 + 8 * label.unwrap_or(0) as i32);
        (width, if self.low { SMALL_CELL } else { side })
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
        let width = self.left() + self.cell().0 * columns as i32 + 8;
        let height = self.top() + self.cell().1 * rows as i32 + 8;
        (width as u32, height as u32)
    }

    pub fn draw(&self, area: &Area) -> Result<()> {
        let (left, top, (width, height)) = (self.left(), self.top(), self.cell());
        for (i, j, &x) in entries(self.matrix) {
            let corner = (left + width * j as i32, top + height * i as i32);
            let opposite = (corner.0 + width - 2, corner.1 + height - 2);
            let middle = (corner.0 + width / 2 - 1, corner.1 + height / 2 - 1);
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
                super::label(area, middle, &text, colour)?;
            }
        }
        for (i, label) in self.rows.iter().enumerate() {
            let place = (left - 8, top + height * i as i32 + height / 2 - 1);
            let style = text_style(TEXT, HPos::Right, VPos::Center);
            area.draw(&Text::new((*label).to_owned(), place, style))?;
        }
        for (j, label) in self.columns.iter().enumerate() {
            let place = (left + width * j as i32 + width / 2 - 1, top - 14);
            super::label(area, place, label, TEXT)?;
        }
        Ok(())
    }
}

/// Two decimals, so that an opacity does not depend on the last bit of an `exp`.
fn round(x: f64) -> f64 {
    (100.0 * x).round() / 100.0
}

fn entries(matrix: &DMatrix<f64>) -> impl Iterator<Item = (usize, usize, &f64)> {
    (0..matrix.nrows())
        .flat_map(move |i| (0..matrix.ncols()).map(move |j| (i, j, &matrix[(i, j)])))
}
