//! Kernel 7: what it asks for, how a text fills the machine, and the picture of its splits.

use super::told;
use crate::figures::format::{fixed, integer, percent, significant};
use crate::figures::{
    Area, BLUE, GREEN, KEY, MUTED, TEXT, VERMILION, arrow, label, line, text, text_box,
};
use crate::gpu::compiled::needs;
use crate::gpu::decoding::{
    HEADS, LAYERS, LENGTHS, WEIGHTS, at_work, blocks, bytes_of_block, bytes_of_key,
    bytes_of_parts, bytes_of_text, bytes_on_the_way, demands, intensity, least_share,
    splits_for_all,
};
use crate::gpu::machine::MULTIPROCESSORS;
use crate::gpu::{banks::D, short};
use crate::output::Page;
use anyhow::{Context, Result};
use gpu::tiles::{decode, hopper};
use record::{Measurement, Record};

/// Returns the predicted share of a copy's speed.
pub fn generate(page: &mut Page, times: &Record, kernels: &Record) -> Result<String> {
    let copy = times.all("roof/copy", "f32").next().context("no copy was timed")?.median;
    let longest = LENGTHS[LENGTHS.len() - 1];
    let functions = needs(kernels)?;
    let split = functions.iter().find(|(_, function, _)| *function == "decode_split");
    let at_once = split.context("`decode_split` was not compiled")?.2.blocks();
    page.value("decode-tokens", integer(longest));
    page.value("decode-heads", integer(HEADS));
    page.value("decode-rows", integer(hopper::QUERIES));
    page.value("decode-idle", integer(MULTIPROCESSORS - HEADS));
    page.value("decode-mb", fixed(bytes_of_text(longest) as f64 / 1e6, 0));
    page.value("decode-us", micros(bytes_of_text(longest) as f64 / copy));
    page.value("decode-intensity", fixed(intensity(), 0));
    page.value("decode-filling", integer(splits_for_all(1)));
    page.value("decode-filling-twice", integer(splits_for_all(at_once)));
    let slots = decode::WARPS * decode::SLOTS * decode::PAGE * bytes_of_key();
    page.value("decode-slots-kib", integer(slots >> 10));
    // Kernel 4 would take so long for a step: each thread block goes through all tiles of keys of its head.
    let tile = short::of_width(times, kernels, D as u64)?.costs.keys;
    let tiles = longest.div_ceil(hopper::KEYS);
    page.value("decode-hopper-tiles", integer(tiles));
    page.value("decode-hopper-us", significant(tile * 1e6, 2));
    page.value("decode-hopper-ms", significant(tile * tiles as f64 * 1e3, 2));
    page.value("decode-ms", significant(bytes_of_text(longest) as f64 / copy * 1e3, 2));
    page.value("decode-layers", integer(LAYERS));
    let weights = (WEIGHTS * 2) as f64 / copy; // in bf16
    page.value("decode-weights-ms", significant(weights * 1e3, 2));
    let of_token = LAYERS as f64 * bytes_of_text(longest) as f64 / copy;
    page.value("decode-token-ms", significant(of_token * 1e3, 2));
    let on_the_way = bytes_on_the_way(at_once);
    page.value("decode-on-the-way", integer(on_the_way >> 10));
    let of_one = copy / MULTIPROCESSORS as f64;
    page.value("decode-share-kib", fixed(of_one / 1e6 / 1024.0, 0));
    let parts = bytes_of_parts() as f64 / bytes_of_block() as f64;
    page.value("decode-parts", percent(parts, 1));
    page.value("decode-key-bytes", integer(bytes_of_key()));
    page.value("decode-page-kib", integer((decode::PAGE * bytes_of_key()) >> 10));
    let demands = demands(copy);
    page.value("decode-key-clocks", fixed(demands.slow, 0));
    page.value("decode-load-clocks", fixed(demands.loads, 0));
    page.value("decode-loads", significant(demands.loads / demands.slow, 2));
    let fastest = bytes_of_text(longest) as f64 / copy;
    let slowest = fastest / least_share(copy);
    page.value("decode-range", format!("{} to {}", micros(fastest), micros(slowest)));
    lengths(page, copy);
    let predicted = asked(page, copy, times);
    let says = "Two boxes side by side, a split each, with eight pages of keys of a text in order. The pages bear the numbers of the warps \
                that read them, 0 to 3 and again 0 to 3. Lines lead from the pages to their warps, and arrows from the four warps of a box to \
                one result of the split. The results of both splits are merged into the output.";
    page.figure("splits", ("The splits of a text", says), (640, 268), draw)?;
    Ok(predicted)
}

