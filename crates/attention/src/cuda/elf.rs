//! Reads constants out of the compiler's output, which is an ELF file.
//!
//! So their values are known without a device.

const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
const SYMBOL_TABLE: u64 = 2;

/// The bytes of a variable. `None` if there is none of this name, or if the file is no such file.
pub fn symbol<'a>(file: &'a [u8], name: &str) -> Option<&'a [u8]> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None; // not 64 bits, least significant byte first
    }
    let table =
        sections(file).find(|section| number::<4>(section, 4) == Some(SYMBOL_TABLE))?;
    let names = contents(file, sections(file).nth(number::<4>(table, 40)? as usize)?)?;
    let symbol = contents(file, table)?.chunks_exact(SYMBOL).find(|symbol| {
        number::<4>(symbol, 0).and_then(|at| text(names, at)) == Some(name.as_bytes())
    })?;
    let home = contents(file, sections(file).nth(number::<2>(symbol, 6)? as usize)?)?;
    range(home, number::<8>(symbol, 8)?, number::<8>(symbol, 16)?)
}

/// The sections' headers.
fn sections(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let start =
        number::<8>(file, 40).and_then(|start| file.get(usize::try_from(start).ok()?..));
    let count = number::<2>(file, 60).unwrap_or(0) as usize;
    start.unwrap_or_default().chunks_exact(SECTION_HEADER).take(count)
}

fn contents<'a>(file: &'a [u8], section: &[u8]) -> Option<&'a [u8]> {
    range(file, number::<8>(section, 24)?, number::<8>(section, 32)?)
}

fn range(bytes: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// Up to the byte 0.
fn text(names: &[u8], at: u64) -> Option<&[u8]> {
    names.get(usize::try_from(at).ok()?..)?.split(|&byte| byte == 0).next()
}

/// `N` bytes, the least significant first.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.first_chunk::<N>()?;
    Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::mutated;
    use proptest::prelude::*;

    /// A file with one variable, `a`, of these bytes: a header, names, a table of two symbols, the bytes, and the headers
    /// of four sections.
    fn file(variable: &[u8]) -> Vec<u8> {
        let place = |at: usize, length: usize| {
            [at as u64, length as u64].map(u64::to_le_bytes).concat()
        };
        let (names, symbols) = (64, 68);
        let home = symbols + 2 * SYMBOL;
        let headers = home + variable.len();
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(40, 0);
        file.extend((headers as u64).to_le_bytes());
        file.resize(60, 0);
        file.extend([4, 0, 0, 0]); // four sections
        file.extend(b"\0a\0\0");
        file.resize(symbols + SYMBOL, 0); // the first symbol has no name
        file.extend([1, 0, 0, 0, 0, 0, 3, 0]); // its name begins at 1, and its home is section 3
        file.extend(place(0, variable.len()));
        file.extend(variable);
        for (kind, link, at, length) in [
            (0, 0, 0, 0),
            (2, 2, symbols, 2 * SYMBOL), // the symbols, whose names are in section 2
            (3, 0, names, 4),
            (1, 0, home, variable.len()),
        ] {
            let start = file.len();
            file.extend([0, 0, 0, 0, kind, 0, 0, 0]);
            file.resize(start + 24, 0);
            file.extend(place(at, length));
            file.extend([link, 0, 0, 0]);
            file.resize(start + SECTION_HEADER, 0);
        }
        file
    }

    #[test]
    fn a_variable_is_found_by_name() {
        let file = file(b"12 bytes ...");
        assert_eq!(symbol(&file, "a"), Some(&b"12 bytes ..."[..]));
        assert_eq!(symbol(&file, "b"), None);
    }

    proptest! {
        /// Whatever the file is, what is found lies in it.
        #[test]
        fn a_damaged_file_has_the_variable_or_has_it_not(
            file in mutated::bytes(file(b"12 bytes ..."), &["\u{7f}ELF", "a\0", "\u{1}\0\0\0"]),
        ) {
            if let Some(found) = symbol(&file, "a") {
                prop_assert!(file.as_ptr_range().start <= found.as_ptr_range().start);
                prop_assert!(found.as_ptr_range().end <= file.as_ptr_range().end);
            }
        }

        /// Sizes and places that are no sizes and places.
        #[test]
        fn any_number_may_stand_in_the_file(at in 0_usize..512, number: u64) {
            let mut file = file(b"12 bytes ...");
            let at = at.min(file.len() - 8);
            file[at..at + 8].copy_from_slice(&number.to_le_bytes());
            if let Some(found) = symbol(&file, "a") {
                prop_assert!(found.len() <= file.len());
            }
        }
    }

    /// Whatever is cut off or spoilt: no panic.
    #[test]
    fn what_is_no_such_file_has_no_symbols() {
        let mut file = vec![0; 512];
        assert_eq!(symbol(&file, "a"), None);
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert_eq!(symbol(&file, "a"), None);
        for at in 0..64 {
            let mut file = file.clone();
            file[at] = 0xff;
            for end in 0..file.len() {
                assert_eq!(symbol(&file[..end], "a"), None);
            }
        }
    }
}
