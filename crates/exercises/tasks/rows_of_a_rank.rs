//! # Which rows does a rank hold?
//!
//! easy, 15 minutes
//!
//! Under a causal mask the last row of a sequence sees every key and the first row sees one. How do you share rows out so that all ranks have
//! the same work?
//!
//! The **zigzag** layout cuts $n$ rows into $2P$ pieces for $P$ ranks. Piece $p$ begins at row $p \cdot n / (2P)$, rounded down, and ends where
//! piece $p + 1$ begins. $2P$ need not divide $n$; then the pieces differ by at most one row. Rank $r$ holds pieces $r$ and $2P - 1 - r$: an early
//! piece and a late one.
//!
//! Return the rows of a rank in ascending order. Then count the work of some rows: the pairs of a query among them and a key of the whole
//! sequence that is not later than the query.
//!
//! # Hint
//!
//! Write down the pieces of 16 rows for 4 ranks, and beside each the rank that holds it. Which rank has the last piece?
//!
//! # Hint
//!
//! Multiply before you divide: $p \cdot n / (2P)$ loses no row, and $p$ times a rounded $n / (2P)$ does. For the work: how many keys does row 0
//! see? And row 1?
//!
//! # Hint
//!
//! `let piece = |p: usize| p * n / pieces..(p + 1) * n / pieces;` gives the range of a piece, and `chain` joins two ranges. Row $i$
//! sees $i + 1$ keys.

/// Returns the rows that `rank` holds of a sequence of `n` rows in the zigzag layout, in ascending order.
pub fn rows_of_rank(n: usize, ranks: usize, rank: usize) -> Vec<usize> {
    // SOLUTION
    // FAULT pieces-for-ranks: cut it into two pieces for each rank
    // > let pieces = ranks;
    let pieces = 2 * ranks;
    // FAULT last-rows-lost: belongs to no rank
    // > let piece = |p: usize| p * (n / pieces)..(p + 1) * (n / pieces);
    let piece = |p: usize| p * n / pieces..(p + 1) * n / pieces;
    // FAULT contiguous: these rows are contiguous
    // > piece(2 * rank).chain(piece(2 * rank + 1)).collect()
    // FAULT striped: these rows are striped
    // > (rank..n).step_by(ranks).collect()
    // FAULT late-piece-first: in ascending order
    // > piece(pieces - 1 - rank).chain(piece(rank)).collect()
    piece(rank).chain(piece(pieces - 1 - rank)).collect()
    // END
}

/// Returns how many pairs these queries have under a causal mask, each with the keys that are not later than it.
pub fn pairs(rows: &[usize]) -> usize {
    // SOLUTION
    // FAULT without-itself: each query sees its own key
    // > rows.iter().sum()
    rows.iter().map(|row| row + 1).sum()
    // END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_rows_on_four_ranks() {
        let right = [[0, 1, 14, 15], [2, 3, 12, 13], [4, 5, 10, 11], [6, 7, 8, 9]];
        for (rank, right) in right.iter().enumerate() {
            let rows = rows_of_rank(16, 4, rank);
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            let why = if sorted == right {
                "these are the rows; return them in ascending order"
            } else if rows.iter().copied().eq(4 * rank..4 * rank + 4) {
                "these rows are contiguous. The last rank would have most of the work"
            } else if rows.iter().copied().eq((rank..16).step_by(4)) {
                "these rows are striped. The work is about even, but a zigzag is two runs of neighbours"
            } else if rows.len() > 4 {
                "each rank has four rows, and yours has more. Don't cut the sequence into P pieces: cut it into two pieces for each rank"
            } else {
                "rank r holds pieces r and 2P − 1 − r of 2P"
            };
            assert!(
                rows == right,
                "16 rows, 4 ranks: rank {rank} holds {rows:?}, expected {right:?}: {why}"
            );
        }
    }

    #[test]
    fn every_row_belongs_to_one_rank() {
        for (n, ranks) in [(16, 4), (13, 2), (1003, 4), (29, 3), (5, 1), (3, 5)] {
            let mut owners = vec![vec![]; n];
            for rank in 0..ranks {
                for row in rows_of_rank(n, ranks, rank) {
                    assert!(
                        row < n,
                        "{n} rows, {ranks} ranks: rank {rank} holds row {row}, and the last one is {}",
                        n - 1
                    );
                    owners[row].push(rank);
                }
            }
            for (row, owners) in owners.iter().enumerate() {
                assert!(
                    !owners.is_empty(),
                    "{n} rows, {ranks} ranks: row {row} belongs to no rank. Where does each piece begin if {} doesn't divide {n}?",
                    2 * ranks
                );
                assert!(
                    owners.len() == 1,
                    "{n} rows, {ranks} ranks: row {row} belongs to the ranks {owners:?}, not to one"
                );
            }
        }
    }

    #[test]
    fn the_pieces_are_cut_where_the_text_says() {
        for (n, ranks) in [(13, 2), (29, 3), (1003, 4)] {
            let begin = |p: usize| p * n / (2 * ranks);
            for rank in 0..ranks {
                let late = 2 * ranks - 1 - rank;
                let right =
                    (begin(rank)..begin(rank + 1)).chain(begin(late)..begin(late + 1));
                let rows = rows_of_rank(n, ranks, rank);
                assert!(
                    right.clone().eq(rows.iter().copied()),
                    "{n} rows, {ranks} ranks: rank {rank} should hold the rows from {} to {} and from {} to {}, in ascending order; it holds {rows:?}. A piece begins at p · n / (2P), rounded down",
                    begin(rank),
                    begin(rank + 1) - 1,
                    begin(late),
                    begin(late + 1) - 1
                );
            }
        }
    }

    #[test]
    fn a_query_sees_its_own_key_and_earlier_ones() {
        for rows in [vec![0], vec![0, 1], vec![2, 5], vec![], (0..20).collect()] {
            let right =
                rows.iter().map(|row| (0..20).filter(|key| key <= row).count()).sum();
            let pairs = pairs(&rows);
            let why = if pairs + rows.len() == right {
                ": each query sees its own key, too"
            } else {
                ""
            };
            assert!(
                pairs == right,
                "pairs of the queries {rows:?}: yours {pairs}, expected {right}{why}"
            );
        }
    }

    #[test]
    fn the_work_is_even() {
        for n in [1000, 1003] {
            let work = |rows: Vec<usize>| -> f64 {
                rows.iter().map(|row| *row as f64 + 1.0).sum()
            };
            let most_by_least = |work: [f64; 4]| {
                work.iter().copied().fold(0.0, f64::max)
                    / work.iter().copied().fold(f64::MAX, f64::min)
            };
            let yours =
                most_by_least([0, 1, 2, 3].map(|rank| work(rows_of_rank(n, 4, rank))));
            let contiguous = most_by_least(
                [0, 1, 2, 3]
                    .map(|rank| work((rank * n / 4..(rank + 1) * n / 4).collect())),
            );
            assert!(
                yours < 1.03,
                "{n} rows, 4 ranks: the most work of a rank is {yours:.2} times the least. Contiguous rows have {contiguous:.2}, a zigzag less than 1.03: does an early piece go with a late one?"
            );
        }
    }
}
