//! The chapter's numbers.

use crate::linear_attention::delta_rule;
use crate::random::normal;
use ::fast::Flash;
use anyhow::{Context, Result};
use attention::Mask;
use laboratory::fewer_pairs::Method;
use laboratory::fewer_pairs::by_place::local_and_strided;
use laboratory::fewer_pairs::hashing::HashedAttention;
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use record::{Record, Unit};

/// The width of a head.
pub const D: usize = 64;
/// The tokens of a text on which the methods are compared.
pub const N: usize = 2048;
/// The symbols of a look-up, of which each token has one.
pub const SYMBOLS: usize = 16;
/// The length of the noise of a query that looks up a key, as a share of that of the key.
pub const NOISE: f64 = 0.3;
/// How many tokens back a look-up goes.
pub const DISTANCES: [usize; 3] = [10, 100, 1000];

/// The tokens of a pattern that is drawn.
pub const DRAWN: usize = 24;

/// Which keys each query sees, drawn small: a window of five tokens with two sinks; a dilated window, every fourth token; blocks of three
/// tokens, every third block; and tokens by their hashes.
pub fn patterns() -> Result<[(&'static str, DMatrix<bool>); 4]> {
    let matrix = |mask: Mask| -> Result<DMatrix<bool>> {
        Ok(mask.sized(DRAWN, DRAWN)?.allowed_matrix())
    };
    let dilated = |i: usize, j: usize| j <= i && (i - j).is_multiple_of(4) && i - j < 20;
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let hashed = HashedAttention::new(8, 8, 1, rng)?;
    let buckets = &hashed.buckets(&normal(DRAWN, 8, rng))?[0];
    let shares_bucket = |i: usize, j: usize| j <= i && buckets[i] == buckets[j];
    Ok([
        ("window and sinks", matrix(Mask::window_with_sinks(5, 2)?)?),
        ("dilated", DMatrix::from_fn(DRAWN, DRAWN, dilated)),
        ("blocks", matrix(local_and_strided(DRAWN, 3, 3)?)?),
        ("hashed", DMatrix::from_fn(DRAWN, DRAWN, shares_bucket)),
    ])
}

/// Directions of the plane, equally far apart.
pub const DIRECTIONS: usize = 240;
/// Two of them that are neighbours.
pub const NEIGHBOURS: [usize; 2] = [14, 30];

/// The buckets of the directions of the plane, of four, in two rounds.
pub fn buckets_of_directions() -> Result<Vec<Vec<usize>>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let directions = DMatrix::from_fn(DIRECTIONS, 2, |i, j| {
        let (sin, cos) = angle(i).sin_cos();
        [cos, sin][j]
    });
    Ok(HashedAttention::new(2, 4, 2, rng)?.buckets(&directions)?)
}

/// The angle of a direction.
pub fn angle(direction: usize) -> f64 {
    std::f64::consts::TAU * direction as f64 / DIRECTIONS as f64
}

/// Queries, keys and values of a text.
pub struct Text {
    pub q: DMatrix<f64>,
    pub k: DMatrix<f64>,
    pub v: DMatrix<f64>,
}

impl Text {
    /// Random queries and keys, whose scores have a standard deviation of 1: each token has many that matter a little.
    pub fn spread() -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let [q, k, v] = [(); 3].map(|()| normal(N, D, rng));
        Text { q, k, v }
    }

    /// Tokens that change slowly, and ask for what is like them: those nearby matter.
    pub fn near() -> Self {
        const KEPT: f64 = 0.9; // of a token in the next one
        let rng = &mut ChaCha8Rng::seed_from_u64(1);
        let mut k = normal(N, D, rng);
        for i in 1..N {
            let next = KEPT * k.row(i - 1) + (1.0 - KEPT * KEPT).sqrt() * k.row(i);
            k.set_row(i, &next);
        }
        Text { q: 1.5 * &k, k, v: normal(N, D, rng) }
    }

    /// Tokens with a random key and a symbol each; every query asks for the key of the token that `target` names. Returns the text,
    /// and the symbol that each query wants.
    pub fn look_up(
        n: usize,
        rng: &mut ChaCha8Rng,
        target: impl Fn(usize, &mut ChaCha8Rng) -> usize,
    ) -> (Self, Vec<usize>) {
        let k = normal(n, D, rng);
        let noise = NOISE * normal(n, D, rng);
        let symbols: Vec<_> = (0..n).map(|_| rng.random_range(0..SYMBOLS)).collect();
        let mut text = Text { q: DMatrix::zeros(n, D), k, v: DMatrix::zeros(n, SYMBOLS) };
        let mut wanted = vec![];
        for i in 0..n {
            let token = target(i, rng);
            let asked = 1.5 * (text.k.row(token) + noise.row(i));
            text.q.set_row(i, &asked);
            text.v[(i, symbols[i])] = 1.0;
            wanted.push(symbols[token]);
        }
        (text, wanted)
    }

    pub fn attend(&self, method: Method) -> Result<DMatrix<f64>> {
        Ok(method.forward([&self.q, &self.k, &self.v], &Flash::new())?)
    }

    /// The error of an output over the second half of the text, as a share of the size of the output of full attention.
    pub fn error(&self, output: &DMatrix<f64>) -> Result<f64> {
        let full = self.attend(Method::Full)?;
        let [output, full] = [output, &full].map(|x| x.rows_range(N / 2..));
        Ok((output - full).norm() / full.norm())
    }

    /// The means of the values so far: attention whose scores are all equal.
    pub fn means(&self) -> Result<DMatrix<f64>> {
        let zeros = DMatrix::zeros(self.q.nrows(), self.q.ncols());
        Ok(Method::Full.forward([&zeros, &self.k, &self.v], &Flash::new())?)
    }
}

