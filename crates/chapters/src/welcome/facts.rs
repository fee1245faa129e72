//! The lines that a project needs in its `Cargo.toml` to use the crate as the book's snippets do, and numbers that two programs agree on.

use anyhow::{Context, Result, ensure};
use attention::{
    Mask, attention, attention_backward, gradient_check::numerical_gradient,
};
use nalgebra::DMatrix;
use serde_json::Value;

/// The manifest of the crate, which says which versions it works with.
const MANIFEST: &str = include_str!("../../../attention/Cargo.toml");

/// The crates that snippets use beside `attention`.
const USED: [&str; 3] = ["nalgebra", "rand", "rand_distr"];

/// Returns those lines: the crate in a folder beside the project's `src`, and the versions of other crates that it names itself.
pub fn manifest_lines() -> Result<String> {
    let mut lines = vec![
        "[dependencies]".to_owned(),
        "attention = { path = \"attention\" }".to_owned(),
    ];
    let (_, dependencies) = MANIFEST.split_once("\n[dependencies]\n").unwrap_or_default();
    for name in USED {
        let start = format!("{name} = ");
        let found = dependencies.lines().find(|line| line.starts_with(&start));
        ensure!(found.is_some(), "the crate doesn't depend on {name}");
        lines.extend(found.map(str::to_owned));
    }
    let profile = ["", "[profile.dev]", "opt-level = 2"];
    lines.extend(profile.map(str::to_owned));
    Ok(lines.join("\n"))
}

/// What PyTorch computed for the crate's tests.
const BY_PYTORCH: &str = include_str!("../../../laboratory/tests/golden/sdpa.json");

/// The same number twice: by the crate, and by another way.
pub struct Agreement {
    pub ours: f64,
    pub other: f64,
}

/// The first number of an output, by the crate and by PyTorch; and the slope of a loss with respect to the first number of the queries, by the
/// crate's backward pass and by central differences.
pub fn agreements() -> Result<[Agreement; 2]> {
    let stored: Value = serde_json::from_str(BY_PYTORCH)?;
    let case = &stored["cases"][0];
    let [q, k, v, by_pytorch, grad_output] =
        ["q", "k", "v", "output", "grad_output"].map(|name| matrix(&case[name]));
    let (q, k, v, by_pytorch, grad_output) = (q?, k?, v?, by_pytorch?, grad_output?);
    let (output, cache) = attention(&q, &k, &v, Mask::none())?;
    let slope = attention_backward(&cache, &grad_output)?.q[0];
    let first = DMatrix::from_element(1, 1, q[0]);
    let measured = numerical_gradient(&first, 1e-5, |first| {
        let mut q = q.clone();
        q[0] = first[0];
        Ok(attention(&q, &k, &v, Mask::none())?.0.dot(&grad_output))
    })?;
    Ok([
        Agreement { ours: output[0], other: by_pytorch[0] },
        Agreement { ours: slope, other: measured[0] },
    ])
}

/// A list of rows.
fn matrix(rows: &Value) -> Result<DMatrix<f64>> {
    let rows: Vec<Vec<f64>> =
        serde_json::from_value(rows.clone()).context("no matrix is stored there")?;
    let columns = rows.first().map_or(0, Vec::len);
    Ok(DMatrix::from_row_iterator(rows.len(), columns, rows.into_iter().flatten()))
}
