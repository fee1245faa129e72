//! The cases' inputs. They are small and whole where they can be, so that they can be checked by hand.

use serde_json::{Value, json};

/// A case: an operation's inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The operation.
    pub operation: &'static str,
    /// The case's name, which no other case has.
    pub name: &'static str,
    /// What the case is, for people.
    pub says: &'static str,
    /// The inputs.
    pub inputs: Value,
    /// Precisions whose usual tolerance won't do, and the tolerance instead.
    pub tolerance: &'static [(&'static str, f64)],
    /// Further calls, whose outputs have the bits of the first one's.
    pub same_bits: Vec<Value>,
}

impl Case {
    fn new(
        operation: &'static str,
        name: &'static str,
        says: &'static str,
        inputs: Value,
    ) -> Self {
        Case { operation, name, says, inputs, tolerance: &[], same_bits: vec![] }
    }
}

/// Numbers that look random and are multiples of 1/8 from −2 to 2, so that every precision holds them: (heads, n, d).
fn numbers(seed: u32, shape: [usize; 3]) -> Value {
    array(shape, |place| f64::from(mixed(seed, place) % 33) / 8.0 - 2.0)
}

/// The same for positive numbers, from 1/8 to 2.
fn positive(seed: u32, shape: [usize; 3]) -> Value {
    array(shape, |place| f64::from(mixed(seed, place) % 16 + 1) / 8.0)
}

/// Bits that depend on all bits of both.
fn mixed(seed: u32, place: usize) -> u32 {
    let mut bits = seed.wrapping_mul(0x9e37_79b9).wrapping_add(place as u32 + 1);
    for _ in 0..3 {
        bits = (bits ^ (bits >> 15)).wrapping_mul(0x2c1b_3c6d);
    }
    bits >> 8
}

/// An array (heads, n, d) of what `number` says for each place; the last index runs fastest.
fn array([heads, n, d]: [usize; 3], number: impl Fn(usize) -> f64) -> Value {
    let row = |h: usize, i: usize| {
        (0..d).map(|c| number((h * n + i) * d + c)).collect::<Value>()
    };
    let head = |h: usize| (0..n).map(|i| row(h, i)).collect::<Value>();
    (0..heads).map(head).collect()
}

fn zeros(shape: [usize; 3]) -> Value {
    array(shape, |_| 0.0)
}

/// The numbers from 0 on, one head, one a row.
fn counting(n: usize) -> Value {
    array([1, n, 1], |i| i as f64)
}

/// The first head of an array: a matrix.
fn matrix(array: Value) -> Value {
    array[0].clone()
}

/// Returns every case.
///
/// ```
/// let names: Vec<_> = suite::cases().iter().map(|case| case.name).collect();
/// assert!(names.contains(&"causal-after-a-cache"));
/// ```
pub fn cases() -> Vec<Case> {
    [
        masks(),
        hidden(),
        scores(),
        heads(),
        structured(),
        gradients(),
        dropout(),
        multi_head(),
        rotate(),
        decode(),
        merge(),
        slopes(),
        linear(),
        latent(),
        same_bits(),
    ]
    .concat()
}

fn attention(name: &'static str, says: &'static str, inputs: Value) -> Case {
    Case::new("attention", name, says, inputs)
}

fn masks() -> Vec<Case> {
    vec![
        attention(
            "causal-two-tokens",
            "The first token sees itself, the second both: 1, and the mean of 1 and 10.",
            json!({ "q": [[[0], [0]]], "k": [[[0], [0]]], "v": [[[1], [10]]], "causal": true }),
        ),
        attention(
            "causal-several-heads",
            "Three heads of four tokens, causal.",
            json!({
                "q": numbers(1, [3, 4, 4]), "k": numbers(2, [3, 4, 4]), "v": numbers(3, [3, 4, 2]),
                "causal": true,
            }),
        ),
        attention(
            "mask-of-booleans",
            "True means that the query may see the key: the means of 1 and 10, of 100, and of all.",
            json!({
                "q": [[[0], [0], [0]]], "k": [[[0], [0], [0]]], "v": [[[1], [10], [100]]],
                "mask": [[true, true, false], [false, false, true], [true, true, true]],
            }),
        ),
        attention(
            "mask-of-padding",
            "The last two of five keys are padding, for every query and head.",
            json!({
                "q": numbers(4, [2, 2, 2]), "k": numbers(5, [2, 5, 2]), "v": numbers(6, [2, 5, 1]),
                "mask": [[true, true, true, false, false], [true, true, true, false, false]],
            }),
        ),
        attention(
            "mask-and-causal",
            "A key is seen where the mask and the causal rule allow it. The first key is padding, so the first query sees nothing.",
            json!({
                "q": zeros([1, 3, 1]), "k": zeros([1, 3, 1]), "v": [[[1], [2], [6]]], "causal": true,
                "mask": [[false, true, true], [false, true, true], [false, true, true]],
            }),
        ),
        attention(
            "window-of-two",
            "A window of two holds the token itself and the one before it, so the last output is the mean of 2 and 3.",
            json!({ "q": zeros([1, 4, 1]), "k": zeros([1, 4, 1]), "v": counting(4), "causal": true, "window": 2 }),
        ),
        attention(
            "window-of-one",
            "In a window of one each token sees itself alone.",
            json!({
                "q": [[[1], [1], [1]]], "k": [[[1], [0], [2]]], "v": [[[5], [-3], [2]]],
                "causal": true, "window": 1,
            }),
        ),
        attention(
            "window-after-a-cache",
            "Two queries after four keys of a cache, with a window of three: the means of 2, 3, 4 and of 3, 4, 5.",
            json!({ "q": zeros([1, 2, 1]), "k": zeros([1, 6, 1]), "v": counting(6), "causal": true, "window": 3 }),
        ),
        attention(
            "window-several-heads",
            "A window of three over six tokens.",
            json!({
                "q": numbers(7, [2, 6, 2]), "k": numbers(8, [2, 6, 2]), "v": numbers(9, [2, 6, 1]),
                "causal": true, "window": 3,
            }),
        ),
        attention(
            "causal-after-a-cache",
            "Two queries come after three keys of a cache. Query i sees keys 0 to i + 3.",
            json!({ "q": zeros([1, 2, 1]), "k": zeros([1, 5, 1]), "v": counting(5), "causal": true }),
        ),
        attention(
            "causal-one-query-after-a-cache",
            "The query of the last token sees all keys.",
            json!({ "q": [[[0]]], "k": zeros([1, 4, 1]), "v": [[[1], [2], [3], [6]]], "causal": true }),
        ),
        attention(
            "causal-chunk-several-heads",
            "Three queries after two keys of a cache, two heads.",
            json!({
                "q": numbers(10, [2, 3, 4]), "k": numbers(11, [2, 5, 4]), "v": numbers(12, [2, 5, 1]),
                "causal": true,
            }),
        ),
        attention(
            "causal-more-queries-than-keys",
            "The last query stands at the last key, so the first two of four queries see neither of two keys.",
            json!({ "q": zeros([1, 4, 1]), "k": zeros([1, 2, 1]), "v": [[[1], [3]]], "causal": true }),
        ),
    ]
}

