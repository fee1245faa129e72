//! The commands as they are typed, on small books in temporary folders.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const XTASK: &str = env!("CARGO_BIN_EXE_xtask");

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn xtask(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(XTASK);
    command.current_dir(folder).args(arguments).env_remove("CARGO_TARGET_DIR");
    command
}

/// The end of a command: its exit code, its output and its messages.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

fn ended(output: &Output) -> Ended {
    Ended {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout.clone()).unwrap(),
        stderr: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

fn run(command: &mut Command) -> Ended {
    ended(&command.output().unwrap())
}

fn with_input(command: &mut Command, input: &str) -> Ended {
    let piped =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    ended(&child.wait_with_output().unwrap())
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "expected: {part}\nfound: {text}");
    }
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let here = folder(&[("book.toml", "")]);
    for command in
        ["serve", "build", "test", "generate", "bench", "gpu", "module", "preprocess"]
    {
        let help = run(&mut xtask(here.path(), &[command, "--help"]));
        assert_eq!(help.code, 0);
        says(
            &help.stdout,
            &["Usage: cargo xtask", &format!("Example:\n  cargo xtask {command}")],
        );
    }
    let all = run(&mut xtask(here.path(), &["--help"]));
    says(
        &all.stdout,
        &["serve", "build", "test", "generate", "bench", "gpu", "Example:"],
    );
    assert!(!all.stdout.contains("preprocess"));
}

/// A filter that matches nothing would look like success.
#[test]
fn an_unknown_chapter_is_an_error_that_names_the_known_ones() {
    let book = small_book("# Softmax\n");
    let tested = run(&mut xtask(book.path(), &["test", "soft_max"]));
    assert_eq!(tested.code, 1);
    says(&tested.stderr, &["there is no chapter `soft-max`; the chapters are softmax"]);
}

#[test]
fn a_busy_port_is_said_before_anything_is_built() {
    let here = folder(&[("book.toml", "")]);
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    let served = run(&mut xtask(here.path(), &["serve", "--no-open", "--port", &port]));
    assert_eq!(served.code, 1);
    let sentence = format!("port {port} is already in use; choose another with --port ");
    says(&served.stderr, &[&sentence]);
    assert!(!here.path().join("target").exists());
}

/// `serve`, until it is dropped.
struct Served {
    child: Child,
    port: u16,
}

