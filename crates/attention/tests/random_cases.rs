//! Every engine on random problems, against the definition of attention written once more in plain loops.
//!
//! The problems are those that break programs: lengths around the edges of tiles, more queries than keys and fewer, all
//! masks, NaN and infinities in hidden and in visible places, subnormal numbers, ties, and scores up to 1e30 in `f32` and
//! 1e200 in `f64`. Each result is compared entry by entry, forward and backward, with a tolerance that follows from the
//! precision and the sizes; and what is not a number has to be so in the same places.
//!
//! `RANDOM_CASES` is the number of problems (for each precision; the default takes a few seconds in a debug build), and
//! `RANDOM_SEED` the seed of the first one: a failure names its seed. `--nocapture` shows how many cases each engine has
//! passed.

use attention::flash::{
    Exponentials, Flash, FlashOutput, Inputs, Instructions, LibraryFlash, Tiles,
    tiled_attention, tiled_attention_backward,
};
use attention::{
    AttentionGradients, AttentionLayer, BatchGradients, Float, ForwardOptions,
    LayerGradients, Mask, MultiHeadAttention, Parameters, SingleHeadAttention, attention,
    attention_backward,
};
use nalgebra::{DMatrix, RowDVector, convert, dmatrix, try_convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use std::collections::BTreeMap;

// ---------------------------------------------------------------------------------------------------- the definition

/// One head, forward and backward, from the definition.
struct Reference {
    output: DMatrix<f64>,
    log_sum_exp: Vec<f64>,
    q: DMatrix<f64>,
    k: DMatrix<f64>,
    v: DMatrix<f64>,
    weights: DMatrix<f64>,
    scores: DMatrix<f64>,
}

/// Attention of one head. A hidden pair does not occur in any sum. A query that sees nothing, or nothing but scores of
/// −∞, has weights of 0.
fn reference(
    [q, k, v, grad_output]: [&DMatrix<f64>; 4],
    allowed: &DMatrix<bool>,
) -> Reference {
    let ((n_q, d_k), (n_k, d_v)) = (q.shape(), v.shape());
    let root = (d_k as f64).sqrt();
    let mut of = Reference {
        output: DMatrix::zeros(n_q, d_v),
        log_sum_exp: vec![f64::NEG_INFINITY; n_q],
        q: DMatrix::zeros(n_q, d_k),
        k: DMatrix::zeros(n_k, d_k),
        v: DMatrix::zeros(n_k, d_v),
        weights: DMatrix::zeros(n_q, n_k),
        scores: DMatrix::from_fn(n_q, n_k, |i, j| {
            (0..d_k).map(|c| q[(i, c)] * k[(j, c)]).sum::<f64>() / root
        }),
    };
    for i in 0..n_q {
        let seen: Vec<usize> = (0..n_k).filter(|&j| allowed[(i, j)]).collect();
        let max =
            seen.iter().map(|&j| of.scores[(i, j)]).fold(f64::NEG_INFINITY, |a, b| {
                if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
            });
        let shift = if max == f64::NEG_INFINITY { 0.0 } else { max };
        let sum: f64 = seen.iter().map(|&j| (of.scores[(i, j)] - shift).exp()).sum();
        of.log_sum_exp[i] = shift + sum.ln();
        for &j in &seen {
            let exponential = (of.scores[(i, j)] - shift).exp();
            of.weights[(i, j)] = if sum == 0.0 { 0.0 } else { exponential / sum };
            for c in 0..d_v {
                of.output[(i, c)] += of.weights[(i, j)] * v[(j, c)];
                of.v[(j, c)] += of.weights[(i, j)] * grad_output[(i, c)];
            }
        }
        let grad_weight =
            |j: usize| (0..d_v).map(|c| grad_output[(i, c)] * v[(j, c)]).sum::<f64>();
        let mean: f64 = seen.iter().map(|&j| of.weights[(i, j)] * grad_weight(j)).sum();
        for &j in &seen {
            let grad_score = of.weights[(i, j)] * (grad_weight(j) - mean) / root;
            for c in 0..d_k {
                of.q[(i, c)] += grad_score * k[(j, c)];
                of.k[(j, c)] += grad_score * q[(i, c)];
            }
        }
    }
    of
}

// ---------------------------------------------------------------------------------------------------- problems

/// What the numbers are like.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Numbers {
    /// Between −1 and 1.
    Ordinary,
    /// Whole numbers times powers of two: every product of queries and keys is exact, and many are equal. The exponent is
    /// that of the largest scores.
    Exact { exponent: i32 },
    /// Queries up to this size.
    Large { size: f64 },
    /// Some of them subnormal, some zero.
    Subnormal,
}

/// What is put among them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Poison {
    None,
    Nan,
    Infinity,
}

#[derive(Debug, Clone)]
struct Problem {
    lengths: (usize, usize),
    widths: (usize, usize),
    n_heads: usize,
    numbers: Numbers,
    poison: Poison,
    mask: Mask,
    allowed: DMatrix<bool>,
    tiles: Tiles,
    threads: usize,
}

struct Data<T: Float> {
    q: DMatrix<T>,
    k: DMatrix<T>,
    v: DMatrix<T>,
    grad_output: DMatrix<T>,
}

/// Lengths and sizes of tiles: small ones, and the edges of what vectors, tiles and panels hold.
fn length(rng: &mut ChaCha8Rng) -> usize {
    const EDGES: [usize; 12] = [15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 97];
    match rng.random_range(0..10) {
        0..6 => rng.random_range(1..10),
        _ => EDGES[rng.random_range(0..EDGES.len())],
    }
}

