//! PyTorch's values: the outputs, weights, log-sum-exps and gradients that another program computed.
//!
//! `golden/generate.py` made the files in `golden/`. Set `ATTENTION_GOLDEN` to a folder with files of the same names to
//! compare with those instead, such as freshly generated ones; a relative path starts at this package's root.

use crate::layer::Layer;
use attention::flash::{
    Flash, FlashOutput, Inputs, Tiles, tiled_attention, tiled_attention_backward,
};
use attention::testing::options;
use attention::{
    AttentionGradients, BatchGradients, Float, LayerGradients, Mask, MultiHeadAttention,
    Parameters, SingleHeadAttention, attention, attention_backward,
};
use nalgebra::{DMatrix, RowDVector};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use std::path::{Path, PathBuf};

/// In `f64`: the largest |ours − PyTorch's| / max(1, |PyTorch's|), of all entries of all matrices.
///
/// Both programs round at every step, in another order. The committed cases differ by 4 · 10⁻¹⁵ at most; cases from
/// elsewhere may have large scores that compete, and the rounding of a score grows with it.
fn tolerance() -> f64 {
    if is_elsewhere() { 1e-10 } else { 1e-12 }
}

// ---------------------------------------------------------------------------------------------------- the tests

#[test]
fn attention_computes_what_pytorch_computes_and_so_do_tiles() {
    for case in cases::<SdpaCase>("sdpa.json") {
        let mut report = Report::new(&case.name, 1.0);
        case.compare_with::<f64>(&mut report);
        report.assert_within(tolerance());
    }
}

#[test]
fn multi_head_attention_computes_what_pytorch_computes() {
    for case in cases::<MultiHeadCase>("multi_head.json") {
        let mut report = Report::new(&case.name, 1.0);
        case.compare_with(&case.layer::<f64>(), &mut report);
        report.assert_within(tolerance());
    }
}

#[test]
fn with_one_head_the_single_head_layer_computes_it_too_and_to_the_same_bit() {
    let mut compared = 0;
    for case in cases::<MultiHeadCase>("multi_head.json") {
        if case.n_heads != 1 {
            continue;
        }
        let mut report = Report::new(&case.name, 1.0);
        let multi_head = case.compare_with(&case.layer::<f64>(), &mut report);
        let single_head =
            case.compare_with(&SingleHeadAttention::from(case.parameters()), &mut report);
        report.assert_within(tolerance());
        assert!(multi_head == single_head, "{}: the two layers differ", case.name);
        compared += 1;
    }
    assert!(compared > 0, "no case has one head");
}

/// A score of size s is off by about s · 2⁻²⁴ in `f32`, and its exponential by that share of itself.
#[test]
fn single_precision_stays_as_close_as_its_scores_allow() {
    for case in read::<SdpaCase>(&committed().join("sdpa.json")) {
        let mut report =
            Report::new(&format!("{}, f32", case.name), case.gradient_size());
        case.compare_with::<f32>(&mut report);
        report.assert_within(1e-6 * (1.0 + case.largest_score()));
    }
    for case in read::<MultiHeadCase>(&committed().join("multi_head.json")) {
        let mut report = Report::new(&format!("{}, f32", case.name), 1.0);
        case.compare_with(&case.layer::<f32>(), &mut report);
        report.assert_within(1e-5); // scores of up to 5, and sums over a batch
    }
}

#[test]
fn an_unknown_kind_of_mask_is_an_error_that_names_it() {
    let error = serde_json::from_str::<Kind>("\"alibi\"").unwrap_err().to_string();
    assert!(error.contains("unknown variant `alibi`"), "{error}");
}

#[test]
#[should_panic(expected = "nowhere/sdpa.json")]
fn a_missing_file_is_named() {
    read::<SdpaCase>(Path::new("nowhere/sdpa.json"));
}

// ---------------------------------------------------------------------------------------------------- the files

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden<C> {
    #[serde(rename = "meta")]
    _meta: Meta,
    cases: Vec<C>,
}

/// The origin and the layout of the values, in words.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    #[serde(rename = "source")]
    _source: String,
    #[serde(rename = "layout")]
    _layout: String,
    #[serde(rename = "alignment")]
    _alignment: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SdpaCase {
    name: String,
    kind: Kind,
    key_valid: Option<Vec<bool>>,
    window: Option<usize>,
    shape: Shape,
    allowed: Vec<Vec<bool>>,
    q: Matrix,
    k: Matrix,
    v: Matrix,
    output: Matrix,
    weights: Matrix,
    log_sum_exp: Vec<f64>,
    grad_output: Matrix,
    grad_q: Matrix,
    grad_k: Matrix,
    grad_v: Matrix,
}

