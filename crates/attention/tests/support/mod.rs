//! What tests share: numbers, samples of parameters, masks and rules for scores, which are exhaustive by construction, and
//! what an error blames. The tests of the crate `laboratory` include this file by its path.

use attention::engine::{Rule, Step};
use attention::{
    BatchGradients, BatchOptions, Error, Float, ForwardOptions, LayerGradients, Mask,
    MultiHeadAttention, MultiHeadCache, NamedParameters, Parameters, Result, ScoreRule,
    SingleHeadAttention, SingleHeadCache,
    score_rule::{DistanceBuckets, ScoreFunction, ScorePlace},
};
use nalgebra::{DMatrix, convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// Numbers between −1 and 1, the same for the same seed.
pub fn numbers<T: Float>(rows: usize, columns: usize, seed: u64) -> DMatrix<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| convert(rng.random_range(-1.0..1.0)))
}

/// The same in `f64`.
pub fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
    numbers(rows, columns, seed)
}

/// The largest difference, relative to the largest entry of what is right (or to 1, if that is smaller). An infinity must
/// be met by the same one.
pub fn off<T: Float, R: Float>(given: &DMatrix<T>, right: &DMatrix<R>) -> f64 {
    assert_eq!(given.shape(), right.shape());
    let [given, right] = [to_f64(given), to_f64(right)];
    let finite = right.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let largest = finite.fold(1.0, f64::max);
    let pairs = given.iter().zip(&right);
    let offs = pairs.map(|(&a, &b)| if a == b { 0.0 } else { (a - b).abs() / largest });
    offs.fold(0.0, |worst, off| {
        assert!(!off.is_nan(), "a NaN");
        worst.max(off)
    })
}

pub fn to_f64<T: Float>(x: &DMatrix<T>) -> DMatrix<f64> {
    x.map(|x| nalgebra::try_convert(x).unwrap())
}

/// Fresh parameters whose biases are not zero, so that a forgotten bias is seen.
pub fn parameters(d_model: usize, d_k: usize, d_v: usize, seed: u64) -> Parameters<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut parameters = Parameters::xavier(d_model, d_k, d_v, rng).expect("sizes");
    for bias in [
        &mut parameters.b_q,
        &mut parameters.b_k,
        &mut parameters.b_v,
        &mut parameters.b_o,
    ] {
        bias.iter_mut().for_each(|b| *b = rng.random_range(-0.5..0.5));
    }
    parameters
}

/// The options with this mask and, in cross-attention, this context.
pub fn options<'a, T: Float>(
    context: Option<&'a DMatrix<T>>,
    mask: &Mask,
) -> ForwardOptions<'a, T> {
    let options = ForwardOptions::from(mask);
    match context {
        Some(context) => options.context(context),
        None => options,
    }
}

/// Lengths and sizes of tiles: small ones, and the edges of what vectors, tiles and panels hold.
pub fn length(rng: &mut ChaCha8Rng) -> usize {
    const EDGES: [usize; 12] = [15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 97];
    match rng.random_range(0..10) {
        0..6 => rng.random_range(1..10),
        _ => EDGES[rng.random_range(0..EDGES.len())],
    }
}

