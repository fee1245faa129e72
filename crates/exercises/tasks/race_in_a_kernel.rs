//! # Put the barriers where they belong
//!
//! medium, 25 minutes
//!
//! A block of threads turns rows of scores into weights, one row after another. Its threads share a memory with a place for each of
//! them. First they find the largest score in rounds, each with half as many threads as the round before. In the same way they
//! add up the exponentials.
//!
//! The kernel below has no barriers. Its weights come out right anyway, because this block runs its threads one after the other. But its
//! memory remembers who used which place since the last barrier, as ThreadSanitizer does.
//!
//! Each comment `barrier?` is a gap. Write `block.barrier();` where one is needed, and only there: all threads wait at
//! it. The tests leave out your barriers in turn.
//!
//! # Hint
//!
//! For each place of the memory, ask two questions. Who wrote it before I read it? And who will write it after I have read it?
//!
//! # Hint
//!
//! A step that uses only `register` has nothing to do with other threads. Two gaps with such a step between them are one gap. In the
//! loop over rows, the last step of one row is followed by the first step of the next.
//!
//! # Hint
//!
//! Run the tests with the barriers you are sure of. A report names two steps and a place: the barrier belongs in a gap between
//! those two. Begin with the first gap, then look inside the rounds, then at what overwrites place 0.

use nalgebra::DMatrix;
use std::panic::Location;

/// A block of threads with a shared memory, one place for each thread.
pub struct Block {
    memory: Vec<f64>,
    /// For each place, its uses since the last barrier: by which thread, in which step, and whether it wrote.
    uses: Vec<Vec<(usize, String, bool)>>,
    thread: usize,
    step: String,
    /// What was found: pairs of uses of one place that no barrier puts in order.
    pub races: Vec<String>,
    /// The lines with a barrier.
    pub barriers: Vec<u32>,
    /// The line whose barrier is left out, for a trial.
    pub left_out: Option<u32>,
}

impl Block {
    /// A block with so many threads.
    pub fn new(threads: usize) -> Self {
        Block {
            memory: vec![f64::NAN; threads],
            uses: vec![vec![]; threads],
            thread: 0,
            step: String::new(),
            races: vec![],
            barriers: vec![],
            left_out: None,
        }
    }

    /// All threads do this, in no particular order, and go on without waiting for one another. The work is given the thread's number.
    pub fn step(&mut self, name: &str, mut work: impl FnMut(usize, &mut Block)) {
        self.step = name.to_owned();
        for thread in 0..self.memory.len() {
            self.thread = thread;
            work(thread, self);
        }
    }

    /// What is at a place of the shared memory.
    pub fn read(&mut self, place: usize) -> f64 {
        self.note(place, false);
        self.memory[place]
    }

    /// Puts a number there.
    pub fn write(&mut self, place: usize, number: f64) {
        self.note(place, true);
        self.memory[place] = number;
    }

    /// No thread goes on until all have come here.
    #[track_caller]
    pub fn barrier(&mut self) {
        let line = Location::caller().line();
        if !self.barriers.contains(&line) {
            self.barriers.push(line);
        }
        if self.left_out != Some(line) {
            self.uses.iter_mut().for_each(Vec::clear);
        }
    }

    fn note(&mut self, place: usize, writes: bool) {
        for (thread, step, wrote) in &self.uses[place] {
            if *thread != self.thread && (*wrote || writes) {
                let did = |wrote| if wrote { "writes" } else { "reads" };
                self.races.push(format!(
                    "thread {thread} {} place {place} in the step `{step}`, thread {} {} it in the step `{}`, and no barrier is between",
                    did(*wrote),
                    self.thread,
                    did(writes),
                    self.step,
                ));
            }
        }
        self.uses[place].push((self.thread, self.step.clone(), writes));
    }
}

