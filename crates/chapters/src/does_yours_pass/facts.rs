//! What the files of `suite/` say.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A planted fault.
pub struct Fault {
    /// Its number in the list.
    pub number: u64,
    /// The cases that name it.
    pub cases: usize,
}

/// The suite.
pub struct Suite {
    /// What the faults of each number are about, from 1 on.
    pub groups: Vec<String>,
    pub faults: Vec<Fault>,
    /// The cases by their names, with the faults that each tells apart.
    pub cases: BTreeMap<String, BTreeSet<String>>,
    /// The operation of each case.
    operations: BTreeMap<String, String>,
    /// The faults that cases of the operation `attention` show.
    pub of_attention: BTreeSet<String>,
}

/// What a candidate got.
pub struct Report {
    /// The name of its file.
    pub candidate: String,
    /// The framework and its version.
    pub framework: String,
    pub precision: String,
    pub passed: u64,
    pub failed: u64,
    pub unsupported: u64,
    pub faults: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suite")
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

/// The JSON files of a folder, by name.
fn files(name: &str) -> Result<BTreeMap<String, Value>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder().join(name))? {
        let path = entry?.path();
        let name = path.file_stem().context("a file without a name")?;
        files.insert(name.to_string_lossy().into_owned(), read(&path)?);
    }
    Ok(files)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads the cases.
pub fn suite() -> Result<Suite> {
    let mut files = files("cases")?;
    let named = files.remove("faults").context("no faults.json")?;
    let mut cases = BTreeMap::new();
    let (mut operations, mut of_attention) = (BTreeMap::new(), BTreeSet::new());
    for (operation, file) in &files {
        for case in file["cases"].as_array().context("a file without cases")? {
            let faults = case["faults"].as_array().context("a case without faults")?;
            let faults: BTreeSet<_> =
                faults.iter().map(|fault| text(&fault["fault"])).collect();
            if operation == "attention" {
                of_attention.extend(faults.clone());
            }
            cases.insert(text(&case["name"]), faults);
            operations.insert(text(&case["name"]), operation.clone());
        }
    }
    let faults = named["faults"].as_object().context("no faults")?;
    let fault = |(name, fault): (&String, &Value)| Fault {
        number: fault["number"].as_u64().unwrap_or_default(),
        cases: cases
            .values()
            .filter(|named: &&BTreeSet<String>| named.contains(name))
            .count(),
    };
    let groups = named["groups"].as_array().context("no groups")?;
    let groups = groups.iter().map(text).collect();
    let faults = faults.iter().map(fault).collect();
    Ok(Suite { groups, faults, cases, operations, of_attention })
}

impl Suite {
    /// The names of an operation's cases.
    pub fn cases_of(&self, operation: &str) -> Vec<&str> {
        let of = self.operations.iter().filter(|(_, of)| *of == operation);
        of.map(|(name, _)| name.as_str()).collect()
    }

    /// How many faults at least one of these cases shows.
    pub fn shown_by(&self, cases: &[&str]) -> usize {
        let shown: BTreeSet<_> =
            cases.iter().flat_map(|case| &self.cases[*case]).collect();
        shown.len()
    }
}

/// The example of `suite/README.md`: a program in Python, what the suite says of it, then of its other faults, and the program without any.
pub fn example() -> Result<[String; 4]> {
    let readme = fs::read_to_string(folder().join("README.md"))?;
    let block = |language: &str, number: usize| {
        let rest = readme.split(&format!("```{language}\n")).nth(number);
        let block = rest.and_then(|rest| rest.split("```").next());
        block.map(str::to_owned).with_context(|| {
            format!("suite/README.md has no block {number} of {language}")
        })
    };
    Ok([block("python", 1)?, block("text", 1)?, block("text", 2)?, block("python", 2)?])
}

/// How many cases pass in the example of `suite/README.md`: after the mask's corner is mended, and after all is.
pub fn passes() -> Result<[String; 2]> {
    let readme = fs::read_to_string(folder().join("README.md"))?;
    let passes = |end: &str| {
        let line = readme
            .lines()
            .find(|line| line.ends_with(end) && line.contains(" cases pass, "));
        let count = line.and_then(|line| line.trim_start().split(' ').next());
        count
            .map(str::to_owned)
            .with_context(|| format!("suite/README.md has no line with {end}"))
    };
    Ok([passes("faults found: 2; failed otherwise: 2")?, passes("faults found: 0")?])
}

/// Reads what the candidates got.
pub fn reports() -> Result<Vec<Report>> {
    let report = |(name, report): (String, Value)| {
        let count = |what: &str| report["counts"][what].as_u64().unwrap_or_default();
        let versions = report["versions"].as_object().context("no versions")?;
        // The framework itself comes last, behind Python or candle-core.
        let framework = versions.iter().rfind(|(name, _)| *name != "python");
        let (framework, version) = framework.context("no framework")?;
        let faults = report["faults"].as_array().context("no faults")?;
        Ok(Report {
            candidate: name,
            framework: format!("{framework} {}", text(version)),
            precision: text(&report["precision"]),
            passed: count("passed"),
            failed: count("fault") + count("wrong") + count("broken"),
            unsupported: count("unsupported") + count("untried"),
            faults: faults.iter().map(|fault| text(&fault["fault"])).collect(),
        })
    };
    files("results")?.into_iter().map(report).collect()
}
