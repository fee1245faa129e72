//! The operations as loops in `f64`, with a fault switched on. Without one they are a second opinion on the crate.

use super::Fault::{self, *};
use super::by_crate::{BASE, pairs};
use super::values::{
    Attention, Inputs, columns, heads, list, matrices, matrix_of_numbers, number,
    numbers, qkv, rows, value,
};
use super::{Results, Wrong, results};
use attention::positions::RotaryPairs;
use half::{bf16, f16};
use nalgebra::{DMatrix, DVector};
use serde_json::Value;
use std::cell::Cell;
use std::f64::consts::LN_2;

/// Keys in a tile of the programs with a fault of tiles.
const TILE: usize = 4;

/// An attention with at most one fault.
#[derive(Clone, Copy)]
pub struct Program(pub Option<Fault>);

type Matrices = Vec<DMatrix<f64>>;

thread_local! {
    /// Calls so far, for a program whose sums depend on the run.
    static RUN: Cell<usize> = const { Cell::new(0) };
}

impl Program {
    /// Returns the results of an operation, or `None` if there is no such operation.
    pub fn answer(
        self,
        operation: &str,
        inputs: Inputs,
    ) -> Result<Option<Results>, Wrong> {
        Ok(Some(match operation {
            "attention" => {
                let (output, log_sum_exp) = self.attend(&Attention::read(inputs)?);
                let log_sum_exp = columns(&log_sum_exp);
                results([("output", heads(&output)), ("log_sum_exp", log_sum_exp)])
            }
            "attention_gradients" => self.gradients(inputs)?,
            "attention_dropout" => self.dropout(inputs)?,
            "multi_head" => results([("output", rows(&self.multi_head(inputs)?))]),
            "rotate" => results([("output", rows(&self.rotate(inputs)?))]),
            "decode" => results([("output", heads(&self.decode(inputs)?))]),
            "merge" => self.merge(inputs)?,
            "alibi_slopes" => {
                let heads = inputs.need("heads", Value::as_u64)? as usize;
                results([("output", (0..heads).map(|h| self.slope(h, heads)).collect())])
            }
            "linear_attention" => results([("output", heads(&self.linear(inputs)?))]),
            "latent_attention" => results([("output", heads(&self.latent(inputs)?))]),
            _ => return Ok(None),
        }))
    }

    fn has(self, fault: Fault) -> bool {
        self.0 == Some(fault)
    }

    /// Whether query i sees key j.
    fn sees(self, a: &Attention<f64>, i: usize, j: usize) -> bool {
        let (n_q, n_k) = a.shape();
        let offset =
            if self.has(CausalTopLeft) { 0 } else { n_k as isize - n_q as isize };
        let distance = i as isize + offset - j as isize;
        let causal = match self.0 {
            Some(CausalStrict) => distance > 0,
            Some(CausalForgottenWithCache) => distance >= 0 || n_q != n_k,
            Some(CausalIgnored) => true,
            _ => distance >= 0,
        };
        let window = match (self.0, a.window) {
            (Some(WindowOneWide), Some(width)) => distance <= width as isize,
            (Some(WindowOneNarrow), Some(width)) => distance < width as isize - 1,
            (Some(WindowForgottenWithCache), Some(_)) if n_q != n_k => true,
            (_, width) => width.is_none_or(|width| distance < width as isize),
        };
        let place = if self.has(MaskTransposed) && n_q == n_k { (j, i) } else { (i, j) };
        let mask = a.mask.as_ref().filter(|_| !self.has(MaskIgnored));
        let mask = mask.is_none_or(|mask| mask[place]);
        let seen = (causal || !a.causal) && window && mask;
        seen != (self.has(MaskInverted) && (a.causal || a.mask.is_some()))
    }

    /// The factor of the scores.
    fn scale(self, a: &Attention<f64>) -> f64 {
        let d = a.q[0].ncols();
        let width = match self.0 {
            Some(ScaleOfTheModel) => a.q.len() * d,
            Some(ScaleWithoutRoot) => d * d,
            Some(ScaleMissing) => 1,
            _ => d,
        };
        let given = a.scale.filter(|_| !self.has(ScaleIgnored));
        given.unwrap_or(1.0 / (width as f64).sqrt())
    }

