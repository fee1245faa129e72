//! The programs: their sources, and what each function takes.
#![allow(unsafe_code)] // each program is a promise, and so is the description of a tensor

use crate::precision::{BF16, Precision};
use crate::tiles::backward_hopper::BOX;
use crate::tiles::decode::{PAGE, ROWS, SPLIT};
use attention::cuda::Parameter::{
    HeadCount, KeyCount, Map, QueryCount, Reads, Scale, Writes,
};
use attention::cuda::{
    Architecture, COMMON, Error, Function, NAIVE, Numbers, OtherSize, Parameter, Program,
    Result, Shape, Size, Source, TILED, Tensor,
};
use cudarc::driver::sys;

// SAFETY, of all: the tests compile these programs with the declarations of their lists, and run them on a CPU with every access
// watched, at each head dimension, full and causal, and at lengths around the edges of their tiles; and on a GPU beside the definition.
/// Blocks of scores and of the output in registers, and copies that nothing waits for.
pub const REGISTERS: Program = unsafe { Program::new(REGISTERS_SOURCE) };
/// Tensor cores, in bf16: products of matrices by whole warps, weights that never leave their registers.
pub const TENSOR_CORES: Program = unsafe { Program::new(TENSOR_CORES_SOURCE) };
/// Hopper's own instructions: products of four warps, the copy engine, and warps that each do one thing.
pub const HOPPER: Program = unsafe { Program::new(HOPPER_SOURCE) };
/// The same with blocks that stay, one on each multiprocessor, and take one tile of queries after another.
pub const HOPPER_PERSISTENT: Program = unsafe { Program::new(HOPPER_PERSISTENT_SOURCE) };
/// The gradients of queries, keys and values.
pub const BACKWARD: Program = unsafe { Program::new(BACKWARD_SOURCE) };
/// The gradients on tensor cores, with Hopper's own instructions.
pub const BACKWARD_HOPPER: Program = unsafe { Program::new(BACKWARD_HOPPER_SOURCE) };
/// A few queries against keys and values in pages.
pub const DECODE: Program = unsafe { Program::new(DECODE_SOURCE) };

/// The forward kernels from the slowest to the fastest, then the backward passes, then decoding: in the order of their numbers.
pub const ALL: [Program; 9] = [
    NAIVE,
    TILED,
    REGISTERS,
    TENSOR_CORES,
    HOPPER,
    HOPPER_PERSISTENT,
    BACKWARD,
    BACKWARD_HOPPER,
    DECODE,
];

/// Returns the program of this name.
///
/// # Errors
/// There is none. The error lists those that there are.
///
/// ```
/// assert_eq!(gpu::program("backward"), Ok(gpu::BACKWARD));
/// assert!(gpu::program("fast").unwrap_err().contains("no kernel is called `fast`: the kernels are naive, tiled"));
/// ```
pub fn program(name: &str) -> Result<Program, String> {
    let found = ALL.into_iter().find(|program| program.source().name == name);
    found.ok_or_else(|| {
        let names = ALL.map(|program| program.source().name).join(", ");
        format!("no kernel is called `{name}`: the kernels are {names}")
    })
}

/// Returns true if the program computes gradients.
///
/// ```
/// assert!(gpu::is_backward(gpu::BACKWARD) && !gpu::is_backward(gpu::HOPPER));
/// ```
pub fn is_backward(program: Program) -> bool {
    program.tensors().contains(&(D_Q, true))
}

/// Ampere: bf16 on tensor cores, asynchronous copies.
pub const SM_80: Architecture = Architecture { major: 8, minor: 0, specific: false };
/// Hopper, as far as it is like those that came before.
pub const SM_90: Architecture = Architecture { major: 9, minor: 0, specific: false };
/// Hopper, with the instructions that it alone has.
pub const SM_90A: Architecture = Architecture { major: 9, minor: 0, specific: true };

/// Returns the architectures that a program is tested to compile for, the oldest first.
///
/// ```
/// assert_eq!(gpu::architectures(gpu::REGISTERS), [gpu::SM_80, gpu::SM_90]);
/// assert_eq!(gpu::architectures(gpu::HOPPER), [gpu::SM_90A]);
/// assert_eq!(gpu::SM_90A.to_string(), "sm_90a");
/// assert!(!gpu::SM_90A.runs_on((10, 0))); // its own instructions are gone there
/// assert!(gpu::SM_80.runs_on((8, 9)));
/// ```
pub fn architectures(program: Program) -> Vec<Architecture> {
    let oldest = program.source().oldest;
    let is_newer = |one: &Architecture| !oldest.specific && one.major > oldest.major;
    let newer = [SM_80, SM_90].into_iter().filter(is_newer);
    [oldest].into_iter().chain(newer).collect()
}

