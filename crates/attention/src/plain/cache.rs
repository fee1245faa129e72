use super::{Heads, Matrix, Model, rms_norm};

// ANCHOR: cache
/// The keys and values of the tokens so far, which no later token changes.
pub struct Cache {
    pub k: Vec<Matrix>, // of each head (n, d), turned to their positions
    pub v: Vec<Matrix>, // of each head (n, d)
}

impl Cache {
    pub fn new(heads: &Heads) -> Cache {
        let empty = heads.split(&Matrix::zeros(0, heads.layer.w_q.ncols()));
        Cache { k: empty.clone(), v: empty }
    }

    /// The layer's output for one more token, `x` (1, d_model).
    pub fn step(&mut self, heads: &Heads, x: &Matrix) -> Matrix {
        let n = self.k[0].nrows();
        let [q, k, v] = heads.project(x, n);
        let stores = self.k.iter_mut().chain(&mut self.v);
        for (store, row) in stores.zip(k.iter().chain(&v)) {
            *store = store.clone().insert_row(n, 0.0);
            store.set_row(n, &row.row(0));
        }
        heads.attend([&q, &self.k, &self.v], |_, _| true).0 * &heads.layer.w_o
    }
}
// ANCHOR_END: cache

// ANCHOR: step
impl Model {
    /// The scores (1, vocabulary) of what follows one more token, with a cache for each
    /// block.
    pub fn step(&self, token: usize, caches: &mut [Cache]) -> Matrix {
        let mut x = self.embedding.rows(token, 1).into_owned();
        for (block, cache) in self.blocks.iter().zip(caches) {
            x += cache.step(&block.heads, &rms_norm(&x));
            x += block.mlp.forward(&rms_norm(&x));
        }
        rms_norm(&x) * &self.unembedding
    }
}
// ANCHOR_END: step
