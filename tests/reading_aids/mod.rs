//! The services of a page beyond showing its text: a card beside a link, a copy of what runs, the place where one stopped.

use crate::support::browser::{Key, Tab};
use crate::{LAPTOP, Reader, Shift};
use std::path::Path;
use xtask::files;

/// A chapter file of the book.
fn chapter(name: &str) -> String {
    files::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name)).unwrap()
}

/// Returns the meaning of a word by the glossary.
fn meaning(word: &str) -> String {
    let glossary = chapter("glossary.md");
    let entry = glossary.lines().find(|line| line.contains(&format!("**[{word}]")));
    entry.unwrap().split('|').nth(2).unwrap().trim().to_owned()
}

/// Scrolls an element into the window and tells a point of its first line.
fn point_of(tab: &mut Tab, selector: &str) -> (f64, f64) {
    tab.ask(&format!(
        "(() => {{ const element = document.querySelector('{selector}'); element.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
         const {{ x, y, width, height }} = element.getClientRects()[0]; return [x + width / 2, y + height / 2]; }})()"
    ))
}

/// Waits until the card shows or is gone, and tells its text; an empty one if there is none after 5 s.
fn card(tab: &mut Tab, shows: bool) -> String {
    tab.ask(&format!(
        "new Promise(done => {{ const begun = performance.now(); const look = () => {{ \
         const card = document.querySelector('.preview-card:not([hidden])'); \
         if (Boolean(card) === {shows} || performance.now() - begun > 5000) {{ done(card?.textContent ?? ''); }} \
         else {{ setTimeout(look, 50); }} }}; look(); }})"
    ))
}

/// Longer than a card waits for a pointer that has left it.
const A_WHILE: &str = "new Promise(done => setTimeout(done, 600))";

/// A point where there is no link.
const NOWHERE: (f64, f64) = (700.0, 3.0);

const TERM: &str = "main a.term[href=\"glossary.html#term-attention\"]";
const DESCRIBED: &str =
    "document.querySelector('[aria-describedby=preview-card]')?.textContent ?? ''";

#[test]
fn a_word_of_the_glossary_shows_its_meaning() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("layer.html", LAPTOP);
    let expected = format!("Attention{}", meaning("Attention"));

    let link = point_of(&mut tab, TERM);
    tab.point_at(link);
    assert_eq!(card(&mut tab, true), expected);
    assert_eq!(tab.ask::<String>(DESCRIBED), "attention");

    let on_card = point_of(&mut tab, ".preview-card");
    tab.point_at(on_card);
    tab.run(A_WHILE);
    assert_eq!(card(&mut tab, true), expected, "the card stays under the pointer");

    tab.press(Key::ESCAPE);
    assert_eq!(card(&mut tab, false), "");
    assert_eq!(tab.ask::<String>(DESCRIBED), "");

    let link = point_of(&mut tab, TERM);
    tab.point_at(NOWHERE);
    tab.point_at(link);
    assert_eq!(card(&mut tab, true), expected, "the card comes again");
    tab.point_at(NOWHERE);
    assert_eq!(card(&mut tab, false), "", "the card goes when the pointer has left");
    let Shift { value, moved } = tab.ask("checks.shift()");
    assert_eq!(value, 0.0, "{moved:?}");
}

#[test]
fn a_link_with_the_focus_shows_its_section() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("counting.html", LAPTOP);
    const LINK: &str = "main a[href=\"softmax.html#a-row-at-a-time\"]";
    tab.press(Key::TAB);
    tab.run(&format!("document.querySelector('{LINK}').focus()"));
    let text = card(&mut tab, true);
    let softmax = chapter("softmax.md");
    let (_, section) = softmax.split_once("## A row at a time\n\n").unwrap();
    let beginning: String =
        section.chars().take_while(|c| !"`*$[’'".contains(*c)).collect();
    assert!(beginning.len() > 20, "{beginning}");
    assert!(text.starts_with(&format!("A row at a time{beginning}")), "{text}");
    assert_eq!(tab.ask::<String>(DESCRIBED), "its loops");
    let focusable =
        "document.querySelectorAll('.preview-card :is(a, button, [tabindex])').length";
    assert_eq!(tab.ask::<usize>(focusable), 0);
    tab.run("document.activeElement.blur()");
    assert_eq!(card(&mut tab, false), "");
}

