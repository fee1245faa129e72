//! # The same bits
//!
//! medium, 20 minutes
//!
//! Run a program on another number of threads, and its last digits change, because sums round and were added in another
//! order. After a thousand steps of training that's another model, and a mistake can't be found twice. Write a sum over
//! many threads that always has the same bits.
//!
//! `share(range)` adds up the numbers in a range, and is the expensive part. Call it on ranges that together are
//! `0..n`, each number once. The ranges are shared out over `threads` threads, and you add up the shares.
//!
//! The result must not depend on the number of threads, nor on which of them is faster. Each thread should get
//! something to do if there is enough.
//!
//! # Hint
//!
//! Two things decide how a sum rounds: where it is cut, and in which order the parts are added. Which of them depend on
//! `threads` in the obvious program?
//!
//! # Hint
//!
//! Cut `0..n` into ranges of `PART` numbers, whatever the number of threads is. Any thread may compute any share, as
//! long as you know afterwards which one it is.
//!
//! # Hint
//!
//! With `std::thread::scope`, thread `t` takes the parts `t`, `t + threads`, and so on, and returns pairs of a part's
//! number and its share. Join all threads, sort the pairs by number, and only then add up.

use std::ops::Range;
use std::sync::Mutex;

/// How many numbers a part may have.
pub const PART: usize = 100;

/// Adds up the shares of `0..n` on so many threads, always with the same bits. Returns 0 if `n` is 0.
pub fn sum_on_threads(
    n: usize,
    threads: usize,
    share: &(dyn Fn(Range<usize>) -> f32 + Sync),
) -> f32 {
    // SOLUTION
    // FAULT cut-by-threads: where it is cut
    // > let part = n.div_ceil(threads).max(1);
    let part = PART;
    // FAULT last-part: counted once, also those in the last part
    // > let parts = n / part;
    let parts = n.div_ceil(part);
    let shares = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        let shares = &shares;
        for t in 0..threads {
            let work = move || {
                for p in (t..parts).step_by(threads) {
                    let share = share(p * part..n.min((p + 1) * part));
                    shares.lock().unwrap().push((p, share));
                }
            };
            // FAULT one-thread: threads worked
            // > work();
            scope.spawn(work);
        }
    });
    let mut shares = shares.into_inner().unwrap();
    // FAULT as-they-come: in the order in which they were ready
    shares.sort_by_key(|(p, _)| *p);
    shares.iter().map(|(_, share)| share).sum()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};
    use std::{collections::HashSet, ops::Range, sync::Mutex, thread, time::Duration};

    /// Large and small numbers, so that every change of order shows.
    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut normal = || -> f32 { StandardNormal.sample(&mut rng) };
        (0..n).map(|_| normal() * (2.0 * normal()).exp()).collect()
    }

    #[test]
    fn each_number_counts_once() {
        for (n, threads) in [(0, 3), (1, 4), (1000, 1), (1234, 3), (99, 2)] {
            let counts = Mutex::new(vec![0; n]);
            let sum = sum_on_threads(n, threads, &|range: Range<usize>| {
                range.clone().for_each(|i| counts.lock().unwrap()[i] += 1);
                range.len() as f32
            });
            let wrong = counts.into_inner().unwrap().iter().position(|count| *count != 1);
            assert!(
                wrong.is_none(),
                "{n} numbers on {threads} threads: number {} isn't counted once; each has to be counted once, also those in the last part",
                wrong.unwrap_or(0)
            );
            assert_eq!(sum, n as f32, "{n} ones on {threads} threads");
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        for seed in 0..4 {
            let numbers = numbers(1234, seed);
            let sum = |threads| {
                sum_on_threads(numbers.len(), threads, &|range: Range<usize>| {
                    numbers[range].iter().sum()
                })
            };
            let one = sum(1);
            for threads in [2, 3, 5, 8] {
                let many = sum(threads);
                assert_eq!(
                    one.to_bits(),
                    many.to_bits(),
                    "1 thread gives {one:e} and {threads} give {many:e}: does the number of threads decide where it is cut, or in which order shares are added?"
                );
            }
        }
    }

    #[test]
    fn a_slow_thread_changes_no_bit() {
        for seed in 4..9 {
            let numbers = numbers(600, seed);
            // The share that has number `slow` takes long.
            let run = |slow: usize| {
                sum_on_threads(numbers.len(), 3, &|range: Range<usize>| {
                    if range.contains(&slow) {
                        thread::sleep(Duration::from_millis(20));
                    }
                    numbers[range].iter().sum()
                })
            };
            let first = run(599);
            for slow in [0, 150, 299] {
                let other = run(slow);
                assert_eq!(
                    first.to_bits(),
                    other.to_bits(),
                    "{first:e} becomes {other:e} when another thread is slow: were the shares added in the order in which they were ready?"
                );
            }
        }
    }

    #[test]
    fn every_thread_has_work() {
        let seen = Mutex::new(HashSet::new());
        sum_on_threads(2000, 4, &|_: Range<usize>| {
            seen.lock().unwrap().insert(thread::current().id());
            thread::sleep(Duration::from_millis(3));
            0.0
        });
        let worked = seen.into_inner().unwrap().len();
        assert!(
            (3..=4).contains(&worked),
            "{worked} of 4 threads worked, with work enough for all"
        );
    }
}
