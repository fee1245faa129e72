//! The run, on a device and a PyTorch that make their times up.

use super::*;
use crate::grid::Pass;
use crate::grid::tests::{cell, options};
use anyhow::bail;
use attention::cuda;
use gpu::Precision;
use record::{Record, Unit};
use std::path::Path;

const TILED: Contestant = Contestant::Ours(cuda::TILED);
const NAIVE: Contestant = Contestant::Ours(cuda::NAIVE);
const EFFICIENT: Contestant = Contestant::Torch(Backend::Efficient);
const MATH: Contestant = Contestant::Torch(Backend::Math);

/// Takes 2 ms for everything, but 1 s for naive; has no room for naive beyond n = 1024.
#[derive(Default)]
struct Fake {
    /// The kernel that is wrong, in cells of this n.
    wrong: Option<(Program, usize)>,
}

impl Device for Fake {
    fn prepare(
        &mut self,
        program: Program,
        cell: &Cell,
    ) -> Result<Result<Timed, String>> {
        let at = Some((program, cell.shape.n_q));
        let is_naive = program == cuda::NAIVE;
        if self.wrong == at {
            bail!("the output is off by 2.0e-1 of its norm, where 1e-5 is allowed");
        }
        if is_naive && cell.shape.n_q > 1024 {
            return Ok(Err("it takes 90.0 GiB".to_owned()));
        }
        let seconds = if is_naive { 1.0 } else { 2e-3 };
        Ok(Ok(Box::new(move |function, _, launches| {
            let part = if function.is_some() { 0.25 } else { 1.0 };
            Ok(vec![part * seconds; launches])
        })))
    }

    fn copy_bandwidth(&mut self) -> Result<f64> {
        Ok(3e12)
    }
}

/// A device whose clock never changes.
struct Steady;

impl Watch for Steady {
    fn between(&self, _begin: Instant, _end: Instant) -> Vec<State> {
        vec![State { clock: 1.755e9, power: 400.0 }]
    }
}

fn fake_torch() -> Torch {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake_torch_worker.py");
    Torch::start(Path::new("python3"), &script).unwrap()
}

fn circumstances() -> Record {
    let text = include_str!("../../../../crates/record/tests/pace.json");
    let record = Record::parse("pace", text).unwrap();
    Record { topic: "gpu".to_owned(), measurements: vec![], ..record }
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(300)
}

/// The record of what was measured.
fn recorded(measured: &Measured) -> Record {
    let record = Record { measurements: measurements(measured), ..circumstances() };
    record.check().unwrap();
    record
}

fn forward(lengths: &[usize]) -> Vec<Cell> {
    lengths.iter().map(|n| cell(*n, true, Pass::Forward)).collect()
}

#[test]
fn times_and_ratios_reach_the_record_and_the_line() {
    let cells = [forward(&[512]), vec![cell(512, true, Pass::Backward)]].concat();
    let mut torch = fake_torch();
    assert_eq!(torch.versions["cudnn"], "8.8.8");
    let measured =
        run(&cells, &mut Fake::default(), Some(&mut torch), &Steady, later(), |_| Ok(()))
            .unwrap();
    let record = recorded(&measured);
    let find = |what: &str| {
        let found: Vec<_> = record.all(what, "f32").collect();
        assert_eq!(found.len(), 1, "{what}");
        found[0].clone()
    };
    assert_eq!(
        (find("roof/copy").unit, find("roof/copy").median),
        (Unit::BytesPerSecond, 3e12)
    );
    assert_eq!(find("forward/tiled").median, 2e-3);
    assert_eq!(find("forward/naive").median, 1.0);
    assert_eq!(find("forward/tiled").settings["mask"], "causal");
    assert_eq!(find("forward/tiled").sizes["heads"], 1024);
    // 3 ms, and the median of so many launches is a bit more.
    let efficient = find("forward/torch-efficient").median;
    assert!((3e-3..6e-3).contains(&efficient), "{efficient}");
    assert_eq!(find("forward/torch-efficient / tiled").median, efficient / 2e-3);
    assert_eq!(find("forward/torch-math / naive").unit, Unit::Ratio);
    let clock = find("forward-clock/torch-math");
    assert_eq!((clock.unit, clock.median), (Unit::Hertz, 1.755e9));
    let power = find("backward-power/backward");
    assert_eq!((power.unit, power.median), (Unit::Watts, 400.0));
    assert_eq!(find("forward-part/naive/softmax").median, 0.25);
    assert_eq!(find("backward-part/backward/backward_keys").median, 0.25 * 2e-3);
    assert!(record.all("forward-part/tiled/attention_forward", "f32").next().is_none());
    let backward = find("backward/torch-efficient").median;
    assert_eq!(find("backward/torch-efficient / backward").median, backward / 2e-3);
    assert!(backward > 2.0 * efficient);

    assert_eq!(
        measured.roofs.to_string(),
        "roofs: copies of 3000 GB/s, products of 1000 TFLOP/s in bf16, products of 50 TFLOP/s in f32"
    );
    let tflops = cells[0].flops() / 2e-3 / 1e12;
    let line = measured.cells[0].line(&measured.roofs);
    let of_roof = tflops / 50.0 * 100.0;
    let bytes = cells[0].bytes() / 2e-3 / 1e9;
    let part = format!(
        ", tiled {tflops:.1} ({of_roof:.0} %, {bytes:.0} GB/s, 1755 MHz, 400 W), "
    );
    assert!(line.contains(&part) && line.ends_with(" TFLOP/s"), "{line}");
}

