//! The memory of the engine, counted. A program of its own with one test, since the allocator counts what all threads do.

use attention::Mask;
use attention::engine::Engine;
use attention::flash::Inputs;
use fast::Flash;
use nalgebra::DMatrix;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs `work` and returns how far the allocated bytes rose above where they were.
fn peak<O>(work: impl FnOnce() -> O) -> usize {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let output = work();
    let most = MEMORY.peak_usage();
    drop(output);
    most - before
}

fn numbers(n: usize, width: usize, seed: usize) -> DMatrix<f32> {
    DMatrix::from_fn(n, width, |i, j| ((seed + 7 * i + 3 * j) as f32).sin())
}

/// It lays aside more than attention tile by tile, a part of it for each thread, and still at most as much as goes in and out.
#[test]
fn memory_is_what_was_promised() {
    const D: usize = 64;
    let peaks = |n: usize, heads: usize, threads: usize| {
        let [q, k, v, grad_output] = [0, 1, 2, 3].map(|seed| numbers(n, heads * D, seed));
        let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap().with_heads(heads);
        let (inputs, flash) =
            (inputs.unwrap(), Flash::new().with_threads(threads).unwrap());
        let forward = || flash.forward(&inputs).unwrap();
        let both = || {
            let output = forward();
            let grad = grad_output.as_view();
            let gradients = flash.backward(&inputs, &output, grad).unwrap();
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
