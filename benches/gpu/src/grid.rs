//! The cells of the grid: what is measured, and who takes part.

use crate::arguments::TimeOptions;
use anyhow::{Result, ensure};
use attention::cuda::{Program, Shape};
use gpu::{ALL, DECODE, Precision, is_backward};
use itertools::iproduct;
use serde::Serialize;
use std::fmt;
use strum::Display;

/// Tokens of a whole batch, however long its sequences are.
pub const TOKENS: usize = 16_384;
/// The width of a model: heads · d.
pub const WIDTH: usize = 2048;
/// Numbers of q, and of k, and of v, and of the output: the same for each cell.
pub const NUMBERS: usize = TOKENS * WIDTH;
/// Keys of all texts together where a model writes.
pub const CACHED: usize = 131_072;
/// Heads of queries and of keys of a text, in the proportion of Llama 3 with 8 billion weights.
pub const DECODING_HEADS: (usize, usize) = (32, 8);

/// The direction; or a step of decoding, forward with one query for each text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Pass {
    Forward,
    Backward,
    Decoding,
}

/// A way in which PyTorch's `scaled_dot_product_attention` computes, or another program that PyTorch can call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Display)]
#[serde(rename_all = "kebab-case")]
#[strum(prefix = "torch-", serialize_all = "kebab-case")]
pub enum Backend {
    Flash,
    Cudnn,
    Efficient,
    Math,
    /// FlashAttention-4, which is a package of its own.
    Flash4,
    /// Its gradients by sums in one fixed order.
    Flash4Deterministic,
}

impl Backend {
    /// Those that know numbers of this precision, the fastest first; of a step of decoding, those that are made for it.
    fn of(pass: Pass, precision: Precision) -> &'static [Self] {
        match precision {
            Precision::F32 => &[Self::Efficient, Self::Math],
            Precision::Bf16 if pass == Pass::Decoding => &[Self::Flash, Self::Cudnn],
            Precision::Bf16 if pass == Pass::Forward => {
                &[Self::Flash, Self::Cudnn, Self::Flash4, Self::Math]
            }
            Precision::Bf16 => &[
                Self::Flash,
                Self::Cudnn,
                Self::Flash4,
                Self::Flash4Deterministic,
                Self::Math,
            ],
        }
    }
}

/// A kernel that takes part in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contestant {
    Ours(Program),
    Torch(Backend),
}

impl Contestant {
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Ours(_))
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Ours(program) => f.pad(program.source().name),
            Self::Torch(backend) => backend.fmt(f),
        }
    }
}

/// A problem and the kernels that are measured on it: one row of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub shape: Shape,
    pub precision: Precision,
    pub pass: Pass,
    /// Ours in the order of the ladder, then PyTorch's.
    pub contestants: Vec<Contestant>,
}

impl Cell {
    /// Floating-point operations, by the convention 4 · heads · n² · d forward, half of it if causal, and 2.5 times as much
    /// backward.
    pub fn flops(&self) -> f64 {
        let Shape { heads, n_q, n_k, d, causal, .. } = self.shape;
        let forward =
            [4, heads, n_q, n_k, d].map(|size| size as f64).iter().product::<f64>();
        let masked = if causal { forward / 2.0 } else { forward };
        if self.pass == Pass::Backward { 2.5 * masked } else { masked }
    }

    /// Bytes of the inputs and outputs, each once: forward those of q, k, v and the output, backward their gradients, too.
    pub fn bytes(&self) -> f64 {
        let Shape { heads, kv_heads, n_q, n_k, d, .. } = self.shape;
        let forward = 2 * (heads * n_q + kv_heads * n_k) * d * self.precision.bytes();
        (if self.pass == Pass::Backward { 2 * forward } else { forward }) as f64
    }

    pub fn mask(&self) -> &'static str {
        if self.shape.causal { "causal" } else { "full" }
    }
}

/// In words: "bf16, forward, d = 128, causal, n = 4096", where n is the number of keys.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { shape: Shape { n_k, d, .. }, precision, pass, .. } = self;
        write!(f, "{precision}, {pass}, d = {d}, {}, n = {n_k}", self.mask())
    }
}

/// All cells, in the order in which they are measured: decoding and forward first, and what the ladder ends with first of all, since a
/// run may be cut off.
///
/// # Errors
/// None has a kernel that was asked for.
pub fn cells(options: &TimeOptions) -> Result<Vec<Cell>> {
    let lengths: &[usize] = if options.quick { &[4096] } else { &[1024, 4096, 16_384] };
    let passes = [Pass::Forward, Pass::Backward];
    let precisions = [Precision::Bf16, Precision::F32];
    let cell = |(pass, precision, d, causal, &n)| {
        let heads = NUMBERS / d / n;
        let shape = Shape { heads, kv_heads: heads, n_q: n, n_k: n, d, causal };
        Cell {
            shape,
            precision,
            pass,
            contestants: contestants(options, pass, precision, d),
        }
    };
    let decoding = |n: usize| {
        let (texts, d) = (CACHED / n, 128);
        let (heads, kv_heads) = DECODING_HEADS;
        let (heads, kv_heads) = (texts * heads, texts * kv_heads);
        let shape = Shape { heads, kv_heads, n_q: 1, n_k: n, d, causal: false };
        let (pass, precision) = (Pass::Decoding, Precision::Bf16);
        let contestants = contestants(options, pass, precision, d);
        Cell { shape, precision, pass, contestants }
    };
    let all = iproduct!(passes, precisions, [128, 64], [false, true], lengths).map(cell);
    let all = [CACHED, 8192].map(decoding).into_iter().chain(all);
    let is_wanted = |cell: &Cell| {
        options.kernels.is_empty() || cell.contestants.iter().any(|one| one.is_ours())
    };
    let cells: Vec<_> = all.filter(is_wanted).collect();
    ensure!(!cells.is_empty(), "none of these kernels takes part in any cell");
    Ok(cells)
}

