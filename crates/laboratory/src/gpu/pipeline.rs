//! The time-line of kernel 4, as it is planned: the use of the tensor cores, if everything takes as long as its rates say.

use super::{COMPARISONS, EXPONENTIALS, LANES, TENSOR};

/// Clocks from the request of a tile to its arrival: assumed, for none is stated.
pub const ARRIVAL: usize = 800;
/// Warpgroups that multiply and exponentiate.
pub const CONSUMERS: usize = 2;
/// Queries of each.
pub const ROWS: usize = 64;
/// Places for a tile of keys, and as many for a tile of values.
pub const STAGES: usize = 2;
/// Tiles of keys in a plan.
pub const TILES: usize = 6;

/// Something that takes its time, from one clock to another.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The tile of keys that it is for.
    pub tile: usize,
    /// The first clock.
    pub from: usize,
    /// The clock after the last.
    pub to: usize,
}

/// The work of the producer and of all consumers, tile by tile.
#[derive(Debug, Default)]
pub struct Plan {
    /// Products with the keys, of each consumer.
    pub scores: [Vec<Span>; CONSUMERS],
    /// Products with the values, of each consumer.
    pub outputs: [Vec<Span>; CONSUMERS],
    /// Of each consumer, without corrections.
    pub softmax: [Vec<Span>; CONSUMERS],
    /// Each tile of keys in its stage, from request to release.
    pub keys: Vec<Span>,
    /// The same of the values.
    pub values: Vec<Span>,
}

/// Clocks of a consumer's pieces of work for one tile.
#[derive(Debug, Clone, Copy)]
pub struct Lengths {
    /// Scores of the tile.
    pub entries: usize,
    /// Either product.
    pub product: usize,
    /// Of the whole tile.
    pub exponentials: usize,
    /// Beside each exponential, a difference and a sum, and a maximum and half a conversion, which are slower.
    pub others: usize,
    /// Of the output, when the maximum has moved.
    pub correction: usize,
}

impl Lengths {
    /// For tiles of so many keys, with heads of this width.
    ///
    /// ```
    /// let lengths = laboratory::gpu::Lengths::new(128, 128);
    /// assert_eq!((lengths.product, lengths.softmax()), (512, 832));
    /// ```
    pub fn new(keys: usize, width: usize) -> Self {
        let entries = ROWS * keys;
        Self {
            entries,
            product: entries * width / TENSOR,
            exponentials: entries / EXPONENTIALS,
            others: entries * 2 / LANES + entries * 3 / 2 / COMPARISONS,
            correction: ROWS * width / LANES,
        }
    }

    /// Softmax of a tile, without the correction.
    pub fn softmax(self) -> usize {
        self.exponentials + self.others
    }

    /// The share of the time that the tensor cores work, far from the beginning and the end; a consumer waits for its
    /// softmax and correction, and for both of its products or, if they overlap, for one.
    pub fn busy(self, consumers: usize, overlap: bool) -> f64 {
        let waited_for = if overlap { 1 } else { 2 };
        let products = 2 * consumers * self.product;
        let one = waited_for * self.product + self.softmax() + self.correction;
        products as f64 / products.max(one) as f64
    }

    /// The share of the time that the units of softmax and correction work while two consumers keep the tensor cores
    /// busy: they do both consumers' share beside four products.
    pub fn softmax_busy(self) -> f64 {
        let units = CONSUMERS * (self.softmax() + self.correction);
        units as f64 / (2 * CONSUMERS * self.product) as f64
    }

    /// Returns the longest time that a softmax may take while two consumers keep the tensor cores busy.
    pub fn longest_softmax(self, overlap: bool) -> usize {
        let waited_for = if overlap { 1 } else { 2 };
        (2 * CONSUMERS - waited_for) * self.product - self.correction
    }
}

/// A kind of work, for which a bar of a time-line stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// A product with the keys.
    Scores,
    /// Softmax and correction.
    Softmax,
    /// A product with the values.
    Output,
}

