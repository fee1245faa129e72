//! Runs tests, with limits, and says in plain words what failed.

use crate::files::{lock, read_if_there};
use crate::task::Task;
use anyhow::{Context, Result, bail};
use fs_err as fs;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use wait_timeout::ChildExt;

/// A test that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The name of the test.
    pub test: String,
    /// What it said.
    pub message: String,
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// All tests passed.
    Passed {
        /// How many there are.
        passed: usize,
    },
    /// Some failed.
    Failed {
        /// How many passed.
        passed: usize,
        /// Those that did not.
        failures: Vec<Failure>,
    },
    /// The code has words that the task does without, and was not run.
    Refused {
        /// Which, and in which line.
        message: String,
    },
    /// The compiler refused the code.
    DoesNotCompile {
        /// What it said.
        message: String,
    },
    /// The tests were stopped, or stopped themselves: no time or memory was left, or the program crashed.
    Stopped {
        /// Why.
        message: String,
    },
}

impl Outcome {
    /// Whether all tests passed.
    #[must_use]
    pub fn has_passed(&self) -> bool {
        matches!(self, Outcome::Passed { .. })
    }
}

/// What a run may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The time.
    pub time: Duration,
    /// The address space in mebibytes. It is no limit where there is no `sh` with `ulimit`, as on Windows.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { time: Duration::from_secs(20), memory: 4096 }
    }
}

/// Compiles and runs the tests of a task in a reader's folder, one run at a time. Failures come in the order in which the tests are written,
/// since the first of them are about the simplest.
///
/// # Errors
///
/// If cargo cannot be started.
pub fn of_task(folder: &Path, task: &Task, limits: Limits) -> Result<Outcome> {
    let target = folder.join("target");
    let _turn = lock(&target.join("exercises.lock"))?;
    let code = read_if_there(&folder.join("src").join(task.file()))?;
    if let Some(message) =
        task.refusal(&String::from_utf8_lossy(&code.unwrap_or_default()))
    {
        return Ok(Outcome::Refused { message });
    }
    let mut build = cargo(folder);
    build.args(["test", "--quiet", "--no-run", "--test", &task.name]);
    match compile(&mut build)? {
        Ok(program) => run(&program, task, limits, &target.join("exercises.out")),
        Err(message) => Ok(Outcome::DoesNotCompile { message: shortened(&message) }),
    }
}

/// Puts failures into the order in which a task's tests are written.
pub fn sort(failures: &mut [Failure], task: &Task) {
    failures.sort_by_key(|failure| {
        let name = failure.test.rsplit("::").next();
        task.test_names().position(|test| Some(test) == name)
    });
}

/// The cargo that runs us, or the one on the PATH.
#[must_use]
pub fn cargo(folder: &Path) -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Two folders that compile into one would take each other's programs for their own.
    command.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_BUILD_TARGET_DIR");
    // Colours would hide where an error begins.
    command.env("CARGO_TERM_COLOR", "never");
    command.current_dir(folder);
    command
}

/// Has cargo compile tests, and returns their program, or what the compiler said.
///
/// # Errors
///
/// If cargo cannot be started.
pub fn compile(command: &mut Command) -> Result<Result<PathBuf, String>> {
    let child = command
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let (ended, has_ended) = mpsc::channel::<()>();
    let watcher = thread::spawn(move || {
        if has_ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            eprintln!("compiling; the first time this takes a few minutes …");
        }
    });
    let output = child.wait_with_output();
    drop(ended);
    let _ = watcher.join();
    let output = output?;
    if !output.status.success() {
        return Ok(Err(errors(&String::from_utf8_lossy(&output.stderr))));
    }
    let made = String::from_utf8_lossy(&output.stdout);
    let mut programs = made.lines().rev().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(message.get("executable")?.as_str()?.to_owned())
    });
    Ok(Ok(programs.next().context("cargo made no program of the tests")?.into()))
}

/// A compilation that takes longer is announced: it may be the first, with all that nalgebra consists of.
const PATIENCE: Duration = Duration::from_secs(2);

/// The errors among a compiler's messages, without the warnings.
fn errors(messages: &str) -> String {
    let blocks =
        messages.split("\n\n").filter(|block| block.trim_start().starts_with("error"));
    let errors: Vec<_> =
        blocks.filter(|block| !block.contains("could not compile")).collect();
    if errors.is_empty() { messages.trim().to_owned() } else { errors.join("\n\n") }
}