/// Returns a declaration of each function of a program, as the list of its parameters
/// says. The tests compile it behind the text: a compiler refuses two functions of one C
/// name, so what it compiles takes what is launched.
pub fn declarations(program: Program) -> String {
    let number = |tensor: Tensor| match tensor.size {
        Size::Other(OtherSize { below: Some(_), .. }) => "int",
        _ if Precision::of_tensor(program, tensor) == Precision::Bf16 => "unsigned short",
        _ => "float",
    };
    let kind = |parameter: &Parameter| match *parameter {
        Reads(tensor) => format!("const {}*", number(tensor)),
        Writes(tensor) => format!("{}*", number(tensor)),
        Map(..) => "const __grid_constant__ TensorMap".to_owned(),
        QueryCount | KeyCount | HeadCount => "int".to_owned(),
        Scale => "float".to_owned(),
    };
    let declaration = |Function(name, parameters): &Function| {
        let kinds: Vec<_> = parameters.iter().map(kind).collect();
        format!("extern \"C\" __global__ void {name}({});\n", kinds.join(", "))
    };
    program.source().functions.iter().map(declaration).collect()
}

const Q: Tensor = Tensor::Q;
const K: Tensor = Tensor::K;
const V: Tensor = Tensor::V;
const OUTPUT: Tensor = Tensor::OUTPUT;
const LSE: Tensor = Tensor::LSE;
/// The gradient of the output.
pub const D_OUTPUT: Tensor = Tensor { name: "d_output", size: Size::Queries };
/// The gradient of the queries.
pub const D_Q: Tensor = Tensor { name: "d_q", size: Size::Queries };
/// The gradient of the keys.
pub const D_K: Tensor = Tensor { name: "d_k", size: Size::Keys };
/// The gradient of the values.
pub const D_V: Tensor = Tensor { name: "d_v", size: Size::Keys };
/// rowsum(dO ⊙ O)
const DELTA: Tensor = Tensor { name: "delta", size: Size::Rows };
/// The log-sum-exp of each query, in powers of two, and its delta, for one tile of queries after another.
const NUMBERS: Tensor = Tensor { name: "numbers", size: NUMBERS_OF_TILES };

/// The keys, in pages.
pub const K_PAGES: Tensor = Tensor { name: "k_pages", size: PAGES };
/// The values, in pages.
pub const V_PAGES: Tensor = Tensor { name: "v_pages", size: PAGES };
/// The numbers of the pages of each head, in the order of its text.
pub const PAGE_TABLE: Tensor = Tensor { name: "page_table", size: PAGE_NUMBERS };
/// How many keys each head of keys has, `n_k` at most; the others are behind the end of its text.
pub const LENGTHS: Tensor = Tensor { name: "lengths", size: LENGTHS_OF_TEXTS };
/// The output of each split of the keys.
const PART: Tensor = Tensor { name: "part", size: PARTS };
/// Its log-sum-exps, in powers of two.
const PART_LSE: Tensor = Tensor { name: "part_lse", size: ROWS_OF_PARTS };

/// Pages that hold the keys of all heads: those of a head and a text lie anywhere among them.
const PAGES: Size = Size::Other(&OtherSize {
    sizes: |shape| [shape.kv_heads, pages(shape) * PAGE, shape.d],
    formula: "kv_heads · ⌈n_k / 16⌉ · 16 · d",
    numbers: None,
    below: None,
});
const PAGE_NUMBERS: Size = Size::Other(&OtherSize {
    sizes: |shape| [shape.kv_heads, pages(shape), 1],
    formula: "kv_heads · ⌈n_k / 16⌉",
    numbers: Some(Numbers::I32),
    below: Some(|shape| shape.kv_heads * pages(shape)),
});
const LENGTHS_OF_TEXTS: Size = Size::Other(&OtherSize {
    sizes: |shape| [shape.kv_heads, 1, 1],
    formula: "kv_heads",
    numbers: Some(Numbers::I32),
    below: Some(|shape| shape.n_k + 1),
});
const PARTS: Size = Size::Other(&OtherSize {
    sizes: |shape| [shape.kv_heads, rows_of_parts(shape), shape.d],
    formula: "kv_heads · ⌈n_k / 512⌉ · ⌈group · n_q / 16⌉ · 16 · d",
    numbers: Some(Numbers::F32),
    below: None,
});
const ROWS_OF_PARTS: Size = Size::Other(&OtherSize {
    sizes: |shape| [shape.kv_heads, rows_of_parts(shape), 1],
    formula: "kv_heads · ⌈n_k / 512⌉ · ⌈group · n_q / 16⌉ · 16",
    numbers: Some(Numbers::F32),
    below: None,
});

