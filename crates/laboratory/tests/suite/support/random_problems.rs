//! Random problems that break programs, and the definition of attention, with which programs are compared.

use super::one_problem::Data;
use super::samples::{length, of_every_kind, sees, to_f64};
use attention::flash::{FlashOutput, Inputs, Tiles};
use attention::{AttentionGradients, Float, Mask, plain};
use nalgebra::{DMatrix, convert, try_convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

// ---------------------------------------------------------------------------------------------------- the definition

/// One head, forward and backward, from the definition.
pub struct Reference {
    pub output: DMatrix<f64>,
    pub log_sum_exp: Vec<f64>,
    pub q: DMatrix<f64>,
    pub k: DMatrix<f64>,
    pub v: DMatrix<f64>,
    pub weights: DMatrix<f64>,
}

/// Attention of one head by the program that the book builds: each query by itself, with the keys that it sees, so that a hidden pair
/// occurs nowhere. A query that sees nothing, or nothing but scores of −∞, has zeros.
pub fn reference(
    [q, k, v, grad_output]: [&DMatrix<f64>; 4],
    allowed: &DMatrix<bool>,
) -> Reference {
    let (n_q, n_k) = allowed.shape();
    let zeros = |x: &DMatrix<f64>| DMatrix::zeros(x.nrows(), x.ncols());
    let mut of = Reference {
        output: DMatrix::zeros(n_q, v.ncols()),
        log_sum_exp: vec![f64::NEG_INFINITY; n_q],
        q: zeros(q),
        k: zeros(k),
        v: zeros(v),
        weights: DMatrix::zeros(n_q, n_k),
    };
    for i in 0..n_q {
        let seen: Vec<usize> = (0..n_k).filter(|&j| allowed[(i, j)]).collect();
        let [query, grad] = [q, grad_output].map(|x| x.rows(i, 1).into_owned());
        let [keys, values] = [k, v].map(|x| x.select_rows(&seen));
        let scores = plain::scores(&query, &keys);
        if seen.is_empty() || scores.max() == f64::NEG_INFINITY {
            continue;
        }
        let (output, weights) = plain::attention(&query, &keys, &values, |_, _| true);
        let [grad_q, grad_k, grad_v] =
            plain::attention_backward(&query, &keys, &values, &weights, &grad);
        of.output.set_row(i, &output.row(0));
        of.log_sum_exp[i] = plain::log_sum_exp_rows(&scores)[0];
        of.q.set_row(i, &grad_q.row(0));
        for (row, &j) in seen.iter().enumerate() {
            of.weights[(i, j)] = weights[row];
            let mut sum = of.k.row_mut(j);
            sum += grad_k.row(row);
            let mut sum = of.v.row_mut(j);
            sum += grad_v.row(row);
        }
    }
    of
}

// ---------------------------------------------------------------------------------------------------- problems

/// The kind of the numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Numbers {
    /// Between −1 and 1.
    Ordinary,
    /// Whole numbers times powers of two: every product of queries and keys is exact, and many are equal, if the factor 1/√d_k is
    /// a power of two. The exponent is that of the largest scores.
    Exact { exponent: i32 },
    /// Queries up to this size.
    Large { size: f64 },
    /// Some of them subnormal, some zero.
    Subnormal,
}

/// The kind of numbers that stand among them in some places.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Poison {
    None,
    Nan,
    Infinity,
}

#[derive(Debug, Clone)]
pub struct Problem {
    pub lengths: (usize, usize),
    pub widths: (usize, usize),
    pub n_heads: usize,
    pub numbers: Numbers,
    pub poison: Poison,
    pub mask: Mask,
    pub allowed: DMatrix<bool>,
    pub tiles: Tiles,
}

pub fn width(rng: &mut ChaCha8Rng) -> usize {
    const EDGES: [usize; 6] = [15, 16, 17, 31, 32, 33];
    match rng.random_range(0..8) {
        0..7 => rng.random_range(1..10),
        _ => EDGES[rng.random_range(0..EDGES.len())],
    }
}

/// Widths whose factor 1/√d_k is a power of two.
const EXACT_WIDTHS: [usize; 3] = [1, 4, 16];

