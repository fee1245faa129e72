//! The operations as the crate `attention` computes them, and linear attention as [`laboratory::fewer_pairs`] does.

use super::values::{
    Attention, Inputs, cast, columns, fit, heads, list, matrices, matrix_of_numbers,
    number, numbers, qkv, rows, value,
};
use super::{Results, Wrong, results};
use attention::engine::Engine;
use attention::flash::{Inputs as FlashInputs, OnlineSoftmax};
use attention::{
    AttentionGradients, ForwardOptions, KeyValueCache, Mask, MultiHeadAttention,
    Parameters, Rotary, ScoreRule, positions::RotaryPairs,
};
use fast::Float;
use laboratory::fewer_pairs::linear::{Features, LinearAttention};
use nalgebra::{DMatrix, DMatrixView, DVector, RowDVector, convert, dmatrix};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use serde_json::Value;
use std::sync::Arc;

/// Returns the results of an operation, or `None` if there is no such operation.
pub fn answer<T: Float>(
    operation: &str,
    inputs: Inputs,
    engine: &Arc<dyn Engine<T>>,
) -> Result<Option<Results>, Wrong> {
    Ok(Some(match operation {
        "attention" => {
            let asked = Attention::read(inputs)?;
            let (output, log_sum_exp, _) = attend::<T>(&asked, engine, None)?;
            let log_sum_exp = columns(&log_sum_exp);
            results([("output", heads(&output)), ("log_sum_exp", log_sum_exp)])
        }
        "attention_gradients" => {
            let d_output = inputs.need("d_output", matrices)?;
            let d_output: Vec<_> = d_output.iter().map(cast).collect();
            let asked = Attention::read(inputs)?;
            let (output, _, gradients) = attend::<T>(&asked, engine, Some(&d_output))?;
            let [d_q, d_k, d_v] = gradients.map(|heads_of| heads(&heads_of));
            results([
                ("output", heads(&output)),
                ("d_q", d_q),
                ("d_k", d_k),
                ("d_v", d_v),
            ])
        }
        "attention_dropout" => dropped::<T>(inputs, engine)?,
        "multi_head" => output(rows(&multi_head::<T>(inputs, engine)?)),
        "rotate" => output(rows(&rotate::<T>(inputs)?)),
        "decode" => output(heads(&decode::<T>(inputs, engine)?)),
        "merge" => merge::<T>(inputs)?,
        "alibi_slopes" => output(alibi_slopes::<T>(inputs)?),
        "linear_attention" => output(heads(&linear::<T>(inputs)?)),
        "latent_attention" => output(heads(&latent::<T>(inputs, engine)?)),
        _ => return Ok(None),
    }))
}

fn output(value: Value) -> Results {
    results([("output", value)])
}

/// Heads side by side as columns, and apart again.
fn join<T: Float>(heads: &[DMatrix<T>]) -> DMatrix<T> {
    let (n, d) = heads[0].shape();
    DMatrix::from_fn(n, heads.len() * d, |i, c| heads[c / d][(i, c % d)])
}

fn split<T: Float>(joined: &DMatrix<T>, heads: usize) -> Vec<DMatrix<T>> {
    let d = joined.ncols() / heads;
    (0..heads).map(|h| joined.columns(h * d, d).into_owned()).collect()
}

fn mask<T: Float>(asked: &Attention<T>) -> Result<Mask, Wrong> {
    let mut mask = if asked.causal { Mask::causal() } else { Mask::none() };
    if let Some(width) = asked.window {
        mask = mask.and(Mask::window(width)?);
    }
    if let Some(allowed) = &asked.mask {
        mask = mask.and(Mask::dense(allowed.clone())?);
    }
    if let Some(cap) = asked.softcap {
        mask = mask.with_scores(ScoreRule::soft_cap(cap)?);
    }
    if let Some(slopes) = &asked.slopes {
        mask = mask.with_scores(ScoreRule::slopes(slopes)?);
    }
    Ok(mask)
}

/// What queries are multiplied by, so that the crate's scale 1/√d becomes the one that is asked for.
fn rescale<T: Float>(asked: &Attention<T>) -> T {
    let d = asked.q[0].ncols() as f64;
    convert(asked.scale.map_or(1.0, |scale| scale * d.sqrt()))
}

