//! The questions to the peers. Numbers in bulk go through files of raw little-endian numbers. `peers.py` speaks the same language.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use strum::{Display, VariantArray};

/// A question to a peer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Question {
    /// Take this problem for all that follows, and forget the one before.
    Load {
        /// Its sizes.
        problem: Problem,
        /// The file with its numbers.
        file: PathBuf,
    },
    /// Compute once, and leave the results in a file.
    Check {
        /// The task.
        task: Task,
        /// The file for the output, and the gradients if there are any.
        file: PathBuf,
    },
    /// Compute again and again, and tell how long each time took.
    Time {
        /// The task.
        task: Task,
        /// `true` to compute once before the first time that counts.
        warm: bool,
        /// The number of times that count.
        samples: usize,
    },
}

/// The sizes of a problem. Its file holds q, k, v and the gradient of the output in f32, each (heads, n, d).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The number of tokens.
    pub n: usize,
    /// The number of heads.
    pub heads: usize,
    /// The width of a head.
    pub d: usize,
}

/// A computation, and the way to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The way.
    pub kernel: Kernel,
    /// The mask: full or causal.
    pub mask: Mask,
    /// The pass: forward, or forward and backward.
    pub pass: Pass,
}

/// A way to compute attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(Display, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Kernel {
    /// This crate's fast attention.
    Flash,
    /// PyTorch's `scaled_dot_product_attention`, in its fused form.
    PytorchFused,
    /// PyTorch: matmul, softmax, matmul.
    PytorchWritten,
    /// NumPy: matmul, softmax, matmul, and the six steps back.
    Numpy,
    /// This crate's attention as the equations write it.
    Naive,
}

/// A mask: all keys are seen, or none that comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Mask {
    /// Queries see later keys.
    Full,
    /// Queries do not see later keys.
    Causal,
}

/// A pass: forward, or forward and backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Pass {
    /// To the output.
    Forward,
    /// To the output, and back to the gradients.
    #[serde(rename = "forward+backward")]
    #[strum(serialize = "forward+backward")]
    ForwardBackward,
}

impl Problem {
    /// The size of each of its tensors, and of each that is computed of them.
    pub fn size(&self) -> usize {
        self.heads * self.n * self.d
    }
}

impl Pass {
    /// The names of the tensors that a check leaves behind.
    pub fn results(self) -> &'static [&'static str] {
        match self {
            Self::Forward => &["the output"],
            Self::ForwardBackward => &["the output", "∂q", "∂k", "∂v"],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_questions() {
        for kernel in Kernel::VARIANTS {
            assert_eq!(serde_json::to_value(kernel).unwrap(), kernel.to_string());
        }
        for mask in Mask::VARIANTS {
            assert_eq!(serde_json::to_value(mask).unwrap(), mask.to_string());
        }
        for pass in Pass::VARIANTS {
            assert_eq!(serde_json::to_value(pass).unwrap(), pass.to_string());
        }
    }
}
