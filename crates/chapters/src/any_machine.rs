//! Pages that show records, made from records of machines that do not exist: whatever was measured, they can be made, and have
//! every file and value that the book includes.

use crate::output::{Generated, Page, files_below};
use crate::records::Records;
use crate::records::tests::committed;
use crate::{
    Generator, across_machines, claims, counting, decoding, fast, fewer_pairs, gpu,
    linear_attention, memory_wall, same_bits, tiles_backward,
};
use anyhow::{Context, Result};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use record::{Cache, Machine, Record, SHOWN, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The functions that read records: whole pages, and of two slow pages the part that does.
const MEASURED: &[Generator] = &[
    ("counting", counting::generate),
    ("memory-wall", memory_wall::on_a_thread),
    ("decoding", decoding::steps),
    ("tiles-backward", tiles_backward::keep_or_recompute),
    ("fast", fast::generate),
    ("same-bits", same_bits::costs),
    ("fewer-pairs", fewer_pairs::costs),
    ("linear-attention", linear_attention::costs),
    ("claims", claims::generate),
    ("gpu", gpu::generate),
    ("across-machines", across_machines::generate),
];

const TOPICS: [&str; 12] = [
    "across",
    "complexity",
    "decoding",
    "fewer_pairs",
    "gpu",
    "ladder",
    "memory",
    "pages",
    "parts",
    "peers",
    "roofline",
    "same_bits",
];

fn measured(records: &Records) -> Result<Generated> {
    let mut generated = Generated::default();
    for &(name, generate) in MEASURED {
        let mut page = Page::new(name, records);
        generate(&mut page).context(name)?;
        generated.add(page);
    }
    Ok(generated)
}

/// Returns the files that the book includes, with the keys of those that have values.
fn included(generated: &Generated) -> BTreeMap<PathBuf, BTreeSet<String>> {
    let keys = |text: &str| {
        let key = |line: &str| line.strip_prefix("ANCHOR: ").map(str::to_owned);
        text.lines().filter_map(key).collect()
    };
    generated.files().map(|(path, text)| (path.to_owned(), keys(text))).collect()
}

fn text<'a>(generated: &'a Generated, file: &str) -> &'a str {
    generated.files().find(|(path, _)| *path == Path::new(file)).unwrap().1
}

/// The rows of a table, without its header.
fn rows<'a>(generated: &'a Generated, file: &str) -> impl Iterator<Item = &'a str> {
    text(generated, file).lines().skip(2)
}

fn value<'a>(generated: &'a Generated, file: &str, key: &str) -> &'a str {
    let start = format!("ANCHOR: {key}\n");
    text(generated, file).split_once(&start).unwrap().1.lines().next().unwrap()
}

/// The committed record of a topic.
fn original(topic: &str) -> Record {
    let [record] = committed().of_one_machine([topic]).unwrap();
    record
}

fn cache(level: u32, kind: &str, bytes: u64) -> Cache {
    Cache { level, kind: kind.to_owned(), bytes }
}

/// A machine that does not exist: without known caches, with a first one alone, with caches that hold no tile, and with large ones.
fn machine(rng: &mut ChaCha8Rng, name: &str) -> Machine {
    let caches = [
        vec![],
        vec![cache(1, "Data", 16 << 10)],
        vec![
            cache(1, "Data", 16 << 10),
            cache(1, "Instruction", 1 << 30),
            cache(2, "Unified", 64 << 10),
        ],
        vec![
            cache(1, "Data", 128 << 10),
            cache(2, "Unified", 16 << 20),
            cache(3, "Unified", 1 << 30),
        ],
    ];
    Machine {
        cpu: name.to_owned(),
        microarchitecture: rng.random_bool(0.5).then(|| "imaginary".to_owned()),
        family: rng.random_bool(0.5).then_some(6),
        model: rng.random_bool(0.5).then_some(1000),
        cores: [1, 2, 96][rng.random_range(0..3)],
        memory: rng.random_range(1 << 30..1 << 40),
        caches: caches[rng.random_range(0..4)].clone(),
        accelerator: None,
        os: "linux".to_owned(),
        arch: ["x86_64", "aarch64"][rng.random_range(0..2)].to_owned(),
    }
}

