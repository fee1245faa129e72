//! Attention in tiles on the machine that counts: the (n_q, n_k) matrix never reaches slow memory.

use super::programs::{check, map_tile, unless_hidden};
use super::{Memory, Result, SlowMatrix, Tile, blocks, check_fits};
use attention::engine::{check_positive, neg_infinity, normaliser, scale, shift};
use attention::flash::OnlineSoftmax;
use attention::{
    Float, Mask,
    mask::{SizedMask, Visibility},
};
use nalgebra::DMatrix;

// ---------------------------------------------------------------------------------------------------- strips of queries

/// Attention with the queries cut into strips: a strip's rows of scores stand in fast memory, whole, from the first
/// product to the second.
///
/// Returns the output and the log-sum-exp of each row of scores. Softmax is the ordinary one, since a row is complete
/// before it begins. The price is room: a strip of r queries needs room for r · n_k scores, so that strips are lower
/// the more keys there are, and keys and values, which come by one row at a time, come by more often. What the mask
/// hides from a whole strip is neither loaded nor computed.
///
/// Without a mask it moves n_q·d_k + ⌈n_q / r⌉·n_k·(d_k + d_v) + n_q·d_v + n_q numbers with strips of r rows. If these
/// are as high as an otherwise empty fast memory of M numbers allows, r ≈ M / (n + d), that is about
/// 2nd + 2n²(n + d)d / M for self-attention of width d: it grows with the cube of n.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → output (n_q, d_v), log-sum-exp (n_q, 1). The entries must
/// be finite, except keys and values that are hidden from a whole strip.
///
/// # Errors
/// As [`attention`](attention::attention()), a matrix lies in another machine, or `strip` is 0 or more rows than fast
/// memory has room for: see [`strip_for`], which gives the most.
///
/// ```
/// use attention::{Mask, attention};
/// use laboratory::traffic::{Memory, chunked_attention, strip_for};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(6, 2, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let memory = Memory::new(20);
/// let [q, k, v] = ["q", "k", "v"].map(|name| memory.put(name, x.clone()));
/// let strip = strip_for(memory.free(), 6, 2, 2)?;
/// let (output, _) = chunked_attention(&memory, [&q, &k, &v], Mask::none(), strip)?;
///
/// let (expected, _) = attention(&x, &x, &x, Mask::none())?;
/// assert!((output.into_matrix() - expected).amax() < 1e-15);
/// let report = memory.report();
/// assert_eq!((strip, report.matrix("k").read), (2, 3 * 6 * 2)); // once for every strip
/// assert_eq!(report.matrix("scores").all(), 0);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn chunked_attention<'m, T: Float>(
    memory: &'m Memory<T>,
    [q, k, v]: [&SlowMatrix<'m, T>; 3],
    mask: impl Into<Mask>,
    strip: usize,
) -> Result<(SlowMatrix<'m, T>, SlowMatrix<'m, T>)> {
    let mask = check(memory, [q, k, v], mask)?;
    let ((n_q, n_k), d_k, d_v) = (mask.shape(), q.shape().1, v.shape().1);
    check_positive("strip", strip)?;
    let needed = strip_room(strip.min(n_q), n_k, d_k, d_v);
    check_fits("strip", strip, "that", needed, memory.room())?;
    let scale = scale::<T>(d_k);
    let mut output = memory.allocate("output", n_q, d_v)?;
    let mut log_sum_exp = memory.allocate("log_sum_exp", n_q, 1)?;

    memory.pass("strips");
    for rows in blocks(n_q, strip) {
        let seen = |&j: &usize| mask.visibility(rows.clone(), j..j + 1) != HIDDEN;
        let keys: Vec<usize> = (0..n_k).filter(seen).collect();

        let q_i = q.load(rows.clone(), 0..d_k)?; // (r, d_k)
        let mut scores = vec![]; // a column (r, 1) for each of the keys
        for &j in &keys {
            let k_j = k.load(j..j + 1, 0..d_k)?;
            let mut column = memory.tile(rows.len(), 1)?;
            column.add_product_tr(&q_i, &k_j)?;
            let at = (rows.start, j);
            map_tile(&mut column, at, |s, at| unless_hidden(s * scale, &mask, at));
            scores.push(column);
        }
        drop(q_i); // makes room for the output

        let mut lse = memory.tile(rows.len(), 1)?;
        for i in 0..rows.len() {
            lse.view_mut()[(i, 0)] = softmax_across(&mut scores, i);
        }
        log_sum_exp.store((rows.start, 0), &lse)?;
        drop(lse);

        let mut o_i = memory.tile(rows.len(), d_v)?; // (r, d_v)
        for (&j, weights) in keys.iter().zip(&scores) {
            o_i.add_product(weights, &v.load(j..j + 1, 0..d_v)?)?;
        }
        output.store((rows.start, 0), &o_i)?;
    }
    Ok((output, log_sum_exp))
}

