//! The memory wall: what attention moves between slow and fast memory, counted by a machine that does nothing else but run
//! it, and predicted by formula where it would run too long.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
#[cfg(test)]
pub use page::on_a_thread;
