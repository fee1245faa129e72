//! Pairs that are left out by what is in them: queries meet only keys with the same hash.

use attention::engine::Engine as _;
use attention::engine::{check_count, check_positive};
use attention::flash::Inputs;
use attention::{Mask, Result};
use fast::{Flash, Float};
use nalgebra::{DMatrix, DVector, convert};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

/// Causal attention in which a query sees the keys that fell into its bucket, in any of several rounds of hashing.
///
/// The hash of a vector is the direction, of random ones and their opposites, with which its product is largest. Vectors with a small
/// angle between them are likely to share it. A query whose buckets hold no earlier key gets zeros.
///
/// # Source
/// N. Kitaev, Ł. Kaiser, A. Levskaya, *Reformer* (2020), which has one vector for query and key, and cuts the sorted tokens into
/// chunks of equal length; here buckets are taken whole.
///
/// ```
/// use fast::Flash;
/// use laboratory::fewer_pairs::hashing::HashedAttention;
/// use nalgebra::dmatrix;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// // Each token asks for keys like its own, of which there are two, opposite to one another.
/// let x = dmatrix![9.0_f64, 0.0; -9.0, 0.0; 9.0, 0.0; -9.0, 0.0];
/// let v = dmatrix![1.0; 2.0; 3.0; 4.0];
/// let hashed = HashedAttention::new(2, 2, 1, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let output = hashed.forward(&x, &x, &v, &Flash::new())?;
/// assert_eq!(output, dmatrix![1.0; 2.0; 2.0; 3.0]);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HashedAttention<T: Float> {
    rounds: Vec<DMatrix<T>>, // directions (d, buckets / 2)
}

impl<T: Float> HashedAttention<T> {
    /// Returns attention with so many rounds of hashing, each with `buckets` buckets, which is an even number, for vectors of width
    /// `d`.
    ///
    /// # Errors
    /// One of them is 0, or `buckets` is odd.
    ///
    /// ```
    /// use laboratory::fewer_pairs::hashing::HashedAttention;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let rng = &mut ChaCha8Rng::seed_from_u64(0);
    /// assert!(HashedAttention::<f32>::new(64, 3, 1, rng).is_err());
    /// ```
    pub fn new(
        d: usize,
        buckets: usize,
        rounds: usize,
        rng: &mut impl Rng,
    ) -> Result<Self> {
        for (name, given) in [("d", d), ("buckets", buckets), ("rounds", rounds)] {
            check_positive(name, given)?;
        }
        let even = 2 * buckets.div_ceil(2);
        check_count("buckets", "entry", buckets, even, || {
            "half of them are the opposites of the others".to_owned()
        })?;
        let mut normal = |_, _| {
            let z: f64 = StandardNormal.sample(rng);
            convert(z)
        };
        let mut directions = |_| DMatrix::from_fn(d, buckets / 2, &mut normal);
        Ok(HashedAttention { rounds: (0..rounds).map(&mut directions).collect() })
    }

    /// Returns the bucket of each row of `x`, for each round.
    ///
    /// Shapes: `x` (n, d).
    ///
    /// # Errors
    /// `x` has another width than the directions.
    ///
    /// ```
    /// # use laboratory::fewer_pairs::hashing::HashedAttention;
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// let hashed = HashedAttention::new(2, 8, 1, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let [buckets] = &hashed.buckets(&nalgebra::dmatrix![1.0_f64, 2.0; -1.0, -2.0])?[..] else {
    ///     unreachable!("one round")
    /// };
    /// assert_eq!(buckets[0].abs_diff(buckets[1]), 4); // opposite directions
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn buckets(&self, x: &DMatrix<T>) -> Result<Vec<Vec<usize>>> {
        let mut rounds = vec![];
        for directions in &self.rounds {
            let because = || format!("the directions are {} wide", directions.nrows());
            check_count("x", "column", x.ncols(), directions.nrows(), because)?;
            let along = x * directions; // (n, buckets / 2)
            let bucket = |i: usize| {
                let (most, product) =
                    along.row(i).transpose().iter().copied().enumerate().fold(
                        (0, T::zero()),
                        |best, next| {
                            if next.1.abs() > best.1.abs() { next } else { best }
                        },
                    );
                if product < T::zero() { most + along.ncols() } else { most }
            };
            rounds.push((0..x.nrows()).map(bucket).collect());
        }
        Ok(rounds)
    }

