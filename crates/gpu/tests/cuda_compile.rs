//! The kernels meet their compiler: each compiles for every architecture that it promises, within the registers that
//! its source allows it, and with launches that the architecture can make. It takes NVRTC and no GPU.

use attention::cuda::{
    Architecture, Compiled, Error, Program, TILED, Variant, compile, compiler_version,
};
use attention::flash::Inputs;
use attention::{
    Mask, ScoreRule,
    score_rule::{DistanceBuckets, ScoreFunction, ScorePlace},
};
use gpu::report::{Launch, Resources, constant};
use gpu::{ALL, HOPPER, HOPPER_BOXES, REGISTERS, SM_80, SM_90A, architectures};
use nalgebra::DMatrix;
use std::io::Write;

/// The most registers that a thread of each function may need. None may spill.
const BUDGETS: [(&str, &str, u32); 16] = [
    ("naive", "scores", 64),
    ("naive", "softmax", 64),
    ("naive", "weigh", 64),
    ("tiled", "attention_forward", 128),
    ("registers", "attention_forward", 255),
    ("tensor_cores", "attention_forward", 255),
    ("hopper", "attention_forward", 168),
    ("hopper_persistent", "attention_forward", 168),
    ("backward", "backward_delta", 32),
    ("backward", "backward_keys", 168),
    ("backward", "backward_queries", 168),
    ("decode", "decode_split", 168),
    ("decode", "decode_merge", 64),
    ("backward_hopper", "backward_delta", 64),
    ("backward_hopper", "backward_keys", 168),
    ("backward_hopper", "backward_queries", 168),
];

fn budget(program: Program, function: &str) -> u32 {
    let is_its =
        |row: &&(&str, &str, u32)| (row.0, row.1) == (program.source().name, function);
    let found = BUDGETS.iter().find(is_its);
    found.unwrap_or_else(|| panic!("{program}: no budget for `{function}`")).2
}

/// Writes a line that appears even if the test passes.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns true if there is a compiler. With REQUIRE_NVRTC=1, there must be.
fn compiler_is_there() -> bool {
    match compiler_version() {
        Ok((major, minor)) => {
            say(&format!("NVRTC {major}.{minor}"));
            true
        }
        Err(error)
            if std::env::var_os("REQUIRE_NVRTC").is_some_and(|value| value == "1") =>
        {
            panic!("REQUIRE_NVRTC=1, but: {error}")
        }
        Err(error) => {
            say(&format!("skipped: {error}"));
            false
        }
    }
}

#[test]
fn every_function_has_a_budget() {
    for program in ALL {
        program.source().functions.iter().for_each(|function| {
            budget(program, function.0);
        });
    }
}

