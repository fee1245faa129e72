//! The programs with products from a library, on the random problems of the crate `attention`, against the definition of attention.
//! `RANDOM_CASES` and `RANDOM_SEED` say how many problems there are, and the first one's seed.

use fast::Float;
use laboratory::{Exponentials, LibraryFlash};

fn every_engine<T: Float>() {
    crate::support::random_problems::run::<T>(|problem, _, inputs| {
        let all = [Exponentials::OneByOne, Exponentials::Portable, Exponentials::Vector];
        let run = |exponentials| {
            let library = LibraryFlash { tiles: problem.tiles, exponentials };
            (format!("library, {exponentials:?}"), library.forward(inputs), None)
        };
        all.map(run).into()
    });
}

#[test]
fn every_engine_in_f32() {
    every_engine::<f32>();
}

#[test]
fn every_engine_in_f64() {
    every_engine::<f64>();
}
