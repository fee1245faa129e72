//! Tests of what the chapter says of its numbers.

use super::facts;

#[test]
fn xaviers_start_lies_between_two_extremes() {
    let [small, xavier, large] = [0.1, 1.0, 3.0].map(|f| facts::start(f).unwrap());
    assert!(small.entropy > 0.999 && large.entropy < 0.1, "not extreme");
    assert!((0.5..0.9).contains(&xavier.entropy), "not between the extremes");
    assert!(large.grad_w_q > xavier.grad_w_q);
    // Two thousand times smaller, and that of W_O about thirty times: ten by W_V, the rest because equal weights make a smaller average.
    assert!((1900.0..2200.0).contains(&(xavier.grad_w_q / small.grad_w_q)));
    let of_output = xavier.grad_w_o / small.grad_w_o;
    assert!((25.0..35.0).contains(&of_output), "{of_output}");
}

#[test]
fn place_and_action_want_water_or_money_and_action_wants_no_place() {
    let product = facts::comparison();
    for (i, j) in [(2, 0), (2, 1), (3, 0), (3, 1)] {
        assert!(product[(i, j)] > 0.0, "{product}");
    }
    assert_eq!(product.min(), product[(3, 2)]);
    assert_eq!(product.rows(0, 2).amax(), 0.0);
}
