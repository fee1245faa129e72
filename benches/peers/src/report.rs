//! The record.

use crate::arguments::Arguments;
use crate::grid::base;
use crate::measured::{Measured, MeasuredCell};
use anyhow::Result;
use record::statistics::{median, spread};
use record::take::{machine, now, versions, write as write_record};
use record::{Measurement, Record, Unit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use worker::{Kernel, Kind};

const TOPIC: &str = "peers";

/// Crates of which the record tells the version.
const CRATES: [&str; 6] =
    ["attention", "candle-core", "candle-nn", "matrixmultiply", "nalgebra", "pulp"];

/// When, where and with which crates it is measured.
///
/// # Errors
/// One of these cannot be found out.
pub fn circumstances() -> Result<Record> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(Record {
        topic: TOPIC.to_owned(),
        date: now()?,
        machine: machine()?,
        versions: versions(here, &CRATES)?,
        features: vec!["rayon".to_owned()],
        note: None,
        measurements: vec![],
    })
}

/// Writes what was measured to this machine's folder: in `records/` if it is all there is to measure, else in
/// `target/records/`.
///
/// # Errors
/// The record makes no sense, or cannot be written.
pub fn write(
    arguments: &Arguments,
    circumstances: Record,
    measured: &Measured,
) -> Result<PathBuf> {
    let mut record = circumstances;
    record.versions.extend(measured.versions.clone());
    record.measurements = measured.cells.iter().flat_map(measurements).collect();
    record.check()?;
    let folder = if arguments.is_complete() { "records" } else { "target/records" };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    write_record(&root.join(folder), &record)
}

/// The times of a cell, and how many times as long as this crate each peer took.
fn measurements(measured: &MeasuredCell) -> Vec<Measurement> {
    let cell = &measured.cell;
    let problem = cell.problem;
    let (group, dtype) = match problem.kind {
        Kind::Attention => ("attention", "f32"),
        Kind::Layer => ("layer", "f64"),
    };
    let measurement = |what: String, unit, (median, spread)| Measurement {
        what,
        dtype: dtype.to_owned(),
        sizes: [("n", problem.n), ("d", problem.d), ("heads", problem.heads)]
            .map(|(name, size)| (name.to_owned(), size as u64))
            .into(),
        settings: BTreeMap::from([
            ("mask".to_owned(), cell.mask.name().to_owned()),
            ("pass".to_owned(), cell.pass.name().to_owned()),
        ]),
        threads: cell.threads,
        unit,
        median,
        spread,
    };
    let name = |kernel: Kernel| format!("{group}/{}", kernel.name());
    let ours = base(problem.kind);
    let times = measured.rounds.iter().map(|(kernel, rounds)| {
        measurement(name(*kernel), Unit::Seconds, (median(rounds), spread(rounds)))
    });
    let ratios =
        measured.rounds.keys().filter(|kernel| **kernel != ours).filter_map(|kernel| {
            let what = format!("{} / {}", name(*kernel), ours.name());
            Some(measurement(what, Unit::Ratio, measured.ratio(*kernel)?))
        });
    times.chain(ratios).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::measured;
    use worker::Mask;

    #[test]
    fn a_cell_becomes_times_and_ratios() {
        let found = measurements(&measured(
            512,
            Mask::Causal,
            &[1.0, 2.0, 4.0],
            &[2.0, 6.0, 8.0],
        ));
        let told: Vec<_> =
            found.iter().map(|m| (m.what.as_str(), m.unit, m.median)).collect();
        let expected = [
            ("attention/flash", Unit::Seconds, 2.0),
            ("attention/pytorch-fused", Unit::Seconds, 6.0),
            ("attention/pytorch-fused / flash", Unit::Ratio, 2.0),
        ];
        assert_eq!(told, expected);
        assert_eq!(found[0].settings["mask"], "causal");
        assert_eq!((found[0].sizes["n"], found[0].sizes["heads"]), (512, 8));
    }

    #[test]
    fn the_record_of_a_run_is_sound() {
        let mut record = circumstances().unwrap();
        let cells =
            [Mask::Full, Mask::Causal].map(|mask| measured(512, mask, &[1.0], &[2.0]));
        record.measurements = cells.iter().flat_map(measurements).collect();
        record.check().unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse(TOPIC, &text).unwrap(), record);
        assert!(record.versions.contains_key("candle-nn"));
    }
}
