//! The chapter's page: values, tables and figures.

use super::facts::{self, CHECKS, D_HEAD, TOKENS, examine};
use super::training::{self, Losses, loss_of_zero};
use crate::figures::format::{fixed, integer, percent, table};
use crate::figures::{
    Axis, BLUE, GREEN, HeatMap, Line, Marks, TEXT, VERMILION, line_chart,
};
use crate::output::Page;
use anyhow::{Context, Result};
use attention::inspect::heat_map;
use laboratory::{Fault, Finding};

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("training-steps", integer(training::STEPS));
    entropies(page)?;
    healthy(page)?;
    hunt(page)?;
    decoding(page)?;
    page.value("stacked-share", percent(facts::share_elsewhere()?, 0));
    page.value("padding-end", integer(facts::reached_by_filling(5)?));
    page.value("padding-start", integer(facts::reached_by_filling(0)?));
    faults(page)
}

/// A fault's name with its patient's letter, and what the code does.
fn words(fault: Fault) -> [&'static str; 2] {
    match fault {
        Fault::OffByOneMask => ["mask off by one (A)", "a query sees one key too many"],
        Fault::MaskInverted => ["mask inverted", "`true` is taken for “hide”"],
        Fault::ForgottenPadding => {
            ["padding forgotten", "the mask is causal, whatever else it should hide"]
        }
        Fault::MaskAfterSoftmax => {
            ["mask after softmax", "hidden weights are set to 0 when rows are done"]
        }
        Fault::ScaleMissing => ["scale missing (C)", r"no division by $\sqrt{d_k}$"],
        Fault::SoftmaxOverQueries => ["wrong axis (B)", "softmax down the columns"],
        Fault::DeadHead => ["dead head (D)", "$W_Q$ and $W_K$ of a head start at 0"],
        Fault::SharedSlice => {
            ["shared slice", "the second head reads the first one's columns"]
        }
        Fault::ForgottenPath => ["path forgotten (E)", "$dX$ lacks what the keys send"],
        Fault::KeysNotTransposed => {
            ["transpose forgotten", r"$dK = dS\, Q$ instead of $dS^\top Q$"]
        }
        Fault::PositionOfTheChunk => {
            ["positions start again (F)", "each chunk begins at position 0"]
        }
        _ => ["another fault", ""],
    }
}

/// Each fault: what a layer with it learns, and the checks that it fails.
fn faults(page: &mut Page) -> Result<()> {
    let trained = training::losses()?;
    let losses = |fault: Option<Fault>| match trained.iter().find(|of| of.fault == fault)
    {
        Some(Losses { previous, next, .. }) => [fixed(*previous, 3), fixed(*next, 3)],
        None => ["–", "–"].map(str::to_owned),
    };
    let row = |[name, does]: [&str; 2], [previous, next]: [String; 2], found: String| {
        let name =
            if does.is_empty() { name.to_owned() } else { format!("{name}: {does}") };
        vec![name, previous, next, found]
    };
    let failed = facts::failed_checks()?;
    let mut rows = vec![row(["healthy", ""], losses(None), "–".to_owned())];
    for (fault, failed) in &failed {
        let found = CHECKS.iter().zip(failed).filter(|(_, failed)| **failed);
        let found: Vec<_> = found.map(|((check, _), _)| *check).collect();
        rows.push(row(words(*fault), losses(Some(*fault)), found.join(", ")));
    }
    let zero = [fixed(loss_of_zero(-1)?, 3), fixed(loss_of_zero(1)?, 3)];
    rows.push(row(["*always answer 0*", ""], zero, "–".to_owned()));
    let header = ["layer", "previous token", "next token", "found by"];
    let table = table(&header, &rows);
    page.file("faults.md", table.replacen("| --: |\n", "| :-- |\n", 1)); // words, to the left
    let fails_one =
        |(_, failed): &&(Fault, [bool; 8])| failed.iter().filter(|f| **f).count() == 1;
    page.value("single", integer(failed.iter().filter(fails_one).count()));
    Ok(())
}

/// The healthy layer's report, and its influence beside that of a leaking one.
fn healthy(page: &mut Page) -> Result<()> {
    let healthy = examine(None)?;
    page.file("healthy.txt", healthy.to_string());
    let leaking = examine(Fault::OffByOneMask)?;
    for (name, diagnosis, title, says) in [
        (
            "influence-healthy",
            healthy,
            "How far each output moves as each token is changed, in a healthy causal layer",
            "Everything above the diagonal is exactly zero; every cell on and below it is not.",
        ),
        (
            "influence-leaking",
            leaking,
            "The same for a layer that leaks",
            "The first cell above the diagonal is no longer zero in any row but the last.",
        ),
    ] {
        let map = HeatMap::of_tokens(&diagnosis.influence, &TOKENS, 1.0);
        page.heat_map(name, (title, says), &map)?;
    }
    Ok(())
}

