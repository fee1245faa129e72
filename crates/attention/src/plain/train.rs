use super::{Matrix, softmax_rows};

// ANCHOR: cross_entropy
/// The mean surprise at the tokens that did come next, −ln(weight), and its gradient with
/// respect to the scores (n, vocabulary).
pub fn cross_entropy(scores: &Matrix, next: &[usize]) -> (f64, Matrix) {
    let mut gradient = softmax_rows(scores); // the weights, less 1 where `next` is
    let mut loss = 0.0;
    for (i, &token) in next.iter().enumerate() {
        loss -= gradient[(i, token)].ln();
        gradient[(i, token)] -= 1.0;
    }
    let n = next.len() as f64;
    (loss / n, gradient / n)
}
// ANCHOR_END: cross_entropy

// ANCHOR: adam
/// Steps that are equally long for large and for small gradients.
pub struct Adam {
    pub rate: f64,
    steps: i32,
    means: Vec<[Matrix; 2]>, // of each matrix's gradients, and of their squares
}

impl Adam {
    pub fn new(rate: f64) -> Adam {
        Adam { rate, steps: 0, means: vec![] }
    }

    /// Moves each matrix against its gradient.
    pub fn step(&mut self, parameters: Vec<&mut Matrix>, gradients: Vec<&mut Matrix>) {
        if self.steps == 0 {
            self.means = gradients.iter().map(|g| [0.0 * &**g, 0.0 * &**g]).collect();
        }
        self.steps += 1;
        // The means began at 0, so at first they are too small.
        let [left_1, left_2] = [0.9_f64, 0.999].map(|beta| 1.0 - beta.powi(self.steps));
        for ((p, g), [mean, square]) in
            parameters.into_iter().zip(gradients).zip(&mut self.means)
        {
            *mean = 0.9 * &*mean + 0.1 * &*g;
            *square = 0.999 * &*square + 0.001 * g.component_mul(g);
            p.zip_zip_apply(mean, square, |p, mean, square| {
                *p -= self.rate * (mean / left_1) / ((square / left_2).sqrt() + 1e-8);
            });
        }
    }
}
// ANCHOR_END: adam
