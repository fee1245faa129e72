//! The figures that move: `crates/playground` as WebAssembly, beside the pages that use it.
//!
//! The module is committed, so that a reader needs no compiler for `wasm32-unknown-unknown`, and the first page does not wait for it. Beside it
//! stands a digest of the sources that it was made of. Where they have changed since, and there is a compiler, it is made afresh: by
//! rustup's target, or by Debian's packages, which compile the standard library from its source.

use crate::console::Activity;
use crate::files;
use crate::pattern::{Pattern, pattern};
use crate::process;
use crate::project::Project;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fs_err as fs;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "wasm32-unknown-unknown";

/// Says how to get a compiler for WebAssembly.
const HOW_TO: &str = concat!(
    "`rustup target add wasm32-unknown-unknown`, or on Debian `apt update && apt install rustc-web cargo-web rust-web-src lld`, \
     where that is Rust ",
    env!("CARGO_PKG_RUST_VERSION"),
    " or newer"
);

/// The folder of the committed module.
const COMMITTED: &str = "crates/playground/module";

/// The module as a page loads it, and the JavaScript through which the scripts of the figures call it.
const BOUND: [&str; 2] = ["attention.js", "attention_bg.wasm"];

/// What figures ask for, and where it stands in the book: the parameters of the trained model, and what was recorded of real ones.
const FETCHED: [(&str, &str); 2] = [
    ("crates/model/trained/book.i8", "trained/book.i8"),
    ("crates/model/opened/figure.json", "opened/figure.json"),
];

/// The file beside the committed module with the digest of its sources and the version of its compiler, a line each.
const ORIGIN: &str = "origin.txt";

/// The crates that the module is made of.
const CRATES: [&str; 4] = ["attention", "laboratory", "model", "playground"];

/// The options of `module`.
#[derive(Debug, Args)]
pub struct Options {
    /// Change nothing; fail if the committed module has another interface than a fresh one
    #[arg(long)]
    check: bool,
}

/// Makes the module afresh and commits it to its folder, or compares it with the one there.
///
/// # Errors
///
/// If there is no compiler for it, it does not compile, or with `check` if the committed one differs.
pub fn module(project: &Project, options: &Options) -> Result<()> {
    let compiler = compiler()
        .with_context(|| format!("nothing compiles for WebAssembly here: {HOW_TO}"))?;
    let made = bind(project, &compile(project, &compiler)?)?;
    let committed = project.root().join(COMMITTED);
    if options.check {
        return check(&made, &committed);
    }
    let origin = format!("{}\n{}\n", digest(project), version(&compiler)?);
    fs::create_dir_all(&committed)?;
    for file in BOUND {
        fs::copy(made.join(file), committed.join(file))?;
    }
    files::write(&committed.join(ORIGIN), origin)?;
    eprintln!("wrote {COMMITTED}; commit it");
    Ok(())
}

/// Classes, functions and methods of the module's JavaScript, with the names of their arguments.
static INTERFACE: Pattern = pattern!(
    r"(?m)^(?:export )?(?:class|function) .*\{$|^    (?:static |get |set )*\w+\([^)]*\) \{$"
);

fn check(made: &Path, committed: &Path) -> Result<()> {
    let interface = |folder: &Path| -> Result<BTreeSet<String>> {
        let script = files::read(&folder.join(BOUND[0]))?;
        Ok(INTERFACE
            .find_iter(&script)
            .map(|line| line.as_str().trim().to_owned())
            .collect())
    };
    let (new, old) = (interface(made)?, interface(committed)?);
    let differ: Vec<_> = new.symmetric_difference(&old).map(String::as_str).collect();
    ensure!(
        differ.is_empty(),
        "{COMMITTED} has another interface than the sources: {}\nRun `cargo xtask module`, and commit it.",
        differ.join(" ")
    );
    ensure!(new.len() > 10, "no interface was found in {}", BOUND[0]);
    // A compiler numbers the lines of its messages, so a comment can change bytes, and another version of it changes more.
    let module = BOUND[1];
    if fs::read(made.join(module))? == fs::read(committed.join(module))? {
        eprintln!("{COMMITTED} has the bytes of a fresh module");
    } else {
        eprintln!(
            "{COMMITTED} has the interface of a fresh module; the tests of the pages compare the results of both"
        );
    }
    Ok(())
}

/// Returns the SHA-256 of the sources, in hexadecimal digits. Comments and empty lines don't count, since they change nothing that a figure shows.
fn digest(project: &Project) -> String {
    let folders = CRATES.map(|name| project.root().join("crates").join(name));
    let files = folders.iter().flat_map(|folder| {
        let sources = files::with_extension(&folder.join("src"), "rs");
        sources.into_iter().chain([folder.join("Cargo.toml")])
    });
    let mut digest = Sha256::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().map(str::trim);
        let code = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
        for line in code {
            digest.update(line);
            digest.update("\n");
        }
    }
    hex::encode(digest.finalize())
}

