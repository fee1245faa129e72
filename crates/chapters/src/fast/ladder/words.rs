//! Sentences that the records choose: on another machine, a step may have come out the other way.

use super::facts::{Gain, Prediction, Rest};
use crate::records::{Compared, list};
use figures::format::{bytes, duration, fixed, integer, percent};
use record::{Machine, Record};
use std::cmp::Ordering;

// --------------------------------------------------------------------------------------------------------- the parts

/// So many bytes, and where they fit, as far as the sizes of the first two caches are known.
pub fn five_tiles_in_words(needed: u64, [first, second]: [Option<u64>; 2]) -> String {
    let text = |size: u64| bytes(size.into());
    let needs = text(needed);
    let Some(first) = first else { return needs };
    if needed <= first {
        return format!("{needs}: they fit the first cache ({})", text(first));
    }
    let beyond = format!("{needs}: more than the first cache has ({})", text(first));
    let Some(second) = second else { return beyond };
    let how = match second / needed {
        0 => "and more than",
        1..4 => "but they fit",
        _ => "and little for",
    };
    format!("{beyond}, {how} the second ({})", text(second))
}

/// Where the scores of a tile of these bytes fit, with the library and with the micro-kernels, if the caches' sizes are known.
pub fn tiles_cache_in_words(
    library: u64,
    panel: u64,
    [first, second]: [Option<u64>; 2],
) -> String {
    let (Some(first), Some(second)) = (first, second) else { return String::new() };
    let text = |size: u64| bytes(size.into());
    let of = |needed: u64| {
        let fit = if needed <= first {
            format!("fit the first cache ({})", text(first))
        } else if needed <= second {
            format!("fit the second cache ({})", text(second))
        } else {
            "fit neither the first nor the second cache".to_owned()
        };
        format!("{} and {fit}", text(needed))
    };
    let (library, panel) = (of(library), of(panel));
    format!(
        "With the library, the scores of a tile are {library}; those of a panel are {panel}."
    )
}

// --------------------------------------------------------------------------------------------------------- the steps

/// What comes and what goes, as a sum.
pub fn sum_in_words(prediction: &Prediction) -> String {
    let term = |(count, each): &(f64, f64)| {
        let sign = if *count < 0.0 { '−' } else { '+' };
        format!(" {sign} {} × {}", integer(count.abs() as usize), duration(*each))
    };
    let terms: String = prediction.exchange.iter().map(term).collect();
    format!("{}{terms} = {}", duration(prediction.before), duration(prediction.seconds()))
}

pub fn predicted_in_words(gain: &Gain) -> String {
    if gain.predicted > 0.0 {
        format!("a factor of {}", fixed(gain.predicted, 2))
    } else {
        "impossible (the parts that go take longer by themselves than all of the step before)"
            .to_owned()
    }
}

pub fn surprise_in_words(gain: &Gain) -> String {
    let (predicted, measured) = (predicted_in_words(gain), fixed(gain.measured, 2));
    format!("step {}: {predicted} was predicted, and {measured} measured", gain.number)
}

/// What tiles cost, or bring, by themselves.
pub fn tiled_in_words(gain: &Gain) -> String {
    let (start, end) = Compared::of(gain.measured, 1.0).choose(
        (
            "The first step up goes down.",
            "but [traffic is not all that a program waits for](memory-wall.md#the-bill).",
        ),
        ("The first step up stays level.", "and cost as much."),
        ("The first step pays at once.", "and cost less."),
    );
    format!(
        "{start} The readable program of [Tiles, forward](tiles-forward.md) takes {} times as long as the naive one. Tiles save \
         traffic and memory, {end}",
        fixed(1.0 / gain.measured, 2)
    )
}

/// How near the prediction of step 2 comes, and how many times as long tiles take with the backward pass, full and causal.
pub fn tiled_predicted_in_words(gain: &Gain, both: &[f64]) -> String {
    let found = Compared::of(gain.predicted, gain.measured).choose(
        "That is longer than was measured.",
        "That is what was measured.",
        if gain.predicted > 1.3 * gain.measured {
            "That falls far short of what was measured; step 3 says what was missing."
        } else {
            "That falls short of what was measured."
        },
    );
    let predicted = if gain.predicted > 0.0 {
        let times = fixed(1.0 / gain.predicted, 2);
        format!("which is {times} times as long as before. {found}")
    } else {
        "which no program can take: on the machine of this record the parts take longer by themselves.".to_owned()
    };
    let backward = if both.iter().all(|times| *times < 1.0) && gain.measured < 1.0 {
        "are no loss, as the table further down shows. The naive program makes more new matrices there, which may be why."
            .to_owned()
    } else {
        let times: Vec<_> = both.iter().map(|times| fixed(*times, 2)).collect();
        format!(
            "take {} times as long as the naive program, full and causal.",
            list(&times)
        )
    };
    format!("{predicted} (With the backward pass tiles {backward})")
}

