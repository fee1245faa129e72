//! Online softmax is softmax: whatever the tiles, however a row is split, in any order, and whatever is hidden.

use crate::support::random;
use attention::flash::{FlashOutput, OnlineSoftmax};
use attention::{
    Float,
    softmax::{log_sum_exp_rows, softmax_rows},
};
use nalgebra::{DMatrix, DVector, convert, dmatrix, dvector};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// The same cases in every run, and no file of those that failed.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        rng_seed: RngSeed::Fixed(2018),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

// ---------------------------------------------------------------------------------------------------- material

/// A type of number and its rounding.
trait Real: Float + Into<f64> {
    /// Half the gap between 1 and the next number.
    const U: f64;
}

impl Real for f64 {
    const U: f64 = f64::EPSILON / 2.0;
}

impl Real for f32 {
    const U: f64 = f32::EPSILON as f64 / 2.0;
}

const HIDDEN: f64 = f64::NEG_INFINITY;

#[derive(Debug, Clone)]
struct Problem {
    scores: DMatrix<f64>, // (rows, keys), −∞ where a key is hidden
    values: DMatrix<f64>, // (keys, d_v), between −1 and 1
    seed: u64,
}

prop_compose! {
    fn problems()(
        (rows, keys, d_v) in (1..5_usize, 1..60_usize, 1..4_usize),
        size in prop_oneof![Just(1.0), Just(30.0), Just(1000.0)],
        hidden in prop_oneof![Just(0.0), Just(0.3), Just(0.9)],
        order in 0..3_u8,
        seed in any::<u32>(),
    ) -> Problem {
        let seed = seed.into();
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut scores = random(rows, keys, seed + 1) * size;
        if order > 0 {
            for mut row in scores.row_iter_mut() {
                let mut sorted: Vec<f64> = row.iter().copied().collect();
                sorted.sort_by(f64::total_cmp); // rising: a correction with every key
                row.iter_mut().zip(&sorted).for_each(|(to, &from)| *to = from);
            }
        }
        for score in scores.iter_mut() {
            if rng.random_bool(hidden) {
                *score = HIDDEN;
            }
        }
        if order > 1 {
            scores.row_mut(0).fill(HIDDEN); // this one sees nothing
        }
        Problem { scores, values: random(keys, d_v, seed + 2), seed }
    }
}

/// A problem in one precision.
struct Rows<T: Float> {
    scores: DMatrix<T>,
    values: DMatrix<T>,
}

type Finished<T> = (DMatrix<T>, DVector<T>);

impl<T: Real> Rows<T> {
    fn new(problem: &Problem) -> Self {
        let to = |m: &DMatrix<f64>| m.map(convert::<f64, T>);
        Rows { scores: to(&problem.scores), values: to(&problem.values) }
    }

    fn n_keys(&self) -> usize {
        self.scores.ncols()
    }

    fn nothing(&self) -> OnlineSoftmax<T> {
        OnlineSoftmax::new(self.scores.nrows(), self.values.ncols()).unwrap()
    }

    fn absorb(&self, state: &mut OnlineSoftmax<T>, keys: &[usize]) {
        let (scores, values) = (&self.scores, &self.values);
        state.absorb(&scores.select_columns(keys), &values.select_rows(keys)).unwrap();
    }

    fn state(&self, keys: &[usize]) -> OnlineSoftmax<T> {
        self.in_tiles(keys, keys.len().max(1))
    }

    fn in_tiles(&self, keys: &[usize], width: usize) -> OnlineSoftmax<T> {
        let mut state = self.nothing();
        keys.chunks(width).for_each(|tile| self.absorb(&mut state, tile));
        state
    }

    /// Split anywhere and again, merged in either order, with a state of nothing here and there.
    fn any_way(&self, keys: &[usize], rng: &mut ChaCha8Rng) -> OnlineSoftmax<T> {
        match keys {
            [] => self.nothing(),
            [_] => self.state(keys),
            _ if rng.random_bool(0.1) => self.in_tiles(keys, rng.random_range(1..9)),
            _ => {
                let (left, right) = keys.split_at(rng.random_range(0..keys.len()));
                let (left, right) = (self.any_way(left, rng), self.any_way(right, rng));
                let swap = rng.random();
                if swap { right.merge(left) } else { left.merge(right) }.unwrap()
            }
        }
    }

    fn plain(&self) -> Finished<T> {
        let weights = softmax_rows(&self.scores).unwrap();
        (weights * &self.values, log_sum_exp_rows(&self.scores).unwrap())
    }
}

