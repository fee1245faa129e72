use super::{Layer, Matrix, attention};

// ANCHOR: heads
/// A layer whose columns are shared out among several heads.
#[derive(Clone)]
pub struct Heads {
    pub layer: Layer,
    pub n_heads: usize,
    pub turn: Option<Turn>, // what is done to queries and keys before they meet
}

/// Turns each row by its position; the first row's is given. A direction of 1 turns, and
/// −1 turns back.
pub type Turn = fn(&Matrix, usize, f64) -> Matrix;
// ANCHOR_END: heads

// ANCHOR: kept
/// What the backward pass needs of the forward pass.
pub struct Kept {
    pub x: Matrix,             // (n, d_model)
    pub qkv: [Vec<Matrix>; 3], // queries, keys and values of each head (n, d)
    pub weights: Vec<Matrix>,  // of each head (n, n)
    pub attended: Matrix,      // (n, d_model), all heads side by side
}
// ANCHOR_END: kept

// ANCHOR: forward
impl Heads {
    /// As [`Layer::forward`], by several heads.
    pub fn forward(
        &self,
        x: &Matrix,
        sees: impl Fn(usize, usize) -> bool,
    ) -> (Matrix, Kept) {
        let qkv = self.project(x, 0);
        let (attended, weights) = self.attend([&qkv[0], &qkv[1], &qkv[2]], sees);
        let output = &attended * &self.layer.w_o; // (n, d_model)
        (output, Kept { x: x.clone(), qkv, weights, attended })
    }
}
// ANCHOR_END: forward

// ANCHOR: project
impl Heads {
    /// The queries, keys and values of each head; the first token has position `first`.
    pub fn project(&self, x: &Matrix, first: usize) -> [Vec<Matrix>; 3] {
        let Layer { w_q, w_k, w_v, .. } = &self.layer;
        let [mut q, mut k, v] = [w_q, w_k, w_v].map(|w| self.split(&(x * w)));
        if let Some(turn) = self.turn {
            q.iter_mut().chain(&mut k).for_each(|rows| *rows = turn(rows, first, 1.0));
        }
        [q, k, v]
    }
}
// ANCHOR_END: project

// ANCHOR: attend
impl Heads {
    /// The outputs of all heads side by side, and the weights of each.
    pub fn attend(
        &self,
        [q, k, v]: [&[Matrix]; 3],
        sees: impl Fn(usize, usize) -> bool,
    ) -> (Matrix, Vec<Matrix>) {
        let heads = (0..self.n_heads).map(|h| attention(&q[h], &k[h], &v[h], &sees));
        let (outputs, weights): (Vec<_>, _) = heads.unzip();
        (join(&outputs), weights)
    }
}
// ANCHOR_END: attend

// ANCHOR: split
impl Heads {
    /// The columns of each head: d = d_model / n_heads of them.
    pub fn split(&self, all: &Matrix) -> Vec<Matrix> {
        let d = all.ncols() / self.n_heads;
        (0..self.n_heads).map(|h| all.columns(h * d, d).into_owned()).collect()
    }
}
// ANCHOR_END: split

// ANCHOR: join
/// Heads, side by side again.
pub fn join(heads: &[Matrix]) -> Matrix {
    let (n, d) = heads[0].shape();
    Matrix::from_fn(n, d * heads.len(), |i, c| heads[c / d][(i, c % d)])
}
// ANCHOR_END: join
