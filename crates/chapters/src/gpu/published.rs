//! Published speeds of other kernels.

use super::machine::H100;

/// Forward, d = 128, on an H100, in the numbers of J. Shah et al., *FlashAttention-3* (2024).
pub struct Published {
    pub who: &'static str,
    /// TFLOP/s without a mask, and with a causal one.
    pub speeds: [f64; 2],
    pub tokens: usize,
}

impl Published {
    /// The speeds as shares of the roof.
    pub fn shares(&self) -> [f64; 2] {
        self.speeds.map(|speed| speed * 1e12 / H100.bf16)
    }
}

pub const UNFUSED: Published =
    Published { who: "unfused, PyTorch", speeds: [139.0, 35.0], tokens: 8192 };
pub const FLASH_2: Published =
    Published { who: "FlashAttention-2", speeds: [370.0, 335.0], tokens: 16_384 };
pub const CUDNN: Published =
    Published { who: "cuDNN", speeds: [595.0, 539.0], tokens: 16_384 };
pub const FLASH_3: Published =
    Published { who: "FlashAttention-3", speeds: [648.0, 616.0], tokens: 16_384 };
