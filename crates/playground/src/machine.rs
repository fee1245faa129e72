//! Operations, bytes and clocks, from the laboratory, for the figures about machines.

use crate::Mask;
use across::{Layout, Whole, cost};
use attention::mask::Visibility;
use laboratory::cost::AttentionShape;
use laboratory::gpu::{Ask, BANKS, Lengths, WARP, Work, clocks, warp};
use laboratory::roofline;
use laboratory::traffic::{
    self, Memory, SlowMatrix, blocks, chunked_attention, fused_attention,
    naive_attention, strip_for, tiled_attention,
};
use nalgebra::DMatrix;
use wasm_bindgen::prelude::*;

/// A step of attention under a roof.
#[wasm_bindgen]
#[derive(Debug, Clone, Copy)]
pub struct RooflineStep(roofline::Step);

#[wasm_bindgen]
impl RooflineStep {
    /// Scores, scale, softmax, values and the whole, for one head and numbers of so many bytes.
    ///
    /// # Errors
    /// As [`roofline::steps`].
    pub fn all(
        tokens: usize,
        width: usize,
        bytes: usize,
    ) -> Result<Vec<RooflineStep>, JsError> {
        let shape = AttentionShape::self_attention(1, tokens, width, width, 1);
        Ok(roofline::steps(&shape, bytes)?.map(RooflineStep).to_vec())
    }

    #[wasm_bindgen(getter)]
    pub fn name(&self) -> String {
        self.0.name.to_owned()
    }

    /// Operations a byte.
    #[wasm_bindgen(getter)]
    pub fn intensity(&self) -> f64 {
        self.0.intensity()
    }
}

/// Attention in tiles of one head, tile by tile, on a machine that counts what crosses between its memories.
#[wasm_bindgen]
#[derive(Debug)]
pub struct TileWalk {
    visits: Vec<Visit>,
    totals: Vec<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Visit {
    queries: usize,
    keys: usize,
    /// Numbers read and written.
    moved: usize,
}

#[wasm_bindgen]
impl TileWalk {
    /// `capacity` is the size of fast memory in numbers.
    ///
    /// # Errors
    /// As [`tiled_attention`]: the tiles don't fit, for instance.
    #[wasm_bindgen(constructor)]
    pub fn new(
        tokens: usize,
        width: usize,
        capacity: usize,
        queries: usize,
        keys: usize,
        mask: &Mask,
    ) -> Result<TileWalk, JsError> {
        let (mask, tiles) = (&mask.0, (queries, keys));
        type Program<'a> = &'a dyn for<'m> Fn(
            &'m Memory<f64>,
            [&SlowMatrix<'m, f64>; 3],
        ) -> traffic::Result<()>;
        let total = |program: Program| -> traffic::Result<f64> {
            let memory = Memory::new(capacity);
            // Whatever the numbers are, as many move.
            let inputs = ["q", "k", "v"]
                .map(|name| memory.put(name, DMatrix::zeros(tokens, width)));
            program(&memory, inputs.each_ref())?;
            Ok(memory.report().total().all() as f64)
        };
        let tiled = total(&|memory, inputs| {
            tiled_attention(memory, inputs, mask, tiles).map(drop)
        })?;
        let others = [
            total(&|memory, inputs| naive_attention(memory, inputs, mask).map(drop)),
            total(&|memory, inputs| fused_attention(memory, inputs, mask).map(drop)),
            total(&|memory, inputs| {
                let strip = strip_for(capacity, tokens, width, width)?;
                chunked_attention(memory, inputs, mask, strip).map(drop)
            }),
        ];
        let [naive, fused, strips] = others.map(|total| total.unwrap_or(f64::NAN));
        let totals = vec![naive, fused, strips, tiled];

        let mask = mask.sized(tokens, tokens)?;
        let mut visits = vec![];
        for (i, rows) in blocks(tokens, queries).enumerate() {
            let before = visits.len();
            for (j, columns) in blocks(tokens, keys).enumerate() {
                let seen = mask.visibility(rows.clone(), columns.clone());
                if seen != Visibility::Hidden {
                    let moved = 2 * columns.len() * width; // keys and values
                    visits.push(Visit { queries: i, keys: j, moved });
                }
            }
            // The queries come before their first tile; the output and the log-sum-exp go after the last.
            if before < visits.len() {
                let last = visits.len() - 1;
                visits[before].moved += rows.len() * width;
                visits[last].moved += rows.len() * (width + 1);
            }
        }
        Ok(TileWalk { visits, totals })
    }

