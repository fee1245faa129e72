//! The chapter's numbers.

/// A model of seven billion parameters, as several were built in 2023: its layers, its heads, and their width.
pub const LAYERS: u64 = 32;
pub const HEADS: u64 = 32;
pub const WIDTH: u64 = 128;
/// In 16 bits.
const BYTES: u64 = 2;

/// What a layer keeps of each token.
#[derive(Debug, Clone, Copy)]
pub enum Kept {
    /// A key and a value for each of so many heads.
    Heads(u64),
    /// One latent row of this width, and a turned key of that, for all heads.
    Latent(u64, u64),
}

/// The latent rows of DeepSeek-V2.
pub const LATENT: Kept = Kept::Latent(512, 64);
/// Its heads.
pub const LATENT_HEADS: u64 = 128;

impl Kept {
    /// Numbers that a layer keeps of a token.
    pub fn numbers(self) -> u64 {
        match self {
            Kept::Heads(heads) => 2 * heads * WIDTH,
            Kept::Latent(latent, turned) => latent + turned,
        }
    }

    /// Bytes that all layers keep of so many tokens.
    pub fn bytes(self, tokens: u64) -> u64 {
        self.numbers() * BYTES * LAYERS * tokens
    }

    /// Operations of a head for each pair of a query and a key.
    pub fn operations(self) -> u64 {
        match self {
            // One multiplication and one addition for each number of a key, and of a value.
            Kept::Heads(_) => 4 * WIDTH,
            // Scores from both parts of the row, and an average of the first.
            Kept::Latent(latent, turned) => 2 * (latent + turned) + 2 * latent,
        }
    }

    /// Operations of one query's attention for each byte that it reads, with the heads of the model of the table.
    pub fn intensity(self) -> f64 {
        self.intensity_with(HEADS)
    }

    /// The same with so many heads; of several queries that read together, those of all.
    pub fn intensity_with(self, heads: u64) -> f64 {
        (heads * self.operations()) as f64 / (self.numbers() * BYTES) as f64
    }
}
