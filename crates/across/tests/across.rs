//! Several ranks, as threads, compute what one process does; and what goes wrong on one of them is an error on all.

use across::{Network, Result, Threads, check};
use attention::engine::{Engine, Tiled};
use attention::flash::Tiles;

fn all_cases(engine: &dyn Engine<f64>) {
    for ranks in 1..=8 {
        let results = Threads::run(ranks, |network| {
            let mut cases = 0;
            check::all(network, engine, |_, _| cases += 1)?;
            Ok(cases)
        });
        let results: Result<Vec<usize>> = results.into_iter().collect();
        let cases = results.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"));
        assert!(cases.iter().all(|&count| count > 100 && count == cases[0]), "{cases:?}");
    }
}

#[test]
fn tiles_to_be_read_compute_what_one_process_does() {
    all_cases(&Tiled(Tiles { queries: 5, keys: 3 }));
}

#[test]
fn the_fast_engine_computes_what_one_process_does() {
    all_cases(&fast::Flash::new());
}
