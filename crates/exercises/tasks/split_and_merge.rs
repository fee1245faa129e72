//! # Split and merge
//!
//! easy, 15 minutes
//!
//! Libraries keep a matrix as one list of numbers, row by row. For many heads they turn the list of a matrix
//! $(n, h d)$ into that of an array $(h, n, d)$, so that each head's matrix is one piece of memory. After attention
//! they go back. You will meet both functions in any program for a GPU.
//!
//! Write them. In the list of $(n, h d)$, the numbers of the first token come first. In that of $(h, n, d)$, the
//! numbers of the first head come first, and within them those of the first token.
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
                // FAULT no-transpose: outputs of two tokens
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

    const SIZES: [(usize, usize, usize); 4] =
        [(2, 2, 1), (3, 2, 2), (2, 3, 4), (5, 4, 3)];

    /// A number that says where it belongs: token 2, head 1, column 3 is 213.
    fn name(token: usize, head: usize, column: usize) -> f64 {
        (100 * token + 10 * head + column) as f64
    }

    /// The list of (n, h·d).
    fn matrix(n: usize, h: usize, d: usize) -> Vec<f64> {
        (0..n * h * d).map(|i| name(i / (h * d), i / d % h, i % d)).collect()
    }

    /// The list of (h, n, d).
    fn by_heads(n: usize, h: usize, d: usize) -> Vec<f64> {
        (0..n * h * d).map(|i| name(i / d % n, i / (n * d), i % d)).collect()
    }

    #[test]
    fn each_head_gets_its_columns_of_all_tokens() {
        for (n, h, d) in SIZES {
            let (x, right) = (matrix(n, h, d), by_heads(n, h, d));
            let heads = split(&x, n, h, d);
            let sizes = format!("n = {n}, h = {h}, d = {d}");
            assert_ne!(
                heads, x,
                "{sizes}: split returns the same numbers in the same order: its first head has all columns of the first tokens"
            );
            let spread: Vec<f64> = (0..n * h * d)
                .map(|i| x[(i / d % n * d + i % d) * h + i / (n * d)])
                .collect();
            assert!(
                d == 1 || heads != spread,
                "{sizes}: the first head got every column number {h}: a head owns neighbouring columns"
            );
            let place = (0..right.len()).find(|&i| heads.get(i) != Some(&right[i]));
            assert_eq!(
                place, None,
                "{sizes}: the number at this place of the list is wrong: which head and which token should it belong to?"
            );
        }
    }

    #[test]
    fn a_row_of_the_merged_matrix_belongs_to_one_token() {
        for (n, h, d) in SIZES {
            let x = merge(&by_heads(n, h, d), n, h, d);
            assert_eq!(
                x.len(),
                n * h * d,
                "a merged matrix has as many numbers as its heads"
            );
            for (i, row) in x.chunks(h * d).enumerate() {
                let tokens = row.iter().map(|number| (number / 100.0) as usize);
                assert!(
                    tokens.clone().all(|token| token == i),
                    "row {i} has outputs of two tokens, or of a wrong one: {:?}",
                    tokens.collect::<Vec<_>>()
                );
            }
            assert_eq!(x, matrix(n, h, d), "within a row, the first head comes first");
        }
    }

    #[test]
    fn merge_undoes_split() {
        for (n, h, d) in SIZES {
            let x = matrix(n, h, d);
            assert_eq!(
                merge(&split(&x, n, h, d), n, h, d),
                x,
                "split, then merge: nothing should change"
            );
        }
    }
}
