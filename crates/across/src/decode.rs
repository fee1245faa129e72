//! Decoding: a few queries ask a cache whose keys are spread over the ranks.
//!
//! All ranks have the queries, which are small, and each asks the keys that it holds. One exchange of these results and their log-sum-exps,
//! and each rank merges them: in the order of the ranks, so that all have the same bits, on every run. No key travels.
//!
//! # Source
//! T. Dao et al., *Flash-Decoding for long-context inference* (2023), whose parts here lie on ranks.
//!
//! ```
//! use across::{Layout, Local, Network, Threads, Whole, decode};
//! use attention::{Mask, attention, engine::Tiled, example};
//!
//! let x = example::river().x; // (n, d)
//! let (n, d) = x.shape();
//! let last = x.rows(n - 1, 1); // one query, which sees all keys
//! let whole = Whole::new((1, n), (d, d), Mask::causal());
//! let outputs = Threads::run(2, |network| {
//!     let cache = x.select_rows(&Layout::Contiguous.rows(n, 2, network.rank()));
//!     let local = Local { q: last, k: cache.as_view(), v: cache.as_view() };
//!     decode::forward(network, &Tiled::default(), &whole, &local)
//! });
//! let (expected, _) = attention(&last, &x, &x, Mask::causal())?;
//! for output in outputs {
//!     assert!((output?.output - &expected).iter().all(|off| off.abs() < 1e-14));
//! }
//! # Ok::<(), across::Error>(())
//! ```

use crate::agree::{hash_of, together};
use crate::blocks::each_block;
use crate::error::Result;
use crate::layout::Piece;
use crate::merge::Merged;
use crate::network::{Network, Number};
use crate::whole::{Local, Whole, check};
use attention::engine::Engine;
use attention::flash::FlashOutput;
use bytemuck::{cast_slice, pod_collect_to_vec};
use nalgebra::DMatrix;

/// Returns the whole output and log-sum-exp, on each rank.
///
/// The whole's `lengths` are (the number of queries, all keys of the cache), and its first layout is of no account.
///
/// Shapes: `local.q` (n_q, n_heads · d_k), the same on all ranks; `local.k` and `local.v` as [`Whole::local_shapes`] says →
/// (n_q, n_heads · d_v), (n_q, n_heads).
///
/// # Errors
/// As [`ring::forward`](crate::ring::forward); or the queries of a rank have other bits than those of rank 0.
pub fn forward<T: Number, N: Network>(
    network: &mut N,
    engine: &dyn Engine<T>,
    whole: &Whole,
    local: &Local<T>,
) -> Result<FlashOutput<T>> {
    let (rank, ranks) = (network.rank(), network.ranks());
    let sized = whole.sized().and_then(|sized| {
        let (_, k, v) = whole.local_shapes(ranks, rank);
        check("q", local.q, (whole.lengths.0, whole.columns()[0]), rank)?;
        check("k", local.k, k, rank)?;
        check("v", local.v, v, rank)?;
        Ok(sized)
    });
    let operation = ("decode::forward", hash_of(local.q));
    together::<T, _, _, _>(network, operation, whole, sized, |network, sized| {
        let (n_q, n_heads, d_v) = (whole.lengths.0, whole.heads.0, whole.widths.1);
        let queries = [Piece { start: 0, step: 1, len: n_q }];
        let keys = whole.keys(ranks, rank);
        let mut mine = Merged::new(n_q, n_heads, d_v);
        let (queries, keys) = ((&queries[..], local.q), (&keys[..], local.k, local.v));
        each_block(whole, &sized, queries, keys, |block, inputs| {
            mine.absorb(block.queries, &engine.forward(inputs)?);
            Ok(())
        })?;
        let mine = mine.finish();
        let FlashOutput { output, log_sum_exp, log_sum_exp_low: low, .. } = &mine;
        let parts = [output, log_sum_exp, low].map(|part| part.as_slice());
        let mut merged = Merged::new(n_q, n_heads, d_v);
        for part in network.gather(cast_slice(&parts.concat()))? {
            let part: Vec<T> = pod_collect_to_vec(&part); // bytes may lie anywhere
            merged.absorb(0..n_q, &unpack(&part, (n_q, n_heads, d_v)));
        }
        Ok(merged.finish())
    })
}

fn unpack<T: Number>(
    part: &[T],
    (n_q, n_heads, d_v): (usize, usize, usize),
) -> FlashOutput<T> {
    let (output, rest) = part.split_at(n_q * n_heads * d_v);
    let (log_sum_exp, low) = rest.split_at(n_q * n_heads);
    let matrix = |entries, columns| DMatrix::from_column_slice(n_q, columns, entries);
    FlashOutput {
        output: matrix(output, n_heads * d_v),
        log_sum_exp: matrix(log_sum_exp, n_heads),
        log_sum_exp_low: matrix(low, n_heads),
        weights: vec![],
    }
}
