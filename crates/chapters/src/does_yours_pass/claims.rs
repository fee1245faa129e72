//! What the prose says of the suite, and of what passes it.

use super::facts::{reports, suite};

/// Of the faults that can be made in attention itself, it finds a wrong scale, softmax over a wrong axis, and the base of the log-sum-exp.
#[test]
fn a_plain_comparison_shows_few_of_the_faults() {
    let suite = suite().unwrap();
    let plain: Vec<_> = suite.cases["plain"].iter().collect();
    let expected = [
        "log-sum-exp-in-base-2",
        "scale-missing",
        "scale-without-root",
        "softmax-over-heads",
        "softmax-over-queries",
    ];
    assert_eq!(plain, expected);
    assert!(suite.of_attention.len() < suite.faults.len());
    let all: Vec<_> = suite.cases.keys().map(String::as_str).collect();
    assert_eq!(suite.shown_by(&all), suite.faults.len());
}

/// The program has one fault: that of the page's example. Its output says so.
#[test]
fn the_program_of_the_page_has_the_fault_of_its_example() {
    let [program, output, ..] = super::facts::example().unwrap();
    assert!(program.contains("np.triu(np.full(scores.shape[1:], -np.inf), 1)"));
    assert!(output.contains("HAS IT: causal-top-left"), "{output}");
    assert_eq!(output.matches("HAS IT").count(), 1);
}

#[test]
fn all_but_one_of_the_libraries_fail_a_case() {
    let reports = reports().unwrap();
    let ours = ["attention", "numpy_right", "numpy_textbook"];
    let libraries = reports.iter().filter(|it| !ours.contains(&it.candidate.as_str()));
    let clean: Vec<_> = libraries.filter(|report| report.failed == 0).collect();
    assert_eq!(clean.len(), 1);
    assert_eq!(clean[0].candidate, "candle_flash");
    let share = clean[0].passed as f64 / suite().unwrap().cases.len() as f64;
    assert!((share - 1.0 / 3.0).abs() < 0.05, "{share}");
}

#[test]
fn every_group_has_a_fault_and_every_fault_two_cases() {
    let suite = suite().unwrap();
    for number in 1..=suite.groups.len() as u64 {
        assert!(suite.faults.iter().any(|fault| fault.number == number), "{number}");
    }
    for fault in &suite.faults {
        assert!(fault.cases >= 2, "one of number {}", fault.number);
    }
}

/// The mask's corner and hidden NaN are what the libraries differ in; only the right ones and candle's flash attention fail nothing.
#[test]
fn implementations_get_what_the_page_says() {
    let reports = reports().unwrap();
    let of = |name: &str| reports.iter().find(|report| report.candidate == name).unwrap();
    let has = |name: &str, fault: &str| of(name).faults.iter().any(|it| it == fault);
    for name in ["pytorch", "jax_nn", "numpy_textbook"] {
        assert!(has(name, "causal-top-left"), "{name}");
    }
    let hidden =
        reports.iter().filter(|report| has(&report.candidate, "hidden-nan")).count();
    let clean: Vec<_> = reports.iter().filter(|report| report.failed == 0).collect();
    assert_eq!(hidden + clean.len(), reports.len());
    let clean: Vec<_> = clean.iter().map(|report| report.candidate.as_str()).collect();
    assert_eq!(clean, ["attention", "candle_flash", "numpy_right"]);
    for name in ["attention", "numpy_right"] {
        assert_eq!(of(name).passed as usize, suite().unwrap().cases.len());
    }
    assert!(!has("pytorch_flex", "causal-top-left"));
    for name in ["numpy_textbook", "jax_nn"] {
        assert!(has(name, "empty-row-mean"), "{name}");
    }
    assert!(has("candle", "empty-row-nan"));
    let mistral = ["window-one-wide", "window-forgotten-with-cache"];
    assert!(mistral.iter().all(|fault| has("candle_mistral", fault)));
    assert!(!has("pytorch", "empty-row-nan") && !has("pytorch", "empty-row-mean"));
}
