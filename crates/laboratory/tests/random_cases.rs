//! The programs with products from a library, on the random problems of the crate `attention`, against the definition of attention
//! in plain loops. How many problems, and which: see `random_cases.rs` there.

#[path = "../../attention/tests/common/problems.rs"]
mod problems;

use attention::Float;
use attention::flash::Inputs;
use laboratory::{Exponentials, LibraryFlash};
use problems::{Answers, Data, LARGEST_F32, LARGEST_F64, Problem, run};

fn every_engine<T: Float>(
    problem: &Problem,
    _: &Data<T>,
    inputs: &Inputs<T>,
) -> Answers<T> {
    let all = [Exponentials::OneByOne, Exponentials::Portable, Exponentials::Vector];
    let run = |exponentials| {
        let library = LibraryFlash { tiles: problem.tiles, exponentials };
        (format!("library, {exponentials:?}"), library.forward(inputs), None)
    };
    all.map(run).into()
}

#[test]
fn every_engine_in_f32() {
    run("f32", LARGEST_F32, every_engine::<f32>);
}

#[test]
fn every_engine_in_f64() {
    run("f64", LARGEST_F64, every_engine::<f64>);
}
