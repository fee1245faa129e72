//! The optimiser that most transformers are trained with.

use crate::Float;
use crate::error::Result;
use crate::named_parameters::{NamedParameters, check_finite, check_fit, shapes_of};
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
///
/// With the feature `serde` it can be written to a file and read again. Numbers that are not finite are an error then.
#[derive(Debug, Clone, PartialEq)]
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
    averages: Vec<Averages<DMatrix<T>>>,
}

/// The name of a parameter, the running mean m of its gradients, and the root √v of that of their squares. The root has the size of a
/// gradient. A square can be infinite, or 0, where the gradient isn't.
type Averages<M> = (String, M, M);

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
            averages: vec![],
        }
    }

    /// Returns the number of steps that were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes a step against the gradients. The first step says which parameters there are.
    ///
    /// # Errors
    /// The gradients have matrices of other names or shapes than the model, or one that isn't finite; or the model isn't that of the first
    /// step. Then nothing has changed.
    pub fn step(
        &mut self,
        model: &mut impl NamedParameters<T>,
        gradients: &impl NamedParameters<T>,
    ) -> Result<()> {
        let (mut parameters, gradients) = (model.named_mut(), gradients.named());
        let shapes = || parameters.iter().map(|(name, p)| (name.as_str(), p.shape()));
        check_fit("gradients", shapes_of(&gradients), shapes(), "")?;
        check_finite("gradients", &gradients)?;
        if self.steps == 0 {
            self.averages = shapes()
                .map(|(name, (rows, columns))| {
                    let zeros = DMatrix::zeros(rows, columns);
                    (name.to_owned(), zeros.clone(), zeros)
                })
                .collect();
        } else {
            let known =
                self.averages.iter().map(|(name, m, _)| (name.as_str(), m.shape()));
            check_fit("model", shapes(), known, " in the optimiser's state")?;
        }
        self.steps = self.steps.saturating_add(1);
        let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let one = T::one();
        let [left_1, left_2] =
            [self.beta_1, self.beta_2].map(|beta| one - beta.powi(steps));
        let (kept, added, left) =
            (self.beta_2.sqrt(), (one - self.beta_2).sqrt(), left_2.sqrt());
        for (((_, p), (_, g)), (_, m, root_v)) in
            parameters.iter_mut().zip(&gradients).zip(&mut self.averages)
        {
            m.zip_apply(g, |m, g| *m = self.beta_1 * *m + (one - self.beta_1) * g);
            // v = β₂ v + (1 − β₂) g²
            root_v.zip_apply(g, |root_v, g| *root_v = (kept * *root_v).hypot(added * g));
            p.zip_zip_apply(&*m, &*root_v, |p, m, root_v| {
                let step = m / left_1 / (root_v / left + self.epsilon);
                *p -= self.rate * (step + self.weight_decay * *p);
            });
        }
        Ok(())
    }
}

/// An optimiser in a file.
#[cfg(feature = "serde")]
mod saved {
    use super::{Adam, Averages};
    use crate::Float;
    use crate::error::{Result, check_shape, wrong_value};
    use crate::named_parameters::within;
    use crate::saved::Matrix;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// [`Adam`], read as what is still to be checked, and written from references.
    #[derive(Deserialize, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Saved<T, M> {
        rate: T,
        beta_1: T,
        beta_2: T,
        epsilon: T,
        weight_decay: T,
        steps: u64,
        averages: Vec<Averages<M>>,
    }

    impl<'de, T: Float + Deserialize<'de>> Deserialize<'de> for Adam<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let read = Saved::<T, Matrix<T>>::deserialize(deserializer)?;
            let Saved { rate, beta_1, beta_2, epsilon, weight_decay, steps, averages } =
                read;
            let averages = averages.into_iter().map(|(name, mean, root)| {
                let mean = mean.into_matrix("mean")?;
                let root = root.into_matrix("root_mean_square")?;
                check_shape("root_mean_square", &root, mean.shape(), "`mean`")?;
                Ok((name, mean, root))
            });
            let adam = || -> Result<Self> {
                let averages = averages.collect::<Result<_>>()?;
                let adam =
                    Adam { rate, beta_1, beta_2, epsilon, weight_decay, steps, averages };
                check(&adam)?;
                Ok(adam)
            };
            adam().map_err(serde::de::Error::custom)
        }
    }

    impl<T: Float + Serialize> Serialize for Adam<T> {
        /// What couldn't be read again is an error now: JSON, for one, has no NaN and would hold a `null`.
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            check(self).map_err(serde::ser::Error::custom)?;
            let &Adam { rate, beta_1, beta_2, epsilon, weight_decay, steps, .. } = self;
            let averages = self.averages.iter();
            let averages =
                averages.map(|(name, m, root)| (name.clone(), m, root)).collect();
            Saved { rate, beta_1, beta_2, epsilon, weight_decay, steps, averages }
                .serialize(serializer)
        }
    }

    /// Checks that all numbers are finite.
    fn check<T: Float>(adam: &Adam<T>) -> Result<()> {
        let numbers = |argument, numbers: &[T]| {
            let bad = numbers.iter().find(|number| !number.is_finite());
            bad.map_or(Ok(()), |bad| {
                let given: f64 = nalgebra::convert_unchecked(*bad);
                Err(wrong_value(argument, given, "it must be finite"))
            })
        };
        for (argument, setting) in [
            ("rate", adam.rate),
            ("beta_1", adam.beta_1),
            ("beta_2", adam.beta_2),
            ("epsilon", adam.epsilon),
            ("weight_decay", adam.weight_decay),
        ] {
            numbers(argument, &[setting])?;
        }
        for (name, mean, root) in &adam.averages {
            numbers("mean", mean.as_slice())
                .and_then(|()| numbers("root_mean_square", root.as_slice()))
                .map_err(|error| within(name, error))?;
        }
        Ok(())
    }
}
