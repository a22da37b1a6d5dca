//! The prepared file. It has the operations of threads in segments, as `native/replayer/program.h`
//! draws it.
//!
//! Segments of all threads follow each other in the order in which they fill up. Each has the
//! offset of its thread's next segment. The segment is written with its operations; the offset is
//! filled in when the next segment has its place.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// The version that the replayer checks.
pub const VERSION: u64 = 3;
/// Operations in a segment, which is 16 KiB long.
pub const SEGMENT: usize = 1_024;
/// Bytes before the first segment.
const HEAD: u64 = 128;
/// Most bytes of a block.
pub const MOST_BYTES: u64 = (1 << 40) - 1;
/// All pages of a block are touched.
pub const ALL_TOUCHED: u64 = (1 << 24) - 1;
/// The figure is not known.
pub const UNKNOWN: u64 = u64::MAX;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Allocates.
    Allocate = 1,
    /// Frees.
    Free = 2,
    /// Resizes; `Old` follows.
    Resize = 3,
    /// The old size of a resize.
    Old = 4,
    /// Starts a thread.
    Start = 5,
    /// Meets the other threads.
    Sample = 6,
    /// Waits for a time.
    Time = 7,
    /// Ends.
    End = 8,
    /// Touches pages of a block: from the low half of the second word up to its high half.
    Touch = 9,
    /// Asks the allocator to give memory back.
    Trim = 10,
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The kind.
    pub kind: Kind,
    /// The function, by its number.
    pub family: u8,
    /// Logarithm of the alignment; 0: none.
    pub alignment_log: u8,
    /// Class of the block's lifetime (`lives`); 0 if not requested.
    pub lifetime: u8,
    /// How often the slot was used.
    pub generation: u16,
    /// Slot, thread or sample.
    pub slot: u32,
    /// Bytes and touched pages; or a time.
    pub word1: u64,
}

impl Operation {
    /// An operation without further figures.
    pub fn of(kind: Kind, slot: u32, word1: u64) -> Operation {
        Operation {
            kind,
            family: 0,
            alignment_log: 0,
            lifetime: 0,
            generation: 0,
            slot,
            word1,
        }
    }

    fn bytes(&self) -> [u8; 16] {
        let word0 = self.kind as u64
            | u64::from(self.family & 15) << 4
            | u64::from(self.alignment_log & 63) << 8
            | u64::from(self.lifetime & 3) << 14
            | u64::from(self.generation) << 16
            | u64::from(self.slot) << 32;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&word0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.word1.to_le_bytes());
        bytes
    }
}

/// A point at which threads meet.
#[derive(Debug, Clone, Copy, Default)]
pub struct SamplePoint {
    /// Nanoseconds of the recording.
    pub time: u64,
    /// Events before it.
    pub events: u64,
    /// Bytes that live.
    pub live_bytes: u64,
    /// Blocks that live.
    pub live_blocks: u64,
    /// Resident bytes of the heap in the recording.
    pub recorded_heap: Option<u64>,
    /// Whether the replay looks at its heap here.
    pub looks: bool,
    /// Threads that meet.
    pub participants: u64,
    /// Threads that ended before.
    pub ended: u64,
}

/// A thread's operations that are not written yet, and the place of its last segment's link.
#[derive(Debug)]
pub struct Stream {
    thread: u32,
    buffer: Vec<u8>,
    link: Option<u64>,
}

/// Figures of the head.
#[derive(Debug, Clone, Copy)]
pub struct Totals {
    /// Slots.
    pub slots: u64,
    /// Threads at once.
    pub most_threads: u64,
    /// Blocks handed out, and resizes.
    pub allocations: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Whether times are in it.
    pub has_times: bool,
}

/// Writes a prepared file.
#[derive(Debug)]
pub struct Program {
    out: BufWriter<File>,
    at: u64,
    /// First segment of each thread.
    firsts: Vec<u64>,
    samples: Vec<SamplePoint>,
    operations: u64,
}

impl Program {
    /// Begins the file.
    pub fn new(file: File) -> io::Result<Program> {
        let mut out = BufWriter::with_capacity(1 << 18, file);
        out.write_all(&[0; HEAD as usize])?;
        Ok(Program {
            out,
            at: HEAD,
            firsts: Vec::new(),
            samples: Vec::new(),
            operations: 0,
        })
    }

    /// Adds a thread.
    pub fn thread(&mut self) -> Stream {
        self.firsts.push(0);
        Stream {
            thread: self.firsts.len() as u32 - 1,
            buffer: Vec::new(),
            link: None,
        }
    }

    /// Threads so far.
    pub fn threads(&self) -> u64 {
        self.firsts.len() as u64
    }

    /// Adds the thread's next operation.
    pub fn push(&mut self, stream: &mut Stream, operation: Operation) -> io::Result<()> {
        stream.buffer.extend_from_slice(&operation.bytes());
        self.operations += 1;
        if stream.buffer.len() >= SEGMENT * 16 {
            self.flush(stream)?;
        }
        Ok(())
    }

    /// Writes the thread's operations.
    pub fn flush(&mut self, stream: &mut Stream) -> io::Result<()> {
        if stream.buffer.is_empty() {
            return Ok(());
        }
        let here = self.at;
        match stream.link {
            None => self.firsts[stream.thread as usize] = here,
            Some(link) => {
                // The link may still be in the buffer.
                self.out.flush()?;
                self.out.get_ref().write_all_at(&here.to_le_bytes(), link)?;
            }
        }
        self.out.write_all(&0u64.to_le_bytes())?;
        let count = stream.buffer.len() as u64 / 16;
        self.out.write_all(&count.to_le_bytes())?;
        self.out.write_all(&stream.buffer)?;
        self.at += 16 + stream.buffer.len() as u64;
        stream.link = Some(here);
        stream.buffer.clear();
        Ok(())
    }

    /// Adds a point at which threads meet, and returns its number.
    pub fn sample(&mut self, point: SamplePoint) -> u32 {
        self.samples.push(point);
        self.samples.len() as u32 - 1
    }

    /// The points so far.
    pub fn samples(&self) -> &[SamplePoint] {
        &self.samples
    }

    /// Writes the tables and the head. Returns the bytes of the file.
    pub fn finish(mut self, totals: &Totals) -> io::Result<u64> {
        let samples_at = self.at;
        for point in &self.samples {
            let words = [
                point.time,
                point.events,
                point.live_bytes,
                point.live_blocks,
                point.recorded_heap.unwrap_or(UNKNOWN),
                point.participants,
                u64::from(point.looks),
                point.ended,
            ];
            for word in words {
                self.out.write_all(&word.to_le_bytes())?;
            }
        }
        let threads_at = samples_at + 64 * self.samples.len() as u64;
        for first in &self.firsts {
            self.out.write_all(&first.to_le_bytes())?;
        }
        let words = [
            u64::from_le_bytes(*b"LOAMRPL\n"),
            VERSION,
            totals.slots,
            self.firsts.len() as u64,
            totals.most_threads,
            self.samples.len() as u64,
            samples_at,
            threads_at,
            self.operations,
            totals.allocations,
            totals.page_bytes,
            totals.has_times.into(),
        ];
        self.out.seek(SeekFrom::Start(0))?;
        for word in words {
            self.out.write_all(&word.to_le_bytes())?;
        }
        self.out.flush()?;
        Ok(threads_at + 8 * self.firsts.len() as u64)
    }
}
