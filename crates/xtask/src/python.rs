//! Python environments, in `target`, with exactly what a requirements file names.

use crate::files;
use crate::process::{run, typed};
use crate::project::Project;
use anyhow::{Context, Result, bail};
use fs_err as fs;
use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One environment.
#[derive(Debug, Clone, Copy)]
pub struct Environment {
    /// Its contents, for messages.
    pub what: &'static str,
    /// The size of these, for messages.
    pub size: &'static str,
    /// Its folder in `target`.
    pub folder: &'static str,
    /// The file that pins what it has, in the project.
    pub requirements: &'static str,
    /// Advice if it cannot be installed.
    pub otherwise: &'static str,
}

impl Environment {
    /// Its Python. What is required is installed once, and again when the file changes.
    ///
    /// # Errors
    ///
    /// If there is no Python, or something cannot be installed; the message says what to do.
    pub fn ensure(&self, project: &Project) -> Result<PathBuf> {
        let requirements = project.root().join(self.requirements);
        let folder = project.target().join(self.folder);
        let wanted = files::read(&requirements)?;
        let python = self.programs(project).join(format!("python{EXE_SUFFIX}"));
        let installed = folder.join("installed.txt"); // written last: an interrupted installation has none
        if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
            return Ok(python);
        }
        let Self { what, size, folder: name, .. } = self;
        eprintln!("installing {what} into target/{name}, once; {size}");
        let system =
            ["python3", "python"].iter().find_map(|name| which::which(name).ok());
        let Some(system) = system else {
            bail!(
                "there is no Python; install Python 3.11 or later and run the command again"
            );
        };
        self.run(Command::new(system).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let pip =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        self.run(Command::new(&python).args(pip).arg(&requirements))?;
        fs::write(&installed, wanted)?;
        Ok(python)
    }

    /// The folder of its programs.
    #[must_use]
    pub fn programs(&self, project: &Project) -> PathBuf {
        let inside = if cfg!(windows) { "Scripts" } else { "bin" };
        project.target().join(self.folder).join(inside)
    }

    fn run(&self, command: &mut Command) -> Result<()> {
        let typed = typed(command);
        run(command).with_context(|| {
            let Self { what, requirements, otherwise, .. } = self;
            format!(
                "{what} could not be installed by `{typed}`, as {requirements} asks for; {otherwise}"
            )
        })
    }
}

/// The folder of the environment's own packages in which there is `path`, if it is in one.
#[must_use]
pub fn in_packages(environment: &Path, path: &str) -> Option<PathBuf> {
    let libraries = fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
    libraries
        .map(|python| python.path().join("site-packages").join(path))
        .find(|folder| folder.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_that_has_the_requirements_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::at(folder.path());
        let environment = Environment {
            what: "Nothing",
            size: "none",
            folder: "venv",
            requirements: "requirements.txt",
            otherwise: "do without",
        };
        let error = environment.ensure(&project).unwrap_err().to_string();
        assert!(error.contains("requirements.txt`"), "{error}");
        fs::write(folder.path().join("requirements.txt"), "torch==2.15.0\n").unwrap();
        fs::create_dir_all(project.target().join("venv")).unwrap();
        fs::write(project.target().join("venv/installed.txt"), "torch==2.15.0\n")
            .unwrap();
        let python = environment.ensure(&project).unwrap();
        assert!(
            python.starts_with(environment.programs(&project)),
            "{}",
            python.display()
        );
    }

    #[test]
    fn packages_are_found_whatever_the_version_of_python() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(in_packages(folder.path(), "nvidia/cu13/lib"), None);
        let library = folder.path().join("lib/python3.11/site-packages/nvidia/cu13/lib");
        fs::create_dir_all(&library).unwrap();
        assert_eq!(in_packages(folder.path(), "nvidia/cu13/lib"), Some(library));
    }
}