/// A mask of every kind of rule. Each kind says which one follows, so a new kind doesn't compile before it has a place in this chain.
pub fn of_every_kind(
    (n_q, n_k): (usize, usize),
    rng: &mut ChaCha8Rng,
) -> Vec<(&'static str, Mask)> {
    let mut masks: Vec<(&'static str, Mask)> = vec![];
    loop {
        let mut some = |shares: [f64; 3], rows: usize, columns: usize| {
            let share = shares[rng.random_range(0..3)];
            DMatrix::from_fn(rows, columns, |_, _| rng.random_bool(share))
        };
        let (name, mask) = match masks.last().map(|(_, mask)| &mask.rules()[0]) {
            None => ("causal", Ok(Mask::causal())),
            Some(Rule::Causal) => {
                let valid = some([0.0, 0.5, 0.8], 1, n_k);
                ("padding", Mask::padding(valid.as_slice()))
            }
            Some(Rule::Padding(_)) => {
                let sinks = if rng.random_bool(0.5) { 0 } else { length(rng) };
                ("window", Mask::window_with_sinks(length(rng), sinks))
            }
            Some(Rule::Window { .. }) => {
                ("dense", Mask::dense(some([0.1, 0.5, 0.95], n_q, n_k)))
            }
            Some(Rule::Dense(_)) => {
                let size = length(rng);
                let share = [0.1, 0.5][rng.random_range(0..2)];
                let (rows, columns) = (n_q.div_ceil(size), n_k.div_ceil(size));
                let seen = DMatrix::from_fn(rows, columns, |_, _| rng.random_bool(share));
                ("blocks", Mask::blocks(size, seen))
            }
            Some(Rule::Blocks { .. }) => {
                let (size, count) = (length(rng), rng.random_range(1..5));
                let is_mixed = rng.random_bool(0.3); // or in pieces
                let id = |token| match is_mixed {
                    true => rng.random_range(0..count),
                    false => token / size,
                };
                let ids: Vec<usize> = (0..n_k).map(id).collect();
                ("documents", Mask::documents(&ids))
            }
            Some(Rule::Documents { .. }) => return masks,
        };
        masks.push((name, mask.unwrap()));
    }
}

/// Whether query `i` may see key `j`, from the definition of each kind of rule.
pub fn sees(mask: &Mask, (n_q, n_k): (usize, usize), (i, j): (usize, usize)) -> bool {
    let position = (i + n_k) as i64 - n_q as i64;
    let back = position - j as i64;
    mask.rules().iter().all(|rule| match rule {
        Rule::Causal => back >= 0,
        Rule::Padding(valid) => valid[j],
        Rule::Window { width, sinks } => {
            back >= 0 && (back < *width as i64 || j < *sinks)
        }
        Rule::Dense(allowed) => allowed[(i, j)],
        Rule::Blocks { size, allowed } => allowed[(i / size, j / size)],
        Rule::Documents { ids, .. } => position >= 0 && ids[position as usize] == ids[j],
    })
}

/// A mask of every kind, in which each query sees a key unless it stands before the first; and two of them combined so that, if there are
/// as many queries as keys, the first sees nothing.
pub fn masks(n_q: usize, n_k: usize) -> Vec<(&'static str, Mask)> {
    let lengths = (n_q, n_k);
    let sees_a_key =
        |mask: &Mask, i: usize| (0..n_k).any(|j| sees(mask, lengths, (i, j)));
    let first = n_q.saturating_sub(n_k); // that stands at a key
    let mut all = vec![("none", Mask::none())];
    let rng = &mut ChaCha8Rng::seed_from_u64(n_q as u64);
    while all.len() <= of_every_kind(lengths, rng).len() {
        let (name, mask) = of_every_kind(lengths, rng).swap_remove(all.len() - 1);
        if (first..n_q).all(|i| sees_a_key(&mask, i)) {
            all.push((name, mask));
        }
    }
    let valid: Vec<bool> = (0..n_k).map(|j| j % 3 != 0 || n_k == 1).collect();
    let padding = Mask::padding(&valid).expect("keys");
    all.push(("window with sinks", Mask::window_with_sinks(2, 1).expect("a width")));
    all.push(("causal and padding", Mask::causal().and(padding)));
    all
}

/// A sample of every kind of rule for scores, in a chain as that of the rules of masks, and some that follow one another.
pub fn score_rules(n_heads: usize) -> Vec<(String, ScoreRule)> {
    let table = |rows, seed| numbers::<f64>(rows, n_heads, seed);
    let t5 = DistanceBuckets::t5(8, 20).expect("distances");
    let t5 = ScoreRule::table(&table(8, 1), t5).expect("a number a bucket");
    let mut all = vec![];
    loop {
        all.push(match all.last().map(|rule: &ScoreRule| &rule.steps()[0]) {
            None => ScoreRule::alibi(n_heads).expect("heads"),
            Some(Step::Slopes(_)) => {
                let buckets = DistanceBuckets::clipped(3).expect("distances");
                ScoreRule::table(&table(7, 0), buckets).expect("a number a bucket")
            }
            Some(Step::Table(..)) => ScoreRule::soft_cap(1.5).expect("a cap"),
            Some(Step::SoftCap(_)) => ScoreRule::custom(OfEveryPlace),
            Some(Step::Custom(_)) => break,
        });
    }
    let [alibi, clipped, cap, ..] = &all[..] else { unreachable!("four kinds") };
    let after = |a: &ScoreRule, b: &ScoreRule, c: &ScoreRule| {
        a.clone().then(b.clone()).then(c.clone())
    };
    let several = [after(&t5, cap, clipped), after(cap, alibi, &t5)];
    all.extend(several);
    all.into_iter().map(|rule| (format!("{rule:?}"), rule)).collect()
}

/// A function of score, head and place, with a derivative that isn't constant.
#[derive(Debug)]
struct OfEveryPlace;

impl ScoreFunction for OfEveryPlace {
    fn value(&self, score: f64, place: ScorePlace) -> f64 {
        let factor = 1.0 + place.head as f64 + 0.1 * place.key as f64;
        factor * score.sin() + 0.01 * (place.query + place.distance) as f64
    }

    fn derivative(&self, score: f64, place: ScorePlace) -> f64 {
        (1.0 + place.head as f64 + 0.1 * place.key as f64) * score.cos()
    }
}

/// A function of score, head and place. Asked about the future it panics.
#[derive(Debug)]
pub struct OfThePast;

impl ScoreFunction for OfThePast {
    fn value(&self, score: f64, place: ScorePlace) -> f64 {
        assert!(place.distance >= 0, "the future was asked about");
        let factor = 1.0 + place.head as f64 + 0.1 * place.key as f64;
        factor * score.sin() + 0.01 * place.query as f64
    }

    fn derivative(&self, score: f64, place: ScorePlace) -> f64 {
        assert!(place.distance >= 0, "the future was asked about");
        (1.0 + place.head as f64 + 0.1 * place.key as f64) * score.cos()
    }
}

/// An error's kind and the argument that it blames, such as `Shape k`, or `Zero n_heads` of a value: what tables of misuses expect.
pub fn blame(error: &Error) -> String {
    let (variant, argument) = match error {
        Error::Shape { argument, .. } => ("Shape", *argument),
        Error::Value { argument, because, .. } if because == "it must be at least 1" => {
            ("Zero", *argument)
        }
        Error::Value { argument, given, .. } if given.starts_with("empty") => {
            ("Empty", *argument)
        }
        Error::Value { argument, .. } => ("Value", *argument),
        Error::NoMemory { rows, columns } => {
            ("NoMemory", if rows.1 > columns.1 { rows.0 } else { columns.0 })
        }
        Error::Within { place, source } => return format!("{place}: {}", blame(source)),
        other => panic!("a variant that has no name here: {other}"),
    };
    format!("{variant} {argument}")
}

/// The output, and what a backward pass needs.
pub type Forward<M, C> = Result<(M, C)>;

/// Both layers by the same calls, for tests that hold for either.
pub trait Layer<T: Float>: NamedParameters<T> + Clone {
    type Cache;
    fn parameters(&self) -> &Parameters<T>;
    fn forward<'a>(
        &self,
        x: &DMatrix<T>,
        options: impl Into<ForwardOptions<'a, T>>,
    ) -> Forward<DMatrix<T>, Self::Cache>;
    fn backward(
        &self,
        cache: &Self::Cache,
        grad_output: &DMatrix<T>,
    ) -> Result<LayerGradients<T>>;
    fn forward_batch<'a>(
        &self,
        xs: &[DMatrix<T>],
        options: impl Into<BatchOptions<'a, T>>,
    ) -> Forward<Vec<DMatrix<T>>, Vec<Self::Cache>>;
    fn backward_batch(
        &self,
        caches: &[Self::Cache],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<BatchGradients<T>>;
}

