//! The GPU's kernels on a CPU: the same sources, one fiber for each CUDA thread, against the naive attention of the crate.
//!
//! What is right here can still be slow on a GPU, and races between blocks are not seen, for blocks run one after the other.

use attention::cuda::{NAIVE, Program, TILED, Variant};
use attention::engine::{Engine as _, Tiled};
use attention::flash::Inputs;
use attention::{Mask, ScoreRule, score_rule::DistanceBuckets};
use gpu::on_cpu::{self, Choices, Data, Failure, OnCpu, Sizes, Watch, barriers, bound};
use gpu::{
    ALL, BACKWARD, BACKWARD_HOPPER, DECODE, HOPPER, HOPPER_PERSISTENT, Precision,
    REGISTERS, TENSOR_CORES, tiles,
};
use nalgebra::DMatrix;
use rand::{RngExt as _, SeedableRng, rngs::ChaCha8Rng};

/// Numbers between −1 and 1, the same for the same seed.
fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| rng.random_range(-1.0..1.0))
}

const PLAIN: Choices = Choices { seed: 0, missing_barrier: 0 };

fn check(data: &Data, on_cpu: &OnCpu, program: Program, causal: bool, choices: Choices) {
    let what = format!(
        "{program:?}, d = {}, causal: {causal}, {:?}, {choices:?}",
        data.d, data.sizes
    );
    let errors = match data.errors(on_cpu, program, causal, choices) {
        Ok(errors) => errors,
        Err(failure) => panic!("{what}: {failure}"),
    };
    for error in errors {
        assert!(error < bound(program), "{what}: off by {error:e}");
    }
}

const fn sizes(heads: usize, n_q: usize, n_k: usize) -> Sizes {
    Sizes { heads, n_q, n_k }
}

/// Every width, full and causal, lengths around the tiles' edges and far from them, in several orders of the threads.
fn agrees(program: Program) {
    if !on_cpu::here() {
        return;
    }
    const LENGTHS: [Sizes; 8] = [
        sizes(1, 1, 1),
        sizes(2, 33, 33),
        sizes(1, 64, 64),
        sizes(1, 65, 130),
        sizes(1, 5, 200),  // fewer queries than keys
        sizes(2, 100, 37), // more of them: with a causal mask, some see nothing
        sizes(1, 129, 1),
        sizes(1, 130, 257),
    ];
    for &d in program.source().widths {
        for causal in [false, true] {
            let on_cpu = OnCpu::compile(program, d, causal, Watch::Nothing).unwrap();
            for sizes in LENGTHS {
                let data = Data::new(sizes, d, Precision::of(program));
                for seed in [0, 7] {
                    check(&data, &on_cpu, program, causal, Choices { seed, ..PLAIN });
                }
            }
        }
    }
}

/// Several splits of the keys, of which some end within a page, and causal queries that see less than all splits.
#[test]
fn splits_are_merged() {
    if !on_cpu::here() {
        return;
    }
    // The last one has more splits than the warps of the merge ask for at once.
    const LENGTHS: [Sizes; 5] = [
        sizes(2, 1, 1500),
        sizes(1, 3, 1025),
        sizes(1, 40, 530),
        sizes(1, 540, 513),
        sizes(1, 1, 66_000),
    ];
    for causal in [false, true] {
        let on_cpu = OnCpu::compile(DECODE, 64, causal, Watch::Addresses).unwrap();
        for sizes in LENGTHS {
            let data = Data::new(sizes, 64, Precision::Bf16);
            check(&data, &on_cpu, DECODE, causal, PLAIN);
        }
    }
}

