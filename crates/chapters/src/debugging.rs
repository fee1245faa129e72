//! Debugging attention: a healthy layer's numbers, those of patients, and what a fault does to training.

use crate::output::Page;
use crate::random::normal;
use anyhow::{Context, Result, ensure};
use attention::{AttentionLayer, Mask, MultiHeadAttention, Parameters, row_entropy};
use figures::format::{fixed, integer, table};
use figures::{
    Axis, BLUE, GREEN, HeatMap, Line, Marks, TEXT, VERMILION, line_chart, svg,
};
use laboratory::{Diagnosis, Fault, Finding, Patient, diagnose};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

pub fn generate(page: &mut Page) -> Result<()> {
    training(page)?;
    entropies(page)?;
    healthy(page)?;
    hunt(page)?;
    padding(page)?;
    overview(page)
}

fn layer(d_model: usize, n_heads: usize, seed: u64) -> Result<MultiHeadAttention<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    Ok(MultiHeadAttention::xavier(d_model, n_heads, rng)?)
}

// ---------------------------------------------------------------------------------------------------- training

const POSITIONS: usize = 6;
const CONTENT: usize = 2;
const STEPS: usize = 300;
const BATCH: usize = 4;
const RATE: f64 = 0.03;
const TESTS: usize = 64;

/// Tokens of two random numbers and a position, one-hot: (6, 8).
fn sequence(rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    let content = normal(POSITIONS, CONTENT, rng);
    DMatrix::from_fn(POSITIONS, CONTENT + POSITIONS, |i, c| match c {
        c if c < CONTENT => content[(i, c)],
        c => f64::from(c - CONTENT == i),
    })
}

/// The mean of squared errors over outputs which have a target, and its gradient. The target of output `i` is the
/// content of token `i + ahead`.
fn loss(output: &DMatrix<f64>, x: &DMatrix<f64>, ahead: isize) -> (f64, DMatrix<f64>) {
    let count = ((POSITIONS - 1) * CONTENT) as f64;
    let mut grad = DMatrix::zeros(output.nrows(), output.ncols());
    let mut loss = 0.0;
    for i in 0..POSITIONS {
        let Some(target) = i.checked_add_signed(ahead).filter(|&t| t < POSITIONS) else {
            continue;
        };
        for c in 0..CONTENT {
            let error = output[(i, c)] - x[(target, c)];
            loss += error * error / count;
            grad[(i, c)] = 2.0 * error / count;
        }
    }
    (loss, grad)
}

fn entries(p: &mut Parameters<f64>) -> Vec<&mut f64> {
    p.named_mut().into_iter().flat_map(|(_, numbers)| numbers).collect()
}

/// The mean loss of what answers, on sequences that were not trained on.
fn test(
    ahead: isize,
    answer: impl Fn(&DMatrix<f64>) -> Result<DMatrix<f64>>,
) -> Result<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(99);
    let losses = (0..TESTS).map(|_| {
        let x = sequence(rng);
        Ok(loss(&answer(&x)?, &x, ahead).0)
    });
    Ok(losses.sum::<Result<f64>>()? / TESTS as f64)
}

/// Trains with Adam, and returns the loss before and after, on sequences that were not trained on.
fn train(mut patient: Patient, ahead: isize) -> Result<(f64, f64)> {
    let mask = Mask::causal();
    let test =
        |patient: &Patient| test(ahead, |x| Ok(patient.forward(x, None, &mask)?.0));
    let before = test(&patient)?;
    let rng = &mut ChaCha8Rng::seed_from_u64(1);
    let count = entries(patient.parameters_mut()).len();
    let (mut mean, mut square) = (vec![0.0; count], vec![0.0; count]);
    for step in 1..=STEPS {
        let mut sum = vec![0.0; count];
        for _ in 0..BATCH {
            let x = sequence(rng);
            let (output, cache) = patient.forward(&x, None, &mask)?;
            let mut gradients = patient.backward(&cache, &loss(&output, &x, ahead).1)?;
            for (sum, gradient) in sum.iter_mut().zip(entries(&mut gradients.parameters))
            {
                *sum += *gradient / BATCH as f64;
            }
        }
        let unbias = |decay: f64| 1.0 - decay.powi(step as i32);
        for (i, parameter) in entries(patient.parameters_mut()).into_iter().enumerate() {
            mean[i] = 0.9 * mean[i] + 0.1 * sum[i];
            square[i] = 0.99 * square[i] + 0.01 * sum[i] * sum[i];
            let size = (square[i] / unbias(0.99)).sqrt() + 1e-8;
            *parameter -= RATE * mean[i] / unbias(0.9) / size;
        }
    }
    Ok((before, test(&patient)?))
}

