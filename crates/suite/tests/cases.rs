//! Reads the committed cases of `suite/` and holds the crate `attention` to them, and the planted faults.

use attention::engine::{ByWeights, Engine, Tiled};
use attention::flash::Tiles;
use fast::{Flash, Float};
use laboratory::Patient;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use suite::{
    Fault, Results, Wrong, answer, answer_by_crate, answer_plainly, faults, files,
    keeps_bits, off, off_by,
};

/// Results are computed alike, up to the last digits.
const SAME: f64 = 1e-12;

/// A case as it is committed.
struct Case {
    operation: String,
    name: String,
    inputs: Value,
    results: Results,
    tolerance: Map<String, Value>,
    faults: BTreeMap<String, Results>,
    same_bits: Vec<Value>,
}

fn read(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suite/cases");
    let text =
        fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let file: Value =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(file["version"], 1, "{name}");
    file
}

/// The committed files, without `faults.json`.
fn operations() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suite/cases");
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "faults.json").collect()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).clone()
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for file in operations() {
        let file = read(&file);
        for case in file["cases"].as_array().unwrap() {
            let fault = |fault: &Value| {
                (fault["fault"].as_str().unwrap().to_owned(), object(&fault["results"]))
            };
            cases.push(Case {
                operation: file["operation"].as_str().unwrap().to_owned(),
                name: case["name"].as_str().unwrap().to_owned(),
                inputs: case["inputs"].clone(),
                results: object(&case["results"]),
                tolerance: object(&case["tolerance"]),
                faults: case["faults"].as_array().unwrap().iter().map(fault).collect(),
                same_bits: case["same_bits"].as_array().cloned().unwrap_or_default(),
            });
        }
    }
    assert!(!cases.is_empty());
    cases
}

impl Case {
    fn tolerance(&self, precision: &str) -> Option<f64> {
        self.tolerance.get(precision).map(|x| x.as_f64().unwrap())
    }

    /// What is wrong with results in a precision, if anything is.
    fn complaint(
        &self,
        by: &str,
        precision: &str,
        given: impl FnOnce(&str, &Value) -> Option<Results>,
    ) -> Option<String> {
        let tolerance = self.tolerance(precision)?;
        let Some(given) = given(&self.operation, &self.inputs) else {
            return Some(format!("{}: {by} has no such operation", self.name));
        };
        let off = off(&given, &self.results);
        (off > tolerance).then(|| {
            let (name, right) = (&self.name, Value::from(self.results.clone()));
            format!(
                "{name}: {by} in {precision} is off by {off}: {} for {right}",
                Value::from(given)
            )
        })
    }
}

impl Case {
    fn keeps_bits(
        &self,
        answer: impl Fn(&Value) -> Result<Option<Results>, Wrong>,
    ) -> bool {
        let output = |inputs: &Value| Ok(answer(inputs)?.unwrap()["output"].clone());
        keeps_bits::<Wrong>(&self.inputs, &self.same_bits, output).unwrap()
    }
}

