//! Positions: waves that are added to the input of a model, and angles by which queries and keys are turned. Those by distance are rules
//! for scores: see [`ScoreRule`](crate::ScoreRule).

use crate::Float;
use crate::blocks::copy_of;
use crate::error::{
    Error, Result, check_heads, check_not_empty, check_room, wrong_value,
};
use nalgebra::{DMatrix, DMatrixView, convert};

/// Returns sinusoidal positions, a row for each of `n` positions from 0 on, which are added to a model's input: columns 2i and 2i + 1 are
/// the sine and the cosine of `position · 10000^(−2i/d)`.
///
/// Shapes: → (n, d). An odd `d` ends with a sine.
///
/// # Errors
/// `n` or `d` is 0, or no memory could hold the rows.
///
/// # Source
/// A. Vaswani et al., *Attention Is All You Need* (2017), section 3.5.
///
/// ```
/// let rows = attention::positions::sinusoidal_positions::<f64>(2, 4)?;
/// assert_eq!(rows, nalgebra::dmatrix![0.0, 1.0, 0.0, 1.0; 1_f64.sin(), 1_f64.cos(), 0.01_f64.sin(), 0.01_f64.cos()]);
/// # Ok::<(), attention::Error>(())
/// ```
pub fn sinusoidal_positions<T: Float>(n: usize, d: usize) -> Result<DMatrix<T>> {
    check_room::<T>(("n", n), ("d", d))?;
    Ok(DMatrix::from_fn(n, d, |position, column| {
        let pair = column / 2;
        let angle = position as f64 * 10_000_f64.powf(-2.0 * pair as f64 / d as f64);
        convert(if column % 2 == 0 { angle.sin() } else { angle.cos() })
    }))
}

/// Rotary positions: pair `i` of the columns of a head is turned by `position · base^(−2i/d)`.
///
/// A product of a turned query and a turned key depends on the distance of their positions alone. Angles are computed in `f64` whatever
/// the numbers are in: in `f32` they would be off by a hundredth at position 131,072.
///
/// [`MultiHeadAttention::with_rotary`](crate::MultiHeadAttention::with_rotary) turns the queries and keys of a layer.
///
/// # Source
/// J. Su et al., *RoFormer: Enhanced Transformer with Rotary Position Embedding* (2021).
///
/// ```
/// use attention::{Rotary, positions::RotaryPairs};
/// use nalgebra::dmatrix;
///
/// let rotary = Rotary::new(10_000.0, RotaryPairs::Neighbours)?;
/// let x = dmatrix![1.0_f64, 0.0; 1.0, 0.0];
/// let turned = rotary.turn(&x, 1, 0)?; // one head; the first row stands at position 0
/// assert_eq!(turned, dmatrix![1.0, 0.0; 1_f64.cos(), 1_f64.sin()]);
/// # Ok::<(), attention::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Rotary {
    base: f64,
    pairs: RotaryPairs,
    stretch: f64,
    #[cfg_attr(
        feature = "serde",
        serde(default, skip_serializing_if = "Option::is_none")
    )]
    slowed: Option<Slowed>,
}

/// Which pairs are slowed by a factor: see [`Rotary::slowed`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
struct Slowed {
    factor: f64,
    turns: (f64, f64),
    length: f64,
}

/// The columns of a head of width d that are turned together.
///
/// Programs differ in this, and a model that was trained with one runs with the other, and is wrong: see [`RotaryPairs::reorder`].
///
/// ```
/// use attention::positions::RotaryPairs;
///
/// assert_eq!(RotaryPairs::Neighbours.columns(1, 6), [2, 3]);
/// assert_eq!(RotaryPairs::Halves.columns(1, 6), [1, 4]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RotaryPairs {
    /// Columns 2i and 2i + 1, as in the paper, in GPT-J and in Llama's own program.
    Neighbours,
    /// Columns i and i + d/2, as in GPT-NeoX and in Hugging Face's programs.
    Halves,
}

impl RotaryPairs {
    /// Returns the columns of pair `i` in a head of width `d`.
    pub fn columns(self, i: usize, d: usize) -> [usize; 2] {
        match self {
            RotaryPairs::Neighbours => [2 * i, 2 * i + 1],
            RotaryPairs::Halves => [i, i + d / 2],
        }
    }

    /// Returns weights of queries or keys (d_model, n_heads · d), or a bias as a matrix of one row, with the columns of each head so ordered
    /// that `to` makes of them what these pairs made of `w`.
    ///
    /// # Errors
    /// `w` is empty, or `n_heads` does not divide its columns into heads of an even width.
    ///
    /// ```
    /// use attention::positions::RotaryPairs::{Halves, Neighbours};
    /// use nalgebra::dmatrix;
    ///
    /// let w = dmatrix![0.0, 1.0, 2.0, 3.0]; // pairs (0, 1) and (2, 3)
    /// assert_eq!(Neighbours.reorder(&w, 1, Halves)?, dmatrix![0.0, 2.0, 1.0, 3.0]);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn reorder<'a, T: Float>(
        self,
        w: impl Into<DMatrixView<'a, T>>,
        n_heads: usize,
        to: RotaryPairs,
    ) -> Result<DMatrix<T>> {
        let w = w.into();
        let d = check_width("w", w, n_heads)?;
        let mut reordered = copy_of(w);
        for first in (0..w.ncols()).step_by(d) {
            for i in 0..d / 2 {
                for (from, to) in self.columns(i, d).into_iter().zip(to.columns(i, d)) {
                    reordered.set_column(first + to, &w.column(first + from));
                }
            }
        }
        Ok(reordered)
    }
}

