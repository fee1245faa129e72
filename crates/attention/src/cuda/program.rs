//! What a kernel is: a source, the functions in it, what they take, and the sizes of that.

use super::{Error, Result};
use crate::error::{check_count, check_heads, check_positive, wrong_value};
use crate::flash::Inputs;
use std::fmt;
use std::hash::{Hash, Hasher};

// ---------------------------------------------------------------------------------------------------- programs

/// An instruction set, for which NVRTC compiles and which a device runs.
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
    /// Turing, the oldest that NVRTC 13 compiles for.
    pub const SM_75: Self = Architecture { major: 7, minor: 5, specific: false };

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
    /// `int heads`, of the queries
    HeadCount,
    /// `float scale`, 1/√d
    Scale,
}

/// A function on the device: its name in the source, where it is `extern "C"`, and its parameters, each tensor once. The source
/// says in a constant `NAME_launch`, an array of three `int`, the threads of a block, the rows that a block takes of the longest
/// tensor that is written, and the bytes of shared memory that it is given.
#[derive(Debug, Clone, Copy)]
pub struct Function(pub &'static str, pub &'static [Parameter]);

/// How the numbers of a tensor lie in the device's memory. A kernel adds up in `f32`, however they lie.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    /// Bytes of a number.
    pub bytes: usize,
    /// Returns numbers as bytes, rounded if need be.
    pub encode: fn(&[f32]) -> Vec<u8>,
    /// Returns the numbers that bytes are.
    pub decode: fn(&[u8]) -> Vec<f32>,
}

impl Numbers {
    /// `f32`, as in Rust.
    pub const F32: Self = Numbers {
        bytes: 4,
        encode: |numbers| numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
        decode: |bytes| {
            bytes.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect()
        },
    };

    /// `i32`, for whole numbers: an `f32` has those up to 2²⁴.
    pub const I32: Self = Numbers {
        bytes: 4,
        encode: |numbers| {
            numbers.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect()
        },
        decode: |bytes| {
            bytes.as_chunks().0.iter().map(|&x| i32::from_le_bytes(x) as f32).collect()
        },
    };
}

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
    pub numbers: Numbers,
    /// The head dimensions that it is written for. The width of the values is that of the keys.
    pub widths: &'static [usize],
    /// The oldest architecture that has its instructions.
    pub oldest: Architecture,
    /// `true` if its blocks stay: as many as the device has multiprocessors, each of which finds its work by its number.
    pub is_persistent: bool,
    /// `true` if it takes rules for scores, and heads that share keys.
    pub takes_rules: bool,
    /// `true` if it takes masks that hide more than the future.
    pub takes_masks: bool,
}

impl Source {
    /// Returns the numbers of one of its tensors.
    pub fn numbers_of(&self, tensor: Tensor) -> Numbers {
        match tensor.size {
            Size::Queries | Size::Keys => self.numbers,
            Size::Rows | Size::Scores => Numbers::F32,
            Size::Other(other) => other.numbers.unwrap_or(self.numbers),
        }
    }
}

/// The unit of compilation: a source with its functions.
///
/// ```
/// use attention::cuda::{NAIVE, TILED};
///
/// assert_eq!(TILED.to_string(), "kernel `tiled`");
/// assert_eq!(NAIVE.source().functions.len(), 3);
/// assert_eq!(TILED.architecture_for((8, 9))?.to_string(), "sm_89"); // the device's own
/// let error = TILED.architecture_for((7, 0)).unwrap_err();
/// assert!(error.to_string().contains("needs compute capability 7.5 or newer, not 7.0"));
/// # Ok::<(), attention::cuda::Error>(())
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
    pub fn architecture_for(self, (major, minor): (u32, u32)) -> Result<Architecture> {
        let oldest = self.0.oldest;
        if oldest.runs_on((major, minor)) {
            return Ok(Architecture { major, minor, specific: oldest.specific });
        }
        let rest = if oldest.specific { " and no other" } else { " or newer" };
        let needs = format!("{}.{}{rest}", oldest.major, oldest.minor);
        Err(Error::Device(format!(
            "{self} needs compute capability {needs}, not {major}.{minor}: choose another kernel or another device"
        )))
    }

    pub(super) fn check_width(self, given: usize) -> Result<()> {
        let has = self.source().widths;
        if has.contains(&given) {
            return Ok(());
        }
        let has = has.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let expected = format!("{self} is written for {has}");
        Err(wrong_value("d", given.to_string(), expected).into())
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

// ---------------------------------------------------------------------------------------------------- sizes

/// The sizes of attention on a GPU. Keys and values have the same width, `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Heads of queries; those of a whole batch count as so many heads.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` neighbouring heads of queries.
    pub kv_heads: usize,
    /// Queries of a head.
    pub n_q: usize,
    /// Keys of a head.
    pub n_k: usize,
    /// The width of a query, a key and a value.
    pub d: usize,
    /// `true` if query `i` sees key `j` only when `j ≤ i + n_k − n_q`.
    pub causal: bool,
}

