//! Decoding with a cache: memory and wrong input. The suite of engines has what every engine computes with one.

use crate::engines::cached::{layer, tokens};
use attention::{ForwardOptions, KeyValueCache, Mask, Result, ScoreRule};
use rand::{SeedableRng, rngs::ChaCha8Rng};

#[test]
fn a_window_bounds_the_memory() -> Result<()> {
    let (layer, x) = (layer::<f32>(2, true), tokens(1, 8));
    let mut cache = KeyValueCache::with_window(16, 2)?;
    let mut most = 0;
    for _ in 0..200 {
        layer.forward_cached(&x, &mut cache, Mask::causal())?;
        most = most.max(cache.held());
    }
    assert_eq!(cache.tokens(), 200);
    assert!(most <= 2 * 16 + 2, "{most}");
    assert_eq!(cache.bytes(), cache.held() * 2 * 2 * 4 * 4); // keys and values, two heads, four wide

    let mut cache = KeyValueCache::with_window(16, 2)?.with_pages(5)?;
    let mut most = 0;
    for _ in 0..200 {
        layer.forward_cached(&x, &mut cache, Mask::causal())?;
        most = most.max(cache.held());
    }
    assert!(most <= 16 + 2 + 2 * 5, "{most}");
    assert_eq!(
        KeyValueCache::<f32>::new().with_pages(0).unwrap_err().to_string(),
        "`tokens` is 0 but it must be at least 1"
    );
    Ok(())
}

/// With an error nothing is added.
#[test]
fn wrong_input_leaves_the_cache_as_it_was() -> Result<()> {
    let (one, other, x) = (layer::<f64>(2, false), layer::<f64>(1, false), tokens(3, 9));
    let mut cache = KeyValueCache::new();
    one.forward_cached(&x, &mut cache, Mask::causal())?;
    let before = cache.clone();
    let dropping = ForwardOptions::new().dropout(0.5, &mut ChaCha8Rng::seed_from_u64(0));
    for (error, sentence) in [
        (
            other.forward_cached(&x, &mut cache, Mask::causal()).unwrap_err(),
            "`cache` is of other parameters but only the layer that made it, unchanged, can use it",
        ),
        (
            one.forward_cached(&x, &mut cache, Mask::padding(&[true; 3])?).unwrap_err(),
            "`valid` has 3 entries but n_k = 6",
        ),
        (
            one.forward_cached(x.columns(0, 3), &mut cache, Mask::causal()).unwrap_err(),
            "`x` has 3 columns but the layer has d_model = 16",
        ),
        (
            one.forward_cached(&x, &mut cache, Mask::from(ScoreRule::alibi(3)?))
                .unwrap_err(),
            "`slopes` has 3 heads but n_heads = 4",
        ),
        (
            one.forward_cached(&x, &mut cache, ForwardOptions::new().context(&x))
                .unwrap_err(),
            "`options.context` is given but a cache holds the tokens of one text that is written",
        ),
        (
            one.forward_cached(&x, &mut cache, dropping).unwrap_err(),
            "`options.dropout` is given but a cache holds the tokens of one text that is written",
        ),
    ] {
        assert_eq!(error.to_string(), sentence);
        assert_eq!(cache, before);
    }
    // Where a window would have forgotten something, too.
    let mut cache = KeyValueCache::with_window(2, 0)?;
    for i in 0..3 {
        one.forward_cached(x.rows(i, 1), &mut cache, Mask::none())?;
    }
    let before = cache.clone();
    let of_those_held = Mask::padding(&[true; 3])?;
    let error = one.forward_cached(x.rows(0, 1), &mut cache, of_those_held).unwrap_err();
    assert_eq!(error.to_string(), "`valid` has 3 entries but n_k = 4");
    assert_eq!(cache, before);
    one.forward_cached(x.rows(0, 1), &mut cache, Mask::padding(&[true; 4])?)?;
    assert!(cache.held() < 4);
    Ok(())
}
