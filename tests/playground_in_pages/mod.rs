//! The figures that move, driven as a reader does: what they show is what the crate computes, by key, by pointer and by finger.

use crate::support::browser::{Browser, Key, Screen, Tab};
use crate::support::server::Site;
use crate::{LAPTOP, PHONE, book, chromium, wait_for_turn};
use ::playground as playground_native;
use attention::nalgebra::{DMatrix, DVector};
use attention::{Mask, example};
use std::any::Any;
use std::env;
use std::path::Path;
use xtask::{files, playground};

/// The pages with figures that move.
const PAGES: [&str; 7] = [
    "gradient-checking.html",
    "intuition.html",
    "masking.html",
    "online-softmax.html",
    "scaled-dot-product-attention.html",
    "softmax.html",
    "why-sqrt-d-k.html",
];

/// The built book, if its figures can move here.
fn moving_book() -> Option<(tempfile::TempDir, Vec<String>)> {
    if !playground::can_be_built() {
        let required = env::var_os("REQUIRE_BROWSER").is_some_and(|value| value == "1");
        assert!(!required, "nothing compiles for WebAssembly: {}", playground::HOW_TO);
        eprintln!("skipped: nothing compiles for WebAssembly; {}", playground::HOW_TO);
        return None;
    }
    Some(book())
}

/// Someone with a browser, and the book on a server.
struct Reader {
    browser: Browser,
    site: Site,
    _folder: tempfile::TempDir,
    _turn: Box<dyn Any>,
}

impl Reader {
    /// None where there is no browser, or nothing that compiles for WebAssembly.
    fn start() -> Option<Self> {
        let program = chromium()?;
        let (folder, _) = moving_book()?;
        let site = Site::serve(folder.path());
        let turn = Box::new(wait_for_turn());
        let browser = Browser::start(program);
        Some(Self { browser, site, _folder: folder, _turn: turn })
    }

    /// Opens an address and waits until all of its figures move.
    fn open(&mut self, address: &str, screen: Screen) -> Tab<'_> {
        let mut tab = self.browser.open(screen);
        tab.go(&self.site.url(address));
        tab.run(
            "new Promise(done => { const look = () => document.querySelector('figure[data-moves]:not(.moving)') \
             ? requestAnimationFrame(look) : done(); look(); })",
        );
        tab
    }
}

fn says(tab: &mut Tab, figure: &str) -> String {
    tab.ask(&format!(
        "document.querySelector('[data-figure={figure}] .says').textContent"
    ))
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
    format!(
        "Weights: first {:.3}, second {:.3}, third {:.3}. The first is {ratio:.digits$} times the second.",
        weights[0], weights[1], weights[2],
    )
}

#[test]
fn only_the_pages_that_use_the_playground_ask_for_it() {
    let Some((folder, _)) = moving_book() else { return };
    let asks =
        |page: &Path| files::read(page).unwrap().contains("<meta name=\"playground\"");
    let mut pages: Vec<_> = files::with_extension(folder.path(), "html")
        .into_iter()
        .filter(|page| asks(page))
        .map(|page| files::relative(&page, folder.path()))
        .collect();
    pages.sort();
    assert_eq!(pages, PAGES);
    let compressed: usize = files::under(&folder.path().join("playground"))
        .iter()
        .map(|file| {
            let mut encoder =
                flate2::write::GzEncoder::new(vec![], flate2::Compression::default());
            std::io::Write::write_all(&mut encoder, &std::fs::read(file).unwrap())
                .unwrap();
            encoder.finish().unwrap().len()
        })
        .sum();
    assert!(compressed <= 200 * crate::KIB, "{compressed} bytes");
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

    // All scores move together, and the weights stay. The factor changes them.
    focus(&mut tab, "#softmax-shift");
    tab.press(Key::RIGHT);
    assert_eq!(
        tab.ask::<String>("document.getElementById('softmax-shift').value"),
        "0.5"
    );
    assert_eq!(says(&mut tab, "softmax"), softmax_says([2.0, 1.0, -1.0]));
    focus(&mut tab, "#softmax-factor");
    tab.press(Key::HOME);
    assert_eq!(says(&mut tab, "softmax"), softmax_says([0.0; 3]));

    // The state stands in the address, and another reader who opens it sees the same.
    let address: String = tab.ask("location.pathname.slice(1) + location.search");
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
        softmax_says([2.0, 1.0, -1.0].map(|score| 1.3 * score))
    );
    for (button, scores) in [(1, 1.2), (2, 1.0)] {
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
    assert_eq!(tab.ask::<String>("location.search"), "");
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
        format!("Row {}, column {}.", i + 1, j + 1)
            + "|"
            + &format!("= {:.2}.", scores[(i, j)]).replace('-', "−")
    };
    let is_shown = |tab: &mut Tab, i, j| {
        let said = says(tab, "steps");
        let expected = shows(i, j);
        let (start, end) = expected.split_once('|').unwrap();
        assert!(said.starts_with(start) && said.ends_with(end), "{said}\n{expected}");
    };
    is_shown(&mut tab, 2, 1);
    let point = point_of(&mut tab, "[data-figure=steps] .drawing g:nth-of-type(36)", 0.5);
    tab.click(point);
    is_shown(&mut tab, 5, 5);
    assert_eq!(tab.ask::<String>("location.search"), "?steps=0_4_6_6");
}

