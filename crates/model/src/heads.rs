//! What a head looks at, as numbers between 0 and 1.

use crate::transformer::Transformer;
use attention::{Result, inspect::row_entropy};
use fast::Float;
use nalgebra::DMatrix;

/// Where the weight of a head goes, on average over the queries of some texts that have such a place.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "train", derive(serde::Serialize, serde::Deserialize))]
pub struct HeadScores {
    /// On the token itself.
    pub itself: f32,
    /// On the token before.
    pub previous: f32,
    /// On the first token of the text, by all queries from the third on.
    pub first: f32,
    /// On tokens that followed an earlier copy of the query's token: the score of induction heads.
    pub after_copy: f32,
    /// The entropy of the row, as a share of the largest that so many visible keys allow.
    pub entropy: f32,
}

/// The sums of a score, and how many queries had one.
#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, score: f64) {
        self.sum += score;
        self.count += 1.0;
    }

    fn get(&self) -> f32 {
        (self.sum / self.count.max(1.0)) as f32
    }
}

/// Returns the scores of each head, block by block. A score for which no query has a place is 0.
///
/// # Errors
/// A text is empty.
///
/// # Source
/// C. Olsson et al., *In-context Learning and Induction Heads* (2022), for the score that is called prefix matching there.
pub fn head_scores<T: Float>(
    model: &Transformer<T>,
    texts: &[Vec<usize>],
) -> Result<Vec<Vec<HeadScores>>> {
    let mut means = vec![];
    for tokens in texts {
        let (_, cache) = model.forward(tokens)?;
        let weights = (0..model.blocks.len()).map(|block| cache.weights(block));
        add_all(tokens, weights, &mut means)?;
    }
    Ok(scores(&means))
}

/// Returns the scores of each head, block by block, from its weights in one text (n, n).
///
/// # Errors
/// A row of weights is no row of weights.
pub fn scores_of_weights<T: Float>(
    tokens: &[usize],
    weights: &[Vec<DMatrix<T>>],
) -> Result<Vec<Vec<HeadScores>>> {
    let mut means = vec![];
    add_all(tokens, weights.iter().map(Vec::as_slice), &mut means)?;
    Ok(scores(&means))
}

/// Adds the scores of all heads in one text.
fn add_all<'w, T: Float>(
    tokens: &[usize],
    weights: impl ExactSizeIterator<Item = &'w [DMatrix<T>]>,
    means: &mut Vec<Vec<[Mean; 5]>>,
) -> Result<()> {
    means.resize_with(weights.len(), Vec::new);
    for (heads, means) in weights.zip(means) {
        means.resize_with(heads.len(), Default::default);
        for (head, means) in heads.iter().zip(means) {
            let weights = head.map(|weight| weight.to_subset_unchecked());
            add_scores(tokens, &weights, means)?;
        }
    }
    Ok(())
}

fn scores(means: &[Vec<[Mean; 5]>]) -> Vec<Vec<HeadScores>> {
    let scores = |means: &[Mean; 5]| {
        let [itself, previous, first, after_copy, entropy] =
            means.each_ref().map(Mean::get);
        HeadScores { itself, previous, first, after_copy, entropy }
    };
    means.iter().map(|block| block.iter().map(scores).collect()).collect()
}

/// Adds the scores of one head's weights in one text.
fn add_scores(
    tokens: &[usize],
    weights: &DMatrix<f64>,
    [itself, previous, first, after_copy, entropy]: &mut [Mean; 5],
) -> Result<()> {
    let entropies = row_entropy(weights)?;
    for (i, token) in tokens.iter().enumerate() {
        itself.add(weights[(i, i)]);
        if i >= 1 {
            previous.add(weights[(i, i - 1)]);
            entropy.add(entropies[i] / (i as f64 + 1.0).ln());
        }
        if i >= 2 {
            first.add(weights[(i, 0)]);
        }
        let copies = (0..i).filter(|&j| tokens[j] == *token);
        let after: Vec<f64> = copies.map(|j| weights[(i, j + 1)]).collect();
        if !after.is_empty() {
            after_copy.add(after.iter().sum());
        }
    }
    Ok(())
}
