//! Looking inside: how spread out weights are, and a heat map for the terminal.

use crate::error::{Result, check_count, check_not_empty};
use crate::simd::Float;
use crate::sums::RunningSum;
use nalgebra::{DMatrixView, DVector};

/// The entropy of each row of weights, in nats: `−Σ_j p[j] ln p[j]`.
///
/// 0 where one key takes all, ln n_k where all keys share alike. Shapes: `weights` (n_q, n_k) → (n_q).
///
/// # Errors
/// `weights` is empty.
///
/// # Source
/// C. E. Shannon, *A Mathematical Theory of Communication* (1948).
///
/// ```
/// use nalgebra::dmatrix;
///
/// let entropy = attention::row_entropy(&dmatrix![1.0_f64, 0.0; 0.5, 0.5])?;
/// assert_eq!(entropy.as_slice(), [0.0, 2.0_f64.ln()]);
/// # Ok::<(), attention::Error>(())
/// ```
// ANCHOR: row_entropy
pub fn row_entropy<'a, T: Float>(
    weights: impl Into<DMatrixView<'a, T>>,
) -> Result<DVector<T>> {
    let weights = weights.into();
    check_not_empty("weights", weights)?;
    let mut entropies = RunningSum::new(weights.nrows());
    for column in weights.column_iter() {
        // p ln p → 0 as p → 0, but 0 · ln 0 is NaN
        let term = |&p: &T| if p.is_zero() { p } else { -p * p.ln() };
        entropies.add(column.as_slice().iter().map(term));
    }
    Ok(entropies.finish()) // (n_q)
}
// ANCHOR_END: row_entropy

/// A heat map for the terminal: one line a row, each entry as a shade and a number with two decimals.
///
/// Shades run from the smallest finite entry to the largest in five steps; what is not finite has none.
///
/// # Errors
/// `matrix` is empty, or there is not one label for each row and column.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let weights = dmatrix![1.0_f64, 0.0; 0.25, 0.75];
/// let map = attention::heat_map(&weights, &["a", "b"], &["a", "b"])?;
/// assert_eq!(map, "        a       b\na  █ 1.00    0.00\nb  ░ 0.25  ▓ 0.75\n");
/// # Ok::<(), attention::Error>(())
/// ```
pub fn heat_map<'a, T: Float>(
    matrix: impl Into<DMatrixView<'a, T>>,
    row_labels: &[&str],
    column_labels: &[&str],
) -> Result<String> {
    let matrix = matrix.into();
    check_not_empty("matrix", matrix)?;
    let (rows, columns) = matrix.shape();
    check_count("row_labels", "entry", row_labels.len(), rows, || {
        format!("`matrix` has {rows} rows")
    })?;
    check_count("column_labels", "entry", column_labels.len(), columns, || {
        format!("`matrix` has {columns} columns")
    })?;

    let finite = || matrix.iter().copied().filter(|x| x.is_finite());
    let least = finite().reduce(|a, b| a.min(b)).unwrap_or(T::zero());
    let most = finite().reduce(|a, b| a.max(b)).unwrap_or(T::zero());
    let cells = matrix.map(|x| format!("{} {x:.2}", shade(x, least, most)));
    let length = |text: &str| text.chars().count();
    let label_width = row_labels.iter().map(|label| length(label)).max().unwrap_or(0);
    let widths = column_labels
        .iter()
        .map(|label| length(label))
        .chain(cells.iter().map(|c| length(c)));
    let width = widths.max().unwrap_or(0);

    // By hand, since the width of `format!` has a limit, beyond which it panics.
    let padding = |text: &str, width: usize| " ".repeat(width - length(text));
    let line = |label: &str, cells: Vec<&str>| {
        let cells = cells.iter().map(|cell| format!("  {}{cell}", padding(cell, width)));
        let cells: String = cells.collect();
        format!("{label}{}{cells}\n", padding(label, label_width))
    };
    let mut map = line("", column_labels.to_vec());
    for (i, label) in row_labels.iter().enumerate() {
        map += &line(label, cells.row(i).iter().map(String::as_str).collect());
    }
    Ok(map)
}

fn shade<T: Float>(x: T, least: T, most: T) -> char {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    if !x.is_finite() || most == least {
        return SHADES[0];
    }
    let part = (x - least) / (most - least); // from 0 to 1
    let steps = [0.1, 0.35, 0.6, 0.85];
    SHADES[steps.into_iter().filter(|&step| part >= nalgebra::convert(step)).count()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{DMatrix, dmatrix};

    #[test]
    fn a_heat_map_lines_up_and_survives_what_is_not_finite() {
        let matrix = dmatrix![-12.5, f64::NEG_INFINITY; f64::NAN, 3.0];
        let map = heat_map(&matrix, &["query", "é"], &["k", "a long key"]).unwrap();
        let widths: Vec<usize> = map.lines().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [29, 29, 29]);
        assert!(map.contains("█ 3.00") && map.contains("-inf") && map.contains("NaN"));
    }

    #[test]
    fn shades_divide_the_range_and_equal_entries_have_none() {
        let shades = |values: &[f64], least, most| -> String {
            values.iter().map(|&x| shade(x, least, most)).collect()
        };
        assert_eq!(shades(&[-1.0, 0.0, 1.0, 1.9, 3.0], -1.0, 3.0), " ░▒▓█");
        assert_eq!(shades(&[f64::NAN, f64::INFINITY], -1.0, 3.0), "  ");
        assert_eq!(shades(&[2.0], 2.0, 2.0), " ");
    }

    #[test]
    fn entropy_lies_between_nothing_and_ln_n() {
        let weights = DMatrix::from_element(3, 8, 0.125);
        let entropy = row_entropy(&weights).unwrap();
        assert!((entropy.add_scalar(-8.0_f64.ln())).amax() < 1e-15);
    }
}
