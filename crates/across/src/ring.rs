//! Ring attention: queries stay, keys and values travel.
//!
//! Each rank begins with its own keys and values. At each step it computes what its queries see of the ones at hand, while these already go
//! on to the next rank and others come from the previous one. After as many steps as there are ranks each query has met each key, and no
//! rank ever holds the keys of more than three: its own, those at hand and those that come.
//!
//! For one number of ranks the results have the same bits on every run: each rank merges in the order of the ring. For another number
//! they are the same up to rounding.
//!
//! # Source
//! H. Liu, M. Zaharia, P. Abbeel, *Ring Attention with Blockwise Transformers for Near-Infinite Context* (2023).

use crate::agree::together;
use crate::blocks::{Block, each_block};
use crate::error::Result;
use crate::layout::Piece;
use crate::merge::Merged;
use crate::network::{Network, Number};
use crate::whole::{Local, Whole, check};
use attention::AttentionGradients;
use attention::engine::{Engine, check_shape};
use attention::flash::{FlashOutput, Inputs};
use attention::mask::SizedMask;
use nalgebra::{DMatrix, DMatrixView};

/// Returns this rank's rows of the output and of the log-sum-exp.
///
/// Any engine will do. Blocks of which the mask leaves nothing are not computed.
///
/// Shapes: `local` as [`Whole::local_shapes`] says → (rows, n_heads · d_v), (rows, n_heads).
///
/// # Errors
/// On all ranks, if one of them was given wrong input or another whole than rank 0, if its engine fails, or if it can't be reached.
pub fn forward<T: Number, N: Network>(
    network: &mut N,
    engine: &dyn Engine<T>,
    whole: &Whole,
    local: &Local<T>,
) -> Result<FlashOutput<T>> {
    let (rank, ranks) = (network.rank(), network.ranks());
    let ring = Ring::new(engine, whole, local, ranks, rank);
    let operation = ("ring::forward", 0);
    together::<T, _, _, _>(network, operation, whole, ring, |network, ring| {
        // ANCHOR: forward
        let mut merged = Merged::new(local.q.nrows(), whole.heads.0, whole.widths.1);
        let mut here = packed(local.k, local.v);
        for step in 0..ranks - 1 {
            let mut next = ring.buffer(step + 1);
            let absorb = || ring.absorb(&mut merged, &here, step);
            network.shift([&here], [&mut next], absorb)??;
            here = next;
        }
        ring.absorb(&mut merged, &here, ranks - 1)?;
        Ok(merged.finish())
        // ANCHOR_END: forward
    })
}

/// Returns the gradients with respect to this rank's rows of queries, keys and values.
///
/// A block's weights are recomputed as exp(score − log-sum-exp), and what its rows of softmax take off, D, is the sum over output ⊙
/// grad_output. Log-sum-exp and output have to be those over *all* keys. With those of the block alone, the weights of each block would
/// sum to 1. So an engine gets the rows of `forward`, and has to use them: [`Tiled`](attention::engine::Tiled) and the crate `fast` do.
/// [`ByWeights`](attention::engine::ByWeights) takes the weights that its own forward pass kept, finds none, and returns an error.
///
/// The gradients of keys and values travel behind these, one step later, and each rank adds its share. After the last step they are one
/// rank before their owner, and make one step more.
///
/// Shapes: `forward` as [`forward`] returned it, `grad_output` (rows, n_heads · d_v) → the shapes of `local`.
///
/// # Errors
/// As [`forward`].
pub fn backward<T: Number, N: Network>(
    network: &mut N,
    engine: &dyn Engine<T>,
    whole: &Whole,
    local: &Local<T>,
    forward: &FlashOutput<T>,
    grad_output: DMatrixView<T>,
) -> Result<AttentionGradients<T>> {
    let (rank, ranks) = (network.rank(), network.ranks());
    let ring = Ring::new(engine, whole, local, ranks, rank).and_then(|ring| {
        check_output(whole, forward, grad_output, local.q.nrows(), rank)?;
        Ok(ring)
    });
    let operation = ("ring::backward", 0);
    together::<T, _, _, _>(network, operation, whole, ring, |network, ring| {
        let mut grad_q = DMatrix::zeros(local.q.nrows(), local.q.ncols());
        let mut here = packed(local.k, local.v);
        let mut done: Vec<T> = vec![]; // gradients of the keys that were here before, our share among them
        // ANCHOR: backward
        for step in 0..ranks {
            // At the first step no gradients come or go, and at the last one no keys.
            let is_last = step + 1 == ranks;
            let mut next = if is_last { vec![] } else { ring.buffer(step + 1) };
            let mut others = vec![T::zero(); if step == 0 { 0 } else { here.len() }];
            let keys = if is_last { &[] } else { &here[..] };
            let given = (forward, grad_output);
            let share =
                network.shift([keys, &done], [&mut next, &mut others], || {
                    ring.share(&mut grad_q, &here, step, given)
                })??;
            // What comes has the shares of the ranks before us, in the order of the ring.
            done = share;
            done.iter_mut().zip(&others).for_each(|(sum, &others)| *sum += others);
            here = next;
        }
        let mut home = ring.buffer(0);
        network.shift([&done], [&mut home], || ())?;
        // ANCHOR_END: backward
        let (k, v) = unpacked(&home, whole, local.k.nrows());
        let [k, v] = [k, v].map(|view| attention::engine::copy_of(view));
        Ok(AttentionGradients { q: grad_q, k, v, tables: vec![] })
    })
}

