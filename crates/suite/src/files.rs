//! The suite's files: cases with their results and faults, as JSON that is pleasant to compare.

use super::values::{keeps_bits, off, off_by};
use super::{Case, Fault, Results, Wrong, answer, answer_plainly, cases, faults};
use half::{bf16, f16};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// How far a result may be off, by the precision in which it is computed.
const TOLERANCES: [(&str, f64); 4] =
    [("f64", 1e-12), ("f32", 1e-5), ("bf16", 2e-2), ("f16", 4e-3)];

/// A fault changes results by more than this times the tolerance, or by less than the tolerance divided by this.
const CLEARLY: f64 = 4.0;

/// Digits of a result, so few that the last bit of a platform's exponential makes no difference.
const DIGITS: usize = 15;

/// Returns the suite's files: names and texts.
///
/// # Errors
/// A case's inputs can't be read, or a fault changes a result, but too little to be told.
///
/// ```
/// let files = suite::files()?;
/// assert!(files["faults.json"].contains("causal-top-left"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn files() -> Result<BTreeMap<String, String>, Wrong> {
    let mut operations: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for case in cases() {
        let entry = entry(&case).map_err(|error| format!("{}: {error}", case.name))?;
        operations.entry(case.operation).or_default().push(entry);
    }
    let mut files = BTreeMap::new();
    for (operation, cases) in operations {
        let file = json!({ "version": 1, "operation": operation, "cases": cases });
        files.insert(format!("{operation}.json"), text(&file));
    }
    let fault = |fault: Fault| {
        let mut entry = json!({ "number": fault.number(), "words": fault.words() });
        if let Some(source) = fault.source() {
            entry["source"] = format!("https://github.com/{source}").into();
        }
        (fault.name().to_owned(), entry)
    };
    let faults: Map<_, _> = faults().map(fault).collect();
    let file = json!({ "version": 1, "groups": Fault::GROUPS, "faults": faults });
    files.insert("faults.json".to_owned(), text(&file));
    Ok(files)
}

/// A case as it stands in a file.
fn entry(case: &Case) -> Result<Value, Wrong> {
    let given = |inputs, fault| {
        let results = answer(case.operation, inputs, fault)?;
        results.ok_or_else(|| Wrong::from("there is no such operation"))
    };
    // The crate drops weights by chance. The plain program goes through all draws.
    let right = match case.inputs["training"] == true {
        true => answer_plainly(case.operation, &case.inputs)?.unwrap_or_default(),
        false => given(&case.inputs, None)?,
    };
    let same_bits = |fault: Option<Fault>| {
        keeps_bits(&case.inputs, &case.same_bits, |inputs| {
            let results = match fault {
                None => answer_plainly(case.operation, inputs)?,
                fault => answer(case.operation, inputs, fault)?,
            };
            Ok::<_, Wrong>(results.unwrap_or_default()["output"].clone())
        })
    };
    if !case.same_bits.is_empty() && !same_bits(None)? {
        return Err("the plain program doesn't keep the bits".into());
    }
    let mut told = vec![];
    let mut changes = vec![]; // by each fault
    for fault in faults() {
        let wrong = given(&case.inputs, Some(fault))?;
        let by = off(&wrong, &right);
        if by <= TOLERANCES[0].1 {
            // No result changes, but perhaps bits do.
            if !same_bits(Some(fault))? {
                told.push(json!({ "fault": fault.name(), "results": {} }));
            }
            continue;
        }
        changes.push(by);
        let changed =
            |name: &str, value: &Value| off_by(value, &right[name]) > TOLERANCES[0].1;
        let changed: Results =
            wrong.into_iter().filter(|(name, value)| changed(name, value)).collect();
        told.push(json!({ "fault": fault.name(), "results": rounded(changed.into()) }));
    }
    let mut tolerance = Map::new();
    for (precision, of_precision) in TOLERANCES {
        let own = case.tolerance.iter().find(|own| own.0 == precision);
        let most = own.map_or(of_precision, |own| own.1);
        if !holds(&case.inputs, precision) {
            continue;
        }
        // In a lower precision a fault may also change so little that it can't be seen.
        let unseen = |by: f64| precision != "f64" && by * CLEARLY < most;
        match changes.iter().find(|&&by| by <= CLEARLY * most && !unseen(by)) {
            None => tolerance.insert(precision.to_owned(), most.into()),
            Some(by) if precision == "f64" => {
                return Err(format!("a fault changes a result by only {by}").into());
            }
            Some(_) => None,
        };
    }
    let mut entry = json!({
        "name": case.name,
        "says": case.says,
        "inputs": case.inputs,
        "results": rounded(right.into()),
        "tolerance": tolerance,
        "faults": told,
    });
    if !case.same_bits.is_empty() {
        entry["same_bits"] = case.same_bits.clone().into();
    }
    Ok(entry)
}

