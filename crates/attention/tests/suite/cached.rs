//! Decoding with a cache: whatever the chunks, the outputs are those of the whole text at once.

use attention::flash::{Flash, FlashOptions, Tiles};
use attention::testing::one_problem::{numbers, off};
use attention::testing::{mask_of_chunk, masks, score_rules};
use attention::{
    Float, KeyValueCache, Mask, MultiHeadAttention, Result, Rotary, RotaryPairs,
    ScoreRule,
};
use nalgebra::DMatrix;
use proptest::prelude::*;
use rand::{SeedableRng, rngs::ChaCha8Rng};

const D_MODEL: usize = 16;

fn layer<T: Float>(n_kv_heads: usize, rotary: bool) -> MultiHeadAttention<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let layer = MultiHeadAttention::xavier_grouped(D_MODEL, 4, n_kv_heads, rng).unwrap();
    let positions = Rotary::new(10_000.0, RotaryPairs::Halves).unwrap();
    if rotary { layer.with_rotary(positions).unwrap() } else { layer }
}

/// Tokens as models have them: some columns are a hundred times as large, and tokens come again.
fn tokens(n: usize, seed: u64) -> DMatrix<f64> {
    let mut x = numbers::<f64>(n, D_MODEL, seed);
    x.column_mut(3).scale_mut(100.0);
    for i in (5..n).step_by(3) {
        let before = x.row(i - 5).into_owned();
        x.set_row(i, &before);
    }
    x
}

/// The text in chunks of these lengths, again and again.
fn in_chunks<T: Float>(
    layer: &MultiHeadAttention<T>,
    mut cache: KeyValueCache<T>,
    x: &DMatrix<T>,
    chunks: &[usize],
    options: impl Into<FlashOptions>,
) -> Result<DMatrix<T>> {
    let options = options.into();
    let mut outputs = DMatrix::zeros(x.nrows(), x.ncols());
    let mut first = 0;
    for &chunk in chunks.iter().cycle() {
        if first == x.nrows() {
            break;
        }
        let n = chunk.min(x.nrows() - first);
        let output =
            layer.forward_cached(x.rows(first, n), &mut cache, options.clone())?;
        outputs.rows_mut(first, n).copy_from(&output);
        first += n;
        assert_eq!(cache.tokens(), first);
    }
    Ok(outputs)
}

/// Outputs with pages, and without: equal to the bit.
fn check_pages<T: Float>(
    layer: &MultiHeadAttention<T>,
    x: &DMatrix<T>,
    chunks: &[usize],
    page: usize,
    options: &FlashOptions,
) {
    let (whole, paged) = (KeyValueCache::new(), KeyValueCache::new().with_pages(page));
    let whole = in_chunks(layer, whole, x, chunks, options.clone()).unwrap();
    let paged = in_chunks(layer, paged.unwrap(), x, chunks, options.clone()).unwrap();
    assert_eq!(paged, whole);
}

fn single(x: &DMatrix<f64>) -> DMatrix<f32> {
    x.map(|x| x as f32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_is_the_whole_text(
        n in 1..60_usize,
        chunks in prop::collection::vec(1..20_usize, 1..4),
        n_kv_heads in prop::sample::select(vec![1, 2, 4]),
        rotary in any::<bool>(),
        biased in any::<bool>(),
    ) {
        let mut mask = Mask::causal();
        if biased {
            mask = mask.with_scores(ScoreRule::alibi(4).unwrap());
        }
        let x = tokens(n, 6);
        let layer64 = layer::<f64>(n_kv_heads, rotary);
        let (whole, _) = layer64.forward(&x, &mask).unwrap();
        let cut = in_chunks(&layer64, KeyValueCache::new(), &x, &chunks, &mask).unwrap();
        prop_assert!(off(&cut, &whole) < 1e-12);

        let (x, layer) = (single(&x), layer::<f32>(n_kv_heads, rotary));
        let (whole, _) = layer.forward(&x, &mask).unwrap();
        let cut = in_chunks(&layer, KeyValueCache::new(), &x, &chunks, &mask).unwrap();
        prop_assert!(off(&cut, &whole) < 1e-3); // scores of some thousands, of which f32 keeps seven digits
    }

    /// Also where several chunks of keys meet several pages.
    #[test]
    fn pages_change_no_bit(
        n in 1..90_usize,
        chunks in prop::collection::vec(1..20_usize, 1..4),
        page in 1..40_usize,
        keys in prop::sample::select(vec![1, 2, 5, 128]),
        n_kv_heads in prop::sample::select(vec![1, 2, 4]),
        rotary in any::<bool>(),
        biased in any::<bool>(),
    ) {
        let mut mask = Mask::causal();
        if biased {
            mask = mask.with_scores(ScoreRule::alibi(4).unwrap());
        }
        let engine = Flash::new().with_tiles(Tiles { queries: 16, keys }).unwrap();
        let options = FlashOptions::new().mask(mask).engine(engine);
        let x = tokens(n, 9);
        check_pages(&layer::<f64>(n_kv_heads, rotary), &x, &chunks, page, &options);
        check_pages(&layer::<f32>(n_kv_heads, rotary), &single(&x), &chunks, page, &options);
    }

    /// What is forgotten was seen by no later token.
    #[test]
    fn a_cache_with_a_window_is_the_mask(
        n in 1..80_usize,
        chunks in prop::collection::vec(1..9_usize, 1..4),
        width in 1..12_usize,
        sinks in 0..4_usize,
        page in 0..9_usize,
        rotary in any::<bool>(),
    ) {
        let (x, layer) = (tokens(n, 7), layer::<f64>(2, rotary));
        let mask = Mask::window_with_sinks(width, sinks).unwrap();
        let (whole, _) = layer.forward(&x, &mask).unwrap();
        let mut cache = KeyValueCache::with_window(width, sinks).unwrap();
        if page > 0 {
            cache = cache.with_pages(page).unwrap();
        }
        let cut = in_chunks(&layer, cache, &x, &chunks, Mask::none()).unwrap();
        prop_assert!(off(&cut, &whole) < 1e-12);
    }
}

/// A chunk of 2,048 keys lies in two pages that are read where they are, in one that is larger, or in three that have to be copied.
#[test]
fn a_chunk_may_lie_in_several_pages() {
    let engine = Flash::new().with_tiles(Tiles { queries: 1152, keys: 256 }).unwrap();
    let options = FlashOptions::new().mask(Mask::causal()).engine(engine);
    let (x, chunks) = (tokens(2500, 10), [2490, 1, 5, 1, 3]);
    for page in [1024, 2048, 1000] {
        check_pages(&layer::<f64>(2, true), &x, &chunks, page, &options);
        check_pages(&layer::<f32>(1, false), &single(&x), &chunks, page, &options);
    }
}

#[test]
fn a_window_bounds_the_memory() -> Result<()> {
    let (layer, x) = (layer::<f32>(2, true), single(&tokens(1, 8)));
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
            one.forward_cached(&x, &mut cache, ScoreRule::alibi(3)?).unwrap_err(),
            "`slopes` has 3 heads but n_heads = 4",
        ),
        (
            one.forward_cached(&x, &mut cache, FlashOptions::new().heads(3)).unwrap_err(),
            "`options.heads` is 3 but the layer has 4",
        ),
        (
            one.forward_cached(&x, &mut cache, FlashOptions::new().kv_heads(7))
                .unwrap_err(),
            "`options.kv_heads` is 7 but the layer has 2",
        ),
    ] {
        assert_eq!(error.to_string(), sentence);
        assert_eq!(cache, before);
    }
    let same = FlashOptions::new().mask(Mask::causal()).heads(4).kv_heads(2);
    assert!(one.forward_cached(&x, &mut cache, same).is_ok());

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

