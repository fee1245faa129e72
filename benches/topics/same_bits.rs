//! What one order of summation costs: attention of many queries, a step of decoding, and a layer's product of one row and of eight, by the
//! fast engine as it is and with batch invariance.
//!
//! `cargo bench --bench same_bits` runs it here.

use attention::Mask;
use attention::engine::{Engine as _, Factor};
use attention::flash::Inputs;
use criterion::{Criterion, criterion_group, criterion_main};
use fast::Flash;
use topics::{briefly, normal, time};

const D: usize = 64;
const HEADS: usize = 8;
const KEYS: usize = 4096;
const DEPTH: usize = 576;
const COLUMNS: usize = 1536;

fn both(c: &mut Criterion) {
    let mut group = c.benchmark_group("same_bits");
    briefly(&mut group);
    let q = normal::<f32>(1024, HEADS * D, 0);
    let [k, v] = [1, 2].map(|seed| normal::<f32>(KEYS, HEADS * D, seed));
    let w = normal::<f32>(DEPTH, COLUMNS, 3);
    // Products have one thread, too.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    pool.build_global().expect("the first pool");
    let flash = Flash::new().with_threads(1).expect("one thread");
    for (way, engine) in
        [("default", &flash), ("invariant", &flash.clone().with_batch_invariance())]
    {
        for (n_q, n_k, kv_heads) in [(1024, 1024, HEADS), (1, KEYS, HEADS), (1, KEYS, 2)]
        {
            let [k, v] = [&k, &v].map(|x| x.view((0, 0), (n_k, kv_heads * D)));
            let inputs =
                Inputs::grouped(q.rows(0, n_q), k, v, Mask::causal(), HEADS, kv_heads);
            let inputs = inputs.expect("shapes that fit");
            let name = format!(
                "attention-{way}, f32, d = {D}, heads = {HEADS}, kv_heads = {kv_heads}, queries = {n_q}, threads = 1"
            );
            time(&mut group, &name, n_k, || engine.forward(&inputs));
        }
        for rows in [1, 8] {
            let x = normal::<f32>(rows, DEPTH, 4);
            let name = format!(
                "product-{way}, f32, depth = {DEPTH}, columns = {COLUMNS}, threads = 1"
            );
            let product = || engine.product(Factor::of(&x), Factor::of(&w), None);
            time(&mut group, &name, rows, product);
        }
    }
    group.finish();
}

criterion_group!(benches, both);
criterion_main!(benches);
