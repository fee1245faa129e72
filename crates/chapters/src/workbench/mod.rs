//! What the page says of its experiments.

mod claims;
