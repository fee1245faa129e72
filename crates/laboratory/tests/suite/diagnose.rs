//! The diagnosis finds each planted fault, with what follows from it and nothing else. A healthy layer raises nothing.

use crate::foreign::Foreign;
use crate::support::{masks, parameters, random};
use attention::{
    AttentionCache, LayerGradients, Mask, MultiHeadAttention, Rotary,
    SingleHeadAttention, positions::RotaryPairs,
};
use laboratory::{
    AttentionLayer, Diagnosis, Fault, Finding, Patient, SLOPE_TOLERANCE, diagnose,
    diagnose_chunks,
};
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};

const N: usize = 6;

fn layer(d_model: usize, n_heads: usize, seed: u64) -> MultiHeadAttention<f64> {
    let parameters = parameters(d_model, d_model, d_model, seed);
    MultiHeadAttention::from_parameters(parameters, n_heads).unwrap()
}

fn rotary(layer: MultiHeadAttention<f64>) -> MultiHeadAttention<f64> {
    layer.with_rotary(Rotary::new(100.0, RotaryPairs::Halves).unwrap()).unwrap()
}

fn tokens(n: usize, d_model: usize, seed: u64) -> DMatrix<f64> {
    2.0 * random(n, d_model, seed)
}

fn ill(fault: impl Into<Option<Fault>>, seed: u64, mask: impl Into<Mask>) -> Diagnosis {
    let patient = Patient::new(layer(8, 2, seed), fault).unwrap();
    diagnose(&patient, &tokens(N, 8, seed + 100), None, mask).unwrap()
}

// ---------------------------------------------------------------------------------------------------- the healthy

fn assert_healthy<L: AttentionLayer>(
    layer: &L,
    x: &DMatrix<f64>,
    context: Option<&DMatrix<f64>>,
    mask: &Mask,
    what: &str,
) {
    let diagnosis = diagnose(layer, x, context, mask).unwrap();
    assert_eq!(diagnosis.findings(), [], "{what}:\n{diagnosis}");
    // Not near the tolerance, but a tenth of it at most.
    let worst =
        diagnosis.slope_errors.iter().map(|(_, error)| *error).fold(0.0, f64::max);
    assert!(worst < 0.1 * SLOPE_TOLERANCE, "{what}: {:?}", diagnosis.slope_errors);
}

#[test]
fn a_healthy_layer_raises_nothing_whatever_its_seed_size_and_mask() {
    for (seed, d_model, n_heads, n) in [
        (1, 4, 1, 6),
        (2, 8, 2, 5),
        (3, 8, 8, 4),
        (4, 12, 3, 7),
        (5, 6, 1, 1),
        (6, 16, 4, 2),
    ] {
        let x = tokens(n, d_model, seed);
        for (kind, mask) in masks(n, n) {
            let what = format!("{n_heads} heads, {n} tokens, mask {kind}");
            assert_healthy(&layer(d_model, n_heads, seed), &x, None, &mask, &what);
            let single = SingleHeadAttention::from(parameters(d_model, 3, 2, seed));
            assert_healthy(&single, &x, None, &mask, &format!("single, {what}"));
        }
    }
}

#[test]
fn and_across_two_sequences() {
    for (n_q, n_k) in [(3, 6), (6, 3), (1, 4), (4, 1)] {
        let (x, context) = (tokens(n_q, 8, 20), tokens(n_k, 8, 21));
        for (kind, mask) in masks(n_q, n_k) {
            let what = format!("{n_q} queries, {n_k} keys, mask {kind}");
            assert_healthy(&layer(8, 2, 22), &x, Some(&context), &mask, &what);
            let single = SingleHeadAttention::from(parameters(8, 3, 5, 23));
            assert_healthy(&single, &x, Some(&context), &mask, &what);
        }
    }
}

#[test]
fn a_wide_layer_as_it_is_initialised_raises_nothing() {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let layer = MultiHeadAttention::xavier(64, 4, rng).unwrap();
    assert_healthy(&layer, &tokens(9, 64, 24), None, &Mask::causal(), "64 wide");
}

/// Returns the output of a layer and its gradients.
fn run<L: AttentionLayer>(
    layer: &L,
    x: &DMatrix<f64>,
    context: Option<&DMatrix<f64>>,
    mask: &Mask,
    grad_output: &DMatrix<f64>,
) -> (DMatrix<f64>, LayerGradients<f64>) {
    let (output, cache) = layer.forward(x, context, mask).unwrap();
    (output, layer.backward(&cache, grad_output).unwrap())
}

