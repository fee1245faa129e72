//! Masks by value and by reference, and what a mask or a list of masks becomes where options are asked for.

use crate::support::{masks, random};
use attention::engine::{Engine, Tiled};
use attention::flash::{Inputs, flash};
use attention::{
    BatchOptions, ForwardOptions, Mask, MultiHeadAttention, Result, attention,
    attention_weights,
};
use rand::{SeedableRng, rngs::ChaCha8Rng};

fn layer() -> MultiHeadAttention<f64> {
    MultiHeadAttention::xavier(6, 3, &mut ChaCha8Rng::seed_from_u64(0)).unwrap()
}

#[test]
fn a_mask_may_be_given_or_lent() -> Result<()> {
    let (x, layer) = (random(5, 6, 1), layer());
    for (_, mask) in masks(5, 5) {
        let given = mask.clone();
        assert_eq!(attention(&x, &x, &x, &mask)?, attention(&x, &x, &x, given.clone())?);
        assert_eq!(
            attention_weights(&x, &x, &mask)?,
            attention_weights(&x, &x, given.clone())?
        );
        assert_eq!(flash(&x, &x, &x, &mask)?, flash(&x, &x, &x, given.clone())?);
        let lent = Inputs::new(&x, &x, &x, &mask)?;
        let owner = Inputs::new(&x, &x, &x, given.clone())?;
        let by_tiles = Tiled::default();
        assert_eq!(by_tiles.forward(&lent)?, by_tiles.forward(&owner)?);
        assert_eq!(layer.forward(&x, &mask)?, layer.forward(&x, given.clone())?);
        let options = ForwardOptions::new().mask(&mask);
        assert_eq!(layer.forward(&x, options)?, layer.forward(&x, given.clone())?);
        let batch = [x.clone(), x.clone()];
        assert_eq!(
            layer.forward_batch(&batch, &mask)?,
            layer.forward_batch(&batch, vec![given; 2])?
        );
    }
    Ok(())
}

/// The matrix of a dense mask is not copied: not into a clone, not into the caches of the heads.
#[test]
fn a_clone_of_a_mask_shares_its_matrix() -> Result<()> {
    let n = 1024;
    let mask = Mask::dense(nalgebra::DMatrix::from_fn(n, n, |i, j| j <= i))?;
    let x = random(n, 6, 2);
    let bytes = |mask: &Mask| {
        allocation_counter::measure(|| drop(Inputs::new(&x, &x, &x, mask).unwrap()))
            .bytes_total
    };
    assert!(bytes(&mask) < (n * n / 16) as u64, "{} bytes", bytes(&mask));
    Ok(())
}

#[test]
fn options_for_a_batch_are_those_of_each_sequence() {
    assert_eq!(BatchOptions::<f64>::from(Mask::none()), ForwardOptions::new().into());
}
