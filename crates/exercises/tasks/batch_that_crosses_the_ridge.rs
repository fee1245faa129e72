//! # The batch that crosses the ridge
//!
//! medium, 15 minutes
//!
//! A server multiplies the tokens of many users by the same weights. With one token it reads the whole matrix for a few
//! operations and waits for memory. The more tokens share one reading, the better.
//!
//! A projection multiplies a matrix of $b$ tokens, $(b, d_{in})$, by weights $(d_{in}, d_{out})$. Each of the three
//! matrices moves once, in numbers of $\beta$ bytes. Find the smallest $b$ for which the arithmetic intensity reaches
//! the ridge of the machine. For some layers no batch is large enough: return `None` for them.
//!
//! # Hint
//!
//! How many FLOPs are there for $b$ tokens? How many numbers have the input, the weights and the output?
//!
//! # Hint
//!
//! Write intensity ≥ ridge as FLOPs ≥ ridge · bytes. Both sides are linear in $b$. What does a very large $b$ do to the
//! intensity: does it grow without a limit?
//!
//! # Hint
//!
//! With $\rho$ for the ridge times $\beta$:
//! $b \cdot (2\, d_{in} d_{out} - \rho\, (d_{in} + d_{out})) \ge \rho\, d_{in} d_{out}$. If the bracket isn't positive,
//! nothing helps. Otherwise divide, and round up.

/// Returns the fewest tokens with which a projection isn't memory-bound any more, if there are any.
///
/// `number` is the bytes of a number, and `ridge` is in FLOP/byte.
pub fn smallest_batch(
    d_in: usize,
    d_out: usize,
    number: usize,
    ridge: f64,
) -> Option<usize> {
    // SOLUTION
    let (d_in, d_out) = (d_in as f64, d_out as f64);
    // FAULT numbers-for-bytes: a ridge counts bytes
    // > let ridge = ridge + 0.0 * number as f64;
    let ridge = ridge * number as f64; // FLOPs for each number
    // FAULT weights-only: the tokens and the outputs move, too
    // > let gain = 2.0 * d_in * d_out;
    let gain = 2.0 * d_in * d_out - ridge * (d_in + d_out);
    // FAULT no-limit: never reaches the ridge
    // > if gain == 0.0 {
    if gain <= 0.0 {
        return None;
    }
    // FAULT rounded-down: with one token fewer than needed
    // > Some((ridge * d_in * d_out / gain).floor() as usize)
    Some((ridge * d_in * d_out / gain).ceil() as usize)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intensity(b: usize, d_in: usize, d_out: usize, number: usize) -> f64 {
        (2 * b * d_in * d_out) as f64
            / (number * (b * d_in + d_in * d_out + b * d_out)) as f64
    }

    const LAYERS: [(usize, usize, usize, f64); 6] = [
        (512, 512, 4, 10.0),
        (768, 3072, 4, 13.0),
        (2048, 256, 2, 40.0),
        (4096, 4096, 2, 295.0),
        (64, 64, 4, 3.0),
        (1024, 128, 8, 7.5),
    ];

    #[test]
    fn the_batch_reaches_the_ridge() {
        for (d_in, d_out, number, ridge) in LAYERS {
            let layer = format!("{d_in} → {d_out}, {number} bytes, ridge {ridge}");
            let came = smallest_batch(d_in, d_out, number, ridge);
            let Some(b) = came else {
                panic!("{layer}: some batch reaches the ridge, and you say None")
            };
            let weights_only = (ridge * number as f64 / 2.0).ceil() as usize;
            assert_ne!(
                b, weights_only,
                "{layer}: {b} would do if only the weights moved: the tokens and the outputs move, too"
            );
            let reached = intensity(b, d_in, d_out, number);
            let one_more = intensity(b + 1, d_in, d_out, number);
            assert!(
                reached >= ridge || one_more < ridge,
                "{layer}: {b} tokens have {reached:.2} FLOP/byte: you stop with one token fewer than needed"
            );
            assert!(
                reached >= ridge,
                "{layer}: {b} tokens have only {reached:.2} FLOP/byte: a ridge counts bytes, and are all three matrices in them?"
            );
        }
    }

    #[test]
    fn no_smaller_batch_does() {
        for (d_in, d_out, number, ridge) in LAYERS {
            let b = smallest_batch(d_in, d_out, number, ridge)
                .expect("some batch reaches the ridge, and you say None");
            let fewer = intensity(b.max(1) - 1, d_in, d_out, number);
            assert!(
                fewer < ridge,
                "{d_in} → {d_out}: {} tokens have {fewer:.2} FLOP/byte and reach {ridge}, too",
                b - 1
            );
        }
    }

    #[test]
    fn an_exact_fit_is_not_rounded() {
        // 2 · 8 · 16 · 16 FLOPs, and 8 · 16 + 16 · 16 + 8 · 16 bytes
        let b = smallest_batch(16, 16, 1, 8.0);
        assert_eq!(
            b,
            Some(8),
            "16 → 16 in numbers of one byte: 8 tokens have exactly 8 FLOP/byte, which reaches a ridge of 8"
        );
    }

    #[test]
    fn a_narrow_layer_never_gets_there() {
        for (d_in, d_out, number, ridge) in
            [(64, 64, 4, 16.0), (64, 64, 4, 20.0), (4096, 16, 2, 100.0)]
        {
            let most = intensity(1 << 30, d_in, d_out, number);
            let came = smallest_batch(d_in, d_out, number, ridge);
            assert_eq!(
                came, None,
                "{d_in} → {d_out}: even a billion tokens have {most:.2} FLOP/byte, so it never reaches the ridge at {ridge}"
            );
        }
    }
}
