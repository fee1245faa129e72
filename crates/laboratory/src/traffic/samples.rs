//! Inputs and checks for the programs' tests.

use super::tiled::RoomOf;
use super::{Counts, Memory, Report, Result, SlowMatrix, blocks};
use attention::{Mask, attention, attention_backward, mask::Visibility};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

/// n_q, n_k, d_k, d_v; lengths that no strip divides, and one of everything.
pub const SIZES: [[usize; 4]; 6] = [
    [1, 1, 1, 1],
    [7, 7, 3, 3],
    [5, 11, 4, 2],
    [11, 5, 2, 4],
    [1, 9, 3, 5],
    [13, 1, 3, 2],
];
pub const ROOMY: usize = 10_000;

pub fn random(rows: usize, columns: usize, seed: u64) -> DMatrix<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}

/// Queries, keys, values and the gradient of the output.
pub fn random_inputs([n_q, n_k, d_k, d_v]: [usize; 4]) -> [DMatrix<f64>; 4] {
    let shapes = [(n_q, d_k), (n_k, d_k), (n_k, d_v), (n_q, d_v)];
    let mut seeds = 0..;
    shapes.map(|(rows, columns)| random(rows, columns, seeds.next().unwrap()))
}

/// A mask of every kind, and one under which no query sees anything.
pub fn masks(n_q: usize, n_k: usize) -> Vec<Mask> {
    let of_every_kind = crate::support::masks(n_q, n_k).into_iter();
    let nothing = Mask::padding(&vec![false; n_k]).unwrap();
    of_every_kind.map(|(_, mask)| mask).chain([nothing]).collect()
}

/// Queries and keys: of one, that divide nothing, of the whole, and of more than there is.
pub const TILES: [(usize, usize); 6] =
    [(1, 1), (2, 3), (3, 2), (5, 1), (1, 4), (20, usize::MAX)];
// ---------------------------------------------------------------------------------------------------- what is expected

/// Output and log-sum-exp.
pub fn attended([q, k, v]: [&DMatrix<f64>; 3], mask: &Mask) -> [DMatrix<f64>; 2] {
    let (output, cache) = attention(q, k, v, mask).unwrap();
    let lse = DMatrix::from_column_slice(q.nrows(), 1, cache.log_sum_exp.as_slice());
    [output, lse]
}

/// Of queries, keys and values.
pub fn gradients([q, k, v, g]: [&DMatrix<f64>; 4], mask: &Mask) -> [DMatrix<f64>; 3] {
    let (_, cache) = attention(q, k, v, mask).unwrap();
    let gradients = attention_backward(&cache, g).unwrap();
    [gradients.q, gradients.k, gradients.v]
}