/// What the mask hides, and rows of which it leaves nothing.
fn hidden() -> Vec<Case> {
    vec![
        attention(
            "mask-hides-all",
            "A query that may see nothing has the output 0 and a log-sum-exp of −∞.",
            json!({ "q": [[[0]]], "k": [[[0], [0]]], "v": [[[1], [3]]], "mask": [[false, false]] }),
        ),
        attention(
            "mask-hides-all-of-one-query",
            "The second of three queries may see nothing. The others aren't changed by that.",
            json!({
                "q": numbers(13, [1, 3, 2]), "k": numbers(14, [1, 4, 2]), "v": numbers(15, [1, 4, 2]),
                "mask": [[true, true, true, true], [false, false, false, false], [true, false, true, true]],
            }),
        ),
        attention(
            "score-below-minus-10000",
            "The first key's score is −20,000, and it's the only one that may be seen, so its value is the output.",
            json!({ "q": [[[-20000]]], "k": [[[1], [0]]], "v": [[[1], [100]]], "mask": [[true, false]] }),
        ),
        attention(
            "scores-below-minus-10000-causal",
            "All scores are −12,288, and the second token's key is hidden from the first.",
            json!({
                "q": [[[-12288], [-12288]]], "k": [[[1], [1]]], "v": [[[2], [4]]], "causal": true,
            }),
        ),
        attention(
            "hidden-value-is-nan",
            "The second key is hidden, so its value doesn't matter.",
            json!({ "q": [[[0]]], "k": [[[0], [0]]], "v": [[[1], ["NaN"]]], "mask": [[true, false]] }),
        ),
        attention(
            "hidden-value-is-infinite",
            "As with NaN: 0 · ∞ is NaN, too.",
            json!({
                "q": [[[1], [1]]], "k": [[[1], [1], [0]]], "v": [[[1], [2], ["inf"]]],
                "mask": [[true, true, false], [true, false, false]],
            }),
        ),
        attention(
            "hidden-key-is-nan",
            "The second key is hidden, so neither it nor its value is read.",
            json!({
                "q": [[[1, 1]]], "k": [[[1, 0], ["NaN", "NaN"], [0, 1]]], "v": [[[1], [7], [3]]],
                "mask": [[true, false, true]],
            }),
        ),
        attention(
            "nan-in-the-last-token",
            "The third token is NaN. Only its own query sees it, and gets NaN.",
            json!({
                "q": [[[0], [0], [0]]], "k": [[[0], [0], ["NaN"]]], "v": [[[1], [3], ["NaN"]]],
                "causal": true,
            }),
        ),
        attention(
            "seen-value-is-nan",
            "Nothing is hidden, so a NaN among the values reaches the column that it is in, and no other.",
            json!({ "q": [[[0]]], "k": [[[0], [0]]], "v": [[["NaN", 1], [5, 3]]] }),
        ),
    ]
}

