//! A diagnosis of an attention layer from outside, by its weights, gradients and outputs.
//!
//! Nothing here knows how a layer is written. It runs the layer, looks at what comes out and at what is cached, changes
//! one token at a time, and compares the gradients with slopes that are measured.

use crate::layer::AttentionLayer;
use attention::engine::{check_count, check_shape};
use attention::{
    AttentionCache, LayerGradients, Mask, Parameters, Result,
    gradient_check::numerical_gradient, inspect::row_entropy, mask::SizedMask,
};
use derive_more::Display;
use nalgebra::{DMatrix, DVector, dmatrix};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};
use std::fmt;

/// A row's weights sum to 1 up to rounding: about 10⁻¹⁵ for a few hundred keys.
pub const ROW_SUM_TOLERANCE: f64 = 1e-9;

/// A head is collapsed if its rows have less than this share of the entropy they could
/// have: of two keys, one has more than 0.994 of the weight.
pub const COLLAPSED: f64 = 0.05;

/// A head that makes fewer choices than this may make them all firmly by chance, and is
/// not called collapsed. A choice is a row that may see two keys or more.
pub const CHOICES: usize = 4;

/// A head is diffuse if no row is further than this from its largest entropy. Scores
/// must spread by less than about 0.003: to such a head all keys are the same.
pub const DIFFUSE: f64 = 1e-6;

/// The factor of the scores is recovered from weights up to rounding. This is far above
/// that, and far below what anyone might type instead of 1/√d_k. It is also the share of
/// the weights' logarithms that a factor may leave unexplained.
pub const SCALE_TOLERANCE: f64 = 1e-6;

/// An output that moves by less than this share of the largest output has not moved.
/// Where a mask hides a token, a healthy layer adds 0 times its value, and the output is
/// the same to the bit.
pub const MOVED: f64 = 1e-12;

/// With a weight below this a token may well move nothing that can be seen. If its score
/// is the reason and not a mask, that is saturation, not deafness.
pub const FAINT: f64 = 1e-9;

/// A gradient whose norm is below this share of the largest norm is none.
pub const NO_GRADIENT: f64 = 1e-12;

/// Central differences with a step of 10⁻⁵ agree with a right gradient to 10⁻⁵ or
/// better, unless softmax is steep. A forgotten piece is off by a visible share.
pub const SLOPE_TOLERANCE: f64 = 1e-4;

const SEED: u64 = 0; // of the changes and directions: the same layer gets the same diagnosis
const NUDGES: usize = 2; // changes that are tried on each token, each with both signs
const DIRECTIONS: usize = 4; // along which each gradient is compared with the slope
const STEP: f64 = 1e-5; // ε

/// The measurements of [`diagnose`]. Its `Display` is a report.
///
/// The report ends with what moves what, a row for each output and a column for each token: `x` may move it and does,
/// `.` may not and does not, `L` is a leak, `D` is deafness. `o` is a token whose own key is hidden from it, but whose
/// query moves its output, as it should; `~` one that may be heard, but with a weight too small to tell. More than 32
/// tokens are left out, though the findings know of them.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use laboratory::diagnose;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let diagnosis = diagnose(&layer, &example::river().x, None, Mask::causal())?;
/// assert_eq!(diagnosis.heads[1].weights.shape(), (6, 6));
/// assert_eq!(diagnosis.influence[(0, 5)], 0.0); // the last token does not reach the first
/// assert!(diagnosis.slope_errors.iter().all(|(_, error)| *error < 1e-5));
/// assert!(diagnosis.to_string().ends_with("findings\n  none\n"));
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// The measurements of each head.
    pub heads: Vec<HeadDiagnosis>,
    /// `true` where a query may see a key, by the mask that was asked for (n_q, n_k).
    allowed: DMatrix<bool>,
    /// The distance that output `i` moved when token `j` was changed, as a share of the largest output (n_q, n_k).
    pub influence: DMatrix<f64>,
    /// The relative error of each gradient against the slope of the loss, along the worst of a few directions: the gradients with
    /// respect to `x`, to the `context` if there is one, and to each parameter, under its name.
    pub slope_errors: Vec<(String, f64)>,
    /// `true` if keys and values come from another sequence than queries.
    is_cross: bool,
    /// The matrices that held a NaN or an infinity.
    not_finite: Vec<&'static str>,
}

