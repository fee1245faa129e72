//! The services of a page beyond showing its text: a card beside a link, a copy of what runs, the place where one stopped.

use crate::support::browser::{Key, Tab};
use crate::{LAPTOP, Reader, Shift, WINDOWS};
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
    let mut tab = reader.open("layer.html", LAPTOP);
    const LINK: &str = "main a[href=\"softmax.html#the-definition\"]";
    tab.press(Key::TAB);
    tab.run(&format!("document.querySelector('{LINK}').focus()"));
    let text = card(&mut tab, true);
    let softmax = chapter("softmax.md");
    let (_, section) = softmax.split_once("## The definition\n\n").unwrap();
    let beginning: String =
        section.chars().take_while(|c| !"`*$[’'".contains(*c)).collect();
    assert!(beginning.len() > 20, "{beginning}");
    assert!(text.starts_with(&format!("The definition{beginning}")), "{text}");
    assert_eq!(tab.ask::<String>(DESCRIBED), "shift invariance");
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
    // In the row of the chapter, not in the table of letters that hold everywhere.
    let formulas = chapter("formulas.md");
    let (_, row) = formulas.split_once("| [The memory wall](memory-wall.md) | ").unwrap();
    let (_, meaning) = row.split_once("$R$: ").unwrap();
    let meaning = meaning.split([';', '·', '$']).next().unwrap().trim();
    assert!(meaning.len() > 10, "{meaning}");
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

/// Queries, and the section that each has to find first.
const QUERIES: [(&str, &str); 47] = [
    // The chapter of that name, or that answers the question.
    ("softmax", "softmax.html"),
    ("Masking", "masking.html"),
    ("online softmax", "online-softmax.html"),
    ("flash attention", "tiles-forward.html"),
    ("scaled dot product", "scaled-dot-product-attention.html"),
    ("gradient checking", "gradient-checking.html"),
    ("multi-head attention", "many-heads.html"),
    ("tensor core", "gpu-tensor-cores.html"),
    ("ring attention", "across-machines.html#what-must-travel"),
    ("context parallelism", "across-machines.html#what-must-travel"),
    ("dropout", "many-heads.html#dropout"),
    ("decoding", "decoding.html"),
    ("glossary", "glossary.html"),
    ("why divide", "why-sqrt-d-k.html"),
    ("why sqrt dk", "why-sqrt-d-k.html"),
    ("√dₖ", "why-sqrt-d-k.html"),
    // The section that introduces a word of the glossary.
    ("bank conflict", "gpu-tiles.html#banks"),
    ("cross-attention", "many-heads.html#self-and-cross"),
    ("Xavier", "layer.html#where-to-begin"),
    ("NaN", "softmax.html#exponentials-overflow"),
    ("adam", "whole-model.html#training"),
    // Other names.
    ("GQA", "shared-keys.html#one-library-several-readers"),
    ("MQA", "shared-keys.html#one-library-several-readers"),
    ("grouped query attention", "shared-keys.html#one-library-several-readers"),
    ("rope", "positions.html#angles"),
    ("RoPE", "positions.html#angles"),
    ("KV cache", "decoding.html#nothing-changes-in-the-past"),
    ("MLA", "shared-keys.html#latent-keys"),
    ("sdpa", "scaled-dot-product-attention.html"),
    ("LayerNorm", "layer.html#where-a-layer-stands-in-a-model"),
    ("backpropagation", "backward.html#what-training-is"),
    ("gradient checkpointing", "tiles-backward.html#does-it-take-longer"),
    ("sliding window", "masking.html#four-masks"),
    // A letter too few, one too many, two in the wrong order, another spelling.
    ("sofmax", "softmax.html"),
    ("softmaxx", "softmax.html"),
    ("atention", "scaled-dot-product-attention.html"),
    ("causl mask", "masking.html#a-mask-is-a-rule"),
    ("gradeint", "gradient-checking.html"),
    ("gradeint cheking", "gradient-checking.html"),
    ("xavier initialization", "layer.html#where-to-begin"),
    ("flahs attention", "tiles-forward.html"),
    // What was copied from a page.
    (
        "It is at most 1, because maxima only grow, and exactly 1 if the maximum stays.",
        "online-softmax.html#the-rule",
    ),
    (
        "Let mm be the maximum so far, and ℓ\\ell and oo the two sums.",
        "online-softmax.html#the-rule",
    ),
    ("“next word to look at.” We have to hide the future.", "masking.html"),
    (
        "let deviation = (2.0 / (d_in as f64 + d_out as f64)).sqrt();",
        "layer.html#where-to-begin",
    ),
    ("Mask::padding(&valid)?", "from-pytorch.html#masks"),
    ("enable_gqa=True", "from-pytorch.html"),
];

