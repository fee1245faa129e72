//! Tests of what the chapter says of its numbers.

use super::facts::{self, HEADS, bytes_of_token, sent};
use across::cost;
use across::{Layout, Local, Network as _, Threads, Whole, by_keys, ring};
use anyhow::Result;
use attention::Mask;
use attention::engine::{ByWeights, Engine, Tiled};
use attention::flash::Inputs;
use laboratory::hardware::{H100, LINKS};
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// "A text of a million tokens takes 128 GiB of them, and an H100 has 80 GB"
#[test]
fn the_keys_of_a_long_text_do_not_fit() {
    assert!(bytes_of_token() << 20 > H100.memory * 1_000_000_000);
}

/// Results of so many ranks, beside those of one process.
struct Results {
    ranks: usize,
    /// The largest difference of an entry of the output, from all weights in one process.
    off: f64,
    /// Whether all entries have the bits of one rank: in the order of the ring, and in that of the keys.
    same_bits: [bool; 2],
}

/// A causal attention of 96 tokens on 1 to 8 ranks, which are threads here.
fn results() -> Result<Vec<Results>> {
    const N: usize = 96;
    const D: usize = 16;
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let x = DMatrix::from_fn(N, 3 * D, |_, _| rng.random_range(-2.0..2.0));
    let [q, k, v] = [0, 1, 2].map(|part| x.columns(part * D, D).into_owned());
    let inputs = Inputs::new(&q, &k, &v, Mask::causal())?;
    let expected = ByWeights.forward(&inputs)?.output;
    let whole =
        |layout| Whole::new((N, N), (D, D), Mask::causal()).with_layouts(layout, layout);
    let (in_ring, in_order) = (whole(Layout::Zigzag), whole(Layout::Tiles(8)));
    let output = |ranks: usize, whole: &Whole| -> Result<DMatrix<f64>> {
        let parts = Threads::run(ranks, |network| {
            let rows = whole.layouts.0.rows(N, ranks, network.rank());
            let mine = [&q, &k, &v].map(|matrix| matrix.select_rows(&rows));
            let [q, k, v] = mine.each_ref().map(|matrix| matrix.as_view());
            let local = Local { q, k, v };
            let forward = match whole.layouts.0 {
                Layout::Tiles(_) => by_keys::forward(network, whole, &local),
                _ => ring::forward(network, &Tiled::default(), whole, &local),
            };
            forward.map(|forward| (rows, forward.output))
        });
        let mut output = DMatrix::zeros(N, D);
        for part in parts {
            let (rows, part) = part?;
            for (i, row) in rows.into_iter().enumerate() {
                output.row_mut(row).copy_from(&part.row(i));
            }
        }
        Ok(output)
    };
    let alone = [output(1, &in_ring)?, output(1, &in_order)?];
    let of_ranks = |ranks: usize| {
        let both = [output(ranks, &in_ring)?, output(ranks, &in_order)?];
        let off = (&both[0] - &expected).amax();
        let same_bits = [both[0] == alone[0], both[1] == alone[1]];
        Ok(Results { ranks, off, same_bits })
    };
    [2, 3, 4, 8].into_iter().map(of_ranks).collect()
}

/// "off by less than 10⁻¹²"; "its last digits depend on the number of ranks"; "all entries then have the bits of one rank"
#[test]
fn ranks_give_the_results_of_one_process() {
    for row in results().unwrap() {
        assert!(row.off < 1e-12, "{} ranks: {:e}", row.ranks, row.off);
        assert_eq!(row.same_bits, [false, true], "{} ranks", row.ranks);
    }
}

/// "Contiguous rows lose almost half of the time. The other two lose at most a hundredth."
#[test]
fn zigzag_rows_are_even() {
    let [contiguous, zigzag, striped] =
        facts::balances().unwrap().try_into().ok().unwrap();
    assert!(contiguous.busy.iter().all(|busy| (0.5..0.6).contains(busy)));
    assert!(zigzag.busy.iter().all(|busy| *busy >= 0.99));
    assert!(striped.busy.iter().all(|busy| *busy >= 0.99));
}

/// "With few ranks the ring sends less, with many ranks the exchange of heads does"
#[test]
fn heads_send_less_with_many_ranks() {
    let sent = sent();
    // "Both are equal at P = 1 + h / h_kv"
    let equal = 1 + HEADS.0 / HEADS.1;
    assert!(sent.iter().all(|row| {
        let few = row.ranks < equal;
        row.heads.is_none_or(|heads| (heads > row.ring) == few)
    }));
    let first = &sent[0];
    assert!(first.heads > Some(first.ring) && sent[2].heads < Some(sent[2].ring));
    for pair in sent.windows(2) {
        if let [Some(few), Some(more)] = [pair[0].heads, pair[1].heads] {
            assert!(more < few);
        }
    }
    assert!(sent.iter().all(|row| row.heads.is_some() == (row.ranks <= HEADS.0)));
}

/// "with NVLink or InfiniBand many times the fewest", over eight GPUs; over a thousand "each … would … wait"
#[test]
fn a_million_tokens_hide_a_ring_of_eight_but_not_of_a_thousand() {
    for link in &LINKS[..2] {
        let [_, shared] = facts::fewest_tokens(link);
        let fewest = 2.0 * shared; // causal
        assert!(10.0 * fewest < f64::from(1 << 20) / 8.0);
        let of_thousand = f64::from(1 << 20) / facts::GPUS as f64;
        assert!(of_thousand < fewest);
    }
}

/// "every rank computes two blocks, at every step after the first"
#[test]
fn a_step_of_zigzag_has_two_blocks_on_every_rank() {
    let whole = Whole::new((64, 64), (1, 1), Mask::causal());
    let whole = whole.with_layouts(Layout::Zigzag, Layout::Zigzag);
    let piece = 64 / 8;
    for of_rank in cost::pairs(&whole, 4).unwrap() {
        assert!(of_rank[1..].iter().all(|&pairs| pairs == 2 * piece * piece));
    }
}

/// "it computes three blocks in place of one"
#[test]
fn zigzag_cuts_the_rows_of_a_single_rank_in_two() {
    let whole = Whole::new((64, 64), (1, 1), Mask::causal());
    let whole = whole.with_layouts(Layout::Zigzag, Layout::Zigzag);
    assert_eq!(cost::work(&whole, 1).unwrap()[0][0].rows, 3 * 32);
}

/// `rank 3 has n_q = 4004 but rank 0 has 4000`
#[test]
fn ranks_that_disagree_say_what_the_page_shows() {
    let said = Threads::run(4, |network| {
        let n = if network.rank() == 3 { 4004 } else { 4000 };
        let whole = Whole::new((n, n), (1, 1), Mask::causal());
        let rows = DMatrix::<f64>::zeros(n / 4, 1);
        let local = Local { q: rows.as_view(), k: rows.as_view(), v: rows.as_view() };
        ring::forward(network, &Tiled::default(), &whole, &local).unwrap_err().to_string()
    });
    assert_eq!(said, ["rank 3 has n_q = 4004 but rank 0 has 4000"; 4]);
}