/// Texts of several lengths, each with two heads that share its keys, and the same of each text alone.
#[test]
fn texts_of_other_lengths_are_decoded_together() {
    if !on_cpu::here() {
        return;
    }
    const D: usize = 64;
    const N_K: usize = 1030;
    let variant = Variant { causal: true, group: 2, rule: None, mask: None };
    let on_cpu = OnCpu::compile(DECODE, D, variant, Watch::Addresses).unwrap();
    let lengths = [700, N_K, 1, 512, 0];
    let number = |seed: u64, n: usize| {
        let matrix = random(n, D, seed).map(|x| 2.0 * x as f32);
        heads_first(&matrix, 1)
    };
    let (q, k, v) = (
        number(0, 10 * 3),
        number(1, lengths.len() * N_K),
        number(2, lengths.len() * N_K),
    );
    let together = sizes(10, 3, N_K);
    let (output, lse) =
        on_cpu.forward_of_texts(together, [&q, &k, &v], &lengths, PLAIN).unwrap();
    for (text, n_k) in lengths.into_iter().enumerate() {
        let queries = |tensor: &[f32], width: usize| {
            tensor[text * 6 * width..(text + 1) * 6 * width].to_vec()
        };
        if n_k == 0 {
            assert_eq!(queries(&output, D), vec![0.0; 6 * D]);
            assert_eq!(queries(&lse, 1), [f32::NEG_INFINITY; 6]);
            continue;
        }
        let keys = |tensor: &[f32]| tensor[text * N_K * D..][..n_k * D].to_vec();
        let own = [queries(&q, D), keys(&k), keys(&v)];
        let own = [0, 1, 2].map(|part| &own[part][..]);
        let (alone, own_lse) = on_cpu.forward(sizes(2, 3, n_k), own, PLAIN).unwrap();
        assert_eq!(alone, queries(&output, D), "text {text}");
        assert_eq!(own_lse, queries(&lse, 1), "text {text}");
    }
}

/// A query gets the same bits alone as among others, and whatever comes after it: pages and splits are cut by the place of a key.
#[test]
fn decoding_keeps_the_bits_of_a_row() {
    if !on_cpu::here() {
        return;
    }
    const D: usize = 64;
    let on_cpu = OnCpu::compile(DECODE, D, true, Watch::Nothing).unwrap();
    let (n_q, n_k) = (30, 1040);
    let number = |seed: u64, n| random(n, D, seed).map(|x| 2.0 * x as f32);
    let [q, k, v] =
        [(0, n_q), (1, n_k), (2, n_k)].map(|(seed, n)| heads_first(&number(seed, n), 1));
    let (together, lse) =
        on_cpu.forward(sizes(1, n_q, n_k), [&q, &k, &v], PLAIN).unwrap();
    for (i, lse) in lse.into_iter().enumerate() {
        let seen = n_k - n_q + i + 1;
        let rows = |tensor: &[f32], first: usize, n: usize| {
            tensor[first * D..(first + n) * D].to_vec()
        };
        let own = [rows(&q, i, 1), rows(&k, 0, seen), rows(&v, 0, seen)];
        let own = [0, 1, 2].map(|part| &own[part][..]);
        let (alone, own_lse) = on_cpu.forward(sizes(1, 1, seen), own, PLAIN).unwrap();
        assert_eq!(alone, rows(&together, i, 1), "query {i}");
        assert_eq!(own_lse, [lse], "query {i}");
    }
}

/// No thread reads what another one of the block writes without a barrier between, and each barrier is there for that.
fn has_no_races(program: Program) {
    if !on_cpu::here() {
        return;
    }
    let d = 64;
    // Several tiles; and, with a causal mask, blocks that see no key and so take a way of their own.
    let data = [sizes(1, 70, 150), sizes(1, 200, 20)]
        .map(|sizes| Data::new(sizes, d, Precision::of(program)));
    let on_cpu = [false, true].map(|causal| {
        (causal, OnCpu::compile(program, d, causal, Watch::Races).unwrap())
    });
    for (causal, on_cpu) in &on_cpu {
        data.iter().for_each(|data| check(data, on_cpu, program, *causal, PLAIN));
    }
    for missing_barrier in barriers(program) {
        let choices = Choices { missing_barrier, ..PLAIN };
        let races = on_cpu.iter().any(|(causal, on_cpu)| {
            data.iter().any(|data| {
                let failure = data.errors(on_cpu, program, *causal, choices).err();
                failure.is_some_and(|failure| matches!(failure, Failure::Race(_)))
            })
        });
        assert!(
            races,
            "{program:?} is not missing the barrier in line {missing_barrier}"
        );
    }
}

