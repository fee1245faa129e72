//! What the algorithms need of an interconnect, and nothing more.

use crate::error::Result;
use bytemuck::{cast_slice, cast_slice_mut};

/// A number that can be sent: `f32` or `f64`.
pub trait Number: attention::Float + bytemuck::Pod + sealed::Sealed {}

impl Number for f32 {}
impl Number for f64 {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// One rank's end of what connects all ranks.
///
/// There is one thing to implement, [`Network::exchange`]; the patterns of the algorithms are made of it. All ranks have to call the same
/// patterns in the same order.
pub trait Network {
    /// The number of this rank, from 0 on.
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn ranks(&self) -> usize;

    /// The bytes that this rank has sent to others, without what the interconnect adds.
    fn sent(&self) -> u64;

    /// Sends messages to other ranks, receives messages from others, and calls `meanwhile` while they are under way. Between two ranks
    /// messages keep their order. A rank is never its own partner.
    ///
    /// # Errors
    /// A rank has left or has given up, nothing came from it for too long, or its message has another length than the buffer.
    fn exchange<R: Send>(
        &mut self,
        outgoing: &[(usize, &[u8])],
        incoming: &mut [(usize, &mut [u8])],
        meanwhile: impl FnOnce() -> R + Send,
    ) -> Result<R>;

    /// Tells all others that this rank won't go on because of `error`. From now on all ranks get errors from [`Network::exchange`].
    fn give_up(&mut self, error: &crate::Error);

    /// Sends some buffers to the next rank, and receives as many from the previous one, in a ring.
    ///
    /// # Errors
    /// As [`Network::exchange`].
    fn shift<T: Number, R: Send, const N: usize>(
        &mut self,
        outgoing: [&[T]; N],
        incoming: [&mut [T]; N],
        meanwhile: impl FnOnce() -> R + Send,
    ) -> Result<R> {
        let (rank, ranks) = (self.rank(), self.ranks());
        if ranks == 1 {
            for (from, to) in outgoing.into_iter().zip(incoming) {
                to.copy_from_slice(from);
            }
            return Ok(meanwhile());
        }
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let outgoing = outgoing.map(|buffer| (next, cast_slice(buffer)));
        let mut incoming = incoming.map(|buffer| (previous, cast_slice_mut(buffer)));
        self.exchange(&outgoing, &mut incoming, meanwhile)
    }

    /// Sends `outgoing[r]` to each rank r, and receives `incoming[r]` from it.
    ///
    /// # Errors
    /// As [`Network::exchange`].
    fn all_to_all<T: Number>(
        &mut self,
        outgoing: &[Vec<T>],
        incoming: &mut [Vec<T>],
    ) -> Result<()> {
        let me = self.rank();
        incoming[me].copy_from_slice(&outgoing[me]);
        let others = |&rank: &usize| rank != me;
        let outgoing: Vec<_> = (0..outgoing.len())
            .filter(others)
            .map(|rank| (rank, cast_slice(&outgoing[rank])))
            .collect();
        let incoming = incoming.iter_mut().enumerate();
        let mut incoming: Vec<_> = incoming
            .filter(|(rank, _)| others(rank))
            .map(|(rank, buffer)| (rank, cast_slice_mut(buffer)))
            .collect();
        self.exchange(&outgoing, &mut incoming, || ())
    }

    /// Sends bytes to all ranks, and returns those of each rank, which are as many.
    ///
    /// # Errors
    /// As [`Network::exchange`].
    fn gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let (me, ranks) = (self.rank(), self.ranks());
        let mut all = vec![mine.to_vec(); ranks];
        let others = (0..ranks).filter(|&rank| rank != me);
        let outgoing: Vec<_> = others.map(|rank| (rank, mine)).collect();
        let incoming = all.iter_mut().enumerate().filter(|(rank, _)| *rank != me);
        let mut incoming: Vec<_> =
            incoming.map(|(rank, bytes)| (rank, bytes.as_mut_slice())).collect();
        self.exchange(&outgoing, &mut incoming, || ())?;
        Ok(all)
    }

    /// Sends the buffer of rank `root` to all others, whose buffers are written over.
    ///
    /// # Errors
    /// As [`Network::exchange`].
    fn broadcast<T: Number, R: Send>(
        &mut self,
        root: usize,
        buffer: &mut [T],
        meanwhile: impl FnOnce() -> R + Send,
    ) -> Result<R> {
        if self.rank() != root {
            return self.exchange(&[], &mut [(root, cast_slice_mut(buffer))], meanwhile);
        }
        let others = (0..self.ranks()).filter(|&rank| rank != root);
        let outgoing: Vec<_> = others.map(|rank| (rank, cast_slice(buffer))).collect();
        self.exchange(&outgoing, &mut [], meanwhile)
    }
}
