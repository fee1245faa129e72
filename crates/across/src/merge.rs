//! Results over different keys, merged into one.

use crate::network::Number;
use attention::engine::normaliser;
use attention::flash::FlashOutput;
use nalgebra::DMatrix;
use std::ops::Range;

/// What some queries have seen so far: for each query and head the state of an online softmax, whose "scores" are the log-sum-exps of
/// whole blocks.
///
/// A block's output o is the mean of its values, and its log-sum-exp ℓ says what it weighs: e^ℓ is the sum of the exponentials of all its
/// scores. So the mean over several blocks is Σ e^ℓ · o / Σ e^ℓ. As in any softmax, the largest ℓ so far is taken off first.
///
/// # Source
/// T. Dao, *FlashAttention-2* (2023), section 2.3; H. Liu, M. Zaharia, P. Abbeel, *Ring Attention* (2023).
#[derive(Debug, Clone)]
pub struct Merged<T: Number> {
    max: DMatrix<T>,    // (n_q, n_heads): the largest log-sum-exp
    sum: DMatrix<T>,    // (n_q, n_heads): the sum of exp(ℓ − max)
    values: DMatrix<T>, // (n_q, n_heads · d_v): the sum of exp(ℓ − max) · o
}

impl<T: Number> Merged<T> {
    /// Returns the state of `n_q` queries that have seen nothing. There may be none of them.
    #[must_use]
    pub fn new(n_q: usize, n_heads: usize, d_v: usize) -> Self {
        Merged {
            max: DMatrix::from_element(n_q, n_heads, -T::one() / T::zero()),
            sum: DMatrix::zeros(n_q, n_heads),
            values: DMatrix::zeros(n_q, n_heads * d_v),
        }
    }

    /// Some queries have seen a block more; `part` is what an engine says of them and its keys.
    ///
    /// # Panics
    /// If `part` has not the shape of these queries.
    pub fn absorb(&mut self, queries: Range<usize>, part: &FlashOutput<T>) {
        let d_v = part.output.ncols() / part.log_sum_exp.ncols();
        for h in 0..part.log_sum_exp.ncols() {
            let rows = queries.clone().enumerate();
            let factors: Vec<_> =
                rows.map(|(i, query)| self.weigh((query, h), part, (i, h))).collect();
            // A column at a time, as it lies in memory.
            for column in h * d_v..(h + 1) * d_v {
                let from = part.output.column(column);
                let mut to = self.values.column_mut(column);
                let to = &mut to.as_mut_slice()[queries.clone()];
                for ((to, &from), &(old, new)) in
                    to.iter_mut().zip(from.iter()).zip(&factors)
                {
                    *to = *to * old + from * new; // unseen rows have the factors 1 and 0
                }
            }
        }
    }

    /// Takes up the log-sum-exp of one query and head, and returns the factors of the values before and of the new ones.
    fn weigh(
        &mut self,
        at: (usize, usize),
        part: &FlashOutput<T>,
        of: (usize, usize),
    ) -> (T, T) {
        let (lse, low) = (part.log_sum_exp[of], part.log_sum_exp_low[of]);
        if lse == -T::one() / T::zero() {
            return (T::one(), T::zero()); // nothing was seen; and −∞ − −∞ would be NaN
        }
        // ANCHOR: weigh
        let max = self.max[at].max(lse);
        let old = (self.max[at] - max).exp(); // 0 before the first block
        let new = ((lse - max) + low).exp(); // with the digits that L has lost
        self.max[at] = max;
        self.sum[at] = self.sum[at] * old + new;
        (old, new)
        // ANCHOR_END: weigh
    }

    /// Returns the output and the log-sum-exp over all that was seen: 0 and −∞ where that is nothing.
    #[must_use]
    pub fn finish(self) -> FlashOutput<T> {
        let Merged { max, sum, values } = self;
        let (n_q, n_heads) = sum.shape();
        let d_v = values.ncols() / n_heads;
        let mut forward = FlashOutput::of_shape(n_q, n_heads, d_v);
        for (at, &sum) in sum.iter().enumerate() {
            let (i, h) = (at % n_q, at / n_q); // entries lie column by column
            forward.write_log_sum_exp((i, h), T::one(), max[at], sum);
        }
        for (column, from) in values.column_iter().enumerate() {
            let sums = sum.column(column / d_v);
            let mut to = forward.output.column_mut(column);
            for ((to, &from), &sum) in to.iter_mut().zip(from.iter()).zip(sums.iter()) {
                *to = from / normaliser(sum);
            }
        }
        forward
    }
}
