//! `cargo xtask generate`: the figures, tables and numbers of the book.

use crate::process::{cargo, run};
use crate::project::Project;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// The options of `generate`.
#[derive(Debug, Default, Args)]
pub struct Options {
    /// The chapters to compute, by the names of their files (softmax, fast, …); without any, all
    #[arg(value_name = "CHAPTER")]
    pub chapters: Vec<String>,

    /// Change nothing; fail if a file would come out different
    #[arg(long)]
    pub check: bool,

    /// Read the records in this folder instead of records/
    #[arg(long, value_name = "FOLDER")]
    pub records: Option<PathBuf>,
}

/// Runs the generator. It draws millions of random numbers, so `Cargo.toml` optimises it in every profile.
///
/// # Errors
///
/// If it fails, or with `check` if a committed file is not what it computes.
pub fn generate(project: &Project, options: &Options) -> Result<()> {
    let mut command = cargo(project);
    command.args(["run", "--package", "chapters", "--"]);
    command.args(&options.chapters);
    if options.check {
        command.arg("--check");
    }
    if let Some(folder) = &options.records {
        command.arg("--records").arg(folder);
    }
    run(&mut command)
}
