//! The kernels on a GPU, held against the definition in `f64` on what they were given.
//!
//! Without a GPU each test says what is missing and passes; with REQUIRE_GPU=1 it fails with the same words.

use attention::cuda::{Error, Gpu, NAIVE, Program, Shape, TILED, Tensor, Tensors};
use attention::engine::{Engine as _, Tiled};
use attention::flash::Inputs;
use attention::{
    Mask, ScoreRule, attention, attention_backward, score_rule::DistanceBuckets,
};
use gpu::clock::{bytes, copy_bandwidth, free_memory, poisoned, time};
use gpu::{
    ALL, BACKWARD, D_K, D_OUTPUT, D_Q, D_V, DECODE, PAGE_TABLE, Paged, Precision,
    REGISTERS, TENSOR_CORES, backward, is_backward,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use std::io::Write;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

// ---------------------------------------------------------------------------------------------------- material

/// Writes a line that appears even if the test passes.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn must_run() -> bool {
    std::env::var_os("REQUIRE_GPU").is_some_and(|value| value == "1")
}

/// The GPU, for one test at a time, since they measure its time and its memory; or none,
/// and why.
fn gpu() -> Option<(&'static Gpu, MutexGuard<'static, ()>)> {
    static GPU: OnceLock<Result<Gpu, Error>> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    match GPU.get_or_init(Gpu::open) {
        Ok(gpu) => Some((gpu, TURN.lock().unwrap_or_else(PoisonError::into_inner))),
        Err(error) if must_run() => panic!("REQUIRE_GPU=1, but: {error}"),
        Err(error) => {
            say(&format!("skipped: {error}"));
            None
        }
    }
}

/// The kernels of one pass that this device has the instructions for.
fn kernels_of(gpu: &Gpu, is_wanted: fn(Program) -> bool) -> Vec<Program> {
    let runs = |kernel: &Program| match kernel.architecture_for(gpu.device().capability) {
        Ok(_) => true,
        Err(error) => {
            say(&format!("skipped on {}: {error}", gpu.device().name));
            false
        }
    };
    let wanted = ALL.into_iter().filter(|program| is_wanted(*program));
    let kernels: Vec<_> = wanted.filter(runs).collect();
    assert!(!kernels.is_empty());
    kernels
}

/// The forward kernels that it has them for.
fn kernels(gpu: &Gpu) -> Vec<Program> {
    kernels_of(gpu, |program| !is_backward(program))
}

/// Other numbers on each run; the seed is written down, so that a failure can be had again.
fn fresh_rng() -> ChaCha8Rng {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = match std::env::var("SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => now.as_nanos() as u64,
    };
    say(&format!("SEED={seed}"));
    ChaCha8Rng::seed_from_u64(seed)
}

fn normal(length: usize, deviation: f32, rng: &mut ChaCha8Rng) -> Vec<f32> {
    let draws = (0..length).map(|_| StandardNormal.sample(&mut *rng));
    draws.map(|x: f32| deviation * x).collect()
}

/// Heads and lengths: one, odd ones, a tile's edge and its neighbours, more keys than queries, more queries than keys.
const LENGTHS: [(usize, usize, usize); 15] = [
    (1, 1, 1),
    (3, 1, 130),
    (2, 130, 1),
    (1, 31, 33),
    (2, 64, 64),
    (1, 63, 65),
    (1, 65, 63),
    (2, 128, 128),
    (1, 127, 129),
    (1, 129, 127),
    (2, 100, 300),
    (2, 300, 100),
    (5, 77, 77),
    (1, 513, 511),
    (2, 3, 5000),
];

/// Queries, keys, values and the gradient of the output; (heads, n, d), by rows.
#[derive(Clone)]
struct Problem {
    shape: Shape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    d_output: Vec<f32>,
}

/// Attention by its definition, in f64.
struct Reference {
    output: Vec<f64>,
    lse: Vec<f64>,
    gradients: [Vec<f64>; 3],
}