const NUMBERS_OF_TILES: Size = Size::Other(&OtherSize {
    sizes: |shape| [shape.heads, shape.n_q.div_ceil(128) * 128, 2],
    formula: "heads · ⌈n_q / 128⌉ · 128 · 2",
    numbers: Some(Numbers::F32),
    below: None,
});

/// Pages of a head.
fn pages(shape: Shape) -> usize {
    shape.n_k.div_ceil(PAGE)
}

/// Rows that a head of keys has partial results for: a tile's for each split, whether or not all of them are queries.
fn rows_of_parts(Shape { heads, kv_heads, n_q, n_k, .. }: Shape) -> usize {
    let tiles = (heads / kv_heads).saturating_mul(n_q).div_ceil(ROWS);
    tiles.saturating_mul(ROWS).saturating_mul(n_k.div_ceil(SPLIT))
}

const BF16_HEADER: Header = ("bf16.cuh", include_str!("../cuda/bf16.cuh"));
const CP_ASYNC: Header = ("cp_async.cuh", include_str!("../cuda/cp_async.cuh"));
const TENSOR_CORES_HEADER: Header =
    ("tensor_cores.cuh", include_str!("../cuda/tensor_cores.cuh"));
const HOPPER_HEADER: Header = ("hopper.cuh", include_str!("../cuda/hopper.cuh"));
const HOPPER_TILES: Header =
    ("hopper_tiles.cuh", include_str!("../cuda/hopper_tiles.cuh"));
type Header = (&'static str, &'static str);

const REGISTERS_SOURCE: &Source = &Source {
    name: "registers",
    text: include_str!("../cuda/registers.cu"),
    headers: &[COMMON, CP_ASYNC],
    oldest: SM_80,
    takes_rules: false,
    takes_masks: false,
    ..*TILED.source()
};

const TENSOR_CORES_SOURCE: &Source = &Source {
    name: "tensor_cores",
    text: include_str!("../cuda/tensor_cores.cu"),
    headers: &[COMMON, BF16_HEADER, CP_ASYNC, TENSOR_CORES_HEADER],
    numbers: BF16,
    widths: &[64, 128],
    ..*REGISTERS_SOURCE
};

const HOPPER_SOURCE: &Source = &Source {
    name: "hopper",
    text: include_str!("../cuda/hopper.cu"),
    headers: &[COMMON, BF16_HEADER, HOPPER_HEADER, HOPPER_TILES],
    functions: &[Function(
        "attention_forward",
        &[
            Map(Q, map_of_queries),
            Map(K, map_of_keys),
            Map(V, map_of_keys),
            Writes(OUTPUT),
            Writes(LSE),
            QueryCount,
            KeyCount,
            HeadCount,
            Scale,
        ],
    )],
    oldest: SM_90A,
    takes_rules: true,
    takes_masks: true,
    ..*TENSOR_CORES_SOURCE
};

const HOPPER_PERSISTENT_SOURCE: &Source = &Source {
    name: "hopper_persistent",
    text: include_str!("../cuda/hopper_persistent.cu"),
    headers: &[
        COMMON,
        BF16_HEADER,
        HOPPER_HEADER,
        HOPPER_TILES,
        ("hopper.cu", HOPPER_SOURCE.text),
    ],
    is_persistent: true,
    ..*HOPPER_SOURCE
};

const BACKWARD_SOURCE: &Source = &Source {
    name: "backward",
    text: include_str!("../cuda/backward.cu"),
    functions: &[
        Function(
            "backward_delta",
            &[Reads(OUTPUT), Reads(D_OUTPUT), Writes(DELTA), QueryCount],
        ),
        Function(
            "backward_keys",
            &[
                Reads(Q),
                Reads(K),
                Reads(V),
                Reads(D_OUTPUT),
                Reads(LSE),
                Reads(DELTA),
                Writes(D_K),
                Writes(D_V),
                QueryCount,
                KeyCount,
                Scale,
            ],
        ),
        Function(
            "backward_queries",
            &[
                Reads(Q),
                Reads(K),
                Reads(V),
                Reads(D_OUTPUT),
                Reads(LSE),
                Reads(DELTA),
                Writes(D_Q),
                QueryCount,
                KeyCount,
                Scale,
            ],
        ),
    ],
    ..*TILED.source()
};

