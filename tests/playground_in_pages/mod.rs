//! The figures that move, driven as a reader does: what they show is what the crate computes, by key, by pointer and by finger.

use crate::support::browser::{Key, Tab};
use crate::{LAPTOP, PHONE, Reader, book};
use ::playground as playground_native;
use attention::{Mask, example};
use base64::Engine as _;
use nalgebra::{DMatrix, DVector};
use rand::SeedableRng;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use xtask::preprocess::snippets;
use xtask::project::Project;
use xtask::{files, process, prove};

fn says(tab: &mut Tab, figure: &str) -> String {
    tab.ask(&format!(
        "document.querySelector('[data-figure={figure}] .says').textContent"
    ))
}

/// The page and the state in its address, which follows when the figure rests.
fn address_of(tab: &mut Tab) -> String {
    tab.ask(
        "new Promise(done => setTimeout(() => done(location.pathname.slice(1) + location.search), 400))",
    )
}

/// Scrolls an element into the window and tells a point of it: so far from its left edge, as a share of its width.
fn point_of(tab: &mut Tab, selector: &str, along: f64) -> (f64, f64) {
    tab.ask(&format!(
        "(() => {{ const element = document.querySelector('{selector}'); element.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
         const box = element.getBoundingClientRect(); return [box.x + {along} * box.width, box.y + box.height / 2]; }})()"
    ))
}

fn focus(tab: &mut Tab, selector: &str) {
    tab.run(&format!("document.querySelector('{selector}').focus()"));
}

/// The sentence of the figure of softmax, by the crate.
fn softmax_says(scores: [f64; 3]) -> String {
    let weights = attention::softmax(&DVector::from_row_slice(&scores)).unwrap();
    let ratio = weights[0] / weights[1];
    let digits = 2 - ratio.log10().floor() as usize;
    let scores = scores.map(|score| format!("{score:.1}").replace('-', "−")).join(", ");
    format!(
        "Scores: {scores}. Weights: first {:.3}, second {:.3}, third {:.3}. The first is {ratio:.digits$} times the second.",
        weights[0], weights[1], weights[2],
    )
}

#[test]
fn the_playground_is_small_and_comes_with_the_pages_that_have_figures_of_it() {
    let folder = book().0;
    let pages = files::with_extension(folder, "html").into_iter();
    let with = |text: &str| -> Vec<String> {
        let pages = pages.clone().filter(|page| !page.ends_with("print.html"));
        let has = |page: &PathBuf| files::read(page).unwrap().contains(text);
        pages.filter(has).map(|page| files::relative(&page, folder)).collect()
    };
    assert_eq!(with("<meta name=\"playground\""), with(" data-figure="));
    assert!(with(" data-figure=").len() > 10);
    // A page loads the module and what all figures share, and the script of its own.
    let of_one_figure = files::with_extension(&folder.join("playground"), "js")
        .into_iter()
        .filter(|file| {
            let name = file.file_stem().unwrap().to_str().unwrap();
            !["attention", "figure", "figures", "draw"].contains(&name)
        })
        .collect::<Vec<_>>();
    let figures: Vec<_> = of_one_figure.iter().map(|file| compressed(file)).collect();
    let all = |part: &str| -> usize {
        files::under(&folder.join(part)).iter().map(|file| compressed(file)).sum()
    };
    let of_a_page =
        all("playground") - figures.iter().sum::<usize>() + figures.iter().max().unwrap();
    for (part, bytes, most) in [
        ("playground", of_a_page, 212),
        ("trained", all("trained"), 300),
        ("opened", all("opened"), 150),
    ] {
        assert!((1..=most * crate::KIB).contains(&bytes), "{part}: {bytes} bytes");
    }
}

/// The bytes of a file as servers send it.
fn compressed(file: &Path) -> usize {
    let mut encoder =
        flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &std::fs::read(file).unwrap()).unwrap();
    encoder.finish().unwrap().len()
}

/// The colours of a still picture that is opened by itself, as in book.css.
const COLOURS: [(&str, &str); 11] = [
    ("fig-fg", "#1b1b1f"),
    ("fig-muted", "#6b6b75"),
    ("fig-bg", "#ffffff"),
    ("fig-1", "#0b4fa0"),
    ("fig-2", "#d1561a"),
    ("fig-3", "#2f9e77"),
    ("fig-heat", "#3f90d4"),
    ("fig-heat-neg", "#e0763a"),
    ("role-q", "#6b1fa8"),
    ("role-k", "#8f5c00"),
    ("role-v", "#146e5f"),
];

/// A drawing of a page's script as the picture of those who run none: `name` is that of its file.
fn still(name: &str, drawing: &str, label: &str, says: &str) -> String {
    let (ids, title, description) = (
        format!("aria-labelledby=\"{name}-title {name}-description\""),
        format!("<title id=\"{name}-title\">{label}</title>"),
        format!("<desc id=\"{name}-description\">{says}</desc>"),
    );
    let picture = drawing.replacen(&format!("aria-label=\"{label}\""), &ids, 1);
    let (start, rest) = picture.split_once('>').unwrap();
    let mut picture =
        format!("{start}>{title}{description}{rest}\n").replace("><", ">\n<");
    for (colour, value) in COLOURS {
        picture = picture
            .replace(&format!("var(--{colour})"), &format!("var(--{colour}, {value})"));
    }
    picture
}

/// Before the scripts, and without them, there is the same picture. After a change to what a figure draws, `STILLS=write` writes the pictures.
#[test]
fn every_figure_moves_and_begins_with_its_still_picture() {
    let Some(mut reader) = Reader::start() else { return };
    let (folder, pages) = book();
    let stills = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/playground/stills");
    let writes = std::env::var("STILLS").is_ok_and(|value| value == "write");
    let has_figures = |page: &&String| {
        files::read(&folder.join(page)).unwrap().contains(" data-figure=")
    };
    let mut complaints = vec![];
    for page in pages.iter().filter(has_figures) {
        let mut tab = reader.open(page, LAPTOP);
        let [figures, moving]: [usize; 2] = tab.ask(
            "[document.querySelectorAll('[data-figure]').length, document.querySelectorAll('figure.moving').length]",
        );
        assert_eq!(moving, figures, "{page}");
        // A model may still be on its way.
        tab.run(
            "new Promise(done => { const look = () => { const waits = [...document.querySelectorAll('.moving')] \
             .find(figure => figure.querySelector('.drawing > svg > title')); \
             waits ? (waits.scrollIntoView(), setTimeout(look, 50)) : done(); }; look(); })",
        );
        let drawn: Vec<[String; 5]> = tab.ask(
            "[...document.querySelectorAll('.moving')].map(figure => { const svg = figure.querySelector('.drawing > svg'); \
             const escape = text => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;'); \
             return [[figure.dataset.figure, figure.dataset.kind].filter(Boolean).join('-'), figure.id, \
             new XMLSerializer().serializeToString(svg), escape(svg.getAttribute('aria-label')), \
             escape(figure.querySelector('.says').textContent)]; })",
        );
        for [name, id, drawing, label, says] in drawn {
            let picture = still(&name, &drawing, &label, &says);
            let file = stills.join(format!("{name}.svg"));
            if writes {
                files::write(&file, picture).unwrap();
            } else if id != format!("figure-{name}") {
                complaints.push(format!("{page}: {name} does not include {name}.svg"));
            } else if files::read(&file).unwrap_or_default() != picture {
                complaints.push(format!("{page}: {name} begins with another picture"));
            }
        }
    }
    assert!(
        complaints.is_empty(),
        "\n{}\nSTILLS=write cargo test --test pages still writes them",
        complaints.join("\n")
    );
}

