//! The lines that a project needs in its `Cargo.toml` to use the crate as the book's snippets do.

use anyhow::{Result, ensure};

/// The manifest of the crate, which says which versions it works with.
const MANIFEST: &str = include_str!("../../../attention/Cargo.toml");

/// The crates that snippets use beside `attention`.
const USED: [&str; 3] = ["nalgebra", "rand", "rand_distr"];

/// Returns those lines: the crate in a folder beside the project's `src`, and the versions of other crates that it names itself.
pub fn manifest_lines() -> Result<String> {
    let mut lines = vec![
        "[dependencies]".to_owned(),
        "attention = { path = \"attention\" }".to_owned(),
    ];
    let (_, dependencies) = MANIFEST.split_once("\n[dependencies]\n").unwrap_or_default();
    for name in USED {
        let start = format!("{name} = ");
        let found = dependencies.lines().find(|line| line.starts_with(&start));
        ensure!(found.is_some(), "the crate doesn't depend on {name}");
        lines.extend(found.map(str::to_owned));
    }
    let profile = ["", "[profile.dev]", "opt-level = 2"];
    lines.extend(profile.map(str::to_owned));
    Ok(lines.join("\n"))
}
