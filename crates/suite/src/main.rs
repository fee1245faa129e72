//! Writes the cases of `suite/`, or answers its questions.
//!
//! - without arguments: writes `suite/cases`
//! - `--check`: compares instead, and fails where a file isn't what would be written
//! - `--answer`: answers each line of the standard input as `suite/FORMAT.md` says, with the crate `attention`
//! - `--answer --fault NAME`: the same with a planted fault

use attention::engine::ByWeights;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;
use suite::{Fault, Wrong, answer, answer_by_crate, files, off_by};

fn main() -> Result<(), Wrong> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => write(),
        ["--check"] => check(),
        ["--answer"] => converse(None),
        ["--answer", "--fault", name] => match Fault::named(name) {
            Some(fault) => converse(Some(fault)),
            None => {
                let names: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
                Err(format!("there is no fault {name}, but {}", names.join(", ")).into())
            }
        },
        _ => Err("usage: suite [--check | --answer [--fault NAME]]".into()),
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

fn check() -> Result<(), Wrong> {
    for (name, text) in files()? {
        let committed = fs::read_to_string(folder().join(&name))?;
        let [given, right] =
            [committed, text].map(|text| serde_json::from_str::<Value>(&text));
        if !same(&given?, &right?) {
            return Err(
                format!("suite/cases/{name} isn't what the generator writes").into()
            );
        }
    }
    Ok(())
}

/// Whether two values are the same but for the last digits of numbers.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b);
            a.len() == b.len()
                && pairs.into_iter().all(|((m, x), (n, y))| m == n && same(x, y))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y))
        }
        (Value::Number(_), Value::Number(_)) => off_by(a, b) <= 1e-12,
        _ => a == b,
    }
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
