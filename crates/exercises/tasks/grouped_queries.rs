//! # Grouped queries
//!
//! medium, 20 minutes
//!
//! Let $h$ query heads share $h_{kv}$ key-value heads. Write three functions: which key-value head a query head
//! reads, the joined outputs of all heads, and the gradient with respect to the shared keys, when each query head
//! has computed its own. You need the first two to run a modern model, and the third to train one.
//!
//! The third function serves $dV$ just as well. It knows nothing of attention: it is about something that was used
//! in several places.
//!
//! Heads count from 0. $h_{kv}$ divides $h$. A head of queries, keys and values is $d$ wide.
//!
//! # Hint
//!
//! With four query heads and two key-value heads, groups are neighbours: which query heads make the first group?
//!
//! # Hint
//!
//! In `joined`, the place of a result follows the query head. The slice of keys and values follows the key-value
//! head. And a matrix that was used in several places gets the sum of what comes back from them.
//!
//! # Hint
//!
//! `query_head * h_kv / h` rounds down. In the third function, start from `DMatrix::zeros(n_k, h_kv * d)`, and let
//! each query head do `sum.columns_mut(first, d).add_assign(…)`, or `+=` in two lines.

use attention::{Mask, attention};
use nalgebra::DMatrix;

/// Causal attention of one head: `q` (n_q, d), `k` and `v` (n_k, d) → (n_q, d).
pub fn attend(q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>) -> DMatrix<f64> {
    attention(q, k, v, Mask::causal()).expect("the shapes fit").0
}

/// Returns the key-value head that a query head reads.
pub fn key_head(query_head: usize, h: usize, h_kv: usize) -> usize {
    // SOLUTION
    // FAULT alternating: do neighbours share?
    // > query_head % h_kv
    query_head * h_kv / h
    // END
}

/// Returns the joined outputs (n_q, h·d) of `q` (n_q, h·d), `k` and `v` (n_k, h_kv·d).
pub fn grouped(
    q: &DMatrix<f64>,
    k: &DMatrix<f64>,
    v: &DMatrix<f64>,
    h: usize,
    h_kv: usize,
) -> DMatrix<f64> {
    // SOLUTION
    let d = q.ncols() / h;
    let slice = |m: &DMatrix<f64>, head: usize| m.columns(head * d, d).into_owned();
    let mut joined = DMatrix::zeros(q.nrows(), h * d);
    for head in 0..h {
        let shared = key_head(head, h, h_kv);
        // FAULT first-values: values are shared as keys are
        // > let o = attend(&slice(q, head), &slice(k, shared), &slice(v, 0));
        let o = attend(&slice(q, head), &slice(k, shared), &slice(v, shared));
        joined.columns_mut(head * d, d).copy_from(&o);
    }
    joined
    // END
}