fn engines<T: Float>() -> [(&'static str, Arc<dyn Engine<T>>); 4] {
    let tiles = Tiles { queries: 2, keys: 4 };
    [
        ("by weights", Arc::new(ByWeights)),
        ("tiled", Arc::new(Tiled(tiles))),
        ("fast", Arc::new(Flash::new())),
        ("fast in small tiles", Arc::new(Flash::new().with_tiles(tiles).unwrap())),
    ]
}

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn the_crate_passes_every_case_in_f64_and_f32() {
    let mut complaints = vec![];
    for case in cases() {
        assert!(case.tolerance("f64").is_some(), "{}", case.name);
        for (by, engine) in engines() {
            complaints.extend(case.complaint(by, "f64", |operation, inputs| {
                answer_by_crate::<f64>(operation, inputs, engine.clone()).unwrap()
            }));
        }
        for (by, engine) in engines() {
            complaints.extend(case.complaint(by, "f32", |operation, inputs| {
                answer_by_crate::<f32>(operation, inputs, engine.clone()).unwrap()
            }));
        }
    }
    none(complaints);
}

/// A second opinion: loops that share nothing with the crate.
#[test]
fn the_plain_program_without_a_fault_passes_every_case() {
    none(
        cases()
            .iter()
            .filter_map(|case| {
                case.complaint("the plain program", "f64", |operation, inputs| {
                    answer_plainly(operation, inputs).unwrap()
                })
            })
            .collect(),
    );
}

/// Few programs do. It adds up each row alone, key by key.
#[test]
fn the_plain_program_keeps_the_bits() {
    let complaints = cases().into_iter().filter_map(|case| {
        let kept = case.keeps_bits(|inputs| answer_plainly(&case.operation, inputs));
        (!kept).then_some(case.name)
    });
    none(complaints.collect());
}

#[test]
fn each_fault_fails_exactly_the_cases_that_name_it() {
    let mut complaints = vec![];
    for case in cases() {
        for fault in faults() {
            let given =
                answer(&case.operation, &case.inputs, Some(fault)).unwrap().unwrap();
            let fails = off(&given, &case.results) > case.tolerance("f64").unwrap()
                || !case
                    .keeps_bits(|inputs| answer(&case.operation, inputs, Some(fault)));
            let (name, fault) = (&case.name, fault.name());
            match case.faults.get(fault) {
                Some(_) if !fails => {
                    complaints.push(format!("{name} names {fault} in vain"))
                }
                None if fails => complaints.push(format!("{name} doesn't name {fault}")),
                _ => {}
            }
            // Results that a fault doesn't change aren't listed.
            let mut expected = case.results.clone();
            expected.extend(case.faults.get(fault).cloned().unwrap_or_default());
            let off = off(&given, &expected);
            let enough = if case.faults.contains_key(fault) {
                SAME
            } else {
                case.tolerance("f64").unwrap()
            };
            if off > enough {
                complaints
                    .push(format!("{name}: {fault} has other results, off by {off}"));
            }
        }
    }
    none(complaints);
}

/// A wrong result is no right one in a lower precision, either, unless the precision can't show it at all.
#[test]
fn faults_are_clear_in_every_precision() {
    for case in cases() {
        // Without results a fault changes bits alone.
        for (fault, wrong) in case.faults.iter().filter(|(_, wrong)| !wrong.is_empty()) {
            let mut given = case.results.clone();
            given.extend(wrong.clone());
            let off = off(&given, &case.results);
            for (precision, tolerance) in &case.tolerance {
                let most = tolerance.as_f64().unwrap();
                assert!(
                    off > 2.0 * most || precision != "f64" && off < most / 2.0,
                    "{}: {fault} is off by {off} in {precision}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn every_fault_is_in_the_list_and_in_two_cases() {
    let listed = object(&read("faults.json")["faults"]);
    let names: BTreeSet<_> = faults().map(|fault| fault.name().to_owned()).collect();
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), names);
    let cases = cases();
    for fault in faults() {
        let entry = &listed[fault.name()];
        assert_eq!(entry["number"].as_u64(), fault.number(), "{}", fault.name());
        assert_eq!(entry["words"], fault.words(), "{}", fault.name());
        let count =
            cases.iter().filter(|case| case.faults.contains_key(fault.name())).count();
        assert!(count >= 2, "{} is named by {count} cases", fault.name());
    }
    let named = cases.iter().flat_map(|case| case.faults.keys().cloned()).collect();
    assert!(names.is_superset(&named), "cases name faults that aren't listed");
    let numbers: BTreeSet<_> = faults().map(Fault::number).collect();
    let groups = 1..=Fault::GROUPS.len() as u64;
    assert_eq!(numbers, groups.map(Some).collect());
}

#[test]
fn every_fault_of_the_registry_has_a_name_and_somebody_who_plants_it() {
    let names: BTreeSet<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
    assert_eq!(names.len(), Fault::ALL.len(), "two faults share a name");
    let planted: Vec<_> = faults().chain(Patient::FAULTS.iter().copied()).collect();
    let orphan = Fault::ALL.iter().find(|fault| !planted.contains(fault));
    assert_eq!(orphan, None, "no program plants it");
    let refused = answer("alibi_slopes", &json!({ "heads": 1 }), Some(Fault::DeadHead));
    assert_eq!(refused.unwrap_err().to_string(), "the suite has no fault dead-head");
}

#[test]
fn any_two_faults_are_told_apart_by_a_case() {
    let cases = cases();
    for (i, a) in faults().enumerate() {
        for b in faults().skip(i + 1) {
            let differ = |case: &Case| match (
                case.faults.get(a.name()),
                case.faults.get(b.name()),
            ) {
                (Some(a), Some(b)) => a.len() != b.len() || off(a, b) > 1e-3,
                (a, b) => a.is_some() != b.is_some(),
            };
            assert!(cases.iter().any(differ), "{} and {}", a.name(), b.name());
        }
    }
}

#[test]
fn cases_have_names_of_their_own() {
    let mut names = BTreeSet::new();
    for case in cases() {
        assert!(names.insert(case.name.clone()), "two cases are {}", case.name);
    }
}

/// Whether two values are the same but for the last digits of numbers.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|((m, x), (n, y))| m == n && same(x, y))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(x, y)| same(x, y))
        }
        (Value::Number(_), Value::Number(_)) => off_by(a, b) <= SAME,
        _ => a == b,
    }
}

