//! Ways to attend to fewer pairs, or to none, beside full attention: the time by the number of tokens, on one thread, and the memory
//! beyond the inputs.
//!
//! `cargo bench --bench fewer_pairs` runs it here.

use criterion::{Criterion, criterion_group, criterion_main};
use fast::Flash;
use laboratory::fewer_pairs::Method;
use peak_alloc::PeakAlloc;
use topics::{briefly, inputs, time};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const D: usize = 64;
const LENGTHS: [usize; 9] = [128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];

fn methods(c: &mut Criterion) {
    let mut group = c.benchmark_group("fewer pairs");
    briefly(&mut group);
    let flash = Flash::new().with_threads(1).expect("one thread");
    for n in LENGTHS {
        let [q, k, v] = inputs::<f32>(n, D);
        for method in Method::ALL {
            let run = || method.forward([&q, &k, &v], &flash).expect("shapes that fit");
            let what = format!("{}, f32, d = {D}", method.name());
            time(&mut group, &what, n, run);

            MEMORY.reset_peak_usage();
            let before = MEMORY.current_usage();
            drop(run());
            let bytes = MEMORY.peak_usage() - before;
            println!("fewer pairs memory/{what}/{n}: {bytes} bytes");
        }
    }
    group.finish();
}

criterion_group!(benches, methods);
criterion_main!(benches);
