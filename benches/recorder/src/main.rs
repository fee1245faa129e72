//! Takes records: `cargo xtask bench --record` runs it.

use anyhow::Result;
use clap::Parser;
use recorder::{Options, add, take};
use std::path::{Path, PathBuf};

/// Runs the benchmarks and writes down what they say.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
    /// Measure nothing, and put this record, taken elsewhere, into the folder of its machine
    #[arg(long, value_name = "FILE", exclusive = true)]
    add: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Arguments { options, add: file } = Arguments::parse();
    let root = Path::new(".");
    match file {
        Some(file) => add(root, &file),
        None => take(root, &options),
    }
}
