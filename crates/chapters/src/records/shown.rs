//! Records of several machines, side by side: `records/MACHINE/TOPIC.json`.

use anyhow::{Context, Result, bail, ensure};
use record::{Record, SHOWN, command};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// All records of a project.
///
/// A record that describes a machine lies in the folder of that machine. A record that does not, such as what a compiler
/// says, lies beside these folders.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
    shown: Vec<String>,
}

impl Records {
    /// The records in `folder`, with the machines that its `shown.txt` names.
    ///
    /// # Errors
    /// That file cannot be read, or names no machine, or names one that has no folder beside the file.
    pub fn open(folder: &Path) -> Result<Self> {
        let file = folder.join(SHOWN);
        let text = fs::read_to_string(&file).with_context(|| {
            format!(
                "{} cannot be read; it names the folders of the machines to show, one a line",
                file.display()
            )
        })?;
        let shown: Vec<_> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        ensure!(!shown.is_empty(), "{} names no machine", file.display());
        for name in &shown {
            ensure!(
                is_folder_name(name) && folder.join(name).is_dir(),
                "{} names {name:?}, which is no folder beside it",
                file.display()
            );
        }
        Ok(Self { folder: folder.to_owned(), shown })
    }

    /// The records of these topics, of the first machine shown that has all of them.
    ///
    /// # Errors
    /// No machine has all of them, or one cannot be read, or they are of different machines.
    pub fn of_one_machine<const N: usize>(
        &self,
        topics: [&str; N],
    ) -> Result<[Record; N]> {
        match self.if_recorded(topics)? {
            Some(records) => Ok(records),
            None => {
                let lacks = |name: &String| {
                    format!("{name} lacks {}", self.missing(name, &topics))
                };
                let lacks: Vec<_> = self.shown.iter().map(lacks).collect();
                bail!(
                    "no machine named in {} has all records that are needed: {}; `cargo xtask {}` makes them",
                    self.folder.join(SHOWN).display(),
                    lacks.join("; "),
                    command(&topics),
                )
            }
        }
    }

    /// The same, or nothing if no machine has all of them.
    ///
    /// # Errors
    /// One cannot be read, or they are of different machines.
    pub fn if_recorded<const N: usize>(
        &self,
        topics: [&str; N],
    ) -> Result<Option<[Record; N]>> {
        let Some(name) =
            self.shown.iter().find(|name| self.missing(name, &topics).is_empty())
        else {
            return Ok(None);
        };
        let read = |topic: &&str| Record::read(&self.file(name, topic));
        let records: Vec<_> = topics.iter().map(read).collect::<Result<_>>()?;
        for record in &records {
            ensure!(
                record.machine.is_same(&records[0].machine),
                "{}: the records {} and {} are of different machines, which have a folder each",
                self.folder.join(name).display(),
                records[0].topic,
                record.topic
            );
        }
        Ok(records.try_into().ok())
    }

    /// The records of a topic, of every machine shown that has one.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn of_each_machine(&self, topic: &str) -> Result<Vec<Record>> {
        let has = |name: &&String| self.missing(name, &[topic]).is_empty();
        let read = |name: &String| Record::read(&self.file(name, topic));
        self.shown.iter().filter(has).map(read).collect()
    }

    /// The record of a topic that is a property of no machine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_no_machine(&self, topic: &str) -> Result<Record> {
        Record::read(&self.file(".", topic))
    }

    fn file(&self, machine: &str, topic: &str) -> PathBuf {
        self.folder.join(machine).join(format!("{topic}.json"))
    }

    /// Returns the topics of which a machine has no record.
    fn missing(&self, name: &str, topics: &[&str]) -> String {
        let lacks = |topic: &&str| !self.file(name, topic).is_file();
        topics.iter().copied().filter(lacks).collect::<Vec<_>>().join(", ")
    }
}

