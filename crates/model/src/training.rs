//! Training: steps, what is measured on the way, and a file from which it goes on.

use crate::heads::{HeadScores, head_scores};
use crate::tasks::Task;
use crate::transformer::{Sizes, Text, Transformer};
use anyhow::{Context as _, Result, bail, ensure};
use attention::{Adam, NamedParameters};
use nalgebra::DMatrix;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;

/// All that a training's result depends on, besides its task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Of the model.
    pub sizes: Sizes,
    /// Of the parameters at first, and of the texts of each step.
    pub seed: u64,
    /// How many steps there are.
    pub steps: u64,
    /// How many texts a step has.
    pub batch: usize,
    /// The largest step size, after the warm-up.
    pub rate: f32,
    /// In so many steps the rate rises from 0; afterwards it falls along half a cosine.
    pub warm_up: u64,
    /// The largest norm of a step's gradients.
    pub clip: f32,
    /// Adam's decay of parameters.
    pub weight_decay: f32,
    /// The model is measured before the first step and after every so many.
    pub measure_every: u64,
}

impl Plan {
    /// Returns the step size of a step, of which the first is 1.
    pub fn rate(&self, step: u64) -> f32 {
        if step <= self.warm_up {
            return self.rate * step as f32 / self.warm_up as f32;
        }
        let done = (step - self.warm_up) as f32
            / self.steps.saturating_sub(self.warm_up).max(1) as f32;
        // To a tenth, not to 0: the last steps should count for something.
        self.rate * (0.55 + 0.45 * (std::f32::consts::PI * done).cos())
    }
}

/// What was measured after some steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// How many steps were taken.
    pub step: u64,
    /// The mean loss of the steps since the last measurement; at first, none.
    pub loss: Option<f32>,
    /// The loss of texts that no step has.
    pub held_out: f32,
    /// The norm of each matrix's gradient in the last step, before clipping.
    pub gradients: Vec<(String, f32)>,
    /// Of the heads, block by block.
    pub heads: Vec<Vec<HeadScores>>,
}

/// A training: what it has learned so far, and all that it takes to go on as if it had never stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Training {
    /// What it does.
    pub plan: Plan,
    /// What it has learned.
    pub model: Transformer<f32>,
    /// What was measured, from the first step to the last.
    pub history: Vec<Measurement>,
    task: u64, // its fingerprint
    adam: Adam<f32>,
    losses: Vec<f32>, // since the last measurement
}

/// A training as it is in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    plan: Plan,
    task: u64,
    parameters: Vec<(String, Vec<f32>)>,
    adam: Adam<f32>,
    losses: Vec<f32>,
    history: Vec<Measurement>,
}

impl Training {
    /// Returns a training before its first step, measured.
    ///
    /// # Errors
    /// The sizes don't fit, or a batch has no texts or more than memory.
    pub fn new(plan: Plan, task: &impl Task) -> Result<Self> {
        check_batch(&plan)?;
        let model = fresh(&plan)?;
        let mut adam = Adam::new(plan.rate);
        adam.beta_2 = 0.98; // forgets faster than in the paper, for a short training
        adam.weight_decay = plan.weight_decay;
        let (history, task_of_all, losses) = (vec![], task.fingerprint(), vec![]);
        let mut training =
            Training { plan, model, history, task: task_of_all, adam, losses };
        training.measure(task, vec![])?;
        Ok(training)
    }

    /// Returns how many steps were taken.
    pub fn steps(&self) -> u64 {
        self.adam.steps()
    }

    /// Takes the next step, and returns its loss. What it draws depends on the seed and the number of the step alone.
    ///
    /// # Errors
    /// The task is another, or the loss or a gradient is not a finite number. Then nothing has changed.
    pub fn step(&mut self, task: &impl Task) -> Result<f32> {
        check_task(self.task, task)?;
        let step = self.steps().saturating_add(1);
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed);
        rng.set_stream(step);
        let texts: Vec<_> = (0..self.plan.batch).map(|_| task.draw(&mut rng)).collect();
        let (loss, mut gradients) = self.model.loss_and_gradients(&texts)?;
        let measured = step.is_multiple_of(self.plan.measure_every);
        let norms = if measured { norms(&gradients) } else { vec![] };
        let norm = gradients.clip_norm(self.plan.clip);
        ensure!(
            loss.is_finite() && norm.is_finite(),
            "step {step} has a loss of {loss} and gradients of norm {norm}: try a smaller rate than {}",
            self.plan.rate
        );
        self.adam.rate = self.plan.rate(step);
        self.adam.step(&mut self.model, &gradients)?;
        self.losses.push(loss);
        if measured {
            self.measure(task, norms)?;
        }
        Ok(loss)
    }

    fn measure(&mut self, task: &impl Task, gradients: Vec<(String, f32)>) -> Result<()> {
        let held_out = task.held_out();
        let read: Vec<_> =
            held_out.iter().take(16).map(|text| text.tokens.clone()).collect();
        let count = self.losses.len() as f64;
        let sum: f64 = self.losses.iter().map(|loss| f64::from(*loss)).sum();
        self.history.push(Measurement {
            step: self.steps(),
            loss: (count > 0.0).then(|| (sum / count) as f32),
            held_out: self.model.loss(&held_out)?,
            gradients,
            heads: head_scores(&self.model, &read)?,
        });
        self.losses.clear();
        Ok(())
    }

    /// Writes the training to a file. The file is the old one until the new one is complete, also if the machine stops in between.
    ///
    /// # Errors
    /// It can't be written, or a number isn't finite, which couldn't be read again.
    pub fn save(&self, path: &Path) -> Result<()> {
        let parameters = self.model.named().into_iter();
        let saved = Saved {
            plan: self.plan.clone(),
            task: self.task,
            parameters: parameters
                .map(|(name, matrix)| (name, matrix.iter().copied().collect()))
                .collect(),
            adam: self.adam.clone(),
            losses: self.losses.clone(),
            history: self.history.clone(),
        };
        let new = path.with_extension("new");
        let write = || -> Result<()> {
            check_finite(&self.plan, &self.model, &self.history)?;
            let mut file = BufWriter::new(File::create(&new)?);
            serde_json::to_writer(&mut file, &saved)?;
            file.flush()?;
            file.get_ref().sync_all()?;
            Ok(fs::rename(&new, path)?)
        };
        write().with_context(|| format!("{} can't be written", path.display()))
    }

    /// Reads a training from a file that [`Training::save`] has written, to go on with its task.
    ///
    /// # Errors
    /// It can't be read, isn't such a file, or has another task.
    pub fn open(path: &Path, task: &impl Task) -> Result<Self> {
        let read = || -> Result<Self> {
            let saved: Saved =
                serde_json::from_reader(BufReader::new(File::open(path)?))?;
            let Saved { plan, task: of_file, parameters, adam, losses, history } = saved;
            check_task(of_file, task)?;
            check_batch(&plan)?;
            let model = filled(&plan, parameters)?;
            check_finite(&plan, &model, &history)?;
            Ok(Training { plan, model, history, task: of_file, adam, losses })
        };
        read().with_context(|| format!("{} is no training to go on with", path.display()))
    }
}

