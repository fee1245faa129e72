//! Attention step by step on the machine that counts.

use super::{Error, Memory, Result, SlowMatrix, Tile, blocks, check_fits};
use attention::engine::{
    check_queries_and_keys, check_shape, check_values, neg_infinity, normaliser, scale,
    shift,
};
use attention::{Float, Mask, mask::SizedMask};

// ---------------------------------------------------------------------------------------------------- forward

/// Attention as it is written on paper: scores, scale, mask, softmax and values, each a pass of its own over slow memory.
///
/// Returns the output and the weights. The report calls the (n_q, n_k) matrix `scores` throughout: each pass writes its result
/// over what it read, so that in the end the matrix holds the weights.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → output (n_q, d_v), weights (n_q, n_k). The entries must be finite:
/// unlike [`attention`](attention::attention()), this lets a NaN through that the mask hides.
///
/// # Errors
/// As [`attention`](attention::attention()), a matrix lies in another machine, or fast memory is too small: it needs room for
/// 2d + 1 numbers, with d the larger one of d_k and d_v.
///
/// ```
/// use attention::{Mask, attention};
/// use laboratory::traffic::{Memory, naive_attention};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(6, 2, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let memory = Memory::new(100);
/// let [q, k, v] = ["q", "k", "v"].map(|name| memory.put(name, x.clone()));
/// let (output, _) = naive_attention(&memory, [&q, &k, &v], Mask::causal())?;
///
/// let (expected, _) = attention(&x, &x, &x, Mask::causal())?;
/// assert!((output.into_matrix() - expected).amax() < 1e-15);
/// assert_eq!(memory.report().matrix("scores").all(), 8 * 6 * 6); // crosses eight times
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
// ANCHOR: naive
pub fn naive_attention<'m, T: Float>(
    memory: &'m Memory<T>,
    [q, k, v]: [&SlowMatrix<'m, T>; 3],
    mask: impl Into<Mask>,
) -> Result<(SlowMatrix<'m, T>, SlowMatrix<'m, T>)> {
    let mask = check(memory, [q, k, v], mask)?;
    let scale = scale::<T>(q.shape().1);

    memory.pass("scores");
    let scores = product_tr(memory, q, k, "scores")?; // (n_q, n_k)
    memory.pass("scale");
    let scores = map(memory, scores, |s, _| s * scale)?;
    memory.pass("mask");
    let scores = map(memory, scores, |s, at| unless_hidden(s, &mask, at))?;
    memory.pass("softmax");
    let weights = softmax(memory, scores, |s, _| s)?;
    memory.pass("values");
    let output = product(memory, &weights, v, "output")?; // (n_q, d_v)
    Ok((output, weights))
}
// ANCHOR_END: naive

/// [`naive_attention`] with scale, mask and softmax in one pass.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → output (n_q, d_v), weights (n_q, n_k), all finite.
///
/// # Errors
/// As [`naive_attention`].
///
/// ```
/// use attention::Mask;
/// use laboratory::traffic::{Memory, fused_attention};
/// use nalgebra::DMatrix;
///
/// let memory = Memory::new(100);
/// let [q, k, v] = ["q", "k", "v"].map(|name| memory.put(name, DMatrix::<f64>::zeros(6, 2)));
/// fused_attention(&memory, [&q, &k, &v], Mask::none())?;
/// assert_eq!(memory.report().matrix("scores").all(), 4 * 6 * 6); // crosses four times
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn fused_attention<'m, T: Float>(
    memory: &'m Memory<T>,
    [q, k, v]: [&SlowMatrix<'m, T>; 3],
    mask: impl Into<Mask>,
) -> Result<(SlowMatrix<'m, T>, SlowMatrix<'m, T>)> {
    let mask = check(memory, [q, k, v], mask)?;
    let scale = scale::<T>(q.shape().1);

    memory.pass("scores");
    let scores = product_tr(memory, q, k, "scores")?;
    // ANCHOR: fused
    memory.pass("scale, mask, softmax");
    let weights = softmax(memory, scores, |s, at| unless_hidden(s * scale, &mask, at))?;
    // ANCHOR_END: fused
    memory.pass("values");
    let output = product(memory, &weights, v, "output")?;
    Ok((output, weights))
}

