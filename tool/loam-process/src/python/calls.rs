//! The chain of a thread's Python frames, as a program in the kernel copied it at the moment of a
//! sample.
//!
//! ```text
//! in words:  0 record on the stack of C, in 3.11   1 number of frames
//!            then each frame: address, code, instruction, kind
//! ```

use loam_format::bytes::u64_at;

/// The most frames that are copied. Chosen: frameworks of servers have some sixty.
pub const MOST: usize = 96;
/// Words before the frames, and of a frame.
pub const HEAD: usize = 2;
/// The same of a frame.
pub const WORDS: usize = 4;
/// Bytes of a chain.
pub const BYTES: usize = 8 * (HEAD + WORDS * MOST);

/// A Python frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Frame {
    /// Where it was.
    pub address: u64,
    /// Its code.
    pub code: u64,
    /// Its instruction.
    pub instruction: u64,
    /// See `Layout::kind`.
    pub kind: u8,
}

/// The chain, the innermost frame first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// The record on the stack of C of the innermost call of the interpreter; 3.11 alone has one.
    pub record: u64,
    /// The frames.
    pub frames: Vec<Frame>,
}

/// Bits of a pointer that the interpreter keeps something else in, since 3.14.
const TAGS: u64 = 3;

impl Chain {
    /// Reads what the kernel wrote.
    pub fn read(bytes: &[u8]) -> Chain {
        let word = |at: usize| u64_at(bytes, 8 * at).unwrap_or(0);
        let count = (word(1) as usize).min(MOST);
        let frames = (0..count).map(|place| HEAD + WORDS * place);
        Chain {
            record: word(0),
            frames: frames
                .map(|at| Frame {
                    address: word(at),
                    code: word(at + 1) & !TAGS,
                    instruction: word(at + 2),
                    kind: word(at + 3) as u8,
                })
                .collect(),
        }
    }
}
