//! Times the crate's attention beside its peers: see README.md. `cargo xtask bench --peers` runs it.

mod arguments;
mod data;
mod grid;
mod measure;
mod ours;
mod process;
mod reference;
mod report;
mod statistics;
mod table;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Some(Command::Worker { threads }) => ours::serve(threads),
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
    println!("written to {}", file.display());
    Ok(())
}