pub(super) fn check<T: Float>(
    memory: &Memory<T>,
    [q, k, v]: [&SlowMatrix<T>; 3],
    mask: impl Into<Mask>,
) -> Result<SizedMask> {
    check_home(memory, &[("q", q), ("k", k), ("v", v)])?;
    let [q, k, v] = [q, k, v].map(|matrix| matrix.matrix.as_view());
    check_values(k, v)?;
    check_queries_and_keys(q, k)?;
    Ok(mask.into().sized(q.nrows(), k.nrows())?)
}

/// Errs unless all lie in this machine: what lies in another one would be counted there.
pub(super) fn check_home<T>(
    memory: &Memory<T>,
    matrices: &[(&'static str, &SlowMatrix<T>)],
) -> Result<()> {
    match matrices.iter().find(|(_, matrix)| !std::ptr::eq(matrix.memory, memory)) {
        None => Ok(()),
        Some(&(argument, _)) => Err(Error::Elsewhere { argument }),
    }
}

pub(super) fn unless_hidden<T: Float>(
    score: T,
    mask: &SizedMask,
    (i, j): (usize, usize),
) -> T {
    if mask.allows(i, j) { score } else { neg_infinity() }
}

// ---------------------------------------------------------------------------------------------------- products

/// The number of rows of width d in a strip. They share fast memory with one more row,
/// and with a column of one number for each of them: r·d + d + r ≤ R.
fn strip_height<T: Float>(memory: &Memory<T>, d: usize) -> Result<usize> {
    check_row(memory, d)?;
    Ok((memory.free() - d) / (d + 1))
}

/// Room for a strip of one row.
fn check_row<T: Float>(memory: &Memory<T>, d: usize) -> Result<()> {
    let (what, needed) = (format!("a product of width {d}"), 2 * d as u128 + 1);
    check_fits("capacity", memory.capacity(), what, needed, memory.room())
}

/// `a · bᵀ`, a strip of `a` at a time, which stays while every row of `b` comes by.
///
/// Shapes: `a` (n, d), `b` (m, d) → (n, m).
fn product_tr<'m, T: Float>(
    memory: &'m Memory<T>,
    a: &SlowMatrix<'m, T>,
    b: &SlowMatrix<'m, T>,
    name: &'static str,
) -> Result<SlowMatrix<'m, T>> {
    let ((n, d), (m, _)) = (a.shape(), b.shape());
    let mut product = memory.allocate(name, n, m)?; // in slow memory
    for rows in blocks(n, strip_height(memory, d)?) {
        let strip = a.load(rows.clone(), 0..d)?; // (r, d)
        for j in 0..m {
            let b_j = b.load(j..j + 1, 0..d)?; // (1, d)
            let mut column = memory.tile(rows.len(), 1)?; // (r, 1)
            column.add_product_tr(&strip, &b_j)?;
            product.store((rows.start, j), &column)?;
        }
    }
    Ok(product)
}

/// `a · b`, a strip of the result at a time, which stays while columns of `a` and rows of `b` come by.
///
/// Shapes: `a` (n, m), `b` (m, d) → (n, d).
fn product<'m, T: Float>(
    memory: &'m Memory<T>,
    a: &SlowMatrix<'m, T>,
    b: &SlowMatrix<'m, T>,
    name: &'static str,
) -> Result<SlowMatrix<'m, T>> {
    let ((n, m), (_, d)) = (a.shape(), b.shape());
    let mut product = memory.allocate(name, n, d)?;
    for rows in blocks(n, strip_height(memory, d)?) {
        let mut strip = memory.tile(rows.len(), d)?; // (r, d)
        for j in 0..m {
            let column = a.load(rows.clone(), j..j + 1)?; // (r, 1)
            let b_j = b.load(j..j + 1, 0..d)?; // (1, d)
            strip.add_product(&column, &b_j)?;
        }
        product.store((rows.start, 0), &strip)?;
    }
    Ok(product)
}

