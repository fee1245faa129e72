//! Tests of what the chapter says of its numbers.

use super::facts::Facts;
use super::page::{most_expensive, norm_of};

#[test]
fn what_the_chapter_says_of_heads_and_blocks() {
    let facts = Facts::compute().unwrap();
    let heads = facts.heads().unwrap();
    let of_block = |block: usize| heads.iter().filter(move |head| head.block == block);
    let distance =
        |block: usize| of_block(block).map(|head| head.distance).sum::<f64>() / 4.0;
    // Block 1 looks furthest; from block 2 on it widens.
    assert!(
        distance(0) > 2.0 * distance(3)
            && distance(3) > distance(2)
            && distance(2) > distance(1)
    );

    // Two heads share out the letters: an e looks one back with one and two back with the other.
    let [first, second] = most_expensive(&heads);
    assert!(first.block == 1 && second.block == 1 && first.rise > 20.0 * heads[0].rise);
    assert!(
        first.e_two_back > 0.6 && second.e_one_back > 0.7 && first.space_on_itself > 0.6
    );
    // In head 1.1, spaces look at themselves as much, and it is worth a twentieth.
    assert!((heads[0].space_on_itself - first.space_on_itself).abs() < 0.05);

    assert!(heads.iter().filter(|head| head.rise > first.rise / 5.0).count() == 2);
    // "It doubles", and "half as much".
    let whole = facts.model().loss(&facts.held_out).unwrap();
    assert!((1.9..2.1).contains(&(1.0 + first.rise / whole)));
    assert!((0.45..0.55).contains(&(second.rise / first.rise)));
    // "Thirteen others": less than a sixth.
    assert_eq!(heads.iter().filter(|head| head.rise < whole / 6.0).count(), 13);
    // After an e the two are missed most, after a space least; and the one that looks two back more.
    let of = |head: &super::facts::Head| (head.block, head.head);
    let [by_first, by_second, by_both] = [vec![first], vec![second], vec![first, second]]
        .map(|off| {
            facts.rises_after(&off.into_iter().map(of).collect::<Vec<_>>()).unwrap()
        });
    for [space, e, other] in [by_first, by_second, by_both] {
        assert!(space < other / 2.0 && other < e / 1.3, "{space} {e} {other}");
    }
    assert!(by_first[1] > 1.5 * by_second[1]);
    // The first e of the sentence, in the map.
    assert!(facts.map(first).unwrap()[(2, 0)] > 0.5);
    assert!((0.25..0.45).contains(&heads[3].e_two_back));

    // Gradients of values and outputs are larger, by two or three.
    let last = facts.opened.trained.history.last().unwrap();
    let [q, k, v, o] =
        ["w_q", "w_k", "w_v", "w_o"].map(|name| norm_of(last, name).unwrap());
    assert!(q.max(k) < v.min(o) && v.max(o) < 3.5 * q.min(k), "{q} {k} {v} {o}");

    // Every head is worth something, a block's heads more together than one by one.
    assert!(heads.iter().all(|head| head.rise > 0.02));
    for block in 0..4 {
        let alone: f64 = of_block(block).map(|head| head.rise).sum();
        let together: Vec<_> =
            of_block(block).map(|head| (head.block, head.head)).collect();
        assert!(facts.rise(&together).unwrap() > alone);
    }
    // No head rests on the first character or finds the place where it read the same.
    assert!(heads.iter().all(|head| head.first < 0.02 && head.after_same_place < 0.02));
    let [first, second] = facts.losses_of_readings().unwrap();
    assert!(second > first - 0.02, "{first} {second}");
}