/// Checks the rows of the output and its gradient.
pub(crate) fn check_output<T: Number>(
    whole: &Whole,
    forward: &FlashOutput<T>,
    grad_output: DMatrixView<T>,
    rows: usize,
    rank: usize,
) -> Result<()> {
    let output = (rows, whole.columns()[3]);
    check("grad_output", grad_output, output, rank)?;
    check("forward.output", forward.output.as_view(), output, rank)?;
    let (heads, name) = ((rows, whole.heads.0), "(rows, n_heads)");
    check_shape("forward.log_sum_exp", &forward.log_sum_exp, heads, name)?;
    Ok(check_shape("forward.log_sum_exp_low", &forward.log_sum_exp_low, heads, name)?)
}

/// Keys and values in one buffer, as they travel: first all entries of the keys, column by column, then those of the values.
pub(crate) fn packed<T: Number>(k: DMatrixView<T>, v: DMatrixView<T>) -> Vec<T> {
    let mut buffer = Vec::with_capacity(k.len() + v.len());
    for column in k.column_iter().chain(v.column_iter()) {
        buffer.extend_from_slice(column.as_slice());
    }
    buffer
}

/// The keys and values, or their gradients, of so many rows in such a buffer.
pub(crate) fn unpacked<'a, T: Number>(
    buffer: &'a [T],
    whole: &Whole,
    rows: usize,
) -> (DMatrixView<'a, T>, DMatrixView<'a, T>) {
    let [_, k, v, _] = whole.columns();
    let (keys, values) = buffer.split_at(rows * k);
    (DMatrixView::from_slice(keys, rows, k), DMatrixView::from_slice(values, rows, v))
}

/// What a rank needs at each step.
struct Ring<'a, T: Number> {
    engine: &'a dyn Engine<T>,
    whole: &'a Whole,
    local: &'a Local<'a, T>,
    sized: SizedMask,
    queries: Vec<Piece>,
    ranks: usize,
    rank: usize,
}

impl<'a, T: Number> Ring<'a, T> {
    fn new(
        engine: &'a dyn Engine<T>,
        whole: &'a Whole,
        local: &'a Local<'a, T>,
        ranks: usize,
        rank: usize,
    ) -> Result<Self> {
        let sized = whole.sized()?;
        whole.check_local(local, ranks, rank)?;
        let queries = whole.queries(ranks, rank);
        Ok(Ring { engine, whole, local, sized, queries, ranks, rank })
    }

    /// The keys that are here at a step: those of the rank that many places before.
    fn keys(&self, step: usize) -> Vec<Piece> {
        self.whole.keys(self.ranks, (self.rank + self.ranks - step) % self.ranks)
    }

    /// Zeros for keys and values of a step.
    fn buffer(&self, step: usize) -> Vec<T> {
        let rows: usize = self.keys(step).iter().map(|piece| piece.len).sum();
        let [_, k, v, _] = self.whole.columns();
        vec![T::zero(); rows * (k + v)]
    }

    /// Calls `work` for each block in which something is seen, with its inputs.
    fn each_block(
        &self,
        here: &[T],
        step: usize,
        work: impl FnMut(Block, &Inputs<T>) -> Result<()>,
    ) -> Result<()> {
        let keys = self.keys(step);
        let rows = keys.iter().map(|piece| piece.len).sum();
        let (k, v) = unpacked(here, self.whole, rows);
        let queries = (&self.queries[..], self.local.q);
        each_block(self.whole, &self.sized, queries, (&keys, k, v), work)
    }

    /// Merges what the queries see of the keys that are here.
    fn absorb(&self, merged: &mut Merged<T>, here: &[T], step: usize) -> Result<()> {
        self.each_block(here, step, |block, inputs| {
            merged.absorb(block.queries, &self.engine.forward(inputs)?);
            Ok(())
        })
    }

    /// Adds to the gradient of the queries what comes of the keys that are here, and returns the gradients of these.
    fn share(
        &self,
        grad_q: &mut DMatrix<T>,
        here: &[T],
        step: usize,
        (forward, grad_output): (&FlashOutput<T>, DMatrixView<T>),
    ) -> Result<Vec<T>> {
        let rows = self.keys(step).iter().map(|piece| piece.len).sum();
        let [_, k, v, _] = self.whole.columns();
        let (mut grad_k, mut grad_v) = (DMatrix::zeros(rows, k), DMatrix::zeros(rows, v));
        self.each_block(here, step, |block, inputs| {
            let rows =
                |all: &DMatrix<T>| all.rows_range(block.queries.clone()).into_owned();
            let forward = FlashOutput {
                output: rows(&forward.output),
                log_sum_exp: rows(&forward.log_sum_exp),
                log_sum_exp_low: rows(&forward.log_sum_exp_low),
                weights: vec![],
            };
            let grad_output = grad_output.rows_range(block.queries.clone());
            let gradients = self.engine.backward(inputs, &forward, grad_output)?;
            let mut sum = grad_q.rows_range_mut(block.queries);
            sum += gradients.q;
            let mut sum = grad_k.rows_range_mut(block.keys.clone());
            sum += gradients.k;
            let mut sum = grad_v.rows_range_mut(block.keys);
            sum += gradients.v;
            Ok(())
        })?;
        Ok(packed(grad_k.as_view(), grad_v.as_view()))
    }
}
