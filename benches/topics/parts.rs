//! The parts of attention, each by itself: exponentials and products of tiles. From these the gains of the steps in `ladder.rs` can be predicted.
//!
//! `cargo bench --bench parts` runs it here. Compare within one run: the numbers are those of the machine at hand.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use fast::Float as _;
use fast::{Flash, Part, TileProducts};
use mimalloc::MiMalloc;
use nalgebra::{DMatrix, DMatrixView, Dyn};
use std::hint::black_box;
use topics::{briefly, normal, time};

/// As in `ladder.rs`.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const N: usize = 2048;
const D: usize = 64;
const SMALL: usize = 64;

/// The parts that differ from step to step: exponentials and products, each by itself.
fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("parts");
    briefly(&mut group);
    exponentials(&mut group);
    for (rows, columns) in [(SMALL, SMALL), (256, 512)] {
        products(&mut group, rows, columns);
    }
    for d in [D, 2 * D] {
        micro_kernels(&mut group, d);
    }
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
        exponentiate(&mut y, black_box(&x), f32::exp2_polynomial::<false>)
    });
    let arch = pulp::Arch::new();
    time(group, "exponentials vector, f32", COUNT, || {
        let (x, y) = (black_box(&x), &mut y);
        arch.dispatch(
            #[inline(always)]
            || exponentiate(y, x, f32::exp2_polynomial::<true>),
        );
    });
}

#[inline(always)]
fn exponentiate(y: &mut [f32], x: &[f32], exp2: impl Fn(f32) -> f32) {
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = exp2(x));
}

/// The product of a block of queries and one of keys that lie in larger matrices, into a tile that is there already, by the
/// library that nalgebra's `*` is made of.
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
}

/// A panel of queries and a tile of keys and values, as `Flash` multiplies them.
fn micro_kernels(group: &mut BenchmarkGroup<WallTime>, d: usize) {
    let (instructions, keys) = (Flash::new().instructions(), Flash::TILES.keys);
    let products = TileProducts::<f32>::new(instructions, keys, d);
    let mut products = products.expect("sizes above 0");
    for (part, name) in [
        (Part::Scores, "scores"),
        (Part::Values, "values"),
        (Part::Queries, "queries"),
        (Part::Packing, "packing"),
        (Part::Registers, "registers"),
    ] {
        let (queries, numbers) = (products.queries(), products.numbers());
        let name = format!(
            "micro-kernel {name}, f32, d = {d}, columns = {keys}, numbers = {numbers}"
        );
        time(group, &name, queries, || black_box(&mut products).run(part));
    }
}

criterion_group!(all, parts);
criterion_main!(all);
