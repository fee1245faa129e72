//! The lines that a user of nalgebra would write at a first try. They compile as they stand, and do what they say.

use approx::assert_abs_diff_eq;
use attention::flash::flash;
use attention::{
    Adam, ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, Rotary, attention,
    positions::RotaryPairs,
};
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
    assert_abs_diff_eq!(moved, 0.05 * &gradients.parameters.w_q, epsilon = 1e-6);

    Adam::new(1e-3).step(&mut layer, &gradients)?;

    let y = flash(&q, &k, &v, Mask::causal())?;
    assert_abs_diff_eq!(y, attention(&q, &k, &v, Mask::causal())?.0, epsilon = 1e-5);

    let mut rng = rand::rng();
    let options =
        ForwardOptions::new().mask(Mask::causal()).dropout(0.1, &mut rng).flash();
    let (y, cache) = layer.forward(&x, options)?;
    assert_eq!((y.shape(), cache.weights().len()), ((6, 64), 0)); // no weights are kept

    let outputs = layer.forward_batch(&batch, Mask::causal())?;
    assert_eq!(outputs.0[1].shape(), (4, 64));
    Ok(())
}

/// A model that writes: a layer, eight letters, and the loop.
#[test]
fn a_text_in_ten_lines() -> Result<(), attention::Error> {
    let letters = DMatrix::<f32>::from_fn(8, 64, |i, j| ((5 * i + j) as f32).sin());
    let layer = MultiHeadAttention::<f32>::xavier_grouped(64, 8, 2, &mut rand::rng())?
        .with_rotary(Rotary::new(10_000.0, RotaryPairs::Halves)?)?;

    let mut text = vec![3, 1, 4];
    let prompt = letters.select_rows(&text);
    let mut cache = KeyValueCache::new();
    let mut output = layer.forward_cached(&prompt, &mut cache, Mask::causal())?;
    while text.len() < 40 {
        let scores = &letters * output.row(output.nrows() - 1).transpose();
        text.push(scores.imax());
        let token = letters.rows(text[text.len() - 1], 1);
        output = layer.forward_cached(token, &mut cache, Mask::causal())?;
    }
    assert_eq!(cache.tokens(), 40);

    // The last output is that of the whole text at once.
    let (whole, _) = layer.forward(&letters.select_rows(&text), Mask::causal())?;
    assert_abs_diff_eq!(output, whole.rows(39, 1).into_owned(), epsilon = 1e-5);
    Ok(())
}

/// `use attention::*` beside a program's own crates of the same version: no name of this crate hides `rand` or `nalgebra`.
mod everything {
    use attention::*;
    use nalgebra::DMatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

    #[test]
    fn a_glob_import_hides_nothing() -> Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let x = DMatrix::<f64>::from_fn(3, 4, |_, _| rng.random());
        let layer = MultiHeadAttention::xavier(4, 2, &mut rng)?;
        let (output, _) =
            layer.forward(&x, ForwardOptions::new().mask(Mask::causal()))?;
        let by_tiles = flash::flash(&x, &x, &x, Mask::causal())?;
        assert_eq!((output.shape(), by_tiles.shape()), ((3, 4), (3, 4)));
        Ok(())
    }
}
