//! The commands in a reader's folder.

use crate::files::{lock, read_if_there, write};
use crate::folder::is_practice;
use crate::task::{self, Task};
use crate::trial::{self, Failure, Limits, Outcome};
use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use fs_err as fs;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// What a reader can ask for.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// The exercises, and which of them are done
    List,
    /// Run an exercise's tests whenever its file is saved
    Watch,
    /// Run the tests of an exercise, or of all that have begun to differ from their stubs
    Test {
        /// The exercise
        name: Option<String>,
    },
    /// Show the next of three hints
    Hint {
        /// The exercise
        name: String,
    },
    /// Show a solution, after asking
    Solution {
        /// The exercise
        name: String,
        /// Don't ask
        #[arg(long)]
        yes: bool,
    },
    /// Put the stub back; what you wrote is kept in `kept/`
    Reset {
        /// The exercise
        name: String,
    },
}

/// Does what is asked for, in the folder of exercises that we are in. Returns whether all is well.
///
/// # Errors
///
/// If we are in no folder of exercises, there is no exercise of that name, or a file cannot be read or written.
pub fn practise(command: Command) -> Result<bool> {
    let here = std::env::current_dir()?;
    let folder = here.ancestors().find(|folder| is_practice(folder));
    let folder = folder.context("there are no exercises in this folder, or above it: `cargo xtask exercises new FOLDER` makes one")?;
    let practice = Practice::open(folder)?;
    match command {
        Command::List => practice.list(),
        Command::Watch => practice.watch(),
        Command::Test { name: Some(name) } => {
            let task = practice.named(&name)?;
            practice.test(task)
        }
        Command::Test { name: None } => practice.test_begun(),
        Command::Hint { name } => practice.hint(&name),
        Command::Solution { name, yes } => practice.solution(&name, yes),
        Command::Reset { name } => practice.reset(&name),
    }
}

/// How many tests that fail are told in full.
pub const TOLD: usize = 3;

/// What is remembered in `progress.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Progress {
    /// The exercises that have passed.
    passed: BTreeSet<String>,
    /// How many hints of an exercise were shown.
    hints: BTreeMap<String, usize>,
}

/// A folder of exercises.
struct Practice {
    folder: PathBuf,
    tasks: Vec<Task>,
}

impl Practice {
    fn open(folder: &Path) -> Result<Self> {
        let tasks = task::read_all(&folder.join("tool/tasks"))?;
        Ok(Practice { folder: folder.to_owned(), tasks })
    }

    fn named(&self, name: &str) -> Result<&Task> {
        let found = self.tasks.iter().find(|task| task.is_named(name));
        found.with_context(|| {
            format!("there is no exercise `{name}`: `cargo exercises list` shows all")
        })
    }

    fn file(&self, task: &Task) -> PathBuf {
        self.folder.join("src").join(task.file())
    }

