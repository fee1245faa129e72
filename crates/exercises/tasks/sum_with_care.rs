//! # A long sum, in short numbers
//!
//! easy, 15 minutes, without `f64`
//!
//! Add up a million tenths in `f32` in a loop, and the result is off by about one in a hundred. The running sum has grown so
//! large that each new term is rounded to a coarse grid. The denominator of a long row of softmax is such a sum.
//!
//! Write a sum in `f32` that keeps nearly all digits. Add and subtract only `f32`: no `f64` anywhere, and no sorting.
//! There are two well-known ways. Either is fine.
//!
//! The sum of no numbers is 0.
//!
//! # Hint
//!
//! Split the list in half, again and again. How many additions does each term
//! go through then, and how many in a plain loop?
//!
//! # Hint
//!
//! The halves are sums of the same kind, so a function that calls itself is natural. The other way keeps a second
//! number, which holds what the last addition rounded away, and takes it into the next term.
//!
//! # Hint
//!
//! `let (left, right) = numbers.split_at(numbers.len() / 2)`. When does the recursion have to stop? `match numbers`
//! with the cases `[]` and `[one]` says it.

/// Returns the sum of all numbers, by additions of `f32` alone.
pub fn sum_with_care(numbers: &[f32]) -> f32 {
    // SOLUTION
    // FAULT in-f64: has `f64`: this exercise asks you to do without it
    // > if true { return numbers.iter().map(|it| *it as f64).sum::<f64>() as f32; }
    // > match numbers {
    // FAULT plain-loop: a plain loop over all numbers does
    // > if true { return numbers.iter().sum(); }
    // > match numbers {
    // FAULT split-once: a plain loop over half of the numbers
    // > if true { let (left, right) = numbers.split_at(numbers.len() / 2); return left.iter().sum::<f32>() + right.iter().sum::<f32>(); }
    // > match numbers {
    match numbers {
        [] => 0.0,
        [one] => *one,
        _ => {
            let (left, right) = numbers.split_at(numbers.len() / 2);
            // FAULT lost-number: is each number added exactly once?
            // > sum_with_care(left) + sum_with_care(&right[right.len() - left.len()..])
            sum_with_care(left) + sum_with_care(right)
        }
    }
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};

    /// Compares with a sum in f64. The error counts relative to the sum of the sizes.
    fn check(what: &str, numbers: &[f32]) {
        let right: f64 = numbers.iter().map(|&x| f64::from(x)).sum();
        let sizes: f64 = numbers.iter().map(|&x| f64::from(x).abs()).sum();
        let of = |sum: f32| (f64::from(sum) - right).abs() / sizes;
        let got = sum_with_care(numbers);
        let halves = numbers.split_at(numbers.len() / 2);
        let slips = [
            (
                numbers.iter().sum::<f32>(),
                "this is what a plain loop over all numbers does",
            ),
            (
                halves.0.iter().sum::<f32>() + halves.1.iter().sum::<f32>(),
                "this is what a plain loop over half of the numbers does, twice: split the halves, too",
            ),
        ];
        let slip = slips.iter().find(|(sum, _)| *sum == got);
        let why = slip
            .map_or("how many additions does each number go through?", |(_, what)| what);
        assert!(
            of(got) < 3e-7,
            "{what}: you get {got}, and the sum is {right:.3}, a relative error of {:.0e}: {why}",
            of(got)
        );
    }

    #[test]
    fn each_number_counts_once() {
        for n in [0_u32, 1, 2, 3, 5, 6, 7, 12, 100] {
            let numbers: Vec<f32> = (1..=n).map(|x| x as f32).collect();
            let got = sum_with_care(&numbers);
            assert!(
                got == (n * (n + 1) / 2) as f32,
                "1 + 2 + … + {n} is {}, and you get {got}: is each number added exactly once?",
                n * (n + 1) / 2
            );
        }
    }

    #[test]
    fn a_million_tenths() {
        check("a million times a tenth", &vec![0.1; 1_000_000]);
    }

    #[test]
    fn exponentials_of_a_long_row() {
        let rng = &mut ChaCha8Rng::seed_from_u64(9);
        let numbers: Vec<f32> = (0..300_001)
            .map(|_| {
                let z: f32 = StandardNormal.sample(rng);
                (z - 3.0).exp()
            })
            .collect();
        check("exponentials of 300,001 random scores", &numbers);
    }

    #[test]
    fn small_numbers_behind_a_large_one() {
        let mut numbers = vec![1.0_f32; 200_000];
        numbers[0] = 3e7;
        check("thirty million, and then 199,999 times 1", &numbers);
    }

    #[test]
    fn signs_may_differ() {
        let numbers: Vec<f32> =
            (0..200_003).map(|i| if i % 2 == 0 { 100.1 } else { -99.9 }).collect();
        check("100.1 and −99.9 in turn", &numbers);
    }
}
