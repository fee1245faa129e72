//! Tests of what the chapter says of its numbers.

use super::facts::{self, draw};
use super::saturation::{
    self, LENGTHS, Row, Rows, WIDTHS, mean, median, rows, rows_of_eight, share, starved,
};
use nalgebra::DVector;
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

fn for_each(lengths: &[usize], widths: &[usize], is_so: impl Fn(&Rows) -> bool) {
    for &n in lengths {
        for &d in widths {
            assert!(is_so(rows(n, d)), "n = {n}, d = {d}");
        }
    }
}

/// Returns true if a mean is larger without scaling than with it.
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
fn without_scaling_three_quarters_of_the_widest_rows_of_eight_are_saturated() {
    let saturated = share(&rows_of_eight().unscaled, |row| row.largest > 0.99);
    assert!((saturated - 0.75).abs() < 0.03, "{saturated}");
}

#[test]
fn without_scaling_the_median_gradient_is_hundreds_of_times_smaller_than_the_mean() {
    let Rows { unscaled, scaled, .. } = rows_of_eight();
    let ratio =
        |rows| mean(rows, |row| row.grad_query) / median(rows, |row| row.grad_query);
    assert!((200.0..1000.0).contains(&ratio(unscaled)), "{}", ratio(unscaled));
    assert!((0.9..1.2).contains(&ratio(scaled)), "{}", ratio(scaled));
}

#[test]
fn without_scaling_a_quarter_of_the_rows_gets_nearly_all_of_the_gradient() {
    let mut norms: Vec<f64> =
        rows_of_eight().unscaled.iter().map(|row| row.grad_query).collect();
    norms.sort_by(|a, b| b.total_cmp(a));
    let quarter: f64 = norms[..norms.len() / 4].iter().sum();
    let part = quarter / norms.iter().sum::<f64>();
    assert!(part > 0.95, "{part}");
}

#[test]
fn with_more_keys_even_the_median_gradient_can_be_larger_without_scaling() {
    for n in [64, 512] {
        let Rows { unscaled, scaled, .. } = rows(n, 64);
        let median = |rows| median(rows, |row| row.grad_query);
        assert!(median(unscaled) > median(scaled), "{n}");
    }
}

#[test]
fn per_unit_of_the_unscaled_score_the_division_does_not_even_double_the_response() {
    let [unscaled, scaled] = facts::four_scores().unwrap().map(|of| of.weights[0]);
    let gain = scaled * (1.0 - scaled) / 8.0 / (unscaled * (1.0 - unscaled));
    assert!((1.0..2.0).contains(&gain), "{gain}");
}

#[test]
fn with_scaling_the_largest_of_eight_weights_is_about_a_third_and_no_row_saturates() {
    let scaled = &rows_of_eight().scaled;
    let largest = mean(scaled, |row| row.largest);
    assert!((largest - 1.0 / 3.0).abs() < 0.05, "{largest}");
    assert!(share(scaled, |row| row.largest > 0.99) < 0.005);
}

#[test]
fn no_scaled_row_is_starved() {
    for_each(&LENGTHS, &WIDTHS, |rows| starved(&rows.scaled) < 0.005);
}

#[test]
fn products_have_the_variance_of_their_width_and_mean_zero() {
    for d in [8, 512] {
        let scaled = facts::many_products(d) / (d as f64).sqrt();
        assert!(scaled.mean().abs() < 0.03, "{}", scaled.mean());
        assert!((scaled.variance() - 1.0).abs() < 0.05, "{}", scaled.variance());
    }
}

/// For normal entries, the variance is 1 + ρ².
#[test]
fn aligned_scores_grow_with_the_width_and_their_spread_does_not() {
    let rho = 0.5_f64;
    for d in [64, 256] {
        let rng = &mut ChaCha8Rng::seed_from_u64(d as u64);
        let scores = DVector::from_fn(5000, |_, _| {
            let (k, z) = (draw(d, rng), draw(d, rng));
            let q = &k * rho + z * (1.0 - rho * rho).sqrt();
            q.dot(&k) / (d as f64).sqrt()
        });
        let off = scores.mean() - facts::aligned_mean(rho, d);
        assert!(off.abs() < 0.1, "{off}");
        assert!((scores.variance() - 1.25).abs() < 0.1, "{}", scores.variance());
    }
}

/// What the page says of the division that a row's gradient would have without the factor 1/a.
#[test]
fn what_passes_softmax_is_several_times_smaller_without_scaling() {
    let Rows { unscaled, scaled, .. } = rows_of_eight();
    let [without, with] = [(unscaled, 0.0), (scaled, 0.5)]
        .map(|(rows, power)| saturation::mean_through_softmax(rows, 512, power));
    assert!((5.0..10.0).contains(&(with / without)), "{without}, {with}");
}

#[test]
fn without_scaling_most_scores_hardly_move_but_for_short_narrow_rows() {
    for_each(&LENGTHS, &[64, 512], |rows| {
        mean(&rows.scaled, |it| it.faint_scores) < 0.002
    });
    for_each(&LENGTHS[1..], &[64, 512], |rows| {
        mean(&rows.unscaled, |it| it.faint_scores) > 0.7
    });
    let narrow = mean(&rows(8, 64).unscaled, |it| it.faint_scores);
    assert!((0.3..0.5).contains(&narrow), "{narrow}");
}
