//! What a mask hides has no influence, whatever it is; and what is not a number goes where it is seen, and no further.

use super::{Engines, with_two_tiles};
use crate::support::{answer, masks, off, random};
use attention::Mask;
use attention::engine::{ByWeights, Engine};
use attention::flash::{Inputs, Tiles};
use nalgebra::{DMatrix, dmatrix};

/// Not small: zero. And a NaN behind the mask stays there.
pub fn what_no_query_sees_is_exactly_zero(engines: Engines<f64>) {
    let (n_q, n_k) = (9, 6);
    let padding = Mask::padding(&[true, true, false, true, false, true]).unwrap();
    let (mut q, mut r) = (random(n_q, 8, 80), random(n_q, 6, 83));
    let (mut k, mut v) = (random(n_k, 8, 81), random(n_k, 6, 82));
    // What is not finite is in all that is hidden, and in values alone of the last key.
    k.row_mut(2).fill(f64::NAN);
    [2, 4].into_iter().for_each(|hidden| v.row_mut(hidden).fill(f64::INFINITY));
    for blind in 0..n_q - n_k {
        q.row_mut(blind).fill(f64::NAN);
        r.row_mut(blind).fill(f64::INFINITY);
    }
    let inputs = Inputs::new(&q, &k, &v, Mask::causal().and(padding)).unwrap();
    let inputs = inputs.with_heads(2).unwrap();
    let sizes = [(2, 3), (1, 1), (3, 2), (64, 64)];
    let tiles = sizes.map(|(queries, keys)| Tiles { queries, keys });
    for engine in tiles.into_iter().flat_map(|tiles| engines(Some(tiles))) {
        let (forward, d) = answer(&engine, &inputs, &r);
        for i in 0..n_q {
            let blind = i < n_q - n_k; // the first three queries come before all keys
            let is_zero = |m: &DMatrix<f64>| m.row(i).iter().all(|&x| x == 0.0);
            assert_eq!(is_zero(&forward.output), blind, "output {i}, {engine:?}");
            let row = forward.log_sum_exp.row(i);
            assert!(row.iter().all(|&lse| (lse == f64::NEG_INFINITY) == blind));
            // The fourth sees one key alone: its weight is 1, whatever the query.
            let flat = d.q.row(i).iter().all(|x| x.abs() < 1e-15);
            assert!(d.q.row(i).iter().all(|x| x.is_finite()), "q {i}, {engine:?}");
            assert_eq!(flat, i <= n_q - n_k, "q {i}, {engine:?}");
            assert!(!blind || is_zero(&d.q), "q {i}, {engine:?}");
        }
        for j in 0..n_k {
            let hidden = [2, 4].contains(&j);
            for (name, gradient) in [("k", &d.k), ("v", &d.v)] {
                let row = gradient.row(j);
                let is_zero = row.iter().all(|&x| x == 0.0);
                assert_eq!(is_zero, hidden, "{name} {j}, {engine:?}");
                assert!(row.iter().all(|x| x.is_finite()), "{name} {j}, {engine:?}");
            }
        }
    }
}

