//! Tests of what the chapter says of its numbers.

use super::facts::{Facts, Link};
use super::page::{constant_heads, mean};
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
    // "The other three lose all of it."
    assert_eq!(lost.iter().filter(|pattern| **pattern < 0.05).count(), 3);
    assert!(without > 2.5 * all);
    // "Off in the second reading, it isn't missed", and off in the first "all is as if it were off everywhere".
    let (only_first, of_first) = of(link("the same, in the first reading only"));
    let (only_second, of_second) = of(link("the same, in the second reading only"));
    assert!((only_first - without).abs() < 0.1 && only_second < all);
    for i in 0..patterns.len() {
        assert!(
            (of_first[i] - lost[i]).abs() < 0.05 && of_second[i] > patterns[i] - 0.12
        );
    }
    // "Not all is lost", and the last row of the table is that of the four.
    assert!(without < mean(&repeated.first) - 3.0);
    assert_eq!(repeated.chain.last().unwrap().what, "the best four induction heads");
    // "None of the others does that": the loss rises by less than a third of what it does without the head, and the patterns stay.
    for what in [
        "the other eight of block 16",
        "the next best previous-token head",
        "five at random before block 16",
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
    let all = mean(&repeated.second);
    let [partly, constant] = constant_heads(&facts);
    let rise = |map: &BTreeMap<String, f64>, head: &str| map[head] - all;
    // "Nearly all of the damage is gone", of a head that seems "twice as needed as the best induction head"; "most of it", of the other.
    let off = |head: &str| rise(&repeated.without, head);
    assert!((1.7..2.3).contains(&(off(&constant) / off("18.6"))), "{constant}");
    assert!(rise(&repeated.replaced, &constant) < 0.05 * off(&constant));
    let left = rise(&repeated.replaced, &partly) / off(&partly);
    assert!((0.1..0.4).contains(&left), "{partly}: {left}");
    let mut by_mean: Vec<_> = repeated.replaced.iter().collect();
    by_mean.sort_by(|a, b| b.1.total_cmp(a.1));
    assert!(by_mean[0].0 == "16.0" && by_mean[0].1 - all > 2.0 * (by_mean[1].1 - all));
    assert_eq!(by_mean[1].0, "18.6");
    // Both are in the table, which shows six.
    let mut by_zero: Vec<_> = repeated.without.iter().collect();
    by_zero.sort_by(|a, b| b.1.total_cmp(a.1));
    assert!(
        [constant, partly].iter().all(|head| by_zero[..6].iter().any(|of| of.0 == head))
    );
    // "Makes little difference", zero or mean.
    let rises = [&repeated.without, &repeated.replaced].map(|map| rise(map, "16.0"));
    assert!((rises[0] / rises[1] - 1.0).abs() < 0.1);

    // English: nothing on the first reading, several times as much on the second.
    let rows = &facts.prose.rows;
    assert!(rows.iter().all(|row| (row.first - rows[0].first).abs() < 0.05));
    assert!(rows[1].heads == ["16.0"] && rows[1].second > 5.0 * rows[0].second);
    assert!(rows[2].heads == ["18.6"] && rows[2].second > 5.0 * rows[0].second);
    assert!(rows[3].heads == ["16.3"] && rows[3].second < 1.1 * rows[0].second);
}

