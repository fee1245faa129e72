//! Several ranks, as threads, compute what one process does; and what goes wrong on one of them is an error on all.

use across::{
    Error, Layout, Local, Network, Result, Threads, Whole, by_keys, check, cost, decode,
    heads, ring,
};
use attention::engine::{ByWeights, Engine, Tiled};
use attention::flash::{FlashOutput, Inputs, Tiles};
use attention::{AttentionGradients, Mask, ScoreRule};
use nalgebra::{DMatrix, DMatrixView};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LAYOUTS: [Layout; 4] =
    [Layout::Contiguous, Layout::Zigzag, Layout::Striped, Layout::Tiles(4)];

// ------------------------------------------------------------------------------------------- results

fn all_cases(engine: &dyn Engine<f64>) {
    for ranks in 1..=8 {
        let results = Threads::run(ranks, |network| {
            let mut cases = 0;
            check::all(network, engine, |_, _| cases += 1)?;
            Ok(cases)
        });
        let results: Result<Vec<usize>> = results.into_iter().collect();
        let cases = results.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"));
        assert!(cases.iter().all(|&count| count > 100 && count == cases[0]), "{cases:?}");
    }
}

#[test]
fn tiles_to_be_read_compute_what_one_process_does() {
    all_cases(&Tiled(Tiles { queries: 5, keys: 3 }));
}

#[test]
fn the_fast_engine_computes_what_one_process_does() {
    all_cases(&fast::Flash::new());
}

fn wave(rows: usize, columns: usize) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |i, j| (1.3 * i as f64 + 0.7 * j as f64).sin())
}

fn local<T: across::Number>(x: &DMatrix<T>) -> Local<'_, T> {
    Local { q: x.as_view(), k: x.as_view(), v: x.as_view() }
}

/// A square problem of one head.
fn whole(n: usize, d: usize, mask: Mask, layout: Layout) -> Whole {
    Whole::new((n, n), (d, d), mask).with_layouts(layout, layout)
}

/// The outputs of all ranks, put together.
fn joined(n: usize, layout: Layout, parts: &[DMatrix<f64>]) -> DMatrix<f64> {
    let mut all = DMatrix::zeros(n, parts[0].ncols());
    for (rank, part) in parts.iter().enumerate() {
        for (i, row) in layout.rows(n, parts.len(), rank).into_iter().enumerate() {
            all.set_row(row, &part.row(i));
        }
    }
    all
}

fn run_by_keys(x: &DMatrix<f64>, tile: usize, ranks: usize) -> DMatrix<f64> {
    let (n, layout) = (x.nrows(), Layout::Tiles(tile));
    let whole = whole(n, x.ncols(), Mask::causal(), layout);
    let parts = Threads::run(ranks, |network| {
        let mine = x.select_rows(&layout.rows(n, ranks, network.rank()));
        by_keys::forward(network, &whole, &local(&mine)).unwrap().output
    });
    joined(n, layout, &parts)
}

fn run_ring(x: &DMatrix<f64>, layout: Layout, ranks: usize) -> DMatrix<f64> {
    let n = x.nrows();
    let whole = whole(n, x.ncols(), Mask::causal(), layout);
    let parts = Threads::run(ranks, |network| {
        let mine = x.select_rows(&layout.rows(n, ranks, network.rank()));
        ring::forward(network, &Tiled::default(), &whole, &local(&mine)).unwrap().output
    });
    joined(n, layout, &parts)
}

/// The order of the ring depends on the number of ranks, and the last digits with it; the fixed order does not.
#[test]
fn in_one_order_the_bits_are_the_same_for_any_number_of_ranks() {
    let x = wave(203, 12);
    let one = run_by_keys(&x, 16, 1);
    for ranks in 2..=9 {
        assert_eq!(run_by_keys(&x, 16, ranks), one, "{ranks} ranks");
    }
    assert_ne!(run_ring(&x, Layout::Tiles(16), 2), run_ring(&x, Layout::Tiles(16), 3));
}

