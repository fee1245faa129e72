//! What attention is made of, for programs that put it together in another way.
//!
//! The products and exponentials in vector instructions are not here: products are nalgebra's, or those of
//! [`TileProducts`](crate::flash::TileProducts), and exponentials those of [`Float`](crate::Float).

pub use crate::blocks::{blocks, tiles_between};
pub use crate::dot_product::{check_queries_and_keys, check_values, scale};
pub use crate::error::{check_count, check_positive, check_room, check_shape};
pub use crate::mask::neg_infinity;
pub use crate::softmax::log_sum_exp_and_low;

/// What softmax subtracts from a row of scores whose maximum this is.
///
/// ```
/// use attention::building_blocks::shift;
///
/// assert_eq!(shift(1000.0_f64), 1000.0);
/// assert_eq!(shift(f64::NEG_INFINITY), 0.0); // nothing is seen
/// ```
///
#[doc(inline)]
pub use crate::softmax::shift;

/// What softmax divides the exponentials of a row by whose sum this is.
///
/// ```
/// use attention::building_blocks::normaliser;
///
/// assert_eq!(normaliser(2.5_f64), 2.5);
/// assert_eq!(normaliser(0.0_f64), 1.0); // nothing is seen
/// ```
///
#[doc(inline)]
pub use crate::softmax::normaliser;