#[test]
fn the_module_computes_what_the_crate_computes() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("softmax.html", LAPTOP);
    tab.run("import(new URL('playground/attention.js', location)).then(module => { globalThis.crate = module; })");

    let weights: Vec<f64> =
        tab.ask("[...crate.softmax(new Float64Array([1000, 999.5, -3]))]");
    let expected =
        attention::softmax(&DVector::from_row_slice(&[1000.0, 999.5, -3.0])).unwrap();
    assert_close(&weights, expected.as_slice());

    let x = example::river().x;
    let [q, k, v] = example::projections().map(|w| &x * w);
    for (mask, script) in [
        (Mask::none(), "crate.Mask.none()"),
        (Mask::causal(), "crate.Mask.causal()"),
        (Mask::window(3).unwrap(), "crate.Mask.window(3)"),
        (
            Mask::causal()
                .and(Mask::padding(&[true, true, true, false, false, false]).unwrap()),
            "crate.Mask.causal().and(crate.Mask.padding(3, 6))",
        ),
    ] {
        let (output, cache) = attention::attention(&q, &k, &v, &mask).unwrap();
        let [weights, outputs]: [Vec<f64>; 2] = tab.ask(&format!(
            "(() => {{ const x = crate.Sentence.river().x; const [q, k, v] = crate.projections().map(w => crate.project(x, w)); \
             const result = new crate.Attention(q, k, v, {script}); \
             return [[...result.weights.entries], [...result.output.entries]]; }})()"
        ));
        assert_close(&weights, &by_rows(&cache.weights));
        assert_close(&outputs, &by_rows(&output));
    }

    let wrong = "(() => { try { new crate.Matrix(2, 2, new Float64Array(3)); } catch (error) { return error.message; } })()";
    assert_eq!(tab.ask::<String>(wrong), "3 entries can't fill a matrix (2, 2)");
}

fn by_rows(matrix: &DMatrix<f64>) -> Vec<f64> {
    matrix.transpose().as_slice().to_vec()
}

#[track_caller]
fn assert_close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12), "{a:?}\n{b:?}");
}

#[test]
fn keys_move_a_slider_and_undo_and_reset_go_back() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("softmax.html", LAPTOP);
    assert_eq!(says(&mut tab, "softmax"), softmax_says([2.0, 1.0, -1.0]));

    // All scores move together, and the weights stay. The factor, which also plays, changes them.
    tab.run("document.querySelector('[data-figure=softmax] details').open = true");
    focus(&mut tab, "#softmax-shift");
    tab.press(Key::RIGHT);
    assert_eq!(
        tab.ask::<String>("document.getElementById('softmax-shift').value"),
        "0.5"
    );
    assert_eq!(says(&mut tab, "softmax"), softmax_says([2.5, 1.5, -0.5]));
    focus(&mut tab, "#softmax-factor");
    tab.press(Key::HOME);
    assert_eq!(says(&mut tab, "softmax"), softmax_says([0.0; 3]));

    // The state stands in the address, and another reader who opens it sees the same.
    let address = address_of(&mut tab);
    assert_eq!(address, "softmax.html?softmax=2_1_-1_0.5_0");
    drop(tab);
    let mut tab = reader.open(&address, PHONE);
    assert_eq!(says(&mut tab, "softmax"), softmax_says([0.0; 3]));

    // What makes no sense in an address is passed over.
    drop(tab);
    let mut tab = reader.open("softmax.html?softmax=2_1_x", LAPTOP);
    assert_eq!(says(&mut tab, "softmax"), softmax_says([2.0, 1.0, -1.0]));
    focus(&mut tab, "#softmax-factor");
    for _ in 0..3 {
        tab.press(Key::RIGHT);
    }
    assert_eq!(
        says(&mut tab, "softmax"),
        softmax_says([2.0, 1.0, -1.0].map(|score| 2.5 * score))
    );
    for (button, scores) in [(1, 2.0), (2, 1.0)] {
        let point = point_of(
            &mut tab,
            &format!("[data-figure=softmax] .buttons > :nth-child({button})"),
            0.5,
        );
        tab.click(point);
        assert_eq!(
            says(&mut tab, "softmax"),
            softmax_says([2.0, 1.0, -1.0].map(|score| scores * score))
        );
    }
    assert_eq!(address_of(&mut tab), "softmax.html");
}

#[test]
fn a_finger_moves_a_slider_and_a_pointer_chooses_a_cell() {
    let Some(mut reader) = Reader::start() else { return };

    let mut tab = reader.open("masking.html", PHONE);
    assert!(says(&mut tab, "masks").starts_with("Nothing is poked."));
    let point = point_of(&mut tab, "#masks-poke", 0.5);
    tab.tap(point);
    // The last token reaches no earlier output under a causal mask.
    let poked: f64 = tab.ask("Number(document.getElementById('masks-poke').value)");
    assert!((poked - 1.5).abs() <= 0.2, "{poked}");
    assert!(
        says(&mut tab, "masks").ends_with("These outputs move: 6. bank."),
        "{}",
        says(&mut tab, "masks")
    );
    tab.run("(() => { const mask = document.getElementById('masks-mask'); mask.value = 0; mask.dispatchEvent(new Event('change')); })()");
    let all = "These outputs move: 1. the, 2. boat, 3. left, 4. the, 5. river, 6. bank.";
    assert!(says(&mut tab, "masks").ends_with(all), "{}", says(&mut tab, "masks"));
    drop(tab);

    let page = "scaled-dot-product-attention.html";
    let mut tab = reader.open(page, LAPTOP);
    let x = example::river().x;
    let [w_q, w_k, _] = example::projections();
    let scores = attention::scaled_scores(&(&x * w_q), &(&x * w_k)).unwrap();
    let shows = |i: usize, j: usize| {
        format!("S = Q Kᵀ / √2. Row {}, column {}: ", i + 1, j + 1)
            + "|"
            + &format!("= {:.2}.", scores[(i, j)]).replace('-', "−")
    };
    let is_shown = |tab: &mut Tab, i, j| {
        let said = says(tab, "layer");
        let expected = shows(i, j);
        let (start, end) = expected.split_once('|').unwrap();
        assert!(said.starts_with(start) && said.ends_with(end), "{said}\n{expected}");
    };
    is_shown(&mut tab, 2, 1);
    let point = point_of(&mut tab, "[data-figure=layer] .drawing g:last-of-type", 0.5);
    tab.click(point);
    is_shown(&mut tab, 5, 5);
    assert_eq!(address_of(&mut tab), format!("{page}?layer=0_4_6_6"));
}

#[test]
fn one_word_gets_the_weights_that_the_page_prints() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("intuition.html", LAPTOP);
    let words = |sentence: example::Sentence| {
        let x = sentence.x;
        let (output, cache) = attention::attention(&x, &x, &x, Mask::none()).unwrap();
        let (weights, out) =
            (cache.weights.row(5).into_owned(), output.row(5).into_owned());
        let largest = weights.transpose().imax();
        format!(
            "In “{}”, “bank” gives most to “{}”, {:.0} %, and becomes water {:.2}, money {:.2}, place {:.2}, action {:.2}.",
            sentence.tokens.join(" "),
            sentence.tokens[largest],
            100.0 * weights[largest],
            out[0],
            out[1],
            out[2],
            out[3],
        )
    };
    let both = [example::river(), example::city()].map(words).join(" ");
    assert_eq!(says(&mut tab, "bank"), both);
}

#[test]
fn the_order_of_the_keys_and_a_second_worker_change_no_output() {
    let Some(mut reader) = Reader::start() else { return };
    let x = example::river().x;
    let [q, k, v] = example::projections().map(|w| &x * w);
    let (output, _) = attention::attention(&q, &k, &v, Mask::none()).unwrap();
    let end =
        format!("That is the first number of the row's output, {:.3}.", output[(5, 0)]);
    let largest = attention::scaled_scores(&q, &k).unwrap().row(5).max();
    // The order, all six keys, and a second worker: none, or from the third or the fifth key.
    for state in ["0_6_0", "1_6_0", "2_6_2", "3_6_4"] {
        let mut tab = reader.open(&format!("online-softmax.html?online={state}"), LAPTOP);
        let said = says(&mut tab, "online");
        assert!(
            said.starts_with(&format!("After 6 of 6 keys: m = {largest:.3},")),
            "{state}: {said}"
        );
        assert!(said.ends_with(&end), "{state}: {said}");
        let drawn: Vec<String> = tab.ask(
            "[...document.querySelectorAll('[data-figure=online] .drawing text')].slice(-4).map(it => it.textContent)",
        );
        assert_eq!(
            [&drawn[0], &drawn[3]],
            [&format!("{largest:.3}"), &format!("{:.3}", output[(5, 0)])]
        );
    }
    let mut tab = reader.open("online-softmax.html?online=0_0_0", LAPTOP);
    let said = says(&mut tab, "online");
    assert!(
        said.starts_with("After 0 of 6 keys: m = −∞, ℓ = 0.000, o = 0.000, o / ℓ = –."),
        "{said}"
    );
}

