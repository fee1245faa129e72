//! The record.

use crate::grid::Contestant;
use crate::measured::{Measured, MeasuredCell, Roofs};
use crate::torch::{SIDE, Torch};
use anyhow::{Context, Result};
use attention::cuda::{Device, Error, Shape, compiler_version};
use record::statistics::{median, spread};
use record::take::write_file;
use record::{Measurement, Record, Unit};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The record of times, on its way.
pub struct Report {
    file: Option<PathBuf>,
    circumstances: Record,
}

/// When, where, and with which versions, which were read when this program was built.
///
/// # Errors
/// One of these cannot be found out.
pub fn circumstances(topic: &str) -> Result<Record> {
    let mut versions: BTreeMap<String, String> =
        serde_json::from_str(env!("BUILT_WITH"))?;
    versions.insert("nvrtc".to_owned(), nvrtc()?);
    let features = ["cuda", "rayon"].map(str::to_owned).to_vec();
    record::take::circumstances(topic, versions, features)
}

/// The version of the run-time compiler.
///
/// # Errors
/// There is none.
pub fn nvrtc() -> Result<String> {
    let (major, minor) = compiler_version()?;
    Ok(format!("{major}.{minor}"))
}

/// The version of the driver, or at least of the CUDA that it knows.
pub fn driver(device: &Device) -> String {
    let mut command = Command::new("nvidia-smi");
    command.args(["--query-gpu=driver_version", "--format=csv,noheader"]);
    let output = command.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = text.as_deref().and_then(|text| text.lines().next()).map(str::trim);
    let is_version = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
    let (major, minor) = device.driver;
    first
        .filter(is_version)
        .map_or_else(|| format!("CUDA {major}.{minor}"), str::to_owned)
}

impl Report {
    /// A record of times on this device, which goes to this file if there is one. All that can go wrong does so before
    /// anything is measured.
    ///
    /// # Errors
    /// The circumstances cannot be found out, or the folder of the file is not there.
    pub fn of_times(
        file: Option<&Path>,
        device: &Device,
        torch: Option<&Torch>,
    ) -> Result<Self> {
        let mut circumstances = circumstances("gpu")?;
        circumstances.machine.accelerator = Some(device.name.clone());
        circumstances.versions.insert("driver".to_owned(), driver(device));
        circumstances
            .versions
            .extend(torch.map(|torch| torch.versions.clone()).unwrap_or_default());
        Self::new(file, circumstances)
    }

    /// # Errors
    /// There can be no such file.
    pub fn new(file: Option<&Path>, circumstances: Record) -> Result<Self> {
        let report = Self { file: file.map(Path::to_owned), circumstances };
        if let Some(partial) = report.partial() {
            let cannot = || format!("{} cannot be written", partial.display());
            fs::write(&partial, "").with_context(cannot)?;
        }
        Ok(report)
    }

    /// Where the results so far lie: FILE.partial.
    fn partial(&self) -> Option<PathBuf> {
        let mut name = self.file.as_ref()?.clone().into_os_string();
        name.push(".partial");
        Some(name.into())
    }

    fn record(&self, measured: &Measured) -> Result<Record> {
        let mut record = self.circumstances.clone();
        record.measurements = roofs(&measured.roofs);
        record.measurements.extend(measured.cells.iter().flat_map(measurements));
        record.check()?;
        Ok(record)
    }

    /// Keeps what there is so far, in case that the run is cut off.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, measured: &Measured) -> Result<()> {
        let Some(partial) = self.partial() else { return Ok(()) };
        write_file(&partial, &self.record(measured)?)
    }

    /// After an error. What a kernel did before it was found to be wrong is not kept; after any other failure, it is.
    pub fn withdraw(&self, error: &anyhow::Error) {
        let Some(partial) = self.partial() else { return };
        let is_wrong = error.downcast_ref::<Error>().is_none();
        let is_empty = fs::metadata(&partial).is_ok_and(|found| found.len() == 0);
        if is_wrong || is_empty {
            let _ = fs::remove_file(partial);
        } else {
            eprintln!("what was measured until now is in {}", partial.display());
        }
    }

    /// Writes the record, if it is wanted.
    ///
    /// # Errors
    /// It makes no sense, or cannot be written.
    pub fn finish(&self, measured: &Measured) -> Result<()> {
        let record = self.record(measured)?;
        if let (Some(file), Some(partial)) = (&self.file, self.partial()) {
            write_file(file, &record)?;
            let _ = fs::remove_file(partial);
            println!("{}: {} measurements", file.display(), record.measurements.len());
        }
        Ok(())
    }
}

/// What the device can do at best.
fn roofs(Roofs { copy, products }: &Roofs) -> Vec<Measurement> {
    let copy = Measurement::common("f32", &[], &[], 1).named(
        "roof/copy".to_owned(),
        Unit::BytesPerSecond,
        (*copy, 0.0),
    );
    let product = |(dtype, seconds): &(&str, Vec<f64>)| {
        let common = Measurement::common(dtype, &[("n", SIDE)], &[], 1);
        let numbers = (median(seconds), spread(seconds));
        common.named("roof/product".to_owned(), Unit::Seconds, numbers)
    };
    [copy].into_iter().chain(products.iter().map(product)).collect()
}

/// The times of a cell, and how many times as long as each of our kernels each of PyTorch's backends took.
fn measurements(MeasuredCell { cell, rounds }: &MeasuredCell) -> Vec<Measurement> {
    let Shape { heads, n_q, d, .. } = cell.shape;
    let sizes = [("n", n_q), ("d", d), ("heads", heads)];
    let common =
        Measurement::common(cell.precision, &sizes, &[("mask", &cell.mask())], 1);
    rounds.measurements(&common, cell.pass, Contestant::is_ours)
}
