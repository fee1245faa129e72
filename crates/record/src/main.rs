//! Takes records: `cargo xtask bench --record` runs it.

use clap::Parser;
use record::take::{Options, add, exit_code, take};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the benchmarks and writes down what they say.
#[derive(Parser)]
struct Arguments {
    /// The benchmarks to run; all, if none is named
    topics: Vec<String>,
    /// Features of the crate to turn on
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
    /// Threads that they may use
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Measure in a hurry, and badly
    #[arg(long)]
    quick: bool,
    /// Measure nothing, and put this record, taken elsewhere, into the folder of its machine
    #[arg(long, value_name = "FILE", exclusive = true)]
    add: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments { topics, features, threads, quick, add: file } = Arguments::parse();
    let root = Path::new(".");
    exit_code(match file {
        Some(file) => add(root, &file),
        None => take(root, &Options { topics, features, threads, quick }),
    })
}
