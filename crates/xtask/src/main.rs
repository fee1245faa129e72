//! `cargo xtask …`: see the library for what each command does.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Someone who reads only the first lines, as `head` does, ends the program without a word.
    sigpipe::reset();
    xtask::cli::run()
}
