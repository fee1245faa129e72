//! Computes every figure, table and number that the book shows, and writes them to `src/generated/`.
//!
//! Seeds are fixed and nothing depends on time or threads, so that each run writes the same bytes. `--check` writes
//! nothing and fails if the files are not those that a run would write.

mod across_machines;
#[cfg(test)]
mod any_machine;
mod backward;
mod claims;
mod counting;
mod debugging;
mod decoding;
mod does_yours_pass;
mod fast;
mod fewer_pairs;
mod figures;
mod gpu;
mod gradient_checking;
mod hidden_faults;
mod induction;
mod intuition;
mod layer;
mod linear_attention;
mod many_heads;
mod masking;
mod memory_wall;
mod online_softmax;
mod output;
mod positions;
mod random;
mod real_model;
mod records;
mod same_bits;
mod scaled_dot_product_attention;
mod sentences;
mod shared_keys;
mod softmax;
mod tiles_backward;
mod tiles_forward;
mod tiles_traffic;
mod trained;
mod trained_heads;
mod welcome;
mod who_tests_attention;
mod whole_model;
mod why_sqrt_d_k;
#[cfg(test)]
mod workbench;

use anyhow::{Context, Result};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use output::{Generated, Page};
use rayon::prelude::*;
use records::Records;
use std::path::PathBuf;
use std::time::Instant;

/// Computes every figure, table and number that the book shows.
#[derive(Parser)]
struct Arguments {
    /// The chapters to compute, by the names of their files; without any, all
    #[arg(value_name = "CHAPTER", value_parser = PossibleValuesParser::new(PAGES.iter().map(|page| page.0)))]
    chapters: Vec<String>,
    /// Write nothing; fail if the files are not those that a run would write
    #[arg(long)]
    check: bool,
    /// The folder of the generated files
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src/generated"))]
    folder: PathBuf,
    /// The folder of the records
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../records"))]
    records: PathBuf,
}

/// A page: its name, which is its chapter's file name, and the function that computes it.
type Generator = (&'static str, fn(&mut Page) -> Result<()>);

/// The pages, in the order of the book.
const PAGES: &[Generator] = &[
    ("welcome", welcome::generate),
    ("intuition", intuition::generate),
    ("softmax", softmax::generate),
    ("scaled-dot-product-attention", scaled_dot_product_attention::generate),
    ("why-sqrt-d-k", why_sqrt_d_k::generate),
    ("masking", masking::generate),
    ("layer", layer::generate),
    ("many-heads", many_heads::generate),
    ("positions", positions::generate),
    ("backward", backward::generate),
    ("gradient-checking", gradient_checking::generate),
    ("whole-model", whole_model::generate),
    ("induction", induction::generate),
    ("hidden-faults", hidden_faults::generate),
    ("debugging", debugging::generate),
    ("trained-heads", trained_heads::generate),
    ("real-model", real_model::generate),
    ("shared-keys", shared_keys::generate),
    ("decoding", decoding::generate),
    ("counting", counting::generate),
    ("memory-wall", memory_wall::generate),
    ("online-softmax", online_softmax::generate),
    ("tiles-forward", tiles_forward::generate),
    ("tiles-backward", tiles_backward::generate),
    ("fast", fast::generate),
    ("same-bits", same_bits::generate),
    ("across-machines", across_machines::generate),
    ("fewer-pairs", fewer_pairs::generate),
    ("linear-attention", linear_attention::generate),
    ("gpu", gpu::generate),
    ("does-yours-pass", does_yours_pass::generate),
    ("who-tests-attention", who_tests_attention::generate),
    ("claims", claims::generate),
];

fn main() -> Result<()> {
    // Someone who reads only the first lines, as `head` does, ends the program without a word.
    sigpipe::reset();
    let arguments = Arguments::parse();
    let generated = generate(&arguments.chapters, &Records::open(&arguments.records)?)?;
    if arguments.check {
        generated.check(&arguments.folder)
    } else {
        generated.write(&arguments.folder)
    }
}

/// Computes these pages; without any, all.
fn generate(chapters: &[String], records: &Records) -> Result<Generated> {
    let mut generated = Generated::of(chapters);
    let chosen: Vec<_> = PAGES.iter().filter(|page| generated.has(page.0)).collect();
    let compute = |&&(name, generate): &&Generator| {
        let start = Instant::now();
        let mut page = Page::new(name, records);
        generate(&mut page).with_context(|| format!("computing the page {name}"))?;
        eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f64());
        Ok(page)
    };
    let pages: Vec<Result<Page>> = chosen.par_iter().map(compute).collect();
    for page in pages {
        generated.add(page?);
    }
    Ok(generated)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variable `CHAPTERS` names the pages to compute; without it, all are.
    #[test]
    fn generated_files_are_those_of_the_code() {
        let defaults = Arguments::parse_from(["chapters"]);
        let chapters = std::env::var("CHAPTERS").unwrap_or_default();
        let chapters: Vec<_> = chapters.split_whitespace().map(str::to_owned).collect();
        let unknown = |name: &&String| !PAGES.iter().any(|page| page.0 == name.as_str());
        assert_eq!(chapters.iter().find(unknown), None, "there is no such page");
        let records = Records::open(&defaults.records).unwrap();
        generate(&chapters, &records).unwrap().check(&defaults.folder).unwrap();
    }
}