fn scores() -> Vec<Case> {
    vec![
        attention(
            "one-query-two-keys",
            "Scores of 0 and 1: weights of 1 and e, divided by their sum.",
            json!({ "q": [[[1]]], "k": [[[0], [1]]], "v": [[[1], [2]]] }),
        ),
        attention(
            "two-queries-two-keys",
            "The weights of each query sum to 1. Those of each key don't.",
            json!({ "q": [[[1], [3]]], "k": [[[0], [1]]], "v": [[[0], [1]]] }),
        ),
        attention(
            "scale-of-a-head",
            "Two heads of width 4, so scores are divided by 2: by √4, and not by √8.",
            json!({
                "q": [[[1, 1, 1, 1]], [[2, 1, 0, 1]]],
                "k": [[[1, 1, 1, 1], [0, 0, 0, 0]], [[0, 0, 0, 0], [1, 1, 1, 1]]],
                "v": [[[1], [0]], [[1], [0]]],
            }),
        ),
        attention(
            "scale-is-given",
            "The scale is 1 and not 1/√4, so the scores are 4 and 0.",
            json!({ "q": [[[1, 1, 1, 1]]], "k": [[[1, 1, 1, 1], [0, 0, 0, 0]]], "v": [[[1], [0]]], "scale": 1 }),
        ),
        attention(
            "scale-is-given-several-heads",
            "A scale of 1/8 where 1/√4 is the default, causal.",
            json!({
                "q": numbers(16, [2, 3, 4]), "k": numbers(17, [2, 3, 4]), "v": numbers(18, [2, 3, 2]),
                "scale": 0.125, "causal": true,
            }),
        ),
        attention(
            "plain",
            "One head, and a width of values that isn't that of keys.",
            json!({ "q": numbers(19, [1, 3, 4]), "k": numbers(20, [1, 4, 4]), "v": numbers(21, [1, 4, 3]) }),
        ),
        attention(
            "one-token",
            "One query and one key: the output is the value, whatever the score.",
            json!({ "q": [[[3, -1]]], "k": [[[2, 5]]], "v": [[[4, 0.5, -7]]] }),
        ),
        attention(
            "slope-of-one-half",
            "A key at the distance t loses t/2, so the last query's weights are e⁻¹, e⁻½ and 1, divided by their sum.",
            json!({ "q": zeros([1, 3, 1]), "k": zeros([1, 3, 1]), "v": counting(3), "causal": true, "slopes": [0.5] }),
        ),
        attention(
            "slope-after-a-cache",
            "The one query stands at the last of four keys, so the first key is the farthest.",
            json!({ "q": [[[0]]], "k": zeros([1, 4, 1]), "v": counting(4), "causal": true, "slopes": [1] }),
        ),
        attention(
            "slopes-after-a-cache-several-heads",
            "Two queries after two keys, and a slope for each of two heads.",
            json!({
                "q": numbers(22, [2, 2, 2]), "k": numbers(23, [2, 4, 2]), "v": numbers(24, [2, 4, 1]),
                "causal": true, "slopes": [1, 0.25],
            }),
        ),
        attention(
            "softcap-of-two",
            "Scores of 0 and 1,000 become 2 · tanh 0 = 0 and 2 · tanh 500 = 2.",
            json!({ "q": [[[1000]]], "k": [[[0], [1]]], "v": [[[0], [1]]], "softcap": 2 }),
        ),
        attention(
            "softcap-and-causal",
            "Scores of 0, which stay 0. The hidden one is hidden, whatever the cap: 1, and the mean of 1 and 10.",
            json!({
                "q": zeros([1, 2, 1]), "k": zeros([1, 2, 1]), "v": [[[1], [10]]], "causal": true, "softcap": 1,
            }),
        ),
        attention(
            "softcap-and-slopes-several-heads",
            "The cap comes after the scale, and slopes after the cap. Two queries after two keys of a cache.",
            json!({
                "q": numbers(150, [2, 2, 4]), "k": numbers(151, [2, 4, 4]), "v": numbers(152, [2, 4, 1]),
                "causal": true, "slopes": [1, 0.25], "softcap": 1.5,
            }),
        ),
        attention(
            "slope-without-a-mask",
            "The query in the middle is as far from the first key as from the last, and both lose ½.",
            json!({ "q": zeros([1, 3, 1]), "k": zeros([1, 3, 1]), "v": [[[0], [1], [5]]], "slopes": [0.5] }),
        ),
        attention(
            "slopes-without-a-mask-several-heads",
            "Two queries after one key, and a slope for each of two heads. The first query also sees the key after it.",
            json!({
                "q": numbers(104, [2, 2, 2]), "k": numbers(105, [2, 3, 2]), "v": numbers(106, [2, 3, 1]),
                "slopes": [1, 0.5],
            }),
        ),
    ]
}

/// Heads that share keys.
fn heads() -> Vec<Case> {
    vec![
        attention(
            "groups-of-two",
            "Four heads read two heads of keys: the first two read 10, the others 20.",
            json!({ "q": zeros([4, 1, 1]), "k": zeros([2, 1, 1]), "v": [[[10]], [[20]]] }),
        ),
        attention(
            "groups-of-three-causal",
            "Six heads read two heads of keys, causal, three tokens.",
            json!({
                "q": numbers(25, [6, 3, 2]), "k": numbers(26, [2, 3, 2]), "v": numbers(27, [2, 3, 1]),
                "causal": true,
            }),
        ),
        attention(
            "one-head-of-keys",
            "Three heads read the only head of keys.",
            json!({ "q": numbers(28, [3, 2, 2]), "k": numbers(29, [1, 4, 2]), "v": numbers(30, [1, 4, 1]) }),
        ),
        attention(
            "as-many-heads-as-tokens",
            "Three heads of three tokens, of the width 3: no shape tells one axis from another.",
            json!({ "q": numbers(107, [3, 3, 3]), "k": numbers(108, [3, 3, 3]), "v": numbers(109, [3, 3, 3]) }),
        ),
        attention(
            "two-heads-one-key",
            "One key, so every weight is 1. Over the heads the weights would be ½ each.",
            json!({ "q": zeros([2, 1, 1]), "k": zeros([2, 1, 1]), "v": [[[2]], [[6]]] }),
        ),
    ]
}