/// Runs the program of a task's tests. Its output is kept in a file, since a pipe that is full would make it wait.
///
/// # Errors
///
/// If it cannot be started.
pub fn run(program: &Path, task: &Task, limits: Limits, kept: &Path) -> Result<Outcome> {
    let output: std::fs::File = fs::File::create(kept)?.into();
    let mut command = if cfg!(unix) {
        let mut shell = Command::new("sh");
        // A limit that is lower already can't be raised, and serves as well.
        let limit = format!("ulimit -v {} 2>/dev/null", limits.memory * 1024);
        shell.args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]).arg(program);
        shell
    } else {
        Command::new(program)
    };
    let mut child = command
        // The reader's own tests are not counted.
        .args(["--test-threads=1", "--skip", &task.not_counted()])
        .env("RUST_BACKTRACE", "1")
        .env_remove(NO_CAPTURE)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let Some(status) = child.wait_timeout(limits.time)? else {
        child.kill()?;
        child.wait()?;
        let seconds = limits.time.as_secs();
        let message =
            format!("no end after {seconds} s: is there a loop that never stops?");
        return Ok(Outcome::Stopped { message });
    };
    let output = fs::read(kept)?;
    let mut outcome = judge(&String::from_utf8_lossy(&output), status, task, limits)?;
    if let Outcome::Failed { failures, .. } = &mut outcome {
        sort(failures, task);
    }
    Ok(outcome)
}

/// With this variable Rust's test programs print what a test says when it says it, and not below its name.
pub const NO_CAPTURE: &str = "RUST_TEST_NOCAPTURE";

/// Reads what Rust's test program has printed. A result counts only if all tests of the task were begun before it: code under test may print
/// such a line, too, and exit.
fn judge(
    output: &str,
    status: ExitStatus,
    task: &Task,
    limits: Limits,
) -> Result<Outcome> {
    let counts = output.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    let begun = |name: &str| output.contains(&format!("\ntest {name} "));
    let Some(counts) = counts.filter(|_| task.test_names().all(begun)) else {
        let message = if output.contains("memory allocation of") {
            format!(
                "more memory was asked for than the {} MiB that it may take",
                limits.memory
            )
        } else if output.contains("overflowed its stack") {
            "the stack overflowed: does a function call itself without an end?".to_owned()
        } else {
            format!("the tests stopped in the middle ({status})")
        };
        return Ok(Outcome::Stopped { message });
    };
    let passed = counts
        .split_once(" passed")
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .with_context(|| format!("`{counts}` does not say how many tests passed"))?;
    if status.success() {
        return Ok(Outcome::Passed { passed });
    }
    let failures = failures(output);
    if failures.is_empty() {
        bail!("the tests failed and did not say which:\n{output}");
    }
    Ok(Outcome::Failed { passed, failures })
}

/// What each test that failed said, without the way there. If the reader's own code panicked, or what it called, the message begins with
/// the line in `src/`.
#[must_use]
pub fn failures(output: &str) -> Vec<Failure> {
    const END: &str = " stdout ----\n";
    let (_, reports) = output.split_once("\nfailures:\n").unwrap_or_default();
    let reports = reports.split("\nfailures:\n").next().unwrap_or_default();
    let mut failures = vec![];
    for report in reports.split("\n---- ").filter_map(|report| report.split_once(END)) {
        let (test, said) = report;
        let (said, way) = said.split_once("stack backtrace:\n").unwrap_or((said, ""));
        let is_place =
            |line: &&str| line.starts_with("thread '") && line.contains(" panicked at ");
        let is_advice = |line: &&str| line.starts_with("note: run with `RUST_BACKTRACE");
        let place = said.lines().find(is_place).unwrap_or_default();
        let words = said.lines().filter(|line| !is_place(line) && !is_advice(line));
        let message = words.collect::<Vec<_>>().join("\n").trim().to_owned();
        // The tests' own assertions stand in `tests/`, which says nothing to the reader.
        let is_assertion =
            own_place(place).is_none() && place.contains(" panicked at tests/");
        let origin = own_place(place).or_else(|| way.lines().find_map(own_place));
        // As nalgebra says it of the factors of a product.
        let message = if message.contains("dimensions mismatch") {
            format!("{message} Two factors don't fit: write down the shape of each.")
        } else {
            message
        };
        let message = match origin.filter(|_| !is_assertion) {
            Some(origin) => format!("in {origin}: {message}"),
            None => message,
        };
        failures.push(Failure { test: test.to_owned(), message: shortened(&message) });
    }
    failures
}

/// The characters of a message that are worth reading.
const LONGEST: usize = 4000;

/// A text without what is beyond [`LONGEST`].
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => {
            format!("{} … ({} more bytes)", &text[..end], text.len() - end)
        }
        None => text.to_owned(),
    }
}

/// As in `src/softmax_rows.rs, line 12`, if the line of the output names such a place.
fn own_place(line: &str) -> Option<String> {
    let (_, place) = line.split_once("/../src/")?;
    let mut parts = place.split(':');
    Some(format!("src/{}, line {}", parts.next()?, parts.next()?))
}