const HIDDEN: Visibility = Visibility::Hidden;

/// Softmax of row `i`, which lies across the columns. Returns the row's log-sum-exp.
fn softmax_across<T: Float>(columns: &mut [Tile<T>], i: usize) -> T {
    let row = |column: &Tile<T>| column.view()[(i, 0)];
    let max = columns.iter().map(row).fold(neg_infinity::<T>(), T::max);
    let max = shift(max);
    let sum =
        columns.iter().fold(T::zero(), |sum, column| sum + (row(column) - max).exp());
    for column in columns {
        let score = &mut column.view_mut()[(i, 0)];
        *score = (*score - max).exp() / normaliser(sum);
    }
    max + sum.ln()
}

/// The most queries that [`chunked_attention`] can keep in a strip: ⌊(M − d) / (n_k + d)⌋, with d the larger one of d_k
/// and d_v.
///
/// A strip of r rows shares fast memory with one key, later with one value: r·n_k + r·d + d ≤ R.
///
/// # Errors
/// A size is 0, or fast memory has no room for a strip of one row.
///
/// ```
/// assert_eq!(laboratory::traffic::strip_for(32_768, 1024, 64, 64)?, 30);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn strip_for(capacity: usize, n_k: usize, d_k: usize, d_v: usize) -> Result<usize> {
    check_positive("n_k", n_k)?;
    check_positive("d_k", d_k)?;
    check_positive("d_v", d_v)?;
    let d = d_k.max(d_v);
    let needed = strip_room(1, n_k, d_k, d_v);
    let memory = (capacity, capacity);
    check_fits("capacity", capacity, "a strip of one query", needed, memory)?;
    Ok((capacity - d) / (n_k + d)) // no overflow, since one row fits
}

fn strip_room(strip: usize, n_k: usize, d_k: usize, d_v: usize) -> u128 {
    let d = d_k.max(d_v);
    sum_of_products(&[[strip, n_k], [strip, d], [1, d]])
}

/// A sum of products that does not overflow.
pub(super) fn sum_of_products(products: &[[usize; 2]]) -> u128 {
    let product = |&[a, b]: &[usize; 2]| (a as u128).saturating_mul(b as u128);
    products.iter().map(product).fold(0, u128::saturating_add)
}

// ---------------------------------------------------------------------------------------------------- tiles

