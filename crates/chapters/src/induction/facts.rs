//! What is computed of the two models that learned to go on with what stood before.

use crate::trained::REPEATED;
use anyhow::Result;
use model::{HeadScores, Task as _, Text, Transformer, head_scores};
use nalgebra::DMatrix;

/// The texts that no step had.
pub fn texts() -> Vec<Text> {
    REPEATED.held_out()
}

/// The mean loss of a model that knows which tokens a text repeats, and not which one comes next.
pub fn loss_of_guessing_among_the_repeated() -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for Text { tokens, first } in texts() {
        let said = (tokens.len() - first) as f64;
        sum += said * ((first - 1) as f64).ln();
        count += said;
    }
    sum / count
}

/// What is left of a model of two blocks when some heads are off.
pub struct Ablation {
    pub name: &'static str,
    pub loss: f64,
    /// The largest score of the second block's heads for looking after the copy.
    pub after_copy: f64,
}

/// The model whole, and without some of its heads.
pub fn ablations(model: &Transformer<f64>) -> Result<Vec<Ablation>> {
    const OFF: [(&str, &[(usize, usize)]); 7] = [
        ("none", &[]),
        ("block 1, head 1", &[(0, 0)]),
        ("block 1, head 2", &[(0, 1)]),
        ("both of block 1", &[(0, 0), (0, 1)]),
        ("block 2, head 1", &[(1, 0)]),
        ("block 2, head 2", &[(1, 1)]),
        ("both of block 2", &[(1, 0), (1, 1)]),
    ];
    let texts = texts();
    let off = OFF.iter().map(|&(name, off)| {
        let model = model.without_heads(off);
        let scores = scores(&model)?;
        let after_copy = scores[1].iter().map(|head| head.after_copy);
        let after_copy = after_copy.fold(0.0, f32::max).into();
        Ok(Ablation { name, loss: model.loss(&texts)?, after_copy })
    });
    off.collect()
}

/// The scores of each head, block by block.
pub fn scores(model: &Transformer<f64>) -> Result<Vec<Vec<HeadScores>>> {
    let read: Vec<_> = texts().into_iter().map(|text| text.tokens).collect();
    Ok(head_scores(model, &read)?)
}

/// A text of the task, and the weights in it of a head of the first block and of one of the second: those that look most at the token before, and
/// after the copy.
pub struct Maps {
    pub period: usize,
    pub heads: [usize; 2],
    pub weights: [DMatrix<f64>; 2],
}

pub fn maps(model: &Transformer<f64>) -> Result<Maps> {
    let scores = scores(model)?;
    let best = |block: usize, score: fn(&HeadScores) -> f32| {
        let heads = scores[block].iter().map(score).enumerate();
        heads.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(head, _)| head)
    };
    let heads = [best(0, |head| head.previous), best(1, |head| head.after_copy)];
    let texts = texts();
    let shortest = texts.iter().min_by_key(|text| text.first).unwrap_or(&texts[0]);
    let (_, cache) = model.forward(&shortest.tokens[..2 * (shortest.first - 1)])?;
    let weights = [0, 1].map(|block| cache.weights(block)[heads[block]].clone());
    Ok(Maps { period: shortest.first - 1, heads, weights })
}