    /// The scores of a head (n_q, n_k), with what the mask puts in place of those that are hidden.
    fn scores(self, a: &Attention<f64>, h: usize) -> DMatrix<f64> {
        let (n_q, n_k) = a.shape();
        let (q, k) = (&a.q[h], &a.k[self.kv_head(a, h)]);
        DMatrix::from_fn(n_q, n_k, |i, j| {
            let mut product = q.row(i).dot(&k.row(j));
            if self.has(ScoresOverflowHalf) && product.abs() > f16::MAX.to_f64() {
                product *= f64::INFINITY;
            }
            let offset =
                if self.has(AlibiTopLeft) { 0 } else { n_k as isize - n_q as isize };
            let after = (i as isize + offset - j as isize) as f64;
            let distance = match self.0 {
                Some(AlibiAdded) => -after.abs(),
                Some(AlibiSigned) => after,
                _ => after.abs(),
            };
            let bias = a.slopes.as_ref().map_or(0.0, |s| s[h] * distance);
            let score = self.capped(a, product * self.scale(a)) - bias;
            match self.0 {
                _ if self.sees(a, i, j) => score,
                Some(EmptyRowMean) => -1e9,
                Some(MaskMinus10000) => -1e4,
                Some(MaskZeroScores) => score * 0.0,
                Some(SoftcapAfterMask) => -a.softcap.unwrap_or(f64::INFINITY),
                Some(MaskAfterSoftmax) => score,
                Some(MaskAdded) => score + f64::NEG_INFINITY,
                _ => f64::NEG_INFINITY,
            }
        })
    }

    /// A scaled score after the soft cap.
    fn capped(self, a: &Attention<f64>, score: f64) -> f64 {
        match (self.0, a.softcap) {
            (Some(SoftcapIgnored), _) | (_, None) => score,
            (Some(SoftcapTimesScore), Some(cap)) => score * (score / cap).tanh(),
            (_, Some(cap)) => cap * (score / cap).tanh(),
        }
    }

    /// The derivative of the same.
    fn slope_of_cap(self, a: &Attention<f64>, score: f64) -> f64 {
        let Some(cap) = a.softcap else { return 1.0 };
        let tanh = (score / cap).tanh();
        match self.0 {
            Some(SoftcapIgnored | SoftcapGradientMissing) => 1.0,
            Some(SoftcapTimesScore) => tanh + score / cap * (1.0 - tanh * tanh),
            _ => 1.0 - tanh * tanh,
        }
    }

    /// The weights of each head (n_q, n_k), and the log-sum-exp of each query.
    fn weights(self, a: &Attention<f64>) -> (Matrices, Vec<Vec<f64>>) {
        self.softmax(a, &(0..a.q.len()).map(|h| self.scores(a, h)).collect::<Matrices>())
    }

    /// The same, of each head's scores.
    fn softmax(self, a: &Attention<f64>, scores: &Matrices) -> (Matrices, Vec<Vec<f64>>) {
        let largest = scores.iter().map(|head| head.max()).fold(f64::MIN, f64::max);
        let heads = scores.iter().map(|head| self.softmax_of_head(a, head, largest));
        let (mut weights, log_sum_exps): (Matrices, _) = heads.unzip();
        if self.has(SoftmaxOverHeads) {
            let n = scores.len();
            for place in 0..weights[0].len() {
                let of_heads = DMatrix::from_fn(n, 1, |h, _| scores[h][place]);
                let of_heads = over_queries(&of_heads);
                (0..n).for_each(|h| weights[h][place] = of_heads[h]);
            }
        }
        (weights, log_sum_exps)
    }

