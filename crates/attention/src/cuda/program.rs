//! What a kernel is: a source, the functions in it and what they take, and what it runs on.

use super::error::{Error, Result};
use super::shape::{Size, Tensor};
use crate::error::unsupported;
use half::bf16;
use std::fmt;
use std::hash::{Hash, Hasher};

/// An instruction set, for which NVRTC compiles and which a device runs.
///
/// ```
/// use attention::cuda::Architecture;
///
/// assert_eq!(Architecture::SM_80.to_string(), "sm_80");
/// assert!(Architecture::SM_80.runs_on((8, 9)));
/// assert!(!Architecture::SM_90A.runs_on((10, 0))); // its own instructions are gone there
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Architecture {
    /// The first digits: 9 of sm_90.
    pub major: u32,
    /// The last digit: 0 of sm_90.
    pub minor: u32,
    /// `true` if instructions are used that no other device has, older or newer: the `a` of sm_90a.
    pub specific: bool,
}

impl Architecture {
    /// Turing.
    pub const SM_75: Self = Architecture { major: 7, minor: 5, specific: false };
    /// Ampere: bf16 on tensor cores, asynchronous copies.
    pub const SM_80: Self = Architecture { major: 8, minor: 0, specific: false };
    /// Hopper, as far as it is like those that came before.
    pub const SM_90: Self = Architecture { major: 9, minor: 0, specific: false };
    /// Hopper, with the instructions that it alone has.
    pub const SM_90A: Self = Architecture { major: 9, minor: 0, specific: true };

    /// Returns `true` if a device of this compute capability (major, minor) has the instructions.
    pub fn runs_on(self, (major, minor): (u32, u32)) -> bool {
        let own = (self.major, self.minor);
        if self.specific { own == (major, minor) } else { own <= (major, minor) }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.specific { "a" } else { "" };
        write!(f, "sm_{}{}{suffix}", self.major, self.minor)
    }
}

/// The numbers that a kernel reads and writes. It adds up in `f32` either way.
///
/// ```
/// use attention::cuda::Precision;
///
/// assert_eq!(Precision::F32.bytes(), 4);
/// assert_eq!(Precision::Bf16.round(3.1415927), 3.140625); // two to three decimal digits are left
/// let bytes = Precision::Bf16.encode(&[1.0, -2.5]);
/// assert_eq!(Precision::Bf16.decode(&bytes), [1.0, -2.5]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `f32`.
    F32,
    /// The upper half of an `f32`: sign, 8 bits of exponent and 7 bits of fraction.
    Bf16,
}

impl Precision {
    /// Returns the size of a number.
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
        }
    }

    /// Returns the nearest number of this precision; of two that are equally near, the one whose last bit is 0.
    pub fn round(self, x: f32) -> f32 {
        match self {
            Precision::F32 => x,
            Precision::Bf16 => bf16::from_f32(x).to_f32(),
        }
    }

    /// Returns numbers, rounded, as they lie in the device's memory.
    pub fn encode(self, numbers: &[f32]) -> Vec<u8> {
        let numbers = numbers.iter();
        match self {
            Precision::F32 => numbers.flat_map(|x| x.to_le_bytes()).collect(),
            Precision::Bf16 => {
                numbers.flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()
            }
        }
    }

    /// Returns the numbers that these bytes are.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Precision::F32 => {
                bytes.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect()
            }
            Precision::Bf16 => {
                let numbers = bytes.as_chunks().0.iter();
                numbers.map(|&x| bf16::from_le_bytes(x).to_f32()).collect()
            }
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        })
    }
}

/// A parameter of a function on the device.
#[derive(Debug, Clone, Copy)]
pub enum Parameter {
    /// The address of a tensor that is only read.
    Reads(Tensor),
    /// The address of a tensor that is written.
    Writes(Tensor),
    /// 128 bytes by value, computed from the tensor's address and its sizes (heads, rows, columns): what the copy engine of Hopper
    /// calls a tensor map. The kernel reads the tensor by them.
    Map(Tensor, fn(u64, [usize; 3]) -> Result<[u64; 16]>),
    /// `int n_q`
    QueryCount,
    /// `int n_k`
    KeyCount,
    /// `float scale`, 1/√d
    Scale,
}

/// A function on the device: its name in the source, where it is `extern "C"`, and its parameters, each tensor once. The source
/// says in a constant `NAME_launch`, an array of three `int`, the threads of a block, the rows that a block takes of the longest
/// tensor that is written, and the bytes of shared memory that it is given.
#[derive(Debug, Clone, Copy)]
pub struct Function(pub &'static str, pub &'static [Parameter]);

