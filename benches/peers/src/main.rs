//! Times the crate's attention beside its peers: see README.md. `cargo xtask bench --peers` runs it.

mod arguments;
mod data;
mod grid;
mod measure;
mod measured;
mod ours;
mod process;
mod reference;
mod report;
mod table;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use mimalloc::MiMalloc;
use record::take::how_to_show;
use std::process::ExitCode;
use std::time::Instant;

/// Keeps the memory of a matrix for the next one, where the system's allocator may give it back to the system, which then finds and
/// clears each page anew. NumPy asks for huge pages, of which there are fewer.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Some(Command::Worker { threads, avx2 }) => ours::serve(threads, avx2),
        None => run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let cells = arguments.cells()?;
    if arguments.list {
        for cell in &cells {
            let names: Vec<_> = cell.kernels.iter().map(|kernel| kernel.name()).collect();
            println!("{}: {}", cell.name(), names.join(", "));
        }
        return Ok(());
    }
    // Asked for before anything is measured: an error here must not cost the measurements.
    let circumstances = report::circumstances()?;
    let begun = Instant::now();
    let measured = measure::run(arguments, &cells)?;
    if arguments.check_only {
        println!("{}", table::checks(&measured.cells));
        return Ok(());
    }
    println!("{}", table::summary(&measured.cells));
    for warning in &measured.warnings {
        eprintln!("warning: {warning}");
    }
    let file = report::write(arguments, circumstances, &measured)?;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!("written to {} after {minutes:.1} minutes", file.display());
    if let (true, Some(folder)) = (arguments.is_complete(), file.parent())
        && let Some(name) = folder.file_name().and_then(|name| name.to_str())
    {
        println!("{}", how_to_show(name));
    }
    Ok(())
}
