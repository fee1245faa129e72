//! A trained model in a quarter of its bytes, for a reader's browser.

use crate::transformer::{Sizes, Transformer};
use attention::NamedParameters as _;
use fast::Float;
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use std::fmt;

/// A model whose parameters were rounded: each column of each matrix is whole numbers from −127 to 127, times a factor.
#[derive(Debug, Clone, PartialEq)]
pub struct EightBits<T: Float> {
    /// The sizes of the model.
    pub sizes: Sizes,
    /// The characters that are tokens, in the order of their numbers.
    pub alphabet: Vec<char>,
    /// With the rounded parameters.
    pub model: Transformer<T>,
}

/// Bytes that are no model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoModel(String);

impl fmt::Display for NoModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes are not those of a model: {}", self.0)
    }
}

impl std::error::Error for NoModel {}

impl<T: Float> EightBits<T> {
    /// Returns the bytes of a model: a line with its sizes, the characters, and then of each column the factor, as a little-endian `f32`, and a
    /// byte for each entry.
    pub fn to_bytes(sizes: Sizes, alphabet: &[char], model: &Transformer<T>) -> Vec<u8> {
        let Sizes { vocabulary, d_model, n_blocks, n_heads, n_kv_heads, d_hidden } =
            sizes;
        let mut bytes = format!(
            "{vocabulary} {d_model} {n_blocks} {n_heads} {n_kv_heads} {d_hidden}\n"
        );
        bytes.extend(alphabet);
        let mut bytes = bytes.into_bytes();
        for (_, matrix) in model.named() {
            for column in matrix.column_iter() {
                let entry = |x: &T| -> f32 { nalgebra::try_convert(*x).unwrap_or(0.0) };
                let largest = column.iter().map(|x| entry(x).abs()).fold(0.0, f32::max);
                let factor = largest / 127.0;
                bytes.extend(factor.to_le_bytes());
                // A column of zeros has the factor 0, and its entries are 0, not NaN.
                let steps = column
                    .iter()
                    .map(|x| (entry(x) / factor.max(f32::MIN_POSITIVE)).round());
                bytes.extend(steps.map(|step| (step as i8).cast_unsigned()));
            }
        }
        bytes
    }

    /// Reads what [`EightBits::to_bytes`] has written.
    ///
    /// # Errors
    /// The bytes are no model's, or one is missing or too many.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NoModel> {
        let error = |what: &str| NoModel(what.to_owned());
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.ok_or_else(|| error("no sizes"))?);
        let line = str::from_utf8(line).map_err(|_| error("no sizes"))?;
        let sizes: Result<Vec<usize>, _> = line.split(' ').map(str::parse).collect();
        let sizes = sizes.ok().and_then(|sizes| sizes.try_into().ok());
        let [vocabulary, d_model, n_blocks, n_heads, n_kv_heads, d_hidden] =
            sizes.ok_or_else(|| error("six sizes are needed"))?;
        let sizes =
            Sizes { vocabulary, d_model, n_blocks, n_heads, n_kv_heads, d_hidden };
        // What has no room in these bytes is not made.
        if sizes.parameters() > bytes.len() {
            return Err(error("they are too few for the sizes"));
        }
        let (alphabet, rest) =
            characters(&rest[1..], vocabulary).ok_or_else(|| error("no alphabet"))?;
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let mut model =
            Transformer::new(sizes, rng).map_err(|fault| error(&fault.to_string()))?;
        let mut rest = rest.iter().copied();
        for (_, mut matrix) in model.named_mut() {
            for mut column in matrix.column_iter_mut() {
                let mut next = || rest.next().ok_or_else(|| error("they end too soon"));
                let factor = f32::from_le_bytes([next()?, next()?, next()?, next()?]);
                if !(127.0 * factor).is_finite() {
                    return Err(error("a number isn't finite"));
                }
                for x in &mut column {
                    *x = nalgebra::convert(f64::from(
                        factor * f32::from(next()?.cast_signed()),
                    ));
                }
            }
        }
        if rest.next().is_some() {
            return Err(error("there are too many"));
        }
        Ok(EightBits { sizes, alphabet, model })
    }
}

/// The first `count` characters, and the bytes behind them.
fn characters(bytes: &[u8], count: usize) -> Option<(Vec<char>, &[u8])> {
    let valid = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
    };
    let alphabet: Vec<char> = valid.chars().take(count).collect();
    let length: usize = alphabet.iter().map(|c| c.len_utf8()).sum();
    (alphabet.len() == count).then(|| (alphabet, &bytes[length..]))
}
