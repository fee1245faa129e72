//! The memory of attention, counted: of the naive program, which grows with n², and of attention by tiles, which grows with n.
//!
//! A program of its own with one test, since the allocator counts what all threads do.

use attention::flash::{Flash, Inputs, Tiles, tiled_attention, tiled_attention_backward};
use attention::{Mask, attention, attention_backward};
use nalgebra::{DMatrix, convert};
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

#[test]
fn memory_is_what_was_promised() {
    naive();
    tiled();
    fast();
}

/// Runs `work` and returns how far the allocated bytes rose above where they were.
fn peak<O>(work: impl FnOnce() -> O) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let output = work();
    let most = MEMORY.peak_usage();
    drop(output);
    most - before
}

fn numbers<T: attention::Float>(n: usize, width: usize, seed: usize) -> DMatrix<T> {
    DMatrix::from_fn(n, width, |i, j| convert(((seed + 7 * i + 3 * j) as f64).sin()))
}

/// One matrix of n² forward, two forward and backward, and little else.
fn naive() {
    const D: usize = 16;
    for n in [1024, 2048] {
        let [q, k, v] = [0, 1, 2].map(|seed| numbers::<f64>(n, D, seed));
        let square = n * n * size_of::<f64>();
        // Queries, keys, values, output, gradients, and the blocks of factors that the product packs, for each thread.
        let little = (10 * n * D + 256 * 1024) * size_of::<f64>();
        let run = || attention(&q, &k, &v, Mask::none()).unwrap();
        let forward = peak(run);
        assert!((square..square + little).contains(&forward), "{n}: {forward}");
        let both = peak(|| {
            let (output, cache) = run();
            attention_backward(&cache, &output)
                .map(|gradients| (cache, output, gradients))
        });
        assert!((2 * square..2 * square + little).contains(&both), "{n}: {both}");
    }
}

/// Nothing grows but what is asked for: the output and a log-sum-exp in two parts for each query; on the backward pass also
/// three gradients, and D.
fn tiled() {
    const D: usize = 16;
    let counts = [512, 1024, 2048].map(|n| {
        let [q, k, v, grad_output] = [0, 1, 2, 3].map(|seed| numbers::<f32>(n, D, seed));
        let tiles = Tiles::default();
        let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap();
        let forward = || tiled_attention(&inputs, tiles).unwrap();
        let both = || {
            let output = forward();
            let gradients =
                tiled_attention_backward(&inputs, &output, &grad_output, tiles).unwrap();
            (output, gradients)
        };
        [peak(forward), peak(both)]
    });
    for (counts, more) in counts.windows(2).zip([512, 1024]) {
        let grows = [0, 1].map(|pass| counts[1][pass] - counts[0][pass]);
        let expected =
            [D + 2, 4 * D + 3].map(|numbers| more * numbers * size_of::<f32>());
        assert_eq!(grows, expected, "{more} tokens more");
    }
}

/// The fast program lays aside more, a part of it for each thread, and still at most as much as goes in and out.
fn fast() {
    const D: usize = 64;
    let peaks = |n: usize, heads: usize, threads: usize| {
        let [q, k, v, grad_output] =
            [0, 1, 2, 3].map(|seed| numbers::<f32>(n, heads * D, seed));
        let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap().with_heads(heads);
        let (inputs, flash) =
            (inputs.unwrap(), Flash::new().with_threads(threads).unwrap());
        let forward = || flash.forward(&inputs);
        let both = || {
            let output = forward();
            let gradients = flash.backward(&inputs, &output, &grad_output).unwrap();
            (output, gradients)
        };
        [peak(forward), peak(both)]
    };
    let release = !cfg!(debug_assertions); // a debug build would need minutes for so many tokens
    for (heads, n) in if release { [(1, 8192), (8, 8192)] } else { [(1, 2048), (8, 512)] }
    {
        // Without `rayon` there is one thread.
        for threads in if cfg!(feature = "rayon") { vec![1, 2] } else { vec![1] } {
            let context = format!("{heads} heads, {n} tokens, {threads} threads");
            let matrix = n * heads * D * size_of::<f32>();
            let [forward, both] = peaks(n, heads, threads);
            // q, k, v and output; going back, their gradients as well
            assert!(forward <= 2 * 4 * matrix, "{context}: {forward}");
            assert!(both <= 2 * 8 * matrix, "{context}: {both}");

            // From where a tile is as large as it gets, each token takes as many bytes as any other: forward its output
            // and a little, in all about ten of its rows.
            if threads == 1 && n / 2 >= 512 {
                let [half_forward, half_both] = peaks(n / 2, heads, threads);
                let grows = (forward - half_forward, both - half_both);
                assert!(grows.0 < 6 * matrix / 10, "{context}: grows by {}", grows.0);
                assert!(grows.1 < 6 * matrix, "{context}: grows by {}", grows.1);
            }
        }
    }
}