/// Both are sums of at most 60 terms, rounded once for each addition, product and exponential; more than this is no
/// rounding. Values are at most 1.
fn check_same<T: Real>(given: OnlineSoftmax<T>, right: &Finished<T>, way: &str) {
    let (output, log_sum_exp) = given.finish();
    let tolerance = 256.0 * T::U;
    for (given, right) in output.iter().zip(&right.0) {
        let (given, right): (f64, f64) = ((*given).into(), (*right).into());
        assert!((given - right).abs() <= tolerance, "{way}: {given}, not {right}");
    }
    for (given, right) in log_sum_exp.iter().zip(&right.1) {
        let (given, right): (f64, f64) = ((*given).into(), (*right).into());
        let off = if given == right { 0.0 } else { (given - right).abs() };
        assert!(off <= tolerance * right.abs().max(1.0), "{way}: {given}, not {right}");
    }
}

/// The bits of what is known of the rows, where numbers that are equal may differ: 0 and −0.
fn bits<T: Real>(state: OnlineSoftmax<T>) -> Vec<u64> {
    let (output, log_sum_exp) = state.finish();
    output
        .iter()
        .chain(&log_sum_exp)
        .map(|&x| -> f64 { x.into() })
        .map(f64::to_bits)
        .collect()
}

// ---------------------------------------------------------------------------------------------------- any way

fn check_all_ways<T: Real>(problem: &Problem) {
    let rows = Rows::<T>::new(problem);
    let right = rows.plain();
    let rng = &mut ChaCha8Rng::seed_from_u64(problem.seed);
    let mut keys: Vec<usize> = (0..rows.n_keys()).collect();

    check_same(rows.state(&keys), &right, "all at once");
    check_same(rows.in_tiles(&keys, 1), &right, "one at a time");
    check_same(rows.in_tiles(&keys, 7), &right, "tiles of seven");
    for cut in 0..=rows.n_keys() {
        let (left, right_keys) = keys.split_at(cut);
        let halves = rows.state(left).merge(rows.state(right_keys)).unwrap();
        check_same(halves, &right, "two parts");
    }
    for _ in 0..4 {
        check_same(rows.any_way(&keys, rng), &right, "a tree");
        keys.shuffle(rng);
        check_same(rows.in_tiles(&keys, 1), &right, "another order");
        check_same(rows.any_way(&keys, rng), &right, "a tree in another order");
    }
}

fn check_laws<T: Real>(problem: &Problem) {
    let rows = Rows::<T>::new(problem);
    let rng = &mut ChaCha8Rng::seed_from_u64(problem.seed);
    let mut keys: Vec<usize> = (0..rows.n_keys()).collect();
    keys.shuffle(rng);
    let (a, rest) = keys.split_at(rng.random_range(0..=keys.len()));
    let (b, c) = rest.split_at(rng.random_range(0..=rest.len()));
    let [a, b, c] = [a, b, c].map(|keys| rows.any_way(keys, rng));
    let merge =
        |a: &OnlineSoftmax<T>, b: &OnlineSoftmax<T>| a.clone().merge(b.clone()).unwrap();

    for state in [&a, &b, &c] {
        for merged in [merge(state, &rows.nothing()), merge(&rows.nothing(), state)] {
            assert_eq!(&merged, state, "nothing changes something");
            assert_eq!(bits(merged), bits(state.clone()));
        }
    }
    assert_eq!(merge(&a, &b), merge(&b, &a));
    assert_eq!(bits(merge(&a, &b)), bits(merge(&b, &a)));
    let right = merge(&merge(&a, &b), &c).finish();
    check_same(merge(&a, &merge(&b, &c)), &right, "other brackets");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_way_is_plain_softmax(problem in problems()) {
        check_all_ways::<f64>(&problem);
        check_all_ways::<f32>(&problem);
    }

    #[test]
    fn states_are_a_commutative_monoid(problem in problems()) {
        check_laws::<f64>(&problem);
        check_laws::<f32>(&problem);
    }

    #[test]
    fn hidden_keys_may_hold_anything(problem in problems(), column in any::<prop::sample::Index>()) {
        let rows = Rows::<f64>::new(&problem);
        let keys: Vec<usize> = (0..rows.n_keys()).collect();
        let hidden = column.index(keys.len());
        let mut without = Rows::<f64>::new(&problem);
        without.scores.column_mut(hidden).fill(HIDDEN);
        let right = without.plain();
        for garbage in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX] {
            let mut with = Rows { scores: without.scores.clone(), values: rows.values.clone() };
            with.values.row_mut(hidden).fill(garbage);
            check_same(with.state(&keys), &right, "all at once");
            check_same(with.in_tiles(&keys, 1), &right, "one at a time");
            check_same(with.in_tiles(&keys, 7), &right, "tiles of seven");

            // Absorbing it alone changes nothing, to the bit.
            let mut state = with.state(&keys);
            let before = state.clone();
            with.absorb(&mut state, &[hidden]);
            prop_assert_eq!(&state, &before);
            prop_assert_eq!(bits(state), bits(before));
        }
    }
}

