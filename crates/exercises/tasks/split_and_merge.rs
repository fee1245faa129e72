//! # Split and merge
//!
//! easy, 15 minutes
//!
//! Libraries keep a matrix as one list of numbers, row by row. For many heads they turn the list of a matrix
//! $(n, h d)$ into the list of an array $(h, n, d)$, so that each head's matrix is one piece of memory. After attention they turn it back. Many programs for a GPU have both functions.
//!
//! Write them. In the list of $(n, h d)$, the numbers of the first token come first. In the list of $(h, n, d)$, the
//! numbers of the first head come first, and within them the numbers of the first token.
//!
//! # Hint
//!
//! Take two tokens and two heads of width 1. The matrix has the rows $(1, 2)$ and $(3, 4)$. Which two numbers
//! belong to the first head?
//!
//! # Hint
//!
//! For each head, token and column within the head, find the place in either list. A place is how many numbers come
//! before it: whole heads or tokens first, then what is left.
//!
//! # Hint
//!
//! In $(n, h d)$ the place is `(token * h + head) * d + column`. In $(h, n, d)$ the words `token` and `head` change
//! roles, and so do `h` and `n`. Three loops, one assignment.

/// Turns the numbers of a matrix (n, h·d) into those of h matrices (n, d), one after the other. All are stored row by row.
pub fn split(x: &[f64], n: usize, h: usize, d: usize) -> Vec<f64> {
    // SOLUTION
    let mut heads = vec![0.0; n * h * d];
    for head in 0..h {
        for token in 0..n {
            for column in 0..d {
                // FAULT reshape: the same numbers in the same order
                // > let from = (head * n + token) * d + column;
                // FAULT by-columns: stored column by column
                // > let from = (head * d + column) * n + token;
                // FAULT every-other-column: a head owns neighbouring columns
                // > let from = (token * d + column) * h + head;
                let from = (token * h + head) * d + column;
                heads[(head * n + token) * d + column] = x[from];
            }
        }
    }
    heads
    // END
}

/// Turns h matrices (n, d), one after the other, back into a matrix (n, h·d). All are stored row by row.
pub fn merge(heads: &[f64], n: usize, h: usize, d: usize) -> Vec<f64> {
    // SOLUTION
    let mut x = vec![0.0; n * h * d];
    for head in 0..h {
        for token in 0..n {
            for column in 0..d {
                let place = (token * h + head) * d + column;
                // FAULT split-again: this is `split` again
                // > x[(head * n + token) * d + column] = heads[place];
                // FAULT no-transpose: should have the outputs of token
                // > x[place] = heads[place];
                x[place] = heads[(head * n + token) * d + column];
            }
        }
    }
    x
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [(usize, usize, usize); 3] = [(3, 2, 2), (2, 3, 4), (5, 4, 3)];

    /// A number that says where it belongs: token 2, head 1, column 3 is 213.
    fn name(token: usize, head: usize, column: usize) -> f64 {
        (100 * token + 10 * head + column) as f64
    }

    fn words(number: f64) -> String {
        let number = number as usize;
        let (token, head, column) = (number / 100, number / 10 % 10, number % 10);
        format!("token {token}, head {head}, column {column}")
    }

    /// The list of (n, h·d).
    fn matrix(n: usize, h: usize, d: usize) -> Vec<f64> {
        (0..n * h * d).map(|i| name(i / (h * d), i / d % h, i % d)).collect()
    }

    /// The list of (h, n, d).
    fn by_heads(n: usize, h: usize, d: usize) -> Vec<f64> {
        (0..n * h * d).map(|i| name(i / d % n, i / (n * d), i % d)).collect()
    }

    /// Stops at the first number that is wrong.
    fn compare(yours: &[f64], right: &[f64], sizes: &str) {
        let (len, expected) = (yours.len(), right.len());
        assert!(len == expected, "{sizes}: your list has {len} numbers, not {expected}");
        let place = (0..expected).find(|&i| yours[i] != right[i]);
        if let Some(i) = place {
            let (yours, right) = (words(yours[i]), words(right[i]));
            panic!(
                "{sizes}: place {i} of the list has the number of {yours}; it should be {right}"
            );
        }
    }

    #[test]
    fn each_head_gets_its_columns_of_all_tokens() {
        for (n, h, d) in SIZES {
            let x = matrix(n, h, d);
            let heads = split(&x, n, h, d);
            let sizes = format!("split, n = {n}, h = {h}, d = {d}");
            // The list whose number i comes from place `from(head, token, column)` of x.
            let taken = |from: &dyn Fn(usize, usize, usize) -> usize| -> Vec<f64> {
                (0..x.len()).map(|i| x[from(i / (n * d), i / d % n, i % d)]).collect()
            };
            for (slip, what) in [
                (
                    x.clone(),
                    "the same numbers in the same order: the first head has all columns of the first tokens",
                ),
                (
                    taken(&|head, token, column| (token * d + column) * h + head),
                    "the first head got every column number h: a head owns neighbouring columns",
                ),
                (
                    taken(&|head, token, column| (head * d + column) * n + token),
                    "this is what you get if the list were stored column by column",
                ),
            ] {
                assert!(heads != slip, "{sizes}: {what}");
            }
            compare(&heads, &by_heads(n, h, d), &sizes);
        }
    }

    #[test]
    fn a_row_of_the_merged_matrix_belongs_to_one_token() {
        for (n, h, d) in SIZES {
            let heads = by_heads(n, h, d);
            let x = merge(&heads, n, h, d);
            let sizes = format!("merge, n = {n}, h = {h}, d = {d}");
            let again: Vec<f64> = (0..x.len())
                .map(|i| heads[(i / d % n * h + i / (n * d)) * d + i % d])
                .collect();
            assert!(
                x != again,
                "{sizes}: this is `split` again: in `merge`, heads and tokens change roles"
            );
            for (i, row) in x.chunks(h * d).enumerate() {
                let tokens = row.iter().map(|number| (number / 100.0) as usize);
                assert!(
                    tokens.clone().all(|token| token == i),
                    "{sizes}: row {i} of the merged matrix should have the outputs of token {i} only; its numbers come from the tokens {:?}",
                    tokens.collect::<Vec<_>>()
                );
            }
            compare(&x, &matrix(n, h, d), &sizes);
        }
    }

    #[test]
    fn merge_undoes_split() {
        for (n, h, d) in SIZES {
            let x = matrix(n, h, d);
            assert!(
                merge(&split(&x, n, h, d), n, h, d) == x,
                "n = {n}, h = {h}, d = {d}: split, then merge: nothing should change"
            );
        }
    }
}
