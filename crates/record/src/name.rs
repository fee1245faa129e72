//! The names of benchmarks, which say what was measured.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;

/// What the name of a benchmark says: `GROUP/WHAT, TYPE, SIZE = NUMBER, …/N`.
///
/// ```
/// let name = record::Name::parse("attention/forward, f32, d = 64/4096")?;
/// assert_eq!(name.what, "attention/forward");
/// assert_eq!(name.dtype, "f32");
/// assert_eq!((name.sizes["d"], name.sizes["n"]), (64, 4096));
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// `GROUP/WHAT`.
    pub what: String,
    /// The type of its numbers.
    pub dtype: String,
    /// The sizes; what follows the last slash is `n`.
    pub sizes: BTreeMap<String, u64>,
}

impl Name {
    /// Takes a name apart.
    ///
    /// # Errors
    /// It has another form.
    pub fn parse(name: &str) -> Result<Self> {
        Self::parts(name).with_context(|| {
            format!("the benchmark {name:?} is not called GROUP/WHAT, TYPE, SIZE = NUMBER, …/N")
        })
    }

    fn parts(name: &str) -> Result<Self> {
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
        Ok(Name { what: what.to_owned(), dtype: dtype.to_owned(), sizes })
    }
}

fn number(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("{text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let error = format!("{:#}", Name::parse(name).unwrap_err());
            assert!(error.contains(says) && error.contains(name), "{error}");
        }
    }
}
