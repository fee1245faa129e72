//! The parameters of each function on the device, read from its declaration in CUDA C++.
//!
//! A launch gives a function nothing but addresses, which the device believes. So the list of arguments is not written
//! down a second time in Rust, where it could disagree: it follows from the text that is compiled. A parameter's name
//! says which tensor it is, and its type says what the tensor holds and whether the function writes to it.

use super::error::Result;
use super::program::{Precision, Program};
use super::shape::Shape;
use crate::error::{check_count, unsupported};
use std::fmt;

/// The role of a tensor in attention. Its name is that of the parameter in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Q,
    K,
    V,
    Output,
    /// Log-sum-exps.
    Lse,
    /// Scores, then weights.
    Scores,
    /// The gradient of the output.
    GradOutput,
    /// rowsum(dO ⊙ O)
    Delta,
    GradQ,
    GradK,
    GradV,
}

impl Role {
    /// The name in an error.
    pub fn name(self) -> &'static str {
        match self {
            Role::Q => "q",
            Role::K => "k",
            Role::V => "v",
            Role::Output => "output",
            Role::Lse => "lse",
            Role::Scores => "scores",
            Role::GradOutput => "d_output",
            Role::Delta => "delta",
            Role::GradQ => "d_q",
            Role::GradK => "d_k",
            Role::GradV => "d_v",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "q" => Role::Q,
            "k" => Role::K,
            "v" => Role::V,
            "output" => Role::Output,
            "lse" => Role::Lse,
            "s" | "a" => Role::Scores, // S before softmax, A after it, in the same place
            "d_output" => Role::GradOutput,
            "delta" => Role::Delta,
            "d_q" => Role::GradQ,
            "d_k" => Role::GradK,
            "d_v" => Role::GradV,
            _ => return None,
        })
    }

    /// The sizes, row-major: heads, rows, columns.
    pub fn sizes(self, shape: Shape) -> [usize; 3] {
        let Shape { heads, kv_heads, n_q, n_k, d, .. } = shape;
        match self {
            Role::Q | Role::Output | Role::GradOutput | Role::GradQ => [heads, n_q, d],
            Role::K | Role::V | Role::GradK | Role::GradV => [kv_heads, n_k, d],
            Role::Lse | Role::Delta => [heads, n_q, 1],
            Role::Scores => [heads, n_q, n_k],
        }
    }

    /// Returns the number of entries of the tensor. Scores may be more than can be counted: no tensor has as many as that.
    pub fn entries(self, shape: Shape) -> usize {
        self.sizes(shape).into_iter().fold(1, usize::saturating_mul)
    }

    /// The same in words: `heads · n_q · d`.
    pub fn formula(self) -> &'static str {
        match self {
            Role::Q | Role::Output | Role::GradOutput | Role::GradQ => "heads · n_q · d",
            Role::K | Role::V | Role::GradK | Role::GradV => "kv_heads · n_k · d",
            Role::Lse | Role::Delta => "heads · n_q",
            Role::Scores => "heads · n_q · n_k",
        }
    }
}

/// The form in which a function on the device is given a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// By its address.
    Address(Precision),
    /// By a map for Hopper's copy engine, of boxes with so many rows. The tensor is in bf16.
    Map { rows: u32 },
}

impl Format {
    /// The role of the tensor.
    pub fn precision(self) -> Precision {
        match self {
            Format::Address(precision) => precision,
            Format::Map { .. } => Precision::Bf16,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::Address(precision) => write!(f, "a tensor in {precision}"),
            Format::Map { rows } => write!(f, "a map with boxes of {rows} rows"),
        }
    }
}

/// One parameter of a function on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parameter {
    /// `const float* q`, `Bf16* output`, `const __grid_constant__ TensorMap k`
    Tensor { role: Role, format: Format, is_written: bool },
    /// `int n_q`
    Queries,
    /// `int n_k`
    Keys,
    /// `float scale`
    Scale,
}

