//! The commands as they are typed, on small books in temporary folders.

use std::env;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use xtask::project::Project;
use xtask::tools::{MDBOOK, MDBOOK_KATEX, Trouble};

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

/// What a command came to: its exit code, its output and what it said besides.
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
    for command in ["serve", "build", "test", "generate", "bench", "gpu", "preprocess"] {
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

/// The real tools, for the books that are built for real.
fn tool_folders() -> Vec<PathBuf> {
    let project =
        Project::at(Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap());
    [MDBOOK, MDBOOK_KATEX]
        .map(|tool| tool.ensure(&project).unwrap().parent().unwrap().to_path_buf())
        .to_vec()
}

fn path_with(mut folders: Vec<PathBuf>) -> std::ffi::OsString {
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    env::join_paths(folders).unwrap()
}

/// A book of one chapter whose formulas go through this program.
fn small_book(chapter: &str) -> TempDir {
    let config = format!(
        "[book]\ntitle = \"Small\"\ndescription = \"Small.\"\nlanguage = \"en\"\n\n\
         [build]\ncreate-missing = false\n\n\
         [preprocessor.katex]\ncommand = \"\"\"'{}' preprocess katex\"\"\"\nafter = [\"links\"]\n\
         renderers = [\"html\"]\noutput = \"htmlAndMathml\"\nno-css = true\n\n\
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
    run(xtask(book.path(), &["build"]).env("PATH", path_with(tool_folders())))
}

fn built_page(book: &TempDir) -> String {
    fs::read_to_string(book.path().join("target/book/softmax.html")).unwrap()
}

#[test]
fn a_book_that_fails_leaves_the_last_one_whole() {
    let book = small_book("# Softmax\n\nThe first of them, with $x^2$.\n");
    let built = build(&book);
    assert_eq!(built.code, 0, "{}", built.stderr);
    says(&built.stderr, &["built 5 pages in target/book"]);
    says(&built_page(&book), &["The first of them", "katex-mathml"]);

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

#[test]
fn a_finding_on_a_page_fails_the_build() {
    let book = small_book("# Softmax\n\n[here](#gone)\n");
    let built = build(&book);
    assert_eq!(built.code, 1);
    says(&built.stderr, &["softmax.html:", "#gone goes to an id that does not exist"]);
    assert!(!book.path().join("target/book").exists());
}

/// mdBook warns of it, and writes the page with tags of its own.
#[test]
fn html_that_is_not_balanced_fails_the_build() {
    let book = small_book("# Softmax\n\n<div>\n\nA box without an end.\n");
    let built = build(&book);
    assert_eq!(built.code, 1, "{}", built.stderr);
    says(&built.stderr, &["unclosed HTML tag `<div>` found in `softmax.md`"]);
}

#[test]
fn formulas_reach_the_page_as_they_were_written() {
    let book = small_book("# Softmax\n\n$\\tilde a\\; \\tilde b$ and $x_a * y_b * z$\n");
    let built = build(&book);
    assert_eq!(built.code, 0, "{}", built.stderr);
    says(
        &built_page(&book),
        &[r"\tilde a\; \tilde b</annotation>", "x_a * y_b * z</annotation>"],
    );
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

/// What mdBook sends: the chapter after its includes are resolved.
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

const NO_LINKER: &str = "   Compiling proc-macro2 v1.0.106\nerror: linker `cc` not found\n  |\n  = \
    note: No such file or directory (os error 2)\n\nerror: could not compile `proc-macro2` (build \
    script) due to 1 previous error\n";

const NO_CC: &str = "error: failed to run custom build command for `libquickjs-sys v0.9.0`\n  --- \
    stderr\n\n  error occurred in cc-rs: failed to find tool \"cc\": No such file or directory (os \
    error 2)\n";

const NO_HOST: &str = "    Updating crates.io index\nwarning: spurious network error (3 tries \
    remaining): [6] Could not resolve hostname (Could not resolve host: registry.example)\nerror: \
    failed to query replaced source registry `crates-io`\n";

const NO_DOWNLOAD: &str = "error: failed to download from \
    `https://registry.example/crates/mdbook/0.5.4/download`\n\nCaused by:\n  [7] Could not connect \
    to server\n";

#[test]
fn the_reason_for_a_failed_installation_is_recognised() {
    for output in [NO_LINKER, NO_CC] {
        assert_eq!(Trouble::from_output(output), Trouble::NoCompiler);
    }
    for output in [NO_HOST, NO_DOWNLOAD] {
        assert_eq!(Trouble::from_output(output), Trouble::NoNetwork);
    }
    assert_eq!(Trouble::from_output("error[E0308]: mismatched types"), Trouble::Other);
}

/// Installations by a cargo that only says why it failed.
#[cfg(unix)]
mod installing {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(path: &Path, script: &str) {
        fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Builds a book where neither tool is on the PATH, and cargo runs `script`.
    fn build_with_cargo(book: &TempDir, script: &str) -> Ended {
        let cargo = book.path().join("cargo");
        program(&cargo, script);
        run(xtask(book.path(), &["build"])
            .env("CARGO", cargo)
            .env("PATH", "/usr/bin:/bin"))
    }

    fn failing(output: &str) -> Ended {
        let book = small_book("# Softmax\n");
        build_with_cargo(&book, &format!("cat >&2 <<'END'\n{output}\nEND\nexit 101"))
    }

    #[test]
    fn without_a_c_compiler_it_says_which_package_has_one() {
        let built = failing(NO_LINKER);
        assert_eq!(built.code, 1);
        let parts =
            ["there is no C compiler", "apt install build-essential", "dnf install gcc"];
        says(&built.stderr, &parts);
        says(&built.stderr, &["xcode-select --install", "winget install"]);
    }

    #[test]
    fn without_a_network_it_says_what_to_do() {
        let built = failing(NO_HOST);
        assert_eq!(built.code, 1);
        let parts = [
            "Connect to the network once",
            "cargo install --locked mdbook --version =0.5.4",
        ];
        says(&built.stderr, &parts);
    }

    #[test]
    fn for_another_reason_it_shows_the_last_words() {
        let built = failing("error: the disk is full");
        assert_eq!(built.code, 1);
        says(&built.stderr, &["could not be installed", "  error: the disk is full"]);
    }

    #[test]
    fn a_tool_in_another_version_is_not_used() {
        let book = small_book("# Softmax\n");
        let tools = book.path().join("target/tools/bin");
        fs::create_dir_all(&tools).unwrap();
        program(&tools.join("mdbook"), "echo mdbook v0.4.52");
        says(
            &build_with_cargo(&book, "exit 101").stderr,
            &["mdbook 0.5.4 could not be installed"],
        );
        program(&tools.join("mdbook"), "exit 1");
        says(
            &build_with_cargo(&book, "exit 101").stderr,
            &["mdbook 0.5.4 could not be installed"],
        );
    }

    #[test]
    fn the_tool_is_asked_for_in_its_version() {
        let book = small_book("# Softmax\n");
        let script = format!("echo \"$@\" > {}/asked", book.path().display());
        build_with_cargo(&book, &script);
        let asked = fs::read_to_string(book.path().join("asked")).unwrap();
        says(&asked, &["install --locked --force mdbook --version =0.5.4 --root "]);
    }
}
