//! Layers with and without a fault, examined. Those that are trained are in `training`.

use crate::random::normal;
use crate::sentences::projected;
use anyhow::{Context, Result};
use attention::{
    Mask, MultiHeadAttention, Rotary, example, inspect::row_entropy,
    positions::RotaryPairs,
};
use laboratory::{
    AttentionLayer, ChunkDiagnosis, Diagnosis, Fault, Finding, Patient, diagnose,
    diagnose_chunks,
};
use nalgebra::DMatrix;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

pub fn layer(
    d_model: usize,
    n_heads: usize,
    seed: u64,
) -> Result<MultiHeadAttention<f64>> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    Ok(MultiHeadAttention::xavier(d_model, n_heads, rng)?)
}

pub const TOKENS: [&str; 6] = ["the", "boat", "left", "the", "river", "bank"];
const D_MODEL: usize = 16;
pub const HEADS: usize = 2;
pub const D_HEAD: usize = D_MODEL / HEADS;

/// The patients by their letters; the sixth is [`examine_decoding`]'s.
pub const PATIENTS: [(&str, Fault); 5] = [
    ("a", Fault::OffByOneMask),
    ("b", Fault::SoftmaxOverQueries),
    ("c", Fault::ScaleMissing),
    ("d", Fault::DeadHead),
    ("e", Fault::ForgottenPath),
];

/// The sentence as a layer inside a model sees it: no two rows alike.
fn sentence() -> DMatrix<f64> {
    normal(TOKENS.len(), D_MODEL, &mut ChaCha8Rng::seed_from_u64(11))
}

/// A small layer with this fault, on the sentence.
fn examine_under(fault: impl Into<Option<Fault>>, mask: &Mask) -> Result<Diagnosis> {
    let patient = Patient::new(layer(D_MODEL, HEADS, 12)?, fault)?;
    Ok(diagnose(&patient, &sentence(), None, mask)?)
}

/// The same layer with rotary positions and this fault, on the sentence at once, and in chunks.
pub fn examine_decoding(
    fault: impl Into<Option<Fault>>,
) -> Result<(Diagnosis, ChunkDiagnosis)> {
    let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
    let layer = layer(D_MODEL, HEADS, 12)?.with_rotary(rotary)?;
    let (patient, x) = (Patient::new(layer, fault)?, sentence());
    Ok((diagnose(&patient, &x, None, Mask::causal())?, diagnose_chunks(&patient, &x)?))
}

pub fn examine(fault: impl Into<Option<Fault>>) -> Result<Diagnosis> {
    examine_under(fault, &Mask::causal())
}

/// Returns the diagnosis of a layer with this fault, with padding in the place of this token.
fn examine_padded(fault: Fault, at: usize) -> Result<Diagnosis> {
    let valid: Vec<bool> = (0..TOKENS.len()).map(|j| j != at).collect();
    examine_under(fault, &Mask::causal().and(Mask::padding(&valid)?))
}

/// Returns the number of outputs of real tokens that the padding token at this place reaches, in a layer that forgets padding.
pub fn reached_by_filling(at: usize) -> Result<usize> {
    let diagnosis = examine_padded(Fault::ForgottenPadding, at)?;
    let mut leaks =
        diagnosis.findings().into_iter().filter_map(|finding| match finding {
            Finding::Leak { pairs, .. } => Some(pairs),
            _ => None,
        });
    let pairs = leaks.next().with_context(|| format!("no leak with padding at {at}"))?;
    Ok(pairs.iter().filter(|(output, _)| *output != at).count())
}

/// Returns true if a finding is one of a check's.
type Finds = fn(&Finding) -> bool;

/// The checks, by what they find.
pub const CHECKS: [(&str, Finds); 8] = [
    ("moves", |f| matches!(f, Finding::Leak { .. } | Finding::Deaf { .. })),
    ("chunks", |f| matches!(f, Finding::InChunks { .. })),
    ("slopes", |f| matches!(f, Finding::WrongGradient { .. })),
    ("sums", |f| matches!(f, Finding::RowSum { .. } | Finding::WrongAxis { .. })),
    ("scale", |f| matches!(f, Finding::Scale { .. })),
    ("entropy", |f| matches!(f, Finding::Collapsed { .. } | Finding::Diffuse { .. })),
    ("gradients", |f| matches!(f, Finding::NoGradient { .. })),
    ("twins", |f| matches!(f, Finding::Twins { .. })),
];

/// Each fault, and which of the [`CHECKS`] it fails.
pub fn failed_checks() -> Result<Vec<(Fault, [bool; 8])>> {
    let failed = |&fault: &Fault| {
        let mut findings = examine_padded(fault, 1)?.findings();
        findings.extend(examine_decoding(fault)?.1.findings());
        Ok((fault, CHECKS.map(|(_, finds)| findings.iter().any(finds))))
    };
    Patient::FAULTS.iter().map(failed).collect()
}

pub const KEYS: usize = 24;
const WIDE: usize = 128;
/// Two heads share the width.
pub const WIDE_HEAD: usize = WIDE / 2;

/// Entropies of the rows of a head with this fault; row i sees i + 1 keys.
pub fn entropies(fault: impl Into<Option<Fault>>) -> Result<Vec<f64>> {
    let x: DMatrix<f64> = normal(KEYS, WIDE, &mut ChaCha8Rng::seed_from_u64(21));
    let patient = Patient::new(layer(WIDE, 2, 22)?, fault)?;
    let (_, cache) = patient.forward(&x, None, Mask::causal())?;
    Ok(row_entropy(&Patient::heads(&cache)[1].weights)?.iter().copied().collect())
}

/// The most that the entropies of rows can be.
pub fn most_entropies() -> Vec<f64> {
    (1..=KEYS).map(|n| (n as f64).ln()).collect()
}

/// Returns the mean share of a token's weights that lies on the other sentence, if both sentences of the running example
/// are attended to as one.
pub fn share_elsewhere() -> Result<f64> {
    let (river, city) = (example::river().x, example::city().x);
    let both = DMatrix::from_fn(12, 4, |i, c| match i {
        i if i < 6 => river[(i, c)],
        i => city[(i - 6, c)],
    });
    let weights = projected(&both, &both, &Mask::none())?.weights;
    let elsewhere =
        weights.view((0, 6), (6, 6)).sum() + weights.view((6, 0), (6, 6)).sum();
    Ok(elsewhere / 12.0)
}