#[test]
fn the_committed_files_are_what_the_generator_writes() {
    let files = files().unwrap();
    let again = "run `cargo run -p suite`";
    for (name, text) in &files {
        assert!(
            same(&read(name), &serde_json::from_str(text).unwrap()),
            "{name}: {again}"
        );
    }
    let names: BTreeSet<_> =
        operations().into_iter().chain(["faults.json".to_owned()]).collect();
    assert_eq!(names, files.into_keys().collect(), "{again}");
}

/// The numbers of the book's list of faults, which were computed by hand. `None` is NaN.
#[test]
fn the_smallest_cases_have_the_numbers_that_are_known() {
    const NAN: f64 = f64::NAN;
    let cases = cases();
    let output = |case: &str, fault: Option<&str>| -> Vec<f64> {
        let found = cases.iter().find(|x| x.name == case);
        let found = found.unwrap_or_else(|| panic!("there is no case {case}"));
        let results = match fault {
            None => &found.results,
            Some(fault) => {
                let results = found.faults.get(fault);
                results.unwrap_or_else(|| panic!("{case} doesn't name {fault}"))
            }
        };
        let mut numbers = vec![];
        flatten(&results["output"], &mut numbers);
        numbers
    };
    let check = |case: &str, fault: Option<&str>, expected: &[f64]| {
        let given = output(case, fault);
        let close =
            |(x, y): (&f64, &f64)| (x - y).abs() < 5e-5 || (x.is_nan() && y.is_nan());
        let all = given.len() == expected.len() && given.iter().zip(expected).all(close);
        assert!(all, "{case}, {fault:?}: {given:?} for {expected:?}");
    };
    let right = |case: &str, expected: &[f64]| check(case, None, expected);
    let wrong =
        |case: &str, fault: &str, expected: &[f64]| check(case, Some(fault), expected);

    right("causal-two-tokens", &[1.0, 5.5]); // 1
    wrong("causal-two-tokens", "mask-inverted", &[10.0, NAN]);
    wrong("causal-two-tokens", "causal-strict", &[NAN, 1.0]);
    right("window-of-two", &[0.0, 0.5, 1.5, 2.5]); // 2
    wrong("window-of-two", "window-one-wide", &[0.0, 0.5, 1.0, 2.0]);
    right("causal-after-a-cache", &[1.5, 2.0]); // 3
    wrong("causal-after-a-cache", "causal-top-left", &[0.0, 0.5]);
    wrong("causal-after-a-cache", "causal-forgotten-with-cache", &[2.0, 2.0]);
    right("mask-hides-all", &[0.0]); // 4
    wrong("mask-hides-all", "empty-row-nan", &[NAN]);
    wrong("mask-hides-all", "empty-row-mean", &[2.0]);
    right("score-below-minus-10000", &[1.0]); // 5
    wrong("score-below-minus-10000", "mask-minus-10000", &[100.0]);
    right("hidden-value-is-nan", &[1.0]); // 6
    wrong("hidden-value-is-nan", "hidden-nan", &[NAN]);
    right("one-query-two-keys", &[1.7311]); // 7
    wrong("one-query-two-keys", "softmax-over-queries", &[3.0]);
    let second = 1.0 / (1.0 + 2_f64.exp()); // the second head's scores are 0 and 2
    right("two-heads-one-key", &[2.0, 6.0]);
    wrong("two-heads-one-key", "softmax-over-heads", &[1.0, 3.0]);
    wrong("mask-of-booleans", "mask-ignored", &[37.0, 37.0, 37.0]);
    wrong("mask-of-booleans", "mask-transposed", &[50.5, 50.5, 55.0]);
    wrong("causal-two-tokens", "causal-ignored", &[5.5, 5.5]);
    right("scale-of-a-head", &[0.8808, second]); // 8
    assert!(
        (output("scale-of-a-head", Some("scale-of-the-model"))[0] - 0.8044).abs() < 5e-5
    );
    assert!((output("scale-of-a-head", Some("scale-missing"))[0] - 0.9820).abs() < 5e-5);
    right("heads-side-by-side", &[1.0, 3.0, 0.0, 0.0, 2.0, 4.0, 0.0, 0.0]); // 9
    wrong(
        "heads-side-by-side",
        "heads-merged-without-transpose",
        &[1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0, 0.0],
    );
    right("evaluation", &[2.0]); // 10
    right("training-one-half", &[1.0]);
    wrong("training-one-half", "dropout-not-scaled", &[0.5]);
    let products = |case: &str, fault: &str| {
        let mut products = vec![];
        let found = cases.iter().find(|x| x.name == case).unwrap();
        let results = found.faults.get(fault).unwrap_or(&found.results);
        flatten(&results["products"], &mut products);
        products
    };
    assert_eq!(products("training-one-half", ""), [(9.0 + 1.0 + 4.0) / 4.0]);
    // Twice the output or 0; and no draw changes a score of 0.
    assert_eq!(products("training-one-half", "dropout-on-output"), [2.0]);
    assert_eq!(products("training-one-half", "dropout-on-scores"), [1.0]);
    let apart = "training-three-quarters";
    assert_eq!(products(apart, ""), [1.5, 0.0, 0.0, 1.5]);
    assert_eq!(products(apart, "dropout-once"), [1.5; 4]);
    // 11: scores of (cos 1)/√2 and 1/√2
    let first = 1.0 / (1.0 + ((1.0 - 1_f64.cos()) / 2_f64.sqrt()).exp());
    right("rotary-token-by-token", &[1.0, first]);
    wrong("rotary-token-by-token", "position-of-the-chunk", &[1.0, 0.5]);
    right("window-and-a-chunk", &[4.0, 2.5, 1.5, 2.5]); // 12
    wrong("window-and-a-chunk", "window-cut-too-early", &[4.0, 0.0, 2.0, 2.5]);
    // 13: the product of a turned (1, 0, 0, 0) with (0, 1, 0, 0)
    assert!((output("neighbours", None)[1] - 0.8415).abs() < 5e-5);
    assert_eq!(output("neighbours", Some("rotary-always-halves"))[1], 0.0);
    assert!((output("position-257", None)[0] - 0.8193).abs() < 5e-5); // 14
    assert!((output("position-257", Some("position-in-half"))[0] + 0.0398).abs() < 5e-5);
    right("groups-of-two", &[10.0, 10.0, 20.0, 20.0]); // 15
    wrong("groups-of-two", "heads-interleaved", &[10.0, 20.0, 10.0, 20.0]);
    assert_eq!(output("eight-heads", None)[0], 0.5); // 16
    assert_eq!(output("eight-heads", Some("alibi-from-one"))[0], 1.0);
    // 17: dS is ¼ and −¼, the scale ½, and the query (2, 0, 0, 0)
    let two_keys = cases.iter().find(|case| case.name == "gradient-of-two-keys").unwrap();
    let d_k = |results: &Results| results["d_k"][0][0][0].as_f64().unwrap();
    assert_eq!(d_k(&two_keys.results), 0.25 * 0.5 * 2.0);
    assert_eq!(d_k(&two_keys.faults["gradient-scale-twice"]), 0.25 * 0.25 * 2.0);
    assert_eq!(d_k(&two_keys.faults["gradient-scale-missing"]), 0.25 * 2.0);
    assert_eq!(d_k(&two_keys.faults["gradient-without-d"]), 0.5 * 0.5 * 2.0);
    // 16: weights of e^(−½), 1 and e^(−½), and with signs e^(−½), 1 and e^½
    let middle = |first: f64, last: f64| (1.0 + 5.0 * last) / (first + 1.0 + last);
    let near = (-0.5_f64).exp();
    assert!((output("slope-without-a-mask", None)[1] - middle(near, near)).abs() < 5e-5);
    let signed = output("slope-without-a-mask", Some("alibi-signed"))[1];
    assert!((signed - middle(near, 0.5_f64.exp())).abs() < 5e-5);
    right("scores-of-both-signs", &[2.0, 2.0]); // 19
    wrong("scores-of-both-signs", "maximum-of-all-rows", &[2.0, NAN]);
    let two = 2_f64.exp(); // 23
    right("softcap-of-two", &[two / (1.0 + two)]);
    wrong("softcap-of-two", "softcap-ignored", &[1.0]);
    right("softcap-and-causal", &[1.0, 5.5]);
    let hidden = (-1_f64).exp();
    let leaking = (1.0 + 10.0 * hidden) / (1.0 + hidden);
    wrong("softcap-and-causal", "softcap-after-mask", &[leaking, 5.5]);
    let output_for = |score: f64| 1.0 / (1.0 + (-score).exp()); // 21: of values 0 and 1
    let scores = [2.0, 3.0].map(|score| output_for(score / 2_f64.sqrt()));
    right("latent-of-two-tokens", &scores);
    let scores = [2.0, 3.0].map(|score| output_for(score / 3_f64.sqrt()));
    wrong("latent-of-two-tokens", "latent-scale-absorbed", &scores);
    right("latent-absorbed", &[output_for(0.5)]);
    wrong("latent-absorbed", "latent-absorbed-untransposed", &[0.5]);
    right("padding-before-a-prompt", &[0.0, 0.0, 1.0, 2.0]); // 11
    wrong("padding-before-a-prompt", "mask-ignored", &[9.0, 9.0, 19.0 / 3.0, 5.5]);
    let before = |angle: f64| {
        let key = (angle.cos() / 2_f64.sqrt()).exp();
        key / (key + (1.0 / 2_f64.sqrt()).exp()) // the other key is the query's own
    };
    let padded = "rotary-padding-before-a-prompt";
    right(padded, &[0.0, 1.0, before(1.0)]);
    wrong(padded, "position-counts-padding", &[0.0, 1.0, before(2.0)]);
    right("two-parts", &[(1.0 + 3.0 * 1_f64.exp()) / (1.0 + 1_f64.exp())]); // 18
    wrong("two-parts", "merge-mean", &[2.0]);
    right("product-beyond-f16", &[2.0]); // 19
    wrong("product-beyond-f16", "scores-overflow-half", &[NAN]);
    right("weights-of-one-and-three", &[0.0, 3.0]); // 20
    wrong("equal-weights", "linear-denominator-of-all", &[1.0 / 3.0, 4.0 / 3.0, 3.0]);
    wrong("equal-weights", "linear-without-denominator", &[1.0, 4.0, 9.0]);
}

fn flatten(value: &Value, numbers: &mut Vec<f64>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| flatten(value, numbers)),
        _ => numbers.push(value.as_f64().unwrap_or(f64::NAN)),
    }
}