/// Output and log-sum-exp of each head, and with `d_output` the gradients of queries, keys and values.
type Attended<T> = (Vec<DMatrix<T>>, Vec<Vec<T>>, [Vec<DMatrix<T>>; 3]);

fn attend<T: Float>(
    asked: &Attention<T>,
    engine: &Arc<dyn Engine<T>>,
    d_output: Option<&[DMatrix<T>]>,
) -> Result<Attended<T>, Wrong> {
    if let Some(d_output) = d_output {
        let shape = (asked.shape().0, asked.v[0].ncols());
        let fits = d_output.iter().all(|x| x.shape() == shape);
        fit(fits && d_output.len() == asked.q.len(), "`d_output` and the output")?;
    }
    let (mask, rescale) = (mask(asked)?, rescale(asked));
    let q: Vec<_> = asked.q.iter().map(|q| q * rescale).collect();
    let Attention { k, v, .. } = asked;
    let (n_heads, n_kv_heads) = (q.len(), k.len());
    let [q, k, v] = [&q, k, v].map(|heads| join(heads));
    let inputs = FlashInputs::grouped(&q, &k, &v, mask, n_heads, n_kv_heads)?;
    let forward = engine.forward(&inputs)?;
    let mut gradients = [vec![], vec![], vec![]];
    if let Some(d_output) = d_output {
        let AttentionGradients { q, k, v, .. } =
            engine.backward(&inputs, &forward, join(d_output).as_view())?;
        gradients = [split(&q, n_heads), split(&k, n_kv_heads), split(&v, n_kv_heads)];
    }
    let output = split(&forward.output, n_heads);
    let columns = forward.log_sum_exp.column_iter();
    let log_sum_exp = columns.map(|column| column.iter().copied().collect()).collect();
    gradients[0].iter_mut().for_each(|d_q| *d_q *= rescale);
    Ok((output, log_sum_exp, gradients))
}

/// A layer whose projections only pick columns: its tokens are queries, keys and values side by side.
fn bare_layer<T: Float>(
    [q, k, v]: &[Vec<DMatrix<T>>; 3],
) -> Result<(MultiHeadAttention<T>, [usize; 4]), Wrong> {
    let ((heads, kv_heads), (d, d_v)) =
        ((q.len(), k.len()), (q[0].ncols(), v[0].ncols()));
    let widths = [heads * d, kv_heads * d, kv_heads * d_v];
    let d_model = widths.iter().sum::<usize>().max(heads * d_v);
    let pick = |first: usize, count: usize| {
        DMatrix::from_fn(d_model, count, |row, column| match row == first + column {
            true => T::one(),
            false => T::zero(),
        })
    };
    let parameters = Parameters {
        w_q: pick(0, widths[0]),
        w_k: pick(widths[0], widths[1]),
        w_v: pick(widths[0] + widths[1], widths[2]),
        w_o: pick(0, heads * d_v).transpose(),
        b_q: RowDVector::zeros(widths[0]),
        b_k: RowDVector::zeros(widths[1]),
        b_v: RowDVector::zeros(widths[2]),
        b_o: RowDVector::zeros(d_model),
    };
    let layer = MultiHeadAttention::from_grouped_parameters(parameters, heads, kv_heads)?;
    Ok((layer, [d_model, widths[0], widths[1], widths[2]]))
}

