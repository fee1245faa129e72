//! The kernels' sources: what of them a page's computation takes for granted.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

fn text(file: &str) -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../attention/cuda").join(file);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Fails if one of these is not in the file, word for word.
pub fn has(file: &str, pieces: &[&str]) -> Result<()> {
    let text = text(file)?;
    for piece in pieces {
        ensure!(
            text.contains(piece),
            "{file} no longer has `{piece}`; crates/chapters/src/gpu computes with it"
        );
    }
    Ok(())
}

/// A line of a file, counted from 1, as inline code.
pub fn line(file: &str, number: usize) -> Result<String> {
    let text = text(file)?;
    let line = number.checked_sub(1).and_then(|index| text.lines().nth(index));
    Ok(format!(
        "`{}`",
        line.with_context(|| format!("{file} has no line {number}"))?.trim()
    ))
}

/// The number in `constexpr int NAME = NUMBER;`.
pub fn constant(file: &str, name: &str) -> Result<usize> {
    find(&text(file)?, name)
        .with_context(|| format!("{file} has no `constexpr int {name} = …;`"))
}

fn find(text: &str, name: &str) -> Option<usize> {
    let (_, rest) = text.split_once(&format!("constexpr int {name} = "))?;
    rest.split(';').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_found_by_name() {
        let text =
            "constexpr int KEYS = 32;   // rows\nconstexpr int THREADS = KEYS * 4;\n";
        assert_eq!(find(text, "KEYS"), Some(32));
        assert_eq!(find(text, "THREADS"), None);
        assert_eq!(find(text, "EYS"), None);
        assert!(
            constant("tiled.cu", "NOTHING")
                .unwrap_err()
                .to_string()
                .contains("tiled.cu has no")
        );
        assert!(has("tiled.cu", &["nothing of the kind"]).is_err());
        assert_eq!(line("tiled.cu", 4).unwrap(), "`#include \"common.cuh\"`");
        assert!(line("tiled.cu", 0).is_err() && line("tiled.cu", 1_000_000).is_err());
    }
}
