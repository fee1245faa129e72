//! Self-attention.
// ANCHOR: demo
/// One plus one.
pub fn two() -> i32 {
    1 + 1
}
// ANCHOR_END: demo
