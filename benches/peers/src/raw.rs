//! Files of raw little-endian numbers, f32.

use anyhow::{Context, Result, ensure};
use bytemuck::{allocation::pod_collect_to_vec, cast_slice};
use std::fs;
use std::path::Path;

const _: () =
    assert!(cfg!(target_endian = "little"), "numbers are written as they lie in memory");

/// Writes tensors one after the other.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, tensors: &[Vec<f32>]) -> Result<()> {
    let bytes: Vec<&[u8]> = tensors.iter().map(|tensor| cast_slice(tensor)).collect();
    fs::write(file, bytes.concat()).with_context(|| file.display().to_string())
}

/// Reads so many tensors, all of this size.
///
/// # Errors
/// The file cannot be read, or holds more or less than that.
pub fn read(file: &Path, count: usize, size: usize) -> Result<Vec<Vec<f32>>> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let (has, needs) = (bytes.len(), count * size * size_of::<f32>());
    ensure!(has == needs, "{} has {has} bytes, but should have {needs}", file.display());
    let numbers = pod_collect_to_vec::<u8, f32>(&bytes);
    Ok(numbers.chunks(size).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let file = std::env::temp_dir().join(format!("peers-raw-{}", std::process::id()));
        let tensors = [vec![1.5, -0.0], vec![f32::MAX, 0.1]];
        write(&file, &tensors).unwrap();
        let read_back = read(&file, 2, 2).unwrap();
        let error = read(&file, 3, 2).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert_eq!(read_back, tensors);
        assert!(error.contains("has 16 bytes, but should have 24"), "{error}");
    }
}
