//! Times attention, naive or flash, and prints one line of JSON.
//!
//! `cargo run --release -p attention --example time_attention -- --n 2048 --d 64 --heads 8 --threads 1 --causal`

use attention::flash::{Flash, Inputs};
use attention::{AttentionShape, Float, Mask, attention, attention_backward};
use clap::Parser;
use nalgebra::{DMatrix, convert, try_convert};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use serde::Serialize;
use std::error::Error;
use std::num::NonZeroUsize;
use std::time::Instant;

/// Times self-attention of random queries, keys and values, and prints one line of JSON.
#[derive(Parser, Serialize)]
struct Options {
    /// Tokens.
    #[arg(long, default_value = "2048")]
    n: NonZeroUsize,
    /// Width of a head: d_k and d_v.
    #[arg(long, default_value = "64")]
    d: NonZeroUsize,
    /// Heads.
    #[arg(long, default_value = "8")]
    heads: NonZeroUsize,
    /// Threads.
    #[arg(long, default_value = "1")]
    threads: NonZeroUsize,
    /// By `attention`, head by head, and not by `flash::Flash`.
    #[arg(long)]
    naive: bool,
    /// Forward and backward, and not forward alone.
    #[arg(long)]
    backward: bool,
    /// In numbers of double precision, `f64`, and not in `f32`.
    #[arg(long)]
    double: bool,
    /// No token sees its future.
    #[arg(long)]
    causal: bool,
    /// How many times; the median counts.
    #[arg(long, default_value = "9")]
    repeats: NonZeroUsize,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    options: Options,
    /// Half of the runs took at most this.
    median_seconds: f64,
    flops_per_second: f64,
    /// What counts as a FLOP.
    flop_convention: &'static str,
    /// The sum of the output's entries.
    checksum: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{}", serde_json::to_string(&measure(Options::parse())?)?);
    Ok(())
}

fn measure(options: Options) -> Result<Report, Box<dyn Error>> {
    let (median_seconds, checksum) =
        if options.double { time::<f64>(&options)? } else { time::<f32>(&options)? };
    let flops_per_second = flops(&options)? / median_seconds;
    let flop_convention =
        "4 heads n^2 d forward, half of it if causal; 3.5 times that with backward";
    Ok(Report { options, median_seconds, flops_per_second, flop_convention, checksum })
}

/// By the convention that the report states.
fn flops(options: &Options) -> attention::Result<f64> {
    let [n, d, heads] = [options.n, options.d, options.heads].map(NonZeroUsize::get);
    let flops = AttentionShape::self_attention(1, n, heads * d, d, heads).flops()?;
    let forward = (flops.scores + flops.values) as f64;
    let seen = if options.causal { 0.5 } else { 1.0 };
    Ok(seen * forward * if options.backward { 3.5 } else { 1.0 })
}

/// The median of the seconds, and the sum of the output.
fn time<T: Float>(options: &Options) -> Result<(f64, f64), Box<dyn Error>> {
    let (n, heads) = (options.n.get(), options.heads.get());
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let mut normal = || {
        DMatrix::<T>::from_fn(n, heads * options.d.get(), |_, _| {
            let z: f64 = StandardNormal.sample(rng);
            convert(z)
        })
    };
    let [q, k, v, grad_output] = std::array::from_fn(|_| normal());
    let mask = if options.causal { Mask::causal() } else { Mask::none() };
    let inputs = Inputs::new(&q, &k, &v, &mask)?.with_heads(heads)?;
    let flash = Flash::new().with_threads(options.threads.get())?;
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(options.threads.get()).build()?;
    let grad_output = options.backward.then_some(&grad_output);

    let once = || -> attention::Result<DMatrix<T>> {
        if options.naive {
            return pool.install(|| naive(&q, &k, &v, &mask, heads, grad_output));
        }
        let forward = flash.forward(&inputs);
        if let Some(grad_output) = grad_output {
            flash.backward(&inputs, &forward, grad_output)?;
        }
        Ok(forward.output)
    };
    let mut checksum = 0.0;
    let mut seconds = vec![];
    for run in 0..=options.repeats.get() {
        let start = Instant::now();
        let output = once()?;
        if run > 0 {
            seconds.push(start.elapsed().as_secs_f64()); // the first was to warm up
        }
        checksum =
            output.iter().map(|&x| try_convert::<T, f64>(x).unwrap_or(f64::NAN)).sum();
    }
    seconds.sort_by(f64::total_cmp);
    Ok((seconds[seconds.len() / 2], checksum))
}

fn naive<T: Float>(
    q: &DMatrix<T>,
    k: &DMatrix<T>,
    v: &DMatrix<T>,
    mask: &Mask,
    heads: usize,
    grad_output: Option<&DMatrix<T>>,
) -> attention::Result<DMatrix<T>> {
    use rayon::prelude::*;
    let d = q.ncols() / heads;
    let one = |h: usize| {
        let slice = |x: &DMatrix<T>| x.columns(h * d, d).into_owned();
        let (output, cache) = attention(&slice(q), &slice(k), &slice(v), mask)?;
        if let Some(grad_output) = grad_output {
            attention_backward(&cache, &slice(grad_output))?;
        }
        Ok(output)
    };
    let outputs: Vec<_> =
        (0..heads).into_par_iter().map(one).collect::<attention::Result<_>>()?;
    let columns: Vec<_> =
        outputs.iter().flat_map(|output| output.column_iter()).collect();
    Ok(DMatrix::from_columns(&columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program prints for these arguments, as JSON.
    fn report(arguments: &str) -> serde_json::Value {
        let arguments =
            format!("time_attention --n 40 --d 8 --heads 2 --repeats 3 {arguments}");
        let options = Options::try_parse_from(arguments.split_whitespace()).unwrap();
        serde_json::to_value(measure(options).unwrap()).unwrap()
    }

    #[test]
    fn both_kinds_report_the_same_output() {
        for rest in ["--causal", "--backward", "--double", "--double --backward --causal"]
        {
            let [naive, flash] =
                ["--naive", ""].map(|kind| report(&format!("{kind} {rest}")));
            let sum = |report: &serde_json::Value| report["checksum"].as_f64().unwrap();
            assert!((sum(&naive) - sum(&flash)).abs() < 1e-3, "{rest}: {naive} {flash}");
            assert!(sum(&naive) != 0.0);
        }
        let (full, causal) = (report(""), report("--causal"));
        assert_ne!(full["checksum"], causal["checksum"]);
    }

    #[test]
    fn the_speed_follows_the_stated_convention() {
        for (rest, flops) in [("", 1.0), ("--causal", 0.5), ("--backward --causal", 1.75)]
        {
            let report = report(rest);
            let of = |key: &str| report[key].as_f64().unwrap();
            let counted = of("flops_per_second") * of("median_seconds");
            let expected = flops * f64::from(4 * 2 * 40 * 40 * 8);
            assert!((counted / expected - 1.0).abs() < 1e-9, "{rest}: {counted}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (wrong, name) in
            [("--n 0", "--n"), ("--threads 0", "--threads"), ("--fast", "--fast")]
        {
            let arguments = format!("time_attention {wrong}");
            let error = Options::try_parse_from(arguments.split(' ')).err().unwrap();
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