/// Inputs that are no arrays of the precision in which a candidate computes.
const SETTINGS: [&str; 7] =
    ["positions", "base", "dropout", "repeats", "heads", "window", "padding"];

/// Whether a precision holds the arrays exactly.
fn holds(inputs: &Value, precision: &str) -> bool {
    match inputs {
        Value::Array(list) => list.iter().all(|value| holds(value, precision)),
        Value::Object(map) => map.iter().all(|(name, value)| {
            SETTINGS.contains(&name.as_str()) || holds(value, precision)
        }),
        _ => inputs.as_f64().is_none_or(|x| match precision {
            "f32" => f64::from(x as f32) == x,
            "bf16" => bf16::from_f64(x).to_f64() == x,
            "f16" => f16::from_f64(x).to_f64() == x,
            _ => true,
        }),
    }
}

/// The same with numbers of a few digits.
fn rounded(value: Value) -> Value {
    match value {
        Value::Array(list) => list.into_iter().map(rounded).collect(),
        Value::Object(map) => {
            map.into_iter().map(|(name, value)| (name, rounded(value))).collect()
        }
        Value::Number(x) => {
            let digits = format!("{:.*e}", DIGITS - 1, x.as_f64().unwrap_or(f64::NAN));
            digits.parse::<f64>().unwrap_or(f64::NAN).into()
        }
        _ => value,
    }
}

/// What comes first in an object; other names follow in the order of the alphabet.
const ORDER: [&str; 27] = [
    "version",
    "operation",
    "cases",
    "name",
    "says",
    "inputs",
    "same_bits",
    "fault",
    "results",
    "tolerance",
    "faults",
    "number",
    "words",
    "source",
    "x",
    "q",
    "k",
    "v",
    "d_output",
    "w_q",
    "w_k",
    "w_v",
    "w_o",
    "outputs",
    "output",
    "f64",
    "f32",
];

/// A line is at most so long, if it is an array or an object that could be broken.
const WIDTH: usize = 110;

/// Members of an array that are at most so long share a line.
const SHORT: usize = 20;

/// JSON in which short arrays and objects are on one line.
fn text(value: &Value) -> String {
    let mut text = String::new();
    write(value, 0, 0, &mut text);
    text.push('\n');
    text
}

/// Writes a value that begins in the column `column` of a line that is indented by `indent`.
fn write(value: &Value, indent: usize, column: usize, text: &mut String) {
    let line = on_one_line(value);
    let [open, close] = match value {
        Value::Array(list) if !list.is_empty() => ["[", "]"],
        Value::Object(map) if !map.is_empty() => ["{", "}"],
        _ => return text.push_str(&line),
    };
    // A case is broken into lines even if it is short.
    if column + line.chars().count() <= WIDTH && value.get("says").is_none() {
        return text.push_str(&line);
    }
    let (mut separator, inner) = (open, indent + 2);
    let short =
        |list: &Vec<Value>| list.iter().all(|value| on_one_line(value).len() <= SHORT);
    if let Value::Array(list) = value
        && short(list)
    {
        // Many short members share lines.
        let mut line = WIDTH;
        for value in list {
            text.push_str(separator);
            let member = on_one_line(value);
            if line + member.len() + 2 > WIDTH {
                text.push_str(&format!("\n{:inner$}", ""));
                line = inner;
            } else {
                text.push(' ');
            }
            text.push_str(&member);
            (line, separator) = (line + member.len() + 2, ",");
        }
        return text.push_str(&format!("\n{:indent$}{close}", ""));
    }
    for (key, value) in members(value) {
        text.push_str(separator);
        text.push_str(&format!("\n{:inner$}{key}", ""));
        write(value, inner, inner + key.len(), text);
        separator = ",";
    }
    text.push_str(&format!("\n{:indent$}{close}", ""));
}

/// The members of an array or object, with their keys as they are written.
fn members(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Array(list) => list.iter().map(|value| (String::new(), value)).collect(),
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            let place =
                |name: &str| ORDER.iter().position(|x| *x == name).unwrap_or(ORDER.len());
            members.sort_by_key(|(name, _)| place(name)); // stable
            members
                .into_iter()
                .map(|(name, value)| (format!("{}: ", json!(name)), value))
                .collect()
        }
        _ => vec![],
    }
}

fn on_one_line(value: &Value) -> String {
    let inner = || {
        let members = members(value).into_iter();
        members
            .map(|(key, value)| key + &on_one_line(value))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match value {
        Value::Array(_) => format!("[{}]", inner()),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(_) => format!("{{ {} }}", inner()),
        Value::Number(x) => number(x.as_f64().unwrap_or(f64::NAN)),
        _ => value.to_string(),
    }
}

/// The shortest text that is read as this number.
fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".to_owned(),
        1e-5..1e16 => x.to_string(),
        _ => format!("{x:e}"),
    }
}
