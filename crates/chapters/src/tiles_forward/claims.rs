//! What the chapter says of its numbers.

use super::facts::{self, Allocated, BLOCKS, Masked, TILE};
use super::rounding::{self, Errors};
use super::traffic;
use crate::claims::{A100_BANDWIDTH, A100_F32};
use crate::tiles_traffic::claims::{
    blocks_foretell_the_count, runs_as_foretold, the_formula_holds_of_every_size,
    tiles_pay, tiles_run_as_foretold,
};
use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, N, NAMED, OfTiles, Pass, Program, RUN, Total, capacities,
    chunked, first, fused, greatest_common_divisor, lengths, naive, tiled,
};
use attention::Mask;
use attention::Visibility::{self, Full, Hidden, Partial};
use std::cmp::Ordering;
use std::process::Command;
use std::sync::LazyLock;

#[test]
fn every_tile_has_one_kind_and_all_that_is_seen_is_computed() {
    for Masked { name, kinds, visible } in facts::masked().unwrap() {
        assert!(kinds.computed() >= visible, "{name}");
        let all: usize =
            [Full, Partial, Hidden].map(|kind| kinds.count(kind)).iter().sum();
        assert_eq!(all, kinds.0.len(), "{name}");
    }
}

/// As caption and description of the figure have them.
#[test]
fn the_kinds_of_tiles_are_as_the_figure_is_described() {
    let [causal, window, padding, _] = facts::masked().unwrap();
    type Expected = fn(usize, usize) -> Visibility;
    let expected: [(Masked, Expected); 3] = [
        (causal, |i, j| match i.cmp(&j) {
            Ordering::Greater => Full,
            Ordering::Equal => Partial,
            Ordering::Less => Hidden,
        }),
        (window, |i, j| match i as i32 - j as i32 {
            1 => Full,
            0 | 2 => Partial,
            _ => Hidden,
        }),
        (padding, |_, j| match j {
            0..4 => Full,
            4 => Partial,
            _ => Hidden,
        }),
    ];
    for (Masked { name, kinds, .. }, expected) in expected {
        assert_eq!(kinds.0.shape(), (8, 8));
        for (i, j) in (0..8).flat_map(|i| (0..8).map(move |j| (i, j))) {
            assert_eq!(kinds.0[(i, j)], expected(i, j), "{name} at {i}, {j}");
        }
    }
}

#[test]
fn a_causal_mask_leaves_half_of_one_and_one_over_the_blocks() {
    for n in facts::CAUSAL_LENGTHS {
        for size in facts::CAUSAL_TILES {
            let kinds = facts::causal(n, size, size).unwrap();
            let left = kinds.0.len() - kinds.count(Hidden);
            let m = n / size;
            assert_eq!(2 * left, m * m + m, "n = {n}, tiles of {size}");
        }
    }
}

