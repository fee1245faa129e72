//! Flash attention equals the naive one: forward and backward, every mask, any lengths, whatever the tiles.

use attention::flash::{
    Exponentials, Flash, FlashOutput, Float, Inputs, OnlineSoftmax, Products, Tiles,
    tiled_attention, tiled_attention_backward,
};
use attention::{AttentionGradients, Mask, attention, attention_backward};
use nalgebra::{DMatrix, DVector, convert};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// Numbers between −1 and 1.
fn numbers<T: Float>(rows: usize, columns: usize, seed: u64) -> DMatrix<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| convert(rng.random_range(-1.0..1.0)))
}

/// One problem: (n_q, n_k), (d_k, d_v) of a head, heads, and a mask.
#[derive(Debug, Clone)]
struct Problem {
    lengths: (usize, usize),
    widths: (usize, usize),
    n_heads: usize,
    mask: Mask,
}

struct Data<T: Float> {
    q: DMatrix<T>,
    k: DMatrix<T>,
    v: DMatrix<T>,
    grad_output: DMatrix<T>,
}

type Answer<T> = (FlashOutput<T>, AttentionGradients<T>);

impl Problem {
    fn data<T: Float>(&self, spread: f64) -> Data<T> {
        let ((n_q, n_k), (d_k, d_v), h) = (self.lengths, self.widths, self.n_heads);
        Data {
            q: numbers(n_q, h * d_k, 0) * convert::<f64, T>(spread),
            k: numbers(n_k, h * d_k, 1),
            v: numbers(n_k, h * d_v, 2),
            grad_output: numbers(n_q, h * d_v, 3),
        }
    }

    /// What the naive functions say, head by head.
    fn naive<T: Float>(&self, data: &Data<T>) -> Answer<T> {
        let ((n_q, n_k), (d_k, d_v), heads) = (self.lengths, self.widths, self.n_heads);
        let mut forward = FlashOutput {
            output: DMatrix::zeros(n_q, heads * d_v),
            log_sum_exp: DMatrix::zeros(n_q, heads),
        };
        let mut gradients = AttentionGradients {
            q: DMatrix::zeros(n_q, heads * d_k),
            k: DMatrix::zeros(n_k, heads * d_k),
            v: DMatrix::zeros(n_k, heads * d_v),
        };
        for h in 0..heads {
            let slice = |x: &DMatrix<T>, d| x.columns(h * d, d).into_owned();
            let (q, k, v) =
                (slice(&data.q, d_k), slice(&data.k, d_k), slice(&data.v, d_v));
            let (output, cache) = attention(&q, &k, &v, &self.mask).unwrap();
            let grads =
                attention_backward(&cache, &slice(&data.grad_output, d_v)).unwrap();
            forward.output.columns_mut(h * d_v, d_v).copy_from(&output);
            forward.log_sum_exp.set_column(h, &cache.log_sum_exp);
            gradients.q.columns_mut(h * d_k, d_k).copy_from(&grads.q);
            gradients.k.columns_mut(h * d_k, d_k).copy_from(&grads.k);
            gradients.v.columns_mut(h * d_v, d_v).copy_from(&grads.v);
        }
        (forward, gradients)
    }

    fn inputs<'a, T: Float>(&'a self, data: &'a Data<T>) -> Inputs<'a, T> {
        let inputs = Inputs::new(&data.q, &data.k, &data.v, &self.mask).unwrap();
        inputs.with_heads(self.n_heads).unwrap()
    }

    fn tiled<T: Float>(&self, data: &Data<T>, tiles: Tiles) -> Answer<T> {
        let inputs = self.inputs(data);
        let forward = tiled_attention(&inputs, tiles).unwrap();
        let gradients =
            tiled_attention_backward(&inputs, &forward, &data.grad_output, tiles)
                .unwrap();
        (forward, gradients)
    }

    fn fast<T: Float>(&self, data: &Data<T>, flash: &Flash) -> Answer<T> {
        let inputs = self.inputs(data);
        let forward = flash.forward(&inputs);
        let gradients = flash.backward(&inputs, &forward, &data.grad_output).unwrap();
        (forward, gradients)
    }
}

