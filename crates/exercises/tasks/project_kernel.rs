//! # A tiled kernel, without a GPU
//!
//! project, 150 minutes
//!
//! Write a forward kernel like the chapter's kernel 1, but simpler: one thread for each query, for a small model of a thread block. The block has `threads` queries, one for
//! each thread. Keys and values pass through shared memory, tile by tile, and each thread keeps a running maximum, a sum and its row of the output.
//!
//! `block.step(name, |thread, device| …)` runs code for every thread. The code may change only its own `thread` and the `device`: its shared
//! memory, and the output. `block.barrier()` is a barrier between two steps. The model counts loads from global memory, and remembers who used
//! which place of shared memory since the last barrier. Registers hold no more than one query and one row of the output.
//!
//! What earns the marks; each line is a test:
//!
//! - *Right*: the outputs of attention for any lengths, not only multiples of a tile or block.
//! - *Causal*: ends aligned, as in the crate. A query that sees nothing gets zeros.
//! - *Stable*: scores in the thousands don't overflow.
//! - *No race*: the result doesn't depend on the order of the threads.
//! - *Small*: it works with shared memory for a single key and value. With more, tiles are as large as fit.
//! - *Frugal*: a block loads each key and value once from global memory, and no key or value that none of its queries may see.
//! - *Fair*: the threads share these loads about evenly.
//!
//! Begin with one block and one tile, no mask. Then add one requirement at a time.
//!
//! # Hint
//!
//! Write the loop over tiles in plain words first, with its two barriers, as *Kernels on your own processor* does. What does a thread do whose query is
//! past the end: may it leave?
//!
//! # Hint
//!
//! A row of a tile can be a key and its value side by side, $d + d_v$ words. Threads share the *words* of a tile: the first takes 0, $T$, $2T$ and so on,
//! for $T$ threads. Let the tile end where the last query of the block stops to see.
//!
//! # Hint
//!
//! A step for the queries. For each tile: load, barrier, use, barrier. Then a step for the output. Each key of a tile changes maximum, sum and
//! output by the formulas of *Online softmax*: correction $e^{m - m'}$, weight $e^{s - m'}$. Before any key, $m = -\infty$ and the sum is 0.

use nalgebra::DMatrix;
use std::collections::HashMap;

/// What a block is to do.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub n_q: usize,
    pub n_k: usize,
    pub d: usize,
    pub d_v: usize,
    pub causal: bool,
    /// The threads of a block, one for each of its queries.
    pub threads: usize,
    /// The query of thread 0. The last block may have fewer queries than threads.
    pub first_query: usize,
    /// The words of shared memory: d + d_v at least.
    pub shared_words: usize,
}

/// A thread: its number, and its registers.
#[derive(Debug, Clone)]
pub struct Thread {
    pub number: usize,
    /// At most d numbers.
    pub query: Vec<f64>,
    /// At most d_v numbers.
    pub output: Vec<f64>,
    /// At first −∞.
    pub largest: f64,
    /// At first 0.
    pub sum: f64,
}

