//! Attention over several processes, which MPI connects. `cargo xtask across` builds and runs it.
//!
//! ```text
//! mpirun -n 4 across-mpi check               the cases of the crate `across`, on these ranks
//! mpirun -n 4 across-mpi fault KIND          one of the faults below: has to end with an error, in bounded time
//! mpirun -n 4 across-mpi time [--record ROOT]   times, beside one process with as many threads
//! ```
#![forbid(unsafe_code)]

mod faults;
mod over_mpi;
mod time;

use across::{Network, Result, check};
use attention::engine::Tiled;
use attention::flash::Tiles;
use mpi::traits::Communicator;
use over_mpi::OverMpi;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "expected `check`, `fault KIND` or `time [--quick] [--record ROOT]`, where KIND is \
                     leave, die, length or shapes";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(universe) = mpi::initialize() else {
        eprintln!("MPI is in use already");
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    let rank = world.rank();
    let result = match words[..] {
        ["check"] => check_all(&mut OverMpi::new(&world, Duration::from_secs(60))),
        ["fault", kind] => faults::provoke(&world, kind),
        ["time", ref options @ ..] => time::run(&world, options),
        _ => Err(USAGE.to_owned()),
    };
    // Each rank says what it knows, and only then ends: MPI ends all ranks when one ends with an error.
    if let Err(error) = &result {
        eprintln!("rank {rank}: {error}");
        if words.first() == Some(&"time") {
            world.abort(1); // others may wait for this rank, without a deadline between two times
        }
    }
    drop(universe);
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All cases with both engines; rank 0 prints a line for each.
fn check_all(network: &mut OverMpi) -> Result<(), String> {
    let (rank, ranks) = (network.rank(), network.ranks());
    let tiled = Tiled(Tiles { queries: 5, keys: 3 });
    let fast = fast::Flash::new();
    let engines: [(&str, &dyn attention::engine::Engine<f64>); 2] =
        [("tiled", &tiled), ("fast", &fast)];
    let mut cases = 0;
    for (name, engine) in engines {
        let print = |case: &str, difference: f64| {
            cases += 1;
            if rank == 0 {
                println!("{name}, {case}: {difference:.0e}");
            }
        };
        check::all(network, engine, print).map_err(|error| error.to_string())?;
    }
    if rank == 0 {
        println!("{cases} cases on {ranks} ranks");
    }
    Ok(())
}
