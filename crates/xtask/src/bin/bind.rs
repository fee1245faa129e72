//! `bind MODULE.wasm FOLDER`: what `wasm-bindgen --target web` does, in the version that `Cargo.lock` names, so that nothing has to be
//! installed.

use anyhow::{Context, Result};
use std::env;
use wasm_bindgen_cli_support::Bindgen;

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
        .with_context(|| format!("{} can't be bound", module.display()))
}
