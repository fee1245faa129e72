//! # Switch a head off
//!
//! medium, 20 minutes
//!
//! Which heads of a layer could be removed? A map of weights doesn't tell, so measure. You get $W_O$ and a function
//! that returns the model's loss for any matrix in its place.
//!
//! 1. `without`: $W_O$ with some heads switched off.
//! 2. `worths`: by how much the loss rises with one head off, for each head.
//! 3. `stand_ins`: the two heads that stand in for one another most. With both off, the loss rises by more than
//!    their worths together. Return the pair for which this surplus is largest, the smaller number first.
//!
//! $W_O$ is $(h d, d_{\text{model}})$. Heads count from 0, and there are two at least.
//!
//! # Hint
//!
//! The joined outputs are multiplied by $W_O$ from the right. Which part of $W_O$ do the columns of one head meet?
//!
//! # Hint
//!
//! Every measurement starts from the whole $W_O$, and is compared with the loss with all heads on. What does a pair
//! cost if its heads have nothing to do with each other?
//!
//! # Hint
//!
//! `w.rows_mut(head * d, d).fill(0.0)` on a clone. The surplus of a pair is its rise minus both worths. Go through
//! all `a < b`, and keep the pair with the largest surplus, which may be negative: start from `f64::NEG_INFINITY`.

use nalgebra::DMatrix;

/// Returns `w_o` (h·d, d_model) for a model in which the heads `off` are switched off.
pub fn without(w_o: &DMatrix<f64>, n_heads: usize, off: &[usize]) -> DMatrix<f64> {
    // SOLUTION
    let d = w_o.nrows() / n_heads;
    let mut fewer = w_o.clone();
    for &head in off {
        // FAULT columns: a head owns rows of W_O
        // > fewer.columns_mut(head * w_o.ncols() / n_heads, w_o.ncols() / n_heads).fill(0.0);
        fewer.rows_mut(head * d, d).fill(0.0);
    }
    fewer
    // END
}

/// Returns by how much the loss rises with each head off.
pub fn worths(
    w_o: &DMatrix<f64>,
    n_heads: usize,
    loss: &dyn Fn(&DMatrix<f64>) -> f64,
) -> Vec<f64> {
    // SOLUTION
    // FAULT no-baseline: a worth is a rise
    // > let all = 0.0;
    let all = loss(w_o);
    // FAULT left-off: were earlier heads still off
    // > (0..n_heads).map(|head| loss(&without(w_o, n_heads, &(0..=head).collect::<Vec<_>>())) - all).collect()
    (0..n_heads).map(|head| loss(&without(w_o, n_heads, &[head])) - all).collect()
    // END
}

