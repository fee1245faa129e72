//! Cases in which several ranks have to compute what one does, for any [`Network`].

use crate::error::{Result, blamed};
use crate::network::Network;
use crate::{Layout, Local, Whole, by_keys, cost, decode, heads, ring};
use attention::engine::{ByWeights, Engine, Tiled};
use attention::flash::{FlashOutput, Inputs, Tiles};
use attention::{AttentionGradients, Mask};
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// How far a result may be from that of one process.
pub const TOLERANCE: f64 = 1e-12;

/// Runs all cases with this engine, on all ranks at once, and calls `report` with the name of each and the largest difference on any rank.
///
/// Each case computes a random problem, the same on all ranks, with all ranks together and with [`ByWeights`] in one process. The bytes that
/// were sent have to be those that [`cost`] says.
///
/// # Errors
/// The network fails; or a rank is off by more than [`TOLERANCE`], or has sent another number of bytes.
pub fn all<N: Network>(
    network: &mut N,
    engine: &dyn Engine<f64>,
    mut report: impl FnMut(&str, f64),
) -> Result<()> {
    type Operation<N> = fn(&Problem, &mut Run<N>) -> Outcome;
    let operations: [(&str, Operation<N>); 4] = [
        ("ring", in_ring),
        ("by_keys", in_order),
        ("heads", by_heads),
        ("decode", decoded),
    ];
    let mut seed = 0;
    for mask in 0..MASKS.len() {
        for layouts in LAYOUTS {
            seed += 1;
            let mut problem = Problem::random(seed, mask, network.ranks())?;
            problem.whole = problem.whole.with_layouts(layouts.0, layouts.1);
            for (operation, run) in operations {
                let before = network.sent();
                let outcome = run(&problem, &mut Run { network, engine })?;
                let sent = network.sent() - before;
                let Some((difference, bytes)) = outcome else { continue };
                let name = format!("{operation}, {}", problem.name());
                judge(network, &name, difference, (sent, bytes), &mut report)?;
            }
        }
    }
    Ok(())
}

const LAYOUTS: [(Layout, Layout); 5] = [
    (Layout::Contiguous, Layout::Contiguous),
    (Layout::Zigzag, Layout::Zigzag),
    (Layout::Striped, Layout::Striped),
    (Layout::Tiles(3), Layout::Tiles(2)),
    (Layout::Striped, Layout::Zigzag),
];

/// Each rank hears what all found, so that all stop at the same case.
fn judge<N: Network>(
    network: &mut N,
    name: &str,
    difference: f64,
    (sent, expected): (u64, u64),
    report: &mut impl FnMut(&str, f64),
) -> Result<()> {
    let mine = [difference, sent as f64, expected as f64];
    let all = network.gather(bytemuck::cast_slice(&mine))?;
    let mut worst = 0.0_f64;
    for (rank, bytes) in all.iter().enumerate() {
        let numbers: Vec<f64> =
            bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect();
        let [difference, sent, expected] = [numbers[0], numbers[1], numbers[2]];
        if difference.is_nan() || difference > TOLERANCE {
            return Err(blamed(rank, format!("is off by {difference:e} in {name}")));
        }
        if sent != expected {
            let what = format!("sent {sent} bytes, not {expected}, in {name}");
            return Err(blamed(rank, what));
        }
        worst = worst.max(difference);
    }
    report(name, worst);
    Ok(())
}

/// A network and an engine.
struct Run<'a, N: Network> {
    network: &'a mut N,
    engine: &'a dyn Engine<f64>,
}

/// The largest difference and the bytes that should have been sent; nothing, if the case is none for this operation.
type Outcome = Result<Option<(f64, u64)>>;

fn in_ring<N: Network>(problem: &Problem, run: &mut Run<N>) -> Outcome {
    let (rank, ranks) = (run.network.rank(), run.network.ranks());
    let (whole, mine) = (&problem.whole, problem.of_rank(ranks, rank));
    let local = mine.local();
    let forward = ring::forward(run.network, run.engine, whole, &local)?;
    let again = ring::forward(run.network, run.engine, whole, &local)?;
    let grad_output = mine.grad_output.as_view();
    let gradients =
        ring::backward(run.network, run.engine, whole, &local, &forward, grad_output)?;
    let difference = problem.difference(&mine, Some(&forward.output), Some(&gradients));
    let of_lse = largest(&forward.log_sum_exp, &mine.log_sum_exp);
    let difference = larger(difference, larger(of_lse, same_bits(&forward, &again)));
    let bytes = 2 * cost::ring_forward(whole, ranks, rank, size_of::<f64>());
    let backward = cost::ring_backward(whole, ranks, rank, size_of::<f64>());
    Ok(Some((difference, bytes + backward)))
}

