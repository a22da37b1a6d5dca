//! heaptrack's data files. Each line has a letter and hexadecimal numbers.
//!
//! ```text
//! v 10400 3            program and file format
//! X ./server --port 8  the command
//! I 1000 5e298f        bytes of a page, pages of the machine
//! c 1f4                milliseconds since the start
//! raw:          + SIZE CALL ADDRESS          - ADDRESS
//! interpreted:  a SIZE CALL (the next kind of block)    + KIND    - KIND
//! ```
//!
//! A call is one of the tree that [`super::calls`] reads.
//!
//! An interpreted file does not say which block of a kind was freed: the reader takes the last one.

use std::collections::HashSet;
use std::io::BufRead;

use super::calls::Calls;
use super::lines::{hexadecimal, hexadecimals, Lines};
use super::places::Places;
use super::{freed, plain, About, Call, ForeignError, Source, What};
use crate::trace::{AllocFamily, Frame, Module};

/// The newest known file format.
const NEWEST: u64 = 3;
const REMEDY: &str =
    "this is no data file of heaptrack 1.0 to 1.5, or it is damaged; record again with `heaptrack`";

/// Whether a file that begins with these bytes has this format.
pub fn is_start(start: &[u8]) -> bool {
    let version = start
        .strip_prefix(b"v ")
        .and_then(|rest| rest.split(|byte| byte.is_ascii_whitespace()).next());
    version.and_then(hexadecimal).is_some()
}

/// Blocks of one size that one call handed out.
#[derive(Debug)]
struct Kind {
    size: u64,
    call: u64,
    /// Addresses of the live blocks.
    live: Vec<u64>,
}

/// Reads a data file.
#[derive(Debug)]
pub struct Heaptrack<R> {
    lines: Lines<R>,
    version: u64,
    /// The file format's version.
    format: u64,
    command: Vec<String>,
    page_size: u64,
    time: u64,
    kinds: Vec<Kind>,
    calls: Calls,
    /// The call that allocated the block of the last line; 0: none.
    call: u64,
    /// For a raw file: addresses of the live blocks.
    live: HashSet<u64>,
    places: Places,
    is_raw: bool,
}

impl<R: BufRead> Heaptrack<R> {
    pub fn new(input: R) -> Heaptrack<R> {
        Heaptrack {
            lines: Lines::new(input),
            version: 0,
            format: 1,
            command: Vec::new(),
            page_size: 0,
            time: 0,
            kinds: Vec::new(),
            calls: Calls::default(),
            call: 0,
            live: HashSet::new(),
            places: Places::new(),
            is_raw: false,
        }
    }

    /// The call in the line; none: the line is not imported.
    fn line(&mut self) -> Option<Option<What>> {
        let text = self.lines.text();
        let Some((&mode, rest)) = text.split_first() else {
            return Some(None);
        };
        let mut numbers = hexadecimals(rest);
        let mut number = || numbers.next().flatten();
        Some(match mode {
            b'v' => {
                self.version = number()?;
                self.format = number().unwrap_or(1);
                if self.format > NEWEST {
                    return None;
                }
                None
            }
            b'X' => {
                let command = String::from_utf8_lossy(rest);
                self.command = command.split_whitespace().map(str::to_owned).collect();
                None
            }
            b'I' => {
                self.page_size = number()?;
                None
            }
            b'c' => {
                self.time = self.time.max(number()?.saturating_mul(1_000_000));
                None
            }
            b'a' => {
                self.kinds.push(Kind {
                    size: number()?,
                    call: number().unwrap_or(0),
                    live: Vec::new(),
                });
                None
            }
            b'+' => {
                let first = number()?;
                match (number(), number()) {
                    (Some(call), Some(address)) => {
                        self.is_raw = true;
                        self.call = call;
                        self.live.insert(address);
                        Some(plain(AllocFamily::Malloc, first, address))
                    }
                    (None, None) => {
                        let kind = self.kinds.get_mut(usize::try_from(first).ok()?)?;
                        let address = self.places.take(kind.size);
                        kind.live.push(address);
                        self.call = kind.call;
                        Some(plain(AllocFamily::Malloc, kind.size, address))
                    }
                    _ => return None,
                }
            }
            b'-' if self.is_raw => {
                let address = number()?;
                // heaptrack records frees of blocks that it did not see begin, and its own reader
                // skips them.
                self.live.remove(&address).then(|| freed(address))
            }
            b'-' => {
                let kind = self.kinds.get_mut(usize::try_from(number()?).ok()?)?;
                let address = kind.live.pop()?;
                self.places.give(address, kind.size);
                Some(freed(address))
            }
            b's' | b'i' | b't' | b'm' | b'x' => {
                self.calls.line(self.format, mode, rest);
                None
            }
            // Resident memory, suppressions and comments are not imported.
            b'R' | b'A' | b'S' | b'#' => None,
            _ => return None,
        })
    }
}

impl<R: BufRead> Source for Heaptrack<R> {
    fn next(&mut self) -> Result<Option<Call>, ForeignError> {
        while self.lines.advance()? {
            match self.line() {
                None => return Err(self.lines.wrong("this line can not be understood", REMEDY)),
                Some(None) => {}
                Some(Some(what)) => {
                    return Ok(Some(Call {
                        process: 0,
                        thread: 0,
                        time: Some(self.time),
                        frame: self.calls.frame(self.call),
                        what,
                    }))
                }
            }
        }
        Ok(None)
    }

    fn frames(&mut self) -> Vec<Frame> {
        self.calls.fresh()
    }

    fn modules(&self) -> Vec<Module> {
        self.calls.modules()
    }

    fn about(&self) -> About {
        let version = format!("{}.{}", self.version >> 16, self.version >> 8 & 0xff);
        let mut lost = vec![
            "touched pages",
            "threads",
            "functions and alignments (all is malloc and free)",
            "resizes (each is a free and an allocation)",
            "times finer than 10 ms",
        ];
        if !self.is_raw {
            lost.push("which of several blocks of one size and place of allocation was freed");
        }
        if self.calls.is_full() {
            lost.push("names of some functions");
        }
        About {
            has_stacks: true,
            format: match self.is_raw {
                true => format!("heaptrack {version}, raw"),
                false => format!("heaptrack {version}"),
            },
            command: self.command.clone(),
            page_size: self.page_size,
            lost,
        }
    }
}
