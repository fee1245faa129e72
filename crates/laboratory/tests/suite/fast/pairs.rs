//! What a mask hides is not computed.

use attention::engine::Engine;
use attention::flash::Inputs;
use attention::{Mask, Result};
use fast::{Flash, Instructions, pairs_computed};
use nalgebra::DMatrix;

/// `Flash` computes the pairs that are seen, and at the edge of what is seen no more than a panel along the vectors and
/// a row of numbers across them.
#[test]
fn little_is_computed_to_be_hidden() -> Result<()> {
    let n = 600;
    let x = DMatrix::from_fn(n, 3, |i, j| ((7 * i + 3 * j) as f64).sin());
    let keys = 2 * Flash::TILES.keys;
    let first: Vec<bool> = (0..n).map(|j| j < keys).collect();
    let quarters: Vec<usize> = (0..n).map(|i| 4 * i / n).collect();
    for instructions in Instructions::available() {
        let flash = Flash::new().with_threads(1)?.with_instructions(instructions)?;
        let sizes = instructions.sizes::<f64>();
        // Padding is looked at by whole tiles, which end at multiples of a row of numbers or of a panel.
        let tiles = n * (2 * sizes.numbers + sizes.panel);
        for (name, mask, edges) in [
            ("none", Mask::none(), 0),
            ("causal", Mask::causal(), 1),
            ("window", Mask::window(100)?, 2),
            ("documents", Mask::documents(&quarters)?, 2),
            ("padding", Mask::padding(&first)?, 0),
            ("both", Mask::causal().and(Mask::padding(&first)?), 1),
            ("nothing", Mask::padding(&vec![false; n])?, 0),
        ] {
            let inputs = Inputs::new(&x, &x, &x, &mask)?;
            let sized = mask.sized(n, n)?;
            let seen = sized.allowed_matrix().iter().filter(|&&seen| seen).count();
            let most = match name {
                "none" | "nothing" => seen,
                _ => seen + tiles + edges * 2 * (sizes.panel + sizes.numbers) * n,
            };
            let before = pairs_computed();
            let forward = flash.forward(&inputs)?;
            let computed = pairs_computed() - before;
            let says = || format!("{instructions:?}, {name}: {computed} of {seen}");
            assert!((seen..=most).contains(&computed), "{}", says());
            flash.backward(&inputs, &forward, x.as_view())?;
            let computed = pairs_computed() - before - computed;
            let says = || format!("{instructions:?}, {name}: {computed} of {seen}");
            assert!((seen..=most).contains(&computed), "backward, {}", says());
        }
    }
    Ok(())
}
