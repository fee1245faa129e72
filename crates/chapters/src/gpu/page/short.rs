//! Short sequences: the table of a model beside what was measured, and of what it predicts.

use crate::figures::format::{fixed, integer, significant};
use crate::gpu::short::{Persistent, Short, of_width};
use crate::output::Page;
use anyhow::Result;
use gpu::tiles::hopper::KEYS;
use record::Record;

pub fn generate(page: &mut Page, times: &Record, kernels: &Record) -> Result<()> {
    let [wide, narrow] = [128, 64].map(|d| of_width(times, kernels, d));
    let all = [wide?, narrow?];
    let [wide, narrow] = &all;
    page.value("short-n", integer(narrow.n as usize));
    page.value("short-keys-narrow", micros(narrow.costs.keys));
    page.value("short-queries-narrow", micros(narrow.costs.queries));
    for (short, name) in [(wide, "wide"), (narrow, "narrow")] {
        let [model, measured, _] = short.causal;
        page.value(format!("short-model-{name}"), micros(model));
        page.value(format!("short-measured-{name}"), micros(measured));
    }
    page.value(
        "short-ratio-narrow",
        significant(narrow.costs.queries / narrow.costs.keys, 2),
    );
    page.value("short-tiles", integer((narrow.n as usize).div_ceil(KEYS)));
    page.value("short-empty", integer(narrow.empty[0]));
    let rows: Vec<_> = all.iter().flat_map(rows).collect();
    let header =
        ["$d$", "mask", "kernel 4", "cuDNN", "persistent, predicted", "measured"];
    page.table("short", &header, &rows);
    Ok(())
}

fn micros(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros < 10.0 { significant(micros, 2) } else { fixed(micros, 0) }
}

fn rows(short: &Short) -> Vec<Vec<String>> {
    let row = |(mask, own, persistent): (&str, f64, &Persistent)| {
        let [least, most] = persistent.predicted;
        vec![
            short.d.to_string(),
            mask.to_owned(),
            micros(own),
            micros(persistent.cudnn),
            format!("{} to {}", micros(least), micros(most)),
            persistent.measured.map_or_else(|| "not yet".to_owned(), micros),
        ]
    };
    let [full, causal] = &short.persistent;
    let rows = [("full", short.full, full), ("causal", short.causal[1], causal)];
    rows.map(row).into()
}
