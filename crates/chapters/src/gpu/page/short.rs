//! Short sequences: the table of a model beside what was measured, and of what it predicts.

use crate::figures::format::{fixed, integer, significant};
use crate::gpu::short::{Costs, Persistent, Short, of_width};
use crate::output::Page;
use anyhow::Result;
use gpu::tiles::hopper::KEYS;
use record::Record;

pub fn generate(page: &mut Page, times: &Record, kernels: &Record) -> Result<()> {
    let [wide, narrow] = [128, 64].map(|d| of_width(times, kernels, d));
    let all = [wide?, narrow?];
    let [_, narrow] = &all;
    page.value("short-n", integer(narrow.n as usize));
    fit(page, &all);
    page.value(
        "short-ratio-narrow",
        significant(narrow.costs.queries / narrow.costs.keys, 2),
    );
    page.value("short-tiles", integer((narrow.n as usize).div_ceil(KEYS)));
    page.value("short-rows", integer(narrow.rows[0]));
    page.value("short-rows-persistent", integer(narrow.rows[1]));
    page.value("short-empty", integer(narrow.empty[0]));
    let rows: Vec<_> = all.iter().flat_map(rows).collect();
    let header = ["$d$, mask", "kernel 4", "cuDNN", "persistent, predicted", "measured"];
    page.table("short", &header, &rows);
    Ok(())
}

/// The two times that were fitted, and what was not.
fn fit(page: &mut Page, all: &[Short; 2]) {
    let row = |short: &Short| {
        let times = short.fitted.map(|(_, rounds, seconds)| {
            [integer(rounds), integer((seconds * 1e6).round() as usize)]
        });
        let Costs { keys, queries } = short.costs;
        let costs = [keys, queries].map(micros);
        [vec![short.d.to_string()], times.concat(), costs.into()].concat()
    };
    let at = |i: usize| format!("µs, {} tokens", integer(all[0].fitted[i].0 as usize));
    let (first, second) = (at(0), at(1));
    let header = ["$d$", "rounds", &first, "rounds", &second, "$a$, µs", "$b$, µs"];
    page.table("short-fit", &header, &all.each_ref().map(row));
    let row = |short: &Short| {
        let [model, measured, _] = short.causal;
        vec![short.d.to_string(), micros(model), micros(measured)]
    };
    let header = ["causal, $d$", "the model, µs", "measured"];
    page.table("short-model", &header, &all.each_ref().map(row));
}

fn micros(seconds: f64) -> String {
    let micros = seconds * 1e6;
    if micros < 10.0 { significant(micros, 2) } else { fixed(micros, 0) }
}

fn rows(short: &Short) -> Vec<Vec<String>> {
    let row = |(mask, own, persistent): (&str, f64, &Persistent)| {
        let [least, most] = persistent.predicted;
        vec![
            format!("{}, {mask}", short.d),
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
