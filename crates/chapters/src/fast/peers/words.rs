//! Sentences that the records choose: on another machine, somebody else may be faster.

use super::facts::{Cell, Ratio, Turned};
use crate::records::{Compared, least_and_most};
use figures::format::{fixed, integer, percent, significant};

pub fn describe(cell: Cell) -> String {
    let Cell { threads, d, mask, pass, n } = cell;
    let threads = match threads {
        1 => "one thread".to_owned(),
        2 => "two threads".to_owned(),
        more => format!("{more} threads"),
    };
    let (pass, n) = (pass.replace('+', " and "), integer(n as usize));
    format!("{pass}, {mask}, d = {d}, n = {n}, {threads}")
}

/// The cells that are turned round, and how many shorter ones are.
pub fn turned_in_words(turned: &[Turned], short: usize) -> String {
    let count = |count: usize| match count {
        0 => "none".to_owned(),
        1 => "one".to_owned(),
        more => integer(more),
    };
    let had = format!(
        "Had the two median times been divided instead, {} of these cells would have come out the other way, and {} of the shorter \
         ones.",
        count(turned.len()),
        count(short)
    );
    let distance = |turned: &Turned| turned.quotient.ln().abs();
    let furthest = turned.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some(Turned { cell, quotient, spread }) = furthest else { return had };
    let which = if turned.len() == 1 { "That one has" } else { "The furthest has" };
    format!(
        "{had} {which} {} ({}): this crate's own times spread by {} there, so its median is probably of other moments than \
         PyTorch's. That is what taking turns is for.",
        fixed(*quotient, 2),
        describe(*cell),
        percent(*spread, 0)
    )
}

/// What the largest ratio has to do with causal masks.
pub fn causal_in_words(largest: Cell) -> &'static str {
    match (largest.mask, largest.n) {
        ("causal", 512) => {
            "The largest ratios are those of causal masks at 512 tokens, and they have a cause."
        }
        ("causal", _) => {
            "The largest ratio is that of a causal mask, and part of it has a cause."
        }
        _ => "Of the ratios of causal masks, a part has a cause.",
    }
}

/// What the comparison shows.
pub fn worth_in_words(mean: f64) -> &'static str {
    Compared::of(mean, 1.0).choose(
        "It shows how much is still to be gained on the machine of this record.",
        "It shows that a few hundred lines can keep up.",
        "It shows that what is left over is worth the trouble.",
    )
}

/// The lengths at which the ratio under a causal mask is largest, predicted and measured: forward, and with the backward pass.
pub fn peaks_in_words(peaks: [[u64; 2]; 2]) -> String {
    let [forward, both] = peaks.map(|peaks| {
        let [predicted, measured] = peaks.map(|n| integer(n as usize));
        format!(
            "predicted to be largest at {predicted} tokens, and measured to be so at {measured}"
        )
    });
    format!("Forward, the ratio is {forward}; with the backward pass it is {both}.")
}

/// By which share the forecast is off in each cell.
pub fn off_in_words(off: &[f64]) -> String {
    let (high, low): (Vec<f64>, Vec<f64>) = off.iter().partition(|off| **off >= 0.0);
    let part = |word: &str, off: Vec<f64>| {
        let most = off.iter().map(|off| off.abs()).reduce(f64::max)?;
        let most = percent(most, 0);
        Some(format!("too {word} in {}, by up to {most}", off.len()))
    };
    let parts: Vec<_> =
        [part("high", high), part("low", low)].into_iter().flatten().collect();
    format!(
        "Of these {} forecasts none is exact: they are {}. That is not explained.",
        off.len(),
        parts.join(", and ")
    )
}

/// How many times as long as this crate candle's fused kernel took.
pub fn candle_in_words(ratios: &[f64]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    let (least, most) = least_and_most(ratios.iter().copied());
    let (least, most) = (significant(least, 2), significant(most, 2));
    format!("Candle's fused kernel takes {least} to {most} times as long as this crate.")
}

