//! # Running sums
//!
//! medium, 25 minutes
//!
//! A model with linear attention writes with a state of fixed size, whatever the length of the text. Write that state.
//!
//! `attend` takes a chunk of tokens, one or many, and returns their outputs. Each token sees itself and all before it,
//! in this chunk and in earlier ones. So any cut into chunks gives the same rows. The features are $\varphi(x) = x + 1$
//! for positive $x$ and $e^x$ for others.
//!
//! `q` and `k` are $(c, d)$, `v` is $(c, d_v)$, and the result is $(c, d_v)$. The state is $S$, $(d, d_v)$, and $z$,
//! $d$ numbers. No pair of a query and a key needs to be computed.
//!
//! # Hint
//!
//! What must be in $S$ and in $z$ at the moment when token $i$ asks? What must not be in them yet?
//!
//! # Hint
//!
//! Numerator and denominator are sums over the same tokens. Take one token at a time: first add its features to both,
//! then let its query read both.
//!
//! # Hint
//!
//! For row `i`: `f = features(k.row(i))`, then `s += f.transpose() * v.row(i)` and `z += f`. The output row is
//! `features(q.row(i)) * &s`, divided by the dot product of those features with `z`.

use nalgebra::{DMatrix, RowDVector};

/// What linear attention keeps of the tokens so far.
#[derive(Debug, Clone)]
pub struct State {
    /// The sum of features times values (S), (d, d_v).
    pub s: DMatrix<f64>,
    /// The sum of features (z), d numbers.
    pub z: RowDVector<f64>,
}

/// The features of a row.
pub fn features(row: &RowDVector<f64>) -> RowDVector<f64> {
    // SOLUTION
    // FAULT cut-off: no feature is 0
    // > row.map(|x| if x > 0.0 { x + 1.0 } else { 0.0 })
    row.map(|x| if x > 0.0 { x + 1.0 } else { x.exp() })
    // END
}

impl State {
    /// The state before the first token.
    pub fn new(d: usize, d_v: usize) -> Self {
        State { s: DMatrix::zeros(d, d_v), z: RowDVector::zeros(d) }
    }