/// No thread reads or writes past the end of a tensor, of the shared memory that was asked for, or of an array.
fn stays_in_its_place(program: Program) {
    if !on_cpu::here() {
        return;
    }
    for &d in program.source().widths {
        for causal in [false, true] {
            let on_cpu = OnCpu::compile(program, d, causal, Watch::Addresses).unwrap();
            for sizes in [sizes(1, 1, 1), sizes(2, 37, 70), sizes(1, 70, 37)] {
                let data = Data::new(sizes, d, Precision::of(program));
                check(&data, &on_cpu, program, causal, PLAIN);
            }
        }
    }
}

macro_rules! on_cpu {
    ($($name:ident: $program:expr;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn agrees() {
                super::agrees($program);
            }

            #[test]
            fn has_no_races() {
                super::has_no_races($program);
            }

            #[test]
            fn stays_in_its_place() {
                super::stays_in_its_place($program);
            }
        })*

        #[test]
        fn every_program_is_tested() {
            let tested = [$($program),*];
            assert!(ALL.iter().all(|program| tested.contains(program)));
        }
    };
}

on_cpu! {
    naive: NAIVE;
    tiled: TILED;
    registers: REGISTERS;
    tensor_cores: TENSOR_CORES;
    hopper: HOPPER;
    hopper_persistent: HOPPER_PERSISTENT;
    backward: BACKWARD;
    decode: DECODE;
    backward_hopper: BACKWARD_HOPPER;
}

/// From (n, heads · d) to (heads, n, d), by rows.
fn heads_first(matrix: &DMatrix<f32>, heads: usize) -> Vec<f32> {
    let d = matrix.ncols() / heads;
    let head = |h| matrix.columns(h * d, d).transpose().as_slice().to_vec();
    (0..heads).flat_map(head).collect()
}

/// Two heads or more, queries and keys by tokens, and what a kernel is told of them.
struct Problem {
    q: DMatrix<f32>,
    k: DMatrix<f32>,
    v: DMatrix<f32>,
    d_output: DMatrix<f32>,
    mask: Mask,
    heads: usize,
    kv_heads: usize,
}

impl Problem {
    const D: usize = 64;

    /// Numbers that all kernels can read. Scores grow with `size`.
    fn new(
        mask: Mask,
        (heads, kv_heads): (usize, usize),
        (n_q, n_k): (usize, usize),
        size: f64,
    ) -> Self {
        let matrix = |n: usize, heads: usize, seed: u64, size: f64| {
            let bf16 = |x: f64| Precision::Bf16.round((size * x) as f32);
            random(n, heads * Self::D, seed).map(bf16)
        };
        let (q, k) = (matrix(n_q, heads, 0, size), matrix(n_k, kv_heads, 1, size));
        let (v, d_output) = (matrix(n_k, kv_heads, 2, 1.0), matrix(n_q, heads, 3, 1.0));
        Problem { q, k, v, d_output, mask, heads, kv_heads }
    }