impl Parameter {
    fn parse(text: &str, boxes: Option<[u32; 2]>) -> Option<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (name, kind) = words.split_last()?;
        let tensor = |format, is_written| {
            Role::parse(name).map(|role| Parameter::Tensor { role, format, is_written })
        };
        match (kind.join(" ").as_str(), *name) {
            ("float*", _) => tensor(Format::Address(Precision::F32), true),
            ("const float*", _) => tensor(Format::Address(Precision::F32), false),
            ("Bf16*", _) => tensor(Format::Address(Precision::Bf16), true),
            ("const Bf16*", _) => tensor(Format::Address(Precision::Bf16), false),
            ("const __grid_constant__ TensorMap", "q") => {
                tensor(Format::Map { rows: boxes?[0] }, false)
            }
            ("const __grid_constant__ TensorMap", "k" | "v") => {
                tensor(Format::Map { rows: boxes?[1] }, false)
            }
            ("int", "n_q") => Some(Parameter::Queries),
            ("int", "n_k") => Some(Parameter::Keys),
            ("float", "scale") => Some(Parameter::Scale),
            _ => None,
        }
    }

    /// The parameters of `function`, in order. `boxes` are the rows that the copy engine takes at once of queries, and of
    /// keys and values. `None` if `source` does not declare the function, or if it has a parameter that is unknown here,
    /// or one twice.
    pub fn of(
        source: &str,
        function: &str,
        boxes: Option<[u32; 2]>,
    ) -> Option<Vec<Parameter>> {
        let list =
            source.split("extern \"C\" __global__ void").skip(1).find_map(|text| {
                let text = text.trim_start();
                let text = match text.strip_prefix("__launch_bounds__(") {
                    Some(rest) => rest.split_once(')')?.1.trim_start(),
                    None => text,
                };
                let list = text.strip_prefix(function)?.strip_prefix('(')?;
                Some(list.split_once(')')?.0)
            })?;
        let parameters: Vec<_> = list
            .split(',')
            .map(|text| Parameter::parse(text, boxes))
            .collect::<Option<_>>()?;
        let is_new = |(i, parameter): (usize, &Parameter)| {
            parameters[..i].iter().all(|other| match (parameter, other) {
                (
                    Parameter::Tensor { role, .. },
                    Parameter::Tensor { role: other, .. },
                ) => role != other,
                _ => parameter != other,
            })
        };
        parameters.iter().enumerate().all(is_new).then_some(parameters)
    }
}

/// The tensors among the parameters of functions, each once, with whether any function writes to it.
pub fn tensors(parameters: impl Iterator<Item = Parameter>) -> Vec<(Role, Format, bool)> {
    let mut all: Vec<(Role, Format, bool)> = vec![];
    for parameter in parameters {
        let Parameter::Tensor { role, format, is_written } = parameter else { continue };
        match all.iter_mut().find(|known| known.0 == role) {
            Some(known) => known.2 |= is_written,
            None => all.push((role, format, is_written)),
        }
    }
    all
}

/// Bytes of device memory that tensors take.
pub fn bytes(tensors: &[(Role, Format, bool)], shape: Shape) -> u64 {
    let of = |&(role, format, _): &(Role, Format, bool)| {
        role.entries(shape).saturating_mul(format.precision().bytes()) as u64
    };
    tensors.iter().map(of).fold(0, u64::saturating_add)
}

impl Shape {
    /// Returns the bytes of device memory that the tensors of a program take.
    ///
    /// ```
    /// use attention::cuda::{Kernel, Program, Shape};
    ///
    /// let shape = Shape { heads: 8, kv_heads: 8, n_q: 1000, n_k: 1000, d: 64, causal: true };
    /// let bytes = |kernel| shape.bytes(Program::Forward(kernel));
    /// assert_eq!(bytes(Kernel::Tiled), 8 * 1000 * (4 * 64 + 1) * 4); // q, k, v, output; log-sum-exps
    /// assert_eq!(bytes(Kernel::Naive) - bytes(Kernel::Tiled), 8 * 1000 * 1000 * 4); // the scores
    /// ```
    pub fn bytes(&self, program: Program) -> u64 {
        let source = program.source();
        let boxes = Some([1; 2]); // which take no memory, whatever their rows
        let of = |name| Parameter::of(source.text, name, boxes).unwrap_or_default();
        bytes(&tensors(source.functions.iter().flat_map(|name| of(name))), *self)
    }
}

/// That a tensor has as many entries as its role asks for.
pub fn check_entries(role: Role, given: usize, shape: Shape) -> Result<()> {
    let expected = role.entries(shape);
    let because = || format!("{} = {expected}", role.formula());
    Ok(check_count(role.name(), "entry", given, expected, because)?)
}

