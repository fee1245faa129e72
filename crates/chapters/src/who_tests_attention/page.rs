//! The chapter's page: values, tables and tests.

use super::facts::{
    Fate, Lines, Row, Set, caught_by_none, faults, fewest, lines, possible, rows, setup,
};
use crate::figures::format::integer;
use crate::output::Page;
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;

/// The tests that the page shows.
const SHOWN: [&str; 5] = ["future", "chunks", "as_formula_heads", "hidden_nan", "empty"];

pub fn generate(page: &mut Page) -> Result<()> {
    let rows = rows()?;
    page.table_of(
        "projects",
        &rows,
        &[
            ("tests", &|row| row.name.to_owned()),
            ("how many", &|row| integer(row.tests())),
            ("caught", &|row| integer(row.count(Fate::Caught))),
            ("of those that apply", &|row| {
                integer(row.count(Fate::Caught) + row.count(Fate::Passed))
            }),
        ],
    );
    let possible = possible(&rows);
    fates(page, &rows, &possible);
    meant_for(page, &rows);
    let all: Vec<_> = faults(&rows[0].sets[0]).collect();
    page.value("faults", integer(all.len()));
    page.value("possible", integer(possible.len()));
    let none = caught_by_none(&rows);
    page.value("caught-by-none", integer(none.len()));
    page.value("best-caught", integer(rows[0].count(Fate::Caught)));
    let of = |name: &str| rows.iter().find(|row| row.name == name).context("no row");
    page.value("on-a-cpu", integer(of("nanochat, tests for a CPU")?.tests()));
    page.value("mingpt", integer(of("minGPT")?.count(Fate::Caught)));
    let both_ways = of("Transformers, common tests: both ways with the fault")?;
    let [caught, passed] = [Fate::Caught, Fate::Passed].map(|fate| both_ways.count(fate));
    page.value(
        "both-ways",
        format!("{} of {}", integer(caught), integer(caught + passed)),
    );
    own(page, &possible)
}

/// A row for each fault that could be in one of the projects, a column for each set of tests.
fn fates(page: &mut Page, rows: &[Row], possible: &BTreeSet<String>) {
    let sign = |fate| match fate {
        Fate::Caught => "caught",
        Fate::Passed => "missed",
        Fate::NoInput => "–",
    };
    let cells = |fault: &String| {
        let fates = rows.iter().map(|row| sign(row.fate(fault)).to_owned());
        [format!("`{fault}`")].into_iter().chain(fates).collect()
    };
    let table: Vec<Vec<String>> = possible.iter().map(cells).collect();
    let header: Vec<_> =
        ["fault"].into_iter().chain(rows.iter().map(|row| row.name)).collect();
    page.table("fates", &header, &table);
}

/// What each set of tests is meant for, and where it is.
fn meant_for(page: &mut Page, rows: &[Row]) {
    let mut list = String::new();
    for row in rows {
        let Set { repository, commit, .. } = &row.sets[0];
        // What isn't a commit is a version, in words.
        let is_commit = commit.chars().all(|c| c.is_ascii_hexdigit());
        let (at, told) = match is_commit {
            true => (format!("/tree/{commit}"), format!("`{}`", &commit[..7])),
            false => (String::new(), commit.clone()),
        };
        let address = format!("https://github.com/{repository}{at}");
        let meant: Vec<_> = row.sets.iter().map(|set| set.meant_for.as_str()).collect();
        list += &format!(
            "- **{}** ([{repository}]({address}), {told}). {}\n",
            row.name,
            meant.join(" ")
        );
    }
    page.file("meant-for.md", list);
}

/// Tests of a few lines, beside the faults that could be in the projects.
fn own(page: &mut Page, possible: &BTreeSet<String>) -> Result<()> {
    let lines = lines()?;
    let order = fewest(&lines, possible);
    let finds = |lines: &Lines| lines.finds.intersection(possible).count();
    page.table_of(
        "lines",
        &order,
        &[
            ("the test asks", &|(lines, _)| lines.says.clone()),
            ("finds", &|(lines, _)| integer(finds(lines))),
            ("together", &|(_, together)| integer(*together)),
        ],
    );
    page.value("own-tests", integer(lines.len()));
    page.value("enough", integer(order.len()));
    let of = |name: &str| {
        let found = lines.iter().find(|lines| lines.name == name);
        found.with_context(|| format!("lines.py has no {name}"))
    };
    for name in ["shape", "finite", "future", "chunks"] {
        page.value(name, integer(finds(of(name)?)));
    }
    page.value("four", integer(order[3].1));
    page.file("setup.txt", setup()?);
    for name in SHOWN {
        page.file(format!("{}.txt", name.replace('_', "-")), of(name)?.source.clone());
    }
    Ok(())
}