/// What is to be seen in a figure of these points.
pub fn chart_in_words(points: &[Ratio]) -> String {
    let above = match points.iter().filter(|point| point.ratio > 1.0).count() {
        all if all == points.len() => "All points lie".to_owned(),
        some => format!("{some} of {} points lie", points.len()),
    };
    let peak = |d: u64| {
        let line = points.iter().filter(|r| (r.cell.d, r.cell.mask) == (d, "causal"));
        line.max_by(|a, b| a.ratio.total_cmp(&b.ratio)).map_or(0, |r| r.cell.n)
    };
    let peaks = match (peak(64), peak(128)) {
        (one, other) if one == other => format!("{one} tokens"),
        (one, other) => format!("{one} tokens for d = 64 and {other} for d = 128"),
    };
    format!(
        "{above} above the dashed line at 1, where this crate is the faster one. The lines of causal masks are highest at {peaks}."
    )
}

/// A point that is far from 1, if its spread is as wide as that.
pub fn wild_in_words(Ratio { cell, ratio, spread }: Ratio) -> String {
    if spread < 0.5 * (ratio - 1.0).abs() {
        return String::new();
    }
    let (ratio, cell, spread) = (fixed(ratio, 2), describe(cell), fixed(spread, 2));
    format!(
        "The highest point of the second figure at 256 tokens, {ratio} ({cell}), says little: the spread of its rounds is {spread}."
    )
}

/// How this crate's naive layer does beside NumPy's.
pub fn layer_in_words(mean: f64) -> &'static str {
    Compared::of(mean, 1.0).choose(
        "In one comparison this crate loses.",
        "In one comparison neither side wins.",
        "One more comparison was made.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: Cell =
        Cell { threads: 1, d: 64, mask: "causal", pass: "forward", n: 512 };

    #[test]
    fn turned_cells_are_counted() {
        let turned = |quotient| Turned { cell: CELL, quotient, spread: 0.2 };
        let one = turned_in_words(&[turned(0.95)], 1);
        assert!(
            one.contains("one of these cells") && one.contains("one of the shorter"),
            "{one}"
        );
        assert!(one.contains("That one has 0.95 (forward, causal"), "{one}");
        let two = turned_in_words(&[turned(0.95), turned(1.5)], 0);
        assert!(
            two.contains("2 of these cells") && two.contains("The furthest has 1.50"),
            "{two}"
        );
        assert!(turned_in_words(&[], 0).ends_with("none of the shorter ones."));
    }

    #[test]
    fn peers_are_told_as_they_came_out() {
        assert!(causal_in_words(CELL).contains("at 512 tokens"));
        assert!(
            causal_in_words(Cell { n: 1024, ..CELL }).contains("that of a causal mask")
        );
        assert!(causal_in_words(Cell { mask: "full", ..CELL }).contains("Of the ratios"));
        assert!(worth_in_words(1.2).contains("worth the trouble"));
        assert!(worth_in_words(1.0).contains("keep up"));
        assert!(worth_in_words(0.8).contains("still to be gained"));
        assert!(
            peaks_in_words([[512, 1024], [512, 256]])
                .contains("at 512 tokens, and measured to be so at 1\u{202f}024; with")
        );
        assert!(off_in_words(&[0.1, 0.2, -0.3]).contains(
            "too high in 2, by up to 20\u{202f}%, and too low in 1, by up to 30"
        ));
        assert!(!off_in_words(&[0.1, 0.2]).contains("low"));
        assert_eq!(candle_in_words(&[]), "");
        assert!(candle_in_words(&[0.5, 7.0]).contains("0.50 to 7.0 times"));
    }

    #[test]
    fn figures_are_told_as_they_are_drawn() {
        let point = |d, n, ratio| {
            let cell = Cell { d, n, ..CELL };
            Ratio { cell, ratio, spread: 0.1 }
        };
        let told = chart_in_words(&[point(64, 512, 1.2), point(128, 512, 1.1)]);
        assert!(told.starts_with("All points"));
        assert!(told.ends_with("highest at 512 tokens."));
        let told = chart_in_words(&[point(64, 512, 0.9), point(128, 256, 1.1)]);
        assert!(told.starts_with("1 of 2 points"));
        assert!(told.ends_with("512 tokens for d = 64 and 256 for d = 128."));
        let wild = |spread| wild_in_words(Ratio { spread, ..point(64, 512, 1.4) });
        assert_eq!(wild(0.1), "");
        assert!(wild(0.4).contains("says little"));
    }
}