/// That a tensor can be the argument for a parameter of its role.
pub fn check_format(role: Role, given: Format, wanted: Format) -> Result<()> {
    if given != wanted {
        let expected = format!("the function on the device takes {wanted}");
        return Err(unsupported(role.name(), given.to_string(), expected).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Kernel;

    const BOXES: Option<[u32; 2]> = Some([64, 128]);
    const F32: Format = Format::Address(Precision::F32);

    fn reads(role: Role) -> Parameter {
        Parameter::Tensor { role, format: F32, is_written: false }
    }

    fn writes(role: Role) -> Parameter {
        Parameter::Tensor { role, format: F32, is_written: true }
    }

    /// Every function that is launched declares parameters that are known here.
    #[test]
    fn every_function_has_parameters() {
        for program in Program::all() {
            for function in program.source().functions {
                let parameters = Parameter::of(program.source().text, function, BOXES);
                assert!(parameters.is_some(), "{program}: {function}");
            }
        }
    }

    #[test]
    fn parameters_are_those_of_the_declaration() {
        let of = |program: Program, function| {
            Parameter::of(program.source().text, function, BOXES)
        };
        let naive = Program::Forward(Kernel::Naive);
        assert_eq!(
            of(naive, "scores").unwrap(),
            [
                reads(Role::Q),
                reads(Role::K),
                writes(Role::Scores),
                Parameter::Queries,
                Parameter::Keys,
                Parameter::Scale
            ]
        );
        assert_eq!(
            of(Program::Backward, "backward_delta").unwrap(),
            [
                reads(Role::Output),
                reads(Role::GradOutput),
                writes(Role::Delta),
                Parameter::Queries
            ]
        );
        let hopper = of(Program::Forward(Kernel::Hopper), "attention_forward").unwrap();
        let map = |role, rows| {
            let format = Format::Map { rows };
            Parameter::Tensor { role, format, is_written: false }
        };
        assert_eq!(hopper[..3], [map(Role::Q, 64), map(Role::K, 128), map(Role::V, 128)]);
        let format = Format::Address(Precision::Bf16);
        let output = Parameter::Tensor { role: Role::Output, format, is_written: true };
        assert_eq!(hopper[3], output);
    }

    #[test]
    fn another_declaration_is_refused() {
        let of = |list: &str| {
            let source = format!(
                "extern \"C\" __global__ void __launch_bounds__(D)\nf({list}) {{"
            );
            Parameter::of(&source, "f", None)
        };
        assert_eq!(
            of("const float* q, int n_q"),
            Some(vec![reads(Role::Q), Parameter::Queries])
        );
        for list in [
            "",
            "const float* q, const float* q",      // twice
            "const float* s, float* a",            // two names of one tensor
            "const float* queries",                // a name that says nothing here
            "const double* q",                     // a type that no tensor has
            "int d",                               // a number that no launch knows
            "float n_q",                           // a number of another type
            "const float* q, int n_q,",            // an end that is missing
            "const __grid_constant__ TensorMap q", // whose boxes the source does not tell
        ] {
            assert_eq!(of(list), None, "{list}");
        }
        assert_eq!(Parameter::of("void f(int n_q)", "f", None), None); // not on the device
        let other = "extern \"C\" __global__ void ff(int n_q)";
        assert_eq!(Parameter::of(other, "f", None), None);
        assert_eq!(Parameter::of(other, "ff", None), Some(vec![Parameter::Queries]));
    }

    /// 2⁷⁵ scores are more than a `usize` counts, and 2⁷⁵ mod 2⁶⁴ is 0.
    #[test]
    fn too_many_scores_are_no_small_number() {
        let n = 1 << 30;
        let shape = Shape {
            heads: 1 << 15,
            kv_heads: 1 << 15,
            n_q: n,
            n_k: n,
            d: 32,
            causal: false,
        };
        shape.check(Program::Forward(Kernel::Naive)).unwrap();
        assert_eq!(Role::Scores.entries(shape), usize::MAX);
        check_entries(Role::Scores, 0, shape).unwrap_err();
    }

    /// The mistakes that a launch refuses: other numbers, other boxes, another length.
    #[test]
    fn a_tensor_fits_its_parameter_or_is_refused() {
        let (bf16, map) = (Format::Address(Precision::Bf16), |rows| Format::Map { rows });
        check_format(Role::Q, F32, F32).unwrap();
        check_format(Role::K, map(64), map(64)).unwrap();
        for (given, wanted, words) in [
            (
                bf16,
                F32,
                "`k` is a tensor in bf16 but the function on the device takes a tensor in f32",
            ),
            (
                bf16,
                map(64),
                "`k` is a tensor in bf16 but the function on the device takes a map with boxes of 64 rows",
            ),
            (
                map(64),
                map(128),
                "`k` is a map with boxes of 64 rows but the function on the device takes a map with boxes of 128 rows",
            ),
        ] {
            let error = check_format(Role::K, given, wanted).unwrap_err();
            assert_eq!(error.to_string(), words);
        }
        let shape = Shape { heads: 2, kv_heads: 2, n_q: 3, n_k: 5, d: 32, causal: false };
        for (role, entries) in [
            (Role::Q, 192),
            (Role::Output, 192),
            (Role::GradOutput, 192),
            (Role::GradQ, 192),
            (Role::K, 320),
            (Role::V, 320),
            (Role::GradK, 320),
            (Role::GradV, 320),
            (Role::Lse, 6),
            (Role::Delta, 6),
            (Role::Scores, 30),
        ] {
            check_entries(role, entries, shape).unwrap();
            for other in [entries - 1, entries + 1] {
                let error = check_entries(role, other, shape).unwrap_err().to_string();
                let start = format!("`{}` has {other} entries but ", role.name());
                assert!(error.starts_with(&(start + role.formula())), "{error}");
            }
        }
    }
}