/// The committed record as that machine might have taken it: every time and spread is another one, by a factor of two at most.
fn changed(topic: &str, machine: &Machine, rng: &mut ChaCha8Rng) -> Record {
    let mut record = original(topic);
    let accelerator = record.machine.accelerator.take();
    record.machine = Machine { accelerator, ..machine.clone() };
    record.date = format!("2027-0{}-11T12:00:00Z", rng.random_range(1..10));
    record.versions.insert("attention".to_owned(), "9.9.9".to_owned());
    if rng.random_bool(0.5) {
        record
            .versions
            .insert("commit".to_owned(), format!("{:010x}", rng.random::<u32>()));
    } else {
        for name in ["commit", "pulp"] {
            record.versions.remove(name);
        }
    }
    let threads = [None, Some(1), Some(4)][rng.random_range(0..3)];
    for m in &mut record.measurements {
        if m.unit != Unit::Bytes && m.unit != Unit::Count {
            let mut factor = || rng.random_range(-1.0_f64..1.0).exp2();
            m.median *= factor();
            m.spread *= factor();
        }
        // In these records, threads tell measurements apart.
        if let Some(threads) =
            threads.filter(|_| !["across", "peers", "decoding"].contains(&topic))
        {
            m.threads = threads;
        }
    }
    record.check().unwrap();
    record
}

/// Returns a folder with the record that belongs to no machine and those of these machines, in the order in which they are shown.
fn folder(machines: &[(&str, Vec<Record>)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records/kernels.json");
    fs::copy(real, folder.path().join("kernels.json")).unwrap();
    let names: Vec<_> = machines.iter().map(|(name, _)| *name).collect();
    fs::write(folder.path().join(SHOWN), names.join("\n")).unwrap();
    for (name, records) in machines {
        let machine = folder.path().join(name);
        fs::create_dir(&machine).unwrap();
        for record in records {
            let text = serde_json::to_string(record).unwrap();
            fs::write(machine.join(format!("{}.json", record.topic)), text).unwrap();
        }
    }
    folder
}

fn generated(machines: &[(&str, Vec<Record>)]) -> Result<Generated> {
    measured(&Records::open(folder(machines).path())?)
}

fn made_up(seed: u64, name: &str, topics: &[&str]) -> Vec<Record> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let machine = machine(rng, name);
    topics.iter().map(|topic| changed(topic, &machine, rng)).collect()
}

#[test]
fn records_of_any_machine_make_every_page() {
    let usual = measured(&committed()).unwrap();
    let expected = included(&usual);
    for seed in 0..12 {
        let records = made_up(seed, "Made up", &TOPICS);
        let generated = generated(&[("made-up", records)])
            .unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
        assert_eq!(included(&generated), expected, "seed {seed}");
        for (path, text) in generated.files() {
            let is_measured = path.starts_with("counting") || path.starts_with("fast");
            let text = text.replace("for a NaN", "");
            for word in ["NaN", "inf ", "inf\u{202f}", "AMD", "Intel"] {
                assert!(
                    !(is_measured && text.contains(word)),
                    "seed {seed}: {word} in {}",
                    path.display()
                );
            }
        }
    }
}

/// The parts that are tried here are the ones that the book is made of.
#[test]
fn what_is_tried_is_what_the_book_includes() {
    let usual = included(&measured(&committed()).unwrap());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/generated");
    for (path, keys) in &usual {
        let text = fs::read_to_string(folder.join(path)).unwrap();
        for key in keys {
            assert!(
                text.contains(&format!("ANCHOR: {key}\n")),
                "{}: {key}",
                path.display()
            );
        }
    }
    for page in ["counting", "fast", "gpu"] {
        for entry in fs::read_dir(folder.join(page)).unwrap() {
            let path = Path::new(page).join(entry.unwrap().file_name());
            let text = fs::read_to_string(folder.join(&path)).unwrap();
            let keys = text.lines().filter(|line| line.starts_with("ANCHOR: ")).count();
            assert_eq!(
                usual.get(&path).map(BTreeSet::len),
                Some(keys),
                "{}",
                path.display()
            );
        }
    }
}

/// A page that reads records and is not among those above would not be tried.
#[test]
fn every_page_that_reads_records_is_tried() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut readers = BTreeSet::new();
    for path in files_below(&folder).unwrap() {
        let text = fs::read_to_string(folder.join(&path)).unwrap();
        if text.contains("page.records") || text.contains("counting::records") {
            // A page is a file, or a folder of files.
            let page = Path::new(path.iter().next().unwrap());
            readers.insert(page.file_stem().unwrap().to_str().unwrap().replace('_', "-"));
        }
    }
    readers.remove("any-machine");
    let tried: BTreeSet<_> =
        MEASURED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(readers, tried);
}

