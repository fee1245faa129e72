//! What a mask says of tiles, ranges and lines is what it says of each pair; and a mask may be given or lent, to one sequence or to a batch.

use crate::support::{masks, random};
use attention::engine::{Engine, Tiled};
use attention::flash::{Inputs, flash};
use attention::{
    BatchOptions, ForwardOptions, Mask, MultiHeadAttention, Result, attention,
    attention_weights, mask::Visibility,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Of every kind, of windows the smallest and the largest, and one that hides all.
fn all(n_q: usize, n_k: usize) -> Vec<Mask> {
    let mut all: Vec<Mask> = masks(n_q, n_k).into_iter().map(|(_, mask)| mask).collect();
    for (width, sinks) in [(1, 0), (3, 0), (usize::MAX, 0), (2, usize::MAX)] {
        all.push(Mask::window_with_sinks(width, sinks).unwrap());
    }
    all.push(Mask::padding(&vec![false; n_k]).unwrap());
    all
}

/// The visibility of a tile, from each of its pairs; hidden, if there is none.
fn of_pairs(pairs: impl Iterator<Item = bool>) -> Visibility {
    let pairs: Vec<bool> = pairs.collect();
    match pairs.iter().filter(|&&seen| seen).count() {
        0 => Visibility::Hidden,
        seen if seen == pairs.len() => Visibility::Full,
        _ => Visibility::Partial,
    }
}

/// Every tile of every mask, also where it reaches out of the mask.
#[test]
fn visibility_agrees_with_every_pair() {
    for (n_q, n_k) in [(5, 5), (3, 7), (7, 3), (1, 1)] {
        for mask in all(n_q, n_k) {
            let sized = mask.sized(n_q, n_k).unwrap();
            let combined = mask.rules().len() > 1;
            let ranges =
                |n: usize| (0..=n).flat_map(move |a| (a..=n + 2).map(move |b| a..b));
            for rows in ranges(n_q) {
                for columns in ranges(n_k) {
                    let inside = rows.start..rows.end.min(n_q);
                    let pairs = inside.flat_map(|i| {
                        let columns = columns.start..columns.end.min(n_k);
                        columns.map(move |j| (i, j))
                    });
                    let seen = of_pairs(pairs.map(|(i, j)| sized.allows(i, j)));
                    let said = sized.visibility(rows.clone(), columns.clone());
                    let careful = combined && said == Visibility::Partial;
                    assert!(
                        said == seen || careful,
                        "{mask:?} {rows:?} {columns:?}: {said:?}"
                    );
                }
            }
        }
    }
}

/// Outside of the ranges that tiled code walks, nothing is seen, for every block of queries or keys of every mask.
#[test]
fn ranges_hold_all_that_is_seen() {
    for (n_q, n_k) in [(9, 9), (5, 11), (11, 5)] {
        for mask in all(n_q, n_k) {
            let sized = mask.sized(n_q, n_k).unwrap();
            let pairs = (0..n_q).flat_map(|i| (0..n_k).map(move |j| (i, j)));
            for (i, j) in pairs.filter(|&(i, j)| sized.allows(i, j)) {
                for (start, end) in [(0, 1), (1, 1), (2, 3), (0, 9)] {
                    let keys = sized.keys_seen_by(i.saturating_sub(start)..i + end);
                    let queries =
                        sized.queries_that_see(j.saturating_sub(start)..j + end);
                    assert!(keys.contains(&j), "{mask:?}: {i}, {j} not in {keys:?}");
                    assert!(queries.contains(&i), "{mask:?}: {i}, {j}: {queries:?}");
                }
            }
        }
    }
}

/// Lengths beyond those of a tile, so that there are hidden, full and border tiles.
#[test]
fn applying_is_adding_is_filling_by_entries() {
    for (n_q, n_k) in [(4, 6), (130, 200), (200, 70), (64, 64), (65, 1)] {
        for mask in all(n_q, n_k) {
            let sized = mask.sized(n_q, n_k).unwrap();
            let scores = DMatrix::from_fn(n_q, n_k, |i, j| i as f64 - 0.5 * j as f64);
            let applied = sized.apply(scores.clone()).unwrap();
            assert_eq!(applied, &scores + sized.additive::<f64>());
            let allowed = sized.allowed_matrix();
            let expected = scores
                .zip_map(&allowed, |x, seen| if seen { x } else { f64::NEG_INFINITY });
            assert_eq!(applied, expected, "{mask:?}");
        }
    }
}

/// What is left of a mask when some tokens are forgotten is what the whole mask says of the others.
#[test]
fn forgotten_keys_leave_the_others_as_they_were() {
    let (n_q, n_k, gap) = (5, 12, 3..7);
    let number = |seen: bool| f64::from(u8::from(seen));
    for mask in all(n_q, n_k) {
        let whole = mask.sized(n_q, n_k).unwrap();
        let part = whole.clone().without(gap.clone());
        assert_eq!(part.shape(), (n_q, 8));
        let expected = whole.allowed_matrix().remove_columns(gap.start, gap.len());
        assert_eq!(part.allowed_matrix(), expected, "{mask:?}");
        for j in 0..8 {
            let mut line = vec![1.0; n_q];
            part.hide_queries(j, 0..n_q, &mut line, 0.0);
            assert_eq!(line, expected.column(j).map(number).as_slice(), "{mask:?}");
        }
        for i in 0..n_q {
            for (start, end) in [(0, 8), (1, 3), (2, 6), (5, 8)] {
                let seen = (start..end).map(|j| expected[(i, j)]);
                let mut line = vec![1.0; end - start];
                part.hide_keys(i, start..end, &mut line, 0.0);
                assert_eq!(
                    line,
                    seen.clone().map(number).collect::<Vec<_>>(),
                    "{mask:?}"
                );
                let said = part.visibility(i..i + 1, start..end);
                assert!(
                    said == of_pairs(seen) || said == Visibility::Partial,
                    "{mask:?}"
                );
                let all = part.keys_seen_by(i..i + 1);
                assert!((start..end).all(|j| all.contains(&j) || !expected[(i, j)]));
            }
        }
    }
}

/// Each rule that is added hides more, in whatever order; and a hundred thousand of them are no deep nest.
#[test]
fn any_number_of_masks_combine() {
    let [causal, window] = [Mask::causal(), Mask::window(3).unwrap()];
    let padding = Mask::padding(&[true, false, true, true, true]).unwrap();
    let allowed = |mask: &Mask| mask.sized(5, 5).unwrap().allowed_matrix();
    let expected = DMatrix::from_fn(5, 5, |i, j| j <= i && i - j < 3 && j != 1);
    let left = causal.clone().and(window.clone()).and(padding.clone());
    let right = causal.clone().and(window.clone().and(padding.clone()));
    assert_eq!((allowed(&left), allowed(&right)), (expected.clone(), expected));
    assert_eq!(Mask::none().and(window.clone()).and(Mask::none()), window);

    let many = (0..100_000).fold(padding, |mask, _| mask.and(Mask::causal()));
    let sized = many.sized(5, 5).unwrap();
    assert!(sized.allows(4, 2) && !sized.allows(4, 1) && !sized.allows(2, 3));
    assert_eq!(sized.visibility(4..5, 2..5), Visibility::Full);
    assert_eq!(sized.visibility(0..5, 1..2), Visibility::Hidden);
}

#[test]
fn a_mask_may_be_given_or_lent() -> Result<()> {
    let (x, layer) = (
        random(5, 6, 1),
        MultiHeadAttention::xavier(6, 3, &mut ChaCha8Rng::seed_from_u64(0))?,
    );
    for (_, mask) in masks(5, 5) {
        let given = mask.clone();
        assert_eq!(attention(&x, &x, &x, &mask)?, attention(&x, &x, &x, given.clone())?);
        assert_eq!(
            attention_weights(&x, &x, &mask)?,
            attention_weights(&x, &x, given.clone())?
        );
        assert_eq!(flash(&x, &x, &x, &mask)?, flash(&x, &x, &x, given.clone())?);
        let lent = Inputs::new(&x, &x, &x, &mask)?;
        let owner = Inputs::new(&x, &x, &x, given.clone())?;
        let by_tiles = Tiled::default();
        assert_eq!(by_tiles.forward(&lent)?, by_tiles.forward(&owner)?);
        assert_eq!(layer.forward(&x, &mask)?, layer.forward(&x, given.clone())?);
        let options = ForwardOptions::new().mask(&mask);
        assert_eq!(layer.forward(&x, options)?, layer.forward(&x, given.clone())?);
        let batch = [x.clone(), x.clone()];
        assert_eq!(
            layer.forward_batch(&batch, &mask)?,
            layer.forward_batch(&batch, vec![given; 2])?
        );
    }
    Ok(())
}

/// The matrix of a dense mask is not copied: not into a clone, not into the caches of the heads.

#[test]
fn options_for_a_batch_are_those_of_each_sequence() {
    assert_eq!(BatchOptions::<f64>::from(Mask::none()), ForwardOptions::new().into());
}
