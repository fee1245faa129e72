//! From CUDA C++ to machine code, while the program runs.

use super::error::{Error, Result};
use super::ffi;
use super::program::{Architecture, Program};
use super::score_rule;
use super::shape::Shape;
use crate::error::check_positive;
use crate::flash::Inputs;
use object::LittleEndian;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

/// Machine code for one architecture, and what the compiler says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The program that was compiled.
    pub program: Program,
    /// The architecture that it runs on.
    pub architecture: Architecture,
    /// The machine code, an ELF file.
    pub cubin: Vec<u8>,
    /// The needs of each function, in the order of the log.
    pub resources: Vec<Resources>,
    /// The launch that each function wants, in the order of [`Source::functions`](super::Source::functions).
    pub launches: Vec<Launch>,
    /// For a kernel that takes tensor maps: the rows of a box of queries, and of one of keys and values.
    pub boxes: Option<[u32; 2]>,
    /// The compiler's log.
    pub log: String,
}

/// The needs of a thread of a function and of its block, in the words of `ptxas -v`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// The function.
    pub function: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that are written to slow memory, for want of more.
    pub spill_stores: u32,
    /// Bytes that are read back.
    pub spill_loads: u32,
    /// Bytes of a thread's own slow memory.
    pub stack: u32,
    /// Bytes of shared memory that the source asks for by a declaration. What a launch asks for comes on top.
    pub shared: u32,
}

impl Resources {
    /// Finds the functions in a log of `ptxas -v`. What it does not know, it passes over.
    fn parse(log: &str) -> Vec<Resources> {
        let mut all: Vec<Resources> = vec![];
        for line in log.lines() {
            if let Some(rest) = line.split("Compiling entry function '").nth(1) {
                let function = rest.split('\'').next().unwrap_or_default().to_owned();
                all.push(Resources { function, ..Resources::default() });
            }
            let Some(last) = all.last_mut() else { continue };
            for (words, number) in [
                (" bytes stack frame", &mut last.stack),
                (" bytes spill stores", &mut last.spill_stores),
                (" bytes spill loads", &mut last.spill_loads),
                (" registers", &mut last.registers),
                (" bytes smem", &mut last.shared),
            ] {
                if let Some(found) = number_before(line, words) {
                    *number = found;
                }
            }
        }
        all
    }
}

/// The number that stands right before these words.
fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.rsplit([' ', ',']).next()?.parse().ok()
}

/// The launch that a function wants. Its source says so in a constant `NAME_launch`; nothing else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// The function.
    pub function: &'static str,
    /// Threads of a block.
    pub threads: u32,
    /// Rows, of queries or of keys, that a block takes.
    pub rows: u32,
    /// Bytes of shared memory that a block is given.
    pub shared_bytes: u32,
}

impl Launch {
    /// From the bytes of the constant. A block has at least one thread and one row.
    fn read(function: &'static str, bytes: &[u8]) -> Option<Self> {
        let [threads, rows, shared_bytes] = numbers(bytes)?;
        let is_possible = threads > 0 && rows > 0;
        is_possible.then_some(Launch { function, threads, rows, shared_bytes })
    }
}

/// What a program is compiled for, beside its head dimension: numbers and code that the compiler then knows.
///
/// ```
/// use attention::cuda::Variant;
///
/// assert_eq!(Variant::from(true), Variant { causal: true, ..Variant::default() });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// `true` for the causal rule.
    pub causal: bool,
    /// Heads of queries that share a head of keys and values.
    pub group: usize,
    /// The rule for scores in CUDA C++, if there is one: the functions `changed` and `slope_of_change` of `common.cuh`.
    pub rule: Option<String>,
}

impl Default for Variant {
    fn default() -> Self {
        Variant { causal: false, group: 1, rule: None }
    }
}

impl From<bool> for Variant {
    /// Returns the variant with the causal rule or without, and with nothing else.
    fn from(causal: bool) -> Self {
        Variant { causal, ..Variant::default() }
    }
}

impl Variant {
    /// Returns the variant for these inputs.
    ///
    /// # Errors
    /// The mask is neither none nor causal, values are not as wide as keys, or the rule for scores is a function of one's own, which
    /// is in Rust.
    ///
    /// ```
    /// use attention::cuda::Variant;
    /// use attention::{Mask, ScoreRule, flash::Inputs};
    ///
    /// let x = nalgebra::DMatrix::<f32>::zeros(5, 4);
    /// let rule = ScoreRule::soft_cap(50.0)?;
    /// let inputs = Inputs::new(&x, &x, &x, Mask::causal().with_scores(rule))?;
    /// assert!(Variant::of(&inputs)?.rule.is_some_and(|text| text.contains("5e1")));
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn of(inputs: &Inputs<f32>) -> Result<Self> {
        let shape = Shape::of(inputs)?;
        let rule = score_rule::source(inputs)?;
        Ok(Variant { causal: shape.causal, group: shape.group(), rule })
    }
}

/// The name under which the source of a rule is included.
const RULE: &str = "score_rule.cuh";