#[test]
fn one_word_gets_the_weights_that_the_page_prints() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("intuition.html", LAPTOP);
    let words = |sentence: example::Sentence| {
        let x = sentence.x;
        let (output, cache) = attention::attention(&x, &x, &x, &Mask::none()).unwrap();
        let (weights, out) =
            (cache.weights.row(5).into_owned(), output.row(5).into_owned());
        let largest = weights.transpose().imax();
        format!(
            "“bank” gives most to “{}”, {:.0} %, and becomes water {:.2}, money {:.2}, place {:.2}, action {:.2}.",
            sentence.tokens[largest],
            100.0 * weights[largest],
            out[0],
            out[1],
            out[2],
            out[3],
        )
    };
    assert_eq!(says(&mut tab, "bank"), words(example::river()));
    tab.run("(() => { const select = document.getElementById('bank-sentence'); select.value = 1; select.dispatchEvent(new Event('change')); })()");
    assert_eq!(says(&mut tab, "bank"), words(example::city()));
}

#[test]
fn the_order_of_the_keys_and_a_second_worker_change_no_output() {
    let Some(mut reader) = Reader::start() else { return };
    let x = example::river().x;
    let [q, k, v] = example::projections().map(|w| &x * w);
    let (output, _) = attention::attention(&q, &k, &v, &Mask::none()).unwrap();
    let end = format!("That is the whole row's output, {:.3}.", output[(5, 0)]);
    let largest = attention::scaled_scores(&q, &k).unwrap().row(5).max();
    // The order, all six keys, and where a second worker begins.
    for state in ["0_6_7", "1_6_7", "2_6_3", "3_6_1"] {
        let mut tab = reader.open(&format!("online-softmax.html?online={state}"), LAPTOP);
        let said = says(&mut tab, "online");
        assert!(
            said.starts_with(&format!("After 6 of 6 keys: m = {largest:.3},")),
            "{state}: {said}"
        );
        assert!(said.ends_with(&end), "{state}: {said}");
    }
    let mut tab = reader.open("online-softmax.html?online=0_0_7", LAPTOP);
    let said = says(&mut tab, "online");
    assert!(
        said.starts_with(
            "After 0 of 6 keys: m = −∞, ℓ = 0.000, o = 0.000, o / ℓ = 0.000."
        ),
        "{said}"
    );
}

#[test]
fn random_scores_are_divided_as_chosen() {
    let Some(mut reader) = Reader::start() else { return };
    for (divisor, name) in ["1", "√d", "d"].into_iter().enumerate() {
        let address = format!("why-sqrt-d-k.html?root=3_{divisor}_7");
        let mut tab = reader.open(&address, LAPTOP);
        let products = playground_native::random_products(8, 256, 7).unwrap();
        let by = 256_f64.powf(0.5 * divisor as f64);
        let scores = DVector::from_vec(products) / by;
        let weights = attention::softmax(&scores).unwrap();
        let jacobian = attention::softmax_jacobian(&weights).unwrap();
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

#[test]
fn measured_slopes_are_those_of_the_crate() {
    let Some(mut reader) = Reader::start() else { return };
    let check = playground_native::SlopeCheck::new().unwrap();
    // A step of 10⁻⁵ is near the best in f64, and far from it in f32.
    let measured = [check.measured(1e-5).unwrap(), check.measured_in_f32(1e-5).unwrap()];
    assert!((measured[0] - check.analytic()).abs() < 1e-9);
    assert!((measured[1] - check.analytic()).abs() > 1e-5);
    let mut tab = reader.open("gradient-checking.html?slope=-5_0", LAPTOP);
    let said = says(&mut tab, "slope");
    let start =
        format!("Backward pass: {:.12}. Measured: {:.9}", check.analytic(), measured[0]);
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
