//! Rules for scores: the same in every program, forward and backward, and asked about nothing that is hidden.

use attention::flash::{Flash, Inputs, Tiles};
use attention::testing::one_problem::{F64, Problem, fast, naive, numbers, off, tiled};
use attention::testing::{masks, random, score_rules};
use attention::{
    DistanceBuckets, ForwardOptions, Mask, MultiHeadAttention, Result, ScoreFunction,
    ScorePlace, ScoreRule, attention, attention_backward, gradient_check,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// A function of score, head and place, with a derivative that isn't constant. Asked about the future it panics.
#[derive(Debug)]
struct OfThePast;

impl ScoreFunction for OfThePast {
    fn value(&self, score: f64, place: ScorePlace) -> f64 {
        assert!(place.distance >= 0, "the future was asked about");
        let factor = 1.0 + place.head as f64 + 0.1 * place.key as f64;
        factor * score.sin() + 0.01 * place.query as f64
    }

    fn derivative(&self, score: f64, place: ScorePlace) -> f64 {
        assert!(place.distance >= 0, "the future was asked about");
        (1.0 + place.head as f64 + 0.1 * place.key as f64) * score.cos()
    }
}

const HEADS: usize = 2;

fn table(rows: usize, seed: u64) -> DMatrix<f64> {
    numbers(rows, HEADS, seed)
}

#[test]
fn every_program_changes_scores_alike() -> Result<()> {
    let tiles = Tiles { queries: 16, keys: 24 };
    for lengths in [(37, 53), (60, 60), (40, 7), (1, 70), (6, 30)] {
        for (kind, mask) in masks(lengths.0, lengths.1) {
            let mut all = score_rules(HEADS);
            if kind.contains("causal") {
                all.push(("of the past".to_owned(), ScoreRule::custom(OfThePast)));
            }
            for (name, rule) in all {
                let mask = mask.clone().with_scores(rule);
                let problem = Problem {
                    lengths,
                    widths: (6, 5),
                    n_heads: HEADS,
                    n_kv_heads: HEADS,
                    mask,
                };
                let data = problem.data::<f64>(2.0);
                let (right, right_gradients) = problem.naive(&data);
                let flash = Flash::new().with_tiles(tiles)?;
                for (program, (forward, gradients)) in [
                    ("tiled", problem.tiled(&data, tiles)),
                    ("fast", problem.fast(&data, &flash)),
                    ("fast, large tiles", problem.fast(&data, &Flash::new())),
                ] {
                    let mut offs = vec![
                        off(&forward.output, &right.output),
                        off(&forward.log_sum_exp, &right.log_sum_exp),
                        off(&gradients.q, &right_gradients.q),
                        off(&gradients.k, &right_gradients.k),
                        off(&gradients.v, &right_gradients.v),
                    ];
                    assert_eq!(gradients.tables.len(), right_gradients.tables.len());
                    let tables = gradients.tables.iter().zip(&right_gradients.tables);
                    offs.extend(tables.map(|(a, b)| off(a, b)));
                    let worst = offs.iter().copied().fold(0.0, f64::max);
                    assert!(
                        worst < F64,
                        "{name}, {kind}, {lengths:?}, {program}: {offs:?}"
                    );
                }
            }
        }
    }
    Ok(())
}

/// The naive program against measured slopes; the others are held to it above.
#[test]
fn gradients_through_rules_are_the_measured_slopes() -> Result<()> {
    let (n_q, n_k) = (5, 7);
    let [q, k, v, r] = [(n_q, 4, 10), (n_k, 4, 11), (n_k, 3, 12), (n_q, 3, 13)]
        .map(|(n, d, seed)| random(n, d, seed));
    let mut all = score_rules(HEADS);
    all.push(("of the past".to_owned(), ScoreRule::custom(OfThePast)));
    for (name, rule) in all {
        let mask = Mask::causal().with_scores(rule).of_head(1);
        let (_, cache) = attention(&q, &k, &v, &mask)?;
        let d = attention_backward(&cache, &r)?;
        let loss = |q: &_, k: &_, v: &_| Ok(attention(q, k, v, &mask)?.0.dot(&r));
        for (input, check) in [
            ("q", gradient_check(&q, &d.q, 1e-5, |q| loss(q, &k, &v))?),
            ("k", gradient_check(&k, &d.k, 1e-5, |k| loss(&q, k, &v))?),
            ("v", gradient_check(&v, &d.v, 1e-5, |v| loss(&q, &k, v))?),
        ] {
            assert!(check.max_relative_error < 1e-5, "{name}, {input}: {check:?}");
        }
    }
    Ok(())
}

/// A table's gradient, through a rule that comes after it, in every program.
#[test]
fn gradients_of_tables_are_the_measured_slopes() -> Result<()> {
    let (n_q, n_k, tiles) = (9, 12, Tiles { queries: 4, keys: 5 });
    let q = random(n_q, HEADS * 4, 20);
    let [k, v] = [21, 22].map(|seed| random(n_k, HEADS * 4, seed));
    let r = random(n_q, HEADS * 4, 23);
    let flash = Flash::new().with_tiles(tiles)?;
    let mask = |table: &DMatrix<f64>| -> Result<Mask> {
        let table = ScoreRule::table(table, DistanceBuckets::t5_causal(6, 8)?)?;
        Ok(Mask::causal().with_scores(table.then(ScoreRule::soft_cap(2.0)?)))
    };
    let learned = table(6, 24);
    let here = mask(&learned)?;
    let inputs = Inputs::new(&q, &k, &v, &here)?;
    assert_eq!(inputs.n_heads(), HEADS); // as many as the table has
    for (program, (_, gradients)) in [
        ("naive", naive(&inputs, &here, &r)),
        ("tiled", tiled(&inputs, &r, tiles)),
        ("fast", fast(&inputs, &r, &flash)),
    ] {
        let check = gradient_check(&learned, &gradients.tables[0], 1e-5, |table| {
            let inputs = Inputs::new(&q, &k, &v, mask(table)?)?;
            Ok(flash.forward(&inputs).output.dot(&r))
        })?;
        assert!(check.max_relative_error < 1e-5, "{program}: {check:?}");
    }
    Ok(())
}

/// Through a layer: both engines, with dropout, and summed over a batch.
#[test]
fn layers_take_rules_for_scores() -> Result<()> {
    let layer =
        MultiHeadAttention::<f64>::xavier(8, HEADS, &mut ChaCha8Rng::seed_from_u64(1))?;
    let (x, grad) = (random(20, 8, 30), random(20, 8, 31));
    let rule = ScoreRule::table(&table(8, 32), DistanceBuckets::t5(8, 20)?)?;
    let mask = Mask::causal().with_scores(rule);
    let options =
        ForwardOptions::new().mask(&mask).dropout(0.3, &mut ChaCha8Rng::seed_from_u64(2));
    let (output, cache) = layer.forward(&x, options.clone())?;
    let gradients = layer.backward(&cache, &grad)?;
    let (by_tiles, cache) = layer.forward(&x, options.flash())?;
    let gradients_by_tiles = layer.backward(&cache, &grad)?;
    assert!(off(&by_tiles, &output) < F64);
    assert!(off(&gradients_by_tiles.x, &gradients.x) < F64);
    assert!(off(&gradients_by_tiles.tables[0], &gradients.tables[0]) < F64);

    let (xs, grads) = (
        [x.clone(), x.rows(0, 7).into_owned()],
        [grad.clone(), grad.rows(0, 7).into_owned()],
    );
    let (_, caches) = layer.forward_batch(&xs, &mask)?;
    let of_batch = layer.backward_batch(&caches, &grads)?;
    let mut sum = DMatrix::zeros(8, HEADS);
    for (cache, grad) in caches.iter().zip(&grads) {
        sum += &layer.backward(cache, grad)?.tables[0];
    }
    assert!(off(&of_batch.tables[0], &sum) < F64);
    Ok(())
}

/// The bits do not depend on the number of threads.
#[cfg(feature = "rayon")]
#[test]
fn gradients_of_tables_have_the_same_bits_for_any_threads() -> Result<()> {
    let rule =
        ScoreRule::table(&table(8, 40).map(|x| x as f32), DistanceBuckets::t5(8, 20)?)?;
    let mask = Mask::causal().with_scores(rule);
    let problem = Problem {
        lengths: (700, 700),
        widths: (16, 16),
        n_heads: HEADS,
        n_kv_heads: HEADS,
        mask,
    };
    let data = problem.data::<f32>(1.0);
    let of = |threads| Ok(problem.fast(&data, &Flash::new().with_threads(threads)?));
    let (one, two): (_, Result<_>) = (of(1)?, of(2));
    assert_eq!(one, two?);
    Ok(())
}

#[test]
fn wrong_rules_are_refused() -> Result<()> {
    let x = DMatrix::<f64>::zeros(4, 6);
    let alibi = Mask::from(ScoreRule::alibi(3)?);
    let layer =
        MultiHeadAttention::<f64>::xavier(6, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    for (error, sentence) in [
        (
            attention(&x, &x, &x, &alibi).unwrap_err(),
            "`slopes` has 3 heads but n_heads = 1",
        ),
        (layer.forward(&x, &alibi).unwrap_err(), "`slopes` has 3 heads but n_heads = 2"),
        (
            layer.forward(&x, ForwardOptions::new().mask(&alibi).flash()).unwrap_err(),
            "`slopes` has 3 heads but n_heads = 2",
        ),
        (
            attention(&x, &x, &x, alibi.clone().of_head(3)).unwrap_err(),
            "`head` is 3 but `slopes` has 3 heads",
        ),
        (
            ScoreRule::soft_cap(0.0).unwrap_err(),
            "`cap` is 0 but it must be positive and finite",
        ),
        (
            DistanceBuckets::t5(6, 9).unwrap_err(),
            "`count` is 6 but it must be a multiple of 4",
        ),
        (
            DistanceBuckets::t5(32, 8).unwrap_err(),
            "`furthest` is 8 but it must be from 9 to 1048576",
        ),
    ] {
        assert_eq!(error.to_string(), sentence);
    }
    Ok(())
}