impl Rotary {
    /// Returns rotary positions with this base, 10,000 in the paper, and these pairs.
    ///
    /// # Errors
    /// `base` is not greater than 1 and finite.
    pub fn new(base: f64, pairs: RotaryPairs) -> Result<Self> {
        let rotary = Rotary { base, pairs, stretch: 1.0, slowed: None };
        rotary.check()?;
        Ok(rotary)
    }

    /// Returns the same with positions divided by `stretch`, so that a longer text has the angles of a shorter one: position
    /// interpolation.
    ///
    /// # Errors
    /// `stretch` is not at least 1 and finite.
    ///
    /// # Source
    /// S. Chen et al., *Extending Context Window of Large Language Models via Positional Interpolation* (2023).
    pub fn stretched(self, stretch: f64) -> Result<Self> {
        let rotary = Rotary { stretch, ..self };
        rotary.check()?;
        Ok(rotary)
    }

    /// Returns the same with its slow pairs slowed further, as in Llama 3.1 and later: a model that was trained on texts of `length` tokens
    /// then reads longer ones. A pair that makes at most `turns.0` turns in such a text has its angles divided by `factor`. One that makes
    /// `turns.1` or more, and so tells near positions apart, keeps them; in between, frequencies are mixed in proportion.
    ///
    /// # Errors
    /// `factor` is not at least 1 and finite, `turns` are not two increasing positive numbers, or `length` is 0.
    ///
    /// # Source
    /// A. Grattafiori et al., *The Llama 3 Herd of Models* (2024), and the program that was published with it.
    ///
    /// ```
    /// use attention::{Rotary, positions::RotaryPairs};
    ///
    /// let rotary = Rotary::new(500_000.0, RotaryPairs::Halves)?;
    /// let slowed = rotary.slowed(8.0, (1.0, 4.0), 8192)?;
    /// assert_eq!(slowed.angle(7, 0, 128), 7.0); // thousands of turns
    /// assert_eq!(slowed.angle(7, 63, 128), rotary.angle(7, 63, 128) / 8.0); // less than one
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn slowed(self, factor: f64, turns: (f64, f64), length: usize) -> Result<Self> {
        let slowed = Slowed { factor, turns, length: length as f64 };
        let rotary = Rotary { slowed: Some(slowed), ..self };
        rotary.check()?;
        Ok(rotary)
    }

    pub(crate) fn check(self) -> Result<()> {
        let out_of_range = |argument, given: f64, because: &str| {
            Err(wrong_value(argument, given, because))
        };
        if !(self.base > 1.0 && self.base.is_finite()) {
            return out_of_range(
                "base",
                self.base,
                "it must be greater than 1 and finite",
            );
        }
        if !(self.stretch >= 1.0 && self.stretch.is_finite()) {
            let because = "it must be at least 1 and finite";
            return out_of_range("stretch", self.stretch, because);
        }
        if let Some(Slowed { factor, turns: (few, many), length }) = self.slowed {
            if !(factor >= 1.0 && factor.is_finite()) {
                let because = "it must be at least 1 and finite";
                return out_of_range("factor", factor, because);
            }
            if !(few > 0.0 && many > few && many.is_finite()) {
                let because = "they must be positive, finite, and the second larger";
                return Err(wrong_value("turns", format!("({few}, {many})"), because));
            }
            if !(length >= 1.0 && length.is_finite()) {
                return out_of_range("length", length, "at least one token is needed");
            }
        }
        Ok(())
    }

    /// Returns the angle of a pair at a position, in a head of width `d`.
    ///
    /// ```
    /// # use attention::{Rotary, positions::RotaryPairs};
    /// let rotary = Rotary::new(10_000.0, RotaryPairs::Halves)?;
    /// assert_eq!(rotary.angle(7, 0, 64), 7.0);
    /// assert!((rotary.angle(7, 16, 64) - 0.07).abs() < 1e-15); // 10,000^(−1/2) = 1/100
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn angle(self, position: isize, pair: usize, d: usize) -> f64 {
        position as f64 / self.stretch * self.frequency(pair, d)
    }

