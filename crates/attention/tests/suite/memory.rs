//! The memory of attention, counted: of the naive program, which grows with n², and of attention by tiles, which grows with n.

use attention::flash::{Inputs, Tiles, tiled_attention, tiled_attention_backward};
use attention::{Mask, attention, attention_backward};
use nalgebra::{DMatrix, convert};

/// How far the bytes that this thread allocates rise above where they were.
fn peak<O>(work: impl FnOnce() -> O) -> usize {
    allocation_counter::measure(|| drop(work())).bytes_max as usize
}

fn numbers<T: attention::Float>(n: usize, width: usize, seed: usize) -> DMatrix<T> {
    DMatrix::from_fn(n, width, |i, j| convert(((seed + 7 * i + 3 * j) as f64).sin()))
}

/// One matrix of n² forward, two forward and backward, and little else.
#[test]
fn naive_attention_keeps_one_matrix_of_weights() {
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
#[test]
fn tiles_keep_nothing_that_grows_with_the_square() {
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

#[test]
fn a_clone_of_a_mask_shares_its_matrix() -> attention::Result<()> {
    let n = 1024;
    let mask = Mask::dense(DMatrix::from_fn(n, n, |i, j| j <= i))?;
    let x = numbers::<f64>(n, 6, 2);
    let bytes = |mask: &Mask| {
        allocation_counter::measure(|| drop(Inputs::new(&x, &x, &x, mask).unwrap()))
            .bytes_total
    };
    assert!(bytes(&mask) < (n * n / 16) as u64, "{} bytes", bytes(&mask));
    Ok(())
}
