//! The command line: what can be asked for, and which module answers.

use crate::project::Project;
use crate::{
    across, bench, build, exercises, generate, gpu, playground, preprocess, prove, serve,
};
use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The commands of "Attention, Built".
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    after_help = "Example:\n  cargo xtask serve        read the book in the browser\n  \
                  cargo xtask test         prove that every line of it runs"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build the book, open it in the browser and rebuild it on every change
    #[command(after_help = "Example:\n  cargo xtask serve --port 8080 --no-open")]
    Serve(serve::Options),

    /// Check the sources, build the book into target/book, check its pages
    #[command(after_help = "Example:\n  cargo xtask build --open\n  \
                      cargo xtask build --formats   and the whole book as EPUB and PDF\n  \
                      cargo xtask build --api --site-url https://OWNER.github.io/NAME \
                      --repository https://github.com/OWNER/NAME")]
    Build(build::Options),

    /// Prove the book, or one chapter: tests, generated files, snippets, pages
    #[command(after_help = "Example:\n  cargo xtask test\n  cargo xtask test softmax")]
    Test(prove::Options),

    /// Compute every figure, table and number that the book shows
    #[command(
        after_help = "Example:\n  cargo xtask generate softmax   after a change to its numbers or figures\n  \
                      cargo xtask generate --check"
    )]
    Generate(generate::Options),

    /// A folder of exercises to practise in, the proof of all of them, and a teacher's table
    #[command(
        after_help = "Example:\n  cargo xtask exercises new ../practice\n  cargo xtask exercises verify\n  \
                      cargo xtask exercises grade ../practice"
    )]
    Exercises(exercises::Options),

    /// Time the crate; what follows `--` goes to the benchmarks
    #[command(
        after_help = "Example:\n  cargo xtask bench -- --quick softmax\n  cargo xtask bench --record complexity\n  \
                      cargo xtask bench --peers --quick"
    )]
    Bench(bench::Options),

    /// The kernels on a GPU: pack them for a machine that has one, time them here, or ask their compiler
    #[command(
        after_help = "Example:\n  cargo xtask gpu pack         everything that a machine with a GPU runs, in one folder\n  \
                      cargo xtask gpu run          the same on this machine, which has one\n  \
                      cargo xtask gpu compile      what the compiler says, which takes none"
    )]
    Gpu(gpu::Options),

    /// Attention over several processes, which MPI connects: the cases on 1 to 8 ranks, and the faults
    #[command(
        after_help = "Example:\n  cargo xtask across\n  cargo xtask across --time 2 --record across.json"
    )]
    Across(across::Options),

    /// Compile the figures that move, and commit that to crates/playground/module
    #[command(
        after_help = "Example:\n  cargo xtask module           after a change to what they compute\n  \
                      cargo xtask module --check"
    )]
    Module(playground::Options),

    /// The preprocessors that mdBook calls while it builds or tests the book
    #[command(
        hide = true,
        after_help = "Example:\n  cargo xtask preprocess katex supports html"
    )]
    Preprocess(preprocess::Options),
}

/// Runs the command that the arguments name. Success is 0, failure is 1 with the reason on standard
/// error, and arguments that make no sense are 2.
#[must_use]
pub fn run() -> ExitCode {
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> Result<()> {
    let project = Project::find()?;
    match command {
        Command::Serve(options) => serve::serve(&project, &options),
        Command::Build(options) => build::build(&project, &options),
        Command::Test(options) => prove::prove(&project, &options),
        Command::Generate(options) => generate::generate(&project, &options),
        Command::Exercises(options) => exercises::exercises(&project, &options),
        Command::Bench(options) => bench::bench(&project, &options),
        Command::Gpu(options) => gpu::gpu(&project, &options),
        Command::Across(options) => across::across(&project, &options),
        Command::Module(options) => playground::module(&project, &options),
        Command::Preprocess(options) => preprocess::preprocess(&project, &options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
