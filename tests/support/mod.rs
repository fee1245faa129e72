//! What it takes to look at the book as a reader does: a server, and a browser.

pub mod browser;
pub mod server;