fn training(page: &mut Page) -> Result<()> {
    let (mut rows, mut losses) = (vec![], vec![]);
    // What is reached without looking at anything.
    let zero = |ahead| test(ahead, |x| Ok(x * 0.0));
    let (zero_previous, zero_next) = (zero(-1)?, zero(1)?);
    let without_padding =
        Fault::ALL.iter().copied().filter(|f| *f != Fault::ForgottenPadding);
    for fault in [Fault::None].into_iter().chain(without_padding) {
        let patient = Patient::new(layer(CONTENT + POSITIONS, 2, 0)?, fault)?;
        let (before, previous) = train(patient.clone(), -1)?;
        let (_, next) = train(patient, 1)?;
        let learns = previous < 0.2;
        // No layer does better than 0 on the numbers of the next token, unless something of them reaches it.
        let cheats = next < 0.98 * zero_next;
        ensure!(cheats == (next < 0.8), "{fault:?}: {next} against {zero_next}");
        let leaks = matches!(
            fault,
            Fault::OffByOneMask
                | Fault::InvertedMask
                | Fault::MaskAfterSoftmax
                | Fault::WrongAxis
        );
        // What the chapter says in words.
        ensure!(learns == (fault != Fault::InvertedMask), "{fault:?}: {previous}");
        ensure!(cheats == leaks, "{fault:?}: {next}");
        ensure!(before > 1.0 && next < before, "{fault:?}: {before}, {next}");
        losses.push((fault, previous));
        rows.push(vec![
            name(fault).to_owned(),
            fixed(before, 3),
            fixed(previous, 3),
            fixed(next, 3),
        ]);
    }
    let healthy = losses[0].1;
    let of =
        |wanted| losses.iter().find(|(fault, _)| *fault == wanted).map(|(_, loss)| *loss);
    ensure!(
        of(Fault::ForgottenPath) == Some(healthy),
        "the forgotten path changes training"
    );
    ensure!(
        losses.iter().any(|(_, loss)| *loss > 100.0 * healthy && *loss < 0.2),
        "a good deal worse"
    );
    ensure!(
        losses.iter().any(|(_, loss)| *loss > 2.0 * healthy && *loss < 0.005),
        "a little worse"
    );
    let as_good = losses[1..].iter().filter(|(_, loss)| *loss < 1.5 * healthy).count();
    ensure!(as_good >= 3, "some are as good: {losses:?}");
    page.value("training-steps", integer(STEPS));
    rows.push(vec![
        "*none: the answer is 0*".to_owned(),
        "–".to_owned(),
        fixed(zero_previous, 3),
        fixed(zero_next, 3),
    ]);
    page.value("training-batch", integer(BATCH));
    page.value("training-rate", fixed(RATE, 2));
    let header = ["layer", "before", "previous token", "next token"];
    page.file("training.md", table(&header, &rows));
    Ok(())
}

fn name(fault: Fault) -> &'static str {
    match fault {
        Fault::None => "healthy",
        Fault::OffByOneMask => "mask off by one",
        Fault::InvertedMask => "mask inverted",
        Fault::ForgottenPadding => "padding forgotten",
        Fault::MaskAfterSoftmax => "mask after softmax",
        Fault::MissingScale => "scale missing",
        Fault::WrongAxis => "softmax down the columns",
        Fault::DeadHead => "queries, keys start at zero",
        Fault::SharedSlice => "two heads on one slice",
        Fault::ForgottenPath => "a path into $X$ forgotten",
        Fault::KeysNotTransposed => "a transpose forgotten",
        _ => "another fault",
    }
}

// ---------------------------------------------------------------------------------------------------- the ward

const TOKENS: [&str; 6] = ["the", "boat", "left", "the", "river", "bank"];
const D_MODEL: usize = 16;
const HEADS: usize = 2;

/// The sentence as a layer inside a model sees it: no two rows alike, since positions have been added.
fn sentence() -> DMatrix<f64> {
    normal(TOKENS.len(), D_MODEL, &mut ChaCha8Rng::seed_from_u64(11))
}

fn patient(fault: Fault) -> Result<Patient> {
    Ok(Patient::new(layer(D_MODEL, HEADS, 12)?, fault)?)
}