/// A mask of any kind, or of several, and the same by its definition.
pub fn mask(rng: &mut ChaCha8Rng, lengths: (usize, usize)) -> (Mask, DMatrix<bool>) {
    let (n_q, n_k) = lengths;
    match rng.random_range(0..10) {
        0 => (Mask::none(), DMatrix::repeat(n_q, n_k, true)),
        1..7 => {
            let mut all = of_every_kind(lengths, rng);
            let (_, mask) = all.swap_remove(rng.random_range(0..all.len()));
            let allowed = DMatrix::from_fn(n_q, n_k, |i, j| sees(&mask, lengths, (i, j)));
            (mask, allowed)
        }
        _ => {
            let (a, allowed_a) = mask(rng, lengths);
            let (b, allowed_b) = mask(rng, lengths);
            (a.and(b), allowed_a.zip_map(&allowed_b, |a, b| a && b))
        }
    }
}

impl Problem {
    pub fn random(rng: &mut ChaCha8Rng, largest_exponent: i32) -> Self {
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
        let d_k = match numbers {
            Numbers::Exact { .. } if rng.random_bool(0.5) => {
                EXACT_WIDTHS[rng.random_range(0..EXACT_WIDTHS.len())]
            }
            _ => width(rng),
        };
        Problem {
            lengths,
            widths: (d_k, width(rng)),
            n_heads: [1, 1, 2, 3][rng.random_range(0..4)],
            numbers,
            poison,
            mask,
            allowed,
            tiles: Tiles { queries: length(rng), keys: length(rng) },
        }
    }

