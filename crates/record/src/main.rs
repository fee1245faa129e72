//! Takes records: `cargo xtask bench --record` runs it.

use clap::Parser;
use record::take::{Options, add, exit_code, take};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs the benchmarks and writes down what they say.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Measure nothing, and put this record, taken elsewhere, into the folder of its machine
    #[arg(long, value_name = "FILE", exclusive = true)]
    add: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments { options, add: file } = Arguments::parse();
    let root = Path::new(".");
    exit_code(match file {
        Some(file) => add(root, &file),
        None => take(root, &options),
    })
}
