//! A place for the book's snippets, and for your own. Paste one above `Ok(())`, then run
//! `cargo run -p model --example mine`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
