//! A layer of someone else's.

use attention::{
    AttentionCache, LayerGradients, Mask, MultiHeadAttention, NamedParameters, Result,
    named_parameters::{Named, NamedMut},
};
use laboratory::AttentionLayer;
use nalgebra::DMatrix;

/// A healthy layer, and changes to what it returns: its output, its heads or its gradients.
#[derive(Clone)]
pub struct Foreign {
    pub layer: MultiHeadAttention<f64>,
    pub output: fn(&mut DMatrix<f64>),
    pub heads: fn(&mut Vec<AttentionCache<f64>>),
    pub gradients: fn(&mut LayerGradients<f64>),
}

impl Foreign {
    /// Returns the layer without a change.
    pub fn healthy(layer: MultiHeadAttention<f64>) -> Self {
        Foreign { layer, output: |_| (), heads: |_| (), gradients: |_| () }
    }
}

impl NamedParameters<f64> for Foreign {
    fn named(&self) -> Named<'_, f64> {
        self.layer.named()
    }

    fn named_mut(&mut self) -> NamedMut<'_, f64> {
        self.layer.named_mut()
    }
}

/// What the layer keeps: its inputs, and the heads that it shows.
pub struct ForeignCache {
    x: DMatrix<f64>,
    context: Option<DMatrix<f64>>,
    heads: Vec<AttentionCache<f64>>,
}

impl AttentionLayer for Foreign {
    type Cache = ForeignCache;

    fn forward(
        &self,
        x: &DMatrix<f64>,
        context: Option<&DMatrix<f64>>,
        mask: impl Into<Mask>,
    ) -> Result<(DMatrix<f64>, ForeignCache)> {
        let (mut output, cache) = AttentionLayer::forward(&self.layer, x, context, mask)?;
        let mut heads = cache.heads();
        (self.output)(&mut output);
        (self.heads)(&mut heads);
        Ok((output, ForeignCache { x: x.clone(), context: context.cloned(), heads }))
    }

    fn backward(
        &self,
        cache: &ForeignCache,
        grad_output: &DMatrix<f64>,
    ) -> Result<LayerGradients<f64>> {
        let (x, context) = (&cache.x, cache.context.as_ref());
        let (_, healthy) =
            AttentionLayer::forward(&self.layer, x, context, Mask::none())?;
        let mut gradients = self.layer.backward(&healthy, grad_output)?;
        (self.gradients)(&mut gradients);
        Ok(gradients)
    }

    fn heads(cache: &ForeignCache) -> Vec<AttentionCache<f64>> {
        cache.heads.clone()
    }
}
