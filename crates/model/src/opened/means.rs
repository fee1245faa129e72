//! What heads find on average.

use super::{Head, Network};
use anyhow::{Result, ensure};

/// What each head finds on average over the tokens of some texts, before W_O. Where a head is "off", it finds this for every token: so it says
/// nothing of the text, and what reads it gets a vector of the kind that it was trained with. Zero would be one that it has never seen there.
#[derive(Debug, Clone)]
pub struct Means {
    /// Of all heads of a block side by side.
    outputs: Vec<Vec<f64>>,
    /// The width of a head.
    d: usize,
}

impl Means {
    /// Over all tokens but the first of some texts, in which many heads rest.
    ///
    /// # Errors
    /// A token isn't one of the model's, or no text has a second one.
    pub fn of(network: &Network, texts: &[Vec<usize>]) -> Result<Self> {
        let mut outputs: Vec<Vec<f64>> = vec![];
        for ids in texts {
            let found = network.look(ids)?.found;
            outputs.resize_with(found.len(), || vec![0.0; found[0].ncols()]);
            for (sums, found) in outputs.iter_mut().zip(&found) {
                for (sum, column) in sums.iter_mut().zip(found.column_iter()) {
                    *sum += column.iter().skip(1).copied().map(f64::from).sum::<f64>();
                }
            }
        }
        let count: usize = texts.iter().map(|ids| ids.len().saturating_sub(1)).sum();
        ensure!(count > 0, "a mean needs a text of two tokens at least");
        outputs.iter_mut().flatten().for_each(|sum| *sum /= count as f64);
        let d = outputs[0].len() / network.blocks[0].attention.n_heads();
        Ok(Means { outputs, d })
    }

    /// Of a head (d).
    #[must_use]
    pub fn of_head(&self, (block, head): Head) -> Vec<f32> {
        let outputs = &self.outputs[block][head * self.d..][..self.d];
        outputs.iter().map(|&x| x as f32).collect()
    }

    /// Runs something while these heads are off.
    ///
    /// # Errors
    /// As [`Network::with_heads_replaced`].
    pub fn without<R>(
        &self,
        network: &mut Network,
        heads: &[Head],
        run: impl FnOnce(&Network) -> Result<R>,
    ) -> Result<R> {
        network.with_heads_replaced(heads, |head| self.of_head(head), run)
    }
}
