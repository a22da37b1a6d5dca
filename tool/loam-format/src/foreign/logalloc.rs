//! The log of Firefox's logalloc. Each call has a line `PID TID FUNCTION(ARGUMENTS)[=RESULT]` with
//! decimal numbers. Addresses are hexadecimal, or `#N` if `logalloc_munge.py` numbered the blocks.

use std::collections::HashMap;
use std::io::BufRead;

use super::lines::{decimal, hexadecimal, Lines};
use super::places::Places;
use super::{freed, plain, About, Call, ForeignError, Source, What};
use crate::trace::AllocFamily;

const REMEDY: &str =
    "a line is `PID TID function(arguments)=result`; remove what other output was \
                      mixed in, or log into a file of its own (MALLOC_LOG=FILE)";

/// Whether a file that begins with these bytes has this format.
pub fn is_start(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    split(line).is_some()
}

/// The parts of a line.
struct Parts<'a> {
    process: u64,
    thread: u64,
    function: &'a [u8],
    arguments: &'a [u8],
    result: Option<&'a [u8]>,
}

fn split(line: &[u8]) -> Option<Parts<'_>> {
    let mut words = line.splitn(3, |byte| *byte == b' ');
    let (process, thread) = (decimal(words.next()?)?, decimal(words.next()?)?);
    let call = words.next()?;
    let open = call.iter().position(|byte| *byte == b'(')?;
    // A null pointer is written `(nil)`.
    let rest = &call[open + 1..];
    let (arguments, result) = match rest.windows(2).position(|two| two == b")=") {
        Some(close) => (&rest[..close], Some(&rest[close + 2..])),
        None => (rest.strip_suffix(b")")?, None),
    };
    Some(Parts {
        process,
        thread,
        function: &call[..open],
        arguments,
        result,
    })
}

/// Address and bytes of the blocks of a munged log, by process and number.
type Numbered = HashMap<(u64, u64), (u64, u64)>;

/// Reads a log.
#[derive(Debug)]
pub struct Logalloc<R> {
    lines: Lines<R>,
    blocks: Numbered,
    places: Places,
}

impl<R: BufRead> Logalloc<R> {
    pub fn new(input: R) -> Logalloc<R> {
        Logalloc {
            lines: Lines::new(input),
            blocks: HashMap::new(),
            places: Places::new(),
        }
    }

    /// The call in the line; none: the line is not imported.
    fn line(&mut self) -> Option<Option<Call>> {
        let parts = split(self.lines.text())?;
        let Parts {
            process, thread, ..
        } = parts;
        let mut arguments = parts.arguments.split(|byte| *byte == b',');
        let mut argument = || arguments.next().map(<[u8]>::trim_ascii);
        let (blocks, places) = (&mut self.blocks, &mut self.places);
        let result = || parts.result;
        let aligned = |family, alignment: u64, size: u64, address| What::Allocate {
            family,
            address,
            size,
            alignment,
        };
        let what = match parts.function {
            b"malloc" | b"valloc" => {
                let size = decimal(argument()?)?;
                let address = begins(blocks, places, process, result()?, size)?;
                match parts.function {
                    b"malloc" => plain(AllocFamily::Malloc, size, address),
                    _ => aligned(AllocFamily::Valloc, 0, size, address),
                }
            }
            b"calloc" => {
                let size = decimal(argument()?)?.saturating_mul(decimal(argument()?)?);
                let address = begins(blocks, places, process, result()?, size)?;
                plain(AllocFamily::Calloc, size, address)
            }
            b"memalign" | b"posix_memalign" | b"aligned_alloc" => {
                let (alignment, size) = (decimal(argument()?)?, decimal(argument()?)?);
                let address = begins(blocks, places, process, result()?, size)?;
                aligned(AllocFamily::Aligned, alignment, size, address)
            }
            b"realloc" => {
                let (from, size) = (argument()?, decimal(argument()?)?);
                let failed = size > 0 && matches!(result()?, b"#0" | b"0x0" | b"(nil)");
                let from = match failed {
                    true => lives(blocks, process, from)?,
                    false => ends(blocks, places, process, from)?,
                };
                let to = begins(blocks, places, process, result()?, size)?;
                match from {
                    0 => plain(AllocFamily::Malloc, size, to),
                    _ => What::Resize { from, to, size },
                }
            }
            b"free" => match ends(blocks, places, process, argument()?)? {
                0 => return Some(None),
                address => freed(address),
            },
            // These calls only ask the heap, and do not change it.
            b"jemalloc_stats" | b"malloc_usable_size" | b"malloc_good_size" => return Some(None),
            _ => return None,
        };
        Some(Some(Call {
            process,
            thread,
            time: None,
            frame: None,
            what,
        }))
    }
}

/// The address of a block that begins; 0: the request failed.
fn begins(
    blocks: &mut Numbered,
    places: &mut Places,
    process: u64,
    word: &[u8],
    size: u64,
) -> Option<u64> {
    let Some(number) = word.strip_prefix(b"#") else {
        return address(word);
    };
    let number = decimal(number)?;
    if number == 0 {
        return Some(0);
    }
    let place = places.take(size);
    blocks.insert((process, number), (place, size));
    Some(place)
}

/// The address of a live block; 0: none.
fn lives(blocks: &Numbered, process: u64, word: &[u8]) -> Option<u64> {
    let Some(number) = word.strip_prefix(b"#") else {
        return address(word);
    };
    let known = blocks.get(&(process, decimal(number)?));
    Some(known.map_or(0, |(place, _)| *place))
}

/// The address of a block that ends; 0: none.
fn ends(blocks: &mut Numbered, places: &mut Places, process: u64, word: &[u8]) -> Option<u64> {
    let Some(number) = word.strip_prefix(b"#") else {
        return address(word);
    };
    // If no block has the number, the log did not see the block begin.
    let known = blocks.remove(&(process, decimal(number)?));
    Some(known.map_or(0, |(place, size)| {
        places.give(place, size);
        place
    }))
}

/// An address in the format of `%p`.
fn address(word: &[u8]) -> Option<u64> {
    match word {
        b"(nil)" => Some(0),
        word => hexadecimal(word),
    }
}

impl<R: BufRead> Source for Logalloc<R> {
    fn next(&mut self) -> Result<Option<Call>, ForeignError> {
        while self.lines.advance()? {
            if self.lines.text().is_empty() {
                continue;
            }
            match self.line() {
                None => return Err(self.lines.wrong("this line can not be understood", REMEDY)),
                Some(None) => {}
                Some(call) => return Ok(call),
            }
        }
        Ok(None)
    }

    fn about(&self) -> About {
        About {
            format: "logalloc".to_owned(),
            lost: vec![
                "touched pages",
                "times",
                "ends of threads",
                "forks (a child's blocks from before it are missing)",
                "operator new and delete (all is malloc and free)",
            ],
            ..About::default()
        }
    }
}
