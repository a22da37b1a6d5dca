//! The cost of a look at a small program, in copied bytes: a time would depend on the machine.

use std::cell::Cell;
use std::path::Path;

use loam_format::counters::image::Image;
use loam_format::memory::{Memory, Piece, ReadError};

use crate::Watch;

/// Memory that counts the requested bytes.
struct Counted {
    image: Image,
    calls: Cell<u64>,
    bytes: Cell<u64>,
}

impl Counted {
    /// A process also has bytes between the pieces of its image.
    fn fill(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        const WORD: usize = 8;
        if self.image.read(address, buffer).is_err() {
            for (word, at) in buffer.chunks_mut(WORD).zip((address..).step_by(WORD)) {
                if self.image.read(at, word).is_err() {
                    word.fill(0);
                }
            }
        }
        Ok(())
    }

    fn count(&self, bytes: usize) {
        self.calls.set(self.calls.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}

impl Memory for Counted {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.count(buffer.len());
        self.fill(address, buffer)
    }

    fn gather(&self, pieces: &[Piece], buffer: &mut [u8]) -> Result<(), ReadError> {
        self.count(buffer.len());
        let mut rest = buffer;
        for piece in pieces {
            let (own, behind) = rest.split_at_mut(piece.length);
            self.fill(piece.address, own)?;
            rest = behind;
        }
        Ok(())
    }
}

#[test]
fn a_second_look_at_a_small_program_is_few_calls_and_few_bytes() {
    // Half a megabyte of the image are bins that no thread ever needed.
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/golden/split.image");
    let memory = Counted {
        image: crate::image::open(&path).unwrap(),
        calls: Cell::new(0),
        bytes: Cell::new(0),
    };
    let block = memory.image.block;
    let mut watch = Watch::default();
    watch.set_brief(true);
    watch.look(&memory, block).unwrap();
    memory.calls.set(0);
    memory.bytes.set(0);
    watch.look(&memory, block).unwrap();
    let (calls, bytes) = (memory.calls.get(), memory.bytes.get());
    assert!(
        calls <= 12 && bytes <= 256 << 10,
        "{calls} calls, {bytes} bytes"
    );
}