/// Entropy of each row against the number of keys that it sees, for heads with and without a fault.
fn entropies(page: &mut Page) -> Result<()> {
    let (healthy, unscaled) =
        (facts::entropies(None)?, facts::entropies(Fault::ScaleMissing)?);
    page.value("entropy-keys", integer(facts::KEYS));
    page.value("entropy-d", integer(facts::WIDE_HEAD));
    let line = |name, colour, entropies: Vec<f64>| {
        Line::new(name, colour, (1..).map(f64::from).zip(entropies))
    };
    let lines = [
        line("dead", GREEN, facts::entropies(Fault::DeadHead)?),
        line("healthy", BLUE, healthy),
        line("unscaled", VERMILION, unscaled),
        // on top: it shares its place with the first
        line("the most: ln n", TEXT, facts::most_entropies()).dashed(),
    ];
    page.figure(
        "entropy",
        (
            "Entropy of a row of weights against the number of keys it may see, for three heads",
            "The dead head's line lies on the ceiling, ln n. The healthy head's runs below it. The unscaled head's is far \
             below both and jumps up and down.",
        ),
        (520, 400),
        |area| {
            let x = Axis::linear("keys that the row may see", 0.0..facts::KEYS as f64);
            let y = Axis::linear("entropy of the row (nats)", 0.0..3.5);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )
}

/// The blocks of a report that differ from those of the healthy one, and the names of the others.
fn differing_blocks(report: &str, healthy: &str) -> String {
    let healthy: Vec<_> = healthy.trim_end().split("\n\n").collect();
    let blocks = report.trim_end().split("\n\n");
    let (same, differing): (Vec<_>, Vec<_>) =
        blocks.partition(|block| healthy.contains(block));
    let mut shown = differing.join("\n\n") + "\n";
    if !same.is_empty() {
        let names: Vec<_> =
            same.iter().filter_map(|block| block.split_whitespace().next()).collect();
        shown += &format!("\nhealthy   {}\n", names.join(", "));
    }
    shown
}

/// What differs in each patient's report up to the findings, and the findings.
fn hunt(page: &mut Page) -> Result<()> {
    let split = |fault| -> Result<(String, String)> {
        let report = examine(fault)?.to_string();
        let (symptoms, findings) =
            report.split_once("\nfindings\n").context("a report without findings")?;
        Ok((symptoms.to_owned(), findings.to_owned()))
    };
    let (healthy, _) = split(None)?;
    for (letter, fault) in facts::PATIENTS {
        let (symptoms, findings) = split(Some(fault))?;
        let symptoms = differing_blocks(&symptoms, &healthy);
        let findings = findings.lines().map(|line| line.trim().to_owned() + "\n");
        page.file(format!("patient-{letter}.txt"), symptoms);
        page.file(format!("patient-{letter}-findings.txt"), findings.collect::<String>());
    }
    let of_columns = examine(Fault::SoftmaxOverQueries)?;
    let map = heat_map(&of_columns.heads[0].weights, &TOKENS, &TOKENS)?;
    page.file("patient-b-map.txt", map);
    page.value("d-head", integer(D_HEAD));
    page.value("root-d", fixed((D_HEAD as f64).sqrt(), 3));
    Ok(())
}

/// The patient that decodes: what differs from the healthy layer with rotary positions, and the findings.
fn decoding(page: &mut Page) -> Result<()> {
    let report = |fault| -> Result<(String, Vec<Finding>)> {
        let (whole, chunks) = facts::examine_decoding(fault)?;
        let whole = whole.to_string();
        let (symptoms, _) =
            whole.split_once("\nfindings\n").context("a report without findings")?;
        Ok((format!("{symptoms}\n{chunks}"), chunks.findings()))
    };
    let (healthy, _) = report(None)?;
    let (symptoms, findings) = report(Some(Fault::PositionOfTheChunk))?;
    page.file("patient-f.txt", differing_blocks(&symptoms, &healthy));
    let findings = findings.iter().map(|finding| format!("{finding}\n"));
    page.file("patient-f-findings.txt", findings.collect::<String>());
    Ok(())
}
