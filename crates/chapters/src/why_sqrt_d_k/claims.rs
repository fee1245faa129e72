//! What the chapter says of its numbers.

use super::saturation::{LENGTHS, Row, Rows, WIDTHS, compute_rows, mean, rows};
use std::sync::LazyLock;

static COMPUTED: LazyLock<()> = LazyLock::new(|| {
    let all = LENGTHS.iter().flat_map(|&n| WIDTHS.map(|d| (n, d)));
    compute_rows(all.collect()).unwrap();
});

fn for_each(lengths: &[usize], widths: &[usize], is_so: impl Fn(&Rows) -> bool) {
    LazyLock::force(&COMPUTED);
    for &n in lengths {
        for &d in widths {
            assert!(is_so(rows(n, d).unwrap()), "n = {n}, d = {d}");
        }
    }
}

/// Whether a mean is larger without scaling than with it.
fn larger(rows: &Rows, of: fn(&Row) -> f64) -> bool {
    mean(&rows.unscaled, of) > mean(&rows.scaled, of)
}

#[test]
fn without_scaling_the_mean_largest_weight_is_larger() {
    for_each(&LENGTHS, &WIDTHS, |rows| larger(rows, |row| row.largest));
}

#[test]
fn without_scaling_the_mean_gradient_of_wide_queries_is_larger() {
    let wide: Vec<_> = WIDTHS.into_iter().filter(|d| *d >= 64).collect();
    for_each(&LENGTHS, &wide, |rows| larger(rows, |row| row.grad_query));
}

#[test]
fn without_scaling_the_mean_jacobian_of_long_rows_is_larger() {
    for_each(&[512], &WIDTHS, |rows| larger(rows, |row| row.jacobian));
}