const BACKWARD_HOPPER_SOURCE: &Source = &Source {
    name: "backward_hopper",
    text: include_str!("../cuda/backward_hopper.cu"),
    functions: &[
        Function(
            "backward_delta",
            &[Reads(OUTPUT), Reads(D_OUTPUT), Reads(LSE), Writes(NUMBERS), QueryCount],
        ),
        Function(
            "backward_keys",
            &[
                Map(Q, map_of_rows),
                Map(K, map_of_rows),
                Map(V, map_of_rows),
                Map(D_OUTPUT, map_of_rows),
                Reads(NUMBERS),
                Writes(D_K),
                Writes(D_V),
                QueryCount,
                KeyCount,
                Scale,
            ],
        ),
        Function(
            "backward_queries",
            &[
                Map(Q, map_of_rows),
                Map(K, map_of_rows),
                Map(V, map_of_rows),
                Map(D_OUTPUT, map_of_rows),
                Reads(NUMBERS),
                Writes(D_Q),
                QueryCount,
                KeyCount,
                Scale,
            ],
        ),
    ],
    ..*HOPPER_SOURCE
};

const DECODE_SOURCE: &Source = &Source {
    name: "decode",
    text: include_str!("../cuda/decode.cu"),
    functions: &[
        Function(
            "decode_split",
            &[
                Reads(Q),
                Reads(K_PAGES),
                Reads(V_PAGES),
                Reads(PAGE_TABLE),
                Reads(LENGTHS),
                Writes(PART),
                Writes(PART_LSE),
                QueryCount,
                KeyCount,
                Scale,
            ],
        ),
        Function(
            "decode_merge",
            &[
                Reads(PART),
                Reads(PART_LSE),
                Writes(OUTPUT),
                Writes(LSE),
                QueryCount,
                KeyCount,
            ],
        ),
    ],
    takes_rules: true,
    takes_masks: true,
    ..*TENSOR_CORES_SOURCE
};

/// The rows of a box of queries and of one of keys and values, by which `hopper` copies them: its constant
/// `attention_forward_boxes`.
pub const HOPPER_BOXES: [u32; 2] = [64, crate::tiles::hopper::KEYS as u32];

fn map_of_queries(address: u64, sizes: [usize; 3]) -> Result<[u64; 16]> {
    tensor_map(address, sizes, HOPPER_BOXES[0])
}

fn map_of_keys(address: u64, sizes: [usize; 3]) -> Result<[u64; 16]> {
    tensor_map(address, sizes, HOPPER_BOXES[1])
}

fn map_of_rows(address: u64, sizes: [usize; 3]) -> Result<[u64; 16]> {
    tensor_map(address, sizes, BOX as u32)
}

/// The description by which Hopper's copy engine finds boxes of a tensor in bf16 with these sizes, (heads, n, d). Boxes have 64
/// columns and `rows` rows of one head, in shared memory swizzled over 128 bytes; rows and columns past the end are zeros.
fn tensor_map(address: u64, [heads, n, d]: [usize; 3], rows: u32) -> Result<[u64; 16]> {
    let bytes = Precision::Bf16.bytes() as u64;
    let sizes = [d as u64, n as u64, heads as u64]; // the fastest first
    let strides = [d as u64 * bytes, (n * d) as u64 * bytes]; // of rows, of heads
    let (box_sizes, steps) = ([64, rows, 1], [1, 1, 1]);
    let mut map = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: The arrays have as many entries as three dimensions need. The address is written down, and nothing is read there.
    let status = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3,
            address as *mut _,
            sizes.as_ptr(),
            strides.as_ptr(),
            box_sizes.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    status.result().map_err(Error::driver("describe a tensor to the copy engine"))?;
    Ok(map.opaque)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_those_of_the_lists() {
        let first = "extern \"C\" __global__ void scores(const float*, const float*, float*, int, int, float);\n";
        assert!(declarations(NAIVE).starts_with(first));
        let half = "attention_forward(const unsigned short*, const unsigned short*, const unsigned short*, unsigned short*, float*, ";
        assert!(declarations(TENSOR_CORES).contains(half));
    }
}
