//! Sentences that the records choose: another machine may have come out the other way.

use super::facts::{Meeting, WriteTime};
use super::roofline::{Ceilings, Step};
use crate::records::{Compared, least_and_most};
use figures::format::{duration, fixed, integer, percent, significant};

// ----------------------------------------------------------------------------------------------------- times over n

/// What the slopes of all lines say, and the most expensive doubling of each.
pub fn slopes_in_words(slopes: &[f64], doublings: &[f64]) -> String {
    let (least, most) = least_and_most(slopes.iter().copied());
    let slopes = if least > 1.7 && most < 2.5 {
        "The slopes are near 2".to_owned()
    } else {
        format!("The slopes lie between {} and {}", fixed(least, 1), fixed(most, 1))
    };
    let dearer = "doubling costs far more than four times.";
    match doublings.iter().filter(|times| **times > 4.5).count() {
        0 => format!("{slopes}, and no doubling costs much more than four times."),
        all if all == doublings.len() => {
            format!("{slopes}, but in each row one {dearer}")
        }
        some => {
            format!("{slopes}, but in {some} of the {} rows a {dearer}", doublings.len())
        }
    }
}

/// The time of the last doubling beyond four times, beside that of a pass over the whole matrix.
pub fn jump_in_words(jump: f64, pass: f64) -> String {
    let doubling = "Forward, the last doubling in `f32` costs";
    let more = duration(jump);
    if jump > 3.0 * pass {
        format!("{doubling} {more} more than four times, and that is many such passes.")
    } else if jump > pass {
        format!(
            "{doubling} {more} more than four times, which is one such pass or a few."
        )
    } else {
        format!("{doubling} no more than four times and one such pass.")
    }
}

/// The time of a program that computes all products, with a causal mask and without.
pub fn causal_in_words(causal: f64, full: f64) -> String {
    let verdict = if (0.6..1.6).contains(&(causal / full)) {
        "Neither is half of the other."
    } else {
        "The program computes all products in both cases, so that the products are not what makes the difference."
    };
    format!("{} with a mask and {} without. {verdict}", duration(causal), duration(full))
}

/// Why backward takes less than twice as long as forward, or more: the largest ratio of the short lengths, and of all.
pub fn backward_in_words(short: f64, most: f64) -> String {
    let less = "Less than twice, because forward has an exponential for each score, which counts as one operation and takes the \
                time of many, and backward has none.";
    let more = "More than twice, because backward passes over two matrices of $(n, n)$ again and again, and forward over one.";
    match (short < 2.0, most > 2.0) {
        (true, true) => format!("{less} {more}"),
        (true, false) => less.to_owned(),
        (false, true) => more.to_owned(),
        (false, false) => String::new(),
    }
}

/// What a matrix costs by being new, if it is small and if it is large.
pub fn new_in_words(small: WriteTime, large: WriteTime, forward: f64) -> String {
    let times = |write_time: WriteTime| significant(write_time.new / write_time.old, 2);
    let beside = format!(
        "At $n = 4096$ a new matrix takes {} times as long to fill as one that was there before, at 512 it takes {} times as \
         long.",
        times(large),
        times(small)
    );
    let forward = duration(forward);
    match Compared::of(large.new, large.old) {
        Compared::More => format!(
            "{beside} A forward pass makes one such matrix, of scores that become weights, and at $n = 4096$ pays {} more for \
             it than if it had been there, of {forward} in all.",
            duration(large.extra())
        ),
        _ => format!(
            "{beside} So on the machine of this record new matrices are not what makes a forward pass slow, which makes one of \
             them and takes {forward} in all."
        ),
    }
}

/// The time to transpose a matrix whose columns are a power of two apart, beside one whose columns are not.
pub fn transposed_in_words(other: f64, power: f64) -> &'static str {
    if power > 1.5 * other {
        "So caches have a part in it after all, but here it is the power of two that they mind."
    } else {
        "On the machine of this record that makes little difference."
    }
}

// ----------------------------------------------------------------------------------------------------- the crossover

