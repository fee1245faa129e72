//! What the person at the terminal sees while something takes its time.
//!
//! On a terminal that is a spinner; elsewhere, in a log, it is one plain line for each thing begun.
//! Everything goes to standard error: mdBook reads the standard output of its preprocessors.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Something that goes on, until it is dropped or [`done`](Activity::done).
#[derive(Debug)]
pub struct Activity {
    what: String,
    spinner: Option<ProgressBar>,
    begun: Instant,
}

impl Activity {
    /// Announces `what` goes on now, as in "building the book".
    #[must_use]
    pub fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        let spinner = std::io::stderr().is_terminal().then(|| spinner(&what));
        if spinner.is_none() {
            eprintln!("{what} …");
        }
        let begun = Instant::now();
        Self { what, spinner, begun }
    }

    /// Shows which part is at work. A log is spared these.
    pub fn detail(&self, detail: &str) {
        if let Some(spinner) = &self.spinner {
            spinner.set_message(format!("{} … {detail}", self.what));
        }
    }

    /// Ends it with a line that says how long it took.
    pub fn done(self, result: &str) {
        let time = seconds(self.begun.elapsed());
        drop(self);
        eprintln!("{result} ({time})");
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}

fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(format!("{what} …"));
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// A time as people read it: `6.2 s`, `2 min 5 s`.
#[must_use]
pub fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(60) {
        return format!("{:.1} s", time.as_secs_f64());
    }
    let whole = time.as_secs();
    format!("{} min {} s", whole / 60, whole % 60)
}

/// `1 page`, `3 pages`.
#[must_use]
pub fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
