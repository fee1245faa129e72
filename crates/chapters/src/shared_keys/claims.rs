//! Tests of what the chapter says of its numbers.

use super::facts::{HEADS, Kept, LATENT, LATENT_HEADS};
use laboratory::hardware::H100;

#[test]
fn four_heads_for_one_keep_a_quarter_and_work_four_times_as_much_for_each_byte() {
    let (all, grouped) = (Kept::Heads(HEADS), Kept::Heads(8));
    assert_eq!(all.bytes(4096), 2 << 30);
    assert_eq!(4 * grouped.bytes(4096), all.bytes(4096));
    assert_eq!((all.intensity(), grouped.intensity()), (1.0, 4.0));
}

#[test]
fn latent_rows_are_between_grouped_and_multi_query_in_memory_and_above_both_in_work() {
    let [grouped, one] = [8, 1].map(Kept::Heads);
    assert!(LATENT.bytes(1) < grouped.bytes(1) && LATENT.bytes(1) > one.bytes(1));
    assert!(LATENT.intensity() > one.intensity());
}

#[test]
fn latent_rows_wait_for_memory() {
    let ridge = H100.bf16 / H100.bandwidth;
    assert!(LATENT.intensity_with(LATENT_HEADS) < ridge);
}
