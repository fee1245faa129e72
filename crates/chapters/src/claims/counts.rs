//! FLOPs and bytes: the core beside the projections, a whole layer, and the backward pass.

use super::verdict::{Claim, about, by_parts};
use crate::counting::alive;
use crate::output::Page;
use anyhow::Result;
use attention::{AttentionShape, Flops};
use figures::format::{fixed, integer, scientific};

const N: usize = 4096;
const D: usize = 64;

/// (18) FLOPs of core and projections at n = 4096, d = 64.
pub fn core_and_projections(d_model: usize) -> Result<Flops> {
    Ok(AttentionShape::self_attention(1, N, d_model, D, 1).flops()?)
}

/// FLOPs of the core's two products.
pub fn products(flops: &Flops) -> f64 {
    (flops.scores + flops.values) as f64
}

pub const SAID_PROJECTIONS: f64 = 4e6;

pub fn claim_core_and_projections(page: &mut Page) -> Result<Claim> {
    let mut rows = vec![];
    for d_model in [2, 64, 512, 2048] {
        let flops = core_and_projections(d_model)?;
        let projections = flops.projections as f64;
        rows.push(vec![
            integer(d_model),
            format!("${}$", scientific(flops.core() as f64, 1)),
            format!("${}$", scientific(projections, 1)),
            fixed(products(&flops) / projections, 0),
        ]);
    }
    let header = ["$d_{\\text{model}}$", "core", "projections", "products ÷ projections"];
    page.table("core-and-projections", &header, &rows);
    let flops = core_and_projections(D)?;
    let (core, projections) = (flops.core() as f64, flops.projections as f64);
    Ok(Claim {
        section: "18-the-core-and-the-projections",
        said: "At $n = 4096$, $d = 64$ the core takes about $4 \\cdot 10^9$ FLOPs and the projections about $4 \\cdot \
               10^6$."
            .to_owned(),
        verdict: by_parts(&[
            ("the core", about(core, 4e9)),
            ("the projections", about(projections, SAID_PROJECTIONS)),
        ]),
    })
}

/// (19) A layer whose FLOPs and bytes are counted, with its width split into this many heads.
pub fn layer_in_numbers(heads: usize) -> AttentionShape {
    AttentionShape::self_attention(1, 8192, 512, 512 / heads, heads)
}

/// n² d, of one of the two products.
pub const MULTIPLY_ADDS: f64 = 8192.0 * 8192.0 * 512.0;

pub fn claim_layer_in_numbers(page: &mut Page) -> Result<Claim> {
    let layer = layer_in_numbers(1);
    let (flops, bytes) = (layer.flops()?, layer.bytes(4)?);
    let eight_heads = layer_in_numbers(8).bytes(4)?;
    let (total, megabytes) = (flops.total() as f64, bytes.weights as f64 / 1e6);
    let billions = |x: f64| fixed(x / 1e9, 1);
    page.value("layer-total", billions(total));
    page.value("layer-one-product", billions(MULTIPLY_ADDS));
    page.value("layer-eight-gb", billions(eight_heads.weights as f64));
    Ok(Claim {
        section: "19-a-layer-in-numbers",
        said: "At $n = 8192$, $d = 512$ a layer takes about $34 \\cdot 10^9$ FLOPs, and its weights 268 MB."
            .to_owned(),
        verdict: by_parts(&[
            ("the bytes", (megabytes - 268.0).abs() < 0.5),
            ("the FLOPs", about(total, 34e9)),
        ]),
    })
}

pub const BACK_N: usize = 1024;
/// The width of the model, and of all heads together.
pub const BACK_D: usize = 512;

/// (4) What a forward product and its two gradients cost, in FLOPs.
pub struct Product {
    pub name: &'static str,
    pub forward: usize,
    pub for_left: usize,
    pub for_right: usize,
    /// True if its right factor is parameters.
    parameters: bool,
}

pub fn backward_products() -> [Product; 4] {
    let (n, d) = (BACK_N, BACK_D);
    // A product's rows, inner numbers and columns, how often there is one, and whether its right factor is parameters.
    [
        ("$XW_Q$, $XW_K$, $XW_V$", (n, d, d), 3, true),
        ("$QK^\\top$", (n, d, n), 1, false),
        ("$AV$", (n, n, d), 1, false),
        ("$OW_O$", (n, d, d), 1, true),
    ]
    .map(|(name, (rows, inner, columns), times, parameters)| {
        let flops = |m: usize, k: usize, l: usize| times * 2 * m * k * l;
        // H = F G: dF = dH Gᵀ, and dG = Fᵀ dH
        Product {
            name,
            forward: flops(rows, inner, columns),
            for_left: flops(rows, columns, inner),
            for_right: flops(inner, rows, columns),
            parameters,
        }
    })
}