/// A source file, and what it is written for.
#[derive(Debug)]
pub struct Source {
    /// The name, which no other program has: that of the file without the ending.
    pub name: &'static str,
    /// The file, in CUDA C++. It wants the macros `D`, the head dimension, and `CAUSAL`, 0 or 1; and if it takes rules, those of
    /// [`COMMON`].
    pub text: &'static str,
    /// The files that it includes: names and texts.
    pub headers: &'static [(&'static str, &'static str)],
    /// The functions that are launched, in the order in which they are.
    pub functions: &'static [Function],
    /// The numbers of all tensors but those that are always in `f32`.
    pub precision: Precision,
    /// The head dimensions that it is written for. The width of the values is that of the keys.
    pub widths: &'static [usize],
    /// The architectures that it is tested to compile for, the oldest first: older devices cannot run it.
    pub architectures: &'static [Architecture],
    /// `true` if it takes rules for scores, and heads that share keys.
    pub takes_rules: bool,
}

impl Source {
    /// Returns the numbers of one of its tensors.
    pub fn precision_of(&self, tensor: Tensor) -> Precision {
        match tensor.size {
            Size::Queries | Size::Keys => self.precision,
            Size::Rows | Size::Scores => Precision::F32,
        }
    }

    // ANCHOR: declarations
    /// Returns a declaration of each function, as the list of its parameters says. It is
    /// compiled behind the text: a compiler refuses two functions of one C name, so what
    /// it compiles takes what is launched.
    pub fn declarations(&self) -> String {
        let number = |tensor| match self.precision_of(tensor) {
            Precision::F32 => "float",
            Precision::Bf16 => "unsigned short",
        };
        let kind = |parameter: &Parameter| match *parameter {
            Parameter::Reads(tensor) => format!("const {}*", number(tensor)),
            Parameter::Writes(tensor) => format!("{}*", number(tensor)),
            Parameter::Map(..) => "const __grid_constant__ TensorMap".to_owned(),
            Parameter::QueryCount | Parameter::KeyCount => "int".to_owned(),
            Parameter::Scale => "float".to_owned(),
        };
        let declaration = |Function(name, parameters): &Function| {
            let kinds: Vec<_> = parameters.iter().map(kind).collect();
            format!("extern \"C\" __global__ void {name}({});\n", kinds.join(", "))
        };
        self.functions.iter().map(declaration).collect()
    }
    // ANCHOR_END: declarations
}