/// The measurements of [`diagnose`] of one head.
///
/// ```
/// use attention::{Mask, SingleHeadAttention, example};
/// use laboratory::diagnose;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = SingleHeadAttention::xavier(4, 3, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let diagnosis = diagnose(&layer, &example::river().x, None, Mask::none())?;
/// let head = &diagnosis.heads[0];
/// assert!((head.row_sums.add_scalar(-1.0)).amax() < 1e-15);
/// assert!((head.scale.unwrap() - 1.0).abs() < 1e-6);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct HeadDiagnosis {
    /// The weights (n_q, n_k).
    pub weights: DMatrix<f64>,
    /// The sum of each row of weights (n_q).
    pub row_sums: DVector<f64>,
    /// The sum of each column of weights (n_k).
    pub column_sums: DVector<f64>,
    /// The entropy of each row (n_q).
    pub entropy: DVector<f64>,
    /// The most it could be: ln of the number of keys that the row may see (n_q), 0 where it may see none.
    pub max_entropy: DVector<f64>,
    /// The factor of the products of queries and keys before softmax, times √d_k: 1 is right. `None` where
    /// the weights are not the softmax, row by row, of a multiple of the products, or all products are the same.
    pub scale: Option<f64>,
    /// `true` if the products of queries and keys that are seen differ, beyond rounding: if not, any factor fits.
    pub products_differ: bool,
    /// `true` where a weight is too small to be noticed (n_q, n_k), because of the scores and not because of a mask.
    pub faint: DMatrix<bool>,
    /// The norms of the gradients with respect to this head's columns of `w_q`, `w_k` and `w_v` and its rows of `w_o`.
    pub gradients: [(&'static str, f64); 4],
    /// An earlier head with the same queries, keys and values.
    pub twin: Option<usize>,
}

/// Something that is wrong, where, and the number that says so.
///
/// ```
/// use laboratory::Finding;
///
/// let finding = Finding::Scale { head: 1, factor: 8.0 };
/// assert_eq!(finding.to_string(), "head 1: scores are 8.000 times what division by √d_k would give");
/// ```
#[derive(Debug, Clone, PartialEq, Display)]
#[non_exhaustive]
pub enum Finding {
    /// A NaN or an infinity. Nothing else is judged then.
    #[display("{what}: NaN or infinite")]
    NotFinite {
        /// The matrix that holds it.
        what: &'static str,
    },
    /// A row of weights that does not sum to 1, or to 0 where its query may see nothing.
    #[display("head {head}: the weights of query {query} sum to {}", near(*sum))]
    RowSum {
        /// The head.
        head: usize,
        /// The row that is furthest off.
        query: usize,
        /// Its sum.
        sum: f64,
    },
    /// The columns of weights sum to 1, and the rows do not.
    #[display("head {head}: columns of weights sum to 1, but row {query} to {}", near(*sum))]
    WrongAxis {
        /// The head.
        head: usize,
        /// The row that is furthest off.
        query: usize,
        /// Its sum.
        sum: f64,
    },
    /// Nearly every row looks at one key only.
    #[display("head {head}: collapsed, with {entropy:.3} of the largest entropy")]
    Collapsed {
        /// The head.
        head: usize,
        /// Entropy as a share of the largest, averaged over rows that may see two keys or more.
        entropy: f64,
    },
    /// Every row looks at all of its keys alike.
    #[display("head {head}: diffuse, with {entropy:.3} of the largest entropy")]
    Diffuse {
        /// The head.
        head: usize,
        /// Entropy as a share of the largest, in the row that is furthest from it.
        entropy: f64,
    },
    /// Two heads with the same queries, keys and values.
    #[display("head {second}: has the queries, keys and values of head {first}")]
    Twins {
        /// The earlier head.
        first: usize,
        /// The later one.
        second: usize,
    },
    /// Rows sum to 1, but the weights are not the softmax of any multiple of the products of queries and keys.
    #[display("head {head}: the weights are no softmax of its queries and keys")]
    NotSoftmax {
        /// The head.
        head: usize,
    },
    /// The scores are not the products divided by √d_k.
    #[display("head {head}: scores are {} times what division by √d_k would give", near(*factor))]
    Scale {
        /// The head.
        head: usize,
        /// The ratio of the scores to the right ones.
        factor: f64,
    },
    /// A head's part of a parameter that no gradient reaches.
    #[display("head {head}: the gradient of its part of {parameter} is {norm:.3}")]
    NoGradient {
        /// The head.
        head: usize,
        /// The parameter's name.
        parameter: &'static str,
        /// The norm of the gradient.
        norm: f64,
    },
    /// A gradient that is not the slope of the loss.
    #[display("the gradient with respect to {by} has a relative error of {}", share(*error))]
    WrongGradient {
        /// The variable: `x`, `context` or a parameter's name.
        by: String,
        /// Its relative error.
        error: f64,
    },
    /// Tokens that move outputs from which the mask hides them.
    #[display("hidden tokens move outputs by up to {moved:.3}: {}", list(pairs))]
    Leak {
        /// Output and token, each from 0.
        pairs: Vec<(usize, usize)>,
        /// The largest distance that an output moved, as a share of the largest output.
        moved: f64,
    },
    /// Tokens that move nothing where the mask lets them be seen.
    #[display("visible tokens move nothing: {}", list(pairs))]
    Deaf {
        /// Output and token, each from 0.
        pairs: Vec<(usize, usize)>,
    },
    /// A text in chunks whose outputs are not those of the whole text: see [`diagnose_chunks`](crate::diagnose_chunks()).
    #[display(
        "in chunks of {chunks}: outputs off by up to {off:.3}, the first of them {first}"
    )]
    InChunks {
        /// The sizes of the chunks, in order.
        chunks: String,
        /// The first output that differs, from 0.
        first: usize,
        /// The largest difference, as a share of the largest output.
        off: f64,
    },
}