    /// The kernels give what the crate's flash attention does, though the first `unseen` keys are no numbers for them.
    fn check(&self, forward_kernels: &[Program], unseen: usize, off_in_bf16: f32) {
        let Problem { q, k, v, d_output, mask, heads, kv_heads } = self;
        let inputs = Inputs::grouped(q, k, v, mask.clone(), *heads, *kv_heads).unwrap();
        let forward = Tiled::default().forward(&inputs).unwrap();
        let gradients =
            Tiled::default().backward(&inputs, &forward, d_output.as_view()).unwrap();
        let variant = Variant::of(&inputs).unwrap();
        let sizes = sizes(*heads, q.nrows(), k.nrows());
        let what = format!("{mask:?}, {kv_heads} key-value heads, {sizes:?}");
        let within = |off: f32, name: &str, given: &[f32], expected: &[f32]| {
            let size = expected.iter().fold(1.0_f32, |most, x| most.max(x.abs()));
            assert_eq!(given.len(), expected.len(), "{name}, {what}");
            for (x, y) in given.iter().zip(expected) {
                assert!((x - y).abs() < off * size, "{name}, {what}: {x}, not {y}");
            }
        };
        let hide = |matrix: &DMatrix<f32>| {
            let mut matrix = matrix.clone();
            matrix.rows_mut(0, unseen).fill(f32::NAN);
            heads_first(&matrix, *kv_heads)
        };
        let [k, v] = [k, v].map(hide);
        let [q, d_output, output] =
            [q, d_output, &forward.output].map(|matrix| heads_first(matrix, *heads));
        let on_cpu = |program: Program| {
            OnCpu::compile(program, Self::D, variant.clone(), Watch::Addresses).unwrap()
        };
        for &program in forward_kernels {
            let answer = on_cpu(program).forward(sizes, [&q, &k, &v], PLAIN);
            let (given, lse) =
                answer.unwrap_or_else(|failure| panic!("{what}: {failure}"));
            // Weights in bf16 are off by up to 2⁻⁹, and so is an output.
            let off = match Precision::of(program) {
                Precision::Bf16 => 1e-2,
                Precision::F32 => 3e-5,
            };
            within(off, "output", &given, &output);
            for (x, y) in lse.iter().zip(forward.log_sum_exp.iter()) {
                assert!(x == y || (x - y).abs() < 1e-5, "{what}: {x}, not {y}");
            }
        }
        for (program, off) in [(BACKWARD, 3e-5), (BACKWARD_HOPPER, off_in_bf16)] {
            let lse = forward.log_sum_exp.as_slice();
            let arguments = [&q[..], &k, &v, &output, &d_output, lse];
            let answer = on_cpu(program).backward(sizes, arguments, PLAIN);
            let [d_q, d_k, d_v] =
                answer.unwrap_or_else(|failure| panic!("{program}, {what}: {failure}"));
            within(off, "dQ", &d_q, &heads_first(&gradients.q, *heads));
            within(off, "dK", &d_k, &heads_first(&gradients.k, *kv_heads));
            within(off, "dV", &d_v, &heads_first(&gradients.v, *kv_heads));
        }
    }
}

/// Rules for scores, one after another, and heads that share keys.
#[test]
fn rules_and_shared_keys_agree() {
    if !on_cpu::here() {
        return;
    }
    const HEADS: usize = 4;
    let biases =
        DMatrix::from_fn(32, HEADS, |bucket, h| (bucket as f32 + h as f32).sin());
    let buckets = DistanceBuckets::t5(32, 40).unwrap();
    let cap = ScoreRule::soft_cap(2.0).unwrap();
    let alibi = ScoreRule::alibi(HEADS).unwrap();
    let table = ScoreRule::table(&biases, buckets).unwrap();
    let (none, causal) = (Mask::none, Mask::causal);
    for (mask, rule, kv_heads, lengths) in [
        (causal(), ScoreRule::none(), 1, (70, 70)),
        (causal(), cap.clone().then(alibi.clone()), 2, (5, 90)),
        (none(), alibi.then(table.clone()).then(cap), 4, (40, 65)),
        (causal(), table, 2, (70, 33)),
    ] {
        let problem =
            Problem::new(mask.with_scores(rule), (HEADS, kv_heads), lengths, 2.0);
        problem.check(&[NAIVE, TILED, HOPPER, DECODE], 0, 2e-2);
    }
}

