//! Takes records: `cargo xtask bench --record` runs it.

use clap::Parser;
use record::take::{Options, take};
use std::path::Path;
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
}

fn main() -> ExitCode {
    let Arguments { topics, features, threads, quick } = Arguments::parse();
    match take(Path::new("."), &Options { topics, features, threads, quick }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
