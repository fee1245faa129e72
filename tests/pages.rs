//! Every page of the book as a reader's browser shows it: how much it loads and from where, whether
//! it holds still and fits its screen, its colours, its formulas, its navigation.
//!
//! This needs Chromium, or a browser built on it. Without one, nothing is tested and the tests pass,
//! unless `REQUIRE_BROWSER=1` is set. With `SCREENSHOTS=folder` every page is pictured there.

mod axe_in_pages;
mod playground_in_pages;
mod reading_aids;
mod support;

use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;
use support::browser::{self, Browser, Screen, Tab};
use support::server::{Sent, Site};
use xtask::{build, files, project::Project};

/// The number of bytes that a page may load, fonts included, when nothing of it has been loaded before. The playground and the data of its figures,
/// which come when the page can be read, have limits of their own.
const MOST_ON_THE_WIRE: usize = 400 * KIB;

/// The number of elements of the text that may be laid out before a page first shows itself: the work that readers wait for on a slow phone.
const MOST_LAID_OUT: usize = 3000;

const KIB: usize = 1024;

const LAPTOP: Screen = Screen { width: 1400, height: 900, dark: false, touch: false };

const PHONE: Screen = Screen { width: 390, height: 844, dark: true, touch: true };

/// Widths at which a phone, a tablet or a zoomed page shows formulas.
const NARROW_AND_WIDE: &[u32] = &[320, 360, 430, 621, 768, 1024];

/// Windows with room for the chapters and the headings of a page beside the text, for one of the two,
/// and for neither.
const WINDOWS: &[Screen] = &[
    Screen { width: 1920, height: 1080, ..LAPTOP },
    Screen { width: 1540, height: 860, ..LAPTOP },
    Screen { width: 1400, height: 800, ..LAPTOP },
    Screen { width: 1280, height: 720, ..LAPTOP },
    Screen { width: 768, height: 1024, ..PHONE },
    PHONE,
];

/// The script that runs inside the page.
const CHECKS: &str = include_str!("support/checks.js");

/// The script that names the fonts that are cut.
const CUT_FONTS: &str = include_str!("../theme/cut_fonts.py");

/// Files that mdBook adds to the chapters.
const NO_CHAPTERS: &[&str] = &["404.html", "print.html", "toc.html"];

#[test]
#[ignore = "`.ci/run slow`: takes minutes"]
fn every_page_shows_what_it_should_on_a_phone_on_a_laptop_and_without_scripts() {
    look_at_every_page(&[PHONE, LAPTOP], visit_without_scripts);
}

