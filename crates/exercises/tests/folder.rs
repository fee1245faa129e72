//! A reader's folder: nothing that is there is overwritten, verdicts are in words, and grades are of untouched tests.

use exercises::folder::{Sources, create};
use exercises::grade::grade;
use exercises::task::{self, Task};
use exercises::trial::{self, Limits, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().parent().unwrap()
}

fn sources() -> Sources<'static> {
    Sources { root: root() }
}

fn tasks() -> Vec<Task> {
    task::read_all(&sources().tasks()).unwrap()
}

fn practice() -> (TempDir, PathBuf) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("practice");
    create(sources(), &folder, true).unwrap();
    (temporary, folder)
}

/// `cargo exercises …` in a folder.
fn exercises(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_exercises"));
    command.current_dir(folder).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_folder_gets_what_it_lacks_and_keeps_what_it_has() {
    let (_temporary, folder) = practice();
    let file = folder.join("src/program/softmax.rs");
    fs::write(&file, "// mine").unwrap();
    fs::write(folder.join("tests/build_softmax.rs"), "// mine, too").unwrap();
    fs::remove_file(folder.join("AGENTS.md")).unwrap();
    let again = create(sources(), &folder, true).unwrap();
    assert_eq!(
        (again.written, again.kept),
        (1, vec!["tests/build_softmax.rs".to_owned()])
    );
    assert_eq!(fs::read_to_string(file).unwrap(), "// mine");
    assert!(folder.join("AGENTS.md").is_file());
}

#[test]
fn a_folder_with_something_else_is_refused() {
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("thesis.txt"), "words").unwrap();
    let error = create(sources(), other.path(), true).unwrap_err().to_string();
    assert!(error.ends_with("is not empty, and holds no exercises"), "{error}");
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1, "nothing was written");
    let file = other.path().join("thesis.txt");
    assert!(
        create(sources(), &file, true)
            .unwrap_err()
            .to_string()
            .ends_with("is not a folder")
    );
}

#[test]
fn a_folder_without_solutions_has_hints_and_no_solution() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("practice");
    create(sources(), &folder, false).unwrap();
    let source = fs::read_to_string(folder.join("tool/tasks/build_softmax.rs")).unwrap();
    assert!(
        !source.contains("let mut weights = scores.clone()"),
        "the solution is there:\n{source}"
    );
    assert!(
        said(&exercises(&folder, &["hint", "build_softmax"]))
            .starts_with("Hint 1 of 3: ")
    );
    for with in tasks() {
        let path = folder.join(format!("tool/tasks/{}.rs", with.name));
        let text = fs::read_to_string(path).unwrap();
        let without = Task::parse(&with.name, &with.chapter, &text).unwrap();
        assert_eq!(without.stub(), with.stub());
        assert!(!text.contains("// FAULT") && !without.has_solution(), "{}", with.name);
    }
    let refused = exercises(&folder, &["solution", "build_softmax", "--yes"]);
    assert!(!refused.status.success() && said(&refused).contains("without solutions"));
}

#[test]
fn the_list_hints_solution_and_reset_do_what_they_say() {
    let (_temporary, folder) = practice();
    let list = said(&exercises(&folder, &[]));
    assert!(
        list.contains("build_softmax")
            && list.contains(&format!("0 of {} done", tasks().len())),
        "{list}"
    );
    exercises(&folder, &["hint", "build_softmax"]);
    let two = said(&exercises(&folder.join("src"), &["hint", "build_softmax"]));
    assert!(two.contains("Hint 2 of 3: ") && !two.contains("Hint 3"), "{two}");

    let asked = said(&exercises(&folder, &["solution", "build_softmax"]));
    assert!(
        asked.contains("[y/N]") && !asked.contains("pub fn"),
        "without an answer it shows nothing: {asked}"
    );
    let solution = said(&exercises(&folder, &["solution", "build_softmax", "--yes"]));
    assert!(
        solution.contains("pub fn softmax_rows") && !solution.contains("FAULT"),
        "{solution}"
    );

    let file = folder.join("src/program/softmax.rs");
    for (number, mine) in [(1, "// first"), (2, "// second")] {
        fs::write(&file, mine).unwrap();
        exercises(&folder, &["reset", "build_softmax"]);
        let kept = folder.join(format!("kept/build_softmax.{number}.rs"));
        assert_eq!(fs::read_to_string(kept).unwrap(), mine);
        assert!(fs::read_to_string(&file).unwrap().contains("todo!()"));
    }

    let unknown = exercises(&folder, &["hint", "softmax_columns"]);
    assert!(
        !unknown.status.success()
            && said(&unknown).contains("there is no exercise `softmax_columns`")
    );
    fs::write(folder.join("progress.json"), "{").unwrap();
    assert!(
        said(&exercises(&folder, &[]))
            .contains("progress.json cannot be read: mend it, or delete it")
    );
    assert!(
        said(&exercises(std::env::temp_dir().as_path(), &[]))
            .contains("no exercises in this folder")
    );
}