    /// The same for one head. The largest score of all heads is that of a fault.
    fn softmax_of_head(
        self,
        a: &Attention<f64>,
        scores: &DMatrix<f64>,
        largest_of_all: f64,
    ) -> (DMatrix<f64>, Vec<f64>) {
        let (n_q, n_k) = scores.shape();
        let mut log_sum_exps = vec![];
        let mut weights = scores.clone();
        for i in 0..n_q {
            let largest = |keys: usize| {
                let scores = (0..keys).map(|j| scores[(i, j)]);
                scores.fold(f64::NEG_INFINITY, f64::max)
            };
            let padding = match self.has(TilePaddingCounted) && n_k > TILE {
                true => n_k.next_multiple_of(TILE) - n_k,
                false => 0,
            };
            let first_is_hidden = largest(TILE.min(n_k)) == f64::NEG_INFINITY;
            // What is taken from the score of key j before its exponential.
            let shift = |j: usize| match self.0 {
                Some(SoftmaxWithoutMaximum) => 0.0,
                Some(MaximumOfAllRows) => largest_of_all,
                Some(TileNotRescaled) => largest((j / TILE * TILE + TILE).min(n_k)),
                Some(HiddenTileMaximum) if first_is_hidden => largest(n_k).max(0.0),
                Some(HiddenTileNan) if first_is_hidden => f64::NEG_INFINITY,
                _ if padding > 0 => largest(n_k).max(0.0),
                _ => largest(n_k),
            };
            // A row that the mask empties has a guard, unless that is the fault, or its author doesn't expect it.
            let guarded = !self.has(EmptyRowNan)
                && (0..n_k).all(|j| !Program(None).sees(a, i, j) && !self.sees(a, i, j));
            let finite =
                |shift: f64| if shift.is_finite() || !guarded { shift } else { 0.0 };
            for j in 0..n_k {
                weights[(i, j)] = (scores[(i, j)] - finite(shift(j))).exp();
            }
            let last = finite(shift(n_k - 1));
            let mut sum = weights.row(i).sum();
            if padding > 0 {
                sum += padding as f64 * (-last).exp();
            }
            log_sum_exps.push(self.logarithm(last + sum.ln()));
            let guarded = guarded || self.has(HiddenTileMaximum);
            let sum = if guarded && sum == 0.0 { 1.0 } else { sum };
            weights.row_mut(i).scale_mut(1.0 / sum);
        }
        match self.0 {
            Some(SoftmaxOverQueries) => weights = over_queries(scores),
            Some(MaskAfterSoftmax) => {
                let seen = |i, j| if self.sees(a, i, j) { 1.0 } else { 0.0 };
                weights.component_mul_assign(&DMatrix::from_fn(n_q, n_k, seen));
            }
            _ => {}
        }
        (weights, log_sum_exps)
    }

    /// The head of keys that a head of queries reads.
    fn kv_head(self, a: &Attention<f64>, h: usize) -> usize {
        if self.has(HeadsInterleaved) { h % a.k.len() } else { a.kv_head(h) }
    }

    /// A product with weights. Rows of `b` whose weight is 0 aren't read, since 0 · NaN is NaN.
    fn product(self, weights: &DMatrix<f64>, b: &DMatrix<f64>) -> DMatrix<f64> {
        DMatrix::from_fn(weights.nrows(), b.ncols(), |i, c| {
            let read = |j: &usize| weights[(i, *j)] != 0.0 || self.has(HiddenNan);
            (0..b.nrows()).filter(read).map(|j| weights[(i, j)] * b[(j, c)]).sum()
        })
    }

    /// The same product, with an order of the sums that depends on more than their terms: on the place of the head among all.
    fn product_in_order(
        self,
        weights: &DMatrix<f64>,
        b: &DMatrix<f64>,
        [h, n_heads]: [usize; 2],
    ) -> DMatrix<f64> {
        let n_q = weights.nrows();
        DMatrix::from_fn(n_q, b.ncols(), |i, c| {
            let read = |j: &usize| weights[(i, *j)] != 0.0;
            let terms = (0..b.nrows()).filter(read).map(|j| weights[(i, j)] * b[(j, c)]);
            let mut terms: Vec<f64> = terms.collect();
            let n = terms.len().max(1);
            let part = match self.0 {
                Some(BitsBySplit) => n.div_ceil((8 / (n_heads * n_q)).max(1)),
                Some(BitsByTile) if n_q > 2 => 16,
                Some(BitsByTile) => 4,
                _ => n,
            };
            match self.0 {
                Some(BitsByPlace) => terms.rotate_left(7 * h % n),
                Some(BitsByRun) if RUN.get() % 2 == 1 => terms.reverse(),
                _ => {}
            }
            terms.chunks(part).map(|part| part.iter().sum::<f64>()).sum()
        })
    }

