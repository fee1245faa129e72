//! Attention without pairs: queries and keys are mapped to features, and the brackets of the product are moved.

use attention::Result;
use attention::engine::{
    blocks, check_count, check_positive, check_queries_and_keys, check_shape,
    check_values,
};
use fast::Float;
use nalgebra::{DMatrix, convert};
use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

/// Returns the lower triangle of `a bᵀ`, with its diagonal, times `c`: each row of `a` meets the rows of `b` up to its own.
///
/// The sum over earlier chunks is kept as a matrix (f, d) that doesn't grow. With chunks of one row that is a recurrence; with one
/// chunk it is the product of the formula.
///
/// Shapes: `a` and `b` (n, f), `c` (n, d) → (n, d).
///
/// # Source
/// A. Katharopoulos et al., *Transformers are RNNs* (2020); in chunks: W. Hua et al., *Transformer Quality in Linear Time* (2022).
fn causal_product<T: Float>(
    a: &DMatrix<T>,
    b: &DMatrix<T>,
    c: &DMatrix<T>,
    chunk: usize,
) -> DMatrix<T> {
    let mut output = DMatrix::zeros(c.nrows(), c.ncols());
    let mut state = DMatrix::zeros(b.ncols(), c.ncols()); // Σ bᵀ c over earlier chunks
    for rows in blocks(c.nrows(), chunk) {
        let [a, b, c] = [a, b, c].map(|matrix| matrix.rows_range(rows.clone()));
        let mut pairs = a * b.transpose(); // (chunk, chunk)
        pairs.fill_upper_triangle(T::zero(), 1); // no row meets a later one
        let sum = a * &state + &pairs * c;
        output.rows_range_mut(rows).copy_from(&sum);
        state += b.transpose() * c;
    }
    output
}

/// The same for later rows: each row of `a` meets the rows of `b` from its own on. It is [`causal_product`] from the end to the
/// beginning.
fn later_product<T: Float>(
    a: &DMatrix<T>,
    b: &DMatrix<T>,
    c: &DMatrix<T>,
    chunk: usize,
) -> DMatrix<T> {
    let [a, b, c] = [a, b, c].map(reversed);
    reversed(&causal_product(&a, &b, &c, chunk))
}

/// The rows from the last to the first.
fn reversed<T: Float>(matrix: &DMatrix<T>) -> DMatrix<T> {
    let last = matrix.nrows() - 1;
    DMatrix::from_fn(matrix.nrows(), matrix.ncols(), |i, j| matrix[(last - i, j)])
}

/// What a query and a key are mapped to before they are multiplied. Every feature is positive.
///
/// ```
/// use laboratory::fewer_pairs::linear::Features;
///
/// let features = Features::<f64>::Elu.of(&nalgebra::dmatrix![2.0, -1.0]);
/// assert_eq!(features, nalgebra::dmatrix![3.0, (-1.0_f64).exp()]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Features<T: Float> {
    /// `elu(x) + 1`: `x + 1` where x is positive, and `e^x` elsewhere. As many features as columns.
    Elu,
    /// Random features of the softmax: a feature for each direction (m, d), a row of normal numbers. Their products are
    /// e^(q·k/√d) on average.
    ///
    /// Source: K. Choromanski et al., *Rethinking Attention with Performers* (2021).
    Random(DMatrix<T>),
}

impl<T: Float> Features<T> {
    /// Returns `m` random features for queries and keys of width `d`.
    ///
    /// # Errors
    /// `m` or `d` is 0.
    ///
    /// ```
    /// use laboratory::fewer_pairs::linear::Features;
    /// use rand::{SeedableRng, rngs::ChaCha8Rng};
    ///
    /// let features = Features::<f64>::random(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
    /// assert_eq!(features.of(&nalgebra::dmatrix![1.0, 2.0; 0.0, 1.0]).shape(), (2, 4));
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn random(m: usize, d: usize, rng: &mut impl Rng) -> Result<Self> {
        check_positive("m", m)?;
        check_positive("d", d)?;
        let mut normal = |_, _| {
            let z: f64 = StandardNormal.sample(rng);
            convert(z)
        };
        Ok(Features::Random(DMatrix::from_fn(m, d, &mut normal)))
    }

