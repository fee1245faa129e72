//! What `suite/others` has: results, and tests of a few lines.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What became of a fault in some tests.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    Caught,
    Passed,
    /// The code under test has no part in which the fault could be.
    NoInput,
}

/// Tests of a project.
#[derive(Deserialize)]
pub struct Set {
    pub repository: String,
    pub commit: String,
    pub meant_for: String,
    pub tests: usize,
    pub faults: BTreeMap<String, Fate>,
}

/// A row of the page's table: sets that go together.
pub struct Row {
    pub name: &'static str,
    pub sets: Vec<Set>,
}

/// The rows and the names of their sets.
const ROWS: [(&str, &[&str]); 10] = [
    ("tiny-llm", &["tiny-llm"]),
    ("LLMs-from-scratch", &["rasbt-mha", "rasbt-swa", "rasbt-kv", "rasbt-pkg"]),
    ("nanochat, tests for a Hopper GPU", &["nanochat-gpu"]),
    ("CS336, assignment 1", &["cs336-1"]),
    ("CS336, assignment 2, tests for a GPU", &["cs336-2-gpu"]),
    ("minGPT", &["mingpt"]),
    ("CS336, assignment 2, tests for a CPU", &["cs336-2"]),
    ("Transformers, common tests: two ways compared", &["transformers-sdpa"]),
    ("nanochat, tests for a CPU", &["nanochat"]),
    ("Transformers, common tests: both ways with the fault", &["transformers-model"]),
];

impl Row {
    pub fn tests(&self) -> usize {
        self.sets.iter().map(|set| set.tests).sum()
    }

    /// What became of a fault in the best of the sets.
    pub fn fate(&self, fault: &str) -> Fate {
        let fates = self.sets.iter().map(|set| set.faults[fault]);
        fates.min().expect("a row has sets")
    }

    pub fn count(&self, fate: Fate) -> usize {
        faults(&self.sets[0]).filter(|fault| self.fate(fault) == fate).count()
    }
}

/// The names of the faults.
pub fn faults(set: &Set) -> impl Iterator<Item = &str> {
    set.faults.keys().map(String::as_str)
}

fn read(file: &str) -> Result<String> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suite/others").join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

pub fn rows() -> Result<Vec<Row>> {
    let mut sets: BTreeMap<String, Set> = serde_json::from_str(&read("results.json")?)?;
    let row = |(name, of): (&'static str, &[&str])| {
        let sets = of.iter().map(|of| sets.remove(*of).with_context(|| (*of).to_owned()));
        Ok(Row { name, sets: sets.collect::<Result<_>>()? })
    };
    ROWS.into_iter().map(row).collect()
}

/// The faults that some of the code under test could have, and none of the tests caught.
pub fn caught_by_none(rows: &[Row]) -> Vec<&str> {
    let none = |fault: &&str| {
        let fates: BTreeSet<_> = rows.iter().map(|row| row.fate(fault)).collect();
        fates.contains(&Fate::Passed) && !fates.contains(&Fate::Caught)
    };
    faults(&rows[0].sets[0]).filter(none).collect()
}

/// The faults that could be in some of the code under test.
pub fn possible(rows: &[Row]) -> BTreeSet<String> {
    let some = |fault: &&str| rows.iter().any(|row| row.fate(fault) != Fate::NoInput);
    faults(&rows[0].sets[0]).filter(some).map(str::to_owned).collect()
}

/// A test of a few lines.
#[derive(Clone)]
pub struct Lines {
    pub name: String,
    /// What it asks, in a sentence.
    pub says: String,
    /// The function.
    pub source: String,
    pub finds: BTreeSet<String>,
}

/// All tests of `lines.py`, in its order.
pub fn lines() -> Result<Vec<Lines>> {
    let (source, found) = (read("lines.py")?, read("lines.json")?);
    let mut found: BTreeMap<String, BTreeSet<String>> = serde_json::from_str(&found)?;
    let mut lines = vec![];
    for function in source.split("\n\n\n") {
        let Some(name) =
            function.strip_prefix("def ").and_then(|rest| rest.split_once('('))
        else {
            continue;
        };
        let Some(finds) = found.remove(name.0) else { continue };
        let says = function.split("\"\"\"").nth(1).context("a test without words")?;
        lines.push(Lines {
            name: name.0.to_owned(),
            says: says.split_whitespace().collect::<Vec<_>>().join(" "),
            source: function.trim_end().to_owned(),
            finds,
        });
    }
    anyhow::ensure!(found.is_empty(), "lines.py has no {:?}", found.keys());
    Ok(lines)
}

/// What the tests of `lines.py` share: inputs, the formula, a comparison.
pub fn setup() -> Result<String> {
    let source = read("lines.py")?;
    let rest = source.split_once("def random(").context("no inputs")?.1;
    let shared = rest.split_once("\n\n\ndef shape(").context("no first test")?.0;
    let shared = shared.replace("\n\n\n", "\n\n");
    Ok(format!("torch.set_default_dtype(torch.float64)\n\ndef random({shared}"))
}

/// Tests in the order in which each adds the most of these faults; with how many all up to there find.
pub fn fewest(lines: &[Lines], faults: &BTreeSet<String>) -> Vec<(Lines, usize)> {
    let (mut order, mut found) = (vec![], BTreeSet::new());
    loop {
        let new = |fault: &&String| faults.contains(*fault);
        let more = |lines: &Lines| lines.finds.difference(&found).filter(new).count();
        // Of several the first.
        let best = lines.iter().rev().max_by_key(|lines| more(lines));
        let Some(best) = best.filter(|best| more(best) > 0) else { return order };
        found.extend(best.finds.intersection(faults).cloned());
        order.push((best.clone(), found.len()));
    }
}
