//! The backward pass in numbers: a worked example, the three paths into X, what a cache costs, and a layer that learns.

use crate::output::Page;
use crate::random::normal;
use anyhow::{Result, ensure};
use attention::{
    AttentionShape, Mask, Parameters, SingleHeadAttention, attention, attention_backward,
    example, softmax_rows_backward,
};
use figures::format::{fixed, integer, matrix, percent, table, tuple};
use figures::{Axis, Block, Line, Marks, arrow, label, line_chart, svg};
use nalgebra::{DMatrix, dmatrix};
use rand::seq::SliceRandom;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use record::statistics::median;

pub fn generate(page: &mut Page) -> Result<()> {
    worked_example(page)?;
    three_paths(page)?;
    cache(page)?;
    cost(page)?;
    learning(page)
}

/// Example (b) of *Scaled dot-product attention*, run backwards.
fn worked_example(page: &mut Page) -> Result<()> {
    let q = dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, 1.0];
    let k = dmatrix![1.0, 1.0; 0.0, 1.0; 1.0, 0.0];
    let v = dmatrix![2.0, 1.0; 1.0, 3.0; 0.0, 2.0];
    let grad_output = dmatrix![1.0, 0.0; 0.0, 1.0; 1.0, -1.0];
    let (output, cache) = attention(&q, &k, &v, &Mask::none())?;
    let grad_weights = &grad_output * v.transpose();
    let grad_scores = softmax_rows_backward(&cache.weights, grad_weights.clone())?;
    let gradients = attention_backward(&cache, &grad_output)?;
    for (name, m, decimals) in [
        ("q", &q, 0),
        ("k", &k, 0),
        ("v", &v, 0),
        ("grad-output", &grad_output, 0),
        ("grad-weights", &grad_weights, 0),
        ("weights", &cache.weights, 3),
        ("grad-scores", &grad_scores, 3),
        ("grad-v", &gradients.v, 3),
        ("grad-q", &gradients.q, 3),
        ("grad-k", &gradients.k, 3),
    ] {
        page.value(name, matrix(m, decimals));
    }
    let by_weights = grad_weights.component_mul(&cache.weights).column_sum();
    let by_output = grad_output.component_mul(&output).column_sum();
    ensure!((&by_weights - &by_output).amax() < 1e-14, "the two row sums differ");
    ensure!(grad_scores.column_sum().amax() < 1e-14, "a row of dS does not sum to zero");
    page.value("row-sums", tuple(&by_weights, 3));
    Ok(())
}

/// How many fresh layers the medians of the three paths are taken over.
const FRESH_LAYERS: usize = 2000;

/// One path into X in many fresh layers: queries, keys or values.
#[derive(Default)]
struct PathIntoX {
    /// Its norm divided by that of the whole gradient of X, one number a layer.
    share: Vec<f64>,
    /// The cosine of the angle between the gradient of X without this path and with it, one number a layer.
    cosine_without: Vec<f64>,
}

/// The number below which this share of the numbers lies.
fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(share * (sorted.len() - 1) as f64).round() as usize]
}

/// The three paths into X, for fresh layers on the running example, each with a random gradient of the output. One draw
/// would say little: the shares differ several times over from layer to layer.
fn paths_of_fresh_layers() -> Result<[PathIntoX; 3]> {
    let rng = &mut ChaCha8Rng::seed_from_u64(6);
    let x = example::river().x;
    let mut result: [PathIntoX; 3] = Default::default();
    for _ in 0..FRESH_LAYERS {
        let layer = SingleHeadAttention::<f64>::xavier(4, 3, 2, rng)?;
        let grad_output = normal(6, 4, rng);
        let (_, cache) = layer.forward(&x, &Mask::none())?;
        let whole = layer.backward(&cache, &grad_output)?.x;
        let p = &layer.parameters;
        let inner =
            attention_backward(&cache.attention, &(&grad_output * p.w_o.transpose()))?;
        let paths = [
            &inner.q * p.w_q.transpose(),
            &inner.k * p.w_k.transpose(),
            &inner.v * p.w_v.transpose(),
        ];
        let sum = &paths[0] + &paths[1] + &paths[2];
        ensure!(
            (&sum - &whole).amax() < 1e-13 * whole.amax().max(1.0),
            "three paths do not make the gradient of X"
        );
        for (result, path) in result.iter_mut().zip(&paths) {
            let without = &whole - path;
            result.share.push(path.norm() / whole.norm());
            result
                .cosine_without
                .push(without.dot(&whole) / (without.norm() * whole.norm()));
        }
    }
    Ok(result)
}