/// Millionths, rounded to three digits, from the middle to the even one.
fn three_digits(x: u64) -> u64 {
    let unit = 10_u64.pow(x.max(1).ilog10().saturating_sub(2));
    let (whole, rest) = (x / unit, x % unit);
    let up = 2 * rest > unit || (2 * rest == unit && whole % 2 == 1);
    (whole + u64::from(up)) * unit
}

/// Sums of exponentials in whole millionths, where nothing is rounded unasked.
#[test]
fn a_row_has_another_sum_with_another_cut() {
    let Some(mut reader) = Reader::start() else { return };
    let x = example::river().x;
    let [q, k, _] = example::projections().map(|w| &x * w);
    let scores = attention::scaled_scores(&q, &k).unwrap();
    let mut parted = 0;
    for (row, cuts) in [(5, [0, 3]), (0, [2, 4]), (2, [0, 1])] {
        let scores = scores.row(row);
        let millionths = scores.map(|score| {
            three_digits((1e6 * (score - scores.max()).exp()).round() as u64)
        });
        let sum = |keys: std::ops::Range<usize>| {
            keys.fold(0, |sum, j| three_digits(sum + millionths[j]))
        };
        let sums = cuts.map(|cut| three_digits(sum(0..cut) + sum(cut..6)));
        let [one, other] = sums.map(|sum| format!("{:.2}", sum as f64 / 1e6));
        let state = format!("{row}_7_{}_{}", cuts[0], cuts[1]);
        let mut tab = reader.open(&format!("same-bits.html?cuts={state}"), LAPTOP);
        let said = says(&mut tab, "cuts");
        let expected = if one == other {
            format!("Both orders give {one} for “{}”.", example::river().tokens[row])
        } else {
            parted += 1;
            format!("The same six numbers, {one} in one order and {other} in the other.")
        };
        assert!(said.starts_with(&expected), "{said}");
    }
    assert_eq!(parted, 2);
}

/// The figure of online softmax: how many keys it has seen, and what its button says.
fn played(tab: &mut Tab) -> (f64, String) {
    tab.ask(
        "[Number(document.getElementById('online-seen').value), document.querySelector('[data-figure=online] .play').textContent]",
    )
}

fn press_in_time(tab: &mut Tab, button: usize) {
    let selector = format!("[data-figure=online] .time > :nth-child({button})");
    let point = point_of(tab, &selector, 0.5);
    tab.click(point);
}

/// Waits until the figure of online softmax has come so far.
fn wait_until(tab: &mut Tab, condition: &str) {
    tab.run(&format!(
        "new Promise(done => {{ const look = () => {{ const seen = Number(document.getElementById('online-seen').value); \
         {condition} ? done() : requestAnimationFrame(look); }}; look(); }})"
    ));
}

#[test]
fn a_figure_plays_pauses_and_steps() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("online-softmax.html", LAPTOP);
    let [play, back, forth] = [1, 2, 3];
    assert_eq!(played(&mut tab), (2.0, "Play".to_owned()));
    press_in_time(&mut tab, forth);
    assert_eq!(played(&mut tab).0, 3.0);
    press_in_time(&mut tab, back);
    press_in_time(&mut tab, back);
    assert_eq!(played(&mut tab).0, 1.0);

    // Between two keys the next one is on its way, and a pause stays there.
    press_in_time(&mut tab, play);
    assert_eq!(played(&mut tab).1, "Pause");
    wait_until(&mut tab, "seen > 1.3");
    press_in_time(&mut tab, play);
    let (seen, button) = played(&mut tab);
    assert!(seen > 1.3 && seen < 2.0 && button == "Play", "{seen} {button}");
    wait_until(&mut tab, "(globalThis.waited = (globalThis.waited ?? 0) + 1) > 20");
    assert_eq!(played(&mut tab).0, seen);
    let said = says(&mut tab, "online");
    assert!(said.starts_with("“boat” brings a new maximum"), "{said}");
    // All that was played is one step for undo.
    let undo = "[data-figure=online] .buttons > :nth-child(1)";
    let point = point_of(&mut tab, undo, 0.5);
    tab.click(point);
    assert_eq!(played(&mut tab).0, 1.0);

    // A key goes from stop to stop. At the end it rests, and begins anew.
    focus(&mut tab, "#online-seen");
    tab.press(Key::RIGHT);
    assert_eq!(played(&mut tab).0, 2.0);
    tab.press(Key::END);
    assert_eq!(played(&mut tab), (6.0, "Play".to_owned()));
    press_in_time(&mut tab, play);
    wait_until(&mut tab, "seen < 1");
    press_in_time(&mut tab, forth);
    assert_eq!(played(&mut tab), (1.0, "Play".to_owned()));

    // With reduced motion, playing is stepping.
    tab.run(
        "globalThis.matchMedia = query => ({ matches: query.includes('reduce') }); \
         globalThis.between = false; document.getElementById('online-seen').closest('figure').querySelector('.time select').value = 2; \
         document.querySelector('[data-figure=online] .time select').dispatchEvent(new Event('change'))",
    );
    press_in_time(&mut tab, play);
    wait_until(&mut tab, "(globalThis.between ||= !Number.isInteger(seen), seen === 3)");
    assert!(!tab.ask::<bool>("globalThis.between"));
}

/// The front page loads no program before its figure is wanted.
#[test]
fn a_word_under_the_pointer_looks() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.arrive("index.html", LAPTOP);
    tab.run("checks.whole()");
    tab.run("new Promise(done => setTimeout(done, 1000))");
    let asked = tab.ask::<Vec<String>>("checks.requested()");
    assert!(!asked.iter().any(|file| file.contains("playground")), "{asked:?}");
    let figure = point_of(&mut tab, "[data-figure=look]", 0.5);
    tab.point_at(figure);
    tab.run(
        "new Promise(done => { const look = () => document.querySelector('[data-figure=look].moving') ? done() : setTimeout(look, 50); look(); })",
    );
    let [river, city] = [example::river(), example::city()].map(|sentence| {
        let x = sentence.x;
        attention::attention(&x, &x, &x, Mask::none()).unwrap().1.weights
    });
    let share =
        |weights: &DMatrix<f64>, i, j| format!("{:.0} %", 100.0 * weights[(i, j)]);
    let expected = format!(
        "By the river, “bank” takes {} from itself and {} from “river”. In the city, “bank” takes {} from itself and {} from “city”.",
        share(&river, 5, 5),
        share(&river, 5, 4),
        share(&city, 5, 5),
        share(&city, 5, 4),
    );
    assert_eq!(says(&mut tab, "look"), expected);
    let point = point_of(&mut tab, "[data-figure=look] .press:nth-of-type(2)", 0.5);
    tab.point_at(point);
    let said = says(&mut tab, "look");
    let expected =
        format!("By the river, “boat” takes {} from “river”", share(&river, 1, 4));
    assert!(said.starts_with(&expected), "{said}");
}

/// A laptop's window shows a figure with its caption and its controls at once.
#[test]
fn no_figure_is_taller_than_the_window_of_a_laptop() {
    let Some(mut reader) = Reader::start() else { return };
    let (folder, pages) = book();
    let small = crate::Screen { width: 1366, height: 657, ..LAPTOP };
    let has_figures = |page: &&String| {
        files::read(&folder.join(page)).unwrap().contains(" data-figure=")
    };
    let mut tall = vec![];
    for page in pages.iter().filter(has_figures) {
        let mut tab = reader.open(page, small);
        tall.extend(tab.ask::<Vec<String>>(
            "[...document.querySelectorAll('figure[data-moves]')].map(it => [it.id, it.offsetHeight]).filter(([, height]) => height > innerHeight).map(it => `${location.pathname} ${innerWidth} ${it} ` + [...document.getElementById(it[0]).children].map(c => `${c.className || c.localName} ${c.getBoundingClientRect().width}x${c.getBoundingClientRect().height}`))",
        ));
    }
    assert_eq!(tall, Vec::<String>::new());
}

