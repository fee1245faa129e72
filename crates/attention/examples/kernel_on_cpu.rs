//! Runs a GPU's kernel on this CPU, and compares it with the naive attention of the crate.
//!
//! ```sh
//! cargo run -p attention --features cuda --example kernel_on_cpu -- --kernel tiled --causal
//! cargo run -p attention --features cuda --example kernel_on_cpu -- --kernel tiled --without-barrier 1
//! ```

#[allow(dead_code)] // what only the tests need
#[path = "../tests/on_cpu/mod.rs"]
mod on_cpu;

use attention::cuda::Program;
use clap::Parser;
use on_cpu::{Choices, Data, OnCpu, Sizes, Watch, barriers, bound};
use std::error::Error;
use std::process::ExitCode;

/// Runs a GPU's kernel on this CPU, one fiber for each CUDA thread
#[derive(Debug, Parser)]
struct Options {
    /// naive, tiled, registers, tensor_cores, hopper, or backward
    #[arg(long, default_value = "tiled")]
    kernel: Program,
    /// Queries
    #[arg(long, default_value_t = 100)]
    n_q: usize,
    /// Keys; as many as queries if not given
    #[arg(long)]
    n_k: Option<usize>,
    /// The width of a head
    #[arg(long, default_value_t = 64)]
    d: usize,
    #[arg(long, default_value_t = 1)]
    heads: usize,
    /// Hide the keys after each query
    #[arg(long)]
    causal: bool,
    /// Of the order in which the threads of a block run; 0 is the order of their numbers
    #[arg(long, default_value_t = 0)]
    seed: u32,
    /// Leave out one `__syncthreads()` of the file, counted from 1, and watch for races
    #[arg(long, value_name = "NUMBER")]
    without_barrier: Option<usize>,
    /// Watch for races
    #[arg(long)]
    races: bool,
    /// Watch for reads and writes outside of what is there
    #[arg(long, conflicts_with_all = ["races", "without_barrier"])]
    addresses: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let words = error.to_string(); // of the machine's own, some begin so
            eprintln!(
                "error: {}",
                words.strip_prefix("error: ").unwrap_or(&words).trim_end()
            );
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let program = options.kernel;
    if !program.source().widths.contains(&options.d) {
        return Err(format!(
            "`d` is {} but {} has {:?}",
            options.d,
            program.source().name,
            program.source().widths
        )
        .into());
    }
    let sizes = Sizes {
        heads: options.heads,
        n_q: options.n_q,
        n_k: options.n_k.unwrap_or(options.n_q),
    };
    if [sizes.heads, sizes.n_q, sizes.n_k].contains(&0) {
        return Err("there must be at least one head, one query and one key".into());
    }
    let missing_barrier = match options.without_barrier {
        None => 0,
        Some(number) => {
            let lines = barriers(program);
            let line = number.checked_sub(1).and_then(|index| lines.get(index));
            *line.ok_or_else(|| {
                format!(
                    "{} has {} barriers, counted from 1",
                    program.source().name,
                    lines.len()
                )
            })?
        }
    };
    let watch = match options {
        Options { addresses: true, .. } => Watch::Addresses,
        Options { races: true, .. } | Options { without_barrier: Some(_), .. } => {
            Watch::Races
        }
        _ => Watch::Nothing,
    };
    let on_cpu = OnCpu::compile(program, options.d, options.causal, watch)?;
    let data = Data::new(sizes, options.d, program.source().precision);
    let choices = Choices { seed: options.seed, missing_barrier };
    let errors = data
        .errors(&on_cpu, program, options.causal, choices)
        .map_err(|failure| failure.to_string())?;
    for line in on_cpu::lines(program, &errors) {
        println!("{line}");
    }
    if !errors.iter().all(|&error| error < bound(program)) {
        return Err(
            format!("more than rounding, which is below {:.0e}", bound(program)).into()
        );
    }
    Ok(())
}