/// Returns the two heads that stand in for one another most, the smaller number first.
pub fn stand_ins(
    w_o: &DMatrix<f64>,
    n_heads: usize,
    loss: &dyn Fn(&DMatrix<f64>) -> f64,
) -> (usize, usize) {
    // SOLUTION
    let (all, worths) = (loss(w_o), worths(w_o, n_heads, loss));
    let mut best = ((0, 1), f64::NEG_INFINITY);
    for a in 0..n_heads {
        for b in a + 1..n_heads {
            let rise = loss(&without(w_o, n_heads, &[a, b])) - all;
            // FAULT most-expensive: most expensive pair
            // > let surplus = rise;
            let surplus = rise - worths[a] - worths[b];
            if surplus > best.1 {
                best = ((a, b), surplus);
            }
        }
    }
    best.0
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    /// A matrix for heads of width 2, in which no number is zero.
    fn output_matrix(n_heads: usize, d_model: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(2 * n_heads, d_model, |_, _| rng.random_range(0.5..1.5))
    }

    /// Which heads are on.
    fn heads_on(w_o: &DMatrix<f64>) -> Vec<bool> {
        (0..w_o.nrows() / 2).map(|head| w_o.rows(2 * head, 2).amax() > 0.0).collect()
    }

    /// A loss of 1, to which each head that is off adds its price, and each pair that is off its own.
    fn loss(
        prices: Vec<f64>,
        pairs: Vec<(usize, usize, f64)>,
    ) -> impl Fn(&DMatrix<f64>) -> f64 {
        move |w_o| {
            let on = heads_on(w_o);
            let single: f64 =
                (0..on.len()).filter(|&head| !on[head]).map(|head| prices[head]).sum();
            1.0 + single
                + pairs
                    .iter()
                    .filter(|(a, b, _)| !on[*a] && !on[*b])
                    .map(|pair| pair.2)
                    .sum::<f64>()
        }
    }

    #[test]
    fn a_head_is_off_where_its_output_meets_zeros() {
        for (n_heads, d_model) in [(3, 7), (4, 9), (2, 8)] {
            let w_o = output_matrix(n_heads, d_model, 1);
            let joined = output_matrix(2, 2 * n_heads, 2)
                .transpose()
                .resize(2 * n_heads, 4, 0.0)
                .transpose();
            for head in 0..n_heads {
                let mut zeroed = joined.clone();
                zeroed.columns_mut(2 * head, 2).fill(0.0);
                let found = without(&w_o, n_heads, &[head]);
                assert!(
                    found.shape() == w_o.shape(),
                    "W_O keeps its shape; yours is {:?}, expected {:?}",
                    found.shape(),
                    w_o.shape()
                );
                let off = (&joined * found - zeroed * &w_o).amax();
                assert!(
                    off < 1e-12,
                    "{n_heads} heads: with head {head} off, the output isn't what the other heads add up to: a head owns rows of W_O, as many as it is wide"
                );
            }
            let both = without(&w_o, n_heads, &[0, n_heads - 1]);
            assert!(
                heads_on(&both).iter().filter(|on| !**on).count() == 2,
                "two heads can be off at once: of yours {} are, expected {}",
                heads_on(&both).iter().filter(|on| !**on).count(),
                2
            );
        }
    }

    #[test]
    fn a_worth_is_a_rise_of_the_loss() {
        for prices in [vec![0.5, 0.0, 2.0], vec![0.25, 1.0, -0.125, 3.0]] {
            let n_heads = prices.len();
            let pairs = vec![(0, 1, 0.5), (1, 2, 0.25)];
            let found = worths(
                &output_matrix(n_heads, 5, 3),
                n_heads,
                &loss(prices.clone(), pairs),
            );
            assert!(
                found.len() == n_heads,
                "one worth for each head: you return {}, expected {n_heads}",
                found.len()
            );
            assert!(
                (found[0] - prices[0] - 1.0).abs() > 1e-12,
                "a worth is a rise: what was the loss before?"
            );
            assert!(
                (found[0] - prices[0]).abs() < 1e-12,
                "head 0 off raises the loss by {}, and you found {}",
                prices[0],
                found[0]
            );
            let cumulative = (found[1] - prices[0] - prices[1] - 0.5).abs() < 1e-12;
            assert!(
                !cumulative,
                "head 1 off alone raises the loss by {}, not {}: were earlier heads still off?",
                prices[1], found[1]
            );
            for (head, price) in prices.iter().enumerate() {
                assert!(
                    (found[head] - price).abs() < 1e-12,
                    "head {head} off raises the loss by {price}, and you found {}",
                    found[head]
                );
            }
        }
    }

    #[test]
    fn the_surplus_of_a_pair_counts() {
        let cases = [
            (vec![5.0, 4.0, 0.25, 0.5], vec![(2, 3, 2.0), (0, 1, 0.5)], (2, 3)),
            (vec![0.0, 3.0, 3.0, 0.0], vec![(0, 3, 1.0), (1, 2, -1.0)], (0, 3)),
            (vec![9.0, 1.0, 1.0], vec![(0, 1, -1.0), (0, 2, -2.0), (1, 2, -0.5)], (1, 2)),
        ];
        for (prices, pairs, right) in cases {
            let n_heads = prices.len();
            let found = stand_ins(
                &output_matrix(n_heads, 5, 4),
                n_heads,
                &loss(prices.clone(), pairs.clone()),
            );
            let cost = |a: usize, b: usize| {
                prices[a]
                    + prices[b]
                    + pairs
                        .iter()
                        .filter(|pair| (pair.0, pair.1) == (a, b))
                        .map(|pair| pair.2)
                        .sum::<f64>()
            };
            let all_pairs =
                || (0..n_heads).flat_map(|a| (a + 1..n_heads).map(move |b| (a, b)));
            let most_expensive = all_pairs()
                .max_by(|x, y| cost(x.0, x.1).total_cmp(&cost(y.0, y.1)))
                .unwrap();
            assert!(
                found == right || found != most_expensive,
                "{found:?} is the most expensive pair, with worths of {} and {}. What would it cost if these heads had nothing to do with each other?",
                prices[found.0],
                prices[found.1]
            );
            assert!(
                found == right,
                "the pair {found:?} hasn't the largest surplus, for heads of worth {prices:?}"
            );
        }
    }
}
