//! # Count a layer
//!
//! easy, 15 minutes
//!
//! Write down what a layer of attention costs in FLOPs, as the chapter counts them: forward, and in the backward pass
//! alone. A count like this tells you roughly how long training will take, before you rent a machine.
//!
//! The layer has $h$ heads of width $d$, all four projections, and $B$ sequences of $n$ tokens. The weights were kept, so the backward pass doesn't compute them again.
//!
//! The argument `causal` is new. If it is true, the program skips hidden pairs: no score, no exponential and no product
//! is computed for a pair of a query and a later key. Whatever doesn't belong to a pair stays as it is. Return exact counts.
//!
//! # Hint
//!
//! How many pairs of a query and a key are there without a mask? Which terms of the chapter's table contain that
//! number, and which don't?
//!
//! # Hint
//!
//! Under a causal mask the first query sees one key, the last one sees $n$. What is $1 + 2 + \dots + n$? It isn't quite
//! half of $n^2$.
//!
//! # Hint
//!
//! Compute three numbers: the FLOPs of the projections, the pairs of one head of one sequence, and the FLOPs of one
//! pair, $4 d + 5$. In the backward pass each product costs twice as much, and softmax has four operations for a score.

/// The sizes of a layer of self-attention at work on a batch.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    /// Sequences (B).
    pub batch: u64,
    /// Tokens of each sequence.
    pub n: u64,
    /// The width of the model.
    pub d_model: u64,
    /// The width of a head's queries, keys and values.
    pub d: u64,
    /// Heads (h).
    pub heads: u64,
}

/// Returns the FLOPs of a forward pass.
pub fn forward_flops(layer: &Layer, causal: bool) -> u64 {
    // SOLUTION
    let Layer { batch, n, d_model, d, heads } = *layer;
    // FAULT half: the diagonal is visible
    // > let pairs = if causal { n * n / 2 } else { n * n };
    let pairs = if causal { n * (n + 1) / 2 } else { n * n };
    // FAULT one-for-two: a multiplication with its addition is two FLOPs
    // > let projections = 4 * n * d_model * d;
    // FAULT projections-masked: a projection has no pairs
    // > let projections = 8 * n * d_model * d / if causal { 2 } else { 1 };
    let projections = 8 * n * d_model * d;
    batch * heads * (projections + pairs * (4 * d + 5))
    // END
}

/// Returns the FLOPs of the backward pass alone.
pub fn backward_flops(layer: &Layer, causal: bool) -> u64 {
    // SOLUTION
    let Layer { batch, n, d_model, d, heads } = *layer;
    let pairs = if causal { n * (n + 1) / 2 } else { n * n };
    // FAULT softmax-twice: backward, softmax has four operations for a score
    // > batch * heads * (16 * n * d_model * d + pairs * (8 * d + 10))
    batch * heads * (16 * n * d_model * d + pairs * (8 * d + 4))
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYERS: [Layer; 3] = [
        Layer { batch: 1, n: 10, d_model: 8, d: 4, heads: 1 },
        Layer { batch: 3, n: 7, d_model: 24, d: 5, heads: 4 },
        Layer { batch: 2, n: 128, d_model: 16, d: 2, heads: 8 },
    ];

    /// Without a mask, all heads of all sequences: the projections, the core forward, and both backward. Counted product by product: a
    /// multiplication with its addition for each row, column and entry that is summed over.
    fn counted(layer: &Layer) -> (u64, u64, u64, u64) {
        let Layer { batch, n, d_model, d, heads } = *layer;
        let product = |rows: u64, inner: u64, columns: u64| 2 * rows * inner * columns;
        let projections = 3 * product(n, d_model, d) + product(n, d, d_model);
        let products = product(n, d, n) + product(n, n, d); // scores, and weights times values
        let all = batch * heads;
        let forward = (all * projections, all * (products + 5 * n * n));
        // Backward, each product becomes two.
        (forward.0, forward.1, all * 2 * projections, all * (2 * products + 4 * n * n))
    }

    fn pairs(layer: &Layer) -> u64 {
        (0..layer.n)
            .map(|query| (0..layer.n).filter(|key| *key <= query).count() as u64)
            .sum()
    }

    #[test]
    fn forward_counts_projections_and_core() {
        for layer in &LAYERS {
            let (projections, core, ..) = counted(layer);
            let came = forward_flops(layer, false);
            assert!(
                came != projections / 2 + core,
                "{layer:?}: the projections are half of what they should be: a multiplication with its addition is two FLOPs"
            );
            assert!(
                came == projections + core,
                "{layer:?}, forward, without a mask: which term of the table is missing? Yours is {came:?}, expected {:?}",
                projections + core
            );
        }
    }

    #[test]
    fn a_causal_mask_leaves_out_pairs_only() {
        for layer in &LAYERS {
            let (projections, core, ..) = counted(layer);
            let came = forward_flops(layer, true);
            let right = projections + core / (layer.n * layer.n) * pairs(layer);
            assert!(
                came != projections + core / 2,
                "{layer:?}: exactly half of the core is too little: the diagonal is visible"
            );
            assert!(
                came > projections,
                "{layer:?}: causal, you count {came} FLOPs, no more than the projections alone: a projection has no pairs, so no mask makes it cheaper"
            );
            assert!(
                came == right,
                "{layer:?}, forward and causal: a projection has no pairs; do all other terms have them? Yours is {came:?}, expected {right:?}"
            );
        }
    }

    #[test]
    fn backward_has_twice_the_products() {
        for layer in &LAYERS {
            let (_, _, projections, core) = counted(layer);
            let forward = forward_flops(layer, false);
            let came = backward_flops(layer, false);
            assert!(
                came != 2 * forward,
                "{layer:?}: this is twice the forward pass: backward, softmax has four operations for a score"
            );
            assert!(
                came == projections + core,
                "{layer:?}, backward, without a mask: is the forward pass counted, too? Yours is {came:?}, expected {:?}",
                projections + core
            );
            let right = projections + core / (layer.n * layer.n) * pairs(layer);
            assert!(
                backward_flops(layer, true) == right,
                "{layer:?}, backward and causal: how many pairs are visible? Yours is {:?}, expected {right:?}",
                backward_flops(layer, true)
            );
        }
    }

    #[test]
    fn one_token_sees_all_there_is() {
        let layer = Layer { n: 1, ..LAYERS[1] };
        let (all, causal) = (forward_flops(&layer, false), forward_flops(&layer, true));
        assert!(
            all == causal,
            "a single token sees itself with and without a causal mask: the diagonal is visible; yours is {all:?}, expected {causal:?}"
        );
    }
}