/// Types a query into the open search, and tells where the results lead, the best first, and what is shown of the first.
fn search(tab: &mut Tab, query: &str) -> (Vec<String>, String) {
    let query = serde_json::to_string(query).unwrap();
    tab.ask(&format!(
        "new Promise(done => {{ const box = document.getElementById('mdbook-searchbar'); box.value = {query}; \
         box.dispatchEvent(new Event('input')); const begun = performance.now(); const look = () => {{ \
         if (document.querySelector('[role=search] [role=status]').textContent.includes(box.value.trim())) {{ \
         const links = [...document.querySelectorAll('#mdbook-searchresults a')]; \
         const place = ({{ pathname, hash }}) => pathname.split('/').pop() + hash; \
         done([links.map(place), document.querySelector('#mdbook-searchresults .teaser')?.textContent ?? '']); }} \
         else if (performance.now() - begun > 20000) {{ done([[], 'no answer']); }} else {{ setTimeout(look, 20); }} }}; look(); }})"
    ))
}

#[test]
fn a_query_finds_what_it_means() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("welcome.html", LAPTOP);
    let loaded = "performance.getEntriesByType('resource').filter(({ name }) => /minisearch|sections/.test(name)).length";
    assert_eq!(
        tab.ask::<usize>(loaded),
        0,
        "nothing is loaded before the search is opened"
    );
    tab.press(Key::SLASH);
    let mut wrong = vec![];
    for (query, expected) in QUERIES {
        let (found, shown) = search(&mut tab, query);
        if found.first().is_none_or(|first| first != expected) {
            wrong.push(format!("{query}: {expected}, not {:?}", found.first()));
        }
        if ["\\", "{", "annotation"].iter().any(|debris| shown.contains(debris)) {
            wrong.push(format!("{query} shows {shown}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(search(&mut tab, "zzyzx").0, [""; 0]);
}

#[test]
fn a_paragraph_that_was_copied_is_found_with_its_formulas() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("positions.html", LAPTOP);
    // The longest paragraph with a formula, of the text that is a section's own.
    let (copied, expected): (String, String) = tab.ask(
        "(() => { const paragraphs = [...document.querySelectorAll('main > section > p:has(.katex)')]; \
         const longest = paragraphs.sort((a, b) => b.textContent.length - a.textContent.length)[0]; \
         getSelection().selectAllChildren(longest); let heading = longest; \
         while (!/^H[123]$/.test(heading.tagName)) { heading = heading.previousElementSibling; } \
         return [getSelection().toString(), `positions.html#${heading.id}`]; })()",
    );
    let (found, _) = search(&mut tab, &copied);
    assert_eq!(found.first(), Some(&expected), "{copied}");
}

/// The element with the focus, and the query of the address.
const FOCUS: &str =
    "[document.activeElement.id || document.activeElement.textContent, location.search]";

#[test]
fn the_search_works_by_keys_and_marks_what_it_found() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("welcome.html?search=Jacobian", LAPTOP);
    let focus = |tab: &mut Tab| tab.ask::<(String, String)>(FOCUS);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    let (found, _) = search(&mut tab, "Jacobian");
    assert_eq!(found[0], "backward.html#the-jacobian");
    assert_eq!(focus(&mut tab), pair("mdbook-searchbar", "?search=Jacobian"));
    tab.press(Key::DOWN);
    assert_eq!(focus(&mut tab).0, "Backward in six steps › The Jacobian");
    tab.press(Key::UP);
    assert_eq!(focus(&mut tab).0, "mdbook-searchbar");
    // A link within the page leads where it leads, and the search doesn't begin again.
    tab.run("document.activeElement.blur(); location.hash = 'main-text'");
    tab.run(A_WHILE);
    assert_ne!(focus(&mut tab).0, "mdbook-searchbar");
    tab.press(Key::ESCAPE);
    assert_eq!(focus(&mut tab), pair("mdbook-search-toggle", ""));
    assert!(
        tab.ask::<bool>("document.querySelector('[role=search]').matches('.hidden')")
    );

    tab.press(Key::SLASH);
    search(&mut tab, "Jacobain");
    let link: String = tab.ask("document.querySelector('#mdbook-searchresults a').href");
    tab.go(&link);
    tab.run("checks.shown()");
    let marked = "[...CSS.highlights.get('search') ?? []].map(range => range.toString().toLowerCase())";
    let words: Vec<String> = tab.ask(marked);
    assert!(
        words.len() > 1 && words.iter().all(|word| word.contains("jacobian")),
        "{words:?}"
    );
    tab.press(Key::ESCAPE);
    assert_eq!(tab.ask::<Vec<String>>(marked), [""; 0]);
    assert_eq!(focus(&mut tab).1, "");
}

#[test]
fn the_next_chapter_is_named_below_the_text() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("intuition.html", LAPTOP);
    for window in WINDOWS {
        tab.use_screen(*window);
        tab.run(A_WHILE); // the list of chapters slides
        let links: Vec<String> = tab.ask(
            "[...document.querySelectorAll('.nav-chapters')].filter(link => { \
             const [text, own] = [document.querySelector('main'), link].map(element => element.getBoundingClientRect()); \
             return own.width > 0 && own.left >= text.left - 1 && own.right <= text.right + 1 && own.top >= text.bottom; }) \
             .map(link => link.textContent)",
        );
        assert_eq!(links, ["Previous: Using this book", "Next: Softmax"], "{window:?}");
    }
    tab.press(Key::RIGHT);
    tab.run(A_WHILE);
    assert_eq!(
        tab.ask::<String>("document.querySelector('main h1').textContent"),
        "Softmax"
    );
}

