//! # When is the exchange hidden?
//!
//! medium, 20 minutes
//!
//! In ring attention a rank computes with the keys that it has while it sends them on. The exchange costs no time if it takes no longer than
//! the computing beside it. How many rows must a rank hold for that? And over how many ranks may you spread a sequence?
//!
//! In one step of the ring, a rank has $m$ queries and $m$ keys at hand. Its $h$ query heads of width $d$ take $4 m^2 h d$ FLOPs.
//! There is no causal mask: every query meets every key. Meanwhile the rank sends $m$ keys and $m$ values of each
//! *key-value* head. A network's speed is given as it is sold, in bits per second. A byte has 8 bits.
//!
//! For `most_ranks`, spread $n$ rows as evenly as you can. The smallest share, $n / P$ rounded down, must be enough. A rank that is alone sends
//! nothing, so one rank is always possible.
//!
//! # Hint
//!
//! Write both times as formulas in $m$. One grows with $m$, the other with $m^2$. Which one is longer for a small $m$?
//!
//! # Hint
//!
//! Set both times equal and solve for $m$. One factor $m$ and the width cancel. What remains says how many FLOPs the rank can compute
//! while a byte travels. Rows are whole: which way do you round?
//!
//! # Hint
//!
//! With $b$ bytes a number, $F$ FLOPs and $S$ bits per second, $m \ge \frac{8 \cdot h_{kv} \cdot b \cdot F}{2 \cdot h \cdot S}$, rounded
//! up with `.ceil()`. And $\lfloor n / P \rfloor \ge m$ says the same as $P \le n / m$.

/// What a step of the ring depends on.
#[derive(Debug, Clone, Copy)]
pub struct Ring {
    /// Heads of queries (h).
    pub heads: usize,
    /// Heads of keys and values (h_kv), as many or fewer.
    pub key_value_heads: usize,
    /// The width of a head's queries, keys and values (d).
    pub width: usize,
    /// Bytes of a number (b).
    pub bytes_per_number: usize,
    /// FLOPs that a rank computes in a second (F).
    pub flops_per_second: f64,
    /// Bits that a rank sends in a second (S).
    pub bits_per_second: f64,
}

/// Returns how long a rank with `m` rows computes in a step.
pub fn seconds_of_compute(m: usize, ring: &Ring) -> f64 {
    // SOLUTION
    (4 * m * m * ring.heads * ring.width) as f64 / ring.flops_per_second
    // END
}

/// Returns how long a rank with `m` rows sends in a step.
pub fn seconds_of_exchange(m: usize, ring: &Ring) -> f64 {
    // SOLUTION
    // FAULT heads-of-queries: only key-value heads travel
    // > let numbers = 2 * m * ring.heads * ring.width;
    // FAULT keys-alone: each key's value travels, too
    // > let numbers = m * ring.key_value_heads * ring.width;
    let numbers = 2 * m * ring.key_value_heads * ring.width;
    // FAULT bits-for-bytes: a byte has 8 bits
    // > (numbers * ring.bytes_per_number) as f64 / ring.bits_per_second
    (8 * numbers * ring.bytes_per_number) as f64 / ring.bits_per_second
    // END
}

/// Returns the smallest number of rows for which the exchange takes no longer than the computing.
pub fn fewest_rows(ring: &Ring) -> usize {
    // SOLUTION
    let bits = (8 * ring.key_value_heads * ring.bytes_per_number) as f64;
    let flops = (2 * ring.heads) as f64;
    let rows = bits * ring.flops_per_second / (flops * ring.bits_per_second);
    // FAULT rounded-down: the exchange takes longer than the computing
    // > rows as usize
    // FAULT one-more: may take exactly as long
    // > rows as usize + 1
    rows.ceil() as usize
    // END
}

