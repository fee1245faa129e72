//! The seven claims in the order of the page, each with its numbers and its verdict.

use super::facts::{self, SmallGradients};
use super::verdict::{Claim, TRUE, by_parts, not_shown, only_when};
use crate::figures::format::{fixed, integer, percent, significant};
use crate::output::Page;
use anyhow::{Result, ensure};
use attention::Mask;
use laboratory::hardware::A100;

pub fn generate(page: &mut Page) -> Result<()> {
    let claims = [
        small_gradients(page),
        faster(page)?,
        ridge(page)?,
        three_measurements(page)?,
        order(page)?,
        falling_scores(page)?,
        scores_of_180(page),
    ];
    for (number, Claim { said, verdict }) in (1..).zip(claims) {
        ensure!(verdict != TRUE, "claim {number} holds as it stands: say so");
        page.value(format!("claim-{number}"), said);
        page.value(format!("verdict-{number}"), verdict);
    }
    Ok(())
}

fn small_gradients(page: &mut Page) -> Claim {
    let all = facts::small_gradients();
    let shown = all.iter().filter(|of| of.n == of.d || of.n == 8).collect::<Vec<_>>();
    page.table_of(
        "small-gradients",
        &shown,
        &[
            ("$n$", &|of| integer(of.n)),
            ("$d_k$", &|of| integer(of.d)),
            ("rows below $10^{-6}$", &|of| percent(of.rows, 0)),
            ("rows, scaled", &|of| percent(of.scaled_rows, 0)),
            ("scores below $10^{-6}$", &|of| percent(of.scores, 0)),
            ("scores, scaled", &|of| percent(of.scaled_scores, 1)),
        ],
    );
    let most = all.iter().map(|of| of.rows).fold(0.0, f64::max);
    page.value("small-most", percent(most, 0));
    let saturated = |of: &SmallGradients| of.d < 512 || of.largest > 0.9;
    Claim {
        said: "Without scaling, weights saturate and gradients fall below $10^{-6}$."
            .to_owned(),
        verdict: by_parts(&[
            ("the weights", all.iter().all(saturated)),
            (
                "most scores of wide heads or many keys",
                all[1..].iter().all(|of| of.scores > 0.5),
            ),
            ("most rows", most > 0.5),
        ]),
    }
}

fn faster(page: &mut Page) -> Result<Claim> {
    let share = facts::causal_share()?;
    let [least, most] = facts::left_of_speedups()?;
    page.value("faster-tile", integer(facts::FASTER_TILE));
    page.value("faster-share", percent(share, 0));
    page.value("faster-work", fixed(1.0 / share, 2));
    page.value("faster-least", fixed(least, 1));
    page.value("faster-most", fixed(most, 1));
    let times = facts::times(&page.records)?;
    let row = |words: &str, naive: f64, tiled: f64| {
        let ms = |seconds: f64| format!("{}\u{202f}ms", significant(1e3 * seconds, 3));
        vec![
            words.to_owned(),
            ms(naive),
            ms(tiled),
            format!("{} ×", fixed(naive / tiled, 1)),
        ]
    };
    let facts::Times { naive, tiled } = times;
    let rows = [
        row("as on the chart: only the tiles have a mask", naive[0], tiled[1]),
        row("neither has a mask", naive[0], tiled[0]),
        row("both have a causal mask", naive[1], tiled[1]),
    ];
    page.table("faster", &["comparison", "naive", "tiled", "speedup"], &rows);
    Ok(Claim {
        said: "Flash attention is 2–4 times as fast: see this chart of a naive program and a causal tiled one.".to_owned(),
        verdict: not_shown(
            "the mask skips half of the work, and tiles get the credit",
            least >= 2.0,
        )?,
    })
}

fn ridge(page: &mut Page) -> Result<Claim> {
    let kinds = facts::kinds()?;
    let row = |kind: &facts::Kind| {
        let cell = |(x, waits): (f64, bool)| {
            let bound = if waits { "memory" } else { "compute" };
            format!("{} ({bound})", fixed(x, 0))
        };
        let [once, sweeps, never] = kind.intensities;
        let [once_waits, sweeps_wait, never_waits] = kind.waits_for_memory();
        let cells = [(sweeps, sweeps_wait), (once, once_waits), (never, never_waits)];
        let peak = significant(kind.rate / 1e12, 3);
        let bandwidth = fixed(A100.bandwidth / 1e12, 3);
        let ridge = format!("{peak} / {bandwidth} = {}", fixed(kind.ridge(), 0));
        [vec![kind.name.to_owned(), ridge], cells.map(cell).to_vec()].concat()
    };
    let header = [
        "numbers",
        "ridge: TFLOP/s over TB/s",
        "all sweeps, average",
        "each matrix once",
        "weights never leave",
    ];
    page.table("ridges", &header, &kinds.iter().map(row).collect::<Vec<_>>());
    page.value("intensity", fixed(kinds[0].intensities[0], 1));
    page.value("ridge-said", fixed(facts::SAID_RIDGE, 0));
    page.value("a100-bf16", fixed(A100.bf16 / 1e12, 0));
    let near = |x: f64, said: f64| (x / said - 1.0).abs() < 0.05;
    let of_one_kind = kinds.iter().any(|kind| {
        near(kind.intensities[0], kinds[0].intensities[0])
            && near(kind.ridge(), facts::SAID_RIDGE)
    });
    Ok(Claim {
        said: "At $n = 4096$, $d = 64$ the intensity is 61 FLOP/byte, below the 156 of an A100, so attention is memory-bound."
            .to_owned(),
        verdict: not_shown("the two numbers belong to different precisions", of_one_kind)?,
    })
}

