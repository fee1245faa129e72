//! Keys and values in pages, as [`DECODE`](crate::DECODE) reads them.

use crate::programs::{K_PAGES, PAGE_TABLE, V_PAGES};
use crate::tiles::decode::PAGE;
use attention::cuda::{Shape, Tensor};

/// Keys and values of all heads, each in pages of 16 rows, and the table that finds them.
#[derive(Debug, Clone, PartialEq)]
pub struct Paged {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// (kv_heads, pages of a head)
    numbers: Vec<f32>,
}

impl Paged {
    /// Lays keys and values, (kv_heads, n_k, d) each, out in pages, the last page of the last head first: no page is where
    /// it would be without a table, if there are two or more. What is left of a head's last page is NaN, since nothing may read it.
    ///
    /// # Panics
    /// If keys or values have another length.
    ///
    /// ```
    /// use attention::cuda::Shape;
    /// use gpu::Paged;
    ///
    /// let shape = Shape { heads: 1, kv_heads: 1, n_q: 1, n_k: 17, d: 1, causal: true };
    /// let keys: Vec<f32> = (0..17).map(|i| i as f32).collect();
    /// let paged = Paged::new(&keys, &keys, shape);
    /// let [(_, in_pages), _, (_, numbers)] = paged.inputs();
    /// assert_eq!(numbers, [1.0, 0.0]);
    /// assert_eq!(in_pages[0], 16.0); // alone in its page
    /// assert_eq!(in_pages[16..], keys[..16]);
    /// ```
    pub fn new(keys: &[f32], values: &[f32], shape: Shape) -> Self {
        let Shape { kv_heads, n_k, d, .. } = shape;
        let of_head = n_k.div_ceil(PAGE);
        let all = kv_heads * of_head;
        let in_pages = |tensor: &[f32]| {
            assert_eq!(tensor.len(), kv_heads * n_k * d, "kv_heads · n_k · d");
            let mut pages = vec![f32::NAN; all * PAGE * d];
            for (head, rows) in tensor.chunks_exact(n_k * d).enumerate() {
                for (page, rows) in rows.chunks(PAGE * d).enumerate() {
                    let place = all - 1 - (head * of_head + page);
                    pages[place * PAGE * d..][..rows.len()].copy_from_slice(rows);
                }
            }
            pages
        };
        let numbers = (0..all).rev().map(|place| place as f32).collect();
        Paged { keys: in_pages(keys), values: in_pages(values), numbers }
    }

    /// Returns the tensors that the kernel takes beside the queries.
    pub fn inputs(&self) -> [(Tensor, &[f32]); 3] {
        [(K_PAGES, &self.keys), (V_PAGES, &self.values), (PAGE_TABLE, &self.numbers)]
    }
}