/// Each path's share of the gradient of X, and what is left of its direction without that path.
fn three_paths(page: &mut Page) -> Result<()> {
    let names = ["queries", "keys", "values"];
    let paths = paths_of_fresh_layers()?;
    let shares = paths.each_ref().map(|path| median(&path.share));
    let cosines = paths.each_ref().map(|path| median(&path.cosine_without));
    let downhill = paths
        .each_ref()
        .map(|path| path.cosine_without.iter().filter(|&&cosine| cosine > 0.0).count());
    // What the chapter and *Pitfalls* say in words.
    ensure!(
        shares[2] > shares[0] && shares[2] > shares[1],
        "the values' path is not the largest: {shares:?}"
    );
    ensure!(
        cosines[0] > 0.9 && cosines[1] > 0.9 && cosines[2] < 0.7,
        "the directions without a path are not as told: {cosines:?}"
    );
    ensure!(
        downhill[..2] == [FRESH_LAYERS; 2],
        "without queries or keys the gradient does not point downhill: {downhill:?}"
    );
    let mut rows = vec![];
    for (i, name) in names.into_iter().enumerate() {
        page.value(format!("cosine-without-{name}"), fixed(cosines[i], 2));
        let [low, high] = [0.05, 0.95].map(|share| quantile(&paths[i].share, share));
        rows.push(vec![
            name.to_owned(),
            fixed(shares[i], 2),
            format!("{} to {}", fixed(low, 2), fixed(high, 2)),
            fixed(cosines[i], 2),
            integer(downhill[i]),
        ]);
    }
    page.value("path-queries", fixed(shares[0], 2));
    page.value("fresh-layers", integer(FRESH_LAYERS));
    page.file(
        "paths.md",
        table(
            &[
                "path",
                "its norm ÷ norm of $dX$, median",
                "nine of ten layers",
                "cosine of the angle to $dX$ without it, median",
                &format!(
                    "of {} layers, $dX$ without it points downhill in",
                    integer(FRESH_LAYERS)
                ),
            ],
            &rows,
        ),
    );
    let with = |name: &str, share: f64| format!("{name}: {}", fixed(share, 2));

    let drawn = svg(
        "backward-paths",
        "Three paths by which the gradient reaches X",
        "From Y the gradient goes back through O. There it divides: one way leads through V, another through the weights \
         and scores, which divides again into Q and K. Each of Q, K and V leads to X, where all three are added.",
        (520, 400),
        |area| {
            let block = |corner, text, colour| {
                Block::new(corner, (76, 36), text, colour).draw(area)
            };
            let (blue, orange, green, muted) =
                (figures::BLUE, figures::VERMILION, figures::GREEN, figures::MUTED);
            block((222, 8), "dY", muted)?;
            arrow(area, &[(260, 44), (260, 72)], muted)?;
            block((222, 74), "dO", muted)?;
            arrow(area, &[(230, 110), (170, 144)], muted)?;
            block((122, 146), "dA, dS", muted)?;
            arrow(area, &[(290, 110), (410, 212)], green)?;
            arrow(area, &[(145, 182), (112, 212)], blue)?;
            arrow(area, &[(180, 182), (240, 212)], orange)?;
            block((62, 214), "dQ", blue)?;
            block((222, 214), "dK", orange)?;
            block((382, 214), "dV", green)?;
            arrow(area, &[(112, 250), (235, 336)], blue)?;
            arrow(area, &[(260, 250), (260, 336)], orange)?;
            arrow(area, &[(408, 250), (285, 336)], green)?;
            Block::new((210, 338), (100, 36), &with("dX", 1.0), muted).draw(area)?;
            label(area, (84, 296), &with("queries", shares[0]), blue)?;
            label(area, (206, 270), &with("keys", shares[1]), orange)?;
            label(area, (454, 296), &with("values", shares[2]), green)
        },
    )?;
    page.file("paths.svg", drawn);
    Ok(())
}