#[test]
fn a_letter_shows_what_it_stands_for() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("memory-wall.html", LAPTOP);
    // The first formula of the text that is this letter alone.
    const LETTER: &str = "[...document.querySelectorAll('main p > .katex, main p > .nowrap > .katex')]\
        .find(formula => formula.querySelector('annotation').textContent === 'R').id = 'letter'";
    tab.run(LETTER);
    let letter = point_of(&mut tab, "#letter");
    tab.point_at(letter);
    let text = card(&mut tab, true);
    let formulas = chapter("formulas.md");
    let row = formulas.lines().find(|line| line.starts_with("| $R$ |")).unwrap();
    let meaning = row.split('|').nth(2).unwrap().trim();
    let meaning = meaning.split('$').next().unwrap();
    assert!(text.starts_with('R') && text.contains(meaning), "{text}");
}

#[test]
fn a_link_to_an_equation_says_its_number_and_shows_it() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("masking.html", LAPTOP);
    const LINK: &str = "main a[href=\"softmax.html#equation-ratio\"]";
    let number: String =
        tab.ask(&format!("document.querySelector('{LINK}').textContent"));
    let link = point_of(&mut tab, LINK);
    tab.point_at(link);
    let text = card(&mut tab, true);
    assert!(text.starts_with(&number), "{text}");
    let formula = "document.querySelector('.preview-card annotation').textContent.trim()";
    let softmax = chapter("softmax.md");
    let (_, equation) = softmax.split_once("\\label{ratio}\n").unwrap();
    assert_eq!(tab.ask::<String>(formula), equation.lines().next().unwrap());
    drop(tab);
    let mut tab = reader.open("softmax.html#equation-ratio", LAPTOP);
    let target = "document.querySelector(':target > .number').textContent";
    assert_eq!(tab.ask::<String>(target), number);
}

#[test]
fn a_copy_is_what_runs() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("gradient-checking.html", LAPTOP);
    tab.run(
        "navigator.clipboard.writeText = async text => { globalThis.copied = text; }",
    );
    // A program whose first lines are hidden, and its last one.
    let copied: String = tab.ask(
        "(() => { const hidden = [...document.querySelectorAll('pre .boring')].find(line => line.textContent.startsWith('let ')); \
         hidden.closest('pre').querySelector('.clip-button').click(); return copied; })()",
    );
    let all: Vec<_> = copied.lines().collect();
    let written = chapter("gradient-checking.md");
    let mut program =
        written.split("```").find(|block| block.contains("\n# let ")).unwrap().lines();
    program.next(); // the language
    let written: Vec<_> = program
        .map(
            |line| if line == "#" { "" } else { line.strip_prefix("# ").unwrap_or(line) },
        )
        .filter(|line| !line.starts_with("Ok::<"))
        .collect();
    assert_eq!(all, written);
}

#[test]
fn formulas_are_soon_there_for_screen_readers() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("softmax.html", LAPTOP);
    let visibility: String = tab.ask(
        "new Promise(done => { const begun = performance.now(); const look = () => { \
         const formulas = [...document.querySelectorAll('main .katex-mathml')]; \
         const waiting = formulas.find(formula => getComputedStyle(formula).contentVisibility !== 'visible'); \
         if (!waiting || performance.now() - begun > 10000) { done(waiting ? 'auto' : 'visible'); } else { setTimeout(look, 200); } }; look(); })",
    );
    assert_eq!(visibility, "visible");
}

#[test]
fn a_name_inside_code_is_found() {
    let Some(mut reader) = Reader::start() else { return };
    // The workbench has it in code alone.
    let mut tab = reader.open("welcome.html?search=ForwardOptions", LAPTOP);
    let found: Vec<String> = tab.ask(
        "new Promise(done => { const begun = performance.now(); const look = () => { \
         const links = [...document.querySelectorAll('#mdbook-searchresults a')].map(link => link.getAttribute('href')); \
         if (links.length > 0 || performance.now() - begun > 10000) { done(links); } else { setTimeout(look, 50); } }; look(); })",
    );
    assert!(found.iter().any(|link| link.contains("workbench.html")), "{found:?}");
}