/// Windows, sinks and documents. Keys before the first one that any query sees are not even loaded.
#[test]
fn masks_agree() {
    if !on_cpu::here() {
        return;
    }
    let document = |j: usize| usize::from(j >= 130) + usize::from(j >= 470);
    let documents: Vec<_> = (0..600).map(document).collect();
    let documents = || Mask::documents(&documents).unwrap().and(Mask::causal());
    let window = |width, sinks| Mask::window_with_sinks(width, sinks).unwrap();
    for (mask, kv_heads, lengths) in [
        (window(100, 0), 2, (600, 600)),
        (window(90, 5), 1, (600, 600)),
        (window(70, 0), 1, (90, 600)), // no query sees the first keys
        (documents(), 1, (600, 600)),
        (documents().and(window(150, 0)), 2, (600, 600)),
        (window(40, 0), 2, (300, 100)), // most queries stand before the first key
        (window(70, 0), 1, (3, 600)),   // as in decoding, here and below
        (window(90, 5), 1, (9, 600)),
        (documents(), 2, (2, 600)),
    ] {
        let sized = mask.sized(lengths.0, lengths.1).unwrap();
        let is_seen = |j: &usize| (0..lengths.0).any(|i| sized.allows(i, *j));
        // Of whole tiles of every kernel; the products of `naive` are of all keys.
        let unseen = (0..lengths.1).position(|j| is_seen(&j)).unwrap() / 128 * 128;
        let mut kernels = match lengths.0 {
            ..16 => vec![DECODE],
            _ => vec![TILED, HOPPER, HOPPER_PERSISTENT],
        };
        if unseen == 0 {
            kernels.push(NAIVE);
        }
        Problem::new(mask, (2, kv_heads), lengths, 1.0).check(&kernels, unseen, 8e-3);
    }
}