/// In training, the means over several draws of the outputs, and of the products of their numbers.
fn dropped<T: Float>(
    inputs: Inputs,
    engine: &Arc<dyn Engine<T>>,
) -> Result<Results, Wrong> {
    let asked = Attention::<T>::read(inputs)?;
    if !inputs.need("training", Value::as_bool)? {
        return Ok(output(heads(&attend(&asked, engine, None)?.0)));
    }
    let probability = inputs.need("dropout", number)?;
    let repeats = inputs.maybe("repeats", Value::as_u64)?.unwrap_or(1);
    let (mask, rescale) = (mask(&asked)?, rescale(&asked));
    let Attention { q, k, v, .. } = asked;
    let q: Vec<_> = q.iter().map(|q| q * rescale).collect();
    let qkv = [q, k, v];
    let (layer, [d_model, q_width, k_width, _]) = bare_layer(&qkv)?;
    let [q, k, v] = qkv.map(|heads| join(&heads));
    let mut x = DMatrix::zeros(q.nrows(), d_model);
    x.columns_mut(0, q.ncols()).copy_from(&q);
    let mut context = DMatrix::zeros(k.nrows(), d_model);
    context.columns_mut(q_width, k.ncols()).copy_from(&k);
    context.columns_mut(q_width + k_width, v.ncols()).copy_from(&v);

    let n_heads = layer.n_heads();
    let width = v.ncols() / layer.n_kv_heads() * n_heads;
    let size = q.nrows() * width;
    let mut sum = DMatrix::zeros(q.nrows(), width);
    let mut products = DMatrix::<T>::zeros(size, size);
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    for _ in 0..repeats {
        let options = ForwardOptions::new().mask(&mask).context(&context);
        let options = options.dropout(probability, rng).engine(engine.clone());
        let output = layer.forward(&x, options)?.0.columns(0, width).into_owned();
        let heads = split(&output, n_heads);
        let flat = heads.iter().flat_map(|head| head.transpose().as_slice().to_vec());
        let flat = DVector::from_iterator(size, flat);
        products.ger(T::one(), &flat, &flat, T::one());
        sum += output;
    }
    let repeats = convert::<_, T>(repeats as f64);
    let mean = heads(&split(&(sum / repeats), n_heads));
    Ok(results([("output", mean), ("products", rows(&(products / repeats)))]))
}

fn multi_head<T: Float>(
    inputs: Inputs,
    engine: &Arc<dyn Engine<T>>,
) -> Result<DMatrix<T>, Wrong> {
    let matrix = |name| Ok::<_, Wrong>(cast::<T>(&inputs.need(name, matrix_of_numbers)?));
    let [w_q, w_k, w_v, w_o] =
        [matrix("w_q")?, matrix("w_k")?, matrix("w_v")?, matrix("w_o")?];
    let [b_q, b_k, b_v, b_o] =
        [&w_q, &w_k, &w_v, &w_o].map(|w| RowDVector::zeros(w.ncols()));
    let parameters = Parameters { w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o };
    let heads = inputs.need("heads", Value::as_u64)? as usize;
    let layer = MultiHeadAttention::from_parameters(parameters, heads)?;
    let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(false);
    let mask = if causal { Mask::causal() } else { Mask::none() };
    let options = ForwardOptions::new().mask(mask).engine(engine.clone());
    Ok(layer.forward(&matrix("x")?, options)?.0)
}

/// Reads which columns are turned together.
pub fn pairs(value: &Value) -> Option<RotaryPairs> {
    match value.as_str()? {
        "neighbours" => Some(RotaryPairs::Neighbours),
        "halves" => Some(RotaryPairs::Halves),
        _ => None,
    }
}

/// The base where none is given.
pub const BASE: f64 = 10_000.0;

fn rotate<T: Float>(inputs: Inputs) -> Result<DMatrix<T>, Wrong> {
    let base = inputs.maybe("base", number)?.unwrap_or(BASE);
    let rotary = Rotary::new(base, inputs.need("pairs", pairs)?)?;
    let x = cast::<T>(&inputs.need("x", matrix_of_numbers)?);
    let positions = inputs.need("positions", numbers)?;
    fit(positions.len() == x.nrows(), "`positions` and `x`")?;
    let positions: Vec<_> =
        positions.into_iter().map(|position| position as isize).collect();
    turned(&rotary, x, &positions)
}

fn turned<T: Float>(
    rotary: &Rotary,
    mut x: DMatrix<T>,
    positions: &[isize],
) -> Result<DMatrix<T>, Wrong> {
    for (i, &position) in positions.iter().enumerate() {
        let row = rotary.turn(x.rows(i, 1), 1, position)?;
        x.set_row(i, &row.row(0));
    }
    Ok(x)
}