    /// The block of queries of each tile that is computed, in the order of the walk.
    #[wasm_bindgen(getter)]
    pub fn queries(&self) -> Vec<usize> {
        self.visits.iter().map(|visit| visit.queries).collect()
    }

    /// The block of keys of each tile, in the order of the walk.
    #[wasm_bindgen(getter)]
    pub fn keys(&self) -> Vec<usize> {
        self.visits.iter().map(|visit| visit.keys).collect()
    }

    /// Numbers read and written up to a tile.
    pub fn moved(&self, tiles: usize) -> usize {
        self.visits[..tiles].iter().map(|visit| visit.moved).sum()
    }

    /// All numbers that a program moves: the naive one, the fused one, strips of queries, tiles. NaN for one that does not fit. Only
    /// the last two move less under a mask.
    #[wasm_bindgen(getter)]
    pub fn totals(&self) -> Vec<f64> {
        self.totals.clone()
    }
}

/// A load of a warp from a tile in shared memory, of which several lanes read the same column.
#[wasm_bindgen]
#[derive(Debug)]
pub struct BankLoad {
    asks: Vec<Ask>,
}

#[wasm_bindgen]
impl BankLoad {
    /// The lanes share out `rows` rows of a tile that is `width` words wide, with `padding` words behind each row. Each lane reads
    /// so many `words` of its row; lanes of one row read the same. With `swizzled`, the pieces of a row change places by the
    /// number of the row.
    ///
    /// # Errors
    /// A load of four words does not begin at a multiple of four.
    #[wasm_bindgen(constructor)]
    pub fn new(
        rows: usize,
        width: usize,
        padding: usize,
        swizzled: bool,
        words: usize,
    ) -> Result<BankLoad, JsError> {
        if !padding.is_multiple_of(words) {
            let message = format!(
                "rows of {} words are not aligned for loads of {words} words",
                width + padding
            );
            return Err(JsError::new(&message));
        }
        let pieces = (width / words).min(BANKS / words);
        let asks = warp(|lane| {
            let row = lane / WARP.div_ceil(rows);
            let piece = if swizzled { row % pieces } else { 0 };
            Ask { address: row * (width + padding) + words * piece, words }
        });
        Ok(BankLoad { asks })
    }

    /// Clocks of the load.
    #[wasm_bindgen(getter)]
    pub fn clocks(&self) -> usize {
        clocks(&self.asks)
    }

    /// The bank of the first word that each lane reads.
    #[wasm_bindgen(getter)]
    pub fn banks(&self) -> Vec<usize> {
        self.asks.iter().map(|ask| ask.address % BANKS).collect()
    }
}

/// A piece of work on the time-line of a multiprocessor.
#[wasm_bindgen]
#[derive(Debug, Clone, Copy)]
pub struct PlannedWork {
    /// 0: scores, 1: softmax, 2: output.
    pub work: usize,
    pub consumer: usize,
    pub tile: usize,
    /// The first clock, and the clock after the last.
    pub from: usize,
    pub to: usize,
}

/// Tiles of 64 queries and 128 keys of width 128, as those of kernel 4.
fn lengths(softmax: usize) -> Lengths {
    let lengths = Lengths::new(128, 128);
    let exponentials = softmax.saturating_sub(lengths.others);
    Lengths { exponentials, ..lengths }
}

#[wasm_bindgen]
impl PlannedWork {
    /// One or two consumers whose softmax takes so many clocks, and runs beside the output of the tile before or does not.
    pub fn plan(consumers: usize, overlap: bool, softmax: usize) -> Vec<PlannedWork> {
        const TILES: usize = 9;
        let bars = lengths(softmax).time_line(consumers, overlap, TILES);
        let work = |work| match work {
            Work::Scores => 0,
            Work::Softmax => 1,
            Work::Output => 2,
        };
        let planned = bars.into_iter().map(|bar| PlannedWork {
            work: work(bar.work),
            consumer: bar.consumer,
            tile: bar.span.tile,
            from: bar.span.from,
            to: bar.span.to,
        });
        planned.collect()
    }

