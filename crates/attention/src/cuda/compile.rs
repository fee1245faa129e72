//! From CUDA C++ to machine code, while the program runs.

use super::error::{Error, Result};
use super::ffi;
use super::program::{Architecture, Program};
use super::score_rule;
use super::shape::Shape;
use crate::error::check_positive;
use crate::flash::Inputs;

/// Machine code for one architecture, and what the compiler says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The program that was compiled.
    pub program: Program,
    /// The architecture that it runs on.
    pub architecture: Architecture,
    /// The machine code, an ELF file.
    pub cubin: Vec<u8>,
    /// The compiler's log, with the needs of each function in the words of `ptxas -v`.
    pub log: String,
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

    /// That the program can be compiled for it.
    pub(super) fn check(&self, program: Program) -> Result<()> {
        check_positive("group", self.group)?;
        if self.group > 1 {
            program.check_takes("group", &self.group.to_string())?;
        }
        if self.rule.is_some() {
            program.check_takes("rule", "a rule for scores")?;
        }
        Ok(())
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
/// use attention::cuda::{Architecture, TILED, compile};
///
/// let compiled = compile(TILED, Architecture::SM_80, 64, true)?;
/// println!("{}", compiled.log);
/// # Ok::<(), attention::cuda::Error>(())
/// ```
pub fn compile(
    program: Program,
    architecture: Architecture,
    d: usize,
    variant: impl Into<Variant>,
) -> Result<Compiled> {
    let variant = variant.into();
    variant.check(program)?;
    program.check_width(d)?;
    program.check_architecture(architecture)?;
    let source = program.source();
    let mut options = vec![
        format!("--gpu-architecture={architecture}"),
        format!("-DD={d}"),
        format!("-DCAUSAL={}", u8::from(variant.causal)),
        format!("-DGROUP={}", variant.group),
        "--std=c++17".to_owned(),
        "--use_fast_math".to_owned(),
        "--ptxas-options=-v".to_owned(), // the log says what each function needs …
        "--no-cache".to_owned(),         // … but not of code that was compiled before
    ];
    let mut headers = source.headers.to_vec();
    if let Some(rule) = &variant.rule {
        options.push(format!("-DSCORE_RULE=\"{RULE}\""));
        headers.push((RULE, rule));
    }
    let (name, text) = (
        format!("{}.cu", source.name),
        format!("{}{}", source.text, source.declarations()),
    );
    let (cubin, log) = ffi::Nvrtc::new(&name, &text, &headers)?.compile(&options)?;
    match cubin {
        Some(cubin) => Ok(Compiled { program, architecture, cubin, log }),
        None => Err(Error::Compile { program, architecture, log }),
    }
}
