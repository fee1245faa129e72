//! How an operation begins and ends: all ranks agree on what they do, and none returns before all have done it.

use crate::error::{Error, Result, blamed};
use crate::layout::Layout;
use crate::network::{Network, Number};
use crate::whole::Whole;
use attention::Mask;
use attention::engine::Rule;
use std::hash::{DefaultHasher, Hash, Hasher};

/// What ranks compare. The first field is 0 where a rank can't take part.
const FIELDS: [&str; 13] = [
    "valid input",
    "operation",
    "type",
    "n_q",
    "n_k",
    "d_k",
    "d_v",
    "n_heads",
    "n_kv_heads",
    "layout of queries",
    "layout of keys",
    "mask",
    "hash of queries",
];

/// The bytes of a header.
pub const HEADER: usize = 8 * FIELDS.len();

/// The bytes by which a rank says that it has done its part.
pub const CLOSING: usize = 1;

/// What is computed.
const OPERATIONS: [&str; 6] = [
    "ring::forward",
    "ring::backward",
    "by_keys::forward",
    "heads::forward",
    "heads::backward",
    "decode::forward",
];

/// What one rank was asked for, as numbers to be compared; `queries` is 0, or a hash of what has to be the same on all ranks.
fn header<T: Number>(
    operation: &str,
    whole: &Whole,
    queries: u64,
) -> [u64; FIELDS.len()] {
    let number = |x: usize| x as u64;
    let place = OPERATIONS.iter().position(|&name| name == operation);
    [
        1,
        number(place.unwrap_or(OPERATIONS.len())),
        number(size_of::<T>()),
        number(whole.lengths.0),
        number(whole.lengths.1),
        number(whole.widths.0),
        number(whole.widths.1),
        number(whole.heads.0),
        number(whole.heads.1),
        layout(whole.layouts.0),
        layout(whole.layouts.1),
        hash_of_mask(&whole.mask),
        queries,
    ]
}

/// Does `work` on all ranks, or returns an error on all of them. `checked` is what this rank made of its input.
///
/// All ranks first compare their headers, so that none sends what another doesn't expect. A rank whose own input is wrong sends a header
/// that says so, and returns its own error. At the end each waits for a word of all others: without it a rank could return its result
/// while another one fails.
pub fn together<T: Number, N: Network, C, R>(
    network: &mut N,
    (operation, queries): (&str, u64),
    whole: &Whole,
    checked: Result<C>,
    work: impl FnOnce(&mut N, C) -> Result<R>,
) -> Result<R> {
    let header = match checked {
        Ok(_) => header::<T>(operation, whole, queries),
        Err(_) => [0; FIELDS.len()],
    };
    let gathered = network.gather(bytemuck::cast_slice(&header));
    let all = gathered.inspect_err(|error| network.give_up(error))?;
    let checked = checked?;
    compare(&all)?;
    let result = work(network, checked).and_then(|result| {
        network.gather(&[1; CLOSING])?;
        Ok(result)
    });
    result.inspect_err(|error| network.give_up(error))
}

fn compare(all: &[Vec<u8>]) -> Result<()> {
    let headers: Vec<Vec<u64>> = all
        .iter()
        .map(|bytes| bytes.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect())
        .collect();
    if let Some(rank) = headers.iter().position(|header| header[0] == 0) {
        return Err(blamed(rank, "was given wrong input, of which it returns the error"));
    }
    for (rank, header) in headers.iter().enumerate() {
        let pairs = header.iter().zip(&headers[0]);
        if let Some(field) = pairs.clone().position(|(given, expected)| given != expected)
        {
            let [given, expected] =
                [header[field], headers[0][field]].map(|value| shown(field, value));
            return Err(Error::Differs { rank, what: FIELDS[field], given, expected });
        }
    }
    Ok(())
}

/// A field's value in words.
fn shown(field: usize, value: u64) -> String {
    match FIELDS[field] {
        "operation" => {
            OPERATIONS.get(value as usize).copied().unwrap_or("unknown").to_owned()
        }
        "type" => format!("f{}", 8 * value),
        "layout of queries" | "layout of keys" => match value {
            0 => format!("{:?}", Layout::Contiguous),
            1 => format!("{:?}", Layout::Zigzag),
            2 => format!("{:?}", Layout::Striped),
            tile => format!("{:?}", Layout::Tiles(tile as usize - 3)),
        },
        "mask" | "hash of queries" => format!("{value:#018x}"),
        _ => value.to_string(),
    }
}

fn layout(layout: Layout) -> u64 {
    match layout {
        Layout::Contiguous => 0,
        Layout::Zigzag => 1,
        Layout::Striped => 2,
        Layout::Tiles(rows) => 3_u64.saturating_add(rows as u64),
    }
}

/// The ranks run the same program, in which this hash is the same for the same rules.
fn hash_of_mask(mask: &Mask) -> u64 {
    let mut hasher = DefaultHasher::new();
    for rule in mask.rules() {
        match rule {
            Rule::Causal => 0.hash(&mut hasher),
            Rule::Padding(valid) => (1, valid).hash(&mut hasher),
            Rule::Window { width, sinks } => (2, width, sinks).hash(&mut hasher),
            Rule::Dense(allowed) => (3, allowed).hash(&mut hasher),
            Rule::Blocks { size, allowed } => (4, size, allowed).hash(&mut hasher),
            Rule::Documents { ids, .. } => (5, ids).hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// A hash of the bits of a matrix.
pub fn hash_of<T: Number>(matrix: nalgebra::DMatrixView<T>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for column in matrix.column_iter() {
        bytemuck::cast_slice::<T, u8>(column.as_slice()).hash(&mut hasher);
    }
    hasher.finish()
}
