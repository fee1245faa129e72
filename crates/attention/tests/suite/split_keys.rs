//! One query's keys, cut anywhere: the outputs and log-sum-exps of the parts merge to those of the whole.

use attention::flash::{Flash, FlashOutput, Inputs, Tiles};
use attention::testing::one_problem::{numbers, off};
use attention::{Float, Mask};
use nalgebra::{DMatrix, convert, try_convert};
use proptest::prelude::*;
use proptest::sample::Index;

const HEADS: usize = 4;

/// V's column of outliers. Outputs are weighted means of V, which may cancel: their rounding is of its entries' size.
const LARGEST: f64 = 100.0;

/// Rows as models have them: a column that is much larger than the others, and rows that come again.
fn structured<T: Float>(n: usize, width: usize, seed: u64, largest: f64) -> DMatrix<T> {
    let mut x = numbers::<f64>(n, width, seed);
    x.column_mut(width / 2).scale_mut(largest);
    for i in (7..n).step_by(4) {
        let before = x.row(i - 7).into_owned();
        x.set_row(i, &before);
    }
    x.map(convert)
}

fn double<T: Float>(x: &DMatrix<T>) -> DMatrix<f64> {
    x.map(|x| try_convert(x).expect("a number"))
}

/// The outputs (n_q, heads · d_v) and log-sum-exps (n_q, heads) of all keys, from those of the parts: their mean, weighted by a softmax over
/// the log-sum-exps, which are taken with the digits that rounding cost them.
fn merged<T: Float>(parts: &[FlashOutput<T>]) -> [DMatrix<f64>; 2] {
    let doubles = parts.iter().map(|part| {
        let sums = [&part.log_sum_exp, &part.log_sum_exp_low].map(double);
        (double(&part.output), sums)
    });
    let parts: Vec<_> = doubles.collect();
    let mut outputs = DMatrix::zeros(parts[0].0.nrows(), parts[0].0.ncols());
    let mut sums = DMatrix::zeros(outputs.nrows(), HEADS);
    let d_v = outputs.ncols() / HEADS;
    for (i, h) in (0..sums.nrows()).flat_map(|i| (0..HEADS).map(move |h| (i, h))) {
        let max =
            parts.iter().map(|(_, [high, _])| high[(i, h)]).fold(f64::MIN, f64::max);
        // The difference first: added to a sum of hundreds, the low digits would round away.
        let weights =
            parts.iter().map(|(_, [high, low])| (high[(i, h)] - max + low[(i, h)]).exp());
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        for ((output, _), weight) in parts.iter().zip(weights) {
            for c in h * d_v..(h + 1) * d_v {
                outputs[(i, c)] += weight / sum * output[(i, c)];
            }
        }
        sums[(i, h)] = max + sum.ln();
    }
    [outputs, sums]
}

#[derive(Debug, Clone)]
struct Problem {
    n_q: usize,
    n_k: usize,
    n_kv_heads: usize,
    widths: (usize, usize),
    cuts: Vec<Index>,
    tile: usize,
}

fn check<T: Float>(problem: &Problem, most: f64) {
    let Problem { n_q, n_k, n_kv_heads, widths: (d_k, d_v), .. } = *problem;
    let q = structured::<T>(n_q, HEADS * d_k, 1, 20.0);
    let k = structured::<T>(n_k, n_kv_heads * d_k, 2, 20.0);
    let v = structured::<T>(n_k, n_kv_heads * d_v, 3, LARGEST);
    let tiles = Tiles { queries: 64, keys: problem.tile };
    let flash = Flash::new().with_tiles(tiles).unwrap();
    let of = |first: usize, count: usize| {
        let (k, v) = (k.rows(first, count), v.rows(first, count));
        let inputs = Inputs::grouped(&q, k, v, Mask::none(), HEADS, n_kv_heads);
        flash.forward(&inputs.unwrap())
    };
    let mut cuts: Vec<_> = problem.cuts.iter().map(|cut| cut.index(n_k)).collect();
    cuts.extend([0, n_k]);
    cuts.sort_unstable();
    cuts.dedup();
    let parts: Vec<_> = cuts.windows(2).map(|cut| of(cut[0], cut[1] - cut[0])).collect();
    let ([outputs, sums], [whole, whole_sums]) = (merged(&parts), merged(&[of(0, n_k)]));
    let offs = [off(&(outputs / LARGEST), &(whole / LARGEST)), off(&sums, &whole_sums)];
    assert!(offs.iter().all(|&off| off < most), "{offs:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Up to six queries have a way of their own; here both ways are tried.
    #[test]
    fn parts_of_the_keys_merge_to_the_whole(
        n_q in prop_oneof![3 => Just(1_usize), 1 => 2..9_usize],
        n_k in 1..400_usize,
        n_kv_heads in prop::sample::select(vec![1_usize, 2, 4]),
        widths in (1..20_usize, 1..20_usize),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
        tile in prop::sample::select(vec![1_usize, 3, 16, 128]),
    ) {
        let problem = Problem { n_q, n_k, n_kv_heads, widths, cuts, tile };
        check::<f64>(&problem, 1e-14);
        check::<f32>(&problem, 1e-6);
    }
}
