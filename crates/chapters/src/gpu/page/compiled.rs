//! The compiler's report of the kernels.

use crate::figures::format::{fixed, integer, table};
use crate::gpu::banks::D;
use crate::gpu::compiled::{Needs, needs};
use anyhow::{Context, Result};
use gpu::tiles::hopper::{CONSUMER_REGISTERS, PRODUCER_REGISTERS};
use record::Record;

/// Registers, spills, shared memory and what fits a multiprocessor, of every function on Hopper.
pub fn in_words(record: &Record) -> Result<String> {
    let functions = needs(record)?;
    let row = |(kernel, function, needs): &(&str, &str, Needs)| {
        let shared = match needs.shared {
            0..1024 => "–".to_owned(),
            bytes => fixed(bytes as f64 / 1024.0, 0),
        };
        vec![
            format!("{kernel}: `{function}`"),
            integer(needs.threads),
            integer(needs.registers),
            integer(needs.spills),
            shared,
            integer(needs.blocks()),
            integer(needs.warps()),
        ]
    };
    let rows: Vec<_> = functions.iter().map(row).collect();
    // Kernels 4 and 6 deal their registers out again when they run, which the report does not say.
    let hopper = functions.iter().rfind(|(kernel, ..)| *kernel == "hopper");
    let note = hopper.map(|(.., needs)| {
        format!(
            " The {} of kernels 4 and 6 are those at the launch; then each thread of a producer keeps {PRODUCER_REGISTERS}, and each of a \
             consumer has {CONSUMER_REGISTERS}.",
            needs.registers
        )
    });
    let nvrtc = record
        .versions
        .get("nvrtc")
        .context("the record `kernels` does not say which nvrtc")?;
    let header = [
        "function",
        "threads of a thread block",
        "registers of a thread",
        "spilled bytes",
        "shared memory of a thread block, KiB",
        "thread blocks on a multiprocessor",
        "warps",
    ];
    Ok(format!(
        "{}\nWithout a mask, $d = {D}$, for `sm_90` (`sm_90a` for kernels 4 and 6); compiled with NVRTC {nvrtc} on {}.{}\n",
        table(&header, &rows),
        record.day(),
        note.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Measurement, Unit};

    /// Made up, to try the code.
    fn compiled_record(change: impl FnOnce(&mut Record)) -> Record {
        let mut record = Record::parse("gpu", include_str!("../made_up.json")).unwrap();
        let first = record.measurements[0].clone();
        record.topic = "kernels".to_owned();
        record.versions.insert("nvrtc".to_owned(), "99.9".to_owned());
        let with = |what: &str, number: f64, architecture: &str| {
            let settings =
                [("architecture", architecture), ("kernel", "tiled"), ("mask", "full")];
            Measurement {
                what: format!("{what}/attention_forward"),
                sizes: [("d".to_owned(), 128), ("rows".to_owned(), 32)].into(),
                settings: settings
                    .map(|(name, setting)| (name.to_owned(), setting.to_owned()))
                    .into(),
                threads: 128,
                unit: Unit::Count,
                median: number,
                ..first.clone()
            }
        };
        record.measurements = vec![
            with("registers", 40.0, "sm_80"),
            with("registers", 121.0, "sm_90"),
            with("spills", 0.0, "sm_90"),
            with("shared", 51_200.0, "sm_90"),
        ];
        change(&mut record);
        record.check().unwrap();
        record
    }

    #[test]
    fn the_compilers_report_of_hopper_is_shown() {
        let text = in_words(&compiled_record(|_| ())).unwrap();
        let row = text.lines().nth(2).unwrap();
        assert_eq!(row, "| tiled: `attention_forward` | 128 | 121 | 0 | 50 | 4 | 16 |");
        assert_eq!(
            text.lines().filter(|line| line.contains("tiled")).count(),
            1,
            "{text}"
        );
        assert!(text.contains("NVRTC 99.9 on 2026-01-31"), "{text}");
        let partial = compiled_record(|record| record.measurements.truncate(3));
        assert!(
            in_words(&partial)
                .unwrap_err()
                .to_string()
                .contains("no shared/attention_forward of tiled")
        );
        let too_large =
            compiled_record(|record| record.measurements[3].median = 400_000.0);
        assert!(in_words(&too_large).unwrap_err().to_string().contains("does not fit"));
    }
}