fn in_order<N: Network>(problem: &Problem, run: &mut Run<N>) -> Outcome {
    let (rank, ranks) = (run.network.rank(), run.network.ranks());
    let (whole, mine) = (&problem.whole, problem.of_rank(ranks, rank));
    let (Layout::Tiles(queries), Layout::Tiles(keys)) = whole.layouts else {
        return Ok(None);
    };
    let forward = by_keys::forward(run.network, whole, &mine.local())?;
    // The bits of one process, which knows nothing of ranks.
    let in_one = Tiled(Tiles { queries, keys }).forward(&problem.inputs()?)?;
    let in_one = FlashOutput {
        output: in_one.output.select_rows(&mine.queries),
        log_sum_exp: in_one.log_sum_exp.select_rows(&mine.queries),
        log_sum_exp_low: in_one.log_sum_exp_low.select_rows(&mine.queries),
        weights: vec![],
    };
    let difference = problem.difference(&mine, Some(&forward.output), None);
    let bytes = cost::by_keys_forward(whole, ranks, rank, size_of::<f64>());
    Ok(Some((larger(difference, same_bits(&forward, &in_one)), bytes)))
}

fn by_heads<N: Network>(problem: &Problem, run: &mut Run<N>) -> Outcome {
    let (rank, ranks) = (run.network.rank(), run.network.ranks());
    let (whole, mine) = (&problem.whole, problem.of_rank(ranks, rank));
    if !whole.heads.1.is_multiple_of(ranks) {
        return Ok(None);
    }
    let (output, kept) = heads::forward(run.network, run.engine, whole, &mine.local())?;
    let grad_output = mine.grad_output.as_view();
    let gradients = heads::backward(run.network, run.engine, whole, &kept, grad_output)?;
    let difference = problem.difference(&mine, Some(&output), Some(&gradients));
    let size = size_of::<f64>();
    let bytes = cost::heads_forward(whole, ranks, rank, size)
        + cost::heads_backward(whole, ranks, rank, size);
    Ok(Some((difference, bytes)))
}

fn decoded<N: Network>(problem: &Problem, run: &mut Run<N>) -> Outcome {
    let (rank, ranks) = (run.network.rank(), run.network.ranks());
    let (whole, mine) = (&problem.whole, problem.of_rank(ranks, rank));
    let local = Local { q: problem.q.as_view(), ..mine.local() };
    let forward = decode::forward(run.network, run.engine, whole, &local)?;
    let of_output = largest(&forward.output, &problem.forward.output);
    let of_lse = largest(&forward.log_sum_exp, &problem.forward.log_sum_exp);
    let bytes = cost::decode_forward(whole, ranks, size_of::<f64>());
    Ok(Some((larger(of_output, of_lse), bytes)))
}

type MakeMask = fn(usize, usize, &mut ChaCha8Rng) -> attention::Result<Mask>;

/// The masks of the cases, over so many queries and keys.
const MASKS: [(&str, MakeMask); 10] = [
    ("none", |_, _, _| Ok(Mask::none())),
    ("causal", |_, _, _| Ok(Mask::causal())),
    ("window", |_, _, rng| Mask::window(rng.random_range(1..9))),
    ("window and sinks", |_, _, rng| Mask::window_with_sinks(rng.random_range(1..5), 2)),
    ("padding", |_, n_k, rng| Mask::padding(&random_bools(n_k, rng))),
    ("documents", |_, n_k, rng| {
        let ids: Vec<_> =
            (0..n_k).map(|j| 3 * j / n_k + rng.random_range(0..2)).collect();
        Ok(Mask::documents(&ids)?.and(Mask::causal()))
    }),
    ("dense", |n_q, n_k, rng| {
        Mask::dense(DMatrix::from_vec(n_q, n_k, random_bools(n_q * n_k, rng)))
    }),
    ("blocks", |n_q, n_k, rng| {
        let (rows, columns) = (n_q.div_ceil(4), n_k.div_ceil(4));
        let allowed = random_bools(rows * columns, rng);
        Mask::blocks(4, DMatrix::from_vec(rows, columns, allowed))
    }),
    ("causal and padding", |_, n_k, rng| {
        Ok(Mask::causal().and(Mask::padding(&random_bools(n_k, rng))?))
    }),
    ("all hidden", |_, n_k, _| Mask::padding(&vec![false; n_k])),
];

fn random_bools(len: usize, rng: &mut ChaCha8Rng) -> Vec<bool> {
    (0..len).map(|_| rng.random_bool(0.5)).collect()
}

/// A problem, and what one process says of it.
struct Problem {
    whole: Whole,
    mask: &'static str,
    q: DMatrix<f64>,
    k: DMatrix<f64>,
    v: DMatrix<f64>,
    grad_output: DMatrix<f64>,
    forward: FlashOutput<f64>,
    gradients: AttentionGradients<f64>,
}

