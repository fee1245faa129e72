//! A reader's folder: nothing that is there is overwritten, verdicts are in words, and grades are of untouched tests.

use exercises::folder::{Sources, create};
use exercises::grade::grade;
use exercises::task::{self, Task};
use exercises::trial::{self, Limits, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
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
    let file = folder.join("src/softmax_rows.rs");
    fs::write(&file, "// mine").unwrap();
    fs::write(folder.join("tests/softmax_rows.rs"), "// mine, too").unwrap();
    fs::remove_file(folder.join("AGENTS.md")).unwrap();
    let again = create(sources(), &folder, true).unwrap();
    assert_eq!(
        (again.written, again.kept),
        (1, vec!["tests/softmax_rows.rs".to_owned()])
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
    let source = fs::read_to_string(folder.join("tool/tasks/softmax_rows.rs")).unwrap();
    assert!(
        !source.contains("let mut weights = scores.clone()"),
        "the solution is there:\n{source}"
    );
    assert!(
        said(&exercises(&folder, &["hint", "softmax_rows"])).starts_with("Hint 1 of 3: ")
    );
    for with in tasks() {
        let path = folder.join(format!("tool/tasks/{}.rs", with.name));
        let text = fs::read_to_string(path).unwrap();
        let without = Task::parse(&with.name, &with.chapter, &text).unwrap();
        assert_eq!(without.stub(), with.stub());
        assert!(!text.contains("// FAULT") && !without.has_solution(), "{}", with.name);
    }
    let refused = exercises(&folder, &["solution", "softmax_rows", "--yes"]);
    assert!(!refused.status.success() && said(&refused).contains("without solutions"));
}

#[test]
fn the_list_hints_solution_and_reset_do_what_they_say() {
    let (_temporary, folder) = practice();
    let list = said(&exercises(&folder, &[]));
    assert!(
        list.contains("softmax_rows")
            && list.contains(&format!("0 of {} done", tasks().len())),
        "{list}"
    );
    exercises(&folder, &["hint", "softmax_rows"]);
    let two = said(&exercises(&folder.join("src"), &["hint", "softmax_rows"]));
    assert!(two.contains("Hint 2 of 3: ") && !two.contains("Hint 3"), "{two}");

    let asked = said(&exercises(&folder, &["solution", "softmax_rows"]));
    assert!(
        asked.contains("[y/N]") && !asked.contains("pub fn"),
        "without an answer it shows nothing: {asked}"
    );
    let solution = said(&exercises(&folder, &["solution", "softmax_rows", "--yes"]));
    assert!(
        solution.contains("pub fn softmax_rows") && !solution.contains("FAULT"),
        "{solution}"
    );

    let file = folder.join("src/softmax_rows.rs");
    for (number, mine) in [(1, "// first"), (2, "// second")] {
        fs::write(&file, mine).unwrap();
        exercises(&folder, &["reset", "softmax_rows"]);
        let kept = folder.join(format!("kept/softmax_rows.{number}.rs"));
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
    let task = tasks.iter().find(|task| task.name == "softmax_rows").unwrap();
    let file = folder.join("src/softmax_rows.rs");
    let with = |body: &str| {
        format!(
            "use nalgebra::DMatrix;\npub fn softmax_rows(scores: &DMatrix<f64>) -> DMatrix<f64> {{ {body} }}\n"
        )
    };
    let verdict = || said(&exercises(&folder, &["test", "softmax_rows"]));

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
    assert!(place.contains("in src/softmax_rows.rs, line 2: "), "{place}");
    assert!(place.contains("Two factors don't fit"), "{place}");
    fs::write(&file, "pub fn softmax_rows(").unwrap();
    assert!(verdict().contains("it doesn't compile"));
    fs::write(&file, task.solution()).unwrap();
    let right = verdict();
    assert!(right.contains("✓ softmax_rows: all 4 tests pass"), "{right}");
    assert!(
        said(&exercises(&folder, &[])).contains(&format!("1 of {} done", tasks.len()))
    );

    let limits = Limits { time: std::time::Duration::from_secs(2), memory: 1024 };
    for (body, words) in [
        ("loop {}", "no end after 2 s"),
        ("vec![0_u8; 4 << 30]; scores.clone()", "more than 1024 MiB of memory"),
        ("softmax_rows(scores) * 2.0", "the stack overflowed"),
        ("std::process::exit(0)", "stopped in the middle"),
    ] {
        fs::write(&file, with(body)).unwrap();
        match trial::of_task(&folder, task, limits).unwrap() {
            Outcome::Stopped { message } => {
                assert!(message.contains(words), "{body}: {message}")
            }
            other => panic!("{body}: {other:?}"),
        }
    }

    // A changed test gains nothing.
    fs::write(&file, task.wrong("columns")).unwrap();
    fs::write(folder.join("tests/softmax_rows.rs"), "#[test] fn all_is_well() {}")
        .unwrap();
    let work = root().join("target/exercises/graded");
    let graded = grade(sources(), &folder, &work, Limits::default()).unwrap();
    assert_eq!((graded.passed, graded.begun), (0, 1));
    assert!(graded.page().contains("not down the columns"), "{}", graded.page());
}
