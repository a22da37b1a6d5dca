//! The text that Android's malloc debug writes for `record_allocs`, and that `memory_replay` reads:
//!
//! ```text
//! TID: malloc ADDRESS SIZE [BEGIN END]           TID: calloc ADDRESS COUNT SIZE [BEGIN END]
//! TID: memalign ADDRESS ALIGNMENT SIZE [...]     TID: realloc ADDRESS OLD SIZE [...]
//! TID: free ADDRESS [BEGIN END]                  TID: thread_done 0x0 [END]
//! ```
//!
//! The times of a call's begin and end are in nanoseconds; older recordings have none.

use std::io::BufRead;

use super::lines::{decimal, hexadecimal, Lines};
use super::{freed, plain, About, Call, ForeignError, Source, What};
use crate::trace::AllocFamily;

const REMEDY: &str = "a line is `TID: function ADDRESS NUMBERS...` as record_allocs of Android's \
                      malloc debug writes it; record again, or remove the line";

/// Whether a file that begins with these bytes has this format.
pub fn is_start(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or(&[]);
    parse(line.trim_ascii_end()).is_some()
}

/// The call in a line.
fn parse(line: &[u8]) -> Option<Call> {
    let mut words = line.split(|byte| *byte == b' ').filter(|w| !w.is_empty());
    let thread = decimal(words.next()?.strip_suffix(b":")?)?;
    let function = words.next()?;
    let address = hexadecimal(words.next()?)?;
    // A free is stamped before it takes effect, every other call after it returned.
    let mut is_free = false;
    let what = {
        let mut number = || words.next().and_then(decimal);
        match function {
            b"malloc" => plain(AllocFamily::Malloc, number()?, address),
            b"calloc" => {
                let size = number()?.saturating_mul(number()?);
                plain(AllocFamily::Calloc, size, address)
            }
            b"memalign" => {
                let (alignment, size) = (number()?, number()?);
                What::Allocate {
                    family: AllocFamily::Aligned,
                    address,
                    size,
                    alignment,
                }
            }
            b"realloc" => {
                let from = hexadecimal(words.next()?)?;
                let size = decimal(words.next()?)?;
                match from {
                    0 => plain(AllocFamily::Malloc, size, address),
                    _ => What::Resize {
                        from,
                        to: address,
                        size,
                    },
                }
            }
            b"free" => {
                is_free = true;
                freed(address)
            }
            b"thread_done" => What::ThreadEnds,
            _ => return None,
        }
    };
    let times: Vec<u64> = words.map(decimal).collect::<Option<_>>()?;
    let time = match (what, &times[..]) {
        (_, []) => None,
        (What::ThreadEnds, [end]) => Some(*end),
        (What::ThreadEnds, _) => return None,
        (_, [begin, end]) => Some(if is_free { *begin } else { *end }),
        _ => return None,
    };
    Some(Call {
        process: 0,
        thread,
        time: time.filter(|time| *time > 0),
        frame: None,
        what,
    })
}

/// Reads a recording.
#[derive(Debug)]
pub struct MemoryReplay<R> {
    lines: Lines<R>,
    has_times: bool,
}

impl<R: BufRead> MemoryReplay<R> {
    pub fn new(input: R) -> MemoryReplay<R> {
        MemoryReplay {
            lines: Lines::new(input),
            has_times: false,
        }
    }
}

impl<R: BufRead> Source for MemoryReplay<R> {
    fn next(&mut self) -> Result<Option<Call>, ForeignError> {
        while self.lines.advance()? {
            if self.lines.text().is_empty() {
                continue;
            }
            let Some(call) = parse(self.lines.text()) else {
                return Err(self.lines.wrong("this line can not be understood", REMEDY));
            };
            self.has_times |= call.time.is_some();
            if call.what != freed(0) {
                return Ok(Some(call));
            }
        }
        Ok(None)
    }

    fn about(&self) -> About {
        let mut lost = vec![
            "touched pages",
            "operator new and delete (all is malloc and free)",
        ];
        if !self.has_times {
            lost.push("times");
        }
        About {
            format: "Android record_allocs".to_owned(),
            lost,
            ..About::default()
        }
    }
}
