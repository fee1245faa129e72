//! Times self-attention of random queries, keys and values, naive or flash, and prints one line of JSON.
//!
//! `cargo run --release --manifest-path benches/Cargo.toml --bin time_attention -- --n 2048 --d 64 --heads 8 --threads 1 --causal`

use attention::engine::Engine as _;
use attention::flash::Inputs;
use attention::{Mask, ScoreRule, attention, attention_backward};
use fast::{Flash, Float};
use laboratory::cost::AttentionShape;
use nalgebra::{DMatrix, try_convert};
use record::statistics::median;
use serde::Serialize;
use std::error::Error;
use std::time::Instant;
use topics::normal;

const USAGE: &str = "\
usage: time_attention [--n N] [--d N] [--heads N] [--threads N] [--repeats N]
                      [--queries M] [--kv-heads K] [--window W]
                      [--naive] [--backward] [--double] [--causal] [--alibi]

  --n        tokens (2048)
  --d        width of a head: d_k and d_v (64)
  --heads    heads (8)
  --queries  queries, the last of the tokens (as many as tokens)
  --kv-heads heads of keys and values, which the heads share (as many as heads)
  --window   each query sees so many keys, itself among them (all)
  --threads  threads (1)
  --repeats  how many times; the median counts (9)
  --naive    by `attention`, head by head, and not by `fast::Flash`
  --backward forward and backward, and not forward alone
  --double   in numbers of double precision, `f64`, and not in `f32`
  --causal   no token sees its future
  --alibi    scores fall with the distance";

#[derive(Serialize)]
struct Options {
    n: usize,
    d: usize,
    heads: usize,
    queries: Option<usize>,
    kv_heads: Option<usize>,
    window: Option<usize>,
    threads: usize,
    naive: bool,
    backward: bool,
    double: bool,
    causal: bool,
    alibi: bool,
    repeats: usize,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Options {
            n: 2048,
            d: 64,
            heads: 8,
            queries: None,
            kv_heads: None,
            window: None,
            threads: 1,
            naive: false,
            backward: false,
            double: false,
            causal: false,
            alibi: false,
            repeats: 9,
        };
        while let Some(argument) = arguments.next() {
            let number = match argument.as_str() {
                "--n" => &mut options.n,
                "--d" => &mut options.d,
                "--heads" => &mut options.heads,
                "--queries" => options.queries.insert(0),
                "--kv-heads" => options.kv_heads.insert(0),
                "--window" => options.window.insert(0),
                "--threads" => &mut options.threads,
                "--repeats" => &mut options.repeats,
                flag => {
                    let flag = match flag {
                        "--naive" => &mut options.naive,
                        "--backward" => &mut options.backward,
                        "--double" => &mut options.double,
                        "--causal" => &mut options.causal,
                        "--alibi" => &mut options.alibi,
                        _ => return Err(format!("there is no {flag}\n{USAGE}")),
                    };
                    *flag = true;
                    continue;
                }
            };
            let value = arguments.next().and_then(|value| value.parse().ok());
            *number = value.filter(|&value| value > 0).ok_or_else(|| {
                format!("{argument} needs a number of at least 1\n{USAGE}")
            })?;
        }
        let queries = options.queries();
        if queries > options.n {
            let n = options.n;
            return Err(format!("--queries is {queries} but there are {n} tokens"));
        }
        Ok(options)
    }

    fn queries(&self) -> usize {
        self.queries.unwrap_or(self.n)
    }

    fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    fn mask(&self) -> attention::Result<Mask> {
        let mut mask = if self.causal { Mask::causal() } else { Mask::none() };
        if let Some(width) = self.window {
            mask = mask.and(Mask::window(width)?);
        }
        Ok(if self.alibi {
            mask.with_scores(ScoreRule::alibi(self.heads)?)
        } else {
            mask
        })
    }
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    options: Options,
    /// Half of the runs took at most this.
    median_seconds: f64,
    /// As if every query saw every key, or half of them if causal; a window is not counted.
    flops_per_second: f64,
    /// Of keys and values, each read once: what a few queries wait for.
    bytes_per_second: f64,
    /// The operations that are counted.
    flop_convention: &'static str,
    /// The sum of the output's entries.
    checksum: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|usage| {
        eprintln!("{usage}");
        std::process::exit(2)
    });
    println!("{}", serde_json::to_string(&measure(options)?)?);
    Ok(())
}