impl Problem {
    fn new(shape: Shape, deviation: f32, rng: &mut ChaCha8Rng) -> Self {
        let (queries, keys) =
            (shape.heads * shape.n_q * shape.d, shape.kv_heads * shape.n_k * shape.d);
        Problem {
            shape,
            q: normal(queries, deviation, rng),
            k: normal(keys, 1.0, rng),
            v: normal(keys, 1.0, rng),
            d_output: normal(queries, 1.0, rng),
        }
    }

    /// Returns the same numbers, rounded to a kernel's precision.
    fn rounded(&self, precision: Precision) -> Self {
        let round = |values: &[f32]| values.iter().map(|&x| precision.round(x)).collect();
        let [q, k, v, d_output] =
            [&self.q, &self.k, &self.v, &self.d_output].map(|values| round(values));
        Problem { q, k, v, d_output, ..*self }
    }

    /// The gradients are right for heads that share no keys.
    fn reference(&self) -> Reference {
        let Shape { heads, kv_heads, n_q, n_k, d, causal } = self.shape;
        let mask = if causal { Mask::causal() } else { Mask::none() };
        let head = |values: &[f32], h: usize, n: usize| {
            DMatrix::from_row_slice(n, d, &values[h * n * d..(h + 1) * n * d])
                .map(f64::from)
        };
        let by_rows = |matrix: &DMatrix<f64>| matrix.transpose().as_slice().to_vec();
        let mut all = Reference {
            output: vec![],
            lse: vec![],
            gradients: [vec![], vec![], vec![]],
        };
        for h in 0..heads {
            let kv_head = h / (heads / kv_heads);
            let [k, v] = [&self.k, &self.v].map(|values| head(values, kv_head, n_k));
            let (output, cache) =
                attention(&head(&self.q, h, n_q), &k, &v, &mask).unwrap();
            let gradients =
                attention_backward(&cache, &head(&self.d_output, h, n_q)).unwrap();
            all.output.extend(by_rows(&output));
            all.lse.extend(cache.log_sum_exp.iter());
            let of_head = [&gradients.q, &gradients.k, &gradients.v];
            for (all, of_head) in all.gradients.iter_mut().zip(of_head) {
                all.extend(by_rows(of_head));
            }
        }
        all
    }

    /// The tensors of a program with NaN in all that it writes.
    fn tensors(
        &self,
        gpu: &Gpu,
        program: Program,
        others: &[(Tensor, &[f32])],
    ) -> Tensors {
        let paged = (program == DECODE).then(|| Paged::new(&self.k, &self.v, self.shape));
        let mut own = vec![(Tensor::Q, &self.q[..])];
        match &paged {
            Some(paged) => own.extend(paged.inputs()),
            None => own.extend([(Tensor::K, &self.k[..]), (Tensor::V, &self.v)]),
        }
        poisoned(gpu, program, self.shape, &[&own, others].concat())
            .unwrap_or_else(|error| panic!("{program}, {:?}: {error}", self.shape))
    }

    /// The output and the log-sum-exps, written where NaN was.
    fn forward(&self, gpu: &Gpu, kernel: Program) -> (Vec<f32>, Vec<f32>) {
        let mut tensors = self.tensors(gpu, kernel, &[]);
        let mut run = || -> Result<_, Error> {
            tensors.launch()?;
            Ok((tensors.read(Tensor::OUTPUT)?, tensors.read(Tensor::LSE)?))
        };
        run().unwrap_or_else(|error| panic!("{kernel}, {:?}: {error}", self.shape))
    }

    /// The gradients of queries, keys and values, written where NaN was.
    fn backward(&self, gpu: &Gpu, program: Program) -> [Vec<f32>; 3] {
        let before = match Precision::of(program) {
            Precision::F32 => TILED,
            Precision::Bf16 => TENSOR_CORES,
        };
        let (output, lse) = self.forward(gpu, before);
        let others = [
            (Tensor::OUTPUT, &output[..]),
            (Tensor::LSE, &lse),
            (D_OUTPUT, &self.d_output),
        ];
        let mut tensors = self.tensors(gpu, program, &others);
        let mut run = || -> Result<_, Error> {
            tensors.launch()?;
            Ok([tensors.read(D_Q)?, tensors.read(D_K)?, tensors.read(D_V)?])
        };
        run().unwrap_or_else(|error| panic!("{program}, {:?}: {error}", self.shape))
    }
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// ‖found − expected‖ / ‖expected‖; NaN if anything was found that is NaN.
fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let difference = found.iter().zip(expected).map(|(&x, y)| f64::from(x) - y);
    norm(difference) / norm(expected.iter().copied())
}

