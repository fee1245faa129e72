//! Faults that people make in attention, planted one at a time, and the cases of `suite/` that tell them apart.
//!
//! `suite/FORMAT.md` describes the files. Their right results are computed by the crate `attention`, and the wrong ones by a plain program
//! in which one fault is switched on. `cargo run -p suite` writes them.

#![deny(missing_docs, unsafe_code)]

mod by_crate; // the operations as the crate computes them
mod cases; // their inputs
mod files; // the cases as JSON
mod plain; // the operations with a fault
mod values; // numbers and arrays in JSON

pub use cases::{Case, cases};
pub use files::files;
pub use laboratory::Fault;
pub use values::{keeps_bits, off, off_by};

use attention::engine::{ByWeights, Engine};
use fast::Float;
use serde_json::{Map, Value};
use std::sync::Arc;
use values::Inputs;

/// What an operation returns, by name.
pub type Results = Map<String, Value>;

/// What is wrong with a question.
pub type Wrong = Box<dyn std::error::Error>;

fn results<const N: usize>(named: [(&str, Value); N]) -> Results {
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the faults that [`answer`] can have: those of the book's list.
pub fn faults() -> impl Iterator<Item = Fault> {
    Fault::ALL.iter().copied().filter(|fault| fault.number().is_some())
}

/// Returns the results of an operation: those of the crate `attention`, or with a fault those of a program that has it. `None` means
/// that there is no such operation.
///
/// # Errors
/// An input is missing, can't be read, or doesn't fit the others, or the fault is none of [`faults`].
///
/// ```
/// use suite::{Fault, answer};
/// use serde_json::json;
///
/// let inputs = json!({
///     "q": [[[0.0], [0.0]]],
///     "k": [[[0.0], [0.0], [0.0]]],
///     "v": [[[1.0], [2.0], [6.0]]],
///     "causal": true,
/// });
/// let right = answer("attention", &inputs, None)?.unwrap();
/// assert_eq!(right["output"], json!([[[1.5], [3.0]]]));
/// let wrong = answer("attention", &inputs, Some(Fault::CausalTopLeft))?.unwrap();
/// assert_eq!(wrong["output"], json!([[[1.0], [1.5]]]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn answer(
    operation: &str,
    inputs: &Value,
    fault: Option<Fault>,
) -> Result<Option<Results>, Wrong> {
    match fault {
        None => answer_by_crate::<f64>(operation, inputs, ByWeights),
        Some(fault) if fault.number().is_none() => {
            Err(format!("the suite has no fault {}", fault.name()).into())
        }
        Some(_) => answer_with(fault, operation, inputs),
    }
}

/// Returns the results of an operation as the crate computes them in a precision, with one of its engines where there is a choice.
///
/// # Errors
/// As [`answer`].
///
/// ```
/// use fast::Flash;
/// use suite::answer_by_crate;
/// use serde_json::json;
///
/// let inputs = json!({ "q": [[[0.0]]], "k": [[[0.0], [0.0]]], "v": [[[1.0], [2.0]]] });
/// let results = answer_by_crate::<f32>("attention", &inputs, Flash::new())?.unwrap();
/// assert_eq!(results["output"], json!([[[1.5]]]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn answer_by_crate<T: Float>(
    operation: &str,
    inputs: &Value,
    engine: impl Engine<T> + 'static,
) -> Result<Option<Results>, Wrong> {
    let engine: Arc<dyn Engine<T>> = Arc::new(engine);
    by_crate::answer::<T>(operation, Inputs(inputs), &engine)
}

/// Returns the results of an operation as the plain program without a fault computes them.
///
/// # Errors
/// As [`answer`].
///
/// ```
/// use suite::answer_plainly;
///
/// let slopes = answer_plainly("alibi_slopes", &serde_json::json!({ "heads": 1 }))?.unwrap();
/// assert_eq!(slopes["output"], serde_json::json!([0.00390625])); // 2⁻⁸
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn answer_plainly(operation: &str, inputs: &Value) -> Result<Option<Results>, Wrong> {
    answer_with(None, operation, inputs)
}

/// The answer of the plain program, of inputs that the crate has checked.
fn answer_with(
    fault: Option<Fault>,
    operation: &str,
    inputs: &Value,
) -> Result<Option<Results>, Wrong> {
    let mut once = inputs.clone();
    if let Some(repeats) = once.get_mut("repeats") {
        *repeats = 1.into();
    }
    answer_by_crate::<f64>(operation, &once, ByWeights)?;
    plain::Program(fault).answer(operation, Inputs(inputs))
}