/// The memories: global, and shared.
pub struct Device<'a> {
    inputs: [&'a DMatrix<f64>; 3],
    output: &'a mut DMatrix<f64>,
    shared: Vec<f64>,
    /// For each place of shared memory, its uses since the last barrier: by which thread, in which step, and whether it wrote.
    uses: Vec<Vec<(usize, &'static str, bool)>>,
    now: (usize, &'static str),
    loads: HashMap<(usize, usize, usize), usize>,
    loads_of: Vec<usize>,
    race: Option<String>,
}

impl Device<'_> {
    /// Loads a number of query i from global memory.
    pub fn query(&mut self, i: usize, c: usize) -> f64 {
        self.load(0, i, c)
    }

    /// Loads a number of key j from global memory.
    pub fn key(&mut self, j: usize, c: usize) -> f64 {
        self.load(1, j, c)
    }

    /// Loads a number of value j from global memory.
    pub fn value(&mut self, j: usize, c: usize) -> f64 {
        self.load(2, j, c)
    }

    /// Stores a number of output i in global memory.
    pub fn store(&mut self, i: usize, c: usize, number: f64) {
        let n = self.output.nrows();
        assert!(
            i < n,
            "thread {} stores output {i}, but there are {n} queries",
            self.now.0
        );
        self.output[(i, c)] = number;
    }

    /// Reads a word of shared memory.
    pub fn read(&mut self, place: usize) -> f64 {
        self.note(place, false);
        self.shared[place]
    }

    /// Writes a word of shared memory.
    pub fn write(&mut self, place: usize, number: f64) {
        self.note(place, true);
        self.shared[place] = number;
    }

    fn load(&mut self, matrix: usize, row: usize, column: usize) -> f64 {
        let (thread, name) = (self.now.0, ["query", "key", "value"][matrix]);
        let n = self.inputs[matrix].nrows();
        assert!(
            row < n,
            "thread {thread} loads {name} {row} in the step `{}`, but there are only {n}",
            self.now.1
        );
        if matrix > 0 {
            *self.loads.entry((matrix, row, column)).or_default() += 1;
            self.loads_of[thread] += 1;
        }
        self.inputs[matrix][(row, column)]
    }

    fn note(&mut self, place: usize, writes: bool) {
        let (thread, step) = self.now;
        let words = self.shared.len();
        assert!(
            place < words,
            "thread {thread} uses place {place} in the step `{step}`, but shared memory has {words} words"
        );
        for &(other, other_step, wrote) in &self.uses[place] {
            if other != thread && (wrote || writes) && self.race.is_none() {
                let did = |wrote| if wrote { "writes" } else { "reads" };
                self.race = Some(format!(
                    "thread {other} {} place {place} in the step `{other_step}`, thread {thread} {} it in the step `{step}`, and no barrier is between",
                    did(wrote),
                    did(writes)
                ));
            }
        }
        if !self.uses[place].contains(&(thread, step, writes)) {
            self.uses[place].push((thread, step, writes));
        }
    }
}

/// A block of threads.
pub struct Block<'a> {
    pub shape: Shape,
    threads: Vec<Thread>,
    order: Vec<usize>,
    device: Device<'a>,
    barriers: usize,
}

impl Block<'_> {
    /// Runs this for every thread, in no particular order. No thread waits for another.
    pub fn step(&mut self, name: &'static str, work: impl Fn(&mut Thread, &mut Device)) {
        for &number in &self.order {
            let thread = &mut self.threads[number];
            self.device.now = (number, name);
            work(thread, &mut self.device);
            let fits = thread.query.len() <= self.shape.d
                && thread.output.len() <= self.shape.d_v;
            assert!(
                fits,
                "after the step `{name}`, the registers of thread {number} hold more than a query and a row of the output"
            );
        }
    }

    /// No thread goes on until all have come here.
    pub fn barrier(&mut self) {
        self.barriers += 1;
        self.device.uses.iter_mut().for_each(Vec::clear);
    }
}

/// What the model saw.
pub struct Report {
    pub output: DMatrix<f64>,
    pub race: Option<String>,
    /// The key or value (1 or 2, row, column) that a block loaded most often, and how often.
    pub most_loaded: ((usize, usize, usize), usize),
    /// For each block: the loads of each thread, the last key that was loaded, and the number of barriers.
    pub blocks: Vec<(Vec<usize>, Option<usize>, usize)>,
}

/// Runs the kernel for every block. The threads run in an order that is made from `seed`.
pub fn launch(
    [q, k, v]: [&DMatrix<f64>; 3],
    causal: bool,
    threads: usize,
    shared_words: usize,
    seed: usize,
) -> Report {
    let mut output = DMatrix::from_element(q.nrows(), v.ncols(), f64::NAN);
    let (mut race, mut most_loaded, mut blocks) = (None, ((1, 0, 0), 0), vec![]);
    for first_query in (0..q.nrows()).step_by(threads) {
        let (n_q, n_k, d, d_v) = (q.nrows(), k.nrows(), q.ncols(), v.ncols());
        let shape =
            Shape { n_q, n_k, d, d_v, causal, threads, first_query, shared_words };
        let fresh = |number| Thread {
            number,
            query: vec![],
            output: vec![],
            largest: f64::NEG_INFINITY,
            sum: 0.0,
        };
        let mut order: Vec<_> = (0..threads).collect();
        order.sort_by_key(|number| number * seed % 7919);
        let device = Device {
            inputs: [q, k, v],
            output: &mut output,
            shared: vec![f64::NAN; shared_words],
            uses: vec![vec![]; shared_words],
            now: (0, ""),
            loads: HashMap::new(),
            loads_of: vec![0; threads],
            race: None,
        };
        let mut block = Block {
            shape,
            threads: (0..threads).map(fresh).collect(),
            order,
            device,
            barriers: 0,
        };
        kernel(&mut block);
        race = race.or(block.device.race);
        let most = block
            .device
            .loads
            .iter()
            .map(|(place, count)| (*place, *count))
            .max_by_key(|(_, count)| *count);
        most_loaded = [Some(most_loaded), most]
            .into_iter()
            .flatten()
            .max_by_key(|(_, count)| *count)
            .unwrap();
        let last_key = block.device.loads.keys().map(|(_, row, _)| *row).max();
        blocks.push((block.device.loads_of, last_key, block.barriers));
    }
    Report { output, race, most_loaded, blocks }
}

