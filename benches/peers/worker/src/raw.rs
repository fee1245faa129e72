//! Files of raw little-endian numbers.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// A number that a file can hold.
pub trait Number: Copy {
    /// Bytes of each.
    const BYTES: usize;
    /// From [`Number::BYTES`] bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
    /// To the end of `bytes`.
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Number for $number {
            const BYTES: usize = size_of::<$number>();
            fn from_bytes(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$number>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend(self.to_le_bytes());
            }
        }
    )*};
}

number!(f32, f64);

/// Writes tensors one after the other.
///
/// # Errors
/// The file cannot be written.
pub fn write<T: Number>(file: &Path, tensors: &[&[T]]) -> Result<()> {
    let count: usize = tensors.iter().map(|tensor| tensor.len()).sum();
    let mut bytes = Vec::with_capacity(count * T::BYTES);
    for number in tensors.iter().copied().flatten() {
        number.append(&mut bytes);
    }
    fs::write(file, bytes).with_context(|| file.display().to_string())
}

/// Reads tensors of these sizes.
///
/// # Errors
/// The file cannot be read, or holds more or less than that.
pub fn read<T: Number>(file: &Path, sizes: &[usize]) -> Result<Vec<Vec<T>>> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    let (has, needs) = (bytes.len(), sizes.iter().sum::<usize>() * T::BYTES);
    ensure!(has == needs, "{} has {has} bytes, but should have {needs}", file.display());
    let mut numbers = bytes.chunks_exact(T::BYTES).map(T::from_bytes);
    Ok(sizes.iter().map(|size| numbers.by_ref().take(*size).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let file = std::env::temp_dir().join(format!("peers-raw-{}", std::process::id()));
        write(&file, &[&[1.5_f64, -0.0], &[f64::MAX]]).unwrap();
        let read_back = read::<f64>(&file, &[2, 1]).unwrap();
        let error = read::<f64>(&file, &[2]).unwrap_err().to_string();
        fs::remove_file(&file).unwrap();
        assert_eq!(read_back, [vec![1.5, -0.0], vec![f64::MAX]]);
        assert!(error.contains("has 24 bytes, but should have 16"), "{error}");
    }
}
