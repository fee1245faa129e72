//! Pitfalls: what the wrong ways of `wrong.rs` give, and what is right.

#[cfg(test)]
mod claims;
mod facts;
mod page;
#[cfg_attr(not(test), expect(dead_code, reason = "some only the claims run"))]
mod wrong;

pub use page::generate;
