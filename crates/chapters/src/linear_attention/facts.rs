//! The chapter's numbers.

use crate::fewer_pairs::facts::{Text, Way, found};
use anyhow::Result;
use laboratory::fewer_pairs::Method;
use laboratory::fewer_pairs::linear::Features;
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// The share of the second half of a text of `n` tokens that finds a token anywhere before it; of short texts, over several.
pub fn found_anywhere(way: Way, n: usize) -> Result<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(4);
    let texts = (1024 / n).max(1);
    let mut sum = 0.0;
    for _ in 0..texts {
        let (text, wanted) = Text::look_up(n, rng, |i, rng| rng.random_range(0..=i));
        sum += found(&way.output(&text)?, &wanted, n / 2);
    }
    Ok(sum / texts as f64)
}

/// The output of a state that replaces: token by token, by the delta rule, without fading and with β = 1. Queries and keys are brought to
/// length 1.
pub fn delta_rule(text: &Text) -> DMatrix<f64> {
    let Text { q, k, v } = text;
    let mut state = DMatrix::zeros(k.ncols(), v.ncols());
    let mut output = DMatrix::zeros(v.nrows(), v.ncols());
    for i in 0..v.nrows() {
        let (query, key) = (q.row(i).normalize(), k.row(i).normalize());
        let old = &key * &state; // what stands under this key
        state += key.transpose() * (v.row(i) - old);
        output.set_row(i, &(query * &state));
    }
    output
}

/// What random features make of e^(q·k): how far they are off.
pub struct Spread {
    /// The squared length of q + k.
    pub squared: f64,
    /// The standard deviation of the product of features, as a share of e^(q·k): √((e^|q + k|² − 1)/m).
    pub predicted: f64,
    pub measured: f64,
    /// The number of features with which it would be a tenth.
    pub needed: f64,
}

/// For several lengths of q + k, with as many features as [`Method::FEATURES`], over so many draws of them.
pub fn spread_of_features(draws: usize) -> Result<Vec<Spread>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let mut spreads = vec![];
    for squared in [1.0, 2.0, 3.0] {
        // Equal vectors of four entries, in the scale of features of width 4, which divide by 4^(1/4) each.
        let entry = (squared / 16.0_f64).sqrt() * 2.0_f64.sqrt();
        let x = DMatrix::repeat(1, 4, entry);
        let exact = (squared / 4.0).exp();
        let mut sum_of_squares = 0.0;
        for _ in 0..draws {
            let features = Features::random(Method::FEATURES, 4, rng)?.of(&x);
            sum_of_squares += (features.norm_squared() / exact - 1.0).powi(2);
        }
        spreads.push(Spread {
            squared,
            predicted: (variance(squared) / Method::FEATURES as f64).sqrt(),
            measured: (sum_of_squares / draws as f64).sqrt(),
            needed: features_for_a_tenth(squared),
        });
    }
    Ok(spreads)
}

/// Of the product of one random feature of q and one of k, as a share of e^(2 q·k), for this squared length of q + k.
fn variance(squared: f64) -> f64 {
    squared.exp() - 1.0
}

/// The number of random features whose products have a standard deviation of a tenth, for this squared length of q + k.
pub fn features_for_a_tenth(squared: f64) -> f64 {
    variance(squared) / 0.01
}
