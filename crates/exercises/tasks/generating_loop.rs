//! # Faster than yesterday
//!
//! medium, 30 minutes
//!
//! `yesterday` writes a text and reads all of it again for each token. Write `generate`, which returns the same text,
//! but projects each token only once. In a text of $n$ tokens after a short prompt, that saves a factor of about
//! $n / 2$ in projections.
//!
//! A `Model` projects tokens to queries, keys and values, which depend on their positions: tell it the position of the
//! first. It attends, and chooses the next token from one row of output. The tests count the tokens that you project,
//! and the queries that attend.
//!
//! The result is the prompt, which isn't empty, with `steps` tokens behind it. `stack` appends rows. It copies all of
//! them, which a real program would avoid.
//!
//! # Hint
//!
//! Of all that `yesterday` projects in a step, what is new? Which of $q$, $k$ and $v$ does a later token need again?
//!
//! # Hint
//!
//! First comes the prompt, all at once. After that, how many tokens are new in each step, and at which position does
//! the new one stand? How many steps are there after the first choice?
//!
//! # Hint
//!
//! In the loop, `new = &text[held..]` are the tokens whose keys aren't held yet. Project them with `first = held`, and
//! append their keys and values by `stack`. The last row of the output chooses.

use nalgebra::DMatrix;

/// Returns the output of causal attention, in which the last query stands at the last key.
type Attend<'a> = &'a dyn Fn(&DMatrix<f64>, &DMatrix<f64>, &DMatrix<f64>) -> DMatrix<f64>;

/// A model with one head of attention.
pub struct Model<'a> {
    /// Projects tokens, the first of which stands at the given position, to `[q, k, v]`, one row for each token.
    pub project: &'a dyn Fn(&[usize], usize) -> [DMatrix<f64>; 3],
    /// Attends with queries, keys and values, one row of output for each query.
    pub attend: Attend<'a>,
    /// Chooses the token that follows, from the last token's output, (1, d_v).
    pub choose: &'a dyn Fn(&DMatrix<f64>) -> usize,
}

/// Puts rows below others. The upper ones may be of shape (0, 0).
pub fn stack(upper: &DMatrix<f64>, lower: &DMatrix<f64>) -> DMatrix<f64> {
    if upper.is_empty() {
        return lower.clone();
    }
    assert!(
        upper.ncols() == lower.ncols(),
        "stack: the upper rows are {} wide, and the lower ones {}",
        upper.ncols(),
        lower.ncols()
    );
    let mut all = upper.clone().resize_vertically(upper.nrows() + lower.nrows(), 0.0);
    all.rows_mut(upper.nrows(), lower.nrows()).copy_from(lower);
    all
}

/// Writes a text, and reads it from the beginning in each step.
pub fn yesterday(model: &Model, prompt: &[usize], steps: usize) -> Vec<usize> {
    let mut text = prompt.to_vec();
    for _ in 0..steps {
        let [q, k, v] = (model.project)(&text, 0);
        let output = (model.attend)(&q, &k, &v);
        text.push((model.choose)(&output.rows(text.len() - 1, 1).into_owned()));
    }
    text
}