/// What activations of real models have and random numbers don't: outliers, repeated tokens, long runs of equal keys.
fn structured() -> Vec<Case> {
    vec![
        attention(
            "product-beyond-f16",
            "The products of 64 · 64 over 64 columns are 262,144, which f16 can't hold. The scores are 32,768, which it can.",
            json!({
                "q": array([1, 1, 64], |_| 64.0), "k": array([1, 2, 64], |_| 64.0), "v": [[[1], [3]]],
            }),
        ),
        attention(
            "outlier-column",
            "One column is a hundred times as large as the others, as in trained models, and its sign alone decides.",
            json!({
                "q": [[[512, 1, 0, -1], [512, 0, 1, 1]]],
                "k": [[[250, 1, 1, 0], [-250, 0, 2, 1], [250, 1, 1, 0], [-250, 1, 0, 3]]],
                "v": [[[1, 0], [50, 9], [3, 4], [70, -9]]],
            }),
        ),
        attention(
            "scores-of-a-thousand",
            "e¹⁰⁰⁰ overflows in every precision. The weights are one half each.",
            json!({ "q": [[[1000]]], "k": [[[1], [1]]], "v": [[[1], [3]]] }),
        ),
        attention(
            "scores-of-minus-a-thousand",
            "e⁻¹⁰⁰⁰ underflows in every precision. The weights are one half each.",
            json!({ "q": [[[-1000]]], "k": [[[1], [1]]], "v": [[[1], [3]]] }),
        ),
        attention(
            "scores-of-both-signs",
            "Scores of 1,000 for one query, and of −1,000 for the other. The weights are one half each.",
            json!({ "q": [[[1000], [-1000]]], "k": [[[1], [1]]], "v": [[[1], [3]]] }),
        ),
        attention(
            "heads-of-both-signs",
            "Scores of 1,000 in one head, and of −1,000 in the other. The weights are one half each.",
            json!({
                "q": [[[1000]], [[-1000]]], "k": [[[1], [1]], [[1], [1]]], "v": [[[1], [3]], [[5], [9]]],
            }),
        ),
        attention(
            "largest-score-last",
            "Scores of 0, 0, 0, 0 and 2: a program that takes a few keys at a time has to correct its first sums.",
            json!({ "q": [[[1]]], "k": [[[0], [0], [0], [0], [2]]], "v": [[[0], [0], [0], [0], [1]]] }),
        ),
        attention(
            "seventy-keys",
            "More keys than a tile of 64. Those that come last have the largest score.",
            json!({
                "q": [[[1]]], "k": array([1, 70, 1], |j| if j < 64 { 0.0 } else { 3.0 }),
                "v": array([1, 70, 1], |j| if j < 64 { 0.0 } else { 1.0 }),
            }),
        ),
        attention(
            "five-equal-keys",
            "The mean of five values. A tile that is filled up with keys of zeros would count these.",
            json!({ "q": [[[1]]], "k": [[[0], [0], [0], [0], [0]]], "v": [[[1], [2], [3], [4], [5]]] }),
        ),
        attention(
            "padding-on-the-left",
            "The first five of seven keys are hidden, a whole tile of four among them. The others have scores of 0 and 1.",
            json!({
                "q": [[[1]]], "k": [[[0], [0], [0], [0], [0], [0], [1]]],
                "v": [[[9], [9], [9], [9], [9], [1], [2]]], "mask": left_padding(5, 7),
            }),
        ),
        attention(
            "padding-on-the-left-low-scores",
            "The first four of six keys are hidden, and the others have scores of −1,000 and −1,001.",
            json!({
                "q": [[[-1]]], "k": [[[0], [0], [0], [0], [1000], [1001]]],
                "v": [[[9], [9], [9], [9], [1], [2]]], "mask": left_padding(4, 6),
            }),
        ),
        attention(
            "long-padding-on-the-left",
            "The first 130 of 133 keys are hidden, more than a tile of 128. The others have scores of −1,000.",
            json!({
                "q": [[[-1]]], "k": array([1, 133, 1], |_| 1000.0),
                "v": array([1, 133, 1], |j| if j < 130 { 9.0 } else { (j - 130) as f64 }),
                "mask": left_padding(130, 133),
            }),
        ),
        attention(
            "long-padding-on-the-right",
            "The last 130 of 133 keys are hidden, more than a tile of 128. The others have scores of −1,000.",
            json!({
                "q": [[[-1]]], "k": array([1, 133, 1], |_| 1000.0),
                "v": array([1, 133, 1], |j| if j < 3 { j as f64 } else { 9.0 }),
                "mask": [(0..133).map(|j| j < 3).collect::<Value>()],
            }),
        ),
        attention(
            "repeated-tokens",
            "Twelve tokens of three kinds, in runs: six, four and two of a kind. Equal keys get equal weights.",
            json!({
                "q": [[[1, 0], [0, 1], [1, 1]]],
                "k": array([1, 12, 2], |i| f64::from(KINDS[kind(i / 2)][i % 2])),
                "v": array([1, 12, 1], |i| f64::from(KINDS[kind(i)][0] - KINDS[kind(i)][1])),
            }),
        ),
    ]
}

/// A mask of one query that hides the first keys of several, as padding on the left does.
fn left_padding(hidden: usize, keys: usize) -> Value {
    let row = (0..keys).map(|j| j >= hidden).collect::<Value>();
    json!([row])
}

/// Three kinds of tokens.
const KINDS: [[i32; 2]; 3] = [[2, 0], [0, 2], [-1, 1]];

/// The kind of the token at a place of twelve.
fn kind(i: usize) -> usize {
    usize::from(i >= 6) + usize::from(i >= 10)
}