/// The most queries or keys of a head: indices are 32 bits wide, and a tile reaches past the last one.
const MOST_ROWS: usize = 1 << 30;
/// The most heads: the size of a grid in its second dimension.
const MOST_HEADS: usize = 65_535;

impl Shape {
    /// The sizes of these inputs, or that values are not as wide as keys.
    pub(super) fn of(inputs: &Inputs<f32>, causal: bool) -> Result<Self> {
        let ((n_q, n_k), (d, _)) = (inputs.lengths(), inputs.widths());
        let width = inputs.k.ncols();
        let because = || format!("the kernels on the GPU want the {width} of `k`");
        check_count("v", "column", inputs.v.ncols(), width, because)?;
        let (heads, kv_heads) = (inputs.n_heads(), inputs.n_kv_heads());
        Ok(Shape { heads, kv_heads, n_q, n_k, d, causal })
    }

    /// That the program can have these sizes. Then none is 0, a grid holds them, and their products without scores fit a
    /// `usize`.
    pub(super) fn check(self, program: Program) -> Result<()> {
        for (argument, given, most) in [
            ("heads", self.heads, MOST_HEADS),
            ("kv_heads", self.kv_heads, MOST_HEADS),
            ("n_q", self.n_q, MOST_ROWS),
            ("n_k", self.n_k, MOST_ROWS),
        ] {
            check_positive(argument, given)?;
            if given > most {
                let because = format!("a grid holds {most} at most");
                return Err(wrong_value(argument, given, because).into());
            }
        }
        let because = || format!("it must divide heads = {}", self.heads);
        check_heads("kv_heads", self.kv_heads, self.heads, because)?;
        program.check_width(self.d)
    }
}

/// A tensor that a function on the device takes: its name there, which no other tensor of the program has, and its size.
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    /// The name, which an error has, too.
    pub name: &'static str,
    /// The size.
    pub size: Size,
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Tensor {}

/// The size of a tensor, row-major.
#[derive(Debug, Clone, Copy)]
pub enum Size {
    /// (heads, n_q, d)
    Queries,
    /// (kv_heads, n_k, d)
    Keys,
    /// (heads, n_q): a number of each query, in `f32`.
    Rows,
    /// (heads, n_q, n_k), in `f32`.
    Scores,
    /// What one program needs alone.
    Other(&'static OtherSize),
}

/// A size that one program needs.
#[derive(Debug)]
pub struct OtherSize {
    /// Returns heads, rows and columns.
    pub sizes: fn(Shape) -> [usize; 3],
    /// Their product, in words.
    pub formula: &'static str,
    /// Its numbers, if they aren't those of the program.
    pub numbers: Option<Numbers>,
    /// Returns what all entries are below, if they are whole numbers from 0 on, by which the program finds something.
    pub below: Option<fn(Shape) -> usize>,
}

impl Tensor {
    /// Queries.
    pub const Q: Self = Tensor { name: "q", size: Size::Queries };
    /// Keys.
    pub const K: Self = Tensor { name: "k", size: Size::Keys };
    /// Values.
    pub const V: Self = Tensor { name: "v", size: Size::Keys };
    /// The output.
    pub const OUTPUT: Self = Tensor { name: "output", size: Size::Queries };
    /// The log-sum-exp of each query's scores.
    pub const LSE: Self = Tensor { name: "lse", size: Size::Rows };
    /// Scores, then weights.
    pub const SCORES: Self = Tensor { name: "scores", size: Size::Scores };

    /// Heads, rows, columns.
    pub(super) fn sizes(self, shape: Shape) -> [usize; 3] {
        let Shape { heads, kv_heads, n_q, n_k, d, .. } = shape;
        match self.size {
            Size::Queries => [heads, n_q, d],
            Size::Keys => [kv_heads, n_k, d],
            Size::Rows => [heads, n_q, 1],
            Size::Scores => [heads, n_q, n_k],
            Size::Other(other) => (other.sizes)(shape),
        }
    }

    /// Returns the number of entries. Scores may be more than can be counted: no tensor has as many as that.
    pub fn entries(self, shape: Shape) -> usize {
        self.sizes(shape).into_iter().fold(1, usize::saturating_mul)
    }

