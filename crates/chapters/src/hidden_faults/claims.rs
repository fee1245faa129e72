//! Tests of what the chapter says of its numbers.

use super::page::{Run, recorded, run};

fn runs() -> Vec<Run> {
    recorded().unwrap().models
}

#[test]
fn two_faults_learn_and_fail_token_by_token() {
    let runs = runs();
    let ignorant = 64.0_f64.ln();
    let right = run(&runs, "right").unwrap();
    assert!(right.last() < 0.01 && (right.by_token - right.last()).abs() < 1e-4);
    for name in ["softmax over the wrong axis", "heads merged without a transpose"] {
        let fault = run(&runs, name).unwrap();
        assert!(fault.last() < 3.0 && fault.by_token > ignorant, "{name}");
    }
}

#[test]
fn wide_heads_without_the_scale_do_not_begin_to_learn() {
    let runs = runs();
    for width in ["64", "512"] {
        let of = |name: &str| run(&runs, &format!("{name}, {width} wide")).unwrap();
        let (right, without) = (of("right"), of("no scale"));
        assert!(right.last() < 0.5 && without.last() > 2.0, "{width}");
        assert!((without.by_token - without.last()).abs() < 1e-3); // it sees no future
    }
}

/// "Near zero" and "above a half"; "the larger of the two, by twice".
#[test]
fn two_signs_tell_a_missing_scale() {
    for run in runs() {
        let fails = run.name.starts_with("no scale");
        assert_eq!(run.entropy < 0.2, fails, "{}", run.name);
        assert_eq!(run.entropy > 0.5, !fails, "{}", run.name);
        assert_eq!((1.8..2.5).contains(&run.q_over_v), fails, "{}", run.name);
        assert_eq!((0.7..1.3).contains(&run.q_over_v), !fails, "{}", run.name);
    }
}
