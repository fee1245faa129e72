//! GGUF, the container of llama.cpp: a model, its sizes and its tokenizer in one file.
//!
//! The header is read where it lies, and nothing is reserved for a number that it claims: a claim of more than the file has ends as an error at
//! the file's end. The published readers that we tried panic on such headers, or make a value of an enum out of a byte that it doesn't have.
//!
//! # Source
//! The format's description in ggml's repository, `docs/gguf.md`.

use super::tensors::{Format, Place, Tensors};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;

/// A value of the header. Numbers of all widths are one of two kinds here.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Integer(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    List(Vec<Value>),
}

/// What a header says besides its tensors.
#[derive(Debug, Default)]
pub struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    pub fn text(&self, key: &str) -> Result<&str> {
        match self.0.get(key) {
            Some(Value::Text(text)) => Ok(text),
            other => Err(self.wrong(key, "a text", other)),
        }
    }

    /// A size, or `None` if it isn't there.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Integer(size)) if *size >= 0 => Ok(Some(usize::try_from(*size)?)),
            other => Err(self.wrong(key, "a size", other)),
        }
    }

    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Float(number)) => Ok(Some(*number)),
            other => Err(self.wrong(key, "a number", other)),
        }
    }

    pub fn texts(&self, key: &str) -> Result<Vec<&str>> {
        let Some(Value::List(list)) = self.0.get(key) else {
            return Err(self.wrong(key, "a list of texts", self.0.get(key)));
        };
        let texts = list.iter().map(|value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts
            .collect::<Option<_>>()
            .with_context(|| format!("`{key}` isn't a list of texts"))
    }

    fn wrong(&self, key: &str, needed: &str, given: Option<&Value>) -> anyhow::Error {
        match given {
            None => anyhow::anyhow!("the file has no `{key}`"),
            Some(_) => anyhow::anyhow!("`{key}` isn't {needed}"),
        }
    }
}

/// The first bytes of each file.
pub const MAGIC: &[u8] = b"GGUF";

/// Reads the header, and finds the tensors.
///
/// # Errors
/// The bytes are no such file, or end too soon; a tensor is in a format that isn't known here.
pub fn read(bytes: Vec<u8>) -> Result<(Metadata, Tensors)> {
    let mut header = Reader { bytes: &bytes, at: 0 };
    ensure!(
        header.take(4)? == MAGIC,
        "it isn't a GGUF file: the first four bytes are others"
    );
    let version = header.u32()?;
    ensure!(
        (2..=3).contains(&version),
        "it is a GGUF file of version {version}; 2 and 3 are known"
    );
    let (n_tensors, n_values) = (header.u64()?, header.u64()?);
    let mut metadata = Metadata::default();
    for _ in 0..n_values {
        let key = header.text()?;
        let kind = header.u32()?;
        let value = header.value(kind, true).with_context(|| format!("in `{key}`"))?;
        let before = metadata.0.insert(key.clone(), value);
        ensure!(before.is_none(), "the header says `{key}` twice");
    }
    let mut places = vec![];
    for _ in 0..n_tensors {
        let name = header.text()?;
        let axes = header.u32()?;
        ensure!(axes <= 4, "tensor `{name}` has {axes} axes; four are the most");
        let shape = (0..axes).map(|_| header.size()).collect::<Result<Vec<_>>>()?;
        let format = match header.u32()? {
            0 => Format::F32,
            1 => Format::F16,
            2 => Format::Q4_0,
            3 => Format::Q4_1,
            8 => Format::Q8_0,
            30 => Format::Bf16,
            other => bail!(
                "tensor `{name}` is in ggml's format number {other}; those known here are F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q8_0 (8) and BF16 (30)"
            ),
        };
        places.push((name, format, shape, header.size()?));
    }
    let alignment = metadata.size("general.alignment")?.unwrap_or(32);
    ensure!(
        alignment.is_power_of_two(),
        "`general.alignment` is {alignment}, not a power of two"
    );
    let data = header
        .at
        .checked_next_multiple_of(alignment)
        .context("the header is too long")?;
    let places = places.into_iter().map(|(name, format, shape, offset)| {
        let rows = shape.iter().skip(1).try_fold(1_usize, |n, &d| n.checked_mul(d));
        let row = shape.first().copied().unwrap_or(1);
        let range = || {
            let start = data.checked_add(offset)?;
            let end = start.checked_add(format.bytes(row, rows?)?)?;
            Some(start..end)
        };
        let bytes = range().with_context(|| {
            format!("tensor `{name}` can't be {shape:?} numbers in {format:?}")
        })?;
        Ok((name, Place { format, shape, file: 0, bytes }))
    });
    let places = places.collect::<Result<_>>()?;
    let mut tensors = Tensors::default();
    tensors.add(bytes, places)?;
    Ok((metadata, tensors))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..count).with_context(|| {
            format!("the file ends within its header: at byte {} of {count} bytes {} are left", self.at, rest.len())
        })?;
        self.at += count;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn size(&mut self) -> Result<usize> {
        Ok(usize::try_from(self.u64()?)?)
    }

    fn text(&mut self) -> Result<String> {
        let length = self.size()?;
        let text = str::from_utf8(self.take(length)?);
        Ok(text.context("a text in the header isn't UTF-8")?.to_owned())
    }

    fn value(&mut self, kind: u32, lists: bool) -> Result<Value> {
        /// No vocabulary is as large, and a list of so many values still fits into any memory.
        const LONGEST: u64 = 1 << 22;
        Ok(match kind {
            0 => Value::Integer(u8::from_le_bytes(self.array()?).into()),
            1 => Value::Integer(i8::from_le_bytes(self.array()?).into()),
            2 => Value::Integer(u16::from_le_bytes(self.array()?).into()),
            3 => Value::Integer(i16::from_le_bytes(self.array()?).into()),
            4 => Value::Integer(self.u32()?.into()),
            5 => Value::Integer(i32::from_le_bytes(self.array()?).into()),
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            7 => Value::Bool(self.take(1)? != [0]),
            8 => Value::Text(self.text()?),
            9 if lists => {
                let (kind, length) = (self.u32()?, self.u64()?);
                ensure!(
                    length <= LONGEST,
                    "a list of {length} values; {LONGEST} are the most"
                );
                Value::List(
                    (0..length)
                        .map(|_| self.value(kind, false))
                        .collect::<Result<_>>()?,
                )
            }
            9 => bail!("a list of lists isn't known here"),
            10 => Value::Integer(self.u64()?.into()),
            11 => Value::Integer(i64::from_le_bytes(self.array()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            other => bail!("a value is of kind {other}; kinds go from 0 to 12"),
        })
    }
}