/// What step 3 gained beside what was predicted, given step 2, and the shares of both steps that go into neither products nor
/// exponentials.
pub fn scratch_in_words(
    scratch: &Gain,
    tiled: &Gain,
    [before, after]: [f64; 2],
) -> String {
    let is_more = scratch.predicted < 0.0
        || scratch.measured - 1.0 > 2.0 * (scratch.predicted - 1.0);
    let is_surprise = scratch.measured > 1.05 && is_more;
    let copies = if is_surprise { " So it was hardly the copies." } else { "" };
    let rest = if before > 0.0 && after > 0.0 {
        format!(
            "By the parts, {} of the readable version's time goes into neither products nor exponentials, and {} of this one's.",
            percent(before, 0),
            percent(after, 0)
        )
    } else {
        "Products and exponentials take longer by themselves than in these programs, so the parts do not tell what the rest \
         takes."
            .to_owned()
    };
    let together = if is_surprise && tiled.predicted > 1.3 * tiled.measured {
        "Together these must be what was missing in step 2 and came back here; none of them was timed by itself."
    } else {
        "None of these was timed by itself."
    };
    format!(
        "{}.{copies} {rest} What is gone besides the copies are loops that took one entry at a time with two indices: transposing \
         each block of keys, scaling each score, and looking at each value for a NaN, also where nothing is hidden. And the loops \
         of softmax go down columns. {together}",
        fixed(scratch.measured, 2)
    )
}

/// What the time of step 7 is made of.
pub fn rest_in_words(rest: &Rest) -> String {
    let [rate, products, exponentials] =
        [rest.rate, rest.products, rest.exponentials].map(|share| percent(share, 0));
    let split = format!(
        "By themselves, the two micro-kernels together reach {rate} of it. At that rate the products take {products} of the time, \
         and the exponentials {exponentials}"
    );
    // What the two shares, as they are printed, leave.
    let printed = |share: f64| (100.0 * share).round();
    let others = 1.0 - (printed(rest.products) + printed(rest.exponentials)) / 100.0;
    let end = if others > 0.0 {
        format!(
            ". Packing, maxima, sums and corrections share the remaining {}; of these, packing alone was timed by itself.",
            percent(others, 0)
        )
    } else {
        ", which is more than all of it: on the machine of this record the parts run slower by themselves than in the program."
            .to_owned()
    };
    format!("{split}{end}")
}

/// Where our time goes, by the share of the products.
pub fn most_in_words(products: f64) -> &'static str {
    if products > 0.5 { "most of our time" } else { "a part of our time" }
}

/// How near both passes come to the roof, beside the forward pass: they take so many times as long, and 3.5 times are as near.
pub fn near_in_words(ratio: f64) -> &'static str {
    // As it is printed beside 3.5, with one decimal.
    match (10.0 * ratio).round().total_cmp(&35.0) {
        Ordering::Less => "nearer to the roof than",
        Ordering::Equal => "as near to the roof as",
        Ordering::Greater => "less near to the roof than",
    }
}

/// Times under a causal mask before step 6 and after it.
pub fn causal_tiles_in_words(before: f64, after: f64) -> String {
    let step = Compared::of(before, after).choose("loses", "gains nothing", "gains, too");
    let (before, after) = (duration(before), duration(after));
    format!("Under a causal mask the step {step}: {before} before and {after} after it.")
}

/// What step 7 gains without a mask and with a causal one.
pub fn causal_registers_in_words(without: f64, with: f64) -> String {
    let (with, without) = (fixed(with, 2), fixed(without, 2));
    format!(
        "Under a causal mask the factor is {with}, beside {without} without one; a panel ends nearer to the diagonal than a block \
         of queries does."
    )
}

// ---------------------------------------------------------------------------------------------------- measured again

/// How far the tile that a program takes is behind the best of the table, where runs differ by the factor `apart`.
pub fn behind_in_words(behind: f64, apart: f64) -> String {
    if behind <= 0.0 {
        return "the best of the table".to_owned();
    }
    let runs = if 1.0 / (1.0 - behind) < apart { "less" } else { "more" };
    let behind = percent(behind, 1);
    format!("{behind} slower than the best, which is {runs} than two runs differ by")
}

