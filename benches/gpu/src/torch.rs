//! PyTorch as a peer: a process that runs `torch_worker.py`.

use crate::grid::{Backend, CACHED, Cell, Pass, TOKENS};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use worker::Process;

/// The side of the matrices whose product is the roof.
pub const SIDE: usize = 8192;

const SCRIPT: &str = "torch_worker.py";

/// PyTorch at work.
pub struct Torch {
    python: PathBuf,
    script: PathBuf,
    process: Option<Process>,
    /// The number of processes that ended before they answered.
    ends: usize,
    /// PyTorch's, CUDA's and cuDNN's.
    pub versions: BTreeMap<String, String>,
}

impl Torch {
    /// Starts it with this Python.
    ///
    /// # Errors
    /// The Python, PyTorch, or CUDA in it is not there.
    pub fn start(python: &Path, script: &Path) -> Result<Self> {
        let process = start(python, script)?;
        let versions = process.versions.clone();
        let (python, script) = (python.to_owned(), script.to_owned());
        Ok(Self { python, script, process: Some(process), ends: 0, versions })
    }

    /// The seconds of each product of two large matrices.
    ///
    /// # Errors
    /// It cannot.
    pub fn product(&mut self, dtype: &str, launches: usize) -> Result<Vec<f64>, String> {
        self.ask(&json!({
            "do": "product",
            "dtype": dtype,
            "side": SIDE,
            "warm_up": 3,
            "launches": launches,
        }))
    }

    /// The seconds of each launch: forward alone; or backward alone, after a forward pass that isn't timed.
    ///
    /// # Errors
    /// The backend refuses: the reason.
    pub fn attention(
        &mut self,
        backend: Backend,
        cell: &Cell,
        warm_up: usize,
        launches: usize,
    ) -> Result<Vec<f64>, String> {
        let shape = cell.shape;
        let tokens = if cell.pass == Pass::Decoding { CACHED } else { TOKENS };
        let batch = (tokens / shape.n_k).max(1);
        self.ask(&json!({
            "do": "attention",
            "backend": backend,
            "pass": cell.pass,
            "dtype": cell.precision.to_string(),
            "batch": batch,
            "heads": shape.heads / batch,
            "kv_heads": shape.kv_heads / batch,
            "queries": shape.n_q,
            "n": shape.n_k,
            "d": shape.d,
            "causal": shape.causal,
            "warm_up": warm_up,
            "launches": launches,
        }))
    }

    /// A process that ends has refused. Another one takes its place, unless that happens again and again: a fault of a
    /// kernel ends the whole process.
    fn ask(&mut self, question: &Value) -> Result<Vec<f64>, String> {
        let process = self.process.as_mut().ok_or("PyTorch is gone")?;
        process.answer(question).unwrap_or_else(|error| {
            self.ends += 1;
            let again = || start(&self.python, &self.script).ok();
            self.process = if self.ends < MOST_ENDS { again() } else { None };
            if self.process.is_none() {
                eprintln!(
                    "WARNING: PyTorch is gone; what follows is measured without it"
                );
            }
            Err(format!("{error:#}"))
        })
    }
}

/// After so many, no other process takes its place.
const MOST_ENDS: usize = 3;

fn start(python: &Path, script: &Path) -> Result<Process> {
    let mut command = Command::new(python);
    command.arg(script);
    let advice = "; name one that has PyTorch with --python PROGRAM";
    Process::start("PyTorch", command, advice)
}

/// Returns the path of the script: beside this program, or else where it was built.
///
/// # Errors
/// It is in neither place.
pub fn script() -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name(SCRIPT);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCRIPT);
    let places = [beside, source];
    let found = places.into_iter().find(|place| place.is_file());
    found.with_context(|| format!("{SCRIPT} is not beside this program"))
}