impl Problem {
    fn random(seed: u64, mask: usize, ranks: usize) -> Result<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let n_k = rng.random_range(1..40);
        let n_q = if rng.random_bool(0.5) { n_k } else { rng.random_range(1..40) };
        let widths = (rng.random_range(1..6), rng.random_range(1..6));
        let heads = [(1, 1), (4, 2), (3, 1), (ranks, ranks), (2 * ranks, ranks)];
        let heads = heads[rng.random_range(0..heads.len())];
        let (name, mask) = (MASKS[mask].0, MASKS[mask].1(n_q, n_k, &mut rng)?);
        let whole = Whole::new((n_q, n_k), widths, mask).with_heads(heads.0, heads.1);
        let mut random = |rows, columns| {
            DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-2.0..2.0))
        };
        let [q, k, v, output] = whole.columns();
        let (q, k, v) = (random(n_q, q), random(n_k, k), random(n_k, v));
        let grad_output = random(n_q, output);
        let inputs = Inputs::grouped(&q, &k, &v, &whole.mask, heads.0, heads.1)?;
        let forward = ByWeights.forward(&inputs)?;
        let gradients = ByWeights.backward(&inputs, &forward, grad_output.as_view())?;
        Ok(Problem { whole, mask: name, q, k, v, grad_output, forward, gradients })
    }

    fn name(&self) -> String {
        let Whole { lengths: (n_q, n_k), heads: (n_heads, n_kv_heads), layouts, .. } =
            &self.whole;
        format!(
            "{}, {n_q} x {n_k}, {n_heads} on {n_kv_heads} heads, {layouts:?}",
            self.mask
        )
    }

    fn inputs(&self) -> Result<Inputs<'_, f64>> {
        let Whole { mask, heads: (n_heads, n_kv_heads), .. } = &self.whole;
        Ok(Inputs::grouped(&self.q, &self.k, &self.v, mask, *n_heads, *n_kv_heads)?)
    }

    fn of_rank(&self, ranks: usize, rank: usize) -> OfRank {
        let Whole { lengths: (n_q, n_k), layouts, .. } = &self.whole;
        let queries = layouts.0.rows(*n_q, ranks, rank);
        let keys = layouts.1.rows(*n_k, ranks, rank);
        OfRank {
            q: self.q.select_rows(&queries),
            k: self.k.select_rows(&keys),
            v: self.v.select_rows(&keys),
            grad_output: self.grad_output.select_rows(&queries),
            log_sum_exp: self.forward.log_sum_exp.select_rows(&queries),
            queries,
            keys,
        }
    }

    /// The largest difference of a rank's rows from those of one process.
    fn difference(
        &self,
        mine: &OfRank,
        output: Option<&DMatrix<f64>>,
        gradients: Option<&AttentionGradients<f64>>,
    ) -> f64 {
        let mut pairs = vec![];
        pairs.extend(output.map(|output| (output, &self.forward.output, &mine.queries)));
        if let Some(AttentionGradients { q, k, v, .. }) = gradients {
            pairs.push((q, &self.gradients.q, &mine.queries));
            pairs.push((k, &self.gradients.k, &mine.keys));
            pairs.push((v, &self.gradients.v, &mine.keys));
        }
        let of =
            |(given, expected, rows): (&DMatrix<f64>, &DMatrix<f64>, &Vec<usize>)| {
                largest(given, &expected.select_rows(rows))
            };
        pairs.into_iter().map(of).fold(0.0, larger)
    }
}

/// What one rank holds of a problem, and what its log-sum-exp should be.
struct OfRank {
    queries: Vec<usize>,
    keys: Vec<usize>,
    q: DMatrix<f64>,
    k: DMatrix<f64>,
    v: DMatrix<f64>,
    grad_output: DMatrix<f64>,
    log_sum_exp: DMatrix<f64>,
}

impl OfRank {
    fn local(&self) -> Local<'_, f64> {
        Local { q: self.q.as_view(), k: self.k.as_view(), v: self.v.as_view() }
    }
}

/// The largest difference of two entries. Equal infinities differ by nothing, and other shapes by everything.
fn largest(given: &DMatrix<f64>, expected: &DMatrix<f64>) -> f64 {
    if given.shape() != expected.shape() {
        return f64::INFINITY;
    }
    let differ = |(a, b): (&f64, &f64)| if a == b { 0.0 } else { (a - b).abs() };
    given.iter().zip(expected.iter()).map(differ).fold(0.0, larger)
}

/// The larger of two; NaN, if one of them is.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// 0 if all bits are the same, else infinity.
fn same_bits(a: &FlashOutput<f64>, b: &FlashOutput<f64>) -> f64 {
    let bits = |part: &DMatrix<f64>| part.map(f64::to_bits);
    let parts =
        |x: &FlashOutput<f64>| [&x.output, &x.log_sum_exp, &x.log_sum_exp_low].map(bits);
    if parts(a) == parts(b) { 0.0 } else { f64::INFINITY }
}
