//! Rules for scores, as functions in CUDA C++ that a kernel is compiled with.

use super::error::Result;
use crate::error::{Error, unsupported};
use crate::flash::Inputs;
use crate::score_rule::Step;

/// The furthest distance with a bias of its own for which a table becomes part of a kernel.
const FURTHEST: isize = 1 << 12;

/// The functions `changed` and `slope_of_change` of `common.cuh` for the rule of these inputs, if they have one.
///
/// Source of the idea: J. Dong et al., *FlexAttention* (2024), which compiles kernels from rules.
pub fn source(inputs: &Inputs<f32>) -> Result<Option<String>> {
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
                    let (given, most) =
                        (furthest.unsigned_abs(), Some(FURTHEST as usize));
                    let argument = "furthest";
                    return Err(Error::TooMany { argument, given, most, because }.into());
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
                let (given, expected) =
                    ("a function of one's own", "a GPU can't call a function in Rust");
                return Err(unsupported("rule", given, expected).into());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score_rule::{DistanceBuckets, ScoreFunction, ScorePlace, ScoreRule};
    use nalgebra::DMatrix;

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

    #[test]
    fn what_no_kernel_can_take_is_refused() {
        let x = DMatrix::<f32>::zeros(2, 2);
        let of = |rule: ScoreRule| {
            source(&Inputs::new(&x, &x, &x, rule).unwrap()).unwrap_err().to_string()
        };
        assert_eq!(
            of(ScoreRule::custom(Half)),
            "`rule` is a function of one's own but a GPU can't call a function in Rust"
        );
        let buckets = DistanceBuckets::clipped(5000).unwrap();
        let table = ScoreRule::table(&DMatrix::<f32>::zeros(10_001, 1), buckets).unwrap();
        assert_eq!(of(table), "`furthest` is 5001 but a kernel takes 4096 at most");
    }
}