#[test]
fn single_precision_has_its_digits() -> Result<()> {
    let (n, d, ranks) = (37, 8, 3);
    let x = wave(n, d).map(|x| x as f32);
    let (expected, _) = attention::attention(&x, &x, &x, Mask::causal())?;
    let whole = whole(n, d, Mask::causal(), Layout::Zigzag);
    for forward in Threads::run(ranks, |network| {
        let rows = Layout::Zigzag.rows(n, ranks, network.rank());
        let mine = x.select_rows(&rows);
        let forward = ring::forward(network, &fast::Flash::new(), &whole, &local(&mine))?;
        Ok::<_, Error>(forward.output - expected.select_rows(&rows))
    }) {
        assert!(forward?.iter().all(|off| off.abs() < 1e-6));
    }
    Ok(())
}

/// A score of 10⁷ has no digits after the point in `f32`, and its weight is decided there.
#[test]
fn large_scores_keep_their_weights() -> Result<()> {
    let q = DMatrix::from_element(1, 1, 3.0e3_f32);
    let k = DMatrix::from_fn(4, 1, |j, _| 3.0e3 + j as f32 * 2.0f32.powi(-11));
    let v = DMatrix::from_fn(4, 1, |j, _| j as f32);
    let inputs = Inputs::new(&q, &k, &v, Mask::none())?;
    let (one, engine) = (Tiled::default().forward(&inputs)?, Tiled::default());
    let expected =
        engine.backward(&inputs, &one, DMatrix::from_element(1, 1, 1.0).as_view())?;
    let whole = Whole::new((1, 4), (1, 1), Mask::none());
    let shares = Threads::run(2, |network| {
        let rank = network.rank();
        let q = q.select_rows(&Layout::Contiguous.rows(1, 2, rank));
        let (k, v) = (k.rows(2 * rank, 2), v.rows(2 * rank, 2));
        let local = Local { q: q.as_view(), k, v };
        let forward = ring::forward(network, &engine, &whole, &local)?;
        let grad = DMatrix::from_element(q.nrows(), 1, 1.0);
        ring::backward(network, &engine, &whole, &local, &forward, grad.as_view())
    });
    for (rank, share) in shares.into_iter().enumerate() {
        let expected = expected.v.rows(2 * rank, 2);
        assert!((share?.v - expected).iter().all(|off| off.abs() < 1e-4));
    }
    Ok(())
}

