//! The matrices in a file, as numbers of the kinds that files have.

use anyhow::{Context as _, Result, bail, ensure};
use half::{bf16, f16};
use nalgebra::{DMatrix, RowDVector};
use std::collections::BTreeMap;
use std::ops::Range;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    F32,
    F16,
    Bf16,
    /// Whole numbers of four bits, 32 of them times a factor.
    Q4_0,
    /// The same, with a smallest number that is added.
    Q4_1,
    /// Whole numbers of eight bits, 32 of them times a factor.
    Q8_0,
}

impl Format {
    /// How many numbers are written together, and in how many bytes.
    fn block(self) -> (usize, usize) {
        match self {
            Format::F32 => (1, 4),
            Format::F16 | Format::Bf16 => (1, 2),
            Format::Q4_0 => (32, 2 + 16),
            Format::Q4_1 => (32, 2 + 2 + 16),
            Format::Q8_0 => (32, 2 + 32),
        }
    }

    /// Returns how many bytes a tensor has whose rows are `row` numbers long, or nothing if it can't be written so.
    pub fn bytes(self, row: usize, rows: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        let blocks = row.is_multiple_of(numbers).then_some(row / numbers)?;
        blocks.checked_mul(rows)?.checked_mul(bytes)
    }

    /// Reads numbers from whole blocks.
    fn read(self, bytes: &[u8]) -> Vec<f32> {
        let half = |at: &[u8]| f16::from_le_bytes([at[0], at[1]]).to_f32();
        let blocks = bytes.chunks_exact(self.block().1);
        match self {
            Format::F32 => blocks
                .map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]]))
                .collect(),
            Format::F16 => blocks.map(half).collect(),
            Format::Bf16 => {
                blocks.map(|it| bf16::from_le_bytes([it[0], it[1]]).to_f32()).collect()
            }
            Format::Q8_0 => {
                let numbers = blocks.flat_map(|it| {
                    let factor = half(it);
                    it[2..]
                        .iter()
                        .map(move |&byte| factor * f32::from(byte.cast_signed()))
                });
                numbers.collect()
            }
            Format::Q4_0 => {
                let numbers = blocks.flat_map(|it| {
                    let factor = half(it);
                    four_bits(&it[2..]).map(move |q| factor * (q - 8.0))
                });
                numbers.collect()
            }
            Format::Q4_1 => {
                let numbers = blocks.flat_map(|it| {
                    let (factor, least) = (half(it), half(&it[2..]));
                    four_bits(&it[4..]).map(move |q| factor * q + least)
                });
                numbers.collect()
            }
        }
    }
}

/// The numbers in sixteen bytes: first the lower halves of all, then the upper ones.
fn four_bits(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let lower = bytes.iter().map(|byte| byte & 15);
    lower.chain(bytes.iter().map(|byte| byte >> 4)).map(f32::from)
}

/// Where a tensor lies, and what it is.
#[derive(Debug, Clone)]
pub struct Place {
    pub format: Format,
    /// The length of a row first: its numbers lie side by side.
    pub shape: Vec<usize>,
    /// Which of the files, and which of its bytes.
    pub file: usize,
    pub bytes: Range<usize>,
}

/// All tensors of a model, of which each is taken once. What is left in the end doesn't belong to the model.
#[derive(Debug, Default)]
pub struct Tensors {
    files: Vec<Vec<u8>>,
    places: BTreeMap<String, Place>,
}

impl Tensors {
    /// Adds a file with its tensors.
    ///
    /// # Errors
    /// A tensor was there already, is said to lie beyond the file's end, or has another number of bytes than its shape.
    pub fn add(&mut self, bytes: Vec<u8>, places: Vec<(String, Place)>) -> Result<()> {
        for (name, place) in places {
            let Place { format, shape, bytes: range, .. } = &place;
            ensure!(
                range.start <= range.end && range.end <= bytes.len(),
                "the file ends within tensor `{name}`: it has {} bytes, and {} are needed",
                bytes.len(),
                range.end
            );
            let rows = shape.iter().skip(1).try_fold(1_usize, |n, &d| n.checked_mul(d));
            let row = shape.first().copied().unwrap_or(1);
            let needed = rows.and_then(|rows| format.bytes(row, rows));
            ensure!(
                needed == Some(range.len()),
                "tensor `{name}` has {} bytes, which is not what {shape:?} numbers in {format:?} take",
                range.len()
            );
            let place = Place { file: self.files.len(), ..place };
            let before = self.places.insert(name.clone(), place);
            ensure!(before.is_none(), "there are two tensors `{name}`");
        }
        self.files.push(bytes);
        Ok(())
    }

    pub fn has(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// Returns the shape of a tensor, the length of its rows first.
    pub fn shape(&self, name: &str) -> Result<&[usize]> {
        let place = self.places.get(name);
        Ok(&place.with_context(|| format!("tensor `{name}` is missing"))?.shape)
    }

    /// Takes a matrix whose columns are the rows of the tensor: these lie side by side in files, those in nalgebra. So what files call
    /// (d_out, d_in) is our (d_in, d_out), and nothing moves.
    ///
    /// # Errors
    /// It is missing, of another shape, or has a number that isn't finite.
    pub fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> Result<DMatrix<f32>> {
        Ok(DMatrix::from_vec(rows, columns, self.take(name, &[rows, columns])?))
    }

    /// Takes a vector as a row.
    ///
    /// # Errors
    /// As [`Tensors::matrix`].
    pub fn row(&mut self, name: &str, width: usize) -> Result<RowDVector<f32>> {
        Ok(RowDVector::from_vec(self.take(name, &[width])?))
    }

    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let given = self.shape(name)?;
        ensure!(
            given == shape,
            "tensor `{name}` has the shape {given:?} but {shape:?} is needed"
        );
        let Some(place) = self.places.remove(name) else {
            bail!("tensor `{name}` is missing")
        };
        let numbers = place.format.read(&self.files[place.file][place.bytes]);
        ensure!(
            numbers.iter().all(|number| number.is_finite()),
            "tensor `{name}` has a number that isn't finite"
        );
        Ok(numbers)
    }

    /// The names of those that were not taken.
    pub fn left(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }
}
