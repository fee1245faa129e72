//! Traffic of attention in tiles between slow and fast memory, beside the programs of the chapter *The memory wall*: what
//! the chapters *Tiles, forward* and *Tiles, backward* have in common.

#[cfg(test)]
pub mod claims;
pub mod facts;
pub mod page;