/// Times of the core and of the projections where both have the same FLOPs.
pub fn even_in_words(core: f64, projections: f64) -> String {
    let times = significant(core / projections, 2);
    Compared::of(core, projections).choose(
        format!(
            "the core takes {times} times as long as the projections. Its operations are faster than theirs. All of them?"
        ),
        "the core takes about as long as the projections. Are all of its operations as fast as theirs, then?".to_owned(),
        format!(
            "the core takes {times} times as long as the projections. Its operations are slower than theirs. Which ones, and \
             why?"
        ),
    )
}

/// The end of a sentence that begins with "They cross", where these lengths were timed.
pub fn meeting_in_words(meeting: &Meeting, shortest: f64, longest: f64) -> String {
    let end = |end: f64| fixed(end, 0);
    match meeting {
        Meeting::At(n) => format!("near $n = {}$", integer(n.round() as usize)),
        Meeting::Before => {
            format!("before $n = {}$, the shortest that was timed", end(shortest))
        }
        Meeting::Beyond => {
            format!("beyond $n = {}$, the longest that was timed", end(longest))
        }
    }
}

/// The end of a sentence that begins with "In time, the quadratic part begins".
pub fn beside_counted_in_words(meeting: &Meeting, counted: f64) -> &'static str {
    let compared = match meeting {
        Meeting::At(n) => Compared::of(*n, counted),
        Meeting::Before => Compared::Less,
        Meeting::Beyond => Compared::More,
    };
    compared.choose("earlier than that", "about there, too", "later than that")
}

// ------------------------------------------------------------------------------------------------------ the roofline

/// Why the best of three bandwidths is the roof.
pub fn directions_in_words(ceilings: &Ceilings) -> String {
    let Ceilings { read, update, .. } = *ceilings;
    let beats = if Compared::of(update, read) == Compared::More {
        ", and they can run at the same time, so changing in place beats reading"
    } else {
        ""
    };
    let too_high = if Compared::of(read, ceilings.bandwidth()) == Compared::Less {
        ", which is therefore too high for a step that mostly reads"
    } else {
        ""
    };
    format!("Both directions count{beats}. The best of each makes the roof{too_high}.")
}

/// What the formula says of attention as a whole, and how fast it is.
pub fn whole_in_words(whole: &Step, ridge: f64, share: f64) -> String {
    let place = match whole.intensity() / ridge {
        ratio if ratio > 2.0 => "far to the right of the ridge",
        ratio if ratio > 1.0 => "to the right of the ridge",
        _ => "to the left of the ridge",
    };
    let should = if whole.intensity() > ridge {
        "That is compute-bound, so it should run at the peak"
    } else {
        "That is memory-bound, so it should run at its roof, the bandwidth times the intensity"
    };
    let (speed, share) = (significant(whole.speed(), 2), percent(share, 0));
    format!("{place}. {should}. It runs at {speed} GFLOP/s, {share} of that.")
}

/// How near scaling comes to its roof, and whether the roof was measured in the same way.
pub fn scale_in_words(share: f64, same_way: bool) -> String {
    match (share > 0.7, same_way) {
        (true, true) => {
            "stands at its roof because the roof was measured in that very way, by changing in place".to_owned()
        }
        (true, false) => "stands at its roof".to_owned(),
        (false, _) => format!("reaches {} of its roof", percent(share, 0)),
    }
}

/// Which of the passes in the middle lie left of the ridge.
pub fn left_in_words(scale: bool, softmax: bool) -> &'static str {
    match (scale, softmax) {
        (true, true) => {
            "Taken one by one, scale and softmax belong to the left, where the roof rises; the intensity of the whole hides them."
        }
        (true, false) => {
            "Taken by itself, scale belongs to the left, where the roof rises; the intensity of the whole hides it."
        }
        (false, _) => {
            "On the machine of this record the ridge lies so far to the left that even these passes stand right of it."
        }
    }
}

/// The shares that softmax has in the operations and in the time.
pub fn softmax_time_in_words(flops: f64, time: f64, longest: bool) -> String {
    let only = if time > flops { "only " } else { "" };
    let machine = if time > flops { "" } else { " on the machine of this record" };
    let longest = if longest { ", the longest of the steps" } else { "" };
    format!(
        "Softmax is {only}{} of the operations and takes as long as {} of the whole{machine}{longest}.",
        percent(flops, 0),
        percent(time, 0)
    )
}

