//! Reads the numbered lines of a text, and the numbers in them.

use std::io::{BufRead, Read};

use super::{At, ForeignError};
use crate::words;

/// The most bytes of a line, which may be a command with its arguments. A file with a longer line
/// is not a text.
const LONGEST: u64 = 1 << 20;
/// Characters of a line that an error shows.
const SHOWN: usize = 60;

/// Reads a text line by line.
#[derive(Debug)]
pub struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(input: R) -> Lines<R> {
        Lines {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Goes to the next line; false if there is none.
    pub fn advance(&mut self) -> Result<bool, ForeignError> {
        self.line.clear();
        self.number += 1;
        let mut limited = self.input.by_ref().take(LONGEST);
        limited
            .read_until(b'\n', &mut self.line)
            .map_err(|source| ForeignError::Read {
                at: At::Line(self.number),
                source,
            })?;
        if self.line.len() as u64 == LONGEST {
            return Err(self.wrong(
                "the line has more than a million bytes",
                "this is no such text",
            ));
        }
        let ended = self.line.trim_ascii_end().len();
        let any = !self.line.is_empty();
        self.line.truncate(ended);
        Ok(any)
    }

    /// The present line as text.
    pub fn text(&self) -> &[u8] {
        &self.line
    }

    /// An error about the present line.
    pub fn wrong(&self, what: &str, remedy: &'static str) -> ForeignError {
        let line = String::from_utf8_lossy(&self.line);
        ForeignError::Malformed {
            at: At::Line(self.number),
            what: format!("{what}: `{}`", words::excerpt(&line, SHOWN)),
            remedy,
        }
    }
}

/// A number in hexadecimal, with or without `0x`.
pub fn hexadecimal(word: &[u8]) -> Option<u64> {
    number(word.strip_prefix(b"0x").unwrap_or(word), 16)
}

/// The hexadecimal numbers of a line, separated by blanks; none for a word that is no such number.
pub fn hexadecimals(line: &[u8]) -> impl Iterator<Item = Option<u64>> + '_ {
    line.split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
        .map(hexadecimal)
}

/// A decimal number.
pub fn decimal(word: &[u8]) -> Option<u64> {
    number(word, 10)
}

fn number(word: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` would accept a sign.
    let word = std::str::from_utf8(word).ok()?;
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    digits.then(|| u64::from_str_radix(word, radix).ok())?
}
