//! Tests of what the page and the project's README have in common.

use super::facts::manifest_lines;

#[test]
fn the_readme_names_the_same_dependencies() {
    let readme = include_str!("../../../../README.md");
    let lines = manifest_lines().unwrap();
    assert!(readme.contains(&lines), "README.md lacks:\n{lines}");
}
