//! # Build it yourself: a cache
//!
//! hard, 45 minutes, without `attention::`
//!
//! What a token asks is needed once; what it answers to and what it tells are needed by all later tokens. `Cache` keeps the keys and values of
//! a layer, one matrix $(n, d)$ for each head. `new` keeps nothing yet. `step` takes one more token $(1, d_\text{model})$ and returns the
//! layer's output for it. It projects the token at its position and appends its keys and values to the cache. Then its queries attend to all
//! that is kept. `Model::step` does so for a whole model, with a cache for each block, and returns the scores of what comes next.
//!
//! # Hint
//!
//! How many tokens are in the cache? That is the position of the new one, and `project` wants to know it.
//!
//! # Hint
//!
//! Must the mask say anything? The cache holds the new token and those before it, and no others.
//!
//! # Hint
//!
//! `store.clone().insert_row(n, 0.0)` is a matrix with one more row, and `set_row` fills it. `heads.attend` takes queries, keys and values as
//! slices of matrices. In `Model::step` follow `Model::forward`, line by line, with `cache.step` for `heads.forward`.

use attention::plain::*;

// PROGRAM softmax scores masks attention layer heads positions backward train model cache
// FAULT first-position: the position of a token is the number of those before it
// - let [q, k, v] = heads.project(x, n);
// > let [q, k, v] = heads.project(x, 0);
// FAULT position-too-high: the position of a token is the number of those before it
// - let [q, k, v] = heads.project(x, n);
// > let [q, k, v] = heads.project(x, n + 1);
// FAULT not-itself: sees itself, too
// - heads.attend([&q, &self.k, &self.v], |_, _| true).0 * &heads.layer.w_o
// > heads.attend([&q, &self.k, &self.v], |_, j| j < n || n == 0).0 * &heads.layer.w_o
// FAULT first-key-alone: one query sees all keys that are kept
// - heads.attend([&q, &self.k, &self.v], |_, _| true).0 * &heads.layer.w_o
// > heads.attend([&q, &self.k, &self.v], |i, j| j <= i).0 * &heads.layer.w_o
// FAULT no-output-matrix: times w_o
// - heads.attend([&q, &self.k, &self.v], |_, _| true).0 * &heads.layer.w_o
// > heads.attend([&q, &self.k, &self.v], |_, _| true).0
// FAULT nothing-kept: keys and values of this token are kept
// - store.set_row(n, &row.row(0));
// FAULT no-norm-before-heads: normalised rows enter
// - x += cache.step(&block.heads, &rms_norm(&x));
// > x += cache.step(&block.heads, &x);
// FAULT nothing-added: each half adds to what was there
// - x += block.mlp.forward(&rms_norm(&x));
// > x = block.mlp.forward(&rms_norm(&x));
// FAULT no-last-norm: before the unembedding
// - rms_norm(&x) * &self.unembedding
// > &x * &self.unembedding

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random.
    fn numbers() -> impl FnMut() -> f64 {
        let mut n = 0.0_f64;
        move || {
            n += 1.0;
            (n * n * 0.7).sin() * 1.4
        }
    }

    fn heads(turn: Option<Turn>) -> Heads {
        Heads { layer: Layer::new(4, &mut numbers()), n_heads: 2, turn }
    }

    fn tokens(n: usize) -> Matrix {
        Matrix::from_fn(n, 4, |i, c| ((3 + 5 * i + 3 * c * c) as f64).sin())
    }

    /// The outputs of the cache for each of these tokens, and what it kept.
    fn step_by_step(heads: &Heads, x: &Matrix) -> (Vec<Matrix>, Cache) {
        let mut cache = Cache::new(heads);
        let step = |i| cache.step(heads, &x.rows(i, 1).into_owned());
        ((0..x.nrows()).map(step).collect(), cache)
    }

    #[test]
    fn a_first_token_sees_itself() {
        let (heads, x) = (heads(None), tokens(1));
        let (outputs, cache) = step_by_step(&heads, &x);
        let right = &x * &heads.layer.w_v * &heads.layer.w_o;
        assert!(
            cache.k.len() == 2 && cache.k[0].shape() == (1, 2),
            "after one token, each of two heads should keep one key of width 2, and yours keep {:?}",
            cache.k.iter().map(Matrix::shape).collect::<Vec<_>>()
        );
        assert!(
            cache.v[1].amax() > 0.0 && cache.k[0].amax() > 0.0,
            "the cache has rows of zeros: keys and values of this token are kept before its queries attend"
        );
        assert!(
            (&outputs[0] - right).amax() < 1e-12,
            "a first token sees itself alone, so its output is its value, times w_o"
        );
    }

    #[test]
    fn later_tokens_see_those_before() {
        let (heads, x) = (heads(None), tokens(5));
        let (outputs, _) = step_by_step(&heads, &x);
        let at_once = heads.forward(&x, |i, j| j <= i).0;
        for (i, output) in outputs.iter().enumerate() {
            let off = (output.row(0) - at_once.row(i)).amax();
            assert!(
                off < 1e-12,
                "token {i} gets another output than all at once, by {off:.2e}: one query sees all keys that are kept, and a token sees itself, too"
            );
        }
    }

    #[test]
    fn positions_count_from_the_first_token() {
        let (heads, x) = (heads(Some(rotate)), tokens(5));
        let (outputs, cache) = step_by_step(&heads, &x);
        let all = heads.project(&x, 0);
        for i in 0..5 {
            assert!(
                (cache.k[1].row(i) - all[1][1].row(i)).amax() < 1e-12,
                "the key of token {i} isn't turned to its place: the position of a token is the number of those before it"
            );
        }
        let at_once = heads.forward(&x, |i, j| j <= i).0;
        assert!(
            (outputs[4].row(0) - at_once.row(4)).amax() < 1e-12,
            "keys are at their places, and the last token's output is another: its query stands at the same place as its key"
        );
    }

    #[test]
    fn a_model_writes_what_it_would_have_written() {
        let model = Model::new([5, 4, 2, 2], &mut numbers());
        let tokens = [2, 0, 1, 1, 4];
        let at_once = model.forward(&tokens).0;
        let mut caches: Vec<_> =
            model.blocks.iter().map(|block| Cache::new(&block.heads)).collect();
        for (i, &token) in tokens.iter().enumerate() {
            let scores = model.step(token, &mut caches);
            let off = (scores.row(0) - at_once.row(i)).amax();
            assert!(
                off < 1e-10,
                "token {i}: the scores differ by {off:.2e} from those of `forward`. Compare with it line by line: normalised rows enter the heads and the MLP, each half adds to what was there, and one more norm stands before the unembedding"
            );
        }
    }
}
