//! A place for snippets that use the crate `model`. Paste one above `Ok(())`, then run
//! `cargo run -p model --example mine`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
