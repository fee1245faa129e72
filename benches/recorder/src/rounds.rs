//! Rounds of measuring, in which contestants are interleaved, so that a slow moment of the machine hits all of them.

use anyhow::Result;
use record::statistics::{median, ratio, spread};
use record::{Measurement, Unit};
use std::fmt::Display;

/// The seconds of each contestant, in each round in which it took its turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Rounds<C>(pub Vec<(C, Vec<f64>)>);

/// Interleaves contestants, each of which has a plan. It takes one in as many rounds as its plan `has_rounds`, and each
/// round begins with another contestant, so that none always follows the same one. A `turn` comes to the seconds of its
/// samples, whose median counts; or to nothing, and then that contestant gets no further turn and is left out.
///
/// # Errors
/// A turn fails.
pub fn interleave<C: Copy, P>(
    mut contestants: Vec<(C, P)>,
    has_rounds: impl Fn(&P) -> usize,
    mut turn: impl FnMut(C, &mut P) -> Result<Option<Vec<f64>>>,
) -> Result<Rounds<C>> {
    let count = contestants.len();
    let rounds: Vec<_> = contestants.iter().map(|(_, plan)| has_rounds(plan)).collect();
    let mut taken = vec![vec![]; count];
    for round in 0..rounds.iter().copied().max().unwrap_or_default() {
        for i in (0..count).map(|turn| (round + turn) % count) {
            let (contestant, plan) = &mut contestants[i];
            if round < rounds[i]
                && taken[i].len() == round
                && let Some(seconds) = turn(*contestant, plan)?
            {
                taken[i].push(median(&seconds));
            }
        }
    }
    let names = contestants.iter().map(|(contestant, _)| *contestant);
    let all = names.zip(taken).zip(rounds);
    let whole = all.filter(|((_, taken), rounds)| taken.len() == *rounds);
    Ok(Rounds(whole.map(|(contestant, _)| contestant).collect()))
}

impl<C: Copy + Display + PartialEq> Rounds<C> {
    fn of(&self, contestant: C) -> Option<&[f64]> {
        let found = self.0.iter().find(|(other, _)| *other == contestant);
        found.map(|(_, seconds)| seconds.as_slice())
    }

    /// The median over its rounds; nothing if it took no part.
    pub fn seconds(&self, contestant: C) -> Option<f64> {
        self.of(contestant).map(median)
    }

    /// Returns the ratio of the times of `other` and `ours` with its spread, or nothing if one took no part.
    pub fn ratio(&self, other: C, ours: C) -> Option<(f64, f64)> {
        Some(ratio(self.of(other)?, self.of(ours)?))
    }

    /// The times of all, called `GROUP/NAME`, then how many times as long as each of ours each other one took, called
    /// `GROUP/OTHER / OURS`.
    pub fn measurements(
        &self,
        common: &Measurement,
        group: impl Display,
        is_ours: impl Fn(C) -> bool,
    ) -> Vec<Measurement> {
        let time = |(contestant, seconds): &(C, Vec<f64>)| {
            let what = format!("{group}/{contestant}");
            common.named(what, Unit::Seconds, (median(seconds), spread(seconds)))
        };
        let mut all: Vec<_> = self.0.iter().map(time).collect();
        let (ours, others): (Vec<_>, Vec<_>) =
            self.0.iter().partition(|(contestant, _)| is_ours(*contestant));
        for (own, own_seconds) in ours {
            for (other, seconds) in &others {
                let what = format!("{group}/{other} / {own}");
                all.push(common.named(what, Unit::Ratio, ratio(seconds, own_seconds)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_one_and_who_refuses_is_left_out() {
        let mut order = String::new();
        let contestants = vec![('a', 3), ('b', 2), ('c', 3)];
        let turn = |name, _: &mut usize| {
            order.push(name);
            Ok((name != 'c' || order.len() < 5).then(|| vec![1.0, 4.0, 2.0]))
        };
        let Rounds(taken) = interleave(contestants, |rounds| *rounds, turn).unwrap();
        assert_eq!(order, "abcbcaa");
        assert_eq!(taken, [('a', vec![2.0; 3]), ('b', vec![2.0; 2])]);
    }

    #[test]
    fn rounds_become_times_and_ratios() {
        let rounds = Rounds(vec![('b', vec![2.0, 6.0, 8.0]), ('a', vec![1.0, 2.0, 4.0])]);
        let common = Measurement::common("f32", &[("n", 512)], &[("mask", &"full")], 2);
        let found = rounds.measurements(&common, "group", |c| c == 'a');
        let told: Vec<_> = found.iter().map(|m| (m.what.as_str(), m.median)).collect();
        assert_eq!(told, [("group/b", 6.0), ("group/a", 2.0), ("group/b / a", 2.0)]);
        assert_eq!(
            (found[2].unit, found[2].threads, found[2].sizes["n"]),
            (Unit::Ratio, 2, 512)
        );
        assert_eq!((rounds.seconds('a'), rounds.seconds('c')), (Some(2.0), None));
        assert_eq!(rounds.ratio('b', 'a').unwrap().0, 2.0);
    }
}
