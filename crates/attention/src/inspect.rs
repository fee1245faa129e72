//! Looking inside: how spread out weights are, and a heat map for the terminal.

use crate::Float;
use crate::error::{Result, check_count, check_not_empty};
use crate::sums::RunningSum;
use nalgebra::{DMatrixView, DVector};

/// Returns the entropy of each row of weights, in nats: `−Σ_j p[j] ln p[j]`.
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
/// let entropy = attention::inspect::row_entropy(&dmatrix![1.0_f64, 0.0; 0.5, 0.5])?;
/// assert_eq!(entropy.as_slice(), [0.0, 2.0_f64.ln()]);
/// # Ok::<(), attention::Error>(())
/// ```
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

/// Returns a heat map for the terminal: one line a row, each entry as a shade and a number with two decimals.
///
/// Shades run from the smallest finite entry to the largest in five steps; what is not finite has none. Where such lines would be
/// longer than 100 characters, entries are shades alone and labels are cut short, so that up to 87 columns fit.
///
/// # Errors
/// `matrix` is empty, or there is not one label for each row and column.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let weights = dmatrix![1.0_f64, 0.0; 0.25, 0.75];
/// let map = attention::inspect::heat_map(&weights, &["a", "b"], &["a", "b"])?;
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
    let widest = |texts: &mut dyn Iterator<Item = &str>| texts.map(length).max();
    let label_width = widest(&mut row_labels.iter().copied()).unwrap_or(0);
    let texts = column_labels.iter().copied();
    let width = widest(&mut texts.chain(cells.iter().map(String::as_str))).unwrap_or(0);

    let whole_line = width.saturating_add(2).saturating_mul(columns);
    if whole_line.saturating_add(label_width) <= LONGEST_LINE {
        let cells = |i: usize| cells.row(i).iter().cloned().collect::<Vec<_>>();
        return Ok(lines(row_labels, column_labels, (label_width, 2, width), cells));
    }
    // Shades as wide as there is room for, and a space between them if they are not too narrow for that.
    let label_width = label_width.min(LONGEST_LABEL);
    let room = (LONGEST_LINE - label_width - 1) / columns; // for each column
    let (gap, width) = if room < 3 { (0, room.max(1)) } else { (1, room.min(8) - 1) };
    let label_width = label_width + 1 - gap;
    let cells = |i: usize| {
        let shades =
            matrix.row(i).iter().map(|&x| shade(x, least, most)).collect::<Vec<_>>();
        shades.into_iter().map(|shade| String::from(shade).repeat(width)).collect()
    };
    Ok(lines(row_labels, column_labels, (label_width, gap, width), cells))
}

/// In characters: what a terminal shows without a break, and what is left of a label of a row in a wide map.
const LONGEST_LINE: usize = 100;
const LONGEST_LABEL: usize = 12;

fn length(text: &str) -> usize {
    text.chars().count()
}

/// The lines of a heat map: labels, a gap before each cell, and cells of one width. What is longer is cut.
fn lines(
    row_labels: &[&str],
    column_labels: &[&str],
    (label_width, gap, width): (usize, usize, usize),
    cells: impl Fn(usize) -> Vec<String>,
) -> String {
    // By hand, since the width of `format!` has a limit, beyond which it panics.
    let cut = |text: &str, width: usize| text.chars().take(width).collect::<String>();
    let line = |label: &str, cells: &mut dyn Iterator<Item = &str>| {
        let label = cut(label, label_width);
        let mut line = label.clone() + &" ".repeat(label_width - length(&label));
        for cell in cells {
            let cell = cut(cell, width);
            line += &" ".repeat(gap + width - length(&cell));
            line += &cell;
        }
        line + "\n"
    };
    let mut map = line("", &mut column_labels.iter().copied());
    for (i, label) in row_labels.iter().enumerate() {
        map += &line(label, &mut cells(i).iter().map(String::as_str));
    }
    map
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

    /// 18 tokens, as numbers, would take 150 characters a line.
    #[test]
    fn many_columns_are_shades_alone() {
        let weights = DMatrix::from_fn(18, 18, |i, j| if i == j { 1.0 } else { 0.0 });
        let labels: Vec<String> = (0..18).map(|i| format!("word {i}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let map = heat_map(&weights, &labels, &labels).unwrap();
        let all: Vec<&str> = map.lines().collect();
        assert_eq!(all[0], format!("       {}", " word".repeat(18)));
        assert_eq!(all[1], format!("word 0  ████{}", " ".repeat(17 * 5)));
        assert_eq!(all[18], format!("word 17{} ████", " ".repeat(17 * 5)));
        assert!(all.iter().all(|line| length(line) == 97));
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

    fn longest(map: &str) -> usize {
        map.lines().map(length).max().unwrap()
    }

    /// A running sum of equal terms is off by six parts in a thousand here.
    #[test]
    fn the_entropy_of_many_equal_weights_has_all_its_digits() {
        for n_k in [1024, 1 << 16, 1 << 20] {
            let weights = DMatrix::from_element(1, n_k, 1.0 / n_k as f32);
            let entropy = f64::from(row_entropy(&weights).unwrap()[0]);
            let right = (n_k as f64).ln();
            assert!(
                (entropy / right - 1.0).abs() < 1e-6,
                "{n_k}: {entropy}, not {right}"
            );
        }
    }

    /// A terminal of 100 columns shows each row in one line.
    #[test]
    fn a_heat_map_fits_a_terminal() {
        for (n, label) in
            [(2, "a"), (11, "token"), (18, "token"), (30, "word"), (96, "w"), (400, "x")]
        {
            let weights = DMatrix::from_fn(n, n, |i, j| if i == j { 1.0 } else { 0.0 });
            let labels: Vec<String> = (0..n).map(|i| format!("{label}{i}")).collect();
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            let map = heat_map(&weights, &labels, &labels).unwrap();
            assert_eq!(map.lines().count(), n + 1);
            assert!(longest(&map) <= 100 || n == 400, "{n}: {}", longest(&map));
            assert_eq!(map.matches('█').count() % n, 0, "as many for each of the ones");
            assert!(map.contains('█'));
        }
    }

    /// Labels of any length: `format!` panics at a width beyond 65535.
    #[test]
    fn a_heat_map_takes_long_labels() {
        let long = "x".repeat(70_000);
        let map =
            heat_map(&DMatrix::<f64>::zeros(1, 2), &[&long], &[&long, "b"]).unwrap();
        assert!(longest(&map) <= 100, "{}", longest(&map));
    }
}
