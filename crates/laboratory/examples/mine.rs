//! A place for snippets that use the crates `laboratory` or `fast`. Paste one above `Ok(())`, then run
//! `cargo run -p laboratory --example mine`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}
