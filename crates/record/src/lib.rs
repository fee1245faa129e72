//! Records: what was measured, on which machine, with which versions, and when.
//!
//! Measurements that depend on the machine can't be computed again where the book is built. They are taken once, written to
//! `records/MACHINE/TOPIC.json`, committed, and shown with its circumstances beside it.
//!
//! ```
//! let record = record::Record::parse("pace", include_str!("../tests/pace.json"))?;
//! assert_eq!(record.find("walk/home", "f32", 2000)?.median, 1440.0);
//! # Ok::<(), anyhow::Error>(())
//! ```

#![deny(missing_docs, unsafe_code)]

#[cfg(feature = "here")]
pub mod here;
mod machines;
mod processor;
pub mod statistics;

pub use processor::{Design, Known};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// The file of `records` that says which machines are shown, in order of preference: folders, one a line. A line that begins
/// with `#` is a comment.
pub const SHOWN: &str = "shown.txt";

/// The number of samples of a benchmark that runs for long and many times, whose median a record keeps.
pub const SAMPLES: usize = 10;

/// One topic, measured in one go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its subject, which is also the name of its file.
    pub topic: String,
    /// The time at which it was taken, in UTC: `2026-01-31T12:00:00Z`.
    pub date: String,
    /// The machine on which it was taken.
    pub machine: Machine,
    /// Of the compiler and of all crates that matter: `rustc`, `attention` and `nalgebra` at least. And the `commit` that
    /// was measured, if there was one.
    pub versions: BTreeMap<String, String>,
    /// Features of the crate that were on.
    pub features: Vec<String>,
    /// The results.
    pub measurements: Vec<Measurement>,
}

/// A machine, without anything that tells whose it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// The processor's microarchitecture by LLVM's name, such as `znver5`, if a compiler was there to tell: some vendors call
    /// several generations by one `cpu`. It may be wrong; see [`Machine::known_design`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microarchitecture: Option<String>,
    /// The family that the processor reports, if the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<u32>,
    /// The model within that family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<u32>,
    /// The number of its cores that the system sees.
    pub cores: usize,
    /// Main memory, in bytes.
    pub memory: u64,
    /// The caches of one core, as far as the system tells.
    pub caches: Vec<Cache>,
    /// The model of the accelerator, if one was at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// The operating system: `linux`.
    pub os: String,
    /// The processor's family: `x86_64`.
    pub arch: String,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// 1 is the nearest.
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size.
    pub bytes: u64,
}

/// One thing that was timed or counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// `GROUP/WHAT`.
    pub what: String,
    /// The type of its numbers: `f32`.
    pub dtype: String,
    /// The sizes of the problem: `n`, and others.
    pub sizes: BTreeMap<String, u64>,
    /// Other choices, by name: `mask`, and others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The number of threads that it could use.
    pub threads: usize,
    /// Of the numbers below.
    pub unit: Unit,
    /// Half of all samples are at most this.
    pub median: f64,
    /// The median distance of a sample from the median, times 1.4826: the standard deviation, if the noise is normal.
    pub spread: f64,
}

/// The unit of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Time.
    Seconds,
    /// Memory.
    Bytes,
    /// A multiple of something else.
    Ratio,
    /// A number of things, which may be none.
    Count,
    /// A rate of a memory.
    BytesPerSecond,
    /// A rate of a clock.
    Hertz,
    /// Power.
    Watts,
}

impl Unit {
    /// Returns true if a measurement in it may be zero.
    fn may_be_zero(self) -> bool {
        matches!(self, Self::Bytes | Self::Count)
    }
}

impl Measurement {
    /// Returns the parts that several measurements have in common: all but their names and numbers, which [`Measurement::named`] adds.
    #[must_use]
    pub fn common(
        dtype: impl ToString,
        sizes: &[(&str, usize)],
        settings: &[(&str, &dyn ToString)],
        threads: usize,
    ) -> Self {
        let size = |(name, size): &(&str, usize)| ((*name).to_owned(), *size as u64);
        let setting =
            |(name, is): &(&str, &dyn ToString)| ((*name).to_owned(), is.to_string());
        Self {
            what: String::new(),
            dtype: dtype.to_string(),
            sizes: sizes.iter().map(size).collect(),
            settings: settings.iter().map(setting).collect(),
            threads,
            unit: Unit::Count,
            median: f64::NAN,
            spread: f64::NAN,
        }
    }

    /// The same with a name, and with these numbers.
    #[must_use]
    pub fn named(&self, what: String, unit: Unit, (median, spread): (f64, f64)) -> Self {
        Self { what, unit, median, spread, ..self.clone() }
    }
}

impl Record {
    /// The record in a file, which has the name of its topic: `TOPIC.json`.
    ///
    /// # Errors
    /// It cannot be read, or something in it is missing, unknown or impossible; the message names file and field.
    pub fn read(file: &Path) -> Result<Self> {
        let topic = file.file_stem().and_then(|stem| stem.to_str());
        let topic = topic.context("a file without a name")?;
        let text = fs::read_to_string(file).with_context(|| {
            let command = command(&[topic]);
            format!("{} cannot be read; `cargo xtask {command}` makes it", file.display())
        })?;
        Self::parse(topic, &text).with_context(|| file.display().to_string())
    }

