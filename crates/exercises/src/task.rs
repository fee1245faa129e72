//! A task: one file, from which come the stub, the tests, three hints, the solution, and wrong solutions.
//!
//! The file is Rust that compiles: the solution and its tests. Comments mark the rest.
//!
//! ```text
//! //! # The title
//! //!
//! //! easy, 10 minutes
//! //!
//! //! What to do.
//! //!
//! //! # Hint
//! //!
//! //! The first of three.
//!
//! pub fn total(numbers: &[f64]) -> f64 {
//!     // SOLUTION
//!     // FAULT first-left-out: is the first number part of the sum?
//!     // > numbers[1..].iter().sum()
//!     numbers.iter().sum()
//!     // END
//! }
//!
//! #[cfg(test)]
//! mod tests { … }
//! ```
//!
//! - What stands between `SOLUTION` and `END` is `todo!()` in the stub, or what follows behind `SOLUTION:`. Outside of
//!   functions it is nothing.
//! - `FAULT name: words` plants a fault: in the solution with this fault, the lines behind `>` stand in place of the next line, or
//!   nothing does. `FAULT name` without words plants more of it elsewhere. The tests have to fail, and say these words in one of
//!   the first three that do. A line that is replaced is one line, so it has to fit into what rustfmt leaves whole.
//! - `easy, 10 minutes, without `.exp` `f64`` names words that a solution must not contain. A fault that does is caught by them.
//! - Failures are told in the order of the tests, so what is simplest comes first.
//!
//! A file `build_NAME.rs` has no code of its own but a file of the program that the book builds, [`compose`]d into it: each body is a
//! solution. It lists the files that its tests compile, the reader's own among them the last, and its faults name the line to be replaced:
//!
//! ```text
//! use attention::plain::*;
//! // PROGRAM softmax scores
//! // FAULT not-scaled: divided by √d_k
//! // - q * k.transpose() / (q.ncols() as f64).sqrt()
//! // > q * k.transpose()
//! ```

use crate::code::line_with;
use crate::files::{is_leftover, same_lines};
use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;
use std::fmt::Write;
use std::path::Path;

/// How much a task asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// One idea of the chapter, applied.
    Easy,
    /// Two ideas, or one with a trap.
    Medium,
    /// A page of paper first.
    Hard,
    /// An evening.
    Project,
}

impl Level {
    /// Its name, as in the task's file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Easy => "easy",
            Level::Medium => "medium",
            Level::Hard => "hard",
            Level::Project => "project",
        }
    }
}

/// A wrong solution, which the tests have to catch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A name for it.
    pub name: String,
    /// What the tests have to say.
    pub words: String,
}

/// A task, as its file has it.
#[derive(Debug, Clone)]
pub struct Task {
    /// The name of its file, without the ending.
    pub name: String,
    /// The chapter that it belongs to, by the name of its page.
    pub chapter: String,
    /// Its title.
    pub title: String,
    /// How much it asks for.
    pub level: Level,
    /// About how long it takes.
    pub minutes: usize,
    /// Words that must not stand in a solution.
    pub without: Vec<String>,
    /// What to do, in Markdown.
    pub text: String,
    /// Three hints, in Markdown.
    pub hints: Vec<String>,
    /// The wrong solutions.
    pub faults: Vec<Fault>,
    /// The files of the reader's program that its tests compile, the last of which is to be written; for most tasks none.
    pub program: Vec<String>,
    /// The code between the text and the tests, with its marks.
    code: String,
    /// The body of the module of tests.
    tests: String,
}

/// What stands in a file from which the solution was taken out.
const LEFT_OUT: &str = "// (left out)";

/// The list of the tasks by chapter, beside them.
pub const ORDER: &str = "order.txt";

