//! Times the crate's kernels on a GPU, and writes down what their compiler says: see README.md. `cargo xtask gpu` runs it.

mod arguments;
mod compile;
mod grid;
mod measure;
mod measured;
mod ours;
mod reference;
mod report;
mod table;
mod torch;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Device => device(),
        Command::Time(options) => measure::time(&options),
        Command::Compile(options) => compile::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What there is to run on, and to compile with.
fn device() -> Result<()> {
    let gpu = attention::cuda::Gpu::open()?;
    let device = gpu.device();
    let (major, minor) = device.capability;
    println!(
        "{}: compute capability {major}.{minor}, {} multiprocessors, {:.1} GiB, {:.1} of them free; driver {}, NVRTC {}",
        device.name,
        device.multiprocessors,
        gibibytes(device.memory),
        gibibytes(gpu.free_memory()?),
        report::driver(device),
        report::nvrtc()?,
    );
    Ok(())
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
