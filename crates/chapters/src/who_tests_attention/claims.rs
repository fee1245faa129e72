//! What the prose says of the results.

use std::collections::BTreeSet;

use super::facts::{Fate, caught_by_none, faults, fewest, lines, possible, rows};

#[test]
fn every_set_of_tests_was_tried_with_every_fault() {
    let rows = rows().unwrap();
    let all: Vec<_> = faults(&rows[0].sets[0]).collect();
    for set in rows.iter().flat_map(|row| &row.sets) {
        assert!(faults(set).eq(all.iter().copied()), "{}", set.repository);
    }
    let projects: BTreeSet<_> =
        rows.iter().flat_map(|row| &row.sets).map(|set| &set.repository).collect();
    assert_eq!(projects.len(), 7);
    assert!(rows.is_sorted_by_key(|row| std::cmp::Reverse(row.count(Fate::Caught))));
    assert_eq!(rows[0].name, "tiny-llm");
}

/// NaN, a query that sees nothing and f16 are in none of the tests.
#[test]
fn nobody_tests_what_random_numbers_do_not_contain() {
    let rows = rows().unwrap();
    let none = caught_by_none(&rows);
    let expected = [
        "dropout-not-scaled",
        "empty-row-nan",
        "hidden-nan",
        "mask-added",
        "nan-to-zero",
        "scores-overflow-half",
        "tile-padding-counted",
    ];
    assert_eq!(none, expected);
    let of = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    let fate = |name: &str, fault: &str| of(name).fate(fault);
    assert_eq!(
        fate("Transformers, common tests: two ways compared", "scale-missing"),
        Fate::Passed
    );
    assert_eq!(
        fate(
            "Transformers, common tests: both ways with the fault",
            "softmax-over-queries"
        ),
        Fate::Passed
    );
    assert_eq!(fate("nanochat, tests for a CPU", "softmax-over-queries"), Fate::Passed);
    assert_eq!(fate("nanochat, tests for a Hopper GPU", "window-one-wide"), Fate::Caught);
    assert_eq!(fate("LLMs-from-scratch", "window-one-wide"), Fate::Passed);
    let inverted: Vec<_> = rows.iter().map(|row| row.fate("mask-inverted")).collect();
    assert!(inverted.contains(&Fate::Caught) && !inverted.contains(&Fate::Passed));
    let without_maximum =
        rows.iter().filter(|row| row.fate("softmax-without-maximum") == Fate::Caught);
    assert!(without_maximum.map(|row| row.name).eq(["tiny-llm"]));
    let model = of("Transformers, common tests: both ways with the fault");
    assert_eq!(model.count(Fate::Caught), 2);
}

#[test]
fn tests_of_a_few_lines_find_all_faults() {
    let (lines, rows) = (lines().unwrap(), rows().unwrap());
    let all = faults(&rows[0].sets[0]).map(str::to_owned).collect();
    assert_eq!(fewest(&lines, &all).last().unwrap().1, all.len());
    let possible = possible(&rows);
    let order = fewest(&lines, &possible);
    assert_eq!(order.last().unwrap().1, possible.len());
    let first = order[..4].iter().map(|(lines, _)| lines.name.as_str());
    assert!(first.eq(["chunks", "as_formula_heads", "hidden_nan", "empty"]));
    let finds =
        |name: &str| lines.iter().find(|lines| lines.name == name).unwrap().finds.len();
    assert!(finds("shape") == 0 && finds("finite") < finds("future"));
    assert!(finds("future") < finds("chunks"));
}
