use model::opened;
use std::{path::Path, time::Instant};
fn main() -> anyhow::Result<()> {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global()?;
    let begin = Instant::now();
    let network =
        opened::open(Path::new(&std::env::args().nth(1).unwrap()), |_, _| ())?.network;
    println!("load {:?}", begin.elapsed());
    let ids: Vec<usize> = (0..512).map(|i| 1000 + i * 37).collect();
    for _ in 0..2 {
        let t = Instant::now();
        let mut c = network.caches();
        let h = network.forward_cached(&ids, &mut c)?;
        let a = t.elapsed();
        let t = Instant::now();
        let s = network.scores(&h)?;
        let b = t.elapsed();
        let t = Instant::now();
        let l = opened::log_sum_exps(&s);
        let d = t.elapsed();
        println!("512: {a:?} scores {b:?} losses {d:?} {}", l[0]);
        let x =
            nalgebra::DMatrix::<f32>::from_fn(512, 576, |i, j| ((i * j) as f32).sin());
        let block = &network.blocks[0];
        let t = Instant::now();
        for _ in 0..10 {
            std::hint::black_box(attention::engine::linear_by(
                &fast::Flash::new(),
                &x,
                &block.mlp.up.w,
                &block.mlp.up.b,
            )?);
        }
        let e = t.elapsed() / 10;
        println!(
            "  one up product {e:?}: {:.1} GFLOP/s; attention layer:",
            2.0 * 512.0 * 576.0 * 1536.0 / e.as_secs_f64() / 1e9
        );
        let t = Instant::now();
        for _ in 0..10 {
            std::hint::black_box(
                block.attention.forward(
                    &x,
                    attention::ForwardOptions::new()
                        .mask(attention::Mask::causal())
                        .engine(fast::Flash::new()),
                )?,
            );
        }
        println!("  {:?}", t.elapsed() / 10);
        let mut one = network.caches();
        network.forward_cached(&ids, &mut one)?;
        let t = Instant::now();
        for _ in 0..10 {
            network.forward_cached(&[5], &mut one)?;
        }
        let f = t.elapsed() / 10;
        let h = network.forward_cached(&[5], &mut one)?;
        let t = Instant::now();
        for _ in 0..10 {
            std::hint::black_box(network.scores(&h)?);
        }
        println!("  one token {f:?} scores {:?}", t.elapsed() / 10);
    }
    Ok(())
}