/// Attention in tiles: a block of queries stays in fast memory, with its output in the making, while blocks of keys and
/// values come by. Scores and weights exist for one tile at a time, and nowhere but in fast memory.
///
/// Returns the output and the log-sum-exp of each row of scores, which is all that
/// [`tiled_attention_backward`](super::tiled_attention_backward) needs to know of the weights. `tiles` is how many
/// queries and how many keys a tile has; see [`tiles_for`]. Neither length has to be a multiple. A tile of which the
/// [mask](Mask) hides all is skipped: its keys and values are not loaded.
///
/// Without a mask it moves
///
/// n_q·d_k + ⌈n_q / b_q⌉·n_k·(d_k + d_v) + n_q·d_v + n_q
///
/// numbers: queries, output and log-sum-exp once, keys and values once for every block of b_q queries, and the number
/// of keys in a tile does not matter. If the tiles fill a fast memory of M numbers, as those of [`tiles_for`] do, then
/// b_q ≈ M / 2d for d_k = d_v = d, and self-attention moves about 2nd + 4n²d² / M. It moves O(nd) numbers, as long as n
/// does not outgrow M / d: with one block of queries each matrix crosses once.
///
/// Shapes: `q` (n_q, d_k), `k` (n_k, d_k), `v` (n_k, d_v) → output (n_q, d_v), log-sum-exp (n_q, 1). The entries must
/// be finite, except keys and values that stand in skipped tiles only.
///
/// # Errors
/// As [`attention`](attention::attention()), a matrix lies in another machine, or `tiles` has a 0 or asks for more room
/// than fast memory has.
///
/// # Source
/// T. Dao, *FlashAttention-2* (2023), algorithm 1.
///
/// ```
/// use attention::{Mask, attention};
/// use laboratory::traffic::{Memory, tiled_attention};
/// use nalgebra::DMatrix;
///
/// let x = DMatrix::from_fn(6, 2, |i, j| (i as f64 - 2.0 * j as f64).cos());
/// let memory = Memory::new(40);
/// let [q, k, v] = ["q", "k", "v"].map(|name| memory.put(name, x.clone()));
/// let (output, _) = tiled_attention(&memory, [&q, &k, &v], Mask::causal(), (3, 2))?;
///
/// let (expected, _) = attention(&x, &x, &x, Mask::causal())?;
/// assert!((output.into_matrix() - expected).amax() < 1e-15);
/// let report = memory.report();
/// assert_eq!(report.matrix("scores").all(), 0); // it never crosses
/// assert_eq!(report.matrix("k").read, (4 + 6) * 2); // the first block does not see the last tile
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn tiled_attention<'m, T: Float>(
    memory: &'m Memory<T>,
    [q, k, v]: [&SlowMatrix<'m, T>; 3],
    mask: impl Into<Mask>,
    tiles: (usize, usize),
) -> Result<(SlowMatrix<'m, T>, SlowMatrix<'m, T>)> {
    let mask = check(memory, [q, k, v], mask)?;
    let ((n_q, n_k), d_k, d_v) = (mask.shape(), q.shape().1, v.shape().1);
    check_tiles(memory, room, tiles, [n_q, n_k, d_k, d_v])?;
    let scale = scale::<T>(d_k);
    let mut output = memory.allocate("output", n_q, d_v)?;
    let mut log_sum_exp = memory.allocate("log_sum_exp", n_q, 1)?;

    memory.pass("tiles");
    for rows in blocks(n_q, tiles.0) {
        let q_i = q.load(rows.clone(), 0..d_k)?; // (b_q, d_k)
        let in_the_making = memory.reserve(rows.len(), d_v + 2)?; // the output, with two numbers a row
        let mut state = OnlineSoftmax::new(rows.len(), d_v)?;
        for columns in blocks(n_k, tiles.1) {
            let visibility = mask.visibility(rows.clone(), columns.clone());
            if visibility == Visibility::Hidden {
                continue; // costs nothing
            }
            let k_j = k.load(columns.clone(), 0..d_k)?; // (b_k, d_k)
            let v_j = v.load(columns.clone(), 0..d_v)?; // (b_k, d_v)
            let mut scores = memory.tile(rows.len(), columns.len())?; // (b_q, b_k)
            scores.add_product_tr(&q_i, &k_j)?;
            scores.view_mut().scale_mut(scale);
            if visibility == Visibility::Partial {
                hide(&mut scores, &mask, (rows.start, columns.start), neg_infinity());
            }
            state.absorb(&scores.matrix, &v_j.matrix)?; // scores turn into weights
        }
        drop(in_the_making);
        let (o_i, lse) = state.finish(); // (b_q, d_v), (b_q)
        let lse = DMatrix::from_column_slice(lse.len(), 1, lse.as_slice());
        log_sum_exp.store((rows.start, 0), &memory.hold(lse)?)?;
        output.store((rows.start, 0), &memory.hold(o_i)?)?;
    }
    Ok((output, log_sum_exp))
}

/// Overwrites what may not be seen in a tile of scores or weights that begins at `start`.
pub(super) fn hide<T: Float>(
    tile: &mut Tile<T>,
    mask: &SizedMask,
    start: (usize, usize),
    hidden: T,
) {
    map_tile(tile, start, |s, (i, j)| if mask.allows(i, j) { s } else { hidden });
}

// ---------------------------------------------------------------------------------------------------- room

