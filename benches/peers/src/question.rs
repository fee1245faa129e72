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
        /// Its kind and sizes.
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

/// A problem: what is in the file, by kind and sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// The computation that is timed on it.
    pub kind: Kind,
    /// The number of tokens.
    pub n: usize,
    /// The number of heads.
    pub heads: usize,
    /// The width of a head.
    pub d: usize,
}

/// A computation on a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Attention, in f32. The file holds q, k, v and the gradient of the output, each (heads, n, d).
    Attention,
    /// The layer, in f64. The file holds x and the gradient of the output, each (n, d_model), then W_Q, W_K, W_V and
    /// W_O, each (d_model, d_model), then b_Q, b_K, b_V and b_O; d_model is heads · d.
    Layer,
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
    /// This crate's attention as the equations write it, and the layer on it.
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
    /// The sizes of the tensors in its file.
    pub fn inputs(&self) -> Vec<usize> {
        let (tokens, width) = (self.n * self.heads * self.d, self.heads * self.d);
        match self.kind {
            Kind::Attention => vec![tokens; 4],
            Kind::Layer => {
                [vec![tokens; 2], vec![width * width; 4], vec![width; 4]].concat()
            }
        }
    }

    /// The names and sizes of the tensors that a check leaves behind. The layer's biases are one tensor: the gradient
    /// of b_K is nothing but rounding, and has to be measured against the others.
    pub fn results(&self, pass: Pass) -> Vec<(&'static str, usize)> {
        let (tokens, width) = (self.n * self.heads * self.d, self.heads * self.d);
        let mut results = vec![("the output", tokens)];
        if pass == Pass::ForwardBackward {
            results.extend(match self.kind {
                Kind::Attention => ["∂q", "∂k", "∂v"].map(|name| (name, tokens)).to_vec(),
                Kind::Layer => [
                    vec![("∂x", tokens)],
                    ["∂W_Q", "∂W_K", "∂W_V", "∂W_O"]
                        .map(|name| (name, width * width))
                        .to_vec(),
                    vec![("the biases' gradients", 4 * width)],
                ]
                .concat(),
            });
        }
        results
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