/// The largest difference, relative to the largest entry of what is right (or to 1, if that is smaller). An infinity must
/// be met by the same one.
fn off<T: Float>(given: &DMatrix<T>, right: &DMatrix<T>) -> f64 {
    assert_eq!(given.shape(), right.shape());
    let number = |x: T| -> f64 { nalgebra::try_convert(x).unwrap() };
    let pairs = given.iter().zip(right.iter()).map(|(&a, &b)| (number(a), number(b)));
    let finite = right.iter().map(|&x| number(x).abs()).filter(|x| x.is_finite());
    let largest = finite.fold(1.0, f64::max);
    pairs.map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() / largest }).fold(
        0.0,
        |worst, x| {
            assert!(!x.is_nan(), "a NaN");
            worst.max(x)
        },
    )
}

fn worst<T: Float>(given: &Answer<T>, right: &Answer<T>) -> f64 {
    [
        off(&given.0.output, &right.0.output),
        off(&given.0.log_sum_exp, &right.0.log_sum_exp),
        off(&given.1.q, &right.1.q),
        off(&given.1.k, &right.1.k),
        off(&given.1.v, &right.1.v),
    ]
    .into_iter()
    .fold(0.0, f64::max)
}

/// What lies within this of the naive result counts as equal.
const F64: f64 = 1e-12;
const F32: f64 = 2e-6;

fn mask(kind: usize, (n_q, n_k): (usize, usize), seed: u64) -> Mask {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let mut valid: Vec<bool> = (0..n_k).map(|_| rng.random_bool(0.7)).collect();
    let padding = Mask::padding(&valid).unwrap();
    let window = Mask::window(rng.random_range(1..40)).unwrap();
    let dense = DMatrix::from_fn(n_q, n_k, |_, _| rng.random_bool(0.2));
    match kind {
        0 => Mask::none(),
        1 => Mask::causal(),
        2 => padding,
        3 => window,
        4 => Mask::dense(dense).unwrap(),
        5 => Mask::causal().and(padding),
        6 => window.and(Mask::dense(dense).unwrap()),
        _ => {
            valid.fill(false); // nobody sees anything
            Mask::padding(&valid).unwrap()
        }
    }
}

fn problem() -> impl Strategy<Value = Problem> {
    let sizes = (1..300_usize, 1..300_usize, 1..20_usize, 1..20_usize, 1..4_usize);
    (sizes, 0..8_usize, any::<bool>(), any::<u64>()).prop_map(
        |(sizes, kind, square, seed)| {
            let (n_q, n_k, d_k, d_v, n_heads) = sizes;
            let lengths = if square { (n_q, n_q) } else { (n_q, n_k) };
            let mask = mask(kind, lengths, seed);
            Problem { lengths, widths: (d_k, d_v), n_heads, mask }
        },
    )
}

fn tiles() -> impl Strategy<Value = Tiles> {
    (1..100_usize, 1..100_usize).prop_map(|(queries, keys)| Tiles { queries, keys })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn flash_is_naive_attention(problem in problem(), tiles in tiles(), threads in 1..4_usize) {
        let data = problem.data::<f64>(1.0);
        let right = problem.naive(&data);
        prop_assert!(worst(&problem.tiled(&data, tiles), &right) < F64);
        let flash = Flash::new().with_threads(threads).unwrap();
        prop_assert!(worst(&problem.fast(&data, &flash), &right) < F64, "default tiles");
        let flash = flash.with_tiles(tiles).unwrap();
        prop_assert!(worst(&problem.fast(&data, &flash), &right) < F64);

        let (single, exact) = (problem.data::<f32>(1.0), &right);
        let single_right: Answer<f32> = (
            FlashOutput {
                output: exact.0.output.map(|x| x as f32),
                log_sum_exp: exact.0.log_sum_exp.map(|x| x as f32),
            },
            AttentionGradients {
                q: exact.1.q.map(|x| x as f32),
                k: exact.1.k.map(|x| x as f32),
                v: exact.1.v.map(|x| x as f32),
            },
        );
        for given in [problem.tiled(&single, tiles), problem.fast(&single, &flash)] {
            let worst = worst(&given, &single_right);
            prop_assert!(worst < F32, "{worst}");
        }
    }
}