/// Where the module can't be compiled, each figure says so, and keeps no room for controls.
#[test]
fn a_figure_that_cannot_move_says_why() {
    let Some(mut reader) = Reader::start() else { return };
    let address = reader.site.url("softmax.html");
    let mut tab = reader.arrive("index.html", PHONE);
    tab.run_first("delete globalThis.WebAssembly;");
    tab.go(&address);
    let told: String = tab.ask(
        "new Promise(done => { const look = () => { const told = document.querySelector('[data-figure=softmax] > .stuck'); \
         told ? done(told.textContent) : setTimeout(look, 50); }; look(); })",
    );
    assert_eq!(
        told,
        "This figure stands still: its program can't run in this browser (WebAssembly is not defined)."
    );
    let room: String =
        tab.ask("getComputedStyle(document.querySelector('[data-figure=softmax]'), '::after').content");
    assert_eq!(room, "none");
}

#[test]
fn random_scores_are_divided_as_chosen() {
    let Some(mut reader) = Reader::start() else { return };
    for (divisor, name) in ["1", "√d", "d"].into_iter().enumerate() {
        let address = format!("why-sqrt-d-k.html?root=8_{divisor}_7");
        let mut tab = reader.open(&address, LAPTOP);
        let products = playground_native::random_products(8, 256, 7).unwrap();
        let by = 256_f64.powf(0.5 * divisor as f64);
        let scores = DVector::from_vec(products) / by;
        let weights = attention::softmax(&scores).unwrap();
        let jacobian = attention::softmax::softmax_jacobian(&weights).unwrap();
        let largest = weights.imax();
        assert_eq!(
            says(&mut tab, "root"),
            format!(
                "d = 256, divided by {name}: the largest weight is {:.3}, and it responds to its own score by {:.3}.",
                weights[largest],
                jacobian[(largest, largest)]
            )
        );
    }
}

/// The product of a turned query and key depends on how far they are apart, and not on where they stand.
#[test]
fn turned_rows_meet_as_in_the_crate() {
    let Some(mut reader) = Reader::start() else { return };
    for (query, key) in [(9, 6), (40, 37), (40, 90)] {
        let mut tab = reader.open(&format!("positions.html?turn={query}_{key}"), LAPTOP);
        let row = |position| {
            DVector::from_vec(playground_native::turned_row(position, 4).unwrap())
        };
        let sum = row(query).dot(&row(key));
        let apart = (query - key).abs();
        let expected = format!(
            "Query at {query}, key at {key}: {apart} apart. The products of the pairs sum to {sum:.2}."
        );
        assert_eq!(says(&mut tab, "turn").replace('−', "-"), expected);
    }
}

#[test]
fn measured_slopes_are_those_of_the_crate() {
    let Some(mut reader) = Reader::start() else { return };
    let layer = playground_native::Layer::example().ok().unwrap();
    let gradient = layer.matrix("dX", 0).ok().unwrap();
    let analytic = gradient.entries()[5 * gradient.columns()]; // of “bank” by water
    // A step of 10⁻⁵ is near the best in f64, and far from it in f32.
    let measured = [false, true]
        .map(|single| playground_native::measured_slope(1e-5, single).ok().unwrap());
    assert!((measured[0] - analytic).abs() < 1e-9);
    assert!((measured[1] - analytic).abs() > 1e-5);
    let mut tab = reader.open("gradient-checking.html?slope=-5_0", LAPTOP);
    let said = says(&mut tab, "slope");
    let start = format!("Backward pass: {analytic:.12}. Measured: {:.9}", measured[0]);
    assert!(
        said.replace('−', "-").starts_with(&start[..start.len() - 1]),
        "{said}\n{start}"
    );
    drop(tab);
    let mut tab = reader.open("gradient-checking.html?slope=-12_1", LAPTOP);
    assert!(
        says(&mut tab, "slope").starts_with("The step is lost"),
        "{}",
        says(&mut tab, "slope")
    );
}

#[test]
fn a_dropped_path_changes_the_gradient_as_in_the_crate() {
    let Some(mut reader) = Reader::start() else { return };
    let layer = playground_native::Layer::example().ok().unwrap();
    let whole = DVector::from_vec(layer.matrix("dX", 0).ok().unwrap().entries());
    for (path, name) in [(1, "queries"), (2, "keys"), (3, "values")] {
        let term = DVector::from_vec(layer.path(path - 1).ok().unwrap().entries());
        let kept = &whole - term;
        let mut tab = reader.open(&format!("backward.html?layer={path}_7"), LAPTOP);
        let expected = format!(
            "Without the path through the {name}, dX has {:.2} of its length, and the cosine of its angle to the right one is {:.2}.",
            kept.norm() / whole.norm(),
            whole.dot(&kept) / (whole.norm() * kept.norm()),
        );
        let said = says(&mut tab, "layer");
        assert!(said.ends_with(&expected), "{said}\n{expected}");
    }
    // A press on a matrix of the map chooses its gradient.
    let mut tab = reader.open("backward.html", LAPTOP);
    let point = point_of(&mut tab, "[data-figure=layer] .drawing g:nth-of-type(3)", 0.5);
    tab.click(point);
    let value = layer.matrix("dV", 0).ok().unwrap();
    let said = says(&mut tab, "layer");
    assert!(said.starts_with("dV = Aᵀ dO. Row 5, column 2: "), "{said}");
    let number = format!("= {:.2}.", value.entries()[4 * value.columns() + 1]);
    assert!(said.replace('−', "-").ends_with(&number), "{said}");
}

#[test]
fn steps_stand_on_the_side_of_the_ridge_where_their_intensity_puts_them() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("counting.html", LAPTOP);
    let machines: String =
        tab.ask("document.querySelector('[data-figure=roofline]').dataset.machines");
    drop(tab);
    // Every machine, a short and a long sequence, and numbers of two bytes.
    for (machine, roof) in machines.split(';').enumerate() {
        let [name, peak, bandwidth] =
            roof.split('|').collect::<Vec<_>>().try_into().unwrap();
        let ridge = peak.parse::<f64>().unwrap() / bandwidth.parse::<f64>().unwrap();
        let length = [4, 14][machine % 2];
        let shape =
            laboratory::cost::AttentionShape::self_attention(1, 1 << length, 64, 64, 1);
        let steps = laboratory::roofline::steps(
            &shape,
            if name.contains("bf16") { 2 } else { 4 },
        )
        .unwrap();
        let of = |right: bool| {
            let side = steps[..4].iter().filter(|s| (s.intensity() >= ridge) == right);
            let names: Vec<_> = side.map(|step| step.name).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let address = format!("counting.html?roofline={machine}_{length}_2");
        let mut tab = reader.open(&address, LAPTOP);
        let expected = format!(
            "{} tokens. Right of the ridge, {ridge:.1} FLOP/byte: {}. Left of it: {}. The whole has {:.1} FLOP/byte.",
            1 << length,
            of(true),
            of(false),
            steps[4].intensity(),
        );
        assert_eq!(says(&mut tab, "roofline"), expected);
    }
}

