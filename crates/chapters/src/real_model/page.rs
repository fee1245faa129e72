//! The chapter's page: values, tables and figures.

use super::facts::{
    Facts, InFull, Link, Map, Moved, OfNames, Reason, ReasonHead, Speed, SpeedRun,
};
use crate::figures::format::{bytes, fixed, integer, percent};
use crate::figures::{Axis, BLUE, HeatMap, Line, Marks, VERMILION, line_chart};
use crate::output::Page;
use crate::trained::took;
use anyhow::{Context as _, Result};
use nalgebra::{DMatrix, DVector};
use std::collections::BTreeMap;

pub fn generate(page: &mut Page) -> Result<()> {
    let facts = Facts::open()?;
    kinds(page, &facts);
    chain(page, &facts);
    prose(page, &facts);
    it(page, &facts)?;
    resolved(page, &facts);
    blocks(page, &facts)?;
    reasons(page, &facts);
    speed(page, &Speed::open()?);
    let causal = &facts.models[0];
    page.value("parameters", integer((causal.parameters as f64 / 1e6).round() as usize));
    page.value("vocabulary", integer(causal.vocabulary));
    page.value("blocks", causal.blocks.to_string());
    page.value("heads", (causal.blocks * causal.heads).to_string());
    let cache = 2 * causal.blocks * causal.d_keys * size_of::<f32>();
    page.value("cache-bytes", bytes(cache as u128));
    page.value("took", took(&facts.run));
    for (key, model) in ["causal", "both-ways"].iter().zip(&facts.models) {
        page.value(format!("{key}-file"), &model.file);
        page.value(format!("{key}-hash"), &model.sha256[..8]);
    }
    Ok(())
}

