//! Numbers and arrays in the suite's JSON, and how far two of them are apart.

use super::{Results, Wrong};
use fast::Float;
use nalgebra::{DMatrix, convert, try_convert};
use serde_json::Value;

/// Reads a number; JSON has no NaN and no infinities, so these are strings.
pub fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

/// Writes a number.
pub fn value<T: Float>(x: T) -> Value {
    let x: f64 = try_convert(x).unwrap_or(f64::NAN);
    match x {
        _ if x.is_nan() => "NaN".into(),
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        _ => x.into(),
    }
}

/// Writes the rows of a matrix.
pub fn rows<T: Float>(matrix: &DMatrix<T>) -> Value {
    let row = |i| matrix.row(i).iter().copied().map(value).collect::<Value>();
    (0..matrix.nrows()).map(row).collect()
}

/// Writes the rows of several matrices: the heads come first.
pub fn heads<T: Float>(matrices: &[DMatrix<T>]) -> Value {
    matrices.iter().map(rows).collect()
}

/// Writes numbers for each head and query, from a column for each head.
pub fn columns<T: Float>(columns: &[Vec<T>]) -> Value {
    let column = |x: &Vec<T>| x.iter().copied().map(value).collect::<Value>();
    columns.iter().map(column).collect()
}

/// The inputs of a question.
#[derive(Clone, Copy)]
pub struct Inputs<'a>(pub &'a Value);

impl<'a> Inputs<'a> {
    pub fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// What `read` makes of an input that has to be there.
    pub fn need<X>(
        self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<X>,
    ) -> Result<X, Wrong> {
        let input = self.get(name).ok_or_else(|| format!("`{name}` is missing"))?;
        read(input).ok_or_else(|| format!("`{name}` can't be read: {input}").into())
    }

    /// The same for an input that has a default.
    pub fn maybe<X>(
        self,
        name: &str,
        read: impl Fn(&'a Value) -> Option<X>,
    ) -> Result<Option<X>, Wrong> {
        self.get(name).map(|_| self.need(name, read)).transpose()
    }
}

pub fn list<'a, X>(
    value: &'a Value,
    read: impl Fn(&'a Value) -> Option<X>,
) -> Option<Vec<X>> {
    value.as_array()?.iter().map(read).collect()
}

pub fn numbers(value: &Value) -> Option<Vec<f64>> {
    list(value, number)
}

/// A matrix of numbers, or of booleans.
pub fn matrix<'a, X: nalgebra::Scalar>(
    value: &'a Value,
    read: impl Fn(&'a Value) -> Option<X>,
) -> Option<DMatrix<X>> {
    let rows = list(value, |row| list(row, &read))?;
    let width = rows.first()?.len();
    let fits = rows.iter().all(|row| row.len() == width);
    fits.then(|| {
        DMatrix::from_row_iterator(rows.len(), width, rows.into_iter().flatten())
    })
}

pub fn matrix_of_numbers(value: &Value) -> Option<DMatrix<f64>> {
    matrix(value, number)
}

pub fn matrices(value: &Value) -> Option<Vec<DMatrix<f64>>> {
    list(value, matrix_of_numbers)
}

/// The inputs of attention, and what may be said about it.
pub struct Attention<T: Float> {
    pub q: Vec<DMatrix<T>>, // (n_q, d) of each head
    pub k: Vec<DMatrix<T>>, // (n_k, d) of each head of keys
    pub v: Vec<DMatrix<T>>, // (n_k, d_v) of each head of keys
    pub causal: bool,
    pub mask: Option<DMatrix<bool>>, // (n_q, n_k)
    pub window: Option<usize>,
    pub scale: Option<f64>,
    pub slopes: Option<Vec<f64>>, // one for each head
    pub softcap: Option<f64>,
}

impl<T: Float> Attention<T> {
    pub fn read(inputs: Inputs) -> Result<Self, Wrong> {
        let [q, k, v] = qkv(inputs)?;
        let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(false);
        let mask = inputs.maybe("mask", |mask| matrix(mask, Value::as_bool))?;
        let window = inputs.maybe("window", Value::as_u64)?.map(|w| w as usize);
        let scale = inputs.maybe("scale", number)?;
        let slopes = inputs.maybe("slopes", numbers)?;
        let softcap = inputs.maybe("softcap", number)?;
        Ok(Attention { q, k, v, causal, mask, window, scale, slopes, softcap })
    }

    /// Attention without anything else to be said.
    pub fn plain([q, k, v]: [Vec<DMatrix<T>>; 3], causal: bool) -> Self {
        let (mask, window, scale, slopes, softcap) = (None, None, None, None, None);
        Attention { q, k, v, causal, mask, window, scale, slopes, softcap }
    }

