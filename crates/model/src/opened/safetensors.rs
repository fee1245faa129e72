//! safetensors, the container of Hugging Face, with the `config.json` that lies beside it.

use super::tensors::{Format, Place, Tensors};
use anyhow::{Context as _, Result, bail, ensure};
use safetensors::{Dtype, SafeTensors};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a model, which may be cut into several: one, or all of a folder.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "safetensors"));
    files.sort();
    ensure!(!files.is_empty(), "{} has no file `….safetensors`", path.display());
    Ok(files)
}

/// Reads the headers, and finds the tensors.
///
/// # Errors
/// A file can't be read, is no such file or ends too soon, or a tensor is in a format that isn't known here.
pub fn read(path: &Path) -> Result<Tensors> {
    let mut tensors = Tensors::default();
    for file in files(path)? {
        let bytes = fs::read(&file)
            .with_context(|| format!("{} can't be read", file.display()))?;
        let places = places(&bytes).with_context(|| format!("in {}", file.display()))?;
        tensors.add(bytes, places).with_context(|| format!("in {}", file.display()))?;
    }
    Ok(tensors)
}

fn places(bytes: &[u8]) -> Result<Vec<(String, Place)>> {
    let (header, metadata) =
        SafeTensors::read_metadata(bytes).context("it isn't a whole safetensors file")?;
    let data = 8 + header;
    let mut places = vec![];
    for (name, info) in metadata.tensors() {
        let format = match info.dtype {
            Dtype::F32 => Format::F32,
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::Bf16,
            // Numbers of positions, which some files carry along.
            Dtype::I64 => continue,
            other => {
                bail!("tensor `{name}` is in {other:?}; known here are F32, F16 and BF16")
            }
        };
        // Theirs has the longest axis first.
        let shape = info.shape.iter().rev().copied().collect();
        let (start, end) = info.data_offsets;
        places.push((
            name,
            Place { format, shape, file: 0, bytes: data + start..data + end },
        ));
    }
    Ok(places)
}
