//! Keys and values in pages, as [`DECODE`](crate::DECODE) reads them.

use crate::programs::{K_PAGES, LENGTHS, PAGE_TABLE, V_PAGES};
use crate::tiles::decode::PAGE;
use attention::cuda::{Shape, Tensor};
use rand::{SeedableRng, rngs::ChaCha8Rng, seq::SliceRandom};

/// Keys and values of all heads, each in pages of 16 rows, and the table that finds them.
#[derive(Debug, Clone, PartialEq)]
pub struct Paged {
    keys: Vec<f32>,
    values: Vec<f32>,
    /// (kv_heads, pages of a head)
    numbers: Vec<f32>,
    /// (kv_heads)
    lengths: Vec<f32>,
}

impl Paged {
    /// Lays keys and values, (kv_heads, n_k, d) each, out in pages, in a random order that is the same each time. What is left of a
    /// head's last page is NaN, since nothing may read it.
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
    /// let [(_, in_pages), _, (_, numbers), (_, lengths)] = paged.inputs();
    /// let [first, last] = [0, 1].map(|page| &in_pages[16 * numbers[page] as usize..][..16]);
    /// assert_eq!(first, &keys[..16]);
    /// assert!(last[0] == 16.0 && last[1].is_nan());
    /// assert_eq!(lengths, [17.0]);
    /// ```
    pub fn new(keys: &[f32], values: &[f32], shape: Shape) -> Self {
        let Shape { kv_heads, n_k, d, .. } = shape;
        let of_head = n_k.div_ceil(PAGE);
        let mut places: Vec<_> = (0..kv_heads * of_head).collect();
        places.shuffle(&mut ChaCha8Rng::seed_from_u64(3));
        let in_pages = |tensor: &[f32]| {
            assert_eq!(tensor.len(), kv_heads * n_k * d, "kv_heads · n_k · d");
            let mut pages = vec![f32::NAN; places.len() * PAGE * d];
            for (head, rows) in tensor.chunks_exact(n_k * d).enumerate() {
                let places = &places[head * of_head..];
                for (rows, place) in rows.chunks(PAGE * d).zip(places) {
                    pages[place * PAGE * d..][..rows.len()].copy_from_slice(rows);
                }
            }
            pages
        };
        let numbers = places.iter().map(|&place| place as f32).collect();
        let lengths = vec![n_k as f32; kv_heads];
        Paged { keys: in_pages(keys), values: in_pages(values), numbers, lengths }
    }

    /// Returns the tensors that the kernel takes beside the queries.
    pub fn inputs(&self) -> [(Tensor, &[f32]); 4] {
        [
            (K_PAGES, &self.keys),
            (V_PAGES, &self.values),
            (PAGE_TABLE, &self.numbers),
            (LENGTHS, &self.lengths),
        ]
    }
}