#[derive(Deserialize, Debug)]
enum Kind {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "causal")]
    Causal,
    #[serde(rename = "padding")]
    Padding,
    #[serde(rename = "causal+padding")]
    CausalAndPadding,
    #[serde(rename = "window")]
    Window,
    #[serde(rename = "dense")]
    Dense,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    n_q: usize,
    n_k: usize,
    d_k: usize,
    d_v: usize,
}

/// A batch of two sequences through `torch.nn.MultiheadAttention`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MultiHeadCase {
    name: String,
    d_model: usize,
    n_heads: usize,
    causal: bool,
    #[serde(rename = "note")]
    _note: String,
    x: Vec<Matrix>,
    context: Option<Vec<Matrix>>,
    output: Vec<Matrix>,
    weights: Vec<Vec<Matrix>>,
    grad_output: Vec<Matrix>,
    grad_x: Vec<Matrix>,
    grad_context: Option<Vec<Matrix>>,
    w_q: Matrix,
    w_k: Matrix,
    w_v: Matrix,
    w_o: Matrix,
    b_q: Option<Vec<f64>>,
    b_k: Option<Vec<f64>>,
    b_v: Option<Vec<f64>>,
    b_o: Option<Vec<f64>>,
    grad_w_q: Matrix,
    grad_w_k: Matrix,
    grad_w_v: Matrix,
    grad_w_o: Matrix,
    grad_b_q: Option<Vec<f64>>,
    grad_b_k: Option<Vec<f64>>,
    grad_b_v: Option<Vec<f64>>,
    grad_b_o: Option<Vec<f64>>,
}

/// A matrix, read from a list of its rows.
struct Matrix(DMatrix<f64>);

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Vec<f64>>::deserialize(deserializer)?;
        let columns = rows.first().map_or(0, Vec::len);
        if rows.iter().any(|row| row.len() != columns) {
            return Err(D::Error::custom("the rows of a matrix differ in length"));
        }
        Ok(Matrix(DMatrix::from_row_iterator(
            rows.len(),
            columns,
            rows.into_iter().flatten(),
        )))
    }
}

const FOLDER: &str = "ATTENTION_GOLDEN";

fn is_elsewhere() -> bool {
    std::env::var_os(FOLDER).is_some()
}

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn cases<C: DeserializeOwned>(file: &str) -> Vec<C> {
    read(&std::env::var_os(FOLDER).map_or_else(committed, PathBuf::from).join(file))
}

fn read<C: DeserializeOwned>(path: &Path) -> Vec<C> {
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let golden: Golden<C> = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{} is not understood: {error}", path.display()));
    assert!(!golden.cases.is_empty(), "{} has no cases", path.display());
    golden.cases
}

// ---------------------------------------------------------------------------------------------------- comparing

/// `f32` or `f64`.
trait Number: Float + Into<f64> {}
impl<T: Float + Into<f64>> Number for T {}

fn cast<T: Number>(matrix: &Matrix) -> DMatrix<T> {
    matrix.0.map(nalgebra::convert)
}

fn cast_all<T: Number>(matrices: &[Matrix]) -> Vec<DMatrix<T>> {
    matrices.iter().map(cast).collect()
}

/// The distance of a case from its reference, matrix by matrix.
struct Report {
    case: String,
    floor: f64,
    differences: Vec<(String, f64)>,
}

impl Report {
    /// Differences are taken relative to the expected entry, or to `floor` where that is larger.
    fn new(case: &str, floor: f64) -> Self {
        Report { case: case.to_owned(), floor, differences: vec![] }
    }

    fn compare<T: Number>(
        &mut self,
        what: &str,
        ours: &DMatrix<T>,
        expected: &DMatrix<f64>,
    ) {
        assert_eq!(ours.shape(), expected.shape(), "{}: the shape of {what}", self.case);
        let largest =
            ours.iter().zip(expected.iter()).fold(0.0, |largest, (&ours, &expected)| {
                let ours: f64 = ours.into();
                let difference = (ours - expected).abs() / expected.abs().max(self.floor);
                // A NaN is the largest difference of all; `f64::max` would pass it over.
                if difference > largest || difference.is_nan() {
                    difference
                } else {
                    largest
                }
            });
        self.differences.push((what.to_owned(), largest));
    }

    fn compare_all<T: Number>(
        &mut self,
        what: &str,
        ours: &[DMatrix<T>],
        expected: &[Matrix],
    ) {
        assert_eq!(ours.len(), expected.len(), "{}: how many {what}", self.case);
        for (b, (ours, expected)) in ours.iter().zip(expected).enumerate() {
            self.compare(&format!("{what}[{b}]"), ours, &expected.0);
        }
    }