#[test]
fn the_list_of_chapters_marks_what_was_read() {
    let Some(mut reader) = Reader::start() else { return };
    let [intuition, softmax, about] =
        ["intuition.html", "softmax.html", "using-this-book.html"]
            .map(|page| reader.site.url(page));
    let mut tab = reader.open("intuition.html", LAPTOP);
    // Seconds of reading pass in some milliseconds.
    tab.run_first("{ const usual = setInterval; globalThis.setInterval = (work, time) => usual(work, time / 200); }");
    tab.go(&intuition);
    const MARKS: &str = "[...document.querySelectorAll('#mdbook-sidebar .reading-mark')].map(mark => [mark.closest('a').pathname.split('/').pop(), mark.ariaLabel])";
    let marks = |tab: &mut Tab| tab.ask::<Vec<(String, String)>>(MARKS);
    let expected = |marks: &[(&str, &str)]| -> Vec<(String, String)> {
        marks
            .iter()
            .map(|(page, mark)| ((*page).to_owned(), (*mark).to_owned()))
            .collect()
    };
    assert_eq!(marks(&mut tab), expected(&[]));
    tab.run("checks.shown()");
    tab.run("checks.whole()");
    // A reader who goes to the end at once has read nothing.
    tab.run("scrollTo({ top: 1e9, behavior: 'instant' })");
    tab.run(A_WHILE);
    assert_eq!(marks(&mut tab), expected(&[]));
    // Half of the page now, and the rest at another visit.
    const READ: &str = "(async share => { for (let top = 0; top < share * document.documentElement.scrollHeight; top += 0.7 * innerHeight) { \
        scrollTo({ top, behavior: 'instant' }); await new Promise(done => setTimeout(done, 250)); } })";
    tab.run(&format!("{READ}(0.6)"));
    assert_eq!(marks(&mut tab), expected(&[]));
    tab.go(&intuition);
    tab.run("checks.shown()");
    tab.run("scrollTo({ top: 0.5 * document.documentElement.scrollHeight, behavior: 'instant' })");
    tab.run(&format!("{READ}(1)"));
    assert_eq!(marks(&mut tab), expected(&[("intuition.html", "read")]));
    let Shift { value, moved } = tab.ask("checks.shift()");
    assert_eq!(value, 0.0, "{moved:?}");
    tab.go(&softmax);
    tab.go(&about);
    let both = [("intuition.html", "read"), ("softmax.html", "you stopped here")];
    assert_eq!(marks(&mut tab), expected(&both));

    const LINE: &str = "document.querySelector('.progress p').textContent";
    let read = "You have read 1 chapter to the end and answered 0 quick questions.";
    assert_eq!(tab.ask::<String>(LINE), read);
    tab.run("window.confirm = () => true; document.querySelectorAll('.progress button')[1].click()");
    assert_eq!(marks(&mut tab), expected(&[]));
    assert_eq!(tab.ask::<usize>("Object.keys(localStorage).filter(name => name.startsWith('attention-built')).length"), 0);

    // What others have written there is no chapter.
    for stored in ["{", "7", "null", "{\"intuition.html\": 1}"] {
        tab.run(&format!("localStorage.setItem('attention-built-read', '{stored}')"));
        tab.go(&intuition);
        assert_eq!(
            marks(&mut tab).iter().filter(|(_, mark)| mark == "read").count(),
            0,
            "{stored}"
        );
    }
}