fn width(rng: &mut ChaCha8Rng) -> usize {
    const EDGES: [usize; 6] = [15, 16, 17, 31, 32, 33];
    match rng.random_range(0..8) {
        0..7 => rng.random_range(1..10),
        _ => EDGES[rng.random_range(0..EDGES.len())],
    }
}

/// A mask, and the same by its definition.
fn mask(rng: &mut ChaCha8Rng, (n_q, n_k): (usize, usize)) -> (Mask, DMatrix<bool>) {
    let define = |seen: &dyn Fn(usize, usize) -> bool| DMatrix::from_fn(n_q, n_k, seen);
    let position = |i: usize| (i + n_k) as i64 - n_q as i64;
    match rng.random_range(0..8) {
        0 => (Mask::none(), define(&|_, _| true)),
        1 => (Mask::causal(), define(&|i, j| j as i64 <= position(i))),
        2 => {
            let share = [0.0, 0.5, 0.8][rng.random_range(0..3)];
            let valid: Vec<bool> = (0..n_k).map(|_| rng.random_bool(share)).collect();
            (Mask::padding(&valid).unwrap(), define(&|_, j| valid[j]))
        }
        3 => {
            let window = length(rng);
            let seen = |i: usize, j: usize| {
                (0..window as i64).contains(&(position(i) - j as i64))
            };
            (Mask::window(window).unwrap(), define(&seen))
        }
        4 => {
            let share = [0.1, 0.5, 0.95][rng.random_range(0..3)];
            let allowed = DMatrix::from_fn(n_q, n_k, |_, _| rng.random_bool(share));
            (Mask::dense(allowed.clone()).unwrap(), allowed)
        }
        _ => {
            let (a, allowed_a) = mask(rng, (n_q, n_k));
            let (b, allowed_b) = mask(rng, (n_q, n_k));
            (a.and(b), allowed_a.zip_map(&allowed_b, |a, b| a && b))
        }
    }
}

impl Problem {
    fn random(rng: &mut ChaCha8Rng, largest_exponent: i32) -> Self {
        let lengths = match rng.random_range(0..3) {
            0 => [length(rng); 2].into(),
            _ => (length(rng), length(rng)),
        };
        let numbers = match rng.random_range(0..8) {
            0..3 => Numbers::Ordinary,
            3..5 => Numbers::Exact { exponent: rng.random_range(-4..largest_exponent) },
            5..7 => {
                let exponent = rng.random_range(0..largest_exponent);
                Numbers::Large { size: 2.0_f64.powi(exponent) }
            }
            _ => Numbers::Subnormal,
        };
        let poison = match rng.random_range(0..6) {
            0..3 => Poison::None,
            3..5 => Poison::Nan,
            _ => Poison::Infinity,
        };
        let (mask, allowed) = mask(rng, lengths);
        Problem {
            lengths,
            widths: (width(rng), width(rng)),
            n_heads: [1, 1, 2, 3][rng.random_range(0..4)],
            numbers,
            poison,
            mask,
            allowed,
            tiles: Tiles { queries: length(rng), keys: length(rng) },
            threads: rng.random_range(1..4),
        }
    }

    fn data<T: Float>(&self, rng: &mut ChaCha8Rng) -> Data<T> {
        let ((n_q, n_k), (d_k, d_v), h) = (self.lengths, self.widths, self.n_heads);
        let mut matrix = |rows, columns, of_scores: Option<f64>| {
            let mut matrix = DMatrix::from_fn(rows, columns * h, |_, _| {
                let ordinary: f64 = rng.random_range(-1.0..1.0);
                let number = match (self.numbers, of_scores) {
                    (Numbers::Exact { .. }, Some(size)) => {
                        f64::from(rng.random_range(-3_i32..4)) * size
                    }
                    (Numbers::Large { .. }, Some(size)) => ordinary * size,
                    (Numbers::Subnormal, _) => match rng.random_range(0..4) {
                        0 => 0.0,
                        1 => ordinary * smallest_normal::<T>(),
                        _ => ordinary,
                    },
                    _ => ordinary,
                };
                convert::<f64, T>(number)
            });
            for _ in
                0..if self.poison == Poison::None { 0 } else { rng.random_range(0..3) }
            {
                let at = (rng.random_range(0..rows), rng.random_range(0..columns * h));
                let poison = match self.poison {
                    Poison::Infinity if rng.random_bool(0.5) => f64::INFINITY,
                    Poison::Infinity => f64::NEG_INFINITY,
                    _ => f64::NAN,
                };
                if rng.random_bool(0.5) {
                    matrix.row_mut(at.0).fill(convert(poison));
                } else {
                    matrix[at] = convert(poison);
                }
            }
            matrix
        };
        // Queries and keys share the exponent, so that no gradient overflows where scores do not.
        let half = |exponent: i32| 2.0_f64.powi(exponent.div_euclid(2));
        let (of_q, of_k) = match self.numbers {
            Numbers::Exact { exponent } => (half(exponent), half(exponent + 1)),
            Numbers::Large { size } => (size.sqrt(), size.sqrt()),
            _ => (1.0, 1.0),
        };
        Data {
            q: matrix(n_q, d_k, Some(of_q)),
            k: matrix(n_k, d_k, Some(of_k)),
            v: matrix(n_k, d_v, None),
            grad_output: matrix(n_q, d_v, None),
        }
    }
}

/// Half the distance from 1 to the next number: what one rounding is off by, at most.
fn unit<T: Float>() -> f64 {
    let epsilon: f64 = try_convert(T::default_epsilon()).unwrap();
    epsilon / 2.0
}