macro_rules! layer {
    ($layer:ident, $cache:ident) => {
        impl<T: Float> Layer<T> for $layer<T> {
            type Cache = $cache<T>;
            fn parameters(&self) -> &Parameters<T> {
                &self.parameters
            }
            fn forward<'a>(
                &self,
                x: &DMatrix<T>,
                options: impl Into<ForwardOptions<'a, T>>,
            ) -> Forward<DMatrix<T>, Self::Cache> {
                self.forward(x, options)
            }
            fn backward(
                &self,
                cache: &Self::Cache,
                grad_output: &DMatrix<T>,
            ) -> Result<LayerGradients<T>> {
                self.backward(cache, grad_output)
            }
            fn forward_batch<'a>(
                &self,
                xs: &[DMatrix<T>],
                options: impl Into<BatchOptions<'a, T>>,
            ) -> Forward<Vec<DMatrix<T>>, Vec<Self::Cache>> {
                self.forward_batch(xs, options)
            }
            fn backward_batch(
                &self,
                caches: &[Self::Cache],
                grad_outputs: &[DMatrix<T>],
            ) -> Result<BatchGradients<T>> {
                self.backward_batch(caches, grad_outputs)
            }
        }
    };
}

layer!(SingleHeadAttention, SingleHeadCache);
layer!(MultiHeadAttention, MultiHeadCache);
