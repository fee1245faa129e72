//! Messages for the person at the terminal while something takes its time.
//!
//! Everything goes to standard error: mdBook reads the standard output of its preprocessors.

use std::time::{Duration, Instant};

/// Something that goes on, until it is [`done`](Activity::done).
#[derive(Debug)]
pub struct Activity(Instant);

impl Activity {
    /// Announces `what` goes on now, as in "building the book".
    #[must_use]
    pub fn begin(what: &str) -> Self {
        eprintln!("{what} …");
        Self(Instant::now())
    }

    /// Ends it with a line that says how long it took.
    pub fn done(self, result: &str) {
        eprintln!("{result} ({})", seconds(self.0.elapsed()));
    }
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