/// `aᵀ · b`, as [`product`].
///
/// Shapes: `a` (m, n), `b` (m, d) → (n, d).
fn tr_product<'m, T: Float>(
    memory: &'m Memory<T>,
    a: &SlowMatrix<'m, T>,
    b: &SlowMatrix<'m, T>,
    name: &'static str,
) -> Result<SlowMatrix<'m, T>> {
    let ((m, n), (_, d)) = (a.shape(), b.shape());
    let mut product = memory.allocate(name, n, d)?;
    for columns in blocks(n, strip_height(memory, d)?) {
        let mut strip = memory.tile(columns.len(), d)?; // (r, d)
        for i in 0..m {
            let a_i = a.load(i..i + 1, columns.clone())?; // (1, r)
            let b_i = b.load(i..i + 1, 0..d)?; // (1, d)
            strip.add_tr_product(&a_i, &b_i)?;
        }
        product.store((columns.start, 0), &strip)?;
    }
    Ok(product)
}

// ---------------------------------------------------------------------------------------------------- entry by entry

/// Every entry through a function of itself and its place.
fn map<'m, T: Float>(
    memory: &'m Memory<T>,
    mut matrix: SlowMatrix<'m, T>,
    f: impl Fn(T, (usize, usize)) -> T,
) -> Result<SlowMatrix<'m, T>> {
    let (n, m) = matrix.shape();
    for j in 0..m {
        for rows in blocks(n, memory.free()) {
            let start = (rows.start, j);
            let mut tile = matrix.load(rows, j..j + 1)?;
            map_tile(&mut tile, start, &f);
            matrix.store(start, &tile)?;
        }
    }
    Ok(matrix)
}

pub(super) fn map_tile<T: Float>(
    tile: &mut Tile<T>,
    (row, column): (usize, usize),
    f: impl Fn(T, (usize, usize)) -> T,
) {
    for (j, mut entries) in tile.view_mut().column_iter_mut().enumerate() {
        for (i, x) in entries.iter_mut().enumerate() {
            *x = f(*x, (row + i, column + j));
        }
    }
}

// ---------------------------------------------------------------------------------------------------- softmax

/// Softmax of every row, after `f` of every entry.
///
/// A row that fits fast memory is read once. A longer one is read three times: for its maximum, for its sum, and to be
/// normalised.
// ANCHOR: softmax
fn softmax<'m, T: Float>(
    memory: &'m Memory<T>,
    mut scores: SlowMatrix<'m, T>,
    f: impl Fn(T, (usize, usize)) -> T,
) -> Result<SlowMatrix<'m, T>> {
    let (n_q, n_k) = scores.shape();
    for i in 0..n_q {
        if n_k <= memory.free() {
            let mut row = load_row(&scores, i, 0..n_k, &f)?; // read once
            let max = shift(row.view().max());
            row.view_mut().apply(|x| *x = (*x - max).exp());
            let sum = normaliser(row.view().sum());
            row.view_mut().apply(|x| *x /= sum);
            scores.store((i, 0), &row)?;
        } else {
            softmax_in_pieces(memory, &mut scores, i, &f)?;
        }
    }
    Ok(scores)
}

fn softmax_in_pieces<T: Float>(
    memory: &Memory<T>,
    scores: &mut SlowMatrix<T>,
    i: usize,
    f: impl Fn(T, (usize, usize)) -> T,
) -> Result<()> {
    let (n_k, size) = (scores.shape().1, memory.free());
    let mut max = neg_infinity::<T>();
    for columns in blocks(n_k, size) {
        max = max.max(load_row(scores, i, columns, &f)?.view().max()); // read once
    }
    let max = shift(max);
    let mut sum = T::zero();
    for columns in blocks(n_k, size) {
        let piece = load_row(scores, i, columns, &f)?; // twice
        sum = piece.view().iter().fold(sum, |sum, &x| sum + (x - max).exp());
    }
    let sum = normaliser(sum);
    for columns in blocks(n_k, size) {
        let start = (i, columns.start);
        let mut piece = load_row(scores, i, columns, &f)?; // three times
        piece.view_mut().apply(|x| *x = (*x - max).exp() / sum);
        scores.store(start, &piece)?;
    }
    Ok(())
}
// ANCHOR_END: softmax

