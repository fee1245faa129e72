//! The lines that a user of nalgebra would write at a first try. They compile as they stand, and do what they say.

use attention::flash::flash;
use attention::{Adam, ForwardOptions, Mask, MultiHeadAttention, attention};
use nalgebra::DMatrix;

#[test]
#[expect(clippy::needless_borrows_for_generic_args, reason = "a first try borrows")]
fn ten_lines() -> Result<(), attention::Error> {
    let numbers = |rows, columns| {
        DMatrix::<f32>::from_fn(rows, columns, |i, j| ((7 * i + 3 * j) as f32).sin())
    };
    let (q, k, v) = (numbers(6, 16), numbers(6, 16), numbers(6, 16));
    let (x, target) = (numbers(6, 64), numbers(6, 64));
    let batch = [numbers(6, 64), numbers(4, 64)];

    let (y, cache) =
        attention(&q.columns(0, 8), &k.columns(0, 8), &v.columns(0, 8), Mask::causal())?;
    assert_eq!((y.shape(), cache.weights.shape()), ((6, 8), (6, 6)));

    let mut layer = MultiHeadAttention::<f32>::xavier(64, 8, &mut rand::rng())?;
    let (y, cache) = layer.forward(&x, Mask::causal())?;
    let before = layer.clone();
    let gradients = layer.backward(&cache, &(y - &target))?;
    layer.parameters.step(&gradients.parameters, 0.05)?;
    let moved = &before.parameters.w_q - &layer.parameters.w_q;
    assert!((moved - 0.05 * &gradients.parameters.w_q).amax() < 1e-6);

    Adam::new(1e-3).step(&mut layer, &gradients)?;

    let y = flash(&q, &k, &v, Mask::causal())?;
    assert!((y - attention(&q, &k, &v, Mask::causal())?.0).amax() < 1e-5);

    let mut rng = rand::rng();
    let options =
        ForwardOptions::new().mask(Mask::causal()).dropout(0.1, &mut rng).flash();
    let (y, cache) = layer.forward(&x, options)?;
    assert_eq!((y.shape(), cache.heads().len()), ((6, 64), 0)); // no weights are kept

    let outputs = layer.forward_batch(&batch, Mask::causal())?;
    assert_eq!(outputs.0[1].shape(), (4, 64));
    Ok(())
}