/// The weights of scores (n, threads), softmax of each row. The number of threads is a power of two.
pub fn kernel(block: &mut Block, scores: &DMatrix<f64>) -> DMatrix<f64> {
    let threads = scores.ncols();
    let mut register = vec![0.0; threads]; // one for each thread
    let mut weights = DMatrix::zeros(scores.nrows(), threads);
    for row in 0..scores.nrows() {
        block.step("store the score", |t, block| block.write(t, scores[(row, t)]));
        let mut distance = threads / 2;
        // SOLUTION: // barrier?
        // FAULT not-stored: in the step `store the score`, thread 0 reads it in the step `the larger of two`
        block.barrier();
        // END
        while distance > 0 {
            block.step("the larger of two", |t, block| {
                if t < distance {
                    let larger = block.read(t).max(block.read(t + distance));
                    block.write(t, larger);
                }
            });
            // SOLUTION: // barrier?
            // FAULT rounds: in the step `the larger of two`, thread 0 reads it in the step `the larger of two`
            block.barrier();
            // END
            distance /= 2;
        }
        block.step("read the largest", |t, block| register[t] = block.read(0));
        // SOLUTION: // barrier?
        // FAULT superfluous: finds no race
        // > block.barrier();
        // FAULT overwritten: in the step `read the largest`, thread 0 writes it in the step `store the exponential`
        // > // none
        block.barrier();
        // END
        block.step("exponentiate", |t, _| {
            register[t] = (scores[(row, t)] - register[t]).exp()
        });
        // SOLUTION: // barrier?
        // FAULT superfluous
        // > block.barrier();
        // No barrier: the step before used only registers.
        // END
        block.step("store the exponential", |t, block| block.write(t, register[t]));
        let mut distance = threads / 2;
        // SOLUTION: // barrier?
        block.barrier();
        // END
        while distance > 0 {
            block.step("the sum of two", |t, block| {
                if t < distance {
                    let sum = block.read(t) + block.read(t + distance);
                    block.write(t, sum);
                }
            });
            // SOLUTION: // barrier?
            block.barrier();
            // END
            distance /= 2;
        }
        block.step("read the sum", |t, block| register[t] /= block.read(0));
        // SOLUTION: // barrier?
        // FAULT next-row: in the step `read the sum`, thread 0 writes it in the step `store the score`
        block.barrier(); // the next row begins by writing
        // END
        block.step("write the weight", |t, _| weights[(row, t)] = register[t]);
        // SOLUTION: // barrier?
        // No barrier: each thread has weights of its own.
        // END
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn scores(rows: usize, threads: usize) -> DMatrix<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        DMatrix::from_fn(rows, threads, |_, _| rng.random_range(-3.0..3.0))
    }

    #[test]
    fn the_weights_are_right() {
        let scores = scores(3, 8);
        let weights = kernel(&mut Block::new(8), &scores);
        let expected = attention::softmax_rows(&scores).unwrap();
        assert!(
            (weights - expected).amax() < 1e-12,
            "the weights have changed: add barriers only, and leave the steps as they are"
        );
    }

    #[test]
    fn one_row_has_no_race() {
        for threads in [2, 8, 32] {
            let mut block = Block::new(threads);
            kernel(&mut block, &scores(1, threads));
            assert!(block.races.is_empty(), "with {threads} threads, {}", block.races[0]);
        }
    }

    #[test]
    fn rows_one_after_another_have_no_race() {
        let mut block = Block::new(8);
        kernel(&mut block, &scores(3, 8));
        assert!(block.races.is_empty(), "with three rows, {}", block.races[0]);
    }

    #[test]
    fn every_barrier_is_needed() {
        let mut all = Block::new(8);
        kernel(&mut all, &scores(3, 8));
        assert!(!all.barriers.is_empty(), "the kernel has no barrier yet");
        for line in all.barriers {
            let mut block = Block::new(8);
            block.left_out = Some(line);
            kernel(&mut block, &scores(3, 8));
            assert!(
                !block.races.is_empty(),
                "without the barrier in line {line}, the block finds no race: what would it put in order that another doesn't?"
            );
        }
    }
}
