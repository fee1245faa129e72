use super::{Heads, Kept, Layer, Matrix, causal, cross_entropy, random, rotate};

// ANCHOR: rms_norm
/// Rows of mean square 1.
pub fn rms_norm(x: &Matrix) -> Matrix {
    Matrix::from_fn(x.nrows(), x.ncols(), |i, c| x[(i, c)] / root_mean_square(x, i))
}
// ANCHOR_END: rms_norm

// ANCHOR: rms_norm_backward
/// The gradient of the rows: what would only change a row's size is lost.
pub fn rms_norm_backward(x: &Matrix, grad: &Matrix) -> Matrix {
    let y = rms_norm(x);
    let along = y.component_mul(grad).column_sum() / x.ncols() as f64; // (n)
    Matrix::from_fn(x.nrows(), x.ncols(), |i, c| {
        (grad[(i, c)] - y[(i, c)] * along[i]) / root_mean_square(x, i)
    })
}
// ANCHOR_END: rms_norm_backward

// ANCHOR: root_mean_square
fn root_mean_square(x: &Matrix, i: usize) -> f64 {
    (x.row(i).norm_squared() / x.ncols() as f64 + 1e-5).sqrt()
}
// ANCHOR_END: root_mean_square

// ANCHOR: mlp
/// Each token by itself, through a wider layer.
#[derive(Clone)]
pub struct Mlp {
    pub w_1: Matrix, // (d_model, d_hidden)
    pub w_2: Matrix, // (d_hidden, d_model)
}
// ANCHOR_END: mlp

// ANCHOR: mlp_forward
impl Mlp {
    /// silu(x · w_1) · w_2, where silu(h) = h · sigmoid(h).
    pub fn forward(&self, x: &Matrix) -> Matrix {
        (x * &self.w_1).map(|h| h * sigmoid(h)) * &self.w_2
    }
}
// ANCHOR_END: mlp_forward

// ANCHOR: mlp_backward
impl Mlp {
    pub fn backward(&self, x: &Matrix, grad: &Matrix) -> (Matrix, Mlp) {
        let hidden = x * &self.w_1;
        let w_2 = hidden.map(|h| h * sigmoid(h)).transpose() * grad;
        let slope = hidden.map(|h| sigmoid(h) * (1.0 + h * (1.0 - sigmoid(h))));
        let grad_hidden = (grad * self.w_2.transpose()).component_mul(&slope);
        let grad_x = &grad_hidden * self.w_1.transpose();
        (grad_x, Mlp { w_1: x.transpose() * grad_hidden, w_2 })
    }
}
// ANCHOR_END: mlp_backward

// ANCHOR: sigmoid
fn sigmoid(h: f64) -> f64 {
    1.0 / (1.0 + (-h).exp())
}
// ANCHOR_END: sigmoid

// ANCHOR: block
/// Attention, then the layer for each token; each adds to what was there.
#[derive(Clone)]
pub struct Block {
    pub heads: Heads,
    pub mlp: Mlp,
}

/// What the backward pass needs of a block.
pub struct KeptBlock {
    pub start: Matrix, // (n, d_model), what entered it
    pub heads: Kept,
    pub middle: Matrix, // (n, d_model), what left its heads
}
// ANCHOR_END: block

// ANCHOR: model
/// From tokens to scores of the next token.
#[derive(Clone)]
pub struct Model {
    pub embedding: Matrix, // (vocabulary, d_model)
    pub blocks: Vec<Block>,
    pub unembedding: Matrix, // (d_model, vocabulary)
}
// ANCHOR_END: model

// ANCHOR: new
impl Model {
    /// A model that has learned nothing yet. `normal` draws numbers of mean 0 and
    /// variance 1.
    pub fn new(
        [vocabulary, d, n_blocks, n_heads]: [usize; 4], // d is d_model
        normal: &mut impl FnMut() -> f64,
    ) -> Model {
        let mut block = |_| Block {
            heads: Heads { layer: Layer::new(d, normal), n_heads, turn: Some(rotate) },
            mlp: Mlp { w_1: random(d, 4 * d, normal), w_2: random(4 * d, d, normal) },
        };
        let blocks = (0..n_blocks).map(&mut block).collect();
        let embedding = random(vocabulary, d, normal) * (vocabulary as f64).sqrt();
        Model { embedding, blocks, unembedding: random(d, vocabulary, normal) }
    }
}
// ANCHOR_END: new

// ANCHOR: forward
impl Model {
    /// The scores (n, vocabulary) of what follows each token; and for the backward pass,
    /// what each block kept, and what left the last block.
    pub fn forward(&self, tokens: &[usize]) -> (Matrix, Vec<KeptBlock>, Matrix) {
        let mut x = self.embedding.select_rows(tokens);
        let mut kept = vec![];
        for Block { heads, mlp } in &self.blocks {
            let (found, of_heads) = heads.forward(&rms_norm(&x), causal);
            let middle = &x + found;
            let end = &middle + mlp.forward(&rms_norm(&middle));
            kept.push(KeptBlock { start: x, heads: of_heads, middle });
            x = end;
        }
        (rms_norm(&x) * &self.unembedding, kept, x)
    }
}
// ANCHOR_END: forward

// ANCHOR: loss_and_gradients
impl Model {
    /// The loss of predicting each token but the first from those before it, and its
    /// gradients, in the form of a model.
    pub fn loss_and_gradients(&self, tokens: &[usize]) -> (f64, Model) {
        let (read, next) = (&tokens[..tokens.len() - 1], &tokens[1..]);
        let (scores, kept, end) = self.forward(read);
        let (loss, grad_scores) = cross_entropy(&scores, next);
        let mut gradients = self.clone();
        gradients.unembedding = rms_norm(&end).transpose() * &grad_scores;
        let mut grad_x =
            rms_norm_backward(&end, &(grad_scores * self.unembedding.transpose()));
        for (i, kept) in kept.iter().enumerate().rev() {
            let Block { heads, mlp } = &self.blocks[i];
            let (grad, mlp) = mlp.backward(&rms_norm(&kept.middle), &grad_x);
            grad_x += rms_norm_backward(&kept.middle, &grad);
            let (grad, layer) = heads.backward(&kept.heads, &grad_x);
            grad_x += rms_norm_backward(&kept.start, &grad);
            gradients.blocks[i] = Block { heads: Heads { layer, ..*heads }, mlp };
        }
        gradients.embedding.fill(0.0);
        for (i, &token) in read.iter().enumerate() {
            let mut row = gradients.embedding.row_mut(token);
            row += grad_x.row(i); // wherever the token stands
        }
        (loss, gradients)
    }
}
// ANCHOR_END: loss_and_gradients

// ANCHOR: matrices
impl Model {
    /// All that is learned, in one order for a model and for its gradients.
    pub fn matrices(&mut self) -> Vec<&mut Matrix> {
        let mut all = vec![&mut self.embedding, &mut self.unembedding];
        for Block { heads: Heads { layer, .. }, mlp } in &mut self.blocks {
            let Layer { w_q, w_k, w_v, w_o } = layer;
            all.extend([w_q, w_k, w_v, w_o, &mut mlp.w_1, &mut mlp.w_2]);
        }
        all
    }
}
// ANCHOR_END: matrices
