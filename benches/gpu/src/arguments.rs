//! The command line.

use attention::cuda::Program;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// The crate's kernels: how fast they are on a GPU, and what their compiler says of them
#[derive(Debug, Parser)]
#[command(name = "gpu")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Tell which GPU, driver and compiler there are, or what is missing
    #[command(after_help = "Example:\n  gpu device")]
    Device,

    /// Check and time every kernel on the GPU at hand, beside PyTorch's if a Python has it
    #[command(
        after_help = "Example:\n  gpu time --record gpu.json --python venv/bin/python\n  gpu time --quick --kernels tiled"
    )]
    Time(TimeOptions),

    /// Compile every kernel for every architecture, and write down registers, spills, stack and shared memory
    #[command(
        after_help = "Example:\n  gpu compile --record records/kernels.json\n  gpu compile --check records/kernels.json"
    )]
    Compile(CompileOptions),
}

#[derive(Debug, Args)]
pub struct TimeOptions {
    /// Write what was measured to this file, after each cell
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// The Python that may have PyTorch
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    /// A small grid, measured in a hurry: about a minute
    #[arg(long)]
    pub quick: bool,
    /// Only these kernels, and what is compared with them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = gpu::program)]
    pub kernels: Vec<Program>,
}

#[derive(Debug, Args)]
pub struct CompileOptions {
    /// Write what the compiler says to this file
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Fail if the compiler says something else than this file
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub check: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(["gpu"].into_iter().chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn kernels_are_chosen_by_name() {
        let Command::Time(options) =
            parse("time --kernels tiled,backward").unwrap().command
        else {
            panic!("another command")
        };
        let names: Vec<_> =
            options.kernels.iter().map(|kernel| kernel.source().name).collect();
        assert_eq!(names, ["tiled", "backward"]);
        let error = parse("time --kernels fastest").unwrap_err().to_string();
        assert!(error.contains("the kernels are naive, tiled, "), "{error}");
    }
}