/// 2 ms for the keys and values of 131 072 tokens, 8 heads of width 128, and what little there is of queries and outputs.
#[test]
fn a_step_of_decoding_is_told_in_bytes() {
    let cells = crate::grid::cells(&options(vec![gpu::DECODE])).unwrap();
    let mut torch = fake_torch();
    let measured =
        run(&cells, &mut Fake::default(), Some(&mut torch), &Blind, later(), |_| Ok(()))
            .unwrap();
    let line = measured.cells[0].line(&measured.roofs);
    let told = "bf16, decoding, d = 128, full, n = 131072: decode 268.4 (9 %, 1 TFLOP/s), torch-flash ";
    assert!(line.starts_with(told) && line.ends_with(" GB/s"), "{line}");
    let record = recorded(&measured);
    let found = record.all("decoding/decode", "bf16").next().unwrap();
    assert_eq!(found.sizes["kv_heads"], 8);
    assert!(record.all("decoding/torch-cudnn / decode", "bf16").next().is_some());
}

#[test]
fn a_run_without_pytorch_has_a_record_all_the_same() {
    let cells = forward(&[512]);
    let measured =
        run(&cells, &mut Fake::default(), None, &Blind, later(), |_| Ok(())).unwrap();
    let record = recorded(&measured);
    assert!(record.all("roof/product", "f32").next().is_none());
    assert!(record.measurements.iter().all(|m| !m.what.contains("torch")));
    let line = measured.cells[0].line(&measured.roofs);
    assert!(line.contains("tiled") && !line.contains('%'), "{line}");
}

#[test]
fn who_refuses_or_goes_away_is_absent_and_the_run_goes_on() {
    let cells = forward(&[1024, 2048, 4096, 2048, 2048, 4096]);
    let mut torch = fake_torch();
    let measured =
        run(&cells, &mut Fake::default(), Some(&mut torch), &Blind, later(), |_| Ok(()))
            .unwrap();
    let took_part = |cell: &MeasuredCell| {
        [EFFICIENT, MATH, NAIVE, TILED].map(|who| cell.rounds.seconds(who).is_some())
    };
    let found: Vec<_> = measured.cells.iter().map(took_part).collect();
    let expected = [
        [false, true, true, true],   // efficient refuses
        [true, false, false, true],  // math goes away, and efficient is asked again
        [true, true, false, true],   // both are there
        [true, false, false, true],  // the second time
        [false, false, false, true], // the third time, in the first question: no kernel is left for the rounds
        [false, false, false, true],
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_wrong_kernel_is_named() {
    let cells = forward(&[512, 1024, 2048, 4096, 8192]);
    let wrong = Some((cuda::TILED, 8192));
    let mut fake = Fake { wrong };
    let error = run(&cells, &mut fake, None, &Blind, later(), |_| Ok(())).unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "kernel `tiled`, f32, forward, d = 64, causal, n = 8192: the output is off by 2.0e-1 of its norm, where 1e-5 is allowed"
    );
}

#[test]
fn plans_fit_the_time_that_is_left() {
    // a short launch: as many as fit, ten at least, a hundred at most
    assert_eq!(Plan::new(1e-4, 1.0), Plan { warm_up: 3, launches: 100, rounds: 5 });
    assert_eq!(Plan::new(2e-3, 0.02), Plan { warm_up: 3, launches: 10, rounds: 5 });
    // a long one
    assert_eq!(Plan::new(0.05, 0.5), Plan { warm_up: 1, launches: 2, rounds: 5 });
    assert_eq!(Plan::new(2.0, 0.5), Plan { warm_up: 0, launches: 1, rounds: 3 });

    assert_eq!(share(Duration::from_secs(300), 300), 0.5);
    assert_eq!(share(Duration::ZERO, 300), 0.02);
    assert_eq!(share(Duration::from_secs(300), 10), 1.0);
}

/// All of the grid is dealt with in one run, by kernels that exist and by those that come.
#[test]
fn the_whole_grid_runs() {
    let cells = crate::grid::cells(&options(vec![])).unwrap();
    let measured =
        run(&cells, &mut Fake::default(), None, &Blind, Instant::now(), |_| Ok(()))
            .unwrap();
    recorded(&measured);
    let f32_cells = |program: Program| {
        measured
            .cells
            .iter()
            .filter(|m| m.rounds.seconds(Contestant::Ours(program)).is_some())
            .count()
    };
    assert_eq!(f32_cells(cuda::TILED), 12);
    assert_eq!(f32_cells(cuda::NAIVE), 4); // as long as there is room
    assert!(cells.iter().any(|cell| cell.precision == Precision::Bf16));
}