    /// Returns the features of the rows of `x`.
    ///
    /// Shapes: `x` (n, d) → (n, d), or (n, m) if they are random.
    ///
    /// # Panics
    /// Random features were made for another width.
    ///
    /// ```
    /// # use laboratory::fewer_pairs::linear::Features;
    /// assert_eq!(Features::<f64>::Elu.of(&nalgebra::dmatrix![0.0])[0], 1.0);
    /// ```
    pub fn of(&self, x: &DMatrix<T>) -> DMatrix<T> {
        match self {
            // e^min(x, 0) + max(x, 0)
            Features::Elu => {
                let mut features = x.map(|x| x.min(T::zero()));
                T::exp_all(features.as_mut_slice());
                features.zip_map(x, |e, x| e + x.max(T::zero()))
            }
            // e^(w·x − |x|²/2)/√m, of rows x that are shrunk
            Features::Random(directions) => {
                let x = x * shrunk::<T>(x.ncols());
                let half_norm = x.map(|x| x * x * convert(0.5)).column_sum();
                let mut features = &x * directions.transpose(); // (n, m)
                features.column_iter_mut().for_each(|mut column| column -= &half_norm);
                T::exp_all(features.as_mut_slice());
                features / convert::<_, T>(directions.nrows() as f64).sqrt()
            }
        }
    }

    /// Returns the gradient with respect to `x`, from `features`, which are its own, and the gradient with respect to them.
    fn backward(
        &self,
        x: &DMatrix<T>,
        features: &DMatrix<T>,
        grad: &DMatrix<T>,
    ) -> DMatrix<T> {
        match self {
            // The slope is 1 where x is positive, and e^x elsewhere.
            Features::Elu => features.zip_map(grad, |f, g| f.min(T::one()) * g),
            // Each feature f = e^(w·x − |x|²/2)/√m has the gradient f (w − x).
            Features::Random(directions) => {
                let factor = shrunk::<T>(x.ncols());
                let products = grad.component_mul(features); // (n, m)
                let sums = products.column_sum() * factor; // over the features
                let along_x =
                    DMatrix::from_fn(x.nrows(), x.ncols(), |i, c| sums[i] * x[(i, c)]);
                (&products * directions - along_x) * factor
            }
        }
    }
}

/// d^(−1/4): with queries and keys shrunk by it, their products are divided by √d.
fn shrunk<T: Float>(d: usize) -> T {
    convert((d as f64).powf(-0.25))
}

/// Causal attention whose weights are products of features: φ(q)·φ(k) in place of e^(q·k/√d), divided by their sum over the keys
/// that a query sees.
///
/// ```
/// use attention::{Mask, attention};
/// use laboratory::fewer_pairs::linear::{Features, LinearAttention};
/// use nalgebra::DMatrix;
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// // Many random features come close to softmax.
/// let x = DMatrix::<f64>::from_fn(6, 2, |i, j| (i as f64 + 2.0 * j as f64).sin());
/// let features = Features::random(100_000, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let linear = LinearAttention::new(features, 2)?;
/// let (exact, _) = attention(&x, &x, &x, Mask::causal())?;
/// assert!((linear.forward(&x, &x, &x)?.0 - exact).amax() < 0.02);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct LinearAttention<T: Float> {
    features: Features<T>,
    chunk: usize,
}

/// What [`LinearAttention::backward`] needs.
#[derive(Debug, Clone, PartialEq)]
pub struct LinearCache<T: Float> {
    q: DMatrix<T>,
    k: DMatrix<T>,
    features_q: DMatrix<T>, // (n, f)
    features_k: DMatrix<T>, // (n, f)
    values: DMatrix<T>,     // (n, d_v + 1), a column of ones behind the values
    sums: DMatrix<T>,       // (n, d_v + 1), of the values and of the weights
}

/// The gradients with respect to queries, keys and values, in their shapes.
pub type Gradients<T> = [DMatrix<T>; 3];

