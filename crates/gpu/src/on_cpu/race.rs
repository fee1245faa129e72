//! ThreadSanitizer's report, read.

use std::fmt;

/// Two threads of a block at one place of memory, at least one of them writing, and no barrier between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Race {
    /// The second access.
    pub now: Access,
    /// The first access.
    pub before: Access,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `threadIdx.x`
    pub thread: u32,
    /// True if it writes.
    pub writes: bool,
    /// The kernel's file.
    pub file: String,
    /// The line in it, from 1.
    pub line: u32,
}

impl Race {
    /// The first race of a report such as
    ///
    /// ```text
    /// WARNING: ThreadSanitizer: data race (pid=1)
    ///   Read of size 4 at 0x5555 by thread T17:
    ///     #0 attention_forward /book/cuda/tiled.cu:65 (kernel+0x34ab)
    ///   Previous write of size 4 at 0x5555 by thread T1:
    ///     #0 load<32, 64> /book/cuda/tiled.cu:34 (kernel+0x34cd)
    /// ```
    pub fn parse(report: &str) -> Option<Self> {
        let (_, report) = report.split_once("data race")?;
        let (now, before) = report.split_once("  Previous ")?;
        Some(Race { now: Access::parse(now)?, before: Access::parse(before)? })
    }
}

impl Access {
    fn parse(text: &str) -> Option<Self> {
        let head = text.lines().find(|line| line.contains(" of size "))?;
        // ThreadSanitizer counts the program itself as T0, or `main thread`, and then one fiber for each CUDA thread.
        let number = head.rsplit_once(" T")?.1.trim_end_matches(':');
        let thread = number
            .split_whitespace()
            .next()?
            .trim_end_matches(':')
            .parse::<u32>()
            .ok()?;
        let place = text
            .lines()
            .filter(|line| line.trim_start().starts_with('#'))
            .find_map(|frame| {
                let place =
                    frame.split_whitespace().find(|word| word.contains(".cu:"))?;
                let mut parts = place.rsplit('/').next()?.split(':');
                Some((parts.next()?.to_owned(), parts.next()?.parse().ok()?))
            })?;
        let writes = head.to_lowercase().contains("write of size");
        Some(Access {
            thread: thread.checked_sub(1)?,
            writes,
            file: place.0,
            line: place.1,
        })
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Race { now, before } = self;
        let verb = |access: &Access| if access.writes { "writes" } else { "reads" };
        let had = if before.writes { "had written" } else { "had read" };
        write!(
            f,
            "a race: thread {} {} in line {} of {} what thread {} {had} in line {}, and nothing orders the two",
            now.thread,
            verb(now),
            now.line,
            now.file,
            before.thread,
            before.line
        )
    }
}
