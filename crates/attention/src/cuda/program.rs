//! The kernels: what each is called, where its source is, and what it runs on.

use super::error::{Error, Result};
use crate::error::unsupported;
use std::fmt;
use std::str::FromStr;

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
    ///
    /// ```
    /// use attention::cuda::Architecture;
    ///
    /// assert!(!Architecture::SM_80.runs_on((7, 5)));
    /// ```
    pub fn runs_on(self, (major, minor): (u32, u32)) -> bool {
        let own = (self.major, self.minor);
        if self.specific { own == (major, minor) } else { own <= (major, minor) }
    }

    /// Returns the capability in words, such as `8.0 or newer`.
    fn needs(self) -> String {
        let rest = if self.specific { " and no other" } else { " or newer" };
        format!("{}.{}{rest}", self.major, self.minor)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sm_{}{}{}",
            self.major,
            self.minor,
            if self.specific { "a" } else { "" }
        )
    }
}

/// The numbers that a kernel reads and writes. It adds up in `f32` either way.
///
/// ```
/// assert_eq!(attention::cuda::Precision::Bf16.bytes(), 2);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// `f32`.
    F32,
    /// [`Bf16`](super::Bf16).
    Bf16,
}

impl Precision {
    /// Returns the size of a number.
    ///
    /// ```
    /// assert_eq!(attention::cuda::Precision::F32.bytes(), 4);
    /// ```
    pub fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
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

/// A source file in `cuda/`, and what it is written for.
///
/// ```
/// use attention::cuda::{Architecture, Kernel, Precision, Program};
///
/// let source = Program::Backward.source();
/// assert_eq!(source.name, "backward");
/// assert!(source.text.contains("backward_keys"));
/// assert_eq!(source.headers[0].0, "common.cuh");
/// assert_eq!(source.precision, Precision::F32);
/// assert_eq!(source.widths, [32, 64, 128]);
/// assert!(!source.architectures.is_empty());
///
/// assert_eq!(Kernel::Naive.source().functions, ["scores", "softmax", "weigh"]);
/// assert_eq!(Kernel::Tiled.source().architectures[0], Architecture::SM_75);
/// ```
#[derive(Debug)]
pub struct Source {
    /// The name, which is that of the file without the ending.
    pub name: &'static str,
    /// The file, in CUDA C++. It wants the macros `D`, the head dimension, and `CAUSAL`, 0 or 1.
    pub text: &'static str,
    /// The files that it includes: names and texts.
    pub headers: &'static [(&'static str, &'static str)],
    /// The functions that are launched, in the order in which they are.
    pub functions: &'static [&'static str],
    /// The numbers that it reads and writes.
    pub precision: Precision,
    /// The head dimensions that it is written for. The width of the values is that of the keys.
    pub widths: &'static [usize],
    /// The architectures that it is tested to compile for, the oldest first: older devices cannot run it.
    pub architectures: &'static [Architecture],
}

/// The source file of this name, and what it includes.
macro_rules! source {
    ($name:literal, [$($header:literal),*], $functions:expr, $precision:ident, $widths:expr, $architectures:expr) => {
        Source {
            name: $name,
            text: include_str!(concat!("../../cuda/", $name, ".cu")),
            headers: &[$(($header, include_str!(concat!("../../cuda/", $header)))),*],
            functions: &$functions,
            precision: Precision::$precision,
            widths: &$widths,
            architectures: &$architectures,
        }
    };
}

