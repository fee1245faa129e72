//! Models that others have trained, from the files in which they are published.

mod families;
mod gguf;
mod means;
mod network;
mod safetensors;
mod tensors;
mod tokenizer;

use anyhow::{Context as _, Result};
pub use families::Family;
use families::{Builder, Sizes};
pub use means::Means;
pub use network::{
    Activation, Block, Feed, Head, Linear, Network, Norm, Seen, log_sum_exps,
};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

/// What was in a file.
#[derive(Debug)]
pub struct Opened {
    /// The model.
    pub network: Network,
    /// How a text becomes tokens: the bytes of a `tokenizer.json`, if there is one.
    pub tokenizer: Result<Vec<u8>>,
}

/// Opens a model: a file of llama.cpp (GGUF), a file of Hugging Face (safetensors) that has its `config.json` beside it, or a folder with both.
/// `progress` is told how many blocks there are, and how many have been read.
///
/// # Errors
/// A file can't be read, ends too soon, is of another family, or lacks a tensor, has one too many, or one of another shape; the error names it.
pub fn open(path: &Path, progress: impl FnMut(usize, usize)) -> Result<Opened> {
    open_any(path, progress)
        .with_context(|| format!("{} can't be opened", path.display()))
}

fn open_any(path: &Path, progress: impl FnMut(usize, usize)) -> Result<Opened> {
    if is_gguf(path)? {
        let (metadata, mut tensors) = gguf::read(fs::read(path)?)?;
        let sizes = Sizes::of_gguf(&metadata, &mut tensors)?;
        let tokenizer = tokenizer::of_gguf(&metadata);
        return Ok(Opened {
            network: Builder::new(sizes, tensors).build(progress)?,
            tokenizer,
        });
    }
    let folder =
        if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let read = |name: &str| {
        let file = folder.join(name);
        fs::read(&file).with_context(|| format!("{} can't be read", file.display()))
    };
    let config = serde_json::from_slice(&read("config.json")?);
    let sizes = config.map_err(Into::into).and_then(|config| Sizes::of_config(&config));
    let sizes =
        sizes.with_context(|| format!("in {}", folder.join("config.json").display()))?;
    let network = Builder::new(sizes, safetensors::read(path)?).build(progress)?;
    Ok(Opened { network, tokenizer: read("tokenizer.json") })
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