fn smallest_normal<T: Float>() -> f64 {
    if size_of::<T>() == 4 { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE }
}

fn exact<T: Float>(x: &DMatrix<T>) -> DMatrix<f64> {
    x.map(|x| try_convert(x).unwrap())
}

// ---------------------------------------------------------------------------------------------------- what is right

/// The right results of one head, how far each entry may be off, and what an infinity reaches.
struct Expected {
    right: Reference,
    /// How far outputs and gradients of queries, keys and values may be off.
    tolerance: [DMatrix<f64>; 4],
    tolerance_of_log_sum_exp: Vec<f64>,
    /// Queries with an infinity of their own, or among what they see.
    infinite_queries: Vec<bool>,
    /// Keys that such a query sees.
    infinite_keys: Vec<bool>,
}

impl Expected {
    /// Takes the gradient away from queries whose result rounding decides: of two keys that compete at a large score,
    /// either may win.
    fn new<T: Float>(problem: &Problem, data: &mut Data<T>, h: usize) -> Self {
        let ((n_q, n_k), (d_k, d_v)) = (problem.lengths, problem.widths);
        let allowed = &problem.allowed;
        let seen_by = |i: usize| (0..n_k).filter(move |&j| allowed[(i, j)]);
        let slice = |x: &DMatrix<T>, d: usize| exact(&x.columns(h * d, d).into_owned());
        let (q, k, v) = (slice(&data.q, d_k), slice(&data.k, d_k), slice(&data.v, d_v));
        let of_rows = |x: &DMatrix<f64>, i: usize, test: fn(f64) -> bool| {
            x.row(i).iter().any(|&x| test(x))
        };
        let scores = reference([&q, &k, &v, &DMatrix::zeros(n_q, d_v)], allowed).scores;

        let unit = unit::<T>();
        let root = (d_k as f64).sqrt();
        // A product of two vectors is off by d_k roundings of the sum of its terms' sizes; the factor 1/√d_k, the maximum
        // and the difference to it add a few more. Of exact products, those few are all.
        let roundings = match problem.numbers {
            Numbers::Exact { .. } => 6.0,
            _ => 2.0 * d_k as f64 + 6.0,
        };
        let off_by: Vec<f64> = (0..n_q)
            .map(|i| {
                let sizes = seen_by(i).map(|j| {
                    (0..d_k).map(|c| (q[(i, c)] * k[(j, c)]).abs()).sum::<f64>() / root
                });
                roundings * unit * sizes.fold(0.0, f64::max)
            })
            .collect();
        // Twice: once forward, and once when the backward pass computes the score again.
        let sums = (n_k + 32) as f64 * unit;
        let mut of_weights: Vec<f64> =
            off_by.iter().map(|off| 4.0 * off + sums).collect();
        let mut undecided = vec![false; n_q];
        for i in 0..n_q {
            if !off_by[i].is_finite() || off_by[i] <= 0.02 {
                continue;
            }
            // Scores this large leave a weight of 1 to the largest, or equal ones to equal ones, or it is not decided.
            let best =
                seen_by(i).map(|j| scores[(i, j)]).fold(f64::NEG_INFINITY, f64::max);
            let lost = -smallest_normal::<T>().ln() + 20.0 + 8.0 * off_by[i];
            let decided = seen_by(i).all(|j| {
                let behind = best - scores[(i, j)];
                behind > lost
                    || behind == 0.0
                        && (matches!(problem.numbers, Numbers::Exact { .. })
                            || seen_by(i).filter(|&j| scores[(i, j)] == best).count()
                                == 1)
            });
            of_weights[i] = sums;
            undecided[i] = !decided && best.is_finite();
            if undecided[i] {
                data.grad_output.columns_mut(h * d_v, d_v).row_mut(i).fill(T::zero());
            }
        }

        let grad_output = slice(&data.grad_output, d_v);
        let right = reference([&q, &k, &v, &grad_output], allowed);
        let infinite = |x: f64| x.is_infinite();
        let infinite_queries: Vec<bool> = (0..n_q)
            .map(|i| {
                of_rows(&q, i, infinite)
                    || of_rows(&grad_output, i, infinite)
                    || seen_by(i)
                        .any(|j| of_rows(&k, j, infinite) || of_rows(&v, j, infinite))
            })
            .collect();
        let infinite_keys = (0..n_k)
            .map(|j| (0..n_q).any(|i| infinite_queries[i] && allowed[(i, j)]))
            .collect();

        let tiny = 4.0 * smallest_normal::<T>(); // a weight below it may be 0
        let mut tolerance = [
            DMatrix::repeat(n_q, d_v, tiny),
            DMatrix::repeat(n_q, d_k, tiny),
            DMatrix::repeat(n_k, d_k, tiny),
            DMatrix::repeat(n_k, d_v, tiny),
        ];
        for i in 0..n_q {
            // The sum of sizes that a gradient of a weight is made of, and their mean.
            let size = |j: usize| {
                (0..d_v).map(|c| (grad_output[(i, c)] * v[(j, c)]).abs()).sum::<f64>()
            };
            let mean: f64 = seen_by(i).map(|j| right.weights[(i, j)] * size(j)).sum();
            for j in seen_by(i) {
                let weight = right.weights[(i, j)] + tiny;
                for c in 0..d_v {
                    let largest = if undecided[i] { 2.0 } else { weight * of_weights[i] };
                    tolerance[0][(i, c)] += largest * v[(j, c)].abs();
                    let sums = n_q as f64 * unit;
                    let off = weight * (of_weights[i] + sums) + tiny;
                    tolerance[3][(j, c)] += off * grad_output[(i, c)].abs();
                }
                let sums = (2 * d_v + n_k + n_q + 16) as f64 * unit;
                let off = weight * (2.0 * of_weights[i] + sums) * (size(j) + mean) / root
                    + tiny * (size(j) + mean);
                for c in 0..d_k {
                    tolerance[1][(i, c)] += off * k[(j, c)].abs();
                    tolerance[2][(j, c)] += off * q[(i, c)].abs();
                }
            }
        }
        let tolerance_of_log_sum_exp = (0..n_q)
            .map(|i| off_by[i] + sums + 4.0 * unit * right.log_sum_exp[i].abs())
            .collect();
        Expected {
            right,
            tolerance,
            tolerance_of_log_sum_exp,
            infinite_queries,
            infinite_keys,
        }
    }

