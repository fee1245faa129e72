//! Numbers as text, rounded to digits that survive another platform's `exp`, and with a true minus sign.

use nalgebra::DMatrix;
use std::borrow::Borrow;

/// With this many decimals: `−0.317`.
pub fn fixed(x: f64, decimals: usize) -> String {
    let text = format!("{x:.decimals$}");
    let is_zero = text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.');
    if is_zero {
        text.trim_start_matches('-').to_owned()
    } else {
        text.replace('-', "−")
    }
}

/// In scientific notation, for maths: `3.2 \times 10^{−5}`.
pub fn scientific(x: f64, decimals: usize) -> String {
    let text = format!("{x:.decimals$e}");
    let (mantissa, exponent) = text.split_once('e').expect("`{:e}` writes an e");
    format!("{mantissa} \\times 10^{{{exponent}}}").replace('-', "−")
}

/// A share as a percentage: `37 %`, with a narrow space that does not break.
pub fn percent(share: f64, decimals: usize) -> String {
    format!("{}\u{202f}%", fixed(100.0 * share, decimals))
}

/// One digit as an index: `₃`.
pub fn subscript(digit: usize) -> char {
    assert!(digit < 10, "{digit} has more than one digit");
    char::from_u32(0x2080 + digit as u32).expect("there are ten such digits")
}

/// With a narrow space between thousands: `16 384`.
pub fn integer(x: usize) -> String {
    let digits = x.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// With this many digits that count, but never more decimals than these: `178`, `17.8`, `0.178`.
pub fn significant(x: f64, digits: i32) -> String {
    let before = if x == 0.0 { 1 } else { x.abs().log10().floor() as i32 + 1 };
    let text = fixed(x, (digits - before).max(0) as usize);
    if text.contains('.') || text.len() < 4 { text } else { integer(x.round() as usize) }
}

/// A time with three digits that count: `1.78\u{202f}ms`.
pub fn duration(seconds: f64) -> String {
    let (unit, size) = match seconds {
        s if s >= 1.0 => ("s", 1.0),
        s if s >= 1e-3 => ("ms", 1e-3),
        s if s >= 1e-6 => ("µs", 1e-6),
        _ => ("ns", 1e-9),
    };
    format!("{}\u{202f}{unit}", significant(seconds / size, 3))
}

/// A number of bytes with three digits that count, or fewer if they say it all: `64\u{202f}MiB`.
pub fn bytes(count: u128) -> String {
    let power = count.max(1).ilog2() / 10;
    let unit = ["bytes", "KiB", "MiB", "GiB", "TiB"][power.min(4) as usize];
    let size = count as f64 / 1024_f64.powi(power.min(4) as i32);
    let text = if size.fract() == 0.0 { fixed(size, 0) } else { significant(size, 3) };
    format!("{text}\u{202f}{unit}")
}

/// A matrix for KaTeX, every entry with this many decimals. −∞ is written as such.
pub fn matrix(m: &DMatrix<f64>, decimals: usize) -> String {
    let entry = |x: f64| match x {
        f64::NEG_INFINITY => "−\\infty".to_owned(),
        x => fixed(x, decimals),
    };
    let rows = m
        .row_iter()
        .map(|row| row.iter().map(|&x| entry(x)).collect::<Vec<_>>().join(" & "));
    format!(
        "\\begin{{pmatrix}} {} \\end{{pmatrix}}",
        rows.collect::<Vec<_>>().join(" \\\\ ")
    )
}

/// A vector for KaTeX in one line: `(0.66, 0.24, 0.10)`.
pub fn tuple(x: impl IntoIterator<Item = impl Borrow<f64>>, decimals: usize) -> String {
    let entries: Vec<_> = x.into_iter().map(|x| fixed(*x.borrow(), decimals)).collect();
    format!("({})", entries.join(",\\; "))
}

/// A Markdown table. The first column and columns of words are aligned to the left, columns of numbers to the right.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
    let is_number = |cell: &str| {
        let start =
            cell.trim_start_matches(['−', '$', '≈', '<', '±', '*', '+', '(', ' ']);
        start.starts_with(|c: char| c.is_ascii_digit())
    };
    let alignment = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column).map(String::as_str));
        let (numbers, words): (Vec<_>, Vec<_>) = cells
            .filter(|cell| !["", "–"].contains(cell))
            .partition(|cell| is_number(cell));
        if column == 0 || numbers.len() <= words.len() { ":--" } else { "--:" }
    };
    let alignment: Vec<_> =
        (0..header.len()).map(|column| alignment(column).to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(&header) + &line(&alignment) + &rows
}