/// Examines a layer on an input: its weights, its outputs as one token is changed at a time, and its gradients.
///
/// `mask` is the mask that was asked for; the diagnosis finds out whether the layer keeps to it. A mask that hides
/// nothing cannot be broken, so to find leaks use one that hides something. Choose an `x` with a few tokens, none like
/// another, and as many entries a token as the layer wants; `context` is `None` in self-attention.
///
/// It takes about 72 forward passes for the gradients and 4 for each token.
///
/// # Errors
/// As the layer's own forward pass, or what the layer returns has shapes that do not fit one another.
///
/// ```
/// use attention::{Mask, MultiHeadAttention, example};
/// use laboratory::{Fault, Finding, Patient, diagnose};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let layer = MultiHeadAttention::xavier(4, 1, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = example::river().x;
/// assert_eq!(diagnose(&layer, &x, None, Mask::causal())?.findings(), []);
///
/// let ill = Patient::new(layer, Fault::ScaleMissing)?;
/// let findings = diagnose(&ill, &x, None, Mask::causal())?.findings();
/// // d_k = 4, so that scores which are not divided are √4 times too large.
/// assert!(matches!(findings[..], [Finding::Scale { head: 0, factor }] if (factor - 2.0).abs() < 1e-6));
/// # Ok::<(), attention::Error>(())
/// ```
pub fn diagnose<L: AttentionLayer>(
    layer: &L,
    x: &DMatrix<f64>,
    context: Option<&DMatrix<f64>>,
    mask: impl Into<Mask>,
) -> Result<Diagnosis> {
    let mask = &mask.into();
    let rng = &mut ChaCha8Rng::seed_from_u64(SEED);
    let (output, cache) = layer.forward(x, context, mask)?;
    check_shape("output", &output, x.shape(), "`x`")?;
    let sized = mask.sized(x.nrows(), context.unwrap_or(x).nrows())?;
    let grad_output = normal(output.nrows(), output.ncols(), rng); // of the loss Σ grad_output ⊙ output
    let gradients = layer.backward(&cache, &grad_output)?;
    let probe = Probe { layer, x, context, mask, output: &output };
    let heads = examine_heads(&L::heads(&cache), &sized, &gradients.parameters)?;
    let not_finite = not_finite(x, context, &output, &heads, &gradients);
    Ok(Diagnosis {
        heads,
        allowed: sized.allowed_matrix(),
        influence: probe.influence(rng)?,
        slope_errors: probe.slope_errors(&gradients, &grad_output, rng)?,
        is_cross: context.is_some(),
        not_finite,
    })
}

fn normal(rows: usize, columns: usize, rng: &mut ChaCha8Rng) -> DMatrix<f64> {
    DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(rng))
}

/// Returns the names of the matrices that hold a NaN or an infinity.
fn not_finite(
    x: &DMatrix<f64>,
    context: Option<&DMatrix<f64>>,
    output: &DMatrix<f64>,
    heads: &[HeadDiagnosis],
    gradients: &LayerGradients<f64>,
) -> Vec<&'static str> {
    let mut all = vec![("x", x.as_view())];
    all.extend(context.map(|context| ("context", context.as_view())));
    all.extend(heads.iter().map(|head| ("weights", head.weights.as_view())));
    all.extend([("output", output.as_view()), ("gradients", gradients.x.as_view())]);
    all.extend(gradients.parameters.named().into_iter().map(|(_, g)| ("gradients", g)));
    all.retain(|(_, matrix)| !matrix.iter().all(|x| x.is_finite()));
    let mut names: Vec<_> = all.into_iter().map(|(name, _)| name).collect();
    names.dedup();
    names
}

// ---------------------------------------------------------------------------------------------------- weights

