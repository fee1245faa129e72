//! `bind MODULE.wasm FOLDER`: what `wasm-bindgen --target web` does, in the version that `Cargo.lock` names, so that nothing has to be
//! installed. It leaves out the comments, which are copies of the documentation in Rust: each reader of the book would fetch them.

use anyhow::{Context, Result};
use regex::Regex;
use std::env;
use std::path::Path;
use wasm_bindgen_cli_support::Bindgen;
use xtask::files;

fn main() -> Result<()> {
    let mut arguments = env::args_os().skip(1);
    let (Some(module), Some(folder)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: bind MODULE.wasm FOLDER")
    };
    Bindgen::new()
        .input_path(&module)
        .web(true)?
        .omit_default_module_path(false)
        .typescript(false)
        .remove_name_section(true)
        .remove_producers_section(true)
        .out_name("attention")
        .generate(&folder)
        .with_context(|| format!("{} can't be bound", module.display()))?;
    let script = Path::new(&folder).join("attention.js");
    // Comments that begin their line, so that a text with a slash and two stars would stay.
    let comments = Regex::new(r"(?ms)^ */\*\*.*?\*/\n")?;
    files::write(&script, comments.replace_all(&files::read(&script)?, "").as_bytes())
}
