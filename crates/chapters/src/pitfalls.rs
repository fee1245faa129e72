//! Pitfalls: what the wrong ways of `wrong.rs` give, and what is right.

use crate::gradient_checking::{parameters, random};
use crate::output::Page;
use crate::wrong;
use anyhow::{Result, ensure};
use attention::{
    Mask, MultiHeadAttention, SingleHeadAttention, attention, attention_backward,
    attention_weights, example, relative_error, row_entropy, scaled_scores, softmax_rows,
};
use figures::format::{fixed, integer, percent, tuple};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

pub fn generate(page: &mut Page) -> Result<()> {
    scale(page)?;
    one_maximum()?;
    columns(page)?;
    after_softmax(page)?;
    inverted(page)?;
    finite(page)?;
    first_row(page)?;
    alignment(page)?;
    filling(page)?;
    stacked(page)?;
    swapped(page);
    reshaped()?;
    averaged(page)?;
    dropout(page)?;
    paths()?;
    stale(page)
}

/// Queries, keys and values of the running example's projections.
fn project(x: &DMatrix<f64>) -> [DMatrix<f64>; 3] {
    example::projections().map(|w| x * w)
}

/// The running example, with another word in the place of the last one.
fn with_another_end() -> DMatrix<f64> {
    let mut x = example::river().x;
    let river = x.row(4).into_owned();
    x.row_mut(5).copy_from(&river);
    x
}

/// The running example and two rows of filling, each like the word "the".
fn filled() -> DMatrix<f64> {
    example::river().x.insert_rows(6, 2, 0.1)
}

fn row(matrix: &DMatrix<f64>, i: usize) -> impl Iterator<Item = f64> {
    matrix.row(i).iter().copied().collect::<Vec<_>>().into_iter()
}

const KEYS: usize = 8;
const ROWS: usize = 5000;

fn scale(page: &mut Page) -> Result<()> {
    let mut largest = [[0.0; 2]; 2];
    for (which, d) in [4_usize, 512].into_iter().enumerate() {
        let rng = &mut ChaCha8Rng::seed_from_u64(d as u64);
        for _ in 0..ROWS {
            let mut draw = |n| DMatrix::from_fn(n, d, |_, _| StandardNormal.sample(rng));
            let (q, k) = (draw(1), draw(KEYS));
            let (scaled, _) = attention_weights(&q, &k, &Mask::none())?;
            largest[0][which] += wrong::unscaled_weights(&q, &k)?.max() / ROWS as f64;
            largest[1][which] += scaled.max() / ROWS as f64;
        }
    }
    for (how, [narrow, wide]) in ["unscaled", "scaled"].iter().zip(largest) {
        page.value(format!("{how}-4"), fixed(narrow, 2));
        page.value(format!("{how}-512"), fixed(wide, 2));
    }
    page.value("scale-rows", integer(ROWS));
    page.value("scale-keys", integer(KEYS));
    let by_width_of_model = {
        let (d_model, d_k) = (512_f64, 64); // eight heads
        let rng = &mut ChaCha8Rng::seed_from_u64(d_k as u64);
        let mut largest = [0.0; 2];
        for _ in 0..ROWS {
            let mut draw =
                |n| DMatrix::from_fn(n, d_k, |_, _| StandardNormal.sample(rng));
            let (q, k): (DMatrix<f64>, _) = (draw(1), draw(KEYS));
            let wrong = wrong::unscaled_weights(&(&q / d_model.sqrt()), &k)?;
            largest[0] += wrong.max() / ROWS as f64;
            largest[1] += attention_weights(&q, &k, &Mask::none())?.0.max() / ROWS as f64;
        }
        largest
    };
    page.value("scale-by-model", fixed(by_width_of_model[0], 2));
    page.value("scale-by-head", fixed(by_width_of_model[1], 2));
    ensure!(by_width_of_model[0] < by_width_of_model[1] - 0.1, "{by_width_of_model:?}");
    let change = |[narrow, wide]: [f64; 2]| (wide - narrow).abs();
    ensure!(change(largest[0]) > 0.2 && change(largest[1]) < 0.05, "{largest:?}");
    Ok(())
}

