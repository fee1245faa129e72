//! Every function that takes a matrix takes a view of one: columns, rows, a piece of both, a matrix of fixed size. Each gives what
//! it gives for a copy, to the bit.

use crate::support::{each_view, parameters, random};
use approx::assert_abs_diff_eq;
use attention::flash::{OnlineSoftmax, flash};
use attention::{
    ForwardOptions, LayerGradients, Mask, MultiHeadAttention, Result,
    SingleHeadAttention, attention, attention_backward, attention_weights,
    gradient_check::{gradient_check, numerical_gradient},
    inspect::{heat_map, row_entropy},
    linear, linear_backward, scaled_scores,
    softmax::{log_sum_exp_rows, softmax_rows, softmax_rows_backward},
};
use nalgebra::{DMatrix, DMatrixView, RowDVector};

#[test]
fn of_functions() {
    each_view(|x| {
        let run = |x: DMatrixView<f64>| -> Result<Vec<DMatrix<f64>>> {
            let column = |vector: nalgebra::DVector<f64>| {
                DMatrix::from_column_slice(vector.len(), 1, vector.as_slice())
            };
            let (output, cache) = attention(x, x, x, Mask::causal())?;
            let gradients = attention_backward(&cache, x)?;
            let (weights, lse) = attention_weights(x, x, Mask::causal())?;
            let bias = RowDVector::from_element(4, 0.5);
            let (grad_x, grad_w, grad_b) = linear_backward(x, x, x)?;
            let check = gradient_check(x, x, 1e-5, |x| Ok(x.norm_squared() / 2.0))?;
            assert!(check.max_relative_error < 1e-9);
            let weights_of_x = softmax_rows(x)?;
            let mut state = OnlineSoftmax::new(4, 4)?;
            state.absorb(x, x)?;
            let labels = ["a", "b", "c", "d"];
            assert_eq!(
                heat_map(x, &labels, &labels)?,
                heat_map(&x.into_owned(), &labels, &labels)?
            );
            Ok(vec![
                output,
                gradients.q,
                gradients.k,
                gradients.v,
                weights,
                column(lse),
                scaled_scores(x, x)?,
                linear(x, x, &bias)?,
                grad_x,
                grad_w,
                DMatrix::from_row_slice(1, 4, grad_b.as_slice()),
                numerical_gradient(x, 1e-5, |x| Ok(x.norm_squared()))?,
                softmax_rows_backward(weights_of_x.rows(0, 4), x)?,
                column(log_sum_exp_rows(x)?),
                flash(x, x, x, Mask::causal())?,
                state.finish().0,
                column(row_entropy(weights_of_x.columns(0, 4))?),
                weights_of_x,
            ])
        };
        let copy = x.into_owned();
        let given = run(x).unwrap();
        assert!(given.iter().flatten().all(|x| x.is_finite()));
        assert_eq!(given, run(copy.as_view()).unwrap());
    });
}

#[test]
fn of_layers() {
    type Answer = (DMatrix<f64>, LayerGradients<f64>);
    let single = SingleHeadAttention::from(parameters(4, 3, 2, 0));
    let multi = MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap();
    each_view(|x| {
        let run = |x: DMatrixView<f64>| -> Result<[Answer; 3]> {
            let across = ForwardOptions::new().context(x);
            let (output, cache) = single.forward(x, across.clone())?;
            let first = (output, single.backward(&cache, x)?);
            let (output, cache) = multi.forward(x, across.clone())?;
            let second = (output, multi.backward(&cache, x)?);
            let (output, cache) = multi.forward(x, across.flash())?;
            Ok([first, second, (output, multi.backward(&cache, x)?)])
        };
        assert_eq!(run(x).unwrap(), run(x.into_owned().as_view()).unwrap());
    });
}

/// Keys and values of a text that grows: rows of longer matrices, which are filled as far as the text goes.
#[test]
fn of_a_cache_of_keys_and_values_that_is_filled_row_by_row() -> Result<()> {
    let (q, k, v) = (random(5, 8, 2), random(5, 8, 3), random(5, 6, 4));
    let whole = flash(&q, &k, &v, Mask::causal())?;
    let mut keys = DMatrix::from_element(100, 8, f64::NAN); // room for a longer text
    let mut values = DMatrix::from_element(100, 6, f64::NAN);
    for token in 0..5 {
        keys.row_mut(token).copy_from(&k.row(token));
        values.row_mut(token).copy_from(&v.row(token));
        let (keys, values) = (keys.rows(0, token + 1), values.rows(0, token + 1));
        let (query, right) = (q.rows(token, 1), whole.rows(token, 1).into_owned());
        let by_tiles = flash(query, keys, values, Mask::none())?;
        assert_abs_diff_eq!(by_tiles, right, epsilon = 1e-15);
        let (naive, _) = attention(query, keys, values, Mask::none())?;
        assert_abs_diff_eq!(naive, right, epsilon = 1e-15);
    }
    Ok(())
}

/// nalgebra refuses a view whose rows are not neighbours in memory when it becomes one with neighbours; nothing is computed from the
/// wrong numbers.
#[test]
#[should_panic]
fn rows_with_gaps_are_refused() {
    let x = random(6, 4, 1);
    let _ = softmax_rows(&x.rows_with_step(0, 3, 1));
}