fn check_task(of_training: u64, task: &impl Task) -> Result<()> {
    ensure!(
        of_training == task.fingerprint(),
        "it was trained on other texts: go on with those, or begin another training"
    );
    Ok(())
}

/// Checks that a batch has a text, and that the memory for its texts could be had.
fn check_batch(plan: &Plan) -> Result<()> {
    let room = Vec::<Text>::new().try_reserve_exact(plan.batch);
    ensure!(
        plan.batch > 0 && room.is_ok(),
        "a batch of {} texts is none that a step could take",
        plan.batch
    );
    Ok(())
}

/// Checks that all numbers are finite: in JSON, others would be a `null`, which isn't read as a number.
pub(crate) fn check_finite(
    plan: &Plan,
    model: &Transformer<f32>,
    history: &[Measurement],
) -> Result<()> {
    let Plan { rate, clip, weight_decay, .. } = *plan;
    let mut numbers = vec![("the plan".to_owned(), vec![rate, clip, weight_decay])];
    for (name, matrix) in model.named() {
        numbers.push((format!("`{name}`"), matrix.iter().copied().collect()));
    }
    for at in history {
        let heads = at.heads.iter().flatten().flat_map(|head| {
            let HeadScores { itself, previous, first, after_copy, entropy } = *head;
            [itself, previous, first, after_copy, entropy]
        });
        let gradients = at.gradients.iter().map(|(_, norm)| *norm);
        let losses = at.loss.into_iter().chain([at.held_out]);
        let what = format!("what was measured at step {}", at.step);
        numbers.push((what, losses.chain(gradients).chain(heads).collect()));
    }
    for (what, numbers) in numbers {
        if let Some(bad) = numbers.iter().find(|number| !number.is_finite()) {
            bail!("{what} has {bad}, which isn't finite");
        }
    }
    Ok(())
}

/// The model of a plan before its first step.
pub(crate) fn fresh(plan: &Plan) -> Result<Transformer<f32>> {
    Ok(Transformer::new(plan.sizes, &mut ChaCha8Rng::seed_from_u64(plan.seed))?)
}

/// The model of a plan, with the parameters of a file, by their names.
fn filled(plan: &Plan, parameters: Vec<(String, Vec<f32>)>) -> Result<Transformer<f32>> {
    let given: usize = parameters.iter().map(|(_, entries)| entries.len()).sum();
    let expected = plan.sizes.parameters();
    ensure!(
        given == expected,
        "the sizes ask for {expected} parameters, and there are {given}"
    );
    let mut model = fresh(plan)?;
    let named = model.named_mut();
    ensure!(
        named.len() == parameters.len(),
        "it has {} matrices, and the model {}",
        parameters.len(),
        named.len()
    );
    for ((name, mut matrix), (given, entries)) in named.into_iter().zip(parameters) {
        ensure!(
            name == given && matrix.len() == entries.len(),
            "it has `{given}` of {} numbers where the model has `{name}` of {}",
            entries.len(),
            matrix.len()
        );
        let (rows, columns) = matrix.shape();
        matrix.copy_from(&DMatrix::from_vec(rows, columns, entries));
    }
    Ok(model)
}

/// The norm of each matrix of some gradients; biases and gains are left out.
fn norms(gradients: &impl NamedParameters<f32>) -> Vec<(String, f32)> {
    let matrices = gradients.named().into_iter().filter(|(_, matrix)| matrix.nrows() > 1);
    matrices
        .map(|(name, matrix)| (name, NamedParameters::norm(&matrix.into_owned())))
        .collect()
}