/// What the mask hides never reaches a result, even if it is NaN.
#[test]
fn what_is_hidden_may_be_anything() -> Result<()> {
    let (n, ranks) = (12, 3);
    let mut x = wave(n, 4);
    let clean = x.clone();
    x.row_mut(n - 1).fill(f64::NAN);
    for layout in LAYOUTS {
        let whole = whole(n, 4, Mask::causal(), layout);
        let outputs = [&clean, &x].map(|x| {
            let parts = Threads::run(ranks, |network| {
                let mine = x.select_rows(&layout.rows(n, ranks, network.rank()));
                ring::forward(network, &Tiled::default(), &whole, &local(&mine))
                    .unwrap()
                    .output
            });
            joined(n, layout, &parts)
        });
        assert_eq!(outputs[0].rows(0, n - 1), outputs[1].rows(0, n - 1), "{layout:?}");
        assert!(outputs[1].row(n - 1).iter().all(|x| x.is_nan()), "{layout:?}");
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------ layouts

#[test]
fn each_row_belongs_to_one_rank() {
    for layout in LAYOUTS {
        for (n, ranks) in [(1, 1), (1, 4), (7, 3), (8, 8), (23, 5), (64, 4), (5, 8)] {
            let of = |rank| layout.rows(n, ranks, rank);
            let mut all: Vec<_> = (0..ranks).flat_map(of).collect();
            for rank in 0..ranks {
                assert!(of(rank).is_sorted());
                assert_eq!(layout.count(n, ranks, rank), of(rank).len());
            }
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>(), "{layout:?}, {n} on {ranks}");
            let counts: Vec<_> = (0..ranks).map(|rank| of(rank).len()).collect();
            let (least, most) = (counts.iter().min(), counts.iter().max());
            let slack = match layout {
                Layout::Tiles(rows) => rows,
                Layout::Zigzag => 2, // of two pieces
                _ => 1,
            };
            assert!(
                most.unwrap() - least.unwrap() <= slack,
                "{layout:?}, {n} on {ranks}"
            );
        }
    }
}

#[test]
fn under_a_causal_mask_zigzag_and_stripes_are_even() -> Result<()> {
    let balance = |layout| -> Result<f64> {
        Ok(cost::balance(&cost::pairs(&whole(256, 4, Mask::causal(), layout), 8)?))
    };
    assert!(balance(Layout::Contiguous)? < 0.6);
    assert!(balance(Layout::Zigzag)? > 0.98);
    assert!(balance(Layout::Striped)? > 0.95);
    let dense = cost::pairs(&whole(256, 4, Mask::none(), Layout::Contiguous), 8)?;
    assert_eq!(cost::balance(&dense), 1.0);
    Ok(())
}

#[test]
fn the_model_takes_the_longer_of_two() -> Result<()> {
    let whole = whole(8, 4, Mask::none(), Layout::Contiguous);
    // Two ranks: two steps of 16 pairs; 4 keys and values of 4 numbers of 4 bytes go on during the first, 128 bytes.
    let compute = cost::Speeds { pair: 1.0, row: 0.0, latency: 0.0, bandwidth: 1e9 };
    assert_eq!(compute.ring_forward(&whole, 2, 4)?, 32.0);
    let exchange = cost::Speeds { pair: 1.0, row: 0.0, latency: 20.0, bandwidth: 4.0 };
    assert_eq!(exchange.ring_forward(&whole, 2, 4)?, (20.0 + 32.0) + 16.0);
    let rows = cost::Speeds { pair: 0.0, row: 1.0, ..compute };
    assert_eq!(rows.ring_forward(&whole, 2, 4)?, 8.0); // four queries at each step
    Ok(())
}

// --------------------------------------------------------------------------------- what is computed

/// Counts the pairs of queries and keys that an engine is handed, and those of masks that it can't skip through.
#[derive(Debug, Default)]
struct Counting {
    pairs: AtomicUsize,
    dense: AtomicUsize,
}

impl Engine<f64> for Counting {
    fn forward(&self, inputs: &Inputs<f64>) -> attention::Result<FlashOutput<f64>> {
        let (n_q, n_k) = inputs.lengths();
        self.pairs.fetch_add(n_q * n_k, Ordering::Relaxed);
        let head = inputs.head(0);
        let causal = Mask::causal().sized(n_q, n_k)?;
        let is_simple = (0..n_q).all(|i| (0..n_k).all(|j| head.mask.allows(i, j)))
            || head.mask.allowed_matrix() == causal.allowed_matrix();
        self.dense.fetch_add(usize::from(!is_simple), Ordering::Relaxed);
        Tiled::default().forward(inputs)
    }

    fn backward(
        &self,
        inputs: &Inputs<f64>,
        forward: &FlashOutput<f64>,
        grad_output: DMatrixView<f64>,
    ) -> attention::Result<AttentionGradients<f64>> {
        let (n_q, n_k) = inputs.lengths();
        self.pairs.fetch_add(n_q * n_k, Ordering::Relaxed);
        Tiled::default().backward(inputs, forward, grad_output)
    }
}

/// The pairs that the engines of all ranks are handed, forward and backward.
fn counted(n: usize, mask: Mask, layout: Layout, ranks: usize) -> [usize; 3] {
    let (x, whole) = (wave(n, 2), whole(n, 2, mask, layout));
    let (forward, backward) = (Counting::default(), Counting::default());
    Threads::run(ranks, |network| {
        let mine = x.select_rows(&layout.rows(n, ranks, network.rank()));
        let local = local(&mine);
        let output = ring::forward(network, &forward, &whole, &local).unwrap();
        let grad = mine.as_view();
        ring::backward(network, &backward, &whole, &local, &output, grad).unwrap();
    });
    [forward.pairs, backward.pairs, forward.dense].map(AtomicUsize::into_inner)
}

#[test]
fn blocks_in_which_nothing_is_seen_are_not_computed() -> Result<()> {
    let (n, ranks, piece) = (64, 4, 8); // a zigzag piece has 8 rows
    let blocks = |count: usize| count * piece * piece;
    let zigzag = |mask| counted(n, mask, Layout::Zigzag, ranks);
    assert_eq!(zigzag(Mask::none()), [n * n, n * n, 0]);
    assert_eq!(zigzag(Mask::causal()), [blocks(8 * 9 / 2), blocks(8 * 9 / 2), 0]);
    assert_eq!(zigzag(Mask::padding(&[false; 64])?), [0, 0, 0]);
    let documents: Vec<_> = (0..n).map(|i| i / 16).collect();
    assert_eq!(zigzag(Mask::documents(&documents)?), [blocks(16), blocks(16), 0]);
    // A window of 2 sees one key of the piece before: a block of one pair.
    assert_eq!(zigzag(Mask::window(2)?)[0], blocks(8) + 7);
    // Stripes are causal to one another, with or without the diagonal, which takes off a row and a column.
    let (rows, ranks) = (n / ranks, ranks);
    let with = ranks * (ranks + 1) / 2 * rows * rows;
    let without = ranks * (ranks - 1) / 2 * (rows - 1) * (rows - 1);
    let striped = counted(n, Mask::causal(), Layout::Striped, ranks);
    assert_eq!(striped, [with + without, with + without, 0]);
    Ok(())
}

// ------------------------------------------------------------------------------------------- errors

/// Runs ranks with a short deadline, and returns what each of them says; none may take long.
fn failing<R: Send>(
    ranks: usize,
    work: impl Fn(&mut Threads) -> Result<R> + Sync,
) -> Vec<String> {
    let start = Instant::now();
    let results = Threads::try_run(ranks, Duration::from_secs(2), work);
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    let said = |result: std::thread::Result<Result<R>>| match result {
        Ok(Ok(_)) => "no error".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "panic".to_owned(),
    };
    results.into_iter().map(said).collect()
}

fn small(network: &mut impl Network, mask: Mask, n: usize) -> Result<()> {
    let layout = Layout::Striped;
    let mine = wave(layout.count(n, network.ranks(), network.rank()), 3);
    let whole = whole(n, 3, mask, layout);
    ring::forward(network, &Tiled::default(), &whole, &local(&mine)).map(|_| ())
}

#[test]
fn a_rank_that_leaves_is_an_error_on_all_others() {
    for ranks in [2, 3, 5] {
        let said = failing(ranks, |network| match network.rank() {
            1 => Ok(()),
            _ => small(network, Mask::none(), 11),
        });
        for (rank, said) in said.iter().enumerate() {
            assert_eq!(said, if rank == 1 { "no error" } else { "rank 1 has left" });
        }
    }
    // In the middle, where only one neighbour waits for it.
    let said = failing(4, |network| {
        small(&mut Faulty::at(network, 2, Fault::Panic), Mask::none(), 11)
    });
    assert_eq!(said, ["rank 1 has left", "panic", "rank 1 has left", "rank 1 has left"]);
}

#[test]
fn a_rank_that_is_silent_is_an_error_on_all_in_time() {
    let said = failing(3, |network| {
        small(&mut Faulty::at(network, 2, Fault::Silence), Mask::none(), 11)
    });
    assert_eq!(said[2], "rank 1 sent nothing for 2s");
    assert!(said.iter().all(|said| said.contains("sent nothing for 2s")), "{said:?}");
}

#[test]
fn a_message_of_another_length_is_an_error_on_all() {
    // At the last exchange, too, when other ranks have all that they need.
    for exchange in [2, 3, 4] {
        let said = failing(4, |network| {
            small(&mut Faulty::at(network, exchange, Fault::Shorter), Mask::none(), 12)
        });
        for said in &said {
            assert!(
                said.starts_with("rank 1 sent 143 bytes where 144 were expected"),
                "{exchange}: {said}"
            );
        }
    }
}

#[test]
fn an_engine_that_fails_is_an_error_on_all() {
    let said = failing(3, |network| {
        let mine = wave(Layout::Contiguous.count(9, 3, network.rank()), 3);
        let (engine, whole) =
            (Tiled::default(), whole(9, 3, Mask::none(), Layout::Contiguous));
        let broken = Tiled(Tiles { queries: 0, keys: 1 });
        let engine = if network.rank() == 2 { broken } else { engine };
        ring::forward(network, &engine, &whole, &local(&mine))
    });
    let own = "`tiles.queries` is 0 but it must be at least 1";
    assert_eq!(said[2], own);
    assert_eq!(
        said[..2],
        [const { "rank 2 gave up: " }; 2].map(|start| start.to_owned() + own)
    );
}

#[test]
fn ranks_that_disagree_all_say_who_and_in_what() -> Result<()> {
    let base = || {
        let mask = Mask::causal().and(Mask::window(5).unwrap());
        Whole::new((12, 12), (2, 3), mask).with_heads(4, 2)
    };
    let wider = |widths| Whole { widths, ..base() };
    let cases = [
        (Whole { lengths: (13, 12), ..base() }, "n_q = 13 but rank 0 has 12"),
        (Whole { lengths: (12, 13), ..base() }, "n_k = 13 but rank 0 has 12"),
        (wider((3, 3)), "d_k = 3 but rank 0 has 2"),
        (wider((2, 4)), "d_v = 4 but rank 0 has 3"),
        (base().with_heads(6, 2), "n_heads = 6 but rank 0 has 4"),
        (base().with_heads(4, 1), "n_kv_heads = 1 but rank 0 has 2"),
        (
            base().with_layouts(Layout::Zigzag, Layout::Contiguous),
            "layout of queries = Zigzag but rank 0 has Contiguous",
        ),
        (
            base().with_layouts(Layout::Contiguous, Layout::Tiles(5)),
            "layout of keys = Tiles(5) but rank 0 has Contiguous",
        ),
        (Whole { mask: Mask::causal().and(Mask::window(4)?), ..base() }, "mask = 0x"),
    ];
    for (other, what) in cases {
        let said = failing(4, |network| {
            let whole = if network.rank() == 2 { other.clone() } else { base() };
            let (q, k, v) = whole.local_shapes(4, network.rank());
            let [q, k, v] = [q, k, v].map(|(rows, columns)| wave(rows, columns));
            let local = Local { q: q.as_view(), k: k.as_view(), v: v.as_view() };
            ring::forward(network, &Tiled::default(), &whole, &local)
        });
        for said in said {
            assert!(said.starts_with(&format!("rank 2 has {what}")), "{said}");
        }
    }
    // Two of them, of which the first is named; another operation; another type.
    let said =
        failing(4, |network| small(network, Mask::none(), 10 + network.rank() / 2));
    assert_eq!(said, ["rank 2 has n_q = 11 but rank 0 has 10"; 4]);
    let said = failing(2, |network| {
        let (mine, layout) = (wave(3, 2), Layout::Tiles(3));
        let whole = whole(6, 2, Mask::none(), layout);
        match network.rank() {
            0 => ring::forward(network, &Tiled::default(), &whole, &local(&mine)),
            _ => by_keys::forward(network, &whole, &local(&mine)),
        }
    });
    let what = "operation = by_keys::forward but rank 0 has ring::forward";
    assert_eq!(said, [format!("rank 1 has {what}"), format!("rank 1 has {what}")]);
    let said = failing(2, |network| {
        let whole = whole(6, 2, Mask::none(), Layout::Contiguous);
        if network.rank() == 0 {
            ring::forward(network, &Tiled::default(), &whole, &local(&wave(3, 2)))
                .map(|_| ())
        } else {
            let mine = DMatrix::from_element(3, 2, 0.5_f32);
            ring::forward(network, &Tiled::default(), &whole, &local(&mine)).map(|_| ())
        }
    });
    assert_eq!(said, ["rank 1 has type = f32 but rank 0 has f64"; 2]);
    // Decoding asks for the same queries.
    let said = failing(2, |network| {
        let (q, k) = (DMatrix::from_element(1, 2, network.rank() as f64), wave(3, 2));
        let local = Local { q: q.as_view(), k: k.as_view(), v: k.as_view() };
        let whole = Whole::new((1, 6), (2, 2), Mask::none());
        decode::forward(network, &Tiled::default(), &whole, &local)
    });
    assert!(said[0].starts_with("rank 1 has hash of queries = 0x"), "{}", said[0]);
    Ok(())
}

/// After they disagreed, ranks may go on: nothing was under way.
#[test]
fn after_a_disagreement_the_network_still_works() {
    let said = failing(3, |network| {
        let first = small(network, Mask::none(), 10 + network.rank());
        assert!(first.is_err());
        small(network, Mask::none(), 10)
    });
    assert_eq!(said, ["no error"; 3]);
}

#[test]
fn wrong_input_on_one_rank_is_an_error_on_all() {
    let said = failing(3, |network| {
        let mine = wave(if network.rank() == 1 { 4 } else { 3 }, 2);
        let whole = whole(9, 2, Mask::none(), Layout::Contiguous);
        ring::forward(network, &Tiled::default(), &whole, &local(&mine))
    });
    let others = "rank 1 was given wrong input, of which it returns the error";
    assert_eq!(said, [others, "`q` has 4 rows but rank 1 holds 3 x 2", others]);
}

#[test]
fn what_is_not_possible_says_why() -> Result<()> {
    let scores = Mask::causal().with_scores(ScoreRule::alibi(4)?);
    let dense = Mask::dense(DMatrix::from_element(3, 3, true))?;
    let square = |mask| whole(8, 2, mask, Layout::Contiguous);
    let three = |whole: Whole| Whole { heads: (3, 3), ..whole };
    let cases: [(Whole, &str); 6] = [
        (
            square(scores),
            "`mask` is one with a rule for scores but over several ranks only masks without one are known",
        ),
        (square(dense), "`allowed` has 3 rows but the score matrix is 8 x 8"),
        (
            Whole { heads: (4, 3), ..square(Mask::none()) },
            "`n_kv_heads` is 3 but it must divide n_heads = 4",
        ),
        (
            Whole { heads: (0, 1), ..square(Mask::none()) },
            "`n_heads` is 0 but it must be at least 1",
        ),
        (
            whole(8, 2, Mask::none(), Layout::Tiles(0)),
            "`tile` is 0 but it must be at least 1",
        ),
        (
            whole(0, 2, Mask::none(), Layout::Striped),
            "`n_q` is 0 but it must be at least 1",
        ),
    ];
    for (whole, expected) in cases {
        let said = failing(2, |network| {
            ring::forward(network, &Tiled::default(), &whole, &local(&wave(4, 2)))
        });
        assert_eq!(said, [expected; 2]);
    }
    let said = failing(2, |network| {
        let whole = three(square(Mask::none()));
        heads::forward(network, &Tiled::default(), &whole, &local(&wave(4, 6)))
            .map(|_| ())
    });
    assert_eq!(said, ["`ranks` is 2 but it must divide n_kv_heads = 3"; 2]);
    let said = failing(2, |network| {
        by_keys::forward(network, &square(Mask::none()), &local(&wave(4, 2)))
    });
    let expected = "`layouts` is (Contiguous, Contiguous) but one fixed order needs Layout::Tiles for queries and keys";
    assert_eq!(said, [expected; 2]);
    // An engine that would take the weights of the block for those of the whole doesn't.
    let said = failing(2, |network| {
        let (whole, mine) = (square(Mask::none()), wave(4, 2));
        let forward = ring::forward(network, &ByWeights, &whole, &local(&mine))?;
        ring::backward(
            network,
            &ByWeights,
            &whole,
            &local(&mine),
            &forward,
            mine.as_view(),
        )
    });
    assert!(said[0].contains("`forward.weights` has 0 entries"), "{}", said[0]);
    Ok(())
}

/// What rank 1 does wrong at one of its exchanges, of which the first compares headers.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Shorter,
    Panic,
    Silence,
}

