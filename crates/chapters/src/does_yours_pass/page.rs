//! The chapter's page: values and tables.

use super::facts::{self, Fault, Report};
use crate::figures::format::table;
use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    let suite = facts::suite()?;
    page.value("cases", suite.cases.len().to_string());
    let elsewhere = suite.faults.len() - suite.of_attention.len();
    page.value("elsewhere", elsewhere.to_string());
    page.value("groups", suite.groups.len().to_string());
    page.value("of-attention", suite.of_attention.len().to_string());
    page.value("planted", suite.faults.len().to_string());
    let [program, output, two_more, mended] = facts::example()?;
    let [corner, all] = facts::passes()?;
    page.value("corner-passes", corner);
    page.value("mended-passes", all);
    page.file("mended.txt", mended);
    page.file("two-more.txt", two_more);
    page.file("program.txt", program);
    page.file("output.txt", output);
    let [attention, multi_head] =
        ["attention", "multi_head"].map(|name| suite.cases_of(name));
    page.value("cases-of-attention", attention.len().to_string());
    page.value("cases-of-multi-head", multi_head.len().to_string());
    page.value("of-multi-head", suite.shown_by(&multi_head).to_string());
    // Without that of the log-sum-exp, which such a test seldom compares.
    page.value("plain", (suite.shown_by(&["plain"]) - 1).to_string());
    let rows: Vec<_> = suite
        .groups
        .iter()
        .zip(1..)
        .map(|(about, number)| {
            let own: Vec<&Fault> =
                suite.faults.iter().filter(|fault| fault.number == number).collect();
            let cases = own.iter().map(|fault| fault.cases).min().unwrap_or_default();
            vec![format!("{number}. {about}"), own.len().to_string(), cases.to_string()]
        })
        .collect();
    let header = ["group", "planted faults", "cases per fault, at least"];
    page.table("faults", &header, &rows);
    results(page)
}

/// What each implementation gets.
fn results(page: &mut Page) -> Result<()> {
    let reports = facts::reports()?;
    let row = |report: &Report| {
        let Report { passed, failed, unsupported, precision, framework, .. } = report;
        let faults = match &report.faults[..] {
            [] => "none".to_owned(),
            faults => {
                faults.iter().map(|fault| in_words(fault)).collect::<Vec<_>>().join("; ")
            }
        };
        let counts = [passed, failed, unsupported].map(|count| count.to_string());
        let name = format!("{} ({framework}, `{precision}`)", name(&report.candidate));
        [vec![name], counts.to_vec(), vec![faults]].concat()
    };
    let mut reports: Vec<_> = reports.iter().collect();
    // The two that were written for the suite come last.
    let is_own = |report: &Report| {
        ["attention", "numpy_right"].contains(&report.candidate.as_str())
    };
    reports.sort_by_key(|report| (is_own(report), report.failed, report.unsupported));
    let rows: Vec<_> = reports.into_iter().map(row).collect();
    let header = ["implementation", "passed", "failed", "unsupported", "faults"];
    page.file("results.md", table(&header, &rows));
    Ok(())
}

/// A fault that a library has, in words.
fn in_words(fault: &str) -> &str {
    match fault {
        "causal-top-left" => "the corner",
        "hidden-nan" => "NaN in a hidden value",
        "mask-added" => "NaN in a hidden key",
        "empty-row-mean" => "a mean where nothing is seen",
        "empty-row-nan" => "NaN where nothing is seen",
        "window-one-wide" => "a window one too wide",
        "window-cut-too-early" => "a cache cut too early",
        "window-forgotten-with-cache" => "no window on a cache",
        other => other,
    }
}

/// What is tried, in words.
fn name(candidate: &str) -> &str {
    match candidate {
        "attention" => "this book's crate",
        "candle" => "candle's softmax, in the attention of its Llama example",
        "candle_flash" => "candle's flash attention for processors",
        "candle_mistral" => "candle's softmax, in the attention of its Mistral example",
        "jax_nn" => "JAX, `dot_product_attention`",
        "numpy_right" => "NumPy, written for this suite",
        "numpy_textbook" => "NumPy, as tutorials write it",
        "pytorch" => "PyTorch, `scaled_dot_product_attention`",
        "pytorch_flex" => "PyTorch, `flex_attention`",
        other => other,
    }
}
