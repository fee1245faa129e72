//! The chapter's page: values and tables.

use super::facts::{self, Fault, Report};
use crate::output::Page;
use anyhow::Result;
use figures::format::table;

/// What the faults of each number are about.
const ABOUT: [&str; 20] = [
    "a mask inverted, or its diagonal hidden",
    "the width of a window",
    "the corner of a causal mask",
    "a query that may see nothing",
    "a finite number in place of −∞",
    "NaN in what is hidden",
    "softmax over the wrong axis",
    "the scale",
    "heads merged or split without a transpose",
    "dropout",
    "the position while decoding",
    "a window together with a cache",
    "the pairs of rotary positions",
    "rotary angles in 16 bits",
    "heads that share keys and values",
    "ALiBi's slopes",
    "the gradient of softmax",
    "merging partial results, as tiles do",
    "overflow",
    "linear attention's denominator",
];

pub fn generate(page: &mut Page) -> Result<()> {
    let suite = facts::suite()?;
    page.value("cases", suite.cases.len().to_string());
    page.value("faults", suite.faults.len().to_string());
    page.value("of-attention", suite.of_attention.len().to_string());
    let (program, output) = facts::example()?;
    page.file("program.txt", program);
    page.file("output.txt", output);
    page.value("plain", suite.shown_by(&["plain"]).to_string());
    let rows: Vec<_> = ABOUT
        .iter()
        .zip(1..)
        .map(|(about, number)| {
            let own: Vec<&Fault> =
                suite.faults.iter().filter(|fault| fault.number == number).collect();
            let cases = own.iter().map(|fault| fault.cases).min().unwrap_or_default();
            vec![format!("{number}. {about}"), own.len().to_string(), cases.to_string()]
        })
        .collect();
    page.table("faults", &["group", "planted faults", "fewest failing cases"], &rows);
    results(page)
}

/// What each implementation gets.
fn results(page: &mut Page) -> Result<()> {
    let reports = facts::reports()?;
    let row = |report: &Report| {
        let Report { passed, failed, unsupported, precision, framework, .. } = report;
        let faults = match &report.faults[..] {
            [] => "none".to_owned(),
            faults => faults
                .iter()
                .map(|fault| format!("`{fault}`"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let counts = [passed, failed, unsupported].map(|count| count.to_string());
        let name = format!("{} ({framework}, `{precision}`)", name(&report.candidate));
        [vec![name], counts.to_vec(), vec![faults]].concat()
    };
    let mut reports: Vec<_> = reports.iter().collect();
    reports.sort_by_key(|report| (report.failed, report.unsupported));
    let rows: Vec<_> = reports.into_iter().map(row).collect();
    let header = ["implementation", "passed", "failed", "not offered", "faults"];
    page.file("results.md", table(&header, &rows));
    Ok(())
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
