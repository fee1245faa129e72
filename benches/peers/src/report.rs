//! The record.

use crate::grid::BASE;
use crate::measured::MeasuredCell;
use anyhow::Result;
use record::{Measurement, Record};
use recorder::versions;
use std::path::Path;

/// Crates of which the record tells the version.
const CRATES: [&str; 4] = ["attention", "matrixmultiply", "nalgebra", "pulp"];

/// When, where and with which crates it is measured.
///
/// # Errors
/// One of these cannot be found out.
pub fn circumstances(topic: &str) -> Result<Record> {
    let versions = versions(Path::new(env!("CARGO_MANIFEST_DIR")), &CRATES)?;
    recorder::circumstances(topic, versions, vec!["rayon".to_owned()])
}

/// The times of a cell, and how many times as long as this crate each peer took.
pub fn measurements(MeasuredCell { cell, rounds }: &MeasuredCell) -> Vec<Measurement> {
    let problem = cell.problem;
    let sizes = [("n", problem.n), ("d", problem.d), ("heads", problem.heads)];
    let settings: [(_, &dyn ToString); 2] = [("mask", &cell.mask), ("pass", &cell.pass)];
    let common = Measurement::common("f32", &sizes, &settings, cell.threads);
    rounds.measurements(&common, "attention", |kernel| kernel == BASE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::measured;
    use crate::question::Mask;
    use record::Unit;

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
        let mut record = circumstances("peers").unwrap();
        let cells =
            [Mask::Full, Mask::Causal].map(|mask| measured(512, mask, &[1.0], &[2.0]));
        record.measurements = cells.iter().flat_map(measurements).collect();
        record.check().unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse("peers", &text).unwrap(), record);
        assert!(record.versions.contains_key("pulp"));
    }
}
