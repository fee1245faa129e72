//! Decoding with a cache: whatever the chunks, the outputs are those of the whole text at once.

use super::Engines;
use crate::support::{masks, numbers, off, score_rules};
use attention::engine::Rule;
use attention::flash::Tiles;
use attention::{
    Float, ForwardOptions, KeyValueCache, Mask, MultiHeadAttention, Rotary, ScoreRule,
    positions::RotaryPairs,
};
use nalgebra::{DMatrix, convert};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use std::ops::Range;

const D_MODEL: usize = 16;

pub fn layer<T: Float>(n_kv_heads: usize, rotary: bool) -> MultiHeadAttention<T> {
    let rng = &mut ChaCha8Rng::seed_from_u64(5);
    let layer = MultiHeadAttention::xavier_grouped(D_MODEL, 4, n_kv_heads, rng).unwrap();
    let positions = Rotary::new(10_000.0, RotaryPairs::Halves).unwrap();
    if rotary { layer.with_rotary(positions).unwrap() } else { layer }
}

/// Tokens as models have them: some columns are a hundred times as large, and tokens come again.
pub fn tokens<T: Float>(n: usize, seed: u64) -> DMatrix<T> {
    let mut x = numbers::<f64>(n, D_MODEL, seed);
    x.column_mut(3).scale_mut(100.0);
    for i in (5..n).step_by(3) {
        let before = x.row(i - 5).into_owned();
        x.set_row(i, &before);
    }
    x.map(convert)
}

/// The text in chunks of these lengths, again and again.
pub fn in_chunks<T: Float>(
    layer: &MultiHeadAttention<T>,
    mut cache: KeyValueCache<T>,
    x: &DMatrix<T>,
    chunks: &[usize],
    options: &ForwardOptions<T>,
) -> DMatrix<T> {
    let mut outputs = DMatrix::zeros(x.nrows(), x.ncols());
    let mut first = 0;
    for &chunk in chunks.iter().cycle() {
        if first == x.nrows() {
            break;
        }
        let rows = x.rows(first, chunk.min(x.nrows() - first));
        let output = layer.forward_cached(rows, &mut cache, options.clone()).unwrap();
        outputs.rows_mut(first, rows.nrows()).copy_from(&output);
        first += rows.nrows();
        assert_eq!(cache.tokens(), first);
    }
    outputs
}

/// The mask of a text as it is for some of its tokens, which ask all up to the last of them. A rule for scores is left out.
fn mask_of_chunk(mask: &Mask, chunk: Range<usize>) -> Mask {
    let Range { start, end } = chunk;
    let of_rule = |rule: &Rule| match rule {
        Rule::Causal => Ok(Mask::causal()),
        Rule::Window { width, sinks } => Mask::window_with_sinks(*width, *sinks),
        Rule::Padding(valid) => Mask::padding(&valid[..end]),
        Rule::Dense(allowed) => {
            Mask::dense(allowed.view((start, 0), (end - start, end)).into_owned())
        }
        Rule::Blocks { size, allowed } => {
            let seen = |i, j| allowed[((start + i) / size, j / size)];
            Mask::dense(DMatrix::from_fn(end - start, end, seen))
        }
        Rule::Documents { ids, .. } => Mask::documents(&ids[..end]),
    };
    let parts = mask.rules().iter().map(|rule| of_rule(rule).unwrap());
    parts.fold(Mask::none(), Mask::and)
}

/// A text, how it is cut, a layer and a mask.
struct Case<T: Float> {
    x: DMatrix<T>,
    chunks: Vec<usize>,
    layer: MultiHeadAttention<T>,
    mask: Mask,
    page: usize,
    keys: usize,
}

impl<T: Float> Case<T> {
    fn random(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mask = if rng.random() {
            Mask::causal().with_scores(ScoreRule::alibi(4).unwrap())
        } else {
            Mask::causal()
        };
        Case {
            x: tokens(rng.random_range(1..90), 6),
            chunks: (0..rng.random_range(1..4))
                .map(|_| rng.random_range(1..20))
                .collect(),
            layer: layer(1 << rng.random_range(0..3), rng.random()),
            mask,
            page: rng.random_range(1..40),
            keys: [1, 2, 5, 128][rng.random_range(0..4)],
        }
    }

    fn tiles(&self) -> Tiles {
        Tiles { queries: 16, keys: self.keys }
    }
}

pub fn any_cut_is_the_whole_text<T: Float>(engines: Engines<T>) {
    // Scores of some thousands, of which f32 keeps seven digits.
    let most = if size_of::<T>() == 4 { 1e-3 } else { 1e-12 };
    for seed in 0..40 {
        let case = Case::<T>::random(seed);
        for engine in engines(Some(case.tiles())) {
            let options = ForwardOptions::new().mask(&case.mask).engine(engine.clone());
            let (whole, _) = case.layer.forward(&case.x, options.clone()).unwrap();
            let empty = KeyValueCache::new();
            let cut = in_chunks(&case.layer, empty, &case.x, &case.chunks, &options);
            assert!(off(&cut, &whole) < most, "{engine:?}, seed {seed}");
        }
    }
}

