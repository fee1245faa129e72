//! The time-lines of kernel 4 and of plainer plans: the use of the tensor cores, if everything takes as long as its rates say.

use super::{COMPARISONS, EXPONENTIALS, LANES, TENSOR};

/// Warpgroups that multiply and exponentiate.
pub const CONSUMERS: usize = 2;
/// Queries of each.
pub const ROWS: usize = 64;

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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn two_consumers_keep_the_tensor_cores_busy_as_long_as_the_softmax_allows() {
        let lengths = Lengths::new(128, 128);
        for overlap in [false, true] {
            let exponentials = lengths.longest_softmax(overlap) - lengths.others;
            let barely = Lengths { exponentials, ..lengths };
            assert_eq!(barely.busy(CONSUMERS, overlap), 1.0);
            let more = Lengths { exponentials: exponentials + 1, ..lengths };
            assert!(more.busy(CONSUMERS, overlap) < 1.0);
        }
    }
}
