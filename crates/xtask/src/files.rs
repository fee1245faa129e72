//! Files and paths.

use anyhow::Result;
use exercises::files::is_leftover;
use fs_err as fs;
use std::path::{Path, PathBuf};
use walkdir::{DirEntry, WalkDir};

/// Every file under `folder`, sorted, so that findings come in the same order on every machine, but for what editors leave beside
/// those that they edit. A folder that does not exist has none.
#[must_use]
pub fn under(folder: &Path) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).follow_links(true).sort_by_file_name();
    let is_meant =
        |entry: &DirEntry| entry.depth() == 0 || !is_leftover(entry.file_name());
    let entries = entries.into_iter().filter_entry(is_meant).flatten();
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.map(DirEntry::into_path).collect()
}

/// Every file under `folder` whose name ends in `.extension`.
#[must_use]
pub fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = under(folder);
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files
}

/// The text of `file`, with the line ends of Unix, whichever it has.
///
/// # Errors
///
/// If it cannot be read; the message names it.
pub fn read(file: &Path) -> Result<String> {
    Ok(fs::read_to_string(file)?.replace("\r\n", "\n"))
}

/// Writes `file`.
///
/// # Errors
///
/// If it cannot be written; the message names it.
pub fn write(file: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    Ok(fs::write(file, content)?)
}

/// Copies every file under `folder` that isn't Markdown to its place under `destination`.
///
/// # Errors
///
/// If one cannot be copied; the message names it.
pub fn copy(folder: &Path, destination: &Path) -> Result<()> {
    let mut files = under(folder);
    files.retain(|file| file.extension().is_none_or(|extension| extension != "md"));
    for file in files {
        let place = destination.join(file.strip_prefix(folder)?);
        fs::create_dir_all(place.parent().unwrap_or(destination))?;
        fs::copy(&file, &place)?;
    }
    Ok(())
}

/// `path` as seen from `root`, with forward slashes on every system.
#[must_use]
pub fn relative(path: &Path, root: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().replace('\\', "/")
}

/// The line, counted from one, that byte `offset` of `text` lies on.
#[must_use]
pub fn line_at(text: &str, offset: usize) -> usize {
    1 + memchr::memchr_iter(b'\n', &text.as_bytes()[..offset.min(text.len())]).count()
}
