//! The figures that move: `crates/playground` as WebAssembly, beside the pages that use it.
//!
//! It takes a compiler for `wasm32-unknown-unknown`: rustup's target, or Debian's packages, with which the standard library is compiled
//! from its source. Where there is neither, the figures stay as they are printed.

use crate::console::Activity;
use crate::files;
use crate::process;
use crate::project::Project;
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// What to do where the figures don't move.
pub const HOW_TO: &str = concat!(
    "`rustup target add wasm32-unknown-unknown`, or on Debian `apt update && apt install rustc-web cargo-web rust-web-src lld`, \
     where that is Rust ",
    env!("CARGO_PKG_RUST_VERSION"),
    " or newer"
);

/// Who can compile for WebAssembly here.
enum Compiler {
    Rustup,
    /// The compiler of Debian's package `rustc-web`, with the source of the standard library.
    Debian,
}

/// Debian's cargo and rustc, the library's source, and the linker.
const DEBIAN: [&str; 4] = [
    "/usr/bin/cargo",
    "/usr/bin/rustc",
    "/usr/lib/rustlib/src/rust/library/std/Cargo.toml",
    "/usr/bin/wasm-ld",
];

fn compiler() -> Option<Compiler> {
    let output =
        process::toolchain("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    if sysroot.join("lib/rustlib").join(TARGET).join("lib").is_dir() {
        return Some(Compiler::Rustup);
    }
    if !DEBIAN.iter().all(|file| Path::new(file).is_file()) {
        return None;
    }
    let output = Command::new(DEBIAN[1]).arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    (minor(&version)? >= minor(LEAST)?).then_some(Compiler::Debian)
}

/// The oldest compiler that the crates ask for; an older one of Debian's is as good as none.
const LEAST: &str = env!("CARGO_PKG_RUST_VERSION");

/// 89 of `1.89`, or of `rustc 1.89.0 (…)`.
fn minor(version: &str) -> Option<u32> {
    version.split_once("1.")?.1.split('.').next()?.parse().ok()
}

/// Whether the figures can move here.
#[must_use]
pub fn can_be_built() -> bool {
    compiler().is_some()
}

/// Puts the playground into the built book, if any page asks for it and there is a compiler. Says so where there is none.
///
/// # Errors
///
/// If it does not compile, or cannot be written.
pub fn add_to(project: &Project, book: &Path) -> Result<()> {
    let pages = files::with_extension(book, "html")
        .into_iter()
        .filter(|page| !page.ends_with("print.html"));
    let pages: Vec<_> = pages
        .map(|page| Ok((files::read(&page)?, page)))
        .filter(|page| !matches!(page, Ok((html, _)) if !html.contains(MARK)))
        .collect::<Result<_>>()?;
    if pages.is_empty() {
        return Ok(());
    }
    let Some(compiler) = compiler() else {
        eprintln!("note: the figures don't move in this build; for that, {HOW_TO}");
        return Ok(());
    };
    let module = compile(project, &compiler)?;
    let bound = bind(project, &module)?;
    let folder = book.join("playground");
    fs::create_dir_all(&folder)?;
    for file in BOUND {
        fs::copy(bound.join(file), folder.join(file))?;
    }
    files::copy(&project.root().join("crates/playground/web"), &folder)?;
    for (html, page) in pages {
        let tag = "<meta name=\"playground\" content=\"playground/figures.js\">\n</head>";
        let html =
            html.replacen("</head>", tag, 1).replace(MARK, &format!(" data-moves{MARK}"));
        files::write(&page, html)?;
    }
    Ok(())
}

/// What a figure that moves has in its tag.
const MARK: &str = " data-figure=";

/// The compiled module. Cargo sees to it that this takes time only when something has changed.
fn compile(project: &Project, compiler: &Compiler) -> Result<PathBuf> {
    let target = project.target().join("playground");
    let module = target.join(TARGET).join("playground/playground.wasm");
    let activity = (!module.exists())
        .then(|| Activity::begin("compiling the figures that move, once"));
    let mut command = match compiler {
        Compiler::Rustup => process::cargo(project),
        Compiler::Debian => debian(project),
    };
    command.args([
        "build",
        "--quiet",
        "--locked",
        "--package",
        "playground",
        "--profile",
        "playground",
    ]);
    command.args(["--target", TARGET, "--target-dir"]).arg(&target);
    if let Compiler::Debian = compiler {
        command.args(["-Z", "build-std=std,panic_abort"]);
    }
    process::run(&mut command)?;
    if let Some(activity) = activity {
        activity.done("compiled the figures that move");
    }
    Ok(module)
}

/// Debian's cargo, without what rustup's cargo has told us of itself.
fn debian(project: &Project) -> Command {
    let [cargo, rustc, ..] = DEBIAN;
    let mut command = Command::new(cargo);
    command.current_dir(project.root());
    command.env("CARGO", cargo).env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
    command.env("RUSTFLAGS", "-C linker=wasm-ld").env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The module as a page loads it, and the JavaScript through which the scripts of the figures call it.
const BOUND: [&str; 2] = ["attention.js", "attention_bg.wasm"];

/// The folder with both, made again if the module is newer.
fn bind(project: &Project, module: &Path) -> Result<PathBuf> {
    let folder = project.target().join("playground/bound");
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
    let last = changed(&folder.join(BOUND[1]));
    if last.is_err() || changed(module)? > last? {
        let mut command = process::cargo(project);
        command.args(["run", "--quiet", "--locked", "--package", "bind", "--"]);
        process::run(command.args([module, &folder]))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_compiler_is_told_from_a_new_one() {
        let new =
            minor("rustc 1.96.0 (ac68faa20 2026-05-25) (built from a source tarball)");
        assert!(new > minor(LEAST) && minor(LEAST) > minor("rustc 1.85.0"));
        assert_eq!(minor("rustc of another kind"), None);
    }
}
