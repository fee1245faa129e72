//! The loss of a model that says what comes next.

use attention::{Error, Result, engine::wrong_value};
use fast::Float;
use nalgebra::{DMatrix, convert, convert_unchecked};

/// Returns the sum of −log p over the rows that have a target, where p is the probability that softmax of the row's scores gives its target;
/// and its gradient with respect to the scores, `p − onehot`.
///
/// Shapes: `scores` (n, vocabulary), `targets` n numbers below vocabulary, or none → gradient (n, vocabulary).
///
/// # Errors
/// `scores` is empty, there are not n targets, or one is not in the vocabulary.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let (loss, gradient) = model::cross_entropy(&dmatrix![0.0_f64, 0.0; 9.0, 1.0], &[Some(1), None])?;
/// assert!((loss - 2.0_f64.ln()).abs() < 1e-15);
/// assert_eq!(gradient, dmatrix![0.5, -0.5; 0.0, 0.0]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn cross_entropy<T: Float>(
    scores: &DMatrix<T>,
    targets: &[Option<usize>],
) -> Result<(T, DMatrix<T>)> {
    check(scores, targets)?;
    // Relative to a row's largest score: the difference of two large numbers would have
    // lost the loss.
    let mut scores = scores.clone();
    scores.row_iter_mut().for_each(|mut row| row.add_scalar_mut(-row.max()));
    let mut gradient = scores.clone();
    T::exp_all(gradient.as_mut_slice());
    let sums = gradient.column_sum(); // of each row's exponentials
    for mut column in gradient.column_iter_mut() {
        column.component_div_assign(&sums); // by now softmax
    }
    let mut loss = 0.0; // an `f64`, because a sum of many loses in `f32`
    for (i, target) in targets.iter().enumerate() {
        match *target {
            Some(target) => {
                loss += convert_unchecked::<T, f64>(sums[i].ln() - scores[(i, target)]);
                gradient[(i, target)] -= T::one();
            }
            None => gradient.row_mut(i).fill(T::zero()),
        }
    }
    Ok((convert(loss), gradient))
}

fn check<T: Float>(scores: &DMatrix<T>, targets: &[Option<usize>]) -> Result<()> {
    let (given, expected) = (targets.len(), scores.nrows());
    if given != expected {
        return Err(Error::Shape {
            argument: "targets",
            axis: "entry",
            given,
            expected,
            because: format!("there are {expected} rows of scores"),
        });
    }
    check_tokens("targets", targets.iter().flatten(), scores.ncols())
}

/// Checks that tokens, or targets, are in the vocabulary.
pub(crate) fn check_tokens<'t>(
    argument: &'static str,
    tokens: impl IntoIterator<Item = &'t usize>,
    vocabulary: usize,
) -> Result<()> {
    match tokens.into_iter().find(|token| **token >= vocabulary) {
        None => Ok(()),
        Some(&token) => {
            let because = format!("the vocabulary has the tokens below {vocabulary}");
            Err(wrong_value(argument, token, because))
        }
    }
}