fn one_maximum() -> Result<()> {
    let near = DMatrix::from_row_slice(2, 2, &[2.0_f32, 1.0, -3.0, -4.0]);
    let off = (wrong::softmax_with_one_maximum(&near) - softmax_rows(&near)?).amax();
    ensure!(off < 1e-6, "rows of one size: {off}");
    let far = DMatrix::from_row_slice(2, 2, &[2.0_f32, 1.0, -150.0, -151.0]);
    ensure!(wrong::softmax_with_one_maximum(&far)[(1, 0)].is_nan(), "no NaN");
    Ok(())
}

fn columns(page: &mut Page) -> Result<()> {
    let run = |x: &DMatrix<f64>| {
        let [q, k, v] = project(x);
        let scores = Mask::causal().sized(6, 6)?.apply(scaled_scores(&q, &k)?)?;
        let weights = wrong::softmax_of_columns(&scores)?;
        anyhow::Ok((&weights * v, weights))
    };
    let (output, weights) = run(&example::river().x)?;
    let (moved, _) = run(&with_another_end())?;
    page.value("columns-first", fixed(weights[(0, 0)], 2));
    page.value("columns-last", fixed(weights.row(5).sum(), 2));
    // Token 1 is a key of the last query: its column has changed.
    let moved = (output - moved).row(1).amax();
    page.value("columns-moved", fixed(moved, 2));
    ensure!(moved > 0.01 && weights.row(5).sum() > 1.5, "softmax of columns");
    Ok(())
}

fn after_softmax(page: &mut Page) -> Result<()> {
    let run = |x: &DMatrix<f64>| {
        let [q, k, v] = project(x);
        let weights =
            wrong::masked_after_softmax(&scaled_scores(&q, &k)?, &Mask::causal())?;
        anyhow::Ok((&weights * v, weights))
    };
    let (output, weights) = run(&example::river().x)?;
    let (moved, _) = run(&with_another_end())?;
    page.value("after-boat", fixed(weights.row(1).sum(), 2));
    page.value("after-moved", fixed((&output - &moved).row(1).amax(), 3));
    ensure!((output - moved).row(1).amax() > 1e-3, "the future leaks");

    let [q, k, _] = project(&example::river().x);
    let scores = scaled_scores(&q, &k)?;
    let right = softmax_rows(&Mask::causal().sized(6, 6)?.apply(scores.clone())?)?;
    let off = (wrong::renormalised(&scores, &Mask::causal())? - right).amax();
    ensure!(off < 1e-14, "renormalised: {off}");
    Ok(())
}

fn inverted(page: &mut Page) -> Result<()> {
    let [q, k, v] = project(&filled());
    let valid = [true, true, true, true, true, true, false, false];
    let (right, _) = attention(&q, &k, &v, &Mask::padding(&valid)?)?;
    let (wrong, cache) = attention(&q, &k, &v, &Mask::padding(&valid.map(|v| !v))?)?;
    page.value("inverted-output", tuple(row(&wrong, 5), 2));
    page.value("inverted-right", tuple(row(&right, 5), 2));
    ensure!((cache.weights.row(5).sum() - 1.0).abs() < 1e-14, "row sums");
    let spread = (0..6).map(|i| (wrong.row(i) - wrong.row(0)).amax());
    ensure!(spread.fold(0.0, f64::max) < 1e-14, "all outputs are alike");
    Ok(())
}

fn finite(page: &mut Page) -> Result<()> {
    let [q, k, _] = project(&example::river().x);
    let scores = scaled_scores(&q, &k)?;
    let real = [false, true, true, true, true, true];
    let mask = Mask::causal().and(Mask::padding(&real)?); // the first token sees nothing
    let double = wrong::weights_with_finite_mask(&scores, &mask)?;
    let single = wrong::weights_with_finite_mask(&scores.map(|s| s as f32), &mask)?;
    page.value("finite-double", tuple(row(&double, 0), 3));
    let gap = (1e9_f32.next_up() - 1e9_f32) as usize;
    page.value("finite-gap", integer(gap));
    page.value("finite-half-gap", integer(gap / 2));
    let unmasked = softmax_rows(&scores)?;
    ensure!((double.row(0) - unmasked.row(0)).amax() < 1e-6, "f64: as without a mask");
    ensure!(single.row(0).iter().all(|&p| p == 1.0 / 6.0), "f32: uniform");
    let (right, _) = attention_weights(&q, &k, &mask)?;
    let elsewhere = (double - right).rows(1, 5).amax();
    ensure!(elsewhere < 1e-14, "rows that see something: {elsewhere}");
    Ok(())
}

