//! What a training left: its model, its curves, and where and how long it ran.

use crate::eight_bits::EightBits;
use crate::training::{Measurement, Plan, Training, check_finite, fresh};
use crate::transformer::Transformer;
use anyhow::{Context as _, Result, ensure};
use attention::NamedParameters as _;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// Where and how a training ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// When it began, as in `2026-11-26T12:00:00Z`.
    pub date: String,
    /// The processor.
    pub processor: String,
    /// The number of threads.
    pub threads: usize,
    /// How long it took, with its measurements.
    pub seconds: f64,
    /// The largest memory that the program had, in bytes, if the system tells.
    pub peak_bytes: Option<u64>,
}

/// A training that has ended, without what it would take to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// What it did.
    pub plan: Plan,
    /// Where it did it.
    pub run: Run,
    /// The characters that are tokens, if tokens are characters.
    pub alphabet: Vec<char>,
    /// What was measured on the way.
    pub history: Vec<Measurement>,
    /// What it learned.
    pub model: Transformer<f32>,
}

/// All but the parameters.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    plan: Plan,
    run: Run,
    alphabet: String,
    history: Vec<Measurement>,
}

impl Trained {
    /// Returns what a training has left.
    pub fn new(training: Training, run: Run, alphabet: Vec<char>) -> Self {
        let Training { plan, model, history, .. } = training;
        Trained { plan, run, alphabet, history, model }
    }

    /// Returns the model with the same parameters in `f64`, in which no processor's rounding shows.
    ///
    /// # Errors
    /// The sizes don't fit.
    pub fn in_f64(&self) -> Result<Transformer<f64>> {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let mut model = Transformer::new(self.plan.sizes, rng)?;
        for ((_, mut to), (_, from)) in
            model.named_mut().into_iter().zip(self.model.named())
        {
            to.copy_from(&from.map(f64::from));
        }
        Ok(model)
    }

    /// Writes `NAME.json`, and `NAME.f32`: the parameters in the order of their names, each column by column, as little-endian numbers.
    /// If tokens are characters, `NAME.i8` is the same for a browser, in [`EightBits`].
    ///
    /// # Errors
    /// A number isn't finite, and so couldn't be read again, or a file can't be written.
    pub fn save(&self, folder: &Path, name: &str) -> Result<()> {
        check_finite(&self.plan, &self.model, &self.history)
            .with_context(|| format!("{name} can't be written"))?;
        let told = Told {
            plan: self.plan.clone(),
            run: self.run.clone(),
            alphabet: self.alphabet.iter().collect(),
            history: self.history.clone(),
        };
        let parameters = self.model.named().into_iter();
        let entries: Vec<f32> = parameters
            .flat_map(|(_, matrix)| matrix.iter().copied().collect::<Vec<_>>())
            .collect();
        let bytes: Vec<u8> = entries.into_iter().flat_map(f32::to_le_bytes).collect();
        let write = |end: &str, bytes: &[u8]| {
            let file = folder.join(format!("{name}.{end}"));
            fs::write(&file, bytes)
                .with_context(|| format!("{} can't be written", file.display()))
        };
        write("json", &serde_json::to_vec(&told)?)?;
        write("f32", &bytes)?;
        // The model that writes is one for the reader's browser, too.
        if self.alphabet.is_empty() {
            return Ok(());
        }
        write("i8", &EightBits::to_bytes(self.plan.sizes, &self.alphabet, &self.model))
    }

    /// Reads what [`Trained::save`] has written.
    ///
    /// # Errors
    /// A file can't be read, or isn't what it should be.
    pub fn open(folder: &Path, name: &str) -> Result<Self> {
        let read = |end: &str| {
            let file = folder.join(format!("{name}.{end}"));
            fs::read(&file).with_context(|| format!("{} can't be read", file.display()))
        };
        let Told { plan, run, alphabet, history } =
            serde_json::from_slice(&read("json")?)
                .with_context(|| format!("{name}.json isn't what a training has left"))?;
        let (bytes, count) = (read("f32")?, plan.sizes.parameters());
        ensure!(
            bytes.len() == count.saturating_mul(4),
            "{name}.f32 has {} bytes, and the model of {name}.json {count} parameters of four",
            bytes.len()
        );
        let mut numbers = bytes
            .chunks_exact(4)
            .map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]]));
        let mut model = fresh(&plan)?;
        for (_, mut matrix) in model.named_mut() {
            matrix
                .iter_mut()
                .zip(&mut numbers)
                .for_each(|(entry, number)| *entry = number);
        }
        check_finite(&plan, &model, &history)
            .with_context(|| format!("{name} can't be read"))?;
        let alphabet: Vec<char> = alphabet.chars().collect();
        ensure!(
            alphabet.is_empty() || alphabet.len() == plan.sizes.vocabulary,
            "{name}.json has {} characters for {} tokens",
            alphabet.len(),
            plan.sizes.vocabulary
        );
        Ok(Trained { plan, run, alphabet, history, model })
    }
}