#[test]
fn what_the_chapter_says_of_it() {
    let facts = Facts::open().unwrap();
    let it = &facts.it;
    // "All weights of it are the same, in every head."
    assert!(it.causal.largest_difference < 1e-5);
    assert_eq!(2 * it.causal.head.right, it.sentences);
    // One changes its mind, the other doesn't. The figures show the same weights, and the heads that the text names.
    let nouns = [&it.both_ways.moved, &it.both_ways.unmoved, &it.late_word.head];
    for (of, nouns) in it.first_pair.iter().zip(nouns) {
        assert_eq!(of.head, nouns.head);
        let noun = |end: usize, word: &str| {
            let at =
                of.tokens[end].iter().position(|token| token.trim() == word).unwrap();
            of.weights[end][at]
        };
        for (end, counted) in nouns.weights[0].iter().enumerate() {
            for (word, counted) in ["cat", "mat"].iter().zip(counted) {
                assert!((noun(end, word) - counted).abs() < 5e-4, "{}: {word}", of.head);
            }
        }
    }
    let [tired, soft] = it.both_ways.moved.weights[0];
    assert!(tired[0] > tired[1] && soft[1] > soft[0]);
    assert!(it.both_ways.unmoved.weights[0].iter().all(|[cat, mat]| cat > mat));
    assert_eq!(it.both_ways.unmoved.pairs_with_two_answers, 0);
    // "Two pairs of three don't look like it"; a little more than luck.
    let moved = &it.both_ways.moved;
    assert!(moved.pairs_with_two_answers * 2 < it.sentences / 2);
    assert!((1..5).contains(&(moved.right - it.both_ways.right_by_chance)));
    // "All but once": a pair that changes the wrong way has no right sentence.
    assert_eq!(moved.right, it.sentences / 2 + moved.pairs_with_two_answers - 2);
    // Look again: what "cat" loses goes to the first token, and hardly to "mat".
    let [tired, soft] = &it.first_pair[0].weights;
    let at =
        |word: &str| it.first_pair[0].tokens[0].iter().position(|token| token == word);
    let gain = |word: &str| at(word).map(|at| soft[at] - tired[at]).unwrap();
    assert!(gain("[CLS]") > -0.9 * gain("cat") && gain("mat") < 0.25 * -gain("cat"));
    assert_eq!(2 * it.both_ways.unmoved.right, it.sentences);
    // From the late word, the head that "isn't missed" has the right noun in the first pair, and looks away from the nouns if there is a name.
    let late = &it.late_word;
    let [tired, soft] = late.head.weights[0];
    assert!(tired[0] > tired[1] && soft[1] > soft[0]);
    // "Never the wrong way": a pair without a change has one right sentence.
    assert_eq!(late.head.right, it.sentences / 2 + late.head.pairs_with_two_answers);
    // With a name, it looks away from the nouns.
    let nouns = late.head.weights.iter().flatten().map(|[a, b]| a + b);
    assert!(late.on_nouns_with_name < 0.2 * nouns.sum::<f64>() / it.sentences as f64);
    // "In a third of the pairs."
    assert!((12..=14).contains(&late.head.pairs_with_two_answers));

    // "It says cat both times", though the odds move as they should, in most pairs; and the answer hardly ever changes.
    let resolved = &facts.resolved;
    let [tired, soft] = resolved.it.first_pair;
    assert!(tired > soft && soft > 0.0);
    assert!(resolved.it.move_right * 10 > it.sentences / 2 * 8);
    assert!(resolved.it.right * 10 < it.sentences * 6);
    assert!(resolved.with_name.move_right * 10 > it.sentences / 2 * 7);
    // A swap of the map's head hardly moves the odds, also where its map changes; all heads move them by "a quarter".
    let [of_map, random, all] = &resolved.moved[..] else { panic!("three rows") };
    assert_eq!([&of_map.head, &all.head], ["13.8", "all"]);
    assert!(of_map.all_pairs < 0.02 && of_map.where_map_changes < 0.05);
    assert!(random.all_pairs.abs() < 0.02 && random.where_map_changes.abs() < 0.02);
    assert!(
        (0.18..0.3).contains(&all.all_pairs)
            && (0.18..0.3).contains(&all.where_map_changes)
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
    // "Two early heads look one back."
    for head in ["2.1", "1.2"] {
        assert!(facts.score("previous", head) > 0.7, "{head}");
    }
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
    let block = |head: &str| head.split_once('.').unwrap().0.parse::<usize>().unwrap();
    // The sure head of names stands "in block 2".
    assert_eq!(block(&facts.names.heads[0].head), 2);
    // Names early: "all are in the first blocks".
    for of_names in &facts.names.heads {
        assert!(block(&of_names.head) <= 4, "{}", of_names.head);
        assert!(of_names.names > of_names.others + 0.15, "{}", of_names.head);
    }
    // "Only the first row is sure."
    let sure = facts.names.heads.iter().map(|row| row.more > facts.names.more_by_chance);
    assert_eq!(sure.collect::<Vec<_>>(), [true, false, false, false]);

    let [capital, travel, ball] = &facts.reasons;
    let head = |name: &str| capital.heads.iter().find(|row| row.head == name).unwrap();
    // Two look hard at the country. One is missed, and carries the country; the other neither.
    let [carries, looks] = ["23.4", "16.0"].map(head);
    assert!(carries.weight > 0.5 && looks.weight > 0.5);
    assert!((0.2..0.3).contains(&(carries.off / capital.p[0])));
    assert!(carries.swapped[0] < 0.01 && carries.swapped[1] > 0.9 * capital.p[0]);
    assert!(looks.off > 0.9 * capital.p[0] && looks.swapped[0] > 0.95 * capital.p[0]);
    // A third is missed, looks at "of", and carries nothing of the country.
    let needed = head("12.0");
    assert!(needed.weight < 0.1 && needed.most.0 == " of" && needed.most.1 > 0.5);
    assert!(needed.off < 0.7 * capital.p[0]);
    assert!((needed.swapped[0] / capital.p[0] - 1.0).abs() < 0.01);
    assert!(capital.random.iter().all(|row| row.off > 0.9 * capital.p[0]));
    // In other words the same head isn't missed, and carries the country nevertheless; random ones don't.
    let of = &travel.heads[0];
    assert!(of.head == "23.4" && of.weight > 0.9 && of.off >= travel.p[0]);
    assert!(of.swapped[0] < 0.3 * travel.p[0] && of.swapped[1] > of.swapped[0]);
    assert!(travel.random.iter().all(|row| row.swapped[0] > 0.95 * travel.p[0]));
    // Against the name that it looks at, in one text and "seven texts with other names".
    assert_eq!(ball.cases, 8);
    let against = &ball.heads[0];
    assert!(against.weight > 0.5 && against.off > 1.2 * ball.p[0]);
    assert!(against.swapped[0] > 1.2 * ball.p[0] && against.swapped[1] < 0.2 * ball.p[1]);
}