    fn attend(self, a: &Attention<f64>) -> (Matrices, Vec<Vec<f64>>) {
        let (weights, log_sum_exps) = self.weights(a);
        (self.outputs(a, &weights), log_sum_exps)
    }

    /// The output of each head.
    fn outputs(self, a: &Attention<f64>, weights: &Matrices) -> Matrices {
        RUN.set(RUN.get() + 1);
        let heads = weights.iter().enumerate().map(|(h, weights)| {
            let mut output = match self.0 {
                Some(BitsBySplit | BitsByTile | BitsByPlace | BitsByRun) => {
                    self.product_in_order(weights, &a.v[a.kv_head(h)], [h, a.q.len()])
                }
                _ => self.product(weights, &a.v[self.kv_head(a, h)]),
            };
            if self.has(NanToZero) {
                output.apply(|x| *x = if x.is_nan() { 0.0 } else { *x });
            }
            output
        });
        heads.collect()
    }

    /// A log-sum-exp as the program returns it.
    fn logarithm(self, natural: f64) -> f64 {
        if self.has(LogSumExpInBase2) { natural / LN_2 } else { natural }
    }

    fn gradients(self, inputs: Inputs) -> Result<Results, Wrong> {
        let a = Attention::read(inputs)?;
        let d_outputs = inputs.need("d_output", matrices)?;
        let zero = |x: &DMatrix<f64>| DMatrix::zeros(x.nrows(), x.ncols());
        let zeros = |x: &Matrices| x.iter().map(zero).collect::<Matrices>();
        let [mut d_q, mut d_k, mut d_v] = [zeros(&a.q), zeros(&a.k), zeros(&a.v)];
        let scale = match self.0 {
            Some(GradientScaleMissing) => 1.0,
            Some(GradientScaleTwice) => self.scale(&a) * self.scale(&a),
            _ => self.scale(&a),
        };
        let (all_weights, _) = self.weights(&a);
        // The sum over all heads of weights times their gradients.
        let over_heads = |i: usize, j: usize| -> f64 {
            let product = |h: usize| {
                let d_weight = d_outputs[h].row(i).dot(&a.v[self.kv_head(&a, h)].row(j));
                all_weights[h][(i, j)] * d_weight
            };
            (0..a.q.len()).map(product).sum()
        };
        for h in 0..a.q.len() {
            let (g, d_output) = (self.kv_head(&a, h), &d_outputs[h]);
            let (k, v) = (&a.k[g], &a.v[g]);
            let weights = &all_weights[h];
            // The gradient of a constant, which is what the mask put there.
            let hidden = |i, j| !self.sees(&a, i, j) && !self.has(HiddenNan);
            let constant = |x: DMatrix<f64>| {
                let entry = |i, j| if hidden(i, j) { 0.0 } else { x[(i, j)] };
                DMatrix::from_fn(x.nrows(), x.ncols(), entry)
            };
            let d_weights = constant(d_output * v.transpose());
            let products = weights.component_mul(&d_weights);
            let d_scores = DMatrix::from_fn(weights.nrows(), weights.ncols(), |i, j| {
                let sum = match self.0 {
                    Some(GradientWithoutD) => 0.0,
                    Some(SoftmaxOverQueries) => products.column(j).sum(),
                    Some(SoftmaxOverHeads) => over_heads(i, j),
                    _ => products.row(i).sum(),
                };
                let score = a.q[h].row(i).dot(&k.row(j)) * self.scale(&a);
                let d_capped = weights[(i, j)] * (d_weights[(i, j)] - sum);
                d_capped * self.slope_of_cap(&a, score)
            });
            let d_products = constant(d_scores) * scale;
            d_q[h] = self.product(&d_products, k);
            if self.has(GroupGradientsOverwritten) {
                d_k[g].fill(0.0);
                d_v[g].fill(0.0);
            }
            d_k[g] += self.product(&d_products.transpose(), &a.q[h]);
            d_v[g] += self.product(&weights.transpose(), d_output);
        }
        if self.has(GroupGradientsMean) {
            let group = (a.q.len() / a.k.len()) as f64;
            d_k.iter_mut().chain(&mut d_v).for_each(|gradient| *gradient /= group);
        }
        let output = heads(&self.attend(&a).0);
        let [d_q, d_k, d_v] = [d_q, d_k, d_v].map(|x| heads(&x));
        Ok(results([("output", output), ("d_q", d_q), ("d_k", d_k), ("d_v", d_v)]))
    }