    fn progress(&self) -> Result<Progress> {
        let path = self.folder.join("progress.json");
        let Some(text) = read_if_there(&path)? else { return Ok(Progress::default()) };
        serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} cannot be read: mend it, or delete it to begin anew",
                path.display()
            )
        })
    }

    /// Changes what is remembered, which another command may change at the same time.
    fn remember(&self, change: impl FnOnce(&mut Progress)) -> Result<Progress> {
        let _turn = lock(&self.folder.join("target/progress.lock"))?;
        let mut progress = self.progress()?;
        change(&mut progress);
        let text = serde_json::to_string_pretty(&progress)? + "\n";
        write(&self.folder.join("progress.json"), text)?;
        Ok(progress)
    }

    fn list(&self) -> Result<bool> {
        let passed = self.progress()?.passed;
        let mut chapter = "";
        for task in &self.tasks {
            if task.chapter != chapter {
                chapter = &task.chapter;
                println!("\n{chapter}");
            }
            let done = if passed.contains(&task.name) { "✓" } else { "·" };
            let Task { name, title, minutes, .. } = task;
            println!(
                "  {done} {name:<28} {:<8} {minutes:>3} min  {title}",
                task.level.name()
            );
        }
        let done = self.tasks.iter().filter(|task| passed.contains(&task.name)).count();
        println!(
            "\n{done} of {} done. {}",
            self.tasks.len(),
            self.next_step(&passed, None)
        );
        Ok(true)
    }

    /// The next exercise that is open, behind `last` if there is one.
    fn next_step(&self, passed: &BTreeSet<String>, last: Option<&Task>) -> String {
        let at = self
            .tasks
            .iter()
            .position(|task| last.is_some_and(|last| last.name == task.name));
        let (before, behind) = self.tasks.split_at(at.unwrap_or(0));
        match behind.iter().chain(before).find(|task| !passed.contains(&task.name)) {
            Some(task) => format!(
                "Next: src/{} ({}, {} minutes)",
                task.file(),
                task.level.name(),
                task.minutes
            ),
            None => "All are done.".to_owned(),
        }
    }

    /// Runs the tests of a task, says what came of it, and remembers it.
    fn test(&self, task: &Task) -> Result<bool> {
        let begun = Instant::now();
        let name = &task.name;
        ensure!(
            self.file(task).exists(),
            "there is no src/{}: `cargo exercises reset {name}` writes the stub again",
            task.file()
        );
        let outcome = trial::of_task(&self.folder, task, Limits::default())?;
        let has_passed = outcome.has_passed();
        let progress = self.remember(|progress| {
            if has_passed {
                progress.passed.insert(name.clone());
            } else {
                progress.passed.remove(name);
            }
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("{}", verdict(task, &outcome));
        if has_passed {
            println!("{} ({seconds:.1} s)", self.next_step(&progress.passed, Some(task)));
        } else {
            println!("Stuck? cargo exercises hint {name} ({seconds:.1} s)");
        }
        Ok(has_passed)
    }

    fn test_begun(&self) -> Result<bool> {
        let (mut begun, mut all_pass) = (0, true);
        for task in &self.tasks {
            if read_if_there(&self.file(task))?.is_some_and(|text| !task.is_stub(&text)) {
                begun += 1;
                all_pass &= self.test(task)?;
            }
        }
        if begun == 0 {
            println!(
                "No exercise has been begun. {}",
                self.next_step(&self.progress()?.passed, None)
            );
        }
        Ok(all_pass)
    }

    /// Looks at the times of the files, which works on any file system, five times a second.
    fn watch(&self) -> Result<bool> {
        let saved =
            |task: &Task| fs::metadata(self.file(task)).and_then(|it| it.modified()).ok();
        let mut seen: Vec<Option<SystemTime>> = self.tasks.iter().map(saved).collect();
        println!("{}", self.next_step(&self.progress()?.passed, None));
        println!("Waiting for you to save a file in src/. Ctrl+C ends it.");
        loop {
            for (task, seen) in self.tasks.iter().zip(&mut seen) {
                let now = saved(task);
                if now != *seen && now.is_some() {
                    *seen = now;
                    println!("\n── {} ──", task.name);
                    self.test(task)?;
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn hint(&self, name: &str) -> Result<bool> {
        let task = self.named(name)?;
        let (mut count, mut were_all) = (0, false);
        self.remember(|progress| {
            let shown = progress.hints.entry(task.name.clone()).or_default();
            were_all = *shown == task.hints.len();
            *shown = (*shown + 1).min(task.hints.len());
            count = *shown;
        })?;
        for (index, hint) in task.hints.iter().take(count).enumerate() {
            println!("Hint {} of {}: {hint}\n", index + 1, task.hints.len());
        }
        if were_all {
            println!(
                "These are all. The chapter says more, and so does each message of a test."
            );
        }
        Ok(true)
    }

    fn solution(&self, name: &str, yes: bool) -> Result<bool> {
        let task = self.named(name)?;
        ensure!(
            task.has_solution(),
            "this folder comes without solutions: ask the person who gave it to you"
        );
        if !yes
            && !asked(&format!(
                "Show a solution of {}? It is worth more to find it. [y/N] ",
                task.name
            ))?
        {
            return Ok(true);
        }
        println!("{}", task.solution());
        Ok(true)
    }

    fn reset(&self, name: &str) -> Result<bool> {
        let task = self.named(name)?;
        let file = self.file(task);
        if let Some(text) = read_if_there(&file)? {
            if task.is_stub(&text) {
                println!("src/{} is as it was", task.file());
                return Ok(true);
            }
            let kept = self.folder.join("kept");
            fs::create_dir_all(&kept)?;
            let free = (1..)
                .map(|number| kept.join(format!("{}.{number}.rs", task.name)))
                .find(|it| !it.exists());
            let Some(free) = free else {
                bail!("there is no free name in {}", kept.display())
            };
            fs::rename(&file, &free)?;
            println!(
                "What you wrote is now {}",
                free.strip_prefix(&self.folder)?.display()
            );
        }
        write(&file, task.stub())?;
        self.remember(|progress| {
            progress.passed.remove(&task.name);
        })?;
        println!("src/{} is the stub again", task.file());
        Ok(true)
    }
}

/// What came of a run, in words.
fn verdict(task: &Task, outcome: &Outcome) -> String {
    let (name, file) = (&task.name, task.file());
    match outcome {
        Outcome::Passed { passed } => format!("✓ {name}: all {passed} tests pass"),
        Outcome::Failed { passed, failures } => {
            let all = passed + failures.len();
            // An open place in another file is one of an earlier step, and is told.
            let is_open = |failure: &Failure| {
                failure.message.starts_with(&format!("in src/{file}, "))
                    && failure.message.contains("not yet implemented")
            };
            let mut told = failures.iter().filter(|failure| !is_open(failure)).peekable();
            if told.peek().is_none() {
                return format!("· {name}: there is still a todo!() in src/{file}");
            }
            let mut text = format!("✗ {name}: {passed} of {all} tests pass");
            for failure in told.by_ref().take(TOLD) {
                let test = failure.test.replace('_', " ");
                let message = failure.message.replace('\n', "\n    ");
                let message = message.replace(
                    "not yet implemented",
                    "not yet implemented, and this step needs that one",
                );
                text.push_str(&format!("\n  {test}:\n    {message}"));
            }
            let more: Vec<_> =
                told.map(|failure| failure.test.replace('_', " ")).collect();
            if !more.is_empty() {
                text.push_str(&format!("\n  and: {}", more.join(", ")));
            }
            if failures.iter().any(is_open) {
                text.push_str(&format!("\n  There is a todo!() left in src/{file}."));
            }
            text
        }
        Outcome::DoesNotCompile { message } => {
            format!("✗ {name}: it doesn't compile\n\n{message}\n")
        }
        Outcome::Refused { message } | Outcome::Stopped { message } => {
            format!("✗ {name}: {message}")
        }
    }
}

fn asked(question: &str) -> Result<bool> {
    print!("{question}");
    io::stdout().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