fn examine(fault: Fault) -> Result<Diagnosis> {
    Ok(diagnose(&patient(fault)?, &sentence(), None, &Mask::causal())?)
}

/// The report up to the findings, and the findings.
fn report(diagnosis: &Diagnosis) -> Result<(String, String)> {
    let report = diagnosis.to_string();
    let (symptoms, findings) =
        report.split_once("\nfindings\n").context("a report without findings")?;
    let findings = findings.lines().map(str::trim).collect::<Vec<_>>().join("\n") + "\n";
    Ok((symptoms.to_owned(), findings))
}

fn influence_figure(
    page: &mut Page,
    name: &str,
    title: &str,
    says: &str,
    d: &Diagnosis,
) -> Result<()> {
    let influence = d.influence();
    let map = HeatMap {
        matrix: influence,
        rows: &TOKENS,
        columns: &TOKENS,
        decimals: Some(2),
        full: 1.0,
    };
    let figure = svg(&format!("debugging-{name}"), title, says, map.size(), |area| {
        map.draw(area)
    })?;
    page.file(format!("{name}.svg"), figure);
    Ok(())
}

/// The least and the largest entropy as a share of what it could be, over rows with a choice.
fn entropy_range(head: &laboratory::HeadDiagnosis) -> (f64, f64) {
    let rows = head.entropy.iter().zip(head.max_entropy.iter());
    let shares =
        rows.filter(|(_, most)| **most > 0.0).map(|(entropy, most)| entropy / most);
    shares.fold((f64::INFINITY, 0.0), |(least, most), share| {
        (share.min(least), share.max(most))
    })
}

