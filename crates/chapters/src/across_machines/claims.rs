//! Tests of what the chapter says of its numbers.

use super::facts::{self, HEADS, bytes_of_token, fewest_tokens, results, sent};
use laboratory::hardware::{H100, LINKS};

/// "A text of a million tokens takes 128 GiB of them, and an H100 has 80 GB"
#[test]
fn the_keys_of_a_long_text_do_not_fit() {
    assert!(bytes_of_token() << 20 > H100.memory * 1_000_000_000);
}

/// "Up to rounding, yes"; "They can have the same bits"
#[test]
fn ranks_give_the_results_of_one_process() {
    for row in results().unwrap() {
        assert!(row.off < 1e-14, "{} ranks: {:e}", row.ranks, row.off);
        assert_eq!(row.same_bits, [false, true], "{} ranks", row.ranks);
    }
}

/// "With contiguous rows about half of the time is lost; with zigzag next to nothing"
#[test]
fn zigzag_rows_are_even() {
    let [contiguous, zigzag, striped] =
        facts::balances().unwrap().try_into().ok().unwrap();
    assert!(contiguous.busy.iter().all(|busy| (0.5..0.65).contains(busy)));
    assert!(zigzag.busy.iter().all(|busy| *busy > 0.99));
    assert!(striped.busy.iter().all(|busy| *busy > 0.98));
}

/// "That hardly depends on P"; "sends less with every rank"; "ends where the heads of keys end"
#[test]
fn a_ring_sends_the_same_and_heads_send_less() {
    let sent = sent();
    let (first, last) = (&sent[0], &sent[sent.len() - 1]);
    assert!(first.ring < last.ring && last.ring < 2 * first.ring);
    for pair in sent.windows(2) {
        if let [Some(few), Some(more)] = [pair[0].heads, pair[1].heads] {
            assert!(more < few);
        }
    }
    assert!(sent.iter().all(|row| row.heads.is_some() == (row.ranks <= HEADS.1)));
}

/// "Within a machine, rings hide their exchange from a few thousand tokens a GPU on"
#[test]
fn nvlink_hides_an_exchange_from_few_thousand_tokens_on() {
    let [own, shared] = fewest_tokens(&LINKS[0]);
    assert!((1000.0..4000.0).contains(&own) && shared < own);
}
