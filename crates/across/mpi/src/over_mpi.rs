//! A network of processes, by MPI.

use across::{Error, Network, Result};
use mpi::Count;
use mpi::datatype::Equivalence;
use mpi::point_to_point::{Message, Status};
use mpi::request::{LocalScope, Request};
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use std::collections::VecDeque;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Tags: what algorithms send, and the last words of a rank.
const MESSAGE: i32 = 0;
const GAVE_UP: i32 = 1;

/// Between two looks at MPI while a rank computes. Each look takes the processor from what it computes: on two cores of an Emerald Rapids that
/// both computed, 8,192 tokens took 274 ms without a look, 286 ms with this pause, and 299 ms with a tenth of it.
const PAUSE: Duration = Duration::from_millis(1);

/// From so many bytes on a message is worth a thread. MPI sends shorter ones without being asked again.
const LONG: usize = 1 << 16;

/// One process of several, as a rank.
///
/// MPI itself knows no deadlines: a receive whose message never comes waits forever, and a message that is longer than its buffer ends the
/// program. So this only polls. A message is looked at before it is received, and while nothing comes the clock is watched.
pub struct OverMpi<'a> {
    world: &'a SimpleCommunicator,
    deadline: Duration,
    sent: u64,
    failed: Option<Error>,
}

impl<'a> OverMpi<'a> {
    /// This process's end; none waits longer than `deadline` for one message.
    pub fn new(world: &'a SimpleCommunicator, deadline: Duration) -> Self {
        OverMpi { world, deadline, sent: 0, failed: None }
    }

    /// The next message from a rank, if it has come.
    fn probe(&self, rank: usize) -> Option<(Message, Status)> {
        let process = self.world.process_at_rank(rank as i32);
        process.immediate_matched_probe_with_tag(MESSAGE)
    }

    /// The last words of a rank that gave up, if there are any.
    fn last_words(&self) -> Result<()> {
        let any = self.world.any_process();
        let Some(found) = any.immediate_matched_probe_with_tag(GAVE_UP) else {
            return Ok(());
        };
        let (words, _): (Vec<u8>, _) = found.matched_receive_vec();
        let (rank, what) = words.split_at(size_of::<u64>().min(words.len()));
        let rank = rank.try_into().map_or(0, u64::from_le_bytes) as usize;
        Err(blamed(rank, String::from_utf8_lossy(what)))
    }

