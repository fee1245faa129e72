//! A large negative number in the place of −∞, in several formats of numbers.

use half::{bf16, f16};

/// A number format: rounds after every operation, as arithmetic in that format does.
pub type Rounding = fn(f64) -> f64;
pub const FORMATS: [(&str, Rounding); 4] = [
    ("f64", |x| x),
    ("f32", |x| f64::from(x as f32)),
    ("bf16", |x| bf16::from_f64(x).to_f64()),
    ("f16", |x| f16::from_f64(x).to_f64()),
];

/// Softmax of scores plus a mask, as a textbook writes it (no guard for rows that see nothing), in a format.
pub fn softmax_in(round: Rounding, scores: &[f64], mask: &[f64]) -> Vec<f64> {
    let masked = scores.iter().zip(mask).map(|(s, m)| round(round(*s) + round(*m)));
    let masked: Vec<f64> = masked.collect();
    let max = masked.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exponentials: Vec<f64> =
        masked.iter().map(|s| round(round(s - max).exp())).collect();
    let sum = exponentials.iter().fold(0.0, |sum, e| round(sum + e));
    exponentials.iter().map(|e| round(e / sum)).collect()
}

pub const SCORES: [f64; 3] = [2.0, 0.0, 1.0];

/// The weight of a hidden key beside two visible ones, in each format.
pub fn leaks(mask: f64) -> [f64; 4] {
    FORMATS.map(|(_, round)| softmax_in(round, &SCORES, &[0.0, 0.0, mask])[2])
}

/// Returns the distance below another score from which on a score has no weight, in a format.
pub fn gap_without_weight(round: Rounding) -> Option<u16> {
    (1..1000).find(|gap| softmax_in(round, &[0.0; 2], &[0.0, -f64::from(*gap)])[1] == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_rounds_every_operation() {
        let rounded = FORMATS.map(|(_, round)| round(-1e9 + 2.0));
        let near = f64::from(bf16::from_f64(-1e9)); // steps of 2²² there
        assert!(near != -1e9 && (near + 1e9).abs() <= f64::from(1 << 21));
        assert_eq!(rounded, [-999_999_998.0, -1e9, near, f64::NEG_INFINITY]);
        let p = softmax_in(FORMATS[3].1, &[0.0, 0.0, 0.0], &[0.0; 3]);
        assert_eq!(p[0], f16::from_f64(1.0 / 3.0).to_f64());
    }
}