/// Returns over how many ranks `n` rows can be spread so that the exchange stays hidden, at least one.
pub fn most_ranks(n: usize, ring: &Ring) -> usize {
    // SOLUTION
    // FAULT one-rank-too-many: the smallest share is too small
    // > n.div_ceil(fewest_rows(ring)).max(1)
    (n / fewest_rows(ring)).max(1)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: Ring = Ring {
        heads: 32,
        key_value_heads: 8,
        width: 128,
        bytes_per_number: 2,
        flops_per_second: 4e14,
        bits_per_second: 3e11,
    };

    fn words(ring: &Ring) -> String {
        let Ring { heads, key_value_heads, width, bytes_per_number, .. } = ring;
        format!(
            "{heads} heads, {key_value_heads} key-value heads of width {width}, {bytes_per_number} bytes a number, {:e} FLOPs and {:e} bits a second",
            ring.flops_per_second, ring.bits_per_second
        )
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b
    }

    #[test]
    fn computing_grows_with_the_square() {
        for (m, flops) in [(1, 16_384.0), (1000, 16_384e6)] {
            let (yours, right) = (seconds_of_compute(m, &RING), flops / 4e14);
            assert!(
                close(yours, right),
                "m = {m}, {}: computing takes {right:.4e} s, yours {yours:.4e}: it takes 4 · {m} · {m} · 32 · 128 FLOPs",
                words(&RING)
            );
        }
    }

    #[test]
    fn keys_and_values_travel() {
        for (m, key_value_heads) in [(1, 32), (1000, 8), (1000, 1)] {
            let ring = Ring { key_value_heads, ..RING };
            let yours = seconds_of_exchange(m, &ring);
            let seconds = |heads: usize| 2.0 * (m * heads * 128 * 2 * 8) as f64 / 3e11;
            let right = seconds(key_value_heads);
            let why = if close(2.0 * yours, right) {
                "each key's value travels, too"
            } else if close(8.0 * yours, right) {
                "a byte has 8 bits, and the speed is in bits"
            } else if close(yours, 8.0 * right) || close(yours, right / 64.0) {
                "a byte has 8 bits: multiply the bytes by 8, once"
            } else if close(yours, seconds(32)) {
                "the queries stay where they are, and only key-value heads travel"
            } else {
                "m keys and m values of each key-value head, in bits"
            };
            assert!(
                close(yours, right),
                "m = {m}, {}: the exchange takes {right:.4e} s, yours {yours:.4e}: {why}",
                words(&ring)
            );
        }
    }

    /// The two times for some rows, from the task's text.
    fn times(m: usize, ring: &Ring) -> (f64, f64) {
        let m = m as f64;
        let computing = 4.0 * m * m * (ring.heads * ring.width) as f64;
        let numbers = 2.0 * m * (ring.key_value_heads * ring.width) as f64;
        let bits = 8.0 * numbers * ring.bytes_per_number as f64;
        (computing / ring.flops_per_second, bits / ring.bits_per_second)
    }

    #[test]
    fn one_row_fewer_and_the_exchange_shows() {
        for key_value_heads in [32, 8, 1] {
            let ring = Ring { key_value_heads, ..RING };
            let m = fewest_rows(&ring);
            let (computing, exchange) = times(m, &ring);
            assert!(
                exchange <= computing,
                "{}: with {m} rows the exchange takes longer than the computing, {exchange:.6e} s and {computing:.6e} s: which way do you round?",
                words(&ring)
            );
            let (computing, exchange) = times(m.saturating_sub(1), &ring);
            assert!(
                m == 1 || exchange > computing,
                "{}: you say {m} rows, but with {} the exchange is hidden as well, {exchange:.6e} s beside {computing:.6e} s",
                words(&ring),
                m - 1
            );
        }
    }

    #[test]
    fn it_may_take_exactly_as_long() {
        // Powers of two, so that nothing is rounded: the fewest rows are 8192 · h_kv / h.
        let ring = Ring {
            flops_per_second: 2f64.powi(48),
            bits_per_second: 2f64.powi(38),
            ..RING
        };
        for (key_value_heads, right) in [(32, 8192), (8, 2048), (1, 256)] {
            let m = fewest_rows(&Ring { key_value_heads, ..ring });
            assert!(
                m == right,
                "2^48 FLOPs and 2^38 bits a second, {key_value_heads} key-value heads for 32: both times are equal for {right} rows, yours {m}: the exchange may take exactly as long as the computing"
            );
        }
        let fast = Ring { bits_per_second: 2f64.powi(60), ..ring };
        let m = fewest_rows(&fast);
        assert!(
            m == 1,
            "on a very fast network one row is enough, and a share has one at least: yours {m}"
        );
    }

    #[test]
    fn the_smallest_share_is_enough() {
        let ring = Ring {
            flops_per_second: 2f64.powi(48),
            bits_per_second: 2f64.powi(38),
            ..RING
        };
        // The fewest rows are 2048.
        for (n, right) in
            [(131_072, 64), (131_071, 63), (10_000, 4), (2048, 1), (4095, 1)]
        {
            let ranks = most_ranks(n, &ring);
            assert!(
                ranks >= 1,
                "n = {n}: a rank that is alone sends nothing, so 1 is always possible: yours {ranks}"
            );
            let share = n / ranks;
            assert!(
                ranks <= right,
                "{n} rows over {ranks} ranks: the smallest share is too small, {share} rows where 2048 are needed"
            );
            assert!(
                ranks == right,
                "{n} rows over {ranks} ranks: each has {share} rows or more and needs 2048, so there could be {right} ranks"
            );
        }
        for n in [1, 2047] {
            let ranks = most_ranks(n, &ring);
            assert!(
                ranks == 1,
                "n = {n} is less than the 2048 rows that hide an exchange, but a rank that is alone sends nothing: expected 1, yours {ranks}"
            );
        }
    }
}