#[test]
fn a_walk_over_tiles_moves_what_the_counting_machine_counts() {
    use laboratory::traffic::{Memory, tiled_attention};

    let Some(mut reader) = Reader::start() else { return };
    let x = DMatrix::from_fn(32, 4, |i, j| (i as f64 - 3.0 * j as f64).cos());
    for (number, mask) in
        [Mask::none(), Mask::causal(), Mask::window(4).unwrap()].into_iter().enumerate()
    {
        let memory = Memory::new(150);
        let [q, k, v] = ["q", "k", "v"].map(|name| memory.put(name, x.clone()));
        tiled_attention(&memory, [&q, &k, &v], &mask, (5, 3)).unwrap();
        let address = format!("tiles-forward.html?walk=1000_5_3_{number}_150");
        let mut tab = reader.open(&address, LAPTOP);
        let said = says(&mut tab, "walk");
        let moved = memory.report().total().all();
        let expected = format!("{moved} of {moved} numbers moved.");
        assert!(said.contains(&expected), "{said}\n{expected}");
    }
    // What is refused leaves the last drawing, which shows that it is not of this.
    let mut tab = reader.open("tiles-forward.html", LAPTOP);
    focus(&mut tab, "#walk-queries");
    tab.press(Key::END);
    let said = says(&mut tab, "walk");
    assert!(said.starts_with("Tiles of 32 × 4 don't fit into 150 numbers"), "{said}");
    let refused = "[document.querySelector('[data-figure=walk]').classList.contains('refused'), \
                   document.getElementById('walk-queries').hasAttribute('aria-invalid')]";
    assert_eq!(tab.ask::<[bool; 2]>(refused), [true, true]);
    tab.press(Key::HOME);
    assert_eq!(tab.ask::<[bool; 2]>(refused), [false, false]);
}

#[test]
fn a_load_takes_the_clocks_of_its_busiest_bank() {
    let Some(mut reader) = Reader::start() else { return };
    // Rows (8 or 32), width, padding, swizzle, words.
    for (state, says_first) in [
        ("0_3_0_0_0", "The load takes 8 clocks."),
        ("0_0_0_0_0", "The load takes 4 clocks."),
        ("0_3_1_0_0", "The load takes 1 clock."),
        ("1_3_2_0_0", "The load takes 2 clocks."),
        ("1_1_0_1_0", "The load takes 1 clock."),
        ("1_2_4_0_1", "The load takes 4 clocks."),
        ("1_2_1_0_1", "A load of four words has to begin at a multiple of four"),
    ] {
        let mut tab = reader.open(&format!("gpu-tiles.html?banks={state}"), LAPTOP);
        let said = says(&mut tab, "banks");
        assert!(said.starts_with(says_first), "{state}: {said}");
    }
}

#[test]
fn the_tensor_cores_are_as_busy_as_the_plan_says() {
    let Some(mut reader) = Reader::start() else { return };
    let lengths = laboratory::gpu::Lengths::new(128, 128);
    let exponentials = 1600 - lengths.others;
    let lengths = laboratory::gpu::Lengths { exponentials, ..lengths };
    let busy = [(1, false), (1, true), (2, false), (2, true)]
        .map(|(consumers, overlap)| 100.0 * lengths.busy(consumers, overlap));
    let mut tab = reader.open("gpu-hopper.html?pipeline=3000_1600", LAPTOP);
    let titles: Vec<String> = tab.ask(
        "[...document.querySelectorAll('[data-figure=pipeline] .drawing text')].map(it => it.textContent).filter(it => it.includes('long run'))",
    );
    let ends = busy.map(|busy| format!(": {busy:.0} % in the long run"));
    assert!(
        titles.len() == 4
            && titles.iter().zip(&ends).all(|(title, end)| title.ends_with(end)),
        "{titles:?}\n{ends:?}"
    );
}

#[test]
fn ranks_of_a_ring_wait_as_long_as_the_crate_says() {
    use across::{Layout, Whole, cost};

    let Some(mut reader) = Reader::start() else { return };
    let layouts = [Layout::Contiguous, Layout::Zigzag, Layout::Striped];
    for (number, layout) in layouts.into_iter().enumerate() {
        for (mask_number, mask) in [Mask::none(), Mask::causal()].into_iter().enumerate()
        {
            let whole = Whole::new((16, 16), (1, 1), mask).with_layouts(layout, layout);
            let pairs = cost::pairs(&whole, 4).unwrap();
            let busiest = pairs.iter().map(|of_rank| of_rank[2]).max().unwrap();
            let address = format!("across-machines.html?ring=3_{number}_{mask_number}");
            let mut tab = reader.open(&address, LAPTOP);
            let said = says(&mut tab, "ring");
            let first =
                format!("Step 3 of 4: the busiest rank computes {busiest} pairs, ");
            let busy = 100.0 * cost::balance(&pairs);
            let last = format!(" the ranks compute {busy:.0} % of the time.");
            assert!(said.starts_with(&first) && said.ends_with(&last), "{said}");
        }
    }
}

/// Scrolls to a figure and waits until what it fetches has come.
fn come_near(tab: &mut Tab, figure: &str) {
    point_of(tab, &format!("[data-figure={figure}] .drawing"), 0.5);
    tab.run(&format!(
        "new Promise(done => {{ const look = () => document.querySelector('[data-figure={figure}] .says').textContent.startsWith('Head') \
         ? done() : setTimeout(look, 50); look(); }})",
    ));
}

/// The parameters come when the figure is near the window, and not before.
#[test]
fn the_trained_model_looks_and_writes_as_the_crate_does() {
    let Some(mut reader) = Reader::start() else { return };
    let state = "writer=the+sc_20_5_9_1.1+3.2_1_3";
    let mut tab = reader.open(&format!("trained-heads.html?{state}"), LAPTOP);
    let loads = "performance.getEntriesByType('resource').filter(it => it.name.endsWith('book.i8')).length";
    assert_eq!(tab.ask::<usize>(loads), 0);
    assert_eq!(says(&mut tab, "writer"), "The model is on its way.");
    come_near(&mut tab, "writer");
    assert_eq!(tab.ask::<usize>(loads), 1);

    let bytes = std::fs::read(book().0.join("trained/book.i8")).unwrap();
    let writer = playground_native::Writer::new(&bytes).unwrap();
    let mut written = writer.begin("the sc", &[0, 9], 3).unwrap();
    (0..26).for_each(|_| written.go_on(1.0).unwrap());
    let letters: String = tab.ask(
        "[...document.querySelectorAll('[data-figure=writer] .drawing g')].slice(0, 26).map(it => it.textContent).join('')",
    );
    assert_eq!(letters, written.text().replace('\n', "↵"));
    let row = &written.weights(1, 1).unwrap().entries()[8 * 26..9 * 26];
    let most = (0..26).max_by(|i, j| row[*i].total_cmp(&row[*j])).unwrap();
    let told = says(&mut tab, "writer");
    assert!(told.starts_with("Head 2.2, from "), "{told}");
    assert!(told.contains(&format!("character 9: {:.2} on ", row[most])), "{told}");
    assert!(
        told.contains(&format!(
            "{}; ",
            if most == 8 { "itself".into() } else { format!("{} back", 8 - most) }
        )),
        "{told}"
    );
    assert!(told.contains(&format!("costs {:.2} nats", written.surprise())), "{told}");
    // Keys and values of four blocks: two key-value heads, 16 numbers each.
    assert!(
        told.ends_with(&format!(
            "hold {} numbers of 26 characters.",
            4 * 2 * 2 * 16 * 26
        )),
        "{told}"
    );

    let typed = |tab: &mut Tab, field: &str, words: &str| {
        tab.run(&format!(
            "{{ const input = document.querySelector('#writer-{field}'); input.value = '{words}'; input.dispatchEvent(new Event('change')); }}"
        ));
    };
    typed(&mut tab, "text", "Ж");
    assert_eq!(says(&mut tab, "writer"), "The model has never seen the character 'Ж'.");
    typed(&mut tab, "text", "");
    assert_eq!(says(&mut tab, "writer"), "There is no text.");
    typed(&mut tab, "text", "a");
    typed(&mut tab, "off", "5.1");
    let told = says(&mut tab, "writer");
    assert_eq!(
        told,
        "“5.1” is no head: write its block and its number in it, as in 2.1."
    );
}

/// What was recorded of a real model, as the figure's file has it.
struct Recorded<'a>(&'a serde_json::Value);