/// Writes the same text, and projects each token once.
pub fn generate(model: &Model, prompt: &[usize], steps: usize) -> Vec<usize> {
    // SOLUTION
    let mut text = prompt.to_vec();
    let (mut keys, mut values) = (DMatrix::zeros(0, 0), DMatrix::zeros(0, 0));
    // FAULT old-queries: an old query is never used again
    // > let (mut held, mut queries) = (0, DMatrix::zeros(0, 0));
    let mut held = 0; // tokens whose keys and values we have
    for _ in 0..steps {
        // FAULT nothing-kept: each token should be projected once
        // > (keys, values, held) = (DMatrix::zeros(0, 0), DMatrix::zeros(0, 0), 0);
        // > let new = &text[held..];
        let new = &text[held..];
        // FAULT first-position: stands at the position of its first token
        // > let [q, k, v] = (model.project)(new, 0);
        let [q, k, v] = (model.project)(new, held);
        // FAULT prompt-forgotten: which keys does the last query see
        // > (keys, values) = (k, v);
        (keys, values) = (stack(&keys, &k), stack(&values, &v));
        // FAULT old-queries
        // > queries = stack(&queries, &q);
        // > let q = &queries;
        // > held = text.len();
        held = text.len();
        let output = (model.attend)(&q, &keys, &values);
        // FAULT first-row: the last token of the prompt chooses
        // > text.push((model.choose)(&output.rows(0, 1).into_owned()));
        text.push((model.choose)(&output.rows(q.nrows() - 1, 1).into_owned()));
    }
    // FAULT one-too-many: after the last choice
    // > (model.project)(&text[held..], held);
    // > text
    text
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{Mask, attention};
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha8Rng};
    use rand_distr::{Distribution, StandardNormal};
    use std::cell::RefCell;

    /// What was done.
    enum Call {
        /// Tokens were projected: the position of the first, and how many.
        Project(usize, usize),
        /// This many queries attended.
        Attend(usize),
    }

    /// Calls `run` with a model, and returns what it did.
    fn with_model(seed: u64, run: impl FnOnce(&Model)) -> Vec<Call> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |rows, columns| {
            DMatrix::from_fn(rows, columns, |_, _| StandardNormal.sample(&mut rng))
        };
        let (letters, places): (DMatrix<f64>, DMatrix<f64>) = (draw(12, 6), draw(64, 6));
        let weights = [draw(6, 6), draw(6, 6), draw(6, 6)];
        let calls = RefCell::new(vec![]);
        let project = |tokens: &[usize], first: usize| {
            calls.borrow_mut().push(Call::Project(first, tokens.len()));
            let x = letters.select_rows(tokens) + places.rows(first, tokens.len());
            weights.clone().map(|w| &x * w)
        };
        let attend = |q: &DMatrix<f64>, k: &DMatrix<f64>, v: &DMatrix<f64>| {
            calls.borrow_mut().push(Call::Attend(q.nrows()));
            let shapes = [q, k, v].map(|m| m.shape());
            let output = attention(q, k, v, Mask::causal());
            assert!(
                output.is_ok(),
                "attend can't use q, k and v of the shapes {shapes:?}"
            );
            output.unwrap().0
        };
        let choose = |output: &DMatrix<f64>| {
            let shape = output.shape();
            assert!(shape == (1, 6), "choose takes one row of output, not {shape:?}");
            (&letters * output.transpose()).column(0).imax()
        };
        run(&Model { project: &project, attend: &attend, choose: &choose });
        calls.into_inner()
    }

    fn compare(prompt: &[usize], steps: usize, question: &str) {
        for seed in 0..6 {
            with_model(seed, |model| {
                let right = yesterday(model, prompt, steps);
                let came = generate(model, prompt, steps);
                assert!(
                    came.len() == right.len(),
                    "the text has {} tokens: the prompt's {} and {steps} steps make {}",
                    came.len(),
                    prompt.len(),
                    right.len()
                );
                assert!(came.starts_with(prompt), "the result begins with the prompt");
                let wrong = (0..right.len()).find(|i| came[*i] != right[*i]);
                assert!(
                    wrong.is_none(),
                    "prompt {prompt:?}: the first wrong token is number {}: {question}",
                    wrong.unwrap_or(0)
                );
            });
        }
    }

    #[test]
    fn the_first_token_comes_from_the_last_of_the_prompt() {
        let question = "the last token of the prompt chooses what follows";
        compare(&[3, 1, 4, 1, 5], 1, question);
    }

    #[test]
    fn the_text_is_that_of_yesterday() {
        let question = "which keys does the last query see, and at which positions?";
        compare(&[3, 1, 4, 1], 10, question);
        compare(&[7], 20, question);
        compare(&[3, 1, 4, 1, 5, 9, 2, 6], 30, question);
    }

    #[test]
    fn each_token_is_projected_once() {
        let calls = with_model(1, |model| drop(generate(model, &[3, 1, 4, 1], 10)));
        let (mut next, mut last) = (0, 0);
        for call in &calls {
            let &Call::Project(first, tokens) = call else {
                let &Call::Attend(rows) = call else { unreachable!() };
                assert!(
                    rows <= last,
                    "attend was given {rows} queries where {last} {} new: an old query is never used again",
                    if last == 1 { "is" } else { "are" }
                );
                continue;
            };
            let are =
                if tokens == 1 { "1 token is" } else { &format!("{tokens} tokens are") };
            assert!(
                !(first == 3 && next == 4),
                "token 3 is projected a second time: its query came with the prompt"
            );
            assert!(
                first >= next || tokens == 1,
                "{are} projected from position {first} on, where {next} comes next: each token should be projected once"
            );
            assert!(
                first == next,
                "{are} projected as if at position {first}. What is projected stands at the position of its first token, {next}"
            );
            (next, last) = (next + tokens, tokens);
        }
        let why = match next {
            14 => "after the last choice nothing is left to do",
            _ => "the prompt's 4, and 9 of the new ones",
        };
        assert!(
            next == 13,
            "{next} tokens were projected for a prompt of 4 and 10 steps, and 13 are enough: {why}"
        );
    }

    #[test]
    fn no_steps_leave_the_prompt() {
        let calls = with_model(0, |model| {
            assert!(generate(model, &[2, 7], 0) == [2, 7], "no steps: the prompt alone")
        });
        assert!(
            calls.len() <= 2,
            "no steps: there is nothing to choose, so why project so often?"
        );
    }
}