fn contestants(
    options: &TimeOptions,
    pass: Pass,
    precision: Precision,
    d: usize,
) -> Vec<Contestant> {
    let takes_part = |program: &Program| {
        let its = if is_backward(*program) {
            Pass::Backward
        } else if *program == DECODE {
            Pass::Decoding
        } else {
            Pass::Forward
        };
        its == pass
            && Precision::of(*program) == precision
            && program.source().widths.contains(&d)
            && (options.kernels.is_empty() || options.kernels.contains(program))
    };
    let ours = ALL.into_iter().filter(takes_part).map(Contestant::Ours);
    ours.chain(Backend::of(pass, precision).iter().copied().map(Contestant::Torch))
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use attention::cuda::TILED;
    use std::path::PathBuf;

    pub fn options(kernels: Vec<Program>) -> TimeOptions {
        TimeOptions {
            record: None,
            python: PathBuf::from("python3"),
            quick: false,
            kernels,
        }
    }

    pub fn cell(n: usize, causal: bool, pass: Pass) -> Cell {
        let heads = NUMBERS / 64 / n;
        let shape = Shape { heads, kv_heads: heads, n_q: n, n_k: n, d: 64, causal };
        let contestants = contestants(&options(vec![]), pass, Precision::F32, 64);
        Cell { shape, precision: Precision::F32, pass, contestants }
    }

    #[test]
    fn the_grid_has_every_kernel_and_the_same_tokens_everywhere() {
        let cells = cells(&options(vec![])).unwrap();
        let (decoding, cells): (Vec<_>, Vec<_>) =
            cells.into_iter().partition(|cell| cell.pass == Pass::Decoding);
        assert_eq!(cells.len(), 2 * 2 * 2 * 2 * 3); // passes, precisions, d, masks, n
        for Cell { shape: Shape { heads, n_q, n_k, d, .. }, .. } in &cells {
            assert_eq!((heads * n_q * d, n_q), (NUMBERS, n_k));
        }
        for Cell { shape, contestants, .. } in &decoding {
            assert_eq!(shape.kv_heads * shape.n_k, DECODING_HEADS.1 * CACHED);
            let names: Vec<_> = contestants.iter().map(ToString::to_string).collect();
            assert_eq!(names, ["decode", "torch-flash", "torch-cudnn"]);
        }
        assert_eq!(decoding.len(), 2);
        for program in ALL.into_iter().filter(|program| *program != DECODE) {
            let has =
                |cell: &&Cell| cell.contestants.contains(&Contestant::Ours(program));
            assert_eq!(cells.iter().filter(has).count(), 2 * 2 * 3, "{program}");
        }
        assert!(cells.iter().all(|cell| !cell.contestants.last().unwrap().is_ours()));
    }

    #[test]
    fn a_selection_leaves_the_cells_of_others_out() {
        let cells = cells(&options(vec![TILED])).unwrap();
        assert_eq!(cells.len(), 2 * 2 * 3);
        let names: Vec<_> =
            cells[0].contestants.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["tiled", "torch-efficient", "torch-math"]);
    }

    #[test]
    fn operations_follow_the_convention() {
        let full = 4.0 * NUMBERS as f64 * 512.0;
        assert_eq!(cell(512, false, Pass::Forward).flops(), full);
        assert_eq!(cell(512, true, Pass::Forward).flops(), full / 2.0);
        assert_eq!(cell(512, true, Pass::Backward).flops(), 2.5 * full / 2.0);
        let bytes =
            [Pass::Forward, Pass::Backward].map(|pass| cell(512, true, pass).bytes());
        assert_eq!(bytes, [4.0, 8.0].map(|tensors| tensors * 4.0 * NUMBERS as f64));
    }

    /// The record and the worker call a backend by one name.
    #[test]
    fn a_backend_has_one_name() {
        for backend in [Backend::Cudnn, Backend::Flash4, Backend::Flash4Deterministic] {
            let asked = serde_json::to_value(backend).unwrap();
            assert_eq!(format!("torch-{}", asked.as_str().unwrap()), backend.to_string());
        }
        assert_eq!(Backend::Flash4.to_string(), "torch-flash4");
    }

    #[test]
    fn a_cell_is_named_in_words() {
        let name = cell(512, true, Pass::Backward).to_string();
        assert_eq!(name, "f32, backward, d = 64, causal, n = 512");
    }
}