/// Where some computations were timed again.
pub fn again_where_in_words(ladder: &Record, peers: Option<&Record>) -> String {
    let Some(peers) = peers else {
        return "in the ladder, and among the sizes of tiles of steps 6 and 7."
            .to_owned();
    };
    let commits = match [ladder, peers].map(|record| record.versions.get("commit")) {
        [Some(one), Some(other)] if one != other => format!(
            " (The ladder is of commit {one}, and the last of these of commit {other}.)"
        ),
        _ => String::new(),
    };
    format!(
        "in the ladder, among the sizes of tiles of steps 6 and 7, and beside the others at the end of this chapter.{commits}"
    )
}

/// What is said of a run beside the others that is of another machine than the ladder.
pub fn other_machine_in_words(beside: Option<&Record>, machine: &Machine) -> String {
    match beside {
        Some(_) => String::new(),
        None => format!(" (on another machine, {})", machine.cpu),
    }
}

/// What the largest factor between two runs means for the gains of the steps, given the largest spread within one run.
pub fn again_in_words(largest: f64, spread: f64, gains: &[Gain]) -> String {
    let pace = if largest - 1.0 > spread {
        "more from one benchmark to the next than within one"
    } else {
        "as much within one benchmark as from one to the next"
    };
    let is_small = |gain: &&Gain| gain.measured.max(1.0 / gain.measured) <= largest;
    let small: Vec<_> =
        gains.iter().filter(is_small).map(|gain| gain.number.to_string()).collect();
    let small = match &small[..] {
        [] => "every step of the ladder changes more".to_owned(),
        [only] => format!("the gain of step {only} is no larger"),
        several => format!("the gains of steps {} are no larger", list(several)),
    };
    format!(
        "The pace of the machine changes {pace}: the medians are up to a factor of {} apart. So differences of that size between \
         two tables of this page mean nothing, and {small}.",
        fixed(largest, 2)
    )
}

#[cfg(test)]
mod tests {
    use super::super::facts::first_caches;
    use super::*;
    use crate::records::tests::committed;

    fn gain(number: usize, predicted: f64, measured: f64) -> Gain {
        Gain { number, predicted, measured }
    }

    #[test]
    fn caches_are_named_as_far_as_they_are_known() {
        let [record] = committed().of_one_machine(["parts"]).unwrap();
        let words = |caches: &[(u32, u64)]| {
            let caches = caches.iter().map(|&(level, kib)| record::Cache {
                level,
                kind: "Unified".to_owned(),
                bytes: kib << 10,
            });
            let machine = Machine { caches: caches.collect(), ..record.machine.clone() };
            five_tiles_in_words(80 << 10, first_caches(&machine))
        };
        assert_eq!(words(&[]), "80\u{202f}KiB");
        assert!(
            words(&[(1, 128)]).ends_with("they fit the first cache (128\u{202f}KiB)")
        );
        assert!(
            words(&[(1, 32)]).ends_with("more than the first cache has (32\u{202f}KiB)")
        );
        assert!(words(&[(1, 32), (2, 1024)]).contains("little for the second"));
        assert!(words(&[(1, 32), (2, 128)]).contains("but they fit the second"));
        assert!(words(&[(1, 32), (2, 64)]).contains("and more than the second"));

        let tiles = |first, second| tiles_cache_in_words(512, 128, [first, second]);
        assert_eq!(tiles(None, Some(1024)), "");
        assert_eq!(tiles(Some(128), Some(512)).matches("fit the first").count(), 1);
        assert_eq!(tiles(Some(128), Some(512)).matches("fit the second").count(), 1);
        assert!(tiles(Some(16), Some(128)).contains("fit neither"));
    }

    #[test]
    fn predictions_are_told_as_far_as_they_are_possible() {
        assert_eq!(predicted_in_words(&gain(4, 1.36, 1.3)), "a factor of 1.36");
        assert!(predicted_in_words(&gain(4, -2.0, 1.3)).starts_with("impossible"));
        assert!(gain(4, -2.0, 1.3).surprise() > gain(3, 1.0, 9.0).surprise());
        assert!(gain(3, 1.0, 1.7).surprise() > gain(4, 1.3, 1.4).surprise());
    }