/// Returns the gradient with respect to all shared keys, side by side (n_k, h_kv·d).
///
/// `of_heads` has what each of the h query heads sends to the keys that it read, (n_k, d).
pub fn shared_gradient(of_heads: &[DMatrix<f64>], h_kv: usize) -> DMatrix<f64> {
    // SOLUTION
    let (n_k, d) = of_heads[0].shape();
    let mut sum = DMatrix::zeros(n_k, h_kv * d);
    for (head, gradient) in of_heads.iter().enumerate() {
        let shared = key_head(head, of_heads.len(), h_kv);
        let mut columns = sum.columns_mut(shared * d, d);
        // FAULT last-one: the gradient of one head of each group
        // > columns.copy_from(gradient);
        // FAULT mean: the mean of the group's gradients
        // > columns += gradient * (h_kv as f64 / of_heads.len() as f64);
        columns += gradient;
    }
    sum
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{
        Mask, attention, attention_backward, gradient_check::numerical_gradient,
    };
    use nalgebra::{DMatrix, dmatrix};
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
    }

    /// The columns of heads, each as often as its group has query heads.
    fn copies(m: &DMatrix<f64>, h: usize, h_kv: usize) -> Vec<DMatrix<f64>> {
        let d = m.ncols() / h_kv;
        (0..h_kv).flat_map(|g| vec![m.columns(g * d, d).into_owned(); h / h_kv]).collect()
    }

    #[test]
    fn groups_are_neighbours() {
        for (h, h_kv) in [(4, 2), (6, 2), (6, 3), (4, 4), (5, 1)] {
            let groups: Vec<_> = (0..h).map(|head| key_head(head, h, h_kv)).collect();
            let sorted = groups.windows(2).all(|pair| pair[0] <= pair[1]);
            assert!(
                sorted,
                "{h} query heads read the key-value heads {groups:?}: do neighbours share?"
            );
            for g in 0..h_kv {
                let readers = groups.iter().filter(|&&it| it == g).count();
                assert!(
                    readers == h / h_kv,
                    "{h} query heads read {groups:?}: key-value head {g} has {readers} readers, expected {}",
                    h / h_kv
                );
            }
        }
    }

    #[test]
    fn each_head_averages_the_values_of_its_group() {
        let (q, k) = (DMatrix::zeros(2, 4), DMatrix::zeros(2, 2));
        let output = grouped(&q, &k, &dmatrix![8.0, 18.0; 12.0, 22.0], 4, 2);
        let last = output.row(1).iter().copied().collect::<Vec<_>>();
        assert!(
            last != [10.0; 4],
            "all heads return the mean of the first head's values: values are shared as keys are"
        );
        assert!(
            last != [10.0, 20.0, 10.0, 20.0],
            "the heads alternate: do neighbours share?"
        );
        assert!(
            last == [10.0, 10.0, 20.0, 20.0],
            "with all scores 0, a head returns the mean of its values: yours {last:?}, expected [10, 10, 20, 20]"
        );
    }

    #[test]
    fn sharing_is_the_same_as_copies() {
        for (h, h_kv, d) in [(4, 2, 3), (6, 3, 2), (3, 1, 2), (2, 2, 4)] {
            let (q, k, v) =
                (random(3, h * d, 1), random(5, h_kv * d, 2), random(5, h_kv * d, 3));
            let output = grouped(&q, &k, &v, h, h_kv);
            for (head, (k, v)) in
                copies(&k, h, h_kv).iter().zip(copies(&v, h, h_kv)).enumerate()
            {
                let right =
                    attention(q.columns(head * d, d), k, &v, Mask::causal()).unwrap().0;
                let off = (output.columns(head * d, d) - right).amax();
                assert!(
                    off < 1e-12,
                    "h = {h}, h_kv = {h_kv}: query head {head} isn't what it is with copies of its keys and values"
                );
            }
        }
    }

    #[test]
    fn gradients_of_a_group_add_up() {
        let (h, h_kv, d) = (6, 2, 2);
        let (q, k, v) =
            (random(3, h * d, 4), random(5, h_kv * d, 5), random(5, h_kv * d, 6));
        let projection = random(3, d, 7);
        // The loss is the sum over heads of their outputs' products with `projection`, which is the gradient of each output.
        let run = |k: &DMatrix<f64>| {
            let all = copies(k, h, h_kv).into_iter().zip(copies(&v, h, h_kv)).enumerate();
            all.map(|(head, (k, v))| {
                attention(q.columns(head * d, d), &k, &v, Mask::causal()).unwrap()
            })
            .collect::<Vec<_>>()
        };
        let of_heads: Vec<_> = run(&k)
            .iter()
            .map(|(_, cache)| attention_backward(cache, &projection).unwrap().k)
            .collect();
        let slopes = numerical_gradient(&k, 1e-5, |k| {
            Ok(run(k).iter().map(|(o, _)| o.dot(&projection)).sum())
        })
        .unwrap();
        let gradient = shared_gradient(&of_heads, h_kv);
        assert!(
            gradient.shape() == k.shape(),
            "the gradient has the shape of all shared keys, {:?}, and yours {:?}",
            k.shape(),
            gradient.shape()
        );
        let is = |other: DMatrix<f64>| (&gradient - other).amax() < 1e-8;
        let one = |i: usize| {
            DMatrix::from_fn(5, h_kv * d, |row, c| of_heads[c / d * 3 + i][(row, c % d)])
        };
        assert!(
            (0..3).all(|i| !is(one(i))),
            "this is the gradient of one head of each group. The keys were used by all of them"
        );
        assert!(
            !is(&slopes / 3.0),
            "this is the mean of the group's gradients, and a shared matrix gets their sum"
        );
        assert!(
            is(slopes),
            "the gradient isn't the slope of the loss with respect to the shared keys"
        );
    }
}