const D_MODEL: usize = 512;
const HEADS: usize = 8;

fn layer_shape(n: usize) -> AttentionShape {
    AttentionShape::self_attention(1, n, D_MODEL, D_MODEL / HEADS, HEADS)
}

/// What the forward pass keeps, in MiB.
fn cache(page: &mut Page) -> Result<()> {
    let mut rows = vec![];
    let mut shares = vec![];
    for n in [128, 1024, 8192] {
        let bytes = layer_shape(n).bytes(4)?;
        let x = (4 * n * D_MODEL) as u128;
        let linear = x + bytes.q + bytes.k + bytes.v + bytes.output;
        let mib = |bytes: u128| fixed(bytes as f64 / f64::from(1 << 20), 2);
        let share = bytes.weights as f64 / (bytes.weights + linear) as f64;
        shares.push(share);
        rows.push(vec![
            integer(n),
            mib(x),
            mib(linear - x),
            mib(bytes.weights),
            percent(share, 0),
        ]);
    }
    ensure!(
        shares[0] < 0.5 && shares[2] > 0.9,
        "the share of the weights is not as told"
    );
    page.file(
        "cache.md",
        table(&["$n$", "$X$", "$Q, K, V, O$", "weights $A$", "share of $A$"], &rows),
    );
    page.value("d-model", integer(D_MODEL));
    page.value("heads", integer(HEADS));
    Ok(())
}

/// Products forward and backward.
fn cost(page: &mut Page) -> Result<()> {
    let n = 1024;
    let flops = layer_shape(n).flops()?;
    let giga = |flops: u128| fixed(flops as f64 / 1e9, 2);
    let core = flops.scores + flops.values;
    page.value("cost-n", integer(n));
    let row = |name: &str, f: (usize, u128), b: (usize, u128)| {
        vec![name.to_owned(), f.0.to_string(), giga(f.1), b.0.to_string(), giga(b.1)]
    };
    page.file(
        "cost.md",
        table(
            &["products", "forward", "GFLOP", "backward", "GFLOP"],
            &[
                row("projections", (4, flops.projections), (8, 2 * flops.projections)),
                row("$Q K^\\top$ and $A V$", (2, core), (4, 2 * core)),
                row(
                    "all",
                    (6, flops.projections + core),
                    (12, 2 * (flops.projections + core)),
                ),
            ],
        ),
    );
    Ok(())
}

const NAMES: usize = 6;
const STEPS: usize = 800;
const BATCH: usize = 32;
const RATE: f64 = 0.5;

/// Six tokens, each with a name, the name of the token that it looks for, and a number: [name | looks for | number].
/// What it should come up with is the number of the token that it looks for.
fn task(rng: &mut ChaCha8Rng) -> (DMatrix<f64>, DMatrix<f64>) {
    let d_model = 2 * NAMES + 1;
    let mut names: Vec<usize> = (0..NAMES).collect();
    names.shuffle(rng);
    let mut wanted: Vec<usize> = (0..NAMES).collect();
    wanted.shuffle(rng);
    let mut x = DMatrix::zeros(NAMES, d_model);
    for i in 0..NAMES {
        x[(i, names[i])] = 1.0;
        x[(i, NAMES + wanted[i])] = 1.0;
        x[(i, 2 * NAMES)] = StandardNormal.sample(rng);
    }
    let mut target = DMatrix::zeros(NAMES, d_model);
    for i in 0..NAMES {
        let j = (0..NAMES).position(|j| names[j] == wanted[i]).unwrap_or(i);
        target[(i, 2 * NAMES)] = x[(j, 2 * NAMES)];
    }
    (x, target)
}

#[derive(Clone, Copy, PartialEq)]
enum Path {
    All,
    ValuesOnly,
}