fn gradients() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("attention_gradients", name, says, inputs);
    vec![
        case(
            "gradient-of-two-keys",
            "The weights P are ½ and ½, dP is 1 and 0, so dS is ¼ and −¼. The scale is ½.",
            json!({
                "q": [[[2, 0, 0, 0]]], "k": [[[0, 1, 0, 0], [0, -1, 0, 0]]], "v": [[[1], [0]]],
                "d_output": [[[1]]],
            }),
        ),
        case(
            "gradient-of-one-key",
            "The only weight is 1 whatever the score, so queries and keys have gradients of 0.",
            json!({ "q": [[[1, 2]]], "k": [[[3, 4]]], "v": [[[5]]], "d_output": [[[1]]] }),
        ),
        case(
            "gradient-scale-is-given",
            "The scale ½ multiplies the gradients of queries and keys once.",
            json!({
                "q": [[[4]]], "k": [[[1], [-1]]], "v": [[[0], [1]]], "scale": 0.5, "d_output": [[[1]]],
            }),
        ),
        case(
            "gradient-causal",
            "Two heads of three tokens, causal.",
            json!({
                "q": numbers(31, [2, 3, 4]), "k": numbers(32, [2, 3, 4]), "v": numbers(33, [2, 3, 2]),
                "causal": true, "d_output": numbers(34, [2, 3, 2]),
            }),
        ),
        case(
            "gradient-after-a-cache",
            "Two queries after two keys of a cache, causal.",
            json!({
                "q": numbers(35, [1, 2, 2]), "k": numbers(36, [1, 4, 2]), "v": numbers(37, [1, 4, 1]),
                "causal": true, "d_output": numbers(38, [1, 2, 1]),
            }),
        ),
        case(
            "gradient-of-shared-keys",
            "Two heads read one head of keys, whose gradients are the sums over both.",
            json!({
                "q": [[[1]], [[1]]], "k": [[[0], [0]]], "v": [[[1], [0]]], "d_output": [[[4]], [[8]]],
            }),
        ),
        case(
            "gradient-of-groups",
            "Four heads read two heads of keys.",
            json!({
                "q": numbers(39, [4, 2, 2]), "k": numbers(40, [2, 3, 2]), "v": numbers(41, [2, 3, 1]),
                "d_output": numbers(42, [4, 2, 1]),
            }),
        ),
        case(
            "gradient-of-an-empty-row",
            "The first query may see nothing: it has a gradient of 0, and adds nothing to others.",
            json!({
                "q": [[[1], [1]]], "k": [[[1], [2]]], "v": [[[1], [3]]],
                "mask": [[false, false], [true, true]], "d_output": [[[1], [1]]],
            }),
        ),
        case(
            "gradient-beside-a-hidden-nan",
            "The third value and key are NaN and hidden, and have gradients of 0.",
            json!({
                "q": [[[1], [2]]], "k": [[[1], [0], ["NaN"]]], "v": [[[1], [3], ["NaN"]]],
                "mask": [[true, true, false], [true, true, false]], "d_output": [[[1], [-1]]],
            }),
        ),
        case(
            "gradient-with-slopes-and-a-window",
            "A window of two and a slope: constants that are added to scores have no gradient of their own.",
            json!({
                "q": numbers(43, [1, 3, 2]), "k": numbers(44, [1, 3, 2]), "v": numbers(45, [1, 3, 1]),
                "causal": true, "window": 2, "slopes": [0.5], "d_output": numbers(46, [1, 3, 1]),
            }),
        ),
        case(
            "gradient-through-a-softcap",
            "Scores of 1 and −1, and a cap of 1: the gradients of the scores are multiplied by 1 − tanh² 1 = 0.42.",
            json!({ "q": [[[1]]], "k": [[[1], [-1]]], "v": [[[2], [0]]], "softcap": 1, "d_output": [[[1]]] }),
        ),
        case(
            "gradient-through-a-softcap-causal",
            "Two heads of three tokens, causal, with a cap of 2.",
            json!({
                "q": numbers(153, [2, 3, 4]), "k": numbers(154, [2, 3, 4]), "v": numbers(155, [2, 3, 2]),
                "causal": true, "softcap": 2, "d_output": numbers(156, [2, 3, 2]),
            }),
        ),
        // Programs that keep only the log-sum-exp lose digits here, as many as 1,024 has before its point.
        Case {
            tolerance: &[("f32", 1e-4)],
            ..case(
                "gradient-of-large-scores",
                "Scores of 1,024 and 1,022.",
                json!({
                    "q": [[[512]]], "k": [[[2], [1.99609375]]], "v": [[[0], [1]]], "d_output": [[[1]]],
                }),
            )
        },
    ]
}

fn dropout() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("attention_dropout", name, says, inputs);
    // So near to 1 that a program that drops weights by mistake drops them all.
    let almost = 1.0 - 1.0 / f64::from(1 << 20);
    const MEAN: &[(&str, f64)] =
        &[("f64", 0.1), ("f32", 0.1), ("bf16", 0.1), ("f16", 0.1)];
    let on_average = |case: Case| Case { tolerance: MEAN, ..case };
    vec![
        case(
            "evaluation",
            "Nothing is dropped in evaluation: the mean of 1 and 3.",
            json!({
                "q": [[[0]]], "k": [[[0], [0]]], "v": [[[1], [3]]], "dropout": almost, "training": false,
            }),
        ),
        case(
            "evaluation-causal",
            "Nothing is dropped in evaluation, two heads, causal.",
            json!({
                "q": numbers(47, [2, 3, 2]), "k": numbers(48, [2, 3, 2]), "v": numbers(49, [2, 3, 1]),
                "causal": true, "dropout": almost, "training": false,
            }),
        ),
        on_average(case(
            "training-one-half",
            "Half of the weights are dropped and the others doubled, so the output is 0, 3, −1 or 2: 1 on average, as in evaluation, and its square is 3.5.",
            json!({
                "q": [[[0]]], "k": [[[0], [0]]], "v": [[[3], [-1]]], "dropout": 0.5, "training": true,
                "repeats": 10000,
            }),
        )),
        on_average(case(
            "training-three-quarters",
            "Weights that stay are divided by 1 − ¾, that is multiplied by 4. An output is 2, −2, or 0 five times in eight, whatever the other head's is.",
            json!({
                "q": zeros([2, 1, 1]), "k": zeros([2, 2, 1]), "v": [[[1], [-1]], [[1], [-1]]],
                "dropout": 0.75, "training": true, "repeats": 10000,
            }),
        )),
        on_average(case(
            "training-two-queries",
            "Scores of 0 and 1 and of 0 and −1. The two columns of an output share their weights, and the two queries don't.",
            json!({
                "q": [[[1], [-1]]], "k": [[[0], [1]]], "v": [[[-1, -0.5], [0.5, 0.5]]],
                "dropout": 0.75, "training": true, "repeats": 10000,
            }),
        )),
    ]
}