/// Compiles a program for head dimension `d` and a [`Variant`], of which `true` and `false` say that it is causal or not. It takes NVRTC
/// and no device.
///
/// # Errors
/// No NVRTC, a head dimension or a variant that the program does not have, an architecture without its instructions, or a
/// source that does not compile: the error has the log.
///
/// ```no_run
/// use attention::cuda::{Architecture, Kernel, Program, compile};
///
/// let compiled = compile(Program::Forward(Kernel::Tiled), Architecture::SM_80, 64, true)?;
/// for function in compiled.resources {
///     println!("{}: {} registers", function.function, function.registers);
/// }
/// # Ok::<(), attention::cuda::Error>(())
/// ```
pub fn compile(
    program: Program,
    architecture: Architecture,
    d: usize,
    variant: impl Into<Variant>,
) -> Result<Compiled> {
    let Variant { causal, group, rule } = variant.into();
    check_positive("group", group)?;
    if group > 1 {
        program.check_takes("group", &group.to_string())?;
    }
    if rule.is_some() {
        program.check_takes("rule", "a rule for scores")?;
    }
    program.check_width(d)?;
    program.check_architecture(architecture)?;
    let source = program.source();
    let name = format!("{}.cu", source.name);
    let mut options = vec![
        format!("--gpu-architecture={architecture}"),
        format!("-DD={d}"),
        format!("-DCAUSAL={}", u8::from(causal)),
        format!("-DGROUP={group}"),
        "--std=c++17".to_owned(),
        "--use_fast_math".to_owned(),
        "--ptxas-options=-v".to_owned(), // the log says what each function needs …
        "--no-cache".to_owned(),         // … but not of code that was compiled before
    ];
    let mut headers = source.headers.to_vec();
    if let Some(rule) = &rule {
        options.push(format!("-DSCORE_RULE=\"{RULE}\""));
        headers.push((RULE, rule));
    }
    let (cubin, log) =
        ffi::Source::new(&name, source.text, &headers)?.compile(&options)?;
    let Some(cubin) = cubin else {
        return Err(Error::Compile { program, architecture, log });
    };
    let constant = |name: &str| constant(&cubin, name);
    let mut launches = vec![];
    for &function in source.functions {
        let found = constant(&format!("{function}_launch"));
        let Some(launch) = found.and_then(|bytes| Launch::read(function, bytes)) else {
            let log =
                format!("`{function}_launch`, three numbers, is not among its constants");
            return Err(Error::Compile { program, architecture, log });
        };
        launches.push(launch);
    }
    let boxes = constant("attention_forward_boxes").and_then(numbers);
    let resources = Resources::parse(&log);
    Ok(Compiled { program, architecture, resources, launches, boxes, log, cubin })
}

/// The bytes of a constant in the compiler's output, which is an ELF file: so they are known without a device.
fn constant<'a>(cubin: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let file = ElfFile64::<LittleEndian>::parse(cubin).ok()?;
    let symbol = file.symbol_by_name(name)?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    section.data_range(symbol.address(), symbol.size()).ok()?
}

/// An array of `int`, none of them negative.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (chunks, rest) = bytes.as_chunks::<4>();
    let numbers: Vec<u32> =
        chunks.iter().map(|&chunk| u32::from_le_bytes(chunk)).collect();
    let small = numbers.iter().all(|&number| number <= 1 << 20); // as all that a kernel asks for
    if rest.is_empty() && small { numbers.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(numbers: &[i32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn a_launch_is_three_numbers() {
        let read = |numbers: &[i32]| Launch::read("f", &bytes(numbers));
        let launch = Launch { function: "f", threads: 128, rows: 64, shared_bytes: 0 };
        assert_eq!(read(&[128, 64, 0]), Some(launch));
        let large = 1 << 20; // the product of two of these does not fit 32 bits
        let launch =
            Launch { threads: large, rows: large, shared_bytes: large, ..launch };
        assert_eq!(read(&[1 << 20; 3]), Some(launch));
        for other in [&[128, 64][..], &[128, 64, 0, 0], &[0, 64, 0], &[128, 0, 0]] {
            assert_eq!(read(other), None, "{other:?}");
        }
        for other in [-1, (1 << 20) + 1] {
            assert_eq!(read(&[128, 64, other]), None, "{other}");
        }
        assert_eq!(Launch::read("f", &bytes(&[128, 64, 0])[..11]), None);
    }

    /// The words of `ptxas -v` on two functions.
    const LOG: &str = "\
ptxas info    : Compiling entry function 'scores' for 'sm_90'
ptxas info    : Function properties for scores
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compiling entry function 'weigh' for 'sm_90'
ptxas info    : Used 32 registers";

    #[test]
    fn what_a_function_needs_is_in_the_log() {
        let resources = Resources::parse(LOG);
        assert_eq!(resources[0].registers, 128);
        assert_eq!(resources[0].spill_stores, 8);
        assert!(Resources::parse("ptxas info    : 0 bytes gmem").is_empty());
    }
}