    /// Clocks of a correction, which follows a softmax.
    pub fn correction() -> usize {
        lengths(0).correction
    }

    /// The share of the time that the units of softmax work for two consumers, if all of its clocks are work. Above 1, much of it
    /// has to be waiting.
    #[wasm_bindgen(js_name = softmaxBusy)]
    pub fn softmax_busy(softmax: usize) -> f64 {
        lengths(softmax).softmax_busy()
    }

    /// The share of the time that the tensor cores work, far from the beginning and the end.
    pub fn busy(consumers: usize, overlap: bool, softmax: usize) -> f64 {
        lengths(softmax).busy(consumers, overlap)
    }
}

/// Attention of one head over several ranks: which rank holds which rows, and the pairs that it computes at each step of the ring.
#[wasm_bindgen]
#[derive(Debug)]
pub struct RingWalk {
    rows: Vec<Vec<usize>>,
    pairs: Vec<Vec<u64>>,
}

#[wasm_bindgen]
impl RingWalk {
    /// `layout` is 0 for contiguous, 1 for zigzag, 2 for striped.
    ///
    /// # Errors
    /// There is no token, or the mask was made for another number of them.
    #[wasm_bindgen(constructor)]
    pub fn new(
        tokens: usize,
        ranks: usize,
        layout: usize,
        mask: &Mask,
    ) -> Result<RingWalk, JsError> {
        let layouts = [Layout::Contiguous, Layout::Zigzag, Layout::Striped];
        let layout = layouts[layout.min(2)];
        let whole = Whole::new((tokens, tokens), (1, 1), mask.0.clone())
            .with_layouts(layout, layout);
        let rows = (0..ranks).map(|rank| layout.rows(tokens, ranks, rank)).collect();
        Ok(RingWalk { rows, pairs: cost::pairs(&whole, ranks)? })
    }

    /// The rows of a rank.
    pub fn rows(&self, rank: usize) -> Vec<usize> {
        self.rows[rank].clone()
    }

    /// The pairs of a query and a key that it sees, which a rank computes at a step.
    pub fn pairs(&self, rank: usize, step: usize) -> usize {
        self.pairs[rank][step] as usize
    }

    /// The share of the time in which ranks compute, if at each step all wait for the slowest.
    #[wasm_bindgen(getter)]
    pub fn balance(&self) -> f64 {
        cost::balance(&self.pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_moves_what_the_laboratory_counts() {
        let masks = [
            Mask::none(),
            Mask::causal(),
            Mask::window(4).ok().unwrap(),
            Mask::padding(9, 16).ok().unwrap(),
        ];
        for (mask, tiles) in masks.iter().zip([(4, 4), (3, 5), (16, 1), (5, 2)]) {
            let walk = TileWalk::new(16, 4, 400, tiles.0, tiles.1, mask).ok().unwrap();
            assert_eq!(
                walk.moved(walk.queries().len()) as f64,
                walk.totals()[3],
                "{tiles:?}"
            );
        }
    }

    #[test]
    fn padding_or_a_swizzle_spreads_a_column_over_the_banks() {
        let load = |rows, padding, swizzled, words| {
            BankLoad::new(rows, 128, padding, swizzled, words).ok().unwrap().clocks()
        };
        assert_eq!([load(32, 0, false, 1), load(32, 1, false, 1)], [32, 1]);
        assert_eq!([load(32, 2, false, 1), load(32, 0, true, 1)], [2, 1]);
        assert_eq!([load(8, 0, false, 1), load(8, 1, false, 1)], [8, 1]);
        assert_eq!([load(32, 0, false, 4), load(32, 4, false, 4)], [32, 4]);
        assert_eq!(load(32, 0, true, 4), 4);
    }
}