fn examine_heads(
    heads: &[AttentionCache<f64>],
    mask: &SizedMask,
    gradients: &Parameters<f64>,
) -> Result<Vec<HeadDiagnosis>> {
    let width =
        |of: fn(&AttentionCache<f64>) -> usize| heads.iter().map(of).sum::<usize>();
    for (argument, given, expected) in [
        ("w_q", gradients.w_q.ncols(), width(|head| head.q.ncols())),
        ("w_k", gradients.w_k.ncols(), width(|head| head.k.ncols())),
        ("w_v", gradients.w_v.ncols(), width(|head| head.v.ncols())),
    ] {
        check_count(argument, "column", given, expected, || {
            format!("the heads have {expected} together")
        })?;
    }
    let (mut at_k, mut at_v) = (0, 0); // where the head's columns begin
    check_count("w_o", "row", gradients.w_o.nrows(), gradients.w_v.ncols(), || {
        "`w_v` has another number of columns".to_owned()
    })?;
    let mut examined = vec![];
    for (h, head) in heads.iter().enumerate() {
        head.check()?;
        check_shape("cache.weights", &head.weights, mask.shape(), "the mask")?;
        let (d_k, d_v) = (head.q.ncols(), head.v.ncols());
        let twin = heads[..h].iter().position(|other| {
            (&other.q, &other.k, &other.v) == (&head.q, &head.k, &head.v)
        });
        examined.push(HeadDiagnosis {
            row_sums: head.weights.column_sum(),
            column_sums: head.weights.row_sum().transpose(),
            entropy: row_entropy(&head.weights)?,
            max_entropy: max_entropy(mask),
            faint: faint(head, scale(head).unwrap_or(1.0)),
            scale: scale(head),
            products_differ: products_differ(head, mask),
            gradients: [
                ("w_q", gradients.w_q.columns(at_k, d_k).norm()),
                ("w_k", gradients.w_k.columns(at_k, d_k).norm()),
                ("w_v", gradients.w_v.columns(at_v, d_v).norm()),
                ("w_o", gradients.w_o.rows(at_v, d_v).norm()),
            ],
            weights: head.weights.clone(),
            twin,
        });
        (at_k, at_v) = (at_k + d_k, at_v + d_v);
    }
    Ok(examined)
}

fn root_mean_square(matrix: &DMatrix<f64>) -> f64 {
    matrix.norm() / (matrix.len() as f64).sqrt()
}

fn visible_keys(mask: &SizedMask, i: usize) -> usize {
    (0..mask.shape().1).filter(|&j| mask.allows(i, j)).count()
}

fn max_entropy(mask: &SizedMask) -> DVector<f64> {
    let most = |i| (visible_keys(mask, i).max(1) as f64).ln();
    DVector::from_fn(mask.shape().0, |i, _| most(i))
}

/// The factor c of `weights = softmax(c · q kᵀ)`, times √d_k.
///
/// In a row the logarithms of two weights differ by the difference of their scores,
/// whatever the sum was that softmax divided by. So take each row less its mean, of
/// the logarithms and of the products, and c is the slope of the one against the other.
fn scale(head: &AttentionCache<f64>) -> Option<f64> {
    let products = &head.q * head.k.transpose(); // (n_q, n_k)
    let (mut rise, mut run, mut total) = (0.0, 0.0, 0.0);
    for i in 0..products.nrows() {
        let seen = |j: &usize| head.weights[(i, *j)] >= f64::MIN_POSITIVE;
        let keys: Vec<usize> = (0..products.ncols()).filter(seen).collect();
        let mean = |of: &dyn Fn(usize) -> f64| {
            keys.iter().map(|&j| of(j)).sum::<f64>() / keys.len() as f64
        };
        let log_weight = |j| head.weights[(i, j)].ln();
        let product = |j| products[(i, j)];
        let (mean_log, mean_product) = (mean(&log_weight), mean(&product));
        for &j in &keys {
            let (dy, dx) = (log_weight(j) - mean_log, product(j) - mean_product);
            (rise, run, total) = (rise + dx * dy, run + dx * dx, total + dy * dy);
        }
    }
    // Of the spread of the logarithms, the part that no factor explains.
    let unexplained = total - rise * rise / run;
    // False if no product differs: 0/0 is NaN.
    let fits = unexplained <= SCALE_TOLERANCE * total;
    fits.then(|| rise / run * (head.q.ncols() as f64).sqrt())
}

/// Returns `true` if some row has two products that its query may see and that are not the same up to rounding.
fn products_differ(head: &AttentionCache<f64>, mask: &SizedMask) -> bool {
    let products = &head.q * head.k.transpose(); // (n_q, n_k)
    let rounding = 1e-9 * head.q.amax().max(1.0) * head.k.amax().max(1.0);
    (0..products.nrows()).any(|i| {
        let keys = (0..products.ncols()).filter(|&j| mask.allows(i, j));
        let seen: Vec<f64> = keys.map(|j| products[(i, j)]).collect();
        let most = seen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        seen.iter().any(|product| most - product > rounding)
    })
}