    fn assert_within(&self, tolerance: f64) {
        let (what, largest) = self
            .differences
            .iter()
            .max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()))
            .expect("something was compared");
        println!("{:45} {largest:.1e} of {tolerance:.1e}, in {what}", self.case);
        let wrong: Vec<_> = self
            .differences
            .iter()
            .filter(|(_, d)| d.is_nan() || *d > tolerance)
            .collect();
        assert!(wrong.is_empty(), "{}: beyond {tolerance:e}: {wrong:?}", self.case);
    }
}

impl SdpaCase {
    fn mask(&self) -> Mask {
        let allowed = Matrix::booleans(&self.allowed);
        let padding =
            || Mask::padding(self.key_valid.as_ref().expect("key_valid")).unwrap();
        let mask = match self.kind {
            Kind::None => Mask::none(),
            Kind::Causal => Mask::causal(),
            Kind::Padding => padding(),
            Kind::CausalAndPadding => Mask::causal().and(padding()),
            Kind::Window => Mask::window(self.window.expect("window")).unwrap(),
            Kind::Dense => Mask::dense(allowed.clone()).unwrap(),
        };
        let ours = mask.sized(self.shape.n_q, self.shape.n_k).unwrap().allowed_matrix();
        assert_eq!(ours, allowed, "{}: the mask made from `kind`", self.name);
        mask
    }

    fn compare_with<T: Number>(&self, report: &mut Report) {
        let Shape { n_q, n_k, d_k, d_v } = self.shape;
        let (q, k, v) = (cast::<T>(&self.q), cast::<T>(&self.k), cast::<T>(&self.v));
        assert_eq!(
            [q.shape(), k.shape(), v.shape()],
            [(n_q, d_k), (n_k, d_k), (n_k, d_v)]
        );

        let (mask, grad_output) = (self.mask(), cast(&self.grad_output));
        let (output, cache) = attention(&q, &k, &v, &mask).unwrap();
        let gradients = attention_backward(&cache, &grad_output).unwrap();
        report.compare("weights", &cache.weights, &self.weights.0);
        let log_sum_exp =
            DMatrix::from_column_slice(n_q, 1, cache.log_sum_exp.as_slice());
        let log_sum_exp_low = DMatrix::zeros(n_q, 1);
        let naive = FlashOutput { output, log_sum_exp, log_sum_exp_low };
        self.compare_each("", &naive, &gradients, report);

        // Tiles smaller than the smallest case, so that there are several.
        let tiles = Tiles { queries: 2, keys: 3 };
        let inputs = Inputs::new(&q, &k, &v, &mask).unwrap();
        let tiled = tiled_attention(&inputs, tiles).unwrap();
        let gradients =
            tiled_attention_backward(&inputs, &tiled, &grad_output, tiles).unwrap();
        self.compare_each("tiled ", &tiled, &gradients, report);
        let flash = Flash::new().with_tiles(tiles).unwrap();
        let fast = flash.forward(&inputs);
        let gradients = flash.backward(&inputs, &fast, &grad_output).unwrap();
        self.compare_each("flash ", &fast, &gradients, report);
    }

    fn compare_each<T: Number>(
        &self,
        program: &str,
        forward: &FlashOutput<T>,
        gradients: &AttentionGradients<T>,
        report: &mut Report,
    ) {
        let log_sum_exp =
            DMatrix::from_column_slice(self.shape.n_q, 1, &self.log_sum_exp);
        for (what, ours, expected) in [
            ("output", &forward.output, &self.output.0),
            ("log-sum-exp", &forward.log_sum_exp, &log_sum_exp),
            ("gradient of q", &gradients.q, &self.grad_q.0),
            ("gradient of k", &gradients.k, &self.grad_k.0),
            ("gradient of v", &gradients.v, &self.grad_v.0),
        ] {
            report.compare(&format!("{program}{what}"), ours, expected);
        }
    }

    fn largest_score(&self) -> f64 {
        (&self.q.0 * self.k.0.transpose()).amax() / (self.shape.d_k as f64).sqrt()
    }

    /// The size of what gradients are sums of: where terms this large cancel, this is the measure of what is left.
    fn gradient_size(&self) -> f64 {
        [&self.q, &self.k, &self.v]
            .map(|matrix| matrix.0.amax())
            .into_iter()
            .fold(1.0, f64::max)
    }
}

impl Matrix {
    fn booleans(rows: &[Vec<bool>]) -> DMatrix<bool> {
        DMatrix::from_fn(rows.len(), rows[0].len(), |i, j| rows[i][j])
    }
}

/// A layer's results for a batch.
#[derive(PartialEq)]
struct Computed<T: Number> {
    outputs: Vec<DMatrix<T>>,
    weights: Vec<Vec<DMatrix<T>>>,
    grad_parameters: Parameters<T>,
    grad_xs: Vec<DMatrix<T>>,
    grad_contexts: Vec<DMatrix<T>>,
}

impl MultiHeadCase {
    fn layer<T: Number>(&self) -> MultiHeadAttention<T> {
        MultiHeadAttention::from_parameters(self.parameters(), self.n_heads).unwrap()
    }