    /// In training, the means of outputs and of their products: every draw, weighed by its probability.
    fn dropout(self, inputs: Inputs) -> Result<Results, Wrong> {
        let a = Attention::read(inputs)?;
        let mut output = self.attend(&a).0;
        let p = inputs.need("dropout", number)?;
        if !inputs.need("training", Value::as_bool)? {
            if self.has(DropoutInEvaluation) {
                // The cases have a p so near to 1 that no weight stays.
                output.iter_mut().for_each(|head| head.fill(0.0));
            }
            return Ok(results([("output", heads(&output))]));
        }
        let keep = if self.has(DropoutKeepsP) { p } else { 1.0 - p };
        let factor = if self.has(DropoutNotScaled) { 1.0 } else { 1.0 / keep };
        let (n_heads, (n_q, n_k), d_v) = (a.q.len(), a.shape(), a.v[0].ncols());
        let size = n_heads * n_q * d_v;
        // How many are dropped or kept, each on its own.
        let count = match self.0 {
            Some(DropoutOnOutput) => size,
            Some(DropoutOnce) => n_k,
            _ => n_heads * n_q * n_k,
        };
        let mut mean = output.iter().map(|head| head * 0.0).collect::<Matrices>();
        let mut products = DMatrix::zeros(size, size);
        for draw in 0..1_u32 << count {
            let kept = draw.count_ones() as i32;
            let probability = keep.powi(kept) * (1.0 - keep).powi(count as i32 - kept);
            let dropped = |x: &Matrices| -> Matrices {
                let head = |h: usize| {
                    let (rows, columns) = x[h].shape();
                    DMatrix::from_fn(rows, columns, |i, j| {
                        let place = match self.0 {
                            Some(DropoutOnce) => j,
                            _ => (h * rows + i) * columns + j,
                        };
                        x[h][(i, j)] * if draw >> place & 1 == 1 { factor } else { 0.0 }
                    })
                };
                (0..x.len()).map(head).collect()
            };
            let output = match self.0 {
                Some(DropoutOnOutput) => dropped(&output),
                Some(DropoutOnScores) => {
                    let scores: Matrices =
                        (0..n_heads).map(|h| self.scores(&a, h)).collect();
                    self.outputs(&a, &self.softmax(&a, &dropped(&scores)).0)
                }
                _ => self.outputs(&a, &dropped(&self.weights(&a).0)),
            };
            mean.iter_mut().zip(&output).for_each(|(sum, x)| *sum += x * probability);
            let flat =
                output.iter().flat_map(|head| head.transpose().as_slice().to_vec());
            let flat = DVector::from_iterator(size, flat);
            products += &flat * flat.transpose() * probability;
        }
        Ok(results([("output", heads(&mean)), ("products", rows(&products))]))
    }

