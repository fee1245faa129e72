//! # A barrier that some threads skip
//!
//! easy, 10 minutes
//!
//! A barrier waits for *all* threads of a block. If some thread never comes, the others wait forever, and a GPU doesn't say why. So before you run a
//! kernel, count.
//!
//! Below are four kernels. Each is run by a block of `THREADS` threads, for $n = 6$ keys. For every kernel and every thread, write down at how
//! many barriers this thread arrives, in the order of the kernels and of the threads. Do it on paper: a row whose numbers differ is a kernel that hangs.
//!
//! # Hint
//!
//! A barrier in a loop counts once for every turn of the loop. How many turns does thread 3 take, and how many does thread 0?
//!
//! # Hint
//!
//! `(a..b).step_by(c)` begins at `a`, and ends before `b`. If it begins with the thread's number, threads may take different numbers of turns. If it
//! begins with 0 they can't.
//!
//! # Hint
//!
//! For each kernel write the condition that leads to the barrier, and put in the thread's number. In `halves`, the numbers 2 and 1 are compared with
//! it; in `causal`, 0, 1, 2 and so on.

/// The threads of a block: their numbers are 0, 1, 2 and 3.
pub const THREADS: usize = 4;

/// What a thread knows: its number, and at how many barriers it has arrived.
pub struct Thread {
    pub number: usize,
    pub arrivals: usize,
}

impl Thread {
    /// Waits until all threads have arrived.
    pub fn barrier(&mut self) {
        self.arrivals += 1;
    }
}

/// Kernel 0: the threads share the keys, each takes every fourth.
pub fn strided(thread: &mut Thread, n: usize) {
    for _key in (thread.number..n).step_by(THREADS) {
        // … load the key
        thread.barrier();
        // … use it
    }
}

/// Kernel 1: the keys come in tiles of four, and a thread whose key would be past the end loads none.
pub fn tiles(thread: &mut Thread, n: usize) {
    for first in (0..n).step_by(THREADS) {
        if first + thread.number < n {
            // … load key `first + thread.number`
        }
        thread.barrier();
        // … use the tile
        thread.barrier();
    }
}

/// Kernel 2: a sum over the block in rounds, each with half as many threads.
pub fn halves(thread: &mut Thread, _n: usize) {
    let mut distance = THREADS / 2;
    while distance > 0 {
        if thread.number < distance {
            // … add what the thread `distance` further on has
            thread.barrier();
        }
        distance /= 2;
    }
}

/// Kernel 3: causal. Each thread has a query, 2 to 5, and stops behind the last key that this query sees.
pub fn causal(thread: &mut Thread, n: usize) {
    let query = n - THREADS + thread.number;
    let seen = query + 1;
    for _key in 0..seen {
        // … load the key, together with the others
        thread.barrier();
        // … use it
        thread.barrier();
    }
}

/// Returns for each kernel, in the order above, at how many barriers each of the threads 0 to 3 arrives. There are 6 keys.
pub fn arrivals() -> [[usize; THREADS]; 4] {
    // SOLUTION
    [
        // FAULT rounded-up: which keys does it visit
        // > [2, 2, 2, 2],
        [2, 2, 1, 1],
        // FAULT past-the-end: does the condition stand around the barrier
        // > [4, 4, 2, 2],
        [4, 4, 4, 4],
        // FAULT all-of-them: kernel 2 (`halves`) has the same number for all threads
        // > [2, 2, 2, 2],
        [2, 1, 0, 0],
        // FAULT one-of-two: half of what it should be: does a turn of the loop have one barrier or two
        // > [3, 4, 5, 6],
        [6, 8, 10, 12],
    ]
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kernel: usize, name: &str, run: fn(&mut Thread, usize), question: &str) {
        let given = arrivals()[kernel];
        let expected: Vec<usize> = (0..THREADS)
            .map(|number| {
                let mut thread = Thread { number, arrivals: 0 };
                run(&mut thread, 6);
                thread.arrivals
            })
            .collect();
        let place = format!("kernel {kernel} (`{name}`)");
        let same = |row: &[usize]| row.iter().all(|&x| x == row[0]);
        assert!(
            !same(&given) || same(&expected),
            "{place} has the same number for all threads, {}: {question}",
            given[0]
        );
        assert!(
            given.iter().zip(&expected).any(|(given, expected)| 2 * given != *expected),
            "{place}: each number is half of what it should be: does a turn of the loop have one barrier or two?"
        );
        for (thread, (&given, &expected)) in given.iter().zip(&expected).enumerate() {
            assert!(
                given == expected,
                "{place}, thread {thread}: {given} isn't what this thread counts: {question}"
            );
        }
    }

    #[test]
    fn kernel_0_takes_every_fourth_key() {
        check(
            0,
            "strided",
            strided,
            "which keys does it visit, and does each thread visit as many?",
        );
    }

    #[test]
    fn kernel_1_takes_tiles() {
        check(
            1,
            "tiles",
            tiles,
            "does the condition stand around the barrier, or around the load alone?",
        );
    }

    #[test]
    fn kernel_2_halves_the_threads() {
        check(
            2,
            "halves",
            halves,
            "in which rounds is its number less than the distance?",
        );
    }

    #[test]
    fn kernel_3_stops_where_the_query_stops() {
        check(
            3,
            "causal",
            causal,
            "how many keys does its query see, and how many barriers has each?",
        );
    }
}
