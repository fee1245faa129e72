//! Two worked examples: four scores and their softmax, and three queries by hand.

use super::verdict::{Claim, by_parts, to_two_decimals};
use crate::output::Page;
use crate::sentences::example_b;
use anyhow::Result;
use attention::{Mask, attention, softmax};
use figures::format::{fixed, tuple};
use nalgebra::{DMatrix, DVector, dmatrix, dvector};

/// The claimed softmax of the four scores, and of the same divided by 8.
pub const SAID_PLAIN: [f64; 4] = [0.06, 0.0, 0.94, 0.0];
pub const SAID_DIVIDED: [f64; 4] = [0.28, 0.06, 0.40, 0.10];

/// (16) The four scores.
pub fn scores() -> DVector<f64> {
    dvector![12.3, -8.7, 15.1, -3.2]
}

pub fn claim_four_scores(page: &mut Page) -> Result<Claim> {
    let x = scores();
    let (plain, divided) = (softmax(&x)?, softmax(&(x / 8.0))?);
    page.value("four-divided", tuple(&divided, 2));
    page.value("four-said-sum", fixed(SAID_DIVIDED.iter().sum(), 2));
    Ok(Claim {
        section: "16-four-scores-and-a-division",
        said: format!(
            "Softmax of $(12.3, -8.7, 15.1, -3.2)$ is ${}$; of the same divided by 8 it is ${}$.",
            tuple(SAID_PLAIN, 2),
            tuple(SAID_DIVIDED, 2)
        ),
        verdict: by_parts(&[
            ("the scores as they are", to_two_decimals(&plain, &SAID_PLAIN)),
            ("the divided ones", to_two_decimals(&divided, &SAID_DIVIDED)),
        ]),
    })
}

/// (17) The weights and the first output of the second worked example.
pub struct ThreeQueries {
    pub weights: DMatrix<f64>,
    pub said_weights: DMatrix<f64>,
    pub output: DMatrix<f64>,
    /// The distance of the first claimed row's sum from 1.
    pub off: f64,
}

pub const SAID_OUTPUT: [f64; 2] = [1.02, 1.83];
/// Two decimals may take half a hundredth from each of three weights, and no more.
pub const ROUNDING: f64 = 3.0 * 0.005;

pub fn three_queries() -> Result<ThreeQueries> {
    let [q, k, v] = example_b();
    let (output, cache) = attention(&q, &k, &v, Mask::none())?;
    let said_weights: DMatrix<f64> =
        dmatrix![0.41, 0.20, 0.41; 0.38, 0.38, 0.24; 0.52, 0.25, 0.25];
    Ok(ThreeQueries {
        weights: cache.weights,
        output,
        off: (said_weights.row(0).sum() - 1.0).abs(),
        said_weights,
    })
}

impl ThreeQueries {
    /// Returns, row by row, true if the claimed weights are right.
    pub fn right_rows(&self) -> [bool; 3] {
        let said = &self.said_weights;
        [0, 1, 2].map(|i| to_two_decimals(self.weights.row(i).iter(), said.row(i).iter()))
    }
}

pub fn claim_three_queries(page: &mut Page) -> Result<Claim> {
    let facts = three_queries()?;
    let [said, computed] = [&facts.said_weights, &facts.weights]
        .map(|m| [0, 1, 2].map(|i| tuple(m.row(i).iter(), 2)));
    let row = |i: usize| {
        vec![
            format!("query {}", i + 1),
            format!("${}$", said[i]),
            fixed(facts.said_weights.row(i).sum(), 2),
            format!("${}$", computed[i]),
        ]
    };
    page.table(
        "three-queries",
        &["", "said", "its sum", "computed"],
        &[0, 1, 2].map(row),
    );
    page.value("three-rounding", fixed(ROUNDING, 3));
    page.value("three-off", fixed(facts.off, 2));
    page.value("three-sum", fixed(facts.said_weights.row(0).sum(), 2));
    let output_right = to_two_decimals(facts.output.row(0).iter(), &SAID_OUTPUT);
    Ok(Claim {
        section: "17-three-queries-by-hand",
        said: format!(
            "By hand, the three queries of example (b) have the weights ${}$, ${}$ and ${}$, and the first the output ${}$.",
            said[0],
            said[1],
            said[2],
            tuple(SAID_OUTPUT, 2)
        ),
        verdict: by_parts(&[
            ("the weights", facts.right_rows().contains(&true)),
            ("the output", output_right),
        ]),
    })
}
