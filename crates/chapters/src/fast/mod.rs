//! Making it fast: what each step was predicted to bring and what it brought, and the peers.

#[cfg(test)]
mod claims;
mod facts;
mod ladder;
mod page;
mod peers;

pub use page::generate;
