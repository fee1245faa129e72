//! The optimiser that most transformers are trained with.

use crate::error::Result;
use crate::float::Float;
use crate::named_parameters::{NamedParameters, check_fit};
use nalgebra::DMatrix;

/// Adam: gradient descent in which every entry has a step size of its own.
///
/// `m` and `v` are running means of the gradient and of its square; a step is `rate · m / (√v + ε)`, with both means corrected for
/// their start at zero. It works on anything with [`NamedParameters`].
///
/// # Source
/// D. P. Kingma, J. Ba, *Adam: A Method for Stochastic Optimization* (2015), algorithm 1; I. Loshchilov, F. Hutter, *Decoupled Weight
/// Decay Regularization* (2019), for the decay.
///
/// ```
/// use attention::{Adam, Mask, MultiHeadAttention, example};
/// use rand::{SeedableRng, rngs::ChaCha8Rng};
///
/// let mut layer = MultiHeadAttention::<f64>::xavier(4, 2, &mut ChaCha8Rng::seed_from_u64(0))?;
/// let x = example::river().x;
/// let mut adam = Adam::new(0.01);
/// let mut losses = vec![];
/// for _ in 0..50 {
///     let (output, cache) = layer.forward(&x, Mask::none())?;
///     losses.push(output.norm_squared() / 2.0);
///     let gradients = layer.backward(&cache, &output)?;
///     adam.step(&mut layer, &gradients)?;
/// }
/// assert!(losses[49] < losses[0] / 10.0);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Adam<T: Float> {
    /// The step size, which a schedule may change from step to step.
    pub rate: T,
    /// The share of the running mean of the gradient that each step keeps: 0.9.
    pub beta_1: T,
    /// The share of the running mean of its square that each step keeps: 0.999.
    pub beta_2: T,
    /// The number that is added to the denominator: 10⁻⁸.
    pub epsilon: T,
    /// The share of each parameter, times the rate, that every step takes off: 0.
    pub weight_decay: T,
    steps: u64,
    means: Vec<(String, DMatrix<T>, DMatrix<T>)>, // of gradients and their squares
}

impl<T: Float> Adam<T> {
    /// Returns an optimiser with this step size and the paper's other settings.
    pub fn new(rate: T) -> Self {
        Adam {
            rate,
            beta_1: nalgebra::convert(0.9),
            beta_2: nalgebra::convert(0.999),
            epsilon: nalgebra::convert(1e-8),
            weight_decay: T::zero(),
            steps: 0,
            means: vec![],
        }
    }

    /// Returns the number of steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes a step against the gradients. The first step says which parameters there are.
    ///
    /// # Errors
    /// The gradients, or after the first step the model, have matrices of other shapes; then nothing has changed.
    pub fn step(
        &mut self,
        model: &mut impl NamedParameters<T>,
        gradients: &impl NamedParameters<T>,
    ) -> Result<()> {
        let (mut parameters, gradients) = (model.named_mut(), gradients.named());
        let shapes = parameters.iter().map(|(name, p)| (name.as_str(), p.shape()));
        check_fit("gradients", &gradients, shapes.clone())?;
        if self.steps == 0 {
            self.means = shapes
                .map(|(name, (rows, columns))| {
                    let zeros = DMatrix::zeros(rows, columns);
                    (name.to_owned(), zeros.clone(), zeros)
                })
                .collect();
        } else {
            let known = self.means.iter().map(|(name, m, _)| (name.as_str(), m.shape()));
            check_fit("gradients", &gradients, known)?;
        }
        self.steps += 1;
        let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let [left_1, left_2] =
            [self.beta_1, self.beta_2].map(|beta| T::one() - beta.powi(steps));
        for (((_, p), (_, g)), (_, m, v)) in
            parameters.iter_mut().zip(&gradients).zip(&mut self.means)
        {
            m.zip_apply(g, |m, g| *m += (T::one() - self.beta_1) * (g - *m));
            v.zip_apply(g, |v, g| *v += (T::one() - self.beta_2) * (g * g - *v));
            p.zip_zip_apply(&*m, &*v, |p, m, v| {
                let step = m / left_1 / ((v / left_2).sqrt() + self.epsilon);
                *p -= self.rate * (step + self.weight_decay * *p);
            });
        }
        Ok(())
    }
}
