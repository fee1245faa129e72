//! The parts of this crate that the laboratory and the tests of this project reach. Nothing here is meant for other programs, and
//! all of it may change.

pub mod one_problem;
pub mod random_problems;
mod samples;

pub use crate::blocks::{blocks, tiles_between};
pub use crate::dot_product::{check_queries_and_keys, check_values, scale};
pub use crate::error::{check_count, check_positive, check_room, check_shape};
pub use crate::flash::tile_products::{Part, TileProducts};
pub use crate::mask::neg_infinity;
pub use crate::simd::{product, product_tr, tr_product};
pub use crate::softmax::{log_sum_exp_and_low, normaliser, shift};
pub use samples::{
    blame, heads_of, mask_of_chunk, masks, options, parameters, random, score_rules,
};