fn load_row<'m, T: Float>(
    scores: &SlowMatrix<'m, T>,
    i: usize,
    columns: std::ops::Range<usize>,
    f: impl Fn(T, (usize, usize)) -> T,
) -> Result<Tile<'m, T>> {
    let start = (i, columns.start);
    let mut row = scores.load(i..i + 1, columns)?;
    map_tile(&mut row, start, f);
    Ok(row)
}

// ---------------------------------------------------------------------------------------------------- backward

/// The backward pass of [`naive_attention`], each step a pass of its own over slow memory: the gradients of queries, keys and values.
///
/// The report calls the matrix of gradients (n_q, n_k) `grad_scores` throughout, though it first holds those of the weights.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v), `weights` (n_q, n_k), `grad_output` (n_q, d_v) → (n_q, d_k),
/// (n_k, d_k), (n_k, d_v). All entries must be finite.
///
/// # Errors
/// Shapes do not fit, a matrix lies in another machine, or fast memory is too small: it needs room for 2d + 1 numbers, with
/// d the larger one of d_k and d_v.
///
/// ```
/// use attention::{Mask, attention, attention_backward};
/// use laboratory::traffic::{Memory, naive_attention, naive_attention_backward};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(6, 2, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let memory = Memory::new(100);
/// let [q, k, v, g] = ["q", "k", "v", "g"].map(|name| memory.put(name, x.clone()));
/// let (_, weights) = naive_attention(&memory, [&q, &k, &v], Mask::none())?;
/// let [grad_q, _, _] = naive_attention_backward(&memory, [&q, &k, &v], &weights, &g)?;
///
/// let (_, cache) = attention(&x, &x, &x, Mask::none())?;
/// let expected = attention_backward(&cache, &x)?;
/// assert!((grad_q.into_matrix() - expected.q).amax() < 1e-14);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn naive_attention_backward<'m, T: Float>(
    memory: &'m Memory<T>,
    [q, k, v]: [&SlowMatrix<'m, T>; 3],
    weights: &SlowMatrix<'m, T>,
    grad_output: &SlowMatrix<'m, T>,
) -> Result<[SlowMatrix<'m, T>; 3]> {
    // What was hidden, the weights know.
    let scores = check(memory, [q, k, v], Mask::none())?.shape();
    check_home(memory, &[("weights", weights), ("grad_output", grad_output)])?;
    check_shape("weights", &weights.matrix, scores, "(n_q, n_k)")?;
    let output = (q.shape().0, v.shape().1);
    check_shape("grad_output", &grad_output.matrix, output, "the output")?;
    let scale = scale::<T>(q.shape().1);

    // ANCHOR: backward
    // output = weights · v
    memory.pass("grad v");
    let grad_v = tr_product(memory, weights, grad_output, "grad_v")?; // (n_k, d_v)
    memory.pass("grad weights");
    // (n_q, n_k), named after what will overwrite it
    let grad_weights = product_tr(memory, grad_output, v, "grad_scores")?;

    // weights = softmax(scores + mask)
    memory.pass("softmax, backward");
    let grad_scores = softmax_backward(memory, weights, grad_weights)?; // (n_q, n_k)

    // scores = q kᵀ / √d_k
    memory.pass("scale, backward");
    let grad_scores = map(memory, grad_scores, |g, _| g * scale)?;
    memory.pass("grad q");
    let grad_q = product(memory, &grad_scores, k, "grad_q")?; // (n_q, d_k)
    memory.pass("grad k");
    let grad_k = tr_product(memory, &grad_scores, q, "grad_k")?; // (n_k, d_k)
    // ANCHOR_END: backward
    Ok([grad_q, grad_k, grad_v])
}