/// Weights below [`FAINT`], and of those that are 0 the ones that had to underflow: their score is so far below that of
/// the row's largest weight that no `f64` could hold the ratio.
fn faint(head: &AttentionCache<f64>, scale: f64) -> DMatrix<bool> {
    let factor = scale / (head.q.ncols() as f64).sqrt();
    let scores = &head.q * head.k.transpose() * factor; // (n_q, n_k)
    let largest: Vec<usize> =
        head.weights.row_iter().map(|row| row.transpose().imax()).collect();
    DMatrix::from_fn(scores.nrows(), scores.ncols(), |i, j| {
        let weight = head.weights[(i, j)];
        let underflows =
            scores[(i, j)] - scores[(i, largest[i])] < f64::MIN_POSITIVE.ln();
        weight < FAINT && (weight > 0.0 || underflows)
    })
}

// ---------------------------------------------------------------------------------------------------- experiments

/// The layer, and the run that others are compared with.
struct Probe<'a, L> {
    layer: &'a L,
    x: &'a DMatrix<f64>,
    context: Option<&'a DMatrix<f64>>,
    mask: &'a Mask,
    output: &'a DMatrix<f64>,
}

impl<L: AttentionLayer> Probe<'_, L> {
    /// The distance that each output moves as each token is changed: a share of the
    /// largest output.
    fn influence(&self, rng: &mut ChaCha8Rng) -> Result<DMatrix<f64>> {
        let source = self.context.unwrap_or(self.x); // where keys and values come from
        let size = root_mean_square(source);
        let mut influence = DMatrix::zeros(self.x.nrows(), source.nrows());
        for token in 0..source.nrows() {
            for _ in 0..NUDGES {
                let nudge = normal(1, source.ncols(), rng) * size;
                for nudge in [&nudge, &-&nudge] {
                    let mut changed = source.clone();
                    changed.row_mut(token).zip_apply(nudge, |x, nudge| *x += nudge);
                    let output = self.run_on(&changed)?;
                    for i in 0..output.nrows() {
                        let moved = (output.row(i) - self.output.row(i)).amax();
                        influence[(i, token)] = moved.max(influence[(i, token)]);
                    }
                }
            }
        }
        let largest = self.output.amax();
        Ok(if largest > 0.0 { influence / largest } else { influence })
    }

    /// The output with another sequence in the place of that which keys and values come from.
    fn run_on(&self, source: &DMatrix<f64>) -> Result<DMatrix<f64>> {
        match self.context {
            Some(_) => self.run(self.layer, self.x, Some(source)),
            None => self.run(self.layer, source, None),
        }
    }

    /// The output of this layer on these sequences.
    fn run(
        &self,
        layer: &L,
        x: &DMatrix<f64>,
        context: Option<&DMatrix<f64>>,
    ) -> Result<DMatrix<f64>> {
        let (output, _) = layer.forward(x, context, self.mask)?;
        check_shape("output", &output, self.output.shape(), "the first output")?;
        Ok(output)
    }

    fn slope_errors(
        &self,
        gradients: &LayerGradients<f64>,
        grad_output: &DMatrix<f64>,
        rng: &mut ChaCha8Rng,
    ) -> Result<Vec<(String, f64)>> {
        // Slopes below this are lost in the rounding of the outputs, divided by the step.
        let floor = 1e-5 * grad_output.norm() * root_mean_square(self.output).max(1e-3);
        // The loss Σ grad_output ⊙ output, less its value here: a small number is rounded less.
        let loss = |layer: &L, x: &DMatrix<f64>, context: Option<&DMatrix<f64>>| {
            Ok((self.run(layer, x, context)? - self.output).dot(grad_output))
        };
        let mut errors = vec![];
        check_shape("gradients.x", &gradients.x, self.x.shape(), "`x`")?;
        let by_x = slope_error(gradients.x.as_slice(), floor, rng, |direction| {
            loss(self.layer, &moved(self.x, direction), self.context)
        })?;
        errors.push(("x".to_owned(), by_x));
        if let Some(context) = self.context {
            let none = DMatrix::zeros(context.nrows(), context.ncols()); // claims to be flat
            let gradient = gradients.context.as_ref().unwrap_or(&none);
            check_shape("gradients.context", gradient, context.shape(), "`context`")?;
            let by_context = slope_error(gradient.as_slice(), floor, rng, |direction| {
                loss(self.layer, self.x, Some(&moved(context, direction)))
            })?;
            errors.push(("context".to_owned(), by_context));
        }
        let of_parameters = gradients.parameters.named();
        for ((name, gradient), (_, matrix)) in
            of_parameters.iter().zip(self.layer.named())
        {
            check_shape("gradients", *gradient, matrix.shape(), "its parameter")
                .map_err(|error| error.within(format!("`{name}`")))?;
        }
        for (i, (name, gradient)) in gradients.parameters.named().into_iter().enumerate()
        {
            let gradient = gradient.into_owned();
            let by_parameter =
                slope_error(gradient.as_slice(), floor, rng, |direction| {
                    let mut layer = self.layer.clone();
                    let parameter = &mut layer.named_mut()[i].1;
                    parameter.iter_mut().zip(direction).for_each(|(x, step)| *x += step);
                    loss(&layer, self.x, self.context)
                })?;
            errors.push((name, by_parameter));
        }
        Ok(errors)
    }
}

