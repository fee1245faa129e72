//! `cargo exercises …`, in a reader's folder.

use clap::Parser;
use exercises::practice::{Command, practise};
use std::process::ExitCode;

/// The exercises of "Attention, Built"
#[derive(Debug, Parser)]
#[command(name = "cargo exercises", bin_name = "cargo exercises")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

fn main() -> ExitCode {
    // Someone who reads only the first lines, as `head` does, ends the program without a word.
    sigpipe::reset();
    match practise(Cli::parse().command.unwrap_or(Command::List)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
