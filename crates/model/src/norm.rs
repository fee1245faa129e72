//! Normalised rows: each token's vector is brought to one size before a layer reads it.

use attention::{NamedParameters, named_parameters};
use fast::Float;
use nalgebra::{DMatrix, DVector, RowDVector};

/// What fresh norms add to the mean square.
const EPSILON: f64 = 1e-5;

/// RMSNorm: each row is divided by the root of its mean square, and each column is multiplied by a learned gain.
///
/// # Source
/// B. Zhang, R. Sennrich, *Root Mean Square Layer Normalization* (2019).
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm<T: Float> {
    /// (1, d_model), ones at first.
    pub gain: RowDVector<T>,
    /// What is added to the mean square, so that a row of zeros can be divided.
    pub epsilon: f64,
}

named_parameters! { impl[T: Float] NamedParameters<T> for RmsNorm<T> { gain } }

/// What [`RmsNorm::backward`] needs of the forward pass.
#[derive(Debug, Clone)]
pub struct NormCache<T: Float> {
    unit: DMatrix<T>, // the rows with a mean square of one (n, d_model)
    root: DVector<T>, // the root of each row's mean square (n, 1)
}

impl<T: Float> RmsNorm<T> {
    /// Returns a norm with gains of one.
    pub fn new(d_model: usize) -> Self {
        RmsNorm { gain: RowDVector::repeat(d_model, T::one()), epsilon: EPSILON }
    }

    /// Does to rows (n, d_model) what [`RmsNorm::forward`] does, and keeps nothing for a backward pass.
    pub fn apply(&self, x: &mut DMatrix<T>) {
        let root = root_mean_squares(x, self.epsilon);
        for (mut column, &gain) in x.column_iter_mut().zip(&self.gain) {
            column.zip_apply(&root, |x, root| *x = *x / root * gain);
        }
    }

    /// Shapes: `x` (n, d_model) → (n, d_model).
    pub fn forward(&self, x: &DMatrix<T>) -> (DMatrix<T>, NormCache<T>) {
        let root = root_mean_squares(x, self.epsilon);
        let mut unit = x.clone();
        unit.column_iter_mut().for_each(|mut column| column.component_div_assign(&root));
        let mut y = unit.clone();
        scale_columns(&mut y, &self.gain);
        (y, NormCache { unit, root })
    }

    /// Returns the gradients with respect to `x` (n, d_model) and to the gain.
    pub fn backward(
        &self,
        cache: &NormCache<T>,
        grad_y: &DMatrix<T>,
    ) -> (DMatrix<T>, RmsNorm<T>) {
        let NormCache { unit, root } = cache;
        let gain = grad_y.component_mul(unit).row_sum();
        let mut grad_x = grad_y.clone(); // with respect to unit, at first
        scale_columns(&mut grad_x, &self.gain);
        // The part along the row is lost: its size has no effect.
        let along = mean_of_products(&grad_x, unit);
        for (mut grad, unit) in grad_x.column_iter_mut().zip(unit.column_iter()) {
            grad.zip_zip_apply(&unit, &along, |grad, unit, along| *grad -= unit * along);
            grad.component_div_assign(root);
        }
        (grad_x, RmsNorm { gain, ..*self })
    }
}

/// LayerNorm: rows are moved to a mean of zero, then [`RmsNorm`], and a learned bias is added.
///
/// # Source
/// J. L. Ba, J. R. Kiros, G. E. Hinton, *Layer Normalization* (2016).
#[derive(Debug, Clone, PartialEq)]
pub struct LayerNorm<T: Float> {
    /// What is done to the centred rows.
    pub rms: RmsNorm<T>,
    /// (1, d_model), zeros at first.
    pub bias: RowDVector<T>,
}

named_parameters! { impl[T: Float] NamedParameters<T> for LayerNorm<T> { rms, bias } }

impl<T: Float> LayerNorm<T> {
    /// Returns a norm with gains of one and biases of zero.
    pub fn new(d_model: usize) -> Self {
        LayerNorm { rms: RmsNorm::new(d_model), bias: RowDVector::zeros(d_model) }
    }

    /// Does to rows (n, d_model) what [`LayerNorm::forward`] does, and keeps nothing for a backward pass.
    pub fn apply(&self, x: &mut DMatrix<T>) {
        centre(x);
        self.rms.apply(x);
        self.add_bias(x);
    }

    /// Shapes: `x` (n, d_model) → (n, d_model).
    pub fn forward(&self, x: &DMatrix<T>) -> (DMatrix<T>, NormCache<T>) {
        let mut centred = x.clone();
        centre(&mut centred);
        let (mut y, cache) = self.rms.forward(&centred);
        self.add_bias(&mut y);
        (y, cache)
    }

    fn add_bias(&self, y: &mut DMatrix<T>) {
        for (mut column, &bias) in y.column_iter_mut().zip(&self.bias) {
            column.add_scalar_mut(bias);
        }
    }

    /// Returns the gradients with respect to `x` (n, d_model), and to gain and bias.
    pub fn backward(
        &self,
        cache: &NormCache<T>,
        grad_y: &DMatrix<T>,
    ) -> (DMatrix<T>, LayerNorm<T>) {
        let (mut grad_x, rms) = self.rms.backward(cache, grad_y);
        centre(&mut grad_x);
        (grad_x, LayerNorm { rms, bias: grad_y.row_sum() })
    }
}

/// Moves rows to a mean of zero.
fn centre<T: Float>(x: &mut DMatrix<T>) {
    let means = x.column_mean();
    x.column_iter_mut().for_each(|mut column| column -= &means);
}

/// Returns the root of the mean of a row's squares and ε, for each row.
fn root_mean_squares<T: Float>(x: &DMatrix<T>, epsilon: f64) -> DVector<T> {
    let epsilon: T = nalgebra::convert(epsilon);
    let mut root = mean_of_products(x, x).map(|mean| (mean + epsilon).sqrt());
    for (root, row) in root.iter_mut().zip(x.row_iter()) {
        // The squares were too large for `T`, which the root need not be.
        if !root.is_finite() {
            let width: T = nalgebra::convert(x.ncols() as f64);
            *root = NamedParameters::norm(&row.into_owned()) / width.sqrt();
        }
    }
    root
}

/// Returns the mean of a row's products with the other row, for each row.
fn mean_of_products<T: Float>(a: &DMatrix<T>, b: &DMatrix<T>) -> DVector<T> {
    let mut sums = DVector::zeros(a.nrows());
    for (a, b) in a.column_iter().zip(b.column_iter()) {
        sums.zip_zip_apply(&a, &b, |sum, a, b| *sum += a * b);
    }
    sums / nalgebra::convert::<_, T>(a.ncols() as f64)
}

fn scale_columns<T: Float>(x: &mut DMatrix<T>, factors: &RowDVector<T>) {
    for (mut column, &factor) in x.column_iter_mut().zip(factors) {
        column *= factor;
    }
}