/// (1 + (B_q + B_k − gcd) / n) / 2
#[test]
fn the_share_of_tiles_that_are_not_square_has_a_formula() {
    let n = 3840;
    for queries in [16, 24, 60, 64, 128, 256] {
        for keys in [8, 16, 30, 64, 96, 240] {
            let kinds = facts::causal(n, queries, keys).unwrap();
            let left = kinds.0.len() - kinds.count(Hidden);
            let more = queries + keys - greatest_common_divisor(queries, keys);
            assert_eq!(2 * left * n, kinds.0.len() * (n + more), "{queries} × {keys}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------- memory

/// What other tests allocate at the same time would be counted, too.
#[test]
fn memory_is_as_told_in_a_process_of_its_own() {
    let name = "tiles_forward::claims::alone_memory_is_as_told";
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this)
        .args(["--ignored", "--exact", name, "--test-threads=1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn alone_memory_is_as_told() {
    let counted = facts::allocated().unwrap();
    for &Allocated { n, naive, strips, .. } in counted.iter().filter(|at| at.n >= 1024) {
        let [square, matrix] = [ELEMENT * n * n, ELEMENT * n * D];
        let buffers = 1 << 19; // into which the product packs its factors
        let least = square + 4 * matrix;
        assert!(
            (least..least + buffers).contains(&naive),
            "n = {n}: {naive}, not {least}"
        );
        // Output, a strip of weights, copies of keys and values; two blocks of queries.
        let least = 3 * matrix + ELEMENT * n * TILE + 2 * ELEMENT * TILE * D;
        assert!(
            (least..least + buffers).contains(&strips),
            "n = {n}: {strips}, not {least}"
        );
    }
    let beside: Vec<usize> = counted.iter().map(Allocated::beside).collect();
    assert!(
        beside.iter().all(|&bytes| bytes == beside[0]),
        "at every length: {beside:?}"
    );
    let in_tiles = beside[0] as f64 / (ELEMENT * TILE * TILE) as f64;
    assert!((in_tiles - 7.0).abs() < 0.05, "seven tiles, not {in_tiles}");
}

// ---------------------------------------------------------------------------------------------------- operations

#[test]
fn from_a_few_dozen_keys_on_corrections_are_lost_in_the_crowd() {
    let more = facts::operations().map(|of| of.more);
    assert!(more[0] > 0.2 && more[3].abs() < 0.005 && more[4] < 0.0, "{more:?}");
}

#[test]
fn the_maximum_rises_as_often_as_expected() {
    assert_eq!(BLOCKS, 64);
    let (mean, expected) = (facts::mean_rises().unwrap(), facts::expected_rises());
    assert!((mean / expected - 1.0).abs() < 0.1, "{mean} against {expected}");
}

// ---------------------------------------------------------------------------------------------------- rounding

static ERRORS: LazyLock<Vec<(usize, [Errors; 2])>> =
    LazyLock::new(|| rounding::errors().unwrap());

fn growth(of: impl Fn(&Errors) -> f64) -> [f64; 2] {
    rounding::growth(&ERRORS, of)
}

#[test]
fn tiles_of_16_and_64_keys_are_more_exact_than_the_naive_program_and_single_keys_less() {
    for (n, errors) in &*ERRORS {
        for Errors { naive, tiles: [single, of_16, of_64, _], .. } in errors {
            assert!(single > naive, "n = {n}");
            assert!(of_16 < naive && of_64 < naive, "n = {n}");
        }
    }
}

#[test]
fn at_the_greatest_length_tiles_have_half_of_the_error_and_so_have_sums_in_parts() {
    let (n, errors) = ERRORS.last().unwrap();
    assert_eq!(*n, 4096);
    for Errors { naive, tiles, in_parts } in errors {
        assert!(
            tiles[1..].iter().all(|tiled| *tiled < 0.55 * naive),
            "half of the error"
        );
        assert!(*in_parts < 0.55 * naive, "and that is how the sum is taken");
    }
}

#[test]
fn errors_of_single_keys_grow_most_and_those_of_256_keys_fall() {
    let single = growth(|errors| errors.tiles[0]);
    let naive = growth(|errors| errors.naive);
    let in_parts = growth(|errors| errors.in_parts);
    let [of_16, of_64, of_256] = [1, 2, 3].map(|i| growth(|errors| errors.tiles[i]));
    for other in [naive, of_16, of_64, of_256, in_parts] {
        assert!(other[0] < single[0] && other[1] < single[1], "single keys: {single:?}");
    }
    assert!(naive.iter().all(|growth| *growth > 2.0), "naive: {naive:?}");
    assert!(of_256.iter().all(|growth| *growth < 1.0), "256 keys: {of_256:?}");
    let hardly = |growth: &f64| (0.9..1.15).contains(growth);
    assert!(in_parts.iter().all(hardly), "sums in parts hardly change: {in_parts:?}");
}

#[test]
fn errors_of_64_keys_grow_little_and_those_of_16_by_half_or_to_twice() {
    let of_64 = growth(|errors| errors.tiles[2]).map(|growth| growth - 1.0);
    assert!(of_64.iter().all(|more| (0.05..0.4).contains(more)), "{of_64:?}");
    let [single, double] = growth(|errors| errors.tiles[1]);
    assert!((1.4..1.65).contains(&single), "16 keys, f32: by half, not {single}");
    assert!((1.9..2.2).contains(&double), "16 keys, f64: to twice, not {double}");
}

// ---------------------------------------------------------------------------------------------------- traffic

static SIZES: LazyLock<Vec<OfTiles>> = LazyLock::new(|| traffic::sizes().unwrap());

/// How many times as much as tiles a program moves.
fn over_tiled(program: Total, n: usize) -> f64 {
    program(n, CAPACITY).unwrap() / tiled(n, CAPACITY).unwrap()
}

#[test]
fn tiles_move_least() {
    for n in NAMED {
        assert!(over_tiled(naive, n) > over_tiled(fused, n), "n = {n}");
        assert!(over_tiled(fused, n) > 4.0, "n = {n}");
    }
    for n in lengths() {
        let [naive, fused, tiled] =
            [naive, fused, tiled].map(|program| program(n, CAPACITY).unwrap());
        assert!(tiled < fused && fused < naive, "n = {n}");
        assert!(
            tiled >= Pass::Forward.each_once(n),
            "n = {n}: than once nothing is less"
        );
    }
}

#[test]
fn factors_tend_to_their_limits_with_a_step_where_a_row_no_longer_fits() {
    let programs: [(Total, [usize; 2]); 2] = [(naive, [8, 10]), (fused, [4, 6])];
    for (program, [fits, sweeps]) in programs {
        for (n, crossings, within) in [(CAPACITY, fits, 0.98), (1_000_000, sweeps, 0.999)]
        {
            let limit = traffic::limit(crossings).unwrap();
            let factor = over_tiled(program, n);
            assert!(factor < limit && factor > within * limit, "n = {n}: {factor}");
        }
        assert!(over_tiled(program, CAPACITY + 1) / over_tiled(program, CAPACITY) > 1.2);
    }
}

#[test]
fn keys_and_values_cross_most_and_scores_never() {
    let program = Program::Tiled(Pass::Forward.chosen().unwrap());
    for n in NAMED {
        let report = program.foretold(n, &Mask::none(), CAPACITY).unwrap();
        let [q, k, v, scores] =
            ["q", "k", "v", "scores"].map(|matrix| report.matrix(matrix).all());
        assert!(k == v && k > q, "n = {n}");
        assert_eq!(scores, 0, "n = {n}");
    }
}

#[test]
fn tiles_and_strips_run_as_foretold() {
    let chosen = Program::Tiled(Pass::Forward.chosen().unwrap());
    for n in RUN {
        runs_as_foretold(chosen, n, &Mask::none(), CAPACITY);
        let strips = Program::Chunked(traffic::strip(n).unwrap());
        runs_as_foretold(strips, n, &Mask::none(), CAPACITY);
    }
    for capacity in capacities() {
        let tiles = Pass::Forward.tiles(capacity).unwrap();
        // Of a length at which it takes little time.
        runs_as_foretold(Program::Tiled(tiles), N / 2, &Mask::none(), capacity);
    }
}

#[test]
fn tiles_of_every_size_run_as_foretold() {
    tiles_run_as_foretold(Pass::Forward, &SIZES);
    for of in &*SIZES {
        runs_as_foretold(Program::Tiled(of.tiles), N, &Mask::causal(), CAPACITY);
    }
}

#[test]
fn the_formula_is_exact_where_the_blocks_are_whole() {
    the_formula_holds_of_every_size(&SIZES);
    for of in &*SIZES {
        assert!(of.off() >= 0.0, "{:?}: as many blocks as the formula has", of.tiles);
        assert!(!LONG.is_multiple_of(of.tiles.0) || of.off() == 0.0, "{:?}", of.tiles);
    }
}

#[test]
fn over_capacities_counts_lie_above_the_formula_and_come_down_to_each_once() {
    let all = capacities();
    blocks_foretell_the_count(Pass::Forward, &all);
    for &m in &all {
        assert!(tiled(LONG, m).unwrap() > Pass::Forward.by_capacity(LONG, m), "M = {m}");
    }
    let last = tiled(LONG, all[all.len() - 1]).unwrap();
    assert_eq!(last, Pass::Forward.each_once(LONG));
    let few = traffic::few_blocks().unwrap();
    assert!(few.is_sorted_by(|a, b| a.above <= b.above), "the fewer the blocks");
}

#[test]
fn tiles_begin_to_pay_where_no_row_fits() {
    let least = traffic::least_capacity();
    let mut from = vec![];
    for (name, program, crossings) in traffic::OTHERS {
        let pays = tiles_pay(Pass::Forward, least, program);
        // 4d²/M against c + 2d²/M; then with B_q = (M − 2d) / (2d + 3) and r = (M − d) / (d + 1); then in whole rows.
        let about = traffic::pays_about(crossings);
        let exact = first(2 * D + 1..CAPACITY, |m| {
            let tiles = (2 * D * (2 * D + 3)) as f64 / (m - 2 * D) as f64;
            let strips = (2 * D * (D + 1)) as f64 / (m - D) as f64;
            Ok(tiles < crossings as f64 + strips)
        })
        .unwrap();
        assert!(about < exact && exact < pays, "{name}: {about}, {exact}, {pays}");
        from.push(pays);
    }
    assert!(from[0] < from[1] && from[1] < LONG, "naive before fused: {from:?}");
}

#[test]
fn each_matrix_crosses_once_if_one_block_and_one_key_fit() {
    for n in NAMED {
        assert_eq!(traffic::once_from(n).unwrap(), n * (2 * D + 3) + 2 * D, "n = {n}");
    }
}

#[test]
fn traffic_is_linear_up_to_the_queries_of_one_block() {
    for kibibytes in [32, 1024, 32 * 1024] {
        let capacity = traffic::of_kibibytes(kibibytes);
        let longest = traffic::linear_to(capacity).unwrap();
        let moved = |n| tiled(n, capacity).unwrap();
        assert_eq!(moved(longest), Pass::Forward.each_once(longest), "{kibibytes} KiB");
        assert!(
            moved(longest + 1) > Pass::Forward.each_once(longest + 1),
            "{kibibytes} KiB"
        );
    }
}

#[test]
fn naive_and_tiled_program_stand_on_either_side_of_the_ridge() {
    let [naive, tiled] = traffic::intensities().unwrap();
    let ridge = A100_F32 / A100_BANDWIDTH;
    assert!(naive < ridge && ridge < tiled);
}

// ---------------------------------------------------------------------------------------------------- strips

#[test]
fn strips_move_more_than_tiles_and_as_many_numbers_as_their_formula_says() {
    for n in NAMED {
        assert!(over_tiled(chunked, n) > 3.0, "n = {n}: tiles move less than strips");
    }
    for n in traffic::lengths_of_strips() {
        let strips = n.div_ceil(traffic::strip(n).unwrap());
        let numbers = chunked(n, CAPACITY).unwrap();
        assert_eq!(numbers, (2 * n * D * (1 + strips) + n) as f64, "n = {n}");
    }
}

#[test]
fn strips_take_turns_with_the_fused_program_around_1024_tokens() {
    let than_fused = traffic::strips_move_less(fused).unwrap();
    assert!(than_fused.always < N && N < than_fused.ever);
    let [strips, fused] = [chunked, fused].map(|program| program(N, CAPACITY).unwrap());
    assert_eq!(strips, fused + N as f64, "but for the log-sum-exp");
    let than_naive = traffic::strips_move_less(naive).unwrap();
    assert_eq!(than_naive.always, than_naive.ever);
    assert!(than_fused.ever < than_naive.ever, "in this order");
}

#[test]
fn in_the_end_one_row_fits_and_then_none() {
    assert_eq!(traffic::strip(traffic::LONGEST_STRIP).unwrap(), 1);
    assert!(traffic::strip(traffic::LONGEST_STRIP + 1).is_err());
}
