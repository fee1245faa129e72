//! The chapter's page: values, tables and figures.

use super::facts;
use crate::figures::format::{fixed, percent, tuple};
use crate::figures::{
    Area, BLUE, Color, HeatMap, MUTED, ROLES, TEXT, VERMILION, arrow, framed, label,
    text_box,
};
use crate::output::Page;
use crate::sentences::{CLERK, LEFT};
use anyhow::Result;
use attention::example;
use nalgebra::RowDVector;

pub fn generate(page: &mut Page) -> Result<()> {
    page.figure(
        "diagram",
        (
            "From the input through three heads to the output",
            "The input X is projected to Q, K and V, each cut into three slices of columns. One slice of each goes into each \
             of three attentions. Their outputs are joined side by side and projected by W O to the output Y.",
        ),
        (520, 330),
        diagram,
    )?;
    two_heads(page)?;
    across_sentences(page)
}

/// Cut into slices, attend, join, project.
fn diagram(area: &Area) -> Result<()> {
    let heads = [("₁", BLUE), ("₂", VERMILION), ("₃", TEXT)];
    let column = |i: usize| 24 + 172 * i as i32;
    let slice = |i: usize| 43 * i as i32;
    text_box(area, (210, 6), (100, 34), "X", MUTED)?;
    for (m, (name, role)) in ["Q", "K", "V"].into_iter().zip(ROLES).enumerate() {
        arrow(area, &[(230 + 30 * m as i32, 40), (column(m) + 64, 72)], role)?;
        label(area, (column(m) + [28, 90, 104][m], 58), &format!("W_{name}"), TEXT)?;
        let frame = [(column(m) - 5, 74), (column(m) + 131, 125)];
        framed(area, frame, role.stroke_width(2))?;
        for (h, (index, colour)) in heads.into_iter().enumerate() {
            let corner = (column(m) + slice(h), 80);
            text_box(area, corner, (40, 40), &format!("{name}{index}"), colour)?;
        }
    }
    for (h, (index, colour)) in heads.into_iter().enumerate() {
        let left = column(h);
        for m in 0..3 {
            let from = (column(m) + slice(h) + 20, 126);
            arrow(area, &[from, (left + 44 + 20 * m as i32, 168)], colour)?;
        }
        text_box(area, (left, 170), (128, 36), "attention", colour)?;
        let output = 195 + slice(h);
        arrow(area, &[(left + 64, 207), (output + 20, 244)], colour)?;
        text_box(area, (output, 246), (40, 34), &format!("O{index}"), colour)?;
    }
    arrow(area, &[(326, 263), (400, 263)], MUTED)?;
    label(area, (364, 248), "W_O", TEXT)?;
    text_box(area, (402, 246), (80, 34), "Y", MUTED)?;
    label(area, (260, 306), "joined: O₁ O₂ O₃", MUTED)
}

/// Two questions in one head, each in a head of its own, and what comes back.
fn two_heads(page: &mut Page) -> Result<()> {
    let tokens = example::river().tokens;
    let one = facts::one_head()?;
    let [first, second] = facts::two_heads()?;
    page.value("q-left", tuple(facts::two_questions()[0].row(LEFT), 0));
    for (name, weights, title, says) in [
        (
            "one-head",
            &one,
            "One head",
            "The row of “left” is split among river, bank and boat, with most on river.",
        ),
        ("head-1", &first, "The first head", "The row of “left” has most on boat."),
        ("head-2", &second, "The second head", "The row of “left” has most on bank."),
    ] {
        let title = format!("{title}: weights of “the boat left the river bank”");
        page.heat_map(name, (&title, says), &HeatMap::of_tokens(weights, &tokens, 0.75))?;
    }
    let row = |(token, key): (&&str, RowDVector<f64>)| {
        vec![(*token).to_owned(), fixed(key[0], 2), fixed(key[1], 2)]
    };
    let [_, k] = facts::two_questions();
    let keys = k.row_iter().map(|key| key.into_owned());
    let rows: Vec<_> = tokens.iter().zip(keys).map(row).collect();
    page.table("keys", &["key", "who acts?", "where?"], &rows);

    let names =
        ["one head for both", "**two heads, side by side**", "the mean of the two heads"];
    let rows: Vec<_> = names
        .into_iter()
        .zip(facts::answers_to_left()?)
        .map(|(name, answers)| {
            [vec![name.to_owned()], answers.map(|x| fixed(x, 2)).to_vec()].concat()
        })
        .collect();
    page.table("answers", &["“left” gets back", "who acts?", "where?"], &rows);
    Ok(())
}

/// Words of one sentence ask those of the other.
fn across_sentences(page: &mut Page) -> Result<()> {
    let weights = facts::across_sentences()?;
    let (river, city) = (example::river().tokens, example::city().tokens);
    let map = HeatMap { rows: &river[3..], ..HeatMap::of_tokens(&weights, &city, 0.75) };
    page.value("river-clerk", percent(weights[(1, CLERK)], 0));
    page.heat_map(
        "cross",
        (
            "Weights of three words of one sentence over the six of the other",
            "Three rows, “the”, “river” and “bank”, and six columns. River and bank give most to clerk, then to bank.",
        ),
        &map,
    )
}
