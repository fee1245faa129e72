//! Masks as kernels know them: causal or not, and what is hidden beside the future, in CUDA C++.

use super::Result;
use crate::error::wrong_value;
use crate::mask::{Rule, SizedMask};

/// A mask, for a kernel.
pub(super) struct MaskInCuda {
    /// `true` if no query sees the future.
    pub causal: bool,
    /// What `common.cuh` asks of a file for a mask, if the mask hides more than the future.
    pub text: Option<String>,
}

/// The most documents of one sequence.
const MOST_DOCUMENTS: usize = 1 << 12;
/// A window that is as wide as this hides nothing: a head has no more keys.
const WIDEST: usize = 1 << 30;

impl MaskInCuda {
    /// # Errors
    /// The mask has something else than the causal rule, one window, and documents of a causal mask, each in one piece.
    pub fn of(mask: &SizedMask) -> Result<Self> {
        let refuse = |given: &str| {
            let expected = "kernels on the GPU know none, causal, a window, and documents beside one of these two";
            Err(wrong_value("mask", given, expected).into())
        };
        let Some(rules) = mask.rules() else {
            return refuse("of a cache that has forgotten keys");
        };
        let (mut causal, mut window, mut starts) = (false, None, None);
        for rule in rules {
            match rule {
                Rule::Causal => causal = true,
                Rule::Window { .. } if window.is_some() => {
                    return refuse("of two windows");
                }
                Rule::Window { width, sinks } => {
                    (causal, window) =
                        (true, Some(((*width).min(WIDEST), (*sinks).min(WIDEST))));
                }
                Rule::Documents { .. } if starts.is_some() => {
                    return refuse("of documents twice");
                }
                Rule::Documents { ids, .. } => match starts_of(ids) {
                    Some(found) if found.len() <= MOST_DOCUMENTS => starts = Some(found),
                    Some(_) => return refuse("of too many documents, more than 4096"),
                    None => return refuse("of documents in several pieces"),
                },
                Rule::Padding(_) => return refuse("with padding"),
                Rule::Dense(_) | Rule::Blocks { .. } => return refuse("a pattern"),
            }
        }
        let text = match (window, starts) {
            (None, None) => None,
            (_, Some(_)) if !causal => {
                return refuse("of documents that see their future");
            }
            (Some((_, 1..)), Some(_)) => return refuse("of documents with sinks"),
            (window, starts) => Some(text(window, starts, mask.shape().1)),
        };
        Ok(MaskInCuda { causal, text })
    }
}

/// Where each document begins, if each is in one piece.
fn starts_of(ids: &[usize]) -> Option<Vec<usize>> {
    let begins = |place: &usize| *place == 0 || ids[place - 1] != ids[*place];
    let starts: Vec<_> = (0..ids.len()).filter(begins).collect();
    let mut known: Vec<_> = starts.iter().map(|&place| ids[place]).collect();
    known.sort_unstable();
    let is_new = |pair: &[usize]| pair[0] != pair[1];
    known.windows(2).all(is_new).then_some(starts)
}

/// The file. A query stands at place i + n_k − n_q; one before the first key sees nothing, whatever is said of it.
fn text(
    window: Option<(usize, usize)>,
    starts: Option<Vec<usize>>,
    n_k: usize,
) -> String {
    let (width, sinks) = window.unwrap_or((WIDEST, 0));
    let starts = starts.unwrap_or_else(|| vec![0]);
    let count = starts.len();
    let list = starts.iter().chain([&n_k]).map(usize::to_string).collect::<Vec<_>>();
    format!(
        "constexpr bool HAS_MASK = true;
constexpr int SINKS = {sinks};
__device__ const int STARTS[] = {{{}}}; // of documents, and the end of the last
__device__ inline int document_of(int place) {{
int first = 0, end = {count};
while (end - first > 1) {{
const int middle = (first + end) / 2;
if (STARTS[middle] <= place) first = middle; else end = middle;
}}
return first;
}}
__device__ inline int first_key_of(int i, int n_q, int n_k) {{
const int place = max(0, i + n_k - n_q);
return max(STARTS[document_of(place)], place - {width} + 1);
}}
__device__ inline int end_of_queries(int j, int n_q, int n_k) {{
return min(n_q, max(0, min(STARTS[document_of(j) + 1], j + {width}) + n_q - n_k));
}}
",
        list.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mask;

    fn of(mask: Mask) -> Result<MaskInCuda> {
        MaskInCuda::of(&mask.sized(4, 4).unwrap())
    }

    #[test]
    fn plain_masks_need_no_text() {
        for (mask, causal) in [(Mask::none(), false), (Mask::causal(), true)] {
            let found = of(mask).unwrap();
            assert_eq!((found.causal, found.text), (causal, None));
        }
    }

    #[test]
    fn what_a_kernel_does_not_know_is_named() {
        let documents = |ids: &[usize]| Mask::documents(ids).unwrap();
        let causal = |ids: &[usize]| documents(ids).and(Mask::causal());
        for (mask, given) in [
            (Mask::padding(&[true; 4]).unwrap(), "with padding"),
            (documents(&[1, 1, 2, 2]), "of documents that see their future"),
            (causal(&[1, 2, 1, 2]), "of documents in several pieces"),
            (
                causal(&[1, 1, 2, 2]).and(Mask::window_with_sinks(2, 1).unwrap()),
                "of documents with sinks",
            ),
        ] {
            let words = of(mask).err().expect(given).to_string();
            assert!(
                words.starts_with(&format!("`mask` is {given} but kernels")),
                "{words}"
            );
        }
        assert!(of(causal(&[1, 1, 2, 2]).and(Mask::window(3).unwrap())).is_ok());
    }
}
