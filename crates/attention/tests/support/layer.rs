//! Both layers by the same calls, for tests that hold for either.

use attention::{
    BatchGradients, BatchOptions, Float, ForwardOptions, LayerGradients,
    MultiHeadAttention, MultiHeadCache, NamedParameters, Parameters, Result,
    SingleHeadAttention, SingleHeadCache,
};
use nalgebra::DMatrix;

/// The output, and what a backward pass needs.
pub type Forward<M, C> = Result<(M, C)>;

pub trait Layer<T: Float>: NamedParameters<T> + Clone {
    type Cache;
    fn parameters(&self) -> &Parameters<T>;
    fn forward<'a>(
        &self,
        x: &DMatrix<T>,
        options: impl Into<ForwardOptions<'a, T>>,
    ) -> Forward<DMatrix<T>, Self::Cache>;
    fn backward(
        &self,
        cache: &Self::Cache,
        grad_output: &DMatrix<T>,
    ) -> Result<LayerGradients<T>>;
    fn forward_batch<'a>(
        &self,
        xs: &[DMatrix<T>],
        options: impl Into<BatchOptions<'a, T>>,
    ) -> Forward<Vec<DMatrix<T>>, Vec<Self::Cache>>;
    fn backward_batch(
        &self,
        caches: &[Self::Cache],
        grad_outputs: &[DMatrix<T>],
    ) -> Result<BatchGradients<T>>;
}

macro_rules! layer {
    ($layer:ident, $cache:ident) => {
        impl<T: Float> Layer<T> for $layer<T> {
            type Cache = $cache<T>;
            fn parameters(&self) -> &Parameters<T> {
                &self.parameters
            }
            fn forward<'a>(
                &self,
                x: &DMatrix<T>,
                options: impl Into<ForwardOptions<'a, T>>,
            ) -> Forward<DMatrix<T>, Self::Cache> {
                self.forward(x, options)
            }
            fn backward(
                &self,
                cache: &Self::Cache,
                grad_output: &DMatrix<T>,
            ) -> Result<LayerGradients<T>> {
                self.backward(cache, grad_output)
            }
            fn forward_batch<'a>(
                &self,
                xs: &[DMatrix<T>],
                options: impl Into<BatchOptions<'a, T>>,
            ) -> Forward<Vec<DMatrix<T>>, Vec<Self::Cache>> {
                self.forward_batch(xs, options)
            }
            fn backward_batch(
                &self,
                caches: &[Self::Cache],
                grad_outputs: &[DMatrix<T>],
            ) -> Result<BatchGradients<T>> {
                self.backward_batch(caches, grad_outputs)
            }
        }
    };
}

layer!(SingleHeadAttention, SingleHeadCache);
layer!(MultiHeadAttention, MultiHeadCache);