fn micros(seconds: f64) -> String {
    significant(seconds * 1e6, 2)
}

/// How texts of several lengths fill the machine.
fn lengths(page: &mut Page, copy: f64) {
    let row = |&keys: &usize| {
        vec![
            integer(keys),
            integer(blocks(keys)),
            format!("{} of {MULTIPROCESSORS}", at_work(keys)),
            micros(bytes_of_text(keys) as f64 / copy),
        ]
    };
    let header = [
        "keys of a text",
        "thread blocks",
        "multiprocessors that get one",
        "µs at the copy's speed",
    ];
    page.table("decode-lengths", &header, &LENGTHS.each_ref().map(row));
}

/// What a key asks of each part of a multiprocessor, beside the time in which it arrives.
fn asked(page: &mut Page, copy: f64, times: &Record) -> String {
    let demands = demands(copy);
    let mut rows: Vec<_> = [
        ("slow memory", demands.slow),
        ("loads", demands.loads),
        ("instructions", demands.instructions),
        ("tensor cores", demands.tensor),
        ("exponentials", demands.exponentials),
    ]
    .map(|(name, clocks)| vec![name.to_owned(), significant(clocks / demands.slow, 2)])
    .into();
    let least = fixed(100.0 * least_share(copy), 0);
    let range = format!("{least} to {}", percent(demands.slow / demands.together(), 0));
    rows.push(vec!["**predicted**, of the copy's speed".to_owned(), range.clone()]);
    rows.push(vec!["**measured**".to_owned(), measured(times, copy)]);
    let header = ["kernel 7: time for", "in units of the copy's time"];
    page.table("kernel-7", &header, &rows);
    page.value("predicted-decode", range.as_str());
    range
}

/// The share of the copy's speed at the longest text, if a GPU has run the kernel.
fn measured(times: &Record, copy: f64) -> String {
    let longest = LENGTHS[LENGTHS.len() - 1];
    let found = times.find("decoding/decode", "bf16", longest as u64).ok();
    let share = |m: &Measurement| bytes_of_text(longest) as f64 / m.median / copy;
    found.map_or_else(|| "not yet".to_owned(), |m| told(share(m)))
}

/// Two splits of eight pages, for the eye; a split has 32.
fn draw(area: &Area) -> Result<()> {
    const PAGE: i32 = 32;
    const WIDTH: i32 = 8 * PAGE;
    for (split, left) in [(0, 40), (1, 344)] {
        label(area, (left + WIDTH / 2, 10), &format!("split {split}"), TEXT)?;
        for page in 0..8 {
            let at = (left + PAGE * page, 26);
            text_box(area, at, (PAGE - 2, 30), &(page % 4).to_string(), KEY)?;
        }
        let of_warp = |warp: i32| left + WIDTH / 8 + WIDTH / 4 * warp;
        for page in 0..8 {
            let from = (left + PAGE * page + PAGE / 2 - 1, 58);
            line(area, &[from, (of_warp(page % 4), 92)], MUTED)?;
        }
        for x in (0..4).map(of_warp) {
            text_box(area, (x - 28, 92), (56, 28), "", GREEN)?;
            let end = left + WIDTH / 2 + (x - left - WIDTH / 2) / 4;
            arrow(area, &[(x, 122), (end, 156)], MUTED)?;
        }
        for warp in 0..4 {
            label(area, (of_warp(warp), 106), &format!("warp {warp}"), TEXT)?;
        }
        text_box(area, (left + WIDTH / 2 - 60, 160), (120, 28), "of the split", BLUE)?;
        let x = left + WIDTH / 2;
        arrow(area, &[(x, 190), (320 + (x - 320) / 4, 226)], MUTED)?;
    }
    text_box(area, (260, 230), (120, 28), "output", VERMILION)?;
    text(area, (8, 214), "decode_merge")
}