    /// That these can be the tensor's entries: as many as it has, and where they are places, places that there are.
    pub(super) fn check_values(self, values: &[f32], shape: Shape) -> Result<()> {
        let formula = match self.size {
            Size::Queries => "heads · n_q · d",
            Size::Keys => "kv_heads · n_k · d",
            Size::Rows => "heads · n_q",
            Size::Scores => "heads · n_q · n_k",
            Size::Other(other) => other.formula,
        };
        let expected = self.entries(shape);
        let because = || format!("{formula} = {expected}");
        check_count(self.name, "entry", values.len(), expected, because)?;
        if let Size::Other(OtherSize { below: Some(below), .. }) = self.size {
            let below = below(shape);
            let is_place = |x: &f32| x.fract() == 0.0 && (0.0..below as f32).contains(x);
            if let Some(wrong) = values.iter().find(|x| !is_place(x)) {
                let expected = format!("its entries are whole numbers below {below}");
                return Err(wrong_value(self.name, wrong.to_string(), expected).into());
            }
        }
        Ok(())
    }
}

// ---------------------------------------------------------------------------------------------------- naive and tiled

/// The header that all kernels share: its name and its text.
pub const COMMON: (&str, &str) = ("common.cuh", include_str!("../../cuda/common.cuh"));

use Parameter::{KeyCount, QueryCount, Reads, Scale, Writes};
const Q: Tensor = Tensor::Q;
const K: Tensor = Tensor::K;
const V: Tensor = Tensor::V;
const SCORES: Tensor = Tensor::SCORES;
const OUTPUT: Tensor = Tensor::OUTPUT;
const LSE: Tensor = Tensor::LSE;

// SAFETY, of both: tests of the crate `gpu` compile each source with declarations made of these lists, and run it on a CPU with every
// access watched.
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
    numbers: Numbers::F32,
    widths: &[32, 64, 128],
    oldest: Architecture::SM_75,
    is_persistent: false,
    takes_rules: true,
    takes_masks: true,
});

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { heads: 4, kv_heads: 2, n_q: 3, n_k: 5, d: 32, causal: false };

    #[test]
    fn a_slice_of_another_length_is_refused() {
        for (tensor, entries, words) in [
            (Tensor::V, 320, "`v` has 321 entries but kv_heads · n_k · d = 320"),
            (Tensor::LSE, 12, "`lse` has 13 entries but heads · n_q = 12"),
        ] {
            tensor.check_values(&vec![0.0; entries], SHAPE).unwrap();
            let error = tensor.check_values(&vec![0.0; entries + 1], SHAPE).unwrap_err();
            assert_eq!(error.to_string(), words);
        }
    }

    /// A kernel would read wherever such an entry says.
    #[test]
    fn a_place_that_there_is_not_is_refused() {
        const SIZE: OtherSize = OtherSize {
            sizes: |shape| [shape.kv_heads, 1, 1],
            formula: "kv_heads",
            numbers: Some(Numbers::I32),
            below: Some(|shape| shape.n_k),
        };
        let table = Tensor { name: "table", size: Size::Other(&SIZE) };
        table.check_values(&[0.0, 4.0], SHAPE).unwrap();
        for wrong in [5.0, -1.0, 0.5, f32::NAN, f32::INFINITY] {
            let error = table.check_values(&[0.0, wrong], SHAPE).unwrap_err();
            let words =
                format!("`table` is {wrong} but its entries are whole numbers below 5");
            assert_eq!(error.to_string(), words);
        }
        let error = table.check_values(&[0.0], SHAPE).unwrap_err();
        assert_eq!(error.to_string(), "`table` has 1 entry but kv_heads = 2");
        let there_and_back =
            (Numbers::I32.decode)(&(Numbers::I32.encode)(&[3.0, 65_536.0]));
        assert_eq!(there_and_back, [3.0, 65_536.0]);
    }

    /// 2⁷⁵ scores are more than a `usize` counts, and 2⁷⁵ mod 2⁶⁴ is 0.
    #[test]
    fn too_many_scores_are_no_small_number() {
        let (heads, n) = (1 << 15, 1 << 30);
        let shape = Shape { heads, kv_heads: heads, n_q: n, n_k: n, ..SHAPE };
        shape.check(NAIVE).unwrap();
        assert_eq!(Tensor::SCORES.entries(shape), usize::MAX);
        Tensor::SCORES.check_values(&[], shape).unwrap_err();
    }

    #[test]
    fn sizes_that_no_grid_has_are_refused() {
        let told = |shape: Shape| shape.check(NAIVE).unwrap_err().to_string();
        assert_eq!(
            told(Shape { n_q: 0, ..SHAPE }),
            "`n_q` is 0 but it must be at least 1"
        );
        let words = "`heads` is 65536 but a grid holds 65535 at most";
        assert_eq!(told(Shape { heads: 65_536, ..SHAPE }), words);
        let words = "`kv_heads` is 3 but it must divide heads = 4";
        assert_eq!(told(Shape { kv_heads: 3, ..SHAPE }), words);
    }
}
