//! `cargo xtask …`: see the library for what each command does.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::cli::run()
}
