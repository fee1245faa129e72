//! axe-core, the checks of accessibility that browsers' own tools use, on each page of the book and in the states of the figures that move.
//!
//! It takes `axe.min.js` of npm's package `axe-core`: the file that the variable `AXE` names, or `target/axe/axe.min.js`. Without it, nothing
//! is tested and the test passes, unless `REQUIRE_AXE=1` is set.

use crate::support::browser::{Screen, Tab};
use crate::{CHECKS, LAPTOP, PHONE, book, chromium, of_each};
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// The script that runs inside the page, beside axe-core.
const SCRIPT: &str = include_str!("../support/axe.js");

#[test]
#[ignore = "`.ci/run slow`: takes minutes"]
fn axe_finds_no_violation() {
    let Some(axe) = axe() else { return };
    let Some(program) = chromium() else { return };
    let (folder, pages) = book();
    let looked = of_each(pages, &program, folder, |browser, site, page| {
        let (mut complaints, mut looked_at) = (vec![], 0);
        for screen in [LAPTOP, PHONE] {
            let mut tab = browser.open(screen);
            for script in [CHECKS, &axe, SCRIPT] {
                tab.run_first(script);
            }
            tab.go(&site.url(page));
            tab.run("checks.shown()");
            tab.run("checks.whole()");
            tab.run("axeChecks.figuresMove()");
            tab.run("checks.unfold()");
            // One theme for each screen, and the figures' states on the one with less room.
            let theme = if screen.dark { "navy" } else { "light" };
            let mut found = look(&mut tab, theme, "page()");
            if screen.touch {
                let states: Vec<(String, String)> = tab.ask("axeChecks.states()");
                let moving: usize =
                    tab.ask("document.querySelectorAll('[data-moves]').length");
                assert!(states.len() >= moving, "{page}: figures without a control");
                tab.run("axeChecks.keepFigures()");
                for (control, value) in &states {
                    let state = format!("inState(['{control}', '{value}'])");
                    found.extend(look(&mut tab, theme, &state));
                }
                looked_at = states.len();
            }
            if page == "welcome.html" {
                tab.go(&site.url("welcome.html?search=mask"));
                tab.run("checks.shown()");
                tab.run(
                    "new Promise(done => { const look = () => document.querySelector('#mdbook-searchresults a') \
                     ? done() : setTimeout(look, 50); look(); })",
                );
                found.extend(look(&mut tab, theme, "page()"));
            }
            let Screen { width, .. } = screen;
            complaints
                .extend(found.iter().map(|it| format!("{page}, {width} px wide, {it}")));
        }
        (complaints, looked_at)
    });
    let (complaints, states): (Vec<_>, Vec<_>) = looked.into_iter().unzip();
    let looked_at: usize = states.iter().sum();
    println!("{} pages, and figures in {looked_at} states", pages.len());
    assert!(looked_at > 0, "no figure moved");
    let complaints = complaints.concat();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Returns what one of the functions of `axe.js` finds in a theme.
fn look(tab: &mut Tab, theme: &str, function: &str) -> Vec<String> {
    tab.run(&format!("checks.wear('{theme}')"));
    let found: Vec<String> = tab.ask(&format!("axeChecks.{function}"));
    found.iter().map(|it| format!("{theme}: {it}")).collect()
}

/// axe-core's script, if there is one.
fn axe() -> Option<String> {
    let named = env::var_os("AXE").filter(|named| !named.is_empty());
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/axe/axe.min.js");
    let file = named.clone().map_or(default, Into::into);
    if named.is_none() && !file.is_file() {
        let required = env::var_os("REQUIRE_AXE").is_some_and(|value| value == "1");
        assert!(!required, "no {}, and REQUIRE_AXE is set; set AXE=…", file.display());
        // Past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "skipped: no axe.min.js found; set AXE=…");
        return None;
    }
    Some(
        fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display())),
    )
}