/// Whether softmax waits for memory.
pub fn softmax_roof_in_words(share: f64) -> String {
    if share < 0.1 {
        return "It stands far below even its own roof, so bandwidth is not to blame."
            .to_owned();
    }
    let blame = if share < 0.5 {
        "bandwidth alone is not to blame"
    } else {
        "bandwidth holds it back as well"
    };
    format!("It stands at {} of its own roof, so {blame}.", percent(share, 0))
}

/// How fast softmax is for long sequences, beside short ones. A new matrix takes so many seconds more to fill than an old one.
pub fn slows_in_words(short: &Step, long: &Step, extra: f64) -> String {
    let speeds = format!(
        "from {} to {} GFLOP/s, at the same intensity",
        significant(short.speed(), 2),
        significant(long.speed(), 2)
    );
    let lost = long.seconds - long.flops / short.flops * short.seconds;
    let why = if extra > lost / 2.0 {
        ", chiefly because its result is a new matrix"
    } else {
        ""
    };
    Compared::of(long.speed(), short.speed()).choose(
        format!("From $n = 512$ to 4096 it slows down further, {speeds}{why}."),
        "It is about as fast at $n = 512$ as at 4096.".to_owned(),
        format!("From $n = 512$ to 4096 it becomes faster, {speeds}."),
    )
}

