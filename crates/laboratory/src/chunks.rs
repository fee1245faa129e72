//! A text that comes in chunks against the same text at once.

use crate::diagnose::Finding;
use crate::layer::{AttentionLayer, DecodingLayer};
use attention::engine::check_shape;
use attention::{Mask, Result};
use nalgebra::DMatrix;
use std::fmt;

/// An output of a text in chunks is that of the whole text if it differs by less than
/// this share of the largest output. Sums in another order differ by about 10⁻¹⁵.
pub const SAME: f64 = 1e-9;

/// The measurements of [`diagnose_chunks`]. Its `Display` is a report: a row for each way of cutting the text, a column
/// for each output. `=` is the output of the whole text, `x` is another one.
///
/// ```
/// use attention::{MultiHeadAttention, example};
/// use laboratory::diagnose_chunks;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let diagnosis = diagnose_chunks(&layer, &example::river().x)?;
/// assert_eq!(diagnosis.chunks, [vec![6], vec![3, 3], vec![1; 6]]);
/// assert!(diagnosis.differences.amax() < 1e-14);
/// assert!(diagnosis.to_string().contains("1 1 1 1 1 1   = = = = = ="));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkDiagnosis {
    /// The ways in which the text was cut: the sizes of the chunks, in order.
    pub chunks: Vec<Vec<usize>>,
    /// The distance of output `i` from that of the whole text, as a share of the largest output (ways, n).
    pub differences: DMatrix<f64>,
}

/// Compares the outputs of a text that comes in chunks, with keys and values kept in between, with those of the whole text under
/// a causal mask. The text comes in one chunk, in two, and token by token.
///
/// # Errors
/// As the layer's own passes, or what the layer returns has another shape than what it was given.
///
/// ```
/// use attention::{MultiHeadAttention, Rotary, example, positions::RotaryPairs};
/// use laboratory::{Fault, Finding, Patient, diagnose_chunks};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 1, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let layer = layer.with_rotary(Rotary::new(10_000.0, RotaryPairs::Halves)?)?;
/// let x = example::river().x;
/// assert_eq!(diagnose_chunks(&layer, &x)?.findings(), []);
///
/// let ill = Patient::new(layer, Fault::PositionOfTheChunk)?;
/// let findings = diagnose_chunks(&ill, &x)?.findings();
/// assert!(matches!(findings[..], [Finding::InChunks { first: 3, .. }, Finding::InChunks { first: 1, .. }]));
/// # Ok::<(), attention::Error>(())
/// ```
pub fn diagnose_chunks<L: DecodingLayer>(
    layer: &L,
    x: &DMatrix<f64>,
) -> Result<ChunkDiagnosis> {
    let (whole, _) = AttentionLayer::forward(layer, x, None, Mask::causal())?;
    check_shape("output", &whole, x.shape(), "`x`")?;
    let n = x.nrows();
    let mut chunks = [vec![n], vec![n - n / 2, n / 2], vec![1; n]];
    chunks.iter_mut().for_each(|sizes| sizes.retain(|size| *size > 0));
    let mut differences = DMatrix::zeros(chunks.len(), n);
    for (way, sizes) in chunks.iter().enumerate() {
        let (mut first, mut cached) = (0, L::KeyValues::default());
        for &size in sizes {
            let chunk = x.rows(first, size).into_owned();
            let output = layer.forward_cached(&chunk, &mut cached)?;
            check_shape("output", &output, chunk.shape(), "`x`")?;
            for i in 0..size {
                differences[(way, first + i)] =
                    (output.row(i) - whole.row(first + i)).amax();
            }
            first += size;
        }
    }
    let largest = whole.amax();
    differences /= if largest > 0.0 { largest } else { 1.0 };
    Ok(ChunkDiagnosis { chunks: chunks.into(), differences })
}

impl ChunkDiagnosis {
    /// Returns a finding for each way of cutting the text that changes an output. A healthy layer raises nothing.
    pub fn findings(&self) -> Vec<Finding> {
        let finding = |(way, chunks): (usize, &Vec<usize>)| {
            let first = (0..self.differences.ncols()).find(|&i| self.differs(way, i))?;
            let off = self.differences.row(way).max();
            Some(Finding::InChunks { chunks: sizes(chunks), first, off })
        };
        self.chunks.iter().enumerate().filter_map(finding).collect()
    }

    /// Returns `true` if output `i` differs, as NaN does.
    fn differs(&self, way: usize, i: usize) -> bool {
        let is_same = self.differences[(way, i)] <= SAME;
        !is_same
    }
}

fn sizes(chunks: &[usize]) -> String {
    chunks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

impl fmt::Display for ChunkDiagnosis {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(f, "chunks    sizes of chunks, and outputs across")?;
        let names: Vec<_> = self.chunks.iter().map(|chunks| sizes(chunks)).collect();
        let width = names.iter().map(String::len).max().unwrap_or(0);
        for (way, name) in names.iter().enumerate() {
            let sign = |i| if self.differs(way, i) { "x" } else { "=" };
            let signs: Vec<_> = (0..self.differences.ncols()).map(sign).collect();
            writeln!(f, "  {name:<width$}   {}", signs.join(" "))?;
        }
        Ok(())
    }
}