/// The forward kernels, one line each: the enumeration, its list and its sources.
macro_rules! ladder {
    ($($(#[$about:meta])* $kernel:ident = $source:expr;)*) => {
        /// The ways to compute attention on a GPU, each faster than the one before.
        ///
        /// ```
        /// use attention::cuda::Kernel;
        ///
        /// assert_eq!(Kernel::ALL[1], Kernel::Tiled);
        /// assert_eq!(Kernel::Tiled.to_string(), "tiled");
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Kernel { $($(#[$about])* $kernel),* }

        impl Kernel {
            /// All of them, from the slowest to the fastest.
            pub const ALL: [Kernel; [$(Kernel::$kernel),*].len()] = [$(Kernel::$kernel),*];

            /// Returns its source file, with its name and what it is written for.
            ///
            /// ```
            /// use attention::cuda::{Kernel, Precision};
            ///
            /// assert_eq!(Kernel::Naive.source().name, "naive");
            /// assert_eq!(Kernel::Tiled.source().precision, Precision::F32);
            /// assert_eq!(Kernel::Tiled.source().widths, [32, 64, 128]);
            /// ```
            pub fn source(self) -> &'static Source {
                match self { $(Kernel::$kernel => { const SOURCE: &Source = &$source; SOURCE })* }
            }
        }
    };
}

const FORWARD: [&str; 1] = ["attention_forward"];
const ALL_WIDTHS: [usize; 3] = [32, 64, 128];
const TENSOR_WIDTHS: [usize; 2] = [64, 128]; // of the kernels in bf16
const SINCE_AMPERE: [Architecture; 2] = [Architecture::SM_80, Architecture::SM_90];
const SINCE_TURING: [Architecture; 3] =
    [Architecture::SM_75, Architecture::SM_80, Architecture::SM_90];

ladder! {
    /// Scores, softmax and product as three functions, and the (n_q, n_k) matrix between them in slow memory.
    Naive = source!("naive", ["common.cuh"], ["scores", "softmax", "weigh"], F32, ALL_WIDTHS, SINCE_TURING);
    /// One function, tiles in shared memory, online softmax.
    Tiled = source!("tiled", ["common.cuh"], FORWARD, F32, ALL_WIDTHS, SINCE_TURING);
    /// Blocks of scores and of the output in registers, and copies that nothing waits for.
    Registers = source!("registers", ["common.cuh", "cp_async.cuh"], FORWARD, F32, ALL_WIDTHS, SINCE_AMPERE);
    /// Tensor cores, in bf16: products of matrices by whole warps, weights that never leave their registers.
    TensorCores = source!("tensor_cores", ["common.cuh", "bf16.cuh", "cp_async.cuh", "tensor_cores.cuh"], FORWARD, Bf16, TENSOR_WIDTHS, SINCE_AMPERE);
    /// Hopper's own instructions: products of four warps, the copy engine, and warps that each do one thing.
    Hopper = source!("hopper", ["common.cuh", "bf16.cuh", "hopper.cuh"], FORWARD, Bf16, TENSOR_WIDTHS, [Architecture::SM_90A]);
}

const BACKWARD: &Source = &source!(
    "backward",
    ["common.cuh"],
    ["backward_delta", "backward_keys", "backward_queries"],
    F32,
    ALL_WIDTHS,
    SINCE_TURING
);

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.source().name)
    }
}

/// The unit of compilation: a forward kernel, or the backward pass.
///
/// ```
/// use attention::cuda::{Kernel, Program};
///
/// let program: Program = "tiled".parse()?;
/// assert_eq!(program, Program::Forward(Kernel::Tiled));
/// assert_eq!(Program::Forward(Kernel::Tiled).source().functions, ["attention_forward"]);
/// assert_eq!(Program::Backward.to_string(), "kernel `backward`");
/// # Ok::<(), attention::cuda::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    /// The output and the log-sum-exps.
    Forward(Kernel),
    /// The gradients of queries, keys and values.
    Backward,
}

impl Program {
    /// Returns all of them: the forward kernels, then the backward pass.
    ///
    /// ```
    /// use attention::cuda::{Kernel, Program};
    ///
    /// assert_eq!(Program::all().count(), Kernel::ALL.len() + 1);
    /// ```
    pub fn all() -> impl Iterator<Item = Program> {
        Kernel::ALL.into_iter().map(Program::Forward).chain([Program::Backward])
    }

    /// Returns its source file, with its name and what it is written for.
    ///
    /// ```
    /// use attention::cuda::{Kernel, Program};
    ///
    /// assert_eq!(Program::Backward.source().name, "backward");
    /// assert_eq!(Program::Forward(Kernel::Tiled).source().name, "tiled");
    /// ```
    pub fn source(self) -> &'static Source {
        match self {
            Program::Forward(kernel) => kernel.source(),
            Program::Backward => BACKWARD,
        }
    }

    /// Returns the architecture to compile for, so that a device of this compute capability (major, minor) runs it: the device's own
    /// instruction set.
    ///
    /// # Errors
    /// The program has instructions that the device does not have.
    ///
    /// ```
    /// use attention::cuda::Program;
    ///
    /// assert_eq!(Program::Backward.architecture_for((8, 9))?.to_string(), "sm_89");
    /// let error = Program::Backward.architecture_for((7, 0)).unwrap_err();
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
        let (oldest, has) =
            (self.source().architectures[0], (architecture.major, architecture.minor));
        if !oldest.runs_on(has) {
            return Err(Error::Capability { program: self, needs: oldest.needs(), has });
        }
        Ok(())
    }

    /// That the program takes rules for scores and shared keys. `given` says what is wrong with the argument if it doesn't.
    pub(super) fn check_takes(self, argument: &'static str, given: &str) -> Result<()> {
        let takes = [Kernel::Naive, Kernel::Tiled].map(Program::Forward);
        if self == Program::Backward || takes.contains(&self) {
            return Ok(());
        }
        let expected =
            "of the kernels on the GPU, only `naive`, `tiled` and `backward` take that";
        Err(unsupported(argument, given, expected).into())
    }

    pub(super) fn check_width(self, given: usize) -> Result<()> {
        let has = self.source().widths;
        if !has.contains(&given) {
            return Err(Error::Width { program: self, given, has });
        }
        Ok(())
    }
}

impl FromStr for Program {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let program = Program::all().find(|program| program.source().name == name);
        program.ok_or_else(|| Error::Name { given: name.to_owned() })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`", self.source().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each source has all that the table says, and includes nothing that it would not be given.
    #[test]
    fn the_table_is_true() {
        for program in Program::all() {
            let source = program.source();
            for function in source.functions {
                assert!(
                    source.text.contains(&format!("{function}_launch[3]")),
                    "{program}: {function}"
                );
            }
            let names: Vec<_> = source.headers.iter().map(|header| header.0).collect();
            for line in source.text.lines().filter(|line| line.starts_with("#include")) {
                assert!(
                    names.iter().any(|name| line.contains(&format!("\"{name}\""))),
                    "{program}: {line}"
                );
            }
            let oldest = source.architectures[0];
            let newer = source.architectures.iter();
            assert!(
                newer.clone().all(|other| oldest.runs_on((other.major, other.minor)))
            );
        }
    }
}