fn three_measurements(page: &mut Page) -> Result<Claim> {
    let [shortest, middle, longest] = facts::MEASURED;
    let tokens = |(n, _): (f64, f64)| integer(n as usize);
    let megabytes = |(_, megabytes): (f64, f64)| match megabytes {
        much if much > 1000.0 => format!("{}\u{202f}GB", fixed(much / 1000.0, 1)),
        little => format!("{}\u{202f}MB", fixed(little, 0)),
    };
    let [short, long] =
        facts::SECONDS.map(|seconds| format!("{}\u{202f}ms", fixed(1e3 * seconds, 0)));
    let row = |measured, time: &str| {
        vec![tokens(measured), megabytes(measured), time.to_owned()]
    };
    let rows = [row(shortest, &short), row(middle, "–"), row(longest, &long)];
    page.table("slide", &["tokens", "memory", "time"], &rows);
    let times = longest.0 / shortest.0;
    page.value("slide-square", fixed(times * times, 0));
    page.value("slide-memory", fixed(longest.1 / shortest.1, 0));
    page.value("slide-time", fixed(facts::SECONDS[1] / facts::SECONDS[0], 0));

    let exponents = facts::exponents();
    let [before, after] = facts::bytes_per_square();
    page.value("three-exponent-first", fixed(exponents[0], 2));
    page.value("three-exponent-second", fixed(exponents[1], 2));
    page.value("three-bytes-first", fixed(before, 1));
    page.value("three-bytes-second", fixed(after, 1));
    page.value("three-constant", fixed(facts::constant_megabytes(), 0));
    page.value("three-width", integer(facts::WIDTH));
    page.value("three-share", percent(facts::speed() / A100.f32, 1));
    Ok(Claim {
        said: "Attention is quadratic: see these three measurements.".to_owned(),
        verdict: only_when(
            "a constant is first subtracted from the memory",
            exponents.iter().all(|exponent| (exponent - 2.0).abs() < 0.05),
            (before / after - 1.0).abs() < 0.01,
        )?,
    })
}

fn order(page: &mut Page) -> Result<Claim> {
    let masks = [("none", Mask::none()), ("causal", Mask::causal())];
    let moved = masks.each_ref().map(|(_, mask)| facts::moved_by_a_swap(mask));
    let [none, causal] = moved;
    let (none, causal) = (none?, causal?);
    let stays = |moved: f64| moved < 1e-12;
    let cell = |moved: f64| {
        if stays(moved) { "0".to_owned() } else { percent(moved, 0) }
    };
    let row =
        |mask: &str, moved: [f64; 2]| [&[mask.to_owned()][..], &moved.map(cell)].concat();
    let rows = [row(masks[0].0, none), row(masks[1].0, causal)];
    page.table("order", &["mask", "one layer", "two layers"], &rows);
    Ok(Claim {
        said:
            "Without positions, a token can't tell in which order those before it came."
                .to_owned(),
        verdict: only_when(
            "there is a single layer, or no causal mask",
            none.into_iter().chain(causal).all(stays),
            none.into_iter().all(stays) && stays(causal[0]),
        )?,
    })
}

fn falling_scores(page: &mut Page) -> Result<Claim> {
    let all = facts::falls()?;
    page.table_of(
        "falls",
        &all,
        &[
            ("distance", &|of| integer(of.distance)),
            ("query equals key, mean", &|of| fixed(of.equal, 2)),
            ("random query and key, root mean square", &|of| fixed(of.random, 2)),
        ],
    );
    page.value("falls-pairs", integer(facts::FALL_PAIRS));
    page.value("falls-width", integer(facts::FALL_WIDTH));
    page.value("falls-steps", integer(facts::FARTHEST));
    page.value("falls-rises", integer(facts::rises()?));
    let falls = |of: fn(&facts::Fall) -> f64| of(&all[4]) < 0.9;
    Ok(Claim {
        said: "With rotary positions, a score falls as the tokens move apart.".to_owned(),
        verdict: by_parts(&[
            ("a query that equals its key, on average", falls(|of| of.equal)),
            ("a random query and key", falls(|of| of.random)),
        ]),
    })
}

fn scores_of_180(page: &mut Page) -> Claim {
    let all = facts::reaches();
    page.table_of(
        "reach",
        &all,
        &[
            ("$d_k$", &|of| integer(of.d)),
            ("$\\sqrt{d_k}$", &|of| fixed((of.d as f64).sqrt(), 1)),
            ("largest score, mean", &|of| fixed(of.mean, 0)),
            ("largest of all draws", &|of| fixed(of.most, 0)),
            ("mean, divided by $\\sqrt{d_k}$", &|of| fixed(of.scaled(), 2)),
        ],
    );
    let [_, said, _] = all;
    let width = facts::REACH_WIDTH as f64;
    page.value("reach-scores", integer(facts::REACH_N * facts::REACH_N));
    page.value("reach-draws", integer(facts::REACH_DRAWS));
    page.value("reach-mean", fixed(said.mean, 0));
    page.value("reach-deviations", fixed(facts::SAID_SCORE / width.sqrt(), 0));
    page.value("reach-rho", fixed(facts::SAID_SCORE / width, 2));
    Claim {
        said: "For $d_k = 512$ and eight tokens, unscaled scores reach 180.".to_owned(),
        verdict: by_parts(&[("the scores", said.most >= facts::SAID_SCORE)]),
    }
}
