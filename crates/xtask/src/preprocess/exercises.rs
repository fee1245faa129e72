//! The exercises of a chapter: `{{exercises}}` becomes what `crates/exercises/tasks` has for it.

use anyhow::{Result, bail, ensure};
use exercises::task::{self, Task};
use mdbook_preprocessor::book::Book;
use std::collections::BTreeSet;
use std::path::Path;

const DIRECTIVE: &str = "{{exercises}}";

/// Writes the exercises into the chapters, with solutions in folds or without any. `tasks` is their folder.
///
/// # Errors
///
/// If the tasks cannot be read, or a chapter has exercises and no directive, or the other way round.
pub(super) fn insert(book: &mut Book, tasks: &Path, with_solutions: bool) -> Result<()> {
    if !tasks.exists() {
        return Ok(()); // a book without exercises
    }
    let tasks = task::read_all(tasks)?;
    let mut missing: BTreeSet<&str> =
        tasks.iter().map(|task| task.chapter.as_str()).collect();
    let mut superfluous = vec![];
    book.for_each_chapter_mut(|chapter| {
        let path = chapter.source_path.as_ref().and_then(|path| path.file_stem());
        let name =
            path.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if chapter.content.contains(DIRECTIVE) {
            let own: Vec<_> = tasks.iter().filter(|task| task.chapter == name).collect();
            if own.is_empty() {
                superfluous.push(name.clone());
            }
            missing.remove(name.as_str());
            let section = section(&own, with_solutions);
            chapter.content = chapter.content.replace(DIRECTIVE, &section);
        }
    });
    if let Some(name) = superfluous.first() {
        bail!("src/{name}.md: {DIRECTIVE}, and the chapter has no exercises");
    }
    ensure!(missing.is_empty(), "no {DIRECTIVE} in src for the exercises of {missing:?}");
    Ok(())
}

fn section(tasks: &[&Task], with_solutions: bool) -> String {
    let mut text = String::from(
        "## Exercises\n\nTheir stubs, tests and hints come in [a folder that you make](using-this-book.md#practise-it).\n",
    );
    for task in tasks {
        let Task { name, title, minutes, text: what, .. } = task;
        let level = task.level.name();
        text.push_str(&format!(
            "\n<div class=\"exercise\">\n\n### {title} {{#exercise-{name}}}\n\n<div class=\"source\">{level}, {minutes} minutes, \
             src/{}</div>\n\n{what}\n",
            task.file()
        ));
        // A step of the program has its solution on the page.
        if with_solutions && task.program.is_empty() {
            let solution = task.solution();
            text.push_str(&format!(
                "\n<details><summary>A solution</summary>\n\n```rust\n{solution}```\n\n</details>\n"
            ));
        }
        text.push_str("\n</div>\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdbook_preprocessor::book::{BookItem, Chapter};
    use std::fs;

    const TASK: &str = "\
//! # Sums\n//!\n//! easy, 5 minutes\n//!\n//! Add.\n//!\n//! # Hint\n//!\n//! a\n//!\n//! # Hint\n//!\n//! b\n//!\n//! # Hint\n//!\n//! c\n
pub fn sum() -> f64 {\n    // SOLUTION\n    // FAULT one: w\n    // > 1.0\n    // FAULT two: v\n    // > 2.0\n    0.0\n    // END\n}\n
#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";

    fn inserted(content: &str, with_solutions: bool) -> Result<String> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("order.txt"), "adding: sums\n")?;
        fs::write(folder.path().join("sums.rs"), TASK)?;
        let chapter = Chapter::new("Adding", content.to_owned(), "adding.md", vec![]);
        let mut book = Book::new_with_items(vec![BookItem::Chapter(chapter)]);
        insert(&mut book, folder.path(), with_solutions)?;
        Ok(book.chapters().next().unwrap().content.clone())
    }

    #[test]
    fn a_chapter_gets_its_exercises_with_or_without_solutions() {
        let with = inserted("{{exercises}}", true).unwrap();
        assert!(
            with.contains("### Sums {#exercise-sums}\n")
                && with.contains("easy, 5 minutes"),
            "{with}"
        );
        assert!(with.contains("pub fn sum() -> f64 {\n    0.0\n}"), "{with}");
        assert!(!inserted("{{exercises}}", false).unwrap().contains("pub fn"));
    }

    #[test]
    fn a_chapter_that_does_not_show_its_exercises_is_named() {
        let error = inserted("Nothing.", true).unwrap_err().to_string();
        assert!(error.contains("adding"), "{error}");
    }
}