/// From the gradients of the weights to those of the scores, `p ⊙ (g − ⟨g, p⟩)` of every row.
///
/// Two rows that fit fast memory together are read once, longer ones twice: for their product, and for the result.
fn softmax_backward<'m, T: Float>(
    memory: &'m Memory<T>,
    weights: &SlowMatrix<'m, T>,
    mut grad: SlowMatrix<'m, T>,
) -> Result<SlowMatrix<'m, T>> {
    let (n_q, n_k) = grad.shape();
    for i in 0..n_q {
        let size = memory.free() / 2;
        if n_k <= size {
            let p = weights.load(i..i + 1, 0..n_k)?;
            let mut g = grad.load(i..i + 1, 0..n_k)?;
            let mean = g.view().dot(&p.view());
            g.view_mut().zip_apply(&p.view(), |g, p| *g = p * (*g - mean));
            grad.store((i, 0), &g)?;
            continue;
        }
        let mut mean = T::zero();
        for columns in blocks(n_k, size) {
            let p = weights.load(i..i + 1, columns.clone())?;
            mean += grad.load(i..i + 1, columns)?.view().dot(&p.view());
        }
        for columns in blocks(n_k, size) {
            let p = weights.load(i..i + 1, columns.clone())?;
            let mut g = grad.load(i..i + 1, columns.clone())?;
            g.view_mut().zip_apply(&p.view(), |g, p| *g = p * (*g - mean));
            grad.store((i, columns.start), &g)?;
        }
    }
    Ok(grad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Counts;
    use crate::traffic::samples::{
        Moved, ROOMY, SIZES, assert_close, assert_moved, gradients, masks, random_inputs,
        run,
    };
    use attention::{attention, attention_weights};

    /// From the least that the products ask for to more than enough.
    fn capacities([_, n_k, d_k, d_v]: [usize; 4]) -> [usize; 6] {
        let least = 2 * d_k.max(d_v) + 1;
        [least, least + 1, least + 7, n_k.max(least), (2 * n_k).max(least), ROOMY]
    }

    type Program = for<'m> fn(
        &'m Memory<f64>,
        [&SlowMatrix<'m, f64>; 3],
        Mask,
    ) -> Result<(SlowMatrix<'m, f64>, SlowMatrix<'m, f64>)>;
    /// With the passes between its products.
    const PROGRAMS: [(Program, &[&str]); 2] = [
        (naive_attention, &["scale", "mask", "softmax"]),
        (fused_attention, &["scale, mask, softmax"]),
    ];

    /// Queries and output once, keys and values once for every strip, and the matrix in each pass.
    fn moved(
        [n_q, n_k, d_k, d_v]: [usize; 4],
        capacity: usize,
        middle: &[&'static str],
    ) -> Vec<Moved> {
        let strips = |d| n_q.div_ceil((capacity - d) / (d + 1));
        let (all, sweeps) = (n_q * n_k, if n_k <= capacity { 1 } else { 3 });
        let in_the_middle = middle.iter().map(|&pass| {
            let times = if pass.ends_with("softmax") { sweeps } else { 1 };
            (pass, "scores", times * all, all)
        });
        let mut moved = vec![
            ("scores", "q", n_q * d_k, 0),
            ("scores", "k", strips(d_k) * n_k * d_k, 0),
            ("scores", "scores", 0, all),
        ];
        moved.extend(in_the_middle);
        moved.extend([
            ("values", "scores", all, 0),
            ("values", "v", strips(d_v) * n_k * d_v, 0),
            ("values", "output", 0, n_q * d_v),
        ]);
        moved
    }

    #[test]
    fn what_is_counted_is_attention_and_is_what_the_formula_says() {
        for sizes @ [n_q, n_k, ..] in SIZES {
            let [q, k, v, _] = &random_inputs(sizes);
            for mask in &masks(n_q, n_k) {
                let (output, cache) = attention(q, k, v, mask).unwrap();
                let expected = [output, cache.weights];
                for (capacity, (program, middle)) in capacities(sizes)
                    .into_iter()
                    .flat_map(|capacity| PROGRAMS.map(|program| (capacity, program)))
                {
                    let context = format!("{sizes:?} {capacity} {mask:?}");
                    let (results, report, peak) =
                        run([q, k, v], capacity, |memory, inputs| {
                            program(memory, inputs, mask.clone()).map(Into::into)
                        })
                        .unwrap();
                    assert_close(&results, &expected, &context);
                    assert_moved(&report, &moved(sizes, capacity, middle), &context);
                    assert!(peak <= capacity);
                }
            }
        }
    }

    /// As [`moved`], where two rows of softmax have to fit together.
    fn moved_backward([n_q, n_k, d_k, d_v]: [usize; 4], capacity: usize) -> Vec<Moved> {
        let strips = |n: usize, d| n.div_ceil((capacity - d) / (d + 1));
        let (all, sweeps) = (n_q * n_k, if n_k <= capacity / 2 { 1 } else { 2 });
        vec![
            ("grad v", "scores", all, 0),
            ("grad v", "grad_output", strips(n_k, d_v) * n_q * d_v, 0),
            ("grad v", "grad_v", 0, n_k * d_v),
            ("grad weights", "grad_output", n_q * d_v, 0),
            ("grad weights", "v", strips(n_q, d_v) * n_k * d_v, 0),
            ("grad weights", "grad_scores", 0, all),
            ("softmax, backward", "scores", sweeps * all, 0),
            ("softmax, backward", "grad_scores", sweeps * all, all),
            ("scale, backward", "grad_scores", all, all),
            ("grad q", "grad_scores", all, 0),
            ("grad q", "k", strips(n_q, d_k) * n_k * d_k, 0),
            ("grad q", "grad_q", 0, n_q * d_k),
            ("grad k", "grad_scores", all, 0),
            ("grad k", "q", strips(n_k, d_k) * n_q * d_k, 0),
            ("grad k", "grad_k", 0, n_k * d_k),
        ]
    }

    #[test]
    fn backward_agrees_and_is_what_the_formula_says() {
        for sizes @ [n_q, n_k, ..] in SIZES {
            let inputs @ [q, k, v, grad_output] = &random_inputs(sizes);
            for mask in masks(n_q, n_k) {
                let (weights, _) = attention_weights(q, k, &mask).unwrap();
                let expected = gradients(inputs.each_ref(), &mask);
                for capacity in capacities(sizes) {
                    let context = format!("{sizes:?} {capacity} {mask:?}");
                    let (results, report, _) =
                        run([q, k, v], capacity, |memory, inputs| {
                            let weights = memory.put("scores", weights.clone());
                            let g = memory.put("grad_output", grad_output.clone());
                            naive_attention_backward(memory, inputs, &weights, &g)
                        })
                        .unwrap();
                    assert_close(&results, &expected, &context);
                    assert_moved(&report, &moved_backward(sizes, capacity), &context);
                }
            }
        }
    }

    /// Counted with a pencil. n_q = 5, n_k = 7, d_k = 3, d_v = 2, and room for 11 numbers: strips are
    /// ⌊(11 − 3) / 4⌋ = 2 rows high for the scores and ⌊(11 − 2) / 3⌋ = 3 for the values, so that there are 3 and 2 of them.
    #[test]
    fn by_hand() {
        let [q, k, v, _] = &random_inputs([5, 7, 3, 2]);
        let (_, report, peak) = run([q, k, v], 11, |memory, inputs| {
            naive_attention(memory, inputs, Mask::none()).map(Into::into)
        })
        .unwrap();
        let counts = |pass| {
            let Counts { read, written } = report.pass(pass);
            (read, written)
        };
        assert_eq!(report.passes(), ["scores", "scale", "mask", "softmax", "values"]);
        assert_eq!(counts("scores"), (5 * 3 + 3 * (7 * 3), 35));
        assert_eq!(counts("scale"), (35, 35));
        assert_eq!(counts("mask"), (35, 35));
        assert_eq!(counts("softmax"), (35, 35));
        assert_eq!(counts("values"), (35 + 2 * (7 * 2), 5 * 2));
        assert_eq!(report.matrix("scores").all(), 8 * 35);
        assert_eq!(peak, 11); // softmax aside: 2·3 + 3 + 2 in the scores
    }

    #[test]
    fn one_number_less_than_the_least_is_an_error() {
        for sizes @ [_, _, d_k, d_v] in SIZES {
            let capacity = 2 * d_k.max(d_v);
            let [q, k, v, _] = &random_inputs(sizes);
            for (program, _) in PROGRAMS {
                let results = run([q, k, v], capacity, |memory, inputs| {
                    program(memory, inputs, Mask::none()).map(Into::into)
                });
                assert!(results.is_err());
            }
        }
    }
}
