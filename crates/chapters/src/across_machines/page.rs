//! The chapter's page: values and tables.

use super::facts::{
    self, Balance, Case, HEADS, Results, Sent, TOKENS, bytes_of_token, fewest_tokens,
    sent_in_decoding,
};
use crate::figures::format::{bytes, fixed, integer, percent, significant};
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
    results(page)?;
    balance(page)?;
    sent(page);
    hidden(page);
    model(page)
}

fn results(page: &mut Page) -> Result<()> {
    let word = |same: bool| if same { "the same" } else { "others" }.to_owned();
    // Rounding differs in its last digits from one system to another; its size doesn't.
    let off =
        |row: &Results| if row.off < 1e-14 { "less than 10⁻¹⁴" } else { "more" };
    page.table_of(
        "results",
        &facts::results()?,
        &[
            ("ranks", &|row| integer(row.ranks)),
            ("ring, off by", &|row| off(row).to_owned()),
            ("ring, bits of one rank", &|row| word(row.same_bits[0])),
            ("by keys, bits of one rank", &|row| word(row.same_bits[1])),
        ],
    );
    Ok(())
}

fn balance(page: &mut Page) -> Result<()> {
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
    let heads = |row: &Sent| {
        let none = || format!("not with {} heads of keys", HEADS.1);
        row.heads.map_or_else(none, mib)
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
    let (sent, stay) = sent_in_decoding(8);
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
            ("shared by four", &|link| tokens(link)[1].clone()),
        ],
    );
    let [_, shared] = fewest_tokens(&LINKS[1]);
    page.value("thousand-tokens", fixed(1024.0 * shared / 1e6, 0));
}

fn model(page: &mut Page) -> Result<()> {
    let [record] = page.records.of_one_machine(["across"])?;
    let model = facts::model(&record)?;
    let [first, second] = model.fitted.map(|n| integer(n as usize));
    page.value("model-fitted", format!("{first} and {second}"));
    page.value("model-machine", record.machine.processor());
    let ms = |seconds: f64| significant(seconds * 1e3, 3);
    page.table_of(
        "model",
        &model.cases,
        &[
            ("ranks", &|case| integer(case.ranks)),
            ("tokens", &|case| integer(case.n as usize)),
            ("the model", &|case| ms(case.predicted)),
            ("measured", &|case| ms(case.measured)),
            ("one process", &|case| ms(case.threads)),
        ],
    );
    page.value("model-says", says(&model.cases, model.cores));
    Ok(())
}

/// How far the model is off, with as many ranks as there are cores and with more.
fn says(cases: &[Case], cores: usize) -> String {
    let off = |case: &&Case| (case.predicted / case.measured - 1.0).abs();
    let worst = |more: bool| {
        let of = cases.iter().filter(|case| (case.ranks > cores) == more);
        of.map(|case| off(&case)).reduce(f64::max)
    };
    let within = worst(false).map_or_else(String::new, |off| {
        format!(
            "With no more ranks than cores, it is off by {} at most.",
            percent(off, 0)
        )
    });
    let beyond = worst(true).map_or_else(String::new, |off| {
        let off = percent(off, 0);
        format!(" With more ranks than cores, it is off by up to {off}: it only lets them take turns.")
    });
    format!("{within}{beyond}")
}