fn measure(options: Options) -> Result<Report, Box<dyn Error>> {
    let (median_seconds, checksum) =
        if options.double { time::<f64>(&options)? } else { time::<f32>(&options)? };
    let flops_per_second = flops(&options)? / median_seconds;
    let flop_convention =
        "4 heads queries n d forward, half of it if causal; 3.5 times that with backward";
    let bytes = 2 * options.kv_heads() * options.d * options.n;
    let bytes_per_second =
        (bytes * if options.double { 8 } else { 4 }) as f64 / median_seconds;
    Ok(Report {
        options,
        median_seconds,
        flops_per_second,
        bytes_per_second,
        flop_convention,
        checksum,
    })
}

/// By the convention that the report states.
fn flops(options: &Options) -> attention::Result<f64> {
    let Options { n, d, heads, .. } = *options;
    let shape = AttentionShape::self_attention(1, n, heads * d, d, heads);
    let flops = AttentionShape { n_q: options.queries(), ..shape }.flops()?;
    let forward = (flops.scores + flops.values) as f64;
    let seen = if options.causal { 0.5 } else { 1.0 };
    Ok(seen * forward * if options.backward { 3.5 } else { 1.0 })
}

/// The median of the seconds, and the sum of the output.
fn time<T: Float>(options: &Options) -> Result<(f64, f64), Box<dyn Error>> {
    let (heads, kv_heads, threads) = (options.heads, options.kv_heads(), options.threads);
    let (n_q, n_k) = (options.queries(), options.n);
    let (width, kv_width) = (heads * options.d, kv_heads * options.d);
    let q = normal::<T>(n_q, width, 0);
    let [k, v] = [1, 2].map(|seed| normal::<T>(n_k, kv_width, seed));
    let grad_output = normal::<T>(n_q, width, 3);
    let mask = options.mask()?;
    let inputs = Inputs::grouped(&q, &k, &v, &mask, heads, kv_heads)?;
    let flash = Flash::new().with_threads(threads)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let grad_output = options.backward.then_some(&grad_output);

    let once = || -> attention::Result<DMatrix<T>> {
        if options.naive {
            return pool.install(|| naive(&inputs, &mask, grad_output));
        }
        let forward = flash.forward(&inputs)?;
        if let Some(grad_output) = grad_output {
            flash.backward(&inputs, &forward, grad_output.into())?;
        }
        Ok(forward.output)
    };
    let mut checksum = 0.0;
    let mut seconds = vec![];
    for run in 0..=options.repeats {
        let start = Instant::now();
        let output = once()?;
        if run > 0 {
            seconds.push(start.elapsed().as_secs_f64()); // the first was to warm up
        }
        checksum =
            output.iter().map(|&x| try_convert::<T, f64>(x).unwrap_or(f64::NAN)).sum();
    }
    Ok((median(&seconds), checksum))
}

/// One head after another, on as many threads as the pool has.
fn naive<T: Float>(
    inputs: &Inputs<T>,
    mask: &Mask,
    grad_output: Option<&DMatrix<T>>,
) -> attention::Result<DMatrix<T>> {
    use rayon::prelude::*;
    let heads: Vec<_> = inputs.heads().enumerate().collect();
    let one = |(h, head): &(usize, attention::flash::Head<T>)| {
        let mask = mask.clone().of_head(*h);
        let (output, cache) = attention(head.q, head.k, head.v, mask)?;
        if let Some(grad_output) = grad_output {
            let d = head.v.ncols();
            attention_backward(&cache, grad_output.columns(h * d, d))?;
        }
        Ok(output)
    };
    let outputs: Vec<_> = heads.par_iter().map(one).collect::<attention::Result<_>>()?;
    let columns: Vec<_> =
        outputs.iter().flat_map(|output| output.column_iter()).collect();
    Ok(DMatrix::from_columns(&columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, String> {
        Options::parse(arguments.split_whitespace().map(str::to_owned))
    }

    /// The program's report for these arguments, as JSON.
    fn report(arguments: &str) -> serde_json::Value {
        let options = parse(&format!("--n 40 --d 8 --heads 2 --repeats 3 {arguments}"));
        serde_json::to_value(measure(options.unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn both_kinds_report_the_same_output() {
        for rest in [
            "--causal",
            "--backward",
            "--double",
            "--double --backward --causal",
            "--queries 3 --kv-heads 1 --window 20 --alibi",
        ] {
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
        for (wrong, name) in [
            ("--n 0", "--n needs"),
            ("--threads", "--threads needs"),
            ("--d x", "--d needs"),
            ("--fast", "no --fast"),
            ("--kv-heads", "--kv-heads needs"),
            ("--queries 3000", "--queries is 3000 but there are 2048 tokens"),
        ] {
            let error = parse(wrong).err().unwrap();
            assert!(error.contains(name), "{error}");
        }
    }
}
