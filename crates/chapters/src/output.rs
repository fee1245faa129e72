//! The generated files, and the functions that write or compare them.

use crate::figures::format::table;
use crate::figures::{Area, HeatMap, svg};
use crate::records::Records;
use anyhow::{Context, Result, ensure};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use walkdir::WalkDir;

/// `a · b + c · d = sum`, as a formula.
pub fn sum_of_products(
    terms: impl Iterator<Item = (String, String)>,
    sum: String,
) -> String {
    let terms: Vec<_> = terms.map(|(a, b)| format!("{a} \\cdot {b}")).collect();
    format!("{} = {sum}", terms.join(" + ").replace("+ −", "- "))
}

/// The generated files of one chapter.
pub struct Page {
    name: &'static str,
    /// The records, for the pages that show measurements.
    pub records: Records,
    values: BTreeMap<String, String>,
    files: BTreeMap<String, String>,
}

impl Page {
    pub fn new(name: &'static str, records: &Records) -> Self {
        let (values, files) = (BTreeMap::new(), BTreeMap::new());
        Page { name, records: records.clone(), values, files }
    }

    /// A number for the prose, which includes it as `{{#include generated/PAGE/values.txt:KEY}}`.
    pub fn value(&mut self, key: impl Into<String>, text: impl Into<String>) {
        let key = key.into();
        let is_name = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        assert!(is_name, "mdBook would not read {key} as the name of an anchor");
        let before = self.values.insert(key.clone(), text.into());
        assert!(before.is_none(), "{}: two values are called {key}", self.name);
    }

    /// Adds a table, in `NAME.md`. The first column is aligned to the left, all others to the right.
    pub fn table(&mut self, name: &str, header: &[&str], rows: &[Vec<String>]) {
        self.file(format!("{name}.md"), table(header, rows));
    }

    /// Adds a table with a row for each item. A column is its header and a function from an item to its text.
    pub fn table_of<T>(&mut self, name: &str, items: &[T], columns: &[Column<T>]) {
        let header: Vec<_> = columns.iter().map(|(header, _)| *header).collect();
        let row = |item| columns.iter().map(|(_, text)| text(item)).collect();
        self.table(name, &header, &items.iter().map(row).collect::<Vec<_>>());
    }

    /// A figure, in `NAME.svg`: `title` names it and `description` says what is to be seen, for those who cannot see it.
    pub fn figure(
        &mut self,
        name: &str,
        (title, description): (&str, &str),
        size: (u32, u32),
        draw: impl FnOnce(&Area) -> Result<()>,
    ) -> Result<()> {
        let id = format!("{}-{name}", self.name);
        let drawn = svg(&id, title, description, size, draw)?;
        self.file(format!("{name}.svg"), drawn);
        Ok(())
    }

    /// Adds a figure of a matrix.
    pub fn heat_map(
        &mut self,
        name: &str,
        words: (&str, &str),
        map: &HeatMap,
    ) -> Result<()> {
        self.figure(name, words, map.size(), |area| map.draw(area))
    }

    /// Another file: an output, a few lines of Markdown.
    pub fn file(&mut self, name: impl Into<String>, text: impl Into<String>) {
        let name = name.into();
        let before = self.files.insert(name.clone(), text.into());
        assert!(before.is_none(), "{}: two files are called {name}", self.name);
    }
}

/// A column of a table: its header, and the text of an item in it.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> String);

/// Generated files, by their path below the folder.
#[derive(Default)]
pub struct Generated {
    files: BTreeMap<PathBuf, String>,
    /// The pages that were asked for. Files of other pages are left alone. Empty: all, and there should be no other files.
    only: Vec<String>,
}

impl Generated {
    /// Returns the files of these pages, or of all pages if none is named.
    pub fn of(pages: &[String]) -> Self {
        Generated { only: pages.to_vec(), ..Self::default() }
    }

