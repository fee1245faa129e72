//! The names of benchmarks, which say what was measured.

use anyhow::{Context, Result, bail};
use record::{Measurement, Unit};
use std::collections::BTreeMap;

/// Returns a benchmark's measurement, on one thread unless a size is called `threads`. The benchmark's name has the form `GROUP/WHAT, TYPE, SIZE = NUMBER, …/N`.
///
/// # Errors
/// The name has another form.
pub fn measurement_of_benchmark(
    name: &str,
    unit: Unit,
    (median, spread): (f64, f64),
) -> Result<Measurement> {
    let (what, dtype, mut sizes) = parts(name).with_context(|| {
        format!(
            "the benchmark {name:?} is not called GROUP/WHAT, TYPE, SIZE = NUMBER, …/N"
        )
    })?;
    let settings = BTreeMap::new();
    let threads = sizes.remove("threads").map_or(1, |threads| threads as usize);
    Ok(Measurement { what, dtype, sizes, settings, threads, unit, median, spread })
}

/// Returns the subject of a benchmark, the type of its numbers and its sizes. The number behind the last slash is `n`.
fn parts(name: &str) -> Result<(String, String, BTreeMap<String, u64>)> {
    let (rest, n) = name.rsplit_once('/').context("it has no slash")?;
    let mut parts = rest.split(", ");
    let what =
        parts.next().filter(|what| what.contains('/')).context("it has no group")?;
    let dtype = parts.next().context("it has no type")?;
    if !["f16", "bf16", "f32", "f64"].contains(&dtype) {
        bail!("{dtype} is no type of numbers");
    }
    let mut sizes = BTreeMap::from([("n".to_owned(), number(n)?)]);
    for part in parts {
        let (size, is) =
            part.split_once(" = ").with_context(|| format!("{part} is no size"))?;
        if sizes.insert(size.to_owned(), number(is)?).is_some() {
            bail!("it has {size} twice");
        }
    }
    Ok((what.to_owned(), dtype.to_owned(), sizes))
}

fn number(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("{text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_what_was_measured() {
        let name = "attention/forward, f32, d = 64, threads = 2/4096";
        let measured =
            measurement_of_benchmark(name, Unit::Seconds, (0.25, 0.01)).unwrap();
        assert_eq!(
            (measured.what.as_str(), measured.dtype.as_str()),
            ("attention/forward", "f32")
        );
        assert_eq!(
            measured.sizes,
            BTreeMap::from([("d".into(), 64), ("n".into(), 4096)])
        );
        assert_eq!((measured.threads, measured.median, measured.spread), (2, 0.25, 0.01));
    }

    #[test]
    fn another_form_is_refused_with_the_reason() {
        for (name, says) in [
            ("forward", "it has no slash"),
            ("forward, f32/64", "it has no group"),
            ("attention/forward/64", "it has no type"),
            ("attention/forward, d = 64/64", "d = 64 is no type of numbers"),
            ("attention/forward, f32, causal/64", "causal is no size"),
            ("attention/forward, f32, n = 7/64", "it has n twice"),
            ("attention/forward, f32/long", "\"long\" is no number"),
        ] {
            let measured = measurement_of_benchmark(name, Unit::Seconds, (0.25, 0.01));
            let error = format!("{:#}", measured.unwrap_err());
            assert!(error.contains(says) && error.contains(name), "{error}");
        }
    }
}
