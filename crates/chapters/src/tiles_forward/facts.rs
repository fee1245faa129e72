//! Masks, memory and operations.

use crate::random::normal;
use crate::tiles_traffic::facts::{D, ELEMENT};
use anyhow::{Result, anyhow};
use attention::flash::{Inputs, Tiles, tiled_attention};
use attention::{Mask, attention, mask::Visibility};
use laboratory::traffic::blocks;
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::thread;

/// Queries and keys of a tile.
pub const TILE: usize = 64;
const SQUARE: Tiles = Tiles { queries: TILE, keys: TILE };

// ---------------------------------------------------------------------------------------------------- masks

/// The kind of every tile of n tokens: blocks of queries, blocks of keys.
pub struct Kinds(pub DMatrix<Visibility>);

impl Kinds {
    pub fn new(mask: &Mask, n: usize, tiles: Tiles) -> Result<Self> {
        let sized = mask.sized(n, n)?;
        let rows: Vec<_> = blocks(n, tiles.queries).collect();
        let columns: Vec<_> = blocks(n, tiles.keys).collect();
        Ok(Kinds(DMatrix::from_fn(rows.len(), columns.len(), |i, j| {
            sized.visibility(rows[i].clone(), columns[j].clone())
        })))
    }

    pub fn count(&self, kind: Visibility) -> usize {
        self.0.iter().filter(|&&k| k == kind).count()
    }

    /// The share of tiles that are computed, since they are not hidden.
    pub fn computed(&self) -> f64 {
        let left = self.0.len() - self.count(Visibility::Hidden);
        left as f64 / self.0.len() as f64
    }
}

/// Tokens, width of the window and real keys of [`masked`].
pub const MASKED_N: usize = 512;
pub const WINDOW: usize = 128;
pub const VALID: usize = 300;

/// A mask, and the tiles that it leaves.
pub struct Masked {
    pub name: &'static str,
    pub kinds: Kinds,
    /// The share of pairs that are visible.
    pub visible: f64,
}

pub fn masked() -> Result<[Masked; 4]> {
    let padding = Mask::padding(&std::array::from_fn::<_, MASKED_N, _>(|j| j < VALID))?;
    let masked = |name, mask: Mask| {
        let allowed = mask.sized(MASKED_N, MASKED_N)?.allowed_matrix();
        let seen = allowed.iter().filter(|&&seen| seen).count() as f64;
        let kinds = Kinds::new(&mask, MASKED_N, SQUARE)?;
        anyhow::Ok(Masked { name, kinds, visible: seen / allowed.len() as f64 })
    };
    Ok([
        masked("causal", Mask::causal())?,
        masked("window", Mask::window(WINDOW)?)?,
        masked("padding", padding.clone())?,
        masked("causal and padding", Mask::causal().and(padding))?,
    ])
}

// ---------------------------------------------------------------------------------------------------- memory

/// The most bytes that programs for `n` tokens allocate, counted.
pub struct Allocated {
    pub n: usize,
    pub naive: usize,
    pub strips: usize,
    pub tiled: usize,
    /// The result itself, with a log-sum-exp for each row, in two parts.
    pub result: usize,
}

pub fn allocated() -> Result<Vec<Allocated>> {
    [128, 256, 512, 1024, 2048, 4096].into_iter().map(Allocated::counted).collect()
}

impl Allocated {
    fn counted(n: usize) -> Result<Self> {
        let rng = &mut ChaCha8Rng::seed_from_u64(n as u64);
        let [q, k, v] = [0, 1, 2].map(|_| normal(n, D, rng).map(|x| x as f32));
        let mask = Mask::none();
        let inputs = Inputs::new(&q, &k, &v, &mask)?;
        Ok(Allocated {
            n,
            naive: peak(|| Ok(attention(&q, &k, &v, &mask)?))?,
            strips: peak(|| in_strips([&q, &k, &v]))?,
            tiled: peak(|| Ok(tiled_attention(&inputs, SQUARE)?))?,
            result: ELEMENT * n * (D + 2),
        })
    }
}

/// The most bytes alive at once, of what a new thread allocates while it works.
fn peak<O>(work: impl FnOnce() -> Result<O> + Send) -> Result<usize> {
    thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut failed = None;
            let counted = allocation_counter::measure(|| failed = work().err());
            failed.map_or(Ok(counted.bytes_max as usize), Err)
        });
        counting.join().map_err(|_| anyhow!("the thread that counts panicked"))?
    })
}

/// The half-way step: the ordinary attention, a strip of queries at a time.
fn in_strips([q, k, v]: [&DMatrix<f32>; 3]) -> Result<DMatrix<f32>> {
    let mut output = DMatrix::zeros(q.nrows(), v.ncols());
    for rows in blocks(q.nrows(), TILE) {
        let q = q.rows_range(rows.clone()).into_owned();
        let (o, _) = attention(&q, k, v, Mask::none())?;
        output.rows_range_mut(rows).copy_from(&o);
    }
    Ok(output)
}
