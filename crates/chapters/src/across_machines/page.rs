//! The chapter's page: values and tables.

use super::facts::{
    self, BALANCED, Balance, Case, GPUS, GPUS_OF_MACHINE, HEADS, LAYERS, Sent, TOKENS,
    WIDTH, bytes_of_token, fewest_tokens, sent_in_decoding, tokens_of_a_thousand,
};
use crate::figures::format::{bytes, fixed, integer, percent, significant, table};
use crate::output::Page;
use across::Layout;
use anyhow::Result;
use laboratory::hardware::{H100, LINKS, Link};

/// Tokens of a long text.
const MILLION: usize = 1 << 20;

pub fn generate(page: &mut Page) -> Result<()> {
    page.value("token-kib", integer(bytes_of_token() >> 10));
    page.value("million-gib", integer((bytes_of_token() * MILLION) >> 30));
    page.value("gpu-gb", integer(H100.memory));
    page.value("tokens", integer(TOKENS));
    page.value("eight-tokens", integer(MILLION / 8));
    page.value("thousand-tokens", integer(MILLION / GPUS));
    page.value("heads", integer(HEADS.0));
    page.value("kv-heads", integer(HEADS.1));
    page.value("width", integer(WIDTH));
    balance(page)?;
    sent(page);
    hidden(page);
    model(page)
}

fn balance(page: &mut Page) -> Result<()> {
    page.value("balance-n", integer(BALANCED));
    let name = |row: &Balance| match row.layout {
        Layout::Contiguous => "contiguous",
        Layout::Zigzag => "zigzag",
        _ => "striped",
    };
    page.table_of(
        "balance",
        &facts::balances()?,
        &[
            ("rows", &|row| name(row).to_owned()),
            ("4 ranks", &|row| percent(row.busy[0], 0)),
            ("8 ranks", &|row| percent(row.busy[1], 0)),
        ],
    );
    Ok(())
}

fn mib(count: u64) -> String {
    let mib = count as f64 / f64::from(1 << 20);
    fixed(mib, usize::from(mib < 10.0))
}

fn sent(page: &mut Page) {
    let heads = |row: &Sent| match row.heads {
        Some(sent) if row.ranks > HEADS.1 => {
            format!("{}, with copies of keys", mib(sent))
        }
        Some(sent) => mib(sent),
        None => "too few heads".to_owned(),
    };
    page.table_of(
        "sent",
        &facts::sent(),
        &[
            ("ranks", &|row| integer(row.ranks)),
            ("ring, MiB", &|row| mib(row.ring)),
            ("heads, MiB", &|row| heads(row)),
        ],
    );
    page.value("gather-million", bytes((MILLION * bytes_of_token() / LAYERS) as u128));
    page.value("gather", bytes((TOKENS * bytes_of_token() / LAYERS) as u128));
    let (sent, stay) = sent_in_decoding(MILLION, 8);
    page.value("decode-sent", bytes(u128::from(sent)));
    page.value("decode-stays", bytes(stay as u128));
}

fn hidden(page: &mut Page) {
    let tokens = |link: &Link| fewest_tokens(link).map(|m| integer(m.ceil() as usize));
    page.table_of(
        "hidden",
        &LINKS,
        &[
            ("link", &|link| link.name.to_owned()),
            ("GB/s each way", &|link| significant(link.bandwidth / 1e9, 3)),
            ("a head of keys for each head", &|link| tokens(link)[0].clone()),
            ("one head for four", &|link| tokens(link)[1].clone()),
        ],
    );
    page.value("gpu-tflops", fixed(H100.bf16 / 1e12, 1));
    page.value("gpus", integer(GPUS));
    page.value("machines", integer(GPUS / GPUS_OF_MACHINE));
    let [ring, hybrid] = tokens_of_a_thousand();
    let row = |(what, ranks, all): (&str, usize, f64)| {
        let fewest = all / ranks as f64;
        let waits = fewest / (MILLION / ranks) as f64;
        let rows = [MILLION / ranks, fewest.ceil() as usize].map(integer);
        [
            vec![format!("{what} {}", integer(ranks))],
            rows.into(),
            vec![format!("{}×", significant(waits, 2))],
        ]
        .concat()
    };
    let machines = GPUS / GPUS_OF_MACHINE;
    let rows =
        [("a ring of GPUs,", GPUS, ring), ("a ring of machines,", machines, hybrid)];
    let header = ["", "rows of each", "fewest rows", "exchange / computing"];
    page.table("together", &header, &rows.map(row));
    page.value("ring-tokens", fixed(ring / 1e6, 0));
    page.value("hybrid-tokens", fixed(hybrid / 1e6, 1));
}