fn first_row(page: &mut Page) -> Result<()> {
    let mask = wrong::tile_added_twice(6)?;
    let sized = mask.sized(6, 6)?;
    let future = (0..6).flat_map(|i| (i + 1..6).map(move |j| (i, j)));
    let seen = future.clone().filter(|&(i, j)| sized.allows(i, j)).count();
    page.value("first-row-seen", integer(seen));
    page.value("first-row-pairs", integer(future.count()));
    ensure!((1..6).all(|j| !sized.allows(0, j)), "the first row is wrong");
    ensure!((2..6).all(|j| !sized.allows(1, j)), "the second row is wrong");
    Ok(())
}

fn alignment(page: &mut Page) -> Result<()> {
    let [q, k, v] = project(&example::river().x);
    let last = q.rows(5, 1).into_owned();
    let (all, _) = attention(&q, &k, &v, &Mask::causal())?;
    let (right, _) = attention(&last, &k, &v, &Mask::causal())?;
    let beginning = Mask::dense(DMatrix::from_fn(1, 6, |i, j| j <= i))?;
    let (wrong, _) = attention(&last, &k, &v, &beginning)?;
    page.value("alignment-right", tuple(row(&right, 0), 2));
    page.value("alignment-wrong", tuple(row(&wrong, 0), 2));
    ensure!((all.rows(5, 1) - right).amax() < 1e-14, "the last row of all");
    Ok(())
}

fn filling(page: &mut Page) -> Result<()> {
    let [q, k, v] = project(&filled());
    let valid = [true, true, true, true, true, true, false, false];
    let (output, _) = attention(&q, &k, &v, &Mask::padding(&valid)?)?;
    let mean = |rows: usize| output.rows(0, rows).row_mean();
    page.value("filling-right", tuple(&mean(6), 3));
    page.value("filling-wrong", tuple(&mean(8), 3));
    Ok(())
}

/// Both sentences of the running example, one below the other.
fn both() -> DMatrix<f64> {
    let (river, city) = (example::river().x, example::city().x);
    DMatrix::from_fn(12, 4, |i, c| if i < 6 { river[(i, c)] } else { city[(i - 6, c)] })
}

fn stacked(page: &mut Page) -> Result<()> {
    let [q, k, v] = project(&both());
    let (output, cache) = attention(&q, &k, &v, &Mask::none())?;
    let elsewhere = |i: usize| {
        if i < 6 { cache.weights.columns(6, 6) } else { cache.weights.columns(0, 6) }
            .row(i)
            .sum()
    };
    let share = (0..12).map(elsewhere).sum::<f64>() / 12.0;
    page.value("stacked-share", percent(share, 0));
    page.value("stacked-wrong", tuple(row(&output, 5), 2));
    let [q, k, v] = project(&example::river().x);
    page.value(
        "stacked-right",
        tuple(row(&attention(&q, &k, &v, &Mask::none())?.0, 5), 2),
    );
    Ok(())
}

fn swapped(page: &mut Page) {
    let words = [example::river().tokens, example::city().tokens].concat();
    let every_other: Vec<_> = words.iter().step_by(2).copied().collect();
    page.value("swapped", every_other.join(" "));
}

fn reshaped() -> Result<()> {
    let attend = |x: &DMatrix<f64>| {
        let heads = wrong::split_by_reshape(x, 2).into_iter();
        let outputs =
            heads.map(|head| Ok(attention(&head, &head, &head, &Mask::none())?.0));
        anyhow::Ok(wrong::join_by_reshape(&outputs.collect::<Result<Vec<_>>>()?))
    };
    let x = example::river().x;
    let mut changed = x.clone();
    changed.row_mut(0).fill(2.0);
    let moved = attend(&x)? - attend(&changed)?;
    ensure!(moved.rows(3, 3).amax() == 0.0, "the second half sees the first");
    ensure!(moved.rows(0, 3).amax() > 0.1, "the first half does not see itself");
    Ok(())
}

