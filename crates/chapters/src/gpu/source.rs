//! A line of a kernel's source, as an excerpt.

use anyhow::{Context, Result};

const TILED: &str = include_str!("../../../attention/cuda/tiled.cu");

/// A line of kernel 1, counted from 1, as inline code.
pub fn line(number: usize) -> Result<String> {
    let line = number.checked_sub(1).and_then(|index| TILED.lines().nth(index));
    let line = line.with_context(|| format!("kernel 1 has no line {number}"))?;
    Ok(format!("`{}`", line.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(line(4).unwrap(), "`#include \"common.cuh\"`");
        assert!(line(0).is_err() && line(1_000_000).is_err());
    }
}