/// A piece of work of one consumer.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// The kind of work.
    pub work: Work,
    /// The consumer that does it.
    pub consumer: usize,
    /// Its tile, and its time.
    pub span: Span,
}

impl Lengths {
    /// So many consumers that share the tensor cores. The softmax of each runs beside its output of the tile before, if they overlap;
    /// otherwise it does one thing after the other.
    pub fn time_line(self, consumers: usize, overlap: bool, tiles: usize) -> Vec<Bar> {
        let mut bars = vec![];
        let mut tensor = 0; // when the tensor cores are free
        let mut ready = vec![0; consumers];
        // Each round has the output of the tile before and the scores of this one.
        for tile in 0..=tiles {
            for (consumer, ready) in ready.iter_mut().enumerate() {
                let mut bar = |work, tile, from, length| {
                    let span = Span { tile, from, to: from + length };
                    bars.push(Bar { work, consumer, span });
                    span.to
                };
                if tile > 0 && !overlap {
                    tensor =
                        bar(Work::Output, tile - 1, tensor.max(*ready), self.product);
                    *ready = tensor;
                }
                let mut done = *ready;
                if tile < tiles {
                    tensor = bar(Work::Scores, tile, tensor.max(*ready), self.product);
                    *ready = tensor;
                    let softmax = self.softmax() + self.correction;
                    done = bar(Work::Softmax, tile, tensor, softmax);
                }
                if tile > 0 && overlap {
                    tensor =
                        bar(Work::Output, tile - 1, tensor.max(*ready), self.product);
                    done = done.max(tensor);
                }
                *ready = done;
            }
        }
        bars
    }
}

impl Plan {
    /// Two consumers with both overlaps, whose tiles a producer brings.
    pub fn new(lengths: Lengths) -> Self {
        let Lengths { product, correction, .. } = lengths;
        let softmax = lengths.softmax();
        let mut plan = Plan::default();
        let mut tensor = 0; // when the tensor cores are free
        let mut ready = [0; CONSUMERS];
        let mut turn = 0; // when the consumer before has begun
        let (mut keys_there, mut values_there) = (vec![], vec![]);
        for tile in 0..=TILES {
            // The producer asks as soon as the stage is empty.
            let request = |of: &[Span], tile: usize| {
                tile.checked_sub(STAGES).map_or(0, |before: usize| of[before].to)
            };
            if tile < TILES {
                let from = request(&plan.keys, tile);
                keys_there.push(from + ARRIVAL);
                plan.keys.push(Span { tile, from, to: 0 });
            }
            if tile > 0 {
                let from = request(&plan.values, tile - 1)
                    .max(plan.keys[(tile).min(TILES - 1)].from);
                values_there.push(from + ARRIVAL);
                plan.values.push(Span { tile: tile - 1, from, to: 0 });
            }
            for (consumer, ready) in ready.iter_mut().enumerate() {
                let mut begin = turn.max(*ready);
                let mut output_over = 0;
                if tile < TILES {
                    begin = begin.max(keys_there[tile]);
                    let from = begin.max(tensor);
                    tensor = from + product;
                    plan.scores[consumer].push(Span { tile, from, to: tensor });
                    plan.keys[tile].to = plan.keys[tile].to.max(tensor);
                    plan.softmax[consumer].push(Span {
                        tile,
                        from: tensor,
                        to: tensor + softmax,
                    });
                }
                if tile > 0 {
                    let from = tensor.max(begin).max(values_there[tile - 1]);
                    tensor = from + product;
                    output_over = tensor;
                    plan.outputs[consumer].push(Span {
                        tile: tile - 1,
                        from,
                        to: tensor,
                    });
                    plan.values[tile - 1].to = plan.values[tile - 1].to.max(tensor);
                }
                turn = begin;
                let weighed = plan.softmax[consumer].last().map_or(0, |span| span.to);
                // The first tile finds nothing to correct.
                *ready = weighed.max(output_over) + if tile > 0 { correction } else { 0 };
            }
        }
        plan
    }

