use across::*;
use attention::{Mask, engine::{Engine, Tiled}, flash::Inputs};
use nalgebra::DMatrix;
#[test]
fn first() {
    let n = 23;
    let f = |a: f64| DMatrix::from_fn(n, 8, |i, j| (a * i as f64 + 3.0 * j as f64).sin());
    let (q, k, v, g) = (f(1.0), f(2.0), f(3.0), f(4.0));
    for layout in [Layout::Contiguous, Layout::Zigzag, Layout::Striped] {
        for ranks in 1..=8 {
            let whole = Whole::new((n, n), (4, 4), Mask::causal()).with_heads(2, 2).with_layouts(layout, layout);
            let inputs = Inputs::grouped(&q, &k, &v, Mask::causal(), 2, 2).unwrap();
            let f = Tiled::default().forward(&inputs).unwrap();
            let b = Tiled::default().backward(&inputs, &f, g.as_view()).unwrap();
            let out = Threads::run(ranks, |network| {
                let rows = layout.rows(n, ranks, network.rank());
                let [q, k, v, g] = [&q, &k, &v, &g].map(|m| m.select_rows(&rows));
                let local = Local { q: q.as_view(), k: k.as_view(), v: v.as_view() };
                let e = Tiled::default();
                let f = ring::forward(network, &e, &whole, &local).unwrap();
                let b = ring::backward(network, &e, &whole, &local, &f, g.as_view()).unwrap();
                (rows, f, b)
            });
            for (rows, mf, mb) in out {
                assert!((mf.output - f.output.select_rows(&rows)).iter().all(|x| x.abs() < 1e-12));
                assert!((mb.q - b.q.select_rows(&rows)).iter().all(|x| x.abs() < 1e-12));
                assert!((mb.k - b.k.select_rows(&rows)).iter().all(|x| x.abs() < 1e-12));
                assert!((mb.v - b.v.select_rows(&rows)).iter().all(|x| x.abs() < 1e-12));
            }
        }
    }
}
