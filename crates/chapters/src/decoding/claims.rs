//! Tests of what the chapter says of its numbers.

use super::facts::scores;

/// n(n + 1)(n + 2)/6 against n(n + 1)/2.
#[test]
fn a_cache_saves_a_third_of_n() {
    for n in [64, 1024, 16_384] {
        let (again, cached) = scores(n);
        let ratio = again as f64 / cached as f64;
        assert!((ratio - (n as f64 + 2.0) / 3.0).abs() < 1e-9);
    }
}