/// The folder of the module for a book: the committed one if it is of these sources or nothing compiles a new one. The variable
/// `PLAYGROUND` asks for one of them, by `committed` or `fresh`.
fn folder(project: &Project) -> Result<PathBuf> {
    let committed = project.root().join(COMMITTED);
    let origin = fs::read_to_string(committed.join(ORIGIN)).unwrap_or_default();
    let is_current = origin.lines().next() == Some(&digest(project));
    let asked = env::var("PLAYGROUND").unwrap_or_default();
    let fresh = match (asked.as_str(), is_current) {
        ("committed", _) | ("", true) => false,
        ("fresh", _) | ("", false) => true,
        _ => bail!("PLAYGROUND is `{asked}`, which is neither `committed` nor `fresh`"),
    };
    let age = if is_current { "of these sources" } else { "of older sources" };
    match compiler() {
        Some(compiler) if fresh => bind(project, &compile(project, &compiler)?),
        None if asked == "fresh" => {
            bail!("nothing compiles for WebAssembly here: {HOW_TO}")
        }
        None if fresh => {
            eprintln!(
                "the figures that move use {COMMITTED}, which is {age}; for a new one, {HOW_TO}"
            );
            Ok(committed)
        }
        _ => {
            eprintln!("the figures that move use {COMMITTED}, which is {age}");
            Ok(committed)
        }
    }
}

/// The compilers for WebAssembly.
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

/// Returns how the compiler names its version.
fn version(compiler: &Compiler) -> Result<String> {
    let mut command = match compiler {
        Compiler::Rustup => process::toolchain("rustc"),
        Compiler::Debian => Command::new(DEBIAN[1]),
    };
    let output =
        command.arg("--version").output().context("rustc could not be started")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Puts the playground into the built book, if any page asks for it, and says which module it uses.
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
    let bound = self::folder(project)?;
    let folder = book.join("playground");
    fs::create_dir_all(&folder)?;
    for file in BOUND {
        fs::copy(bound.join(file), folder.join(file))?;
    }
    files::copy(&project.root().join("crates/playground/web"), &folder)?;
    for (file, asked) in FETCHED {
        let copy = book.join(asked);
        fs::create_dir_all(copy.parent().context("a file of the book")?)?;
        fs::copy(project.root().join(file), copy)?;
    }
    for (html, page) in pages {
        let tag = "<meta name=\"playground\" content=\"playground/figures.js\">\n</head>";
        let html =
            html.replacen("</head>", tag, 1).replace(MARK, &format!(" data-moves{MARK}"));
        files::write(&page, html)?;
    }
    Ok(())
}

/// The attribute of a figure that moves.
const MARK: &str = " data-figure=";

/// Returns the compiled module. Cargo sees to it that this takes time only when something has changed.
fn compile(project: &Project, compiler: &Compiler) -> Result<PathBuf> {
    let target = project.target().join("playground");
    let module = target.join(TARGET).join("playground/playground.wasm");
    let activity = Activity::begin("compiling the module of the figures that move");
    let mut command = match compiler {
        Compiler::Rustup => process::cargo(project),
        Compiler::Debian => debian(project),
    };
    let linker =
        matches!(compiler, Compiler::Debian).then(|| "-Clinker=wasm-ld".to_owned());
    let flags: Vec<_> = linker.into_iter().chain(remapped(project)).collect();
    // In `RUSTFLAGS` a space would end a flag, and the path of a folder may have one.
    command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
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
    activity.done("compiled the module");
    Ok(module)
}

/// Flags by which the module's messages name no folder of this machine, so that it has the same bytes wherever it is made.
fn remapped(project: &Project) -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let user = env::var_os(if cfg!(windows) { "USERPROFILE" } else { "HOME" })?;
        Some(PathBuf::from(user).join(".cargo"))
    });
    let registry = home.unwrap_or_default().join("registry/src");
    let registries = fs::read_dir(registry).into_iter().flatten().flatten();
    let folders =
        registries.map(|folder| folder.path()).chain([project.root().to_owned()]);
    folders.map(|folder| format!("--remap-path-prefix={}=.", folder.display())).collect()
}

/// Debian's cargo, without what rustup's cargo has told us of itself.
fn debian(project: &Project) -> Command {
    let [cargo, rustc, ..] = DEBIAN;
    let mut command = Command::new(cargo);
    command.current_dir(project.root());
    command.env("CARGO", cargo).env("RUSTC", rustc).env("RUSTC_BOOTSTRAP", "1");
    command.env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// The folder with the module as pages load it, made again if the module is newer.
fn bind(project: &Project, module: &Path) -> Result<PathBuf> {
    let folder = project.target().join("playground/bound");
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified());
    let last = changed(&folder.join(BOUND[1]));
    if last.is_err() || changed(module)? > last? {
        process::run(process::own_program(project, "bind").args([module, &folder]))?;
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

    #[test]
    fn a_folder_with_a_space_in_its_path_is_one_flag() {
        let flags = remapped(&Project::at("/home/me/my book"));
        assert!(flags.contains(&"--remap-path-prefix=/home/me/my book=.".to_owned()));
    }

    #[test]
    fn code_changes_the_digest_and_comments_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/attention/src/lib.rs");
        fs::create_dir_all(source.parent().unwrap()).unwrap();
        let digest_of = |text: &str| {
            fs::write(&source, text).unwrap();
            digest(&Project::at(folder.path()))
        };
        let first = digest_of("fn f() {\n    1\n}\n");
        assert_eq!(digest_of("// One.\n\nfn f() {\n1\n}\n"), first);
        assert_ne!(digest_of("fn f() {\n    2\n}\n"), first);
    }
}
