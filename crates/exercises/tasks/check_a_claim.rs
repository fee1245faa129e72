//! # Check a claim
//!
//! medium, 25 minutes
//!
//! “Without the division by $\sqrt{d_k}$, softmax saturates: at $d_k = 64$, most queries put nine tenths of their weight on one key.”
//!
//! It sounds like a fact about the width. Find out of what it is true. Write the measurement: draw random queries and keys, whose
//! entries are normal with variance 1, and return the share of queries whose largest weight is at least $0.9$. Average over enough queries that
//! another seed gives about the same share.
//!
//! Then measure: few keys and many, from 8 to 512. Return your verdict. The tests compare shares and verdict with their own measurement, made with
//! other random numbers.
//!
//! # Hint
//!
//! Which of the chapter's questions does the claim leave open: the program, the precision, the length, the width, the mask, or mean or share?
//!
//! # Hint
//!
//! One draw of $n$ queries and $n$ keys gives $n$ rows of weights. With few keys these are few rows, so repeat the draw. And a row
//! counts or it doesn't: don't average its weight.
//!
//! # Hint
//!
//! `Normal`, or `StandardNormal.sample(rng)` from `rand_distr`, fills a matrix with `DMatrix::from_fn`. Then
//! `softmax_rows(&(&q * k.transpose()))` of the crate, a count of the rows with `row.max() >= 0.9`, and 2048 rows or so in all.

use attention::softmax_rows;
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

/// What the claim turns out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    True,
    /// True only if there are few keys.
    FewKeys,
    /// True only if there are many keys.
    ManyKeys,
    False,
}

/// Returns the share of queries whose largest weight is at least 0.9: n queries and n keys of width d, drawn again and again. Scores
/// are divided by √d if `scaled`.
pub fn saturated(n: usize, d: usize, scaled: bool, rng: &mut ChaCha8Rng) -> f64 {
    // SOLUTION
    let draws = 2048_usize.div_ceil(n);
    let mut count = 0.0;
    for _ in 0..draws {
        // FAULT uniform: what is the variance of your numbers
        // > let mut draw = || DMatrix::from_fn(n, d, |_, _| 2.0 * rand::RngExt::random::<f64>(rng) - 1.0);
        let mut draw = || DMatrix::from_fn(n, d, |_, _| StandardNormal.sample(rng));
        let (q, k): (DMatrix<f64>, DMatrix<f64>) = (draw(), draw());
        // FAULT scale-upside-down: is it without the division
        // > let scale = if !scaled { (d as f64).sqrt() } else { 1.0 };
        let scale = if scaled { (d as f64).sqrt() } else { 1.0 };
        let weights = softmax_rows(&(q * k.transpose() / scale)).unwrap();
        // FAULT mean: a mean of the largest weights, not a share of queries
        // > count += weights.row_iter().map(|row| row.max()).sum::<f64>();
        count += weights.row_iter().filter(|row| row.max() >= 0.9).count() as f64;
    }
    count / (draws * n) as f64
    // END
}

/// Returns the verdict.
pub fn verdict() -> Verdict {
    // SOLUTION
    // FAULT verdict-true: does it agree with what you measure
    // > Verdict::True
    Verdict::FewKeys
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{ChiSquared, Distribution, StandardNormal};

    /// Of hundreds of queries: the share that is saturated, and the mean of the largest weights. All scores are multiplied by `factor`.
    /// Given its query, a score is normal with the query's norm as its deviation, so no keys are needed.
    fn own(n: usize, d: usize, factor: f64) -> [f64; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let squared = ChiSquared::new(d as f64).unwrap();
        let rows = (200_000 / n).clamp(400, 2000);
        let mut sums = [0.0; 2];
        for _ in 0..rows {
            let norm = squared.sample(&mut rng).sqrt();
            let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
            let scores: Vec<f64> = (0..n).map(|_| factor * norm * normal()).collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let largest =
                1.0 / scores.iter().map(|score| (score - most).exp()).sum::<f64>();
            sums = [sums[0] + f64::from(u8::from(largest >= 0.9)), sums[1] + largest];
        }
        sums.map(|sum| sum / rows as f64)
    }

    fn check(n: usize, d: usize, scaled: bool) {
        let root = (d as f64).sqrt();
        let scale = if scaled { 1.0 / root } else { 1.0 };
        let given = saturated(n, d, scaled, &mut ChaCha8Rng::seed_from_u64(1));
        let near = |x: f64| (given - x).abs() < 0.06;
        let [expected, mean] = own(n, d, scale);
        let slips = [
            (mean, "this is a mean of the largest weights, not a share of queries"),
            (
                own(n, d, 1.0 / scale / root)[0],
                "is it without the division where `scaled` is false?",
            ),
            (
                own(n, d, scale / 3.0)[0],
                "what is the variance of your numbers? If they lie between −1 and 1, it is 1/3",
            ),
        ];
        let questions: Vec<_> = slips
            .iter()
            .filter(|(slip, _)| near(*slip))
            .map(|(_, question)| *question)
            .collect();
        let question = match &questions[..] {
            [] => "are the scores dot products, is softmax over keys, and are there thousands of queries?".to_owned(),
            questions => questions.join(" Or: "),
        };
        assert!(
            near(expected),
            "{n} keys of width {d}, scaled: {scaled}: your share is {given:.3}, and ours {expected:.3}: {question}"
        );
    }

    #[test]
    fn without_the_division() {
        check(8, 64, false);
        check(64, 64, false);
    }

    #[test]
    fn with_the_division() {
        check(8, 64, true);
        check(3, 2, true);
    }

    #[test]
    fn other_widths() {
        check(8, 16, false);
        check(24, 96, false);
    }

    #[test]
    fn the_share_hardly_depends_on_the_seed() {
        let share = |seed| saturated(8, 16, false, &mut ChaCha8Rng::seed_from_u64(seed));
        let shares: Vec<f64> = (0..5).map(share).collect();
        let [least, most] =
            [f64::min, f64::max].map(|pick| shares.iter().copied().reduce(pick).unwrap());
        assert!(
            most - least < 0.08,
            "five seeds give shares from {least:.3} to {most:.3}: draw more queries"
        );
        assert!(most > least, "five seeds give the same share: is `rng` used?");
    }

    #[test]
    fn the_verdict() {
        let few = own(8, 64, 1.0)[0] > 0.5;
        let many = own(512, 64, 1.0)[0] > 0.5;
        let expected = match (few, many) {
            (true, true) => Verdict::True,
            (true, false) => Verdict::FewKeys,
            (false, true) => Verdict::ManyKeys,
            (false, false) => Verdict::False,
        };
        assert!(
            verdict() == expected,
            "{:?}: does it agree with what you measure for 8 and for 512 keys? “Most” is more than half",
            verdict()
        );
    }
}