/// Reads all tasks of a folder, in the order of its [`ORDER`].
///
/// # Errors
///
/// If a file cannot be read, is not listed, or is not made as the module says.
pub fn read_all(folder: &Path) -> Result<Vec<Task>> {
    let mut tasks = vec![];
    for line in fs::read_to_string(folder.join(ORDER))?.lines() {
        let (chapter, names) = line
            .split_once(": ")
            .with_context(|| format!("{ORDER}: `{line}` is not `chapter: task task`"))?;
        for name in names.split_whitespace() {
            let task = source(folder, name)
                .and_then(|source| Task::parse(name, chapter, &source));
            tasks.push(task.with_context(|| format!("the task {name}.rs"))?);
        }
    }
    for entry in fs::read_dir(folder)? {
        let file = entry?.file_name();
        let name = file.to_string_lossy();
        if let Some(name) = name.strip_suffix(".rs").filter(|_| !is_leftover(&file)) {
            ensure!(
                tasks.iter().any(|task| task.name == name),
                "{ORDER} does not list the task `{name}`"
            );
        }
    }
    Ok(tasks)
}

/// What the names of modules begin with that are files of a program: a test's name has it nowhere.
const STEP: &str = "program_file_";

/// The mark before the files of a program.
const PROGRAM: &str = "// PROGRAM ";

/// The text of a task's file, with the code of the program in it.
///
/// # Errors
///
/// If a file cannot be read, or a fault is not in the program.
pub fn source(folder: &Path, name: &str) -> Result<String> {
    let source = fs::read_to_string(folder.join(format!("{name}.rs")))?;
    if !name.starts_with(BUILD) || source.contains("// SOLUTION") {
        return Ok(source);
    }
    let files = source.lines().find_map(|line| line.strip_prefix(PROGRAM));
    let file = files.and_then(|files| files.rsplit(' ').next());
    let file = file.with_context(|| format!("it has no `{PROGRAM}`"))?;
    // Beside the tasks in the book, and in a reader's folder.
    let program = folder.join(format!("../../attention/src/plain/{file}.rs"));
    compose(&source, &fs::read_to_string(program)?)
}

/// What the names of tasks begin with that build the program.
const BUILD: &str = "build_";

/// Puts a file of the program into the text of a task: its bodies become solutions, and the faults stand above their lines.
///
/// # Errors
///
/// If a fault names no line of the program, or more than one.
pub fn compose(source: &str, program: &str) -> Result<String> {
    let is_code = |line: &&str| !line.trim_start().starts_with("// ANCHOR");
    let mut lines: Vec<String> =
        program.lines().filter(is_code).map(str::to_owned).collect();
    enclose_bodies(&mut lines);
    let (head, rest) =
        source.split_once(PROGRAM).with_context(|| format!("it has no `{PROGRAM}`"))?;
    // Without what the tests of the book's own program use.
    let head = head.trim_end().rsplit_once("\n\n").map_or(head, |(head, _)| head);
    let (files, rest) = rest.split_once('\n').unwrap_or_default();
    let (marks, tests) = rest
        .split_once("#[cfg(test)]\n")
        .context("it has no `#[cfg(test)] mod tests`")?;
    let mut marks = marks.lines().peekable();
    while let Some(mark) = marks.next() {
        let Some(fault) = mark.strip_prefix("// FAULT ") else { continue };
        let mut following = |start: &str| {
            let mut found: Vec<&str> = vec![];
            while let Some(line) = marks.peek().and_then(|it| it.strip_prefix(start)) {
                found.push(line.trim());
                marks.next();
            }
            found
        };
        let (old, new) = (following("// - "), following("// > "));
        // Marks that were set before stand between the lines.
        let code: Vec<_> = (0..lines.len()).filter(|&at| !is_mark(&lines[at])).collect();
        let mut places = code.windows(old.len().max(1)).filter(|places| {
            let mut pairs = places.iter().zip(&old);
            !old.is_empty() && pairs.all(|(&at, old)| lines[at].trim() == *old)
        });
        let (place, others) = (places.next(), places.count());
        let name = fault.split(':').next().unwrap_or_default();
        let place = place.filter(|_| others == 0).with_context(|| {
            format!(
                "the lines of the fault `{name}` stand {} times in the program",
                if place.is_some() { others + 1 } else { 0 }
            )
        })?;
        let at = place[place.len() - 1];
        // Above the faults of the same line, but inside of the body.
        let is_above =
            |above: &usize| is_mark(&lines[*above]) && !is_edge(&lines[*above]);
        let at = (0..at).rev().take_while(is_above).last().unwrap_or(at);
        let line = &lines[place[place.len() - 1]];
        let indent = line[..line.len() - line.trim_start().len()].to_owned();
        let mut planted = vec![format!("{indent}// FAULT {fault}")];
        planted.extend(new.iter().map(|line| format!("{indent}// > {line}")));
        lines.splice(at..at, planted);
    }
    Ok(format!(
        "{head}\n\n{PROGRAM}{files}\n{}\n\n#[cfg(test)]\n{tests}",
        lines.join("\n").trim()
    ))
}

