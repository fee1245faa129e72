//! Files of raw little-endian numbers.

use anyhow::{Context, Result, ensure};
use bytemuck::{AnyBitPattern, NoUninit, allocation::pod_collect_to_vec, cast_slice};
use std::fs;
use std::path::Path;

const _: () =
    assert!(cfg!(target_endian = "little"), "numbers are written as they lie in memory");

/// Writes tensors one after the other.
///
/// # Errors
/// The file cannot be written.
pub fn write<T: NoUninit>(file: &Path, tensors: &[impl AsRef<[T]>]) -> Result<()> {
    let bytes: Vec<&[u8]> =
        tensors.iter().map(|tensor| cast_slice(tensor.as_ref())).collect();
    fs::write(file, bytes.concat()).with_context(|| file.display().to_string())
}

/// Reads tensors of these sizes.
///
/// # Errors
/// The file cannot be read, or holds more or less than that.
pub fn read<T: NoUninit + AnyBitPattern>(
    file: &Path,
    sizes: &[usize],
) -> Result<Vec<Vec<T>>> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let (has, needs) = (bytes.len(), sizes.iter().sum::<usize>() * size_of::<T>());
    ensure!(has == needs, "{} has {has} bytes, but should have {needs}", file.display());
    let mut numbers = pod_collect_to_vec::<u8, T>(&bytes).into_iter();
    Ok(sizes.iter().map(|size| numbers.by_ref().take(*size).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let file = std::env::temp_dir().join(format!("peers-raw-{}", std::process::id()));
        write(&file, &[vec![1.5_f64, -0.0], vec![f64::MAX]]).unwrap();
        let read_back = read::<f64>(&file, &[2, 1]).unwrap();
        let error = read::<f64>(&file, &[2]).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert_eq!(read_back, [vec![1.5, -0.0], vec![f64::MAX]]);
        assert!(error.contains("has 24 bytes, but should have 16"), "{error}");
    }
}