impl Recorded<'_> {
    fn tokens(&self, sentence: usize) -> Vec<&str> {
        let tokens = self.0["sentences"][sentence]["tokens"].as_array().unwrap();
        tokens.iter().map(|token| token.as_str().unwrap().trim()).collect()
    }

    /// What a token gives to each that it sees.
    fn weights(&self, sentence: usize, head: [usize; 2], query: usize) -> Vec<f64> {
        let n = self.tokens(sentence).len();
        let text = self.0["sentences"][sentence]["weights"].as_str().unwrap();
        let bytes = base64::prelude::BASE64_STANDARD.decode(text).unwrap();
        let rows: Vec<usize> = match self.0["reads_both_ways"].as_bool().unwrap() {
            true => vec![n; n],
            false => (1..=n).collect(),
        };
        let heads = self.0["heads"].as_u64().unwrap() as usize;
        let layers = self.0["layers"].as_u64().unwrap() as usize;
        assert_eq!(bytes.len(), layers * heads * rows.iter().sum::<usize>());
        let of_head = rows.iter().sum::<usize>() * (heads * head[0] + head[1]);
        let first = of_head + rows[..query].iter().sum::<usize>();
        bytes[first..][..rows[query]]
            .iter()
            .map(|&byte| f64::from(byte) / 255.0)
            .collect()
    }

    /// How the sentence below the figure begins: with the largest weight.
    fn says(&self, sentence: usize, [block, head]: [usize; 2], query: usize) -> String {
        let weights = self.weights(sentence, [block, head], query);
        let most = weights.into_iter().fold(0.0, f64::max);
        let token = self.tokens(sentence)[query];
        format!("Head {block}.{head} gives {:.0} % of “{token}” to ", 100.0 * most)
    }
}

/// What was recorded comes when the figure is near the window; cells and words can be pressed, and sliders do the same.
#[test]
fn the_heads_of_real_models_look_as_recorded() {
    let Some(mut reader) = Reader::start() else { return };
    let file = std::fs::read(book().0.join("opened/figure.json")).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
    let [causal, both_ways] = [0, 1].map(|model| Recorded(&file["models"][model]));
    let said = |tab: &mut Tab| says(tab, "real-model");
    let begins = |tab: &mut Tab, expected: String| {
        let said = says(tab, "real-model");
        assert!(said.starts_with(&expected), "{expected}: {said}");
        said
    };
    let legend = "[...document.querySelectorAll('[data-figure=real-model] .drawing text')].map(it => it.textContent) \
                  .find(it => it.startsWith('Colour')) ?? 'none'";

    let mut tab = reader.open("real-model.html", LAPTOP);
    let loads = "performance.getEntriesByType('resource').filter(it => it.name.endsWith('figure.json')).length";
    assert_eq!(tab.ask::<usize>(loads), 0);
    assert_eq!(said(&mut tab), "What was recorded is on its way.");
    come_near(&mut tab, "real-model");
    assert_eq!(tab.ask::<usize>(loads), 1);
    begins(&mut tab, causal.says(0, [13, 8], 7));
    assert_eq!(causal.tokens(0)[7], "it");
    // A causal model at “it” has not read the last word.
    assert_eq!(causal.weights(0, [13, 8], 7), causal.weights(1, [13, 8], 7));
    let drawn: Vec<String> = tab.ask(
        "[...document.querySelectorAll('[data-figure=real-model] .drawing g.press')].map(it => it.textContent)",
    );
    let weights = causal.weights(0, [13, 8], 7);
    let tokens = causal.tokens(0);
    let expected = tokens.iter().enumerate().map(|(j, token)| {
        let weight = weights.get(j).map(|weight| format!("{:.0} %", 100.0 * weight));
        format!("{token}{}", weight.unwrap_or_else(|| "–".to_owned()))
    });
    assert_eq!(drawn, expected.collect::<Vec<_>>());

    // A cell is a head, and a word the token that looks.
    let cell = |tab: &mut Tab, [block, head]: [f64; 2], [layers, heads]: [f64; 2]| {
        let cells = "[data-figure=real-model] .drawing rect.press";
        let (x, y) = point_of(tab, cells, (head + 0.5) / heads);
        let height: f64 = tab.ask(&format!(
            "document.querySelector('{cells}').getBoundingClientRect().height"
        ));
        (x, y + ((block + 0.5) / layers - 0.5) * height)
    };
    let point = cell(&mut tab, [16.0, 0.0], [30.0, 9.0]);
    tab.click(point);
    let told = begins(&mut tab, causal.says(0, [16, 0], 7));
    let loss = |key: &str| causal.0[key][16][0].as_f64().unwrap();
    let losses = format!(
        "goes from {:.2} to {:.2}; with its mean output, to {:.2}.",
        causal.0["loss"].as_f64().unwrap(),
        loss("loss_without"),
        loss("loss_replaced")
    );
    assert!(told.ends_with(&losses), "{losses}: {told}");
    let point =
        point_of(&mut tab, "[data-figure=real-model] g.press:nth-of-type(3)", 0.5);
    tab.click(point);
    begins(&mut tab, causal.says(0, [16, 0], 2));
    focus(&mut tab, "#real-model-block");
    tab.press(Key::RIGHT);
    focus(&mut tab, "#real-model-head");
    tab.press(Key::END);
    begins(&mut tab, causal.says(0, [17, 8], 2));
    assert_eq!(address_of(&mut tab), "real-model.html?real-model=0_4_17_8_3_0");
    drop(tab);

    // The colours of the grid are the file's, and so is what it lacks.
    let mut colour = |state: &str| {
        let mut tab = reader.open(&format!("real-model.html?real-model={state}"), LAPTOP);
        come_near(&mut tab, "real-model");
        (tab.ask::<String>(legend), said(&mut tab))
    };
    let scores = file["models"][0]["scores"]["previous"].as_array().unwrap().iter();
    let scores = scores.flat_map(|row| row.as_array().unwrap());
    let most = 100.0 * scores.filter_map(|score| score.as_f64()).fold(0.0, f64::max);
    let (seen, _) = colour("0_1_18_6_8_1");
    assert_eq!(
        seen,
        format!("Colour: weight on the token before, up to {most:.0} % (head 16.0)")
    );
    let (seen, told) = colour("1_2_3_1_8_0");
    assert_eq!(seen, "none");
    assert!(told.starts_with(&both_ways.says(0, [3, 1], 8)), "{told}");
    assert!(told.ends_with("so that wasn't recorded."), "{told}");

    // The other model has other blocks, and its word comes one token later. The late word changes where that looks.
    let mut tab = reader.open("real-model.html?real-model=1_3", PHONE);
    come_near(&mut tab, "real-model");
    assert_eq!(both_ways.tokens(0)[8], "it");
    begins(&mut tab, both_ways.says(0, [5, 8], 8));
    let point = cell(&mut tab, [3.0, 1.0], [6.0, 12.0]);
    tab.tap(point);
    begins(&mut tab, both_ways.says(0, [3, 1], 8));
    tab.run("(() => { const late = document.getElementById('real-model-late'); late.value = 1; late.dispatchEvent(new Event('change')); })()");
    begins(&mut tab, both_ways.says(1, [3, 1], 8));
    let words: Vec<String> = tab.ask(
        "[...document.getElementById('real-model-late').options].map(it => it.textContent)",
    );
    for (sentence, late) in words.iter().enumerate() {
        assert!(causal.tokens(sentence).contains(&&**late), "{late}");
        assert!(both_ways.tokens(sentence).contains(&&**late), "{late}");
    }
    // Labels stay readable, and nothing is cut off.
    let [label, over]: [f64; 2] = tab.ask(
        "(() => { const svg = document.querySelector('[data-figure=real-model] .drawing > svg'); \
         return [16 * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width, document.documentElement.scrollWidth - innerWidth]; })()",
    );
    assert!(label >= 12.0 && over <= 0.0, "{label} {over}");
}

/// The text that the last press of a button has copied.
fn copied(tab: &mut Tab, button: usize) -> String {
    tab.run(
        "navigator.clipboard.writeText = text => { globalThis.copied = text; return Promise.resolve(); }",
    );
    let selector = format!("[data-figure=workbench] .buttons > :nth-child({button})");
    let point = point_of(tab, &selector, 0.5);
    tab.click(point);
    tab.ask("globalThis.copied")
}