/// Whether a line is a mark of a body's edge.
fn is_edge(line: &str) -> bool {
    line.trim_start().starts_with("// SOLUTION") || line.trim() == "// END"
}

/// Whether a line is a mark.
fn is_mark(line: &str) -> bool {
    let begins = |mark: &&str| line.trim_start().starts_with(*mark);
    is_edge(line) || ["// FAULT ", "// >"].iter().any(begins)
}

/// Marks the body of each function as a solution.
fn enclose_bodies(lines: &mut Vec<String>) {
    let mut at = 0;
    while at < lines.len() {
        let code = lines[at].trim_start();
        if code.starts_with("fn ") || code.starts_with("pub fn ") {
            let indent = lines[at][..lines[at].len() - code.len()].to_owned();
            let opens = (at..lines.len()).find(|&line| lines[line].ends_with('{'));
            let Some(opens) = opens else { return };
            let signature = lines[at..=opens].join(" ");
            // A place of type `impl Trait` takes no `todo!()`.
            let instead = if signature.contains("-> impl Fn(") {
                ": |_, _| todo!()"
            } else if signature.contains("-> impl Iterator") {
                ": std::iter::once_with(|| todo!())"
            } else {
                ""
            };
            let end = format!("{indent}}}");
            let closes = (opens..lines.len()).find(|&line| lines[line] == end);
            let Some(closes) = closes else { return };
            lines.insert(closes, format!("{indent}    // END"));
            lines.insert(opens + 1, format!("{indent}    // SOLUTION{instead}"));
            at = closes + 2;
        }
        at += 1;
    }
}

impl Task {
    /// Reads a task from the text of its file.
    ///
    /// # Errors
    ///
    /// If the text is not made as the module says.
    pub fn parse(name: &str, chapter: &str, source: &str) -> Result<Self> {
        let (head, rest): (Vec<&str>, Vec<&str>) = {
            let lines: Vec<_> = source.lines().collect();
            let end = lines
                .iter()
                .position(|line| !line.starts_with("//!"))
                .unwrap_or(lines.len());
            (lines[..end].to_vec(), lines[end..].to_vec())
        };
        let text = head
            .iter()
            .map(|line| {
                line.strip_prefix("//! ").unwrap_or(line.trim_start_matches("//!"))
            })
            .collect::<Vec<_>>()
            .join("\n");
        let mut parts = text.split("\n# Hint\n").map(|part| part.trim().to_owned());
        let first = parts.next().unwrap_or_default();
        let hints: Vec<_> = parts.collect();
        ensure!(hints.len() == 3, "it has {} hints, not three", hints.len());
        let mut paragraphs = first.splitn(3, "\n\n");
        let mut next =
            |what| paragraphs.next().with_context(|| format!("it has no {what}"));
        let title = next("title")?
            .strip_prefix("# ")
            .context("it does not begin with `# ` and a title")?;
        let (level, minutes, without) = demands(next("level")?)?;
        let text = next("text")?;

        let rest = rest.join("\n");
        let (code, tests) = rest
            .split_once("\n#[cfg(test)]\nmod tests {\n")
            .context("it has no `#[cfg(test)] mod tests`")?;
        let tests =
            tests.trim_end().strip_suffix("\n}").context("code follows the tests")?;
        let faults = faults(code)?;
        ensure!(
            faults.len() >= 2 || code.contains(LEFT_OUT),
            "it has {} faults; two at least are asked for",
            faults.len()
        );
        ensure!(code.contains("// SOLUTION"), "it has no `// SOLUTION`");
        let (program, code) = match code.trim().strip_prefix(PROGRAM) {
            Some(rest) => rest.split_once('\n').unwrap_or_default(),
            None => ("", code),
        };
        Ok(Task {
            name: name.to_owned(),
            chapter: chapter.to_owned(),
            title: title.to_owned(),
            level,
            minutes,
            without,
            text: text.to_owned(),
            hints,
            faults,
            program: program.split_whitespace().map(str::to_owned).collect(),
            code: code.trim().to_owned(),
            tests: tests.to_owned(),
        })
    }

