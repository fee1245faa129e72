//! Tiles, forward: the walk, what masks leave of it, the memory it takes, what it costs, how exact it is and what it moves.

#[cfg(test)]
mod claims;
mod drawings;
mod facts;
mod page;
mod rounding;
mod traffic;

pub use page::generate;
