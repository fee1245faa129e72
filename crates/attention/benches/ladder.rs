//! From naive to fast attention, one change at a time; and what the parts cost by themselves, from which each change's gain
//! can be foretold.
//!
//! `cargo bench --bench ladder` runs it. Compare within one run: the numbers are those of the machine at hand.

mod support;

use attention::flash::{
    Exponentials, Flash, Float, Inputs, Products, Tiles, tiled_attention,
    tiled_attention_backward,
};
use attention::{Mask, attention, attention_backward};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use gemmkit::{MatMut, MatRef, Parallelism, Workspace, gemm_with};
use nalgebra::{DMatrix, DMatrixView, Dyn};
use std::hint::black_box;
use support::{briefly, inputs, normal, time};

const N: usize = 2048;
const D: usize = 64;
const HEADS: usize = 8;
const SMALL: Tiles = Tiles { queries: 64, keys: 64 };

/// The steps that are settings of [`Flash`], each with all settings of the one before.
fn settings() -> [(&'static str, Flash); 6] {
    let with = |products, exponentials| {
        let flash = Flash::new().with_products(products).with_exponentials(exponentials);
        flash
            .with_threads(1)
            .and_then(|flash| flash.with_tiles(SMALL))
            .expect("sizes above 0")
    };
    let best = || Flash::new().with_threads(1).expect("one thread");
    use Exponentials::{OneByOne, Portable, Vector};
    use Products::{Gemmkit, Matrixmultiply};
    [
        ("scratch", with(Matrixmultiply, OneByOne)),
        ("portable", with(Matrixmultiply, Portable)),
        ("vector", with(Matrixmultiply, Vector)),
        ("products", with(Gemmkit, Vector)),
        ("tiles", best()),
        ("threads", best().with_threads(2).expect("two threads")),
    ]
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

        let head = |x: &DMatrix<f32>, h: usize| x.columns(h * D, D).into_owned();
        let heads: Vec<_> =
            (0..HEADS).map(|h| [&q, &k, &v, &grad].map(|x| head(x, h))).collect();
        time(&mut group, &name("forward", "naive"), N, || {
            heads.iter().try_for_each(|[q, k, v, _]| attention(q, k, v, &mask).map(drop))
        });
        time(&mut group, &name("both", "naive"), N, || {
            heads.iter().try_for_each(|[q, k, v, grad]| {
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
        for (step, flash) in settings() {
            time(&mut group, &name("forward", step), N, || flash.forward(&inputs));
            time(&mut group, &name("both", step), N, || {
                flash.backward(&inputs, &flash.forward(&inputs), &grad)
            });
        }
    }
}

/// The last step but one, over the sizes of tiles.
fn tiles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tiles");
    briefly(&mut group);
    let [q, k, v] = std::array::from_fn(|seed| normal::<f32>(N, HEADS * D, seed as u64));
    for (how, mask) in [("", Mask::none()), (" causal", Mask::causal())] {
        let inputs =
            Inputs::new(&q, &k, &v, &mask).and_then(|inputs| inputs.with_heads(HEADS));
        let inputs = inputs.expect("shapes that fit");
        for queries in [64, 128, 256, 512] {
            for keys in [64, 128, 256, 512] {
                let flash = Flash::new().with_threads(1);
                let flash =
                    flash.and_then(|flash| flash.with_tiles(Tiles { queries, keys }));
                let flash = flash.expect("sizes above 0");
                let name =
                    format!("forward{how}, f32, queries = {queries}, keys = {keys}");
                time(&mut group, &name, N, || flash.forward(&inputs));
            }
        }
    }
}

/// What the steps exchange: exponentials, products and copies, each by itself.
fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts");
    briefly(&mut group);
    exponentials(&mut group);
    for (rows, columns) in [(SMALL.queries, SMALL.keys), (256, 512)] {
        products(&mut group, rows, columns);
    }
    let tile = normal::<f32>(SMALL.queries, SMALL.keys, 0);
    time(
        &mut group,
        &format!("copied tile, f32, columns = {}", SMALL.keys),
        SMALL.queries,
        || black_box(&tile).clone(),
    );
    let [q, k, _] = inputs::<f32>(N, D);
    time(&mut group, &format!("product whole, f32, d = {D}"), N, || {
        black_box(&q) * k.transpose() // (n, n), as the naive program makes it
    });
}

/// `n` exponentials in the first cache.
fn exponentials(group: &mut BenchmarkGroup<WallTime>) {
    const COUNT: usize = 4096;
    let x: Vec<f32> = (0..COUNT).map(|i| -(i as f32) / 200.0).collect();
    let mut y = vec![0.0; COUNT];
    time(group, "exponentials one by one, f32", COUNT, || {
        y.iter_mut().zip(black_box(&x)).for_each(|(y, x)| *y = x.exp2());
    });
    time(group, "exponentials portable, f32", COUNT, || {
        all(&mut y, black_box(&x), f32::exp2_polynomial::<false>)
    });
    let arch = pulp::Arch::new();
    time(group, "exponentials vector, f32", COUNT, || {
        let (x, y) = (black_box(&x), &mut y);
        arch.dispatch(
            #[inline(always)]
            || all(y, x, f32::exp2_polynomial::<true>),
        );
    });
}

#[inline(always)]
fn all(y: &mut [f32], x: &[f32], exp2: impl Fn(f32) -> f32) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = exp2(x));
}

/// The product of a block of queries and one of keys that lie in larger matrices, into a tile that is there already.
fn products(group: &mut BenchmarkGroup<WallTime>, rows: usize, columns: usize) {
    let (q, k) = (normal::<f32>(N, D, 0), normal::<f32>(N, D, 1));
    let mut tile = DMatrix::<f32>::zeros(rows, columns);
    let sizes = format!("f32, d = {D}, columns = {columns}");
    time(group, &format!("product matrixmultiply, {sizes}"), rows, || {
        let k = k.as_slice();
        let (strides, shape) = ((Dyn(N), Dyn(1)), (Dyn(D), Dyn(columns)));
        let k_transposed = DMatrixView::from_slice_with_strides_generic(
            k, shape.0, shape.1, strides.0, strides.1,
        );
        tile.gemm(1.0, &black_box(&q).rows(0, rows), &k_transposed, 0.0);
    });
    let workspace = &mut Workspace::default();
    time(group, &format!("product gemmkit, {sizes}"), rows, || {
        let n = N as isize;
        let q = MatRef::new(black_box(q.as_slice()), rows, D, 1, n);
        let k = MatRef::new(k.as_slice(), D, columns, n, 1);
        let tile = MatMut::from_col_major(tile.as_mut_slice(), rows, columns);
        gemm_with(workspace, 1.0, q, k, 0.0, tile, Parallelism::Serial);
    });
}

criterion_group!(all_of_it, parts, ladder, tiles);
criterion_main!(all_of_it);
