use nalgebra::RowDVector;

// ANCHOR: state
/// The softmax of a row whose scores come one after the other, and its mean of values.
pub struct Partial {
    pub max: f64,                // the largest score so far
    pub sum: f64,                // of exp(score − max)
    pub values: RowDVector<f64>, // the sum of exp(score − max) · value (d_v)
}
// ANCHOR_END: state

// ANCHOR: absorb
impl Partial {
    /// Before the first score.
    pub fn new(d_v: usize) -> Partial {
        Partial { max: f64::NEG_INFINITY, sum: 0.0, values: RowDVector::zeros(d_v) }
    }

    /// Takes up one more key, by its score and its value.
    pub fn absorb(&mut self, score: f64, value: &RowDVector<f64>) {
        self.rescale(self.max.max(score));
        let exponential = (score - self.max).exp();
        self.sum += exponential;
        self.values += exponential * value;
    }

    /// Makes all that was summed so far relative to a larger maximum.
    fn rescale(&mut self, max: f64) {
        if self.max < max {
            let correction = (self.max - max).exp(); // exp(−∞) is 0: nothing so far
            self.sum *= correction;
            self.values *= correction;
            self.max = max;
        }
    }
}
// ANCHOR_END: absorb

// ANCHOR: merge
impl Partial {
    /// Two parts of one row, whose keys were seen apart, in one.
    pub fn merge(mut self, mut other: Partial) -> Partial {
        let max = self.max.max(other.max);
        self.rescale(max);
        other.rescale(max);
        Partial { max, sum: self.sum + other.sum, values: self.values + other.values }
    }
}
// ANCHOR_END: merge

// ANCHOR: finish
impl Partial {
    /// The output of the row, and its log-sum-exp.
    pub fn finish(self) -> (RowDVector<f64>, f64) {
        assert!(self.sum > 0.0, "the query sees no key");
        (self.values / self.sum, self.max + self.sum.ln())
    }
}
// ANCHOR_END: finish
