//! Tests of what the chapter says of its numbers.

use super::facts::{Facts, Link};
use super::page::constant_head;
use std::collections::BTreeMap;

#[test]
fn what_the_chapter_says_of_the_chain() {
    let facts = Facts::open().unwrap();
    let repeated = &facts.repeated;
    // "The largest group by far."
    let above_half = |key: &str| {
        repeated.scores[key].iter().flatten().filter(|score| **score > 0.5).count()
    };
    for other in ["previous", "induction", "itself"] {
        assert!(above_half("first") > 5 * above_half(other), "{other}");
    }
    // "Worse than even probabilities", and "it remembers".
    assert!(repeated.first.iter().all(|loss| *loss > repeated.even));
    assert!(
        repeated
            .second
            .iter()
            .zip(&repeated.first)
            .all(|(second, first)| second < &(first / 3.0))
    );

    let link = |what: &str| repeated.chain.iter().find(|link| link.what == what).unwrap();
    let of = |link: &Link| (link.second, link.patterns.clone());
    let (all, patterns) = of(link("none"));
    let (without, lost) = of(link("the best previous-token head"));
    assert_eq!(link("the best previous-token head").heads, ["16.0"]);
    assert_eq!(link("the best induction head").heads, ["18.6"]);
    // "Three of the four lose their pattern."
    assert_eq!(lost.iter().filter(|pattern| **pattern < 0.05).count(), 3);
    assert!(without > 2.5 * all);
    // "Don't matter nearly as much": the loss rises by less than a third of what it does without the head, and the patterns stay.
    for what in [
        "the other eight of block 16",
        "the next best previous-token head",
        "the next five up to block 16",
        "five at random below block 16",
    ] {
        let (loss, kept) = of(link(what));
        assert!(loss - all < (without - all) / 3.0, "{what}: {loss}");
        assert!(
            kept.iter().zip(&patterns).all(|(kept, pattern)| kept > &(pattern - 0.15)),
            "{what}"
        );
    }
    // "As faithfully": the second-best previous-token head.
    let [best, second] = ["16.0", "11.1"].map(|head| facts.score("previous", head));
    assert_eq!(link("the next best previous-token head").heads, ["11.1"]);
    assert!((best - second).abs() < 0.05);

    // Off and replaced by the mean.
    let all = repeated.second[..repeated.texts_for_all].iter().sum::<f64>()
        / repeated.texts_for_all as f64;
    let constant = constant_head(&facts);
    let rise = |map: &BTreeMap<String, f64>| map[&constant] - all;
    assert!(
        rise(&repeated.without) > all
            && rise(&repeated.replaced) < rise(&repeated.without) / 4.0,
        "{constant}"
    );
    let mut by_mean: Vec<_> = repeated.replaced.iter().collect();
    by_mean.sort_by(|a, b| b.1.total_cmp(a.1));
    assert!(by_mean[0].0 == "16.0" && by_mean[0].1 - all > 2.0 * (by_mean[1].1 - all));

    // English: nothing on the first reading, several times as much on the second.
    let rows = &facts.prose.rows;
    assert!(rows.iter().all(|row| (row.first - rows[0].first).abs() < 0.05));
    assert!(rows[1].heads == ["16.0"] && rows[1].second > 5.0 * rows[0].second);
    assert!(rows[3].heads == ["16.3"] && rows[3].second < 1.5 * rows[0].second);
}

#[test]
fn what_the_chapter_says_of_it() {
    let facts = Facts::open().unwrap();
    let it = &facts.it;
    // "All weights of it are the same, in every head."
    assert!(it.causal.largest_difference < 1e-5);
    assert!(it.causal.head.first_noun_most * 10 > it.sentences * 9);
    assert_eq!(2 * it.causal.head.right, it.sentences);
    // One changes its mind, the other doesn't.
    let [tired, soft] = it.both_ways.moved.weights[0];
    assert!(tired[0] > tired[1] && soft[1] > soft[0]);
    assert!(it.both_ways.unmoved.weights[0].iter().all(|[cat, mat]| cat > mat));
    assert_eq!(it.both_ways.unmoved.pairs_with_two_answers, 0);
    // "Meaning moves it on average and often, but doesn't decide."
    let moved = &it.both_ways.moved;
    assert!(moved.shift > 0.1 && moved.pairs_with_two_answers * 2 < it.sentences / 2);
    assert!(moved.right < it.both_ways.right_by_chance + 4);
    assert!(it.both_ways.moved_shift_without_it.abs() < 0.01);
    // From the late word, the head that "isn't missed" has the right noun in the first pair.
    let late = &it.late_word;
    assert!(
        late.first_pair[0][0] > late.first_pair[0][1]
            && late.first_pair[1][1] > late.first_pair[1][0]
    );

    let answers = &facts.resolved.answers;
    assert!(answers[0].right < it.sentences * 6 / 10 && answers[0].shift > 0.5);
    // "More than half as far."
    assert!(
        answers[1].what == "Bob"
            && (0.5..0.8).contains(&(answers[1].shift / answers[0].shift))
    );
    // Without 13.8 nothing is lost; four heads take most.
    assert!(answers[2].heads == ["13.8"] && answers[2].shift > 0.95 * answers[0].shift);
    // "Most often the same noun for both ends."
    assert!(answers[0].both_right * 4 < it.sentences / 2);
    let share = |row: usize| answers[row].shift / answers[0].shift;
    assert!(answers[3].heads.len() == 4 && (0.3..0.37).contains(&share(3)));
    assert_eq!((&answers[4].heads, answers[4].what.as_str()), (&answers[3].heads, "Bob"));
    // "Most of both: what follows from tired alone, and nearly all that the pronoun adds"; and not by chance.
    assert!(answers[4].shift < 0.5 * answers[1].shift);
    let pronoun = |row: usize| answers[row].shift - answers[row + 1].shift;
    assert!(pronoun(3) < 0.2 * pronoun(0));
    assert!(answers[3].shift_held_out < 0.4 * answers[0].shift_held_out);
    for random in &answers[5..] {
        assert!(random.heads.len() == 4 && random.shift > 0.9 * answers[0].shift);
    }
    // "Two thirds of the way", and "within a few blocks".
    let [late, between, last] = ["the late word", "between", "the last token"]
        .map(|key| &facts.resolved.patched[key]);
    assert!(late[20] > 0.6 && late[24] < 0.3 && last[20] < 0.25 && last[24] > 0.6);
    assert!(between.iter().all(|share| share.abs() < 0.3));
    // Three maps that fit, and answers that don't need them.
    let asked = &facts.pronouns.answers;
    assert!(asked[1].what == "the three" && asked[1].heads.len() == 3);
    assert!(asked[1].right >= asked[0].right);
    // Pronouns.
    assert!(
        facts
            .pronouns
            .heads
            .iter()
            .all(|head| head.right * 10 > facts.pronouns.sentences * 8)
    );
}