fn look_at_every_page(
    screens: &[Screen],
    also: impl Fn(&mut Browser, &Site, &str) -> Vec<String> + Sync,
) {
    let Some(program) = chromium() else { return };
    let (folder, pages) = book();
    let looked = of_each(pages, &program, folder, |browser, site, page| {
        let mut complaints = also(browser, site, page);
        let visits: Vec<_> =
            screens.iter().map(|screen| visit(browser, site, page, *screen)).collect();
        complaints.extend(visits.iter().flat_map(|visit| visit.complaints.clone()));
        let complaints = complaints.iter().map(|it| format!("{page}: {it}"));
        (visits, complaints.collect::<Vec<_>>())
    });
    let (visits, complaints): (Vec<_>, Vec<_>) = looked.into_iter().unzip();
    println!("{}", table(&visits.concat()));
    let complaints = complaints.concat();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Returns what `look` says of each page, in the order of the pages. As many browsers as there may be take turns at them.
fn of_each<T: Send>(
    pages: &[String],
    program: &Path,
    folder: &Path,
    look: impl Fn(&mut Browser, &Site, &str) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let work = || {
        let site = Site::serve(folder);
        let mut browser = wait_for_turn(program);
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = (page, look(&mut browser, &site, page));
            found.lock().unwrap_or_else(PoisonError::into_inner).push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..browsers_at_once() {
            scope.spawn(work);
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(page, _)| *page);
    found.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn chapters_and_headings_can_be_found_in_any_window() {
    let Some(mut reader) = Reader::start() else { return };
    let (folder, pages) = book();
    let page = most_headings(folder, pages);
    let complaints: Vec<_> = WINDOWS
        .iter()
        .flat_map(|window| navigate(&mut reader.browser, &reader.site, page, *window))
        .collect();
    assert!(complaints.is_empty(), "\n{page}:\n{}", complaints.join("\n"));
}

/// The book as it is published, and the pages of it that are chapters. It is built once for all tests, and none changes it.
fn book() -> (&'static Path, &'static [String]) {
    static BOOK: LazyLock<(PathBuf, Vec<String>)> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("book");
        let _ = fs::remove_dir_all(&folder); // of an earlier run
        fs::create_dir_all(&folder).unwrap();
        let project = Project::at(env!("CARGO_MANIFEST_DIR"));
        build::build_into(&project, &folder, &build::Options::default())
            .unwrap_or_else(|error| panic!("{error:#}"));
        let pages = chapters(&folder);
        assert!(!pages.is_empty(), "the book has no pages");
        (folder, pages)
    });
    (&BOOK.0, &BOOK.1)
}

/// Someone with a browser, and the book on a server.
struct Reader {
    browser: Turn,
    site: Site,
}

impl Reader {
    /// None where there is no browser.
    fn start() -> Option<Self> {
        let program = chromium()?;
        let site = Site::serve(book().0);
        Some(Self { browser: wait_for_turn(&program), site })
    }

    /// Opens an address and waits until the page is shown.
    fn arrive(&mut self, address: &str, screen: Screen) -> Tab<'_> {
        let mut tab = self.browser.open(screen);
        tab.run_first(CHECKS);
        tab.go(&self.site.url(address));
        tab.run("checks.shown()");
        tab
    }

    /// Opens an address and waits until the page is shown and all of its figures move that can.
    fn open(&mut self, address: &str, screen: Screen) -> Tab<'_> {
        let mut tab = self.arrive(address, screen);
        tab.run(
            "document.querySelector('figure[data-moves] > .play')?.click(); new Promise(done => { const look = () => document.querySelector('figure[data-moves]:not(.moving)') \
             ? requestAnimationFrame(look) : done(); look(); })",
        );
        tab
    }
}

/// The pages that are chapters. The first chapter is there twice, and listed once.
fn chapters(folder: &Path) -> Vec<String> {
    let name = |file: &PathBuf| files::relative(file, folder);
    let mut pages = files::with_extension(folder, "html");
    let redirects = |file: &PathBuf| {
        files::read(file).unwrap().contains("<meta http-equiv=\"refresh\"")
    };
    pages.retain(|file| !NO_CHAPTERS.contains(&name(file).as_str()) && !redirects(file));
    let index = files::read(&folder.join("index.html")).unwrap();
    let copies = |file: &PathBuf| files::read(file).unwrap() == index;
    let has_copy = pages.iter().filter(|file| copies(file)).count() > 1;
    pages.iter().map(name).filter(|page| !(has_copy && page == "index.html")).collect()
}

/// The page with the most headings.
fn most_headings<'pages>(folder: &Path, pages: &'pages [String]) -> &'pages str {
    let headings = |page: &&String| {
        let html = files::read(&folder.join(page)).unwrap();
        ["<h2 ", "<h3 ", "<h4 "]
            .map(|tag| html.matches(tag).count())
            .iter()
            .sum::<usize>()
    };
    pages.iter().max_by_key(headings).unwrap()
}

/// The browser to test with, if there is one.
fn chromium() -> Option<PathBuf> {
    let found = browser::find();
    if found.is_none() {
        let required = env::var_os("REQUIRE_BROWSER").is_some_and(|value| value == "1");
        assert!(!required, "no Chromium found, and REQUIRE_BROWSER is set; set CHROME=…");
        // Past the test harness, which would keep it to itself.
        let _ = writeln!(std::io::stderr(), "skipped: no Chromium found; set CHROME=…");
    }
    found
}

/// Browsers that may run at once: a busy machine disturbs what they measure.
fn browsers_at_once() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(4)
}

/// A browser for as long as it is needed; then the next test has it, since each of its tabs begins with nothing. When none is needed any more,
/// and after a panic, it ends.
struct Turn(Option<Browser>);

