//! # Bytes of a cache
//!
//! easy, 10 minutes
//!
//! How long a text fits beside a model? Count what a cache keeps of each token, in each layer, for three ways to
//! share: a number of key-value heads (as many as query heads, fewer, or one), or a latent row with a row for the
//! position. Then divide the memory by it.
//!
//! # Hint
//!
//! What does attention need of an earlier token: its query, its key, its value? And what does a latent row stand
//! for?
//!
//! # Hint
//!
//! Every layer has a cache of its own. A text has as many tokens as fit *whole*.
//!
//! # Hint
//!
//! Let a `match` give the numbers per token and layer, then multiply by layers and by bytes per number. Only one
//! arm of the `match` has a factor of 2.

/// What a model keeps of each token, in each layer.
#[derive(Debug, Clone, Copy)]
pub enum Kept {
    /// Key-value heads, each of this width.
    Heads { key_value_heads: usize, width: usize },
    /// A row from which each head makes its keys and values, and a row for the position that all heads share.
    Latent { row: usize, position: usize },
}

/// Returns how many bytes the cache of a whole model takes for each token.
pub fn bytes_per_token(kept: Kept, layers: usize, bytes_per_number: usize) -> usize {
    // SOLUTION
    let numbers = match kept {
        // FAULT keys-alone: a value is kept beside each key
        // > Kept::Heads { key_value_heads, width } => key_value_heads * width,
        Kept::Heads { key_value_heads, width } => 2 * key_value_heads * width,
        // FAULT latent-twice: the same row serves as key and as value
        // > Kept::Latent { row, position } => 2 * row + position,
        Kept::Latent { row, position } => row + position,
    };
    // FAULT one-layer: each layer has its own cache
    // > numbers * bytes_per_number
    numbers * layers * bytes_per_number
    // END
}

/// Returns the length of the longest text whose cache fits into `memory` bytes.
pub fn longest_text(
    memory: usize,
    kept: Kept,
    layers: usize,
    bytes_per_number: usize,
) -> usize {
    // SOLUTION
    // FAULT one-too-many: it doesn't fit
    // > memory.div_ceil(bytes_per_token(kept, layers, bytes_per_number))
    memory / bytes_per_token(kept, layers, bytes_per_number)
    // END
}

#[cfg(test)]
mod tests {
    use super::*;
    use attention::{KeyValueCache, Mask, MultiHeadAttention};
    use nalgebra::DMatrix;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    #[test]
    fn a_cache_of_heads_takes_what_the_crates_takes() {
        for (n_heads, key_value_heads, width) in [(4, 4, 2), (4, 2, 3), (6, 1, 2)] {
            let rng = &mut ChaCha8Rng::seed_from_u64(0);
            let layer = MultiHeadAttention::<f32>::xavier_grouped(
                n_heads * width,
                n_heads,
                key_value_heads,
                rng,
            )
            .unwrap();
            let mut cache = KeyValueCache::new();
            layer
                .forward_cached(
                    &DMatrix::repeat(5, n_heads * width, 0.5),
                    &mut cache,
                    Mask::causal(),
                )
                .unwrap();
            let (keys, both) = (
                4 * cache.keys().len() / 5,
                4 * (cache.keys().len() + cache.values().len()) / 5,
            );
            let bytes = bytes_per_token(Kept::Heads { key_value_heads, width }, 1, 4);
            let heads = format!(
                "{key_value_heads} key-value heads of width {width}, one layer, 4 bytes"
            );
            assert!(
                bytes != keys,
                "{heads}: {bytes} bytes per token are the keys alone: a value is kept beside each key"
            );
            assert!(
                bytes == both,
                "{heads}, bytes per token: yours {bytes}, expected {both}"
            );
        }
    }

    #[test]
    fn a_latent_row_is_kept_once() {
        for (row, position) in [(512, 64), (96, 16), (10, 0)] {
            let bytes = bytes_per_token(Kept::Latent { row, position }, 1, 2);
            let latent =
                format!("a row of {row} and one of {position} for the position, 2 bytes");
            assert!(
                bytes != 2 * (2 * row + position),
                "{latent}: you keep the row twice, and the same row serves as key and as value"
            );
            assert!(
                bytes == 2 * row + 2 * position,
                "{latent}, bytes per token: yours {bytes}, expected {}",
                2 * row + 2 * position
            );
        }
    }

    #[test]
    fn every_layer_has_a_cache() {
        let kept = [
            Kept::Heads { key_value_heads: 3, width: 5 },
            Kept::Latent { row: 7, position: 4 },
        ];
        for kept in kept {
            let [one, many] = [1, 11].map(|layers| bytes_per_token(kept, layers, 2));
            assert!(
                many == 11 * one,
                "{kept:?}: 11 layers don't take 11 times as much as one, and each layer has its own cache: yours {many}, expected {}",
                11 * one
            );
        }
    }

    #[test]
    fn the_longest_text_fits_and_no_longer_one() {
        for (memory, width) in [(1 << 20, 7), (1000, 3), (5000, 125)] {
            let kept = Kept::Heads { key_value_heads: 2, width };
            let (tokens, bytes) =
                (longest_text(memory, kept, 3, 2), bytes_per_token(kept, 3, 2));
            assert!(
                tokens * bytes <= memory,
                "{tokens} tokens of {bytes} bytes in {memory}: it doesn't fit"
            );
            assert!(
                (tokens + 1) * bytes > memory,
                "{tokens} tokens of {bytes} bytes in {memory}: one more would fit"
            );
        }
    }
}