fn decode<T: Float>(
    inputs: Inputs,
    engine: &Arc<dyn Engine<T>>,
) -> Result<Vec<DMatrix<T>>, Wrong> {
    let chunks = inputs.need("chunks", |chunks| list(chunks, Some))?;
    let mut cache = match inputs.maybe("window", Value::as_u64)? {
        Some(width) => KeyValueCache::with_window(width as usize, 0)?,
        None => KeyValueCache::new(),
    };
    let rotary = inputs.maybe("rotary", pairs)?;
    let padding = inputs.maybe("padding", Value::as_u64)?.unwrap_or(0);
    let (mut output, mut tokens) = (vec![], 0);
    let mut first_layer = None; // one for all chunks: a cache is that of a layer
    for chunk in chunks {
        let qkv = qkv::<T>(Inputs(chunk))?;
        fit(qkv[0][0].nrows() == qkv[1][0].nrows(), "queries and keys of a chunk")?;
        if first_layer.is_none() {
            let (mut layer, [d_model, ..]) = bare_layer(&qkv)?;
            if let Some(pairs) = rotary {
                layer = layer.with_rotary(Rotary::new(BASE, pairs)?)?;
            }
            let widths = qkv.each_ref().map(|heads| (heads.len(), heads[0].ncols()));
            first_layer = Some((layer, d_model, widths));
        }
        let Some((layer, d_model, widths)) = &first_layer else { continue };
        let d_model = *d_model;
        fit(
            qkv.each_ref().map(|heads| (heads.len(), heads[0].ncols())) == *widths,
            "chunks",
        )?;
        let n = qkv[0][0].nrows();
        let (heads, width) = (layer.n_heads(), layer.n_heads() * qkv[2][0].ncols());
        let mut x = DMatrix::zeros(n, d_model);
        let mut first = 0;
        for part in qkv.map(|heads| join(&heads)) {
            x.columns_mut(first, part.ncols()).copy_from(&part);
            first += part.ncols();
        }
        tokens += n as u64;
        let mut mask = Mask::causal();
        if padding > 0 {
            // Rotary positions of the cache count padding, too: only their differences matter.
            let real: Vec<_> = (0..tokens).map(|j| j >= padding).collect();
            mask = mask.and(Mask::padding(&real)?);
        }
        let options = ForwardOptions::new().mask(mask).engine(engine.clone());
        let attended = layer.forward_cached(&x, &mut cache, options)?;
        output.push((attended.columns(0, width).into_owned(), heads));
    }
    let heads = output.first().ok_or("`chunks` is empty")?.1;
    let rows: Vec<_> = output.iter().flat_map(|(chunk, _)| chunk.row_iter()).collect();
    Ok(split(&DMatrix::from_rows(&rows), heads))
}

fn merge<T: Float>(inputs: Inputs) -> Result<Results, Wrong> {
    let outputs = inputs.need("outputs", matrices)?;
    let log_sum_exps = inputs.need("log_sum_exps", |lists| list(lists, numbers))?;
    let (n_q, d_v) = outputs.first().ok_or("`outputs` is empty")?.shape();
    let fits = outputs.len() == log_sum_exps.len()
        && outputs.iter().all(|part| part.shape() == (n_q, d_v))
        && log_sum_exps.iter().all(|lse| lse.len() == n_q);
    fit(fits, "`outputs` and `log_sum_exps`")?;
    let mut output = DMatrix::zeros(n_q, d_v);
    let mut log_sum_exp = vec![];
    for i in 0..n_q {
        let mut state = OnlineSoftmax::<T>::new(1, d_v)?;
        for (part, lse) in outputs.iter().zip(&log_sum_exps) {
            // Each part is one key, whose score is the log-sum-exp.
            let of_part: DMatrix<T> = cast(&part.rows(i, 1).into_owned());
            let lse = convert::<f64, T>(lse[i]);
            state.absorb(&dmatrix![lse], &of_part)?;
        }
        let (row, lse) = state.finish();
        output.set_row(i, &row.row(0));
        log_sum_exp.push(value(lse[0]));
    }
    Ok(results([("output", rows(&output)), ("log_sum_exp", log_sum_exp.into())]))
}