    /// Returns the output.
    ///
    /// Shapes: `q` and `k` (n, d), `v` (n, d_v) → (n, d_v).
    ///
    /// # Errors
    /// The shapes don't fit.
    ///
    /// ```
    /// # use fast::Flash;
    /// # use laboratory::fewer_pairs::hashing::HashedAttention;
    /// # use rand::{SeedableRng, rngs::ChaCha8Rng};
    /// # let x = nalgebra::DMatrix::<f32>::identity(8, 8);
    /// let hashed = HashedAttention::new(8, 4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// assert_eq!(hashed.forward(&x, &x, &x, &Flash::new())?.row(0), x.row(0));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward(
        &self,
        q: &DMatrix<T>,
        k: &DMatrix<T>,
        v: &DMatrix<T>,
        flash: &Flash,
    ) -> Result<DMatrix<T>> {
        let (of_q, of_k) = (self.buckets(q)?, self.buckets(k)?);
        let mut merged = Merged::zeros(v.nrows(), v.ncols());
        for round in 0..self.rounds.len() {
            let [queries, keys] =
                [&of_q, &of_k].map(|of| self.members(round, &of[round]));
            for (queries, keys) in queries.iter().zip(&keys) {
                if queries.is_empty() || keys.is_empty() {
                    continue;
                }
                // A pair that met in an earlier round must not count twice.
                let is_new = |i: usize, j: usize| {
                    j <= i
                        && (0..round).all(|earlier| of_q[earlier][i] != of_k[earlier][j])
                };
                let mask = DMatrix::from_fn(queries.len(), keys.len(), |i, j| {
                    is_new(queries[i], keys[j])
                });
                let (k, v) = (k.select_rows(keys), v.select_rows(keys));
                let q = q.select_rows(queries);
                let part =
                    flash.forward(&Inputs::new(&q, &k, &v, Mask::dense(mask)?)?)?;
                merged.add(queries, &part.output, &part.log_sum_exp);
            }
        }
        Ok(merged.output)
    }

    /// The rows in each bucket of a round, in their order.
    fn members(&self, round: usize, of_rows: &[usize]) -> Vec<Vec<usize>> {
        let mut members = vec![vec![]; 2 * self.rounds[round].ncols()];
        for (row, &bucket) in of_rows.iter().enumerate() {
            members[bucket].push(row);
        }
        members
    }
}

/// The attention so far of each query, over the keys of the buckets so far.
struct Merged<T: Float> {
    output: DMatrix<T>,
    log_sum_exp: DVector<T>,
}

impl<T: Float> Merged<T> {
    fn zeros(n: usize, d_v: usize) -> Self {
        let nothing = DVector::repeat(n, convert(f64::NEG_INFINITY));
        Merged { output: DMatrix::zeros(n, d_v), log_sum_exp: nothing }
    }

    /// Adds what these queries saw elsewhere. Both parts have the share e^(log-sum-exp) of the whole.
    fn add(&mut self, queries: &[usize], output: &DMatrix<T>, log_sum_exp: &DMatrix<T>) {
        for (row, &i) in queries.iter().enumerate() {
            let (before, new) = (self.log_sum_exp[i], log_sum_exp[row]);
            if new == convert(f64::NEG_INFINITY) {
                continue; // it saw nothing
            }
            let largest = before.max(new);
            let both = largest + ((before - largest).exp() + (new - largest).exp()).ln();
            let (old_share, new_share) = ((before - both).exp(), (new - both).exp());
            for c in 0..output.ncols() {
                let merged = &mut self.output[(i, c)];
                *merged = *merged * old_share + output[(row, c)] * new_share;
            }
            self.log_sum_exp[i] = both;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::random;
    use attention::attention;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

    /// Against the pattern as a matrix: a pair that meets in two rounds counts once.
    #[test]
    fn hashed_attention_is_that_of_its_mask() {
        let (n, d) = (60, 4);
        let (q, k, v) = (random(n, d, 0), random(n, d, 1), random(n, 3, 2));
        for rounds in [1, 3] {
            let rng = &mut ChaCha8Rng::seed_from_u64(rounds);
            let hashed = HashedAttention::new(d, 6, rounds as usize, rng).unwrap();
            let [of_q, of_k] = [&q, &k].map(|x| hashed.buckets(x).unwrap());
            let met = |i: usize, j: usize| {
                let mut rounds = of_q.iter().zip(&of_k);
                j <= i && rounds.any(|(q, k)| q[i] == k[j])
            };
            let mask = Mask::dense(DMatrix::from_fn(n, n, met)).unwrap();
            let (expected, _) = attention(&q, &k, &v, mask).unwrap();
            let output = hashed.forward(&q, &k, &v, &Flash::new()).unwrap();
            assert!((output - expected).amax() < 1e-13);
        }
    }
}