fn averaged(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut layer = MultiHeadAttention::<f64>::xavier(4, 2, rng)?;
    layer.parameters.w_q *= 6.0;
    layer.parameters.w_q.columns_mut(2, 2).fill(0.0); // the second head asks nothing
    let (_, cache) = layer.forward(&example::river().x, &Mask::none())?;
    let [live, flat] = [&cache.heads[0].weights, &cache.heads[1].weights];
    let mean = (live + flat) / 2.0;
    let entropy = |weights: &DMatrix<f64>| anyhow::Ok(row_entropy(weights)?.mean());
    page.value("averaged-live", fixed(entropy(live)?, 2));
    page.value("averaged-flat", fixed(entropy(flat)?, 2));
    page.value("averaged-mean", fixed(entropy(&mean)?, 2));
    page.value("averaged-ln", fixed(6.0_f64.ln(), 2));
    ensure!(entropy(live)? < entropy(&mean)? - 0.1, "the mean is not in between");
    ensure!(entropy(&mean)? < 6.0_f64.ln() - 0.1, "the mean looks flat, too");
    let r = random(6, 4, &mut ChaCha8Rng::seed_from_u64(1));
    let grad_w_q = layer.backward(&cache, &r)?.parameters.w_q;
    ensure!(grad_w_q.columns(2, 2).amax() > 1e-3, "the flat head is dead");
    Ok(())
}

const SEEDS: u64 = 1000;

fn dropout(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer = MultiHeadAttention::<f64>::xavier(4, 1, rng)?.with_dropout(0.5)?;
    let x = example::river().x;
    let (mut right, mut wrong) = (0.0, 0.0);
    for seed in 0..SEEDS {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let (_, cache) = layer.forward_training(&x, None, &Mask::none(), rng)?;
        let used = cache.heads[0].weights_used()?;
        let kept =
            cache.heads[0].weights.zip_map(&used, |p, u| if u == 0.0 { 0.0 } else { p });
        right += used.sum() / 6.0 / SEEDS as f64;
        wrong += kept.sum() / 6.0 / SEEDS as f64;
    }
    page.value("dropout-right", fixed(right, 2));
    page.value("dropout-wrong", fixed(wrong, 2));
    page.value("dropout-seeds", integer(SEEDS as usize));
    ensure!((right - 1.0).abs() < 0.01 && (wrong - 0.5).abs() < 0.01, "{right}, {wrong}");
    Ok(())
}

/// A gradient check of X finds each of the three paths if it is left out.
fn paths() -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(50);
    let layer = SingleHeadAttention::from(parameters(4, 3, 2, rng)?);
    let (x, r) = (example::river().x, random(6, 4, rng));
    let (_, cache) = layer.forward(&x, &Mask::none())?;
    let right = layer.backward(&cache, &r)?.x;
    let p = &layer.parameters;
    let d = attention_backward(&cache.attention, &(&r * p.w_o.transpose()))?;
    let paths =
        [("queries", d.q, &p.w_q), ("keys", d.k, &p.w_k), ("values", d.v, &p.w_v)];
    for (name, d, w) in paths {
        let wrong = &right - d * w.transpose();
        let worst = wrong.zip_map(&right, relative_error).max();
        ensure!(worst > 0.1, "without the {name} the check passes: {worst}");
    }
    Ok(())
}

fn stale(page: &mut Page) -> Result<()> {
    let rng = &mut ChaCha8Rng::seed_from_u64(51);
    let mut layer = SingleHeadAttention::from(parameters(4, 3, 2, rng)?);
    let (x, r) = (example::river().x, random(6, 4, rng));
    let (_, cache) = layer.forward(&x, &Mask::none())?;
    let step = layer.backward(&cache, &r)?.parameters;
    layer.parameters.w_o -= 0.1 * step.w_o;
    layer.parameters.w_v -= 0.1 * step.w_v;
    ensure!(layer.backward(&cache, &r).is_err(), "the crate takes a stale cache");
    // So a backward pass that takes any.
    let p = &layer.parameters;
    let d = attention_backward(&cache.attention, &(&r * p.w_o.transpose()))?;
    let stale =
        &d.q * p.w_q.transpose() + &d.k * p.w_k.transpose() + &d.v * p.w_v.transpose();
    let (_, cache) = layer.forward(&x, &Mask::none())?;
    let fresh = layer.backward(&cache, &r)?.x;
    let off = (stale - &fresh).norm() / fresh.norm();
    page.value("stale-off", percent(off, 0));
    ensure!(off > 0.01, "a stale cache does no harm: {off}");
    Ok(())
}
