//! A claim, and the verdict on it.

use anyhow::{Result, ensure};

pub struct Claim {
    pub said: String,
    pub verdict: String,
}

pub const TRUE: &str = "**True.**";
pub const FALSE: &str = "**False.**";

/// The verdict on a claim of several parts, each with whether it is true.
pub fn by_parts(parts: &[(&str, bool)]) -> String {
    let of = |wanted: bool| {
        let names: Vec<_> =
            parts.iter().filter(|part| part.1 == wanted).map(|part| part.0).collect();
        (!names.is_empty()).then(|| names.join(" and "))
    };
    match (of(true), of(false)) {
        (Some(these), Some(those)) => {
            format!("**Partly true:** of {these}, but not of {those}.")
        }
        (Some(_), None) => TRUE.to_owned(),
        _ => FALSE.to_owned(),
    }
}

/// The verdict on a claim that is not true as it was said, but is under a condition.
pub fn only_when(
    condition: &str,
    as_said: bool,
    under_condition: bool,
) -> Result<String> {
    ensure!(!as_said, "true as said, so the verdict needs no condition: {condition}");
    ensure!(under_condition, "not even true under the condition: {condition}");
    Ok(format!("**True only if** {condition}."))
}

/// The verdict on a claim whose argument doesn't reach its conclusion.
pub fn not_shown(why: &str, is_shown: bool) -> Result<String> {
    ensure!(!is_shown, "shown after all: {why}");
    Ok(format!("**Not shown:** {why}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_by_parts_names_what_holds_and_what_does_not() {
        let parts = [("the core", true), ("the rest", false), ("the end", false)];
        let both = "**Partly true:** of the core, but not of the rest and the end.";
        assert_eq!(by_parts(&parts), both);
        assert_eq!(by_parts(&parts[..1]), TRUE);
        assert_eq!(by_parts(&parts[1..]), FALSE);
    }

    #[test]
    fn a_condition_must_be_needed_and_must_be_enough() {
        let verdict = only_when("it is so", false, true).unwrap();
        assert_eq!(verdict, "**True only if** it is so.");
        assert!(only_when("it is so", true, true).is_err());
        assert!(only_when("it is so", false, false).is_err());
        assert_eq!(not_shown("it isn't", false).unwrap(), "**Not shown:** it isn't.");
        assert!(not_shown("it isn't", true).is_err());
    }
}