    /// The reader's file: what to do, and the code without the solution.
    #[must_use]
    pub fn stub(&self) -> String {
        let mut lines = vec![];
        let mut inside = false;
        for line in self.code.lines() {
            let indent = &line[..line.len() - line.trim_start().len()];
            if let Some(instead) = line.trim_start().strip_prefix("// SOLUTION") {
                inside = true;
                let instead = instead.trim_start_matches(':').trim();
                match (instead, indent) {
                    ("", "") => {}
                    ("", _) => lines.push(format!("{indent}todo!()")),
                    (instead, _) => lines.push(format!("{indent}{instead}")),
                }
            } else if line.trim() == "// END" {
                inside = false;
            } else if !inside {
                lines.push(line.to_owned());
            }
        }
        format!("{}\n{}", self.head(), tidy(&lines))
    }

    /// The solution, without marks.
    #[must_use]
    pub fn solution(&self) -> String {
        self.variant(None)
    }

    /// The solution with the fault of this name, if there is one.
    #[must_use]
    pub fn wrong(&self, fault: &str) -> String {
        self.variant(Some(fault))
    }

    /// Whether the file has a solution: a teacher may hand out files without.
    #[must_use]
    pub fn has_solution(&self) -> bool {
        !self.code.contains(LEFT_OUT)
    }

    /// The task's file for a folder that has no solutions: with the text, the hints and the tests, and the same stub.
    #[must_use]
    pub fn without_solution(source: &str) -> String {
        let mut kept = vec![];
        let mut inside = false;
        for line in source.lines() {
            let mark = line.trim_start();
            if mark == "// END" {
                inside = false;
                kept.push(format!("{}{LEFT_OUT}", &line[..line.len() - mark.len()]));
            }
            if !inside {
                kept.push(line.to_owned());
            }
            inside |= mark.starts_with("// SOLUTION");
        }
        kept.join("\n") + "\n"
    }

    /// What is wrong with code that has words in it that must not be there, if it has.
    #[must_use]
    pub fn refusal(&self, code: &str) -> Option<String> {
        let file = self.file();
        for (words, why) in NEVER {
            if let Some(line) = line_with(code, words, true) {
                return Some(format!("src/{file}, line {line}, has `{words}`: {why}"));
            }
        }
        for words in &self.without {
            if let Some(line) = line_with(code, words, false) {
                return Some(format!(
                    "src/{file}, line {line}, has `{words}`: this exercise asks you to do without it"
                ));
            }
        }
        None
    }

    /// The reader's file, from `src/`.
    #[must_use]
    pub fn file(&self) -> String {
        match self.program.last() {
            Some(file) => format!("program/{file}.rs"),
            None => format!("{}.rs", self.name),
        }
    }

    /// Whether this is still the stub.
    #[must_use]
    pub fn is_stub(&self, text: &[u8]) -> bool {
        same_lines(text, self.stub().as_bytes())
    }

    /// The names of the tests, in the order in which they are written.
    pub fn test_names(&self) -> impl Iterator<Item = &str> {
        let tests = self.tests.split("#[test]\n").skip(1);
        tests.filter_map(|test| test.split_once("fn ")?.1.split('(').next())
    }

