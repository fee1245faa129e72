//! Which machine a record is of, and the folder of its records: `records/MACHINE/TOPIC.json`.

use crate::{Machine, Record};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Returns true if two reports agree, as they do if one of them is missing.
fn agree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

impl Machine {
    /// Returns true if both describe the same machine.
    ///
    /// The memory that a system reports shifts by some kibibytes with each of its updates, so 1 % more or less is the same.
    /// A record that no accelerator took part in does not say whether there is one, one that was taken without a compiler
    /// does not name the microarchitecture, and older ones have neither family nor model.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let memory = self.memory.abs_diff(other.memory) <= self.memory / 100;
        memory
            && agree(&self.accelerator, &other.accelerator)
            && agree(&self.microarchitecture, &other.microarchitecture)
            && agree(&self.family, &other.family)
            && agree(&self.model, &other.model)
            && (&self.cpu, self.cores, &self.caches)
                == (&other.cpu, other.cores, &other.caches)
    }

    /// The name of this machine's folder in `records`, which may not be there yet: the processor's, with a number behind it if
    /// another machine has that folder already.
    ///
    /// # Errors
    /// A record that is there cannot be read.
    pub fn folder(&self, records: &Path) -> Result<String> {
        let name = self.slug();
        let numbered = (2..).map(|number| format!("{name}-{number}"));
        for name in std::iter::once(name.clone()).chain(numbered) {
            if self.owns(&records.join(&name))? {
                return Ok(name);
            }
        }
        unreachable!("there is always another number")
    }

    /// Returns true if all records in the folder are of this machine.
    fn owns(&self, folder: &Path) -> Result<bool> {
        if !folder.is_dir() {
            return Ok(true);
        }
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let is_record = path.extension().is_some_and(|extension| extension == "json");
            if is_record && !Record::read(&path)?.machine.is_same(self) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: &str = include_str!("../tests/pace.json");

    #[test]
    fn a_machine_keeps_its_folder_and_another_one_gets_a_number() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("shoes")).unwrap();
        fs::write(folder.path().join("shoes/pace.json"), PACE).unwrap();
        let mut machine = Record::parse("pace", PACE).unwrap().machine;
        let name = |machine: &Machine| machine.folder(folder.path()).unwrap();
        assert_eq!(name(&machine), "shoes");
        machine.memory += machine.memory / 200; // an update of the system
        machine.accelerator = Some("Wheels".to_owned());
        assert_eq!(name(&machine), "shoes");
        for change in [
            |machine: &mut Machine| machine.cores += 1,
            |machine: &mut Machine| machine.memory *= 2,
            |machine: &mut Machine| machine.caches.clear(),
        ] {
            let mut other = Record::parse("pace", PACE).unwrap().machine;
            change(&mut other);
            assert_eq!(name(&other), "shoes-2");
        }
        machine.microarchitecture = Some("leather".to_owned());
        assert_eq!(name(&machine), "shoes-leather");
        let mut rubber = machine.clone();
        rubber.microarchitecture = Some("rubber".to_owned());
        assert!(!machine.is_same(&rubber));
        machine.microarchitecture = None;
        assert!(machine.is_same(&rubber));
        machine.cpu = "Boots".to_owned();
        assert_eq!(name(&machine), "boots");
    }
}