// ---------------------------------------------------------------------------------------------------- the edges

#[test]
fn a_row_that_sees_nothing_is_zero_and_stays_ready() {
    let mut state = OnlineSoftmax::<f64>::new(2, 2).unwrap();
    let nothing = state.clone();
    for _ in 0..3 {
        let hidden = DMatrix::from_element(2, 5, HIDDEN);
        state.absorb(&hidden, &DMatrix::from_element(5, 2, f64::NAN)).unwrap();
        state = state.merge(nothing.clone()).unwrap();
        assert_eq!(state, nothing);
    }
    assert_eq!(state.clone().finish(), (DMatrix::zeros(2, 2), dvector![HIDDEN, HIDDEN]));

    state.absorb(&dmatrix![-5.0; HIDDEN], &dmatrix![3.0, 4.0]).unwrap();
    let (output, log_sum_exp) = state.finish();
    assert_eq!(output, dmatrix![3.0, 4.0; 0.0, 0.0]);
    assert_eq!(log_sum_exp, dvector![-5.0, HIDDEN]);
}

/// One row may not see a key that another may; NaN goes where it is seen, and no further.
#[test]
fn nan_goes_where_it_is_seen() {
    let mut state = OnlineSoftmax::<f64>::new(2, 1).unwrap();
    state.absorb(&dmatrix![1.0, HIDDEN; 1.0, 1.0], &dmatrix![2.0; f64::NAN]).unwrap();
    state.absorb(&dmatrix![900.0; 900.0], &dmatrix![7.0]).unwrap(); // a correction of 0
    let (output, log_sum_exp) = state.finish();
    assert_eq!(output[0], 7.0);
    assert!(output[1].is_nan());
    assert_eq!(log_sum_exp, dvector![900.0, 900.0]); // scores are fine
}

/// A NaN among the scores is not hidden by what comes before or after it; +∞ neither.
#[test]
fn scores_that_are_no_numbers_are_not_hidden() {
    for strange in [f64::NAN, f64::INFINITY] {
        for place in 0..3 {
            let mut scores = dmatrix![1.0, HIDDEN, 2000.0];
            scores[place] = strange;
            let values = dmatrix![1.0; 2.0; 3.0];
            let plain = softmax_rows(&scores).unwrap() * &values;
            let plain_log_sum_exp = log_sum_exp_rows(&scores).unwrap();
            assert!(plain[0].is_nan());
            for width in 1..=3 {
                let rows = Rows { scores: scores.clone(), values: values.clone() };
                let (output, log_sum_exp) = rows.in_tiles(&[0, 1, 2], width).finish();
                assert!(output[0].is_nan(), "{strange} at {place}, tiles of {width}");
                let same = log_sum_exp[0].total_cmp(&plain_log_sum_exp[0]).is_eq()
                    || log_sum_exp[0].is_nan() && plain_log_sum_exp[0].is_nan();
                assert!(same, "{strange} at {place}: {}", log_sum_exp[0]);
            }
        }
    }
}

/// However large the score, both numbers together are off by no more than the rounding of the logarithm.
#[test]
fn a_log_sum_exp_and_what_rounding_took_have_twice_the_digits() {
    const EPSILON: f64 = f32::EPSILON as f64;
    for max in [0.3_f32, -7.0, 1e3, 3e7, -1e12] {
        for (scale, sum) in [(1.0, 300.0), (0.3, 2.0), (0.125, 1.0), (0.3, 1e30)] {
            let mut both = FlashOutput::of_shape(1, 1, 1);
            both.write_log_sum_exp((0, 0), scale, max, sum);
            let (lse, low) = (both.log_sum_exp[0], both.log_sum_exp_low[0]);
            let log_sum = f64::from(sum).ln();
            let exact = f64::from(max) * f64::from(scale) + log_sum;
            let off = f64::from(lse) + f64::from(low) - exact;
            let bound = EPSILON * (1.0 + log_sum) + EPSILON * EPSILON * exact.abs();
            assert!(off.abs() < bound, "{max}, {scale}, {sum}: {off:e}");
        }
    }
}
