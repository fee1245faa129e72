//! The two lines of kernel 1 between which a barrier stands, as the recorded report of a race names them.

use super::source::line;
use anyhow::{Context, Result};

/// A test holds this to what is reported.
const REPORT: &str = include_str!("../../../attention/tests/on_cpu/without_barrier.txt");

/// The numbers of a line that writes and of one that had read there, without a barrier between them, and both as code.
pub struct Race {
    pub write_line: usize,
    pub read_line: usize,
    pub write: String,
    pub read: String,
}

/// One for each report.
pub fn races() -> Result<Vec<Race>> {
    let race = |(write_line, read_line)| {
        let code = |number| line("tiled.cu", number);
        Ok(Race {
            write: code(write_line)?,
            read: code(read_line)?,
            write_line,
            read_line,
        })
    };
    places(REPORT)?.into_iter().map(race).collect()
}

/// Lines that are written and read, for each report.
fn places(report: &str) -> Result<Vec<(usize, usize)>> {
    let after = |text: &str, word: &str| -> Result<usize> {
        let (_, rest) = text.split_once(word).with_context(|| format!("no `{word}`"))?;
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits
            .and_then(|digits| digits.parse().ok())
            .with_context(|| format!("no number after `{word}`"))
    };
    report
        .split("error: ")
        .skip(1)
        .map(|one| Ok((after(one, "writes in line ")?, after(one, "had read in line ")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_reports() {
        let report = "error: a race: thread 1 writes in line 30 of x.cu what thread 0 had read in line 65,\nand so on";
        assert_eq!(places(report).unwrap(), [(30, 65)]);
        assert_eq!(places(&report.repeat(2)).unwrap().len(), 2);
        assert!(places("error: writes in line x").is_err());
    }
}
