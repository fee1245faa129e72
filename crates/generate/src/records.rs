//! Records of measurements, as pages show them.

use crate::format::bytes;
use anyhow::Result;
use record::{Machine, Record};
use std::path::Path;

/// The record of a topic.
pub fn read(topic: &str) -> Result<Record> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    Record::read(&folder, topic)
}

/// The record of a topic that may not have been measured yet.
pub fn read_if_there(topic: &str) -> Result<Option<Record>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
    folder
        .join(format!("{topic}.json"))
        .is_file()
        .then(|| Record::read(&folder, topic))
        .transpose()
}

/// On what, with what and when it was measured: the end of a sentence that begins with "Measured".
///
/// "on one thread of an AMD EPYC (2 cores, caches of 32 KiB, 1 MiB and 32 MiB, 24 GiB of memory; linux, x86_64) with
/// rustc 1.95.0, …, on 2026-11-20"
pub fn provenance(record: &Record) -> String {
    let threads = match record.threads() {
        Some(1) => "one thread of ".to_owned(),
        Some(threads) => format!("{threads} threads of "),
        None => String::new(),
    };
    let versions =
        record.versions.iter().map(|(name, version)| format!("{name} {version}"));
    format!(
        "on {threads}{} with {}, on {}",
        machine(&record.machine),
        list(&versions.collect::<Vec<_>>()),
        record.day()
    )
}

fn machine(machine: &Machine) -> String {
    let caches: Vec<_> = machine
        .caches
        .iter()
        .filter(|cache| cache.kind != "Instruction")
        .map(|cache| bytes(cache.bytes.into()))
        .collect();
    let caches = if caches.is_empty() {
        String::new()
    } else {
        format!("caches of {}, ", list(&caches))
    };
    let gibibytes = machine.memory as f64 / f64::from(1 << 30);
    let Machine { cpu, cores, accelerator, os, arch, .. } = machine;
    let cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let cpu = match accelerator {
        Some(accelerator) => format!("{accelerator} beside {cpu}"),
        None => cpu.clone(),
    };
    format!("{cpu} ({cores}, {caches}{gibibytes:.0}\u{202f}GiB of memory; {os}, {arch})")
}

/// `a, b and c`.
fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// The slope of the straight line that lies nearest to the points, by least squares, once both axes are logarithmic.
pub fn log_log_slope(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let rise: f64 = logs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let run: f64 = logs.iter().map(|p| (p.0 - x).powi(2)).sum();
    rise / run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_of_a_power_is_its_exponent() {
        let points: Vec<_> =
            (1..6).map(|n| (f64::from(n), 7.0 * f64::from(n).powf(1.5))).collect();
        assert!((log_log_slope(&points) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn the_circumstances_are_told_in_one_sentence() {
        let record =
            Record::parse("pace", include_str!("../../record/tests/pace.json")).unwrap();
        assert_eq!(
            provenance(&record),
            "on one thread of Shoes (2 cores, caches of 64\u{202f}bytes, 0\u{202f}GiB of memory; linux, x86_64) with \
             attention 0.1.0, nalgebra 0.1.0 and rustc 1.0.0, on 2026-01-31"
        );
    }

    /// Every record in the project can be read, whoever shows it.
    #[test]
    fn all_records_are_sound() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
        let mut topics = vec![];
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let topic = path.file_stem().unwrap().to_str().unwrap().to_owned();
            read(&topic).unwrap();
            topics.push(topic);
        }
        assert!(topics.len() >= 4, "{topics:?}");
    }
}
