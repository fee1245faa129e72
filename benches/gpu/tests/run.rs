//! The script of the packed folder, with programs that only say what they were given.
#![cfg(unix)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A packed folder. Its programs are scripts.
struct Packed(TempDir);

const TEST_PASSES: &str = "echo \"test result: ok. $REQUIRE_GPU $REQUIRE_NVRTC\"";
const GPU: &str = "echo \"gpu $*\"; echo \"libraries $LD_LIBRARY_PATH\"";

/// The end of the script.
struct Ended {
    code: i32,
    words: String,
}

impl Packed {
    fn new() -> Self {
        let packed = Self(tempfile::tempdir().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in ["torch_worker.py", "pack/run.sh"] {
            let file = source.join(file);
            fs::copy(&file, packed.0.path().join(file.file_name().unwrap())).unwrap();
        }
        packed.program("gpu", GPU);
        packed.program("cuda_compile", TEST_PASSES);
        packed.program("cuda_device", TEST_PASSES);
        packed
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.0.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the script in a folder of its own, with nothing but a PATH in its environment.
    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> (Ended, TempDir) {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut command = Command::new(self.0.path().join("run.sh"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(environment.iter().copied()).current_dir(elsewhere.path());
        // A Python without any wheels, so that the machine's own do not matter.
        command.args(["--python", "true"]).args(arguments);
        let output = loop {
            // A process that another test starts while a script is being written holds it open for a moment.
            match command.output() {
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
                output => break output.unwrap(),
            }
        };
        let words = [output.stdout, output.stderr].concat();
        let words = String::from_utf8(words).unwrap();
        (Ended { code: output.status.code().unwrap(), words }, elsewhere)
    }
}

#[track_caller]
fn says(ended: &Ended, code: i32, parts: &[&str]) {
    for part in parts {
        assert!(ended.words.contains(part), "expected: {part}\nfound: {}", ended.words);
    }
    assert_eq!(ended.code, code, "{}", ended.words);
}

#[test]
fn everything_runs_from_any_folder_with_the_arguments_that_were_given() {
    let (ended, elsewhere) =
        Packed::new().run(&["--quick"], &[("LD_LIBRARY_PATH", "/mine")]);
    let here = elsewhere.path().canonicalize().unwrap();
    let time =
        format!("gpu time --record {}/gpu.json --python true --quick\n", here.display());
    let parts = [
        "gpu device\n",
        "libraries /mine\n",
        "test result: ok. 1 1",
        &time,
        "done: put ",
    ];
    says(&ended, 0, &parts);
    assert!(
        here.join("cuda_device.log").is_file() && here.join("cuda_compile.log").is_file()
    );
}

#[test]
fn the_record_goes_where_it_is_wanted() {
    let packed = Packed::new();
    for (arguments, environment) in [
        (&["--output", "a b/c"][..], &[][..]),
        (&["--output=a b/c"], &[("OUTPUT", "elsewhere")]),
        (&[], &[("OUTPUT", "a b/c")]),
    ] {
        let (ended, elsewhere) = packed.run(arguments, environment);
        says(&ended, 0, &["a b/c/gpu.json"]);
        assert!(elsewhere.path().join("a b/c/cuda_device.log").is_file());
    }
}

#[test]
fn what_is_missing_ends_it() {
    let packed = Packed::new();
    fs::remove_file(packed.0.path().join("cuda_device")).unwrap();
    says(&packed.run(&[], &[]).0, 1, &["has no cuda_device; make the folder again"]);

    let packed = Packed::new();
    packed.program("gpu", "echo 'error: no CUDA driver' >&2; exit 1");
    let (ended, _) = packed.run(&[], &[]);
    says(&ended, 1, &["error: no CUDA driver\nerror: the GPU cannot be used"]);
    assert!(!ended.words.contains("cuda_compile"));
}

#[test]
fn a_test_that_fails_ends_it_with_its_last_words() {
    let packed = Packed::new();
    packed.program("cuda_device", "echo 'the output is off'; exit 101");
    let (ended, _) = packed.run(&[], &[]);
    says(&ended, 1, &["the output is off\nerror: cuda_device failed"]);
    assert!(!ended.words.contains("gpu time"));
    // … or is put off to the end.
    let (ended, _) = packed.run(&[], &[("KEEP_GOING", "1")]);
    says(
        &ended,
        1,
        &["the output is off", "gpu time", "these tests failed: cuda_device"],
    );

    packed.program("cuda_device", "exit 0");
    says(&packed.run(&[], &[]).0, 1, &["error: cuda_device ran no test"]);
}

#[test]
fn times_that_fail_end_it() {
    let packed = Packed::new();
    packed.program("gpu", "[ \"$1\" = device ] || { echo 'error: off'; exit 1; }");
    says(&packed.run(&[], &[]).0, 1, &["error: off", "the kernels were not timed"]);
}
