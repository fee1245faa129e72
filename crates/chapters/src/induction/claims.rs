//! Tests of what the chapter says of its numbers.

use super::facts;
use crate::trained;

#[test]
fn the_fall_and_the_heads_come_together() {
    let history = trained::open("repeated").unwrap().trained.history;
    let at = |step: u64| history.iter().find(|at| at.step == step).unwrap();
    assert!(at(100).held_out > 3.5 && at(400).held_out < 0.1);
    for head in 0..2 {
        assert!(
            at(100).heads[0][head].previous < 0.15
                && at(100).heads[1][head].after_copy < 0.2
        );
        assert!(
            at(400).heads[0][head].previous > 0.4
                && at(400).heads[1][head].after_copy > 0.8
        );
    }
}

#[test]
fn one_block_knows_which_tokens_come_again_and_not_which_one_is_next() {
    let one = trained::open("repeated-one-block").unwrap().trained;
    let loss = f64::from(one.history.last().unwrap().held_out);
    let guessing = facts::loss_of_guessing_among_the_repeated();
    assert!((loss - guessing).abs() < 0.4, "{loss} {guessing}");
    let scores = one.history.last().unwrap().heads[0].iter();
    assert!(scores.into_iter().all(|head| head.after_copy < 0.2));
}

#[test]
fn without_either_block_the_model_guesses() {
    let ablations = facts::ablations(&trained::open("repeated").unwrap().model).unwrap();
    let loss = |name: &str| ablations.iter().find(|it| it.name == name).unwrap().loss;
    assert!(loss("none") < 0.01);
    assert!(loss("block 2, head 1") < 0.3 && loss("block 2, head 2") < 0.3);
    assert!(loss("block 1, head 2") > 5.0 * loss("block 1, head 1"));
    assert!(loss("both of block 1") > 3.0 && loss("both of block 2") > 3.0);
}
