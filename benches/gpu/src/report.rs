//! The record.

use crate::grid::{Contestant, Pass};
use crate::measured::{Measured, MeasuredCell, Roofs};
use crate::run::Parts;
use crate::state::State;
use crate::torch::{SIDE, Torch};
use anyhow::Result;
use attention::cuda::{Device, Shape, compiler_version};
use record::statistics::{median, spread};
use record::{Measurement, Record, Unit};
use std::collections::BTreeMap;
use std::process::Command;

/// When, where, and with which versions, which were read when this program was built.
///
/// # Errors
/// One of these cannot be found out.
pub fn circumstances(topic: &str) -> Result<Record> {
    let mut versions: BTreeMap<String, String> =
        serde_json::from_str(env!("BUILT_WITH"))?;
    versions.insert("nvrtc".to_owned(), nvrtc()?);
    let features = ["cuda", "rayon"].map(str::to_owned).to_vec();
    recorder::circumstances(topic, versions, features)
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

/// The record of times on this device, without the times.
///
/// # Errors
/// The circumstances cannot be found out.
pub fn of_times(device: &Device, torch: Option<&Torch>) -> Result<Record> {
    let mut record = circumstances("gpu")?;
    record.machine.accelerator = Some(device.name.clone());
    record.versions.insert("driver".to_owned(), driver(device));
    record.versions.extend(torch.map(|torch| torch.versions.clone()).unwrap_or_default());
    Ok(record)
}

/// All that the run gave.
pub fn measurements(Measured { roofs, cells }: &Measured) -> Vec<Measurement> {
    of_roofs(roofs).into_iter().chain(cells.iter().flat_map(of_cell)).collect()
}

/// The device's best speeds.
fn of_roofs(Roofs { copy, products }: &Roofs) -> Vec<Measurement> {
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

/// The times of a cell, how many times as long as each of our kernels each of PyTorch's backends took, the device's clock and power
/// meanwhile, and the times of functions alone.
fn of_cell(
    MeasuredCell { cell, rounds, states, parts }: &MeasuredCell,
) -> Vec<Measurement> {
    let Shape { heads, kv_heads, n_q, n_k, d, .. } = cell.shape;
    let mut sizes = vec![("n", n_k), ("d", d), ("heads", heads)];
    if cell.pass == Pass::Decoding {
        sizes.extend([("kv_heads", kv_heads), ("queries", n_q)]);
    }
    let common =
        Measurement::common(cell.precision, &sizes, &[("mask", &cell.mask())], 1);
    let times = rounds.measurements(&common, cell.pass, Contestant::is_ours);
    let state = |(contestant, state): &(Contestant, State)| {
        let named = |what: &str, unit, number| {
            let what = format!("{}-{what}/{contestant}", cell.pass);
            common.named(what, unit, (number, 0.0))
        };
        let clock = named("clock", Unit::Hertz, state.clock);
        [clock, named("power", Unit::Watts, state.power)]
    };
    let of_parts = |(contestant, parts): &(Contestant, Parts)| {
        let part = |(function, seconds): &(&str, Vec<f64>)| {
            let what = format!("{}-part/{contestant}/{function}", cell.pass);
            common.named(what, Unit::Seconds, (median(seconds), spread(seconds)))
        };
        parts.iter().map(part).collect::<Vec<_>>()
    };
    let states = states.iter().flat_map(state);
    times.into_iter().chain(states).chain(parts.iter().flat_map(of_parts)).collect()
}
