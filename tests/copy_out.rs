//! The crate is a folder that can be taken away: copied out alone, it builds and passes its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use xtask::project::Project;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn the_crate() -> PathBuf {
    root().join("crates/attention")
}

#[test]
fn the_folder_holds_what_a_copy_needs() {
    for file in ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"]
    {
        let path = the_crate().join(file);
        assert!(path.is_file(), "{} is missing", path.display());
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.trim().is_empty(), "{} is empty", path.display());
    }
}

/// `path = …` and `workspace = true` in a manifest point out of the folder, wherever they stand.
#[test]
fn the_manifest_points_to_nothing_outside_of_the_folder() {
    fn check(at: &str, value: &toml::Value) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    let at = format!("{at}.{key}");
                    assert!(
                        key != "workspace",
                        "Cargo.toml inherits or sets a workspace: {at}"
                    );
                    let is_target = [".lib.", ".bin", ".example", ".test", ".bench"]
                        .iter()
                        .any(|target| at.starts_with(target));
                    // The crate itself, with the features that its tests need, is no other folder.
                    let is_itself = value.as_str() == Some(".");
                    if key == "path" {
                        assert!(
                            is_target || is_itself,
                            "Cargo.toml depends on a folder: {at}"
                        );
                    }
                    check(&at, value);
                }
            }
            toml::Value::Array(values) => {
                values.iter().for_each(|value| check(at, value))
            }
            toml::Value::String(text) => {
                assert!(
                    !text.contains("../"),
                    "Cargo.toml points out of its folder: {at} = {text}"
                );
            }
            _ => {}
        }
    }
    let text = fs::read_to_string(the_crate().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    assert!(manifest.contains_key("package"));
    check("", &toml::Value::Table(manifest));
}

/// A copy of the folder, without a workspace above it and without a build. The lock file beside it names the versions that the
/// book was tested with, so that cargo asks the network for nothing but a package that is not there yet.
fn copied() -> TempDir {
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path();
    copy_folder(&the_crate(), copy);
    fs::copy(root().join("Cargo.lock"), copy.join("Cargo.lock")).unwrap();
    for above in copy.ancestors().skip(1) {
        let manifest = above.join("Cargo.toml");
        assert!(!manifest.exists(), "the copy is not alone: {}", manifest.display());
    }
    elsewhere
}

/// The program that the book builds: lines of its files, by file and number.
type Lines = BTreeMap<String, BTreeSet<usize>>;

fn plain() -> PathBuf {
    the_crate().join("src/plain")
}

/// The lines of a file that a listing of this anchor shows; without an anchor, all.
fn lines_of(file: &str, anchor: Option<&str>) -> BTreeSet<usize> {
    let text = fs::read_to_string(plain().join(file)).unwrap();
    let mut shown = anchor.is_none();
    let mut lines = BTreeSet::new();
    for (number, line) in text.lines().enumerate() {
        if let Some((mark, name)) = line.trim().trim_start_matches("// ").split_once(": ")
            && mark.starts_with("ANCHOR")
        {
            if anchor == Some(name) {
                shown = mark == "ANCHOR";
            }
        } else if shown && !line.trim().is_empty() && !line.starts_with("use ") {
            lines.insert(number);
        }
    }
    assert!(!lines.is_empty(), "{file} has no anchor {anchor:?}");
    lines
}

/// What each chapter's listings add to the program, in the order of the book.
fn added_by_chapters() -> Vec<(String, Lines)> {
    const START: &str = "{{#include ../crates/attention/src/plain/";
    let mut before = Lines::new();
    let mut chapters = vec![];
    for chapter in Project::at(root()).chapters_of_summary().unwrap() {
        let text = fs::read_to_string(root().join(format!("src/{chapter}.md"))).unwrap();
        let mut added = Lines::new();
        for (start, _) in text.match_indices(START) {
            let name = text[start + START.len()..].split_once("}}").unwrap().0;
            let (file, anchor) = match name.split_once(':') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (name, None),
            };
            let known = before.entry(file.to_owned()).or_default();
            let new: BTreeSet<_> =
                lines_of(file, anchor).difference(known).copied().collect();
            known.extend(&new);
            added.entry(file.to_owned()).or_default().extend(new);
        }
        if added.values().any(|lines| !lines.is_empty()) {
            chapters.push((chapter, added));
        }
    }
    chapters
}

/// The files that are no chapter's: the list of modules, and the checks.
const OF_NO_CHAPTER: [&str; 2] = ["mod.rs", "tests.rs"];

#[test]
fn every_line_of_the_program_stands_in_the_book() {
    let mut shown = Lines::new();
    for (_, added) in added_by_chapters() {
        added
            .into_iter()
            .for_each(|(file, lines)| shown.entry(file).or_default().extend(lines));
    }
    let mut missing = vec![];
    for entry in fs::read_dir(plain()).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        if OF_NO_CHAPTER.contains(&&*file) {
            continue;
        }
        let text = fs::read_to_string(plain().join(&file)).unwrap();
        let shown = shown.remove(&file).unwrap_or_default();
        for number in lines_of(&file, None).difference(&shown) {
            missing.push(format!(
                "{file}:{}: {}",
                number + 1,
                text.lines().nth(*number).unwrap()
            ));
        }
    }
    missing.sort();
    assert!(missing.is_empty(), "no page shows\n{}", missing.join("\n"));
}