/// The share of queries, of those from `first` on, whose largest output is the symbol that they asked for.
pub fn found(output: &DMatrix<f64>, wanted: &[usize], first: usize) -> f64 {
    let is_right = |i: &usize| output.row(*i).transpose().imax() == wanted[*i];
    let right = (first..wanted.len()).filter(is_right).count();
    right as f64 / (wanted.len() - first) as f64
}

/// A way to make an output from queries, keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    By(Method),
    /// The means of the values so far.
    PlainMean,
    /// A state that replaces.
    DeltaRule,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::By(method) => method.name(),
            Way::PlainMean => "plain mean",
            Way::DeltaRule => "delta rule",
        }
    }

    pub fn output(self, text: &Text) -> Result<DMatrix<f64>> {
        match self {
            Way::By(method) => text.attend(method),
            Way::PlainMean => text.means(),
            Way::DeltaRule => Ok(delta_rule(text)),
        }
    }
}

/// The share that finds what stands so many tokens back.
pub fn found_at(way: Way, distance: usize) -> Result<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(2);
    let (text, wanted) = Text::look_up(N, rng, |i, _| i.saturating_sub(distance));
    Ok(found(&way.output(&text)?, &wanted, distance))
}

/// The multiplications of a method for one head and a text of `n` tokens, by the formulas of the chapters.
pub fn multiplications(method: Method, n: u64) -> f64 {
    let (n, d) = (n as f64, D as f64);
    match method {
        Method::Full => n * n * d,
        Method::Window | Method::Dilated => 2.0 * n * Method::WIDTH as f64 * d,
        Method::Blocks => {
            let b = Method::BLOCK as f64;
            n * (n * b).sqrt() * d + 3.0 * n * b * d
        }
        Method::Hashed => {
            let c = Method::BUCKET as f64;
            Method::ROUNDS as f64 * (n * c * d + n * n * d / c)
        }
        Method::Linear => in_chunks(n, d),
        // Its features are products, too.
        Method::RandomFeatures => {
            let f = Method::FEATURES as f64;
            in_chunks(n, f) + 2.0 * n * f * d
        }
    }
}

/// The multiplications of linear attention with so many features.
fn in_chunks(n: f64, features: f64) -> f64 {
    let (c, d) = (Method::CHUNK as f64, D as f64);
    n * (c * (features + d) + 2.0 * features * d)
}

/// What a method costs, as it was measured.
pub struct Cost {
    pub method: Method,
    /// Tokens and seconds, from short to long.
    pub seconds: Vec<(u64, f64)>,
    /// Bytes beyond the inputs, for the longest text.
    pub bytes: f64,
    /// The shortest of the measured lengths from which on it is faster than full attention.
    pub pays_from: Option<u64>,
}

/// The costs of these methods.
pub fn costs(record: &Record, methods: &[Method]) -> Result<Vec<Cost>> {
    let numbers = |what: String, unit: Unit| -> Result<Vec<(u64, f64)>> {
        let number = |m: &record::Measurement| {
            let n =
                m.sizes.get("n").copied().with_context(|| format!("no n of {what}"))?;
            Ok((n, record.in_unit(m, unit)?))
        };
        let mut numbers: Vec<_> =
            record.all(&what, "f32").map(number).collect::<Result<_>>()?;
        numbers.sort_by_key(|(n, _)| *n);
        Ok(numbers)
    };
    let times =
        |method: Method| numbers(format!("fewer pairs/{}", method.name()), Unit::Seconds);
    let full = times(Method::Full)?;
    methods
        .iter()
        .map(|&method| {
            let seconds = times(method)?;
            let memory =
                numbers(format!("fewer pairs memory/{}", method.name()), Unit::Bytes)?;
            let bytes = memory.last().context("no memory")?.1;
            let slower = |((n, time), (_, full)): (&(u64, f64), &(u64, f64))| {
                (time >= full).then_some(*n)
            };
            let last_slower = seconds.iter().zip(&full).filter_map(slower).next_back();
            let faster = |(n, _): &&(u64, f64)| last_slower.is_none_or(|last| *n > last);
            let pays_from = seconds.iter().find(faster).map(|(n, _)| *n);
            Ok(Cost { method, seconds, bytes, pays_from })
        })
        .collect()
}
