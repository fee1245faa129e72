//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Times the crate's attention beside PyTorch and NumPy: same data, same threads, in turns
#[derive(Debug, Parser)]
#[command(name = "peers", args_conflicts_with_subcommands = true)]
pub struct Arguments {
    /// A small grid, measured in a hurry and badly
    #[arg(long)]
    pub quick: bool,
    /// Compare the peers' outputs and gradients, and time nothing
    #[arg(long)]
    pub check_only: bool,
    /// Hold this crate and PyTorch to AVX2 on a processor that has AVX-512: two lengths, beside PyTorch's fused kernel alone
    #[arg(long)]
    pub avx2: bool,
    /// The Python that has what requirements.txt asks for
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// This crate as a peer
    #[command(hide = true)]
    Worker {
        threads: usize,
        #[arg(long)]
        avx2: bool,
    },
}

impl Arguments {
    /// The record that the measurements belong to.
    pub fn topic(&self) -> &'static str {
        if self.avx2 { "peers-avx2" } else { "peers" }
    }
}