    /// The tests, as a file that is compiled with the reader's. `program` is where those of the program are, and `own` the one to be tested.
    #[must_use]
    pub fn test_file(&self, program: &str, own: &str) -> String {
        let name = &self.name;
        let mut text =
            format!("//! The tests of {own}. Read them, and leave them as they are.\n\n");
        let mut module = |name: &str, path: &str| {
            // Writing to a text can't fail.
            let _ = write!(
                text,
                "#[allow(dead_code, unused, unreachable_code, private_interfaces)]\n#[path = \"{path}\"]\nmod {name};\nuse {name}::*;\n"
            );
        };
        match self.program.split_last() {
            Some((last, others)) => {
                for file in others {
                    module(&format!("{STEP}{file}"), &format!("{program}/{file}.rs"));
                }
                module(&format!("{STEP}{last}"), own);
                text += "type Matrix = nalgebra::DMatrix<f64>;\n";
            }
            None => module(name, own),
        }
        let tests =
            self.tests.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
        let lines: Vec<_> = text
            .lines()
            .chain(tests.filter(|line| *line != "use super::*;"))
            .map(str::to_owned)
            .collect();
        tidy(&lines)
    }

    /// Whether this task is named so, or its file.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let name = name.trim_end_matches(".rs").replace('-', "_");
        let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
        self.name == name || self.program.last().is_some_and(|file| file == name)
    }

    /// What the names of the tests begin with that a reader has written, which don't count.
    pub(crate) fn not_counted(&self) -> String {
        if self.program.is_empty() { format!("{}::", self.name) } else { STEP.to_owned() }
    }

    /// What to do, as documentation of a module.
    fn head(&self) -> String {
        let Task { title, level, minutes, text, name, .. } = self;
        let level = level.name();
        let mut without = String::new();
        for words in &self.without {
            without += if without.is_empty() { ", without " } else { " " };
            without += &format!("`{words}`");
        }
        let text = format!(
            "# {title}\n\n{level}, {minutes} minutes{without}\n\n{text}\n\nStuck? `cargo exercises hint {name}`"
        );
        text.lines()
            .map(|line| format!("//! {line}").trim_end().to_owned() + "\n")
            .collect()
    }

    fn variant(&self, fault: Option<&str>) -> String {
        let mut kept = vec![];
        let mut lines = self.code.lines().peekable();
        while let Some(line) = lines.next() {
            let mark = line.trim_start();
            if let Some(rest) = mark.strip_prefix("// FAULT ") {
                let name = rest.split(':').next().unwrap_or_default().trim();
                let indent = &line[..line.len() - mark.len()];
                let mut instead = vec![];
                while let Some(next) =
                    lines.peek().and_then(|next| next.trim_start().strip_prefix("// >"))
                {
                    instead.push(format!(
                        "{indent}{}",
                        next.strip_prefix(' ').unwrap_or(next)
                    ));
                    lines.next();
                }
                if fault == Some(name) {
                    // Other faults of this line stand between.
                    while lines.peek().is_some_and(|next| {
                        next.trim_start().starts_with("// FAULT ")
                            || next.trim_start().starts_with("// >")
                    }) {
                        lines.next();
                    }
                    lines.next();
                    kept.extend(instead);
                }
            } else if !mark.starts_with("// SOLUTION") && mark != "// END" {
                kept.push(line.to_owned());
            }
        }
        tidy(&kept)
    }
}

