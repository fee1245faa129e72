//! Writes the cases of `suite/`, or answers its questions.
//!
//! - without arguments: writes `suite/cases`
//! - `--answer`: answers each line of the standard input as `suite/FORMAT.md` says, with the crate `attention`
//! - `--answer --fault NAME`: the same with a planted fault

use attention::engine::ByWeights;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use suite::{Fault, Wrong, answer, answer_by_crate, faults, files};

fn main() -> Result<(), Wrong> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => write(),
        ["--answer"] => converse(None),
        ["--answer", "--fault", name] => {
            let fault = faults().find(|fault| fault.name() == name).ok_or_else(|| {
                let names: Vec<_> = faults().map(Fault::name).collect();
                format!("there is no fault {name}, but {}", names.join(", "))
            })?;
            converse(Some(fault))
        }
        _ => Err("usage: suite [--answer [--fault NAME]]".into()),
    }
}

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../suite/cases"))
}

fn write() -> Result<(), Wrong> {
    fs::create_dir_all(folder())?;
    for (name, text) in files()? {
        fs::write(folder().join(name), text)?;
    }
    Ok(())
}

fn converse(fault: Option<Fault>) -> Result<(), Wrong> {
    for line in stdin().lock().lines() {
        let reply = reply(&line?, fault)
            .unwrap_or_else(|error| json!({ "error": error.to_string() }));
        writeln!(stdout(), "{reply}")?;
        stdout().flush()?;
    }
    Ok(())
}

fn reply(line: &str, fault: Option<Fault>) -> Result<Value, Wrong> {
    let question: Value = serde_json::from_str(line)?;
    let operation = question["operation"].as_str().ok_or("`operation` is missing")?;
    let inputs = &question["inputs"];
    let results = match (question["precision"].as_str().unwrap_or("f64"), fault) {
        ("f64", _) | ("f32", Some(_)) => answer(operation, inputs, fault)?,
        ("f32", None) => answer_by_crate::<f32>(operation, inputs, ByWeights)?,
        (precision, _) => return Ok(json!({ "unsupported": format!("no {precision}") })),
    };
    Ok(match results {
        Some(results) => json!({ "results": results }),
        None => json!({ "unsupported": format!("no operation {operation}") }),
    })
}
