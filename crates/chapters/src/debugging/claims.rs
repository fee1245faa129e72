//! Tests of what the chapter says of its numbers.

use super::facts::{self, HEADS, KEYS, PATIENTS, examine};
use super::training::{Losses, loss_of_zero, losses};
use crate::random::normal;
use attention::{Mask, MultiHeadAttention};
use laboratory::{Diagnosis, Fault, Finding, HeadDiagnosis, Patient, diagnose};
use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use std::sync::LazyLock;

static TRAINED: LazyLock<Vec<Losses>> = LazyLock::new(|| losses().unwrap());

#[test]
fn all_layers_but_the_one_with_an_inverted_mask_learn() {
    for Losses { fault, previous, .. } in &*TRAINED {
        let learns = *previous < 0.2;
        assert!(learns == (*fault != Some(Fault::MaskInverted)), "{fault:?}: {previous}");
    }
}

/// No layer does better than 0 on the numbers of the next token, unless something of them reaches it.
#[test]
fn what_leaks_learns_the_next_token_and_nothing_else_does() {
    let zero = loss_of_zero(1).unwrap();
    for Losses { fault, next, .. } in &*TRAINED {
        let cheats = *next < 0.98 * zero;
        assert!(cheats == (*next < 0.8), "{fault:?}: {next} against {zero}");
        let leaks = matches!(
            fault,
            Some(
                Fault::OffByOneMask
                    | Fault::MaskInverted
                    | Fault::MaskAfterSoftmax
                    | Fault::SoftmaxOverQueries
            )
        );
        assert!(cheats == leaks, "{fault:?}: {next}");
    }
}

#[test]
fn some_faults_do_no_harm_to_training_some_a_little_and_some_a_good_deal() {
    let healthy = TRAINED[0].previous;
    let forgotten =
        TRAINED.iter().find(|losses| losses.fault == Some(Fault::ForgottenPath));
    assert_eq!(forgotten.unwrap().previous, healthy);
    let any = |is: &dyn Fn(f64) -> bool| TRAINED.iter().any(|of| is(of.previous));
    assert!(any(&|loss| loss > 100.0 * healthy && loss < 0.2));
    assert!(any(&|loss| loss > 2.0 * healthy && loss < 0.005));
    let as_good = TRAINED[1..].iter().filter(|of| of.previous < 1.5 * healthy);
    assert!(as_good.count() >= 3);
}

#[test]
fn the_dead_head_has_the_most_entropy_and_the_unscaled_one_the_least() {
    let [healthy, unscaled, dead] =
        [None, Some(Fault::ScaleMissing), Some(Fault::DeadHead)].map(|fault| {
            let entropies = facts::entropies(fault);
            entropies.unwrap()
        });
    let most = facts::most_entropies();
    assert!((dead[KEYS - 1] - most[KEYS - 1]).abs() < 1e-12);
    assert!((2..KEYS).all(|i| unscaled[i] < healthy[i] && healthy[i] < most[i]));
}

#[test]
fn nothing_is_found_in_the_healthy_layer() {
    let healthy = examine(None).unwrap();
    assert!(healthy.findings().is_empty(), "{healthy}");
    assert!(healthy.slope_errors.iter().all(|(_, error)| *error < 1e-5));
}

#[test]
fn tokens_reach_no_earlier_output_unless_the_mask_leaks() {
    let healthy = examine(None).unwrap();
    let influence = healthy.influence;
    for i in 0..6 {
        assert!((i + 1..6).all(|j| influence[(i, j)] == 0.0));
        assert!((0..=i).all(|j| influence[(i, j)] > 0.005));
    }
    let leaking = examine(Fault::OffByOneMask).unwrap();
    assert!((0..5).all(|i| leaking.influence[(i, i + 1)] > 0.005));
}

#[test]
fn the_slopes_give_away_one_patient() {
    for (letter, fault) in PATIENTS {
        let findings = examine(fault).unwrap().findings();
        let wrong = |finding: &Finding| matches!(finding, Finding::WrongGradient { .. });
        assert_eq!(findings.iter().any(wrong), letter == "e", "{letter}");
    }
}

#[test]
fn with_softmax_of_columns_the_last_token_keeps_its_column_to_itself() {
    let diagnosis = examine(Fault::SoftmaxOverQueries).unwrap();
    let weights = &diagnosis.heads[0].weights;
    assert!((weights[(5, 5)] - 1.0).abs() < 1e-12 && weights.column(0).max() < 0.6);
}

/// The least and the largest entropy as a share of what it could be, over rows with a choice.
fn entropy_range(head: &HeadDiagnosis) -> (f64, f64) {
    let rows = head.entropy.iter().zip(head.max_entropy.iter());
    let shares =
        rows.filter(|(_, most)| **most > 0.0).map(|(entropy, most)| entropy / most);
    shares.fold((f64::INFINITY, 0.0), |(least, most), share| {
        (share.min(least), share.max(most))
    })
}

#[test]
fn a_missing_scale_lowers_entropy_and_is_all_that_is_found() {
    let least = |diagnosis: &Diagnosis| {
        diagnosis.heads.iter().map(|h| entropy_range(h).0).fold(1.0, f64::min)
    };
    let unscaled = examine(Fault::ScaleMissing).unwrap();
    assert!(least(&unscaled) < least(&examine(None).unwrap()));
    assert_eq!(unscaled.findings().len(), HEADS);
}

