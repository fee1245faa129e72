//! The compiler's figures for every kernel, for every architecture, head dimension and mask.

use crate::arguments::CompileOptions;
use crate::report::circumstances;
use anyhow::{Context, Result, ensure};
use attention::cuda::{Architecture, Compiled, Program, compile};
use gpu::report::{Launch, Resources};
use gpu::{ALL, Precision, architectures};
use itertools::iproduct;
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use record::{Measurement, Record, Unit};
use recorder::write_file;
use std::path::Path;

const TOPIC: &str = "kernels";

/// Compiles, and prints, writes or compares.
///
/// # Errors
/// There is no NVRTC, a kernel does not compile, or the compiler says something else than the record.
pub fn run(options: &CompileOptions) -> Result<()> {
    let mut record = circumstances(TOPIC)?;
    println!("NVRTC {}", record.versions["nvrtc"]);
    let compiled =
        variants().into_par_iter().map(|(program, architecture, d, causal)| {
            let at = || format!("{program}, d = {d}, causal = {causal}");
            let compiled = compile(program, architecture, d, causal).with_context(at)?;
            let needs = Resources::parse(&compiled.log);
            let mut found = vec![];
            for function in program.source().functions {
                let name = function.0;
                let needs = needs.iter().find(|needs| needs.function == name);
                let needs =
                    needs.with_context(|| format!("{program}: the log has no {name}"))?;
                let launch = Launch::of(&compiled, name)?;
                found.extend(measurements(&compiled, needs, launch, (d, causal)));
            }
            Ok(found)
        });
    record.measurements = compiled.collect::<Result<Vec<_>>>()?.concat();
    record.check()?;
    let count = record.measurements.len();
    if let Some(file) = &options.record {
        write_file(file, &record)?;
        println!("{}: {count} measurements", file.display());
    } else if let Some(file) = &options.check {
        check(&record, file)?;
        println!("{}: as recorded, {count} measurements", file.display());
    } else {
        record.measurements.iter().for_each(|one| println!("{}", told(one)));
    }
    Ok(())
}

/// All that is compiled: program, architecture, head dimension, mask.
fn variants() -> Vec<(Program, Architecture, usize, bool)> {
    let of = |program: &Program| {
        let source = program.source();
        iproduct!([*program], architectures(*program), source.widths, [false, true])
    };
    let all = ALL.iter().flat_map(of);
    all.map(|(program, architecture, d, causal)| (program, architecture, *d, causal))
        .collect()
}

/// Returns the needs of a function: registers of a thread; bytes of a thread that are spilled, and of its stack; and bytes of
/// shared memory that a block is given.
fn measurements(
    compiled: &Compiled,
    needs: &Resources,
    launch: Launch,
    (d, causal): (usize, bool),
) -> [Measurement; 4] {
    let source = compiled.program.source();
    let common = Measurement::common(
        Precision::of(compiled.program),
        &[("d", d), ("rows", launch.rows as usize)],
        &[
            ("architecture", &compiled.architecture),
            ("kernel", &source.name),
            ("mask", &mask(causal)),
        ],
        launch.threads as usize,
    );
    [
        ("registers", Unit::Count, needs.registers),
        ("spills", Unit::Bytes, needs.spill_stores + needs.spill_loads),
        ("stack", Unit::Bytes, needs.stack),
        ("shared", Unit::Bytes, needs.shared + launch.shared_bytes),
    ]
    .map(|(what, unit, number)| {
        let what = format!("{what}/{}", needs.function);
        common.named(what, unit, (number.into(), 0.0))
    })
}

fn mask(causal: bool) -> &'static str {
    if causal { "causal" } else { "full" }
}

/// That the record in the file says the same; when and where it was made does not matter.
fn check(found: &Record, file: &Path) -> Result<()> {
    let recorded = Record::read(file)?;
    let (at, again) = (file.display(), "`cargo xtask gpu compile` writes it again");
    let version =
        |record: &Record| record.versions.get("nvrtc").cloned().unwrap_or_default();
    let (was, is) = (version(&recorded), version(found));
    ensure!(
        was == is,
        "{at} is of NVRTC {was}, but this is NVRTC {is}; {again} with this one"
    );
    ensure!(
        recorded.measurements == found.measurements,
        "{at} says something else than the compiler; {again}"
    );
    Ok(())
}

/// "96 registers/attention_forward, d = 64, sm_90, tiled, causal (with 256 threads, 64 rows)"
fn told(measurement: &Measurement) -> String {
    let rows = measurement.sizes.get("rows").copied().unwrap_or_default();
    let Measurement { median, threads, .. } = measurement;
    format!("{median} {} (with {threads} threads, {rows} rows)", name(measurement))
}

/// "registers/attention_forward, d = 64, sm_90, tiled, causal"
fn name(measurement: &Measurement) -> String {
    let d = measurement.sizes.get("d").copied().unwrap_or_default();
    let settings: Vec<_> = measurement.settings.values().map(String::as_str).collect();
    format!("{}, d = {d}, {}", measurement.what, settings.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::cuda::TILED;

    fn found() -> Vec<Measurement> {
        let compiled = Compiled {
            program: TILED,
            architecture: gpu::SM_80,
            cubin: vec![],
            log: String::new(),
        };
        let needs = Resources {
            function: "attention_forward".to_owned(),
            registers: 96,
            shared: 16,
            ..Resources::default()
        };
        let launch = Launch { threads: 256, rows: 64, shared_bytes: 1000 };
        measurements(&compiled, &needs, launch, (64, true)).to_vec()
    }

    fn record() -> Record {
        let text = include_str!("../../../crates/record/tests/pace.json");
        let mut record = Record::parse("pace", text).unwrap();
        record.topic = TOPIC.to_owned();
        record.versions.insert("nvrtc".to_owned(), "13.0".to_owned());
        record.measurements = found();
        record
    }

    #[test]
    fn each_function_has_four_numbers() {
        let record = record();
        record.check().unwrap();
        let told: Vec<_> =
            record.measurements.iter().map(|m| (name(m), m.unit, m.median)).collect();
        let at = "d = 64, sm_80, tiled, causal";
        let expected = [
            ("registers", Unit::Count, 96.0),
            ("spills", Unit::Bytes, 0.0),
            ("stack", Unit::Bytes, 0.0),
            ("shared", Unit::Bytes, 1016.0),
        ]
        .map(|(what, unit, number)| {
            (format!("{what}/attention_forward, {at}"), unit, number)
        });
        assert_eq!(told, expected);
        assert_eq!(record.measurements[0].threads, 256);
    }

    /// Writes a record, changed, and compares.
    fn checked(change: fn(&mut Record)) -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kernels.json");
        let mut changed = record();
        change(&mut changed);
        write_file(&file, &changed).unwrap();
        check(&record(), &file)
    }

    #[test]
    fn a_difference_is_found() {
        assert!(checked(|_| ()).is_ok());
        assert!(checked(|record| record.machine.cores = 99).is_ok());
        let says = |change, part: &str| {
            let error = format!("{:#}", checked(change).unwrap_err());
            assert!(error.contains(part), "{error}");
            assert!(error.contains("cargo xtask gpu compile"), "{error}");
        };
        let other = "says something else than the compiler";
        says(|record| record.measurements[0].median = 95.0, other);
        says(|record| record.measurements[0].threads = 128, other);
        says(|record| drop(record.measurements.remove(1)), other);
        says(
            |record| drop(record.versions.insert("nvrtc".to_owned(), "12.9".to_owned())),
            "is of NVRTC 12.9, but this is NVRTC 13.0",
        );
    }
}