    /// The share of the time in which the tensor cores work, from the second tile's scores to the last tile's: neither
    /// the beginning nor the end.
    pub fn busy(&self) -> f64 {
        let (first, last) = (self.scores[0][1].from, self.scores[0][TILES - 1].from);
        let products = self.scores.iter().chain(&self.outputs).flatten();
        let busy: usize = products
            .map(|span| span.to.min(last).saturating_sub(span.from.max(first)))
            .sum();
        busy as f64 / (last - first) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_consumer_has_the_tensor_cores_twice_and_no_tile_is_used_before_it_is_there() {
        let plan = Plan::new(Lengths::new(128, 128));
        let mut all: Vec<_> =
            plan.scores.iter().chain(&plan.outputs).flatten().copied().collect();
        all.sort_by_key(|span| span.from);
        assert!(all.windows(2).all(|pair| pair[0].to <= pair[1].from));
        assert_eq!(all.len(), 2 * CONSUMERS * TILES);
        for consumer in 0..CONSUMERS {
            for tile in 0..TILES {
                let [scores, output, softmax] =
                    [&plan.scores, &plan.outputs, &plan.softmax]
                        .map(|of| of[consumer][tile]);
                assert!(
                    plan.keys[tile].from + ARRIVAL <= scores.from
                        && scores.to <= plan.keys[tile].to
                );
                assert!(
                    plan.values[tile].from + ARRIVAL <= output.from
                        && output.to <= plan.values[tile].to
                );
                assert!(scores.to <= softmax.from && softmax.to <= output.from);
            }
        }
        for stage in [&plan.keys, &plan.values] {
            assert!(stage.windows(3).all(|tiles| tiles[0].to <= tiles[2].from));
        }
    }

    /// Far from the beginning and the end, the drawn time-lines are as busy as the formula says.
    #[test]
    fn time_lines_are_as_busy_as_the_formula_says() {
        let (lengths, tiles) = (Lengths::new(128, 128), 40);
        for (consumers, overlap) in [(1, false), (1, true), (2, false), (2, true)] {
            let bars = lengths.time_line(consumers, overlap, tiles);
            let expected = lengths.busy(consumers, overlap);
            let mut products: Vec<_> =
                bars.iter().filter(|bar| bar.work != Work::Softmax).collect();
            products.sort_by_key(|bar| bar.span.from);
            assert!(products.windows(2).all(|pair| pair[0].span.to <= pair[1].span.from));
            let middle = &products[8..products.len() - 8];
            let time = middle[middle.len() - 1].span.to - middle[0].span.from;
            let busy = (middle.len() * lengths.product) as f64 / time as f64;
            assert!((busy - expected).abs() < 0.02, "{busy} {expected}");
        }
    }

    #[test]
    fn the_plan_keeps_the_tensor_cores_busy_as_long_as_the_softmax_allows() {
        let lengths = Lengths::new(128, 128);
        let most = lengths.longest_softmax(true) - lengths.others;
        for (exponentials, full) in [(512, true), (most, true), (most + 64, false)] {
            let lengths = Lengths { exponentials, ..lengths };
            let plan = Plan::new(lengths);
            let turns = TILES - 3;
            let time = plan.scores[0][TILES - 1].from - plan.scores[0][2].from;
            let busy = (2 * CONSUMERS * turns * lengths.product) as f64 / time as f64;
            assert_eq!(busy == 1.0, full, "{exponentials}");
            assert!((busy - lengths.busy(CONSUMERS, true)).abs() < 0.01, "{busy}");
        }
        let barely = Lengths {
            exponentials: lengths.longest_softmax(false) - lengths.others,
            ..lengths
        };
        assert_eq!(barely.busy(CONSUMERS, false), 1.0);
        let more = Lengths { exponentials: barely.exponentials + 1, ..barely };
        assert!(more.busy(CONSUMERS, false) < 1.0);
        assert_eq!(more.busy(CONSUMERS, true), 1.0);
    }
}
