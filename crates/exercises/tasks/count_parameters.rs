//! # Count parameters
//!
//! easy, 5 minutes
//!
//! Someone tells you the size of a model, and you want to know where it comes from. Count the numbers that a layer
//! with one head learns: four matrices and four biases.
//!
//! Then count again, for a layer that stores no bias in vain. The chapter found one bias that does nothing, and one
//! that could be part of another one. Leave out both.
//!
//! # Hint
//!
//! Which shape does each of the four matrices have? A bias is as wide as what its matrix makes.
//!
//! # Hint
//!
//! Three matrices read a token, which is $d_{\text{model}}$ wide. The fourth one makes a token. Only two of the
//! four biases have the same width.
//!
//! # Hint
//!
//! Add up four terms of the form rows · columns, then `d_k + d_k + d_v + …`. The second function subtracts the
//! widths of two biases from the first.

/// Returns how many numbers a layer learns, with all its biases.
pub fn parameters(d_model: usize, d_k: usize, d_v: usize) -> usize {
    // SOLUTION
    // FAULT same-widths: values may be wider or narrower than keys
    // > let matrices = 4 * d_model * d_k;
    let matrices = 2 * d_model * (d_k + d_v); // W_Q, W_K and W_V, W_O
    // FAULT output-bias: how wide is what the output projection makes?
    // > let biases = 2 * d_k + 2 * d_v;
    let biases = 2 * d_k + d_v + d_model;
    matrices + biases
    // END
}

/// Returns how many it learns without the bias that does nothing and the one that could be part of another.
pub fn parameters_that_matter(d_model: usize, d_k: usize, d_v: usize) -> usize {
    // SOLUTION
    // FAULT wrong-bias: which three biases did you leave in?
    // > parameters(d_model, d_k, d_v) - d_k
    parameters(d_model, d_k, d_v) - d_k - d_v // b_K and b_V
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::Parameters;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    const SIZES: [(usize, usize, usize); 4] =
        [(16, 4, 4), (7, 3, 5), (10, 6, 1), (3, 8, 2)];

    #[test]
    fn all_parameters_are_counted() {
        for (d_model, d_k, d_v) in SIZES {
            let sizes = format!("d_model = {d_model}, d_k = {d_k}, d_v = {d_v}");
            let layer = Parameters::<f64>::xavier(
                d_model,
                d_k,
                d_v,
                &mut ChaCha8Rng::seed_from_u64(0),
            )
            .unwrap();
            let matrices: usize = [&layer.w_q, &layer.w_k, &layer.w_v, &layer.w_o]
                .map(|w| w.len())
                .iter()
                .sum();
            let all: usize = layer.named().iter().map(|(_, matrix)| matrix.len()).sum();
            let count = parameters(d_model, d_k, d_v);
            assert!(count != matrices, "{sizes}: these are the matrices alone");
            let narrow = matrices + 2 * d_k + 2 * d_v;
            assert!(
                count == all || count != narrow,
                "{sizes}: {count} counts a bias with the wrong width: how wide is what the output projection makes?"
            );
            let hint = if d_k == d_v {
                ""
            } else {
                ": values may be wider or narrower than keys"
            };
            assert!(count == all, "{sizes}: you count {count}, which isn't right{hint}");
        }
    }

    #[test]
    fn a_layer_of_one_width_has_four_squares() {
        for d in [2, 5, 64] {
            let count = parameters(d, d, d);
            assert!(
                count == 4 * d * d + 4 * d,
                "with all widths {d}, a layer has four squares and four biases: yours {count}, expected {}",
                4 * d * d + 4 * d
            );
        }
    }

    #[test]
    fn two_biases_do_not_matter() {
        for (d_model, d_k, d_v) in SIZES {
            let left_out = parameters(d_model, d_k, d_v)
                .wrapping_sub(parameters_that_matter(d_model, d_k, d_v));
            let sizes = format!("d_model = {d_model}, d_k = {d_k}, d_v = {d_v}");
            let one = left_out == d_k || left_out == d_v;
            assert!(
                !one,
                "{sizes}: you left out {left_out} numbers, the size of one bias: which three biases did you leave in?"
            );
            assert!(
                left_out == d_k + d_v,
                "{sizes}: you left out {left_out} numbers. Which two biases are that?"
            );
        }
    }
}