    #[test]
    fn tiles_are_told_as_they_came_out() {
        assert!(tiled_in_words(&gain(2, 1.0, 0.56)).contains("goes down"));
        assert!(tiled_in_words(&gain(2, 1.0, 0.56)).contains("takes 1.79 times"));
        assert!(tiled_in_words(&gain(2, 1.0, 1.0)).contains("stays level"));
        assert!(tiled_in_words(&gain(2, 1.0, 1.5)).contains("pays at once"));
        let told = |predicted, measured, both: [f64; 2]| {
            tiled_predicted_in_words(&gain(2, predicted, measured), &both)
        };
        assert!(told(0.88, 0.56, [0.9, 0.9]).contains("falls far short"));
        assert!(told(0.88, 0.56, [0.9, 0.9]).contains("no loss"));
        assert!(told(0.88, 0.75, [0.9, 1.1]).contains("falls short"));
        assert!(told(0.88, 0.75, [0.9, 1.1]).contains("take 0.90 and 1.10 times"));
        assert!(told(0.88, 0.88, [0.9, 1.1]).contains("what was measured"));
        assert!(told(0.88, 1.2, [0.9, 1.1]).contains("longer than was measured"));
        assert!(told(-0.88, 1.2, [0.9, 1.1]).contains("no program can take"));
    }

    #[test]
    fn what_the_parts_leave_is_told_as_it_came_out() {
        let told = |predicted, measured, rests| {
            scratch_in_words(&gain(3, predicted, measured), &gain(2, 0.88, 0.56), rests)
        };
        assert!(told(1.02, 1.73, [0.5, 0.1]).contains("hardly the copies"));
        assert!(told(1.02, 1.73, [0.5, 0.1]).contains("Together these must be"));
        assert!(!told(1.5, 1.6, [0.5, 0.1]).contains("hardly the copies"));
        assert!(told(1.5, 1.6, [0.5, 0.1]).contains("None of these was timed"));
        assert!(told(1.5, 1.6, [0.5, -0.1]).contains("do not tell"));

        let rest = |rate, products, exponentials| {
            rest_in_words(&Rest { rate, products, exponentials })
        };
        assert!(rest(0.9, 0.8, 0.1).starts_with("By themselves"));
        assert!(rest(1.0, 0.8, 0.1).contains("the remaining 10"));
        assert!(rest(1.0, 0.8, 0.3).contains("more than all of it"));
        assert_eq!(
            [0.8, 0.3].map(most_in_words),
            ["most of our time", "a part of our time"]
        );
        assert!(near_in_words(3.52).starts_with("as near"));
        assert!(near_in_words(2.0).starts_with("nearer"));
        assert!(near_in_words(5.0).starts_with("less near"));
    }

    #[test]
    fn tiles_are_praised_as_far_as_they_pay() {
        let causal = |before| causal_tiles_in_words(before, 1.0);
        assert!(causal(1.0).contains("gains nothing"));
        assert!(causal(1.2).contains("gains, too"));
        assert!(causal(0.8).contains("loses"));
        assert!(causal_registers_in_words(1.0, 1.5).contains("1.50, beside 1.00"));
        assert_eq!(behind_in_words(0.0, 1.2), "the best of the table");
        assert!(behind_in_words(0.02, 1.2).ends_with("is less than two runs differ by"));
        assert!(behind_in_words(0.4, 1.2).ends_with("is more than two runs differ by"));
    }

    #[test]
    fn runs_are_compared_as_far_as_they_can_be() {
        let gains = [gain(2, 1.0, 0.5), gain(3, 1.0, 1.1), gain(4, 1.0, 0.95)];
        let words = again_in_words(1.2, 0.1, &gains);
        assert!(
            words.contains("more from one") && words.contains("steps 3 and 4"),
            "{words}"
        );
        let words = again_in_words(1.07, 0.1, &gains);
        assert!(
            words.contains("as much within") && words.contains("gain of step 4"),
            "{words}"
        );
        assert!(again_in_words(1.01, 0.1, &gains).contains("every step"));
        let [ladder, peers] = committed().of_one_machine(["ladder", "peers"]).unwrap();
        let mut later = peers.clone();
        later.versions.insert("commit".to_owned(), "a later one".to_owned());
        let both = again_where_in_words(&ladder, Some(&later));
        assert!(
            both.contains("beside the others") && both.contains("of commit"),
            "{both}"
        );
        assert!(!again_where_in_words(&ladder, Some(&ladder)).contains("of commit"));
        assert!(!again_where_in_words(&ladder, None).contains("beside the others"));
        assert_eq!(other_machine_in_words(Some(&peers), &peers.machine), "");
        assert!(
            other_machine_in_words(None, &peers.machine).contains(&peers.machine.cpu)
        );
    }
}