    fn multi_head(self, inputs: Inputs) -> Result<DMatrix<f64>, Wrong> {
        let matrix = |name| inputs.need(name, matrix_of_numbers);
        let (x, n_heads) = (matrix("x")?, inputs.need("heads", Value::as_u64)? as usize);
        let n = x.nrows();
        let split = |projected: DMatrix<f64>| -> Matrices {
            let d = projected.ncols() / n_heads;
            let head = |h| match self.0 {
                // As a view (heads, n, d) of the memory in which the rows are tokens.
                Some(HeadsSplitWithoutTranspose) => {
                    let memory = projected.transpose();
                    DMatrix::from_row_slice(
                        n,
                        d,
                        &memory.as_slice()[h * n * d..][..n * d],
                    )
                }
                _ => projected.columns(h * d, d).into_owned(),
            };
            (0..n_heads).map(head).collect()
        };
        let [q, k, v] =
            [matrix("w_q")?, matrix("w_k")?, matrix("w_v")?].map(|w| split(&x * w));
        let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(false);
        let (heads, _) = self.attend(&Attention::plain([q, k, v], causal));
        let width = n_heads * heads[0].ncols();
        let merged = match self.0 {
            Some(HeadsMergedWithoutTranspose) => {
                let rows =
                    heads.iter().flat_map(|head| head.transpose().as_slice().to_vec());
                DMatrix::from_row_iterator(n, width, rows)
            }
            _ => DMatrix::from_fn(n, width, |i, c| {
                heads[c * n_heads / width][(i, c % (width / n_heads))]
            }),
        };
        Ok(merged * matrix("w_o")?)
    }

    /// Turns the pairs of a row as its position says.
    fn turn_row(
        self,
        row: &[f64],
        position: f64,
        pairs: RotaryPairs,
        base: f64,
    ) -> Vec<f64> {
        let (d, mut turned) = (row.len(), row.to_vec());
        let pairs = match self.0 {
            Some(RotaryAlwaysHalves) => RotaryPairs::Halves,
            Some(RotaryAlwaysNeighbours) => RotaryPairs::Neighbours,
            _ => pairs,
        };
        let position = match self.has(PositionInHalf) {
            true => bf16::from_f64(position).to_f64(),
            false => position,
        };
        for t in 0..d / 2 {
            let frequency = base.powf(-2.0 * t as f64 / d as f64);
            let angle = match self.has(AnglesInSingle) {
                true => f64::from(position as f32 * frequency as f32),
                false => position * frequency,
            };
            let [a, b] = match pairs {
                RotaryPairs::Neighbours => [2 * t, 2 * t + 1],
                RotaryPairs::Halves => [t, t + d / 2],
            };
            turned[a] = row[a] * angle.cos() - row[b] * angle.sin();
            turned[b] = row[a] * angle.sin() + row[b] * angle.cos();
        }
        turned
    }

    /// Turns the rows of a matrix, of which the first stands at a position.
    fn turn(self, x: &mut DMatrix<f64>, first: f64, pairs: Option<RotaryPairs>) {
        let Some(pairs) = pairs else { return };
        for i in 0..x.nrows() {
            let row: Vec<f64> = x.row(i).iter().copied().collect();
            let turned = self.turn_row(&row, first + i as f64, pairs, BASE);
            x.set_row(i, &DVector::from_vec(turned).transpose());
        }
    }

    fn rotate(self, inputs: Inputs) -> Result<DMatrix<f64>, Wrong> {
        let x = inputs.need("x", matrix_of_numbers)?;
        let positions = inputs.need("positions", numbers)?;
        let pairs = inputs.need("pairs", pairs)?;
        let base = inputs.maybe("base", number)?.unwrap_or(BASE);
        let rows = x.row_iter().zip(positions).flat_map(|(row, position)| {
            let row: Vec<f64> = row.iter().copied().collect();
            self.turn_row(&row, position, pairs, base)
        });
        Ok(DMatrix::from_row_iterator(x.nrows(), x.ncols(), rows))
    }