/// Every row but the last leaks, and some of these stay below what they may have.
#[test]
fn a_leak_lifts_some_entropies_above_their_maximum_but_not_all() {
    let leaking = examine(Fault::OffByOneMask).unwrap();
    let most = leaking.heads.iter().map(|head| entropy_range(head).1);
    assert!(most.fold(0.0, f64::max) > 1.1);
    let below =
        |head: &HeadDiagnosis| (1..5).any(|i| head.entropy[i] < head.max_entropy[i]);
    assert!(leaking.heads.iter().any(below));
}

#[test]
fn a_dead_head_has_no_gradient_by_its_queries_and_keys() {
    let dead = examine(Fault::DeadHead).unwrap().heads[1].gradients;
    assert!(dead[0].1 == 0.0 && dead[1].1 == 0.0 && dead[2].1 > 1.0, "{dead:?}");
}

#[test]
fn a_forgotten_path_shows_in_the_gradient_by_the_input_alone() {
    let findings = examine(Fault::ForgottenPath).unwrap().findings();
    assert!(
        matches!(&findings[..], [Finding::WrongGradient { by, .. }] if by == "x"),
        "{findings:?}"
    );
}

#[test]
fn a_mask_after_softmax_leaks_though_no_hidden_key_has_a_weight() {
    let diagnosis = examine(Fault::MaskAfterSoftmax).unwrap();
    for head in &diagnosis.heads {
        assert!((0..6).all(|i| (i + 1..6).all(|j| head.weights[(i, j)] == 0.0)));
    }
    assert!(diagnosis.findings().iter().any(|f| matches!(f, Finding::Leak { .. })));
    // The last row sees all.
    assert!((diagnosis.heads[0].row_sums[5] - 1.0).abs() < 1e-12);
}

#[test]
fn forgotten_padding_reaches_all_real_tokens_from_the_start_and_none_from_the_end() {
    assert_eq!(facts::reached_by_filling(5).unwrap(), 0);
    assert_eq!(facts::reached_by_filling(0).unwrap(), 5);
}

/// The six checks have the same to say of it as of the healthy layer with rotary positions.
#[test]
fn restarted_positions_show_in_chunks_alone_and_in_all_but_the_first() {
    let (whole, chunks) = facts::examine_decoding(Fault::PositionOfTheChunk).unwrap();
    let (healthy, same) = facts::examine_decoding(None).unwrap();
    assert_eq!(whole.to_string(), healthy.to_string());
    assert_eq!(same.findings(), []);
    for (way, sizes) in chunks.chunks.iter().enumerate() {
        for i in 0..6 {
            let is_off = chunks.differences[(way, i)] > 0.01;
            assert_eq!(is_off, i >= sizes[0], "{}", chunks.differences);
        }
    }
}

#[test]
fn chunks_find_the_leaks_of_patients_as_well() {
    let failed = facts::failed_checks().unwrap();
    let by_chunks = failed.iter().filter(|(_, checks)| checks[1]);
    for (fault, checks) in by_chunks {
        assert!(checks[0] || *fault == Fault::PositionOfTheChunk, "{fault:?}");
    }
    let leaks = failed.iter().filter(|(fault, _)| *fault != Fault::ForgottenPadding);
    assert!(leaks.into_iter().all(|(_, checks)| !checks[0] || checks[1]));
}

#[test]
fn each_of_the_eleven_faults_is_found() {
    let failed = facts::failed_checks().unwrap();
    assert!(failed.iter().all(|(_, checks)| checks.contains(&true)));
    assert_eq!(failed.len(), 11);
}

#[test]
fn under_an_inverted_mask_the_last_token_sees_nothing() {
    let findings = examine(Fault::MaskInverted).unwrap().findings();
    let empty = |f: &Finding| matches!(f, Finding::RowSum { query: 5, sum: 0.0, .. });
    assert!(findings.iter().any(empty), "{findings:?}");
}

/// Parameters in the wrong places, a mask that hides nothing, and the false alarm of tiny inputs.
#[test]
fn three_things_a_diagnosis_does_not_see() {
    let healthy = facts::layer(16, 2, 0).unwrap();
    let x = normal(6, 16, &mut ChaCha8Rng::seed_from_u64(1));
    let mut swapped = healthy.clone();
    let parameters = &mut *swapped.parameters;
    std::mem::swap(&mut parameters.w_q, &mut parameters.w_k);
    let output =
        |layer: &MultiHeadAttention<f64>| layer.forward(&x, Mask::causal()).unwrap().0;
    assert!((output(&swapped) - output(&healthy)).amax() > 0.1);
    assert!(diagnose(&swapped, &x, None, Mask::causal()).unwrap().findings().is_empty());

    let leaking = Patient::new(healthy.clone(), Fault::OffByOneMask).unwrap();
    assert!(diagnose(&leaking, &x, None, Mask::none()).unwrap().findings().is_empty());

    let alarms =
        diagnose(&healthy, &(&x * 1e-3), None, Mask::causal()).unwrap().findings();
    let diffuse = |finding: &Finding| matches!(finding, Finding::Diffuse { .. });
    assert!(alarms.len() == HEADS && alarms.iter().all(diffuse), "{alarms:?}");
}

/// The sign of collapsed heads, in a model whose heads haven't collapsed.
#[test]
fn queries_with_large_gradients_are_no_proof_of_collapse() {
    let one = crate::trained::open("repeated-one-block").unwrap().trained;
    let last = one.history.last().unwrap();
    let [q, v] =
        ["w_q", "w_v"].map(|name| crate::trained_heads::norm_of(last, name).unwrap());
    assert!(q > 2.0 * v, "{q} {v}");
    assert!(last.heads.iter().flatten().all(|head| head.entropy > 0.5));
}