/// The slopes are what is taken from the score of a key at the distance 1.
fn alibi_slopes<T: Float>(inputs: Inputs) -> Result<Value, Wrong> {
    let heads = inputs.need("heads", Value::as_u64)? as usize;
    let mask = Mask::from(ScoreRule::alibi(heads)?);
    let slope = |h| {
        let scores =
            mask.clone().of_head(h).sized(1, 2)?.apply(DMatrix::<T>::zeros(1, 2))?;
        Ok(value(-scores[0]))
    };
    (0..heads).map(slope).collect::<Result<_, Wrong>>()
}

/// The inverse of [`Features::Elu`], so that positive entries are their own features.
fn before_features<T: Float>(x: DMatrixView<T>) -> DMatrix<T> {
    x.map(|x| if x >= T::one() { x - T::one() } else { x.ln() })
}

fn linear<T: Float>(inputs: Inputs) -> Result<Vec<DMatrix<T>>, Wrong> {
    let [q, k, v] = qkv::<T>(inputs)?;
    let linear = LinearAttention::new(Features::Elu, 2)?;
    let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(true);
    let heads = (0..q.len()).map(|h| {
        let g = h * k.len() / q.len();
        let (keys, v) = (before_features(k[g].as_view()), &v[g]);
        let q = before_features(q[h].as_view());
        if causal {
            return Ok(linear.forward(&q, &keys, v)?.0);
        }
        // The last token sees all keys, so each query is the last one in turn.
        let last = keys.nrows() - 1;
        let mut output = DMatrix::zeros(q.nrows(), v.ncols());
        for i in 0..q.nrows() {
            let same = DMatrix::from_fn(keys.nrows(), q.ncols(), |_, c| q[(i, c)]);
            output.set_row(i, &linear.forward(&same, &keys, v)?.0.row(last));
        }
        Ok(output)
    });
    heads.collect()
}

/// Keys and values of each head are made from the latent, and the keys' last columns are the rotary key that all heads share.
fn latent<T: Float>(
    inputs: Inputs,
    engine: &Arc<dyn Engine<T>>,
) -> Result<Vec<DMatrix<T>>, Wrong> {
    let of_heads = |name| {
        let found = inputs.need(name, matrices)?;
        Ok::<_, Wrong>(found.iter().map(cast::<T>).collect::<Vec<_>>())
    };
    let [q, w_uk, w_uv] = [of_heads("q")?, of_heads("w_uk")?, of_heads("w_uv")?];
    let latent = cast::<T>(&inputs.need("latent", matrix_of_numbers)?);
    let k_rope = cast::<T>(&inputs.need("k_rope", matrix_of_numbers)?);
    let fits = [&w_uk, &w_uv]
        .into_iter()
        .all(|w| w.len() == q.len() && w.iter().all(|w| w.nrows() == latent.ncols()));
    fit(fits && k_rope.nrows() == latent.nrows(), "`latent`, `k_rope` and matrices")?;
    let (n_q, n_k) = (q[0].nrows() as isize, latent.nrows() as isize);
    let rotary = inputs.maybe("rotary", pairs)?.map(|pairs| Rotary::new(BASE, pairs));
    let rotary = rotary.transpose()?;
    let turn = |x: DMatrix<T>, n: isize| match &rotary {
        Some(rotary) => turned(rotary, x, &(n_k - n..n_k).collect::<Vec<_>>()),
        None => Ok(x),
    };
    let k_rope = turn(k_rope, n_k)?;
    let beside = |left: &DMatrix<T>, right: &DMatrix<T>| {
        let columns: Vec<_> = left.column_iter().chain(right.column_iter()).collect();
        DMatrix::from_columns(&columns)
    };
    let d_rope = k_rope.ncols();
    let (mut queries, mut keys) = (vec![], vec![]);
    for (q, w_uk) in q.iter().zip(&w_uk) {
        fit(q.ncols() == w_uk.ncols() + d_rope, "`q`, `w_uk` and `k_rope`")?;
        let q_rope = turn(q.columns_range(w_uk.ncols()..).into_owned(), n_q)?;
        queries.push(beside(&q.columns(0, w_uk.ncols()).into_owned(), &q_rope));
        keys.push(beside(&(&latent * w_uk), &k_rope));
    }
    let values = w_uv.iter().map(|w_uv| &latent * w_uv).collect();
    let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(false);
    let asked = Attention::plain([queries, keys, values], causal);
    Ok(attend(&asked, engine, None)?.0)
}
