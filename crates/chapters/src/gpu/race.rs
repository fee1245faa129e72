//! The two lines of kernel 1 between which a barrier stands, as the recorded report of a race names them.

use anyhow::Result;
use regex::Regex;

/// A report of a race. A test compares it with what is reported.
pub const REPORT: &str = include_str!("../../../gpu/tests/shown/without_barrier.txt");

/// The numbers of a line that writes and of one that had read there, without a barrier between them: of each race in a report.
pub fn lines(report: &str) -> Result<Vec<[usize; 2]>> {
    let race = Regex::new(r"writes in line (\d+)[^\n]* had read in line (\d+)")?;
    let lines = race.captures_iter(report).map(|found| {
        let (_, [write, read]) = found.extract();
        Ok([write.parse()?, read.parse()?])
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_in_reports() {
        let report = "error: a race: thread 1 writes in line 30 of x.cu what thread 0 had read in line 65,\nand so on\n";
        assert_eq!(lines(report).unwrap(), [[30, 65]]);
        assert_eq!(lines(&report.repeat(2)).unwrap(), [[30, 65]; 2]);
        assert_eq!(lines("error: writes in line x").unwrap(), [[0; 2]; 0]);
    }
}
