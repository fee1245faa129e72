//! The picture on the first page: who looks at whom in the running example.

mod page;

pub use page::generate;
