//! Times the crate's attention beside its peers: see README.md. `cargo xtask bench --peers` runs it.

mod arguments;
mod check;
mod data;
mod grid;
mod measured;
mod own_peer;
mod programs;
mod question;
mod raw;
mod report;
mod run;

use anyhow::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use mimalloc::MiMalloc;
use recorder::{how_to_show, write};
use std::path::Path;
use std::time::Instant;

/// Keeps the memory of a matrix for the next one, where the system's allocator may give it back to the system, which then finds and
/// clears each page again. NumPy asks for huge pages, of which there are fewer.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Worker { threads, avx2 }) => own_peer::serve(threads, avx2),
        None => run(&arguments),
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let cells = grid::cells(arguments);
    // Asked for before anything is measured: an error here must not cost the measurements.
    let mut record = report::circumstances(arguments.topic())?;
    let begun = Instant::now();
    let measured = run::run(arguments, &cells)?;
    if arguments.check_only {
        return Ok(());
    }
    record.measurements = measured.cells.iter().flat_map(report::measurements).collect();
    record.versions.extend(measured.versions);
    record.check()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let (machine, file) = write(&root, &record, !arguments.quick)?;
    let minutes = begun.elapsed().as_secs_f64() / 60.0;
    println!("written to {} after {minutes:.1} minutes", root.join(file).display());
    if !arguments.quick {
        println!("{}", how_to_show(&machine));
    }
    Ok(())
}
