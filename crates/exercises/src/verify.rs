//! Proves the tasks: each solution passes, each stub fails, and each planted fault is caught in the words that it names.
//!
//! All variants of all tasks are modules of one crate, so that the compiler runs once.

use crate::files::lock;
use crate::practice::TOLD;
use crate::task::Task;
use crate::trial::{self, Failure};
use anyhow::{Result, bail, ensure};
use fs_err as fs;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Verifies tasks in a crate that is made in `folder`. It uses `attention`, the folder of that crate, and cargo as `cargo` starts it.
/// Prints a line for each task.
///
/// # Errors
///
/// If something does not compile, or a task fails; with all that is wrong.
pub fn verify(tasks: &[Task], attention: &Path, folder: &Path) -> Result<()> {
    let _turn = lock(&folder.join("lock"))?;
    write(tasks, attention, folder)?;
    let mut build = trial::cargo(folder);
    build.args(["test", "--quiet", "--no-run", "--lib"]);
    let program = trial::compile(&mut build)?
        .map_err(|message| anyhow::anyhow!("a variant does not compile:\n{message}"))?;
    let mut tests = Command::new(&program);
    tests.env("RUST_BACKTRACE", "0").env_remove(trial::NO_CAPTURE).current_dir(folder);
    let output = tests.output()?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let ran = ran(&output);
    ensure!(
        output.contains("test result: "),
        "the tests stopped in the middle:\n{output}"
    );
    let failures = trial::failures(&output);
    let mut wrong = vec![];
    for task in tasks {
        let (line, complaints) = judge(task, &ran, &failures);
        println!("{line}");
        wrong.extend(complaints);
    }
    let faults: usize = tasks.iter().map(|task| task.faults.len()).sum();
    println!("{} tasks, {faults} planted faults", tasks.len());
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// The name of the module with a fault.
fn module(fault: &str) -> String {
    format!("fault_{}", fault.replace('-', "_"))
}

/// Writes the crate.
fn write(tasks: &[Task], attention: &Path, folder: &Path) -> Result<()> {
    let sources = folder.join("src");
    if sources.exists() {
        fs::remove_dir_all(&sources)?;
    }
    fs::create_dir_all(&sources)?;
    let attention = fs::canonicalize(attention)?;
    let program = attention.join("src/plain").to_string_lossy().into_owned();
    let manifest = crate::folder::manifest("variants", &attention.to_string_lossy(), "");
    fs::write(folder.join("Cargo.toml"), manifest)?;
    crate::folder::share_target(folder)?;
    let mut library =
        String::from("#![allow(dead_code, unused, unreachable_code, clippy::all)]\n");
    for task in tasks {
        let path = sources.join(&task.name);
        fs::create_dir_all(&path)?;
        let mut modules = vec![
            ("solution".to_owned(), task.solution()),
            ("stub".to_owned(), task.stub()),
        ];
        modules.extend(
            task.faults
                .iter()
                .map(|fault| (module(&fault.name), task.wrong(&fault.name))),
        );
        let mut parent = String::new();
        for (name, code) in modules {
            fs::write(path.join(format!("{name}_code.rs")), code)?;
            // The tests see of it what they see in a reader's folder.
            let tests = task.test_file(&program, &format!("{name}_code.rs"));
            fs::write(path.join(format!("{name}.rs")), tests)?;
            parent.push_str(&format!("#[cfg(test)]\nmod {name};\n"));
        }
        fs::write(path.join("mod.rs"), parent)?;
        library.push_str(&format!("mod {};\n", task.name));
    }
    fs::write(sources.join("lib.rs"), library)?;
    Ok(())
}

/// Which tests ran, and whether they passed.
fn ran(output: &str) -> BTreeMap<String, bool> {
    let lines = output.lines().filter_map(|line| {
        let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
        // With `#[should_panic]` the name has an addition.
        let name = name.split(" - ").next()?;
        Some((name.to_owned(), verdict.starts_with("ok")))
    });
    lines.collect()
}

/// A line on a task, and what is wrong with it.
fn judge(
    task: &Task,
    ran: &BTreeMap<String, bool>,
    failures: &[Failure],
) -> (String, Vec<String>) {
    let name = &task.name;
    let of = |variant: &str| {
        let prefix = format!("{name}::{variant}::");
        let mut tests = ran.iter().filter(|(test, _)| test.starts_with(&prefix));
        let count = tests.clone().count();
        (count, tests.all(|(_, passed)| *passed))
    };
    // As much as a reader is told.
    let said = |variant: &str| {
        let prefix = format!("{name}::{variant}::");
        let own = failures.iter().filter(|failure| failure.test.starts_with(&prefix));
        let mut own: Vec<_> = own.cloned().collect();
        trial::sort(&mut own, task);
        let told = own.iter().take(TOLD).map(|failure| failure.message.as_str());
        told.collect::<Vec<_>>().join("\n")
    };
    let mut wrong = vec![];
    let (count, passes) = of("solution");
    if count == 0 || !passes {
        wrong.push(format!(
            "{name}: the solution fails ({count} tests): {}",
            said("solution")
        ));
    }
    if of("stub").1 {
        wrong.push(format!("{name}: the stub passes"));
    }
    for code in [task.solution(), task.stub()] {
        if let Some(refusal) = task.refusal(&code) {
            wrong.push(format!("{name}: the solution or its stub is refused: {refusal}"));
        }
    }
    let mut caught = vec![];
    for fault in &task.faults {
        let variant = module(&fault.name);
        let refusal = task.refusal(&task.wrong(&fault.name));
        let said = refusal.clone().unwrap_or_else(|| said(&variant));
        if refusal.is_none() && of(&variant).1 {
            wrong.push(format!("{name}: the tests pass with the fault `{}`", fault.name));
        } else if !said.contains(&fault.words) {
            wrong.push(format!(
                "{name}: with the fault `{}` the tests do not say `{}`, but:\n{said}",
                fault.name, fault.words
            ));
        } else {
            caught.push(fault.name.as_str());
        }
    }
    let state = if wrong.is_empty() { "ok" } else { "WRONG" };
    let solution = if passes { "passes" } else { "FAILS" };
    let stub = if of("stub").1 { "PASSES" } else { "fails" };
    let caught = caught.join(", ");
    let line = format!(
        "{state:<6}{name:<28} solution {solution} {count}, stub {stub}, caught: {caught}"
    );
    (line, wrong)
}