/// The tiles with which [`tiled_attention`] moves least: as many queries as there is room for beside one key, then as
/// many keys as still fit.
///
/// Queries and their output, with two numbers for each, b_q·(d_k + d_v + 2), keys and values, b_k·(d_k + d_v), and
/// scores, b_q·b_k, share fast memory. How often keys and values are read depends on the number of blocks of queries
/// alone, so room that is given to keys is wasted, as far as traffic goes. (Processors think otherwise, and multiply
/// larger tiles faster.) Tiles may be larger than what there is to cut.
///
/// # Errors
/// A width is 0, or fast memory has no room for a tile of one query and one key.
///
/// ```
/// use laboratory::traffic::tiles_for;
///
/// assert_eq!(tiles_for(32_768, 64, 64)?, (249, 1));
/// assert!(249 * (64 + 64 + 2) + (64 + 64) + 249 <= 32_768);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
pub fn tiles_for(capacity: usize, d_k: usize, d_v: usize) -> Result<(usize, usize)> {
    let needed = check_smallest(room, capacity, d_k, d_v)?;
    let width = d_k + d_v; // no overflow, since one tile fits
    let queries = 1 + (capacity - needed) / (width + 3);
    let keys = (capacity - queries * (width + 2)) / (width + queries);
    Ok((queries, keys))
}

/// Numbers in fast memory at a time, by tiles, d_k and d_v.
pub(super) type RoomOf = fn((usize, usize), usize, usize) -> u128;

fn room((b_q, b_k): (usize, usize), d_k: usize, d_v: usize) -> u128 {
    sum_of_products(&[
        [b_q, d_k], // queries
        [b_q, d_v], // output
        [b_q, 2],   // maximum and sum
        [b_k, d_k], // keys
        [b_k, d_v], // values
        [b_q, b_k], // scores, then weights
    ])
}

/// The room of a tile of one query and one key, if there is as much.
pub(super) fn check_smallest(
    room: RoomOf,
    capacity: usize,
    d_k: usize,
    d_v: usize,
) -> Result<usize> {
    check_positive("d_k", d_k)?;
    check_positive("d_v", d_v)?;
    let needed = room((1, 1), d_k, d_v);
    let what = "a tile of one query and one key";
    check_fits("capacity", capacity, what, needed, (capacity, capacity))?;
    Ok(needed as usize) // all of it, since it fits
}

