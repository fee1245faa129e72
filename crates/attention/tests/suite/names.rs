//! `use attention::*` beside a program's own crates of the same version: no name of this crate hides `rand` or `nalgebra`.

use attention::*;
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

#[test]
fn a_glob_import_hides_nothing() -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let x = DMatrix::<f64>::from_fn(3, 4, |_, _| rng.random());
    let layer = MultiHeadAttention::xavier(4, 2, &mut rng)?;
    let (output, _) = layer.forward(&x, ForwardOptions::new().mask(Mask::causal()))?;
    let by_tiles = flash::flash(&x, &x, &x, Mask::causal())?;
    assert_eq!((output.shape(), by_tiles.shape()), ((3, 4), (3, 4)));
    Ok(())
}
