//! heaptrack's data files: lines of a letter and hexadecimal numbers.
//!
//! ```text
//! v 10400 3            program and file format
//! X ./server --port 8  the command            I 1000 5e298f   bytes of a page, pages of the machine
//! c 1f4                milliseconds since the start
//! raw:          + SIZE TRACE ADDRESS          - ADDRESS
//! interpreted:  a SIZE TRACE (the next kind of block)    + KIND    - KIND
//! ```
//!
//! An interpreted file does not say which block of a kind was freed: the last one is taken.

use std::collections::HashSet;
use std::io::BufRead;

use super::lines::{hexadecimal, Lines};
use super::places::Places;
use super::{freed, plain, About, Call, ForeignError, Source, What};
use crate::trace::AllocFamily;

/// The newest file format that is known.
const NEWEST: u64 = 3;
const REMEDY: &str =
    "this is no data file of heaptrack 1.0 to 1.5, or it is damaged; record again with `heaptrack`";

/// Whether a file begins like one of these.
pub fn is_start(start: &[u8]) -> bool {
    let version = start
        .strip_prefix(b"v ")
        .and_then(|rest| rest.split(|byte| byte.is_ascii_whitespace()).next());
    version.and_then(hexadecimal).is_some()
}

/// Reads a data file.
#[derive(Debug)]
pub struct Heaptrack<R> {
    lines: Lines<R>,
    version: u64,
    command: Vec<String>,
    page_size: u64,
    time: u64,
    /// Bytes of each kind of block, and where those that live are.
    kinds: Vec<(u64, Vec<u64>)>,
    /// Of a raw file: where the blocks that live are.
    live: HashSet<u64>,
    places: Places,
    is_raw: bool,
}

impl<R: BufRead> Heaptrack<R> {
    pub fn new(input: R) -> Heaptrack<R> {
        Heaptrack {
            lines: Lines::new(input),
            version: 0,
            command: Vec::new(),
            page_size: 0,
            time: 0,
            kinds: Vec::new(),
            live: HashSet::new(),
            places: Places::new(),
            is_raw: false,
        }
    }

    /// What the line says; none: nothing that is imported.
    fn line(&mut self) -> Option<Option<What>> {
        let text = self.lines.text();
        let Some((&mode, rest)) = text.split_first() else {
            return Some(None);
        };
        let mut numbers = rest
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
            .map(hexadecimal);
        let mut number = || numbers.next().flatten();
        Some(match mode {
            b'v' => {
                self.version = number()?;
                let format = number().unwrap_or(1);
                if format > NEWEST {
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
                self.kinds.push((number()?, Vec::new()));
                None
            }
            b'+' => {
                let first = number()?;
                match (number(), number()) {
                    (Some(_), Some(address)) => {
                        self.is_raw = true;
                        self.live.insert(address);
                        Some(plain(AllocFamily::Malloc, first, address))
                    }
                    (None, None) => {
                        let (size, live) = self.kinds.get_mut(usize::try_from(first).ok()?)?;
                        let address = self.places.take(*size);
                        live.push(address);
                        Some(plain(AllocFamily::Malloc, *size, address))
                    }
                    _ => return None,
                }
            }
            b'-' if self.is_raw => {
                let address = number()?;
                // heaptrack writes down frees of blocks that it did not see begin, and its own reader passes over them.
                self.live.remove(&address).then(|| freed(address))
            }
            b'-' => {
                let (size, live) = self.kinds.get_mut(usize::try_from(number()?).ok()?)?;
                let address = live.pop()?;
                self.places.give(address, *size);
                Some(freed(address))
            }
            // Strings, addresses of code, stacks, modules, resident memory, suppressions, comments.
            b's' | b'i' | b't' | b'm' | b'x' | b'R' | b'A' | b'S' | b'#' => None,
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
                        what,
                    }))
                }
            }
        }
        Ok(None)
    }

    fn about(&self) -> About {
        let version = format!("{}.{}", self.version >> 16, self.version >> 8 & 0xff);
        let mut lost = vec![
            "touched pages",
            "threads",
            "functions and alignments (all is malloc and free)",
            "resizes (each is a free and an allocation)",
            "times finer than 10 ms",
            "stacks",
        ];
        if !self.is_raw {
            lost.push("which of several blocks of one size and place of allocation was freed");
        }
        About {
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