    /// Compares what an engine says of head `h`.
    fn compare<T: Float>(&self, h: usize, answer: &Answer<T>) -> Result<(), String> {
        let Answer { output, log_sum_exp, gradients } = answer;
        let (queries, keys) = (&self.infinite_queries, &self.infinite_keys);
        let right = &self.right;
        let mut all =
            vec![("output", output, &right.output, &self.tolerance[0], queries)];
        if let Some(AttentionGradients { q, k, v }) = gradients {
            all.extend([
                ("gradient of q", q, &right.q, &self.tolerance[1], queries),
                ("gradient of k", k, &right.k, &self.tolerance[2], keys),
                ("gradient of v", v, &right.v, &self.tolerance[3], keys),
            ]);
        }
        for (what, given, right, tolerance, reached) in all {
            let d = right.ncols();
            let given = exact(&given.columns(h * d, d).into_owned());
            for (at, (&given, &right)) in given.iter().zip(right).enumerate() {
                let (i, c) = (at % right_rows(tolerance), at / right_rows(tolerance));
                let place =
                    format!("{what} of head {h} at ({i}, {c}): {given:e}, not {right:e}");
                same(given, right, tolerance[(i, c)], reached[i])
                    .map_err(|how| format!("{place} ± {:e}: {how}", tolerance[(i, c)]))?;
            }
        }
        for (i, &right) in self.right.log_sum_exp.iter().enumerate() {
            let given: f64 = try_convert(log_sum_exp[(i, h)]).unwrap();
            same(
                given,
                right,
                self.tolerance_of_log_sum_exp[i],
                self.infinite_queries[i],
            )
            .map_err(|how| {
                format!(
                    "log-sum-exp of head {h}, row {i}: {given:e}, not {right:e}: {how}"
                )
            })?;
        }
        Ok(())
    }
}

fn right_rows(matrix: &DMatrix<f64>) -> usize {
    matrix.nrows()
}

/// NaN for NaN, the same infinity for an infinity, else no further than the tolerance. Where an infinity reaches, engines
/// may differ in whether `∞ − ∞` or `0 · ∞` is met on the way: any number that is not finite stands for any other there,
/// and a row of nothing but infinite scores may be taken for one that sees nothing.
fn same(
    given: f64,
    right: f64,
    tolerance: f64,
    reached: bool,
) -> Result<(), &'static str> {
    match (right.is_finite(), given.is_finite()) {
        (_, _) if reached => Ok(()),
        (true, true) if (given - right).abs() <= tolerance => Ok(()),
        (true, true) => Err("too far"),
        (true, false) => Err("not finite, where it should be"),
        (false, true) => Err("finite, where it should not be"),
        _ if given.is_nan() == right.is_nan() => Ok(()),
        _ => Err("another kind of not finite"),
    }
}

// ---------------------------------------------------------------------------------------------------- engines

/// What an engine says: of all heads, side by side.
struct Answer<T: Float> {
    output: DMatrix<T>,
    log_sum_exp: DMatrix<T>,
    /// `None` of an engine that has no backward pass.
    gradients: Option<AttentionGradients<T>>,
}

impl<T: Float> Answer<T> {
    fn new(forward: FlashOutput<T>, gradients: Option<AttentionGradients<T>>) -> Self {
        Answer { output: forward.output, log_sum_exp: forward.log_sum_exp, gradients }
    }

    /// The gradients, of an engine that has them.
    fn backward(self) -> AttentionGradients<T> {
        self.gradients.expect("a backward pass")
    }
}

fn naive<T: Float>(problem: &Problem, data: &Data<T>) -> Answer<T> {
    let ((n_q, n_k), (d_k, d_v), heads) =
        (problem.lengths, problem.widths, problem.n_heads);
    let mut output = DMatrix::zeros(n_q, heads * d_v);
    let mut log_sum_exp = DMatrix::zeros(n_q, heads);
    let mut all = AttentionGradients {
        q: DMatrix::zeros(n_q, heads * d_k),
        k: DMatrix::zeros(n_k, heads * d_k),
        v: DMatrix::zeros(n_k, heads * d_v),
    };
    for h in 0..heads {
        let slice = |x: &DMatrix<T>, d| x.columns(h * d, d).into_owned();
        let (q, k, v) = (slice(&data.q, d_k), slice(&data.k, d_k), slice(&data.v, d_v));
        let (of_head, cache) = attention(&q, &k, &v, &problem.mask).unwrap();
        let gradients =
            attention_backward(&cache, &slice(&data.grad_output, d_v)).unwrap();
        output.columns_mut(h * d_v, d_v).copy_from(&of_head);
        log_sum_exp.set_column(h, &cache.log_sum_exp);
        all.q.columns_mut(h * d_k, d_k).copy_from(&gradients.q);
        all.k.columns_mut(h * d_k, d_k).copy_from(&gradients.k);
        all.v.columns_mut(h * d_v, d_v).copy_from(&gradients.v);
    }
    Answer { output, log_sum_exp, gradients: Some(all) }
}

