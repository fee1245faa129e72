//! Tests of what the chapter says of its numbers.

use super::facts::{self, Allocated, Kinds, Masked, TILE};
use super::rounding::{self, Errors};
use super::traffic;
use crate::tiles_traffic::claims::runs_as_predicted;
use crate::tiles_traffic::facts::{
    CAPACITY, D, ELEMENT, LONG, N, NAMED, Pass, Program, RUN, chunked, fused, lengths,
    naive, tiled,
};
use attention::Mask;
use attention::flash::Tiles;
use attention::mask::Visibility::{self, Full, Hidden, Partial};
use laboratory::hardware::H100;
use std::cmp::Ordering;
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

/// The caption and the description of the figure say so.
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
    for n in [256, 512, 1024, 4096, 16_384] {
        for size in [32, 64, 128, 256] {
            let tiles = Tiles { queries: size, keys: size };
            let kinds = Kinds::new(&Mask::causal(), n, tiles).unwrap();
            let left = kinds.0.len() - kinds.count(Hidden);
            let m = n / size;
            assert_eq!(2 * left, m * m + m, "n = {n}, tiles of {size}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------- memory

#[test]
fn memory_is_as_told() {
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
    let beside: Vec<usize> = counted.iter().map(|at| at.tiled - at.result).collect();
    assert!(
        beside.iter().all(|&bytes| bytes == beside[0]),
        "at every length: {beside:?}"
    );
    let in_tiles = beside[0] as f64 / (ELEMENT * TILE * TILE) as f64;
    assert!((in_tiles - 6.0).abs() < 0.05, "six tiles, not {in_tiles}");
}

// ---------------------------------------------------------------------------------------------------- operations

/// Returns how many more operations tiles with so many keys take for [`LONG`] tokens, as a share of the naive program's. A score and
/// its share of the products take 4d + 5 operations. To each row of each tile, tiles add five for maximum, correction and sum, and d
/// for the rescaled output; the division, one of the five for a score, moves to the end, once for each entry of the output.
fn operations_more(keys: usize) -> f64 {
    let (n, d) = (LONG as f64, D as f64);
    let naive = n * (4.0 * d + 5.0);
    let corrections = n / keys as f64 * (d + 5.0);
    let tiled = n * (4.0 * d + 4.0) + corrections + d;
    tiled / naive - 1.0
}

#[test]
fn from_a_few_dozen_keys_on_corrections_are_lost_in_the_crowd() {
    let more = [1, 64, 256].map(operations_more);
    assert!(more[0] > 0.2 && more[1].abs() < 0.005 && more[2] < 0.0, "{more:?}");
}

// ---------------------------------------------------------------------------------------------------- rounding

static ERRORS: LazyLock<Vec<(usize, [Errors; 2])>> =
    LazyLock::new(|| rounding::errors().unwrap());

/// Returns the ratio of an error at the greatest length and at the least, in `f32` and in `f64`.
fn growth(of: impl Fn(&Errors) -> f64) -> [f64; 2] {
    let (_, least) = &ERRORS[0];
    let (_, greatest) = &ERRORS[ERRORS.len() - 1];
    [0, 1].map(|number| of(&greatest[number]) / of(&least[number]))
}

#[test]
fn tiles_of_16_and_64_keys_are_more_exact_than_the_naive_program_and_single_keys_less() {
    for (n, errors) in &*ERRORS {
        for [naive, single, of_16, of_64, ..] in errors {
            assert!(single > naive, "n = {n}");
            assert!(of_16 < naive && of_64 < naive, "n = {n}");
        }
    }
}

#[test]
fn at_the_greatest_length_tiles_have_half_of_the_error_and_so_have_sums_in_parts() {
    let (n, errors) = ERRORS.last().unwrap();
    assert_eq!(*n, 4096);
    for [naive, _, tiles @ .., in_parts] in errors {
        assert!(tiles.iter().all(|tiled| *tiled < 0.55 * naive), "half of the error");
        assert!(*in_parts < 0.55 * naive, "and that is how the sum is taken");
    }
}

#[test]
fn what_grows_in_the_naive_program_is_the_rounding_of_the_sum() {
    let naive = growth(|[naive, ..]| *naive);
    assert!(naive.iter().all(|growth| *growth > 2.0), "naive: {naive:?}");
    let in_parts = growth(|[.., in_parts]| *in_parts);
    let hardly = |growth: &f64| (0.9..1.15).contains(growth);
    assert!(in_parts.iter().all(hardly), "sums in parts hardly change: {in_parts:?}");
}

// ---------------------------------------------------------------------------------------------------- traffic

/// A function from the number of tokens and the capacity of fast memory to the numbers that a program moves.
type Total = fn(usize, usize) -> anyhow::Result<f64>;

/// Returns the ratio of the traffic of a program and of tiles.
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
fn keys_and_values_cross_most_and_scores_never() {
    let tiles = Pass::Forward.chosen().unwrap();
    let (_, memory) = Program::Tiled(tiles).run(N, &Mask::none(), CAPACITY).unwrap();
    let [q, k, v, scores] =
        ["q", "k", "v", "scores"].map(|matrix| memory.report().matrix(matrix).all());
    assert_eq!((k, v), (N.div_ceil(tiles.0) as u128 * q, k));
    assert!(NAMED.iter().all(|n| n.div_ceil(tiles.0) > 1));
    assert_eq!(scores, 0);
}

#[test]
fn tiles_and_strips_run_as_predicted() {
    let chosen = Program::Tiled(Pass::Forward.chosen().unwrap());
    for n in RUN {
        runs_as_predicted(chosen, n, &Mask::none(), CAPACITY);
        let strips = Program::Chunked(traffic::strip(n).unwrap());
        runs_as_predicted(strips, n, &Mask::none(), CAPACITY);
    }
    for capacity in (9..=20).map(|power| 1 << power) {
        let tiles = Pass::Forward.tiles(capacity).unwrap();
        // Of a length at which it takes little time.
        runs_as_predicted(Program::Tiled(tiles), N / 2, &Mask::none(), capacity);
    }
}

#[test]
fn tiles_pay_with_room_for_d_by_d_numbers() {
    for n in NAMED {
        assert!(tiled(n, D * D).unwrap() < fused(n, D * D).unwrap(), "n = {n}");
    }
}

#[test]
fn each_matrix_crosses_once_if_one_block_and_one_key_fit() {
    for n in NAMED {
        let (enough, once) = (n * (2 * D + 3) + 2 * D, Pass::Forward.each_once(n));
        assert_eq!(tiled(n, enough).unwrap(), once, "n = {n}");
        assert!(tiled(n, enough - 1).unwrap() > once, "n = {n}");
    }
}

#[test]
fn traffic_is_linear_up_to_the_queries_of_one_tile() {
    let longest = traffic::linear_to(traffic::THIRD_CACHE).unwrap();
    let moved = |n| tiled(n, traffic::THIRD_CACHE).unwrap();
    assert_eq!(moved(longest), Pass::Forward.each_once(longest));
    assert!(moved(longest + 1) > Pass::Forward.each_once(longest + 1));
}

#[test]
fn naive_and_tiled_program_stand_on_either_side_of_the_ridge() {
    let [naive, tiled] = traffic::intensities().unwrap();
    let ridge = H100.ridge_f32();
    assert!(naive < ridge && ridge < tiled);
}

// ---------------------------------------------------------------------------------------------------- strips

/// The longest sequence of which one row of scores fits.
const LONGEST_STRIP: usize = CAPACITY - 2 * D;

/// Lengths at which strips are compared with other programs. Far beyond the first ones, a sample suffices.
fn lengths_of_strips() -> impl Iterator<Item = usize> {
    (1..LONG).chain((LONG..LONGEST_STRIP).step_by(1000))
}

/// Up to what lengths strips always, and ever, move less than another program. The rows of a strip and the number of strips
/// are whole, so for a while the two alternate.
fn strips_move_less(than: Total) -> (usize, usize) {
    let (mut always, mut ever) = (0, 0);
    for n in lengths_of_strips() {
        if chunked(n, CAPACITY).unwrap() < than(n, CAPACITY).unwrap() {
            always += usize::from(always + 1 == n);
            ever = n;
        }
    }
    (always, ever)
}

#[test]
fn strips_move_more_than_tiles_and_as_many_numbers_as_their_formula_says() {
    for n in NAMED {
        assert!(over_tiled(chunked, n) > 3.0, "n = {n}: tiles move less than strips");
    }
    for n in lengths_of_strips() {
        let strips = n.div_ceil(traffic::strip(n).unwrap());
        let numbers = chunked(n, CAPACITY).unwrap();
        assert_eq!(numbers, (2 * n * D * (1 + strips) + n) as f64, "n = {n}");
    }
}

#[test]
fn strips_alternate_with_the_fused_program_around_1024_tokens() {
    let (always, ever) = strips_move_less(fused);
    assert!(always < N && N < ever);
    let [strips, fused] = [chunked, fused].map(|program| program(N, CAPACITY).unwrap());
    assert_eq!(strips, fused + N as f64, "but for the log-sum-exp");
    let (always_naive, ever_naive) = strips_move_less(naive);
    assert_eq!(always_naive, ever_naive);
    assert!(ever < ever_naive, "in this order");
}

#[test]
fn in_the_end_one_row_fits_and_then_none() {
    assert_eq!(traffic::strip(LONGEST_STRIP).unwrap(), 1);
    assert!(traffic::strip(LONGEST_STRIP + 1).is_err());
}
