//! `formats FOLDER`: puts an EPUB and a PDF beside the built pages in the folder; `cargo xtask build --formats` calls it.

use anyhow::{Context, Result};
use std::env;
use std::path::Path;
use xtask::browser;
use xtask::formats;
use xtask::project::Project;

fn main() -> Result<()> {
    let folder = env::args_os().nth(1).context("usage: formats FOLDER")?;
    formats::add_to(&Project::find()?, Path::new(&folder), &browser::required()?)
}