    fn decode(self, inputs: Inputs) -> Result<Matrices, Wrong> {
        let window = inputs.maybe("window", Value::as_u64)?.map(|width| width as usize);
        let rotary = inputs.maybe("rotary", pairs)?;
        let padding = inputs.maybe("padding", Value::as_u64)?.unwrap_or(0) as usize;
        let (mut outputs, mut keys, mut values) = (vec![], vec![], vec![]);
        let mut tokens = 0;
        for chunk in inputs.need("chunks", |chunks| list(chunks, Some))? {
            let [mut q, mut k, v] = qkv::<f64>(Inputs(chunk))?;
            let n = q[0].nrows();
            // Positions count from the first token that isn't padding.
            let first = match self.0 {
                Some(PositionOfTheChunk) => 0.0,
                Some(PositionCountsPadding) if tokens > 0 => tokens as f64,
                _ => tokens as f64 - padding as f64,
            };
            q.iter_mut().chain(&mut k).for_each(|head| self.turn(head, first, rotary));
            if self.has(KeysRotatedAgain) {
                let again = |head: &mut DMatrix<f64>| {
                    let first = tokens as f64 - head.nrows() as f64 - padding as f64;
                    self.turn(head, first, rotary);
                };
                keys.iter_mut().for_each(again);
            }
            tokens += n;
            keys = below(keys, k);
            values = below(values, v);
            let keep = |last: usize, keys: &mut Matrices, values: &mut Matrices| {
                for held in keys.iter_mut().chain(values) {
                    let n = held.nrows();
                    *held = held.rows_range(n.saturating_sub(last)..).into_owned();
                }
            };
            if let (Some(width), true) = (window, self.has(WindowCutTooEarly)) {
                keep(width, &mut keys, &mut values);
            }
            let qkv = [q, keys.clone(), values.clone()];
            let held = keys[0].nrows();
            let real = |_, j| tokens - held + j >= padding;
            let mask = (padding > 0).then(|| DMatrix::from_fn(n, held, real));
            let asked = Attention { window, mask, ..Attention::plain(qkv, true) };
            outputs = below(outputs, self.attend(&asked).0);
            match (self.0, window) {
                (Some(WindowForgottenWithCache), _) => {}
                (_, Some(width)) => keep(width - 1, &mut keys, &mut values),
                _ => {}
            }
        }
        Ok(outputs)
    }