    fn parameters<T: Number>(&self) -> Parameters<T> {
        let bias = |values: &Option<Vec<f64>>| match values {
            Some(values) => RowDVector::from_row_slice(values).map(nalgebra::convert),
            None => RowDVector::zeros(self.d_model),
        };
        Parameters {
            w_q: cast(&self.w_q),
            w_k: cast(&self.w_k),
            w_v: cast(&self.w_v),
            w_o: cast(&self.w_o),
            b_q: bias(&self.b_q),
            b_k: bias(&self.b_k),
            b_v: bias(&self.b_v),
            b_o: bias(&self.b_o),
        }
    }

    /// Self-attention runs as a batch; cross-attention sequence by sequence, its parameter gradients added up here.
    fn compute<T: Number, L: Layer<T>>(&self, layer: &L) -> Computed<T> {
        let xs = cast_all::<T>(&self.x);
        let grad_outputs = cast_all::<T>(&self.grad_output);
        let mask = if self.causal { Mask::causal() } else { Mask::none() };
        let weights = |caches: &[L::Cache]| {
            let of_heads =
                |cache| L::heads(cache).iter().map(|head| head.weights.clone());
            caches.iter().map(|cache| of_heads(cache).collect()).collect()
        };

        let Some(contexts) = &self.context else {
            let (outputs, caches) = layer.forward_batch(&xs, &mask).unwrap();
            let BatchGradients { parameters: grad_parameters, xs: grad_xs, .. } =
                layer.backward_batch(&caches, &grad_outputs).unwrap();
            let weights = weights(&caches);
            return Computed {
                outputs,
                weights,
                grad_parameters,
                grad_xs,
                grad_contexts: vec![],
            };
        };

        let contexts = cast_all::<T>(contexts);
        let (outputs, caches): (Vec<_>, Vec<_>) = xs
            .iter()
            .zip(&contexts)
            .map(|(x, context)| layer.forward(x, options(Some(context), &mask)).unwrap())
            .unzip();
        let gradients: Vec<LayerGradients<T>> = caches
            .iter()
            .zip(&grad_outputs)
            .map(|(cache, grad_output)| layer.backward(cache, grad_output).unwrap())
            .collect();
        let mut grad_parameters = gradients[0].parameters.clone();
        gradients[1..].iter().for_each(|more| grad_parameters += &more.parameters);
        let grad_contexts =
            gradients.iter().map(|d| d.context.clone().expect("a gradient")).collect();
        let grad_xs = gradients.into_iter().map(|d| d.x).collect();
        Computed {
            outputs,
            weights: weights(&caches),
            grad_parameters,
            grad_xs,
            grad_contexts,
        }
    }

    fn compare_with<T: Number, L: Layer<T>>(
        &self,
        layer: &L,
        report: &mut Report,
    ) -> Computed<T> {
        let computed = self.compute(layer);
        report.compare_all("output", &computed.outputs, &self.output);
        assert_eq!(computed.weights.len(), self.weights.len());
        for (b, (ours, expected)) in
            computed.weights.iter().zip(&self.weights).enumerate()
        {
            report.compare_all(&format!("weights[{b}]"), ours, expected);
        }
        report.compare_all("gradient of x", &computed.grad_xs, &self.grad_x);
        let expected_d_contexts = self.grad_context.as_deref().unwrap_or_default();
        report.compare_all(
            "gradient of context",
            &computed.grad_contexts,
            expected_d_contexts,
        );
        let mut compared = 0;
        for (name, ours) in computed.grad_parameters.named() {
            if let Some(expected) = self.gradient_of(&name) {
                let ours = ours.into_owned();
                report.compare(&format!("gradient of {name}"), &ours, &expected);
                compared += 1;
            }
        }
        assert_eq!(
            compared,
            if self.b_q.is_some() { 8 } else { 4 },
            "gradients compared"
        );
        computed
    }

    /// `None` for the bias of a layer that has none.
    fn gradient_of(&self, parameter: &str) -> Option<DMatrix<f64>> {
        let bias = |values: &Option<Vec<f64>>| {
            values.as_ref().map(|values| DMatrix::from_row_slice(1, values.len(), values))
        };
        match parameter {
            "w_q" => Some(self.grad_w_q.0.clone()),
            "w_k" => Some(self.grad_w_k.0.clone()),
            "w_v" => Some(self.grad_w_v.0.clone()),
            "w_o" => Some(self.grad_w_o.0.clone()),
            "b_q" => bias(&self.grad_b_q),
            "b_k" => bias(&self.grad_b_k),
            "b_v" => bias(&self.grad_b_v),
            "b_o" => bias(&self.grad_b_o),
            other => panic!("no parameter is called {other}"),
        }
    }
}