/// The relative error of a gradient against the slope of the loss: the worst of a few
/// directions.
///
/// Along a direction the slope is the gradient's dot product with it. That takes two
/// runs a direction, where entry by entry takes two for each entry. `floor` is a slope
/// so small that it is lost in the rounding of the loss: no error is measured by less.
fn slope_error(
    gradient: &[f64],
    floor: f64,
    rng: &mut ChaCha8Rng,
    loss_moved_by: impl Fn(&DVector<f64>) -> Result<f64>,
) -> Result<f64> {
    let gradient = DVector::from_column_slice(gradient);
    let mut worst: f64 = 0.0;
    for _ in 0..DIRECTIONS {
        let direction =
            DVector::from_fn(gradient.len(), |_, _| StandardNormal.sample(rng));
        let predicted = gradient.dot(&direction);
        // The slope in one variable t, at 0.
        let measured = numerical_gradient(&dmatrix![0.0], STEP, |t| {
            loss_moved_by(&(&direction * t[0]))
        })?[0];
        let size = gradient.norm() + measured.abs() + floor;
        let error = (predicted - measured).abs() / size;
        if error.is_nan() {
            return Ok(error); // which `max` would pass over
        }
        worst = worst.max(error);
    }
    Ok(worst)
}

fn moved(x: &DMatrix<f64>, direction: &DVector<f64>) -> DMatrix<f64> {
    x + DMatrix::from_column_slice(x.nrows(), x.ncols(), direction.as_slice())
}

// ---------------------------------------------------------------------------------------------------- findings

impl HeadDiagnosis {
    /// Entropy as a share of the largest, for each row that may see two keys or more.
    fn entropy_shares(&self) -> Vec<f64> {
        let rows = self.entropy.iter().zip(self.max_entropy.iter());
        rows.filter(|(_, most)| **most > 0.0)
            .map(|(entropy, most)| entropy / most)
            .collect()
    }
}