fn model(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["across"])?;
    let model = facts::model(&record)?;
    let [first, second] = model.fitted.map(|n| integer(n as usize));
    page.value("model-fitted", format!("{first} and {second}"));
    page.value("model-machine", record.machine.processor());
    let (heads, width) = (model.whole.heads.0, model.whole.widths.0);
    page.value("model-heads", format!("{heads} heads of {width}"));
    page.value("model-cores", integer(model.cores));
    let overlap = facts::overlap(&record)?;
    let ms = |seconds: f64| format!("{} ms", significant(seconds * 1e3, 3));
    page.value("overlap-bytes", bytes(u128::from(overlap.bytes)));
    page.value("overlap-pause", ms(overlap.pause));
    page.value("overlap-alone", ms(overlap.alone));
    page.value("overlap-both", format!("{} ms", fixed(overlap.both * 1e3, 1)));
    let hidden = (overlap.alone + overlap.pause - overlap.both) / overlap.alone;
    page.value("overlap-hidden", percent(hidden.clamp(0.0, 1.0), 0));
    let Case { measured, predicted, .. } = model.contiguous;
    page.value("contiguous-measured", ms(measured));
    page.value("contiguous-predicted", ms(predicted));
    let (crowded, fitting): (Vec<_>, Vec<_>) =
        model.cases.into_iter().partition(|case| case.ranks > model.cores);
    page.file("model.md", cases(&fitting));
    page.value("model-says", format!("{} {}", says(&fitting), threads(&fitting)));
    page.file("model-crowded.md", in_a_fold(&crowded));
    Ok(())
}

/// Cases with more ranks than cores, if there are any.
fn in_a_fold(crowded: &[Case]) -> String {
    if crowded.is_empty() {
        return String::new();
    }
    let turns = "The model lets all ranks share the cores evenly.";
    let (table, says) = (cases(crowded), off(crowded));
    format!(
        "<details><summary>With more ranks than cores</summary>\n\n{table}\n{turns} {says}\n\n</details>\n"
    )
}

fn cases(cases: &[Case]) -> String {
    let ms = |seconds: f64| significant(seconds * 1e3, 3);
    let row = |case: &Case| {
        let times = [case.predicted, case.measured, case.threads].map(ms);
        [[integer(case.ranks), integer(case.n as usize)].as_slice(), &times].concat()
    };
    let header = ["ranks", "tokens", "the model", "measured", "threads"];
    table(&header, &cases.iter().map(row).collect::<Vec<_>>())
}

/// Who is faster: one process with threads, or the ring.
fn threads(cases: &[Case]) -> String {
    let faster = cases.iter().filter(|case| case.threads < case.measured).count();
    let all = cases.len();
    let of_them = if faster == all { "all".to_owned() } else { format!("{faster}") };
    format!(
        "One process with threads merges nothing and sends nothing. It is faster in {of_them} of these cases."
    )
}

/// How far the model is off.
fn off(cases: &[Case]) -> String {
    let off = |case: &Case| (case.predicted / case.measured - 1.0).abs();
    let worst = cases.iter().map(off).fold(0.0, f64::max);
    let slower = cases.iter().all(|case| case.measured > case.predicted);
    let all = if slower { ", and all runs took longer" } else { "" };
    format!("The model is off by {} at most{all}.", percent(worst, 0))
}

/// The same, and whether the model hides all messages.
fn says(cases: &[Case]) -> String {
    let hidden = match cases.iter().all(|case| case.is_hidden) {
        true => "By the model, computing takes longer than sending in all of them.",
        false => "By the model, sending takes longer than computing in some of them.",
    };
    let time = |ranks: usize| {
        let longest =
            cases.iter().filter(|case| case.ranks == ranks).max_by_key(|case| case.n);
        longest.map(|case| case.measured)
    };
    let faster = match (time(1), time(2)) {
        (Some(one), Some(two)) => format!(
            " On the longest text, two ranks are {} times as fast as one.",
            significant(one / two, 2)
        ),
        _ => String::new(),
    };
    format!("Yes, nearly. {}{faster} {hidden}", off(cases))
}