    fn frequency(self, pair: usize, d: usize) -> f64 {
        let frequency = self.base.powf(-2.0 * pair as f64 / d as f64);
        let Some(Slowed { factor, turns: (few, many), length }) = self.slowed else {
            return frequency;
        };
        let turns = length * frequency / std::f64::consts::TAU;
        let kept = ((turns - few) / (many - few)).clamp(0.0, 1.0);
        frequency * (kept + (1.0 - kept) / factor)
    }

    /// Returns queries or keys of one or more heads, turned; the first row stands at the position `first`, and each one after the last.
    ///
    /// Shapes: `x` (n, n_heads · d) → (n, n_heads · d).
    ///
    /// # Errors
    /// `x` is empty, or `n_heads` does not divide its columns into heads of an even width.
    ///
    /// ```
    /// # use attention::{Rotary, positions::RotaryPairs};
    /// let x = nalgebra::DMatrix::<f64>::zeros(2, 6);
    /// let error = Rotary::new(1e4, RotaryPairs::Halves)?.turn(&x, 2, 0).unwrap_err();
    /// assert_eq!(error.to_string(), "`x` has 6 columns but rotary positions turn pairs of columns, and 2 heads have 3 each");
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn turn<'a, T: Float>(
        &self,
        x: impl Into<DMatrixView<'a, T>>,
        n_heads: usize,
        first: isize,
    ) -> Result<DMatrix<T>> {
        let x = x.into();
        let d = check_width("x", x, n_heads)?;
        let mut turned = copy_of(x);
        self.turn_by(&mut turned, &self.turns(x.nrows(), first, d), false);
        Ok(turned)
    }

    /// Returns the gradient with respect to `x` from that with respect to what [`Rotary::turn`] returned: it is turned back.
    ///
    /// Shapes and errors: as [`Rotary::turn`].
    ///
    /// ```
    /// # use attention::{Rotary, positions::RotaryPairs};
    /// let rotary = Rotary::new(1e4, RotaryPairs::Halves)?;
    /// let x = nalgebra::dmatrix![1.0_f64, 2.0, 3.0, 4.0];
    /// let there_and_back = rotary.turn_back(&rotary.turn(&x, 1, 9)?, 1, 9)?;
    /// assert!((there_and_back - x).amax() < 1e-15);
    /// # Ok::<(), attention::Error>(())
    /// ```
    pub fn turn_back<'a, T: Float>(
        &self,
        grad: impl Into<DMatrixView<'a, T>>,
        n_heads: usize,
        first: isize,
    ) -> Result<DMatrix<T>> {
        let grad = grad.into();
        let d = check_width("grad", grad, n_heads)?;
        let mut turned = copy_of(grad);
        self.turn_by(&mut turned, &self.turns(grad.nrows(), first, d), true);
        Ok(turned)
    }

    /// Returns the cosine and the sine of each pair's angle at `n` positions: a vector for each pair of a head.
    pub(crate) fn turns<T: Float>(self, n: usize, first: isize, d: usize) -> Turns<T> {
        let pairs = (0..d / 2).map(|pair| {
            let frequency = self.frequency(pair, d);
            let angle = |row| (first + row as isize) as f64 / self.stretch * frequency;
            let turn = |(sin, cos): (f64, f64)| (convert(cos), convert(sin));
            (0..n).map(|row| turn(angle(row).sin_cos())).collect()
        });
        pairs.collect()
    }

    /// Turns the pairs of every head by their angles, or back.
    pub(crate) fn turn_by<T: Float>(
        self,
        x: &mut DMatrix<T>, // (n, n_heads · d)
        turns: &Turns<T>,   // [d / 2][n]
        back: bool,
    ) {
        let d = 2 * turns.len();
        for first in (0..x.ncols()).step_by(d) {
            for (pair, turns) in turns.iter().enumerate() {
                let [a, b] = self.pairs.columns(pair, d).map(|column| first + column);
                for (row, &(cos, sin)) in turns.iter().enumerate() {
                    let sin = if back { -sin } else { sin };
                    let (x_a, x_b) = (x[(row, a)], x[(row, b)]);
                    x[(row, a)] = x_a * cos - x_b * sin;
                    x[(row, b)] = x_a * sin + x_b * cos;
                }
            }
        }
    }
}

/// For each pair of columns of a head, the cosine and the sine of its angle at each position.
pub(crate) type Turns<T> = Vec<Vec<(T, T)>>;

/// Returns the width of a head, which is even.
pub(crate) fn check_width<T: Float>(
    argument: &'static str,
    x: DMatrixView<T>,
    n_heads: usize,
) -> Result<usize> {
    check_not_empty(argument, x)?;
    let width = x.ncols();
    check_heads("n_heads", n_heads, width, || {
        format!("it must divide the {width} columns of `{argument}`")
    })?;
    let d = width / n_heads;
    if !d.is_multiple_of(2) {
        let because = format!(
            "rotary positions turn pairs of columns, and {n_heads} heads have {d} each"
        );
        let (axis, expected) = ("column", width + n_heads);
        return Err(Error::Shape { argument, axis, given: width, expected, because });
    }
    Ok(d)
}
