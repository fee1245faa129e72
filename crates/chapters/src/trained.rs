//! What was trained for the book, in `crates/model/trained`.

use crate::figures::format::{bytes, integer, significant};
use anyhow::Result;
use model::{Characters, Repeated, Run, Trained, Transformer};
use std::path::Path;

/// The files, and the text that the model of the book learned from.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/trained");
const BOOK: &str = include_str!("../../model/trained/book.txt");

/// A training, with its model in `f64`: what is computed from it here has the same digits on every processor.
pub struct Opened {
    pub trained: Trained,
    pub model: Transformer<f64>,
}

/// Opens what was trained under this name.
pub fn open(name: &str) -> Result<Opened> {
    let trained = Trained::open(Path::new(FOLDER), name)?;
    let model = trained.in_f64()?;
    Ok(Opened { trained, model })
}

/// The task of the model of the book.
pub fn book() -> Result<Characters> {
    Characters::of_book(BOOK)
}

/// The task of the models that learn to go on with what stood before.
pub const REPEATED: Repeated = Repeated::OF_BOOK;

/// Where and how long a training ran, as a sentence.
pub fn ran(trained: &Trained) -> String {
    let steps = integer(trained.plan.steps as usize);
    format!(
        "{steps} steps with the seed {} took {}.",
        trained.plan.seed,
        took(&trained.run)
    )
}

/// How long something ran, where and when.
pub fn took(run: &Run) -> String {
    let memory = run.peak_bytes.map_or(String::new(), |peak| {
        format!(", with {} of memory at most", bytes(u128::from(peak)))
    });
    let took = if run.seconds < 100.0 {
        format!("{} seconds", integer(run.seconds.round() as usize))
    } else {
        format!("{} minutes", significant(run.seconds / 60.0, 2))
    };
    let date = run.date.split('T').next().unwrap_or_default();
    format!("{took} on {} threads of {}{memory}, on {date}", run.threads, run.processor)
}