/// All numbers of a map, with their heads, the largest first.
fn ranked(map: &Map) -> Vec<(String, f64)> {
    let all = map.iter().enumerate();
    let all = all.flat_map(|(block, row)| {
        row.iter()
            .enumerate()
            .map(move |(head, &score)| (format!("{block}.{head}"), score))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

pub fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len() as f64
}

/// How many heads do what, and which do it most.
fn kinds(page: &mut Page, facts: &Facts) {
    let kinds = [
        ("the first token", "first"),
        ("the token before", "previous"),
        ("what followed an earlier copy", "induction"),
        ("itself", "itself"),
    ];
    let rows = kinds.map(|(what, key)| {
        let heads = ranked(&facts.repeated.scores[key]);
        let many = heads.iter().filter(|(_, score)| *score > 0.5).count();
        let best = heads
            .iter()
            .take(many.min(4))
            .map(|(head, score)| format!("{head} ({})", percent(*score, 0)));
        vec![what.into(), many.to_string(), best.collect::<Vec<_>>().join(", ")]
    });
    page.table(
        "kinds",
        &["most of the weight goes to", "heads", "the strongest of them"],
        &rows,
    );
    let repeated = &facts.repeated;
    page.value("tokens", repeated.tokens.to_string());
    page.value("texts", repeated.texts.to_string());
    page.value("even", fixed(repeated.even, 1));
    page.value("first-reading", fixed(mean(&repeated.first), 1));
    page.value("second-reading", fixed(mean(&repeated.second), 1));
}

/// What a row of heads is called in a table.
fn heads(heads: &[String]) -> String {
    if heads.is_empty() { "none".into() } else { heads.join(", ") }
}

/// The loss of the second reading without some heads, and what the induction heads do then.
fn chain(page: &mut Page, facts: &Facts) {
    let induction = &facts.repeated.induction_heads;
    let links = &facts.repeated.chain;
    // Long lists are told in words alone.
    let off = |link: &Link| match link.heads.len() {
        1 if link.what.starts_with("the same") => link.what.clone(),
        1 | 4 | 5 => format!("{}: {}", link.what, heads(&link.heads)),
        _ => link.what.clone(),
    };
    let columns: Vec<_> =
        induction.iter().map(|head| format!("pattern of {head}")).collect();
    let mut header = vec!["off", "loss, second reading"];
    header.extend(columns.iter().map(String::as_str));
    // Of draws of the same kind, the one that costs most.
    let worst = |link: &&Link| {
        let alike = links.iter().filter(|other| other.what == link.what);
        alike.map(|other| other.second).fold(0.0, f64::max) == link.second
    };
    let row = |link: &Link| {
        let mut row = vec![off(link), fixed(link.second, 2)];
        row.extend(link.patterns.iter().map(|pattern| percent(*pattern, 0)));
        row
    };
    page.table(
        "chain",
        &header,
        &links.iter().filter(worst).map(row).collect::<Vec<_>>(),
    );
    let without = &facts.repeated.without;
    let replaced = &facts.repeated.replaced;
    let all = mean(&facts.repeated.second);
    let mut order: Vec<&String> = without.keys().collect();
    order.sort_by(|a, b| without[*b].total_cmp(&without[*a]));
    let rows: Vec<_> = order
        .iter()
        .take(6)
        .map(|head| {
            let score = |map: &str| percent(facts.score(map, head), 0);
            vec![
                (*head).clone(),
                fixed(without[*head] - all, 1),
                fixed(replaced[*head] - all, 1),
                score("previous"),
                score("induction"),
            ]
        })
        .collect();
    let header = [
        "head",
        "rise of the loss, output 0",
        "rise, its mean instead",
        "weight on the token before",
        "on what followed a copy",
    ];
    page.table("zero-and-mean", &header, &rows);
    let previous = ranked(&facts.repeated.scores["previous"]);
    page.value("previous", &previous[0].0);
    page.value("previous-score", percent(previous[0].1, 0));
    page.value("second-previous", &previous[1].0);
    page.value("early-previous", format!("{} and {}", previous[2].0, previous[3].0));
    page.value("induction", &induction[0]);
    let gained = mean(&facts.repeated.first) - mean(&facts.repeated.second);
    page.value("gained", fixed(gained, 1));
    let left = |link: &Link| fixed(mean(&facts.repeated.first) - link.second, 1);
    page.value("gained-without", left(&links[1]));
    page.value("gained-four", links.last().map(left).unwrap_or_default());
    page.value("chain-loss", fixed(links[1].second, 1));
    let [partly, constant] = constant_heads(facts);
    page.value("constant", constant);
    page.value("partly", partly);
}

/// Of the heads without any score, the one whose absence raises the loss most; and, of those for which its mean is as good, again that one.
pub fn constant_heads(facts: &Facts) -> [String; 2] {
    let repeated = &facts.repeated;
    let all = mean(&repeated.second);
    let no_score = |head: &String| {
        ["previous", "induction", "itself", "first"]
            .iter()
            .all(|map| facts.score(map, head) < 0.5)
    };
    let rise = |losses: &BTreeMap<String, f64>, head: &String| losses[head] - all;
    let mut heads: Vec<_> =
        repeated.without.keys().filter(|head| no_score(head)).collect();
    heads.sort_by(|a, b| repeated.without[*b].total_cmp(&repeated.without[*a]));
    let constant = heads.iter().find(|head| {
        rise(&repeated.replaced, head) < 0.1 * rise(&repeated.without, head)
    });
    [heads.first(), constant]
        .map(|head| head.map(|head| head.to_string()).unwrap_or_default())
}

/// The loss of English that is read again.
fn prose(page: &mut Page, facts: &Facts) {
    for (key, row) in ["all", "previous", "induction"].iter().zip(&facts.prose.rows) {
        page.value(format!("prose-{key}"), fixed(row.second, 2));
    }
}

fn it(page: &mut Page, facts: &Facts) -> Result<()> {
    let it = &facts.it;
    let [[tired_cat, _], [soft_cat, _]] = it.causal.head.weights[0];
    page.value("it-cat", fixed(tired_cat, 4));
    page.value("it-cat-soft", fixed(soft_cat, 4));
    let head = &it.causal.head.head;
    page.value("it-head", head);
    page.value("it-head-place", format!("block {}", head.replace('.', ", head ")));
    page.value("moved-head", &it.both_ways.moved.head);
    let moved = &it.both_ways.moved;
    let (pairs, changes) = (it.sentences / 2, moved.pairs_with_two_answers);
    let fitting = (moved.right + changes - pairs) / 2; // changes to the noun that fits
    let (right, other) = (moved.right, changes - fitting);
    page.value("moved-changes", changes.to_string());
    page.value("moved-sum", format!("{pairs} + {fitting} − {other} = {right}"));
    page.value("unmoved-head", &it.both_ways.unmoved.head);
    page.value("sentences", it.sentences.to_string());
    page.value("pairs", (it.sentences / 2).to_string());
    page.value("by-chance", it.both_ways.right_by_chance.to_string());
    let late = &it.late_word;
    page.value("late-changes", late.head.pairs_with_two_answers.to_string());
    let on_noun = |[cat, mat]: &[f64; 2]| cat + mat;
    let on_nouns: Vec<_> = late.head.weights.iter().flatten().map(on_noun).collect();
    page.value("late-nouns", percent(mean(&on_nouns), 0));
    page.value("late-nouns-bob", percent(late.on_nouns_with_name, 0));
    let [moved, unmoved, late] = &it.first_pair;
    let words = (
        "What “it” looks at in two sentences, by two heads",
        "A row for each token. Head 3.1 gives most to cat with tired, and more to mat than to cat with soft, where the opening token gets more than half. Head 5.11 gives most to cat both times.",
    );
    in_full(page, "both-ways", words, &[moved, unmoved])?;
    let words = (
        "What the last word looks at in two sentences, by one head",
        "A row for each token. From tired, most goes to cat; from soft, to mat.",
    );
    in_full(page, "late-word", words, &[late])
}

/// A row for each token of the first pair, and a column for each of its sentences, head by head.
fn in_full(
    page: &mut Page,
    name: &str,
    words: (&str, &str),
    heads: &[&InFull],
) -> Result<()> {
    let [one, other] = &heads[0].tokens;
    let differing = |(one, other): &(&String, &String)| one != other;
    let late = one.iter().zip(other).find(differing).context("two sentences")?;
    let late = [late.0, late.1].map(|late| late.trim());
    let row = |(one, other): (&String, &String)| {
        if one == other { one.trim().to_owned() } else { late.join(", ") }
    };
    // What the mask hides from all of them isn't shown.
    let seen =
        |at: &usize| heads.iter().flat_map(|of| &of.weights).any(|of| of[*at] > 0.0);
    let shown = (0..one.len()).rev().find(seen).map_or(0, |last| last + 1);
    let rows: Vec<_> = one.iter().zip(other).take(shown).map(row).collect();
    let rows: Vec<_> = rows.iter().map(String::as_str).collect();
    let column = |of: &&InFull| late.map(|late| format!("{} {late}", of.head));
    let columns: Vec<_> = heads.iter().flat_map(column).collect();
    let columns: Vec<_> = columns.iter().map(String::as_str).collect();
    let weights: Vec<_> = heads
        .iter()
        .flat_map(|of| &of.weights)
        .map(|of| DVector::from_column_slice(&of[..shown]))
        .collect();
    let map = HeatMap {
        matrix: &DMatrix::from_columns(&weights),
        rows: &rows,
        columns: &columns,
        decimals: Some(2),
        full: 0.75,
        low: true,
    };
    page.heat_map(name, words, &map)
}

fn resolved(page: &mut Page, facts: &Facts) {
    let resolved = &facts.resolved;
    let [tired, soft] = resolved.it.first_pair.map(f64::exp);
    page.value("odds-tired", fixed(tired, 0));
    page.value("odds-soft", fixed(soft, 0));
    page.value("answer-right", resolved.it.right.to_string());
    page.value("answer-moves", resolved.it.move_right.to_string());
    page.value("bob-moves", resolved.with_name.move_right.to_string());
    page.value("odds-half", fixed((tired * soft).sqrt(), 0));
    let late = &facts.it.late_word.head;
    let changes =
        format!("in the {} pairs where its map changes", late.pairs_with_two_answers);
    let name = |of: &Moved| match of.head.as_str() {
        "all" => "all heads".to_owned(),
        head => format!("head {head}"),
    };
    page.table_of(
        "swapped",
        &resolved.moved,
        &[
            ("swapped at the last word", &name),
            ("all pairs", &|of| percent(of.all_pairs, 0)),
            (&changes, &|of| percent(of.where_map_changes, 0)),
        ],
    );
}

fn blocks(page: &mut Page, facts: &Facts) -> Result<()> {
    let blocks = &facts.blocks;
    page.value("paragraphs", blocks.paragraphs.to_string());
    let line = |name: &str, colour, numbers: &[f64]| {
        Line::new(
            name,
            colour,
            numbers.iter().enumerate().map(|(block, number)| (block as f64, *number)),
        )
    };
    let last = blocks.near.len() as f64 - 1.0;
    let lines = [
        line("on the last three tokens, the first left out", BLUE, &blocks.near),
        line("on the first token", VERMILION, &blocks.first).dashed(),
    ];
    let (x, y) =
        (Axis::linear("block", 0.0..last), Axis::linear("share of the weight", 0.0..1.0));
    let words = (
        "The share of the weight that stays near, and the share on the first token, by block",
        "Two curves over thirty blocks. The near share has peaks in blocks 10 to 16 and at 25 and 27, and is low in blocks 3 to 9. The share on the first token is low in blocks 0, 1, 10 and 11, and above three tenths from block 12 on.",
    );
    page.figure("near", words, (640, 320), |area| {
        line_chart(area, &x, &y, &lines, Marks::default())
    })?;
    let n = facts.names.texts;
    // As many as the best of all heads has by chance.
    let shown = facts.names.heads.iter();
    let shown = shown.take_while(|row| row.more >= facts.names.more_by_chance).count();
    page.value("names-chance", facts.names.more_by_chance.to_string());
    page.table_of(
        "names",
        &facts.names.heads[..shown],
        &[
            ("head", &|row: &OfNames| row.head.clone()),
            ("weight on the first word of a name", &|row| percent(row.names, 0)),
            ("on another word there", &|row| percent(row.others, 0)),
            ("more on the name in", &|row| format!("{} of {n}", row.more)),
        ],
    );
    Ok(())
}

fn reasons(page: &mut Page, facts: &Facts) {
    let [capital, travel, ball] = &facts.reasons;
    page.value("capital-p", percent(capital.p[0], 0));
    let printed = include_str!("../../../model/opened/france.txt");
    let paris = printed.lines().find_map(|line| line.strip_suffix("ĠParis"));
    page.value("paris", paris.unwrap_or_default().trim().replace(' ', "\u{202f}"));
    page.value("capital-head", &capital.heads[0].head);
    page.value("ball-head", &ball.heads[0].head);
    for (key, reason) in [("capital", capital), ("travel", travel), ("ball", ball)] {
        page.value(format!("{key}-example"), format!("{} …", reason.example));
    }
    let row = |(text, reason): (&str, &Reason)| {
        let of = &reason.heads[0];
        let ([p, other], [swapped, other_swapped]) = (reason.p, of.swapped);
        let numbers = [of.weight, p, of.off, swapped].map(|number| percent(number, 0));
        let other =
            [other, other_swapped].map(|p| percent(p, if p < 0.01 { 2 } else { 0 }));
        let first = vec![of.head.clone(), text.to_owned()];
        [first, numbers.to_vec(), vec![other.join(" → ")]].concat()
    };
    let header = [
        "head",
        "text",
        "weight on the word",
        "p",
        "off: p",
        "swapped: p",
        "p of the other answer, before → swapped",
    ];
    let rows = [("The capital of …", capital), ("If you travel to …", travel)];
    page.table("two-tests", &header, &rows.map(row));
    page.table("against", &header, &[row(("Yesterday … met …", ball))]);
    let row = |name: String, of: &ReasonHead| {
        let numbers = [of.weight, of.off, of.swapped[0], of.swapped[1]];
        [vec![name], numbers.map(|number| percent(number, 0)).to_vec()].concat()
    };
    let [p, other] = capital.p.map(|p| percent(p, 0));
    let mut rows = vec![vec!["none".into(), "–".into(), p.clone(), p, other]];
    rows.extend(capital.heads.iter().map(|of| row(of.head.clone(), of)));
    let worst = capital.random.iter().min_by(|a, b| a.off.total_cmp(&b.off));
    rows.extend(worst.map(|of| row(format!("{}, at random", of.head), of)));
    let header = [
        "head",
        "weight on the country",
        "off: p",
        "swapped: p",
        "swapped: p of the other capital",
    ];
    page.table("reason-capital", &header, &rows);
    page.value("reason-draws", capital.random.len().to_string());
    page.value("capitals", capital.cases.to_string());
    let needed = &capital.heads[2];
    page.value("capital-needed", &needed.head);
    page.value("capital-needed-most", percent(needed.most.1, 0));
}

fn speed(page: &mut Page, speed: &Speed) {
    let row =
        |what: &str, run: &SpeedRun, compared: &super::facts::Compared, unit: &str| {
            vec![
                what.to_owned(),
                run.threads.to_string(),
                format!("{} {unit}", fixed(compared.ours, 1)),
                format!("{} {unit}", fixed(compared.theirs, 1)),
                fixed(compared.ratio, 2),
            ]
        };
    let rows: Vec<_> = speed
        .runs
        .iter()
        .flat_map(|run| {
            [
                row("open", run, &run.load, "s"),
                row("read 512 tokens", run, &run.prefill, "tokens/s"),
                row("write 64 tokens", run, &run.write, "tokens/s"),
            ]
        })
        .collect();
    page.table("speed", &["", "threads", "ours", "transformers", "ratio"], &rows);
    let peak = |of: fn(&super::facts::Peak) -> u64| {
        let most = speed.runs.iter().map(|run| of(&run.peak_bytes)).max().unwrap_or(0);
        bytes(u128::from(most))
    };
    page.value("peak-ours", peak(|peak| peak.ours));
    page.value("peak-theirs", peak(|peak| peak.theirs));
    page.value(
        "speed-run",
        format!(
            "Medians of {} rounds, and of their ratios, on {}, with PyTorch {} and transformers {}, on {}.",
            speed.rounds, speed.processor, speed.torch, speed.transformers, speed.date
        ),
    );
}