impl<T: Float> LinearAttention<T> {
    /// Returns linear attention with these features, in chunks of so many tokens. A chunk of one token is a recurrence.
    ///
    /// # Errors
    /// `chunk` is 0.
    ///
    /// ```
    /// use laboratory::fewer_pairs::linear::{Features, LinearAttention};
    ///
    /// let error = LinearAttention::<f32>::new(Features::Elu, 0).unwrap_err();
    /// assert_eq!(error.to_string(), "`chunk` is 0 but it must be at least 1");
    /// ```
    pub fn new(features: Features<T>, chunk: usize) -> Result<Self> {
        check_positive("chunk", chunk)?;
        Ok(LinearAttention { features, chunk })
    }

    /// Returns the output, and what the backward pass needs.
    ///
    /// Shapes: `q` and `k` (n, d), `v` (n, d_v) → (n, d_v).
    ///
    /// # Errors
    /// A matrix is empty, there are not as many queries as keys, or the widths don't fit.
    ///
    /// ```
    /// use laboratory::fewer_pairs::linear::{Features, LinearAttention};
    /// use nalgebra::dmatrix;
    ///
    /// // Equal features: the means of the values so far.
    /// let (x, v) = (dmatrix![0.0_f64; 0.0; 0.0], dmatrix![1.0; 3.0; 5.0]);
    /// let (output, _) = LinearAttention::new(Features::Elu, 2)?.forward(&x, &x, &v)?;
    /// assert_eq!(output, dmatrix![1.0; 2.0; 3.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn forward(
        &self,
        q: &DMatrix<T>,
        k: &DMatrix<T>,
        v: &DMatrix<T>,
    ) -> Result<(DMatrix<T>, LinearCache<T>)> {
        self.check(q, k, v)?;
        let [features_q, features_k] = [q, k].map(|x| self.features.of(x));
        let d_v = v.ncols();
        let values = v.clone().insert_column(d_v, T::one()); // (n, d_v + 1)
        let sums = causal_product(&features_q, &features_k, &values, self.chunk);
        let weights = sums.column(d_v); // their sum in each row
        let output = DMatrix::from_fn(v.nrows(), d_v, |i, c| sums[(i, c)] / weights[i]);
        let (q, k) = (q.clone(), k.clone());
        Ok((output, LinearCache { q, k, features_q, features_k, values, sums }))
    }

    /// Returns the gradients with respect to queries, keys and values.
    ///
    /// Shapes: `grad_output` (n, d_v) → (n, d), (n, d), (n, d_v).
    ///
    /// # Errors
    /// `grad_output` has another shape than the output.
    ///
    /// ```
    /// use laboratory::fewer_pairs::linear::{Features, LinearAttention};
    /// use nalgebra::dmatrix;
    ///
    /// let (x, v) = (dmatrix![0.0_f64; 0.0], dmatrix![1.0; 3.0]);
    /// let linear = LinearAttention::new(Features::Elu, 2)?;
    /// let (_, cache) = linear.forward(&x, &x, &v)?;
    /// let [_, _, grad_v] = linear.backward(&cache, &dmatrix![1.0; 1.0])?;
    /// assert_eq!(grad_v, dmatrix![1.5; 0.5]); // 1 and a half of the outputs, and a half
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn backward(
        &self,
        cache: &LinearCache<T>,
        grad_output: &DMatrix<T>,
    ) -> Result<Gradients<T>> {
        let LinearCache { q, k, features_q, features_k, values, sums } = cache;
        let (n, d_v) = (sums.nrows(), sums.ncols() - 1);
        check_shape("grad_output", grad_output, (n, d_v), "the output")?;
        // output = numerator / weights
        let mut grad_sums = DMatrix::zeros(n, d_v + 1);
        for i in 0..n {
            let weights = sums[(i, d_v)];
            for c in 0..d_v {
                let grad = grad_output[(i, c)] / weights;
                grad_sums[(i, c)] = grad;
                grad_sums[(i, d_v)] -= grad * sums[(i, c)] / weights;
            }
        }
        // sums = tril(φ(Q) φ(K)ᵀ) [V, 1]
        let grad_q = causal_product(&grad_sums, values, features_k, self.chunk);
        let grad_k = later_product(values, &grad_sums, features_q, self.chunk);
        let grad_v = later_product(features_k, features_q, &grad_sums, self.chunk);
        Ok([
            self.features.backward(q, features_q, &grad_q),
            self.features.backward(k, features_k, &grad_k),
            grad_v.remove_column(d_v), // that of the ones
        ])
    }

    fn check(&self, q: &DMatrix<T>, k: &DMatrix<T>, v: &DMatrix<T>) -> Result<()> {
        check_queries_and_keys(q.into(), k.into())?;
        check_values(k.into(), v.into())?;
        check_shape("q", q, k.shape(), "`k`")?;
        if let Features::Random(directions) = &self.features {
            let width = directions.ncols();
            let because = || format!("the random features are for {width}");
            check_count("q", "column", q.ncols(), width, because)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::random;
    use attention::gradient_check::numerical_gradient;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

    const N: usize = 23;

    fn all_features() -> [Features<f64>; 2] {
        let rng = &mut ChaCha8Rng::seed_from_u64(5);
        [Features::Elu, Features::random(7, 4, rng).unwrap()]
    }

    /// Queries, keys and values with the structure of real ones: a large column, and tokens that come again.
    fn inputs() -> [DMatrix<f64>; 3] {
        let mut q = random(N, 4, 0);
        let mut k = random(N, 4, 1);
        q.column_mut(2).scale_mut(3.0);
        for i in 10..N {
            k.set_row(i, &k.row(i - 10).into_owned());
        }
        [q, k, random(N, 3, 2)]
    }

    /// The formula, pair by pair.
    fn by_pairs(features: &Features<f64>, [q, k, v]: &[DMatrix<f64>; 3]) -> DMatrix<f64> {
        let mut weights = features.of(q) * features.of(k).transpose();
        weights.fill_upper_triangle(0.0, 1);
        for mut row in weights.row_iter_mut() {
            let sum = row.sum();
            row /= sum;
        }
        weights * v
    }

    #[test]
    fn parallel_recurrent_and_in_chunks_are_the_same() {
        let inputs = inputs();
        let [q, k, v] = &inputs;
        for features in all_features() {
            let expected = by_pairs(&features, &inputs);
            for chunk in [1, 2, 5, N - 1, N, 100] {
                let linear = LinearAttention::new(features.clone(), chunk).unwrap();
                let (output, _) = linear.forward(q, k, v).unwrap();
                assert!((output - &expected).amax() < 1e-12, "{chunk}");

                let [q, k, v] = [q, k, v].map(|x| x.map(|x| x as f32));
                let features = match &features {
                    Features::Elu => Features::Elu,
                    Features::Random(w) => Features::Random(w.map(|x| x as f32)),
                };
                let linear = LinearAttention::new(features, chunk).unwrap();
                let (output, _) = linear.forward(&q, &k, &v).unwrap();
                let off = (output.map(f64::from) - &expected).amax();
                assert!(off < 1e-5, "{chunk}: {off}");
            }
        }
    }

    #[test]
    fn gradients_are_the_measured_slopes() {
        let inputs = inputs();
        let grad_output = random(N, 3, 3);
        for features in all_features() {
            for chunk in [1, 4, N] {
                let linear = LinearAttention::new(features.clone(), chunk).unwrap();
                let forward = |[q, k, v]: &[DMatrix<f64>; 3]| linear.forward(q, k, v);
                let (_, cache) = forward(&inputs).unwrap();
                let gradients = linear.backward(&cache, &grad_output).unwrap();
                for (which, gradient) in gradients.iter().enumerate() {
                    let loss = |x: &DMatrix<f64>| {
                        let mut changed = inputs.clone();
                        changed[which] = x.clone();
                        Ok(forward(&changed)?.0.dot(&grad_output))
                    };
                    let measured =
                        numerical_gradient(&inputs[which], 1e-5, loss).unwrap();
                    // Beside the largest entry, since some are zero: the first query sees one key alone.
                    let error = (gradient - measured).amax() / gradient.amax();
                    assert!(error < 1e-8, "{features:?} {chunk} {which}: {error}");
                }
            }
        }
    }
}
