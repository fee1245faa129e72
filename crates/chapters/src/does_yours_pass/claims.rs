//! What the prose says of the suite, and of what passes it.

use super::facts::{reports, suite};

#[test]
fn a_plain_comparison_shows_few_of_the_faults() {
    let suite = suite().unwrap();
    assert!(10 * suite.shown_by(&["plain"]) < suite.faults.len());
    let all: Vec<_> = suite.cases.keys().map(String::as_str).collect();
    assert_eq!(suite.shown_by(&all), suite.faults.len());
}

#[test]
fn every_number_of_the_list_has_a_fault_and_every_fault_two_cases() {
    let suite = suite().unwrap();
    for number in 1..=20 {
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
