//! Tests of what the page and the project's README have in common.

use super::facts::{agreements, manifest_lines};

#[test]
fn the_readme_names_the_same_dependencies() {
    let readme = include_str!("../../../../README.md");
    let lines = manifest_lines().unwrap();
    assert!(readme.contains(&lines), "README.md lacks:\n{lines}");
}

/// As many digits as the page shows for the output, and fewer for a slope that is measured.
#[test]
fn two_ways_come_to_the_same_numbers() {
    let [output, slope] = agreements().unwrap();
    assert!((output.ours - output.other).abs() < 1e-14);
    assert!((slope.ours - slope.other).abs() < 1e-9);
    assert!(slope.ours.abs() > 1e-3);
}