/// The healthy layer's report, and its influence beside that of a leaking one.
fn healthy(page: &mut Page) -> Result<()> {
    let healthy = examine(Fault::None)?;
    ensure!(healthy.findings().is_empty(), "the healthy layer is ill:\n{healthy}");
    page.file("healthy.txt", healthy.to_string());
    let largest_error =
        healthy.slope_errors().iter().map(|(_, error)| *error).fold(0.0, f64::max);
    ensure!(largest_error < 1e-5, "slopes of the healthy layer: {largest_error}");
    influence_figure(
        page,
        "influence-healthy",
        "How far each output moves as each token is changed, in a healthy causal layer",
        "Everything above the diagonal is exactly zero; every cell on and below it is not.",
        &healthy,
    )?;
    let above_is_zero =
        (0..6).all(|i| (i + 1..6).all(|j| healthy.influence()[(i, j)] == 0.0));
    let below_is_not =
        (0..6).all(|i| (0..=i).all(|j| healthy.influence()[(i, j)] > 0.005));
    ensure!(above_is_zero && below_is_not, "the influence's triangle");

    let leaking = examine(Fault::OffByOneMask)?;
    influence_figure(
        page,
        "influence-leaking",
        "The same for a layer that leaks",
        "The first cell above the diagonal is no longer zero in any row but the last.",
        &leaking,
    )?;
    ensure!(
        (0..5).all(|i| leaking.influence()[(i, i + 1)] > 0.005),
        "the leak is not to be seen"
    );
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- entropy

const KEYS: usize = 24;
const WIDE: usize = 128; // two heads of 64

/// Entropy of each row against the number of keys that it sees, for heads with and without a fault.
fn entropies(page: &mut Page) -> Result<()> {
    let x = normal(KEYS, WIDE, &mut ChaCha8Rng::seed_from_u64(21));
    let of_head = |fault: Fault, head: usize| -> Result<Vec<(f64, f64)>> {
        let patient = Patient::new(layer(WIDE, 2, 22)?, fault)?;
        let (_, cache) = patient.forward(&x, None, &Mask::causal())?;
        let entropy = row_entropy(&Patient::heads(&cache)[head].weights)?;
        Ok(entropy.iter().enumerate().map(|(i, h)| (i as f64 + 1.0, *h)).collect())
    };
    let most: Vec<_> = (1..=KEYS).map(|n| (n as f64, (n as f64).ln())).collect();
    let line = |name: &str, colour, dashed, points| Line {
        name: name.to_owned(),
        colour,
        dashed,
        points,
    };
    let (healthy, unscaled) =
        (of_head(Fault::None, 1)?, of_head(Fault::MissingScale, 1)?);
    let dead = of_head(Fault::DeadHead, 1)?;
    let last = KEYS - 1;
    ensure!(
        (dead[last].1 - most[last].1).abs() < 1e-12,
        "the dead head is not at the top"
    );
    let below = |a: &[(f64, f64)], b: &[(f64, f64)]| (2..KEYS).all(|i| a[i].1 < b[i].1);
    ensure!(below(&unscaled, &healthy) && below(&healthy, &most), "the lines cross");
    for (key, points) in [("healthy", &healthy), ("unscaled", &unscaled)] {
        page.value(format!("entropy-{key}"), fixed(points[last].1 / most[last].1, 2));
    }
    // The first row has one key, and never any entropy.
    let little = 0.05;
    let firm = unscaled.iter().skip(1).filter(|(_, entropy)| *entropy < little).count();
    page.value("entropy-little", fixed(little, 2));
    page.value("entropy-firm", integer(firm));
    page.value("entropy-keys", integer(KEYS));
    page.value("entropy-d", integer(WIDE / 2));
    let lines = [
        line("dead", GREEN, false, dead),
        line("healthy", BLUE, false, healthy),
        line("unscaled", VERMILION, false, unscaled),
        line("the most: ln n", TEXT, true, most), // on top: it shares its place with the first
    ];
    let figure = svg(
        "debugging-entropy",
        "Entropy of a row of weights against the number of keys it may see, for three heads",
        "The dead head's line lies on the ceiling, ln n. The healthy head's runs below it. The unscaled head's is far \
         below both and jumps up and down.",
        (520, 400),
        |area| {
            let x = Axis::linear("keys that the row may see", 0.0..KEYS as f64);
            let y = Axis::linear("entropy of the row (nats)", 0.0..3.5);
            line_chart(area, &x, &y, &lines, Marks::default())
        },
    )?;
    page.file("entropy.svg", figure);
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- the hunt

/// The patients in the order in which the chapter presents them.
const PATIENTS: [(&str, Fault); 8] = [
    ("a", Fault::WrongAxis),
    ("b", Fault::OffByOneMask),
    ("c", Fault::MissingScale),
    ("d", Fault::DeadHead),
    ("e", Fault::ForgottenPath),
    ("f", Fault::SharedSlice),
    ("g", Fault::MaskAfterSoftmax),
    ("h", Fault::KeysNotTransposed),
];

fn hunt(page: &mut Page) -> Result<()> {
    for (letter, fault) in PATIENTS {
        let diagnosis = examine(fault)?;
        let (symptoms, findings) = report(&diagnosis)?;
        let wrong = |finding: &Finding| matches!(finding, Finding::WrongGradient { .. });
        let slopes_agree = !diagnosis.findings().iter().any(wrong);
        ensure!(slopes_agree != ["e", "h"].contains(&letter), "patient {letter}: slopes");
        page.file(format!("patient-{letter}.txt"), symptoms);
        page.file(format!("patient-{letter}-findings.txt"), findings);
        say_of(page, fault, &diagnosis)?;
    }
    Ok(())
}

/// What the chapter says in words of each patient, and the numbers that it quotes.
fn say_of(page: &mut Page, fault: Fault, diagnosis: &Diagnosis) -> Result<()> {
    let findings = diagnosis.findings();
    match fault {
        Fault::WrongAxis => {
            let weights = &diagnosis.heads()[0].weights;
            ensure!(
                (weights[(5, 5)] - 1.0).abs() < 1e-12 && weights.column(0).max() < 0.6,
                "{weights}"
            );
            let text = attention::heat_map(weights, &TOKENS, &TOKENS)?;
            page.file("patient-a-map.txt", text);
        }
        Fault::MissingScale => {
            let d = D_MODEL / HEADS;
            page.value("d-head", integer(d));
            page.value("root-d", fixed((d as f64).sqrt(), 3));
            let (healthy, ill) = (examine(Fault::None)?, diagnosis);
            let least = |d: &Diagnosis| {
                d.heads().iter().map(|h| entropy_range(h).0).fold(1.0, f64::min)
            };
            ensure!(least(ill) < least(&healthy), "entropy does not fall");
            ensure!(
                findings.len() == HEADS,
                "the scale is all that is found: {findings:?}"
            );
        }
        Fault::OffByOneMask => {
            let most = diagnosis.heads().iter().map(|head| entropy_range(head).1);
            ensure!(most.fold(0.0, f64::max) > 1.1, "no entropy is above its maximum");
            // Every row but the last leaks, and some of these stay below what they may have.
            let below = |head: &laboratory::HeadDiagnosis| {
                (1..5).any(|i| head.entropy[i] < head.max_entropy[i])
            };
            ensure!(diagnosis.heads().iter().any(below), "all leaking rows are above");
        }
        Fault::DeadHead => {
            let dead = diagnosis.heads()[1].gradients;
            ensure!(dead[0].1 == 0.0 && dead[1].1 == 0.0 && dead[2].1 > 1.0, "{dead:?}");
        }
        Fault::ForgottenPath => {
            let [Finding::WrongGradient { by: "x", error }] = findings[..] else {
                anyhow::bail!("{findings:?}")
            };
            page.value("path-error", fixed(error, 2));
        }
        Fault::MaskAfterSoftmax => {
            let hidden_are_zero = diagnosis.heads().iter().all(|head| {
                (0..6).all(|i| (i + 1..6).all(|j| head.weights[(i, j)] == 0.0))
            });
            ensure!(hidden_are_zero, "a hidden weight");
            ensure!(
                findings.iter().any(|f| matches!(f, Finding::Leak { .. })),
                "no leak"
            );
            ensure!(
                (diagnosis.heads()[0].row_sums[5] - 1.0).abs() < 1e-12,
                "the last row sees all"
            );
        }
        _ => {}
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- padding

/// A layer that forgets padding, with filling at the end and at the beginning.
fn padding(page: &mut Page) -> Result<()> {
    for (place, at) in [("end", 5), ("start", 0)] {
        let valid: Vec<bool> = (0..6).map(|j| j != at).collect();
        let mask = Mask::causal().and(Mask::padding(&valid)?);
        let diagnosis =
            diagnose(&patient(Fault::ForgottenPadding)?, &sentence(), None, &mask)?;
        let Some(Finding::Leak { pairs, .. }) =
            diagnosis.findings().into_iter().find(|f| matches!(f, Finding::Leak { .. }))
        else {
            anyhow::bail!("no leak with filling at the {place}:\n{diagnosis}")
        };
        let real = pairs.iter().filter(|(output, _)| *output != at).count();
        ensure!(real == if place == "end" { 0 } else { 5 }, "{place}: {pairs:?}");
        page.value(format!("padding-{place}"), integer(real));
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------------- overview

/// Which of the checks each fault fails.
fn overview(page: &mut Page) -> Result<()> {
    let valid = [true, false, true, true, true, true];
    let mask = Mask::causal().and(Mask::padding(&valid)?);
    let mut rows = vec![];
    for &fault in Fault::ALL {
        let findings = diagnose(&patient(fault)?, &sentence(), None, &mask)?.findings();
        let any = |is: fn(&Finding) -> bool| {
            if findings.iter().any(is) { "×".to_owned() } else { String::new() }
        };
        let row = vec![
            name(fault).to_owned(),
            any(|f| matches!(f, Finding::Leak { .. } | Finding::Deaf { .. })),
            any(|f| matches!(f, Finding::WrongGradient { .. })),
            any(|f| matches!(f, Finding::RowSum { .. } | Finding::WrongAxis { .. })),
            any(|f| matches!(f, Finding::Scale { .. })),
            any(|f| matches!(f, Finding::Collapsed { .. } | Finding::Diffuse { .. })),
            any(|f| matches!(f, Finding::NoGradient { .. })),
            any(|f| matches!(f, Finding::Twins { .. })),
        ];
        ensure!(row[1..].iter().any(|cell| !cell.is_empty()), "{fault:?} is not found");
        rows.push(row);
    }
    let fails_one =
        |row: &&Vec<String>| row[1..].iter().filter(|c| !c.is_empty()).count() == 1;
    page.value("single", integer(rows.iter().filter(fails_one).count()));
    ensure!(rows.len() == 10, "the page says ten");
    // In words: the inverted mask has a row without any key under the causal mask alone.
    let inverted =
        diagnose(&patient(Fault::InvertedMask)?, &sentence(), None, &Mask::causal())?;
    let empty = |f: &Finding| matches!(f, Finding::RowSum { query: 5, sum: 0.0, .. });
    ensure!(inverted.findings().iter().any(empty), "the last row is not empty");
    // The checks that find most come first, where a phone shows them.
    let header =
        ["fault", "moves", "slopes", "sums", "scale", "entropy", "no gradient", "twins"];
    page.file("overview.md", table(&header, &rows));
    Ok(())
}
