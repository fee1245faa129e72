//! Taking records: the machine, the versions, the date, and what the benchmarks said.

#![deny(missing_docs, unsafe_code)]

mod name;
pub mod rounds;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, TargetKind};
use clap::Args;
use name::measurement_of_benchmark;
use record::here::{machine, now};
use record::{Measurement, Record, SHOWN, Unit};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The choices for a run of the benchmarks.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The benchmarks to run; all, if none is named
    topics: Vec<String>,
    /// Measure in a hurry, and badly
    #[arg(long)]
    quick: bool,
}

/// Packages whose versions every record tells, with those that `attention` depends on.
const MEASURED_WITH: [&str; 3] = ["attention", "nalgebra", "matrixmultiply"];

/// Runs the benchmarks in `benches/` of the project at `root`, and writes a record of each to this machine's folder in
/// `records/`, or in `target/records/` if they were quick, since those are not to be shown.
///
/// Records are written when all have been taken, each whole or not at all.
///
/// # Errors
/// A benchmark is not there, or fails, or measures nothing; then no record changes.
pub fn take(root: &Path, options: &Options) -> Result<()> {
    let workspace = &root.join("benches");
    let metadata = MetadataCommand::new().current_dir(workspace).exec()?;
    let benchmarks = benchmarks(&metadata)?;
    let wrong = options.topics.iter().find(|topic| !benchmarks.contains(topic));
    if let Some(wrong) = wrong {
        bail!("there is no benchmark {wrong}; there are {}", benchmarks.join(", "));
    }
    let chosen =
        |topic: &&String| options.topics.is_empty() || options.topics.contains(topic);
    // The circumstances are one for all, since they are shown together. They are asked for before anything is measured:
    // an error here must not cost the measurements.
    let versions = versions(workspace, &MEASURED_WITH)?;
    let circumstances = circumstances("", versions, features(&metadata)?)?;
    let mut records = vec![];
    for topic in benchmarks.iter().filter(chosen) {
        let measurements = measure(workspace, topic, options)?;
        let record =
            Record { topic: topic.clone(), measurements, ..circumstances.clone() };
        record.check().with_context(|| format!("the record of {topic}"))?;
        records.push(record);
    }
    let mut machine = String::new();
    for record in &records {
        let file;
        (machine, file) = write(root, record, !options.quick)?;
        eprintln!("{file}: {} measurements", record.measurements.len());
    }
    if !options.quick {
        eprintln!("{}", how_to_show(&machine));
    }
    Ok(())
}

/// A record without any measurements: taken now, on this machine.
///
/// # Errors
/// The system does not tell what its processor is.
pub fn circumstances(
    topic: &str,
    versions: BTreeMap<String, String>,
    features: Vec<String>,
) -> Result<Record> {
    Ok(Record {
        topic: topic.to_owned(),
        date: now()?,
        machine: machine()?,
        versions,
        features,
        measurements: vec![],
    })
}

/// Writes a record to its file in the folder of its machine: all of it, or nothing. That folder is in `records/` of the
/// project at `root`, or in `target/records/` if the record `is_complete` not, since such a one is not to be shown.
///
/// Returns the name of the machine's folder, and the file as seen from the root.
///
/// # Errors
/// The folder or the file cannot be written, or a record that is there already cannot be read.
pub fn write(
    root: &Path,
    record: &Record,
    is_complete: bool,
) -> Result<(String, String)> {
    let records = if is_complete { "records" } else { "target/records" };
    let machine = record.machine.folder(&root.join(records))?;
    let file = format!("{records}/{machine}/{}.json", record.topic);
    write_file(&root.join(&file), record)?;
    Ok((machine, file))
}

/// Puts the record in `file`, which may have been taken elsewhere, into the folder of its machine in the project at `root`.
///
/// # Errors
/// It is no record, or cannot be written.
pub fn add(root: &Path, file: &Path) -> Result<()> {
    let record = Record::read(file)?;
    let (machine, file) = write(root, &record, true)?;
    eprintln!("{file} is there\n{}", how_to_show(&machine));
    Ok(())
}

/// Returns instructions for showing the machine of this folder in the book.
#[must_use]
pub fn how_to_show(folder: &str) -> String {
    format!(
        "to show this machine in the book, make this the first line of records/{SHOWN}, then run `cargo xtask generate`:\n\
         {folder}"
    )
}

/// Writes a record to `file`: all of it, or nothing.
///
/// # Errors
/// The file, or the folder around it, cannot be written.
pub fn write_file(file: &Path, record: &Record) -> Result<()> {
    let at = || file.display().to_string();
    fs::create_dir_all(file.parent().unwrap_or(file)).with_context(at)?;
    let unfinished = file.with_extension("unfinished");
    let text = serde_json::to_string_pretty(record)? + "\n";
    fs::write(&unfinished, text).with_context(at)?;
    fs::rename(&unfinished, file).with_context(at)
}

fn benchmarks(metadata: &Metadata) -> Result<Vec<String>> {
    let targets = package(metadata, "topics")?.targets.iter();
    let mut names: Vec<_> = targets
        .filter(|target| target.kind.contains(&TargetKind::Bench))
        .map(|target| target.name.clone())
        .collect();
    names.sort();
    ensure!(!names.is_empty(), "`topics` has no benchmark");
    Ok(names)
}

fn package<'a>(
    metadata: &'a Metadata,
    name: &str,
) -> Result<&'a cargo_metadata::Package> {
    let found = metadata.packages.iter().find(|package| package.name.as_str() == name);
    found.with_context(|| format!("the workspace does not use `{name}`"))
}