struct Faulty<'a> {
    network: &'a mut Threads,
    exchange: usize,
    fault: Fault,
}

impl<'a> Faulty<'a> {
    fn at(network: &'a mut Threads, exchange: usize, fault: Fault) -> Self {
        Faulty { network, exchange, fault }
    }
}

impl Network for Faulty<'_> {
    fn rank(&self) -> usize {
        self.network.rank()
    }

    fn ranks(&self) -> usize {
        self.network.ranks()
    }

    fn sent(&self) -> u64 {
        self.network.sent()
    }

    fn exchange<R: Send>(
        &mut self,
        outgoing: &[(usize, &[u8])],
        incoming: &mut [(usize, &mut [u8])],
        meanwhile: impl FnOnce() -> R + Send,
    ) -> Result<R> {
        self.exchange = self.exchange.saturating_sub(1);
        if self.rank() != 1 || self.exchange > 0 || outgoing.is_empty() {
            return self.network.exchange(outgoing, incoming, meanwhile);
        }
        self.exchange = usize::MAX; // once
        match self.fault {
            Fault::Panic => panic!("provoked"),
            Fault::Silence => {
                std::thread::sleep(Duration::from_secs(3));
                self.network.exchange(outgoing, incoming, meanwhile)
            }
            Fault::Shorter => {
                let all: Vec<_> =
                    outgoing.iter().map(|&(to, bytes)| (to, &bytes[1..])).collect();
                self.network.exchange(&all, incoming, meanwhile)
            }
        }
    }

    fn give_up(&mut self, error: &Error) {
        self.network.give_up(error);
    }
}
