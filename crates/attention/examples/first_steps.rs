//! The book's first program: every word of a sentence attends to every word.
//!
//! `cargo run -p attention --example first_steps`

// ANCHOR: all
use attention::{Error, Mask, attention, example, inspect::heat_map};

fn main() -> Result<(), Error> {
    let sentence = example::river();
    let x = &sentence.x; // (6, 4): six words, four numbers each

    let (output, cache) = attention(x, x, x, Mask::none())?; // cache: weights and more

    assert_eq!(output.shape(), (6, 4)); // one new vector for each word
    assert_eq!(cache.weights.shape(), (6, 6)); // every word looks at every word
    for row in cache.weights.row_iter() {
        assert!((row.sum() - 1.0).abs() < 1e-12); // shares of a whole
    }
    print!("{}", heat_map(&cache.weights, &sentence.tokens, &sentence.tokens)?);
    Ok(())
}
// ANCHOR_END: all

#[test]
fn runs() {
    main().unwrap();
}
