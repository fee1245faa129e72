//! Many heads in numbers: what heads cost, what their width allows, how cross-attention looks.

#[cfg(test)]
mod claims;
mod facts;
mod page;

pub use page::generate;