    /// The record of `topic` that `text` holds.
    ///
    /// # Errors
    /// As [`Record::read`].
    pub fn parse(topic: &str, text: &str) -> Result<Self> {
        let json = &mut serde_json::Deserializer::from_str(text);
        let record: Self = serde_path_to_error::deserialize(json)?;
        ensure!(
            record.topic == topic,
            "`topic` is {} but should be {topic}",
            record.topic
        );
        record.check()?;
        Ok(record)
    }

    /// Checks that every field has a possible value.
    ///
    /// # Errors
    /// One does not; the message names it.
    pub fn check(&self) -> Result<()> {
        for name in ["rustc", "attention", "nalgebra"] {
            ensure!(self.versions.contains_key(name), "`versions` has no {name}");
        }
        ensure!(
            is_time(&self.date),
            "`date` is {:?}, which is no time in UTC",
            self.date
        );
        ensure!(!self.machine.cpu.trim().is_empty(), "`machine.cpu` is empty");
        ensure!(self.machine.cores > 0, "`machine.cores` is 0");
        ensure!(!self.measurements.is_empty(), "`measurements` is empty");
        let mut known = BTreeSet::new();
        for (i, measurement) in self.measurements.iter().enumerate() {
            let Measurement { what, median, spread, threads, unit, .. } = measurement;
            let at = format!("`measurements[{i}]`, {what}:");
            let possible = *median > 0.0 || *median == 0.0 && unit.may_be_zero();
            ensure!(possible, "{at} `median` is {median}");
            ensure!(*spread >= 0.0, "{at} `spread` is {spread}");
            ensure!(*threads > 0, "{at} `threads` is 0");
            let Measurement { dtype, sizes, settings, .. } = measurement;
            let is_new = known.insert((what, dtype, sizes, settings, threads));
            ensure!(is_new, "{at} it is there twice");
        }
        Ok(())
    }

    /// The measurement of `what` with these numbers and this n.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn find(&self, what: &str, dtype: &str, n: u64) -> Result<&Measurement> {
        let mut found = self.all(what, dtype).filter(|m| m.sizes.get("n") == Some(&n));
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            (first, _) => {
                let how = if first.is_some() { "more than one" } else { "no" };
                bail!("the record `{}` has {how} {what}, {dtype}, n = {n}", self.topic)
            }
        }
    }

    /// The time of `what` with these numbers and this n, in seconds.
    ///
    /// # Errors
    /// There is none, or more than one, or it is no time.
    pub fn seconds(&self, what: &str, dtype: &str, n: u64) -> Result<f64> {
        self.in_unit(self.find(what, dtype, n)?, Unit::Seconds)
    }

    /// The number of one of its measurements, which is in this unit.
    ///
    /// # Errors
    /// It is in another one.
    pub fn in_unit(&self, measurement: &Measurement, unit: Unit) -> Result<f64> {
        let Measurement { what, dtype, sizes, unit: found, median, .. } = measurement;
        ensure!(
            *found == unit,
            "in the record `{}`, {what}, {dtype}, {sizes:?} is in {found:?} and not in {unit:?}",
            self.topic
        );
        Ok(*median)
    }

    /// All measurements of `what` with these numbers, in the order of the record.
    pub fn all(&self, what: &str, dtype: &str) -> impl Iterator<Item = &Measurement> {
        self.measurements.iter().filter(move |m| m.what == what && m.dtype == dtype)
    }

    /// Returns the number of threads, if it was the same for all measurements.
    pub fn threads(&self) -> Option<usize> {
        let threads = self.measurements.first()?.threads;
        self.measurements.iter().all(|m| m.threads == threads).then_some(threads)
    }

    /// The day of the date.
    pub fn day(&self) -> &str {
        self.date.split('T').next().unwrap_or_default()
    }
}

/// The command that takes the records of these topics. What the peers and the GPU need, only their own commands know.
#[must_use]
pub fn command(topics: &[&str]) -> String {
    match topics {
        ["peers"] => "bench --peers".to_owned(),
        ["gpu"] => "gpu run".to_owned(),
        ["kernels"] => "gpu compile".to_owned(),
        _ => format!("bench --record {}", topics.join(" ")),
    }
}