/// The same to the last bit.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

// ---------------------------------------------------------------------------------------------------- forward

/// Log-sum-exps: −∞ exactly where no key is seen, and close elsewhere. `None` if they are right.
fn fault_of_lse(found: &[f32], expected: &[f64], tolerance: f64) -> Option<String> {
    assert_eq!(found.len(), expected.len());
    let right = |(&x, &y): (&f32, &f64)| match y {
        f64::NEG_INFINITY => x == f32::NEG_INFINITY,
        _ => (f64::from(x) - y).abs() <= tolerance * y.abs().max(1.0),
    };
    let wrong = found.iter().zip(expected).position(|pair| !right(pair));
    wrong.map(|i| format!("log-sum-exp {i} is {} and not {}", found[i], expected[i]))
}

#[test]
fn every_kernel_is_attention() {
    let Some((gpu, _turn)) = gpu() else { return };
    let mut rng = fresh_rng();
    let mut faults = vec![];
    for kernel in kernels(gpu) {
        let (tolerance, of_lse) = match Precision::of(kernel) {
            Precision::F32 => (1e-5, 1e-5),
            Precision::Bf16 => (1e-2, 1e-4), // the scores are added up in f32
        };
        let mut worst = 0.0_f64;
        for &d in kernel.source().widths {
            for causal in [false, true] {
                // With larger queries a few keys take all the weight, and the largest score moves a lot.
                for ((heads, n_q, n_k), deviation) in
                    LENGTHS.into_iter().flat_map(|sizes| [(sizes, 1.0), (sizes, 4.0)])
                {
                    let group = if kernel.source().takes_rules { n_k % 4 + 1 } else { 1 };
                    let (kv_heads, heads) = (heads, heads * group);
                    let shape = Shape { heads, kv_heads, n_q, n_k, d, causal };
                    let problem = Problem::new(shape, deviation, &mut rng);
                    let expected = problem.rounded(Precision::of(kernel)).reference();
                    let (output, lse) = problem.forward(gpu, kernel);
                    let error = relative_error(&output, &expected.output);
                    worst = worst.max(error);
                    let at = format!("{kernel}, {shape:?}, deviation {deviation}");
                    if error.is_nan() || error > tolerance {
                        faults.push(format!("{at}: relative error {error:.2e}"));
                    }
                    let fault = fault_of_lse(&lse, &expected.lse, of_lse);
                    faults.extend(fault.map(|fault| format!("{at}: {fault}")));
                    let unseen = output.chunks(d).zip(&expected.lse);
                    let mut unseen = unseen.filter(|(_, lse)| **lse == f64::NEG_INFINITY);
                    if !unseen.all(|(row, _)| row.iter().all(|&x| x == 0.0)) {
                        faults.push(format!(
                            "{at}: a query that sees no key has an output"
                        ));
                    }
                }
            }
        }
        say(&format!("{kernel:13}  largest relative error {worst:.2e}"));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_future_does_not_move_the_past() {
    let Some((gpu, _turn)) = gpu() else { return };
    let mut rng = fresh_rng();
    for kernel in kernels(gpu) {
        let shape =
            Shape { heads: 1, kv_heads: 1, n_q: 150, n_k: 150, d: 64, causal: true };
        let problem = Problem::new(shape, 1.0, &mut rng);
        let (output, lse) = problem.forward(gpu, kernel);
        for token in [1, 63, 64, 100, 149] {
            let mut other = problem.clone();
            for values in [&mut other.k, &mut other.v] {
                values[token * 64..].iter_mut().for_each(|x| *x += 3.0);
            }
            let (output_then, lse_then) = other.forward(gpu, kernel);
            let past = |values: &[f32], width: usize| bits(&values[..token * width]);
            assert_eq!(
                past(&output, 64),
                past(&output_then, 64),
                "{kernel}, token {token}"
            );
            assert_eq!(past(&lse, 1), past(&lse_then, 1), "{kernel}, token {token}");
            assert_ne!(bits(&output), bits(&output_then), "{kernel}, token {token}");
        }
    }
}

#[test]
fn each_run_gives_the_same_bits() {
    let Some((gpu, _turn)) = gpu() else { return };
    let mut rng = fresh_rng();
    for causal in [false, true] {
        let shape = Shape { heads: 3, kv_heads: 3, n_q: 200, n_k: 333, d: 64, causal };
        let problem = Problem::new(shape, 1.0, &mut rng);
        for kernel in kernels(gpu) {
            let [first, second] = [(); 2].map(|()| problem.forward(gpu, kernel));
            assert_eq!(bits(&first.0), bits(&second.0), "{kernel}");
            assert_eq!(bits(&first.1), bits(&second.1), "{kernel}");
        }
        for program in kernels_of(gpu, is_backward) {
            let [first, second] =
                [(); 2].map(|()| problem.backward(gpu, program).map(|x| bits(&x)));
            assert_eq!(first, second, "{program}");
        }
    }
}

/// The scores of these heads are more than 32 bits can count, and thousands of tiles follow each other.
#[test]
fn long_sequences_are_attention_too() {
    const LONG: usize = 1 << 15;
    let Some((gpu, _turn)) = gpu() else { return };
    let shape =
        Shape { heads: 3, kv_heads: 3, n_q: LONG, n_k: LONG, d: 64, causal: true };
    let problem = Problem::new(shape, 1.0, &mut fresh_rng());
    let last_head = (shape.heads - 1) * LONG;
    for kernel in kernels(gpu) {
        let needed = bytes(kernel, shape);
        if free_memory(gpu).unwrap() < needed {
            say(&format!("skipped: {kernel} needs {needed} bytes, more than are free"));
            continue;
        }
        let (output, _) = problem.forward(gpu, kernel);
        let rounded = problem.rounded(Precision::of(kernel));
        for i in [0, 1, LONG / 2, LONG - 1] {
            // Query i of the last head, alone with the keys that it sees.
            let rows = |values: &[f32], first: usize, n: usize| {
                values[(last_head + first) * 64..(last_head + first + n) * 64].to_vec()
            };
            let alone = Problem {
                shape: Shape { heads: 1, kv_heads: 1, n_q: 1, n_k: i + 1, ..shape },
                q: rows(&rounded.q, i, 1),
                k: rows(&rounded.k, 0, i + 1),
                v: rows(&rounded.v, 0, i + 1),
                d_output: vec![0.0; 64],
            };
            let error = relative_error(&rows(&output, i, 1), &alone.reference().output);
            let tolerance =
                if Precision::of(kernel) == Precision::F32 { 1e-5 } else { 1e-2 };
            assert!(error < tolerance, "{kernel}, query {i}: relative error {error:.2e}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------- backward

#[test]
fn the_backward_pass_is_the_gradient() {
    let Some((gpu, _turn)) = gpu() else { return };
    let mut rng = fresh_rng();
    let mut faults = vec![];
    for program in kernels_of(gpu, is_backward) {
        let precision = Precision::of(program);
        let tolerance = if precision == Precision::F32 { 1e-5 } else { 1e-2 };
        let mut worst = 0.0_f64;
        let widths = program.source().widths.iter();
        let of_width = |&d| [false, true].map(|causal| (d, causal));
        let variants = widths.flat_map(of_width);
        let cases =
            variants.flat_map(|variant| LENGTHS.map(|lengths| (variant, lengths)));
        for ((d, causal), (heads, n_q, n_k)) in cases {
            let shape = Shape { heads, kv_heads: heads, n_q, n_k, d, causal };
            let problem = Problem::new(shape, 1.0, &mut rng).rounded(precision);
            let expected = problem.reference();
            let found = problem.backward(gpu, program);
            let pairs = found.iter().zip(&expected.gradients).zip(["d_q", "d_k", "d_v"]);
            for ((found, expected), name) in pairs {
                let mut error = relative_error(found, expected);
                if n_k == 1 && name != "d_v" {
                    // One key has the weight 1, whatever its score: these gradients are 0, and what
                    // is left is the rounding of sums of the size of d_output.
                    let size = norm(problem.d_output.iter().map(|&x| f64::from(x)));
                    error = norm(found.iter().map(|&x| f64::from(x))) / size;
                }
                worst = worst.max(error);
                if error.is_nan() || error > tolerance {
                    faults.push(format!(
                        "{program}, {name}, {shape:?}: relative error {error:.2e}"
                    ));
                }
            }
            let unseen = found[0].chunks(d).zip(&expected.lse);
            let mut unseen = unseen.filter(|(_, lse)| **lse == f64::NEG_INFINITY);
            if !unseen.all(|(row, _)| row.iter().all(|&x| x == 0.0)) {
                faults.push(format!(
                    "{program}, {shape:?}: a query that sees no key has a gradient"
                ));
            }
        }
        say(&format!("{program}: largest relative error {worst:.2e}"));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

// ---------------------------------------------------------------------------------------------------- matrices

/// The calls with matrices, whose heads lie side by side, against those of the CPU.
#[test]
fn matrices_go_in_and_come_out() {
    let Some((gpu, _turn)) = gpu() else { return };
    let mut rng = fresh_rng();
    let mut matrix =
        |n: usize, width| DMatrix::from_vec(n, width, normal(n * width, 1.0, &mut rng));
    let (q, k, v, grad) =
        (matrix(70, 96), matrix(90, 96), matrix(90, 96), matrix(70, 96));
    let flash = Tiled::default();
    for mask in [Mask::none(), Mask::causal(), Mask::none().and(Mask::causal())] {
        let inputs = Inputs::new(&q, &k, &v, &mask).unwrap().with_heads(3).unwrap(); // d = 32
        let expected = flash.forward(&inputs).unwrap();
        let close = |found: &DMatrix<f32>, expected: &DMatrix<f32>| {
            assert_eq!(found.shape(), expected.shape());
            let error = (found - expected).norm() / expected.norm();
            assert!(error < 2e-5, "{mask:?}: relative error {error:.2e}"); // 1e-5 from each side
        };
        for kernel in kernels(gpu) {
            if Precision::of(kernel) == Precision::F32
                && kernel.source().widths.contains(&32)
            {
                let found = gpu.forward(kernel, &inputs).unwrap();
                close(&found.output, &expected.output);
                close(&found.log_sum_exp, &expected.log_sum_exp);
            }
        }
        let gradients = flash.backward(&inputs, &expected, grad.as_view()).unwrap();
        let found = backward(gpu, BACKWARD, &inputs, &expected, &grad).unwrap();
        close(&found.q, &gradients.q);
        close(&found.k, &gradients.k);
        close(&found.v, &gradients.v);
    }
}

// ---------------------------------------------------------------------------------------------------- time

#[test]
fn times_are_of_this_world() {
    let Some((gpu, _turn)) = gpu() else { return };
    let bandwidth = copy_bandwidth(gpu).unwrap();
    assert!((1e10..1e14).contains(&bandwidth), "{bandwidth:e} bytes/s");
    let shape = Shape { heads: 8, kv_heads: 8, n_q: 512, n_k: 512, d: 64, causal: false };
    let problem = Problem::new(shape, 1.0, &mut fresh_rng());
    let moved = 4.0 * problem.q.len() as f64 * 4.0; // bytes that must move at least
    for kernel in kernels(gpu) {
        let mut tensors = problem.tensors(gpu, kernel, &[]);
        let times = time(gpu, 2, 9, || tensors.launch()).unwrap();
        assert_eq!(times.len(), 9);
        for time in times {
            let seconds = time.as_secs_f64();
            // At most 1 PFLOP/s, and at least as long as a hundred times the bandwidth would take.
            let least = (4.0 * 8.0 * 512.0 * 512.0 * 64.0 / 1e15_f64)
                .max(moved / bandwidth / 100.0);
            assert!(seconds > least && seconds < 1.0, "{kernel}: {time:?}");
        }
        assert_eq!(
            bits(&tensors.read(Tensor::OUTPUT).unwrap()),
            bits(&problem.forward(gpu, kernel).0)
        );
    }
}

// ---------------------------------------------------------------------------------------------------- misuse

#[test]
fn a_device_that_is_not_there() {
    if gpu().is_none() {
        return;
    }
    let words = Gpu::open_device(4096).unwrap_err().to_string();
    assert!(words.starts_with("no CUDA device 4096: the driver sees "), "{words}");
}

#[test]
fn every_misuse_is_an_error_with_this_text() {
    let Some((gpu, _turn)) = gpu() else { return };
    let good = Shape { heads: 2, kv_heads: 2, n_q: 3, n_k: 5, d: 32, causal: false };
    let (q, k) = (vec![0.5; 2 * 3 * 32], vec![0.5; 2 * 5 * 32]);
    let place = |shape, q: &[f32], k: &[f32], v: &[f32]| {
        let inputs = [(Tensor::Q, q), (Tensor::K, k), (Tensor::V, v)];
        gpu.tensors(TILED, shape, &inputs).unwrap_err().to_string()
    };
    for (shape, words) in [
        (Shape { heads: 0, ..good }, "`heads` is 0 but it must be at least 1"),
        (Shape { n_q: 0, ..good }, "`n_q` is 0 but it must be at least 1"),
        (Shape { n_k: 0, ..good }, "`n_k` is 0 but it must be at least 1"),
        (
            Shape { heads: 65_536, ..good },
            "`heads` is 65536 but a grid holds 65535 at most",
        ),
        (
            Shape { n_q: usize::MAX, ..good },
            "`n_q` is 18446744073709551615 but a grid holds 1073741824 at most",
        ),
        (
            Shape { d: 48, ..good },
            "`d` is 48 but kernel `tiled` is written for 32, 64, 128",
        ),
        (Shape { n_q: 4, ..good }, "`q` has 192 entries but heads · n_q · d = 256"),
        (Shape { n_k: 4, ..good }, "`k` has 320 entries but kv_heads · n_k · d = 256"),
    ] {
        assert_eq!(place(shape, &q, &k, &k), words);
    }
    assert_eq!(
        place(good, &q, &k, &q),
        "`v` has 192 entries but kv_heads · n_k · d = 320"
    );

    let mut tensors = gpu.tensors(TILED, good, &[]).unwrap();
    assert_eq!(
        tensors.launch_function("scores").unwrap_err().to_string(),
        "`name` is `scores` but kernel `tiled` has attention_forward"
    );
    assert_eq!(
        tensors.read(D_Q).unwrap_err().to_string(),
        "`tensor` is `d_q` but kernel `tiled` takes no such tensor"
    );
    let inputs = [(D_OUTPUT, &q[..])];
    assert_eq!(
        gpu.tensors(TILED, good, &inputs).unwrap_err().to_string(),
        "`tensor` is `d_output` but kernel `tiled` takes no such tensor"
    );
    let shared = Shape { kv_heads: 1, d: 64, ..good };
    assert_eq!(
        gpu.tensors(REGISTERS, shared, &[]).unwrap_err().to_string(),
        "`group` is 2 but kernel `registers` takes neither rules for scores nor shared keys"
    );

    let pages = Shape { d: 64, ..good };
    let error = gpu.tensors(DECODE, pages, &[(PAGE_TABLE, &[1.0, 2.0])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`page_table` is 2 but its entries are whole numbers below 2"
    );

    let matrix = DMatrix::<f32>::zeros(4, 32);
    let wide = DMatrix::<f32>::zeros(4, 64);
    let (none, padding) = (Mask::none(), Mask::padding(&[true; 4]).unwrap());
    let forward = |v, mask| {
        let inputs = Inputs::new(&matrix, &matrix, v, mask).unwrap();
        gpu.forward(TILED, &inputs).unwrap_err().to_string()
    };
    assert_eq!(
        forward(&matrix, &padding),
        "`mask` is with padding but the kernels on the GPU know none, causal, a window, and documents with causal or a window without sinks"
    );
    assert_eq!(
        forward(&wide, &none),
        "`v` has 64 columns but the kernels on the GPU want the 32 of `k`"
    );
    let inputs = Inputs::new(&matrix, &matrix, &matrix, &none).unwrap();
    let output = Tiled::default().forward(&inputs).unwrap();
    assert_eq!(
        backward(gpu, BACKWARD, &inputs, &output, &wide).unwrap_err().to_string(),
        "`grad_output` has 64 columns but the output is 4 x 32"
    );
}

/// The scores of the naive kernel are too many for any device, and asking for them is no crash.
#[test]
fn too_little_memory_is_an_error() {
    let Some((gpu, _turn)) = gpu() else { return };
    let shape = Shape {
        heads: 16,
        kv_heads: 16,
        n_q: 1 << 16,
        n_k: 1 << 18,
        d: 32,
        causal: false,
    };
    assert!(bytes(NAIVE, shape) > 1 << 40);
    let error = gpu.tensors(NAIVE, shape, &[]).unwrap_err();
    assert!(matches!(error, Error::Device(_)), "{error}");
    let shape = Shape { heads: 1, kv_heads: 1, n_q: 8, n_k: 8, d: 32, causal: false };
    Problem::new(shape, 1.0, &mut fresh_rng()).forward(gpu, NAIVE); // and the handle still works
}

// ---------------------------------------------------------------------------------------------------- rules, shared keys

/// Rules for scores and heads that share keys, beside the crate's flash attention.
#[test]
fn rules_and_shared_keys_agree_with_flash() {
    let Some((gpu, _turn)) = gpu() else { return };
    let rng = &mut fresh_rng();
    const HEADS: usize = 8;
    let buckets = DistanceBuckets::t5(32, 128).unwrap();
    let biases = DMatrix::from_fn(32, HEADS, |_, _| normal(1, 1.0, rng)[0]);
    let capped = ScoreRule::soft_cap(5.0).unwrap().then(ScoreRule::alibi(HEADS).unwrap());
    let table = ScoreRule::table(&biases, buckets).unwrap();
    for (rule, has_table) in [(ScoreRule::none(), false), (capped, false), (table, true)]
    {
        for (kv_heads, d, (n_q, n_k)) in
            [(8, 64, (130, 130)), (2, 32, (65, 300)), (1, 128, (200, 70))]
        {
            let window = Mask::window_with_sinks(50, 3).unwrap();
            for mask in [Mask::none(), Mask::causal(), window.clone()] {
                let is_window = mask == window;
                let mut matrix = |n, heads: usize| {
                    DMatrix::from_vec(n, heads * d, normal(n * heads * d, 1.0, rng))
                        .map(|x| Precision::Bf16.round(x)) // all kernels can read that
                };
                let (q, k) = (matrix(n_q, HEADS), matrix(n_k, kv_heads));
                let (v, d_output) = (matrix(n_k, kv_heads), matrix(n_q, HEADS));
                let mask = mask.with_scores(rule.clone());
                let inputs = Inputs::grouped(&q, &k, &v, mask, HEADS, kv_heads).unwrap();
                let expected = Tiled::default().forward(&inputs).unwrap();
                let within = |off: f32, given: &DMatrix<f32>, expected: &DMatrix<f32>| {
                    let size = expected.amax().max(1.0);
                    assert!(
                        (given - expected).amax() < off * size,
                        "{rule:?}, {kv_heads}"
                    );
                };
                for kernel in [NAIVE, TILED] {
                    let forward = gpu.forward(kernel, &inputs).unwrap();
                    within(1e-4, &forward.output, &expected.output);
                }
                let refused = gpu.forward(REGISTERS, &inputs).is_err();
                assert_eq!(refused, kv_heads < HEADS || !rule.is_none() || is_window);
                let right = (!has_table).then(|| {
                    let d_output = d_output.as_view();
                    Tiled::default().backward(&inputs, &expected, d_output).unwrap()
                });
                for program in kernels_of(gpu, is_backward) {
                    if !program.source().widths.contains(&d) {
                        continue;
                    }
                    let given = backward(gpu, program, &inputs, &expected, &d_output);
                    let Some(right) = &right else {
                        let words = given.unwrap_err().to_string();
                        assert!(words.contains("table of biases"), "{words}");
                        continue;
                    };
                    let given = given.unwrap();
                    let off = if Precision::of(program) == Precision::F32 {
                        1e-4
                    } else {
                        2e-2
                    };
                    within(off, &given.q, &right.q);
                    within(off, &given.k, &right.k);
                    within(off, &given.v, &right.v);
                }
            }
        }
    }
}
