//! The chapter's page: values, tables and a figure.

use super::facts::{SINKS, Steps, beyond_training, scores};
use crate::figures::format::{bytes, duration, fixed, integer, scientific, significant};
use crate::figures::{
    BLUE, Color, KEY, MUTED, TEXT, VALUE, filled, framed, label, line, text, text_box,
};
use crate::output::Page;
use crate::records::{least_and_most, provenance};
use anyhow::Result;

pub fn generate(page: &mut Page) -> Result<()> {
    work(page);
    rows(page)?;
    pages(page)?;
    windows(page)?;
    steps(page)
}

/// What the model of the book makes of text beyond the length of its training.
fn windows(page: &mut Page) -> Result<()> {
    let (length, [[_, alone], [_, with_sinks]]) = beyond_training()?;
    page.value("length", integer(length));
    page.value("sinks", integer(SINKS));
    page.value("beyond-alone", fixed(alone, 2));
    page.value("beyond-sinks", fixed(with_sinks, 2));
    Ok(())
}

/// How much a cache saves.
fn work(page: &mut Page) {
    let rows = [64_u128, 1024, 16_384].map(|n| {
        let (again, cached) = scores(n);
        let times = again as f64 / cached as f64;
        vec![
            integer(n as usize),
            format!("${}$", scientific(again as f64, 1)),
            format!("${}$", scientific(cached as f64, 1)),
            integer(times.round() as usize),
        ]
    });
    page.table("work", &["tokens", "all again", "with a cache", "times as many"], &rows);
}

/// What is new in each of three steps: one row of scores.
fn rows(page: &mut Page) -> Result<()> {
    const CELL: i32 = 18;
    let words = (
        "The scores of a text of four, five and six tokens",
        "Three triangles, each one row taller than the one before. In each, only the last row is in colour; the rows above are as they were.",
    );
    page.figure("rows", words, (640, 160), |area| {
        for (step, tokens) in (4..=6).enumerate() {
            let left = 60 + 190 * step as i32;
            for (i, j) in (0..tokens).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let (x, y) = (left + j * CELL, 8 + i * CELL);
                let corners = [(x, y), (x + CELL - 2, y + CELL - 2)];
                let is_new = i == tokens - 1;
                filled(
                    area,
                    corners,
                    if is_new { BLUE.mix(1.0) } else { MUTED.mix(0.3) },
                )?;
            }
            let name = format!("{tokens} tokens");
            label(area, (left + 3 * CELL, 8 + 6 * CELL + 20), &name, TEXT)?;
        }
        Ok(())
    })
}

/// Two texts that begin with the same prompt, in the pages of one memory.
fn pages(page: &mut Page) -> Result<()> {
    const TOKENS: i32 = 4; // of a page
    const CELL: i32 = 22;
    const LISTS: [(&str, i32, &[i32]); 2] =
        [("first text", 8, &[1, 2, 4]), ("second text", 200, &[1, 2, 3, 5])];
    const FILLED: [i32; 6] = [4, 4, 4, 2, 1, 0];
    let words = (
        "Two caches in the pages of one memory",
        "A memory of six pages with room for four tokens each. The first text's list names pages 1, 2 and 4, the second text's pages 1, 2, 3 \
         and 5. Pages 1 to 3 are full, page 4 holds two tokens, page 5 one, and page 6 is free.",
    );
    page.figure("pages", words, (640, 242), |area| {
        let left = |number: i32| 8 + (TOKENS * CELL + 18) * (number - 1);
        for (name, y, list) in LISTS {
            text(area, (8, y + 17), name)?;
            for (place, number) in (0..).zip(list) {
                let x = 130 + 44 * place;
                text_box(area, (x, y), (38, 34), &number.to_string(), TEXT)?;
                let page_edge = if y < 100 { 92 } else { 162 };
                let list_edge = if y < 100 { y + 34 } else { y };
                let to = (left(*number) + TOKENS * CELL / 2, page_edge);
                line(area, &[(x + 19, list_edge), to], MUTED)?;
            }
        }
        label(area, (420, 25), "keys", KEY)?;
        label(area, (490, 25), "values", VALUE)?;
        for (number, filled_rows) in (1..).zip(FILLED) {
            for token in 0..TOKENS {
                let x = left(number) + CELL * token;
                for (y, colour) in [(94, KEY), (116, VALUE)] {
                    let corners = [(x, y), (x + CELL - 3, y + CELL - 3)];
                    if token < filled_rows {
                        filled(area, corners, colour.mix(0.6))?;
                    }
                    framed(area, corners, colour.mix(0.6))?;
                }
            }
            let middle = (left(number) + TOKENS * CELL / 2, 152);
            label(area, middle, &number.to_string(), MUTED)?;
        }
        Ok(())
    })
}

/// What a step waits for.
pub fn steps(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["decoding"])?;
    let Steps { steps, n, heads, width, bandwidth } = Steps::of(&record)?;
    let rows: Vec<_> = steps
        .iter()
        .map(|step| {
            vec![
                step.kv_heads.to_string(),
                significant(step.flops / step.bytes, 2),
                bytes(step.bytes as u128),
                duration(step.reading),
                duration(step.seconds),
                integer((1.0 / step.seconds).round() as usize),
            ]
        })
        .collect();
    let header = [
        "key-value heads",
        "FLOP per byte",
        "read per step",
        "predicted",
        "measured",
        "steps per second",
    ];
    page.table("steps", &header, &rows);
    let (many, few) = (&steps[0], &steps[steps.len() - 1]);
    page.value("n", integer(n as usize));
    page.value("heads", integer(heads as usize));
    page.value("width", integer(width as usize));
    page.value("bandwidth", fixed(bandwidth / 1e9, 1));
    page.value("over-many", fixed(many.seconds / many.reading, 1));
    let rests = steps.iter().map(|step| 1e3 * (step.seconds - step.reading));
    let (least, most) = least_and_most(rests);
    page.value("rest-least", fixed(least, 1));
    page.value("rest-most", fixed(most, 1));
    page.value("gain", fixed(many.seconds / few.seconds, 1));
    page.value("fewer-bytes", integer((many.bytes / few.bytes).round() as usize));
    page.value("where", provenance(&record));
    Ok(())
}
