//! Head-parallel attention: ranks exchange rows of all heads for all rows of some heads.
//!
//! Between the exchanges a rank has the whole sequence, so any engine does its work as in one process, for n_heads / ranks heads. Each
//! rank sends all of what it has but one part in `ranks`, once there and once back: less with more ranks, where the ring sends the same.
//! But no more ranks can take part than there are heads of keys, and each rank's memory has to hold a whole sequence.
//!
//! # Source
//! S. A. Jacobs et al., *DeepSpeed Ulysses* (2023).
//!
//! ```
//! use across::{Layout, Local, Network, Threads, Whole, heads};
//! use attention::{Mask, engine::ByWeights, example};
//!
//! let x = example::river().x; // (n, 4): two heads of two columns
//! let n = x.nrows();
//! let whole = Whole::new((n, n), (2, 2), Mask::causal()).with_heads(2, 2);
//! let gradients = Threads::run(2, |network| {
//!     let mine = x.select_rows(&Layout::Contiguous.rows(n, 2, network.rank()));
//!     let local = Local { q: mine.as_view(), k: mine.as_view(), v: mine.as_view() };
//!     let (output, kept) = heads::forward(network, &ByWeights, &whole, &local)?;
//!     assert_eq!(output.shape(), mine.shape());
//!     heads::backward(network, &ByWeights, &whole, &kept, mine.as_view())
//! });
//! assert!(gradients.iter().all(Result::is_ok));
//! ```

use crate::agree::together;
use crate::error::Result;
use crate::layout::Layout;
use crate::network::{Network, Number};
use crate::whole::{Local, Whole};
use attention::AttentionGradients;
use attention::engine::{Engine, wrong_value};
use attention::flash::{FlashOutput, Inputs};
use nalgebra::{DMatrix, DMatrixView};

/// What the backward pass needs of the forward pass: this rank's heads over the whole sequence.
#[derive(Debug, Clone)]
pub struct Kept<T: Number> {
    q: DMatrix<T>,
    k: DMatrix<T>,
    v: DMatrix<T>,
    forward: FlashOutput<T>,
}

/// Returns this rank's rows of the output, and what [`backward`] needs.
///
/// Any engine will do. The log-sum-exp stays with the heads, within [`Kept`].
///
/// Shapes: `local` as [`Whole::local_shapes`] says → (rows, n_heads · d_v).
///
/// # Errors
/// As [`ring::forward`](crate::ring::forward); or the number of ranks doesn't divide n_kv_heads.
pub fn forward<T: Number, N: Network>(
    network: &mut N,
    engine: &dyn Engine<T>,
    whole: &Whole,
    local: &Local<T>,
) -> Result<(DMatrix<T>, Kept<T>)> {
    let checked = check(whole, network)
        .and_then(|()| whole.check_local(local, network.ranks(), network.rank()));
    let operation = ("heads::forward", 0);
    together::<T, _, _, _>(network, operation, whole, checked, |network, ()| {
        let (queries, keys) = sides(whole);
        let [q, k, v] = [(local.q, queries), (local.k, keys), (local.v, keys)];
        let q = to_heads(network, q.0, q.1)?;
        let k = to_heads(network, k.0, k.1)?;
        let v = to_heads(network, v.0, v.1)?;
        let forward = engine.forward(&inputs(whole, network.ranks(), [&q, &k, &v])?)?;
        let output = to_rows(network, &forward.output, queries)?;
        Ok((output, Kept { q, k, v, forward }))
    })
}