    /// Takes a chunk of tokens, and returns their outputs.
    ///
    /// Shapes: `q`, `k` (c, d), `v` (c, d_v) → (c, d_v).
    pub fn attend(
        &mut self,
        q: &DMatrix<f64>,
        k: &DMatrix<f64>,
        v: &DMatrix<f64>,
    ) -> DMatrix<f64> {
        // SOLUTION
        let mut output = DMatrix::zeros(q.nrows(), v.ncols());
        // FAULT nothing-carried: of the chunks before
        // > *self = State::new(q.ncols(), v.ncols());
        // > for i in 0..q.nrows() {
        // FAULT future-in-the-denominator: the denominator is a running sum, too
        // > k.row_iter().for_each(|row| self.z += features(&row.into_owned()));
        // > for i in 0..q.nrows() {
        for i in 0..q.nrows() {
            // FAULT future-in-the-state: a later token of the chunk is in it
            // > let seen = if i == 0 { 0..q.nrows() } else { 0..0 };
            // > for i in seen {
            // >     let f = features(&k.row(i).into_owned());
            // >     self.s += f.transpose() * v.row(i);
            // >     self.z += f;
            // > }
            let f = features(&k.row(i).into_owned());
            // FAULT future-in-the-state
            self.s += f.transpose() * v.row(i);
            // FAULT future-in-the-state
            // FAULT future-in-the-denominator
            self.z += f;
            let f = features(&q.row(i).into_owned());
            // FAULT no-denominator: is it divided by the sum of its weights
            // > output.set_row(i, &(&f * &self.s));
            output.set_row(i, &(&f * &self.s / f.dot(&self.z)));
        }
        output
        // END
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{DMatrix, RowDVector, dmatrix};

    fn draw(n: usize) -> [DMatrix<f64>; 3] {
        [(4, 0), (4, 1), (3, 2)].map(|(columns, seed)| {
            DMatrix::from_fn(n, columns, |i, j| {
                2.0 * ((seed + 5 * i + 3 * j * j) as f64).sin()
            })
        })
    }

    /// Pair by pair; token i divides by the weights of the tokens up to `denominator(i)`, that one left out.
    fn pair_by_pair(n: usize, denominator: impl Fn(usize) -> usize) -> DMatrix<f64> {
        let [q, k, v] = draw(n);
        let [q, k] = [q, k].map(|x| x.map(|x| if x > 0.0 { x + 1.0 } else { x.exp() }));
        let weights = q * k.transpose();
        let mut output = DMatrix::zeros(n, 3);
        for i in 0..n {
            let sum: f64 = (0..denominator(i)).map(|j| weights[(i, j)]).sum();
            output.set_row(
                i,
                &(weights.view((i, 0), (1, i + 1)) * v.rows(0, i + 1) / sum).row(0),
            );
        }
        output
    }

    fn run(chunks: &[usize]) -> DMatrix<f64> {
        let n = chunks.iter().sum();
        let (mut state, mut first, mut output) =
            (State::new(4, 3), 0, DMatrix::zeros(n, 3));
        for c in chunks {
            let [q, k, v] = draw(n).map(|x| x.rows(first, *c).into_owned());
            output.rows_mut(first, *c).copy_from(&state.attend(&q, &k, &v));
            first += c;
        }
        output
    }

    /// The first row that is off.
    fn wrong(came: &DMatrix<f64>, right: &DMatrix<f64>) -> Option<usize> {
        (0..right.nrows()).find(|i| !((came.row(*i) - right.row(*i)).amax() < 1e-12))
    }

    #[test]
    fn features_are_positive() {
        let came = features(&RowDVector::from_vec(vec![2.0, 0.0, -1.0, -3.0]));
        assert!(
            came.min() > 0.0,
            "features of 2, 0, −1, −3 are {:.3?}: no feature is 0 or negative, so that no token is lost",
            came.as_slice()
        );
        assert!(
            (came[0] - 3.0).abs() + (came[2] - (-1.0_f64).exp()).abs() < 1e-12,
            "features of 2 and −1 should be 3 and 1/e, not {:.3} and {:.3}",
            came[0],
            came[2]
        );
    }

    #[test]
    fn the_first_output_is_the_first_value() {
        let x = dmatrix![0.5, -0.5];
        let came = State::new(2, 1).attend(&x, &x, &dmatrix![7.0]);
        assert!(
            (came[0] - 7.0).abs() < 1e-12,
            "the first token sees its own value 7 alone, and gets {:.3}: is it divided by the sum of its weights, and is its own key in?",
            came[0]
        );
    }

    #[test]
    fn a_token_sees_what_came_before() {
        for n in [1, 2, 9] {
            let came = run(&[n]);
            let whole = pair_by_pair(n, |_| n);
            assert!(
                n == 1 || wrong(&came, &whole).is_some(),
                "{n} tokens: you divide by the z of the whole chunk; the denominator is a running sum, too"
            );
            let wrong = wrong(&came, &pair_by_pair(n, |i| i + 1));
            assert!(
                wrong.is_none(),
                "{n} tokens: row {} is the first that is wrong: a row is wrong if a later token of the chunk is in its state, or if its own is missing",
                wrong.unwrap_or(0)
            );
        }
    }

    #[test]
    fn chunks_change_nothing() {
        for chunks in [vec![1; 9], vec![4, 4, 1], vec![2, 7]] {
            let wrong = wrong(&run(&chunks), &pair_by_pair(9, |i| i + 1));
            assert!(
                wrong.is_none(),
                "chunks {chunks:?}: row {} is the first that is wrong: is the state of the chunks before still there, and no later token of this one?",
                wrong.unwrap_or(0)
            );
        }
    }
}