/// Runs one benchmark and gathers what it measured: the times that criterion leaves in its folder, and what it prints itself;
/// see [`printed_measurement`].
fn measure(workspace: &Path, topic: &str, options: &Options) -> Result<Vec<Measurement>> {
    let folder = tempfile::tempdir()?; // a fresh one, so that nothing of another day is in it
    let mut cargo =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["bench", "--package", "topics", "--bench", topic]);
    if options.quick {
        cargo.args(["--", "--quick"]);
    }
    cargo.current_dir(workspace).env("CRITERION_HOME", folder.path());
    cargo.env("RAYON_NUM_THREADS", "1");
    let mut child =
        cargo.stdout(Stdio::piped()).spawn().context("cargo could not be started")?;
    let output = BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut measurements = vec![];
    for line in output.lines() {
        let line = line?;
        println!("{line}");
        if let Some((name, bytes)) = printed_measurement(&line) {
            let numbers = (bytes, 0.0); // what is counted has no spread
            measurements.push(measurement_of_benchmark(name, Unit::Bytes, numbers)?);
        }
    }
    let status = child.wait()?;
    ensure!(
        status.success(),
        "the benchmark {topic} failed ({status}); no record was written"
    );
    measurements.extend(timed(folder.path())?);
    ensure!(!measurements.is_empty(), "the benchmark {topic} measured nothing");
    measurements.sort_by(|a, b| {
        (&a.what, &a.dtype, &a.sizes, a.threads)
            .cmp(&(&b.what, &b.dtype, &b.sizes, b.threads))
    });
    Ok(measurements)
}

/// Returns name and number of the measurement in a line `NAME: NUMBER bytes`.
fn printed_measurement(line: &str) -> Option<(&str, f64)> {
    let (name, bytes) = line.strip_suffix(" bytes")?.rsplit_once(": ")?;
    Some((name, bytes.parse().ok()?))
}

/// All that criterion measured below `folder`.
///
/// # Errors
/// A file cannot be read, or a benchmark's name does not say what it is: see [`measurement_of_benchmark`].
fn timed(folder: &Path) -> Result<Vec<Measurement>> {
    let mut found = vec![];
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name == "new") {
            let Benchmark { full_id } = parse(&path.join("benchmark.json"))?;
            let Estimates { median, median_abs_dev } =
                parse(&path.join("estimates.json"))?;
            let seconds = |estimate: Estimate| estimate.point_estimate * 1e-9; // from ns
            let numbers = (seconds(median), seconds(median_abs_dev));
            found.push(measurement_of_benchmark(&full_id, Unit::Seconds, numbers)?);
        } else if path.is_dir() {
            found.extend(timed(&path)?);
        }
    }
    Ok(found)
}

/// Criterion's `benchmark.json`.
#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
}

/// Criterion's `estimates.json`, in nanoseconds.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
    median_abs_dev: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

fn parse<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<T> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

fn rustc() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

/// The versions of the compiler, of `packages` in the workspace around `folder`, of what `attention` depends on, and the commit, if
/// there is one.
///
/// # Errors
/// The workspace does not use one of them, or the compiler does not tell.
pub fn versions(folder: &Path, packages: &[&str]) -> Result<BTreeMap<String, String>> {
    let metadata = &MetadataCommand::new().current_dir(folder).exec()?;
    let output = rustc().arg("--version").output().context("rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let rustc = text.split(' ').nth(1).context("rustc does not tell its version")?;
    let mut versions = BTreeMap::from([("rustc".to_owned(), rustc.to_owned())]);
    for name in packages {
        versions.insert((*name).to_owned(), package(metadata, name)?.version.to_string());
    }
    versions.extend(dependencies(metadata)?);
    if let Some(commit) = commit(folder) {
        versions.insert("commit".to_owned(), commit);
    }
    Ok(versions)
}

/// The crates that `attention` itself depends on, as `Cargo.lock` has them. Those of its tests do not count.
fn dependencies(metadata: &Metadata) -> Result<BTreeMap<String, String>> {
    let attention = &package(metadata, "attention")?.id;
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let node = nodes.into_iter().find(|node| node.id == *attention);
    let is_used = |dependency: &&cargo_metadata::NodeDep| {
        dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
    };
    let used = node.context("nothing is known of `attention`")?.deps.iter();
    let version = |dependency: &cargo_metadata::NodeDep| {
        let package = &metadata[&dependency.pkg];
        (package.name.to_string(), package.version.to_string())
    };
    Ok(used.filter(is_used).map(version).collect())
}

/// Returns the commit that is checked out, if the project is under version control.
fn commit(folder: &Path) -> Option<String> {
    let mut git = Command::new("git");
    let output =
        git.args(["rev-parse", "--short=10", "HEAD"]).current_dir(folder).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The features of `attention` that are on by default.
fn features(metadata: &Metadata) -> Result<Vec<String>> {
    let declared = &package(metadata, "attention")?.features;
    Ok(declared.get("default").cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_read_from_lines() {
        let line = "memory/forward, f32, d = 64/128: 197120 bytes";
        let name = "memory/forward, f32, d = 64/128";
        assert_eq!(printed_measurement(line), Some((name, 197_120.0)));
        assert_eq!(printed_measurement("memory/forward: many bytes"), None);
        assert_eq!(printed_measurement("time: [1.2 ms 1.3 ms 1.4 ms]"), None);
    }
}