    /// Queries and keys of a head.
    pub fn shape(&self) -> (usize, usize) {
        (self.q[0].nrows(), self.k[0].nrows())
    }

    /// The head of keys that a head of queries reads.
    pub fn kv_head(&self, head: usize) -> usize {
        head * self.k.len() / self.q.len()
    }
}

/// Queries, keys and values, one matrix a head.
pub fn qkv<T: Float>(inputs: Inputs) -> Result<[Vec<DMatrix<T>>; 3], Wrong> {
    let [q, k, v] = ["q", "k", "v"].map(|name| inputs.need(name, matrices));
    let (q, k, v) = (q?, k?, v?);
    let same = |x: &[DMatrix<f64>]| x.iter().all(|head| head.shape() == x[0].shape());
    let fits = [&q, &k, &v].into_iter().all(|x| !x.is_empty() && same(x))
        && q[0].ncols() == k[0].ncols()
        && k[0].nrows() == v[0].nrows()
        && k.len() == v.len()
        && q.len().is_multiple_of(k.len());
    fit(fits, "`q`, `k` and `v`")?;
    Ok([q, k, v].map(|x| x.iter().map(cast).collect()))
}

/// An error that says what doesn't fit, unless it does.
pub fn fit(fits: bool, what: &str) -> Result<(), Wrong> {
    if fits { Ok(()) } else { Err(format!("{what} don't fit").into()) }
}

pub fn cast<T: Float>(matrix: &DMatrix<f64>) -> DMatrix<T> {
    matrix.map(convert)
}

/// Returns whether calls of an operation give the bits of the first one. Each call has the inputs that are other ones, and `rows`, the
/// place of each row of its output in the first output: its head and its query. Without `rows` that is the same place.
///
/// # Errors
/// A call has an error, or an output without such a row.
///
/// ```
/// use suite::{Wrong, keeps_bits};
/// use serde_json::json;
///
/// let inputs = json!({ "q": [[[1], [2]]] });
/// let calls = [json!({ "inputs": { "q": [[[2]]] }, "rows": [[0, 1]] })]; // the second row alone
/// assert!(keeps_bits::<Wrong>(&inputs, &calls, |inputs| Ok(inputs["q"].clone()))?);
/// # Ok::<(), Wrong>(())
/// ```
pub fn keeps_bits<E: From<&'static str>>(
    inputs: &Value,
    calls: &[Value],
    mut output: impl FnMut(&Value) -> Result<Value, E>,
) -> Result<bool, E> {
    let first = output(inputs)?;
    for call in calls {
        let mut changed = inputs.clone();
        for (name, value) in call["inputs"].as_object().into_iter().flatten() {
            changed[name] = value.clone();
        }
        let again = output(&changed)?;
        let heads = again.as_array().ok_or("an output that is no array")?;
        let mut places = call["rows"].as_array().into_iter().flatten();
        for (h, head) in heads.iter().enumerate() {
            for (i, row) in head.as_array().into_iter().flatten().enumerate() {
                let place = match call.get("rows") {
                    Some(_) => places.next().ok_or("too few `rows`")?,
                    None => &Value::from(vec![h, i]),
                };
                let index = |k: usize| place[k].as_u64().unwrap_or(u64::MAX) as usize;
                let right = first.get(index(0)).and_then(|head| head.get(index(1)));
                if right.ok_or("`rows` beyond the first output")? != row {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// Returns how far results are from the right ones: the largest |x − right| / max(1, |right|). A NaN is as far from a number as
/// a missing result or one of another shape: infinitely. Results that `right` doesn't have are not looked at.
pub fn off(given: &Results, right: &Results) -> f64 {
    let off = right.iter().map(|(name, right)| match given.get(name) {
        Some(given) => off_by(given, right),
        None => f64::INFINITY,
    });
    off.fold(0.0, f64::max)
}

/// The same for an array or a number.
pub fn off_by(given: &Value, right: &Value) -> f64 {
    match (given.as_array(), right.as_array()) {
        (Some(given), Some(right)) if given.len() == right.len() => {
            let pairs = given.iter().zip(right);
            pairs.map(|(given, right)| off_by(given, right)).fold(0.0, f64::max)
        }
        (None, None) => match (number(given), number(right)) {
            (Some(x), Some(y)) if x == y || (x.is_nan() && y.is_nan()) => 0.0,
            (Some(x), Some(y)) if x.is_finite() && y.is_finite() => {
                (x - y).abs() / y.abs().max(1.0)
            }
            _ => f64::INFINITY,
        },
        _ => f64::INFINITY,
    }
}