/// The program as it stands after each chapter compiles, and nothing in it is used before it is built. The whole compiles alone with
/// nalgebra and passes the checks that travel with it.
#[test]
#[ignore = "`.ci/run slow`: compiles nalgebra once more"]
fn the_program_compiles_chapter_by_chapter_and_passes_its_own_checks() {
    let elsewhere = tempfile::tempdir().unwrap();
    let source = elsewhere.path().join("src");
    copy_folder(&plain(), &source.join("plain"));
    let mut library = "pub mod plain;\n".to_owned();
    let mut so_far = Lines::new();
    for (number, (chapter, added)) in added_by_chapters().into_iter().enumerate() {
        added
            .into_iter()
            .for_each(|(file, lines)| so_far.entry(file).or_default().extend(lines));
        let mut program =
            "#![allow(dead_code, unused_imports)]\nuse nalgebra::*;\nuse std::ops::Range;\n\ntype Matrix = DMatrix<f64>;\n"
                .to_owned();
        for (file, lines) in &so_far {
            let text = fs::read_to_string(plain().join(file)).unwrap();
            let all: Vec<_> = text.lines().collect();
            lines.iter().for_each(|&line| program += &format!("{}\n", all[line]));
        }
        let name = format!("after_{:02}_{}", number + 1, chapter.replace('-', "_"));
        fs::write(source.join(format!("{name}.rs")), program).unwrap();
        library += &format!("mod {name};\n");
    }
    fs::write(source.join("lib.rs"), library).unwrap();
    let manifest = "[package]\nname = \"mine\"\nedition = \"2024\"\n\n[dependencies]\nnalgebra = \"0.35\"\n";
    fs::write(elsewhere.path().join("Cargo.toml"), manifest).unwrap();
    fs::copy(root().join("Cargo.lock"), elsewhere.path().join("Cargo.lock")).unwrap();
    let (stdout, _) = cargo(elsewhere.path(), &["test"]);
    assert!(stdout.contains("test result: ok. 4 passed"), "{stdout}");
}

/// With every target and feature it compiles; its example runs; its tests, which the workspace runs with features, pass without.
#[test]
#[ignore = "`.ci/run slow`: compiles and runs all of the crate's tests once more"]
fn copied_out_alone_it_compiles_with_all_features_and_passes_its_tests_without() {
    let copy = copied();
    cargo(copy.path(), &["check", "--all-targets", "--all-features"]);
    cargo(copy.path(), &["run", "--example", "first_steps"]);
    // Without the feature `cuda`, nothing of it is downloaded or compiled.
    let dependencies = |arguments: &[&str]| {
        let tree = ["tree", "--edges", "normal,build,dev", "--prefix", "none"];
        cargo(copy.path(), &[&tree, arguments].concat()).0
    };
    assert!(dependencies(&["--features", "cuda"]).contains("cudarc"));
    assert!(!dependencies(&[]).contains("cudarc"));
    let (stdout, stderr) = cargo(copy.path(), &["test", "--no-default-features"]);
    assert!(
        stderr.contains("Doc-tests attention"),
        "no documentation tests ran:\n{stderr}"
    );
    let passed: Vec<usize> = stdout
        .lines()
        .filter_map(|line| {
            line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
        })
        .collect();
    let suites = passed.iter().filter(|&&passed| passed > 0).count();
    assert!(suites >= 2, "unit and documentation tests did not both run:\n{stdout}");
}

/// Returns what cargo says in the copy, where it knows nothing of this build and must succeed.
fn cargo(copy: &Path, arguments: &[&str]) -> (String, String) {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if is_of_this_build(&name) {
            cargo.env_remove(&*name);
        }
    }
    cargo
        .args(arguments)
        .env("CARGO_TARGET_DIR", target_dir())
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    let output = cargo.current_dir(copy).output().unwrap();
    let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (said(&output.stdout), said(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    (stdout, stderr)
}

/// Beside this build, and kept, so that the next run finds the dependencies compiled.
fn target_dir() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("copy-out")
}

/// Returns whether a variable is one by which cargo tells programs of this build. Where crates come from and where they
/// are kept stays.
fn is_of_this_build(variable: &str) -> bool {
    const KEPT: [&str; 5] =
        ["CARGO_HOME", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR", "CARGO_SOURCE_"];
    let is_cargo = variable == "CARGO" || variable.starts_with("CARGO_");
    let is_kept = KEPT.iter().any(|kept| variable.starts_with(kept));
    let is_flags =
        ["RUSTFLAGS", "RUSTDOCFLAGS", "RUSTC_WORKSPACE_WRAPPER"].contains(&variable);
    (is_cargo && !is_kept) || is_flags
}

/// All files and folders but what a build leaves behind.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_name() == "target" || entry.file_name() == "Cargo.lock" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}