/// The unit of compilation: a source with its functions.
///
/// ```
/// use attention::cuda::{NAIVE, TILED};
///
/// assert_eq!(TILED.to_string(), "kernel `tiled`");
/// assert_eq!(NAIVE.source().functions.len(), 3);
/// assert_eq!(TILED.source().widths, [32, 64, 128]);
/// ```
#[derive(Clone, Copy)]
pub struct Program(pub(super) &'static Source);

impl Program {
    /// Returns its source, with its name and what it is written for.
    pub const fn source(self) -> &'static Source {
        self.0
    }

    /// Returns the architecture to compile for, so that a device of this compute capability (major, minor) runs it: the device's own
    /// instruction set.
    ///
    /// # Errors
    /// The program has instructions that the device does not have.
    ///
    /// ```
    /// use attention::cuda::TILED;
    ///
    /// assert_eq!(TILED.architecture_for((8, 9))?.to_string(), "sm_89");
    /// let error = TILED.architecture_for((7, 0)).unwrap_err();
    /// assert!(error.to_string().contains("needs compute capability 7.5 or newer, not 7.0"));
    /// # Ok::<(), attention::cuda::Error>(())
    /// ```
    pub fn architecture_for(self, (major, minor): (u32, u32)) -> Result<Architecture> {
        let oldest = self.source().architectures[0];
        let architecture = Architecture { major, minor, specific: oldest.specific };
        self.check_architecture(architecture)?;
        Ok(architecture)
    }

    pub(super) fn check_architecture(self, architecture: Architecture) -> Result<()> {
        let oldest = self.source().architectures[0];
        let has = (architecture.major, architecture.minor);
        if oldest.runs_on(has) {
            return Ok(());
        }
        let rest = if oldest.specific { " and no other" } else { " or newer" };
        let needs = format!("{}.{}{rest}", oldest.major, oldest.minor);
        Err(Error::Device(format!(
            "{self} needs compute capability {needs}, not {}.{}: choose another kernel or another device",
            has.0, has.1
        )))
    }

    /// That the program takes rules for scores and shared keys. `given` says what is wrong with the argument if it doesn't.
    pub(super) fn check_takes(self, argument: &'static str, given: &str) -> Result<()> {
        if self.source().takes_rules {
            return Ok(());
        }
        let expected = format!("{self} takes neither rules for scores nor shared keys");
        Err(unsupported(argument, given, expected).into())
    }

    pub(super) fn check_width(self, given: usize) -> Result<()> {
        let has = self.source().widths;
        if has.contains(&given) {
            return Ok(());
        }
        let has = has.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let expected = format!("{self} is written for {has}");
        Err(unsupported("d", given.to_string(), expected).into())
    }

    pub(super) fn check_writes(self, tensor: Tensor) -> Result<()> {
        if self.tensors().contains(&(tensor, true)) {
            return Ok(());
        }
        let expected =
            format!("what is asked for is `{}`, which it doesn't write", tensor.name);
        Err(unsupported("program", self.to_string(), expected).into())
    }

    /// Returns the tensors that the functions take, each once, with whether any of them writes to it.
    pub fn tensors(self) -> Vec<(Tensor, bool)> {
        let mut all: Vec<(Tensor, bool)> = vec![];
        let functions = self.source().functions.iter();
        for parameter in functions.flat_map(|function| function.1) {
            let (tensor, is_written) = match *parameter {
                Parameter::Reads(tensor) | Parameter::Map(tensor, _) => (tensor, false),
                Parameter::Writes(tensor) => (tensor, true),
                _ => continue,
            };
            match all.iter_mut().find(|known| known.0 == tensor) {
                Some(known) => known.1 |= is_written,
                None => all.push((tensor, is_written)),
            }
        }
        all
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`", self.source().name)
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Program {}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

/// The header that all kernels share: its name and its text.
pub const COMMON: (&str, &str) = ("common.cuh", include_str!("../../cuda/common.cuh"));

use Parameter::{KeyCount, QueryCount, Reads, Scale, Writes};
const Q: Tensor = Tensor::Q;
const K: Tensor = Tensor::K;
const V: Tensor = Tensor::V;
const SCORES: Tensor = Tensor::SCORES;
const OUTPUT: Tensor = Tensor::OUTPUT;
const LSE: Tensor = Tensor::LSE;

/// Scores, softmax and product as three functions, and the (n_q, n_k) matrix between them in slow memory.
pub const NAIVE: Program = Program(&Source {
    name: "naive",
    text: include_str!("../../cuda/naive.cu"),
    functions: &[
        Function(
            "scores",
            &[Reads(Q), Reads(K), Writes(SCORES), QueryCount, KeyCount, Scale],
        ),
        Function("softmax", &[Writes(SCORES), Writes(LSE), QueryCount, KeyCount]),
        Function(
            "weigh",
            &[Reads(SCORES), Reads(V), Writes(OUTPUT), QueryCount, KeyCount],
        ),
    ],
    ..*TILED.0
});

/// One function, tiles in shared memory, online softmax.
pub const TILED: Program = Program(&Source {
    name: "tiled",
    text: include_str!("../../cuda/tiled.cu"),
    headers: &[COMMON],
    functions: &[Function(
        "attention_forward",
        &[
            Reads(Q),
            Reads(K),
            Reads(V),
            Writes(OUTPUT),
            Writes(LSE),
            QueryCount,
            KeyCount,
            Scale,
        ],
    )],
    precision: Precision::F32,
    widths: &[32, 64, 128],
    architectures: &[Architecture::SM_75, Architecture::SM_80, Architecture::SM_90],
    takes_rules: true,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_does_not_do_is_refused() {
        TILED.check_writes(OUTPUT).unwrap();
        let told = |result: Result<()>| result.unwrap_err().to_string();
        assert_eq!(
            told(TILED.check_writes(Tensor::D_Q)),
            "`program` is kernel `tiled` but what is asked for is `d_q`, which it doesn't write"
        );
        const PLAIN: Program = Program(&Source { takes_rules: false, ..*TILED.0 });
        assert_eq!(
            told(PLAIN.check_takes("group", "2")),
            "`group` is 2 but kernel `tiled` takes neither rules for scores nor shared keys"
        );
    }

    #[test]
    fn declarations_are_those_of_the_lists() {
        let first = NAIVE.source().declarations();
        assert!(first.starts_with(
            "extern \"C\" __global__ void scores(const float*, const float*, float*, int, int, float);\n"
        ));
    }
}
