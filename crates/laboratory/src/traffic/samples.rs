//! What the programs are tested with.

use attention::{AttentionShape, Mask};
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

pub fn shape([n_q, n_k, d_k, d_v]: [usize; 4]) -> AttentionShape {
    AttentionShape { batch: 1, n_q, n_k, d_model: 1, d_k, d_v, n_heads: 1 }
}

pub fn masks(n_q: usize, n_k: usize) -> Vec<Mask> {
    let valid: Vec<bool> = (0..n_k).map(|j| j % 3 != 1).collect();
    let allowed = DMatrix::from_fn(n_q, n_k, |i, j| i % 4 != 2 && (i + j) % 2 == 0);
    let padding = Mask::padding(&valid).unwrap();
    vec![
        Mask::none(),
        Mask::causal(),
        padding.clone(),
        Mask::causal().and(padding),
        Mask::window(2).unwrap(),
        Mask::dense(allowed).unwrap(), // has rows that see nothing
        Mask::padding(&vec![false; n_k]).unwrap(),
    ]
}

/// Queries and keys: of one, that divide nothing, of the whole, and of more than there is.
pub const TILES: [(usize, usize); 6] =
    [(1, 1), (2, 3), (3, 2), (5, 1), (1, 4), (20, usize::MAX)];
