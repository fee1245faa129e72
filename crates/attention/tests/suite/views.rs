//! Every function that takes a matrix takes a view of one: columns, rows, a piece of both, a matrix of fixed size. Each gives what
//! it gives for a copy, to the bit.

use attention::flash::{
    Flash, Inputs, OnlineSoftmax, Tiles, flash, tiled_attention, tiled_attention_backward,
};
use attention::testing::one_problem::off;
use attention::testing::{parameters, random};
use attention::{
    ForwardOptions, LayerGradients, Mask, MultiHeadAttention, Result,
    SingleHeadAttention, attention, attention_backward, attention_weights,
    gradient_check, heat_map, linear, linear_backward, log_sum_exp_rows,
    numerical_gradient, row_entropy, scaled_scores, softmax_rows, softmax_rows_backward,
};
use nalgebra::{DMatrix, DMatrixView, RowDVector, SMatrix};

/// Four tokens of width 4, each view a part of a larger matrix that holds NaN around it.
fn views(check: impl Fn(DMatrixView<f64>)) {
    let mut large = DMatrix::from_element(9, 11, f64::NAN);
    large.view_mut((2, 3), (4, 4)).copy_from(&random(4, 4, 1));
    let columns = large.rows(2, 4).into_owned();
    let rows = large.columns(3, 4).into_owned();
    check((&columns.columns(3, 4)).into());
    check((&rows.rows(2, 4)).into());
    check((&large.view((2, 3), (4, 4))).into());
    check(rows.rows_range(2..6));
    check((&SMatrix::<f64, 4, 4>::from_fn(|i, j| large[(i + 2, j + 3)])).into());
    check((&large.fixed_view::<4, 4>(2, 3)).into());
}

#[test]
fn of_functions() {
    views(|x| {
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
fn of_flash_attention_and_its_gradients() {
    views(|x| {
        let run = |x: DMatrixView<f64>| -> Result<_> {
            let tiles = Tiles { queries: 2, keys: 3 };
            let inputs = Inputs::new(x, x, x, Mask::causal())?.with_heads(2)?;
            let (engine, tiled) = (Flash::new(), tiled_attention(&inputs, tiles)?);
            let forward = engine.forward(&inputs);
            let fast = engine.backward(&inputs, &forward, x)?;
            let readable = tiled_attention_backward(&inputs, &tiled, x, tiles)?;
            let mut state = OnlineSoftmax::new(4, 4)?;
            state.absorb(x, x)?;
            let output = flash(x, x, x, Mask::causal())?;
            Ok((output, forward, fast, tiled, readable, state.finish()))
        };
        assert_eq!(run(x).unwrap(), run(x.into_owned().as_view()).unwrap());
    });
}

#[test]
fn of_layers() {
    type Answer = (DMatrix<f64>, LayerGradients<f64>);
    let single = SingleHeadAttention::from(parameters(4, 3, 2, 0));
    let multi = MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap();
    views(|x| {
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
        assert!(off(&by_tiles, &right) < 1e-15);
        let (naive, _) = attention(query, keys, values, Mask::none())?;
        assert!(off(&naive, &right) < 1e-15);
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
