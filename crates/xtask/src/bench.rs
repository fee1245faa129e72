//! `cargo xtask bench`: times the crate.

use crate::process::{cargo, run};
use crate::project::Project;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

/// What `bench` can be asked for.
#[derive(Debug, Args)]
pub struct Options {
    /// Passed to `cargo bench`, as in `--features cuda`
    #[arg(allow_hyphen_values = true)]
    cargo: Vec<String>,

    /// Passed to the benchmarks, as in `--quick softmax`
    #[arg(last = true)]
    benchmarks: Vec<String>,
}

/// Runs the benchmarks of the crate.
///
/// # Errors
///
/// If there are none, or if they fail.
pub fn bench(project: &Project, options: &Options) -> Result<()> {
    if !has_benchmarks(project)? {
        bail!("`crates/attention` has no benchmark yet; add one under `benches/` to time it");
    }
    run(cargo(project).args(["bench", "--package", "attention"]).args(&options.arguments))
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