impl Diagnosis {
    /// Returns the faults that these numbers show. A healthy layer raises nothing.
    ///
    /// A finding is a reason to look. A trained head that looks at one key only is collapsed by this measure, and may
    /// be right.
    ///
    /// ```
    /// use attention::{Mask, MultiHeadAttention, example};
    /// use laboratory::{Fault, Finding, Patient, diagnose};
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let layer = MultiHeadAttention::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// let ill = Patient::new(layer, Fault::ForgottenPath)?;
    /// let findings = diagnose(&ill, &example::river().x, None, Mask::none())?.findings();
    /// assert!(matches!(&findings[..], [Finding::WrongGradient { by, .. }] if by == "x"));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn findings(&self) -> Vec<Finding> {
        if !self.not_finite.is_empty() {
            let finding = |what: &&'static str| Finding::NotFinite { what };
            return self.not_finite.iter().map(finding).collect();
        }
        let mut findings = vec![];
        for (h, head) in self.heads.iter().enumerate() {
            match self.row_sum(h, head) {
                Some(finding) => findings.push(finding),
                None => {
                    findings.extend(entropy(h, head));
                    findings.extend(not_softmax(h, head));
                }
            }
            findings.extend(scale_finding(h, head));
            if let (Some(first), true) = (head.twin, self.has_choice()) {
                findings.push(Finding::Twins { first, second: h });
            }
            findings.extend(self.no_gradient(h, head));
        }
        findings.extend(self.leaks());
        let [_, wrong] = self.right_and_wrong();
        let wrong_gradient = |(by, error)| Finding::WrongGradient { by, error };
        findings.extend(wrong.into_iter().map(wrong_gradient));
        findings
    }

    /// Returns `true` if some query may see two keys or more: with fewer there is nothing to choose, and nothing to learn.
    fn has_choice(&self) -> bool {
        self.allowed.row_iter().any(|row| row.iter().filter(|&&sees| sees).count() > 1)
    }

    fn row_sum(&self, h: usize, head: &HeadDiagnosis) -> Option<Finding> {
        let off = |sum: f64, sees: bool| (sum - f64::from(sees)).abs();
        let rows = head.row_sums.map_with_location(|i, _, sum| {
            off(sum, self.allowed.row(i).iter().any(|&sees| sees))
        });
        let columns = head.column_sums.map_with_location(|j, _, sum| {
            off(sum, self.allowed.column(j).iter().any(|&sees| sees))
        });
        let query = rows.imax();
        if rows[query] <= ROW_SUM_TOLERANCE {
            return None;
        }
        let sum = head.row_sums[query];
        Some(if columns.max() <= ROW_SUM_TOLERANCE {
            Finding::WrongAxis { head: h, query, sum }
        } else {
            Finding::RowSum { head: h, query, sum }
        })
    }

    fn no_gradient(&self, h: usize, head: &HeadDiagnosis) -> Vec<Finding> {
        let norms = self.heads.iter().flat_map(|head| head.gradients);
        let largest = norms.map(|(_, norm)| norm).fold(0.0, f64::max);
        let sees_anything = self.allowed.iter().any(|&sees| sees);
        let expected = |parameter: &str| match parameter {
            "w_q" | "w_k" => self.has_choice(),
            _ => sees_anything,
        };
        let silent = |&(parameter, norm): &(&'static str, f64)| {
            expected(parameter) && norm <= NO_GRADIENT * largest
        };
        let finding =
            |(parameter, norm)| Finding::NoGradient { head: h, parameter, norm };
        head.gradients.into_iter().filter(silent).map(finding).collect()
    }

    /// The sign of output `i` and token `j` in the report: see [`Diagnosis`].
    fn sign(&self, i: usize, j: usize) -> char {
        let moved = self.influence[(i, j)] > MOVED;
        let is_faint = || self.heads.iter().all(|head| head.faint[(i, j)]);
        let has_weight = || self.heads.iter().any(|head| head.weights[(i, j)] != 0.0);
        match (self.allowed[(i, j)], moved) {
            (true, true) => 'x',
            (true, false) if is_faint() => '~',
            (true, false) => 'D',
            (false, true) if i == j && !self.is_cross && !has_weight() => 'o',
            (false, true) => 'L',
            (false, false) => '.',
        }
    }

    fn leaks(&self) -> Vec<Finding> {
        let (rows, columns) = self.influence.shape();
        let all = (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j)));
        let with = |sign: char| -> Vec<(usize, usize)> {
            all.clone().filter(|&(i, j)| self.sign(i, j) == sign).collect()
        };
        let (leaks, deaf) = (with('L'), with('D'));
        let moved = leaks.iter().map(|&at| self.influence[at]).fold(0.0, f64::max);
        let mut findings = vec![];
        if !leaks.is_empty() {
            findings.push(Finding::Leak { pairs: leaks, moved });
        }
        if !deaf.is_empty() {
            findings.push(Finding::Deaf { pairs: deaf });
        }
        findings
    }

    /// The gradients that agree with the slopes, and those that don't, as NaN does not.
    fn right_and_wrong(&self) -> [Vec<(String, f64)>; 2] {
        let is_right = |(_, error): &(String, f64)| *error <= SLOPE_TOLERANCE;
        self.slope_errors.iter().cloned().partition(is_right).into()
    }
}

fn entropy(h: usize, head: &HeadDiagnosis) -> Option<Finding> {
    let shares = head.entropy_shares();
    if shares.is_empty() {
        return None;
    }
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    if shares.len() >= CHOICES && mean < COLLAPSED {
        return Some(Finding::Collapsed { head: h, entropy: mean });
    }
    // Above 1 it sees keys that it must not see, which is not diffuse but leaking.
    if shares.iter().all(|share| (share - 1.0).abs() <= DIFFUSE) {
        let entropy = shares.into_iter().fold(f64::INFINITY, f64::min);
        return Some(Finding::Diffuse { head: h, entropy });
    }
    None
}

fn not_softmax(h: usize, head: &HeadDiagnosis) -> Option<Finding> {
    let is_negative = head.weights.iter().any(|&weight| weight < 0.0);
    let fits = head.scale.is_some() || !head.products_differ;
    (is_negative || !fits).then_some(Finding::NotSoftmax { head: h })
}

fn scale_finding(h: usize, head: &HeadDiagnosis) -> Option<Finding> {
    let is_wrong = |factor: &f64| (factor - 1.0).abs() > SCALE_TOLERANCE;
    let factor = head.scale.filter(|factor| head.products_differ && is_wrong(factor))?;
    Some(Finding::Scale { head: h, factor })
}