/// A finger sees the meaning of a word first, and follows the link when it touches it again.
#[test]
fn a_tap_on_a_word_shows_its_meaning() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("masking.html", crate::PHONE);
    let point = point_of(&mut tab, "main a.term");
    let word = tab.ask::<String>("document.querySelector('main a.term').textContent");
    tab.tap(point);
    let shown = card(&mut tab, true);
    assert!(shown.to_lowercase().contains(&word[..4]), "{word}: {shown}");
    assert_eq!(tab.ask::<String>("location.pathname.split('/').pop()"), "masking.html");
    tab.tap(point);
    tab.run(A_WHILE);
    assert_eq!(tab.ask::<String>("location.pathname.split('/').pop()"), "glossary.html");
}

/// Queries, keys and values have a colour each, in formulas and in listings, and in figures the same.
#[test]
fn queries_keys_and_values_have_their_colours_everywhere() {
    let Some(mut reader) = Reader::start() else { return };
    let mut tab = reader.open("scaled-dot-product-attention.html", LAPTOP);
    tab.run("checks.whole()");
    let wrong: Vec<String> = tab.ask(
        "(() => { const root = getComputedStyle(document.documentElement); \
         const probe = document.body.appendChild(document.createElement('i')); \
         const colour = role => { probe.style.color = `var(--role-${role})`; return getComputedStyle(probe).color; }; \
         const roles = Object.fromEntries([...'QKV'].map(letter => [letter, colour(letter.toLowerCase())])); \
         const letters = [...document.querySelectorAll('main .katex-html .mathnormal')].map(it => [it, getComputedStyle(it).color]); \
         const labels = [...document.querySelectorAll('[data-figure=layer] tspan[font-family^=KaTeX_Math]')].map(it => [it, getComputedStyle(it).fill]); \
         const all = [...letters, ...labels].map(([it, colour]) => [it.textContent, colour]).filter(([text]) => /^d?[QKV]$/.test(text)); \
         return [...all.filter(([text, colour]) => roles[text.at(-1)] !== colour).map(String), ...all.length < 40 ? [`${all.length} letters`] : [], \
         ...new Set(Object.values(roles)).size === 3 ? [] : ['two roles have one colour']]; })()",
    );
    assert_eq!(wrong, Vec::<String>::new());
    let tinted: [usize; 3] = tab.ask(
        "['q', 'k', 'v'].map(role => [...CSS.highlights.get(`role-${role}`)].length)",
    );
    assert!(tinted.iter().all(|count| *count > 3), "{tinted:?}");
}