#[test]
fn the_workbench_shows_a_layer_and_copies_the_program_that_computes_it() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("workbench.html", LAPTOP);
    let x = example::river().x;
    let rng = &mut rand::rngs::ChaCha8Rng::seed_from_u64(1);
    let layer = attention::MultiHeadAttention::xavier(4, 2, rng).unwrap();
    let (_, cache) = layer.forward(&x, Mask::none()).unwrap();
    let said = says(&mut tab, "workbench");
    let weight = cache.heads()[0].weights[(5, 1)];
    let expected = format!("A, row 6, column 2: {weight:.2}, by softmax of row 6 of S.");
    assert!(said.starts_with(&expected), "{said}\n{expected}");

    // What is copied is the program on the page, which is run with all other snippets.
    let program = copied(&mut tab, 3);
    let on_page: String =
        tab.ask("document.querySelector('main pre > code.language-rust').textContent");
    assert_eq!(program.trim(), on_page.trim());
    drop(tab);

    // Numbers, a mask, a factor, dropout, another seed: what is printed is what is shown.
    let state = "1%200%202;0%201%200;1%201%201.5;0%200%203_5_3_1_0_1_1_2_0.25_3_0_-5";
    let mut tab = reader.open(&format!("workbench.html?workbench={state}"), LAPTOP);
    let link = copied(&mut tab, 4);
    let program = copied(&mut tab, 3);
    assert_shown(&mut tab, &run_with_the_crate(&[program])[0], 4);
    drop(tab);
    // The link leads to the bench.
    let page = link.rsplit('/').next().unwrap().to_owned();
    assert!(page.ends_with("#figure-workbench"), "{page}");
    let mut tab = reader.open(&page, PHONE);
    let line: String = tab.ask("document.getElementById('workbench-line').value");
    assert_eq!(line, "1 0 2;0 1 0;1 1 1.5;0 0 3");

    // Commas part numbers, too, and what stands around a word is no part of it. What can't be read is told, and the last drawing stays.
    let mut said_of = |line: &str| {
        tab.run(&format!(
            "(() => {{ const line = document.getElementById('workbench-line'); line.value = '{line}'; line.dispatchEvent(new Event('change')); }})()"
        ));
        let labels = tab.ask::<String>(
            "[...document.querySelectorAll('[data-figure=workbench] .drawing > svg > text')].map(it => it.textContent).join(' ')",
        );
        (says(&mut tab, "workbench"), labels)
    };
    assert_eq!(said_of("1 2; 3").0, "Row 2 has 1 numbers, and row 1 has 2.");
    assert!(said_of("1, 0, 0; 0, 1, 0").1.contains("row 2"));
    assert!(said_of("“river”, bank.").1.contains("river bank"));
    let families = "👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧👨‍👩‍👧";
    let cut = format!("{}…", "👨‍👩‍👧".repeat(6));
    assert!(said_of(families).1.contains(&cut));
}

/// The large matrix of the workbench, of so many rows and columns, is the first that a program has printed.
fn assert_shown(tab: &mut Tab, printed: &str, n: usize) {
    for i in 0..n {
        for j in 1..=n {
            let entry: String = tab.ask(&format!(
                "document.querySelector('[data-figure=workbench] .drawing > svg > g:nth-of-type({}) > text').textContent",
                16 + n * i + j
            ));
            let line = printed.lines().filter(|line| line.contains('│')).nth(i).unwrap();
            let shown: Vec<_> =
                line.split_whitespace().filter(|word| *word != "│").collect();
            assert_eq!(entry, shown[j - 1], "{printed}");
        }
    }
}

/// The weights of “the boat left the river bank” with each kind of positions, and with keys that heads share: the program that is copied
/// prints what is shown.
#[test]
fn positions_and_shared_keys_of_the_workbench_are_those_of_the_program() {
    let Some(mut reader) = Reader::start() else { return };
    // Two heads of width 2, of which the second is shown, the causal mask, the factor 2.
    let states = [(1, 0), (2, 0), (3, 0), (0, 2), (2, 2)].map(|(positions, shared)| {
        format!(
            "the+boat+left+the+river+bank_5_6_2_1_2_1_2_0_3_0_-5_{positions}_{shared}"
        )
    });
    let at = |state| format!("workbench.html?workbench={state}");
    let programs =
        states.each_ref().map(|state| copied(&mut reader.open(&at(state), LAPTOP), 3));
    let printed = run_with_the_crate(&programs);
    for (i, state) in states.iter().enumerate() {
        assert_shown(&mut reader.open(&at(state), LAPTOP), &printed[i], 6);
        let is_new = !printed[..i].contains(&printed[i]);
        assert!(is_new, "{state} changes nothing:\n{}", programs[i]);
    }
}

/// Keys that heads share, a bias and waves are in the products that the workbench tells.
#[test]
fn the_workbench_tells_the_products_of_shared_keys_and_of_positions() {
    let Some(mut reader) = Reader::start() else { return };
    let mut told = |matrix: usize, positions: usize, shared: usize| -> String {
        let state = format!(
            "the+boat+left+the+river+bank_{matrix}_5_2_1_2_1_1.5_0_3_0_-5_{positions}_{shared}"
        );
        let mut tab = reader.open(&format!("workbench.html?workbench={state}"), LAPTOP);
        let said = says(&mut tab, "workbench").replace('−', "-");
        let (_, told) = said.split_once(", row 5, column 2: ").unwrap();
        told.split_once(". Slope").unwrap().0.to_owned()
    };
    for matrix in [2, 3] {
        let products = told(matrix, 0, 2);
        let (products, value) = products.split_once(" ≈ ").unwrap();
        let value: f64 = value.parse().unwrap();
        assert!((told_sum(products) - value).abs() < 0.05, "{products} ≈ {value}");
    }
    // Row 5 stands three tokens behind row 2, and the second of two heads has the slope 1/256.
    let score = told(4, 3, 0);
    assert!(score.contains(" - 0.01 ≈ "), "{score}");
    assert!(told(1, 2, 0).ends_with(", turned by the angle of position 4"));
    let wave = format!("0.00 + the wave {:.2} ≈ {:.2}", 4_f64.cos(), 4_f64.cos());
    assert_eq!(told(0, 1, 0), wave);
}

#[test]
fn the_experiments_set_the_workbench() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("workbench.html", LAPTOP);
    let links: Vec<String> = tab.ask(
        "[...document.querySelectorAll('main li a[href*=\"?workbench=\"]')].map(link => link.getAttribute('href'))",
    );
    drop(tab);
    let expected = [
        "A, row 1, column 1: 0.33,",
        "A, row 2, column 1: 0.50,",
        "A, row 6, column 2: 0.17,",
        "dS, row 1, column 1: 1.00 · ",
        "A, row 6, column 2: ",
        "A, row 1, column 1: ",
        "A, row 1, column 1: ",
        "A, row 1, column 1: ",
        "Slope with respect to b_k, row 1, column 2: 0.000000000 by",
    ];
    assert_eq!(links.len(), expected.len());
    for (link, expected) in links.iter().zip(expected) {
        let mut tab = reader.open(link, LAPTOP);
        let said = says(&mut tab, "workbench");
        assert!(said.contains(expected), "{link}: {said}");
        let changed: String = tab.ask(
            "document.querySelector('[data-figure=workbench] .buttons > :nth-child(2)').getAttribute('aria-disabled')",
        );
        assert_eq!(changed, "false", "{link} sets nothing");
    }
}

#[test]
fn a_step_goes_to_the_next_matrix_and_back() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("workbench.html", LAPTOP);
    let mut press = |button: usize| {
        let selector = format!("[data-figure=workbench] .steps > :nth-child({button})");
        let point = point_of(&mut tab, &selector, 0.5);
        tab.click(point);
        let said = says(&mut tab, "workbench");
        said.split(',').next().unwrap().to_owned()
    };
    let matrices = ["O", "Y", "dY", "dO"];
    assert_eq!(matrices.map(|_| press(2)), matrices);
    assert_eq!(press(1), "dY");
    // Beyond the last matrix there is none.
    for _ in 0..8 {
        press(2);
    }
    assert_eq!(press(1), "dK");
}