/// Outputs with pages, and without: equal to the bit, also where several chunks of keys meet several pages.
pub fn pages_change_no_bit<T: Float>(engines: Engines<T>) {
    for seed in 0..40 {
        let case = Case::<T>::random(seed);
        for engine in engines(Some(case.tiles())) {
            let options = ForwardOptions::new().mask(&case.mask).engine(engine.clone());
            let run =
                |cache| in_chunks(&case.layer, cache, &case.x, &case.chunks, &options);
            let paged = KeyValueCache::new().with_pages(case.page).unwrap();
            assert_eq!(run(paged), run(KeyValueCache::new()), "{engine:?}, seed {seed}");
        }
    }
}

/// What is forgotten was seen by no later token.
pub fn a_window_is_its_mask(engines: Engines<f64>) {
    for seed in 0..40 {
        let case = Case::<f64>::random(seed);
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let (width, sinks) = (rng.random_range(1..12), rng.random_range(0..4));
        let mut cache = KeyValueCache::with_window(width, sinks).unwrap();
        if rng.random() {
            cache = cache.with_pages(rng.random_range(1..9)).unwrap();
        }
        let mask = Mask::window_with_sinks(width, sinks).unwrap();
        for engine in engines(Some(case.tiles())) {
            let options = ForwardOptions::new().engine(engine.clone());
            let (whole, _) =
                case.layer.forward(&case.x, options.clone().mask(&mask)).unwrap();
            let cut =
                in_chunks(&case.layer, cache.clone(), &case.x, &case.chunks, &options);
            assert!(off(&cut, &whole) < 1e-12, "{engine:?}, seed {seed}");
        }
    }
}

/// Every kind of mask and of rule for scores says of a text in chunks what it says of the whole, also where a window has forgotten tokens.
pub fn masks_and_rules_are_those_of_the_whole_text(engines: Engines<f64>) {
    let (n, layer) = (41, layer::<f64>(2, true));
    let x = numbers::<f64>(n, D_MODEL, 11);
    let masks = masks(n, n).into_iter();
    let mut cases: Vec<_> = masks
        .map(|(name, mask)| {
            (name.to_owned(), mask.and(Mask::causal()), ScoreRule::none())
        })
        .collect();
    let rules = score_rules(4).into_iter();
    cases.extend(rules.map(|(name, rule)| (name, Mask::causal(), rule)));
    for engine in engines(Some(Tiles { queries: 16, keys: 5 })) {
        let with = |mask: Mask| ForwardOptions::new().mask(mask).engine(engine.clone());
        let cut = |mut cache: KeyValueCache<f64>, mask: &Mask, rule: &ScoreRule| {
            let (mut outputs, mut first) = (DMatrix::zeros(n, D_MODEL), 0);
            for count in [7, 1, 1, 4, 13].into_iter().chain([1; 15]) {
                let mask = mask_of_chunk(mask, first..first + count);
                let options = with(mask.with_scores(rule.clone()));
                let output =
                    layer.forward_cached(x.rows(first, count), &mut cache, options);
                outputs.rows_mut(first, count).copy_from(&output.unwrap());
                first += count;
            }
            assert_eq!(first, n);
            (outputs, cache)
        };
        for (name, mask, rule) in &cases {
            let whole = mask.clone().with_scores(rule.clone());
            let (right, _) = layer.forward(&x, with(whole.clone())).unwrap();
            let (given, cache) = cut(KeyValueCache::new(), mask, rule);
            assert!(off(&given, &right) < 1e-12, "{engine:?}, {name}");
            assert_eq!(cache.held(), n);
            for (width, sinks) in [(3, 0), (4, 2), (2, 5)] {
                let window = Mask::window_with_sinks(width, sinks).unwrap();
                let whole = with(whole.clone().and(window));
                let (right, _) = layer.forward(&x, whole).unwrap();
                let cache = KeyValueCache::with_window(width, sinks).unwrap();
                let paged = [2, 3].map(|page| cache.clone().with_pages(page).unwrap());
                for cache in paged.into_iter().chain([cache]) {
                    let (given, cache) = cut(cache, mask, rule);
                    let off = off(&given, &right);
                    assert!(
                        off < 1e-12,
                        "{engine:?}, {name}, window of {width} and {sinks}: {off}"
                    );
                    assert!(cache.held() < n);
                }
            }
        }
    }
}

/// Pages for a cache that has forgotten tokens already.
pub fn pages_come_late(engines: Engines<f64>) {
    let (x, layer) = (tokens(40, 12), layer::<f64>(2, true));
    let mask = Mask::from(ScoreRule::alibi(4).unwrap());
    let window = Mask::window_with_sinks(3, 2).unwrap();
    for engine in engines(None) {
        let with = |mask: Mask| ForwardOptions::new().mask(mask).engine(engine.clone());
        let whole = with(mask.clone().and(window.clone()));
        let (right, _) = layer.forward(&x, whole).unwrap();
        let mut cache = KeyValueCache::with_window(3, 2).unwrap();
        for i in 0..40 {
            cache = if i == 15 { cache.with_pages(5).unwrap() } else { cache };
            cache = if i == 27 { cache.with_pages(4).unwrap() } else { cache };
            let token = x.rows(i, 1);
            let given = layer.forward_cached(token, &mut cache, with(mask.clone()));
            let off = off(&given.unwrap(), &right.rows(i, 1).into_owned());
            assert!(off < 1e-12, "{engine:?}, token {i}: {off}");
        }
        assert!(cache.held() < 20);
    }
}
