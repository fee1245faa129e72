//! Tests of what the chapter says of its numbers.

use super::facts::{Facts, most};

#[test]
fn what_the_chapter_says_of_heads_and_blocks() {
    let facts = Facts::compute().unwrap();
    let heads = facts.heads().unwrap();
    let mean = |block: usize| {
        let of_block = heads.iter().filter(|head| head.block == block);
        of_block.map(|head| head.distance).sum::<f64>() / 4.0
    };
    // The first block looks furthest back, and the second least far.
    assert!(mean(0) > 2.0 * mean(3) && mean(3) > mean(2) && mean(2) > mean(1));
    // The most local head matters most, and more than all others of the first block together.
    let dear = most(&heads, |head| head.rise);
    assert_eq!(dear.name(), most(&heads, |head| head.before).name());
    let first_block: f64 =
        heads.iter().filter(|head| head.block == 0).map(|head| head.rise).sum();
    assert!(dear.rise > first_block);
    // No head is worth nothing, and none rests on the first character.
    assert!(heads.iter().all(|head| head.rise > 0.02 && head.first < 0.05));
    // What was read before is no easier the second time.
    let [first, second] = facts.losses_of_readings().unwrap();
    assert!(second > first - 0.02, "{first} {second}");
}
