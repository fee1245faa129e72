//! Files: written whole or not at all, by one program at a time, and without what editors leave beside them.

use anyhow::{Context, Result};
use fs_err as fs;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;

/// The content of a file, or nothing if there is none. A file that cannot be read is an error, so that it is not taken for a missing one.
///
/// # Errors
///
/// If it is there and cannot be read.
pub fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes a file, and the folders around it. It is written beside its place and then moved there, so that a full disk leaves nothing
/// half-written.
///
/// # Errors
///
/// If it cannot be written. What was there is still there.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let written = fs::create_dir_all(path.parent().unwrap_or(path))
        .and_then(|()| fs::write(&beside, content))
        .and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The first error says what is wrong.
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until no other program holds this lock, and holds it until the file is dropped or the program ends.
///
/// # Errors
///
/// If there can be no such file.
pub fn lock(path: &Path) -> Result<File> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let (file, _) = fs::File::create(path)?.into_parts();
    // Some file systems have no locks, and work there goes on without.
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        eprintln!("waiting for another command, which holds {}", path.display());
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Whether an editor has left this beside a file: a lock or a swap file, which begin with a dot, an autosave such as `#a.md#`, or a backup,
/// `a.md~`. Emacs makes its locks as links to nothing, so that they can't even be read.
#[must_use]
pub fn is_leftover(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(['.', '#']) || name.ends_with('~')
}

/// Whether two texts differ in nothing but their line ends: Git may have given a folder those of Windows.
#[must_use]
pub fn same_lines(one: &[u8], other: &[u8]) -> bool {
    let shown = |text: &[u8]| {
        text.iter().filter(|byte| **byte != b'\r').copied().collect::<Vec<_>>()
    };
    shown(one) == shown(other)
}
