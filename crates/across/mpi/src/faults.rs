//! What may go wrong on one rank, provoked: all ranks have to end with an error, soon.

use crate::over_mpi::OverMpi;
use across::{Error, Layout, Local, Network, Result, Whole, ring};
use attention::Mask;
use attention::engine::Tiled;
use mpi::topology::SimpleCommunicator;
use nalgebra::DMatrix;
use std::time::Duration;

/// How long a rank waits for a message here.
const DEADLINE: Duration = Duration::from_secs(3);

/// Provokes a fault on the last rank, and returns the error that came of it.
pub fn provoke(world: &SimpleCommunicator, kind: &str) -> Result<(), String> {
    let network = OverMpi::new(world, DEADLINE);
    let (ranks, rank) = (network.ranks(), network.rank());
    let is_faulty = rank + 1 == ranks;
    // Large enough that MPI sends nothing before it is asked for.
    let (rows, width) = (if kind == "shapes" && is_faulty { 1001 } else { 1000 }, 64);
    let layout = Layout::Contiguous;
    let whole = Whole::new((ranks * rows, ranks * rows), (width, width), Mask::causal())
        .with_layouts(layout, layout);
    let x = DMatrix::<f64>::from_element(rows, width, 0.5);
    let local = Local { q: x.as_view(), k: x.as_view(), v: x.as_view() };
    let mut network = Faulty { network, kind: kind.to_owned(), exchanges: 0, is_faulty };
    match kind {
        "leave" | "die" | "length" | "shapes" => {}
        _ => return Err(format!("`{kind}` is no kind of fault")),
    }
    match ring::forward(&mut network, &Tiled::default(), &whole, &local) {
        Err(error) => Err(error.to_string()),
        Ok(_) => Ok(()),
    }
}

/// A network whose last rank does something wrong at its second exchange, after the headers.
struct Faulty<'a> {
    network: OverMpi<'a>,
    kind: String,
    exchanges: usize,
    is_faulty: bool,
}

impl Network for Faulty<'_> {
    fn rank(&self) -> usize {
        self.network.rank()
    }

    fn ranks(&self) -> usize {
        self.network.ranks()
    }

    fn sent(&self) -> u64 {
        self.network.sent()
    }

    fn exchange<R: Send>(
        &mut self,
        outgoing: &[(usize, &[u8])],
        incoming: &mut [(usize, &mut [u8])],
        meanwhile: impl FnOnce() -> R + Send,
    ) -> Result<R> {
        self.exchanges += 1;
        if !self.is_faulty || self.exchanges != 2 {
            return self.network.exchange(outgoing, incoming, meanwhile);
        }
        match self.kind.as_str() {
            "die" => std::process::exit(3),
            "length" => {
                let shorter = |&(rank, bytes): &(usize, &'_ [u8])| {
                    (rank, bytes[..bytes.len() - 1].to_vec())
                };
                let shorter: Vec<_> = outgoing.iter().map(shorter).collect();
                let shorter: Vec<_> =
                    shorter.iter().map(|(rank, bytes)| (*rank, &bytes[..])).collect();
                self.network.exchange(&shorter, incoming, meanwhile)
            }
            "leave" => {
                self.is_faulty = false;
                self.kind = "left".to_owned();
                let what = "leaves without a word".to_owned();
                Err(Error::Rank { rank: self.rank(), what })
            }
            _ => self.network.exchange(outgoing, incoming, meanwhile),
        }
    }

    fn give_up(&mut self, error: &Error) {
        if self.kind != "left" {
            self.network.give_up(error);
        }
    }
}