#[derive(Default)]
struct Turns {
    running: usize,
    idle: Vec<Browser>,
}

static TURNS: LazyLock<Mutex<Turns>> = LazyLock::new(Mutex::default);
static ENDED: Condvar = Condvar::new();

fn wait_for_turn(program: &Path) -> Turn {
    let turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let is_full = |turns: &mut Turns| turns.running >= browsers_at_once();
    let waited = ENDED.wait_while(turns, is_full);
    let mut turns = waited.unwrap_or_else(PoisonError::into_inner);
    turns.running += 1;
    let idle = turns.idle.pop();
    drop(turns);
    Turn(Some(idle.unwrap_or_else(|| Browser::start(program.to_owned()))))
}

impl std::ops::Deref for Turn {
    type Target = Browser;

    fn deref(&self) -> &Browser {
        self.0.as_ref().expect("a turn has a browser")
    }
}

impl std::ops::DerefMut for Turn {
    fn deref_mut(&mut self) -> &mut Browser {
        self.0.as_mut().expect("a turn has a browser")
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        turns.running -= 1;
        turns.idle.extend(self.0.take().filter(|_| !thread::panicking()));
        let unneeded =
            if turns.running == 0 { std::mem::take(&mut turns.idle) } else { vec![] };
        drop(turns);
        ENDED.notify_one();
        drop(unneeded);
    }
}

/// The findings of a look at a page.
#[derive(Clone)]
struct Visit {
    page: String,
    width: u32,
    on_the_wire: usize,
    uncompressed: usize,
    shift: f64,
    /// Seconds until the text was there, in its fonts.
    shown_after: f64,
    /// Elements of the text that were laid out by then.
    laid_out: usize,
    complaints: Vec<String>,
}

fn table(visits: &[Visit]) -> String {
    let mut table = format!(
        "{:<36} {:>5} {:>12} {:>13} {:>8} {:>6}\n",
        "page", "width", "on the wire", "uncompressed", "laid out", "CLS"
    );
    for Visit { page, width, on_the_wire, uncompressed, laid_out, shift, .. } in visits {
        let (on_the_wire, uncompressed) = (kib(*on_the_wire), kib(*uncompressed));
        let _ = writeln!(
            table,
            "{page:<36} {width:>5} {on_the_wire:>12} {uncompressed:>13} {laid_out:>8} {shift:>6.3}"
        );
    }
    table
}

fn kib(bytes: usize) -> String {
    format!("{:.1} KiB", bytes as f64 / KIB as f64)
}

/// Visits a page. It waits 3 s for its fonts and then shows itself without, and moves when they
/// come: on a machine so busy that this may have happened, the visit does not count.
fn visit(browser: &mut Browser, site: &Site, page: &str, screen: Screen) -> Visit {
    let mut visit = read(browser, site, page, screen);
    for _ in 0..2 {
        if visit.shift == 0.0 || visit.shown_after < 2.5 {
            break;
        }
        visit = read(browser, site, page, screen);
    }
    visit
}

