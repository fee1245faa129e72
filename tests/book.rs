//! Each check of the book can fail: a small book, broken in exactly one way, gets exactly one finding,
//! with its file and line. `cargo xtask build` makes these checks of the book itself.

use std::fs;
use std::path::Path;
use tempfile::TempDir;
use xtask::lint::{self, Finding};
use xtask::project::Project;

fn book() -> Project {
    Project::at(env!("CARGO_MANIFEST_DIR"))
}

fn listed(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("\n{finding}")).collect()
}

/// A folder of small files, and the checks it has to pass.
struct Fixture {
    folder: TempDir,
    check: fn(&Path) -> Vec<Finding>,
}

impl Fixture {
    fn new(files: &[(&str, &str)], check: fn(&Path) -> Vec<Finding>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixture = Self { folder, check };
        files.iter().fold(fixture, |fixture, (file, text)| fixture.with(file, text))
    }

    /// The same with one file rewritten.
    fn with(self, file: &str, text: &str) -> Self {
        let path = self.folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// The same with a text in one file replaced, which has to be there.
    fn replacing(self, file: &str, old: &str, new: &str) -> Self {
        let text = fs::read_to_string(self.folder.path().join(file)).unwrap();
        assert!(text.contains(old), "{file} has no {old}");
        self.with(file, &text.replace(old, new))
    }

    #[track_caller]
    fn passes(&self) {
        let findings = (self.check)(self.folder.path());
        assert!(findings.is_empty(), "{}", listed(&findings));
    }

    /// Exactly one finding, which begins like this.
    #[track_caller]
    fn finds(&self, beginning: &str) {
        let findings = (self.check)(self.folder.path());
        let right = findings.len() == 1 && findings[0].to_string().starts_with(beginning);
        assert!(right, "expected: {beginning}\nfound: {}", listed(&findings));
    }
}

const SUMMARY: &str = "# Summary\n\n- [Softmax](softmax.md)\n";

const CHAPTER: &str = r"# Softmax

Scores of $0.5$ and $$ 1.5 $$ become weights, with `2.5` in code; version 0.5.4, Section 3.2,
[elsewhere](https://example.org/3.5) and \{{#include nowhere.rs}}.

```rust,listing
{{#include ../crates/small/src/lib.rs:two}}
```

```rust
assert_eq!(1.25, 1.25);
```

{{#include generated/table.md}}
";

const CRATE: &str = "//! Small.\n\n// ANCHOR: two\n/// Two.\npub const TWO: i32 = 2;\n// ANCHOR_END: two\n";

/// A book that passes the checks of the sources.
fn sources() -> Fixture {
    let files = [
        ("src/SUMMARY.md", SUMMARY),
        ("src/softmax.md", CHAPTER),
        ("src/generated/table.md", "| 0.659 |\n|---|\n"),
        ("crates/small/src/lib.rs", CRATE),
    ];
    Fixture::new(&files, |root| lint::sources(root).unwrap())
}

/// The small book with `text` at the end of its chapter, from line 15 on.
fn chapter_with(text: &str) -> Fixture {
    let chapter = format!("{CHAPTER}\n{text}\n");
    assert_eq!(chapter.lines().nth(15).unwrap(), text.lines().next().unwrap());
    sources().with("src/softmax.md", &chapter)
}

#[test]
fn a_sound_book_passes() {
    sources().passes();
}

#[test]
fn an_include_of_a_missing_file_is_found() {
    chapter_with("{{#include generated/gone.md}}")
        .finds("src/softmax.md:16: includes src/generated/gone.md, which does not exist");
    chapter_with("```rust\n{{#rustdoc_include gone.rs:2:3}}\n```")
        .finds("src/softmax.md:17: includes src/gone.rs, which does not exist");
    let fixture = chapter_with("{{#include latin.txt}}");
    fs::write(fixture.folder.path().join("src/latin.txt"), b"caf\xe9").unwrap();
    fixture.finds("src/softmax.md:16: includes src/latin.txt, which cannot be read: ");
}

#[test]
fn an_include_inside_an_included_file_is_followed() {
    sources().with("src/generated/table.md", "{{#include gone.txt}}\n").finds(
        "src/softmax.md:14: includes src/generated/gone.txt, which does not exist",
    );
}

#[test]
fn an_include_of_a_missing_anchor_or_of_lines_is_found() {
    chapter_with("```text\n{{#include ../crates/small/src/lib.rs:three}}\n```")
        .finds("src/softmax.md:17: includes crates/small/src/lib.rs, which has no anchor `three`");
    chapter_with("```text\n{{#include ../crates/small/src/lib.rs:40:50}}\n```").finds(
        "src/softmax.md:17: includes crates/small/src/lib.rs, which has no anchor `40:50`",
    );
    sources().replacing("crates/small/src/lib.rs", "// ANCHOR_END: two\n", "").finds(
        "src/softmax.md:7: includes crates/small/src/lib.rs, which has no `ANCHOR_END: two`",
    );
}

#[test]
fn an_anchor_that_no_page_includes_is_found() {
    let more = format!("{CRATE}\n    // ANCHOR: three\n    // ANCHOR_END: three\n");
    sources()
        .with("crates/small/src/lib.rs", &more)
        .finds("crates/small/src/lib.rs:8: an anchor that no page includes: `three`");
    // A generated number counts as well, though its file is included for another one.
    let values =
        "ANCHOR: used\n1\nANCHOR_END: used\nANCHOR: unused\n2\nANCHOR_END: unused\n";
    chapter_with("{{#include generated/values.txt:used}}")
        .with("src/generated/values.txt", values)
        .finds("src/generated/values.txt:4: an anchor that no page includes: `unused`");
}

#[test]
fn a_generated_file_that_no_page_shows_is_found() {
    let unused = || sources().with("src/generated/figure.svg", "<svg/>");
    unused().finds("src/generated/figure.svg: no chapter shows this generated file");
    unused().with("README.md", "![A figure](src/generated/figure.svg)\n").passes();
}

#[test]
fn blocks_that_are_not_checked_are_found() {
    chapter_with("```rust,ignore\nx\n```").finds("src/softmax.md:16: an ignored block");
    chapter_with("```rust,compile_fail\nx\n```")
        .finds("src/softmax.md:16: `compile_fail` without");
    chapter_with("```rust,compile_fail,E0425\nx\n```").passes();
    chapter_with("```\nx\n```")
        .finds("src/softmax.md:16: a block of code without a language");
}

#[test]
fn words_that_make_a_reader_stop_are_found() {
    chapter_with("Whoever reads it knows.")
        .finds("src/softmax.md:16: “whoever”: write who it is");
    chapter_with("It finds the way\nback.")
        .finds("src/softmax.md:16: “way back”: write backward pass");
    chapter_with("The gradient by the weights, multiplied by a gradient by\n\n5.")
        .finds("src/softmax.md:16: “gradient by the”: write gradient with respect to");
    chapter_with("`nobody` is a name, and so is\n\n```text\nnobody\n```").passes();
}

#[test]
fn code_too_wide_for_the_page_is_found() {
    let wide = format!("// {}", "x".repeat(88));
    chapter_with(&format!("```rust\n{wide}\n```"))
        .finds("src/softmax.md:16: a line of code has 91 columns where 90 fit");
    let listing = "```rust,listing\n{{#include ../crates/small/src/wide.rs}}\n```";
    chapter_with(listing)
        .with("crates/small/src/wide.rs", &format!("    {}\n", &wide[1..]))
        .passes(); // indentation does not count
    chapter_with(listing)
        .with("crates/small/src/wide.rs", &format!("    {wide}\n"))
        .finds("src/softmax.md:16: a line of code has 91 columns where 90 fit");
}

/// Kernels are C++, not Rust; what holds for the one holds for the other.
#[test]
fn a_kernel_is_held_to_what_a_listing_of_rust_is() {
    let shown = "```cpp,listing\n{{#include ../crates/small/cuda/two.cu:two}}\n```";
    let with = |shown: &str, kernel: &str| {
        chapter_with(shown).with("crates/small/cuda/two.cu", kernel)
    };
    let kernel = "// ANCHOR: two\n__global__ void two();\n// ANCHOR_END: two\n";
    with(shown, kernel).passes();
    with(&shown.replace(":two", ":three"), "// Nothing.\n")
        .finds("src/softmax.md:17: includes crates/small/cuda/two.cu, which has no anchor `three`");
    for file in ["more.cu", "more.cuh", "host/more.h", "host/more.cpp"] {
        with(shown, kernel).with(&format!("crates/small/cuda/{file}"), kernel).finds(
            &format!(
                "crates/small/cuda/{file}:1: an anchor that no page includes: `two`"
            ),
        );
    }
    let wide =
        kernel.replace("__global__", &format!("/* {} */ __global__", "x".repeat(80)));
    with(shown, &wide)
        .finds("src/softmax.md:16: a line of code has 109 columns where 100 fit");
    with("```cpp,listing\nint x;\n```", "")
        .finds("src/softmax.md:16: a listing may hold includes of files in crates/");
}

#[test]
fn a_listing_with_something_pasted_is_found() {
    let pasted =
        "```rust,listing\n{{#include ../crates/small/src/lib.rs:two}}\nlet x = 1;\n```";
    chapter_with(pasted)
        .finds("src/softmax.md:16: a listing may hold includes of files in crates/");
    chapter_with("```rust,listing\n{{#include generated/table.md}}\n```")
        .finds("src/softmax.md:16: a listing may hold includes of files in crates/");
}

#[test]
fn the_summary_and_the_chapters_agree() {
    sources()
        .with("src/mask.md", "# Mask\n")
        .finds("src/mask.md:1: this chapter is not in SUMMARY.md");
    sources()
        .with("src/SUMMARY.md", &format!("{SUMMARY}- [Mask](mask.md)\n"))
        .finds("src/SUMMARY.md:4: links to mask.md, which does not exist");
}

#[test]
fn a_link_that_goes_nowhere_is_found() {
    for link in
        ["[mask](mask.md#bits)", "![](mask.png)", "<img src=\"mask.svg\" alt=\"\">"]
    {
        chapter_with(link).finds("src/softmax.md:16: links to mask.");
    }
    chapter_with(
        "[here](softmax.md#softmax), [page](softmax.html), <a href=\"#x\">x</a>",
    )
    .passes();
}

#[test]
fn an_address_on_another_host_is_one() {
    chapter_with(
        "[a](https://doi.org/10.1007/978-3-642-76153-9_28), <https://a.b:1?c#d>",
    )
    .passes();
    for link in [
        "[a](http://doi)",
        "[a](http://doi.org/10.1137/1109020)",
        "[a](https://doi)",
        "[a](<https://doi.org/10.1137 1109020>)",
        "<a href=\"//doi.org\">a</a>",
    ] {
        chapter_with(link).finds("src/softmax.md:16: links to ");
    }
}

#[test]
fn a_work_without_an_address_is_found() {
    let entry = |work: &str| chapter_with(&format!("## Read more\n\n- A. B, {work}.\n"));
    entry("[*C*](https://doi.org/1)").passes();
    entry("*C*").finds("src/softmax.md:18: an entry of “Read more” without an address");
    entry("[*C*](#softmax)").finds("src/softmax.md:18: an entry");
}

#[test]
fn a_number_typed_by_hand_is_found() {
    let typed = [
        "0.123",
        "-12.5",
        "40 %",
        "40%",
        "7 percent",
        "3 × 10⁻⁴",
        "10⁻³",
        "2e-5",
        "**1.5**",
    ];
    for number in typed {
        chapter_with(&format!("The error is {number}."))
            .finds("src/softmax.md:16: the number ");
    }
    chapter_with("| a |\n|---|\n| 0.5 |").finds("src/softmax.md:18: the number 0.5 ");
    chapter_with("<figcaption>It is <b>0.5</b>.</figcaption>")
        .finds("src/softmax.md:16: the number 0.5 ");
}

#[test]
fn numbers_that_are_no_results_pass() {
    chapter_with(
        "Three heads, 12 tokens, 2024, arXiv:1706.03762, <https://arxiv.org/abs/1706.03762>",
    )
    .passes();
    chapter_with("<img src=\"softmax.md\" alt=\"\" width=\"0.5\">").passes();
}

const PAGE: &str = r##"<!DOCTYPE html>
<html lang="en">
<head>
<title>Softmax</title>
<meta name="description" content="What softmax does.">
<link rel="canonical" href="https://example.org/softmax.html">
<link rel="stylesheet" href="book.css">
<script src="book.js"></script>
</head>
<body>
<h1 class="menu-title">The book</h1>
<main>
<h1 id="softmax"><a href="#softmax">Softmax</a></h1>
<p><a href="mask.html#mask">Mask</a>, <a href="https://example.org">elsewhere</a>, <code>$$</code></p>
<figure><svg role="img"><title>A figure</title><desc>It rises.</desc><path d="M0 0"/></svg></figure>
<img src="a%20b.svg" alt="b">
<!-- here -->
</main>
</body>
</html>
"##;

/// A site that passes the checks of the pages.
fn pages() -> Fixture {
    let mask = PAGE.replace("softmax", "mask");
    let print = PAGE.replace("<!-- here -->", "<h1>Mask</h1>");
    let files = [
        ("softmax.html", PAGE),
        ("mask.html", &mask),
        ("print.html", &print),
        (
            "book.css",
            "/* https://example.org */\nbody { background: url(\"a%20b.svg\") }\n",
        ),
        ("book.js", "// https://example.org\nfetch('softmax.html');\n"),
        ("a b.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"/>"),
    ];
    Fixture::new(&files, |folder| lint::pages(folder).unwrap())
}

/// The small site with `html` on line 17 of a page.
fn page_with(html: &str) -> Fixture {
    pages().replacing("softmax.html", "<!-- here -->", html)
}

#[test]
fn a_sound_site_passes() {
    pages().passes();
}

#[test]
fn a_broken_address_is_found() {
    page_with("<a href=\"gone.html\">x</a>")
        .finds("softmax.html:17: gone.html goes to a file");
    page_with("<img src=\"gone.png\" alt=\"x\">")
        .finds("softmax.html:17: gone.png goes to a file");
    page_with("<a href=\"mask.html#gone\">x</a>")
        .finds("softmax.html:17: mask.html#gone goes to an id");
    page_with("<a href=\"#gone\">x</a>").finds("softmax.html:17: #gone goes to an id");
    page_with("<a href=\"/mask.html\">x</a>")
        .finds("softmax.html:17: /mask.html breaks when");
    pages()
        .replacing("print.html", "<h1>Mask</h1>", "<a href=\"#gone\">x</a>")
        .finds("print.html:17: #gone goes to an id");
    pages()
        .with("book.css", "body {\n  background: url(gone.png);\n}\n")
        .finds("book.css:2: gone.png goes to a file");
}

#[test]
fn a_request_to_another_host_is_found() {
    let requests = [
        "<script src=\"https://cdn.example/a.js\"></script>",
        "<link rel=\"preconnect\" href=\"https://cdn.example\">",
        "<link rel=\"stylesheet\" href=\"//cdn.example/a.css\">",
        "<iframe src=\"http://cdn.example/\"></iframe>",
        "<img alt=\"x\" srcset=\"https://cdn.example/a.png 2x\">",
        "<video><source src=\"https://cdn.example/a.mp4\"></video>",
        "<p style=\"background: url(https://cdn.example/a.png)\">x</p>",
        "<style>@import \"https://cdn.example/a.css\";</style>",
        "<script>fetch(`https://cdn.example/a.json`)</script>",
        "<script type=\"module\">import \"https://cdn.example/a.js\";</script>",
    ];
    for request in requests {
        page_with(request).finds("softmax.html:17: the page asks another host for ");
    }
    pages()
        .with("book.css", "\n@font-face { src: url('https://cdn.example/a.woff2') }\n")
        .finds("book.css:2: the page asks another host for https://cdn.example/a.woff2");
    pages()
        .with("book.js", "let x;\nx.open('GET', \"https://cdn.example/a\");\n")
        .finds("book.js:2: the page asks another host for https://cdn.example/a");
}

#[test]
fn a_play_button_is_found() {
    let script = "fetch_with_timeout('https://play.rust-lang.org/evaluate.json')\n";
    pages().with("book.js", script).passes();
    page_with("<pre class=\"playground\">x</pre>").finds(
        "softmax.html:17: a play button sends its snippet to https://play.rust-lang.org/",
    );
}

#[test]
fn what_was_not_rendered_is_found() {
    page_with("<pre><code>{{#include gone.rs}}</code></pre>")
        .finds("softmax.html:17: an include");
    page_with("<p>open $$ x</p>").finds("softmax.html:17: `$$` that opens no formula");
    page_with("<p>[a](https://a.b/c d)</p>")
        .finds("softmax.html:17: a link that is none");
    page_with("<pre><code class=\"language-rust\">\n</code></pre>")
        .finds("softmax.html:17: an empty piece of code");
}

#[test]
fn a_page_without_its_parts_is_found() {
    let without = |old, new| pages().replacing("softmax.html", old, new);
    page_with("<h1>Again</h1>")
        .finds("softmax.html:1: the page has 2 first-level headings");
    without("<title>Softmax</title>\n", "")
        .finds("softmax.html:1: the page has no title");
    without(" lang=\"en\"", "")
        .finds("softmax.html:1: the page does not say its language");
    without("What softmax does.", " ")
        .finds("softmax.html:1: the page has no description");
    without("<title>A figure</title>", "")
        .finds("softmax.html:15: a figure without a <title>");
    without("<desc>It rises.</desc>", "<desc></desc>")
        .finds("softmax.html:15: a figure without a <desc>");
    without("<svg role=\"img\"><title>A figure</title>", "<svg>")
        .finds("softmax.html:15: ");
    without(" alt=\"b\"", "").finds("softmax.html:16: an image without `alt`");
    page_with("<p id=\"softmax\">x</p>").finds("softmax.html:17: the id `softmax` again");
}

#[test]
fn a_question_that_cannot_be_asked_is_found() {
    let choice = |state: &str, reason: &str| {
        format!("<li><p><input type=\"checkbox\"{state}/> A</p>{reason}</li>")
    };
    let (right, wrong) = (choice(" checked", ""), choice("", "<p>Since.</p>"));
    let question = |items: &str| {
        page_with(&format!("<div class=\"choices\"><ul>{items}</ul></div>"))
    };
    question(&format!("{right}{wrong}")).passes();
    question(&wrong).finds("softmax.html:17: a quick question with 0 right answers");
    question(&format!("{right}{}", choice("", "")))
        .finds("softmax.html:17: a wrong answer without a reason");
}

#[test]
fn what_is_too_long_to_read_is_found() {
    page_with(&format!("<p>{}</p>", "word ".repeat(46)))
        .finds("softmax.html:17: a sentence of 46 words");
}

/// Chapters add their words from all sides, so that one could come in twice or in the wrong place.
#[test]
fn the_glossary_is_in_order_and_has_every_word_once() {
    let glossary =
        std::fs::read_to_string(book().root().join("src/glossary.md")).unwrap();
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| **["));
    let words: Vec<_> =
        rows.filter_map(|row| Some(row.split_once(']')?.0.to_lowercase())).collect();
    assert!(words.len() > 50, "only {} words were found", words.len());
    let wrong = words
        .windows(2)
        .find(|pair| pair[0].replace('-', " ") >= pair[1].replace('-', " "));
    assert_eq!(wrong, None, "not in alphabetical order, or twice");
    let unlinked = glossary
        .lines()
        .find(|line| line.starts_with("| **") && !line.starts_with("| **["));
    assert_eq!(unlinked, None, "a word that links to no place");
}

/// Three colours as an eye without one kind of cones sees them, by the matrices of Machado, Oliveira and Fernandes (2009): they are as far apart
/// as colours of Lab have to be to be told from each other at a glance.
#[test]
fn colour_blind_readers_tell_queries_keys_and_values_apart() {
    const EYES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    ];
    const XYZ: [[f64; 3]; 3] = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ];
    let times = |m: &[[f64; 3]; 3], x: [f64; 3]| {
        m.map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>())
    };
    let linear =
        |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
    let lab = |hex: &str, eye: &[[f64; 3]; 3]| {
        let part = |at| {
            linear(f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0)
        };
        let seen = times(eye, [part(0), part(2), part(4)]).map(|c| c.clamp(0.0, 1.0));
        let [x, y, z] = times(&XYZ, seen);
        let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let [x, y, z] = [f(x / 0.95047), f(y), f(z / 1.08883)];
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    };
    let style = fs::read_to_string(book().root().join("theme/book.css")).unwrap();
    let colours = |role: char| -> Vec<String> {
        let name = format!("--role-{role}: #");
        style.split(&name).skip(1).map(|rest| rest[..6].to_owned()).collect()
    };
    let [q, k, v] = ['q', 'k', 'v'].map(colours);
    // Light; dark; and dark where no script runs.
    assert!(q.len() == 3 && q[1] == q[2] && k[1] == k[2] && v[1] == v[2]);
    for theme in 0..2 {
        for (number, eye) in EYES.iter().enumerate() {
            let seen = [&q, &k, &v].map(|role| lab(&role[theme], eye));
            for (a, b) in [(0, 1), (0, 2), (1, 2)] {
                let distance = seen[a]
                    .iter()
                    .zip(&seen[b])
                    .map(|(a, b)| (a - b).powi(2))
                    .sum::<f64>()
                    .sqrt();
                assert!(
                    distance > 20.0,
                    "theme {theme}, eye {number}: {a} and {b} are {distance:.0} apart"
                );
            }
        }
    }
}