fn tiled<T: Float>(
    inputs: &Inputs<T>,
    grad_output: &DMatrix<T>,
    tiles: Tiles,
) -> Answer<T> {
    let forward = tiled_attention(inputs, tiles).unwrap();
    let gradients =
        tiled_attention_backward(inputs, &forward, grad_output, tiles).unwrap();
    Answer::new(forward, Some(gradients))
}

fn fast<T: Float>(
    inputs: &Inputs<T>,
    grad_output: &DMatrix<T>,
    flash: &Flash,
) -> Answer<T> {
    let forward = flash.forward(inputs);
    let gradients = flash.backward(inputs, &forward, grad_output).unwrap();
    Answer::new(forward, Some(gradients))
}

const EXPONENTIALS: [Exponentials; 3] =
    [Exponentials::OneByOne, Exponentials::Portable, Exponentials::Vector];

/// Pools of 1, 2 and 3 threads, which all cases share.
fn pools() -> Vec<Flash> {
    let threads = if cfg!(feature = "rayon") { vec![1, 2, 3] } else { vec![1] };
    threads.into_iter().map(|n| Flash::new().with_threads(n).unwrap()).collect()
}

/// Every engine on one problem: the names of those that passed.
fn every_engine<T: Float>(
    problem: &Problem,
    pools: &[Flash],
    data: &mut Data<T>,
) -> Result<Vec<String>, String> {
    let expected: Vec<_> =
        (0..problem.n_heads).map(|h| Expected::new(problem, data, h)).collect();
    let inputs = Inputs::new(&data.q, &data.k, &data.v, &problem.mask).unwrap();
    let inputs = inputs.with_heads(problem.n_heads).unwrap();
    let mut answers = vec![
        ("naive".to_owned(), naive(problem, data)),
        ("tiled".to_owned(), tiled(&inputs, &data.grad_output, problem.tiles)),
    ];
    let flash = &pools[(problem.threads - 1) % pools.len()];
    for exponentials in EXPONENTIALS {
        let library = LibraryFlash::new().with_exponentials(exponentials);
        let library = library.with_tiles(problem.tiles).unwrap();
        let answer = Answer::new(library.forward(&inputs), None);
        answers.push((format!("library, {exponentials:?}"), answer));
    }
    for instructions in Instructions::available() {
        let flash = flash.clone().with_instructions(instructions).unwrap();
        let flash = flash.with_tiles(problem.tiles).unwrap();
        let answer = fast(&inputs, &data.grad_output, &flash);
        answers.push((format!("flash, {instructions:?}"), answer));
    }
    answers.push((
        "flash, its own tiles".to_owned(),
        fast(&inputs, &data.grad_output, flash),
    ));
    for (engine, answer) in &answers {
        for (h, expected) in expected.iter().enumerate() {
            expected.compare(h, answer).map_err(|how| format!("{engine}: {how}"))?;
        }
    }
    Ok(answers.into_iter().map(|(engine, _)| engine).collect())
}

// ---------------------------------------------------------------------------------------------------- tests

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a whole number"))
}