    fn merge(self, inputs: Inputs) -> Result<Results, Wrong> {
        let outputs = inputs.need("outputs", matrices)?;
        let log_sum_exps = inputs.need("log_sum_exps", |lists| list(lists, numbers))?;
        let (n_q, d_v) = outputs.first().ok_or("`outputs` is empty")?.shape();
        let (mut output, mut merged) = (DMatrix::<f64>::zeros(n_q, d_v), vec![]);
        for i in 0..n_q {
            let natural = if self.has(LogSumExpInBase2) { LN_2 } else { 1.0 };
            let parts: Vec<f64> =
                log_sum_exps.iter().map(|lse| lse[i] * natural).collect();
            let max = parts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shift = match self.0 {
                Some(MergeWithoutMaximum) => 0.0,
                Some(MergeEmptyNan) => max,
                _ if max == f64::NEG_INFINITY => 0.0,
                _ => max,
            };
            let weights: Vec<f64> = parts.iter().map(|lse| (lse - shift).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (part, weight) in outputs.iter().zip(weights) {
                let share = match self.0 {
                    Some(MergeMean) => 1.0 / outputs.len() as f64,
                    _ if sum == 0.0 && max == f64::NEG_INFINITY => 0.0,
                    _ => weight / sum,
                };
                output
                    .row_mut(i)
                    .zip_apply(&part.row(i), |sum: &mut f64, x| *sum += share * x);
            }
            merged.push(self.logarithm(shift + sum.ln()));
        }
        let log_sum_exp = merged.into_iter().map(value).collect();
        Ok(results([("output", rows(&output)), ("log_sum_exp", log_sum_exp)]))
    }

    fn slope(self, h: usize, heads: usize) -> f64 {
        let h = if self.has(AlibiFromOne) { h as f64 } else { h as f64 + 1.0 };
        let power = 1 << heads.ilog2();
        let slope = |h: f64, n: usize| (-8.0 * h / n as f64).exp2();
        match h as usize > power && !self.has(AlibiPlainFormula) {
            _ if self.has(AlibiPlainFormula) => slope(h, heads),
            true => slope(2.0 * (h - power as f64) - 1.0, 2 * power),
            false => slope(h, power),
        }
    }

    fn linear(self, inputs: Inputs) -> Result<Matrices, Wrong> {
        let [q, k, v] = qkv::<f64>(inputs)?;
        let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(true);
        let heads = (0..q.len()).map(|h| {
            let g = h * k.len() / q.len();
            let (q, k, v) = (&q[h], &k[g], &v[g]);
            let products = q * k.transpose();
            let seen = |i: usize, j: usize| !causal || j <= i;
            let over = |i: usize, all: bool, of: &dyn Fn(usize) -> f64| -> f64 {
                let keys = (0..k.nrows()).filter(|&j| all || seen(i, j));
                keys.map(|j| products[(i, j)] * of(j)).sum()
            };
            DMatrix::from_fn(q.nrows(), v.ncols(), |i, c| {
                let sum = over(i, false, &|j| v[(j, c)]);
                match self.0 {
                    Some(LinearWithoutDenominator) => sum,
                    _ => sum / over(i, self.has(LinearDenominatorOfAll), &|_| 1.0),
                }
            })
        });
        Ok(heads.collect())
    }

    /// Attention whose keys and values are made from a latent.
    fn latent(self, inputs: Inputs) -> Result<Matrices, Wrong> {
        let (mut q, w_uk) = (inputs.need("q", matrices)?, inputs.need("w_uk", matrices)?);
        let w_uv = inputs.need("w_uv", matrices)?;
        let latent = inputs.need("latent", matrix_of_numbers)?;
        let k_rope = inputs.need("k_rope", matrix_of_numbers)?;
        let rotary = inputs.maybe("rotary", pairs)?;
        let causal = inputs.maybe("causal", Value::as_bool)?.unwrap_or(false);
        let (d_nope, d_rope) = (w_uk[0].ncols(), k_rope.ncols());
        let scale = match self.0 {
            Some(LatentScaleOfContent) => Some(d_nope),
            Some(LatentScaleAbsorbed) => Some(latent.ncols() + d_rope),
            _ => None,
        };
        let scale = scale.map(|width| 1.0 / (width as f64).sqrt());
        let first = latent.nrows() as f64 - q[0].nrows() as f64;
        let (mut k, mut v) = (vec![], vec![]);
        for (h, q) in q.iter_mut().enumerate() {
            let mut content = &latent * &w_uk[h];
            if self.has(LatentAbsorbedUntransposed) && latent.ncols() == d_nope {
                let absorbed = q.columns(0, d_nope) * &w_uk[h];
                q.columns_mut(0, d_nope).copy_from(&absorbed);
                content = latent.clone();
            }
            let counts = h == 0 || !self.has(LatentRotaryKeyOfOneHead);
            let mut key = content.resize_horizontally(d_nope + d_rope, 0.0);
            key.columns_mut(d_nope, d_rope).copy_from(&(&k_rope * f64::from(counts)));
            let part = if self.has(LatentRotatesAll) { 0 } else { d_nope };
            for (x, first) in [(&mut *q, first), (&mut key, 0.0)] {
                let mut turned = x.columns_range(part..).into_owned();
                self.turn(&mut turned, first, rotary);
                x.columns_range_mut(part..).copy_from(&turned);
            }
            k.push(key);
            v.push(&latent * &w_uv[h]);
        }
        Ok(self.attend(&Attention { scale, ..Attention::plain([q, k, v], causal) }).0)
    }
}

/// Softmax down the columns of scores.
fn over_queries(scores: &DMatrix<f64>) -> DMatrix<f64> {
    let mut weights = scores.clone();
    for mut column in weights.column_iter_mut() {
        let max = column.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        column.apply(|x| *x = (*x - max.max(f64::MIN)).exp());
        let sum = column.sum();
        column /= if sum == 0.0 { 1.0 } else { sum };
    }
    weights
}

/// The rows of each head below those that are there already.
fn below(held: Matrices, new: Matrices) -> Matrices {
    if held.is_empty() {
        return new;
    }
    let rows = |(held, new): (&DMatrix<f64>, &DMatrix<f64>)| {
        let rows: Vec<_> = held.row_iter().chain(new.row_iter()).collect();
        DMatrix::from_rows(&rows)
    };
    held.iter().zip(&new).map(rows).collect()
}
