//! `cargo xtask bench`: times the crate, and writes down what the book shows.

use crate::peers::peers;
use crate::process::{cargo, run};
use crate::project::Project;
use anyhow::Result;
use clap::Args;

/// The options of `bench`.
#[derive(Debug, Args)]
pub struct Options {
    /// Write what was measured to this machine's folder in records/, of all benchmarks or of these
    #[arg(long, value_name = "NAME", num_args = 0..)]
    record: Option<Vec<String>>,

    /// Time the crate beside PyTorch and NumPy; what follows goes to the program that does it
    #[arg(
        long,
        value_name = "ARGUMENTS",
        num_args = 0..,
        allow_hyphen_values = true,
        conflicts_with_all = ["record", "quick"]
    )]
    peers: Option<Vec<String>>,

    /// Measure in a hurry, to see whether recording works, and write to that folder in target/records
    #[arg(long, requires = "record")]
    quick: bool,

    /// Passed to the benchmarks
    #[arg(last = true, conflicts_with_all = ["record", "peers"])]
    arguments: Vec<String>,
}

/// Runs the benchmarks of the crate, alone or beside its peers.
///
/// # Errors
///
/// If they fail.
pub fn bench(project: &Project, options: &Options) -> Result<()> {
    if let Some(topics) = &options.record {
        return record(project, options, topics);
    }
    if let Some(arguments) = &options.peers {
        return peers(project, arguments);
    }
    let mut command = cargo(project);
    command.args(["bench", "--locked", "--manifest-path", "benches/Cargo.toml"]);
    command.args(["--package", "topics"]);
    run(command.arg("--").args(&options.arguments))
}

/// Runs the program that measures and writes down.
fn record(project: &Project, options: &Options, topics: &[String]) -> Result<()> {
    let mut command = cargo(project);
    command.args(["run", "--quiet", "--locked", "--manifest-path", "benches/Cargo.toml"]);
    command.args(["--package", "recorder", "--"]);
    command.args(topics);
    if options.quick {
        command.arg("--quick");
    }
    run(&mut command)
}
