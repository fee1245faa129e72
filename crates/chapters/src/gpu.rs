//! On a GPU: what the kernels ask of the machine, counted; what follows from that; and what was measured, if anything was.

mod banks;
mod fragments;
mod ladder;
mod machine;
mod measured;
mod pipeline;
mod race;
mod source;

use crate::output::Page;
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    machine::generate(page)?;
    race::generate(page)?;
    banks::generate(page)?;
    ladder::generate(page)?;
    fragments::generate(page)?;
    pipeline::generate(page)?;
    measured::generate(page)
}