fn multi_head() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("multi_head", name, says, inputs);
    let ones = json!([[1, 0], [0, 1]]);
    vec![
        case(
            "heads-side-by-side",
            "Each token sees itself almost alone, since equal positions have scores of 1,131. The heads' outputs are (1, 2) and (3, 4) over two tokens, so the tokens get (1, 3) and (2, 4).",
            json!({
                "x": [[1, 3, 1, 0], [2, 4, 0, 1]],
                "w_q": [[0, 0, 0, 0], [0, 0, 0, 0], [40, 0, 40, 0], [0, 40, 0, 40]],
                "w_k": [[0, 0, 0, 0], [0, 0, 0, 0], [40, 0, 40, 0], [0, 40, 0, 40]],
                "w_v": [[1, 0], [0, 1], [0, 0], [0, 0]],
                "w_o": [[1, 0, 0, 0], [0, 1, 0, 0]],
                "heads": 2,
            }),
        ),
        case(
            "heads-of-means",
            "Scores of 0, so each token gets the means of both columns.",
            json!({
                "x": [[1, 10], [2, 20], [6, 60]], "w_q": [[0, 0], [0, 0]], "w_k": [[0, 0], [0, 0]],
                "w_v": ones, "w_o": ones, "heads": 2,
            }),
        ),
        case(
            "heads-causal",
            "Three tokens, two heads of width 2, causal.",
            json!({
                "x": matrix(numbers(50, [1, 3, 4])), "w_q": matrix(numbers(51, [1, 4, 4])),
                "w_k": matrix(numbers(52, [1, 4, 4])), "w_v": matrix(numbers(53, [1, 4, 4])),
                "w_o": matrix(numbers(54, [1, 4, 4])), "heads": 2, "causal": true,
            }),
        ),
        case(
            "one-head",
            "One head as wide as the model.",
            json!({
                "x": matrix(numbers(55, [1, 3, 2])), "w_q": matrix(numbers(56, [1, 2, 2])),
                "w_k": matrix(numbers(57, [1, 2, 2])), "w_v": matrix(numbers(58, [1, 2, 2])),
                "w_o": matrix(numbers(59, [1, 2, 2])), "heads": 1,
            }),
        ),
        case(
            "four-heads",
            "Four tokens, four heads of width 2 in a model of width 4, causal.",
            json!({
                "x": matrix(numbers(60, [1, 4, 4])), "w_q": matrix(numbers(61, [1, 4, 8])),
                "w_k": matrix(numbers(62, [1, 4, 8])), "w_v": matrix(numbers(63, [1, 4, 8])),
                "w_o": matrix(numbers(64, [1, 8, 4])), "heads": 4, "causal": true,
            }),
        ),
    ]
}

fn rotate() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("rotate", name, says, inputs);
    vec![
        case(
            "one-pair",
            "(1, 0) at the positions 0 and 1: itself, and (cos 1, sin 1).",
            json!({ "x": [[1, 0], [1, 0]], "positions": [0, 1], "pairs": "neighbours" }),
        ),
        case(
            "neighbours",
            "At position 1 the first column is turned into the second, and at position 0 nothing is.",
            json!({ "x": [[1, 0, 0, 0], [0, 1, 0, 0]], "positions": [1, 0], "pairs": "neighbours" }),
        ),
        case(
            "halves",
            "At position 1 the first column is turned into the third, and at position 0 nothing is.",
            json!({ "x": [[1, 0, 0, 0], [0, 1, 0, 0]], "positions": [1, 0], "pairs": "halves" }),
        ),
        case(
            "neighbours-with-a-base",
            "Four positions and three pairs, with the base 100.",
            json!({
                "x": matrix(numbers(65, [1, 4, 6])), "positions": [0, 1, 2, 7], "pairs": "neighbours", "base": 100,
            }),
        ),
        case(
            "halves-with-a-base",
            "Four positions and three pairs, with the base 100.",
            json!({
                "x": matrix(numbers(66, [1, 4, 6])), "positions": [3, 1, 0, 5], "pairs": "halves", "base": 100,
            }),
        ),
        case(
            "position-257",
            "cos 257 is 0.8193. The nearest number in bf16 is 256, whose cosine is −0.0398.",
            json!({ "x": [[1, 0]], "positions": [257], "pairs": "neighbours" }),
        ),
        case(
            "positions-beyond-256",
            "Positions that bf16 doesn't hold, and one that it does.",
            json!({ "x": [[1, 0], [0, 1], [1, 1]], "positions": [1001, 512, 4099], "pairs": "halves" }),
        ),
        case(
            "position-of-a-million",
            "The second pair turns by 10,000.07, of which f32 holds three digits behind the point.",
            json!({ "x": [[0, 1, 0, 1]], "positions": [1000007], "pairs": "halves" }),
        ),
        case(
            "positions-beyond-a-million",
            "Three pairs, at positions that f32 holds.",
            json!({ "x": matrix(numbers(110, [1, 3, 6])), "positions": [1500001, 3000017, 9999991], "pairs": "neighbours" }),
        ),
    ]
}

/// A token or a few, in a chunk for [`decode`].
fn chunk(seed: u32, heads: usize, kv_heads: usize, [n, d, d_v]: [usize; 3]) -> Value {
    json!({
        "q": numbers(seed, [heads, n, d]), "k": numbers(seed + 1, [kv_heads, n, d]),
        "v": numbers(seed + 2, [kv_heads, n, d_v]),
    })
}

/// Tokens with scores of 0 and these values.
fn valued(values: &[i32]) -> Value {
    let zero = zeros([1, values.len(), 1]);
    json!({ "q": zero, "k": zero, "v": array([1, values.len(), 1], |i| f64::from(values[i])) })
}