/// The kernel: what one block does for its queries.
pub fn kernel(block: &mut Block) {
    // SOLUTION
    let Shape { n_q, n_k, d, d_v, causal, threads, first_query, shared_words } =
        block.shape;
    let row = d + d_v; // of a tile: a key and its value
    // FAULT fixed-tile: but shared memory has
    // > let tile = 8;
    // FAULT one-by-one: are the tiles smaller than they could be
    // > let tile = 1;
    let tile = shared_words / row;
    // How many keys query i sees.
    // FAULT top-left: are the ends aligned
    // > let seen = |i: usize| if causal { (i + 1).min(n_k) } else { n_k };
    let seen = |i: usize| if causal { (i + 1 + n_k).saturating_sub(n_q) } else { n_k };
    // FAULT hidden-tiles: loads keys that none of its queries sees
    // > let seen_by_block = n_k;
    let seen_by_block = seen(n_q.min(first_query + threads) - 1);

    block.step("load the queries", |thread, device| {
        let i = first_query + thread.number;
        if i < n_q {
            thread.query = (0..d).map(|c| device.query(i, c)).collect();
        }
        thread.output = vec![0.0; d_v];
    });
    for first in (0..seen_by_block).step_by(tile) {
        let keys = tile.min(seen_by_block - first);
        block.step("load a tile", |thread, device| {
            // FAULT first-thread: do the others wait for it
            // > for place in if thread.number == 0 { 0..keys * row } else { 0..0 } {
            for place in (thread.number..keys * row).step_by(threads) {
                let (j, c) = (first + place / row, place % row);
                let number =
                    if c < d { device.key(j, c) } else { device.value(j, c - d) };
                device.write(place, number);
            }
        });
        // FAULT first-barrier: in the step `load a tile`, thread 0 reads it in the step `use the tile`
        block.barrier();
        block.step("use the tile", |thread, device| {
            let i = first_query + thread.number;
            if i >= n_q {
                return;
            }
            for j in first..seen(i).min(first + keys) {
                let place = (j - first) * row;
                let dot: f64 =
                    (0..d).map(|c| thread.query[c] * device.read(place + c)).sum();
                let score = dot / (d as f64).sqrt();
                // FAULT no-maximum: what is subtracted from the scores
                // > let largest = 0.0;
                // FAULT from-zero: does the maximum begin at −∞
                // > let largest = thread.largest.max(score).max(0.0);
                // FAULT latest: Is it the largest score so far
                // > let largest = score;
                // FAULT first: Is it the largest score so far
                // > let largest = if thread.sum == 0.0 { score } else { thread.largest };
                let largest = thread.largest.max(score);
                // FAULT no-correction: does the output follow a new maximum
                // > let correction = 1.0;
                let correction = (thread.largest - largest).exp();
                let weight = (score - largest).exp();
                thread.sum = correction * thread.sum + weight;
                for c in 0..d_v {
                    // FAULT from-global: times by one block
                    // > let value = device.value(j, c);
                    let value = device.read(place + d + c);
                    thread.output[c] = correction * thread.output[c] + weight * value;
                }
                thread.largest = largest;
            }
        });
        // FAULT second-barrier: in the step `use the tile`, thread 0 writes it in the step `load a tile`
        block.barrier();
    }
    block.step("store the output", |thread, device| {
        let i = first_query + thread.number;
        // FAULT past-the-end: but there are
        // > if true {
        if i < n_q {
            for c in 0..d_v {
                // FAULT nothing-to-see: sees nothing and gets NaN
                // > let sum = thread.sum;
                let sum = if thread.sum > 0.0 { thread.sum } else { 1.0 };
                device.store(i, c, thread.output[c] / sum);
            }
        }
    });
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// Queries (n_q, 5), keys (n_k, 5) and values (n_k, 3). All scores grow with `size`.
    fn inputs(n_q: usize, n_k: usize, size: f64) -> [DMatrix<f64>; 3] {
        let mut rng = ChaCha8Rng::seed_from_u64(n_q as u64);
        let mut draw = |rows: usize, columns: usize| {
            DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-2.0..2.0))
        };
        [draw(n_q, 5) * size, draw(n_k, 5), draw(n_k, 3)]
    }

    fn run(
        [q, k, v]: &[DMatrix<f64>; 3],
        causal: bool,
        threads: usize,
        shared_words: usize,
    ) -> Report {
        launch([q, k, v], causal, threads, shared_words, 1)
    }

    /// One block, three tiles, no mask.
    fn simple_case_is_right() -> bool {
        let [q, k, v] = inputs(4, 12, 1.0);
        let expected = attention(&q, &k, &v, Mask::none()).unwrap().0;
        (run(&[q, k, v], false, 4, 8 * 4).output - expected).amax() < 1e-9
    }

    /// Fewer queries than keys.
    fn causal_case_is_right() -> bool {
        let [q, k, v] = inputs(6, 11, 1.0);
        let expected = attention(&q, &k, &v, Mask::causal()).unwrap().0;
        (run(&[q, k, v], true, 4, 8 * 4).output - expected).amax() < 1e-9
    }

    fn check(
        inputs: &[DMatrix<f64>; 3],
        causal: bool,
        threads: usize,
        shared_words: usize,
        question: &str,
    ) {
        let question = match question {
            question if question.starts_with("one block") || simple_case_is_right() => {
                question
            }
            _ => "first get a single block without a mask right",
        };
        let question =
            if causal && question.contains("scores are") && !causal_case_is_right() {
                "first get a causal mask right, with scores of ordinary size"
            } else {
                question
            };
        let output = run(inputs, causal, threads, shared_words).output;
        let [q, k, v] = inputs;
        let mask = if causal { Mask::causal() } else { Mask::none() };
        let expected = attention(q, k, v, mask).unwrap().0;
        let (n_q, n_k) = (q.nrows(), k.nrows());
        for (i, c) in (0..n_q).flat_map(|i| (0..3).map(move |c| (i, c))) {
            let (given, expected) = (output[(i, c)], expected[(i, c)]);
            let place = format!(
                "{n_q} queries, {n_k} keys, causal: {causal}, {threads} threads, {shared_words} words: output {i}, column {c}"
            );
            let nothing = causal && i + 1 + n_k <= n_q;
            assert!(
                !(nothing && given.is_nan()),
                "{place}: this query sees nothing and gets NaN, not 0: what is it divided by?"
            );
            assert!(
                !(given.is_nan() && question.contains("scores are")),
                "{place} is NaN: {question}"
            );
            assert!(
                !given.is_nan(),
                "{place} is NaN: was it never stored, or was a place read that no thread has written? Threads without a query have to load, too. {question}"
            );
            assert!(
                (given - expected).abs() < 1e-9,
                "{place} is {given:.5}, not {expected:.5}: {question}"
            );
        }
    }

    #[test]
    fn right_for_any_lengths() {
        check(
            &inputs(4, 4, 1.0),
            false,
            4,
            8 * 4,
            "one block and one tile: does the output follow a new maximum, and is the scale √d?",
        );
        check(
            &inputs(4, 12, 1.0),
            false,
            4,
            8 * 4,
            "one block, three tiles: does the output follow a new maximum?",
        );
        check(
            &inputs(12, 4, 1.0),
            false,
            4,
            8 * 4,
            "three blocks: does each have its own queries?",
        );
        check(
            &inputs(7, 13, 1.0),
            false,
            4,
            8 * 4 + 3,
            "neither length is a multiple: is a key past the end counted?",
        );
        check(
            &inputs(3, 1, 1.0),
            false,
            8,
            8 * 9,
            "one key, and more threads than queries",
        );
    }

    #[test]
    fn causal_ends_are_aligned() {
        check(
            &inputs(9, 9, 1.0),
            true,
            4,
            8 * 3,
            "does a query see itself, and no later key?",
        );
        check(
            &inputs(5, 14, 1.0),
            true,
            2,
            8 * 3,
            "with fewer queries than keys, are the ends aligned?",
        );
        check(
            &inputs(11, 4, 1.0),
            true,
            4,
            8 * 3,
            "with more queries than keys, are the ends aligned?",
        );
    }

    #[test]
    fn large_scores_are_no_trouble() {
        check(
            &inputs(6, 11, 900.0),
            false,
            4,
            8 * 4,
            "the scores are large here: what is subtracted from the scores? Is it the largest score so far?",
        );
        check(
            &inputs(6, 11, 900.0),
            true,
            4,
            8 * 4,
            "the scores are large here: what is subtracted from the scores? Is it the largest score so far?",
        );
        let [q, k, v] = inputs(6, 11, 900.0);
        let low = [q.map(|x| x.abs() + 900.0), k.map(|x| -x.abs() - 1.0), v];
        check(
            &low,
            false,
            4,
            8 * 4,
            "all scores are below −1000 here: does the maximum begin at −∞, and not at 0?",
        );
    }

    #[test]
    fn no_race_in_any_order() {
        let inputs = inputs(10, 17, 1.0);
        let [q, k, v] = &inputs;
        for (causal, shared_words) in
            [(false, 8 * 5), (true, 8 * 5), (false, 8 * 40), (true, 8)]
        {
            let reports = [1, 7918, 3571]
                .map(|seed| launch([q, k, v], causal, 4, shared_words, seed));
            for report in &reports {
                if let Some(race) = &report.race {
                    panic!("causal: {causal}, {shared_words} words: {race}");
                }
                assert!(
                    report.output == reports[0].output,
                    "causal: {causal}, {shared_words} words: the output depends on the order of the threads"
                );
            }
        }
    }

    #[test]
    fn shared_memory_of_any_size() {
        for (keys, spare) in [(1, 0), (2, 5), (3, 0), (64, 1)] {
            let (inputs, words) = (inputs(6, 23, 1.0), 8 * keys + spare);
            check(
                &inputs,
                false,
                4,
                words,
                "is the tile as large as shared memory allows?",
            );
            let barriers = run(&inputs, false, 4, words).blocks[0].2;
            let most = 4 * 23_usize.div_ceil(keys) + 4;
            assert!(
                barriers <= most,
                "{words} words hold {keys} keys and values. For 23 keys a block comes to {barriers} barriers, and {most} would be plenty: are the tiles smaller than they could be?"
            );
        }
    }

    #[test]
    fn each_key_is_loaded_once() {
        for (n_q, n_k, causal) in
            [(8, 21, false), (8, 21, true), (13, 13, true), (9, 4, true)]
        {
            let report = run(&inputs(n_q, n_k, 1.0), causal, 4, 8 * 4);
            let ((matrix, row, column), count) = report.most_loaded;
            let name = ["key", "value"][matrix - 1];
            assert!(
                count <= 1,
                "column {column} of {name} {row} was loaded {count} times by one block: which thread brings it into shared memory, and who reads it there?"
            );
            for (block, (_, last_key, _)) in report.blocks.iter().enumerate() {
                let last_query = (4 * block + 3).min(n_q - 1);
                let seen =
                    if causal { (last_query + 1 + n_k).saturating_sub(n_q) } else { n_k };
                let loaded = last_key.map_or(0, |last| last + 1);
                assert!(
                    loaded <= seen,
                    "{n_q} queries, {n_k} keys, causal: block {block} loads {loaded} keys, though its last query sees {seen}: it loads keys that none of its queries sees"
                );
            }
        }
    }

    #[test]
    fn threads_share_the_loads() {
        for (loads, ..) in run(&inputs(8, 32, 1.0), false, 4, 8 * 8).blocks {
            let (most, all) = (loads.iter().max().unwrap(), loads.iter().sum::<usize>());
            assert!(
                8 * most <= 3 * all,
                "the threads of a block make {loads:?} loads: does one of them load for all, and do the others wait for it?"
            );
        }
    }
}
