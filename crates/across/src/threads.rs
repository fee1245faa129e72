//! Ranks as threads of one process.

use crate::error::{Error, Result, blamed};
use crate::network::Network;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Ranks as threads of one process, joined by channels: a [`Network`] that needs nothing else.
///
/// A message is copied when it is sent, so no rank ever reads the memory of another.
///
/// ```
/// use across::{Network, Threads};
///
/// let from_previous = Threads::run(3, |network| {
///     let mut received = [0.0];
///     network.shift([&[network.rank() as f64]], [&mut received], || ())?;
///     Ok::<_, across::Error>(received[0])
/// });
/// assert_eq!(from_previous, [Ok(2.0), Ok(0.0), Ok(1.0)]);
/// ```
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    to: Vec<Sender<Parcel>>,
    from: Vec<Receiver<Parcel>>,
    deadline: Duration,
    sent: u64,
    failed: Option<Error>,
}

#[derive(Debug)]
enum Parcel {
    Message(Vec<u8>),
    GaveUp(usize, String), // who is to blame, and for what
}

impl Threads {
    /// How long [`Threads::run`] lets a rank wait for a message.
    pub const DEADLINE: Duration = Duration::from_secs(60);

    /// Returns one end for each rank, to be moved into threads. A rank that waits longer than `deadline` for one message gets an error.
    #[must_use]
    pub fn new(ranks: usize, deadline: Duration) -> Vec<Self> {
        // One channel for each pair, of which receivers are sorted by sender: from[receiver][sender].
        let mut from: Vec<Vec<_>> = (0..ranks).map(|_| vec![]).collect();
        let mut to: Vec<Vec<_>> = vec![];
        for _ in 0..ranks {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..ranks).map(|_| channel()).unzip();
            to.push(senders);
            from.iter_mut().zip(receivers).for_each(|(all, receiver)| all.push(receiver));
        }
        let ends = to.into_iter().zip(from).enumerate();
        ends.map(|(rank, (to, from))| Threads {
            rank,
            to,
            from,
            deadline,
            sent: 0,
            failed: None,
        })
        .collect()
    }

    /// Runs `work` on each of so many ranks, and returns what it returned, in the order of the ranks.
    ///
    /// # Panics
    /// If `work` panics on a rank; but only after all ranks have ended.
    pub fn run<R: Send>(ranks: usize, work: impl Fn(&mut Self) -> R + Sync) -> Vec<R> {
        let results = Threads::try_run(ranks, Threads::DEADLINE, work);
        let or_panic = |result: thread::Result<R>| {
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        results.into_iter().map(or_panic).collect()
    }

    /// The same with another deadline; a rank that panicked has what it panicked with for its result.
    pub fn try_run<R: Send>(
        ranks: usize,
        deadline: Duration,
        work: impl Fn(&mut Self) -> R + Sync,
    ) -> Vec<thread::Result<R>> {
        let work = &work;
        thread::scope(|scope| {
            // Each thread owns its end. When it returns or panics the end is dropped, and with it its channels: so others learn of it.
            let start = |mut network: Self| scope.spawn(move || work(&mut network));
            let threads: Vec<_> =
                Threads::new(ranks, deadline).into_iter().map(start).collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        })
    }

    fn receive(&self, from: usize, buffer: &mut [u8]) -> Result<()> {
        match self.from[from].recv_timeout(self.deadline) {
            Ok(Parcel::Message(message)) if message.len() == buffer.len() => {
                buffer.copy_from_slice(&message);
                Ok(())
            }
            Ok(Parcel::Message(message)) => {
                let (given, expected) = (message.len(), buffer.len());
                Err(blamed(
                    from,
                    format!("sent {given} bytes where {expected} were expected"),
                ))
            }
            Ok(Parcel::GaveUp(rank, what)) => Err(blamed(rank, what)),
            Err(RecvTimeoutError::Disconnected) => Err(blamed(from, "has left")),
            Err(RecvTimeoutError::Timeout) => {
                Err(blamed(from, format!("sent nothing for {:?}", self.deadline)))
            }
        }
    }
}

impl Network for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.to.len()
    }

    fn sent(&self) -> u64 {
        self.sent
    }

    fn exchange<R: Send>(
        &mut self,
        outgoing: &[(usize, &[u8])],
        incoming: &mut [(usize, &mut [u8])],
        meanwhile: impl FnOnce() -> R + Send,
    ) -> Result<R> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        for &(rank, bytes) in outgoing {
            self.sent += bytes.len() as u64;
            // If that rank has left, it said why, if it could, to those that wait for it.
            let _ = self.to[rank].send(Parcel::Message(bytes.to_vec()));
        }
        let result = meanwhile();
        for (rank, buffer) in incoming {
            self.receive(*rank, buffer)?;
        }
        Ok(result)
    }

    fn give_up(&mut self, error: &Error) {
        let (blamed, what) = error.blame(self.rank);
        for (rank, channel) in self.to.iter().enumerate() {
            if rank != self.rank {
                let _ = channel.send(Parcel::GaveUp(blamed, what.clone()));
            }
        }
        self.failed = Some(error.clone());
    }
}