    pub fn data<T: Float>(&self, rng: &mut ChaCha8Rng) -> Data<T> {
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
pub fn unit<T: Float>() -> f64 {
    let epsilon: f64 = try_convert(T::default_epsilon()).unwrap();
    epsilon / 2.0
}

pub fn smallest_normal<T: Float>() -> f64 {
    if size_of::<T>() == 4 { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE }
}

// ---------------------------------------------------------------------------------------------------- the right results

/// The right results of one head, how far each entry may be off, and what an infinity reaches.
pub struct Expected {
    pub right: Reference,
    /// The tolerances of outputs and of gradients of queries, keys and values.
    pub tolerance: [DMatrix<f64>; 4],
    pub tolerance_of_log_sum_exp: Vec<f64>,
    /// Queries with an infinity of their own, or among what they see.
    pub infinite_queries: Vec<bool>,
    /// Keys that such a query sees.
    pub infinite_keys: Vec<bool>,
}

impl Expected {
    /// Takes the gradient away from queries whose result rounding decides: of two keys that compete at a large score,
    /// either may win.
    pub fn new<T: Float>(problem: &Problem, data: &mut Data<T>, h: usize) -> Self {
        let ((n_q, n_k), (d_k, d_v)) = (problem.lengths, problem.widths);
        let allowed = &problem.allowed;
        let seen_by = |i: usize| (0..n_k).filter(move |&j| allowed[(i, j)]);
        let slice = |x: &DMatrix<T>, d: usize| to_f64(&x.columns(h * d, d).into_owned());
        let (q, k, v) = (slice(&data.q, d_k), slice(&data.k, d_k), slice(&data.v, d_v));
        let of_rows = |x: &DMatrix<f64>, i: usize, test: fn(f64) -> bool| {
            x.row(i).iter().any(|&x| test(x))
        };
        let scores = plain::scores(&q, &k);

        let unit = unit::<T>();
        let root = (d_k as f64).sqrt();
        // A product of two vectors is off by d_k roundings of the sum of its terms' sizes; the factor 1/√d_k, the maximum
        // and the difference to it add a few more. Of exact products, those few are all, if queries that are scaled before
        // they are multiplied stay exact.
        let is_exact = matches!(problem.numbers, Numbers::Exact { .. })
            && EXACT_WIDTHS.contains(&d_k);
        let roundings = if is_exact { 6.0 } else { 2.0 * d_k as f64 + 6.0 };
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
                        && (is_exact
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
    pub fn compare<T: Float>(
        &self,
        h: usize,
        FlashOutput { output, log_sum_exp, .. }: &FlashOutput<T>,
        gradients: Option<&AttentionGradients<T>>,
    ) -> Result<(), String> {
        let (queries, keys) = (&self.infinite_queries, &self.infinite_keys);
        let right = &self.right;
        let mut all =
            vec![("output", output, &right.output, &self.tolerance[0], queries)];
        if let Some(AttentionGradients { q, k, v, .. }) = gradients {
            all.extend([
                ("gradient of q", q, &right.q, &self.tolerance[1], queries),
                ("gradient of k", k, &right.k, &self.tolerance[2], keys),
                ("gradient of v", v, &right.v, &self.tolerance[3], keys),
            ]);
        }
        for (what, given, right, tolerance, reached) in all {
            let d = right.ncols();
            let given = to_f64(&given.columns(h * d, d).into_owned());
            for (at, (&given, &right)) in given.iter().zip(right).enumerate() {
                let (i, c) = (at % tolerance.nrows(), at / tolerance.nrows());
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

/// NaN for NaN, the same infinity for an infinity, else no further than the tolerance. Where an infinity reaches, engines
/// may differ in whether `∞ − ∞` or `0 · ∞` is met on the way: any number that is not finite stands for any other there,
/// and a row of nothing but infinite scores may be taken for one that sees nothing.
pub fn same(
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

// ---------------------------------------------------------------------------------------------------- all problems

/// The names of engines and what they say: of all heads, side by side; no gradients of an engine without a backward pass.
pub type Answers<T> = Vec<(String, FlashOutput<T>, Option<AttentionGradients<T>>)>;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a whole number"))
}

/// Makes a check with random numbers as often as `RANDOM_CASES` asks for (400, if it does not), divided by `share`. Its seeds begin at
/// `RANDOM_SEED`, and a failure names its own.
pub fn each_seed(share: u64, check: impl Fn(&mut ChaCha8Rng) -> Result<(), String>) {
    let (cases, first) =
        (setting("RANDOM_CASES", 400) / share, setting("RANDOM_SEED", 0));
    let fails = |seed| {
        let how = check(&mut ChaCha8Rng::seed_from_u64(seed)).err()?;
        Some(format!("RANDOM_SEED={seed}: {how}"))
    };
    let failures: Vec<_> = (first..first + cases).filter_map(fails).collect();
    let some = failures.iter().take(8).cloned().collect::<Vec<_>>().join("\n");
    assert!(failures.is_empty(), "{} of {cases} failed\n{some}", failures.len());
}

/// Compares the engines that `engines` runs with the definition, on random problems.
pub fn run<T: Float>(engines: impl Fn(&Problem, &Data<T>, &Inputs<T>) -> Answers<T>) {
    // Scores up to about 1e30 or 1e200.
    let largest_exponent = if size_of::<T>() == 4 { 100 } else { 664 };
    each_seed(1, |rng| {
        let problem = Problem::random(rng, largest_exponent);
        let mut data = problem.data::<T>(rng);
        check(&problem, &mut data, &engines).map_err(|how| {
            let Problem { lengths, widths, n_heads, numbers, poison, tiles, mask, .. } =
                &problem;
            format!(
                "{how}\n  lengths {lengths:?}, widths {widths:?}, {n_heads} heads, {numbers:?}, {poison:?}, {tiles:?}, \
                 {:.60}",
                format!("{mask:?}")
            )
        })
    });
}

fn check<T: Float>(
    problem: &Problem,
    data: &mut Data<T>,
    engines: impl Fn(&Problem, &Data<T>, &Inputs<T>) -> Answers<T>,
) -> Result<(), String> {
    let expected: Vec<_> =
        (0..problem.n_heads).map(|h| Expected::new(problem, data, h)).collect();
    let inputs = Inputs::new(&data.q, &data.k, &data.v, &problem.mask).unwrap();
    let inputs = inputs.with_heads(problem.n_heads).unwrap();
    for (engine, forward, gradients) in &engines(problem, data, &inputs) {
        for (h, expected) in expected.iter().enumerate() {
            let is_right = expected.compare(h, forward, gradients.as_ref());
            is_right.map_err(|how| format!("{engine}: {how}"))?;
        }
    }
    Ok(())
}