impl Served {
    fn begin(book: &TempDir) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let arguments = ["serve", "--no-open", "--port", &port.to_string()];
        let child = xtask(book.path(), &arguments).stderr(Stdio::null()).spawn().unwrap();
        Self { child, port }
    }

    /// The answer to a request, headers and all, or nothing while it does not listen.
    fn ask(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET /{path} HTTP/1.0\r\nHost: here\r\n\r\n").ok()?;
        let mut answer = vec![];
        stream.read_to_end(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    }

    #[track_caller]
    fn comes_to_show(&self, path: &str, text: &str) {
        let begun = Instant::now();
        let mut last = None;
        while begun.elapsed() < Duration::from_secs(60) {
            last = self.ask(path).filter(|answer| !answer.is_empty()).or(last);
            if last.as_ref().is_some_and(|answer| answer.contains(text)) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("expected: {text}\nfound: {}", last.unwrap_or_default());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_served_book_follows_its_changes_and_outlives_a_mistake() {
    let book = small_book("# Softmax\n\nThe first, with $x^2$.\n");
    let served = Served::begin(&book);
    served.comes_to_show("softmax.html", "The first, with");
    served.comes_to_show("softmax.html", "katex-mathml");
    served.comes_to_show("softmax.html", "live-reload");
    served.comes_to_show("gone.html", "404 Not Found");
    let chapter = book.path().join("src/softmax.md");
    fs::write(&chapter, "# Softmax\n\n$\\frac{a$\n").unwrap();
    thread::sleep(Duration::from_secs(1));
    served.comes_to_show("softmax.html", "The first, with");
    fs::write(&chapter, "# Softmax\n\nThe second.\n").unwrap();
    served.comes_to_show("softmax.html", "The second.");

    // A page is there at any time, the old one or the new.
    fs::write(&chapter, "# Softmax\n\nThe third.\n").unwrap();
    loop {
        let page = served.ask("softmax.html").unwrap();
        says(&page, &["200 OK"]);
        if page.contains("The third.") {
            break;
        }
    }

    // To read the sources is no change, and neither is the lock of an editor: the book is not built again.
    thread::sleep(Duration::from_secs(1));
    let version = || {
        let page = served.ask("softmax.html").unwrap();
        let (_, version) = page.split_once("/live-reload?").unwrap();
        version.split('\'').next().unwrap().to_owned()
    };
    let before = version();
    fs::write(book.path().join("src/.softmax.md.swp"), "").unwrap();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(version(), before);
}

/// A book of one chapter whose formulas go through this program.
fn small_book(chapter: &str) -> TempDir {
    let config = format!(
        "[book]\ntitle = \"Small\"\ndescription = \"Small.\"\nlanguage = \"en\"\n\n\
         [build]\ncreate-missing = false\n\n\
         [preprocessor.katex]\ncommand = \"\"\"'{}' preprocess katex\"\"\"\nafter = [\"links\"]\n\
         renderers = [\"html\"]\n\n\
         [output.html.playground]\nrunnable = false\n",
        XTASK.replace('\\', "\\\\")
    );
    folder(&[
        ("book.toml", &config),
        ("src/SUMMARY.md", "# Summary\n\n- [Softmax](softmax.md)\n"),
        ("src/softmax.md", chapter),
    ])
}

fn build(book: &TempDir) -> Ended {
    run(&mut xtask(book.path(), &["build"]))
}

fn built_page(book: &TempDir) -> String {
    fs::read_to_string(book.path().join("target/book/softmax.html")).unwrap()
}

#[test]
fn a_book_that_fails_leaves_the_last_one_whole() {
    let formula = r"\tilde a\; \tilde b + x_a * y_b * z"; // which Markdown would read otherwise
    let book = small_book(&format!("# Softmax\n\nThe first of them: ${formula}$\n"));
    let built = build(&book);
    assert_eq!(built.code, 0, "{}", built.stderr);
    says(&built.stderr, &["built 4 pages in target/book"]);
    let annotation = format!("{formula}</annotation>");
    says(&built_page(&book), &["The first of them", &annotation]);

    fs::write(book.path().join("src/softmax.md"), "# Softmax\n\n{{#include gone.md}}\n")
        .unwrap();
    let built = build(&book);
    assert_eq!(built.code, 1);
    says(
        &built.stderr,
        &["src/softmax.md:3: includes src/gone.md, which does not exist"],
    );
    says(&built_page(&book), &["The first of them"]);

    fs::write(book.path().join("src/softmax.md"), "# Softmax\n\nThe second.\n").unwrap();
    assert_eq!(build(&book).code, 0);
    says(&built_page(&book), &["The second."]);
    let left: Vec<_> = fs::read_dir(book.path().join("target")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Emacs marks a file as open by a link to nothing beside it.
#[test]
#[cfg(unix)]
fn what_editors_leave_is_not_published() {
    let book = small_book("# Softmax\n");
    let sources = book.path().join("src");
    std::os::unix::fs::symlink("me@here.1:2", sources.join(".#softmax.md")).unwrap();
    for name in
        ["#softmax.md#", ".softmax.md.swp", "softmax.md~", "picture.svg", "picture.svg~"]
    {
        fs::write(sources.join(name), "").unwrap();
    }
    let built = build(&book);
    assert_eq!(built.code, 0, "{}", built.stderr);
    let published = fs::read_dir(book.path().join("target/book")).unwrap();
    let names = published.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let beside: Vec<_> = names
        .filter(|name| name.contains("softmax.md") || name.contains("picture"))
        .collect();
    assert_eq!(beside, ["picture.svg"]);
}

/// As Git may check them out on Windows.
#[test]
fn chapters_with_other_line_ends_make_the_same_pages() {
    let glossary = "# Glossary\n\n| word | meaning |\n| :-- | :-- |\n| **[Score](softmax.md)** | A number. |\n";
    let chapter = "# Softmax\n\nA formula, [](#equation-one):\n\n$$\n\\label{one}\nx^2\n$$\n\n- [ ] no\n- [x] yes\n\n```text\ncode\n```\n";
    let later = "# Masking\n\nA score, $x$\nand a \"quote\".\n";
    let page = |windows: bool| {
        let book = small_book(chapter);
        let summary = "# Summary\n\n- [Softmax](softmax.md)\n- [Masking](masking.md)\n- [Glossary](glossary.md)\n";
        let files = [
            ("SUMMARY", summary),
            ("softmax", chapter),
            ("masking", later),
            ("glossary", glossary),
        ];
        for (name, text) in files {
            let text = if windows { text.replace('\n', "\r\n") } else { text.to_owned() };
            fs::write(book.path().join(format!("src/{name}.md")), text).unwrap();
        }
        let built = build(&book);
        assert_eq!(built.code, 0, "{}", built.stderr);
        let page = |name: &str| {
            fs::read_to_string(book.path().join("target/book").join(name)).unwrap()
        };
        ["softmax.html", "masking.html", "glossary.html"]
            .map(page)
            .concat()
            .replace('\r', "")
    };
    let page_of_unix = page(false);
    says(&page_of_unix, &["glossary.html#term-score"]);
    assert_eq!(page(true), page_of_unix);
}

#[test]
fn formats_ask_for_a_browser_before_anything_is_built() {
    let book = small_book("# Softmax\n");
    let mut command = xtask(book.path(), &["build", "--formats"]);
    let built = run(command.env("CHROME", "nowhere/chromium"));
    assert_eq!(built.code, 1);
    says(&built.stderr, &["CHROME names nowhere/chromium, which is no file"]);
    assert!(!book.path().join("target").exists());
}

#[test]
fn a_finding_on_a_page_fails_the_build() {
    let book = small_book("# Softmax\n\n[here](#gone)\n");
    let built = build(&book);
    assert_eq!(built.code, 1);
    says(&built.stderr, &["softmax.html:", "#gone goes to an id that does not exist"]);
    assert!(!book.path().join("target/book").exists());
}

#[test]
fn a_book_that_knows_its_repository_links_to_it() {
    let book = small_book("# Who sees & who doesn’t?\n\nText.\n");
    let summary = "# Summary\n\n- [Who sees & who doesn’t?](softmax.md)\n";
    fs::write(book.path().join("src/SUMMARY.md"), summary).unwrap();
    assert_eq!(build(&book).code, 0);
    assert!(!built_page(&book).contains("github.com"));

    let with =
        |repository| run(&mut xtask(book.path(), &["build", "--repository", repository]));
    let built = with("https://github.com/someone/book");
    assert_eq!(built.code, 0, "{}", built.stderr);
    let links = [
        "<a href=\"https://github.com/someone/book\" title=\"Git repository\"",
        "<a href=\"https://github.com/someone/book/edit/HEAD/src/softmax.md\">",
        "<a href=\"https://github.com/someone/book/issues/new?title=Mistake%20in%20\
         %E2%80%9CWho%20sees%20%26%20who%20doesn%E2%80%99t%3F%E2%80%9D\">",
    ];
    says(&built_page(&book), &links);
    let page = |name| fs::read_to_string(book.path().join("target/book").join(name));
    says(&page("index.html").unwrap(), &links); // the first chapter once more
    assert!(!page("404.html").unwrap().contains("Edit this page"));

    let built = with("github.com/someone/book");
    assert_eq!(built.code, 2);
    says(&built.stderr, &["`github.com/someone/book` does not begin with `https://`"]);
}

/// mdBook warns of it, and writes the page with tags of its own.
#[test]
fn html_that_is_not_balanced_fails_the_build() {
    let book = small_book("# Softmax\n\n<div>\n\nA box without an end.\n");
    let built = build(&book);
    assert_eq!(built.code, 1, "{}", built.stderr);
    says(&built.stderr, &["unclosed HTML tag `<div>` found in `softmax.md`"]);
}

/// mdBook logs the one as an error and goes on with its defaults, and stops at the other.
#[test]
fn an_unknown_key_in_book_toml_fails_the_build() {
    for (key, wrong) in [("runnable", "runable"), ("title", "titel")] {
        let book = small_book("# Softmax\n");
        let config = book.path().join("book.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text.replace(key, wrong)).unwrap();
        let built = build(&book);
        assert_eq!(built.code, 1, "{}", built.stderr);
        says(&built.stderr, &[&format!("unknown field `{wrong}`")]);
    }
}

#[test]
fn a_formula_that_does_not_parse_is_named() {
    let book = small_book(
        "# Softmax\n\nFine: $a < b$.\n\n$$\n\\frac{a\n$$\n\n`$\\no$` $\\foo x$\n",
    );
    let built = build(&book);
    assert_eq!(built.code, 1);
    let why = r"src/softmax.md:6: `\frac{a`: ParseError: KaTeX parse error";
    says(
        &built.stderr,
        &["KaTeX cannot parse:", why, r"src/softmax.md:9: `\foo x`: unknown command"],
    );
    assert_eq!(built.stderr.matches("src/softmax.md").count(), 2, "{}", built.stderr);
}

const LIBRARY: &str =
    "//! Small.\n/// One more.\npub fn next(n: u32) -> u32 {\n    n + 1\n}\n";

/// A book whose snippets run against a crate of one function.
fn book_with_crate(chapter: &str) -> TempDir {
    folder(&[
        ("book.toml", "[book]\ntitle = \"Small\"\n"),
        (
            "Cargo.toml",
            "[workspace]\nmembers = [\"crates/attention\"]\nresolver = \"3\"\n",
        ),
        (
            "crates/attention/Cargo.toml",
            "[package]\nname = \"attention\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
        ),
        ("crates/attention/src/lib.rs", LIBRARY),
        ("src/SUMMARY.md", "# Summary\n\n- [Softmax](softmax.md)\n"),
        ("src/softmax.md", chapter),
    ])
}

/// The request that mdBook sends: the chapter after its includes are resolved.
fn request(book: &TempDir, resolved: &str) -> String {
    let root = book.path().to_str().unwrap();
    let context = serde_json::json!({
        "root": root, "config": {}, "renderer": "test", "mdbook_version": "0.5.4"
    });
    let chapter = serde_json::json!({ "Chapter": {
        "name": "Softmax", "content": resolved, "number": [1], "sub_items": [],
        "path": "softmax.md", "source_path": "softmax.md", "parent_names": []
    }});
    serde_json::json!([context, { "items": [chapter] }]).to_string()
}

/// Runs the snippets of a chapter in which `{{#include x}}` stands for `included`.
fn snippets(chapter: &str, included: &str) -> Ended {
    let book = book_with_crate(chapter);
    let request = request(&book, &chapter.replace("{{#include x}}", included));
    with_input(&mut xtask(book.path(), &["preprocess", "snippets"]), &request)
}

#[test]
fn snippets_run_and_nothing_is_left_to_run() {
    let chapter = "# Softmax\n\n```rust\nuse attention::next;\nassert_eq!(next(1), 2);\n```\n\n\
        ```rust,should_panic\npanic!();\n```\n\n```rust,no_run\nloop {}\n```\n\n\
        ```rust,compile_fail,E0308\nlet x: u32 = \"\";\n```\n\n\
        ```rust,listing\nnot even Rust\n```\n\n```text\nneither\n```\n";
    let ran = snippets(chapter, "");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    says(&ran.stderr, &["snippets: 4 in 1 chapter ran, all passed ("]);
    let book: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(book["items"][0]["Chapter"]["content"], "");
}

#[test]
fn a_snippet_that_panics_is_named_by_chapter_and_line() {
    let chapter = "# Softmax\n\n{{#include x}}\n\n```rust\n# use attention::next;\nlet n = next(1);\n\
                   assert_eq!(n, 3);\n```\n\n```rust\n```\n";
    let ran = snippets(chapter, "Some\n\nlines\n\nmore");
    assert_eq!(ran.code, 1);
    assert_eq!(ran.stdout, "");
    let parts = [
        "1 of 2 snippets failed",
        "── src/softmax.md:5 ──",
        "panicked at src/softmax.md:8:",
    ];
    says(&ran.stderr, &parts);
}

#[test]
fn a_snippet_that_does_not_compile_is_named_by_chapter_and_line() {
    let chapter = "# Softmax\n\n```rust\n{{#include x}}\nlet n: u32 = one();\nlet x: u32 = \"\";\n```\n";
    let ran = snippets(chapter, "fn one() -> u32 {\n    1\n}");
    assert_eq!(ran.code, 1);
    says(
        &ran.stderr,
        &["── src/softmax.md:3 ──", "error[E0308]", "--> src/softmax.md:6:14"],
    );
}

#[test]
fn a_snippet_that_fails_otherwise_than_it_says_is_named() {
    let chapter = "# Softmax\n\n```rust,compile_fail,E0277\nlet x: u32 = \"\";\n```\n";
    let ran = snippets(chapter, "");
    assert_eq!(ran.code, 1);
    says(
        &ran.stderr,
        &["── src/softmax.md:3 ──", r#"expected error codes were not found: ["E0277"]"#],
    );
}

#[test]
fn preprocessors_answer_for_their_renderer_only() {
    let here = folder(&[("book.toml", "")]);
    for (preprocessor, right, wrong) in
        [("snippets", "test", "html"), ("katex", "html", "test")]
    {
        let answer = |renderer| {
            run(&mut xtask(
                here.path(),
                &["preprocess", preprocessor, "supports", renderer],
            ))
            .code
        };
        assert_eq!((answer(right), answer(wrong)), (0, 1));
    }
}

/// A project that shares its crates with this one, and where cargo is this line of shell.
#[cfg(unix)]
fn project_of_exercises(line: &str) -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let project = folder(&[("book.toml", "")]);
    for part in ["crates", "Cargo.lock"] {
        std::os::unix::fs::symlink(root.join(part), project.path().join(part)).unwrap();
    }
    // By a shell, since a file that is open in one of our threads can't be run.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$0\" > cargo.sh && chmod +x cargo.sh";
    let mut shell = Command::new("sh");
    shell.args(["-c", write, line]).current_dir(project.path());
    assert!(shell.status().unwrap().success());
    project
}

#[cfg(unix)]
fn exercises(project: &TempDir, arguments: &[&str]) -> Command {
    let mut command = xtask(project.path(), &["exercises"]);
    command.args(arguments).env("CARGO", project.path().join("cargo.sh"));
    command
}

/// What cannot be written is said before the tests have run.
#[test]
#[cfg(unix)]
fn a_grade_asks_for_its_folder_first() {
    let project = project_of_exercises("touch called; exit 1");
    assert_eq!(run(&mut exercises(&project, &["new", "mine"])).code, 0);
    let file = project.path().join("mine/src/program/softmax.rs");
    fs::write(file, "// mine").unwrap();
    let graded = run(&mut exercises(&project, &["grade", "mine", "--out", "missing"]));
    assert_eq!(graded.code, 1);
    says(&graded.stderr, &["there is no folder missing"]);
    assert!(!project.path().join("target/exercises/graded/called").exists());
}

#[test]
#[cfg(unix)]
fn two_grades_at_once_are_each_of_their_own_folder() {
    // The message of the compiler is what was written.
    let project =
        project_of_exercises("sleep 0.5; cat src/program/softmax.rs >&2; exit 1");
    let grades = ["first", "second"].map(|name| {
        assert_eq!(run(&mut exercises(&project, &["new", name])).code, 0);
        let file = project.path().join(name).join("src/program/softmax.rs");
        fs::write(file, format!("of the {name}")).unwrap();
        exercises(&project, &["grade", name, "--out", name]).spawn().unwrap()
    });
    for mut grade in grades {
        assert!(grade.wait().unwrap().success());
    }
    for name in ["first", "second"] {
        let grade = fs::read_to_string(project.path().join(name).join("grade.json"));
        says(&grade.unwrap(), &[&format!("of the {name}")]);
    }
}

#[test]
#[cfg(unix)]
fn a_full_disk_leaves_nothing_half_written() {
    let project = project_of_exercises("exit 1");
    // No file may be longer than this, as if the disk were full there.
    let mut limited = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" exercises new mine";
    limited.args(["-c", script, XTASK]).current_dir(project.path());
    let full = run(&mut limited);
    assert_eq!(full.code, 1);
    says(&full.stderr, &["cannot write mine/"]);
    let again = run(&mut exercises(&project, &["new", "mine"]));
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(run(&mut exercises(&project, &["new", "other"])).code, 0);
    let mut compare = Command::new("diff");
    compare.args(["-r", "mine", "other"]).current_dir(project.path());
    assert_eq!(run(&mut compare).stdout, "");
}

#[test]
#[cfg(unix)]
fn a_reader_of_the_first_lines_ends_a_command() {
    let project = project_of_exercises("exit 1");
    let mut piped = Command::new("sh");
    let script = "{ \"$0\" exercises new mine; echo ended with $? >&2; } | true";
    piped.args(["-c", script, XTASK]).current_dir(project.path());
    assert_eq!(run(&mut piped).stderr, "ended with 141\n");
}
