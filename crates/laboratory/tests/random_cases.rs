//! The programs with products from a library, on the random problems of the crate `attention`, against the definition of attention
//! in plain loops. The number of problems and their seed are set as in `random_cases.rs` there.

use attention::Float;
use attention::flash::Inputs;
use attention::testing::random_problems::{
    Answers, Data, LARGEST_F32, LARGEST_F64, Problem, run,
};
use laboratory::{Exponentials, LibraryFlash};

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
