//! The kernels meet their compiler: each compiles for every architecture that it promises, within the registers that
//! its source allows it, and with launches that the architecture can make. It takes NVRTC and no GPU.

use attention::cuda::{
    Architecture, Compiled, Error, Kernel, Launch, Program, Resources, Variant, compile,
    compiler_version,
};
use attention::flash::Inputs;
use attention::{Mask, ScoreRule};
use nalgebra::DMatrix;
use std::io::Write;

/// The budget that a line `// Budget: NAME N registers, no spills` in a source file gives a function.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Budget<'a> {
    function: &'a str,
    registers: u32, // the most that a thread may need
}

impl<'a> Budget<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let words = line.trim().strip_prefix("// Budget: ")?;
        let words = words.strip_suffix(" registers, no spills")?;
        let (function, registers) = words.split_once(' ')?;
        Some(Budget { function, registers: registers.parse().ok()? })
    }

    fn all_of(program: Program) -> Vec<Budget<'static>> {
        program.source().text.lines().filter_map(Budget::parse).collect()
    }
}

#[test]
fn every_function_has_a_budget() {
    for program in Program::all() {
        let budgets = Budget::all_of(program);
        for function in program.source().functions {
            let has_one = budgets.iter().any(|budget| budget.function == *function);
            assert!(has_one, "{program}: {function}");
        }
    }
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
fn every_program_compiles_within_its_budget() {
    if !compiler_is_there() {
        return;
    }
    let mut faults = vec![];
    say(
        "program        arch      d  causal  function           registers  spills  stack  threads  rows  shared",
    );
    for program in Program::all() {
        for &architecture in program.source().architectures {
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
                    faults.extend(faults_of(&compiled, &Budget::all_of(program), &at));
                }
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// Rules for scores and shared keys compile, too, and what takes none says so.
#[test]
fn variants_compile_within_the_budget() {
    let rule = ScoreRule::soft_cap(50.0).unwrap().then(ScoreRule::alibi(4).unwrap());
    let (q, k) = (DMatrix::zeros(3, 4 * 64), DMatrix::zeros(5, 2 * 64));
    let mask = Mask::causal().with_scores(rule);
    let inputs = Inputs::grouped(&q, &k, &k, mask, 4, 2).unwrap();
    let variant = Variant::of(&inputs).unwrap();
    let hopper = Program::Forward(Kernel::Hopper);
    let error = compile(hopper, Architecture::SM_90A, 64, variant.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`group` is 2 but of the kernels on the GPU, only `naive`, `tiled` and `backward` take that"
    );
    if !compiler_is_there() {
        return;
    }
    for program in [Kernel::Naive, Kernel::Tiled]
        .map(Program::Forward)
        .into_iter()
        .chain([Program::Backward])
    {
        for &d in program.source().widths {
            let compiled = compile(program, Architecture::SM_80, d, variant.clone())
                .unwrap_or_else(|error| panic!("{error}"));
            let at = format!("{program}, d = {d}");
            let faults = faults_of(&compiled, &Budget::all_of(program), &at);
            assert!(faults.is_empty(), "{}", faults.join("\n"));
            let plain = compile(program, Architecture::SM_80, d, true).unwrap();
            assert_ne!(compiled.cubin, plain.cubin);
        }
    }
}

fn rows_of(compiled: &Compiled, at: &str) -> Vec<String> {
    let row = |needs: &Resources| {
        let Resources { function, registers, spill_stores, spill_loads, stack, shared } =
            needs;
        let launch =
            compiled.launches.iter().find(|launch| launch.function == function)?;
        let Launch { threads, rows, shared_bytes, .. } = launch;
        let (spills, shared) = (spill_stores + spill_loads, shared + shared_bytes);
        Some(format!(
            "{at}  {function:17}  {registers:9}  {spills:6}  {stack:5}  {threads:7}  {rows:4}  {shared:6}"
        ))
    };
    compiled.resources.iter().filter_map(row).collect()
}

/// Returns the violations of the source's promises.
fn faults_of(compiled: &Compiled, budgets: &[Budget], at: &str) -> Vec<String> {
    let mut faults = vec![];
    for &Launch { function, threads, shared_bytes, .. } in &compiled.launches {
        let named = |resources: &&Resources| resources.function == function;
        let Some(needs) = compiled.resources.iter().find(named) else {
            faults.push(format!("{at}: the compiler's log says nothing of `{function}`"));
            continue;
        };
        let (registers, shared) = (needs.registers, needs.shared + shared_bytes);
        let mut fault = |what: String| faults.push(format!("{at}: `{function}` {what}"));
        match budgets.iter().find(|budget| budget.function == function) {
            None => {
                fault("has no line `// Budget: NAME N registers, no spills`".to_owned())
            }
            Some(budget) if registers > budget.registers => fault(format!(
                "takes {registers} registers, more than its {}",
                budget.registers
            )),
            Some(_) => {}
        }
        if needs.spill_stores + needs.spill_loads > 0 {
            fault(format!(
                "spills {} and reads {} bytes",
                needs.spill_stores, needs.spill_loads
            ));
        }
        if !threads.is_multiple_of(32) || threads > 1024 {
            fault(format!(
                "wants {threads} threads, not a number of warps that a block can have"
            ));
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
    for budget in budgets {
        let known =
            compiled.launches.iter().any(|launch| launch.function == budget.function);
        if !known {
            faults.push(format!(
                "{at}: a budget for `{}`, which is not launched",
                budget.function
            ));
        }
    }
    if compiled
        .boxes
        .is_some_and(|rows| rows.iter().any(|rows| !(1..=256).contains(rows)))
    {
        faults.push(format!(
            "{at}: a box of {:?} rows, but 1 to 256 can be copied",
            compiled.boxes
        ));
    }
    faults
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
    let program = Program::Forward(Kernel::Tiled);
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
    let program = Program::Forward(Kernel::Tiled);
    let cubin = |d, causal| {
        compile(program, Architecture::SM_80, d, causal)
            .unwrap_or_else(|e| panic!("{e}"))
            .cubin
    };
    assert_eq!(cubin(64, true), cubin(64, true));
    assert_ne!(cubin(64, true), cubin(64, false));
    assert_ne!(cubin(64, true), cubin(32, true));
}