fn decode() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("decode", name, says, inputs);
    let token =
        |value: i32| json!({ "q": [[[1, 0]]], "k": [[[1, 0]]], "v": [[[value]]] });
    vec![
        case(
            "token-by-token",
            "The means of the values so far.",
            json!({ "chunks": [valued(&[1]), valued(&[3]), valued(&[8])] }),
        ),
        case(
            "rotary-token-by-token",
            "The second token stands at position 1, so the product with the first key is cos 1 = 0.5403, and with its own 1.",
            json!({ "chunks": [token(1), token(0)], "rotary": "neighbours" }),
        ),
        case(
            "rotary-three-tokens",
            "Token by token. The last query's products with the keys are cos 2, cos 1 and 1.",
            json!({ "chunks": [token(0), token(1), token(0)], "rotary": "neighbours" }),
        ),
        case(
            "chunk-after-a-prompt",
            "Two tokens come at once after three. The first of them doesn't see the second.",
            json!({ "chunks": [valued(&[0, 1, 2]), valued(&[3, 4])] }),
        ),
        case(
            "rotary-neighbours-in-chunks",
            "Chunks of two, one and three tokens, two heads of width 4.",
            json!({
                "chunks": [chunk(70, 2, 2, [2, 4, 1]), chunk(73, 2, 2, [1, 4, 1]), chunk(76, 2, 2, [3, 4, 1])],
                "rotary": "neighbours",
            }),
        ),
        case(
            "rotary-halves-in-chunks",
            "Chunks of three and two tokens. Two heads of width 4 share their keys.",
            json!({
                "chunks": [chunk(79, 2, 1, [3, 4, 2]), chunk(82, 2, 1, [2, 4, 2])], "rotary": "halves",
            }),
        ),
        case(
            "window-token-by-token",
            "In a window of two each token sees itself and the one before it.",
            json!({ "chunks": [valued(&[0]), valued(&[1]), valued(&[2]), valued(&[3])], "window": 2 }),
        ),
        case(
            "window-and-a-chunk",
            "Three tokens come at once, in a window of two. The first of them still sees the token of the cache.",
            json!({ "chunks": [valued(&[4]), valued(&[1, 2, 3])], "window": 2 }),
        ),
        case(
            "window-and-a-shorter-chunk",
            "Two tokens come after a chunk as long as the window, which is three.",
            json!({ "chunks": [valued(&[0, 1, 2]), valued(&[3, 4])], "window": 3 }),
        ),
        case(
            "window-and-one-chunk",
            "A chunk of four tokens in a window of two, and nothing before it.",
            json!({ "chunks": [valued(&[0, 1, 2, 3])], "window": 2 }),
        ),
        case(
            "window-and-long-chunks",
            "Chunks of four, three and one token in a window of three, with rotary positions.",
            json!({
                "chunks": [chunk(85, 1, 1, [4, 2, 1]), chunk(88, 1, 1, [3, 2, 1]), chunk(91, 1, 1, [1, 2, 1])],
                "window": 3, "rotary": "halves",
            }),
        ),
        case(
            "groups-in-chunks",
            "Four heads read two heads of keys; chunks of one and two tokens.",
            json!({ "chunks": [chunk(94, 4, 2, [1, 2, 1]), chunk(97, 4, 2, [2, 2, 1])] }),
        ),
        case(
            "padding-before-a-prompt",
            "Two tokens of padding, and two of text. A query of padding sees nothing, since what comes before it is padding, too.",
            json!({ "chunks": [valued(&[9, 9, 1]), valued(&[3])], "padding": 2 }),
        ),
        case(
            "rotary-padding-before-a-prompt",
            "The prompt is a token of padding and one of text, so the next one stands at position 1: the product with the key before it is cos 1 = 0.5403.",
            json!({
                "chunks": [{ "q": [[[1, 0], [1, 0]]], "k": [[[1, 0], [1, 0]]], "v": [[[9], [1]]] }, token(0)],
                "padding": 1, "rotary": "neighbours",
            }),
        ),
        case(
            "rotary-padding-several-heads",
            "Two tokens of padding and two of text, then two and one more.",
            json!({
                "chunks": [chunk(111, 2, 1, [4, 4, 1]), chunk(114, 2, 1, [2, 4, 1]), chunk(117, 2, 1, [1, 4, 1])],
                "padding": 2, "rotary": "halves",
            }),
        ),
    ]
}

fn merge() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("merge", name, says, inputs);
    vec![
        case(
            "two-parts",
            "Weights of 1 and e, divided by their sum.",
            json!({ "outputs": [[[1]], [[3]]], "log_sum_exps": [[0], [1]] }),
        ),
        case(
            "three-parts",
            "Three parts of two queries.",
            json!({
                "outputs": numbers(100, [3, 2, 2]), "log_sum_exps": [[0, 2], [1, -1], [0.5, 3]],
            }),
        ),
        case(
            "an-empty-part",
            "The first part has seen nothing for the first query, and the second nothing for the second.",
            json!({
                "outputs": [[[0], [5]], [[3], [0]]], "log_sum_exps": [["-inf", 1], [2, "-inf"]],
            }),
        ),
        case(
            "empty-parts",
            "No part has seen anything for the first query. The second isn't changed by that.",
            json!({
                "outputs": [[[0], [4]], [[0], [2]]], "log_sum_exps": [["-inf", 0], ["-inf", 0]],
            }),
        ),
        case(
            "only-empty-parts",
            "Nothing and nothing is nothing.",
            json!({ "outputs": [[[0, 0]], [[0, 0]]], "log_sum_exps": [["-inf"], ["-inf"]] }),
        ),
        case(
            "large-log-sum-exps",
            "Log-sum-exps of 1,000 and 1,001: e¹⁰⁰⁰ overflows, and their ratio is e.",
            json!({ "outputs": [[[1]], [[3]]], "log_sum_exps": [[1000], [1001]] }),
        ),
        case(
            "small-log-sum-exps",
            "Log-sum-exps of −1,000 and −999: e⁻¹⁰⁰⁰ underflows, and their ratio is e.",
            json!({ "outputs": [[[1]], [[3]]], "log_sum_exps": [[-1000], [-999]] }),
        ),
    ]
}

fn slopes() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("alibi_slopes", name, says, inputs);
    vec![
        case("eight-heads", "From ½ down to 1/256.", json!({ "heads": 8 })),
        case("one-head-alone", "1/256.", json!({ "heads": 1 })),
        case("sixteen-heads", "From 2^(−½) down to 1/256.", json!({ "heads": 16 })),
        case(
            "three-heads",
            "Those of two heads, and the first of four.",
            json!({ "heads": 3 }),
        ),
        case(
            "twelve-heads",
            "Those of eight heads, and every other one of sixteen.",
            json!({ "heads": 12 }),
        ),
    ]
}

fn linear() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("linear_attention", name, says, inputs);
    vec![
        case(
            "equal-weights",
            "The means of the values so far.",
            json!({ "q": [[[1], [1], [1]]], "k": [[[1], [1], [1]]], "v": [[[1], [3], [5]]] }),
        ),
        case(
            "weights-of-one-and-three",
            "The second query has weights of 1 and 3, divided by 4.",
            json!({ "q": [[[2], [1]]], "k": [[[1], [3]]], "v": [[[0], [4]]] }),
        ),
        case(
            "linear-several-heads",
            "Four heads read two heads of keys, five tokens.",
            json!({
                "q": positive(101, [4, 5, 2]), "k": positive(102, [2, 5, 2]), "v": numbers(103, [2, 5, 1]),
            }),
        ),
        case(
            "linear-without-a-mask",
            "Two queries see all three keys.",
            json!({
                "q": [[[1, 1], [1, 3]]], "k": [[[1, 1], [2, 1], [1, 3]]], "v": [[[2], [0], [-3]]], "causal": false,
            }),
        ),
    ]
}