#[test]
fn a_machine_with_some_topics_stands_beside_one_with_all() {
    let all: Vec<_> = TOPICS.map(original).into();
    let usual = included(&measured(&committed()).unwrap());
    for (topics, pages) in [
        (&["ladder"][..], &[][..]),
        (&["peers"], &[]),
        (
            &["complexity", "memory", "roofline"],
            &[
                "counting/values.txt",
                "memory-wall/values.txt",
                "tiles-backward/recompute.md",
            ],
        ),
        (&["ladder", "parts", "roofline"], &[]),
        (&["ladder", "parts", "peers", "roofline"], &[]),
    ] {
        let some = made_up(7, "Made up", topics);
        let generated = generated(&[("made-up", some), ("real", all.clone())]).unwrap();
        assert_eq!(included(&generated), usual, "{topics:?}");
        for page in [
            "counting/values.txt",
            "memory-wall/values.txt",
            "tiles-backward/recompute.md",
        ] {
            let text = text(&generated, page);
            assert_eq!(
                text.contains("Made up"),
                pages.contains(&page),
                "{topics:?}: {page}"
            );
        }
        let ladder = all.iter().find(|record| record.topic == "ladder").unwrap();
        ladder_and_peers_are_of_their_machines(&generated, topics, &ladder.machine.cpu);
    }
}

/// The machine that has these topics is shown before the real one, which has all.
fn ladder_and_peers_are_of_their_machines(
    generated: &Generated,
    topics: &[&str],
    real: &str,
) {
    let is_made_up = |key| {
        let machine = value(generated, "fast/values.txt", key);
        assert_ne!(machine.contains("Made up"), machine.contains(real), "{machine}");
        machine.contains("Made up")
    };
    let ladder = ["ladder", "parts", "roofline"].iter().all(|of| topics.contains(of));
    let peers = topics.contains(&"peers");
    assert_eq!(is_made_up("where"), ladder, "{topics:?}");
    assert_eq!(is_made_up("peers-where"), peers, "{topics:?}");
    let machines = rows(generated, "fast/machines.md").map(|row| row.contains("Made up"));
    let expected = if peers { &[true, false][..] } else { &[false] };
    assert_eq!(machines.collect::<Vec<_>>(), expected, "{topics:?}");
    // Times of the ladder stand beside those of its own machine, and beside no others.
    let beside = |row: &str| !row.split('|').nth(4).unwrap().trim().is_empty();
    let mut again = rows(generated, "fast/again.md");
    assert_eq!(again.any(beside), ladder == peers, "{topics:?}");
}

#[test]
fn of_several_machines_the_first_one_is_shown() {
    let machines = [("one", 1), ("two", 2), ("three", 3)]
        .map(|(name, seed)| (name, made_up(seed, name, &TOPICS)));
    let shown = |first: usize| {
        let mut machines = machines.to_vec();
        machines.rotate_left(first);
        text(&generated(&machines).unwrap(), "counting/values.txt").to_owned()
    };
    for (first, (name, _)) in machines.iter().enumerate() {
        assert!(
            shown(first).contains(&format!(" of {name} ("))
                || shown(first).contains(&format!("on {name} ("))
        );
    }
}

#[test]
fn a_broken_record_is_named_with_its_measurement() {
    let broken = |topic: &str, what: &str, change: fn(&mut Record, &str)| {
        let mut records: Vec<_> = TOPICS.map(original).into();
        let record = records.iter_mut().find(|record| record.topic == topic).unwrap();
        change(record, what);
        let error = generated(&[("broken", records)]).map(|_| ()).unwrap_err();
        let message = format!("{error:#}");
        assert!(
            message.contains(&format!("record `{topic}`")) && message.contains(what),
            "{topic}, {what}: {message}"
        );
    };
    for (topic, what) in [
        ("parts", "parts/product matrixmultiply"),
        ("ladder", "ladder/both causal registers"),
        ("complexity", "attention/forward causal"),
        ("pages", "kept/softmax"),
        ("roofline", "steps/scale"),
    ] {
        broken(topic, what, |record, what| {
            record.measurements.retain(|m| m.what != what)
        });
        broken(topic, what, |record, what| {
            let of_it = record.measurements.iter_mut().filter(|m| m.what == what);
            of_it.for_each(|m| m.unit = Unit::Bytes);
        });
    }
    broken("memory", "memory/forward", |record, what| {
        let of_it = record.measurements.iter_mut().filter(|m| m.what == what);
        of_it.for_each(|m| m.median *= 2.0);
    });
}