/// Returns the gradients with respect to this rank's rows of queries, keys and values.
///
/// Any engine will do, if it is the one of the forward pass.
///
/// Shapes: `grad_output` (rows, n_heads · d_v).
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Number, N: Network>(
    network: &mut N,
    engine: &dyn Engine<T>,
    whole: &Whole,
    kept: &Kept<T>,
    grad_output: DMatrixView<T>,
) -> Result<AttentionGradients<T>> {
    let (rank, ranks) = (network.rank(), network.ranks());
    let checked = check(whole, network).and_then(|()| {
        let ((rows, _), _, _) = whole.local_shapes(ranks, rank);
        crate::whole::check("grad_output", grad_output, (rows, whole.columns()[3]), rank)
    });
    let operation = ("heads::backward", 0);
    together::<T, _, _, _>(network, operation, whole, checked, |network, ()| {
        let (queries, keys) = sides(whole);
        let Kept { q, k, v, forward } = kept;
        let grad_output = to_heads(network, grad_output, queries)?;
        let inputs = inputs(whole, ranks, [q, k, v])?;
        let gradients = engine.backward(&inputs, forward, grad_output.as_view())?;
        Ok(AttentionGradients {
            q: to_rows(network, &gradients.q, queries)?,
            k: to_rows(network, &gradients.k, keys)?,
            v: to_rows(network, &gradients.v, keys)?,
            tables: vec![],
        })
    })
}

/// A layout, and the rows of the whole sequence that it shares out.
type Side = (Layout, usize);

fn sides(whole: &Whole) -> (Side, Side) {
    ((whole.layouts.0, whole.lengths.0), (whole.layouts.1, whole.lengths.1))
}

fn check<N: Network>(whole: &Whole, network: &N) -> Result<()> {
    whole.sized()?;
    let (ranks, n_kv_heads) = (network.ranks(), whole.heads.1);
    if !n_kv_heads.is_multiple_of(ranks) {
        let because = format!("it must divide n_kv_heads = {n_kv_heads}");
        return Err(wrong_value("ranks", ranks, because).into());
    }
    Ok(())
}

/// This rank's heads of the whole sequence. A group of heads and the keys that it shares stay together, since the ranks divide both.
fn inputs<'a, T: Number>(
    whole: &Whole,
    ranks: usize,
    [q, k, v]: [&'a DMatrix<T>; 3],
) -> Result<Inputs<'a, T>> {
    let (n_heads, n_kv_heads) = whole.heads;
    Ok(Inputs::grouped(q, k, v, &whole.mask, n_heads / ranks, n_kv_heads / ranks)?)
}

/// From some rows of all heads to all rows of some heads: (rows, columns) → (n, columns / ranks).
fn to_heads<T: Number, N: Network>(
    network: &mut N,
    local: DMatrixView<T>,
    (layout, n): Side,
) -> Result<DMatrix<T>> {
    let ranks = network.ranks();
    let columns = local.ncols() / ranks;
    let part = |rank| entries(local.columns(rank * columns, columns));
    let outgoing: Vec<_> = (0..ranks).map(part).collect();
    let rows: Vec<_> = (0..ranks).map(|rank| layout.rows(n, ranks, rank)).collect();
    let room = |rows: &Vec<usize>| vec![T::zero(); rows.len() * columns];
    let mut incoming: Vec<_> = rows.iter().map(room).collect();
    network.all_to_all(&outgoing, &mut incoming)?;
    let mut all = DMatrix::zeros(n, columns);
    for (rows, buffer) in rows.iter().zip(&incoming) {
        let part = DMatrixView::from_slice(buffer, rows.len(), columns);
        for (from, mut to) in part.column_iter().zip(all.column_iter_mut()) {
            rows.iter().zip(from.iter()).for_each(|(&row, &x)| to[row] = x);
        }
    }
    Ok(all)
}

/// And back: (n, columns / ranks) → (rows, columns).
fn to_rows<T: Number, N: Network>(
    network: &mut N,
    all: &DMatrix<T>,
    (layout, n): Side,
) -> Result<DMatrix<T>> {
    let (rank, ranks, columns) = (network.rank(), network.ranks(), all.ncols());
    let part = |rank| entries(all.select_rows(&layout.rows(n, ranks, rank)).as_view());
    let outgoing: Vec<_> = (0..ranks).map(part).collect();
    let rows = layout.count(n, ranks, rank);
    let mut incoming = vec![vec![T::zero(); rows * columns]; ranks];
    network.all_to_all(&outgoing, &mut incoming)?;
    Ok(DMatrix::from_vec(rows, columns * ranks, incoming.concat()))
}

fn entries<T: Number>(matrix: DMatrixView<T>) -> Vec<T> {
    matrix.column_iter().flat_map(|column| column.as_slice().to_vec()).collect()
}
