//! `cargo xtask bench`: times the crate, and writes down what the book shows.

use crate::process::{cargo, run};
use crate::project::Project;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

/// What `bench` can be asked for.
#[derive(Debug, Args)]
pub struct Options {
    /// Features of the crate to turn on
    #[arg(long)]
    features: Option<String>,

    /// Only the file benches/NAME.rs
    #[arg(long, value_name = "NAME")]
    bench: Option<String>,

    /// Write what was measured to records/NAME.json, of all benchmarks or of these
    #[arg(long, value_name = "NAME", num_args = 0.., conflicts_with = "bench")]
    record: Option<Vec<String>>,

    /// Measure in a hurry, to see whether recording works, and write to target/records
    #[arg(long, requires = "record")]
    quick: bool,

    /// Passed to the benchmarks
    #[arg(last = true, conflicts_with = "record")]
    arguments: Vec<String>,
}

/// Runs the benchmarks of the crate.
///
/// # Errors
///
/// If there are none, or if they fail.
pub fn bench(project: &Project, options: &Options) -> Result<()> {
    if !has_benchmarks(project)? {
        bail!(
            "`crates/attention` has no benchmark yet; add one under `benches/` to time it"
        );
    }
    if let Some(topics) = &options.record {
        return record(project, options, topics);
    }
    let mut command = cargo(project);
    command.args(["bench", "--package", "attention"]);
    for (name, value) in [("--features", &options.features), ("--bench", &options.bench)]
    {
        if let Some(value) = value {
            command.args([name, value]);
        }
    }
    run(command.arg("--").args(&options.arguments))
}

/// Runs the program that measures and writes down.
fn record(project: &Project, options: &Options, topics: &[String]) -> Result<()> {
    let mut command = cargo(project);
    command.args(["run", "--quiet", "--package", "record", "--"]);
    command.args(topics);
    if let Some(features) = &options.features {
        command.args(["--features", features]);
    }
    if options.quick {
        command.arg("--quick");
    }
    run(&mut command)
}

fn has_benchmarks(project: &Project) -> Result<bool> {
    let output = cargo(project)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("`cargo metadata` could not be started")?;
    if !output.status.success() {
        bail!("`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    Ok(packages
        .filter(|package| package["name"] == "attention")
        .flat_map(|package| package["targets"].as_array().into_iter().flatten())
        .flat_map(|target| target["kind"].as_array().into_iter().flatten())
        .any(|kind| kind == "bench"))
}
