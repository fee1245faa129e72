//! The speed over the sizes of tiles, and how far several runs of one computation are apart.

use super::facts::{Ladder, PASSES, Pass, SMALL, flops, threads};
use crate::fast::facts::{D, N};
use crate::fast::peers::{Cell, time};
use anyhow::Result;
use attention::flash::{Flash, Tiles};
use laboratory::LibraryFlash;
use record::Record;

/// The numbers of keys that were tried, and of queries with the library.
pub const SIZES: [usize; 4] = [64, 128, 256, 512];
/// The numbers of queries that were tried with the micro-kernels.
pub const BLOCKS: [usize; 4] = [48, 192, 576, 1152];

/// The speed of a program over the sizes of its tiles.
pub struct TileSpeeds {
    /// GFLOP/s for each number of keys, with so many queries.
    pub rows: Vec<(usize, [f64; 4])>,
    pub best: Tiles,
    /// By which share the tile that the program takes is slower than the best.
    pub behind: f64,
}

impl Ladder {
    /// The time of a program with tiles of this size.
    fn time_with(&self, program: &str, Tiles { queries, keys }: Tiles) -> Result<f64> {
        let sizes = [("queries", queries), ("keys", keys)];
        Ok(self.find(&format!("tiles/{program}"), &sizes)?.median)
    }

    /// Of a program that does this work and takes these tiles.
    pub fn tile_speeds(
        &self,
        program: &str,
        work: f64,
        queries: [usize; 4],
        default: Tiles,
    ) -> Result<TileSpeeds> {
        let speed =
            |tiles| anyhow::Ok(work * flops() / self.time_with(program, tiles)? / 1e9);
        let (mut rows, mut best, mut fastest) = (vec![], default, 0.0);
        for queries in queries {
            let mut row = [0.0; 4];
            for (keys, cell) in SIZES.into_iter().zip(&mut row) {
                *cell = speed(Tiles { queries, keys })?;
                if *cell > fastest {
                    (fastest, best) = (*cell, Tiles { queries, keys });
                }
            }
            rows.push((queries, row));
        }
        Ok(TileSpeeds { rows, best, behind: 1.0 - speed(default)? / fastest })
    }
}

/// Which share of the scores that are computed is hidden: of a block of B queries, B (B − 1) / 2, and of all, (B − 1) of n + B.
pub fn hidden_share(queries: usize) -> f64 {
    (queries - 1) as f64 / (N + queries) as f64
}

// ---------------------------------------------------------------------------------------------------- measured again

/// The times of one computation in several runs: in the ladder, among the sizes of tiles, and beside the peers.
pub struct Again {
    pub name: String,
    pub times: [Option<f64>; 3],
}

impl Again {
    /// The factor that they are apart at most.
    pub fn apart(&self) -> f64 {
        let known = || self.times.iter().flatten().copied();
        known().fold(0.0, f64::max) / known().fold(f64::MAX, f64::min)
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
                let times = [Some(time), self.time_among_tiles(step, pass)?, beside];
                if times.iter().flatten().count() > 1 {
                    rows.push(Again { name: format!("{step}, {}", pass.words), times });
                }
            }
        }
        Ok(rows)
    }

    /// The time of a pass among the sizes of tiles, if it is there.
    fn time_among_tiles(&self, step: &str, pass: &Pass) -> Result<Option<f64>> {
        let (queries, keys) = SMALL;
        let (program, tiles) = match step {
            "vector" => ("library", Tiles { queries, keys }),
            "tiles" => ("library", LibraryFlash::new().tiles()),
            "registers" if !pass.is_both() => ("registers", Flash::TILES),
            _ => return Ok(None),
        };
        let mask = if pass.is_causal() { " causal" } else { "" };
        self.time_with(&format!("{program}{mask}"), tiles).map(Some)
    }

    /// The spread of each time of the ladder, as a share of it.
    pub fn spreads(&self) -> Vec<f64> {
        let all = self.steps.measurements.iter();
        let of_ladder = all.filter(|m| m.what.starts_with("ladder/"));
        of_ladder.map(|m| m.spread / m.median).collect()
    }
}

/// The time of a pass in the run beside the peers, under this name.
fn beside(peers: &Record, name: &str, step: &str, pass: &Pass) -> Result<f64> {
    let cell = Cell {
        threads: threads(step),
        d: D as u64,
        mask: if pass.is_causal() { "causal" } else { "full" },
        pass: if pass.is_both() { "forward+backward" } else { "forward" },
        n: N as u64,
    };
    Ok(time(peers, name, cell)?.median)
}