#[test]
fn a_file_that_is_no_text_is_begun_and_kept() {
    let (_temporary, folder) = practice();
    let file = folder.join("src/program/softmax.rs");
    fs::write(&file, b"// caf\xe9").unwrap();
    let tested = cargo_of(&folder, "false").args(["test"]).output().unwrap();
    assert!(
        said(&tested).contains("✗ build_softmax: it doesn't compile"),
        "{}",
        said(&tested)
    );
    exercises(&folder, &["reset", "build_softmax"]);
    assert_eq!(fs::read(folder.join("kept/build_softmax.1.rs")).unwrap(), b"// caf\xe9");
}

/// As Git may check a folder out on Windows.
#[test]
fn other_line_ends_are_no_change() {
    let (_temporary, folder) = practice();
    for part in ["src", "src/program", "tests", "tool/tasks"] {
        let entries = fs::read_dir(folder.join(part)).unwrap();
        for path in entries.map(|it| it.unwrap().path()).filter(|it| it.is_file()) {
            let text = fs::read_to_string(&path).unwrap();
            fs::write(path, text.replace('\n', "\r\n")).unwrap();
        }
    }
    assert_eq!(create(sources(), &folder, true).unwrap().kept, [""; 0]);
    let tested = cargo_of(&folder, "false").args(["test"]).output().unwrap();
    assert!(
        said(&tested).starts_with("No exercise has been begun."),
        "{}",
        said(&tested)
    );
    let reset = said(&exercises(&folder, &["reset", "build_softmax"]));
    assert!(reset.contains("is as it was"), "{reset}");
}

#[test]
fn what_editors_leave_is_no_exercise() {
    let (_temporary, folder) = practice();
    for name in [".#build_softmax.rs", "#build_softmax.rs#", "build_softmax.rs~"] {
        fs::write(folder.join("tool/tasks").join(name), "").unwrap();
    }
    assert!(said(&exercises(&folder, &[])).contains("0 of"));
}

#[test]
fn a_file_that_is_gone_comes_back_by_reset() {
    let (_temporary, folder) = practice();
    fs::remove_file(folder.join("src/program/softmax.rs")).unwrap();
    let tested = said(&exercises(&folder, &["test", r"src\program\softmax.rs"]));
    assert!(tested.contains("`cargo exercises reset build_softmax`"), "{tested}");
    exercises(&folder, &["reset", "build_softmax"]);
    assert!(folder.join("src/program/softmax.rs").is_file());
}

#[test]
fn a_folder_that_has_only_a_repository_is_taken_and_a_lock_that_cargo_changed_is_no_news()
{
    let temporary = tempfile::tempdir().unwrap();
    fs::create_dir(temporary.path().join(".git")).unwrap();
    create(sources(), temporary.path(), true).unwrap();
    fs::write(temporary.path().join("Cargo.lock"), "version = 4\n").unwrap();
    assert_eq!(create(sources(), temporary.path(), true).unwrap().kept, [""; 0]);
}

