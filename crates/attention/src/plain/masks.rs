use super::Matrix;

/// No token sees its future. Queries and keys are counted from the same first token.
pub fn causal(query: usize, key: usize) -> bool {
    key <= query
}

/// Each token sees itself and the tokens just before it, `width` in all.
pub fn window(width: usize) -> impl Fn(usize, usize) -> bool + Copy {
    move |query, key| key <= query && query - key < width
}

/// No token sees one that only fills up the sequence.
pub fn padding(is_token: &[bool]) -> impl Fn(usize, usize) -> bool + Copy {
    |_, key| is_token[key]
}

/// Puts −∞ in place of hidden scores, so that softmax gives them the weight 0.
pub fn hide(scores: &Matrix, sees: impl Fn(usize, usize) -> bool) -> Matrix {
    Matrix::from_fn(scores.nrows(), scores.ncols(), |i, j| {
        if sees(i, j) { scores[(i, j)] } else { f64::NEG_INFINITY }
    })
}
