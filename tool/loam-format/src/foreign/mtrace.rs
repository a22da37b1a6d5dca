//! The binary trace of glibc-malloc-trace-utils. It has records of 64 bytes, little-endian, and
//! comes from a 64-bit program.
//!
//! ```text
//! 0        4      5          8          16         24         32         40
//! | thread | type | path     | first    | second   | size     | size 2   | sizes inside, unused |
//! ```
//!
//! The first record is a magic one: its type is 255, `first` is 0x1234, and `size` is the bytes of
//! a pointer. In other records, `second` is the new block, `first` the old one or the error of
//! `posix_memalign`, and `size 2` the alignment. Records of type 0 were never filled.

use std::io::{BufRead, ErrorKind};

use super::{freed, plain, About, At, Call, ForeignError, Source, What};
use crate::bytes::u64_at;
use crate::trace::AllocFamily;

const RECORD: usize = 64;
const MAGIC: u8 = 255;
const MAGIC_FIRST: u64 = 0x1234;
const REMEDY: &str =
    "this is no trace of libmtrace's, or it is damaged; record again with glibc-malloc-trace-utils";

/// Whether a file that begins with these bytes has this format.
pub fn is_start(start: &[u8]) -> bool {
    start.len() >= RECORD && start[4] == MAGIC && u64_at(start, 8) == Some(MAGIC_FIRST)
}

/// Reads a trace.
#[derive(Debug)]
pub struct Mtrace<R> {
    input: R,
    offset: u64,
}

impl<R: BufRead> Mtrace<R> {
    pub fn new(input: R) -> Mtrace<R> {
        Mtrace { input, offset: 0 }
    }

    fn wrong(&self, what: String, remedy: &'static str) -> ForeignError {
        ForeignError::Malformed {
            at: At::Byte(self.offset),
            what,
            remedy,
        }
    }

    fn record(&mut self) -> Result<Option<[u8; RECORD]>, ForeignError> {
        let mut record = [0; RECORD];
        let mut got = 0;
        while got < RECORD {
            match self.input.read(&mut record[got..]) {
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => {
                    let what = format!("the file ends {got} bytes into a record of {RECORD}");
                    return Err(self.wrong(what, "the trace was cut; copy it again"));
                }
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(ForeignError::Read {
                        at: At::Byte(self.offset),
                        source,
                    })
                }
            }
        }
        Ok(Some(record))
    }

    /// The call in a record; none: the record is not imported.
    fn read(&self, record: &[u8; RECORD]) -> Result<Option<Call>, ForeignError> {
        let word = |at: usize| u64_at(record, at).unwrap_or(0);
        let (first, second, size, size2) = (word(8), word(16), word(24), word(32));
        let thread = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        let aligned = |family, alignment| What::Allocate {
            family,
            address: second,
            size,
            alignment,
        };
        let what = match record[4] {
            0 => return Ok(None),
            MAGIC if first == MAGIC_FIRST && size == 8 => return Ok(None),
            MAGIC => {
                let what = format!("the traced program's pointers have {size} bytes");
                return Err(self.wrong(what, "only traces of 64-bit programs can be imported"));
            }
            1 => plain(AllocFamily::Malloc, size, second),
            2 => plain(AllocFamily::Calloc, size, second),
            3 if first == 0 => return Ok(None),
            3 => freed(first),
            4 if first == 0 => plain(AllocFamily::Malloc, size, second),
            4 => What::Resize {
                from: first,
                to: second,
                size,
            },
            5 => aligned(AllocFamily::Aligned, size2),
            6 | 7 => aligned(AllocFamily::Valloc, 0),
            8 if first == 0 => aligned(AllocFamily::Aligned, size2),
            8 => What::Allocate {
                family: AllocFamily::Aligned,
                address: 0,
                size,
                alignment: size2,
            },
            other => {
                let what = format!("a record has the type {other}, and 0 to 8 are known");
                return Err(self.wrong(what, REMEDY));
            }
        };
        Ok(Some(Call {
            process: 0,
            thread: thread.into(),
            time: None,
            frame: None,
            what,
        }))
    }
}

impl<R: BufRead> Source for Mtrace<R> {
    fn next(&mut self) -> Result<Option<Call>, ForeignError> {
        while let Some(record) = self.record()? {
            if self.offset == 0 && !is_start(&record) {
                let what = "the first record is not the magic one".to_owned();
                return Err(self.wrong(what, REMEDY));
            }
            let call = self.read(&record)?;
            self.offset += RECORD as u64;
            if call.is_some() {
                return Ok(call);
            }
        }
        Ok(None)
    }

    fn about(&self) -> About {
        About {
            format: "glibc-malloc-trace-utils".to_owned(),
            lost: vec![
                "touched pages",
                "times",
                "ends of threads",
                "operator new and delete (all is malloc and free)",
                "what happened in children of fork",
            ],
            ..About::default()
        }
    }
}
