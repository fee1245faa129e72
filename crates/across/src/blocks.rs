//! What some queries see of some keys, as blocks that an engine computes.

use crate::error::Result;
use crate::layout::Piece;
use crate::network::Number;
use crate::whole::Whole;
use attention::Mask;
use attention::engine::Rule;
use attention::flash::Inputs;
use attention::mask::{SizedMask, Visibility};
use nalgebra::{DMatrix, DMatrixView};
use std::ops::Range;

/// Some queries, and keys of which they see something; with the mask that says what, over these alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// Numbers of queries, counted from the first one of their rank.
    pub queries: Range<usize>,
    /// Numbers of keys, counted from the first one of their rank.
    pub keys: Range<usize>,
    /// Which of these queries may see which of these keys.
    pub mask: Mask,
}

/// Returns the blocks in which queries of one rank see keys of another, one for each two pieces of which something is seen.
///
/// A block is as small as can be, its mask as simple as can be: none, causal, or else any pattern. What engines do with the first two is
/// faster, and they skip the hidden half of the second.
///
/// ```
/// use across::{Layout, blocks};
/// use attention::Mask;
///
/// // Of 8 tokens rank 0 has 0, 1, 6 and 7, rank 1 the others: 6 and 7 see all that rank 1 has, 0 and 1 nothing.
/// let (mask, pieces) = (Mask::causal(), |rank| Layout::Zigzag.pieces(8, 2, rank));
/// let blocks = blocks(&mask, &mask.sized(8, 8)?, &pieces(0), &pieces(1));
/// assert!(blocks.iter().all(|block| block.queries == (2..4) && block.mask == Mask::none()));
/// # Ok::<(), attention::Error>(())
/// ```
#[must_use]
pub fn blocks(
    mask: &Mask,
    sized: &SizedMask,
    queries: &[Piece],
    keys: &[Piece],
) -> Vec<Block> {
    let mut blocks = vec![];
    for (first_query, of_queries) in with_offsets(queries) {
        for (first_key, of_keys) in with_offsets(keys) {
            let Some((rows, columns, mask)) = meet(mask, sized, of_queries, of_keys)
            else {
                continue;
            };
            blocks.push(Block {
                queries: first_query + rows.start..first_query + rows.end,
                keys: first_key + columns.start..first_key + columns.end,
                mask,
            });
        }
    }
    blocks
}

/// Calls `work` for each block of a rank's queries and of keys, both with their pieces, in which something is seen.
pub(crate) fn each_block<T: Number>(
    whole: &Whole,
    sized: &SizedMask,
    (queries, q): (&[Piece], DMatrixView<T>),
    (keys, k, v): (&[Piece], DMatrixView<T>, DMatrixView<T>),
    mut work: impl FnMut(Block, &Inputs<T>) -> Result<()>,
) -> Result<()> {
    for block in blocks(&whole.mask, sized, queries, keys) {
        let inputs = Inputs::grouped(
            q.rows_range(block.queries.clone()),
            k.rows_range(block.keys.clone()),
            v.rows_range(block.keys.clone()),
            &block.mask,
            whole.heads.0,
            whole.heads.1,
        )?;
        work(block, &inputs)?;
    }
    Ok(())
}

/// The pieces of a rank, each with the number of rows before it.
fn with_offsets(pieces: &[Piece]) -> impl Iterator<Item = (usize, &Piece)> {
    pieces.iter().scan(0, |offset, piece| {
        *offset += piece.len;
        Some((*offset - piece.len, piece))
    })
}

type Seen = (Range<usize>, Range<usize>, Mask);

/// The queries and keys of two pieces between which something is seen, and the mask over them.
fn meet(mask: &Mask, sized: &SizedMask, queries: &Piece, keys: &Piece) -> Option<Seen> {
    match sized.visibility(queries.hull(), keys.hull()) {
        Visibility::Hidden => return None,
        Visibility::Full => return Some((0..queries.len, 0..keys.len, Mask::none())),
        Visibility::Partial => {}
    }
    if let Some(seen) = below_diagonal(mask, sized, queries, keys) {
        return seen;
    }
    // Any other pattern is asked pair by pair, which costs less than the scores of these pairs, but not nothing.
    let seen = |i: usize, j: usize| sized.allows(queries.row(i), keys.row(j));
    let rows = span(queries.len, |i| (0..keys.len).any(|j| seen(i, j)))?;
    let columns = span(keys.len, |j| rows.clone().any(|i| seen(i, j)))?;
    let (n_q, n_k) = (rows.len(), columns.len());
    let allowed =
        DMatrix::from_fn(n_q, n_k, |i, j| seen(rows.start + i, columns.start + j));
    let is = |rule: &dyn Fn(usize, usize) -> bool| {
        (0..n_k).all(|j| (0..n_q).all(|i| allowed[(i, j)] == rule(i, j)))
    };
    let mask = if is(&|_, _| true) {
        Mask::none()
    } else if is(&|i, j| j + n_q <= i + n_k) {
        Mask::causal()
    } else {
        Mask::dense(allowed).ok()? // which has rows and columns
    };
    Some((rows, columns, mask))
}

/// What a causal mask leaves of two pieces, if that is causal again; without asking for each pair.
///
/// Query `s` of a piece stands at place a + step · s of the keys, and key `t` of the other at b + step · t: it is seen if t ≤ s + c, where c
/// is (a − b) / step, rounded down. With a negative c the first −c queries see nothing. The last query sees the first len + c keys, and no
/// other query sees more: if there are that many, these are the columns of a mask that is causal as the library understands it, with the
/// last query at the last key.
fn below_diagonal(
    mask: &Mask,
    sized: &SizedMask,
    queries: &Piece,
    keys: &Piece,
) -> Option<Option<Seen>> {
    if mask.rules() != [Rule::Causal] || queries.step != keys.step {
        return None;
    }
    let (n_q, n_k) = sized.shape();
    let place = (queries.start + n_k) as isize - n_q as isize;
    let c = (place - keys.start as isize).div_euclid(keys.step as isize);
    let columns = (queries.len as isize + c).max(0) as usize;
    if columns > keys.len {
        return None;
    }
    let first = (-c).max(0) as usize;
    Some((columns > 0).then(|| (first..queries.len, 0..columns, Mask::causal())))
}

/// From the first to the last of `0..len` for which `is` is true.
fn span(len: usize, is: impl Fn(usize) -> bool) -> Option<Range<usize>> {
    let first = (0..len).find(|&i| is(i))?;
    let last = (first..len).rev().find(|&i| is(i))?;
    Some(first..last + 1)
}