/// Returns true if the text is the bare name of a folder: no path, and neither `.` nor `..`.
fn is_folder_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(name)), None) if name == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: &str = include_str!("../../../record/tests/pace.json");

    /// A folder with these lines in `shown.txt`, and these records: folder, topic, processor.
    fn records(shown: &str, files: &[(&str, &str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(SHOWN), shown).unwrap();
        for (machine, topic, cpu) in files {
            let text = PACE
                .replace("\"topic\": \"pace\"", &format!("\"topic\": \"{topic}\""))
                .replace("Shoes", cpu);
            let machine = folder.path().join(machine);
            fs::create_dir_all(&machine).unwrap();
            fs::write(machine.join(format!("{topic}.json")), text).unwrap();
        }
        folder
    }

    fn error<T>(result: Result<T>) -> String {
        format!("{:#}", result.err().expect("an error"))
    }

    #[test]
    fn a_page_takes_the_first_machine_that_has_all_it_compares() {
        let folder = records(
            "# comment\n\nboots\nshoes\n",
            &[
                ("shoes", "pace", "Shoes"),
                ("shoes", "race", "Shoes"),
                ("boots", "pace", "Boots"),
                ("socks", "walk", "Socks"),
            ],
        );
        let records = Records::open(folder.path()).unwrap();
        let of = |topic| records.of_one_machine([topic]).unwrap()[0].machine.cpu.clone();
        assert_eq!((of("pace").as_str(), of("race").as_str()), ("Boots", "Shoes"));
        let both = records.of_one_machine(["pace", "race"]).unwrap();
        assert!(both.iter().all(|record| record.machine.cpu == "Shoes"));
        // A folder that is not listed is not shown.
        assert!(records.if_recorded(["walk"]).unwrap().is_none());
        let message = error(records.of_one_machine(["pace", "walk"]));
        assert!(message.contains("boots lacks walk; shoes lacks walk"), "{message}");
        assert!(message.contains("cargo xtask bench --record pace walk"), "{message}");
    }

    #[test]
    fn of_each_machine_that_has_a_topic_it_is_read_in_the_order_of_the_list() {
        let folder = records(
            "shoes\nsandals\nboots\n",
            &[
                ("boots", "pace", "Boots"),
                ("sandals", "race", "Sandals"),
                ("shoes", "pace", "Shoes"),
                ("socks", "pace", "Socks"),
            ],
        );
        let records = Records::open(folder.path()).unwrap();
        let of = |topic| -> Vec<String> {
            let records = records.of_each_machine(topic).unwrap();
            records.into_iter().map(|record| record.machine.cpu).collect()
        };
        assert_eq!(of("pace"), ["Shoes", "Boots"]);
        assert_eq!(of("race"), ["Sandals"]);
        assert!(of("walk").is_empty());
        fs::write(folder.path().join("boots/pace.json"), "{}").unwrap();
        let message = error(records.of_each_machine("pace"));
        assert!(message.contains("boots/pace.json"), "{message}");
    }

    #[test]
    fn what_is_wrong_with_the_list_is_said() {
        let folder = records("boots\nsandals\n", &[("boots", "pace", "Boots")]);
        let message = error(Records::open(folder.path()));
        assert!(message.contains("names \"sandals\", which is no folder"), "{message}");
        fs::write(folder.path().join(SHOWN), "# nothing\n").unwrap();
        assert!(error(Records::open(folder.path())).contains("names no machine"));
        fs::remove_file(folder.path().join(SHOWN)).unwrap();
        assert!(error(Records::open(folder.path())).contains("shown.txt cannot be read"));
    }

    #[test]
    fn one_folder_holds_one_machine() {
        let folder =
            records("shoes\n", &[("shoes", "pace", "Shoes"), ("shoes", "race", "Boots")]);
        let records = Records::open(folder.path()).unwrap();
        let message = error(records.of_one_machine(["pace", "race"]));
        assert!(message.contains("pace and race are of different machines"), "{message}");
    }
}