/// Tiles that fit.
pub(super) fn check_tiles<T: Float>(
    memory: &Memory<T>,
    room: RoomOf,
    tiles: (usize, usize),
    [n_q, n_k, d_k, d_v]: [usize; 4],
) -> Result<()> {
    check_positive("tiles.0", tiles.0)?;
    check_positive("tiles.1", tiles.1)?;
    // A tile never has more than there is.
    let needed = room((tiles.0.min(n_q), tiles.1.min(n_k)), d_k, d_v);
    check_fits("tiles", format_args!("{tiles:?}"), "that", needed, memory.room())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::samples::{
        Moved, ROOMY, Ran, SIZES, assert_close, assert_needs, assert_needs_room_of_tiles,
        attended, masks, random_inputs, run, seen, total,
    };

    fn run_tiled(
        inputs: [&DMatrix<f64>; 3],
        mask: &Mask,
        capacity: usize,
        tiles: (usize, usize),
    ) -> Result<Ran<2>> {
        run(inputs, capacity, |memory, inputs| {
            tiled_attention(memory, inputs, mask, tiles).map(Into::into)
        })
    }

    fn run_chunked(
        inputs: [&DMatrix<f64>; 3],
        mask: &Mask,
        capacity: usize,
        strip: usize,
    ) -> Result<Ran<2>> {
        run(inputs, capacity, |memory, inputs| {
            chunked_attention(memory, inputs, mask, strip).map(Into::into)
        })
    }

    /// Queries, output and log-sum-exp once; of keys and values those of each tile that is not hidden.
    fn moved(
        pass: &'static str,
        [n_q, _, d_k, d_v]: [usize; 4],
        keys: usize,
    ) -> Vec<Moved> {
        vec![
            (pass, "q", n_q * d_k, 0),
            (pass, "k", keys * d_k, 0),
            (pass, "v", keys * d_v, 0),
            (pass, "log_sum_exp", 0, n_q),
            (pass, "output", 0, n_q * d_v),
        ]
    }

    /// Without a mask every block of queries sees all keys.
    fn moved_by_tiles(
        sizes @ [n_q, n_k, ..]: [usize; 4],
        (b_q, _): (usize, usize),
    ) -> Vec<Moved> {
        moved("tiles", sizes, n_q.div_ceil(b_q) * n_k)
    }

    #[test]
    fn tiles_are_attention_by_the_formula_with_room_for_just_that() {
        assert_needs_room_of_tiles(
            room,
            |[q, k, v, _], mask, capacity, tiles| {
                run_tiled([q, k, v], mask, capacity, tiles)
            },
            |sizes, [keys, _]| moved("tiles", sizes, keys),
            |[q, k, v, _], mask| attended([q, k, v], mask),
        );
    }

    #[test]
    fn strips_are_attention_by_the_formula_with_room_for_just_that() {
        for sizes @ [n_q, n_k, d_k, d_v] in SIZES {
            let [q, k, v, _] = &random_inputs(sizes);
            let inputs = [q, k, v];
            for mask in &masks(n_q, n_k) {
                let expected = attended(inputs, mask);
                for strip in [1, 2, 3, 20, usize::MAX] {
                    let [keys, _] = seen(mask, (n_q, n_k), (strip, 1));
                    assert_needs(
                        strip_room(strip.min(n_q), n_k, d_k, d_v) as usize,
                        |capacity| run_chunked(inputs, mask, capacity, strip),
                        &moved("strips", sizes, keys),
                        &expected,
                        &format!("{sizes:?} {strip} {mask:?}"),
                    );
                }
            }
        }
    }

    /// The largest that fit do fit, and larger ones would not.
    #[test]
    fn what_is_chosen_fills_fast_memory() {
        for (d_k, d_v) in [(1, 1), (3, 5), (64, 64), (128, 16)] {
            let least = room((1, 1), d_k, d_v) as usize;
            assert!(tiles_for(least - 1, d_k, d_v).is_err());
            assert_eq!(tiles_for(least, d_k, d_v).unwrap(), (1, 1));
            for capacity in (least..40 * least).step_by(7) {
                let (b_q, b_k) = tiles_for(capacity, d_k, d_v).unwrap();
                assert!(room((b_q, b_k), d_k, d_v) <= capacity as u128);
                assert!(room((b_q, b_k + 1), d_k, d_v) > capacity as u128);
                // Not even with one key could there be more queries.
                assert!(room((b_q + 1, 1), d_k, d_v) > capacity as u128);
            }
        }
        for (n_k, d_k, d_v) in [(1, 1, 1), (5, 3, 4), (1000, 64, 64)] {
            let least = strip_room(1, n_k, d_k, d_v) as usize;
            assert!(strip_for(least - 1, n_k, d_k, d_v).is_err());
            for capacity in least..least + 3000 {
                let strip = strip_for(capacity, n_k, d_k, d_v).unwrap();
                assert!(strip_room(strip, n_k, d_k, d_v) <= capacity as u128);
                assert!(strip_room(strip + 1, n_k, d_k, d_v) > capacity as u128);
            }
        }
    }

    /// No other tiles that fit the same memory move less.
    #[test]
    fn the_choice_is_the_best() {
        let sizes = [60, 60, 4, 3];
        for capacity in [30, 100, 333, 900] {
            let moved = |tiles| total(&moved_by_tiles(sizes, tiles));
            let best = moved(tiles_for(capacity, 4, 3).unwrap());
            let all = (1..=60).flat_map(|b_q| (1..=60).map(move |b_k| (b_q, b_k)));
            let fitting = all.filter(|&tiles| room(tiles, 4, 3) <= capacity as u128);
            assert_eq!(fitting.map(moved).min(), Some(best));
        }
    }

    /// A tile that is not loaded cannot be multiplied by either: a NaN in it would show.
    #[test]
    fn hidden_tiles_are_not_computed() {
        let [q, mut k, mut v, _] = random_inputs([12, 12, 3, 3]);
        let valid: Vec<bool> = (0..12).map(|j| !(4..8).contains(&j)).collect();
        let mask = Mask::padding(&valid).unwrap();
        k.rows_mut(4, 4).fill(f64::NAN);
        v.rows_mut(4, 4).fill(f64::INFINITY);
        let inputs = [&q, &k, &v];
        let expected = attended(inputs, &mask);
        let (tiled, ..) = run_tiled(inputs, &mask, ROOMY, (5, 4)).unwrap();
        assert_close(&tiled, &expected, "tiles");
        let (chunked, ..) = run_chunked(inputs, &mask, ROOMY, 5).unwrap();
        assert_close(&chunked, &expected, "strips");
    }
}
