//! Runs a GPU's kernel on this CPU, and compares it with the naive attention of the crate.
//!
//! ```sh
//! cargo run -p gpu --example kernel_on_cpu -- --kernel tiled --causal
//! cargo run -p gpu --example kernel_on_cpu -- --kernel tiled --without-barrier 1
//! ```

use attention::cuda::{Program, TILED};
use gpu::Precision;
use gpu::on_cpu::{self, Choices, Data, OnCpu, Sizes, Watch, barriers, bound};
use std::error::Error;
use std::process::ExitCode;

const USAGE: &str = "\
usage: kernel_on_cpu [--kernel NAME] [--n-q N] [--n-k N] [--d N] [--heads N] [--causal] [--seed N]
                     [--races | --addresses | --without-barrier NUMBER]

  --kernel           naive, tiled, registers, tensor_cores, hopper, backward, decode, or backward_hopper (tiled)
  --n-q              queries (100)
  --n-k              keys; as many as queries if not given
  --d                the width of a head (64)
  --heads            heads (1)
  --causal           hide the keys after each query
  --seed             of the order in which the threads of a block run; 0 is the order of their numbers
  --without-barrier  leave out one `__syncthreads()` of the file, counted from 1, and watch for races
  --races            watch for races
  --addresses        watch for reads and writes outside of the matrices";

struct Options {
    kernel: Program,
    n_q: usize,
    n_k: Option<usize>,
    d: usize,
    heads: usize,
    causal: bool,
    seed: u32,
    without_barrier: Option<usize>,
    races: bool,
    addresses: bool,
}

impl Options {
    fn parse(
        mut arguments: impl Iterator<Item = String>,
    ) -> Result<Self, Box<dyn Error>> {
        let mut options = Options {
            kernel: TILED,
            n_q: 100,
            n_k: None,
            d: 64,
            heads: 1,
            causal: false,
            seed: 0,
            without_barrier: None,
            races: false,
            addresses: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} needs a value\n{USAGE}"))
            };
            match argument.as_str() {
                "--kernel" => options.kernel = gpu::program(&value()?)?,
                "--n-q" => options.n_q = value()?.parse()?,
                "--n-k" => options.n_k = Some(value()?.parse()?),
                "--d" => options.d = value()?.parse()?,
                "--heads" => options.heads = value()?.parse()?,
                "--causal" => options.causal = true,
                "--seed" => options.seed = value()?.parse()?,
                "--without-barrier" => options.without_barrier = Some(value()?.parse()?),
                "--races" => options.races = true,
                "--addresses" => options.addresses = true,
                _ => return Err(format!("there is no {argument}\n{USAGE}").into()),
            }
        }
        if options.addresses && (options.races || options.without_barrier.is_some()) {
            return Err("--addresses cannot be combined with a watch for races".into());
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = Options::parse(std::env::args().skip(1));
    match options.and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let words = error.to_string(); // of the machine's own, some begin so
            eprintln!(
                "error: {}",
                words.strip_prefix("error: ").unwrap_or(&words).trim_end()
            );
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let program = options.kernel;
    if !program.source().widths.contains(&options.d) {
        return Err(format!(
            "`d` is {} but {} has {:?}",
            options.d,
            program.source().name,
            program.source().widths
        )
        .into());
    }
    let sizes = Sizes {
        heads: options.heads,
        n_q: options.n_q,
        n_k: options.n_k.unwrap_or(options.n_q),
    };
    if [sizes.heads, sizes.n_q, sizes.n_k].contains(&0) {
        return Err("there must be at least one head, one query and one key".into());
    }
    let missing_barrier = match options.without_barrier {
        None => 0,
        Some(number) => {
            let lines = barriers(program);
            let line = number.checked_sub(1).and_then(|index| lines.get(index));
            *line.ok_or_else(|| {
                format!(
                    "{} has {} barriers, counted from 1",
                    program.source().name,
                    lines.len()
                )
            })?
        }
    };
    let watch = match options {
        Options { addresses: true, .. } => Watch::Addresses,
        Options { races: true, .. } | Options { without_barrier: Some(_), .. } => {
            Watch::Races
        }
        _ => Watch::Nothing,
    };
    let on_cpu = OnCpu::compile(program, options.d, options.causal, watch)?;
    let data = Data::new(sizes, options.d, Precision::of(program));
    let choices = Choices { seed: options.seed, missing_barrier };
    let errors = data
        .errors(&on_cpu, program, options.causal, choices)
        .map_err(|failure| failure.to_string())?;
    for line in on_cpu::lines(program, &errors) {
        println!("{line}");
    }
    if !errors.iter().all(|&error| error < bound(program)) {
        return Err(
            format!("more than rounding, which is below {:.0e}", bound(program)).into()
        );
    }
    Ok(())
}