/// Equal up to rounding, with the same infinities.
pub fn assert_close<const N: usize>(
    results: &[DMatrix<f64>; N],
    expected: &[DMatrix<f64>; N],
    context: &str,
) {
    for (result, expected) in results.iter().zip(expected) {
        assert_eq!(result.shape(), expected.shape(), "{context}");
        for (x, y) in result.iter().zip(expected) {
            assert!(x == y || (x - y).abs() <= 1e-12, "{context}: {x}, not {y}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------- runs

/// The results of a program, its counts, and the most that fast memory held.
pub type Ran<const N: usize> = ([DMatrix<f64>; N], Report, usize);

/// Runs a program on queries, keys and values.
pub fn run<const N: usize>(
    [q, k, v]: [&DMatrix<f64>; 3],
    capacity: usize,
    program: impl for<'m> Fn(
        &'m Memory<f64>,
        [&SlowMatrix<'m, f64>; 3],
    ) -> Result<[SlowMatrix<'m, f64>; N]>,
) -> Result<Ran<N>> {
    let memory = Memory::new(capacity);
    let [q, k, v] =
        [("q", q), ("k", k), ("v", v)].map(|(name, m)| memory.put(name, m.clone()));
    let results = program(&memory, [&q, &k, &v])?.map(SlowMatrix::into_matrix);
    assert_eq!(memory.free(), capacity); // every tile is gone
    Ok((results, memory.report(), memory.peak()))
}

// ---------------------------------------------------------------------------------------------------- traffic

/// A pass, a matrix, and how many of its numbers are read and written.
pub type Moved = (&'static str, &'static str, usize, usize);

pub fn total(moved: &[Moved]) -> usize {
    moved.iter().map(|(_, _, read, written)| read + written).sum()
}

/// These passes in this order, and nothing else.
pub fn assert_moved(report: &Report, expected: &[Moved], context: &str) {
    let mut passes: Vec<_> = expected.iter().map(|&(pass, ..)| pass).collect();
    passes.dedup();
    assert_eq!(report.passes(), passes, "{context}");
    for &(pass, matrix, read, written) in expected {
        let counts = Counts { read: read as u128, written: written as u128 };
        assert_eq!(report.of(pass, matrix), counts, "{context}: {pass}, {matrix}");
    }
    assert_eq!(report.total().all(), total(expected) as u128, "{context}");
}

/// The keys of the tiles that are not hidden, added up over the blocks of queries, and their queries over the blocks of keys.
pub fn seen(
    mask: &Mask,
    (n_q, n_k): (usize, usize),
    tiles: (usize, usize),
) -> [usize; 2] {
    let mask = mask.sized(n_q, n_k).unwrap();
    let mut seen = [0, 0];
    for rows in blocks(n_q, tiles.0) {
        for columns in blocks(n_k, tiles.1) {
            if mask.visibility(rows.clone(), columns.clone()) != Visibility::Hidden {
                seen[0] += columns.len();
                seen[1] += rows.len();
            }
        }
    }
    seen
}

/// With this capacity a program returns what is expected, moves what the formula says, and has room; with one number less it does
/// not run. Returns the most that fast memory held.
pub fn assert_needs<const N: usize>(
    capacity: usize,
    run: impl Fn(usize) -> Result<Ran<N>>,
    moved: &[Moved],
    expected: &[DMatrix<f64>; N],
    context: &str,
) -> usize {
    let (results, report, peak) = run(capacity).unwrap();
    assert_close(&results, expected, context);
    assert_moved(&report, moved, context);
    assert!(peak <= capacity, "{context}");
    assert!(run(capacity - 1).is_err(), "{context}");
    peak
}

/// Of all sizes, masks and tiles: a program in tiles needs the room that `room` says, all of it if the first tile is not hidden, and
/// moves what `moved` says for the keys and queries that are [`seen`].
pub fn assert_needs_room_of_tiles<const N: usize>(
    room: RoomOf,
    run: impl Fn([&DMatrix<f64>; 4], &Mask, usize, (usize, usize)) -> Result<Ran<N>>,
    moved: impl Fn([usize; 4], [usize; 2]) -> Vec<Moved>,
    expected: impl Fn([&DMatrix<f64>; 4], &Mask) -> [DMatrix<f64>; N],
) {
    for sizes @ [n_q, n_k, d_k, d_v] in SIZES {
        let inputs = random_inputs(sizes);
        let inputs = inputs.each_ref();
        for mask in masks(n_q, n_k) {
            let expected = expected(inputs, &mask);
            for tiles in TILES {
                let context = format!("{sizes:?} {tiles:?} {mask:?}");
                let cut = (tiles.0.min(n_q), tiles.1.min(n_k));
                let capacity = room(cut, d_k, d_v) as usize;
                let peak = assert_needs(
                    capacity,
                    |capacity| run(inputs, &mask, capacity, tiles),
                    &moved(sizes, seen(&mask, (n_q, n_k), tiles)),
                    &expected,
                    &context,
                );
                let first = mask.sized(n_q, n_k).unwrap().visibility(0..cut.0, 0..cut.1);
                assert!(peak == capacity || first == Visibility::Hidden, "{context}");
            }
        }
    }
}
