//! Records of measurements: those that the book shows, and their circumstances in words.

mod shown;

pub use shown::Records;

use crate::figures::format::bytes;
use record::{Machine, Record};

/// Returns the machine, the date and the versions of a record: the end of a sentence that begins with "Measured", and another one.
///
/// "on one thread of AMD EPYC (2 cores, caches of 32 KiB, 1 MiB and 32 MiB, 24 GiB of memory; linux, x86_64) on 2026-11-20.
/// Versions: commit 3369c0c8a8 and rustc 1.95.0"
pub fn provenance(record: &Record) -> String {
    // The threads of an accelerator are another matter.
    let counts = record.machine.accelerator.is_none() && record.threads().is_some();
    let threads = if counts { format!("{} of ", threads(record)) } else { String::new() };
    format!(
        "on {threads}{} on {}. Versions: {}",
        machine(&record.machine),
        record.day(),
        versions(record.versions.iter().filter(is_told))
    )
}

/// Returns false for a crate whose version the lock file at the record's commit has: telling the commit tells it.
fn is_told((name, _): &(&String, &String)) -> bool {
    let locked = format!("name = \"{name}\"\n");
    !include_str!("../../../../Cargo.lock").contains(&locked)
}

/// Returns the same for several records of one machine: all of the first one, and of the others the parts that differ from it.
pub fn provenance_of(first: &Record, others: &[(&str, &Record)]) -> String {
    let mut text = provenance(first);
    for (name, record) in others {
        let differ = || {
            let is_new = |(name, version): &(&String, &String)| {
                first.versions.get(*name) != Some(version)
            };
            record.versions.iter().filter(is_told).filter(is_new)
        };
        let mut parts = vec![];
        if threads(record) != threads(first) {
            parts.push(format!("on {}", threads(record)));
        }
        if differ().next().is_some() {
            parts.push(format!("with {}", versions(differ())));
        }
        if record.day() != first.day() {
            parts.push(format!("on {}", record.day()));
        }
        if !parts.is_empty() {
            text += &format!("; {name} {}", parts.join(", "));
        }
    }
    text
}

fn versions<'a>(versions: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let versions = versions.map(|(name, version)| format!("{name} {version}"));
    list(&versions.collect::<Vec<_>>())
}

/// Returns the number of threads that the benchmarks of a record could use, in words: `one thread`.
pub fn threads(record: &Record) -> String {
    match record.threads() {
        Some(1) => "one thread".to_owned(),
        Some(threads) => format!("{threads} threads"),
        None => "several threads".to_owned(),
    }
}

/// The processor, its cores and caches, as a cell of a table.
pub fn machine_in_brief(machine: &Machine) -> String {
    format!("{}, {} cores{}", machine.processor(), machine.cores, caches(machine))
}

/// `, caches of 32 KiB, 1 MiB and 32 MiB`, if they are known.
fn caches(machine: &Machine) -> String {
    let caches: Vec<_> = machine
        .caches
        .iter()
        .filter(|cache| cache.kind != "Instruction")
        .map(|cache| bytes(cache.bytes.into()))
        .collect();
    if caches.is_empty() {
        String::new()
    } else {
        format!(", caches of {}", list(&caches))
    }
}

fn machine(machine: &Machine) -> String {
    let caches = caches(machine);
    let gibibytes = machine.memory as f64 / f64::from(1 << 30);
    let Machine { cores, accelerator, os, arch, .. } = machine;
    let cores = if *cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
    let processor = machine.processor();
    let cpu = match accelerator {
        Some(accelerator) => format!("{accelerator} beside {processor}"),
        None => processor,
    };
    format!("{cpu} ({cores}{caches}, {gibibytes:.0}\u{202f}GiB of memory; {os}, {arch})")
}

/// `a, b and c`.
pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// The smallest and the largest of some numbers.
pub fn least_and_most(numbers: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    numbers.into_iter().fold(start, |(least, most), x| (least.min(x), most.max(x)))
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
pub mod tests {
    use super::*;
    use crate::output::files_below;
    use std::path::Path;

    /// The records of the project.
    pub fn committed() -> Records {
        Records::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records"))
            .unwrap()
    }

    fn pace() -> Record {
        Record::parse("pace", include_str!("../../../record/tests/pace.json")).unwrap()
    }

    #[test]
    fn the_slope_of_a_power_is_its_exponent() {
        let points: Vec<_> =
            (1..6).map(|n| (f64::from(n), 7.0 * f64::from(n).powf(1.5))).collect();
        assert!((log_log_slope(&points) - 1.5).abs() < 1e-12);
    }

    #[test]
    fn the_circumstances_are_told_in_one_sentence() {
        assert_eq!(
            provenance(&pace()),
            "on one thread of Shoes (2 cores, caches of 64\u{202f}bytes, 0\u{202f}GiB of memory; linux, x86_64) on \
             2026-01-31. Versions: rustc 1.0.0"
        );
        let mut accelerated = pace();
        accelerated.machine.accelerator = Some("Wheels".to_owned());
        assert!(provenance(&accelerated).starts_with("on Wheels beside Shoes (2 cores"));
    }

    #[test]
    fn of_other_records_only_what_differs_is_told() {
        let (first, mut other) = (pace(), pace());
        assert_eq!(provenance_of(&first, &[("the race", &other)]), provenance(&first));
        other.versions.insert("rustc".to_owned(), "1.1.0".to_owned());
        other.versions.insert("nalgebra".to_owned(), "0.2.0".to_owned()); // locked
        other.date = "2026-02-01T12:00:00Z".to_owned();
        other.measurements.iter_mut().for_each(|m| m.threads = 3);
        assert_eq!(
            provenance_of(&first, &[("the race", &other)]),
            provenance(&first)
                + "; the race on 3 threads, with rustc 1.1.0, on 2026-02-01"
        );
    }

    /// Every record in the project can be read, whether a page shows it or not, and lies in the folder that is named after its
    /// machine.
    #[test]
    fn all_records_are_sound() {
        let records = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records");
        let mut topics = vec![];
        for file in files_below(&records).unwrap() {
            if file.extension().is_some_and(|extension| extension == "json") {
                let Record { topic, machine, .. } =
                    Record::read(&records.join(&file)).unwrap();
                let folder = file.parent().unwrap();
                if folder != Path::new("") {
                    let named = machine.folder(&records).unwrap();
                    assert_eq!(folder, Path::new(&named), "{}", file.display());
                }
                topics.push(topic);
            }
        }
        assert!(topics.len() >= 4, "{topics:?}");
    }
}
