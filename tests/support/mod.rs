//! Support for looking at the book as a reader does: a server, and a browser.

pub mod browser;
pub mod server;
