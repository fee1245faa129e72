//! Attention over several ranks: processes, or threads, each with a memory of its own, that send one another messages.
//!
//! Each rank holds some rows of the queries, keys and values, as a [`Layout`] says, and gets the same rows of the output and of the
//! gradients. The results are those of one process, up to rounding; with [`by_keys`] they have the same bits for any number of ranks.
//!
//! - [`ring`]: keys and values travel from rank to rank, and each rank merges what its queries see of them.
//! - [`by_keys`]: the same sums in one fixed order.
//! - [`heads`]: ranks exchange rows for heads, and each attends over the whole sequence with some of the heads.
//! - [`decode`]: a few queries ask a cache whose keys are spread over the ranks.
//! - [`cost`]: what each of these sends and computes, as formulas.
//!
//! What connects the ranks is a [`Network`]. [`Threads`] is one within a process, so all of this runs and is tested without any other.
//!
//! # An error is an error on all ranks
//! Before anything travels, all ranks compare what they were asked for, and at the end each waits for word from all others. So an
//! operation that fails on one rank returns an error on all of them, in bounded time. After an error in the middle of an operation the
//! network can't be used any more. One case is left: a rank whose patience ends while it waits for the last word has an error, though all
//! others may have their results; they hear of it at their next operation.
//!
//! ```
//! use across::{Layout, Local, Network, Threads, Whole, ring};
//! use attention::{Mask, attention, engine::Tiled, example};
//!
//! let x = example::river().x; // (n, d)
//! let (n, d) = x.shape();
//! let whole = Whole::new((n, n), (d, d), Mask::causal()).with_layouts(Layout::Zigzag, Layout::Zigzag);
//! let outputs = Threads::run(2, |network| {
//!     let mine = x.select_rows(&Layout::Zigzag.rows(n, 2, network.rank()));
//!     let local = Local { q: mine.as_view(), k: mine.as_view(), v: mine.as_view() };
//!     ring::forward(network, &Tiled::default(), &whole, &local)
//! });
//! let (expected, _) = attention(&x, &x, &x, Mask::causal())?;
//! for (rank, output) in outputs.into_iter().enumerate() {
//!     let rows = Layout::Zigzag.rows(n, 2, rank);
//!     let off = output?.output - expected.select_rows(&rows);
//!     assert!(off.iter().all(|off| off.abs() < 1e-14));
//! }
//! # Ok::<(), across::Error>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod agree;
mod blocks;
pub mod by_keys;
pub mod check;
pub mod cost;
pub mod decode;
mod error;
pub mod heads;
mod layout;
mod merge;
mod network;
pub mod ring;
mod threads;
mod whole;

pub use blocks::{Block, blocks};
pub use error::{Error, Result};
pub use layout::{Layout, Piece};
pub use merge::Merged;
pub use network::{Network, Number};
pub use threads::Threads;
pub use whole::{Local, Whole};
