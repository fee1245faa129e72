//! Entropy and heat maps.

use attention::inspect::{heat_map, row_entropy};
use nalgebra::DMatrix;

/// A running sum of equal terms is off by six parts in a thousand here.
#[test]
fn the_entropy_of_many_equal_weights_has_all_its_digits() {
    for n_k in [1024, 1 << 16, 1 << 20] {
        let weights = DMatrix::from_element(1, n_k, 1.0 / n_k as f32);
        let entropy = f64::from(row_entropy(&weights).unwrap()[0]);
        let right = (n_k as f64).ln();
        assert!((entropy / right - 1.0).abs() < 1e-6, "{n_k}: {entropy}, not {right}");
    }
}

fn longest(map: &str) -> usize {
    map.lines().map(|line| line.chars().count()).max().unwrap()
}

/// A terminal of 100 columns shows each row in one line.
#[test]
fn a_heat_map_fits_a_terminal() {
    for (n, label) in
        [(2, "a"), (11, "token"), (18, "token"), (30, "word"), (96, "w"), (400, "x")]
    {
        let weights = DMatrix::from_fn(n, n, |i, j| if i == j { 1.0 } else { 0.0 });
        let labels: Vec<String> = (0..n).map(|i| format!("{label}{i}")).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let map = heat_map(&weights, &labels, &labels).unwrap();
        assert_eq!(map.lines().count(), n + 1);
        assert!(longest(&map) <= 100 || n == 400, "{n}: {}", longest(&map));
        assert_eq!(map.matches('█').count() % n, 0, "as many for each of the ones");
        assert!(map.contains('█'));
    }
}

/// Labels of any length: `format!` panics at a width beyond 65535.
#[test]
fn a_heat_map_takes_long_labels() {
    let long = "x".repeat(70_000);
    let map = heat_map(&DMatrix::<f64>::zeros(1, 2), &[&long], &[&long, "b"]).unwrap();
    assert!(longest(&map) <= 100, "{}", longest(&map));
}
