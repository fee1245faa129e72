//! The chapter's page: values, tables and tests.

use super::facts::{Fate, Row, Set, caught_by_none, faults, fewest, lines, rows};
use crate::figures::format::integer;
use crate::output::Page;
use anyhow::{Context as _, Result};

/// The tests that the page shows.
const SHOWN: [&str; 4] = ["future", "chunks", "empty", "hidden_nan"];

pub fn generate(page: &mut Page) -> Result<()> {
    let rows = rows()?;
    page.table_of(
        "projects",
        &rows,
        &[
            ("tests", &|row| row.name.to_owned()),
            ("how many", &|row| integer(row.tests())),
            ("caught", &|row| integer(row.count(Fate::Caught))),
            ("let pass", &|row| integer(row.count(Fate::Passed))),
            ("can't be there", &|row| integer(row.count(Fate::NoInput))),
        ],
    );
    fates(page, &rows);
    meant_for(page, &rows);
    let all: Vec<_> = faults(&rows[0].sets[0]).collect();
    page.value("faults", integer(all.len()));
    let none = caught_by_none(&rows);
    page.value("caught-by-none", integer(none.len()));
    page.value("best-caught", integer(rows[0].count(Fate::Caught)));
    own(page)
}

/// A row for each fault, a column for each set of tests.
fn fates(page: &mut Page, rows: &[Row]) {
    let sign = |fate| match fate {
        Fate::Caught => "caught",
        Fate::Passed => "let pass",
        Fate::NoInput => "–",
    };
    let all: Vec<&str> = faults(&rows[0].sets[0]).collect();
    let cells = |fault: &&str| {
        let fates = rows.iter().map(|row| sign(row.fate(fault)).to_owned());
        [format!("`{fault}`")].into_iter().chain(fates).collect()
    };
    let table: Vec<Vec<String>> = all.iter().map(cells).collect();
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

/// Tests of a few lines.
fn own(page: &mut Page) -> Result<()> {
    let lines = lines()?;
    let order = fewest(&lines);
    let mut number = 0;
    page.table(
        "lines",
        &["", "the test asks", "finds", "together"],
        &order
            .iter()
            .map(|(lines, together)| {
                number += 1;
                vec![
                    integer(number),
                    lines.says.clone(),
                    integer(lines.finds.len()),
                    integer(*together),
                ]
            })
            .collect::<Vec<_>>(),
    );
    page.value("own-tests", integer(lines.len()));
    page.value("enough", integer(order.len()));
    let of = |name: &str| {
        let found = lines.iter().find(|lines| lines.name == name);
        found.with_context(|| format!("lines.py has no {name}"))
    };
    for name in ["shape", "finite", "future", "chunks"] {
        page.value(name, integer(of(name)?.finds.len()));
    }
    for name in SHOWN {
        page.file(format!("{}.txt", name.replace('_', "-")), of(name)?.source.clone());
    }
    Ok(())
}