/// Other numbers than those that the book computes with, and another list of parameters than that of the launch, do not compile.
#[test]
fn sources_are_held_to_what_is_said_of_them() {
    if !on_cpu::here() {
        return;
    }
    let compile = |program: Program, more: &str| {
        let text = format!("{}{more}\n", program.source().text);
        OnCpu::compile_text(program, &text, 128, false, Watch::Nothing).map(|_| ())
    };
    for program in ALL {
        let name = program.source().name;
        let numbers = tiles::ALL.iter().filter(|(kernel, ..)| *kernel == name);
        let claims: Vec<_> = numbers
            .map(|(_, code, number)| format!("static_assert({code} == {number});"))
            .collect();
        assert!(!claims.is_empty(), "{name}");
        compile(program, &claims.concat())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let wrong = compile(TILED, "static_assert(QUERIES == 33);").unwrap_err();
    assert!(wrong.to_string().contains("static assertion failed"), "{wrong}");
    let text = TILED.source().text.replacen("const float* k", "float* k", 1);
    let other = OnCpu::compile_text(TILED, &text, 64, false, Watch::Nothing).err();
    let words = other.expect("another list").to_string();
    assert!(words.contains("conflicting declaration"), "{words}");
}

/// Changes of a source are seen, each alone: results are wrong, or an access is.
fn are_seen(program: Program, d: usize, mistakes: &[(&str, &str)], lengths: [Sizes; 2]) {
    are_seen_in(program.source().text, program, d, mistakes, lengths);
}

/// The same of a text that stands for the program's.
fn are_seen_in(
    text: &str,
    program: Program,
    d: usize,
    mistakes: &[(&str, &str)],
    lengths: [Sizes; 2],
) {
    if !on_cpu::here() {
        return;
    }
    for (from, to) in mistakes {
        assert_eq!(text.matches(from).count(), 1, "`{from}`");
        let text = text.replacen(from, to, 1);
        let wrong = [false, true].into_iter().any(|causal| {
            let on_cpu = OnCpu::compile_text(program, &text, d, causal, Watch::Addresses);
            let on_cpu = on_cpu.unwrap();
            // In one order copies come as late as they may, in another at once.
            [(0, 0), (1, 0), (0, 7), (1, 7)].into_iter().any(|(length, seed)| {
                let data = Data::new(lengths[length], d, Precision::of(program));
                let choices = Choices { seed, ..PLAIN };
                let errors = data.errors(&on_cpu, program, causal, choices);
                let is_right = |&error: &f64| error < bound(program);
                !errors.is_ok_and(|errors| errors.iter().all(is_right))
            })
        });
        assert!(wrong, "`{to}` in place of `{from}` is not seen");
    }
}

/// Small mistakes, each of which a student could make.
#[test]
fn mistakes_are_seen() {
    let mistakes = [
        ("o[t] *= correction;", ";"),
        ("correction * sum + sum_of_lanes", "sum + sum_of_lanes"),
        ("sees(i, first_key + j,", "sees(i, first_key + j - 1,"),
        ("fmaxf(m, max_of_lanes", "fmaxf(MINUS_INFINITY, max_of_lanes"),
        ("first + row < n ?", "first + row <= n ?"),
        ("if (i >= n_q) return;", ""),
        ("LN_2 * (m + log2f(sum))", "LN_2 * m + log2f(sum)"),
        ("m_new == MINUS_INFINITY ? 0 : m_new", "m_new"),
    ];
    are_seen(TILED, 64, &mistakes, [sizes(2, 100, 37), sizes(1, 37, 100)]);
}

/// Mistakes with pages and splits. A table with wrong numbers is as good as a kernel that changes them.
#[test]
fn wrong_pages_are_seen() {
    let mistakes = [
        ("page_table[lane()] : 0", "page_table[lane()] + 1 : 0"), // the first one is past the last page
        ("page_table[lane()] : 0", "page_table[lane()] - 1 : 0"), // the page of other keys, or a free one
        ("__shfl_sync(~0u, own_number, page % 32)", "first_page + page"),
        ("page_table[lane()] :", "page_table[lane() + 1] :"),
        (
            "page_table += size_t(kv_head) * all_pages + first_page",
            "page_table += first_page",
        ),
        ("own_row + down < rows_left ? 16 : 0", "16"),
        ("key < row.seen", "key <= row.seen"),
        ("? page_table[lane()] : 0", "? page_table[0] - lane() : 0"),
        ("begin_page(page + 2 * WARPS,", "begin_page(page + WARPS,"),
        ("first + e * MERGING_WARPS,", "first + e * MERGING_WARPS / 2,"),
        ("weight * shared.found.sum[w][row]", "shared.found.sum[w][row]"),
        ("exp2f(part_lse[at(own)] - most)", "1"),
        ("if (most == MINUS_INFINITY) most = 0;", ""),
    ];
    are_seen(DECODE, 64, &mistakes, [sizes(2, 50, 37), sizes(1, 1, 16_000)]);
}

/// Mistakes with the ring, with products under way, and with who sees whom.
#[test]
fn mistakes_of_specialists_are_seen() {
    let mistakes = [
        ("wait_full(shared.full_0, t);", ""),
        ("wait_full(shared.full_1, t);", ""),
        ("wait_empty(shared.empty_0, t);", ""),
        ("wait_empty(shared.empty_1, t);", ""),
        ("mbarrier_wait(shared.staying_full, 0);", ""),
        ("release(shared.empty_0, t - 1);", "release(shared.empty_0, t);"),
        ("release(shared.empty_1, t);", ""),
        ("shared.empty_1, 1, 4 * CONSUMERS)", "shared.empty_1, 1, 4)"),
        ("keys_stay ? 2 : 1, 4 * CONSUMERS)", "1, 4 * CONSUMERS)"),
        ("wgmma_wait<keys_stay ? 1 : 0>();", "wgmma_wait<1>();"),
        ("wgmma_wait<keys_stay ? 1 : 0>();", "wgmma_wait<2>();"),
        (
            "begin_sum(sums[0], d_scores, shared.passing_0[t % shared.STAGES_0])",
            "begin_sum(sums[0], d_scores, shared.passing_0[(t + 1) % shared.STAGES_0])",
        ),
        ("first / QUERIES;", "first / QUERIES / 2;"),
        ("- (keys_stay ? delta_of(t)[column + e] : delta[half])", ""),
        ("distance < 0", "distance <= 0"),
        ("min(first_row() + 64, work.n_k)", "first_row()"),
        (
            "own_lse != MINUS_INFINITY ? LOG2_E * own_lse : -MINUS_INFINITY",
            "LOG2_E * own_lse",
        ),
        (
            "first_to_see(first_staying, n_q, n_k) / PASSING",
            "first_to_see(first_staying, n_q, n_k) / PASSING + 1",
        ),
        ("consumer.store(0, scale,", "consumer.store(0, 1,"),
    ];
    are_seen(BACKWARD_HOPPER, 128, &mistakes, [sizes(1, 330, 128), sizes(1, 40, 520)]);
}

/// Mistakes of blocks that stay: what is left over of one piece of work when the next begins.
#[test]
fn mistakes_of_blocks_that_stay_are_seen() {
    let mistakes = [
        ("wait_empty(shared.q_empty, work.number);", ""),
        ("release(consumer.shared.q_empty, work.number);", ""),
        ("wait_full(shared.q_full, work.number);", "wait_full(shared.q_full, 0);"),
        ("done = work.end;", ""),
        ("number++", "number"),
        ("release(shared.v_empty, t);\n    }", "}"),
        ("pair / pairs, tile", "pair % heads, tile"),
        ("tiles - 1 - first", "tiles - 2 - first"),
        ("if (number == CONSUMERS - 1) pass_turn(number);", ""),
    ];
    let text = format!("#define PERSISTENT\n{}", HOPPER.source().text);
    let lengths = [sizes(4, 330, 130), sizes(7, 130, 260)];
    are_seen_in(&text, HOPPER_PERSISTENT, 128, &mistakes, lengths);
}

/// Behind the last key stand zeros, whose score is 0. Where all others are far below, e^(0 − log-sum-exp) is ∞, and times zero not a number.
#[test]
fn scores_far_below_zero_have_gradients() {
    if !on_cpu::here() {
        return;
    }
    const D: usize = 64;
    const N: usize = 70;
    let (q, k, v) = ([10.0; N * D], [-10.0; N * D], [1.0; N * D]);
    let lse = [-800.0 + (N as f32).ln(); N]; // each score is −100 · 64 / √64
    for program in [BACKWARD, BACKWARD_HOPPER] {
        let on_cpu = OnCpu::compile(program, D, false, Watch::Nothing).unwrap();
        let arguments = [&q[..], &k, &v, &v, &v, &lse];
        let [d_q, d_k, d_v] = on_cpu.backward(sizes(1, N, N), arguments, PLAIN).unwrap();
        // Weights are 1/N, all values the same, and so nothing changes by other scores.
        assert!(d_q.iter().chain(&d_k).all(|x| x.abs() < 1e-3), "{program}");
        assert!(d_v.iter().all(|x| (x - 1.0).abs() < 1e-2), "{program}");
    }
}

/// The book shows the output of a good run. The system's exponential differs in its last bit, so errors are those shown to within
/// a factor of two.
#[test]
fn a_good_run_says_what_the_book_shows() {
    if !on_cpu::here() {
        return;
    }
    let on_cpu = OnCpu::compile(TILED, 64, true, Watch::Nothing).unwrap();
    let data = Data::new(sizes(1, 100, 100), 64, Precision::F32);
    let errors = data.errors(&on_cpu, TILED, true, PLAIN).unwrap();
    let parts = |line: &str| {
        let (name, error) = line.split_once(": off by ").unwrap();
        (name.to_owned(), error.parse::<f64>().unwrap())
    };
    let shown = include_str!("shown/good_run.txt");
    let said = on_cpu::lines(TILED, &errors);
    assert_eq!(shown.lines().count(), said.len());
    for (shown, said) in shown.lines().map(parts).zip(said.iter().map(|line| parts(line)))
    {
        assert_eq!(shown.0, said.0);
        assert!((0.5..2.0).contains(&(said.1 / shown.1)), "{said:?}, and not {shown:?}");
    }
}

/// The book shows this, too: the first, then the second barrier of the tiled kernel is left out. The pair of threads may differ.
#[test]
fn a_missing_barrier_is_reported_as_the_book_says() {
    if !on_cpu::here() {
        return;
    }
    let nameless = |text: &str| {
        let mut words: Vec<_> = text.split(' ').collect();
        for i in 1..words.len() {
            if words[i - 1] == "thread" {
                words[i] = "…";
            }
        }
        words.join(" ")
    };
    let on_cpu = OnCpu::compile(TILED, 64, false, Watch::Races).unwrap();
    let data = Data::new(sizes(1, 64, 64), 64, Precision::F32);
    let shown = include_str!("shown/without_barrier.txt").replace('\n', " ");
    let shown: Vec<_> = shown.split_inclusive("orders the two ").map(str::trim).collect();
    let lines = barriers(TILED);
    assert_eq!(shown.len(), lines.len());
    for (shown, missing_barrier) in shown.into_iter().zip(lines) {
        let choices = Choices { missing_barrier, ..PLAIN };
        match data.errors(&on_cpu, TILED, false, choices) {
            Err(Failure::Race(race)) => {
                assert_eq!(nameless(&format!("error: {race}")), nameless(shown));
            }
            other => panic!("without line {missing_barrier}: {other:?}"),
        }
    }
}

/// Without the barrier of a warp no order of the threads changes a result, and yet two of them race. Without a barrier of the block the results
/// are wrong.
#[test]
fn a_race_can_leave_the_result_right() {
    if !on_cpu::here() {
        return;
    }
    let barrier = "__syncwarp(); // the row's weights";
    let text = TILED.source().text;
    assert_eq!(text.matches(barrier).count(), 1);
    let text = text.replacen(barrier, "//", 1);
    let right = OnCpu::compile(TILED, 64, false, Watch::Nothing).unwrap();
    let racing = OnCpu::compile_text(TILED, &text, 64, false, Watch::Nothing).unwrap();
    let data = Data::new(sizes(2, 70, 150), 64, Precision::F32);
    for seed in 0..10 {
        let choices = Choices { seed, ..PLAIN };
        let errors = |on_cpu: &OnCpu| data.errors(on_cpu, TILED, false, choices).unwrap();
        assert_eq!(errors(&racing), errors(&right), "order {seed}");
    }
    let watched = OnCpu::compile_text(TILED, &text, 64, false, Watch::Races).unwrap();
    let failure = data.errors(&watched, TILED, false, PLAIN).unwrap_err();
    assert!(matches!(failure, Failure::Race(_)), "{failure}");

    for missing_barrier in barriers(TILED) {
        let choices = Choices { missing_barrier, ..PLAIN };
        let errors = data.errors(&right, TILED, false, choices).unwrap();
        let is_right = errors.iter().all(|&error| error < bound(TILED));
        assert!(!is_right, "without line {missing_barrier} the outputs are right");
    }
}

/// A report names both lines and both threads.
#[test]
fn a_report_is_read() {
    let report = "WARNING: ThreadSanitizer: data race (pid=1)\n  Read of size 4 at 0x5 by thread T17:\n    \
                  #0 attention_forward /b/cuda/tiled.cu:65 (k+0x3)\n\n  Previous write of size 4 at 0x5 by thread T1:\n    \
                  #0 memcpy /lib/interceptors.inc:827 (libtsan.so.2+0x5)\n    #1 load<32, 64> /b/cuda/tiled.cu:34 (k+0x3)\n";
    let race = on_cpu::Race::parse(report).unwrap();
    assert_eq!(
        race.to_string(),
        "a race: thread 16 reads in line 65 of tiled.cu what thread 0 had written in line 34, and nothing orders the two"
    );
    assert_eq!(
        on_cpu::Race::parse("FATAL: ThreadSanitizer: unexpected memory mapping"),
        None
    );
}