/// All that the patients share with the healthy layer is healthy.
#[test]
fn a_patient_without_a_fault_is_the_healthy_layer() {
    let lengths = [(5, 5, false), (3, 6, true), (6, 3, true)];
    let layers = [layer(8, 2, 30), rotary(layer(8, 2, 30))];
    for ((n_q, n_k, is_cross), healthy) in
        lengths.into_iter().flat_map(|lengths| layers.iter().map(move |l| (lengths, l)))
    {
        let x = tokens(n_q, 8, 31);
        let context = is_cross.then(|| tokens(n_k, 8, 32));
        let patient = Patient::new(healthy.clone(), None).unwrap();
        for (kind, mask) in masks(n_q, n_k) {
            let grad_output = random(n_q, 8, 33);
            let (context, grad_output) = (context.as_ref(), &grad_output);
            let (expected, gradients) = run(healthy, &x, context, &mask, grad_output);
            let (output, ill) = run(&patient, &x, context, &mask, grad_output);
            assert!((output - expected).amax() < 1e-13, "{kind}");
            assert!((&ill.x - &gradients.x).amax() < 1e-12, "{kind}");
            let all = gradients.parameters.named().into_iter();
            for ((name, a), (_, b)) in all.zip(ill.parameters.named()) {
                assert!((a - b).amax() < 1e-12, "{kind}: {name}");
            }
            assert_eq!(ill.context.is_some(), is_cross);
            if let (Some(a), Some(b)) = (&ill.context, &gradients.context) {
                assert!((a - b).amax() < 1e-12, "{kind}: context");
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------- the ill

/// A finding without its numbers.
fn kind(finding: &Finding) -> String {
    match finding {
        Finding::RowSum { head, .. } => format!("row sum, head {head}"),
        Finding::WrongAxis { head, .. } => format!("wrong axis, head {head}"),
        Finding::Collapsed { head, .. } => format!("collapsed, head {head}"),
        Finding::Diffuse { head, .. } => format!("diffuse, head {head}"),
        Finding::Twins { first, second } => format!("twins {first} and {second}"),
        Finding::Scale { head, .. } => format!("scale, head {head}"),
        Finding::NoGradient { head, parameter, .. } => {
            format!("no gradient of {parameter}, head {head}")
        }
        Finding::WrongGradient { by, .. } => format!("wrong gradient of {by}"),
        Finding::Leak { .. } => "leak".to_owned(),
        Finding::Deaf { .. } => "deaf".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Some tokens are hidden, but every query may see one.
fn mask() -> Mask {
    let valid = [true, false, true, true, false, true];
    Mask::causal().and(Mask::padding(&valid).unwrap())
}

fn expected(fault: Fault) -> Vec<&'static str> {
    match fault {
        Fault::OffByOneMask | Fault::ForgottenPadding => vec!["leak"],
        // The last query may see most, so that it sees what little is left; no row is empty under this mask.
        Fault::MaskInverted => vec!["leak", "deaf"],
        // What is hidden still has its share in the sum that softmax divided by.
        Fault::MaskAfterSoftmax => vec!["row sum, head 0", "row sum, head 1", "leak"],
        Fault::ScaleMissing => vec!["scale, head 0", "scale, head 1"],
        // A column's sum runs over later queries too.
        Fault::SoftmaxOverQueries => {
            vec!["wrong axis, head 0", "wrong axis, head 1", "leak"]
        }
        Fault::DeadHead => vec![
            "diffuse, head 1",
            "no gradient of w_q, head 1",
            "no gradient of w_k, head 1",
        ],
        Fault::SharedSlice => vec![
            "twins 0 and 1",
            "no gradient of w_q, head 1",
            "no gradient of w_k, head 1",
            "no gradient of w_v, head 1",
        ],
        Fault::ForgottenPath => vec!["wrong gradient of x"],
        Fault::KeysNotTransposed => {
            vec!["wrong gradient of x", "wrong gradient of w_k", "wrong gradient of b_k"]
        }
        // The layer reads a whole text rightly.
        Fault::PositionOfTheChunk => vec![],
        other => panic!("no test knows what {other:?} leads to"),
    }
}

#[test]
fn each_fault_is_found_with_what_follows_from_it_and_nothing_else() {
    for fault in Patient::FAULTS.iter().copied().map(Some).chain([None]) {
        for seed in 40..45 {
            let diagnosis = ill(fault, seed, mask());
            let found: Vec<_> = diagnosis.findings().iter().map(kind).collect();
            let expected = fault.map_or(vec![], expected);
            assert_eq!(found, expected, "{fault:?}, seed {seed}:\n{diagnosis}");
        }
    }
}

/// The places and numbers in the findings, for faults of which they can be said beforehand.
#[test]
fn findings_say_where_and_how_much() {
    let leak_of = |fault, mask: Mask| {
        let findings = ill(fault, 50, mask).findings();
        let leak = findings.iter().find_map(|finding| match finding {
            Finding::Leak { pairs, moved } => Some((pairs.clone(), *moved)),
            _ => None,
        });
        leak.unwrap()
    };
    let (pairs, moved) = leak_of(Fault::OffByOneMask, Mask::causal());
    assert_eq!(pairs, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
    assert!(moved > 0.01 && moved < 10.0);

    let (pairs, _) = leak_of(Fault::ForgottenPadding, mask());
    // Tokens 1 and 4 are padding. Each reaches itself, which only its weight tells, and all later ones.
    assert_eq!(pairs, [(1, 1), (2, 1), (3, 1), (4, 1), (4, 4), (5, 1), (5, 4)]);

    for finding in ill(Fault::ScaleMissing, 51, mask()).findings() {
        let Finding::Scale { factor, .. } = finding else { panic!("{finding}") };
        assert!((factor - 2.0).abs() < 1e-9, "√4 times too large, not {factor}");
    }
    let findings = ill(Fault::DeadHead, 52, mask()).findings();
    let Finding::Diffuse { entropy, .. } = findings[0] else { panic!("{findings:?}") };
    assert!((entropy - 1.0).abs() < 1e-12);
    let Finding::NoGradient { norm, .. } = findings[1] else { panic!("{findings:?}") };
    assert_eq!(norm, 0.0);
}

/// With an empty row, where the sums must be 0, the inverted and the forgotten mask show there as well.
#[test]
fn a_row_that_sees_nothing_must_have_no_weight() {
    let valid = [false, true, true, true, true, true];
    let mask = Mask::causal().and(Mask::padding(&valid).unwrap());
    let found: Vec<_> =
        ill(Fault::ForgottenPadding, 53, &mask).findings().iter().map(kind).collect();
    assert_eq!(found, ["row sum, head 0", "row sum, head 1", "leak"]);
}

/// A layer that others wrote may return what no patient returns.
fn foreign() -> Foreign {
    Foreign::healthy(layer(8, 2, 1))
}

#[test]
fn weights_that_are_no_softmax_are_found_though_their_rows_sum_to_one() {
    for spoil in [
        // A negative weight in every row, and the others in their old proportions: a softmax but for that.
        (|heads| {
            for mut row in heads[1].weights.row_iter_mut() {
                let others = 1.0 - row[1];
                row *= 1.1 / others;
                row[1] = -0.1;
            }
        }) as fn(&mut Vec<AttentionCache<f64>>),
        // Those of other keys.
        |heads| heads[1].weights.swap_columns(0, 1),
    ] {
        let ill = Foreign { heads: spoil, ..foreign() };
        let findings =
            diagnose(&ill, &tokens(N, 8, 2), None, Mask::none()).unwrap().findings();
        assert!(findings.contains(&Finding::NotSoftmax { head: 1 }), "{findings:?}");
        assert!(!findings.contains(&Finding::NotSoftmax { head: 0 }), "{findings:?}");
    }
}

#[test]
fn a_context_that_gets_no_gradient_is_found() {
    let ill = Foreign { gradients: |gradients| gradients.context = None, ..foreign() };
    let (x, context) = (tokens(N, 8, 2), tokens(4, 8, 3));
    let findings = diagnose(&ill, &x, Some(&context), Mask::none()).unwrap().findings();
    assert!(
        matches!(&findings[..], [Finding::WrongGradient { by, .. }] if by == "context"),
        "{findings:?}"
    );
}

#[test]
fn inputs_too_small_to_tell_the_scale_by_raise_no_alarm_about_it() {
    for size in [0.0, 1e-9, 1e-6] {
        let x = tokens(N, 8, 2) * size;
        let findings =
            diagnose(&layer(8, 2, 1), &x, None, Mask::causal()).unwrap().findings();
        let about_scale = |finding: &Finding| {
            matches!(finding, Finding::Scale { .. } | Finding::NotSoftmax { .. })
        };
        assert!(!findings.iter().any(about_scale), "{size}: {findings:?}");
    }
}

#[test]
fn scores_that_are_far_too_large_collapse_a_head() {
    for factor in [300.0, 1e3, 1e5] {
        let mut patient = layer(8, 2, 54);
        patient.parameters.w_q.scale_mut(factor);
        let x = tokens(N, 8, 55);
        let diagnosis = diagnose(&patient, &x, None, Mask::none()).unwrap();
        let found: Vec<_> = diagnosis.findings().iter().map(kind).collect();
        for head in 0..2 {
            let collapsed = format!("collapsed, head {head}");
            assert!(found.contains(&collapsed), "times {factor}:\n{diagnosis}");
        }
        let others = ["scale", "deaf", "leak", "sum"];
        let is_other = |kind: &String| others.iter().any(|other| kind.contains(other));
        assert!(!found.iter().any(is_other), "times {factor}:\n{diagnosis}");
    }
}

#[test]
fn what_is_not_finite_is_named_and_nothing_else_is_judged() {
    let mut x = tokens(N, 8, 56);
    x[(2, 3)] = f64::NAN;
    let diagnosis = diagnose(&layer(8, 2, 57), &x, None, Mask::causal()).unwrap();
    let what: Vec<_> = diagnosis.findings().iter().map(ToString::to_string).collect();
    assert_eq!(what[0], "x: NaN or infinite");
    assert!(what.iter().all(|finding| finding.ends_with("NaN or infinite")));
    let finite = diagnose(&layer(8, 2, 57), &tokens(N, 8, 56), None, Mask::causal());
    assert_eq!(finite.unwrap().findings(), []);
}

#[test]
fn the_same_layer_gets_the_same_diagnosis() {
    let [first, second] = [(); 2].map(|_| ill(Fault::SoftmaxOverQueries, 58, mask()));
    assert_eq!(first, second);
    assert_eq!(first.to_string(), second.to_string());
}

/// The report's signs, one row an output.
#[test]
fn the_report_draws_what_moves_what() {
    let report = ill(Fault::ForgottenPadding, 59, mask()).to_string();
    let rows = ["x . . . . .", "x L . . . .", "x L x . . .", "x L x x L ."];
    for (i, row) in [(0, rows[0]), (1, rows[1]), (2, rows[2]), (4, rows[3])] {
        assert!(report.contains(&format!("{i}   {row}\n")), "row {i}:\n{report}");
    }
    let report = ill(Fault::MaskInverted, 60, Mask::causal()).to_string();
    assert!(report.contains("1   D x L L L L\n"), "{report}");
}

// ---------------------------------------------------------------------------------------------------- chunks

#[test]
fn a_healthy_layer_reads_chunks_as_it_reads_the_whole_text() {
    for (seed, d_model, n_heads, n) in [(70, 4, 1, 6), (71, 8, 2, 5), (72, 12, 3, 1)] {
        let plain = layer(d_model, n_heads, seed);
        for healthy in [plain.clone(), rotary(plain)] {
            let x = tokens(n, d_model, seed + 100);
            assert_eq!(diagnose_chunks(&healthy, &x).unwrap().findings(), [], "{n}");
            let patient = Patient::new(healthy, None).unwrap();
            let diagnosis = diagnose_chunks(&patient, &x).unwrap();
            assert_eq!(diagnosis.findings(), [], "{n}");
            assert!(diagnosis.differences.amax() < 1e-13, "{}", diagnosis.differences);
        }
    }
}

/// Positions that start again, and what in the whole text comes from queries or keys that are not there in chunks.
#[test]
fn chunks_tell_restarted_positions_and_leaks_and_nothing_else() {
    for fault in Patient::FAULTS {
        let patient = Patient::new(rotary(layer(8, 2, 73)), *fault).unwrap();
        let findings = diagnose_chunks(&patient, &tokens(N, 8, 74)).unwrap().findings();
        let expected = matches!(
            fault,
            Fault::PositionOfTheChunk
                | Fault::OffByOneMask
                | Fault::MaskInverted
                | Fault::MaskAfterSoftmax
                | Fault::SoftmaxOverQueries
        );
        assert_eq!(!findings.is_empty(), expected, "{fault:?}: {findings:?}");
    }
}

#[test]
fn all_chunks_but_the_first_are_wrong_where_positions_start_again() {
    let (healthy, x) = (rotary(layer(8, 2, 75)), tokens(N, 8, 76));
    let patient = Patient::new(healthy.clone(), Fault::PositionOfTheChunk).unwrap();
    let diagnosis = diagnose_chunks(&patient, &x).unwrap();
    let report = diagnosis.to_string();
    for row in ["6             = = = = = =", "3 3           = = = x x x"] {
        assert!(report.contains(row), "{report}");
    }
    assert!(report.contains("1 1 1 1 1 1   = x x x x x\n"), "{report}");
    let words: Vec<_> = diagnosis.findings().iter().map(ToString::to_string).collect();
    assert!(words[0].starts_with("in chunks of 3 3: outputs off by up to "), "{words:?}");
    assert!(words[1].ends_with(", the first of them 1"), "{words:?}");
    // Nothing else is wrong with it.
    let [ill, healthy] = [
        diagnose(&patient, &x, None, Mask::causal()),
        diagnose(&healthy, &x, None, Mask::causal()),
    ];
    assert_eq!(ill.unwrap().to_string(), healthy.unwrap().to_string());
}