    /// Starts to receive what has come, in the order in which it is expected, which is that of each sender.
    fn receive<'b, 's>(
        &self,
        expected: &mut VecDeque<(usize, &'b mut [u8])>,
        scope: &'s LocalScope<'b>,
        under_way: &mut UnderWay<'b, 's>,
    ) -> Result<()> {
        while let Some((rank, buffer)) = expected.pop_front() {
            let Some((message, status)) = self.probe(rank) else {
                expected.push_front((rank, buffer));
                return Ok(());
            };
            let given = status.count(u8::equivalent_datatype()) as usize;
            if given != buffer.len() {
                let what =
                    format!("sent {given} bytes where {} were expected", buffer.len());
                let _: (Vec<u8>, _) = (message, status).matched_receive_vec();
                return Err(blamed(rank, what));
            }
            under_way.push(message.immediate_matched_receive_into(scope, buffer));
        }
        Ok(())
    }

    /// Calls `work` on a thread of its own, and meanwhile receives what comes. MPI moves a long message only in pieces, while its sender
    /// and its receiver call it: without this thread a message would wait until both have computed.
    fn poll_while<'b, 's, R: Send>(
        &self,
        work: impl FnOnce() -> R + Send,
        expected: &mut VecDeque<(usize, &'b mut [u8])>,
        scope: &'s LocalScope<'b>,
        under_way: &mut UnderWay<'b, 's>,
    ) -> (R, Result<()>) {
        let (done, result) = channel();
        let mut received = Ok(());
        let result = std::thread::scope(|threads| {
            // `done` is dropped with the thread, so if `work` panics, we learn of it.
            threads.spawn(move || done.send(work()));
            loop {
                if received.is_ok() {
                    received = self.receive(expected, scope, under_way);
                }
                complete(under_way);
                match result.recv_timeout(PAUSE) {
                    Err(RecvTimeoutError::Timeout) => {}
                    ended => return ended,
                }
            }
        });
        (result.expect("the scope panics if its thread did"), received)
    }

    /// Polls until all has been sent and received, or the time of a message is over.
    fn wait<'b, 's>(
        &self,
        expected: &mut VecDeque<(usize, &'b mut [u8])>,
        scope: &'s LocalScope<'b>,
        under_way: &mut UnderWay<'b, 's>,
        receiver: usize,
    ) -> Result<()> {
        let (mut last, mut left) = (Instant::now(), (expected.len(), under_way.len()));
        while left != (0, 0) {
            self.receive(expected, scope, under_way)?;
            complete(under_way);
            self.last_words()?;
            if left != (expected.len(), under_way.len()) {
                (last, left) = (Instant::now(), (expected.len(), under_way.len()));
            }
            if last.elapsed() > self.deadline {
                let (rank, what) = match expected.front() {
                    Some((rank, _)) => (*rank, "sent"),
                    None => (receiver, "took"),
                };
                return Err(blamed(
                    rank,
                    format!("{what} nothing for {:?}", self.deadline),
                ));
            }
            std::thread::yield_now(); // there may be more ranks than cores
        }
        Ok(())
    }

    /// Lets messages end that others may still take. What can't be sent can't be taken back either: its buffer stays MPI's, so then the
    /// whole program has to end; but late enough that others can say what they know.
    fn wind_up(&self, under_way: &mut UnderWay, why: &Error) {
        let start = Instant::now();
        while !under_way.is_empty() {
            complete(under_way);
            self.throw_away();
            if start.elapsed() > 2 * self.deadline {
                eprintln!("rank {}: {why}; this ends all ranks", self.rank());
                self.world.abort(1);
            }
            std::thread::yield_now();
        }
    }

    /// Takes what comes, so that those who send it can end.
    fn throw_away(&self) {
        let any = self.world.any_process();
        for tag in [MESSAGE, GAVE_UP] {
            if let Some(found) = any.immediate_matched_probe_with_tag(tag) {
                let _: (Vec<u8>, _) = found.matched_receive_vec();
            }
        }
    }

    /// Waits for all to have given up, since one that doesn't know yet may still send us something large; but no longer than for a message.
    fn wait_for_all(&self) {
        let (start, mut barrier) = (Instant::now(), self.world.immediate_barrier());
        while let Err(waiting) = barrier.test() {
            barrier = waiting;
            self.throw_away();
            if start.elapsed() > self.deadline {
                // A rank has left. The barrier has no buffers, so it may stay without an end.
                return std::mem::forget(barrier);
            }
            std::thread::yield_now();
        }
    }
}

/// Messages that MPI hasn't done with.
type UnderWay<'b, 's> = Vec<Request<'b, [u8], &'s LocalScope<'b>>>;

/// Removes what is done.
fn complete(under_way: &mut UnderWay) {
    let tested = under_way.drain(..).filter_map(|request| request.test().err());
    let rest: Vec<_> = tested.collect();
    under_way.extend(rest);
}

impl Network for OverMpi<'_> {
    fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    fn ranks(&self) -> usize {
        self.world.size() as usize
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
        // MPI counts in 32 bits. A rank that can't send says so before anything is under way.
        let mut lengths = outgoing.iter().map(|(_, bytes)| bytes.len());
        if let Some(length) = lengths.find(|&length| length > Count::MAX as usize) {
            return Err(blamed(
                self.rank(),
                format!("can't send {length} bytes at once"),
            ));
        }
        self.sent += outgoing.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        let is_long = outgoing.iter().any(|(_, bytes)| bytes.len() >= LONG)
            || incoming.iter().any(|(_, buffer)| buffer.len() >= LONG);
        let receiver = outgoing.first().map_or(0, |(rank, _)| *rank);
        mpi::request::scope(|scope| {
            let send = |&(rank, bytes): &(usize, _)| {
                let process = self.world.process_at_rank(rank as i32);
                process.immediate_send_with_tag(scope, bytes, MESSAGE)
            };
            let mut under_way: Vec<_> = outgoing.iter().map(send).collect();
            let mut expected: VecDeque<_> = incoming
                .iter_mut()
                .map(|(rank, buffer)| (*rank, &mut **buffer))
                .collect();
            let (result, early) = if is_long {
                self.poll_while(meanwhile, &mut expected, scope, &mut under_way)
            } else {
                (meanwhile(), Ok(()))
            };
            let waited = early
                .and_then(|()| self.wait(&mut expected, scope, &mut under_way, receiver));
            if let Err(error) = &waited {
                self.wind_up(&mut under_way, error);
            }
            waited.map(|()| result)
        })
    }

    fn give_up(&mut self, error: &Error) {
        let (blamed, what) = error.blame(self.rank());
        let mut words = (blamed as u64).to_le_bytes().to_vec();
        words.extend(what.bytes().take(500)); // so little that MPI takes it without waiting for the receiver
        mpi::request::scope(|scope| {
            let others = (0..self.ranks()).filter(|&rank| rank != self.rank());
            let send = |rank: usize| {
                let process = self.world.process_at_rank(rank as i32);
                process.immediate_send_with_tag(scope, &words[..], GAVE_UP)
            };
            let mut under_way: Vec<_> = others.map(send).collect();
            self.wind_up(&mut under_way, error);
        });
        self.wait_for_all();
        self.failed = Some(error.clone());
    }
}

fn blamed(rank: usize, what: impl Into<String>) -> Error {
    Error::Rank { rank, what: what.into() }
}