#[test]
fn a_nudged_parameter_moves_the_loss_as_the_backward_pass_says() {
    let Some(mut reader) = Reader::start() else { return };
    let x = playground_native::Matrix::new(6, 4, &by_rows(&example::river().x));
    let mask = playground_native::Mask::none();
    let layer = playground_native::Layer::new(&x.ok().unwrap(), 2, 2, 1, 1.0, &mask, 0.0);
    let layer = layer.ok().unwrap();
    for (which, name) in layer.parameter_names().iter().enumerate() {
        let gradient = layer.gradient(which).ok().unwrap();
        let entry = gradient.entries()[gradient.columns().min(2) - 1];
        let state = format!(
            "the%20boat%20left%20the%20river%20bank_5_1_2_1_1_0_1_0_1_{which}_-5"
        );
        let mut tab = reader.open(&format!("workbench.html?workbench={state}"), LAPTOP);
        let said = says(&mut tab, "workbench").replace('−', "-");
        let (_, slopes) =
            said.split_once(&format!("Slope with respect to {name}, row 1, ")).unwrap();
        let numbers: Vec<f64> =
            slopes.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [backward, measured] = numbers[..] else { panic!("{said}") };
        assert!((backward - entry).abs() < 1e-9, "{name}: {said}");
        assert!((measured - entry).abs() < 1e-8, "{name}: {said}");
    }
}

/// The sum of products that the workbench tells, of rounded numbers: `(a · b + c · d) / √w`.
fn told_sum(told: &str) -> f64 {
    let (sum, root) =
        match told.strip_prefix('(').and_then(|told| told.split_once(") / √")) {
            Some((sum, width)) => (sum, width.parse::<f64>().unwrap().sqrt()),
            None => (told, 1.0),
        };
    let product = |term: &str| {
        let (a, b) = term.split_once(" · ").unwrap();
        a.parse::<f64>().unwrap() * b.parse::<f64>().unwrap()
    };
    sum.split(" + ").map(product).sum::<f64>() / root
}

#[test]
fn entries_of_the_workbench_are_the_products_that_it_tells() {
    let Some(mut reader) = Reader::start() else { return };
    let x = playground_native::Matrix::new(6, 4, &by_rows(&example::river().x));
    let mask = playground_native::Mask::causal();
    let layer = playground_native::Layer::new(&x.ok().unwrap(), 2, 2, 3, 1.5, &mask, 0.0);
    let layer = layer.ok().unwrap();
    for (which, name) in [
        (1, "Q"),
        (2, "K"),
        (3, "V"),
        (4, "S"),
        (6, "O"),
        (7, "Y"),
        (9, "dO"),
        (10, "dV"),
        (11, "dA"),
        (13, "dQ"),
        (14, "dK"),
    ] {
        let matrix = layer.matrix(name, 1).ok().unwrap();
        let entry = matrix.entries()[4 * matrix.columns() + 1];
        let state = format!(
            "the%20boat%20left%20the%20river%20bank_{which}_5_2_1_2_1_1.5_0_3_0_-5"
        );
        let mut tab = reader.open(&format!("workbench.html?workbench={state}"), LAPTOP);
        let said = says(&mut tab, "workbench").replace('−', "-");
        let start = format!("{name}, row 5, column 2: ");
        let products = said.strip_prefix(&start).unwrap();
        let (products, value) = products.split_once(" ≈ ").unwrap();
        assert!(value.starts_with(&format!("{entry:.2}")), "{said}");
        // Each factor is rounded to two digits.
        assert!((told_sum(products) - entry).abs() < 0.05, "{said}");
    }

    // An entry of dS is its weight times what dA has above the row's mean.
    let mut tab = reader.open(
        "workbench.html?workbench=the%20boat%20left%20the%20river%20bank_12_5_2_1_2_1_1.5_0_3_0_-5",
        LAPTOP,
    );
    let [a, d_a, d_s] = ["A", "dA", "dS"].map(|name| layer.matrix(name, 1).ok().unwrap());
    let [a, d_a] = [a, d_a].map(|matrix| matrix.entries()[24..30].to_vec());
    let mean: f64 = a.iter().zip(&d_a).map(|(a, d_a)| a * d_a).sum();
    let expected = format!(
        "dS, row 5, column 2: {:.2} · ({:.2} - {mean:.2}) ≈ {:.2}, where",
        a[1],
        d_a[1],
        d_s.entries()[25],
    );
    let said = says(&mut tab, "workbench").replace('−', "-");
    assert!(said.starts_with(&expected), "{said}\n{expected}");
}

/// Returns the outputs of programs that have the crate at their disposal. They are compiled as modules of one, which takes as long as one.
fn run_with_the_crate(programs: &[String]) -> Vec<String> {
    static LIBRARIES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let project = Project::at(env!("CARGO_MANIFEST_DIR"));
        snippets::libraries(prove::crates_of_tests(&project)).unwrap()
    });
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("main.rs"), folder.path().join("main"));
    let mut text = String::new();
    let mut arms = String::new();
    for (i, program) in programs.iter().enumerate() {
        let program = program.replace("fn main()", "pub fn main()");
        text += &format!("mod program_{i} {{\n{program}\n}}\n");
        arms += &format!("Some(\"{i}\") => program_{i}::main(),\n");
    }
    text += &format!(
        "fn main() -> attention::Result<()> {{\nmatch std::env::args().nth(1).as_deref() {{\n{arms}_ => unreachable!(),\n}}\n}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let mut compiler = process::toolchain("rustc");
    compiler.args(["--edition", "2024"]).args(&*LIBRARIES).arg(source).arg("-o");
    process::run(compiler.arg(&binary)).unwrap();
    let run = |i: usize| {
        let output = Command::new(&binary).arg(i.to_string()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    (0..programs.len()).map(run).collect()
}

/// What is typed is judged by the crate: the right weights, those of a slip, and what is no answer.
#[test]
fn rows_by_hand_are_checked_against_the_crate() {
    let Some(mut reader) = Reader::start() else { return };
    let q = nalgebra::dmatrix![1.0, 2.0];
    let k = nalgebra::dmatrix![1.0, 0.0; 0.0, 1.0; 2.0, -1.0];
    let weights = |factor: f64| {
        let (_, cache) =
            attention::attention(&(&q * factor), &k, &k, Mask::none()).unwrap();
        let digits = cache.weights.iter().map(|weight| format!("{weight:.2}"));
        digits.collect::<Vec<_>>().join("%20")
    };
    let row = [
        (String::new(), "How much weight does the query give to each key?"),
        (weights(1.0), "Right."),
        (weights(2.0_f64.sqrt()), "No: these are the weights without the scale."),
        (weights(0.5_f64.sqrt()), "No: you divided by the width."),
        ("0.5%200.5".to_owned(), "Type 3 numbers"),
        ("0.5%20half%200".to_owned(), "Type 3 numbers"),
        ("1%200%200".to_owned(), "No: look again at number 1 and 2"),
    ];
    for (answer, expected) in row {
        let page = format!("scaled-dot-product-attention.html?by-hand=0_{answer}");
        let mut tab = reader.open(&page, LAPTOP);
        let said = says(&mut tab, "by-hand");
        assert!(said.starts_with(expected), "{answer}: {said}");
    }
    // The values are 0 to 3; the mask is causal, or a window of two or of three.
    let cached = [
        ("0_1%203/2", "Right."),
        ("0_0%200.5", "No: this mask starts in the top left corner."),
        ("0_1.5%201.5", "No: this is without a mask."),
        ("1_1.5%202.5", "Right."),
        ("1_1%202", "No: this window is too wide by one."),
        ("2_1%202", "Right."),
        ("2_1.5%202.5", "No: this window is too narrow by one."),
    ];
    for (answer, expected) in cached {
        let mut tab = reader.open(&format!("decoding.html?by-hand=0_{answer}"), LAPTOP);
        let said = says(&mut tab, "by-hand");
        assert!(said.starts_with(expected), "{answer}: {said}");
    }
}
