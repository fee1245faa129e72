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

impl MaskInCuda {
    /// # Errors
    /// The mask has something else than the causal rule, a window, and documents, each in one piece, beside one of these without sinks.
    pub fn of(mask: &SizedMask) -> Result<Self> {
        let refuse = |given: &str| {
            let expected = "the kernels on the GPU know none, causal, a window, and documents with causal or a window without sinks";
            Err(wrong_value("mask", given, expected).into())
        };
        let Some(rules) = mask.rules() else {
            return refuse("of a cache that has forgotten keys");
        };
        let (_, n_k) = mask.shape();
        let (mut causal, mut starts) = (false, None);
        let mut window: Option<(usize, usize)> = None; // width and sinks
        for rule in rules {
            match rule {
                Rule::Causal => causal = true,
                // Such a window has all keys.
                Rule::Window { width, .. } if *width >= n_k => causal = true,
                Rule::Window { width, sinks } => {
                    let (width, sinks) = match window {
                        None => (*width, *sinks),
                        Some((known, 0)) if *sinks == 0 => (known.min(*width), 0),
                        Some(_) => return refuse("of two windows with sinks"),
                    };
                    (causal, window) = (true, Some((width, sinks.min(n_k))));
                }
                Rule::Documents { .. } if starts.is_some() => {
                    return refuse("of documents twice");
                }
                Rule::Documents { ids, .. } => match starts_of(ids) {
                    Some(found) if found.len() > MOST_DOCUMENTS => {
                        return refuse("of more than 4096 documents");
                    }
                    Some(found) => starts = (found.len() > 1).then_some(found),
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
            (window, starts) => Some(text(window, starts, n_k)),
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

/// The file. A query stands at place i + n_k − n_q; one before the first key sees nothing, whatever is said of it. With documents the file
/// belongs to their one layout; without, to any number of keys.
fn text(
    window: Option<(usize, usize)>,
    starts: Option<Vec<usize>>,
    n_k: usize,
) -> String {
    let (width, sinks) = window.unwrap_or((n_k, 0));
    let mut text =
        format!("constexpr bool HAS_MASK = true;\nconstexpr int SINKS = {sinks};\n");
    let (start, end) = match starts {
        Some(starts) => {
            let list: Vec<_> =
                starts.iter().chain([&n_k]).map(usize::to_string).collect();
            text += &documents(&list.join(", "), starts.len());
            ("STARTS[document_of(place)]", "STARTS[document_of(j) + 1]")
        }
        None => ("0", "n_k"),
    };
    text += &format!(
        "__device__ inline int first_key_of(int i, int n_q, int n_k) {{
const int place = max(0, i + n_k - n_q);
return max({start}, place - {width} + 1);
}}
__device__ inline int end_of_queries(int j, int n_q, int n_k) {{
return min(n_q, max(0, min({end}, j + {width}) + (n_q - n_k)));
}}
"
    );
    text
}

/// Where each document begins, and where the last one ends; and the number of the document of a place.
fn documents(list: &str, count: usize) -> String {
    format!(
        "__device__ const int STARTS[] = {{{list}}};
__device__ inline int document_of(int place) {{
int first = 0, end = {count};
while (end - first > 1) {{
const int middle = (first + end) / 2;
if (STARTS[middle] <= place) first = middle; else end = middle;
}}
return first;
}}
"
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
        let one_document = Mask::documents(&[7; 4]).unwrap();
        for (mask, causal) in [
            (Mask::none(), false),
            (Mask::causal(), true),
            (Mask::window(4).unwrap(), true),
            (one_document, false),
        ] {
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
                words.starts_with(&format!("`mask` is {given} but the kernels")),
                "{words}"
            );
        }
        assert!(of(causal(&[1, 1, 2, 2]).and(Mask::window(3).unwrap())).is_ok());
        let window = |width, n_k| {
            let mask = Mask::window(width).unwrap();
            MaskInCuda::of(&mask.sized(4, n_k).unwrap()).unwrap().text
        };
        assert!(window(3, 50).is_some() && window(3, 50) == window(3, 51));
    }
}
