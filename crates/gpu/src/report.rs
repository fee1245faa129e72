//! What the compiler says of a program: the launches that its source asks for, and the needs of its functions.

use attention::cuda::{Compiled, Error, Result};
use object::LittleEndian;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

/// The launch that a function asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Threads of a block.
    pub threads: u32,
    /// Rows, of queries or of keys, that a block takes.
    pub rows: u32,
    /// Bytes of shared memory that a block is given.
    pub shared_bytes: u32,
}

impl Launch {
    /// Returns the constant `NAME_launch` of a program's source.
    ///
    /// # Errors
    /// There is no such constant, or it is something else.
    pub fn of(compiled: &Compiled, function: &str) -> Result<Self> {
        let [threads, rows, shared_bytes] =
            constant(compiled, &format!("{function}_launch"))?;
        Ok(Launch { threads, rows, shared_bytes })
    }
}

/// Returns a constant of a program's source, an array of `int` of which none is negative. It stands in the compiler's output, so it is
/// known without a device.
///
/// # Errors
/// There is no such constant, or it is something else.
pub fn constant<const N: usize>(compiled: &Compiled, name: &str) -> Result<[u32; N]> {
    let &Compiled { program, architecture, .. } = compiled;
    let found = bytes_of(&compiled.cubin, name).and_then(numbers);
    found.ok_or_else(|| {
        let log = format!("`{name}`, {N} numbers, is not among its constants");
        Error::Compile { what: format!("{program} for {architecture}"), log }
    })
}

fn bytes_of<'a>(cubin: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let file = ElfFile64::<LittleEndian>::parse(cubin).ok()?;
    let symbol = file.symbol_by_name(name)?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    section.data_range(symbol.address(), symbol.size()).ok()?
}

fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let (chunks, rest) = bytes.as_chunks();
    let numbers = chunks.iter().map(|&chunk| u32::from_le_bytes(chunk));
    let numbers: Vec<_> =
        numbers.filter(|&number| i32::try_from(number).is_ok()).collect();
    if rest.is_empty() { numbers.try_into().ok() } else { None }
}

/// The needs of a thread of a function and of its block, in the words of `ptxas -v`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// The function.
    pub function: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that are written to slow memory, for want of more.
    pub spill_stores: u32,
    /// Bytes that are read back.
    pub spill_loads: u32,
    /// Bytes of a thread's own slow memory.
    pub stack: u32,
    /// Bytes of shared memory that the source asks for by a declaration. What a launch asks for comes on top.
    pub shared: u32,
}

impl Resources {
    /// Returns the functions in a log of `ptxas -v`. What it does not know, it passes over.
    pub fn parse(log: &str) -> Vec<Resources> {
        let mut all: Vec<Resources> = vec![];
        for line in log.lines() {
            if let Some(rest) = line.split("Compiling entry function '").nth(1) {
                let function = rest.split('\'').next().unwrap_or_default().to_owned();
                all.push(Resources { function, ..Resources::default() });
            }
            let Some(last) = all.last_mut() else { continue };
            for (words, number) in [
                (" bytes stack frame", &mut last.stack),
                (" bytes spill stores", &mut last.spill_stores),
                (" bytes spill loads", &mut last.spill_loads),
                (" registers", &mut last.registers),
                (" bytes smem", &mut last.shared),
            ] {
                if let Some(found) = number_before(line, words) {
                    *number = found;
                }
            }
        }
        all
    }
}

/// The number that stands right before these words.
fn number_before(line: &str, words: &str) -> Option<u32> {
    let before = &line[..line.find(words)?];
    before.rsplit([' ', ',']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_as_many_numbers_as_are_asked_for() {
        let read = |numbers: &[i32]| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            super::numbers::<3>(&bytes)
        };
        assert_eq!(read(&[128, 64, 0]), Some([128, 64, 0]));
        for other in [&[1, 1][..], &[1, 1, 1, 1], &[1, 1, -1]] {
            assert_eq!(read(other), None, "{other:?}");
        }
        assert_eq!(super::numbers::<1>(&[1, 0, 0, 0, 0]), None);
        assert_eq!(bytes_of(b"no ELF file", "attention_forward_launch"), None);
    }

    /// The words of `ptxas -v` on two functions.
    const LOG: &str = "\
ptxas info    : Compiling entry function 'scores' for 'sm_90'
ptxas info    : Function properties for scores
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 16 bytes cumulative stack size, 400 bytes smem
ptxas info    : Compiling entry function 'weigh' for 'sm_90'
ptxas info    : Used 32 registers";

    #[test]
    fn what_a_function_needs_is_in_the_log() {
        let resources = Resources::parse(LOG);
        assert_eq!(resources[0].registers, 128);
        assert_eq!(resources[0].spill_stores, 8);
        assert!(Resources::parse("ptxas info    : 0 bytes gmem").is_empty());
    }
}