#[test]
fn what_the_chapter_says_of_blocks_and_reasons() {
    let facts = Facts::open().unwrap();
    let blocks = &facts.blocks;
    // The nearest blocks are in the middle and near the end; block 0 isn't among them.
    let mut nearest: Vec<usize> = (0..blocks.near.len()).collect();
    nearest.sort_by(|a, b| blocks.near[*b].total_cmp(&blocks.near[*a]));
    assert!(nearest[..5].iter().all(|block| (10..=28).contains(block)), "{nearest:?}");
    // The sink.
    assert!(blocks.first[..2].iter().all(|share| *share < 0.05));
    assert!(blocks.first[12..29].iter().all(|share| *share > 0.25));
    // "Up to seven tenths" in the last third, and "a third of all heads" rest there.
    let most = blocks.first[20..].iter().copied().fold(0.0, f64::max);
    assert!((0.65..0.75).contains(&most), "{most}");
    let resting =
        facts.repeated.scores["first"].iter().flatten().filter(|score| **score > 0.5);
    assert!((0.3..0.37).contains(&(resting.count() as f64 / 270.0)));
    // "More than half of all heads aren't in the table."
    let favourite = |head: (usize, usize)| {
        ["first", "previous", "induction", "itself"]
            .iter()
            .any(|kind| facts.repeated.scores[*kind][head.0][head.1] > 0.5)
    };
    let without = (0..30).flat_map(|l| (0..9).map(move |h| (l, h)));
    assert!(without.filter(|head| !favourite(*head)).count() > 270 / 2);
    // The heads that carry the shift stand "in blocks 16 to 20", the sure head of names "in block 2".
    let block = |head: &str| head.split_once('.').unwrap().0.parse::<usize>().unwrap();
    let carrying = &facts.resolved.answers[3].heads;
    assert!(carrying.iter().all(|head| (16..=20).contains(&block(head))));
    assert_eq!(block(&facts.names.heads[0].head), 2);
    // Names early: "all are in the first blocks".
    for of_names in &facts.names.heads {
        assert!(block(&of_names.head) <= 4, "{}", of_names.head);
        assert!(of_names.names > of_names.others + 0.15, "{}", of_names.head);
    }
    // "Only the first row is sure."
    let sure = facts.names.heads.iter().map(|row| row.more > facts.names.more_by_chance);
    assert_eq!(sure.collect::<Vec<_>>(), [true, false, false, false]);

    let head = |reason: usize, name: &str| {
        facts.reasons[reason].heads.iter().find(|row| row.head == name).unwrap()
    };
    let capital = &facts.reasons[0];
    // Three look hard at the country; one is needed, the others hardly, and two that look elsewhere are missed more than these.
    assert!(["23.4", "16.0", "16.3"].iter().all(|name| head(0, name).weight > 0.5));
    assert!(head(0, "23.4").without < capital.mean / 3.0);
    for hardly in ["16.0", "16.3"] {
        assert!((head(0, hardly).without / capital.mean - 1.0).abs() < 0.15);
        for name in ["12.0", "11.7"] {
            let row = head(0, name);
            assert!(
                row.weight < 0.1
                    && row.without < head(0, hardly).without
                    && row.without < 0.75 * capital.mean
            );
        }
    }
    // In other words it looks as hard and is missed much less.
    let travel = &facts.reasons[1];
    assert!(head(1, "23.4").weight > 0.9 && head(1, "23.4").without > 0.7 * travel.mean);
    // Against.
    let ball = &facts.reasons[2];
    let against = head(2, "24.4");
    assert!(against.weight > 0.5 && against.without > ball.mean && against.falls == 0);
    let hardly = head(2, "22.7");
    assert!(hardly.weight > 0.5 && (hardly.without / ball.mean - 1.0).abs() < 0.1);
    assert!(head(2, "29.1").weight < 0.05 && head(2, "29.1").without < 0.75 * ball.mean);
}