#[test]
fn every_program_compiles_within_its_budget() {
    if !compiler_is_there() {
        return;
    }
    let mut faults = vec![];
    say(
        "program        arch      d  causal  function           registers  spills  stack  threads  rows  shared",
    );
    for program in ALL {
        for architecture in architectures(program) {
            for &d in program.source().widths {
                for causal in [false, true] {
                    let compiled = compile(program, architecture, d, causal)
                        .unwrap_or_else(|error| {
                            panic!("d = {d}, causal = {causal}: {error}")
                        });
                    let at = format!(
                        "{:13}  {architecture:6}  {d:3}  {causal:6}",
                        program.source().name
                    );
                    rows_of(&compiled, &at).iter().for_each(|row| say(row));
                    faults.extend(faults_of(&compiled, &at));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Rules for scores, shared keys and masks compile, too, and what takes none says so.
#[test]
fn variants_compile_within_the_budget() {
    let rule = ScoreRule::soft_cap(50.0).unwrap().then(ScoreRule::alibi(4).unwrap());
    let (q, k) = (DMatrix::zeros(3, 4 * 64), DMatrix::zeros(5, 2 * 64));
    let mask = Mask::causal().with_scores(rule);
    let inputs = Inputs::grouped(&q, &k, &k, mask, 4, 2).unwrap();
    let variant = Variant::of(&inputs).unwrap();
    let error = compile(REGISTERS, SM_80, 64, variant.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`group` is 2 but kernel `registers` takes neither rules for scores nor shared keys"
    );
    let mask = Mask::documents(&[0, 0, 1, 1, 1]).unwrap();
    let mask = mask.and(Mask::window(3).unwrap());
    let masked = Variant::of(&Inputs::new(&k, &k, &k, mask).unwrap()).unwrap();
    let error = compile(REGISTERS, SM_80, 64, masked.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`mask` is one that hides more than the future but kernel `registers` takes none and causal"
    );
    if !compiler_is_there() {
        return;
    }
    let of_rule = ALL.into_iter().filter(|program| program.source().takes_rules);
    let of_mask = ALL.into_iter().filter(|program| program.source().takes_masks);
    let of_rule = of_rule.map(|program| (program, &variant));
    for (program, variant) in of_rule.chain(of_mask.map(|program| (program, &masked))) {
        let architecture = architectures(program)[0];
        for &d in program.source().widths {
            let compiled = compile(program, architecture, d, variant.clone())
                .unwrap_or_else(|error| panic!("{error}"));
            let at = format!("{program}, d = {d}");
            let faults = faults_of(&compiled, &at);
            assert!(faults.is_empty(), "{}", faults.join("\n"));
            let plain = compile(program, architecture, d, true).unwrap();
            assert_ne!(compiled.cubin, plain.cubin);
        }
    }
}

#[test]
fn rules_that_no_kernel_can_take_are_refused() {
    #[derive(Debug)]
    struct Half;

    impl ScoreFunction for Half {
        fn value(&self, score: f64, _place: ScorePlace) -> f64 {
            score / 2.0
        }
        fn derivative(&self, _score: f64, _place: ScorePlace) -> f64 {
            0.5
        }
    }

    let x = DMatrix::<f32>::zeros(2, 2);
    let of = |rule: ScoreRule| {
        let inputs = Inputs::new(&x, &x, &x, rule).unwrap();
        Variant::of(&inputs).unwrap_err().to_string()
    };
    assert_eq!(
        of(ScoreRule::custom(Half)),
        "`rule` is a function of one's own but a GPU can't call a function in Rust"
    );
    let buckets = DistanceBuckets::clipped(5000).unwrap();
    let table = ScoreRule::table(&DMatrix::<f32>::zeros(10_001, 1), buckets).unwrap();
    assert_eq!(of(table), "`furthest` is 5001 but a kernel takes 4096 at most");
}

fn rows_of(compiled: &Compiled, at: &str) -> Vec<String> {
    let row = |needs: &Resources| {
        let Resources { function, registers, spill_stores, spill_loads, stack, shared } =
            needs;
        let Launch { threads, rows, shared_bytes } =
            Launch::of(compiled, function).unwrap();
        let (spills, shared) = (spill_stores + spill_loads, shared + shared_bytes);
        format!(
            "{at}  {function:17}  {registers:9}  {spills:6}  {stack:5}  {threads:7}  {rows:4}  {shared:6}"
        )
    };
    Resources::parse(&compiled.log).iter().map(row).collect()
}

/// Returns the broken promises.
fn faults_of(compiled: &Compiled, at: &str) -> Vec<String> {
    let program = compiled.program;
    let all = Resources::parse(&compiled.log);
    let mut faults = vec![];
    // A wait that the compiler adds after each product, since it can't tell which registers are free.
    if compiled.log.contains("wgmma.mma_async instructions are serialized") {
        faults.push(format!("{at}: products wait for one another: {}", compiled.log));
    }
    for function in program.source().functions {
        let function = function.0;
        let Some(needs) = all.iter().find(|needs| needs.function == function) else {
            faults.push(format!("{at}: the compiler's log says nothing of `{function}`"));
            continue;
        };
        let Launch { threads, rows, shared_bytes } =
            Launch::of(compiled, function).unwrap();
        let (registers, shared) = (needs.registers, needs.shared + shared_bytes);
        let mut fault = |what: String| faults.push(format!("{at}: `{function}` {what}"));
        let most = budget(program, function);
        if registers > most {
            fault(format!("takes {registers} registers, more than its {most}"));
        }
        if needs.spill_stores + needs.spill_loads > 0 {
            fault(format!(
                "spills {} and reads {} bytes",
                needs.spill_stores, needs.spill_loads
            ));
        }
        if !threads.is_multiple_of(32) || !(1..=1024).contains(&threads) {
            fault(format!(
                "wants {threads} threads, not a number of warps that a block can have"
            ));
        }
        if !(1..=1024).contains(&rows) {
            fault(format!("takes {rows} rows"));
        }
        if threads * registers.next_multiple_of(8) > 1 << 16 {
            fault(format!("has no room for {threads} threads of {registers} registers"));
        }
        let most = most_shared_memory(compiled.architecture);
        if shared > most {
            fault(format!(
                "wants {shared} bytes of shared memory, and a block has {most}"
            ));
        }
    }
    faults
}

/// The copy engine is told of the boxes for which the kernel waits.
#[test]
fn the_boxes_of_hopper_are_those_of_its_source() {
    if compiler_is_there() {
        let compiled = compile(HOPPER, SM_90A, 64, false).unwrap();
        assert_eq!(constant(&compiled, "attention_forward_boxes"), Ok(HOPPER_BOXES));
    }
}

/// Bytes of shared memory that a block can have, by the table of compute capabilities in CUDA's programming guide.
fn most_shared_memory(architecture: Architecture) -> u32 {
    let kib = match (architecture.major, architecture.minor) {
        (7, 5) => 64,
        (8, 0) => 163,
        (9, 0) => 227,
        _ => panic!("{architecture} is new here: look it up"),
    };
    kib << 10
}

#[test]
fn what_does_not_compile_says_why() {
    let program = TILED;
    let old = Architecture { major: 7, minor: 0, specific: false };
    assert_eq!(
        compile(program, old, 64, false).unwrap_err().to_string(),
        "kernel `tiled` needs compute capability 7.5 or newer, not 7.0: choose another kernel or another device"
    );
    if !compiler_is_there() {
        return;
    }
    let unknown = Architecture { major: 99, minor: 9, specific: false };
    let error = compile(program, unknown, 64, false).unwrap_err();
    assert!(matches!(error, Error::Compile { .. }), "{error:?}");
    let words = error.to_string();
    assert!(words.starts_with("kernel `tiled` for sm_999 does not compile"), "{words}");
    assert!(words.contains("gpu-architecture"), "{words}");
}

/// Two runs of the compiler give the same code, and each macro another.
#[test]
fn the_macros_reach_the_kernel() {
    if !compiler_is_there() {
        return;
    }
    let program = TILED;
    let cubin = |d, causal| {
        compile(program, SM_80, d, causal).unwrap_or_else(|e| panic!("{e}")).cubin
    };
    assert_eq!(cubin(64, true), cubin(64, true));
    assert_ne!(cubin(64, true), cubin(64, false));
    assert_ne!(cubin(64, true), cubin(32, true));
}