/// A path that was begun leads from its chapters to the next one, past those that it leaves out, and back from elsewhere.
#[test]
fn a_path_leads_from_chapter_to_chapter_until_it_is_left() {
    let Some(mut reader) = Reader::start() else { return };
    let [masking, positions, softmax] =
        ["masking.html", "positions.html", "softmax.html"]
            .map(|page| reader.site.url(page));
    let mut tab = reader.open("using-this-book.html", LAPTOP);
    const LINE: &str = "document.querySelector('.in-path')?.textContent ?? ''";
    tab.run(
        "document.addEventListener('click', event => event.preventDefault()); \
         document.querySelector('[data-path=flash] a[href=\"softmax.html\"]').click()",
    );
    tab.go(&softmax);
    let question = "How does flash attention do without a matrix of weights?";
    let line = |place: &str, next: &str| {
        format!("Your path: {question} ({place}). Leave the path{next}")
    };
    let next = "Next on your path: Scaled dot-product attention";
    assert_eq!(tab.ask::<String>(LINE), line("chapter 2 of 9", next));
    let Shift { value, moved } = tab.ask("checks.shift()");
    assert_eq!(value, 0.0, "{moved:?}");
    // The book's next chapter is another one.
    tab.go(&masking);
    assert_eq!(
        tab.ask::<String>(LINE),
        line("chapter 5 of 9", "Next on your path: Counting")
    );
    tab.go(&positions);
    assert_eq!(tab.ask::<String>(LINE), line("which this page is not on", ""));
    let back = tab.ask::<String>("document.querySelector('.in-path a').href");
    tab.go(&back);
    let chosen = "[...document.querySelectorAll('.path.chosen')].map(path => path.id)";
    assert_eq!(tab.ask::<Vec<String>>(chosen), ["path-flash"]);
    tab.go(&softmax);
    tab.run("document.querySelector('.in-path button').click()");
    assert_eq!(tab.ask::<String>(LINE), "");
    // What others have written there is no path.
    for stored in ["{", "7", "null", "{\"name\": 1}"] {
        tab.run(&format!("localStorage.setItem('attention-built-path', '{stored}')"));
        tab.go(&softmax);
        assert!(!tab.ask::<String>(LINE).contains("Next on"), "{stored}");
    }
}

#[test]
fn a_theme_that_is_no_more_becomes_one_that_is() {
    let Some(mut reader) = Reader::start() else { return };
    let url = reader.site.url("intuition.html");
    let mut tab = reader.open("intuition.html", LAPTOP);
    for (chosen, instead) in
        [("rust", "light"), ("coal", "navy"), ("ayu", "navy"), ("navy", "navy")]
    {
        tab.run(&format!("localStorage.setItem('mdbook-theme', '{chosen}')"));
        tab.go(&url);
        let worn: Vec<String> = tab.ask(
            "[...document.documentElement.classList].filter(it => /^(light|rust|coal|navy|ayu)$/.test(it))",
        );
        assert_eq!(worn, [instead], "{chosen}");
    }
    let offered = "[...document.querySelectorAll('#mdbook-theme-list button')].map(it => it.textContent)";
    assert_eq!(tab.ask::<Vec<String>>(offered), ["Auto", "Light", "Navy"]);
}

#[test]
fn the_first_page_leads_back_to_the_last_place() {
    let Some(mut reader) = Reader::start() else { return };
    let url = reader.site.url("welcome.html");
    let mut tab = reader.open("backward.html", LAPTOP);
    const LINE: &str = "document.querySelector('main .last-place')?.textContent ?? ''";
    tab.run(
        "document.getElementById('the-jacobian').scrollIntoView({ behavior: 'instant' })",
    );
    tab.run(A_WHILE);
    tab.go(&url);
    tab.run("checks.shown()");
    assert_eq!(
        tab.ask::<String>(LINE),
        "You were at: Backward in six steps, The Jacobian"
    );
    let leads_to = "document.querySelector('.last-place a').getAttribute('href')";
    assert_eq!(tab.ask::<String>(leads_to), "backward.html#the-jacobian");
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
    assert!(line.contains("answered 2 quick questions."), "{line}");
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
