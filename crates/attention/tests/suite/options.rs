//! Masks by value and by reference, the engines, and what a mask or a list of masks becomes where options are asked for.

use attention::flash::{Flash, FlashOptions, Inputs, Tiles, flash};
use attention::testing::one_problem::off;
use attention::testing::{masks, random};
use attention::{
    BatchOptions, Engine, ForwardOptions, Mask, MultiHeadAttention, Result, attention,
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
        assert_eq!(Flash::new().forward(&lent), Flash::new().forward(&owner));
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
fn both_engines_agree_and_an_engine_has_settings() -> Result<()> {
    let (x, layer) = (random(9, 6, 3), layer());
    let run =
        |options: ForwardOptions<f64>| layer.forward(&x, options.mask(Mask::causal()));
    let (naive, cache) = run(ForwardOptions::new().engine(Engine::Naive))?;
    assert_eq!(cache.heads().len(), 3);
    assert_eq!(naive, layer.forward(&x, Mask::causal())?.0);
    let tiles =
        Flash::new().with_tiles(Tiles { queries: 2, keys: 2 })?.with_threads(1)?;
    for options in [
        ForwardOptions::new().flash(),
        ForwardOptions::new().engine(Engine::Flash(Flash::new())),
        ForwardOptions::new().engine(tiles),
    ] {
        let (by_tiles, cache) = run(options)?;
        assert!(cache.heads().is_empty());
        assert!(off(&by_tiles, &naive) < 1e-14);
    }
    let back = ForwardOptions::new().flash().engine(Engine::Naive);
    assert_eq!(back, ForwardOptions::<f64>::default());
    assert_eq!(FlashOptions::default(), FlashOptions::from(Mask::none()));
    assert_eq!(BatchOptions::<f64>::from(Mask::none()), ForwardOptions::new().into());
    Ok(())
}