#[test]
fn an_error_names_its_file() {
    let (_temporary, folder) = practice();
    fs::write(folder.join("src/program/softmax.rs"), "// mine").unwrap();
    fs::write(folder.join("kept"), "a file where a folder should be").unwrap();
    let reset = said(&exercises(&folder, &["reset", "build_softmax"]));
    assert!(reset.contains(&folder.join("kept").display().to_string()), "{reset}");
    assert_eq!(fs::read(folder.join("src/program/softmax.rs")).unwrap(), b"// mine");
    // Neither is it taken for a missing one.
    fs::create_dir(folder.join("progress.json")).unwrap();
    let listed = exercises(&folder, &[]);
    assert!(!listed.status.success() && said(&listed).contains("progress.json"));
}

#[test]
#[cfg(unix)]
fn a_reader_of_the_first_lines_ends_the_list() {
    let (_temporary, folder) = practice();
    let mut command = Command::new("sh");
    let script = "{ \"$0\" list; echo ended with $? >&2; } | true";
    command.args(["-c", script, env!("CARGO_BIN_EXE_exercises")]);
    let listed = said(&command.current_dir(&folder).output().unwrap());
    assert_eq!(listed, "ended with 141\n");
}

/// `cargo exercises …` in a folder where cargo is this line of shell, in which `$test` is the name of the tests to be compiled.
fn cargo_of(folder: &Path, line: &str) -> Command {
    let cargo = folder.join("cargo.sh");
    let text = format!(
        "#!/bin/sh\nwhile [ \"$1\" != --test ]; do shift; done; test=$2\n{line}\n"
    );
    // By a shell, since a file that is open in one of our threads can't be run.
    let write = "printf %s \"$1\" > \"$0\" && chmod +x \"$0\"";
    let written = Command::new("sh").args(["-c", write]).arg(&cargo).arg(text).status();
    assert!(written.unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_exercises"));
    command.current_dir(folder).env("CARGO", cargo);
    command
}

/// A program with the tests of a task, all of which do the same: what the variable `BODY` says.
fn test_program(task: &str, folder: &Path) -> PathBuf {
    let tasks = tasks();
    let task = tasks.iter().find(|it| it.name == task).unwrap();
    let tests: String = task
        .test_names()
        .map(|name| format!("#[test] fn {name}() {{ body() }}\n"))
        .collect();
    let source = tests
        + r#"
fn body() {
    use std::io::Write;
    match std::env::var("BODY").unwrap().as_str() {
        "fails" => panic!("these words"),
        "floods" => panic!("{}", "x".repeat(200_000)),
        "claims" => {
            std::io::stdout().write_all(b"\ntest result: ok. 4 passed; 0 failed;\n").unwrap();
            std::process::exit(0)
        }
        _ => {}
    }
}
"#;
    let (file, program) = (folder.join("program.rs"), folder.join("program"));
    fs::write(&file, source).unwrap();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc.args(["--edition=2024", "--test", "-o"]).arg(&program).arg(file);
    assert!(rustc.status().unwrap().success());
    program
}

#[test]
#[cfg(unix)]
fn a_verdict_is_on_what_ran() {
    let (_temporary, folder) = practice();
    fs::write(folder.join("src/program/softmax.rs"), "// mine").unwrap();
    let program = test_program("build_softmax", &folder);
    let line = format!("echo '{{\"executable\": {program:?}}}'");
    let verdict = |body: &str| {
        let mut command = cargo_of(&folder, &line);
        command.args(["test", "build_softmax"]).env("BODY", body);
        command
    };
    let run = |mut command: Command| {
        let output = command.output().unwrap();
        (output.status.success(), said(&output))
    };
    let (passes, text) = run(verdict("passes"));
    assert!(passes && text.contains("all 6 tests pass"), "{text}");

    let mut uncaptured = verdict("fails");
    uncaptured.env("RUST_TEST_NOCAPTURE", "1");
    let (_, text) = run(uncaptured);
    assert!(text.contains("0 of 6 tests pass") && text.contains("these words"), "{text}");

    let (passes, text) = run(verdict("claims"));
    assert!(!passes && text.contains("the tests stopped in the middle"), "{text}");

    let (_, text) = run(verdict("floods"));
    assert!(text.len() < 20_000, "{} bytes", text.len());

    // With less memory than the tests may take.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 2000000; \"$0\" test build_softmax"]);
    limited.arg(env!("CARGO_BIN_EXE_exercises")).current_dir(&folder);
    limited.env("CARGO", folder.join("cargo.sh")).env("BODY", "passes");
    let (passes, text) = run(limited);
    assert!(passes, "{text}");
}

#[test]
#[cfg(unix)]
fn words_that_hide_a_failure_or_a_call_are_refused_with_their_line() {
    let (_temporary, folder) = practice();
    let refused = |task: &str, code: &str| {
        let all = tasks();
        let file = all.iter().find(|it| it.name == task).unwrap().file();
        fs::write(folder.join("src").join(file), code).unwrap();
        let tested = cargo_of(&folder, "false").args(["test", task]).output().unwrap();
        assert!(!tested.status.success());
        said(&tested)
    };
    for (task, code, words) in [
        ("build_softmax", "// a\nuse std::process::exit;", "line 2, has `process::exit`"),
        ("build_softmax", "macro_rules! assert { }", "line 1, has `macro_rules! assert`"),
        (
            "build_softmax",
            "use attention::softmax_rows as mine;",
            "has `attention::`: this exercise asks you to do without it",
        ),
        ("exponential_by_hand", "\nx.exp()", "line 2, has `.exp`"),
    ] {
        let said = refused(task, code);
        assert!(said.contains(words), "{said}");
    }
    let own = "#[test]\nfn mine() { attention::softmax_rows(a) }";
    assert!(refused("build_softmax", own).contains("it doesn't compile"));
}

#[test]
#[cfg(unix)]
fn a_long_compilation_is_announced() {
    let (_temporary, folder) = practice();
    fs::write(folder.join("src/program/softmax.rs"), "// mine").unwrap();
    for (seconds, is_announced) in [(0, false), (3, true)] {
        let mut command = cargo_of(&folder, &format!("sleep {seconds}; false"));
        let said = said(&command.args(["test", "build_softmax"]).output().unwrap());
        assert_eq!(said.contains("a few minutes"), is_announced, "{said}");
    }
    // The program itself is compiled by cargo, which shows its progress unless it is told not to.
    let settings = fs::read_to_string(folder.join(".cargo/config.toml")).unwrap();
    assert!(!settings.contains("quiet"), "{settings}");
}

#[test]
fn a_folder_with_nothing_but_src_is_graded() {
    let handed_in = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let grade = || grade(sources(), handed_in.path(), work.path(), Limits::default());
    let error = grade().unwrap_err().to_string();
    assert!(error.contains("holds no exercises"), "{error}");
    fs::create_dir_all(handed_in.path().join("src/program")).unwrap();
    let file = handed_in.path().join("src/program/softmax.rs");
    fs::write(&file, "fn leave() { std::process::exit(0) }").unwrap();
    let graded = grade().unwrap();
    assert_eq!((graded.passed, graded.begun), (0, 1));
    assert!(graded.page().contains("process::exit"), "{}", graded.page());
}

/// Two that wrote to one file would each read what the other's tests say.
#[test]
#[cfg(unix)]
fn two_tests_at_once_wait_for_each_other() {
    let (_temporary, folder) = practice();
    let log = folder.join("log");
    let line = format!("echo begun >> {log:?}; sleep 0.5; echo ended >> {log:?}; false");
    let begin = |name: &str| {
        let mut command = cargo_of(&folder, &line);
        command.args(["test", name]).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    let both = [begin("build_softmax"), begin("spread_of_scores")];
    for mut child in both {
        child.wait().unwrap();
    }
    assert_eq!(fs::read_to_string(log).unwrap(), "begun\nended\nbegun\nended\n");
}

/// The whole way, with a compiler: verdicts on a stub, on what does not compile, a wrong solution, an endless loop, and a right one; and a
/// grade that sees through changed tests.
#[test]
#[ignore = "`.ci/run slow`: compiles what nalgebra consists of"]
fn verdicts_and_grades_are_of_what_was_written() {
    let (_temporary, folder) = practice();
    // Where `cargo xtask exercises verify` has compiled the same crates.
    let shared = root().join("target/exercises/target");
    let settings = format!("[build]\ntarget-dir = {:?}\n", shared.to_str().unwrap());
    let path = folder.join(".cargo/config.toml");
    fs::write(&path, fs::read_to_string(&path).unwrap() + &settings).unwrap();
    let tasks = tasks();
    let task = tasks.iter().find(|task| task.name == "build_softmax").unwrap();
    let file = folder.join("src/program/softmax.rs");
    let with = |body: &str| {
        format!(
            "use super::Matrix;\npub fn softmax_rows(scores: &Matrix) -> Matrix {{ {body} }}\n\
             pub fn log_sum_exp_rows(scores: &Matrix) -> nalgebra::DVector<f64> {{ todo!() }}\n"
        )
    };
    let verdict = || said(&exercises(&folder, &["test", "build_softmax"]));

    let stub = verdict();
    assert!(stub.contains("there is still a todo!()"), "{stub}");
    fs::write(&file, task.wrong("columns")).unwrap();
    let wrong = verdict();
    assert!(
        wrong.contains("not down the columns") && !wrong.contains("panicked"),
        "{wrong}"
    );
    fs::write(&file, with("let mut a = scores.clone(); a *= scores; a")).unwrap();
    let place = verdict();
    assert!(place.contains("in src/program/softmax.rs, line 2: "), "{place}");
    assert!(place.contains("Two factors don't fit"), "{place}");
    fs::write(&file, "pub fn softmax_rows(").unwrap();
    assert!(verdict().contains("it doesn't compile"));
    fs::write(&file, task.solution()).unwrap();
    let right = verdict();
    assert!(right.contains("✓ build_softmax: all 6 tests pass"), "{right}");
    assert!(
        said(&exercises(&folder, &[])).contains(&format!("1 of {} done", tasks.len()))
    );

    let limits = Limits { time: std::time::Duration::from_secs(2), memory: 1024 };
    for (body, words) in [
        ("loop {}", "no end after 2 s"),
        ("vec![0_u8; 4 << 30]; scores.clone()", "than the 1024 MiB that it may take"),
        ("softmax_rows(scores) * 2.0", "the stack overflowed"),
        ("std::process::abort()", "stopped in the middle"),
    ] {
        fs::write(&file, with(body)).unwrap();
        match trial::of_task(&folder, task, limits).unwrap() {
            Outcome::Stopped { message } => {
                assert!(message.contains(words), "{body}: {message}")
            }
            other => panic!("{body}: {other:?}"),
        }
    }

    // A step needs those before it, and all of them are a program.
    fs::write(&file, task.stub()).unwrap();
    let steps: Vec<_> = tasks.iter().filter(|task| !task.program.is_empty()).collect();
    for step in &steps[1..] {
        fs::write(folder.join("src").join(step.file()), step.solution()).unwrap();
    }
    let early = said(&exercises(&folder, &["test", "attention"]));
    assert!(early.contains("in src/program/softmax.rs, line "), "{early}");
    assert!(early.contains("and this step needs that one"), "{early}");
    fs::write(&file, task.solution()).unwrap();
    let mut whole = trial::cargo(&folder);
    let whole = whole.args(["test", "--quiet", "--test", "program"]).output().unwrap();
    assert!(whole.status.success() && said(&whole).contains("4 passed"), "{whole:?}");
    for step in steps {
        fs::write(folder.join("src").join(step.file()), step.stub()).unwrap();
    }

    // A changed test gains nothing.
    fs::write(&file, task.wrong("columns")).unwrap();
    fs::write(folder.join("tests/build_softmax.rs"), "#[test] fn all_is_well() {}")
        .unwrap();
    let work = root().join("target/exercises/graded");
    let graded = grade(sources(), &folder, &work, Limits::default()).unwrap();
    assert_eq!((graded.passed, graded.begun), (0, 1));
    assert!(graded.page().contains("not down the columns"), "{}", graded.page());
}