/// Returns true if the text is a second of a day of the calendar, such as `2026-01-31T12:00:00Z`, as it is written there.
fn is_time(text: &str) -> bool {
    Timestamp::from_str(text).is_ok_and(|time| time.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: &str = include_str!("../tests/pace.json");

    #[track_caller]
    fn refused(find: &str, replace: &str, says: &[&str]) {
        assert!(PACE.contains(find), "{find}");
        let error = Record::parse("pace", &PACE.replacen(find, replace, 1)).unwrap_err();
        let message = format!("{error:#}");
        for says in says {
            assert!(message.contains(says), "expected: {says}\nfound: {message}");
        }
    }

    #[test]
    fn what_is_missing_or_unknown_is_named_with_its_place() {
        refused("\"cores\": 2,", "", &["machine", "missing field `cores`"]);
        refused(
            "\"unit\": \"seconds\",",
            "",
            &["measurements[0]", "missing field `unit`"],
        );
        refused("\"cores\"", "\"hostname\"", &["machine", "unknown field `hostname`"]);
        refused("\"seconds\"", "\"hours\"", &["measurements[0].unit", "hours"]);
        refused("\"rustc\"", "\"cargo\"", &["`versions` has no rustc"]);
    }

    #[test]
    fn what_cannot_be_is_named_with_its_place() {
        refused("\"pace\"", "\"race\"", &["`topic` is race"]);
        refused("2026-01-31T12", "yesterday at 12", &["`date`"]);
        refused("1440.0", "-1440.0", &["measurements[0]", "`median` is -1440"]);
        refused("\"n\": 3000", "\"n\": 2000", &["measurements[1]", "twice"]);
    }

    #[test]
    fn a_file_that_is_not_there_says_how_to_make_it() {
        let error = Record::read(Path::new("pace.json")).unwrap_err().to_string();
        assert!(
            error.contains("pace.json cannot be read; `cargo xtask bench --record pace`")
        );
        let error = Record::read(Path::new("peers.json")).unwrap_err().to_string();
        assert!(error.contains("`cargo xtask bench --peers` makes it"), "{error}");
        let error = Record::read(Path::new("gpu.json")).unwrap_err().to_string();
        assert!(error.contains("`cargo xtask gpu run` makes it"), "{error}");
    }

    #[test]
    fn nothing_is_lost_on_the_way_to_the_file_and_back() {
        let record = Record::parse("pace", PACE).unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse("pace", &text).unwrap(), record);
    }

    /// Of some things there may be none, but nothing takes no time.
    #[test]
    fn only_what_is_counted_can_be_zero() {
        let mut record = Record::parse("pace", PACE).unwrap();
        record.measurements[0].median = 0.0;
        for (unit, is_possible) in [
            (Unit::Seconds, false),
            (Unit::Ratio, false),
            (Unit::BytesPerSecond, false),
            (Unit::Bytes, true),
            (Unit::Count, true),
        ] {
            record.measurements[0].unit = unit;
            assert_eq!(record.check().is_ok(), is_possible, "{unit:?}");
        }
        assert_eq!(
            serde_json::to_string(&Unit::BytesPerSecond).unwrap(),
            "\"bytes_per_second\""
        );
    }

    /// Settings tell measurements apart, and a record without any is written as it always was.
    #[test]
    fn settings_tell_measurements_apart() {
        let mut record = Record::parse("pace", PACE).unwrap();
        assert!(!serde_json::to_string(&record).unwrap().contains("settings"));
        let mut uphill = record.measurements[0].clone();
        uphill.unit = Unit::Ratio;
        record.measurements.push(uphill.clone());
        assert!(record.check().unwrap_err().to_string().contains("twice"));
        uphill.settings.insert("way".to_owned(), "uphill".to_owned());
        *record.measurements.last_mut().unwrap() = uphill;
        record.check().unwrap();
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(Record::parse("pace", &text).unwrap(), record);
    }

    #[test]
    fn a_measurement_is_found_or_missed_by_name() {
        let record = Record::parse("pace", PACE).unwrap();
        assert_eq!(record.find("walk/home", "f32", 3000).unwrap().median, 2160.0);
        let error = record.find("walk/home", "f64", 3000).unwrap_err().to_string();
        assert_eq!(error, "the record `pace` has no walk/home, f64, n = 3000");
        assert_eq!(record.threads(), Some(1));
        assert_eq!(record.day(), "2026-01-31");
        assert_eq!(record.seconds("walk/home", "f32", 3000).unwrap(), 2160.0);
        let mut bytes = record;
        bytes.measurements.iter_mut().for_each(|m| m.unit = Unit::Bytes);
        let error = bytes.seconds("walk/home", "f32", 3000).unwrap_err().to_string();
        assert!(error.starts_with("in the record `pace`, walk/home, f32"), "{error}");
        assert!(error.ends_with("is in Bytes and not in Seconds"), "{error}");
    }

    #[test]
    fn a_date_is_a_day_of_the_calendar() {
        for date in ["2024-02-29T23:59:59Z", "2026-01-31T12:00:00Z"] {
            assert!(is_time(date), "{date}");
        }
        for date in [
            "2026-13-01T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2026-00-10T12:00:00Z",
            "2026-04-31T12:00:00Z",
            "2026-01-00T12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:60:00Z",
            "2026-01-31T12:00:60Z",
            "2026-01-31T12:00:00",
            "yesterday",
        ] {
            assert!(!is_time(date), "{date}");
        }
    }
}
