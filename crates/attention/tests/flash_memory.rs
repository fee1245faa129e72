//! The memory of attention by tiles, counted: it grows with n, where that of the naive program grows with n².

#[path = "common/peak.rs"]
#[allow(dead_code)] // the naive program has a test of its own
mod peak;

use attention::Mask;
use attention::flash::{Flash, Inputs, Tiles, tiled_attention, tiled_attention_backward};
use nalgebra::DMatrix;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const ELEMENT: usize = size_of::<f32>();

fn numbers(n: usize, width: usize, seed: usize) -> DMatrix<f32> {
    DMatrix::from_fn(n, width, |i, j| ((seed + 7 * i + 3 * j) as f32).sin())
}

/// How far memory rises above the inputs: forward, and forward with backward.
fn tiled(n: usize, d: usize) -> [usize; 2] {
    let [q, k, v, grad_output] = [0, 1, 2, 3].map(|seed| numbers(n, d, seed));
    let (mask, tiles) = (Mask::none(), Tiles::default());
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    let forward = || tiled_attention(&inputs, tiles).unwrap();
    let both = || {
        let output = forward();
        let gradients =
            tiled_attention_backward(&inputs, &output, &grad_output, tiles).unwrap();
        (output, gradients)
    };
    [peak::peak(&MEMORY, forward), peak::peak(&MEMORY, both)]
}

fn fast(n: usize, d: usize, heads: usize, threads: usize) -> [usize; 2] {
    let [q, k, v, grad_output] = [0, 1, 2, 3].map(|seed| numbers(n, heads * d, seed));
    let mask = Mask::none();
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap().with_heads(heads).unwrap();
    let flash = Flash::new().with_threads(threads).unwrap();
    let forward = || flash.forward(&inputs);
    let both = || {
        let output = forward();
        let gradients = flash.backward(&inputs, &output, &grad_output).unwrap();
        (output, gradients)
    };
    [peak::peak(&MEMORY, forward), peak::peak(&MEMORY, both)]
}

/// A program of its own, since the allocator counts what all threads do: those of the test harness would be counted, too.
fn main() {
    // By tiles nothing grows but what is asked for: the output and a log-sum-exp in two parts for each query; on the
    // backward pass also three gradients, and D.
    let d = 16;
    let counts = [512, 1024, 2048].map(|n| tiled(n, d));
    for (counts, more) in counts.windows(2).zip([512, 1024]) {
        let grows = [0, 1].map(|pass| counts[1][pass] - counts[0][pass]);
        let expected = [d + 2, 4 * d + 3].map(|numbers| more * numbers * ELEMENT);
        assert_eq!(grows, expected, "{more} tokens more");
    }

    // The fast program lays aside more, a part of it for each thread, and still at most as much as goes in and out.
    let d = 64;
    let release = !cfg!(debug_assertions); // a debug build would need minutes for so many tokens
    for (heads, n) in if release { [(1, 8192), (8, 8192)] } else { [(1, 2048), (8, 512)] }
    {
        // Without `rayon` there is one thread.
        for threads in if cfg!(feature = "rayon") { vec![1, 2] } else { vec![1] } {
            let context = format!("{heads} heads, {n} tokens, {threads} threads");
            let matrix = n * heads * d * ELEMENT;
            let [forward, both] = fast(n, d, heads, threads);
            // q, k, v and output; going back, their gradients as well
            assert!(forward <= 2 * 4 * matrix, "{context}: {forward}");
            assert!(both <= 2 * 8 * matrix, "{context}: {both}");

            // From where a tile is as large as it gets, each token takes as many bytes as any other: forward its output
            // and a little, in all about ten of its rows.
            if threads == 1 && n / 2 >= 512 {
                let [half_forward, half_both] = fast(n / 2, d, heads, threads);
                let grows = (forward - half_forward, both - half_both);
                assert!(grows.0 < 6 * matrix / 10, "{context}: grows by {}", grows.0);
                assert!(grows.1 < 6 * matrix, "{context}: grows by {}", grows.1);
            }
        }
    }
}
