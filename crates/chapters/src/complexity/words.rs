//! Sentences that the records choose: another machine may have come out the other way.

use super::facts::{Meeting, WriteTime};
use crate::records::{Compared, least_and_most};
use figures::format::{duration, fixed, integer, significant};

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

/// The time of the last doubling beyond four times.
pub fn jump_in_words(jump: f64) -> String {
    let doubling = "In `f32`, the last forward doubling takes";
    if jump > 0.0 {
        format!("{doubling} {} more than four times.", duration(jump))
    } else {
        format!("{doubling} no more than four times.")
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

// ----------------------------------------------------------------------------------------------------- the crossover

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crossover_outside_of_the_timed_lengths_is_told_as_such() {
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
        assert!(jump_in_words(0.07).ends_with("70.0\u{202f}ms more than four times."));
        assert!(jump_in_words(-0.1).contains("no more than four times"));
    }

    #[test]
    fn new_matrices_are_blamed_only_where_they_cost() {
        let write_time = |new, old| WriteTime { n: 1, new, old };
        let dear = new_in_words(write_time(1.1, 1.0), write_time(0.034, 0.004), 0.189);
        assert!(dear.contains("takes 8.5 times as long"), "{dear}");
        assert!(dear.contains("pays 30.0\u{202f}ms more"), "{dear}");
        let cheap = new_in_words(write_time(1.0, 1.0), write_time(0.004, 0.004), 0.189);
        assert!(cheap.contains("not what makes a forward pass slow"), "{cheap}");
    }
}
