//! The two lines of kernel 1 between which a barrier stands, as the recorded report of a race names them.

use super::source::{constant, has, line};
use crate::output::Page;
use anyhow::{Context, Result, ensure};
use figures::format::integer;

/// A test holds this to what is reported.
const REPORT: &str = include_str!("../../../attention/tests/on_cpu/without_barrier.txt");

pub fn generate(page: &mut Page) -> Result<()> {
    let places = places(REPORT)?;
    let first = *places.first().context("no race is reported")?;
    ensure!(
        places == [first; 2],
        "the chapter says that both reports name the same lines: {places:?}"
    );
    let (written, read) = first;
    page.value("race-write-line", integer(written));
    page.value("race-read-line", integer(read));
    let [write, read] = [line("tiled.cu", written)?, line("tiled.cu", read)?];
    ensure!(
        write.starts_with("`tile[row][column] = ") && read.contains("shared.k[j][c]")
    );
    page.value("race-write", "`tile[row][column] = …`");
    page.value("race-read", read);
    // Of the first listing, "keys 5, 133, 261".
    ensure!(constant("naive.cu", "THREADS")? == 133 - 5);
    has("naive.cu", &["for (int j = threadIdx.x; j < n_k; j += THREADS) {"])
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