/// Every kind of mask and of rule for scores says of a text in chunks what it says of the whole, also where a window has forgotten tokens.
#[test]
fn masks_and_rules_for_scores_are_those_of_the_whole_text() -> Result<()> {
    let (n, layer) = (41, layer::<f64>(2, true));
    let x = numbers::<f64>(n, D_MODEL, 11);
    let mut cases: Vec<(String, Mask, ScoreRule)> = masks(n, n)
        .into_iter()
        .map(|(name, mask)| (name.to_owned(), mask, ScoreRule::none()))
        .collect();
    cases.extend(
        score_rules(4).into_iter().map(|(name, rule)| (name, Mask::none(), rule)),
    );
    let cut = |cache: &KeyValueCache<f64>, mask: &Mask, rule: &ScoreRule| {
        let (mut cache, mut outputs) = (cache.clone(), vec![]);
        let mut first = 0;
        for count in [7, 1, 1, 4, 13].into_iter().chain([1; 15]) {
            let mask = mask_of_chunk(mask, first..first + count);
            let mask = mask.with_scores(rule.clone());
            let rows = x.rows(first, count);
            outputs.push(layer.forward_cached(rows, &mut cache, mask)?);
            first += count;
        }
        assert_eq!(first, n);
        let rows: Vec<_> = outputs.iter().flat_map(|output| output.row_iter()).collect();
        Ok::<_, attention::Error>((DMatrix::from_rows(&rows), cache))
    };
    for (name, mask, rule) in cases {
        let mask = mask.and(Mask::causal());
        let whole = mask.clone().with_scores(rule.clone());
        let (right, _) = layer.forward(&x, &whole)?;
        let (given, cache) = cut(&KeyValueCache::new(), &mask, &rule)?;
        assert!(off(&given, &right) < 1e-12, "{name}");
        assert_eq!(cache.held(), n);
        for (width, sinks) in [(3, 0), (4, 2), (2, 5)] {
            let window = Mask::window_with_sinks(width, sinks)?;
            let (right, _) = layer.forward(&x, whole.clone().and(window))?;
            let cache = KeyValueCache::with_window(width, sinks)?;
            for cache in
                [cache.clone(), cache.clone().with_pages(2)?, cache.with_pages(3)?]
            {
                let (given, cache) = cut(&cache, &mask, &rule)?;
                let off = off(&given, &right);
                assert!(off < 1e-12, "{name}, window of {width} and {sinks}: {off}");
                assert!(cache.held() < n);
            }
        }
    }
    Ok(())
}

/// Pages for a cache that has forgotten tokens already.
#[test]
fn pages_come_late() -> Result<()> {
    let (x, layer) = (tokens(40, 12), layer::<f64>(2, true));
    let mask = Mask::from(ScoreRule::alibi(4)?);
    let window = Mask::window_with_sinks(3, 2)?;
    let (right, _) = layer.forward(&x, mask.clone().and(window))?;
    let mut cache = KeyValueCache::with_window(3, 2)?;
    for i in 0..40 {
        cache = if i == 15 { cache.with_pages(5)? } else { cache };
        cache = if i == 27 { cache.with_pages(4)? } else { cache };
        let given = layer.forward_cached(x.rows(i, 1), &mut cache, &mask)?;
        assert!(off(&given, &right.rows(i, 1).into_owned()) < 1e-12, "token {i}");
    }
    assert!(cache.held() < 20);
    Ok(())
}