#[test]
fn the_first_page_leads_back_to_the_last_place() {
    let Some(mut reader) = Reader::start() else { return };
    let url = reader.site.url("welcome.html");
    let mut tab = reader.open("softmax.html", LAPTOP);
    const LINE: &str = "document.querySelector('main .last-place')?.textContent ?? ''";
    tab.run(
        "document.getElementById('the-jacobian').scrollIntoView({ behavior: 'instant' })",
    );
    tab.run(A_WHILE);
    tab.go(&url);
    tab.run("checks.shown()");
    assert_eq!(tab.ask::<String>(LINE), "You were at: Softmax, The Jacobian");
    let leads_to = "document.querySelector('.last-place a').getAttribute('href')";
    assert_eq!(tab.ask::<String>(leads_to), "softmax.html#the-jacobian");
    let Shift { value, moved } = tab.ask("checks.shift()");
    assert_eq!(value, 0.0, "{moved:?}");

    // What others have written there is no place.
    for stored in ["[\"javascript:alert()\"]", "{", "7", "null"] {
        tab.run(&format!("localStorage.setItem('attention-built-place', '{stored}')"));
        tab.go(&url);
        assert_eq!(tab.ask::<String>(LINE), "", "{stored}");
    }
}

#[test]
fn a_quick_question_says_why_an_answer_is_wrong_and_remembers_a_right_one() {
    let Some(mut reader) = Reader::start() else { return };
    let book = reader.site.url("using-this-book.html");
    let url = reader.site.url("shared-keys.html");
    let mut tab = reader.open("shared-keys.html", LAPTOP);
    const SAID: &str =
        "[...document.querySelectorAll('.quiz .verdict')].map(it => it.textContent)";
    const OPEN: &str =
        "[...document.querySelectorAll('.quiz details')].map(it => it.open)";
    let said = |tab: &mut Tab| tab.ask::<Vec<String>>(SAID);
    let open = |tab: &mut Tab| tab.ask::<Vec<bool>>(OPEN);
    assert_eq!(said(&mut tab), ["", "", ""]);

    let type_in = |tab: &mut Tab, text: &str| {
        tab.run(&format!(
            "document.querySelector('.typed input').value = '{text}'; document.querySelector('.typed button').click()"
        ));
    };
    type_in(&mut tab, "two");
    assert!(said(&mut tab)[0].starts_with("That is not a number."));
    type_in(&mut tab, "1/1000");
    assert_eq!(said(&mut tab)[0], "No.");
    type_in(&mut tab, "5");
    let words = said(&mut tab)[0].clone();
    assert!(words.starts_with("No.") && words.len() > 20, "a reason: {words}");
    assert_eq!(open(&mut tab), [false; 3]);
    type_in(&mut tab, "4/2");
    assert_eq!(said(&mut tab)[0], "Right.");
    assert_eq!(open(&mut tab), [true, false, false]);

    // Each choice of the second question in turn: one is right, and each other has a reason.
    let choices: usize = tab.ask(
        "document.querySelectorAll('.choices')[0].querySelectorAll('button').length",
    );
    let mut right = 0;
    for choice in 0..choices {
        tab.run(&format!(
            "document.querySelectorAll('.choices')[0].querySelectorAll('button')[{choice}].click()"
        ));
        let words = said(&mut tab)[1].clone();
        right += usize::from(words == "Right.");
        assert!(words == "Right." || words.len() > 20, "no reason: {words}");
    }
    assert_eq!(right, 1);

    tab.go(&url);
    let again = "You have answered this.";
    assert_eq!(said(&mut tab), [again, again, ""]);
    tab.go(&book);
    const LINE: &str = "document.querySelector('.progress').textContent";
    let line: String = tab.ask(LINE);
    assert!(line.starts_with("You have answered 2 quick questions."), "{line}");
    tab.run("window.confirm = () => true; document.querySelectorAll('.progress button')[1].click()");
    assert!(tab.ask::<String>(LINE).contains("answered 0 quick"));
    tab.go(&url);
    assert_eq!(said(&mut tab), ["", "", ""]);

    // What others have written there is no answer.
    for stored in ["{", "7", "null", "{\"shared-keys\": 3}"] {
        tab.run(&format!("localStorage.setItem('attention-built-answers', '{stored}')"));
        tab.go(&url);
        assert_eq!(said(&mut tab), ["", "", ""], "{stored}");
    }
}
