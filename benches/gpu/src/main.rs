//! Times the crate's kernels on a GPU, and writes down what their compiler says: see README.md. `cargo xtask gpu` runs it.

mod arguments;
mod compile;
mod device;
mod expected;
mod grid;
mod measured;
mod report;
mod run;
mod state;
mod torch;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Device => describe_device(),
        Command::Time(options) => run::time(&options),
        Command::Compile(options) => compile::run(&options),
    }
}

/// Prints the GPU to run on and the compiler.
fn describe_device() -> Result<()> {
    let gpu = attention::cuda::Gpu::open()?;
    let device = gpu.device();
    let (major, minor) = device.capability;
    println!(
        "{}: compute capability {major}.{minor}, {:.1} GiB of memory free; driver {}, NVRTC {}",
        device.name,
        gibibytes(gpu::clock::free_memory(&gpu)?),
        report::driver(device),
        report::nvrtc()?,
    );
    Ok(())
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}
