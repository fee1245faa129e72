//! # Change the future
//!
//! medium, 20 minutes
//!
//! A causal model must not look ahead, and it should look back. Write the check that finds both mistakes in any
//! program, without a look at its weights: change one token at a time, and see which outputs move.
//!
//! Return two lists of pairs $(j, i)$: **leaks**, where token $j$ moved an earlier output $i$, and **deaf** outputs $i$, which didn't move although token $j \le i$ changed. Sort both by $j$, then $i$.
//!
//! `run` takes the tokens' vectors $(n, d)$ and returns outputs with $n$ rows. An output has moved if an entry
//! differs by more than `10⁻⁹`, or became NaN.
//!
//! # Hint
//!
//! How will you change a token? Some programs don't notice every change: one that normalises each row ignores a
//! vector that is twice as long, and one that subtracts the row's mean ignores a number that is added to all
//! entries.
//!
//! # Hint
//!
//! Start from the same $X$ for each $j$. What does a comparison say if one side is NaN?
//!
//! # Hint
//!
//! Replace row $j$ by numbers that have nothing to do with it, all different, of ordinary size, such as sines. Then
//! for each $i$: did any entry of row $i$ move, written as `!((a - b).abs() <= 1e-9)`?

use nalgebra::DMatrix;

/// Pairs of a token j and an output i.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    pub leaks: Vec<(usize, usize)>,
    pub deaf: Vec<(usize, usize)>,
}

/// Changes each token of `x` (n, d) in turn, and says which outputs of `run` move although they may not, or stand
/// still although they should move.
pub fn change_each_token(
    run: &dyn Fn(&DMatrix<f64>) -> DMatrix<f64>,
    x: &DMatrix<f64>,
) -> Findings {
    // SOLUTION
    let before = run(x);
    let mut findings = Findings { leaks: vec![], deaf: vec![] };
    // FAULT last-alone: was each token changed
    // > for j in x.nrows() - 1..x.nrows() {
    for j in 0..x.nrows() {
        let mut changed = x.clone();
        for (c, entry) in changed.row_mut(j).iter_mut().enumerate() {
            // FAULT longer: the same direction
            // > *entry *= 2.0;
            // FAULT raised: added to all entries
            // > *entry += 1.0 + 0.0 * c as f64;
            *entry = (1.0 + 1.3 * c as f64 + *entry).sin(); // nothing that the row was
        }
        let after = run(&changed);
        for i in 0..before.nrows() {
            let difference = after.row(i) - before.row(i);
            // FAULT nan-stands-still: became NaN
            // > let moved = difference.iter().any(|d| d.abs() > 1e-9);
            let moved = difference.iter().any(|d| d.is_nan() || d.abs() > 1e-9);
            match moved {
                true if i < j => findings.leaks.push((j, i)),
                false if i >= j => findings.deaf.push((j, i)),
                _ => {}
            }
        }
    }
    findings
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn tokens(n: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(n, 4, |_, _| rng.random_range(-1.0..1.0))
    }

    fn run(x: &DMatrix<f64>, mask: Mask) -> DMatrix<f64> {
        attention(x, x, x, mask).unwrap().0
    }

    /// A causal mask with some pairs (j, i) turned round.
    fn causal_but_for(n: usize, pairs: &[(usize, usize)]) -> Mask {
        Mask::dense(DMatrix::from_fn(n, n, |i, j| (j <= i) != pairs.contains(&(j, i))))
            .unwrap()
    }

    #[test]
    fn a_causal_program_is_clean() {
        for n in [1, 2, 6] {
            let found = change_each_token(&|x| run(x, Mask::causal()), &tokens(n, 1));
            assert!(
                found.leaks.is_empty(),
                "causal attention of {n} tokens leaks nothing, and you found {:?}",
                found.leaks
            );
            assert!(
                found.deaf.is_empty(),
                "causal attention of {n} tokens hears every earlier token, and you found it deaf to {:?}",
                found.deaf
            );
        }
    }

    #[test]
    fn every_leak_is_found() {
        for pairs in [vec![(1, 0)], vec![(2, 1), (3, 0)], vec![(1, 0), (4, 2), (5, 4)]] {
            let mask = causal_but_for(6, &pairs);
            let found = change_each_token(&|x| run(x, mask.clone()), &tokens(6, 2));
            assert!(
                found.leaks.len() == pairs.len(),
                "the mask shows {} future tokens. You found {:?}: was each token changed, one at a time?",
                pairs.len(),
                found.leaks
            );
            assert!(
                found.leaks == pairs,
                "leaks, as (token, output): yours are {:?}, expected {pairs:?}",
                found.leaks
            );
        }
    }

    #[test]
    fn every_deaf_output_is_found() {
        let pairs = vec![(0, 3), (2, 4)];
        let mask = causal_but_for(5, &pairs);
        let found = change_each_token(&|x| run(x, mask.clone()), &tokens(5, 3));
        assert!(
            found.deaf == pairs,
            "the mask hides these earlier tokens, as (token, output): was each token changed, one at a time? Yours are {:?}, expected {pairs:?}",
            found.deaf
        );
    }

    #[test]
    fn programs_that_normalise_are_not_called_deaf() {
        let by_length = |x: &DMatrix<f64>| {
            let mut x = x.clone();
            x.row_iter_mut().for_each(|mut row| row /= row.norm());
            run(&x, Mask::causal())
        };
        let found = change_each_token(&by_length, &tokens(4, 4));
        assert!(
            found.deaf.is_empty(),
            "this program brings each row to one length, so it can't hear a change that keeps the same direction, but it isn't deaf to {:?}",
            found.deaf
        );
        let by_mean = |x: &DMatrix<f64>| {
            let mut x = x.clone();
            x.row_iter_mut().for_each(|mut row| row.add_scalar_mut(-row.mean()));
            run(&x, Mask::causal())
        };
        let found = change_each_token(&by_mean, &tokens(4, 5));
        assert!(
            found.deaf.is_empty(),
            "this program subtracts each row's mean, so it can't hear a number that is added to all entries, but it isn't deaf to {:?}",
            found.deaf
        );
    }

    #[test]
    fn a_leak_may_be_nan() {
        // Once token 2 has changed, the first output is NaN.
        let x = tokens(4, 6);
        let original = x.row(2).into_owned();
        let breaks = |x: &DMatrix<f64>| {
            let mut y = run(x, Mask::causal());
            if x.row(2) != original {
                y.row_mut(0).fill(f64::NAN);
            }
            y
        };
        let found = change_each_token(&breaks, &x);
        assert!(
            found.leaks == [(2, 0)],
            "output 0 became NaN when token 2 was changed: what does a comparison with NaN say? Your leaks are {:?}, expected {:?}",
            found.leaks,
            [(2, 0)]
        );
    }
}
