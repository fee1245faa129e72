//! Tests of what the chapter says of its numbers.

use super::facts;
use crate::random::normal;
use crate::sentences::{BANK, BOAT, CLERK, LEFT, RIVER};
use anyhow::Result;
use attention::{Mask, MultiHeadAttention, scaled_scores};
use laboratory::cost::{AttentionShape, Flops};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

#[test]
fn left_gets_both_answers_from_two_heads_and_neither_from_one() {
    let most = |weights: &DMatrix<f64>| weights.row(LEFT).transpose().imax();
    let one = facts::one_head().unwrap();
    assert_eq!(most(&one), RIVER);
    let [first, second] = facts::two_heads().unwrap();
    assert_eq!((most(&first), most(&second)), (BOAT, BANK));
    assert!(first[(LEFT, BOAT)] > 0.7 && second[(LEFT, BANK)] > 0.7);
}

#[test]
fn river_is_second_for_each_question_and_first_in_the_sum() {
    let [_, keys] = facts::two_questions();
    for (column, first) in [(0, BOAT), (1, BANK)] {
        let keys = keys.column(column);
        assert_eq!(keys.imax(), first);
        assert!((0..6).all(|j| j == first || keys[j] <= keys[RIVER]), "{keys}");
    }
    assert_eq!((keys.column(0) + keys.column(1)).imax(), RIVER);
}

#[test]
fn in_the_first_head_no_row_prefers_another_word_to_boat() {
    let [first, _] = facts::two_heads().unwrap();
    for row in first.row_iter() {
        assert!(row.iter().all(|weight| *weight <= row[BOAT]), "{row}");
    }
}

#[test]
fn two_heads_side_by_side_answer_both_questions_best() {
    let [one, joined, mean] = facts::answers_to_left().unwrap();
    for c in 0..2 {
        assert!(joined[c] > one[c] + 0.1 && joined[c] > mean[c] + 0.1, "{c}");
    }
}

/// Tokens.
const N: usize = 64;
/// Width of the model.
const D_MODEL: usize = 64;

/// A layer that cuts its width into heads.
struct Cut {
    heads: usize,
    /// Width of a head.
    width: usize,
    flops: Flops,
    /// The rank of the scores of each head.
    ranks: Vec<usize>,
}

/// Returns layers of one width, cut into more and more heads.
fn cuts() -> Result<Vec<Cut>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let x = normal(N, D_MODEL, rng);
    let cut = |heads| {
        let width = D_MODEL / heads;
        let shape = AttentionShape::self_attention(1, N, D_MODEL, width, heads);
        let layer = MultiHeadAttention::<f64>::xavier(D_MODEL, heads, rng)?;
        let (_, cache) = layer.forward(&x, Mask::none())?;
        let ranks = cache.heads();
        let ranks =
            ranks.iter().map(|head| Ok(scaled_scores(&head.q, &head.k)?.rank(1e-9)));
        Ok(Cut {
            heads,
            width,
            flops: shape.flops()?,
            ranks: ranks.collect::<Result<_>>()?,
        })
    };
    [1, 2, 4, 8, 16, 64].into_iter().map(cut).collect()
}

#[test]
fn heads_change_no_cost_of_products_and_projections() {
    let cuts = cuts().unwrap();
    let flops = |Cut { flops, .. }: &Cut| flops.scores + flops.values + flops.projections;
    assert!(cuts.iter().all(|cut| flops(cut) == flops(&cuts[0])));
}

#[test]
fn the_scores_of_a_head_have_the_rank_of_its_width() {
    for cut in cuts().unwrap() {
        assert_eq!(cut.ranks, vec![cut.width.min(N); cut.heads]);
    }
}

#[test]
fn river_and_bank_give_most_to_clerk_and_then_to_bank() {
    let weights = facts::across_sentences().unwrap();
    for row in [1, 2] {
        assert_eq!(weights.row(row).max(), weights[(row, CLERK)]);
        let mut others = (0..6).filter(|&j| j != CLERK);
        assert!(others.all(|j| weights[(row, j)] <= weights[(row, BANK)]));
    }
}
