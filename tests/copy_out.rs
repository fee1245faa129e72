//! The crate is a folder that can be taken away: copied out alone, it builds and passes its tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

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

/// The program that the book builds compiles alone with nalgebra, and passes the checks that stand in it.
#[test]
#[ignore = "`.ci/run slow`: compiles nalgebra once more"]
fn plain_copied_out_alone_passes_its_own_checks() {
    let elsewhere = tempfile::tempdir().unwrap();
    let source = elsewhere.path().join("src");
    copy_folder(&the_crate().join("src/plain"), &source);
    fs::rename(source.join("mod.rs"), source.join("lib.rs")).unwrap();
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