/// Reads a page to its end as someone does who has never seen the site, then looks closely.
fn read(browser: &mut Browser, site: &Site, page: &str, screen: Screen) -> Visit {
    let mut tab = browser.open(screen);
    tab.run_first(CHECKS);
    site.take_sent();
    tab.go(&site.url(page));
    let mut complaints: Vec<String> = tab.ask("checks.shown()");
    let shown_after = tab.ask::<f64>("performance.now()") / 1000.0;
    let laid_out: usize = tab.ask("checks.laidOutAtFirst()");
    if laid_out > MOST_LAID_OUT {
        complaints.push(format!(
            "{laid_out} elements are laid out at first, more than {MOST_LAID_OUT}"
        ));
    }
    complaints.extend(tab.ask::<Vec<String>>("checks.whole()"));
    tab.run("checks.readToTheEnd()");

    let sent = site.take_sent();
    complaints.extend(weight(&sent));
    complaints.extend(sent.iter().filter(|file| is_whole(file)).map(|file| {
        let name = &file.name;
        format!("loads {name} for a letter that `python3 theme/cut_fonts.py` would add to the cut font")
    }));
    let Shift { value: shift, moved } = tab.ask("checks.shift()");
    if shift != 0.0 {
        complaints.push(format!("the layout shifts by {shift:.4}: {}", moved.join("; ")));
    }
    for check in ["checks.maths()", "checks.fonts()", "checks.meaning()"] {
        complaints.extend(tab.ask::<Vec<String>>(check));
    }
    complaints.extend(look(&mut tab, page, screen));
    complaints.extend(tab.ask::<Vec<String>>("checks.themes()"));
    complaints.extend(traffic(&mut tab, site));
    if screen.touch {
        complaints.extend(formulas(&mut tab, screen));
    }

    let width = screen.width;
    Visit {
        page: page.to_owned(),
        width,
        on_the_wire: sent.iter().map(|file| file.on_the_wire).sum(),
        uncompressed: sent.iter().map(|file| file.uncompressed).sum(),
        shift,
        shown_after,
        laid_out,
        complaints: complaints
            .iter()
            .map(|it| format!("{width} px wide, {it}"))
            .collect(),
    }
}

/// The cumulative layout shift of a page, and which elements moved.
#[derive(Deserialize)]
struct Shift {
    value: f64,
    moved: Vec<String>,
}

/// Returns a complaint if all that was sent is too much, with what weighs most.
fn weight(sent: &[Sent]) -> Option<String> {
    let comes_later = |file: &&Sent| {
        ["playground/", "trained/", "opened/"].iter().any(|it| file.name.starts_with(it))
    };
    let mut heaviest: Vec<_> = sent.iter().filter(|file| !comes_later(file)).collect();
    let total: usize = heaviest.iter().map(|file| file.on_the_wire).sum();
    heaviest.sort_by_key(|file| std::cmp::Reverse(file.on_the_wire));
    let named: Vec<_> = heaviest
        .iter()
        .take(5)
        .map(|file| format!("{} {}", file.name, kib(file.on_the_wire)))
        .collect();
    (total > MOST_ON_THE_WIRE).then(|| {
        let (total, most) = (kib(total), kib(MOST_ON_THE_WIRE));
        format!("loads {total}, more than {most}: {}", named.join(", "))
    })
}

/// True for a font of which there is a smaller one with the letters of the book. It comes late, and moves all text when it has come.
fn is_whole(file: &Sent) -> bool {
    let name = file.name.rsplit('/').next().and_then(|name| name.rsplit_once('-'));
    name.is_some_and(|(name, _hash)| CUT_FONTS.contains(&format!("\"{name}\": \"")))
}

/// The layout with everything unfolded, and pictures of it in a light and a dark theme.
fn look(tab: &mut Tab, page: &str, screen: Screen) -> Vec<String> {
    tab.run("scrollTo(0, 0); checks.unfold()");
    let complaints = tab.ask("checks.layout()");
    if let Some(folder) = env::var_os("SCREENSHOTS").map(PathBuf::from) {
        for theme in ["light", "navy"] {
            tab.run(&format!("checks.wear('{theme}')"));
            let stem = page.trim_end_matches(".html");
            let file = folder.join(format!("{stem}-{theme}-{}.png", screen.width));
            fs::create_dir_all(&folder).unwrap();
            fs::write(file, tab.screenshot()).unwrap();
        }
    }
    complaints
}

/// Complaints about formulas that fit at some other width no more.
fn formulas(tab: &mut Tab, screen: Screen) -> Vec<String> {
    let mut complaints = Vec::new();
    for &width in NARROW_AND_WIDE {
        tab.use_screen(Screen { width, ..screen });
        let found: Vec<String> = tab.ask("checks.formulasFit()");
        complaints.extend(found.iter().map(|it| format!("and at {width} px {it}")));
    }
    complaints
}

