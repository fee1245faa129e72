//! The measurements.

use crate::grid::{Cell, Contestant, Pass};
use crate::run::Parts;
use crate::state::State;
use crate::torch::SIDE;
use record::statistics::median;
use recorder::rounds::Rounds;
use std::fmt;

/// The measurements of a run.
#[derive(Debug, Default)]
pub struct Measured {
    pub roofs: Roofs,
    pub cells: Vec<MeasuredCell>,
}

/// The device's best speeds.
#[derive(Debug, Default)]
pub struct Roofs {
    /// Bytes in a second, read and written.
    pub copy: f64,
    /// The seconds of each product of two large matrices, by the type of the numbers.
    pub products: Vec<(&'static str, Vec<f64>)>,
}

impl Roofs {
    /// The best speed of arithmetic in such numbers, in operations a second.
    fn flops(&self, dtype: &str) -> Option<f64> {
        let (_, samples) = self.products.iter().find(|(name, _)| *name == dtype)?;
        Some(2.0 * (SIDE as f64).powi(3) / median(samples))
    }
}

impl fmt::Display for Roofs {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "roofs: copies of {:.0} GB/s", self.copy / 1e9)?;
        for (dtype, _) in &self.products {
            let tflops = self.flops(dtype).unwrap_or(f64::NAN) / 1e12;
            write!(f, ", products of {tflops:.0} TFLOP/s in {dtype}")?;
        }
        Ok(())
    }
}

/// The measurements of one cell.
#[derive(Debug)]
pub struct MeasuredCell {
    pub cell: Cell,
    pub rounds: Rounds<Contestant>,
    /// The device's state in the turns of each, as far as it is known.
    pub states: Vec<(Contestant, State)>,
    /// Of those that have several functions, the times of each alone.
    pub parts: Vec<(Contestant, Parts)>,
}

impl MeasuredCell {
    /// The speeds in one line, as parts of the roof, with clock and power where these are known: "n = 512: tiled 8.1 (12 %, 63 GB/s,
    /// 1755 MHz, 400 W), torch-math 4.0 (6 %, 31 GB/s, 1980 MHz, 350 W) TFLOP/s". What decoding waits for is bytes, and its roof is that
    /// of copies.
    pub fn line(&self, roofs: &Roofs) -> String {
        let bytes = (self.cell.bytes() / 1e9, Some(roofs.copy / 1e9), "GB/s");
        let roof = roofs.flops(&self.cell.precision.to_string());
        let flops = (self.cell.flops() / 1e12, roof.map(|roof| roof / 1e12), "TFLOP/s");
        let is_decoding = self.cell.pass == Pass::Decoding;
        let ((work, roof, unit), (beside, _, unit_beside)) =
            if is_decoding { (bytes, flops) } else { (flops, bytes) };
        let speed = |contestant: &Contestant| {
            let seconds = self.rounds.seconds(*contestant)?;
            let speed = work / seconds;
            let beside = format!("{:.0} {unit_beside}", beside / seconds);
            let of_roof = roof.map(|roof| format!("{:.0} %", 100.0 * speed / roof));
            let state = self.states.iter().find(|(one, _)| one == contestant);
            let state = state.map(|(_, State { clock, power })| {
                format!("{:.0} MHz, {power:.0} W", clock / 1e6)
            });
            let more: Vec<_> = of_roof.into_iter().chain([beside]).chain(state).collect();
            Some(format!("{contestant} {speed:.1} ({})", more.join(", ")))
        };
        let speeds: Vec<_> = self.cell.contestants.iter().filter_map(speed).collect();
        let speeds =
            if speeds.is_empty() { "nothing".to_owned() } else { speeds.join(", ") };
        format!("{}: {speeds} {unit}", self.cell)
    }
}