// ---------------------------------------------------------------------------------------------------- the report

/// Three decimals, or as many as it takes to tell a number from 1.
fn near(x: f64) -> String {
    let off = x - 1.0;
    let sign = if off < 0.0 { '−' } else { '+' };
    if off.abs() < 1e-3 && off != 0.0 {
        format!("1 {sign} {:.1e}", off.abs())
    } else {
        format!("{x:.3}")
    }
}

/// Two decimals, or two digits of what would be 0.00.
fn share(x: f64) -> String {
    if x < 0.01 { format!("{x:.1e}") } else { format!("{x:.2}") }
}

/// The first few pairs, and how many more there are.
fn list(pairs: &[(usize, usize)]) -> String {
    const SHOWN: usize = 4;
    let pair = |(output, token): &(usize, usize)| format!("{token} → {output}");
    let shown: Vec<_> = pairs.iter().take(SHOWN).map(pair).collect();
    match pairs.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn range(values: impl IntoIterator<Item = f64>) -> String {
    let (least, most) = values
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), x| {
            (least.min(x), most.max(x))
        });
    if least > most { "–".to_owned() } else { format!("{least:.3} to {most:.3}") }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        writeln!(
            f,
            "weights   row sums         column sums      entropy / max    scale"
        )?;
        for (h, head) in self.heads.iter().enumerate() {
            let rows = range(head.row_sums.iter().copied());
            let columns = range(head.column_sums.iter().copied());
            let entropy = range(head.entropy_shares());
            let scale =
                head.scale.map_or("–".to_owned(), |scale| format!("{scale:.3}"));
            writeln!(f, "  head {h:<2} {rows:<16} {columns:<16} {entropy:<16} {scale}")?;
        }
        writeln!(f, "\ngradients w_q      w_k      w_v      w_o")?;
        for (h, head) in self.heads.iter().enumerate() {
            let norms = head.gradients.map(|(_, norm)| format!("{norm:<8.3}")).join(" ");
            writeln!(f, "  head {h:<2} {}", norms.trim_end())?;
        }
        self.write_slopes(f)?;
        self.write_influence(f)?;
        writeln!(f, "\nfindings")?;
        let findings = self.findings();
        for finding in &findings {
            writeln!(f, "  {finding}")?;
        }
        if findings.is_empty() { writeln!(f, "  none") } else { Ok(()) }
    }
}

impl Diagnosis {
    fn write_slopes(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [right, wrong] = self.right_and_wrong();
        let right: Vec<_> = right.into_iter().map(|(name, _)| name).collect();
        let off = |(name, error): &(String, f64)| format!("{name} {error:.2}");
        let wrong: Vec<_> = wrong.iter().map(off).collect();
        writeln!(f, "\nslopes    agree: {}", right.join(" "))?;
        if !wrong.is_empty() {
            writeln!(f, "          off by: {}", wrong.join(", "))?;
        }
        Ok(())
    }

    /// A row for each output, a column for each token.
    fn write_influence(&self, f: &mut fmt::Formatter) -> fmt::Result {
        const MOST: usize = 32; // beyond which the map is too wide to be read
        let (rows, columns) = self.influence.shape();
        if rows.max(columns) > MOST {
            return Ok(());
        }
        writeln!(f, "\nmoves     outputs down, changed tokens across")?;
        for i in 0..rows {
            let signs: Vec<_> =
                (0..columns).map(|j| self.sign(i, j).to_string()).collect();
            writeln!(f, "  {i:>5}   {}", signs.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{MultiHeadAttention, example};

    fn healthy() -> Diagnosis {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let layer = MultiHeadAttention::xavier(4, 2, rng).unwrap();
        diagnose(&layer, &example::river().x, None, Mask::causal()).unwrap()
    }

    /// One head is too faint to tell, but another one could.
    #[test]
    fn a_faint_weight_excuses_its_own_head_only() {
        let mut diagnosis = healthy();
        diagnosis.influence[(5, 0)] = 0.0;
        diagnosis.heads[0].faint[(5, 0)] = true;
        assert_eq!(diagnosis.findings(), [Finding::Deaf { pairs: vec![(5, 0)] }]);
        diagnosis.heads[1].faint[(5, 0)] = true;
        assert_eq!(diagnosis.findings(), []);
    }

    #[test]
    fn a_number_that_is_not_one_is_not_printed_as_one() {
        assert_eq!(near(1.0), "1.000");
        assert_eq!(near(0.99), "0.990");
        assert_eq!(near(1.0 + 1e-6), "1 + 1.0e-6");
        assert_eq!(near(1.0 - 2e-5), "1 − 2.0e-5");
    }
}