/// FLOPs of all products: forward, backward, and backward where the parameters want no gradient.
pub fn forward_backward_frozen(products: &[Product]) -> [usize; 3] {
    let frozen = |product: &Product| {
        product.for_left + if product.parameters { 0 } else { product.for_right }
    };
    [
        products.iter().map(|product| product.forward).sum(),
        products.iter().map(|product| product.for_left + product.for_right).sum(),
        products.iter().map(frozen).sum(),
    ]
}

pub fn claim_backward(page: &mut Page) -> Claim {
    let products = backward_products();
    let [forward, backward, frozen] = forward_backward_frozen(&products);
    let billions = |flops: usize| fixed(flops as f64 / 1e9, 1);
    let rows = products.map(|Product { name, forward, for_left, for_right, .. }| {
        vec![name.to_owned(), billions(forward), billions(for_left), billions(for_right)]
    });
    let header = ["product $FG$", "forward", "for the left factor", "for the right"];
    page.table("way-back", &header, &rows);
    page.value("back-frozen", fixed(frozen as f64 / forward as f64, 1));
    page.value("back-n", integer(BACK_N));
    page.value("back-d", integer(BACK_D));
    Claim {
        section: "4-the-price-of-going-back",
        said: "The backward pass costs what the forward pass costs.".to_owned(),
        verdict: by_parts(&[("the products", backward == forward)]),
    }
}

const HEADS_N: usize = 2048;
const HEADS_D_MODEL: usize = 1024;

/// (5) A layer of this width whose heads share it.
pub fn layer_with_heads(heads: usize) -> AttentionShape {
    let d = HEADS_D_MODEL / heads;
    AttentionShape::self_attention(1, HEADS_N, HEADS_D_MODEL, d, heads)
}

pub fn claim_heads(page: &mut Page) -> Result<Claim> {
    let count = |heads| {
        let layer = layer_with_heads(heads);
        anyhow::Ok((heads, layer.flops()?, layer.bytes(4)?.weights))
    };
    let counted = [1, 4, 16].map(count).into_iter().collect::<Result<Vec<_>>>()?;
    let billions = |flops: u128| fixed(flops as f64 / 1e9, 2);
    page.table_of(
        "heads",
        &counted,
        &[
            ("heads", &|(heads, ..)| integer(*heads)),
            ("GFLOP, projections", &|(_, flops, _)| billions(flops.projections)),
            ("products of the core", &|(_, flops, _)| {
                billions(flops.scores + flops.values)
            }),
            ("softmax", &|(_, flops, _)| billions(flops.softmax)),
            ("weights", &|(.., weights)| figures::format::bytes(*weights)),
        ],
    );
    page.value("heads-n", integer(HEADS_N));
    page.value("heads-d-model", integer(HEADS_D_MODEL));
    let [(_, one, weights), .., (heads, many, more_weights)] = &counted[..] else {
        anyhow::bail!("too few layers")
    };
    let times = |more: u128, of: u128| more as f64 / of as f64;
    Ok(Claim {
        section: "5-heads-and-cost",
        said: "The cost of attention is linear in the number of heads.".to_owned(),
        verdict: by_parts(&[
            (
                "the weights that are kept",
                times(*more_weights, *weights) == *heads as f64,
            ),
            ("the operations", about(times(many.total(), one.total()), *heads as f64)),
        ]),
    })
}

/// (11) The peaks of the chapter [Complexity](crate::counting).
pub fn claim_backward_memory(page: &mut Page) -> Claim {
    let ratio = |n| {
        let [forward, both] = alive(n);
        both as f64 / forward as f64
    };
    let row = |n| {
        let [forward, both] =
            alive(n).map(|numbers| figures::format::bytes(4 * numbers as u128));
        vec![integer(n), forward, both, fixed(ratio(n), 2)]
    };
    let header = ["$n$", "forward, with the log-sum-exp", "with backward", "ratio"];
    page.table("backward-memory", &header, &[256, 1024, 4096, 16_384].map(row));
    Claim {
        section: "11-memory-for-the-backward-pass",
        said: "The backward pass triples memory.".to_owned(),
        verdict: by_parts(&[("the peak", about(ratio(16_384), 3.0))]),
    }
}