/// How many times as fast scaling is for a small matrix as for a large one, and whether the largest cache holds the small one.
pub fn cache_in_words(ratio: f64, small: u64, largest: Option<u64>) -> String {
    let why = match (Compared::of(ratio, 1.0), largest) {
        (Compared::More, Some(cache)) if small <= cache => {
            ": the smaller matrix fits into a cache, which is faster than memory."
        }
        (Compared::More, _) => ": the bytes of the smaller matrix come from nearer by.",
        _ => {
            ". On the machine of this record the smaller matrix gains nothing from being small."
        }
    };
    format!("{} times as many operations a second as at 4096{why}", significant(ratio, 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossover_is_told_beside_the_counted_one() {
        let at = |n| beside_counted_in_words(&Meeting::At(n), 1024.0);
        assert_eq!(at(500.0), "earlier than that");
        assert_eq!(at(1000.0), "about there, too");
        assert_eq!(at(1500.0), "later than that");
        let told = |meeting| meeting_in_words(&meeting, 64.0, 2048.0);
        assert!(told(Meeting::Before).contains("before $n = 64$"));
        assert!(told(Meeting::Beyond).contains("beyond $n = 2048$"));
    }

    #[test]
    fn slopes_and_doublings_are_told_as_they_are() {
        let all = slopes_in_words(&[2.0, 2.1], &[6.0, 7.0]);
        assert!(all.contains("near 2, but in each row"), "{all}");
        let some = slopes_in_words(&[2.0, 2.9], &[4.0, 7.0]);
        assert!(some.contains("between 2.0 and 2.9, but in 1 of the 2 rows"), "{some}");
        assert!(slopes_in_words(&[2.0], &[4.1]).contains("no doubling costs much more"));
        assert!(jump_in_words(0.07, 0.002).contains("many such passes"));
        assert!(jump_in_words(0.004, 0.002).contains("one such pass or a few"));
        assert!(jump_in_words(-0.1, 0.002).contains("no more than four times"));
    }

    #[test]
    fn new_matrices_and_strides_are_blamed_only_where_they_cost() {
        let write_time = |new, old| WriteTime { n: 1, new, old };
        let dear = new_in_words(write_time(1.1, 1.0), write_time(0.034, 0.004), 0.189);
        assert!(dear.contains("takes 8.5 times as long"), "{dear}");
        assert!(dear.contains("pays 30.0\u{202f}ms more"), "{dear}");
        let cheap = new_in_words(write_time(1.0, 1.0), write_time(0.004, 0.004), 0.189);
        assert!(cheap.contains("not what makes a forward pass slow"), "{cheap}");
        assert!(transposed_in_words(1.0, 4.0).contains("the power of two"));
        assert!(transposed_in_words(1.0, 1.1).contains("little difference"));
    }

    #[test]
    fn counts_are_held_against_times() {
        assert!(causal_in_words(1.0, 1.0).contains("Neither is half"));
        assert!(causal_in_words(0.5, 1.0).contains("the products are not what"));
        assert!(backward_in_words(1.5, 4.0).starts_with("Less than twice"));
        assert!(backward_in_words(1.5, 4.0).contains("More than twice"));
        assert!(!backward_in_words(1.5, 1.9).contains("More than twice"));
        assert!(backward_in_words(2.5, 4.0).starts_with("More than twice"));
        assert!(
            even_in_words(2.0, 1.0).contains(
                "2.0 times as long as the projections. Its operations are slower"
            )
        );
        assert!(even_in_words(0.5, 1.0).contains("faster than theirs"));
        assert!(even_in_words(1.0, 1.0).contains("about as long"));
    }

    fn step(flops: f64, bytes: f64, seconds: f64) -> Step {
        Step { name: "step", flops, bytes, seconds }
    }

    #[test]
    fn the_roof_is_told_by_its_bandwidths() {
        let ceilings = |read, update| Ceilings {
            registers: 100.0,
            product: 90.0,
            read,
            update,
            triad: 1.0,
        };
        let words = directions_in_words(&ceilings(24.0, 48.0));
        assert!(words.contains("beats reading") && words.contains("too high"), "{words}");
        let words = directions_in_words(&ceilings(48.0, 24.0));
        assert!(!words.contains("beats") && !words.contains("too high"), "{words}");
    }

    #[test]
    fn steps_are_told_beside_their_roofs() {
        let whole = step(60e9, 1e9, 2.0); // 60 FLOP/byte, 30 GFLOP/s
        assert!(whole_in_words(&whole, 2.4, 0.3).starts_with("far to the right"));
        assert!(
            whole_in_words(&whole, 2.4, 0.3).contains("30 GFLOP/s, 30\u{202f}% of that")
        );
        assert!(whole_in_words(&whole, 40.0, 0.3).starts_with("to the right"));
        assert!(whole_in_words(&whole, 80.0, 0.3).contains("memory-bound"));

        assert!(scale_in_words(1.2, true).contains("in that very way"));
        assert_eq!(scale_in_words(1.2, false), "stands at its roof");
        assert!(scale_in_words(0.5, true).starts_with("reaches 50"));
        assert!(left_in_words(true, true).contains("scale and softmax"));
        assert!(left_in_words(true, false).contains("scale belongs"));
        assert!(left_in_words(false, false).contains("right of it"));
    }

    #[test]
    fn softmax_is_blamed_as_far_as_it_is_slow() {
        assert!(softmax_time_in_words(0.02, 0.5, true).contains("only 2"));
        assert!(
            softmax_time_in_words(0.02, 0.5, true).ends_with("the longest of the steps.")
        );
        assert!(!softmax_time_in_words(0.02, 0.01, false).contains("only"));
        assert!(softmax_roof_in_words(0.03).contains("not to blame"));
        assert!(softmax_roof_in_words(0.3).contains("alone is not"));
        assert!(softmax_roof_in_words(0.9).contains("as well"));

        let (short, long) = (step(1e9, 1.0, 1.0), step(64e9, 1.0, 100.0));
        assert!(slows_in_words(&short, &long, 30.0).contains("chiefly"));
        assert!(!slows_in_words(&short, &long, 3.0).contains("chiefly"));
        let told = |seconds| slows_in_words(&short, &step(64e9, 1.0, seconds), 3.0);
        assert!(told(64.0).contains("about as fast"));
        assert!(told(30.0).contains("becomes faster"));
    }

    #[test]
    fn caches_are_praised_only_where_they_help() {
        assert!(
            cache_in_words(2.0, 1 << 20, Some(1 << 25)).contains("fits into a cache")
        );
        assert!(cache_in_words(2.0, 1 << 20, Some(1 << 15)).contains("nearer by"));
        assert!(cache_in_words(2.0, 1 << 20, None).contains("nearer by"));
        assert!(cache_in_words(0.9, 1 << 20, Some(1 << 25)).contains("gains nothing"));
    }
}