/// Gradient descent on fresh sequences; returns the loss at each step.
fn train(paths: Path) -> Result<(Vec<f64>, SingleHeadAttention<f64>)> {
    let rng = &mut ChaCha8Rng::seed_from_u64(8);
    let d_model = 2 * NAMES + 1;
    let mut layer = SingleHeadAttention::<f64>::xavier(d_model, NAMES, 2, rng)?;
    let mut losses = vec![];
    for _ in 0..STEPS {
        let (xs, targets): (Vec<_>, Vec<_>) = (0..BATCH).map(|_| task(rng)).unzip();
        let (outputs, caches) = layer.forward_batch(&xs, &[Mask::none()])?;
        let share = 1.0 / (BATCH * NAMES) as f64;
        let errors: Vec<_> = outputs.iter().zip(&targets).map(|(y, t)| y - t).collect();
        losses.push(share * errors.iter().map(|e| 0.5 * e.norm_squared()).sum::<f64>());
        let grad_outputs: Vec<_> =
            errors.into_iter().map(|error| error * share).collect();
        let (gradients, _) = layer.backward_batch(&caches, &grad_outputs)?;
        descend(&mut layer.parameters, &gradients, paths);
    }
    Ok((losses, layer))
}

fn descend(p: &mut Parameters<f64>, gradients: &Parameters<f64>, paths: Path) {
    for ((name, parameter), (_, gradient)) in
        p.named_mut().into_iter().zip(gradients.named())
    {
        if paths == Path::ValuesOnly && name.ends_with(['q', 'k']) {
            continue;
        }
        parameter.iter_mut().zip(gradient).for_each(|(x, slope)| *x -= RATE * slope);
    }
}

fn learning(page: &mut Page) -> Result<()> {
    let (all, layer) = train(Path::All)?;
    let (values, _) = train(Path::ValuesOnly)?;
    let end = |losses: &[f64], last: usize| {
        losses[STEPS - last..].iter().sum::<f64>() / last as f64
    };
    let mean = 0.5 * (NAMES - 1) as f64 / NAMES as f64;
    ensure!(end(&all, 20) < 0.01, "the layer does not learn");
    ensure!(
        (end(&values, 400) - mean).abs() < 0.02,
        "values alone do not learn the mean"
    );
    page.value("steps", integer(STEPS));
    page.value("batch", integer(BATCH));
    page.value("rate", fixed(RATE, 1));
    page.value("loss-start", fixed(all[0], 2));
    page.value("loss-all", fixed(end(&all, 20), 3));
    page.value("loss-values", fixed(end(&values, 400), 2));
    page.value("loss-mean", fixed(mean, 2));
    // How much attention each token of fresh sequences gives to the one that it looks for.
    let rng = &mut ChaCha8Rng::seed_from_u64(9);
    let mut found = vec![];
    for _ in 0..1000 {
        let (x, target) = task(rng);
        let (_, cache) = layer.forward(&x, &Mask::none())?;
        found.extend((0..NAMES).map(|i| {
            let wanted = target[(i, 2 * NAMES)];
            let j = (0..NAMES).find(|&j| x[(j, 2 * NAMES)] == wanted);
            j.map_or(0.0, |j| cache.attention.weights[(i, j)])
        }));
    }
    page.value("mean-found", percent(found.iter().sum::<f64>() / found.len() as f64, 0));
    page.value("least-found", percent(found.into_iter().fold(1.0, f64::min), 0));
    let smooth = |losses: &[f64]| -> Vec<(f64, f64)> {
        losses
            .chunks(10)
            .enumerate()
            .map(|(c, l)| (10.0 * c as f64 + 5.0, l.iter().sum::<f64>() / 10.0))
            .collect()
    };
    let top = 0.7;
    let drawn = svg(
        "backward-learning",
        "Loss against step, with all parameters trained and with queries and keys held",
        "With all parameters trained the loss falls steadily to nearly zero. With queries and keys held as \
         they were drawn it stays high.",
        (520, 330),
        |area| {
            line_chart(
                area,
                &Axis::linear("step", 0.0..STEPS as f64),
                &Axis::linear("loss", 0.0..top),
                &[
                    Line {
                        name: "all trained".into(),
                        colour: figures::BLUE,
                        dashed: false,
                        points: smooth(&all),
                    },
                    Line {
                        name: "W_Q, W_K held".into(),
                        colour: figures::VERMILION,
                        dashed: true,
                        points: smooth(&values),
                    },
                ],
                Marks::default(),
            )
        },
    )?;
    page.file("learning.svg", drawn);
    Ok(())
}