fn run<T: Float>(name: &str, largest_exponent: i32) {
    let (cases, first) = (setting("RANDOM_CASES", 400), setting("RANDOM_SEED", 0));
    let pools = pools();
    let mut passed = BTreeMap::new();
    let mut failures = vec![];
    for seed in first..first + cases {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let problem = Problem::random(rng, largest_exponent);
        let mut data = problem.data::<T>(rng);
        match every_engine(&problem, &pools, &mut data) {
            Ok(engines) => {
                for engine in engines {
                    *passed.entry(engine).or_insert(0_u64) += 1;
                }
            }
            Err(how) => failures.push((seed, how, problem)),
        }
    }
    for (engine, count) in &passed {
        println!("{name}, {engine}: {count} cases");
    }
    let report: Vec<_> = failures
        .iter()
        .take(8)
        .map(|(seed, how, problem)| {
            let Problem { lengths, widths, n_heads, numbers, poison, tiles, .. } = problem;
            format!(
                "RANDOM_SEED={seed}: {how}\n  lengths {lengths:?}, widths {widths:?}, {n_heads} heads, {numbers:?}, \
                 {poison:?}, {tiles:?}, {:.60}",
                format!("{:?}", problem.mask)
            )
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {cases} failed\n{}",
        failures.len(),
        report.join("\n")
    );
}

#[test]
fn every_engine_in_f32() {
    run::<f32>("f32", 100); // scores up to 2^100, about 1e30
}

#[test]
fn every_engine_in_f64() {
    run::<f64>("f64", 664); // scores up to 2^664, about 1e200
}

/// A query that sees a NaN, beside keys that it does not see: those keep their gradients, whatever the tiles.
#[test]
fn a_visible_nan_does_not_reach_hidden_keys() {
    let (q, v) = (dmatrix![1.0; 1.0], dmatrix![1.0; 2.0; 3.0]);
    let allowed = dmatrix![true, false, false; false, true, true];
    let mask = Mask::dense(allowed).unwrap();
    let k = dmatrix![f64::NAN; 1.0; 0.5];
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    let ones = dmatrix![1.0; 1.0];
    let (_, cache) = attention(&q, &k, &v, &mask).unwrap();
    let right = attention_backward(&cache, &ones).unwrap();
    assert!(right.v[0].is_nan() && right.v[1].is_finite());
    for keys in 1..4 {
        let flash = Flash::new().with_tiles(Tiles { queries: 2, keys }).unwrap();
        let given = fast(&inputs, &ones, &flash).backward();
        for j in 0..3 {
            let same = given.v[j].is_nan() && right.v[j].is_nan()
                || (given.v[j] - right.v[j]).abs() < 1e-15;
            assert!(same, "tiles of {keys} keys: {} and not {}", given.v, right.v);
        }
    }
}

/// A score that overflows is infinite; the keys that its query does not see keep their gradients.
#[test]
fn a_score_that_overflows_does_not_reach_hidden_keys() {
    let (q, v) = (dmatrix![1e20_f32; 1.0], dmatrix![1.0; 2.0; 3.0]);
    let k = dmatrix![1e20_f32; 1.0; 0.5];
    let allowed = dmatrix![true, false, false; false, true, true];
    let mask = Mask::dense(allowed).unwrap();
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    for keys in 1..4 {
        let tiles = Tiles { queries: 2, keys };
        let flash = Flash::new().with_tiles(tiles).unwrap();
        let ones = dmatrix![1.0; 1.0];
        for answer in [fast(&inputs, &ones, &flash), tiled(&inputs, &ones, tiles)] {
            let grad_v = answer.backward().v;
            assert!(grad_v[1].is_finite() && grad_v[2].is_finite(), "{keys}: {grad_v}");
        }
    }
}

/// NaN stays NaN in the backward pass.
#[test]
fn a_nan_among_visible_scores_is_nan_in_every_gradient_of_its_row() {
    let (q, k, v) = (dmatrix![1.0], dmatrix![f64::NAN; 1.0], dmatrix![1.0; 2.0]);
    let mask = Mask::none();
    let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
    let tiles = Tiles { queries: 1, keys: 1 };
    for answer in [
        tiled(&inputs, &dmatrix![1.0], tiles),
        fast(&inputs, &dmatrix![1.0], &Flash::new().with_tiles(tiles).unwrap()),
    ] {
        let AttentionGradients { q, k, v } = answer.backward();
        assert!(q.iter().chain(&k).chain(&v).all(|x| x.is_nan()), "{q}{k}{v}");
    }
}

/// Two equal keys get half of the weight each, however large their scores: forward, and when the backward pass computes
/// the weights again.
#[test]
fn ties_are_ties_at_any_score() {
    fn check<T: Float>(scores: &[f64], tolerance: f64) {
        for d_k in [1, 2, 3, 5] {
            for &score in scores {
                let size: T = convert(score.sqrt());
                let (q, k) =
                    (DMatrix::repeat(1, d_k, size), DMatrix::repeat(2, d_k, size));
                let v: DMatrix<T> = dmatrix![T::zero(); T::one()];
                let mask = Mask::none();
                let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
                let grad = dmatrix![T::one()];
                for keys in [1, 2] {
                    let tiles = Tiles { queries: 1, keys };
                    let mut answers = vec![tiled(&inputs, &grad, tiles)];
                    for instructions in Instructions::available() {
                        let flash = Flash::new().with_tiles(tiles).unwrap();
                        let flash = flash.with_instructions(instructions).unwrap();
                        answers.push(fast(&inputs, &grad, &flash));
                    }
                    for answer in answers {
                        for &weight in answer.backward().v.iter() {
                            let weight: f64 = try_convert(weight).unwrap();
                            assert!(
                                (weight - 0.5).abs() <= tolerance,
                                "a score of {score:e} · √{d_k}, tiles of {keys}: {weight}"
                            );
                        }
                    }
                }
            }
        }
    }
    let scores = [1.0, 9e2, 9e4, 4e8, 1e20, 1e30];
    check::<f32>(&scores, 4.0 * f64::from(f32::EPSILON));
    check::<f64>(&scores, 4.0 * f64::EPSILON);
    check::<f64>(&[1e100, 1e200], 4.0 * f64::EPSILON);
}

// ---------------------------------------------------------------------------------------------------- layers

/// `x W + b`, in plain loops.
fn project(x: &DMatrix<f64>, w: &DMatrix<f64>, b: &RowDVector<f64>) -> DMatrix<f64> {
    DMatrix::from_fn(x.nrows(), w.ncols(), |i, c| {
        b[c] + (0..x.ncols()).map(|l| x[(i, l)] * w[(l, c)]).sum::<f64>()
    })
}

/// The gradients by `x`, `w` and `b` of [`project`].
fn project_back(
    x: &DMatrix<f64>,
    w: &DMatrix<f64>,
    grad: &DMatrix<f64>,
) -> (DMatrix<f64>, DMatrix<f64>, DMatrix<f64>) {
    let by_x = DMatrix::from_fn(x.nrows(), x.ncols(), |i, l| {
        (0..w.ncols()).map(|c| grad[(i, c)] * w[(l, c)]).sum()
    });
    let by_w = DMatrix::from_fn(w.nrows(), w.ncols(), |l, c| {
        (0..x.nrows()).map(|i| x[(i, l)] * grad[(i, c)]).sum()
    });
    let by_b =
        DMatrix::from_fn(1, w.ncols(), |_, c| (0..x.nrows()).map(|i| grad[(i, c)]).sum());
    (by_x, by_w, by_b)
}

/// What a layer gives, by names: the output, the gradients by its input, by the context, and by every parameter.
type Named = Vec<(&'static str, Vec<f64>)>;

/// A layer from the definition: projections, heads side by side, projection.
fn layer_by_definition(
    p: &Parameters<f64>,
    n_heads: usize,
    (x, context): (&DMatrix<f64>, Option<&DMatrix<f64>>),
    allowed: &DMatrix<bool>,
    grad_output: &DMatrix<f64>,
) -> Named {
    let source = context.unwrap_or(x);
    let (q, k) = (project(x, &p.w_q, &p.b_q), project(source, &p.w_k, &p.b_k));
    let v = project(source, &p.w_v, &p.b_v);
    let (d_k, d_v) = (q.ncols() / n_heads, v.ncols() / n_heads);
    let heads = |grad_attended: &DMatrix<f64>| -> Vec<Reference> {
        (0..n_heads)
            .map(|h| {
                let slice = |m: &DMatrix<f64>, d: usize| m.columns(h * d, d).into_owned();
                let grad = slice(grad_attended, d_v);
                reference(
                    [&slice(&q, d_k), &slice(&k, d_k), &slice(&v, d_v), &grad],
                    allowed,
                )
            })
            .collect()
    };
    let join = |parts: Vec<DMatrix<f64>>| {
        let d = parts[0].ncols();
        DMatrix::from_fn(parts[0].nrows(), d * n_heads, |i, c| parts[c / d][(i, c % d)])
    };
    let forward = heads(&DMatrix::zeros(x.nrows(), v.ncols()));
    let attended = join(forward.into_iter().map(|head| head.output).collect());
    let output = project(&attended, &p.w_o, &p.b_o);
    let (grad_attended, w_o, b_o) = project_back(&attended, &p.w_o, grad_output);
    let (mut grad_q, mut grad_k, mut grad_v) = (vec![], vec![], vec![]);
    for head in heads(&grad_attended) {
        grad_q.push(head.q);
        grad_k.push(head.k);
        grad_v.push(head.v);
    }
    let (x_q, w_q, b_q) = project_back(x, &p.w_q, &join(grad_q));
    let (x_k, w_k, b_k) = project_back(source, &p.w_k, &join(grad_k));
    let (x_v, w_v, b_v) = project_back(source, &p.w_v, &join(grad_v));
    let (by_x, by_context) = match context {
        Some(_) => (x_q, x_k + x_v),
        None => (x_q + x_k + x_v, DMatrix::zeros(0, 0)),
    };
    [
        ("output", output),
        ("x", by_x),
        ("context", by_context),
        ("w_q", w_q),
        ("w_k", w_k),
        ("w_v", w_v),
        ("w_o", w_o),
        ("b_q", b_q),
        ("b_k", b_k),
        ("b_v", b_v),
        ("b_o", b_o),
    ]
    .map(|(name, matrix)| (name, matrix.as_slice().to_vec()))
    .to_vec()
}

fn layer_answer<T: Float>(output: &DMatrix<T>, gradients: &LayerGradients<T>) -> Named {
    let list = |numbers: &[T]| numbers.iter().map(|&x| try_convert(x).unwrap()).collect();
    let context = gradients.context.as_ref().map_or(&[][..], |matrix| matrix.as_slice());
    let mut named = vec![
        ("output", list(output.as_slice())),
        ("x", list(gradients.x.as_slice())),
        ("context", list(context)),
    ];
    for (name, matrix) in gradients.parameters.named() {
        named.push((name, list(matrix.into_owned().as_slice())));
    }
    named
}

/// Entries of ordinary size: relative to the largest, a layer is off by a few roundings of each of the sums it is made of.
fn compare_layers(given: &Named, right: &Named, tolerance: f64) -> Result<(), String> {
    for ((name, given), (expected, right)) in given.iter().zip(right) {
        assert_eq!((name, given.len()), (expected, right.len()));
        let largest =
            right.iter().filter(|x| x.is_finite()).fold(1.0_f64, |a, b| a.max(b.abs()));
        for (at, (&given, &right)) in given.iter().zip(right).enumerate() {
            same(given, right, tolerance * largest, false).map_err(|how| {
                format!("{name}, entry {at}: {given:e}, not {right:e}: {how}")
            })?;
        }
    }
    Ok(())
}

/// One random layer of each kind, in every way that it can be run: alone, across two sequences, in a batch, by `Flash`.
fn every_layer<T: Float>(
    rng: &mut ChaCha8Rng,
    pools: &[Flash],
) -> Result<Vec<&'static str>, String> {
    let (n_q, n_k) = (length(rng), length(rng));
    let cross = rng.random_bool(0.5);
    let n_k = if cross { n_k } else { n_q };
    let (mask, allowed) = mask(rng, (n_q, n_k));
    let n_heads = rng.random_range(1..4);
    let d_model = n_heads * rng.random_range(1..7);
    let mut matrix = |rows, columns| {
        DMatrix::from_fn(rows, columns, |_, _| {
            convert::<f64, T>(rng.random_range(-1.0..1.0))
        })
    };
    let (mut x, context) = (matrix(n_q, d_model), matrix(n_k, d_model));
    let grad_output = matrix(n_q, d_model);
    // A NaN in a token that no other sees, as in padding: its own row is NaN, and the gradients of parameters are.
    let poisoned = (rng.random_bool(0.3)).then(|| rng.random_range(0..n_q));
    if let Some(token) = poisoned {
        x[(token, 0)] = convert(f64::NAN);
    }
    let context = cross.then_some(&context);
    let (exact_x, exact_context) = (exact(&x), context.map(exact));
    let inputs = (&exact_x, exact_context.as_ref());
    let flash = &pools[rng.random_range(0..pools.len())];
    let tiles = Tiles { queries: length(rng), keys: length(rng) };
    let flash = flash.clone().with_tiles(tiles).unwrap();
    let available = Instructions::available();
    let instructions = available[rng.random_range(0..available.len())];
    let flash = flash.with_instructions(instructions).unwrap();
    let tolerance = (n_q + n_k + 8 * d_model + 64) as f64 * 4.0 * unit::<T>();
    let with_biases = |mut p: Parameters<T>, rng: &mut ChaCha8Rng| {
        for (name, mut matrix) in p.named_mut() {
            if name.starts_with('b') {
                matrix.apply(|b| *b = convert(rng.random_range(-0.5..0.5)));
            }
        }
        p
    };
    let exact_parameters = |p: &Parameters<T>| {
        let row = |b: &RowDVector<T>| b.map(|x| try_convert::<T, f64>(x).unwrap());
        Parameters {
            w_q: exact(&p.w_q),
            w_k: exact(&p.w_k),
            w_v: exact(&p.w_v),
            w_o: exact(&p.w_o),
            b_q: row(&p.b_q),
            b_k: row(&p.b_k),
            b_v: row(&p.b_v),
            b_o: row(&p.b_o),
        }
    };
    let grad = exact(&grad_output);

    let (d_k, d_v) = (rng.random_range(1..8), rng.random_range(1..8));
    let parameters =
        with_biases(Parameters::xavier(d_model, d_k, d_v, rng).unwrap(), rng);
    let right =
        layer_by_definition(&exact_parameters(&parameters), 1, inputs, &allowed, &grad);
    let single = SingleHeadAttention::from(parameters);
    let options = ForwardOptions { context, ..(&mask).into() };
    let (output, cache) = single.forward(&x, options).unwrap();
    let gradients = single.backward(&cache, &grad_output).unwrap();
    compare_layers(&layer_answer(&output, &gradients), &right, tolerance)
        .map_err(|how| format!("one head: {how}"))?;

    let parameters =
        with_biases(Parameters::xavier(d_model, d_model, d_model, rng).unwrap(), rng);
    let right = layer_by_definition(
        &exact_parameters(&parameters),
        n_heads,
        inputs,
        &allowed,
        &grad,
    );
    let multi = MultiHeadAttention::from_parameters(parameters, n_heads).unwrap();
    let (output, cache) = multi.forward(&x, options).unwrap();
    let gradients = multi.backward(&cache, &grad_output).unwrap();
    compare_layers(&layer_answer(&output, &gradients), &right, tolerance)
        .map_err(|how| format!("{n_heads} heads: {how}"))?;
    let (output, cache) = multi.forward(&x, options.with_flash(&flash)).unwrap();
    let gradients = multi.backward(&cache, &grad_output).unwrap();
    compare_layers(&layer_answer(&output, &gradients), &right, tolerance)
        .map_err(|how| format!("{n_heads} heads, flash: {how}"))?;
    let mut passed = vec!["one head", "several heads", "several heads, flash"];

    if !cross {
        let xs = [x.clone(), x.clone()];
        let (outputs, caches) = multi.forward_batch(&xs, |_| options).unwrap();
        let BatchGradients { mut parameters, xs: grad_xs, .. } =
            multi.backward_batch(&caches, &[grad_output.clone(), grad_output]).unwrap();
        let half: T = convert(0.5);
        for (_, mut matrix) in parameters.named_mut() {
            matrix *= half;
        }
        let gradients =
            LayerGradients { parameters, x: grad_xs[1].clone(), context: None };
        compare_layers(&layer_answer(&outputs[0], &gradients), &right, tolerance)
            .map_err(|how| format!("{n_heads} heads, a batch of two: {how}"))?;
        passed.push("several heads, a batch");
    }
    Ok(passed)
}

fn run_layers<T: Float>(name: &str) {
    let (cases, first) = (setting("RANDOM_CASES", 400) / 2, setting("RANDOM_SEED", 0));
    let pools = pools();
    let mut passed = BTreeMap::new();
    for seed in first..first + cases {
        match every_layer::<T>(&mut ChaCha8Rng::seed_from_u64(seed), &pools) {
            Ok(layers) => {
                for layer in layers {
                    *passed.entry(layer).or_insert(0_u64) += 1;
                }
            }
            Err(how) => panic!("RANDOM_SEED={seed}, {name}: {how}"),
        }
    }
    for (layer, count) in &passed {
        println!("{name}, {layer}: {count} cases");
    }
}

#[test]
fn every_layer_in_f32() {
    run_layers::<f32>("f32");
}

#[test]
fn every_layer_in_f64() {
    run_layers::<f64>("f64");
}

/// A length of 0 is an error wherever one can be given, and never a panic.
#[test]
fn nothing_is_an_error() {
    for (n_q, n_k, d_k, d_v) in [(0, 3, 2, 2), (3, 0, 2, 2), (3, 3, 0, 2), (3, 3, 2, 0)] {
        let q = DMatrix::<f32>::zeros(n_q, d_k);
        let (k, v) = (DMatrix::zeros(n_k, d_k), DMatrix::zeros(n_k, d_v));
        for mask in [Mask::none(), Mask::causal(), Mask::window(2).unwrap()] {
            assert!(attention(&q, &k, &v, &mask).is_err());
            assert!(Inputs::new(&q, &k, &v, &mask).is_err());
        }
    }
}
