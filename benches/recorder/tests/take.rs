//! Taking records in a small project, with a cargo that does not measure but does what a benchmark would leave behind.

#![cfg(unix)]

use record::Record;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A workspace `benches` in which `topics` has two benchmarks of `attention`.
fn project() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = folder.path().join("benches").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("Cargo.toml", "[workspace]\nmembers = [\"*\"]\nresolver = \"3\"\n");
    let of_attention = "[dependencies]\nmultiplier = { path = \"../multiplier\" }\n\
                        [dev-dependencies]\nticker = { path = \"../ticker\" }\n";
    for (name, version, dependencies) in [
        ("attention", "0.1.0", of_attention),
        ("topics", "0.1.0", "[dependencies]\nattention = { path = \"../attention\" }\n"),
        ("nalgebra", "0.35.0", ""),
        ("matrixmultiply", "0.3.0", ""),
        ("multiplier", "7.0.1", ""),
        ("ticker", "0.0.1", ""),
    ] {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"{version}\"\n{dependencies}"
        );
        write(&format!("{name}/Cargo.toml"), &manifest);
        write(&format!("{name}/src/lib.rs"), "");
    }
    for benchmark in ["first", "second"] {
        write(&format!("topics/benches/{benchmark}.rs"), "");
    }
    folder
}

/// Runs the program; `bench` is what cargo does when it is to run the benchmark `$5`.
fn record(project: &TempDir, bench: &str, arguments: &[&str]) -> Output {
    let cargo = project.path().join("cargo");
    let real = env!("CARGO");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" != bench ]; then exec '{real}' \"$@\"; fi\n{bench}\n"
    );
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_recorder"))
        .args(arguments)
        .current_dir(project.path())
        .env("CARGO", cargo)
        .output()
        .unwrap()
}

/// Commands that leave the files of criterion for one benchmark, in nanoseconds, and print a line with a count of bytes.
const WORKS: &str = r#"
mkdir -p "$CRITERION_HOME/group/what/64/new"
echo '{"full_id":"group/what, f32, d = 8/64","group_id":"group"}' > "$CRITERION_HOME/group/what/64/new/benchmark.json"
echo '{"median":{"point_estimate":2500.0},"median_abs_dev":{"point_estimate":100.0},"mean":{}}' \
    > "$CRITERION_HOME/group/what/64/new/estimates.json"
echo 'group/peak, f64/128: 4096 bytes'"#;

/// The folder of this machine, if no other one has its name.
fn machine() -> String {
    record::here::machine().unwrap().folder(Path::new("nowhere")).unwrap()
}

fn read_in(folder: &Path, topic: &str) -> Record {
    Record::read(&folder.join(format!("{topic}.json"))).unwrap()
}

fn read(project: &TempDir, topic: &str) -> Record {
    read_in(&project.path().join("records").join(machine()), topic)
}

fn records(project: &Path) -> Vec<String> {
    let folder = project.join("records").join(machine());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn what_was_measured_is_written_with_its_circumstances() {
    let project = project();
    let output = record(&project, WORKS, &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(records(project.path()), ["first.json", "second.json"]);

    let record = read(&project, "first");
    let timed = record.find("group/what", "f32", 64).unwrap();
    assert!((timed.median - 2.5e-6).abs() < 1e-12 && (timed.spread - 1e-7).abs() < 1e-12);
    assert_eq!(
        (timed.sizes["d"], timed.threads, timed.unit),
        (8, 1, record::Unit::Seconds)
    );
    let counted = record.find("group/peak", "f64", 128).unwrap();
    assert_eq!((counted.median, counted.unit), (4096.0, record::Unit::Bytes));
    assert_eq!(record.versions["nalgebra"], "0.35.0");
    assert_eq!(record.versions["multiplier"], "7.0.1");
    assert!(!record.versions.contains_key("ticker"), "only its tests use it");
    assert_eq!(record.date, read(&project, "second").date);
    let says = stderr(&output);
    assert!(says.contains("the first line of records/shown.txt"), "{says}");
    assert!(says.ends_with(&format!("\n{}\n", machine())), "{says}");
}

#[test]
fn nothing_is_written_if_any_benchmark_fails() {
    let project = project();
    record(&project, WORKS, &["first"]);
    let file = project.path().join("records").join(machine()).join("first.json");
    let before = fs::read(&file).unwrap();

    // The first benchmark works, and says something else than before.
    let works = WORKS.replace("2500.0", "7777.0");
    let fails = format!("{works}\n[ \"$5\" != second ]");
    let output = record(&project, &fails, &[]);
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("the benchmark second failed"),
        "{}",
        stderr(&output)
    );
    assert_eq!(records(project.path()), ["first.json"]);
    assert_eq!(fs::read(&file).unwrap(), before);
}
