//! From CUDA C++ to machine code, while the program runs. A rule for scores becomes a part of the source.

use super::ffi;
use super::mask::MaskInCuda;
use super::program::{Architecture, Program, Shape};
use super::{Error, Result};
use crate::error::{check_positive, wrong_value};
use crate::flash::Inputs;
use crate::score_rule::Step;

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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variant {
    /// `true` for the causal rule.
    pub causal: bool,
    /// Heads of queries that share a head of keys and values.
    pub group: usize,
    /// The rule for scores in CUDA C++, if there is one: the functions `changed` and `slope_of_change` of `common.cuh`.
    pub rule: Option<String>,
    /// The mask in CUDA C++, if it hides more than the future: what `common.cuh` asks of it. That of documents belongs to one layout, and
    /// each layout is compiled for.
    pub mask: Option<String>,
}

impl From<bool> for Variant {
    fn from(causal: bool) -> Self {
        Variant { causal, group: 1, rule: None, mask: None }
    }
}

impl Variant {
    /// Returns the variant for these inputs.
    ///
    /// # Errors
    /// The mask is another than none, causal, a window, and documents with causal or a window without sinks; values are not as wide as
    /// keys; or the rule for scores is a function of one's own.
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
        Ok(Self::with_shape(inputs)?.1)
    }

    /// The same, and the sizes.
    pub(super) fn with_shape(inputs: &Inputs<f32>) -> Result<(Shape, Self)> {
        let MaskInCuda { causal, text } = MaskInCuda::of(&inputs.mask)?;
        let shape = Shape::of(inputs, causal)?;
        let rule = rule_in_cuda(inputs)?;
        Ok((shape, Variant { rule, mask: text, ..Self::of_shape(shape) }))
    }

    /// Without a rule or a mask of its own. The sizes are those of inputs, or were checked.
    pub(super) fn of_shape(shape: Shape) -> Self {
        let group = shape.heads / shape.kv_heads;
        Variant { causal: shape.causal, group, rule: None, mask: None }
    }

    /// That the program can be compiled for it.
    fn check(&self, program: Program) -> Result<()> {
        check_positive("group", self.group)?;
        if self.mask.is_some() && !program.source().takes_masks {
            let expected = format!("{program} takes none and causal");
            return Err(wrong_value(
                "mask",
                "one that hides more than the future",
                expected,
            )
            .into());
        }
        let (argument, given) = match self {
            _ if program.source().takes_rules => return Ok(()),
            Variant { group: 2.., .. } => ("group", self.group.to_string()),
            Variant { rule: Some(_), .. } => ("rule", "a rule for scores".to_owned()),
            _ => return Ok(()),
        };
        let expected =
            format!("{program} takes neither rules for scores nor shared keys");
        Err(wrong_value(argument, given, expected).into())
    }
}

/// Compiles a program for head dimension `d` and a [`Variant`], of which `true` and `false` say that it is causal or not. It takes NVRTC
/// and no device.
///
/// # Errors
/// No NVRTC, a head dimension or a variant that the program does not have, an architecture without its instructions, or a
/// source that does not compile: the error has the log.
pub fn compile(
    program: Program,
    architecture: Architecture,
    d: usize,
    variant: impl Into<Variant>,
) -> Result<Compiled> {
    let variant = variant.into();
    variant.check(program)?;
    program.check_width(d)?;
    program.architecture_for((architecture.major, architecture.minor))?;
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
        options.push("-DSCORE_RULE=\"score_rule.cuh\"".to_owned());
        headers.push(("score_rule.cuh", rule));
    }
    if let Some(mask) = &variant.mask {
        options.push("-DMASK=\"mask.cuh\"".to_owned());
        headers.push(("mask.cuh", mask));
    }
    let name = format!("{}.cu", source.name);
    let (cubin, log) =
        ffi::Nvrtc::new(&name, source.text, &headers)?.compile(&options)?;
    if let Some(cubin) = cubin {
        return Ok(Compiled { program, architecture, cubin, log });
    }
    Err(Error::Compile { what: format!("{program} for {architecture}"), log })
}

/// The furthest distance with a bias of its own for which a table becomes part of a kernel.
const FURTHEST: isize = 1 << 12;

/// The functions `changed` and `slope_of_change` of `common.cuh` for the rule of these inputs, if they have one.
///
/// Source of the idea: J. Dong et al., *FlexAttention* (2024), which compiles kernels from rules.
fn rule_in_cuda(inputs: &Inputs<f32>) -> Result<Option<String>> {
    let rule = inputs.mask.scores();
    if rule.is_none() {
        return Ok(None);
    }
    let heads: Vec<usize> = match inputs.mask.own_head() {
        Some(head) => vec![head; inputs.n_heads()],
        None => (0..inputs.n_heads()).collect(),
    };
    let (mut tables, mut changed, mut slope) =
        (String::new(), String::new(), String::new());
    for (number, step) in rule.steps().iter().enumerate() {
        let statement = match step {
            Step::Slopes(slopes) => {
                let name = format!("SLOPES_{number}");
                tables += &array(&name, heads.iter().map(|&head| slopes[head]));
                format!("score -= {name}[head] * abs(distance);")
            }
            Step::Table(table, buckets) => {
                // A bias for each distance up to the furthest that has one of its own, on both sides.
                let furthest = buckets.furthest();
                if furthest > FURTHEST {
                    let because = format!("a kernel takes {FURTHEST} at most");
                    return Err(wrong_value("furthest", furthest, because).into());
                }
                let name = format!("BIASES_{number}");
                let of_head = |&head: &usize| {
                    let bias = move |distance| table[(buckets.of(distance), head)];
                    (-furthest..=furthest).map(bias)
                };
                tables += &array(&name, heads.iter().flat_map(of_head));
                let width = 2 * furthest + 1;
                format!(
                    "score += {name}[head * {width} + min(max(distance, -{furthest}), {furthest}) + {furthest}];"
                )
            }
            Step::SoftCap(cap) => {
                let cap = literal(*cap);
                slope += &format!("slope *= slope_of_cap(score / {cap});\n");
                format!("score = {cap} * hyperbolic_tangent(score / {cap});")
            }
            Step::Custom(_) => {
                let expected = "a GPU can't call a function in Rust";
                let given = "a function of one's own";
                return Err(wrong_value("rule", given, expected).into());
            }
        };
        changed += &format!("{statement}\n");
        slope += &format!("{statement}\n");
    }
    Ok(Some(format!(
        "{CAP}{tables}
__device__ inline float changed(float score, int head, int distance) {{
{changed}return score;
}}
__device__ inline float slope_of_change(float score, int head, int distance) {{
float slope = 1;
{slope}return slope;
}}
"
    )))
}

/// tanh by an exponential, which the fast arithmetic of a GPU computes more exactly than its `tanhf`; and its slope.
const CAP: &str = "
__device__ inline float hyperbolic_tangent(float x) {
return 1 - 2 / (exp2f(2 * LOG2_E * x) + 1);
}
__device__ inline float slope_of_cap(float x) {
const float tangent = hyperbolic_tangent(x);
return 1 - tangent * tangent;
}
";

fn literal(number: f64) -> String {
    format!("({:e}f)", number as f32)
}

fn array(name: &str, numbers: impl Iterator<Item = f64>) -> String {
    let numbers: Vec<_> = numbers.map(literal).collect();
    format!("__device__ const float {name}[] = {{{}}};\n", numbers.join(", "))
}