/// Joins lines, with no more than one empty line in a row.
fn tidy(lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        if line.is_empty() && (text.is_empty() || text.ends_with("\n\n")) {
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text.trim_end().to_owned() + "\n"
}

/// Reads `easy, 10 minutes`, or `easy, 10 minutes, without `this` `that``.
fn demands(line: &str) -> Result<(Level, usize, Vec<String>)> {
    let parsed = || {
        let (time, without) = line.split_once(", without ").unwrap_or((line, ""));
        let (level, minutes) = time.strip_suffix(" minutes")?.split_once(", ")?;
        let levels = [Level::Easy, Level::Medium, Level::Hard, Level::Project];
        let level = levels.into_iter().find(|it| it.name() == level)?;
        let quoted = without.split('`').skip(1).step_by(2).map(str::to_owned);
        Some((level, minutes.parse().ok()?, quoted.collect()))
    };
    parsed().with_context(|| format!("`{line}` is not like `easy, 10 minutes`"))
}

/// What no file of a reader may contain, since failures would be taken for passes.
const NEVER: [(&str, &str); 6] = [
    ("process::exit", "it would end the tests before they could fail"),
    ("exit(", "it would end the tests before they could fail"),
    ("macro_rules! assert", "the tests would use it in place of Rust's"),
    ("macro_rules! panic", "the tests would use it in place of Rust's"),
    ("as assert", "the tests would use it in place of Rust's"),
    ("as panic", "the tests would use it in place of Rust's"),
];

/// The faults that a code plants, with their words.
fn faults(code: &str) -> Result<Vec<Fault>> {
    let mut faults: Vec<Fault> = vec![];
    for line in code.lines() {
        let Some(rest) = line.trim_start().strip_prefix("// FAULT ") else { continue };
        match rest.split_once(": ") {
            Some((name, words)) => {
                faults.push(Fault { name: name.to_owned(), words: words.to_owned() })
            }
            None if faults.iter().any(|fault| fault.name == rest) => {}
            None => bail!("the fault `{rest}` has no words"),
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
//! # Sums
//!
//! easy, 5 minutes
//!
//! Add.
//!
//! # Hint
//!
//! one
//!
//! # Hint
//!
//! two
//!
//! # Hint
//!
//! three

/// The sum.
pub fn sum(a: f64, b: f64) -> f64 {
    // SOLUTION
    // FAULT lost: where is b
    // > let b = 0.0 * b;
    // FAULT twice: is b there twice
    let b = half(b);
    a + 2.0 * b
    // END
}

// SOLUTION
fn half(b: f64) -> f64 {
    b / 2.0
}
// END

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_and_two() {
        assert_eq!(sum(1.0, 2.0), 3.0, \"where is b, or is b there twice\");
    }
}
";

    fn parsed() -> Task {
        Task::parse("sums", "adding", SOURCE).unwrap()
    }

    #[test]
    fn a_stub_has_what_to_do_and_no_solution() {
        let stub = parsed().stub();
        assert!(stub.starts_with("//! # Sums\n//!\n//! easy, 5 minutes\n"), "{stub}");
        assert!(stub.ends_with("-> f64 {\n    todo!()\n}\n"), "{stub}");
        assert!(!stub.contains("one") && !stub.contains("half"), "{stub}");
    }

    #[test]
    fn a_fault_replaces_the_line_below_it_and_no_other() {
        let task = parsed();
        let line = "    let b = half(b);\n";
        assert!(task.solution().contains(line) && !task.solution().contains("//  "));
        assert_eq!(
            task.wrong("lost"),
            task.solution().replace(line, "    let b = 0.0 * b;\n")
        );
        assert_eq!(task.wrong("twice"), task.solution().replace(line, ""));
    }

    #[test]
    fn words_that_a_solution_must_not_have_are_named_with_their_line() {
        let source = SOURCE.replace("5 minutes", "5 minutes, without `.powi` `f32`");
        let task = Task::parse("sums", "adding", &source).unwrap();
        assert!(task.stub().contains("\n//! easy, 5 minutes, without `.powi` `f32`\n"));
        assert_eq!(task.refusal(&task.solution()), None);
        for (code, words) in [
            ("// a\nfn f(b: f32) {}", "src/sums.rs, line 2, has `f32`: this exercise"),
            ("b\n.powi(2)", "src/sums.rs, line 2, has `.powi`: this exercise"),
            ("std::process::exit(0)", "src/sums.rs, line 1, has `process::exit`: it"),
            ("#[test]\nfn t() { exit(0) }", "src/sums.rs, line 2, has `exit(`: it would"),
            (
                "macro_rules! assert { () => {} }",
                "src/sums.rs, line 1, has `macro_rules! assert`",
            ),
            ("use quiet as assert;", "src/sums.rs, line 1, has `as assert`"),
        ] {
            let refusal = task.refusal(code).unwrap();
            assert!(refusal.starts_with(words), "{refusal}");
        }
        assert_eq!(
            task.refusal("#[test]\nfn t(a: f32) { assert!(a.powi(2) > 0.0) }"),
            None
        );
        assert_eq!(task.refusal("macro_rules! assert_near { () => {} }"), None);
    }

    #[test]
    fn tests_come_with_the_path_of_the_code() {
        let file = parsed().test_file("../src/program", "../src/sums.rs");
        assert!(
            file.contains("#[path = \"../src/sums.rs\"]\nmod sums;\nuse sums::*;\n"),
            "{file}"
        );
        assert!(file.contains("\n#[test]\nfn one_and_two() {\n    assert_eq!"), "{file}");
    }

    const STEP_SOURCE: &str = "\
//! # Build it yourself: sums
//!
//! easy, 5 minutes

use attention::plain::*;

// PROGRAM numbers sums
// FAULT lost: where is b
// - a + b
// > a
// FAULT twice: is b there twice
// - a + b
// > a +
// > 2.0 * b
// FAULT second: once
// - // of two
// - a + a
// > a

#[cfg(test)]
mod tests {
    use super::*;
}
";
    const STEP_FILE: &str = "\
use super::number;

/// The sum.
pub fn sum(
    a: f64,
    b: f64,
) -> f64 {
    a + b
}

pub fn less() -> impl Fn(usize, usize) -> bool {
    |a, b| a < b // of two
}

fn double(a: f64) -> f64 {
    // of two
    a + a
}
";

    #[test]
    fn a_step_of_the_program_is_its_file_with_its_faults() {
        let with_anchor = STEP_FILE
            .replace("/// The sum.", concat!("// ANCH", "OR: sum\n/// The sum."));
        let source = compose(STEP_SOURCE, &with_anchor).unwrap();
        let hints = "\n//!\n//! Add.\n//!\n//! # Hint\n//!\n//! a".to_owned()
            + &"\n//!\n//! # Hint\n//!\n//! b".repeat(2);
        let source = source.replace("5 minutes", &format!("5 minutes{hints}"));
        let task = Task::parse("build_sums", "adding", &source).unwrap();
        assert_eq!(task.file(), "program/sums.rs");
        assert!(task.is_named("sums") && task.is_named("src/program/sums.rs"));
        let stub = task.stub();
        assert!(stub.contains(") -> f64 {\n    todo!()\n}"), "{stub}");
        assert!(stub.contains("bool {\n    |_, _| todo!()\n}"), "{stub}");
        assert!(!stub.contains("ANCHOR") && !stub.contains("PROGRAM"), "{stub}");
        assert_eq!(task.solution(), STEP_FILE);
        assert!(task.wrong("lost").contains("{\n    a\n}"), "{}", task.wrong("lost"));
        assert!(task.wrong("twice").contains("    a +\n    2.0 * b\n"));
        assert!(task.wrong("second").contains("    // of two\n    a\n"));
        let tests = task.test_file("../src/program", "../src/program/sums.rs");
        for path in ["../src/program/numbers.rs", "../src/program/sums.rs"] {
            assert!(tests.contains(&format!("#[path = \"{path}\"]\n")), "{tests}");
        }
    }

    #[test]
    fn a_fault_that_is_nowhere_or_twice_in_the_program_is_named() {
        for (old, new, words) in [
            ("// - a + b", "// - a + c", "the lines of the fault `lost` stand 0 times"),
            (
                "// - // of two\n// - a + a",
                "// - }",
                "of the fault `second` stand 3 times",
            ),
            ("// - // of two\n// - a + a\n", "", "of the fault `second` stand 0 times"),
        ] {
            let source = STEP_SOURCE.replacen(old, new, 1);
            let error = compose(&source, STEP_FILE).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (old, new, words) in [
            ("# Sums", "Sums", "it does not begin with `# ` and a title"),
            ("easy, 5 minutes", "easy", "`easy` is not like `easy, 10 minutes`"),
            ("//! # Hint\n//!\n//! three", "//! three", "it has 2 hints, not three"),
            (
                "FAULT twice: is b there twice",
                "FAULT twice",
                "the fault `twice` has no words",
            ),
            ("    // FAULT twice: is b there twice\n", "", "it has 1 faults"),
            ("mod tests {", "mod test {", "it has no `#[cfg(test)] mod tests`"),
            ("// SOLUTION", "// ANSWER", "it has no `// SOLUTION`"),
        ] {
            let source = SOURCE.replace(old, new);
            assert_ne!(source, SOURCE);
            let error = Task::parse("sums", "adding", &source).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