fn latent() -> Vec<Case> {
    let case = |name, says, inputs| Case::new("latent_attention", name, says, inputs);
    vec![
        case(
            "latent-of-two-tokens",
            "Latents of (0, 0) and (1, 1), so the keys are (0, 0) and (1, 1) in the first head, and (0, 0) and (2, 1) in the second. Scores are divided by √2.",
            json!({
                "q": [[[1, 1]], [[1, 1]]], "latent": [[0, 0], [1, 1]], "w_uk": [[[1], [0]], [[1], [1]]],
                "w_uv": [[[1], [0]], [[0], [1]]], "k_rope": [[0], [1]],
            }),
        ),
        case(
            "latent-absorbed",
            "The keys are (0, 1) and (0, 0) beside the rotary part, which the query ignores. Scores are ½ and 0.",
            json!({
                "q": [[[0, 1, 0, 0]]], "latent": [[1, 0], [0, 1]], "w_uk": [[[0, 1], [0, 0]]],
                "w_uv": [[[1], [0]]], "k_rope": [[1, 0], [1, 0]],
            }),
        ),
        case(
            "latent-rotary-causal",
            "Two heads of four columns, two of them rotary, and a latent of three columns. Causal.",
            json!({
                "q": numbers(120, [2, 3, 4]), "latent": matrix(numbers(121, [1, 3, 3])),
                "w_uk": numbers(122, [2, 3, 2]), "w_uv": numbers(123, [2, 3, 2]),
                "k_rope": matrix(numbers(124, [1, 3, 2])), "rotary": "neighbours", "causal": true,
            }),
        ),
        case(
            "latent-rotary-after-a-cache",
            "Two queries after two tokens of a cache, two heads, and a latent as wide as a key without its rotary part.",
            json!({
                "q": numbers(125, [2, 2, 6]), "latent": matrix(numbers(126, [1, 4, 2])),
                "w_uk": numbers(127, [2, 2, 2]), "w_uv": numbers(128, [2, 2, 1]),
                "k_rope": matrix(numbers(129, [1, 4, 4])), "rotary": "halves", "causal": true,
            }),
        ),
    ]
}

/// Calls whose outputs have the same bits if the order of a row's sums is its own.
fn same_bits() -> Vec<Case> {
    let case = |operation, name, says, inputs, same_bits| Case {
        same_bits,
        ..Case::new(operation, name, says, inputs)
    };
    let qkv = |seed: u32, heads: usize, [n_q, n_k]: [usize; 2]| {
        json!({
            "q": numbers(seed, [heads, n_q, 2]), "k": numbers(seed + 1, [heads, n_k, 2]),
            "v": numbers(seed + 2, [heads, n_k, 2]),
        })
    };
    let [again, queries, batch, order] = [
        qkv(130, 2, [3, 40]),
        qkv(133, 1, [4, 40]),
        qkv(136, 3, [1, 40]),
        qkv(139, 3, [2, 40]),
    ];
    let query =
        |i: usize| json!({ "inputs": { "q": [[queries["q"][0][i]]] }, "rows": [[0, i]] });
    let heads = |of: &Value, heads: &[usize]| {
        let picked =
            |name: &str| heads.iter().map(|&h| of[name][h].clone()).collect::<Value>();
        let n_q = of["q"][0].as_array().map_or(0, Vec::len);
        let rows: Vec<_> =
            heads.iter().flat_map(|&h| (0..n_q).map(move |i| [h, i])).collect();
        json!({ "inputs": { "q": picked("q"), "k": picked("k"), "v": picked("v") }, "rows": rows })
    };
    let text = chunk(142, 1, 1, [24, 2, 2]);
    let cut = |lengths: &[usize]| {
        let mut first = 0;
        let mut chunk = |&n: &usize| {
            first += n;
            let part = |name: &str| {
                json!([text[name][0].as_array().map(|rows| &rows[first - n..first])])
            };
            json!({ "q": part("q"), "k": part("k"), "v": part("v") })
        };
        json!({ "inputs": { "chunks": lengths.iter().map(&mut chunk).collect::<Value>() } })
    };
    let mut causal = qkv(145, 1, [20, 20]);
    causal["causal"] = true.into();
    let last = json!({ "inputs": { "q": [[causal["q"][0][19]]] }, "rows": [[0, 19]] });
    vec![
        case(
            "attention",
            "bits-of-the-same-call",
            "Two heads of three queries and forty keys, twice.",
            again,
            vec![json!({ "inputs": {} })],
        ),
        case(
            "attention",
            "bits-of-one-query-at-a-time",
            "Four queries and forty keys, at once and one query at a time.",
            queries.clone(),
            (0..4).map(query).collect(),
        ),
        case(
            "attention",
            "bits-of-one-sequence-at-a-time",
            "Three heads, which may be those of three sequences in a batch, at once and one at a time.",
            batch.clone(),
            (0..3).map(|h| heads(&batch, &[h])).collect(),
        ),
        case(
            "attention",
            "bits-of-sequences-in-another-order",
            "Three heads of two queries, in two orders.",
            order.clone(),
            vec![heads(&order, &[2, 0, 1])],
        ),
        case(
            "attention",
            "bits-of-the-last-query-alone",
            "Twenty tokens, causal, and the last query alone, as it is decoded.",
            causal,
            vec![last],
        ),
        case(
            "decode",
            "bits-of-a-text-in-chunks",
            "A text of 24 tokens at once, in three chunks, without its last token first, and token by token.",
            json!({ "chunks": [text] }),
            vec![cut(&[8; 3]), cut(&[23, 1]), cut(&[1; 24])],
        ),
    ]
}