/// One query after another: other numbers in the keys that it doesn't see leave its output as it was, and a loss of it alone has no
/// gradient there, nor with respect to other queries.
pub fn hidden_keys_change_no_bit(engines: Engines<f64>) {
    for (n_q, n_k) in [(9, 9), (5, 12), (12, 5)] {
        let (q, k, v) = (random(n_q, 4, 1), random(n_k, 4, 2), random(n_k, 3, 3));
        for (kind, mask) in masks(n_q, n_k) {
            let sized = mask.sized(n_q, n_k).unwrap();
            for engine in with_two_tiles(engines, Tiles { queries: 4, keys: 3 }) {
                let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
                let before = engine.forward(&inputs).unwrap();
                for i in 0..n_q {
                    let what = format!("{engine:?}, {kind}, query {i} of {n_q}");
                    let other = |x: &DMatrix<f64>| {
                        DMatrix::from_fn(n_k, x.ncols(), |j, c| {
                            if sized.allows(i, j) { x[(j, c)] } else { 50.0 }
                        })
                    };
                    let (k, v) = (other(&k), other(&v));
                    let changed = Inputs::new(&q, &k, &v, &mask).unwrap();
                    let after = engine.forward(&changed).unwrap();
                    assert_eq!(after.output.row(i), before.output.row(i), "{what}");

                    let mut loss = DMatrix::zeros(n_q, 3);
                    loss.row_mut(i).fill(1.0);
                    let d = engine.backward(&inputs, &before, loss.as_view()).unwrap();
                    for j in (0..n_k).filter(|&j| !sized.allows(i, j)) {
                        let is_zero =
                            |d: &DMatrix<f64>| d.row(j).iter().all(|&x| x == 0.0);
                        assert!(is_zero(&d.k) && is_zero(&d.v), "{what}, key {j}");
                    }
                    for other in (0..n_q).filter(|&other| other != i) {
                        assert!(d.q.row(other).iter().all(|&x| x == 0.0), "{what}");
                    }
                }
            }
        }
    }
}

/// A query that sees a NaN, beside keys that it does not see: those keep their gradients, whatever the tiles.
pub fn a_visible_nan_does_not_reach_hidden_keys(engines: Engines<f64>) {
    let (q, v) = (dmatrix![1.0; 1.0], dmatrix![1.0; 2.0; 3.0]);
    let mask = Mask::dense(dmatrix![true, false, false; false, true, true]).unwrap();
    let k = dmatrix![f64::NAN; 1.0; 0.5];
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    let ones = dmatrix![1.0; 1.0];
    let (_, right) = answer(&ByWeights, &inputs, &ones);
    assert!(right.v[0].is_nan() && right.v[1].is_finite());
    for keys in 1..4 {
        for engine in engines(Some(Tiles { queries: 2, keys })) {
            let (_, given) = answer(&engine, &inputs, &ones);
            assert!(given.v[0].is_nan(), "{engine:?}: {}", given.v);
            let [given, right] = [&given, &right].map(|d| d.v.rows(1, 2).into_owned());
            assert!(off(&given, &right) < 1e-15, "{engine:?}: {given} and not {right}");
        }
    }
}

/// NaN stays NaN in the backward pass.
pub fn a_visible_nan_is_in_every_gradient_of_its_row(engines: Engines<f64>) {
    let (q, k, v) = (dmatrix![1.0], dmatrix![f64::NAN; 1.0], dmatrix![1.0; 2.0]);
    let inputs = Inputs::new(&q, &k, &v, Mask::none()).unwrap();
    for engine in engines(Some(Tiles { queries: 1, keys: 1 })) {
        let (_, d) = answer(&engine, &inputs, &dmatrix![1.0]);
        let mut all = d.q.iter().chain(&d.k).chain(&d.v);
        assert!(all.all(|x| x.is_nan()), "{engine:?}: {}{}{}", d.q, d.k, d.v);
    }
}

/// A score that overflows is infinite; the keys that its query does not see keep their gradients.
pub fn a_score_that_overflows_does_not_reach_hidden_keys(engines: Engines<f32>) {
    let (q, v) = (dmatrix![1e20_f32; 1.0], dmatrix![1.0; 2.0; 3.0]);
    let k = dmatrix![1e20_f32; 1.0; 0.5];
    let mask = Mask::dense(dmatrix![true, false, false; false, true, true]).unwrap();
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    for keys in 1..4 {
        for engine in engines(Some(Tiles { queries: 2, keys })) {
            let grad_v = answer(&engine, &inputs, &dmatrix![1.0; 1.0]).1.v;
            let finite = grad_v[1].is_finite() && grad_v[2].is_finite();
            assert!(finite, "{engine:?}: {grad_v}");
        }
    }
}
