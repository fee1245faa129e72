//! How far several runs of one computation are apart.

use super::facts::{Ladder, PASSES, Pass, SMALL, threads};
use crate::fast::facts::{D, N};
use crate::fast::peers::{Cell, time};
use crate::records::least_and_most;
use ::fast::Flash;
use anyhow::Result;
use attention::flash::Tiles;
use laboratory::LibraryFlash;
use record::Record;

/// The times of one computation in several runs: in the ladder, once more after it, and beside the peers.
pub struct Again {
    pub name: String,
    pub times: [Option<f64>; 3],
}

impl Again {
    /// The factor that they are apart at most.
    pub fn apart(&self) -> f64 {
        let (least, most) = least_and_most(self.times.iter().flatten().copied());
        most / least
    }
}

/// The median of some times, of which there is at least one.
pub fn median(times: impl Iterator<Item = f64>) -> f64 {
    let mut times: Vec<_> = times.collect();
    times.sort_by(f64::total_cmp);
    let middle = times.len() / 2;
    match times.len() % 2 {
        0 => (times[middle - 1] + times[middle]) / 2.0,
        _ => times[middle],
    }
}

impl Ladder {
    /// All computations of which there are several runs. `peers` are of the same machine, if they are there.
    pub fn again(&self, peers: Option<&Record>) -> Result<Vec<Again>> {
        let mut rows = vec![];
        for (step, peer) in [
            ("naive", Some("naive")),
            ("vector", None),
            ("tiles", None),
            ("registers", Some("flash")),
            ("threads", Some("flash")),
        ] {
            for pass in &PASSES {
                let Some(time) = self.time_if_any(pass, step)? else { continue };
                let beside = match peers.zip(peer) {
                    Some((peers, peer)) => Some(beside(peers, peer, step, pass)?),
                    None => None,
                };
                let times = [Some(time), self.once_more(step, pass)?, beside];
                if times.iter().flatten().count() > 1 {
                    rows.push(Again { name: format!("{step}, {}", pass.words), times });
                }
            }
        }
        Ok(rows)
    }

    /// The time of a pass that was timed once more after the ladder, if it was.
    fn once_more(&self, step: &str, pass: &Pass) -> Result<Option<f64>> {
        let (queries, keys) = SMALL;
        let (program, Tiles { queries, keys }) = match step {
            "vector" => ("library", Tiles { queries, keys }),
            "tiles" => ("library", LibraryFlash::default().tiles),
            "registers" if !pass.backward => ("registers", Flash::TILES),
            _ => return Ok(None),
        };
        let mask = if pass.causal { " causal" } else { "" };
        let sizes = [("queries", queries), ("keys", keys)];
        Ok(Some(self.find(&format!("tiles/{program}{mask}"), &sizes)?.median))
    }
}

/// The time of a pass in the run beside the peers, under this name.
fn beside(peers: &Record, name: &str, step: &str, pass: &Pass) -> Result<f64> {
    let cell = Cell {
        threads: threads(step),
        d: D as u64,
        mask: if pass.causal { "causal" } else { "full" },
        pass: if pass.backward { "forward+backward" } else { "forward" },
        n: N as u64,
    };
    Ok(time(peers, name, cell)?.median)
}
