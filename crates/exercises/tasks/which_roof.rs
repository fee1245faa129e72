//! # Which roof?
//!
//! easy, 10 minutes
//!
//! Before you make a program faster, ask what it waits for. Write two functions that answer from counts alone.
//!
//! `judge` places one program under the roof of a machine: its arithmetic intensity, the machine's ridge, the best rate
//! that the program can reach there, and what limits it.
//!
//! `least_seconds` is for a program of several sweeps, given as pairs of FLOPs and bytes. A sweep starts when the one
//! before has ended, so nothing is computed while another sweep waits for memory. Return the least time that the whole
//! program can take.
//!
//! # Hint
//!
//! Which of the two quantities belongs to the program, and which to the machine: FLOPs divided by bytes, peak divided
//! by bandwidth?
//!
//! # Hint
//!
//! The rate is the smaller of two rates: the peak, and intensity times bandwidth. For one sweep, the time is the longer
//! of two times.
//!
//! # Hint
//!
//! With several sweeps, take the larger time *of each sweep*, and add these up. Adding all FLOPs and all bytes first
//! would let one sweep compute while another one waits.

/// What a machine can do at best.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// FLOPs in a second.
    pub peak: f64,
    /// Bytes that memory delivers in a second.
    pub bandwidth: f64,
}

/// What sets a program's pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// It waits for bytes.
    MemoryBound,
    /// It waits for arithmetic.
    ComputeBound,
}

/// A program under the roof of a machine.
#[derive(Debug, Clone, Copy)]
pub struct Verdict {
    /// FLOPs for each byte that the program moves.
    pub intensity: f64,
    /// The intensity from which on the machine's arithmetic is the limit.
    pub ridge: f64,
    /// FLOPs in a second, at best.
    pub rate: f64,
    /// What limits the program. At the ridge itself, either is right.
    pub limit: Limit,
}

/// Judges a program with these FLOPs that moves these bytes.
pub fn judge(machine: Machine, flops: f64, bytes: f64) -> Verdict {
    // SOLUTION
    // FAULT upside-down: operations for each byte, and not bytes for each operation
    // > let intensity = bytes / flops;
    let intensity = flops / bytes;
    let ridge = machine.peak / machine.bandwidth;
    // FAULT always-peak: bytes can't arrive faster than the bandwidth
    // > let rate = machine.peak;
    let rate = machine.peak.min(intensity * machine.bandwidth);
    // FAULT swapped: left of the ridge
    // > let limit = if intensity < ridge { Limit::ComputeBound } else { Limit::MemoryBound };
    let limit = if intensity < ridge { Limit::MemoryBound } else { Limit::ComputeBound };
    Verdict { intensity, ridge, rate, limit }
    // END
}

/// Returns the least time of sweeps that run one after another. A sweep is a pair of its FLOPs and its bytes.
pub fn least_seconds(machine: Machine, sweeps: &[(f64, f64)]) -> f64 {
    // SOLUTION
    let seconds = |(flops, bytes): (f64, f64)| {
        (flops / machine.peak).max(bytes / machine.bandwidth)
    };
    // FAULT all-at-once: one sweep computes while another one waits
    // > seconds((sweeps.iter().map(|sweep| sweep.0).sum(), sweeps.iter().map(|sweep| sweep.1).sum()))
    sweeps.iter().map(|sweep| seconds(*sweep)).sum()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: [Machine; 3] = [
        Machine { peak: 1e11, bandwidth: 2e10 },
        Machine { peak: 2e13, bandwidth: 1.5e12 },
        Machine { peak: 3e9, bandwidth: 4e9 },
    ];

    fn is(came: f64, right: f64) -> bool {
        (came / right - 1.0).abs() < 1e-12
    }

    #[test]
    fn intensity_is_the_programs_and_the_ridge_is_the_machines() {
        for machine in MACHINES {
            for (flops, bytes) in [(5e6, 8e6), (7e9, 1e8), (3.0, 7.0)] {
                let verdict = judge(machine, flops, bytes);
                let came = verdict.intensity;
                assert!(
                    is(came, flops / bytes),
                    "{flops} FLOPs for {bytes} bytes get the intensity {came:.3}: it's operations for each byte, and not bytes for each operation"
                );
                let ridge = machine.peak / machine.bandwidth;
                assert!(
                    is(verdict.ridge, ridge),
                    "the ridge of {machine:?} should be {ridge:.3} and is {:.3}: does it depend on the program?",
                    verdict.ridge
                );
            }
        }
    }

    #[test]
    fn the_rate_is_the_lower_of_two() {
        for machine in MACHINES {
            for intensity in [0.1, 1.0, 3.0, 10.0, 50.0] {
                let came = judge(machine, intensity * 1e6, 1e6).rate;
                let right = if intensity * machine.bandwidth < machine.peak {
                    intensity * machine.bandwidth
                } else {
                    machine.peak
                };
                assert!(
                    came <= right * (1.0 + 1e-12),
                    "{intensity} FLOP/byte on {machine:?}: {came:.2e} FLOP/s is too much; bytes can't arrive faster than the bandwidth, nor FLOPs exceed the peak"
                );
                assert!(
                    is(came, right),
                    "{intensity} FLOP/byte on {machine:?} should reach {right:.2e} FLOP/s, not {came:.2e}"
                );
            }
        }
    }

    #[test]
    fn left_of_the_ridge_memory_limits() {
        for machine in MACHINES {
            let ridge = machine.peak / machine.bandwidth;
            for (factor, limit) in [(0.5, Limit::MemoryBound), (2.0, Limit::ComputeBound)]
            {
                let came = judge(machine, factor * ridge * 1e6, 1e6).limit;
                assert!(
                    came == limit,
                    "an intensity of {factor} times the ridge: left of the ridge a program waits for bytes, right of it for arithmetic; yours is {came:?}, expected {limit:?}"
                );
            }
        }
    }

    #[test]
    fn passes_wait_one_by_one() {
        let machine = MACHINES[0];
        // A product, which is compute-bound, and a softmax, which is memory-bound.
        let sweeps = [(1e12, 1e9), (5e9, 8e9)];
        let came = least_seconds(machine, &sweeps);
        assert!(
            !is(came, 10.05),
            "10.05 s is what both sweeps take if one sweep computes while another one waits: but they run one after another"
        );
        assert!(
            is(came, 10.4),
            "the first sweep takes 10 s and the second 0.4 s; together you say {came}"
        );
        assert!(
            is(least_seconds(machine, &sweeps[1..]), 0.4),
            "a single sweep takes the longer of its two times"
        );
        let two = least_seconds(MACHINES[2], &[(3e9, 1.0), (1.0, 4e9), (6e9, 12e9)]);
        assert!(is(two, 5.0), "sweeps of 1, 1 and 3 seconds took {two}");
    }
}
