//! Layers on each engine.

use super::{Engines, with_two_tiles};
use crate::support::random_layers::RandomLayer;
use crate::support::{off, random, random_problems};
use attention::engine::ByWeights;
use attention::flash::Tiles;
use attention::{
    BatchGradients, Float, ForwardOptions, LayerGradients, Mask, MultiHeadAttention,
};
use nalgebra::{DMatrix, convert};
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// Random layers with several heads, alone, across two sequences and in a batch, against projections and heads by definition.
pub fn layers_are_their_definition<T: Float>(engines: Engines<T>) {
    random_problems::each_seed(2, |rng| {
        let case = RandomLayer::<T>::random(rng);
        let (d_model, n_heads) = (case.x.ncols(), case.n_heads);
        let parameters = case.parameters((d_model, d_model), rng);
        let right = case.by_definition(&parameters, n_heads);
        let layer = MultiHeadAttention::from_parameters(parameters, n_heads).unwrap();
        for engine in engines(Some(case.tiles)) {
            let options = case.options().engine(engine.clone());
            let (output, cache) = layer.forward(&case.x, options.clone()).unwrap();
            let gradients = layer.backward(&cache, &case.grad_output).unwrap();
            let is_right = case.compare(&output, &gradients, &right);
            is_right.map_err(|how| format!("{n_heads} heads, {engine:?}: {how}"))?;
            if case.context.is_some() {
                continue;
            }
            let [xs, grads] =
                [&case.x, &case.grad_output].map(|x| [x.clone(), x.clone()]);
            let (outputs, caches) = layer.forward_batch(&xs, options).unwrap();
            let gradients = layer.backward_batch(&caches, &grads).unwrap();
            let BatchGradients { mut parameters, mut xs, .. } = gradients;
            parameters *= convert::<f64, T>(0.5);
            let (x, context, tables) = (xs.swap_remove(1), None, vec![]);
            let gradients = LayerGradients { parameters, x, context, tables };
            let is_right = case.compare(&outputs[0], &gradients, &right);
            is_right.map_err(|how| format!("a batch of two, {engine:?}: {how}"))?;
        }
        Ok(())
    });
}

/// Every engine drops the weights that the matrix of factors drops, forward and backward.
pub fn dropout(engines: Engines<f64>) {
    let rng = &mut ChaCha8Rng::seed_from_u64(7);
    let layer = MultiHeadAttention::<f64>::xavier(16, 2, rng).unwrap();
    let engines = with_two_tiles(engines, Tiles { queries: 9, keys: 20 });
    for (n_q, n_k) in [(70, 70), (1, 90), (5, 300), (170, 130)] {
        let (x, context, r) =
            (random(n_q, 16, 0), random(n_k, 16, 1), random(n_q, 16, 2));
        let padding = Mask::padding(&vec![true; n_k]).unwrap();
        for mask in [Mask::none(), Mask::causal(), Mask::window(40).unwrap().and(padding)]
        {
            let options = ForwardOptions::new().mask(mask).context(&context);
            let undropped = layer.forward(&x, options.clone()).unwrap().0;
            let options = options.dropout(0.3, rng);
            let run = |options| {
                let (output, cache) = layer.forward(&x, options).unwrap();
                let gradients = layer.backward(&cache, &r).unwrap();
                let mut all = vec![output, gradients.x, gradients.context.unwrap()];
                let named = gradients.parameters.named().into_iter();
                all.extend(named.map(|(_, matrix)| matrix.into_owned()));
                all
            };
            let right: Vec<DMatrix<f64>> = run(options.clone());
            assert!(off(&right[0], &undropped) > 0.01, "nothing was dropped");
            for engine in &engines {
                let given = run(options.clone().engine(engine.clone()));
                for (number, (given, right)) in given.iter().zip(&right).enumerate() {
                    let off = off(given, right);
                    let what = format!("{engine:?}, ({n_q}, {n_k}), result {number}");
                    assert!(off < 1e-12, "{what}: {off:e}");
                }
            }
        }
    }
}

/// A layer runs on the engine that its options name, backward as well, and keeps what that engine keeps.
pub fn options_choose_an_engine(engines: Engines<f64>) {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let layer = MultiHeadAttention::<f64>::xavier(6, 3, rng).unwrap();
    let x = random(9, 6, 3);
    let run = |options: ForwardOptions<f64>| {
        let (output, cache) = layer.forward(&x, options.mask(Mask::causal())).unwrap();
        let gradients = layer.backward(&cache, &output).unwrap();
        (output, gradients.x, cache)
    };
    let (output, grad_x, cache) = run(ForwardOptions::new());
    assert_eq!(cache.weights().len(), 3);
    for engine in with_two_tiles(engines, Tiles { queries: 2, keys: 2 }) {
        let (given, given_x, cache) = run(ForwardOptions::new().engine(engine.clone()));
        assert!([0, 3].contains(&cache.weights().len()));
        assert!(off(&given, &output) < 1e-14, "{engine:?}");
        assert!(off(&given_x, &grad_x) < 1e-13, "{engine:?}");
        let back = ForwardOptions::new().engine(engine).engine(ByWeights);
        assert_eq!(back, ForwardOptions::default());
    }
}