    /// Returns true if this page was asked for.
    pub fn has(&self, page: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == page)
    }

    pub fn add(&mut self, page: Page) {
        let folder = Path::new(page.name);
        if !page.values.is_empty() {
            let value = |(key, text): (&String, &String)| {
                format!("ANCHOR: {key}\n{text}\nANCHOR_END: {key}\n")
            };
            let values = page.values.iter().map(value).collect();
            self.files.insert(folder.join("values.txt"), values);
        }
        for (name, text) in page.files {
            self.files.insert(folder.join(name), text);
        }
    }

    #[cfg(test)]
    pub fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files.iter().map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// Writes what changed and removes what is no longer generated.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let problems = self.problems(folder)?;
        for path in problems.keys() {
            let file = folder.join(path);
            match self.files.get(path) {
                Some(text) => fs::create_dir_all(file.parent().expect("a folder"))
                    .and_then(|()| fs::write(&file, text)),
                None => fs::remove_file(&file),
            }
            .with_context(|| format!("writing or removing {}", file.display()))?;
        }
        println!("{} files: {} written or removed", self.files.len(), problems.len());
        Ok(())
    }

    /// Fails if the files in the folder are not these.
    pub fn check(&self, folder: &Path) -> Result<()> {
        ensure!(!self.files.is_empty(), "nothing was generated");
        let problems = self.problems(folder)?;
        let lines =
            problems.iter().map(|(path, what)| format!("\n  {} {what}", path.display()));
        ensure!(
            problems.is_empty(),
            "the generated files are not those that the code computes:{}\nRun `cargo xtask generate`, look at the \
             difference, and commit it.",
            lines.collect::<String>()
        );
        println!("{} files are what the code computes", self.files.len());
        Ok(())
    }

    /// Returns the faults of the files in the folder that belong to these pages, by their path.
    fn problems(&self, folder: &Path) -> Result<BTreeMap<PathBuf, &'static str>> {
        let mut there = files_below(folder)?;
        there.retain(|path| {
            self.only.is_empty() || self.only.iter().any(|page| path.starts_with(page))
        });
        let mut problems = BTreeMap::new();
        for path in there.iter().chain(self.files.keys()) {
            let what = match self.files.get(path) {
                None => "is not generated",
                Some(_) if !there.contains(path) => "is missing",
                Some(text) => {
                    let found = fs::read_to_string(folder.join(path))?;
                    if same(&found.replace("\r\n", "\n"), text) {
                        continue;
                    }
                    "differs"
                }
            };
            problems.insert(path.clone(), what);
        }
        Ok(problems)
    }
}

/// Returns all files below a folder, by their path below it.
pub fn files_below(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for entry in WalkDir::new(folder) {
        let entry = entry?;
        if entry.file_type().is_file() {
            files.insert(entry.path().strip_prefix(folder)?.to_owned());
        }
    }
    Ok(files)
}

/// Equal to the byte where the files were made; elsewhere up to one unit in the last digit of each number, since another
/// system's `exp` rounds otherwise.
fn same(a: &str, b: &str) -> bool {
    a == b
        || (!cfg!(all(target_os = "linux", target_arch = "x86_64"))
            && same_to_the_last_digit(a, b))
}

fn same_to_the_last_digit(a: &str, b: &str) -> bool {
    static NUMBER: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\d+(\.\d+)?").expect("a regex"));
    let words = |text: &str| NUMBER.split(text).map(str::to_owned).collect::<Vec<_>>();
    let close = |(x, y): (regex::Match, regex::Match)| {
        let decimals =
            |m: regex::Match| m.as_str().split_once('.').map_or(0, |(_, d)| d.len());
        let number = |m: regex::Match| m.as_str().parse::<f64>().unwrap_or(f64::NAN);
        let unit = 0.1_f64.powi(decimals(x) as i32);
        decimals(x) == decimals(y) && (number(x) - number(y)).abs() <= 1.001 * unit
    };
    words(a) == words(b) && NUMBER.find_iter(a).zip(NUMBER.find_iter(b)).all(close)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::tests::committed;

    #[test]
    fn only_the_last_digit_may_differ_on_another_system() {
        assert!(same_to_the_last_digit("p = 0.312, n = 7", "p = 0.313, n = 7"));
        assert!(!same_to_the_last_digit("p = 0.312", "p = 0.314"));
        assert!(!same_to_the_last_digit("p = 0.312", "p = 0.31"));
        assert!(!same_to_the_last_digit("p = 0.312", "q = 0.312"));
        assert!(!same_to_the_last_digit("1 2", "1 2 3"));
    }

    #[test]
    fn a_changed_a_missing_and_a_foreign_file_are_found() {
        let folder =
            std::env::temp_dir().join(format!("generated-{}", std::process::id()));
        let mut page = Page::new("page", &committed());
        page.value("x", "1.0");
        page.file("table.md", "| a |\n");
        let mut generated = Generated::default();
        generated.add(page);
        generated.write(&folder).unwrap();
        generated.check(&folder).unwrap();

        let says = |what: &str| {
            let message = generated.check(&folder).unwrap_err().to_string();
            assert!(message.contains(what), "{message}");
        };
        fs::write(folder.join("page/values.txt"), "ANCHOR: x\n7.0\nANCHOR_END: x\n")
            .unwrap();
        says("values.txt differs");
        fs::remove_file(folder.join("page/table.md")).unwrap();
        says("table.md is missing");
        fs::write(folder.join("page/foreign.md"), "").unwrap();
        says("foreign.md is not generated");

        generated.write(&folder).unwrap(); // puts all of it right
        generated.check(&folder).unwrap();

        // The files of other pages are not those of this one.
        let mut one = Generated::of(&["other".to_owned()]);
        assert!(one.has("other") && !one.has("page"));
        let mut other = Page::new("other", &committed());
        other.file("table.md", "| b |\n");
        one.add(other);
        one.write(&folder).unwrap();
        one.check(&folder).unwrap();
        assert!(folder.join("page/table.md").exists());
        says("table.md is not generated");
        fs::remove_dir_all(folder).unwrap();
    }
}
