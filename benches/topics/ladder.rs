//! From naive to fast attention, one change at a time. What the parts cost by themselves, from which each change's gain can
//! be predicted, is in `parts.rs`.
//!
//! `cargo bench --bench ladder` runs it here. Compare within one run: the numbers are those of the machine at hand.

use attention::engine::Engine as _;
use attention::flash::{Inputs, Tiles, tiled_attention, tiled_attention_backward};
use attention::{Mask, attention, attention_backward};
use criterion::{Criterion, criterion_group, criterion_main};
use fast::Flash;
use laboratory::{Exponentials, LibraryFlash};
use mimalloc::MiMalloc;
use topics::{briefly, normal, time};

/// Keeps the memory of a matrix that was dropped for the next one. The system's allocator may give it back to the system, or not,
/// and what the naive program takes would depend on that.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const N: usize = 2048;
const D: usize = 64;
const HEADS: usize = 8;
const SMALL: Tiles = Tiles { queries: 64, keys: 64 };

/// The steps with products from a library, each with all that the one before it has.
fn with_library() -> [(&'static str, LibraryFlash); 4] {
    let small = |exponentials| LibraryFlash { tiles: SMALL, exponentials };
    [
        ("scratch", small(Exponentials::OneByOne)),
        ("portable", small(Exponentials::Portable)),
        ("vector", small(Exponentials::Vector)),
        ("tiles", LibraryFlash::default()),
    ]
}

/// The steps with products of the crate's own.
fn with_micro_kernels() -> [(&'static str, Flash); 2] {
    let flash = |threads| Flash::new().with_threads(threads).expect("so many threads");
    [("registers", flash(1)), ("threads", flash(2))]
}

fn ladder(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ladder");
    briefly(&mut group);
    let [q, k, v, grad] =
        std::array::from_fn(|seed| normal::<f32>(N, HEADS * D, seed as u64));
    for (how, mask) in [("", Mask::none()), (" causal", Mask::causal())] {
        let inputs =
            Inputs::new(&q, &k, &v, &mask).and_then(|inputs| inputs.with_heads(HEADS));
        let inputs = inputs.expect("shapes that fit");
        let name = |pass: &str, step: &str| {
            format!("{pass}{how} {step}, f32, d = {D}, heads = {HEADS}")
        };

        let heads: Vec<_> = (0..HEADS)
            .map(|h| [&q, &k, &v, &grad].map(|x| x.columns(h * D, D)))
            .collect();
        time(&mut group, &name("forward", "naive"), N, || {
            heads.iter().try_for_each(|&[q, k, v, _]| attention(q, k, v, &mask).map(drop))
        });
        time(&mut group, &name("both", "naive"), N, || {
            heads.iter().try_for_each(|&[q, k, v, grad]| {
                let (_, cache) = attention(q, k, v, &mask)?;
                attention_backward(&cache, grad).map(drop)
            })
        });
        time(&mut group, &name("forward", "tiled"), N, || {
            tiled_attention(&inputs, SMALL)
        });
        time(&mut group, &name("both", "tiled"), N, || {
            let forward = tiled_attention(&inputs, SMALL)?;
            tiled_attention_backward(&inputs, &forward, &grad, SMALL)
        });
        for (step, flash) in with_library() {
            time(&mut group, &name("forward", step), N, || flash.forward(&inputs));
        }
        for (step, flash) in with_micro_kernels() {
            time(&mut group, &name("forward", step), N, || flash.forward(&inputs));
            time(&mut group, &name("both", step), N, || {
                let forward = flash.forward(&inputs).expect("inputs that fit");
                flash.backward(&inputs, &forward, grad.as_view())
            });
        }
    }
}

/// Steps 5, 6 and 7 once more, later in the same run: how far are two runs apart?
fn tiles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tiles");
    briefly(&mut group);
    let [q, k, v] = std::array::from_fn(|seed| normal::<f32>(N, HEADS * D, seed as u64));
    for (how, mask) in [("", Mask::none()), (" causal", Mask::causal())] {
        let inputs =
            Inputs::new(&q, &k, &v, &mask).and_then(|inputs| inputs.with_heads(HEADS));
        let inputs = inputs.expect("shapes that fit");
        let name = |step: &str, Tiles { queries, keys }: Tiles| {
            format!("{step}{how}, f32, queries = {queries}, keys = {keys}")
        };
        for tiles in [SMALL, LibraryFlash::default().tiles] {
            let flash = LibraryFlash { tiles, ..LibraryFlash::default() };
            time(&mut group, &name("library", tiles), N, || flash.forward(&inputs));
        }
        let flash = Flash::new().with_threads(1).expect("one thread");
        time(&mut group, &name("registers", Flash::TILES), N, || flash.forward(&inputs));
    }
}

criterion_group!(all, ladder, tiles);
criterion_main!(all);
