//! Models that others have trained, from the files in which they are published.

mod families;
mod gguf;
mod network;
mod safetensors;
mod tensors;

use anyhow::{Context as _, Result};
pub use families::Family;
use families::{Builder, Sizes};
pub use network::{
    Activation, Block, Feed, Head, Linear, Network, Norm, Seen, log_sum_exp,
};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// Opens a model: a file of llama.cpp (GGUF), a file of Hugging Face (safetensors) that has its `config.json` beside it, or a folder with both.
/// `progress` is told how many blocks there are, and how many have been read.
///
/// # Errors
/// A file can't be read, ends too soon, is of another family, or lacks a tensor, has one too many, or one of another shape; the error names it.
pub fn open(path: &Path, progress: impl FnMut(usize, usize)) -> Result<Network> {
    open_any(path, progress)
        .with_context(|| format!("{} can't be opened", path.display()))
}

fn open_any(path: &Path, progress: impl FnMut(usize, usize)) -> Result<Network> {
    if is_gguf(path)? {
        let (metadata, mut tensors) = gguf::read(fs::read(path)?)?;
        let sizes = Sizes::of_gguf(&metadata, &mut tensors)?;
        return Builder::new(sizes, tensors).build(progress);
    }
    let folder =
        if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let config = folder.join("config.json");
    let sizes = || -> Result<Sizes> {
        Sizes::of_config(&serde_json::from_slice(&fs::read(&config)?)?)
    };
    let sizes = sizes().with_context(|| format!("{} can't be used", config.display()))?;
    Builder::new(sizes, safetensors::read(path)?).build(progress)
}

/// Whether a file begins as GGUF does.
fn is_gguf(path: &Path) -> Result<bool> {
    if path.is_dir() {
        return Ok(false);
    }
    let mut start = vec![];
    File::open(path)?.take(gguf::MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == gguf::MAGIC)
}
