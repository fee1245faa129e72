//! Tests of what the chapter says of its numbers.

use super::facts::{kept, written};
use crate::real_model::facts::Facts;
use laboratory::Change;

/// The table: another run, threads and sequences by themselves change no row; other rows and other shapes do; with one order only the
/// merging of parts is left.
#[test]
fn the_shape_of_the_work_changes_bits_and_one_order_keeps_them() {
    for row in kept().unwrap() {
        let holds = match row.change {
            Change::Run | Change::Threads | Change::Sequences | Change::Pages => {
                [true; 4]
            }
            Change::Parts => [false; 4],
            _ => [false, false, false, true],
        };
        assert_eq!(row.holds, holds, "{}", row.change);
    }
}

/// In single precision bits change and no text does; rounded to bf16 some texts part; with one order nothing changes.
#[test]
fn a_bit_becomes_a_word_where_numbers_are_rounded_to_bf16() {
    let [single, half, one_order] = written().unwrap().runs;
    assert!(single.same_bits() < 0.1 && single.parted() == 0);
    assert!(half.same_bits() < 0.1 && half.parted() > 1);
    assert!(one_order.same_bits() == 1.0 && one_order.parted() == 0);
    let [single, half] = [single, half].map(|run| run.largest_difference());
    assert!(half / single > 1000.0, "{half} against {single}");
}

/// A token's numbers, of all blocks together, are about half of 2¹⁵.
#[test]
fn every_second_token_meets_a_middle() {
    let causal = &Facts::open().unwrap().models[0];
    let width = causal.heads * 64; // of the model: each head has 64 columns
    assert_eq!(width, 576);
    let share = (width * causal.blocks) as f64 / f64::from(1 << 15);
    assert!((0.45..0.55).contains(&share), "{share}");
}