/// Requests to other hosts, requests that fail, and errors that the page reports.
fn traffic(tab: &mut Tab, site: &Site) -> BTreeSet<String> {
    let ours = site.url("");
    let foreign = |url: &str| {
        let local =
            ["data:", "blob:", "about:"].iter().any(|scheme| url.starts_with(scheme));
        (!local && !url.starts_with(&ours))
            .then(|| format!("asks another host for {url}"))
    };
    let mut complaints = BTreeSet::new();
    let timed: Vec<String> = tab.ask("checks.requested()");
    complaints.extend(timed.iter().filter_map(|url| foreign(url)));
    let mut urls = BTreeMap::new();
    for (event, what) in tab.events() {
        let text = |pointer: &str| {
            what.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
        };
        match event {
            "Network.requestWillBeSent" => {
                urls.insert(text("/requestId"), text("/request/url"));
                complaints.extend(foreign(text("/request/url")));
            }
            "Network.webSocketCreated" => complaints.extend(foreign(text("/url"))),
            "Network.responseReceived" => {
                let status = what["response"]["status"].as_u64().unwrap_or_default();
                if status >= 400 {
                    complaints
                        .insert(format!("{} answers {status}", text("/response/url")));
                }
            }
            "Network.loadingFailed" if what["canceled"] != true => {
                let url = urls.get(text("/requestId")).copied().unwrap_or("a request");
                complaints.insert(format!("{url} fails: {}", text("/errorText")));
            }
            "Runtime.consoleAPICalled"
                if ["error", "assert"].contains(&text("/type")) =>
            {
                complaints.insert(format!("console error: {}", said(&what["args"])));
            }
            "Audits.issueAdded" if text("/issue/code") == "DeprecationIssue" => {
                let what = text("/issue/details/deprecationIssueDetails/type");
                complaints.insert(format!("uses what browsers will drop: {what}"));
            }
            "Runtime.exceptionThrown" => {
                let exception = text("/exceptionDetails/exception/description");
                complaints.insert(format!("exception: {exception}"));
            }
            "Log.entryAdded" if text("/entry/level") == "error" => {
                let (message, url) = (text("/entry/text"), text("/entry/url"));
                complaints.insert(format!("console error: {message} ({url})"));
            }
            _ => {}
        }
    }
    complaints
}

/// The words that a script gave to `console.error`.
fn said(arguments: &Value) -> String {
    let arguments = arguments.as_array().into_iter().flatten();
    let words = arguments.map(|argument| match argument["value"].as_str() {
        Some(text) => text.to_owned(),
        None => argument["description"].as_str().unwrap_or("?").to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Looks for the chapters and the headings of a page in a window.
fn navigate(
    browser: &mut Browser,
    site: &Site,
    page: &str,
    window: Screen,
) -> Vec<String> {
    let mut tab = browser.open(window);
    tab.run_first(CHECKS);
    tab.go(&site.url(page));
    let mut complaints: Vec<String> = tab.ask("checks.shown()");
    for check in ["checks.headings()", "checks.place()"] {
        complaints.extend(tab.ask::<Vec<String>>(check));
    }
    // In a narrow window mdBook closes the sidebar.
    if window.width >= 1080 {
        complaints.extend(tab.ask::<Vec<String>>("checks.chapters()"));
        let Shift { value: shift, moved } = tab.ask("checks.shift()");
        if shift != 0.0 {
            let moved = moved.join("; ");
            complaints.push(format!("the layout shifts by {shift:.4}: {moved}"));
        }
        complaints.extend(tab.ask::<Vec<String>>("checks.closeSidebar()"));
        complaints.extend(tab.ask::<Vec<String>>("checks.headings()"));
    }
    let Screen { width, height, .. } = window;
    complaints.iter().map(|it| format!("{width} × {height} px, {it}")).collect()
}

/// Returns complaints about text that can't be read where no script runs.
fn visit_without_scripts(browser: &mut Browser, site: &Site, page: &str) -> Vec<String> {
    let mut tab = browser.open(LAPTOP);
    tab.disable_scripts();
    tab.go(&site.url(page));
    let mut complaints = Vec::new();
    for screen in [LAPTOP, PHONE] {
        tab.use_screen(screen);
        let found: Vec<String> = tab.ask(&format!("{CHECKS}; checks.readable()"));
        let width = screen.width;
        complaints.extend(
            found.iter().map(|it| format!("{width} px wide, without scripts, {it}")),
        );
    }
    complaints
}
